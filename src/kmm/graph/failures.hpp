// The failures of settled tasks, and which of them have not been delivered to the program.
//
// Owns: the failure of every task that failed, by number, until the runtime ends; a list of the undelivered roots. Must
// not know: threads, waits, texts. Any thread; each call holds a lock for its stated cost.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

class Failures {
  public:
    /// `task` is settled and failed. O(1).
    void add(const Task& task);
    /// The lowest place of a task that has ever failed; `no_failure` if none has.
    TaskNumber first() const noexcept { return first_.load(std::memory_order_acquire); }
    /// Null if the task did not fail. O(1).
    std::shared_ptr<Failure> find(TaskNumber number) const;
    /// As `find`, and marks the root as delivered. O(1).
    std::shared_ptr<Failure> deliver(TaskNumber number);
    /// The undelivered roots before `number`, in the order of their numbers; marks them as delivered. O(k log k) for k
    /// undelivered roots; delivered ones cost nothing.
    std::vector<std::shared_ptr<RootFailure>> deliver_before(TaskNumber number);
    /// Marks roots as undelivered again, because their delivery failed. O(k).
    void take_back(const std::vector<std::shared_ptr<RootFailure>>& roots) noexcept;

    /// Roots examined by all calls of `deliver_before`.
    std::uint64_t num_looked_at() const;

  private:
    void link(RootFailure& root) noexcept KMM_REQUIRES(mutex_);
    void unlink(RootFailure& root) noexcept KMM_REQUIRES(mutex_);

    mutable locks::Mutex mutex_;
    std::atomic<bool> any_{false};
    std::atomic<TaskNumber> first_{no_failure};
    UnorderedMap<TaskNumber, std::shared_ptr<Failure>> failures_ KMM_GUARDED_BY(mutex_);
    RootFailure* first_undelivered_ KMM_GUARDED_BY(mutex_) = nullptr;  // each lives as long as its task's failure
    std::uint64_t num_looked_at_ KMM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kmm::graph
