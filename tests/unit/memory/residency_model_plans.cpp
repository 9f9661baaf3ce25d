// Plans of the tasks that wait: which of them are issued, and when, has nothing to do with them.
#include <algorithm>
#include <vector>

#include "residency_model.hpp"

namespace kmm::residency_model {

/// Drops the plan of each memory, and plans some of the tasks that wait there, in any order.
void Machine::plan_waiting() {
    std::vector<Task*> tasks;
    for (const Waiting& w : waiting_) {
        residency_->residents().unplan(*w.task);
        if (w.task->across().empty() && w.task->memory.is_device() && !dice_.one_in(3)) tasks.push_back(w.task.get());
    }
    std::shuffle(tasks.begin(), tasks.end(), dice_.random);
    for (std::size_t i = tasks.size(); i > 0; --i)
        residency_->residents().plan(*tasks[i - 1], static_cast<std::uint16_t>(i));
    counts_.planned += tasks.size();
}

}  // namespace kmm::residency_model
