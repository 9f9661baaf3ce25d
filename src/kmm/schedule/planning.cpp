// Plans of the next tasks: when one is made, and how far it is followed.
#include <algorithm>
#include <new>

#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

namespace {

// Number of tasks of a plan, not ready yet, that later ones may pass over.
constexpr std::size_t most_passed_over = 8;
constexpr std::size_t most_looked_at = 4 * most_passed_over;
// Number of tasks issued before planning is tried again, if there was nothing to plan.
constexpr std::uint64_t tasks_without_plan = 16;
// Bound on planning steps for each issued task, some ten microseconds: a plan that took more is followed for longer.
constexpr std::uint64_t steps_a_task = 4000;

}  // namespace

/// The next task of the plan that is ready; null: there is no plan, or it does not hold.
graph::Task* Scheduler::planned_to_fetch(Queue& q, MemoryIndex m) {
    if (q.plan_is_over()) make_plan(q, m);
    std::size_t waiting = 0, looked_at = 0;
    for (std::size_t i = q.next_in_plan; i < q.plan.size() && looked_at < most_looked_at; ++i, ++looked_at) {
        ++num_steps_;
        Task* const task = table_.find(q.plan[i]);
        const bool is_planned = task != nullptr && task->planned_at != 0;  // else it was issued, or cancelled
        if (is_planned && task->in_fetch_queue) return task;
        if (is_planned && ++waiting == most_passed_over) break;
        if (!is_planned && i == q.next_in_plan) ++q.next_in_plan;
    }
    return nullptr;
}

/// A plan is followed for half of its tasks, since its end ignores what comes after it; or for more, so that its cost
/// is O(1) for each task. None is made if nothing was evicted since the last one: memory is not short any more.
void Scheduler::make_plan(Queue& q, MemoryIndex m) {
    const std::uint64_t evictions = residency_.space(m).counters.evictions;
    const std::uint64_t steps = planner_.num_steps();
    q.issued_in_plan = 0;
    q.plan_holds_for = tasks_without_plan;
    try {
        rest_of_plan_.reserve(Planner::most_tasks);
        drop_plan(q);
        if (evictions == q.evictions_planned || q.fetch.size() < 2) return;
        q.evictions_planned = evictions;
        planner_.begin(m);
        std::size_t count = 0;
        for (const FetchEntry& entry : q.fetch) {
            if (++count > Planner::most_ready) break;
            if (!planner_.add_ready(*entry.task)) return;
        }
        const auto order = planner_.make(rest_of_plan_);
        q.plan_holds_for =
            std::max<std::uint64_t>({1, order.size() / 2, (planner_.num_steps() - steps) / steps_a_task});
        q.plan.resize(order.size());
        for (std::size_t i = order.size(); i > 0; --i) {
            q.plan[i - 1] = order[i - 1]->number;
            residency_.residents().plan(*order[i - 1], static_cast<std::uint16_t>(i));
        }
    } catch (const std::bad_alloc&) {
        drop_plan(q);  // it goes without one
    }
}

/// Its tasks that were not issued are in `rest_of_plan_` afterwards.
void Scheduler::drop_plan(Queue& q) noexcept {
    rest_of_plan_.clear();
    for (const TaskNumber number : q.plan) {
        ++num_steps_;
        Task* const task = table_.find(number);
        if (task == nullptr || task->planned_at == 0) continue;
        residency_.residents().unplan(*task);
        if (rest_of_plan_.size() < rest_of_plan_.capacity()) rest_of_plan_.push_back(task);
    }
    q.plan.clear();
    q.next_in_plan = 0;
}

/// Until a task has been issued.
void Scheduler::do_without_plans() noexcept {
    for (Queue& q : queues_) {
        drop_plan(q);
        q.issued_in_plan = 0;
        q.plan_holds_for = 1;
    }
}

}  // namespace kmm::schedule
