// A lock for sections of a few instructions: spins briefly, then yields. Never held over a call that can block.
//
// Owns: one flag. Must not know: what it guards. Any thread.
#pragma once

#include <atomic>
#include <thread>

namespace kmm::graph {

inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class SpinLock {
  public:
    void lock() noexcept {
        for (;;) {
            if (!held_.exchange(true, std::memory_order_acquire)) return;
            // Sixty-four pauses are about a microsecond; longer means that the holder lost its core.
            for (int i = 0; held_.load(std::memory_order_relaxed); ++i) {
                if (i < 64)
                    cpu_relax();
                else
                    std::this_thread::yield();
            }
        }
    }
    bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
    void unlock() noexcept { held_.store(false, std::memory_order_release); }

  private:
    std::atomic<bool> held_{false};
};

}  // namespace kmm::graph
