// The tasks of a runtime as the program's threads see them: their order, which have settled, how those that failed
// ended.
//
// Owns: records of tasks, their numbers, the failures; what threads sleep on that wait for tasks. Must not know: the
// scheduler, devices, words. Any thread, but for what says otherwise.
//
// The last resort: where the reserve of host memory is used up as well (graph/host_reserve.hpp), a step may be left
// half done. The runtime is then *lost*: the scheduler takes no turn any more, devices get nothing more, and every call
// of the program throws OutOfMemory. What runs is waited for; then every task counts as ended.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <vector>

#include "driver/fork.hpp"
#include "driver/locks.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/graph/failures.hpp"
#include "kmm/graph/held_bytes.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_pool.hpp"
#include "kmm/graph/task_table.hpp"
#include "kmm/runtime/waiting.hpp"

namespace kmm::detail {

class TaskBooks {
  public:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    explicit TaskBooks(std::uint16_t runtime_number);
    TaskBooks(const TaskBooks&) = delete;
    TaskBooks& operator=(const TaskBooks&) = delete;

    // ---- taking a place in the order
    graph::TaskPool& pool() noexcept { return pool_; }
    graph::TaskTable& table() noexcept { return table_; }
    const graph::TaskTable& table() const noexcept { return table_; }
    /// Held while a submit takes its place in the order: numbers, bindings, histories of chunks.
    locks::Mutex& order() noexcept KMM_RETURNS_LOCK(order_) { return order_; }
    /// CL when closed or in the child of a fork; OM when the runtime is lost.
    void check_open() const {
        if (driver::lost_in_fork() || closed_.load(std::memory_order_relaxed) || is_lost()) [[unlikely]]
            throw_not_usable(true);
    }
    /// CL in the child of a fork: the runtime's threads do not exist there, and its locks may be held for ever.
    void refuse_after_fork() const {
        if (driver::lost_in_fork()) [[unlikely]]
            throw_not_usable(false);
    }
    /// Likewise, and OM when the runtime is lost.
    void check_usable() const {
        if (driver::lost_in_fork() || is_lost()) [[unlikely]]
            throw_not_usable(false);
    }
    /// Nothing more is taken. Under the order lock, or when no handle is left.
    void close() noexcept { closed_.store(true); }
    bool is_closed() const noexcept { return closed_.load(); }
    graph::HeldBytes& held() noexcept { return held_; }
    /// Under the order lock, before the first of at most `count` tasks gets its number and anything is changed: from
    /// here on until they are published nothing can fail. Throws std::bad_alloc.
    void begin_taking_places(std::size_t count) {
        graph::HostReserve::require();
        table_.reserve(count);
    }
    /// Tasks that are published and have not settled.
    UnfinishedTasks& unfinished() noexcept { return unfinished_; }
    const UnfinishedTasks& unfinished() const noexcept { return unfinished_; }
    std::uint64_t next_array_number() noexcept { return 1 + num_arrays_.fetch_add(1, std::memory_order_relaxed); }

    // ---- events
    EventId event_of(TaskNumber number) const noexcept {
        return EventId((static_cast<std::uint64_t>(runtime_number_) << 48) | number);
    }
    /// A bit marks the event of a barrier: a wait for it throws the undelivered failures before it.
    EventId barrier_event_of(TaskNumber number) const noexcept { return EventId(event_of(number).get() | barrier_bit); }
    static bool is_barrier(EventId event) noexcept { return (event.get() & barrier_bit) != 0; }
    TaskNumber number_of(EventId event) const;  ///< 0 for EventId{}; IA
    bool is_settled(TaskNumber number) const noexcept { return table_.is_settled(number); }
    /// What threads sleep on that wait for single tasks.
    SettledWaits& waits() noexcept { return waits_; }

    // ---- how tasks ended
    /// The task leaves the table, and its waiters are woken. By the thread that settles tasks, once for each.
    void settle(Task& task) noexcept;
    /// The lowest number of a task that has ever failed; the largest number there is if none has.
    TaskNumber first_failed() const noexcept { return failures_.first(); }
    std::shared_ptr<graph::Failure> failure_of(TaskNumber number) const { return failures_.find(number); }
    /// Likewise; the failure counts as delivered.
    std::shared_ptr<graph::Failure> deliver_failure(TaskNumber number) { return failures_.deliver(number); }
    /// Undelivered roots of failures before `number`, which count as delivered from now on. See graph::Failures.
    std::vector<std::shared_ptr<graph::RootFailure>> deliver_failures_before(TaskNumber number) {
        return failures_.deliver_before(number);
    }
    std::vector<std::shared_ptr<graph::RootFailure>> deliver_all_failures() { return deliver_failures_before(last_); }
    /// These could not be delivered, and count as undelivered again.
    void take_back(const std::vector<std::shared_ptr<graph::RootFailure>>& roots) noexcept {
        failures_.take_back(roots);
    }

    // ---- the last resort
    /// A step was left half done, or what a thread had to tell. Any thread, for ever.
    void lose() noexcept { lost_.store(true); }
    bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }
    /// Of a lost runtime, when nothing of it runs: every task leaves the table, and who waits for one is woken. By the
    /// thread that settles tasks, without the order lock. O(unsettled tasks).
    void end_all() noexcept;
    /// What fails for want of host memory fails with this error, which was made while there was some.
    const std::exception_ptr& no_host_memory() const noexcept { return no_host_memory_; }

  private:
    static constexpr std::uint64_t barrier_bit = 1ull << 47;
    static constexpr TaskNumber last_ = barrier_bit - 1;

    [[noreturn]] void throw_not_usable(bool must_be_open) const;
    void leave(Task& task) noexcept;

    // What every submit and every turn of the scheduler look at: on a cache line with what does not change.
    const std::uint16_t runtime_number_;
    std::atomic<bool> closed_{false};
    std::atomic<bool> lost_{false};
    const std::exception_ptr no_host_memory_;

    alignas(64) locks::Mutex order_;
    graph::HeldBytes held_;
    std::atomic<std::uint64_t> num_arrays_{0};  ///< that were ever bound
    graph::TaskPool pool_;
    graph::TaskTable table_;
    UnfinishedTasks unfinished_{table_};
    SettledWaits waits_{table_};
    graph::Failures failures_;
};

}  // namespace kmm::detail
