// Which ready task of a memory is next.
//
// Owns: for each memory the ready tasks that miss nothing, in the order in which they became ready, and those that miss
// something, as order_policy.hpp says, looking a little ahead (lookahead.hpp), or, where memory is short, as planned
// (planned_orders.hpp). What was submitted later than a task became ready may pass it over while the memory turns over
// four times. Must not know: lanes, how much room there is. Runs under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/schedule/admission.hpp"
#include "kmm/schedule/lookahead.hpp"
#include "kmm/schedule/outbox.hpp"
#include "kmm/schedule/planned_orders.hpp"
#include "kmm/schedule/tasks_by_key.hpp"
#include "kmm/schedule/tasks_by_place.hpp"

namespace kmm::schedule {

class ReadyTasks {
  public:
    ReadyTasks(graph::TaskTable& table, memory::Residency& residency, const SchedulerOptions& options);

    /// The ready task is here until it is taken. O(uses + log ready tasks).
    void add(Task& task);
    /// What ready tasks miss may have changed (memory::Requests::residency_changed).
    void changed(Task& task) { changed_.push_back(&task); }
    /// Where all but one of a task's predecessors are issued, that one may have become more urgent. O(predecessors),
    /// once for each task, where any waits to be fetched.
    void notice_last_predecessor(const Task& next);
    /// Takes what has changed into account. O(such tasks * log ready tasks).
    void refresh() {
        if (!changed_.empty()) order_again();
    }

    /// True: the first of those that missed nothing misses something now, and stands among those that do.
    bool first_was_evicted(MemoryIndex memory);
    /// The next task, which is here no longer; null: there is none. Of those that miss something none is taken unless
    /// `may_fetch()`, and none but `front`, if there is one. One that missed nothing still does so, if
    /// `first_was_evicted` said so just before. O(log ready tasks), and what a plan takes.
    template<typename MayFetch> Task* take(MemoryIndex memory, Task* front, MayFetch&& may_fetch) {
        Queue& q = queues_[memory];
        q.passing_bytes = 0;
        if (!q.resident.empty()) {
            Task* const task = q.resident.front();
            q.resident.pop_front();
            return task;
        }
        if (q.fetch.empty() || !may_fetch()) return nullptr;
        if (front == nullptr) return &take_to_fetch(q, memory);
        if (front->memory != memory || !front->in_fetch_queue) return nullptr;
        leave(*front);
        return front;
    }
    /// The task that was taken last was issued, or cancelled.
    void issued(MemoryIndex memory, TaskNumber task) noexcept;
    /// The first in the order of submission of a memory's tasks that miss something, if it is the front; else null.
    Task* take_front(const Admission& admission);
    /// Debug mode: the first in the order of submission of all tasks, if it is ready and not blocked; else null.
    Task* take_in_order();

    /// No plan is followed until a task has been issued.
    void do_without_orders() noexcept { planned_.do_without(); }
    void trim() noexcept { uses_.trim(); }
    /// Entries of lists that were looked at in all.
    std::uint64_t num_steps() const noexcept { return num_steps_ + planned_.num_steps(); }

  private:
    struct Queue {
        graph::Deque<Task*> resident;  ///< nothing is missing
        TasksByKey fetch;
        TasksByPlace by_age;              ///< of `fetch`
        TaskNumber oldest = 0;            ///< the first of `by_age`, when a task was chosen last
        TaskNumber last_when_queued = 0;  ///< of that one: see Task::last_when_queued
        std::size_t passing_bytes = 0;    ///< what the task misses that was taken last, if it passed over that one
        /// What tasks missed that were submitted later than that and were issued since the oldest one was last.
        std::uint64_t passed_over_bytes = 0;
    };
    std::size_t limit_bytes(MemoryIndex m) const noexcept { return residency_.space(m).counters.limit_bytes; }
    OrderKey key_of(const Task& task) const noexcept;
    void weigh(Task& task);
    void leave(Task& task);
    void order_again();
    Task& take_to_fetch(Queue& queue, MemoryIndex memory);
    Task& choose(Queue& queue, MemoryIndex memory);
    Task* best_to_fetch(Queue& queue);

    graph::TaskTable& table_;
    memory::Residency& residency_;
    const SchedulerOptions& options_;
    memory::PerMemory<Queue> queues_;
    memory::ReadyUsePool uses_;
    Lookahead lookahead_;
    PlannedOrders planned_;
    graph::TaskList changed_;     ///< in a fetch queue, with missing bytes that may have changed
    TasksByPlace ready_helpers_;  ///< debug mode: by the place in the order that they stand at
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
