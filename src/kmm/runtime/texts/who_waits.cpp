// Who waits for what, in words: for the message of the watchdog. Whoever has the baton; on demand only.
#include <algorithm>

#include "driver/byte_size.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

namespace {

using graph::TaskKind;
using graph::TaskState;

constexpr std::size_t most_predecessors = 3;
constexpr std::size_t most_tasks = 5;

std::string lanes_text(const graph::Task& task) {
    return "waits for " + std::to_string(task.unpassed_fences) + " lanes of devices to reach what it needs";
}

}  // namespace

std::string RuntimeCore::task_text(const Task& task) const {
    if (task.kind == TaskKind::join)
        return (task.is_barrier ? "the barrier " : "the join ") + std::to_string(task.number);
    const TaskFailure who = describe_failure(task);
    return "task \"" + who.task.task_name + "\" chunk " + std::to_string(task.chunk_index) + " of " +
           std::to_string(who.task.num_chunks) + " on " + who.place;
}

std::string RuntimeCore::waits_for_text(const Task& task) {
    const TaskState state = task.state.load(std::memory_order_relaxed);
    switch (state) {
    case TaskState::settled: return "is done";
    case TaskState::launching:
        if (task.unpassed_fences != 0) return lanes_text(task);
        return task.in_user_code.load(std::memory_order_relaxed)
                   ? "its device function is running"
                   : "waits for a launcher thread, or for work that its inputs come from to be handed out";
    case TaskState::issued:
        if (task.kind != TaskKind::host) return "was handed to the device, which has not finished it";
        if (task.unpassed_fences != 0) return lanes_text(task);
        return task.in_user_code.load(std::memory_order_relaxed) ? "its host function is running"
                                                                 : "waits for a thread of the host pool";
    case TaskState::ready: {
        if (!task.blocked) return "is ready and waits for its turn";
        if (!scheduler_->waits_for_memory(task)) return "waits for a task that still holds one of its chunks";
        std::size_t needed = 0;
        for (const graph::Access& a : task.accesses)
            if (a.chunk != nullptr && a.first_of_chunk) needed += rounded(a.chunk->block_bytes());
        const memory::Residency& r = scheduler_->residency();
        return "waits for memory: misses " + driver::byte_size_text(r.missing_bytes(task)) + " of the " +
               driver::byte_size_text(needed) + " that it needs; in use are " +
               driver::byte_size_text(r.counters(task.memory).current_bytes) + " of " +
               driver::byte_size_text(limits_[task.memory]);
    }
    case TaskState::waiting:
    case TaskState::executed: break;
    }
    std::vector<const Task*> before;
    std::size_t unfinished = 0;
    if (task.is_barrier) {
        table_.for_each([&](const Task& t) {
            if (t.number >= task.number) return;
            if (before.size() < most_predecessors) before.push_back(&t);
            ++unfinished;
        });
    } else {
        table_.find(task.predecessors, [&](const graph::Predecessor&, const Task* t) {
            if (t == nullptr) return;
            if (before.size() < most_predecessors) before.push_back(t);
            ++unfinished;
        });
    }
    std::string text = state == TaskState::executed ? "has run; waits for " : "waits for ";
    text += std::to_string(unfinished) + (unfinished == 1 ? " unfinished task" : " unfinished tasks") + " before it";
    for (std::size_t i = 0; i < before.size(); ++i) text += (i == 0 ? ": " : ", ") + task_text(*before[i]);
    if (unfinished > before.size()) text += ", ...";
    return text;
}

std::string RuntimeCore::stuck_text(TaskNumber awaited) {
    return with_baton([&]() KMM_REQUIRES(baton_) {
        if (!message_queue_.empty())
            turn_or_give_up();  // from here on every task up to the awaited one is known to the schedule
        const Task* const task = table_.find(awaited);
        if (task == nullptr) return std::string();
        std::string text = "a thread waits for " + task_text(*task) + " (event " + std::to_string(awaited);
        if (task->info && task->info->location.is_known()) text += ", submitted at " + to_string(task->info->location);
        text += "), which " + waits_for_text(*task);
        // Tasks that wait for others only are left out: what those others do is the answer. The state says that the
        // scheduler has them, so that nobody else writes to their records.
        std::vector<const Task*> shown;
        std::size_t more = 0;
        table_.for_each([&](const Task& t) {
            const TaskState state = t.state.load(std::memory_order_relaxed);
            if (&t == task ||
                (state != TaskState::ready && state != TaskState::launching && state != TaskState::issued))
                return;
            if (shown.size() < most_tasks)
                shown.push_back(&t);
            else
                ++more;
        });
        text += "\n  " + std::to_string(scheduler_->unsettled()) + " tasks are unfinished";
        for (const Task* t : shown) text += "\n  " + task_text(*t) + ": " + waits_for_text(*t);
        if (more != 0) text += "\n  and " + std::to_string(more) + " more that are ready or running";
        return text;
    });
}

}  // namespace kmm::detail
