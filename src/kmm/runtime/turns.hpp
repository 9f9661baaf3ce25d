// The scheduler's turns: read messages, decide, hand out instructions. One thread at a time has the baton and takes
// turns: a thread that has just posted and finds the baton free, else the scheduler's own thread.
//
// Owns: the baton, the scheduler, messages that were not read, and that thread. Must not know: what a submit is made
// of, words but those of the log. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/engine/baton.hpp"
#include "kmm/engine/mailbox.hpp"
#include "kmm/engine/sleeper.hpp"
#include "kmm/runtime/look_times.hpp"
#include "kmm/runtime/outgoing.hpp"
#include "kmm/schedule/scheduler.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::detail {

class SchedulerTurns final : public engine::Mailbox {
  public:
    SchedulerTurns(const Platform& platform, TaskBooks& books, FailureWords& words, const ShortageWords& shortages,
                   Engine& engine, const trace::Emitter& emitter);
    SchedulerTurns(const SchedulerTurns&) = delete;
    SchedulerTurns& operator=(const SchedulerTurns&) = delete;

    /// Begins the thread. Throws std::system_error.
    void start();
    bool has_started() const noexcept { return thread_.joinable(); }
    /// Reads every message, and ends the thread. When every task has settled, and before the engine ends; to be called
    /// if it was started.
    void end() noexcept;

    /// For the set of lanes, which does not change. Nothing else may be asked of the scheduler here.
    const schedule::LanePositions& lanes() const noexcept KMM_UNCHECKED_LOCKS { return scheduler_->lanes(); }

    /// The task and those that follow it (Task::next_published) have taken their places, in the order of these; with
    /// the order lock held.
    void publish(graph::Task& first) noexcept;
    /// Sees to it that a turn is taken, by this thread once at most if `may_take_turn`. After `publish`, without the
    /// order lock.
    void schedule_published(bool may_take_turn);
    /// No handle of the array is left.
    void release(memory::Array& array) noexcept;

    /// Runs `f(scheduler, outgoing)` under the baton. For questions of the program: short, and nothing is issued.
    /// Yields until it has the baton. OM when the runtime is lost: then the scheduler's state is not known.
    template<typename F> auto with_baton(F&& f) KMM_EXCLUDES(baton_);
    /// Likewise, after all messages that were posted before have been handled.
    template<typename F> auto with_everything_read(F&& f) KMM_EXCLUDES(baton_);

    // ---- engine::Mailbox
    void post(engine::Message&& message) override;
    void lost() noexcept override;
    void help() noexcept override;
    bool help_once() noexcept override { return take_turn() && !message_queue_.empty(); }
    void leave_turn() noexcept override { sleeper_.wake(); }
    graph::FenceSet take_back_bounce() override;
    bool take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes, graph::FenceSet* users) override;
    memory::Reclaimed reclaim(memory::MemoryIndex memory, const std::vector<memory::AddressRange>& regions,
                              std::size_t wanted_bytes, bool at_once) override;
    void discard(graph::Task& task) noexcept override { books_.pool().give(&task); }

    /// The threads of devices are going: nothing is handed over any more.
    void hand_over_no_more() noexcept;

  private:
    struct Turn;

    void run();
    bool post_interval_passed() noexcept;
    bool take_turn() noexcept;
    void turn() KMM_REQUIRES(baton_);
    /// `turn`, after which the books are whole or the runtime is lost.
    void turn_or_lose() noexcept KMM_REQUIRES(baton_);
    void read_everything() noexcept KMM_REQUIRES(baton_) {
        if (!message_queue_.empty()) turn_or_lose();
    }
    /// Of a lost runtime, once, by the scheduler's thread: what runs is waited for, and then every task has ended.
    void end_lost() noexcept KMM_EXCLUDES(baton_);
    void handle(engine::Message& message) KMM_REQUIRES(baton_);
    void schedule_more() KMM_REQUIRES(baton_) {
        scheduler_->dispatch();
        outgoing_.flush();
    }
    void take_baton() noexcept KMM_ACQUIRE(baton_) {
        while (!baton_.try_take()) std::this_thread::yield();
    }
    void let_go_of_baton() noexcept KMM_RELEASE(baton_);
    void log_news(const Outgoing::News& news) const noexcept;

    const Platform& platform_;
    TaskBooks& books_;
    const FailureWords& words_;
    Engine& engine_;
    engine::FailedTasks& failed_tasks_;
    const trace::Emitter& emitter_;

    alignas(64) engine::MessageQueue message_queue_;  // apart from what does not change
    alignas(64) engine::Baton baton_;
    graph::Vector<engine::Message> messages_ KMM_GUARDED_BY(baton_);
    Outgoing outgoing_ KMM_GUARDED_BY(baton_);
    std::unique_ptr<schedule::Scheduler> scheduler_ KMM_POINTEE_GUARDED_BY(baton_);
    bool ends_ KMM_GUARDED_BY(baton_) = false;

    engine::Sleeper sleeper_;
    LookTimes look_times_;
    std::atomic<bool> stop_{false};
    bool has_ended_lost_ = false;  ///< of the scheduler's thread
    std::thread thread_;
};

/// Has the baton for a scope.
struct KMM_SCOPED_CAPABILITY SchedulerTurns::Turn {
    SchedulerTurns& turns;
    explicit Turn(SchedulerTurns& t) noexcept KMM_ACQUIRE(t.baton_) KMM_UNCHECKED_LOCKS : turns(t) {
        turns.take_baton();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() KMM_RELEASE() KMM_UNCHECKED_LOCKS {
        turns.let_go_of_baton();
        if (!turns.message_queue_.empty()) turns.sleeper_.wake();
    }
};

// Unchecked: clang does not see that `f`, which says that it needs the baton, needs this one.
template<typename F> auto SchedulerTurns::with_baton(F&& f) KMM_UNCHECKED_LOCKS {
    const Turn turn(*this);
    books_.check_usable();
    return f(*scheduler_, outgoing_);
}

template<typename F> auto SchedulerTurns::with_everything_read(F&& f) KMM_UNCHECKED_LOCKS {
    const Turn turn(*this);
    read_everything();
    books_.check_usable();
    return f(*scheduler_, outgoing_);
}

}  // namespace kmm::detail
