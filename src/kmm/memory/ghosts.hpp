// Ghosts: clean copies of parts of a chunk, in a replica that does not hold all of it.
//
// Owns: plain records. Must not know: how they come there. Belongs to whoever holds the scheduler's baton.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kmm/graph/box.hpp"

namespace kmm::memory {

/// What tasks read of a chunk whose home is another device: each part stands where it would stand if all of the chunk
/// were there, so that it lies beside the chunks that are. Never written, never saved; the chunk's next version makes
/// it stale, and its place is used again.
struct Ghosts {
    /// Of a chunk in a stack two neighbours read an edge each. The oldest part gives way to another.
    static constexpr std::size_t most = 4;

    std::uint64_t version = 0;  ///< of the chunk, all of them
    std::array<graph::Box, most> boxes;
    std::uint32_t num_boxes = 0;
    std::uint32_t oldest = 0;
    Ghosts* next_free = nullptr;
    std::uint16_t place_in_slab = 0;

    bool hold(std::uint64_t of_version, const graph::Box& box) const noexcept {
        return version == of_version && std::any_of(boxes.begin(), boxes.begin() + num_boxes,
                                                    [&](const auto& held) { return graph::contains(held, box); });
    }
    /// Whether it may come beside what is here and nobody need look at: of the same version, and no byte of a part.
    bool have_room_for(std::uint64_t of_version, const graph::Box& box) const noexcept {
        return version == of_version && std::none_of(boxes.begin(), boxes.begin() + num_boxes,
                                                     [&](const auto& held) { return graph::overlaps(held, box); });
    }
    void add(std::uint64_t of_version, const graph::Box& box) noexcept {
        if (version != of_version) num_boxes = oldest = 0;
        version = of_version;
        if (num_boxes < most) {
            boxes[num_boxes++] = box;
        } else {
            boxes[oldest] = box;
            oldest = (oldest + 1) % most;
        }
    }

    static Ghosts*& free_link(Ghosts& g) noexcept { return g.next_free; }
    void clear() noexcept {
        version = 0;
        num_boxes = oldest = 0;
    }
    void recycle() noexcept { clear(); }
};

}  // namespace kmm::memory
