// How far a task is, finer than its state: what texts about unfinished tasks begin with.
//
// Owns: nothing. Must not know: words. Reads the schedule, so runs under the baton.
#pragma once

#include <cstdint>

#include "kmm/graph/task.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::detail {

enum class TaskStage : std::uint8_t {
    waiting,           ///< for tasks that it comes after
    held_back,         ///< ready; earlier tasks need the memory that it would take
    ready,             ///< waits for its turn
    waits_for_chunk,   ///< ready; a task that runs holds one of its chunks
    waits_for_memory,  ///< ready
    waits_for_lanes,   ///< a function: lanes of devices have not reached what it needs
    waits_for_thread,  ///< a function
    in_function,       ///< user code runs
    on_device,         ///< handed out, and not seen to be complete
    executed,          ///< done; a task that it comes after is not settled
    settled,
};

TaskStage stage_of(const graph::Task& task, const schedule::Scheduler& scheduler);

}  // namespace kmm::detail
