// Who waits for what, in words: for the message of the watchdog. On demand only.
//
// Owns: nothing. Takes the baton. Any thread.
#pragma once

#include <string>

#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/turns.hpp"

namespace kmm::detail {

class WhoWaits {
  public:
    WhoWaits(const Platform& platform, TaskBooks& books, const FailureWords& words, SchedulerTurns& turns) noexcept
        : platform_(platform), books_(books), words_(words), turns_(turns) {}

    /// What keeps the task from settling, and what else is going on; empty if it is settled. O(unsettled tasks).
    std::string stuck_text(graph::TaskNumber awaited);

  private:
    std::string waits_for_text(const graph::Task& task, const schedule::Scheduler& scheduler);
    std::string memory_text(const graph::Task& task, const memory::Residency& residency);
    std::string predecessors_text(const graph::Task& task);
    std::string others_text(const graph::Task& awaited, const schedule::Scheduler& scheduler);

    const Platform& platform_;
    TaskBooks& books_;
    const FailureWords& words_;
    SchedulerTurns& turns_;
};

}  // namespace kmm::detail
