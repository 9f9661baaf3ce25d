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
#include "kmm/runtime/batch.hpp"
#include "kmm/runtime/copy_buffers.hpp"
#include "kmm/runtime/copy_streams.hpp"
#include "kmm/runtime/engine_room.hpp"
#include "kmm/runtime/listeners.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/process_share.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/texts/pending_tasks.hpp"
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
    using std::enable_shared_from_this<RuntimeCore>::shared_from_this;

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
    LateKernels& late_kernels() noexcept { return reports_.late_kernels(); }
    CopyBuffers& copy_buffers() noexcept { return copy_buffers_; }
    CopyStreams& copy_streams() noexcept { return copy_streams_; }

    // ---- submitting (api/submission.cpp)
    /// Waits while too many tasks are unfinished; never inside a task.
    void admit();
    /// Whether `admit` would block now. Any thread.
    bool would_wait() const noexcept {
        const std::size_t most = platform_.config().max_pending_tasks;
        return most != 0 && engine::TaskScope::current() == nullptr && books_.unfinished().count() >= most;
    }
    /// The batch takes its places in the order, and goes to the scheduler. The order lock is held from the checks until
    /// then: a task that replaces a chunk must not be scheduled before an earlier one that reads it is known. An idle
    /// runtime schedules on the calling thread, which saves two wake-ups; once at most, so that a submit stays short.
    /// Throws what the batch throws, CL and OM, and then no place was taken; or OM, and the runtime is lost.
    /// False, and nothing has changed: the batch was to close the runtime, which is closed.
    bool commit(Batch& batch);
    /// As `commit`, of tasks of the library's own for which the caller is going to wait: it runs the first one itself
    /// if that can begin at once, rather than wake another thread. Not where it may wait for what the
    /// program does: the watchdog tells of those that wait in `wait_settled`.
    void commit_and_run(Batch& batch);
    /// Commits a task that does nothing: see JoinBatch.
    TaskNumber submit_join(const graph::Predecessors& predecessors, bool barrier);
    void release_array(memory::Array* array) noexcept;

    // ---- waiting
    /// False at the deadline. DL inside a task of this runtime; OM of a lost runtime, when nothing of it runs any more.
    /// Does not look at failures.
    /// `must_wait`: waits even where no other thread can take this one's place; otherwise DL there.
    bool wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline, bool must_wait = false);
    /// Throws the failure of a settled task, if it failed, and marks it delivered.
    void throw_failure(TaskNumber number);
    /// Likewise for a task that stands for several chunks: the error names this one.
    void throw_failure(TaskNumber number, std::uint32_t chunk_index, const DomainChunk& chunk);
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
    /// Entries of lists and trees that the scheduler has looked at in all: what the tests of its complexity count.
    std::uint64_t num_steps() {
        return turns_.with_everything_read([](const auto& scheduler, const auto&) { return scheduler.num_steps(); });
    }
    std::string report(ReportFormat format) { return reports_.report(format); }
    std::string plan_text(PlanFormat format) { return pending_tasks_.text(format); }

  private:
    RuntimeCore(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver);
    void start_threads();
    bool take_places(Batch& batch, bool* was_idle);
    bool publish(Batch& batch) noexcept;
    bool commit_barrier(Batch& batch);
    bool wait_until_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline, bool must_wait);
    void wait_idle();
    void log_stuck(TaskNumber awaited) noexcept;
    void log_undelivered() noexcept;
    [[noreturn]] void throw_deadlock(TaskNumber number) const;

    // Each part knows those before it, but that `engine_` and `turns_` know each other, through interfaces. The
    // scheduler's thread ends first, then those of the engine.
    Platform platform_;
    // Tasks of copies keep parts of them, those of a lost runtime until its books go.
    CopyBuffers copy_buffers_;
    CopyStreams copy_streams_;
    TaskBooks books_;
    FailureWords words_;
    ShortageWords shortage_words_;
    Listeners listeners_;
    EngineRoom engine_;
    SchedulerTurns turns_;
    Reports reports_;
    WhoWaits who_waits_;
    PendingTasks pending_tasks_;
    ProcessShare share_;
    std::vector<std::unique_ptr<supply::DeviceShare>> shares_;  ///< by device
};

}  // namespace kmm::detail
