// Threads that take tasks from one queue, and give their place to others while user code on them waits.
//
// Owns: the threads and their queue. Must not know: what is done with a task, devices. A task that waits for another
// runtime may wait for one that stands behind it in the queue: another thread takes the place of its own meanwhile. A
// wait that the library does not see (a latch of the program's) looks like a queue that stands still: more threads come
// then, if asked for.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <span>
#include <thread>

#include "driver/locks.hpp"
#include "kmm/engine/sleeper.hpp"
#include "kmm/engine/wake_ups.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::engine {

class Workers {
  public:
    /// Most threads of one queue that may wait for other runtimes at a time; one more counts as a deadlock.
    static constexpr std::size_t most_waiting = 64;

    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    /// Whose thread runs user code here, or null.
    static Workers* of_this_thread() noexcept;
    /// A thread is about to wait for what other threads do: another takes its place. False: none can, since too many
    /// wait or the system gives no more threads.
    bool begin_wait() noexcept;
    void end_wait() noexcept;
    /// How many there are while none waits.
    std::size_t size() const noexcept { return size_; }
    /// All that ever ran, those that took the place of a waiting one included.
    std::size_t threads_started() const;

    /// While it lives, a thread of the program runs a task that was not queued.
    class Unqueued {
      public:
        explicit Unqueued(Workers& workers) noexcept;
        ~Unqueued();
        Unqueued(const Unqueued&) = delete;
        Unqueued& operator=(const Unqueued&) = delete;
        /// False: the queue was dropped, and so is the task.
        bool may_run() const noexcept { return begun_.has_value(); }

      private:
        Workers& workers_;
        std::optional<std::uint64_t> begun_;  ///< for WakeUps::task_ends
    };

    /// Tasks that no thread has taken are forgotten, and so is what is queued from now on.
    void drop_queue() noexcept;
    /// After `drop_queue`. Not for one of these threads.
    void wait_until_none_runs() noexcept;

    /// Marks the calling thread as running user code for `workers`; null: for none.
    class UserCode {
      public:
        explicit UserCode(Workers* workers) noexcept;
        ~UserCode();
        UserCode(const UserCode&) = delete;
        UserCode& operator=(const UserCode&) = delete;

      private:
        Workers* previous_;
    };
    /// While it lives the calling thread waits, and another takes its place if it is one that runs tasks.
    class Wait {
      public:
        Wait() noexcept : workers_(of_this_thread()) {
            if (workers_ == nullptr || workers_->begin_wait()) return;
            workers_ = nullptr;
            refused_ = true;
        }
        ~Wait() {
            if (workers_ != nullptr) workers_->end_wait();
        }
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;
        /// No other thread could take the place.
        bool refused() const noexcept { return refused_; }

      private:
        Workers* workers_;
        bool refused_ = false;
    };

  protected:
    /// `looks`: see `take`.
    explicit Workers(bool looks = many_cores()) noexcept : looks_(looks) {}
    ~Workers() = default;
    /// For the constructor of the last class, at its end. Throws what the system throws, with no thread left.
    /// `patience`, if not zero: if tasks are queued and none has ended for this time, the threads may all be blocked,
    /// and more are added, up to `most_waiting`: 1, 2, 4, ... while the threads use hardly any processor time, else
    /// one in ten times as long.
    void start(std::size_t num_threads, std::chrono::milliseconds patience);
    /// The same with fewer threads where the system gives no more, of which some are left to others; throws if it gives
    /// none.
    void start_most(std::size_t num_threads);
    /// For the destructor of the last class, at its beginning: ends the threads when the queue is empty.
    void end_threads() noexcept;
    /// What the thread that enqueues does next.
    enum class Caller : std::uint8_t {
        goes_on,      ///< with what it is at, which may be a task
        takes_one,    ///< its task has ended, and it is about to take the first in the queue
        has_another,  ///< its task has ended, and it has one that is not in the queue
    };
    /// All of them, or none if it throws; one lock for all.
    void enqueue(std::span<graph::Task* const> tasks, Caller caller);
    void enqueue(graph::Task& task, Caller caller) {
        graph::Task* const one = &task;
        enqueue({&one, 1}, caller);
    }
    /// The next task; null: the thread must end. Where there is none, one thread at a time looks for one for a short
    /// while before it sleeps, if there are cores for that: waking it takes longer than most tasks do.
    graph::Task* take();
    /// Whether tasks were queued a moment ago that no thread is known to take.
    bool has_queued() const noexcept { return has_tasks_.load(std::memory_order_relaxed); }
    /// The next task if there is one now; null also where the thread is one too many.
    graph::Task* take_another();
    /// What a thread does: takes until there is none.
    virtual void run() = 0;
    /// User code has ended the calling thread (pthread_exit, pthread_cancel), whose stack is being unwound: another
    /// takes its place. The task is over before, and the caller rethrows.
    void go_on_in_another_thread();

  private:
    void leave() noexcept KMM_REQUIRES(mutex_);
    bool replace() noexcept;
    void move_to_gone() noexcept KMM_REQUIRES(mutex_);
    void look() const noexcept;
    graph::Task* take_first(std::size_t* num_woken) KMM_REQUIRES(mutex_);
    /// If the calling thread has one of these tasks, it has ended.
    void end_task() noexcept KMM_REQUIRES(mutex_);
    void tell_if_none_runs() noexcept KMM_REQUIRES(mutex_);
    void wake(std::size_t num_threads) noexcept KMM_EXCLUDES(mutex_);
    /// There is a task for which no thread is awake or about to be.
    bool stands_still() const noexcept KMM_REQUIRES(mutex_) {
        return queue_.size() > wake_ups_.sleeping() + static_cast<std::size_t>(one_looks_);
    }
    void watch() noexcept KMM_REQUIRES(mutex_);
    void supervise() noexcept;
    std::chrono::nanoseconds processor_time() const noexcept KMM_REQUIRES(mutex_);
    void add_threads(std::size_t most) noexcept KMM_REQUIRES(mutex_);

    const bool looks_;
    mutable locks::Mutex mutex_;
    locks::Condition wake_;
    graph::Deque<graph::Task*> queue_ KMM_GUARDED_BY(mutex_);
    std::atomic<bool> has_tasks_{false};             ///< for one who looks; written with the lock
    bool one_looks_ KMM_GUARDED_BY(mutex_) = false;  ///< a thread will look at the queue before it sleeps
    WakeUps wake_ups_ KMM_GUARDED_BY(mutex_);
    std::size_t waiting_ KMM_GUARDED_BY(mutex_) = 0;  ///< threads in begin_wait ... end_wait
    std::size_t surplus_ KMM_GUARDED_BY(mutex_) =
        0;  ///< threads that were added for them, or for want of progress, and should end
    std::chrono::milliseconds patience_{0};  ///< constant after the start
    locks::Condition alarm_;
    bool watched_ KMM_GUARDED_BY(mutex_) = false;    ///< the supervisor looks whether tasks are taken
    std::thread supervisor_ KMM_GUARDED_BY(mutex_);  ///< from the first time on that the queue stood still
    bool stop_ KMM_GUARDED_BY(mutex_) = false;
    bool drops_queue_ KMM_GUARDED_BY(mutex_) = false;
    locks::Condition none_runs_;  ///< of `wait_until_none_runs`
    std::size_t started_ KMM_GUARDED_BY(mutex_) = 0;
    std::size_t size_ = 0;  ///< constant after the start
    std::list<std::thread> threads_ KMM_GUARDED_BY(mutex_);
    std::list<std::thread> gone_ KMM_GUARDED_BY(mutex_);  ///< threads that have ended, or are about to
};

}  // namespace kmm::engine
