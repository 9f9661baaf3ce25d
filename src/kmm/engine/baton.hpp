// The scheduler's baton: the thread that holds it runs the schedule.
//
// Owns: whether it is taken. Must not know: what is scheduled. Any thread; there is no queue of waiters.
#pragma once

#include <atomic>

#include "driver/locks.hpp"

namespace kmm::engine {

class KMM_CAPABILITY("baton") Baton {
  public:
    bool try_take() noexcept KMM_TRY_ACQUIRE(true) { return !taken_.exchange(true, std::memory_order_seq_cst); }
    void let_go() noexcept KMM_RELEASE() { taken_.store(false, std::memory_order_seq_cst); }
    bool is_taken() const noexcept { return taken_.load(std::memory_order_seq_cst); }

  private:
    std::atomic<bool> taken_{false};
};

}  // namespace kmm::engine
