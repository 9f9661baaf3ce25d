// How a thread waits for work: it looks for a short while, then sleeps until somebody wakes it.
//
// Owns: one flag and one futex. `wake` costs a load when the thread is awake.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "kmm/graph/spin_lock.hpp"

namespace kmm::execute {

/// How long a thread of an idle runtime may look before it sleeps, and whether there are cores to burn: with few of them
/// it gives its core to the others between two looks.
constexpr std::chrono::microseconds spin_time{50};

inline bool many_cores() noexcept {
    static const bool many = std::thread::hardware_concurrency() > 4;
    return many;
}

class Sleeper {
  public:
    /// Returns when `ready()` or after a wake. Only the owner calls it.
    template<typename R> void wait(R&& ready) noexcept {
        const auto until = std::chrono::steady_clock::now() + spin_time;
        do {
            for (int i = 0; i < 32; ++i) {
                if (ready()) return;
                if (many_cores())
                    graph::cpu_relax();
                else
                    std::this_thread::yield();
            }
        } while (std::chrono::steady_clock::now() < until);
        state_.store(asleep, std::memory_order_seq_cst);
        while (!ready() && state_.load(std::memory_order_seq_cst) == asleep)
            state_.wait(asleep, std::memory_order_seq_cst);
        state_.store(awake, std::memory_order_seq_cst);
    }
    /// Called after what `ready` looks at was changed. Both sides must use sequentially consistent operations for that: then
    /// either the sleeper sees the change or this sees the sleeper.
    void wake() noexcept {
        if (state_.load(std::memory_order_seq_cst) == awake) return;
        if (state_.exchange(awake, std::memory_order_seq_cst) == asleep) state_.notify_one();
    }
    bool sleeping() const noexcept { return state_.load(std::memory_order_seq_cst) == asleep; }

  private:
    static constexpr int awake = 0;
    static constexpr int asleep = 1;
    std::atomic<int> state_{awake};
};

}  // namespace kmm::execute
