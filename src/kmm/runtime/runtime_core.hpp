// A running runtime: its parts, put together, and what the public API asks of several of them.
//
// Owns: every part. What one part does by itself is asked of that part. Must not know: arrays as the program sees them,
// views, launchers. Any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kmm/api/runtime.hpp"
#include "kmm/core/stats.hpp"
#include "kmm/runtime/engine_room.hpp"
#include "kmm/runtime/listeners.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/process_share.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/texts/report.hpp"
#include "kmm/runtime/texts/shortage_words.hpp"
#include "kmm/runtime/texts/who_waits.hpp"
#include "kmm/runtime/turns.hpp"
#include "kmm/supply/device_share.hpp"

namespace kmm::detail {

class RuntimeCore final : public Runtime, public std::enable_shared_from_this<RuntimeCore> {
  public:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    /// NA IA DE OM.
    static std::shared_ptr<RuntimeCore> start(const RuntimeConfig& config,
                                              std::shared_ptr<driver::Driver> driver = nullptr);
    ~RuntimeCore();

    const Platform& platform() const noexcept { return platform_; }
    TaskBooks& books() noexcept { return books_; }
    const FailureWords& words() const noexcept { return words_; }
    const ShortageWords& shortage_words() const noexcept { return shortage_words_; }
    Listeners& listeners() noexcept { return listeners_; }
    UserCopies& user_copies() noexcept { return reports_.user_copies(); }

    // ---- submitting (api/submission.cpp)
    /// Waits while too many tasks are unfinished; never inside a task.
    void admit();
    /// Hands tasks to the scheduler, with the order lock held since they got their numbers: a task that replaces a
    /// chunk must not be scheduled before an earlier one that reads it is known. `joins` were made on the way: there is
    /// no list of all, which would need memory after the first number. Empties both. Returns whether nothing was
    /// pending. For whoever listens: `requests` are one for each access of `tasks`, in their order; at `begin_ns` their
    /// submit began.
    bool publish(graph::TaskList& tasks, graph::TaskList& joins, const plan::Request* requests = nullptr,
                 std::int64_t begin_ns = 0);
    bool publish(graph::TaskList& tasks) {
        graph::TaskList none;
        return publish(tasks, none);
    }
    /// They could not all be published: the runtime gives up. Those without a number stay in the list.
    void lose_order(graph::TaskList& tasks) noexcept { turns_.lose(tasks); }
    /// After `publish`, without the lock: sees to it that somebody takes the baton. An idle runtime schedules on the
    /// submitting thread, which saves two wake-ups; once at most, so that a submit stays short.
    void schedule_published(bool was_idle) { turns_.schedule_published(was_idle); }
    TaskNumber submit_join(const graph::Predecessors& predecessors, bool barrier);
    void release_array(memory::Array* array) noexcept;

    // ---- waiting (waits.cpp)
    /// False at the deadline. DL inside a task of this runtime. Does not look at failures.
    /// `must_wait`: nobody may go on before the task is settled, even where no other thread can take this one's place.
    bool wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline, bool must_wait = false);
    /// Throws the failure of a settled task, if it failed, and marks it delivered.
    void throw_failure(TaskNumber number);
    /// Throws the undelivered failures of tasks before `number`, if there are any.
    void throw_undelivered(TaskNumber number);
    bool inside_own_task() const noexcept { return engine::TaskScope::current() == platform_.runtime_mark(); }
    void synchronize();
    void close();
    bool idle() const noexcept { return books_.unfinished().count() == 0; }

    // ---- questions
    /// Gives free memory back to the driver; blocks until it did.
    void trim();
    /// See Listeners::trace.
    void trace(const std::string& path) { listeners_.trace(path, turns_); }
    RuntimeStats stats() { return reports_.stats(); }
    std::string report(ReportFormat format) { return reports_.report(format); }

  private:
    RuntimeCore(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver);
    void start_threads();
    void wait_idle();
    void log_stuck(TaskNumber awaited) noexcept;
    void log_undelivered() noexcept;
    [[noreturn]] void throw_deadlock(TaskNumber number) const;

    // Each part knows those before it, but that `turns_` and `engine_` know each other, through interfaces. The
    // scheduler's thread ends first, then those of the engine.
    Platform platform_;
    TaskBooks books_;
    FailureWords words_;
    ShortageWords shortage_words_;
    Listeners listeners_;
    SchedulerTurns turns_;
    EngineRoom engine_;
    Reports reports_;
    WhoWaits who_waits_;
    ProcessShare share_;
    std::vector<std::unique_ptr<supply::DeviceShare>> shares_;  ///< by device
};

}  // namespace kmm::detail
