// Which box of elements a transfer moves from each of its chunks, and which a region across chunks has of each.
//
// Owns: nothing: boxes follow from those of chunks, regions and temporaries, so that the size of a pending task does
// not depend on their shapes. Must not know: where chunks are. Any thread, while the task is pending.
#pragma once

#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::memory {

/// The part of the region that lies in the chunk, in the array's indices.
inline boxes::Box part_of(const graph::Across& across, const Chunk& chunk) noexcept {
    return boxes::intersection(across.region, chunk.box());
}
inline std::size_t part_bytes(const graph::Across& across, const Chunk& chunk) noexcept {
    return static_cast<std::size_t>(boxes::volume(part_of(across, chunk))) * chunk.owner->element_bytes;
}
/// The box, which lies in the chunk, between two replicas of that.
graph::BoxTransfer box_in(const Chunk& chunk, const boxes::Box& box) noexcept;

/// One box for each source. O(rank) for each that is asked for.
class MovedBoxes {
  public:
    /// Of a transfer: what its first use has in common with each other one.
    explicit MovedBoxes(const graph::Task& task) noexcept : task_(task), size_(task.uses.size() - 1) {}
    /// Of a region that is gathered into its temporary: its parts.
    MovedBoxes(const graph::Task& task, const graph::Across& across) noexcept
        : task_(task), across_(&across), size_(across.num_parts) {}

    std::size_t size() const noexcept { return size_; }
    const graph::Use& source(std::size_t i) const noexcept { return task_.uses[source_index(i)]; }
    const graph::Use& destination() const noexcept { return task_.uses[destination_index()]; }
    graph::BoxTransfer operator[](std::size_t i) const noexcept;

  private:
    std::uint32_t source_index(std::size_t i) const noexcept {
        return across_ != nullptr ? task_.parts_of(*across_)[i] : static_cast<std::uint32_t>(1 + i);
    }
    std::uint32_t destination_index() const noexcept { return across_ != nullptr ? across_->use : 0; }

    const graph::Task& task_;
    const graph::Across* across_ = nullptr;
    std::size_t size_;
};

}  // namespace kmm::memory
