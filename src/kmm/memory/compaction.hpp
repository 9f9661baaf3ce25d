// Memories that are full or in pieces, while nothing uses them: blocks are moved together, and chunks of two memories
// change places.
//
// Owns: the bounce buffer, host memory outside the budget. Must not know: who gets it from the system, which task is
// next. Under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kmm/memory/residents.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

class Compaction {
  public:
    Compaction(Requests& requests, Residents& residents) noexcept : requests_(requests), residents_(residents) {}

    /// Moves blocks together, so that the free memory of each region is one piece. Only while nothing uses the memory.
    /// Copies in a device are requested; the host's are made before this returns. False: there was nothing to move.
    /// O(replicas * log replicas).
    bool compact(MemoryIndex m);
    /// Least size of the bounce buffer for that: a block whose new place overlaps the old one is moved by way of it,
    /// and stays if it does not fit. O(replicas * log replicas).
    std::size_t bounce_bytes_to_compact(MemoryIndex m);
    /// Exchanges the blocks of a chunk that the task lacks in its memory and of a chunk of the same size that the task
    /// does not use, by way of the bounce buffer: for memories that are full to the last byte. Only while nothing uses
    /// the memories. False: there is no such pair, or the buffer is too small. O(uses * victims * log victims).
    bool swap_for(graph::Task& task);
    /// Least size of the bounce buffer for `swap_for`; 0: there is no such pair. Cost: the same.
    std::size_t bounce_bytes_to_swap(graph::Task& task);

    std::size_t bounce_bytes() const noexcept { return bounce_bytes_; }
    void set_bounce(std::uintptr_t address, std::size_t bytes) noexcept;
    /// There is none any more; what on a device still uses it.
    FenceSet take_bounce() noexcept { return bounce_bytes_ = 0, std::exchange(bounce_users_, {}); }
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    struct Shift {
        Replica* replica;
        std::uintptr_t to;
        bool overlaps() const noexcept { return to + replica->chunk->block_bytes() > replica->block(); }
    };
    struct Swap {
        Chunk* chunk = nullptr;  ///< that the task lacks; null: there is no pair
        Chunk* other = nullptr;  ///< evicted for it
        MemoryIndex from, to;    ///< of `chunk`
        bool comes_up() const noexcept { return Tiers::below(to) == from; }
        Chunk& lower() const noexcept { return comes_up() ? *chunk : *other; }
        Chunk& upper() const noexcept { return comes_up() ? *other : *chunk; }
    };
    graph::Vector<Shift> list_shifts(MemoryIndex m, std::size_t most_overlapping_bytes);
    Fence shift(const Shift& shift, MemoryIndex m, const FenceSet& after);
    Swap find_swap(graph::Task& task);
    Chunk* last_needed_of_size(MemoryIndex m, std::size_t bytes, MemoryIndex other);
    void arrive(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block, Fence fence);

    Requests& requests_;
    Residents& residents_;
    std::uintptr_t bounce_address_ = 0;
    std::size_t bounce_bytes_ = 0;
    FenceSet bounce_users_;  ///< the latest, which comes after those before
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::memory
