// Functions of the program that were handed to a thread, and which of them have been there for long.
//
// Owns: two counters. Must not know: why a function is asked about. Runs under the scheduler's baton.
#pragma once

#include <cstdint>

#include "kmm/graph/task.hpp"

namespace kmm::schedule {

/// Time is counted in looks, which `Scheduler::interval_passed` takes. All calls are O(1).
class RunningFunctions {
  public:
    void began(graph::Task& task) noexcept {
        task.function.began_at_look = num_looks_;
        ++count_;
        ++count_since_look_;
    }
    void ended(const graph::Task& task) noexcept {
        --count_;
        if (task.function.began_at_look == num_looks_) --count_since_look_;
    }
    std::uint64_t count() const noexcept { return count_; }

    /// Whether any has run since the look before.
    bool look() noexcept {
        const bool any = count_ != count_since_look_;
        if (any) long_before_ = num_looks_;
        ++num_looks_;
        count_since_look_ = 0;
        return any;
    }
    /// Whether the task was among those that made `look` true the last time it was.
    bool has_run_long(const graph::Task& task) const noexcept { return task.function.began_at_look < long_before_; }

  private:
    std::uint64_t count_ = 0;
    std::uint64_t count_since_look_ = 0;  ///< of `count_`: those that began after the latest look
    std::uint32_t num_looks_ = 0;         ///< enough for 49 days at one in a millisecond
    std::uint32_t long_before_ = 0;       ///< see `has_run_long`
};

}  // namespace kmm::schedule
