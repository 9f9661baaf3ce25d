// What is pending, for people: the tasks that have not settled, what they use, and what they come after.
//
// Owns: nothing. Figures are copied while the thread has the baton, so that they are of one moment; worded afterwards.
// Any thread.
#pragma once

#include <string>

#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/turns.hpp"

namespace kmm::detail {

class PendingTasks {
  public:
    PendingTasks(const Platform& platform, TaskBooks& books, const FailureWords& words, SchedulerTurns& turns) noexcept
        : platform_(platform), books_(books), words_(words), turns_(turns) {}

    /// All tasks and helpers that had their places when it was called. O(numbers from the oldest pending task on + uses
    /// + edges + pending tasks * log).
    std::string text(PlanFormat format);

  private:
    struct TaskFigures;
    struct Figures;

    void read_figures(Figures& figures, graph::TaskNumber last, graph::TaskNumber last_helper,
                      const schedule::Scheduler& scheduler);
    std::string title(const Figures& figures) const;
    std::string head_text(const TaskFigures& task) const;
    std::string plain_text(const Figures& figures) const;
    std::string dot_text(const Figures& figures) const;

    const Platform& platform_;
    TaskBooks& books_;
    const FailureWords& words_;
    SchedulerTurns& turns_;
};

}  // namespace kmm::detail
