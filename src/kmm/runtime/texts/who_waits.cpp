#include "kmm/runtime/texts/who_waits.hpp"

#include "driver/format.hpp"

#include <vector>

#include "driver/byte_size.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/texts/shortage_words.hpp"

namespace kmm::detail {

namespace {

using graph::Task;
using graph::TaskKind;
using graph::TaskState;

constexpr std::size_t most_predecessors = 3;
constexpr std::size_t most_tasks = 5;

std::string lanes_text(const Task& task) {
    return driver::format("waits for {} lanes of devices to reach what it needs", task.function.unpassed_fences);
}

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
    const bool in_user_code = task.in_user_code.load(std::memory_order_relaxed);
    switch (task.state.load(std::memory_order_relaxed)) {
    case TaskState::settled: return "is done";
    case TaskState::launching:
        if (task.function.unpassed_fences != 0) return lanes_text(task);
        return in_user_code ? "its device function is running"
                            : "waits for a launcher thread, or for work that its inputs come from to be handed out";
    case TaskState::issued:
        if (task.kind != TaskKind::host && task.lane != graph::LaneId::none)
            return "was handed to the device, which has not finished it";
        if (task.function.unpassed_fences != 0) return lanes_text(task);
        return in_user_code ? "its host function is running" : "waits for a thread of the host pool";
    case TaskState::ready:
        if (scheduler.is_held_back(task)) return "is held back: earlier tasks need the memory that it would take";
        if (!task.blocked) return "is ready and waits for its turn";
        if (!scheduler.waits_for_memory(task)) return "waits for a task that still holds one of its chunks";
        return memory_text(task, scheduler.residency());
    case TaskState::executed: return "has run; waits for " + predecessors_text(task);
    case TaskState::waiting: break;
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
