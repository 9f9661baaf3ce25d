// How a thread waits for work: it looks for a short while, then sleeps until somebody wakes it.
//
// Owns: one flag and what the thread sleeps on. `wake` costs a load when the thread is awake.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "driver/locks.hpp"

namespace kmm::engine {

/// How long a thread of an idle runtime may look before it sleeps, and whether there are cores to burn: with few of
/// them it gives its core to the others between two looks.
constexpr std::chrono::microseconds spin_time{50};

inline bool many_cores() noexcept {
    static const bool many = std::thread::hardware_concurrency() > 4;
    return many;
}

class Sleeper {
  public:
    /// Returns when `ready()`, after a wake, or after `longest` if that is not zero. Only the owner calls it.
    /// `num_looks`: number of looks in a row that must find it ready while the thread spins, if there are many cores.
    template<typename R>
    void wait(R&& ready, std::chrono::milliseconds longest = std::chrono::milliseconds::zero(),
              int num_looks = 1) noexcept {
        const auto until = std::chrono::steady_clock::now() + spin_time;
        int left = many_cores() ? num_looks : 1;
        do {
            for (int i = 0; i < 32; ++i) {
                if (!ready())
                    left = many_cores() ? num_looks : 1;
                else if (--left <= 0)
                    return;
                if (many_cores())
                    locks::relax();
                else
                    std::this_thread::yield();
            }
        } while (std::chrono::steady_clock::now() < until);
        state_.store(asleep, std::memory_order_seq_cst);
        {
            locks::Lock lock(mutex_);
            const auto over = [&] { return state_.load(std::memory_order_seq_cst) != asleep || ready(); };
            if (longest == std::chrono::milliseconds::zero())
                condition_.wait(lock, over);
            else
                condition_.wait_for(lock, longest, over);
        }
        state_.store(awake, std::memory_order_seq_cst);
    }
    /// Called after what `ready` looks at was changed. Both sides must use sequentially consistent operations for that:
    /// then either the sleeper sees the change or this sees the sleeper.
    void wake() noexcept {
        if (state_.load(std::memory_order_seq_cst) == awake) return;
        if (state_.exchange(awake, std::memory_order_seq_cst) != asleep) return;
        { const locks::Guard guard(mutex_); }  // the sleeper has looked, or sleeps
        condition_.notify_one();
    }

  private:
    static constexpr int awake = 0;
    static constexpr int asleep = 1;
    std::atomic<int> state_{awake};
    locks::Mutex mutex_;
    locks::Condition condition_;
};

}  // namespace kmm::engine
