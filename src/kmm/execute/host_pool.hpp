// The threads that run host functions, and those that run device functions.
//
// Owns: the threads and their queues. User code runs here and nowhere else, with no lock held. A thread that has finished
// a task helps the planner, so that a chain of host tasks goes on without waking anybody.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "kmm/execute/lanes.hpp"
#include "kmm/execute/messages.hpp"

namespace kmm::execute {

/// Marks the calling thread as running user code of a task of this runtime (waits are refused there).
class TaskScope {
  public:
    TaskScope(const void* runtime, bool device_views) noexcept;
    ~TaskScope();
    TaskScope(const TaskScope&) = delete;
    TaskScope& operator=(const TaskScope&) = delete;
    /// The runtime whose task this thread runs, or null.
    static const void* current() noexcept;

  private:
    const void* previous_;
    bool device_views_;  ///< device views may be dereferenced by the code in this scope
};

class HostPool {
  public:
    /// `device_views`: code may dereference device views (host driver). Fewer threads where the system gives no more, and
    /// then some are left to others; throws std::system_error if it gives none.
    HostPool(std::size_t num_threads, const void* runtime, bool device_views, Reports& reports);
    ~HostPool() { end_threads(); }

    /// A task to run, or a settled one whose payload is to be destroyed.
    void push(graph::Task& task);
    /// The pool whose thread runs user code here, or null.
    static HostPool* of_this_thread() noexcept;
    /// A thread of the pool is about to wait for another runtime: another thread takes its place. False: none can, since too
    /// many wait or the system gives no more threads.
    bool begin_wait() noexcept;
    void end_wait() noexcept;
    /// How many there are while none waits.
    std::size_t size() const noexcept { return size_; }
    /// All that ever ran, those that took the place of a waiting one included.
    std::size_t threads_started() const;

  private:
    void run();
    void end_threads() noexcept;
    void execute(graph::Task& task);
    void end_payload(graph::Task& task) noexcept;

    const void* runtime_;
    bool device_views_;
    Reports& reports_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<graph::Task*> queue_;
    std::size_t sleeping_ = 0;
    std::size_t waiting_ = 0;  ///< threads in begin_wait ... end_wait
    std::size_t surplus_ = 0;  ///< threads that were added for them and should end
    bool stop_ = false;
    std::size_t started_ = 0;
    std::size_t size_ = 0;
    std::list<std::thread> threads_;
    std::list<std::thread> gone_;  ///< surplus threads that have ended, or are about to
};

/// Runs device functions of one device: each thread has a lane of its own, and may block in a library.
class Launchers {
  public:
    /// Makes the DeviceResource and runs the body; throws what the body threw.
    class Runner {
      public:
        virtual void run_device_function(graph::Task& task, std::uint32_t device, StreamHandle stream) = 0;

      protected:
        ~Runner() = default;
    };
    Launchers(std::uint32_t device, const std::vector<LaneId>& lanes_of_threads, Lanes& lanes, FailedTasks& failed,
              const void* runtime, bool device_views, Runner& runner, Reports& reports);
    ~Launchers() { end_threads(); }
    void push(graph::Task& task);

  private:
    void run(LaneId lane);
    void end_threads() noexcept;
    std::exception_ptr execute(graph::Task& task, LaneId lane, Lanes::Scratch& scratch);
    void end_payload(graph::Task& task) noexcept;

    std::uint32_t device_;
    Lanes& lanes_;
    FailedTasks& failed_;
    const void* runtime_;
    bool device_views_;
    Runner& runner_;
    Reports& reports_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<graph::Task*> queue_;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace kmm::execute
