// A thread that takes a pool's lock again and again, so that others find it taken now and then.
#pragma once

#include <atomic>
#include <thread>

#include "rmm/pool/engine.hpp"

namespace rmm_test {

class lock_taker {
  public:
    explicit lock_taker(rmm::mr::detail::pool_engine& pool)
        : thread_([this, &pool] {
              do num_taken_.store(pool.num_steps() + 1);
              while (!stops_);
          }) {
        while (num_taken_.load() == 0) std::this_thread::yield();
    }
    ~lock_taker() {
        stops_ = true;
        thread_.join();
    }
    lock_taker(const lock_taker&) = delete;
    lock_taker& operator=(const lock_taker&) = delete;

  private:
    std::atomic<bool> stops_{false};
    std::atomic<std::uint64_t> num_taken_{0};
    std::thread thread_;
};

}  // namespace rmm_test
