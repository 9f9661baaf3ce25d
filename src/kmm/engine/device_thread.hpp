// The thread that feeds the compute and copy lanes of one device and sees what has completed there.
//
// Owns: the queue of instructions of one device and the events that say how far its lanes are. The schedule decides
// what runs, on which lane and behind what; this thread only chooses the driver calls for it (which copies go as one,
// where an event is recorded). Hot path: a launch, an event every `events_every` positions, no lock over a driver call;
// its lists keep their memory.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/engine/device_clock.hpp"
#include "kmm/engine/lanes.hpp"
#include "kmm/engine/mailbox.hpp"
#include "kmm/engine/sleeper.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::engine {

using schedule::Instruction;

/// Turns a failed driver call into the exception that the task's waiters see.
class ErrorMaker {
  public:
    virtual std::exception_ptr device_error(std::uint32_t device, Status status, const char* attempted) = 0;

  protected:
    ~ErrorMaker() = default;
};

using memory::Link;

inline std::int64_t now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// How long something was busy. One thread begins and ends; any may ask, and is wrong for the instant of an end.
class BusyTime {
  public:
    void begin() noexcept {
        if (since_.load(std::memory_order_relaxed) == 0) since_.store(now_ns(), std::memory_order_relaxed);
    }
    void end() noexcept {
        const std::int64_t since = since_.load(std::memory_order_relaxed);
        if (since == 0) return;
        ended_.store(ended_.load(std::memory_order_relaxed) + now_ns() - since, std::memory_order_relaxed);
        since_.store(0, std::memory_order_relaxed);
    }
    std::int64_t busy_ns() const noexcept {
        const std::int64_t since = since_.load(std::memory_order_relaxed);
        return ended_.load(std::memory_order_relaxed) + (since == 0 ? 0 : now_ns() - since);
    }

  private:
    std::atomic<std::int64_t> ended_{0};
    std::atomic<std::int64_t> since_{0};  ///< 0: not busy
};

class DeviceThread final : private Lanes::Feeder {
  public:
    /// `num_launcher_lanes`: the device's last lanes, which launchers feed. `device_times`: trace events of work have
    /// times of the device's own clock. `nvtx`: launches and copies are ranges for profilers. `leaves_turns`: while
    /// there is more to feed, turns are left to the scheduler's own thread (there are cores for both): launches limit a
    /// program of many small kernels.
    DeviceThread(std::uint32_t device, std::uint32_t num_launcher_lanes, Lanes& lanes, FailedTasks& failed,
                 const void* runtime, Mailbox& mailbox, ErrorMaker& errors, const trace::Emitter& emitter,
                 bool device_times, bool nvtx, bool leaves_turns);
    /// Stops after everything that was handed in has been fed and has completed.
    ~DeviceThread();

    /// Appends instructions and empties the list, which keeps its memory: all of them, or none if it throws.
    /// Scheduler only.
    void push(schedule::InstructionList& instructions);
    /// The runtime is lost: every task counts as failed, and what was not given to the device never is. Positions that
    /// come no more count as done when the device has done all that it has. Scheduler only.
    void stop_feeding() noexcept;
    /// After `stop_feeding`: until the lanes that this thread feeds are done, and those of launchers as far as they
    /// were fed when it stopped.
    void wait_until_stopped() noexcept { has_stopped_.wait(false); }
    /// Nanoseconds during which at least one copy of this link was on its way, from being handed to the driver to being
    /// seen as done: what it waited for on the device counts. Any thread.
    std::int64_t busy_ns(Link link) const noexcept { return links_[static_cast<std::size_t>(link)].busy_ns(); }

  private:
    struct Pending {
        EventHandle event;
        Position position;
    };
    struct Timed {
        Position position;
        TimedWork work;
        bool for_trace;
        bool is_measured;
        schedule::KernelTimes::Id kernel_times;  ///< if it is measured
    };
    struct Lane {
        graph::Deque<Pending> pending;  ///< recorded, not seen to have passed
        graph::Deque<Timed> timed;      ///< of work that was fed and is not seen to be done
        /// Of kernels that were fed and are not seen to be done, for a driver that asks about them.
        graph::Deque<std::pair<Position, KernelTicket>> tickets;
        Position recorded = 0;
        Position fed = 0;
        Position watched = 0;  ///< a callback is armed for this position
        StreamHandle watch_stream;
        bool touched = false;
        schedule::InstructionList held;  ///< until other threads have put on their lanes what the first one waits for
        BusyTime* copying = nullptr;     ///< set while a copy is on its way: the link's
    };

    void run();
    bool step();
    void end_without_feeding() noexcept;
    bool take() noexcept;
    bool joins_burst(const Instruction& instruction) noexcept;
    void feed_burst();
    bool copy_at_once();
    void feed_or_hold(const Instruction& instruction);
    void feed_held();
    void feed(const Instruction& instruction);
    void fed(const Instruction& instruction, Lane& lane);
    Status put_on_stream(const Instruction& instruction, Lane& lane);
    bool may_run(const Instruction& instruction);
    Status prepare(const Instruction& instruction, StreamHandle stream);
    Status launch(const Instruction& instruction, StreamHandle stream, Lane& lane);
    void end_tickets(Lane& lane, Position done);
    Status feed_copy(const Instruction& instruction, StreamHandle stream, Lane& lane);
    void report_failure(const Instruction& instruction, Status status);
    void tell_times(LaneId id, Lane& lane, Position done);
    void record(LaneId lane);
    void record_touched();
    bool poll();
    /// After a post: takes a turn of the scheduler, or leaves it to the scheduler's thread.
    void see_to_turn(bool has_more_to_feed) noexcept {
        if (leaves_turns_ && has_more_to_feed)
            mailbox_.leave_turn();
        else
            mailbox_.help();
    }
    void lane_lost(LaneId lane, Status status);
    void arm_watches();
    bool anything_pending() const noexcept;
    /// There are instructions to be taken, or held ones to be looked at, or none is to be fed any more.
    bool has_news() const noexcept {
        return queue_filled_.load(std::memory_order_seq_cst) || came_further_.load(std::memory_order_seq_cst) ||
               stops_feeding_.load(std::memory_order_seq_cst);
    }
    void lanes_came_further() noexcept override {
        came_further_.store(true, std::memory_order_seq_cst);
        sleeper_.wake();
    }
    Lane& state(LaneId lane) noexcept { return states_[graph::index_of(lane) - graph::index_of(first_lane_)]; }
    LaneId lane_at(std::size_t slot) const noexcept {
        return static_cast<LaneId>(static_cast<std::size_t>(first_lane_) + slot);
    }
    EventHandle take_event(Status* status);
    static void watch_fired(void* self);

    std::uint32_t device_;
    Lanes& lanes_;
    Driver& driver_;
    FailedTasks& failed_;
    const void* runtime_;
    Mailbox& mailbox_;
    ErrorMaker& errors_;
    const trace::Emitter& emitter_;
    const bool device_times_;
    const bool nvtx_;
    const bool leaves_turns_;
    const bool asks_about_kernels_;
    const bool batches_copies_;
    DeviceClock clock_;

    // In cache lines of their own: what the scheduler writes for each batch, what this thread writes for each
    // instruction, and what both look at to sleep and wake.
    alignas(64) locks::TinyLock queue_lock_;
    schedule::InstructionList queue_ KMM_GUARDED_BY(queue_lock_);
    std::atomic<bool> queue_filled_{false};
    alignas(64) schedule::InstructionList batch_;
    std::atomic<bool> stop_{false};
    std::atomic<bool> signalled_{false};
    std::atomic<bool> stops_feeding_{false};
    std::atomic<bool> has_stopped_{false};
    std::atomic<bool> came_further_{false};  ///< a lane for which an instruction is held
    std::size_t num_holding_ = 0;            ///< lanes that hold instructions
    /// Small copies of one lane that follow each other in `batch_`, have all that they wait for on its lanes, and have
    /// not been fed yet.
    graph::Vector<const Instruction*> burst_;
    std::size_t burst_bytes_ = 0;
    graph::Vector<driver::CopyPiece> pieces_;  ///< keeps its memory

    BusyTime links_[memory::num_links];
    std::vector<Lane> states_;   ///< by index within the device
    std::size_t num_own_lanes_;  ///< the first ones: this thread feeds them
    graph::Vector<LaneId> touched_;
    graph::Vector<EventHandle> events_;  ///< free
    /// What this thread records on its lanes.
    class OwnEvents final : public Lanes::RecordedEvents {
      public:
        explicit OwnEvents(DeviceThread& thread) noexcept : thread_(thread) {}
        Lanes::Recorded at(graph::Fence fence) override;

      private:
        DeviceThread& thread_;
    };
    struct PreparedKernel {
        const void* function = nullptr;
        std::uint32_t shared_bytes = 0;
    };
    PreparedKernel last_prepared_;  ///< most launches repeat the kernel before
    graph::UnorderedMap<const void*, std::uint32_t> prepared_;
    LaneId first_lane_;
    Lanes::Scratch scratch_;
    OwnEvents own_events_{*this};
    alignas(64) Sleeper sleeper_;
    std::thread thread_;
};

}  // namespace kmm::engine
