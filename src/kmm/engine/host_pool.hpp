// The threads that run host functions, and those that run device functions.
//
// Owns: what these threads do with a task (workers.hpp has threads and queues). The program's functions run here and
// nowhere else, with no lock held. A thread that has finished a task helps the scheduler, so that a chain of host tasks
// goes on without waking anybody.
#pragma once

#include <optional>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/engine/lanes.hpp"
#include "kmm/engine/mailbox.hpp"
#include "kmm/engine/workers.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::engine {

/// The stream that a device function was given.
struct TaskStream {
    Driver* driver = nullptr;
    int ordinal = 0;
    StreamHandle stream;
};

/// Marks the calling thread as running user code of a task of this runtime (waits are refused there).
class TaskScope {
  public:
    /// `stream`: of a device function; must live as long.
    TaskScope(const void* runtime, bool device_views, const TaskStream* stream = nullptr) noexcept;
    ~TaskScope();
    TaskScope(const TaskScope&) = delete;
    TaskScope& operator=(const TaskScope&) = delete;
    /// The runtime whose task this thread runs, or null.
    static const void* current() noexcept;
    /// The stream of the device function that this thread runs, or null.
    static const TaskStream* stream() noexcept;

  private:
    const void* previous_ = nullptr;
    const TaskStream* previous_stream_ = nullptr;
    bool device_views_;  ///< device views may be dereferenced by the code in this scope
};

class HostPool final : public Workers {
  public:
    /// `device_views`: code may dereference device views (host driver). `leaves_turns`: while tasks are queued a thread
    /// takes the next one, and leaves the scheduler to its own thread, which needs a core, and has the schedule in its
    /// caches. Fewer threads where the system gives no more, and then some are left to others; throws std::system_error
    /// if it gives none.
    HostPool(std::size_t num_threads, const void* runtime, bool device_views, Mailbox& mailbox,
             const trace::Emitter& emitter, bool nvtx, bool leaves_turns);
    ~HostPool() { end_threads(); }

    /// Tasks to run, or settled ones whose payloads are to be destroyed: all of them, or none if it throws.
    void push(std::span<graph::Task* const> tasks);

    /// For a thread that is going to wait for a task of the library's own. Where the turn of the scheduler that hands
    /// the task to the pool is this thread's, the thread runs it itself: waking one of the pool would take longer than
    /// a small copy. Not for the program's functions, which run on the pool.
    class RunHere {
      public:
        /// The task has its number. The pool must outlive this.
        RunHere(HostPool& pool, graph::TaskNumber task) noexcept;
        ~RunHere();
        RunHere(const RunHere&) = delete;
        RunHere& operator=(const RunHere&) = delete;
        /// Runs the task, if it was handed over here, and lets the scheduler know.
        void run();

      private:
        HostPool& pool_;
        // Of one around it: a turn of this thread may call the program's log handler, which may copy too.
        graph::TaskNumber outer_wanted_;
        graph::Task* outer_task_;
    };

  private:
    void run() override;
    void execute(graph::Task& task);
    void run(graph::Task& task, Workers* workers);
    void call(graph::Task& task);
    void report_end(graph::Task& task, std::exception_ptr error, std::int64_t begin_ns);
    graph::Task* help();

    const void* runtime_;
    bool device_views_;
    Mailbox& mailbox_;
    const trace::Emitter& emitter_;
    const bool nvtx_;
    const bool leaves_turns_;
};

/// Runs device functions of one device. Each runs on a launcher lane, and may block in a library. A thread whose
/// function waits for another runtime is replaced, and more come where no function ends for a while, so that there may
/// be more functions than lanes: then a lane has the work of several of them, one behind the other as they enqueue it,
/// and each comes after its own inputs all the same.
class LauncherThreads final : public Workers {
  public:
    /// Makes the DeviceResource and runs the body; throws what the body threw.
    class Runner {
      public:
        virtual void run_device_function(graph::Task& task, std::uint32_t device, StreamHandle stream) = 0;

      protected:
        ~Runner() = default;
    };
    /// One thread for each lane.
    LauncherThreads(std::uint32_t device, const std::vector<LaneId>& lanes, Lanes& streams, FailedTasks& failed,
                    const void* runtime, bool device_views, Runner& runner, Mailbox& mailbox,
                    const trace::Emitter& emitter, bool nvtx);
    ~LauncherThreads() { end_threads(); }
    void push(graph::Task& task);

  private:
    struct Lane {
        LaneId id = LaneId::none;
        graph::Position position = 0;  ///< of the function that returned last
        std::uint32_t functions = 0;   ///< that have begun and not returned
    };

    void run() override;
    /// Where a function runs, and who ran there last when it began.
    struct Turn {
        Lane* lane;
        graph::Position before;
    };
    Turn begin_function(std::size_t preferred) noexcept;
    void end_function(const Turn& turn, graph::Task& task, std::exception_ptr error);
    bool is_idle(const Lane& lane) noexcept;
    std::exception_ptr execute(graph::Task& task, LaneId lane, std::optional<Lanes::Scratch>& scratch);

    std::uint32_t device_;
    Lanes& lanes_;
    FailedTasks& failed_;
    const void* runtime_;
    bool device_views_;
    Runner& runner_;
    Mailbox& mailbox_;
    const trace::Emitter& emitter_;
    const bool nvtx_;
    locks::Mutex lanes_mutex_;  ///< under it only the message queue's lock, and a feeder's (`Lanes::enqueued`)
    std::vector<Lane> own_lanes_ KMM_GUARDED_BY(lanes_mutex_);
    std::size_t next_preferred_ KMM_GUARDED_BY(lanes_mutex_) = 0;
};

}  // namespace kmm::engine
