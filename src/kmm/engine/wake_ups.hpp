// How many of the threads that sleep at a queue are woken, and when: enough that a burst of tasks soon has all of them,
// and few where tasks end faster than a thread wakes up.
//
// Owns: counts of threads and of tasks. Must not know: threads, tasks, how a thread is woken, what time it is. Called
// under the queue's lock.
//
// A thread runs 5 to 50 us after it was woken, and waking it is a call of the system. One wakes two who each wake two
// more: n threads run after log2(n) wake-ups. But short tasks are done before those threads come, or faster by few
// threads than by many that compete for the queue: after a task has begun and ended during a wake-up, at most one
// thread is on its way at a time, woken by a thread that finds more than one task. This mode ends when no task ends
// during two wake-ups in a row. One is not enough: even of tiny tasks none ended during one of ten (two busy cores).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kmm::engine {

class WakeUps {
  public:
    /// Returns the argument for `task_ends`.
    [[nodiscard]] std::uint64_t task_begins() noexcept {
        ++running_;
        return measurements_;
    }
    void task_ends(std::uint64_t begun) noexcept {
        --running_;
        ++ended_;
        if (measures_ && begun == measurements_) tasks_are_short_ = true;
    }
    void falls_asleep() noexcept { ++sleeping_; }
    /// A thread that slept, whatever woke it, finds `queued` tasks and takes one, if any. Returns how many threads it
    /// is to wake; these count as on their way.
    [[nodiscard]] std::size_t arrives(std::size_t queued) noexcept {
        --sleeping_;
        if (on_their_way_ > 0) --on_their_way_;
        if (measures_ && earlier_-- == 0) end_measurement();
        return queued > 1 ? wake(queued - 1, most_by_one) : 0;
    }
    /// Returns how many threads a running thread is to wake for `queued` tasks; these count as on their way. If there
    /// is a task and a thread sleeps, at least one is on its way afterwards.
    [[nodiscard]] std::size_t for_tasks(std::size_t queued) noexcept {
        return wake(queued, most_by_one - std::min(most_by_one, on_their_way_));
    }

    /// Those on their way included.
    std::size_t sleeping() const noexcept { return sleeping_; }
    std::uint64_t tasks_ended() const noexcept { return ended_; }
    /// Tasks that have begun and not ended.
    std::size_t running() const noexcept { return running_; }

  private:
    static constexpr std::size_t most_by_one = 2;  // more would take one thread longer than two take in turn
    static constexpr int enough_without_end = 2;

    std::size_t wake(std::size_t queued, std::size_t most) noexcept {
        std::size_t woken = 0;
        for (; woken < most && on_their_way_ < sleeping_ && is_worth_one_more(queued); ++woken) {
            if (!measures_) begin_measurement();
            ++on_their_way_;
        }
        return woken;
    }
    /// At least one thread has to be on its way for a queued task: the running ones may depend on it.
    bool is_worth_one_more(std::size_t queued) const noexcept {
        return on_their_way_ == 0 ? queued > 0 : !tasks_are_short_ && queued > on_their_way_;
    }

    void begin_measurement() noexcept {
        measures_ = true;
        ++measurements_;
        earlier_ = on_their_way_;
        ended_before_ = ended_;
    }
    void end_measurement() noexcept {
        measures_ = false;
        if (ended_ == ended_before_) {
            if (running_ == 0) return;  // no task ran
            if (++without_end_ < enough_without_end) return;
            tasks_are_short_ = false;
        }
        without_end_ = 0;
    }

    std::size_t sleeping_ = 0;
    std::size_t on_their_way_ = 0;  ///< of them; never more than will arrive
    std::size_t running_ = 0;       ///< tasks
    std::uint64_t ended_ = 0;       ///< tasks
    bool tasks_are_short_ = false;
    int without_end_ = 0;    ///< wake-ups in a row during which tasks ran and none ended
    bool measures_ = false;  ///< one wake-up, until that thread arrives
    std::uint64_t measurements_ = 0;
    std::size_t earlier_ = 0;         ///< threads that were on their way before it
    std::uint64_t ended_before_ = 0;  ///< tasks
};

}  // namespace kmm::engine
