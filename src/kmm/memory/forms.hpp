// Regions that lie in several chunks: whether a task reads the chunks where they are, or a copy of the region.
//
// The chunks themselves, where they lie side by side: nothing is copied. So they are laid side by side when a task
// reads across them and there is room without that anything must leave; what is taken for such an array later is taken
// beside its neighbours. Of a chunk that other devices write, and of which the task reads little, only that is brought
// to its place (ghosts.hpp). Else the parts are gathered into a temporary, from wherever they are, which moves the
// region alone.
//
// Owns: nothing. Must not know: what is evicted. Under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/memory/residents.hpp"

namespace kmm::memory {

class Forms {
  public:
    Forms(Requests& requests, Residents& residents) noexcept : requests_(requests), residents_(residents) {}

    /// Chooses the form of each region of the task. `yes`, `growing` or `starved`. O(parts), plus laying chunks side by
    /// side, mostly once for each array and memory.
    Found choose(graph::Task& task);
    /// Switches regions to be read in place, and gathered ones that were evicted, to a gather. False: there is none.
    bool gather_instead(graph::Task& task) noexcept;
    /// Whether the chosen forms still hold after the allocation, which may have evicted the task's own chunks.
    bool hold(const graph::Task& task) const noexcept;
    /// The task has its memory: requests what is gathered, and removes the next uses of parts and temporaries that the
    /// chosen forms do not need.
    void finish(graph::Task& task);
    /// Bytes that would have to be fetched or allocated for the region. O(parts).
    std::size_t missing_bytes_of(const graph::Task& task, const graph::Across& across) const noexcept;
    /// Memory for a chunk whose array is read across chunks: beside a neighbour, or with room for those that tasks have
    /// read together with it. Empty if there is none. Throws std::bad_alloc, and nothing has changed.
    rmm::heap::block take_beside(Chunk& chunk, MemoryIndex m);
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    bool lie_side_by_side(const graph::Task& task, const graph::Across& across) const noexcept;
    bool have_room_beside(const graph::Task& task, std::size_t bytes) noexcept;
    bool find_ghosts(const graph::Task& task, graph::Across& across) noexcept;
    void fetch_ghosts(graph::Task& task, const graph::Across& across);
    bool take_gaps(const graph::Task& task, const graph::Across& across);
    Found lay_side_by_side(graph::Task& task, const graph::Across& across);
    Found lay_range(graph::Task& task, Array& array, const ChunkRange& range, std::size_t total);
    void move_to(Chunk& chunk, std::uintptr_t block, const FenceSet& users_of_block, graph::Task& task);
    void gather(graph::Task& task, const graph::Across& across);

    Requests& requests_;
    Residents& residents_;
    Boxes boxes_;  ///< of the transfer that is requested; keeps its memory
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::memory
