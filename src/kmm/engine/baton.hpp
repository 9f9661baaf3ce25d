// The scheduler's baton: who has it runs the schedule.
//
// Owns: who has it, yes or no. Must not know: what is scheduled. Any thread; nobody waits in a queue for it.
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
