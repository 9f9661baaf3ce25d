// Plans of the next tasks: when one is made, and how far it is followed.
#include <algorithm>
#include <new>

#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

/// The next task of the plan, if it is ready; null: there is no plan, or it does not hold.
graph::Task* Scheduler::planned_to_fetch(Queue& q, MemoryIndex m) {
    if (q.issued_in_plan >= q.plan_holds_for) make_plan(q, m);
    while (q.next_in_plan < q.plan.size()) {
        ++num_steps_;
        Task* const task = table_.find(q.plan[q.next_in_plan]);
        if (task != nullptr && task->planned_at != 0) return task->in_fetch_queue ? task : nullptr;
        ++q.next_in_plan;  // it was issued, or cancelled
    }
    return nullptr;
}

/// A plan is followed for half of it, because its end does not know what comes behind; and so long that what was looked
/// at for it is a constant for each task.
void Scheduler::make_plan(Queue& q, MemoryIndex m) {
    constexpr std::size_t looked_at_a_task = 8;
    q.issued_in_plan = 0;
    q.plan_holds_for = Planner::most_tasks / 2;
    drop_plan(q);
    try {
        planner_.begin(m);
        std::size_t count = 0;
        for (const FetchEntry& entry : q.fetch) {
            if (++count > Planner::most_ready) break;
            if (!planner_.add_ready(*entry.task)) return;
        }
        const graph::TaskList& order = planner_.make(rest_of_plan_);
        q.plan_holds_for = std::max({std::size_t{1}, order.size() / 2, planner_.num_looked_at() / looked_at_a_task});
        q.plan.resize(order.size());
        for (std::size_t i = order.size(); i > 0; --i) {
            q.plan[i - 1] = order[i - 1]->number;
            residency_.plan(*order[i - 1], static_cast<std::uint16_t>(i));
        }
    } catch (const std::bad_alloc&) {
        drop_plan(q);  // it goes without one
    }
}

/// What is left of it is in `rest_of_plan_`.
void Scheduler::drop_plan(Queue& q) {
    rest_of_plan_.clear();
    for (const TaskNumber number : q.plan) {
        ++num_steps_;
        Task* const task = table_.find(number);
        if (task == nullptr || task->planned_at == 0) continue;
        residency_.unplan(*task);
        rest_of_plan_.push_back(task);
    }
    q.plan.clear();
    q.next_in_plan = 0;
}

}  // namespace kmm::schedule
