// Ghosts: clean copies of parts of a chunk, in a replica that does not hold all of it.
//
// Owns: plain records. Must not know: how they are fetched. Guarded by the scheduler's baton.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kmm/boxes/box.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::memory {

/// Parts that tasks read of a chunk whose home is another device. Each lies at its place in the chunk's block, and so
/// beside the chunks that are there as a whole. Never written, never saved; the chunk's next version makes them stale,
/// and their places are reused. The version is that of the replica.
struct Ghosts {
    /// Two neighbours read an edge each of a chunk in a stack. A further part replaces the oldest one.
    static constexpr std::size_t most = 4;

    std::array<boxes::Box, most> boxes;
    std::uint32_t num_boxes = 0;
    std::uint32_t oldest = 0;
    Ghosts* next = nullptr;   ///< of the chunk; or the next free record
    std::uint16_t order = 0;  ///< of the memory: Replica::order
    std::uint16_t place_in_slab = 0;

    bool hold(const boxes::Box& box) const noexcept {
        return std::any_of(boxes.begin(), boxes.begin() + num_boxes,
                           [&](const auto& held) { return boxes::contains(held, box); });
    }
    bool overlap(const boxes::Box& box) const noexcept {
        return std::any_of(boxes.begin(), boxes.begin() + num_boxes,
                           [&](const auto& held) { return boxes::overlaps(held, box); });
    }
    void add(const boxes::Box& box) noexcept {
        if (num_boxes < most) {
            boxes[num_boxes++] = box;
        } else {
            boxes[oldest] = box;
            oldest = (oldest + 1) % most;
        }
    }

    static Ghosts*& free_link(Ghosts& g) noexcept { return g.next; }
    void clear() noexcept { num_boxes = oldest = 0; }
    void recycle() noexcept {
        clear();
        next = nullptr;
    }

    /// Of a replica that holds ghosts. O(memories that have ghosts of the chunk).
    static Ghosts& of(const Replica& replica) noexcept {
        Ghosts* g = replica.chunk->ghosts;
        while (g->order != replica.order) g = g->next;
        return *g;
    }
    void link_to(Replica& replica) noexcept {
        order = replica.order;
        next = std::exchange(replica.chunk->ghosts, this);
        replica.holds = Holds::ghosts;
    }
    void unlink_from(Replica& replica) noexcept {
        Ghosts** at = &replica.chunk->ghosts;
        while (*at != this) at = &(*at)->next;
        *at = next;
        replica.holds = Holds::all;
    }
};

}  // namespace kmm::memory
