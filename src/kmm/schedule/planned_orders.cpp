#include "kmm/schedule/planned_orders.hpp"

#include <algorithm>
#include <new>

namespace kmm::schedule {

using graph::Task;
using memory::MemoryIndex;

namespace {

// Number of tasks of an order, not ready yet, that later ones may pass over.
constexpr std::size_t most_passed_over = 8;
constexpr std::size_t most_looked_at = 4 * most_passed_over;
// Number of tasks issued before a search is tried again, if there was nothing to plan.
constexpr std::uint64_t tasks_without_plan = 16;
// Bound on steps of the search for each issued task, some ten microseconds: an order that took more is followed for
// longer.
constexpr std::uint64_t steps_a_task = 4000;

}  // namespace

PlannedOrders::PlannedOrders(graph::TaskTable& table, memory::Residency& residency)
    : table_(table),
      residency_(residency),
      search_(residency),
      orders_(memory::PerMemory<Order>::of_devices(residency.residents().num_devices())) {}

Task* PlannedOrders::next(MemoryIndex m, const TasksByKey& ready) {
    Order& o = orders_[m];
    if (o.is_over()) make(o, m, ready);
    std::size_t waiting = 0, looked_at = 0;
    for (std::size_t i = o.next; i < o.tasks.size() && looked_at < most_looked_at; ++i, ++looked_at) {
        ++num_steps_;
        Task* const task = table_.find(o.tasks[i]);
        const bool is_planned = task != nullptr && task->order_position != 0;  // else it was issued, or cancelled
        if (is_planned && task->in_fetch_queue) return task;
        if (is_planned && ++waiting == most_passed_over) break;
        if (!is_planned && i == o.next) ++o.next;
    }
    return nullptr;
}

/// An order is followed for half of its tasks, since its end ignores what comes after it; or for more, so that its cost
/// is O(1) for each task. None is made if nothing was evicted since the last one: memory is not short any more.
void PlannedOrders::make(Order& o, MemoryIndex m, const TasksByKey& ready) {
    const std::uint64_t evictions = residency_.space(m).counters.evictions;
    const std::uint64_t steps = search_.num_steps();
    o.num_issued = 0;
    o.holds_for = tasks_without_plan;
    try {
        rest_.reserve(OrderSearch::most_tasks);
        drop(o);
        if (evictions == o.evictions || ready.size() < 2) return;
        o.evictions = evictions;
        search_.begin(m);
        std::size_t count = 0;
        for (const KeyedTask& entry : ready) {
            if (++count > OrderSearch::most_ready) break;
            if (!search_.add_ready(*entry.task)) return;
        }
        const auto best = search_.make(rest_);
        o.holds_for = std::max<std::uint64_t>({1, best.size() / 2, (search_.num_steps() - steps) / steps_a_task});
        o.tasks.resize(best.size());
        for (std::size_t i = best.size(); i > 0; --i) {
            o.tasks[i - 1] = best[i - 1]->number;
            residency_.residents().plan(*best[i - 1], static_cast<std::uint16_t>(i));
        }
    } catch (const std::bad_alloc&) {
        drop(o);  // it goes without one
    }
}

/// Its tasks that were not issued are in `rest_` afterwards.
void PlannedOrders::drop(Order& o) noexcept {
    rest_.clear();
    for (const graph::TaskNumber number : o.tasks) {
        ++num_steps_;
        Task* const task = table_.find(number);
        if (task == nullptr || task->order_position == 0) continue;
        residency_.residents().unplan(*task);
        if (rest_.size() < rest_.capacity()) rest_.push_back(task);
    }
    o.tasks.clear();
    o.next = 0;
}

void PlannedOrders::do_without() noexcept {
    for (Order& o : orders_) {
        drop(o);
        o.num_issued = 0;
        o.holds_for = 1;
    }
}

}  // namespace kmm::schedule
