// The latest frees for which there may be no event yet: of large blocks, and of blocks that streams share.
//
// Owns: their fences, up to a limit. Must not know: events. A free that finds no room here is fenced when its memory is
// needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "driver/locks.hpp"
#include "rmm/heap/fence_set.hpp"
#include "rmm/pool/engine_mutex.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class uncovered_frees {
  public:
    /// `shared_lock`: of the arena whose blocks streams share.
    explicit uncovered_frees(kmm::locks::ShortLock& shared_lock) : shared_lock_(shared_lock) {
        large_.reserve(most_of_each);
        shared_.reserve(most_of_each);
    }
    void note_large(const heap::fence_set& fences) noexcept KMM_REQUIRES(in_engine) { note(large_, fences); }
    /// Under the lock of the shared arena.
    void note_shared(const heap::fence_set& fences) noexcept { note(shared_, fences); }
    /// Any thread.
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
    /// Throws std::bad_alloc, with nothing done.
    std::vector<heap::fence> take_all() KMM_REQUIRES(in_engine) {
        std::vector<heap::fence> all;
        all.reserve(2 * most_of_each);
        all.assign(large_.begin(), large_.end());
        large_.clear();
        const kmm::locks::Guard in(shared_lock_);
        all.insert(all.end(), shared_.begin(), shared_.end());
        shared_.clear();
        size_.store(0, std::memory_order_relaxed);
        return all;
    }

  private:
    // Twice the frees that are covered together (`frees_per_cover` in pool_fences.cpp), which the next request does:
    // rarely do more come between two requests. Reserved, 4 KiB each, so that no free needs host memory.
    static constexpr std::size_t most_of_each = 256;

    void note(std::vector<heap::fence>& list, const heap::fence_set& fences) noexcept {
        for (const heap::fence& f : fences) {
            if (list.size() == list.capacity()) return;
            list.push_back(f);
            size_.fetch_add(1, std::memory_order_relaxed);
        }
    }

    kmm::locks::ShortLock& shared_lock_;
    std::vector<heap::fence> large_ KMM_GUARDED_BY(in_engine);
    std::vector<heap::fence> shared_;  // under shared_lock_
    std::atomic<std::size_t> size_{0};
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
