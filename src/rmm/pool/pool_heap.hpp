// The free memory of a pool that no arena has: a heap for each area of addresses.
//
// Owns: the heaps, and how far their fences have been compared with what has passed. Must not know: arenas, upstream,
// the driver. Under the engine's lock, but for `is_dry`.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "rmm/heap/heap.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/pool/piece.hpp"
#include "rmm/pool/pool_facts.hpp"
#include "rmm/pool/timeline.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_heap {
  public:
    pool_heap(const pool_facts& facts, timelines& streams);
    heap::heap& operator[](std::size_t area) KMM_REQUIRES(in_engine) { return areas_[area]; }
    std::size_t free_bytes() const noexcept KMM_REQUIRES(in_engine) {
        return areas_[0].free_bytes() + areas_[1].free_bytes();
    }
    std::size_t largest_free_bytes() const noexcept KMM_REQUIRES(in_engine) {
        return std::max(areas_[0].largest_free_bytes(), areas_[1].largest_free_bytes());
    }
    std::uint64_t num_steps() const noexcept KMM_REQUIRES(in_engine) {
        return areas_[0].num_steps() + areas_[1].num_steps();
    }

    /// A block of the area for its size that the timeline `own` may use without a wait; empty if there is none.
    piece take_ready(std::size_t size, std::uint64_t own) KMM_REQUIRES(in_engine) {
        const std::uint8_t area = facts_.area_of(size);
        return piece::of_heap(areas_[area].try_allocate_ready(size, own), area);
    }
    /// As `take_ready`, with any fences but those of `avoided`.
    piece take(std::size_t size, std::uint64_t own, std::span<const std::uint64_t> avoided = {})
        KMM_REQUIRES(in_engine) {
        const std::uint8_t area = facts_.area_of(size);
        return piece::of_heap(areas_[area].try_allocate(size, own, avoided), area);
    }
    /// Throws std::bad_alloc, with nothing done.
    void give(std::uint8_t area, std::uintptr_t address, std::size_t size, heap::fence_set fences)
        KMM_REQUIRES(in_engine) {
        fences.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
        areas_[area].free(address, size, std::move(fences));
        note_dry(false);
    }
    /// As `give`. What the host has no memory for is reported, and lost until the pool is destroyed.
    void give_or_lose(std::uint8_t area, std::uintptr_t address, std::size_t size, heap::fence_set fences) noexcept
        KMM_REQUIRES(in_engine);

    /// Clears fences that are known to have passed, and forgets timelines of which nothing is left. A bounded number of
    /// pieces, each in O(log free pieces); O(free pieces) where an event of the device has passed.
    void clear_passed() KMM_REQUIRES(in_engine);
    /// Whether there are more of them than `clear_passed` has cleared.
    bool has_more_to_clear() const noexcept KMM_REQUIRES(in_engine) { return more_to_clear_; }
    void expect_more_to_clear() noexcept KMM_REQUIRES(in_engine) { more_to_clear_ = true; }

    /// The last search of the heap failed. Any thread.
    bool is_dry() const noexcept { return is_dry_.load(std::memory_order_relaxed); }
    void note_dry(bool is_dry) noexcept {
        // Requests of all threads read it.
        if (is_dry_.load(std::memory_order_relaxed) != is_dry) is_dry_.store(is_dry, std::memory_order_relaxed);
    }

  private:
    const pool_facts& facts_;
    timelines& timelines_;
    std::atomic<bool> is_dry_{false};  // read without the lock
    alignas(64) std::array<heap::heap, pool_facts::num_areas> areas_ KMM_GUARDED_BY(in_engine);
    bool more_to_clear_ KMM_GUARDED_BY(in_engine) = false;
    // What is being cleared, in several steps where it is much; and how far each heap has come.
    std::optional<timelines::progress> clearing_ KMM_GUARDED_BY(in_engine);
    std::array<heap::heap::pruning, pool_facts::num_areas> prunings_ KMM_GUARDED_BY(in_engine);
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
