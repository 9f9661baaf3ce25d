// Ghosts: clean copies of parts of a chunk, in a replica that does not hold all of it.
//
// Owns: plain records. Must not know: how they are fetched. Guarded by the scheduler's baton.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kmm/graph/box.hpp"

namespace kmm::memory {

/// Parts that tasks read of a chunk whose home is another device. Each lies at its place in the chunk's block, and so
/// beside the chunks that are there as a whole. Never written, never saved; the chunk's next version makes them stale,
/// and their places are reused.
struct Ghosts {
    /// Two neighbours read an edge each of a chunk in a stack. A further part replaces the oldest one.
    static constexpr std::size_t most = 4;

    std::uint64_t version = 0;  ///< of the chunk; common to all parts
    std::array<graph::Box, most> boxes;
    std::uint32_t num_boxes = 0;
    std::uint32_t oldest = 0;
    Ghosts* next_free = nullptr;
    std::uint16_t place_in_slab = 0;

    bool hold(std::uint64_t of_version, const graph::Box& box) const noexcept {
        return version == of_version && std::any_of(boxes.begin(), boxes.begin() + num_boxes,
                                                    [&](const auto& held) { return graph::contains(held, box); });
    }
    /// Whether `box` can be added without waiting for readers of the parts: same version, no overlap.
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
