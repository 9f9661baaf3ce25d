#include "kmm/runtime/texts/who_waits.hpp"

#include "driver/format.hpp"

#include <vector>

#include "driver/byte_size.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/texts/shortage_words.hpp"
#include "kmm/runtime/texts/task_stage.hpp"

namespace kmm::detail {

namespace {

using graph::Task;
using graph::TaskState;

constexpr std::size_t most_predecessors = 3;
constexpr std::size_t most_tasks = 5;

}  // namespace

std::string WhoWaits::memory_text(const Task& task, const memory::Residency& r) {
    using driver::byte_size_text;
    return driver::format("waits for memory: misses {} of the {} that it needs; in use are {} of {}",
                          byte_size_text(r.missing_bytes(task)), byte_size_text(needed_bytes(task)),
                          byte_size_text(r.space(task.memory).counters.current_bytes),
                          byte_size_text(platform_.limit_bytes(task.memory)));
}

std::string WhoWaits::predecessors_text(const Task& task) {
    std::vector<const Task*> shown;
    std::size_t unfinished = 0;
    const auto add = [&](const Task& t) {
        if (shown.size() < most_predecessors) shown.push_back(&t);
        ++unfinished;
    };
    if (task.is_barrier) {
        books_.table().for_each([&](const Task& t) {
            if (t.number < task.number) add(t);
        });
    } else {
        books_.table().find(task.predecessors, [&](const graph::Predecessor&, const Task* t) {
            if (t != nullptr) add(*t);
        });
    }
    std::string text = driver::format("{} before it", driver::count_text(unfinished, "unfinished task"));
    for (std::size_t i = 0; i < shown.size(); ++i) text += (i == 0 ? ": " : ", ") + words_.task_text(*shown[i]);
    if (unfinished > shown.size()) text += ", ...";
    return text;
}

std::string WhoWaits::waits_for_text(const Task& task, const schedule::Scheduler& scheduler) {
    const bool on_launcher = task.state.load(std::memory_order_relaxed) == TaskState::launching;
    switch (stage_of(task, scheduler)) {
    case TaskStage::waiting: break;
    case TaskStage::held_back: return "is held back: earlier tasks need the memory that it would take";
    case TaskStage::ready: return "is ready and waits for its turn";
    case TaskStage::waits_for_chunk: return "waits for a task that still holds one of its chunks";
    case TaskStage::waits_for_memory: return memory_text(task, scheduler.residency());
    case TaskStage::waits_for_lanes:
        return driver::format("waits for {} lanes of devices to reach what it needs", task.function.unpassed_fences);
    case TaskStage::waits_for_thread:
        return on_launcher ? "waits for a launcher thread, or for work that its inputs come from to be handed out"
                           : "waits for a thread of the host pool";
    case TaskStage::in_function: return on_launcher ? "its device function is running" : "its host function is running";
    case TaskStage::on_device: return "was handed to the device, which has not finished it";
    case TaskStage::executed: return "has run; waits for " + predecessors_text(task);
    case TaskStage::settled: return "is done";
    }
    return "waits for " + predecessors_text(task);
}

// Tasks that only wait for other tasks are left out: the states of those others are the answer. In the states that are
// listed the scheduler has the task, so that no other thread writes to its record.
std::string WhoWaits::others_text(const Task& awaited, const schedule::Scheduler& scheduler) {
    std::vector<const Task*> shown;
    std::size_t more = 0;
    books_.table().for_each([&](const Task& t) {
        const TaskState state = t.state.load(std::memory_order_relaxed);
        if (&t == &awaited ||
            (state != TaskState::ready && state != TaskState::launching && state != TaskState::issued))
            return;
        if (shown.size() < most_tasks)
            shown.push_back(&t);
        else
            ++more;
    });
    std::string text;
    for (const Task* t : shown)
        text += driver::format("\n  {}: {}", words_.task_text(*t), waits_for_text(*t, scheduler));
    if (more != 0) text += driver::format("\n  and {} more that are ready or running", more);
    return text;
}

std::string WhoWaits::stuck_text(graph::TaskNumber awaited) {
    // Once everything is read, every task up to the awaited one is known to the schedule.
    return turns_.with_everything_read([&](schedule::Scheduler& scheduler, Outgoing&) {
        const Task* const task = books_.table().find(awaited);
        if (task == nullptr) return std::string();
        std::string where;
        if (task->info && task->info->location.is_known())
            where = driver::format(", submitted at {}", to_string(task->info->location));
        return driver::format("a thread waits for {} (event {}{}), which {}\n  {} tasks are unfinished{}",
                              words_.task_text(*task), awaited, where, waits_for_text(*task, scheduler),
                              scheduler.unsettled(), others_text(*task, scheduler));
    });
}

}  // namespace kmm::detail
