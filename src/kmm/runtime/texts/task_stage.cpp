#include "kmm/runtime/texts/task_stage.hpp"

namespace kmm::detail {

using graph::TaskState;

namespace {

TaskStage stage_of_ready(const graph::Task& task, const schedule::Scheduler& scheduler) {
    if (scheduler.is_held_back(task)) return TaskStage::held_back;
    if (!task.blocked) return TaskStage::ready;
    return scheduler.waits_for_memory(task) ? TaskStage::waits_for_memory : TaskStage::waits_for_chunk;
}

TaskStage stage_of_function(const graph::Task& task) {
    if (task.function.unpassed_fences != 0) return TaskStage::waits_for_lanes;
    return task.in_user_code.load(std::memory_order_relaxed) ? TaskStage::in_function : TaskStage::waits_for_thread;
}

}  // namespace

TaskStage stage_of(const graph::Task& task, const schedule::Scheduler& scheduler) {
    switch (task.state.load(std::memory_order_relaxed)) {
    case TaskState::waiting: break;
    case TaskState::ready: return stage_of_ready(task, scheduler);
    case TaskState::launching: return stage_of_function(task);
    case TaskState::issued:
        if (task.kind != graph::TaskKind::host && task.lane != graph::LaneId::none) return TaskStage::on_device;
        return stage_of_function(task);
    case TaskState::executed: return TaskStage::executed;
    case TaskState::settled: return TaskStage::settled;
    }
    return TaskStage::waiting;
}

}  // namespace kmm::detail
