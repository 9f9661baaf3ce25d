// A lock for sections of a fraction of a microsecond, which never call the driver or user code.
//
// A waiter spins for about as long as a few sections take, then lets other threads of its core run, and only then
// sleeps: sleeping and waking cost ten to a hundred times the section. Owns one word. Any thread; a Lockable, for
// std::unique_lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

class short_lock {
  public:
    void lock() noexcept {
        std::uint32_t seen = free;
        if (!state_.compare_exchange_strong(seen, held, std::memory_order_acquire, std::memory_order_relaxed))
            lock_slowly();
    }
    bool try_lock() noexcept {
        std::uint32_t seen = free;
        return state_.compare_exchange_strong(seen, held, std::memory_order_acquire, std::memory_order_relaxed);
    }
    /// Also waits for a section that is short, for whoever can do without the lock.
    bool try_lock_briefly() noexcept {
        for (int spin = 0; spin < few_spins; ++spin) {
            if (state_.load(std::memory_order_relaxed) == free && try_lock()) return true;
            pause();
        }
        return try_lock();
    }
    void unlock() noexcept {
        if (state_.exchange(free, std::memory_order_release) == held_with_sleepers) state_.notify_one();
    }

  private:
    static constexpr std::uint32_t free = 0;
    static constexpr std::uint32_t held = 1;
    static constexpr std::uint32_t held_with_sleepers = 2;
    // About 5 microseconds of pauses: some ten sections.
    static constexpr int max_spins = 128;
    // As long as the shortest sections.
    static constexpr int few_spins = 8;
    // Then half a microsecond each where no other thread wants the core; where one does, it may be the one that holds
    // the lock. Whoever waits longer waits for a thread that lost its core for long.
    static constexpr int max_yields = 64;

    static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    void lock_slowly() noexcept {
        for (int spin = 0; spin < max_spins; ++spin) {
            pause();
            if (state_.load(std::memory_order_relaxed) == free && try_lock()) return;
        }
        for (int yield = 0; yield < max_yields; ++yield) {
            std::this_thread::yield();
            if (state_.load(std::memory_order_relaxed) == free && try_lock()) return;
        }
        // From here on nobody knows who else sleeps: the lock is taken as if somebody did.
        while (state_.exchange(held_with_sleepers, std::memory_order_acquire) != free)
            state_.wait(held_with_sleepers, std::memory_order_relaxed);
    }

    std::atomic<std::uint32_t> state_{free};
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
