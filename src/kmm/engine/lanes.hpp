// The lanes as those who execute see them: streams, how far they are, and how one comes after another on the device.
//
// Owns: the streams of all lanes, and the events of feeders that have ended. A lane's stream is fed by a device's
// thread, or by the launchers whose functions run on it; other threads may record events on it once its `enqueued` says
// that what they wait for is there. A lock is taken only to tell the feeder of another device that what it waits for is
// there, and to keep an event.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/driver.hpp"
#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::engine {

using driver::Driver;
using driver::EventHandle;
using driver::Status;
using driver::StreamHandle;
using graph::FenceSet;
using graph::LaneId;
using graph::Position;
using graph::TaskNumber;

class Lanes {
  public:
    /// `ordinals`: the driver's number of each device of the runtime.
    Lanes(Driver& driver, std::vector<int> ordinals, std::uint32_t lanes_per_device);
    ~Lanes();

    /// The lane's work is not to wait behind blocks of other lanes' kernels. Before the lane's stream is made, and
    /// before other threads know the lanes.
    void make_urgent(LaneId lane) noexcept { lanes_[index(lane)].is_urgent = true; }
    /// The lane's stream, made at first use. Null handle: see `*status`. Any thread.
    StreamHandle stream(LaneId lane, Status* status) noexcept;
    /// Makes the streams of all lanes of a device, as far as the driver lets: it may need memory of the device for one,
    /// of which there may be none left at first use. Any thread.
    void make_streams(std::uint32_t device) noexcept;
    std::uint32_t device(LaneId lane) const noexcept {
        return static_cast<std::uint32_t>(index(lane)) / lanes_per_device_;
    }

    /// Behind every position of a lane on which nothing more is put.
    static constexpr Position end_of_lane = ~Position{0} >> 1;
    /// The feeder has put everything up to `position` on the stream.
    void enqueued(LaneId lane, Position position) noexcept {
        Lane& l = lanes_[index(lane)];
        l.enqueued.store(position, ordinals_.size() == 1 ? std::memory_order_release : std::memory_order_seq_cst);
        l.enqueued.notify_all();
        if (ordinals_.size() != 1 && l.awaited_by.load(std::memory_order_seq_cst) != 0) tell_feeders(l, position);
    }
    Position enqueued(LaneId lane) const noexcept {
        return lanes_[index(lane)].enqueued.load(std::memory_order_acquire);
    }
    /// Feeds a device's lanes, and holds work back until what it waits for is on other lanes.
    class Feeder {
      public:
        /// One of the lanes that `are_enqueued` was asked about has come further. Any thread; must not block.
        virtual void lanes_came_further() noexcept = 0;

      protected:
        ~Feeder() = default;
    };
    /// Null: there is none any more; the latest one is not called when this returns.
    void set_feeder(std::uint32_t device, Feeder* feeder) noexcept;
    /// Whether all of this has been put on its lanes. If not, the feeder of `device`, which asks, is called when the
    /// first that was not is. O(fences).
    bool are_enqueued(std::span<const graph::Fence> fences, std::uint32_t device) noexcept;

    /// The device has finished everything up to `position`. Any thread, in any order: the furthest counts.
    void completed(LaneId lane, Position position) noexcept {
        Lane& l = lanes_[index(lane)];
        Position seen = l.completed.load(std::memory_order_relaxed);
        while (seen < position && !l.completed.compare_exchange_weak(seen, position, std::memory_order_release)) {}
        if (seen < position) l.completed.notify_all();
    }
    bool passed(graph::Fence fence) const noexcept {
        return lanes_[index(fence.lane)].completed.load(std::memory_order_acquire) >= fence.position;
    }

    /// One event for each device, for `come_after`. One per thread.
    class Scratch {
      public:
        explicit Scratch(Lanes& lanes) : lanes_(lanes), events_(lanes.num_devices()) {}
        ~Scratch();
        Scratch(const Scratch&) = delete;
        Scratch& operator=(const Scratch&) = delete;

      private:
        friend class Lanes;
        Lanes& lanes_;
        graph::Vector<EventHandle> events_;
    };
    /// An event that was recorded on a lane behind everything up to `position`. Null: there is none.
    struct Recorded {
        EventHandle event{};
        Position position = 0;
    };
    /// What the caller records itself, and has not seen pass.
    class RecordedEvents {
      public:
        /// The earliest one at or behind the fence, which may be recorded now. O(log events).
        virtual Recorded at(graph::Fence fence) = 0;

      protected:
        ~RecordedEvents() = default;
    };
    /// The feeder has recorded the event behind everything up to `position`, and will not record it again before that
    /// has passed: lanes of other devices may wait for it. Before `enqueued` says so much.
    void marked(LaneId lane, Position position, EventHandle event) noexcept {
        if (ordinals_.size() != 1) lanes_[index(lane)].marks.add(position, event);
    }
    /// An event of a feeder that has ended. Another one may have found it and not yet waited for it, so that it is
    /// kept until the lanes go. Any thread.
    void keep_event(EventHandle event) noexcept;

    /// Makes what is put on `lane` from now on come after `fences`, on the device: after an event of `recorded` where
    /// it has one, or one that the other lane's feeder has marked, which is at or soon after the fence; otherwise after
    /// what is on the other lane now. If another thread has not put the work there yet, blocks until it has, which
    /// only launchers may do: the dependants of a device function are issued only once its work is on the lane. Waits
    /// that earlier ones imply are left out. Called by a feeder of the lane. O(fences).
    Status come_after(LaneId lane, std::span<const graph::Fence> fences, Scratch& scratch,
                      RecordedEvents* recorded = nullptr);
    /// Whether what is put on `lane` comes after `fences` as it is: they have passed, or earlier calls of `come_after`
    /// imply them. O(fences).
    bool comes_after(LaneId lane, std::span<const graph::Fence> fences) const noexcept;
    /// The same for a stream of the calling thread's that is no lane.
    Status order_after(StreamHandle stream, const FenceSet& fences, Scratch& scratch) noexcept;
    /// The calling thread waits until the devices' threads have seen that `fences` have passed, and for nothing that
    /// was put on the lanes since. Not for the scheduler or a feeder of lanes.
    void wait_on_host(const FenceSet& fences) noexcept;
    /// The calling thread waits until the devices are done with all that was put on the lanes before.
    void synchronize() noexcept;

    std::size_t size() const noexcept { return lanes_.size(); }
    std::uint32_t num_devices() const noexcept { return static_cast<std::uint32_t>(ordinals_.size()); }
    int ordinal(std::uint32_t device) const noexcept { return ordinals_[device]; }
    Driver& driver() noexcept { return driver_; }

  private:
    /// The latest events of a lane, by position. One thread adds, any may look. What is no longer there was older than
    /// all that is. An event may be recorded anew, on any lane of its device, once its mark has passed: who finds it
    /// just then waits for too much, but for nothing that comes after its own work, which is on no lane yet.
    class Marks {
      public:
        // Who sees the position sees this event, or that of a later mark.
        void add(Position position, EventHandle event) noexcept {
            Mark& m = marks_[num_added_++ % count];
            m.event.store(event, std::memory_order_release);
            m.position.store(position, std::memory_order_release);
        }
        /// The earliest one at or behind the position, if there is one.
        Recorded find(Position position) const noexcept;

      private:
        static constexpr std::size_t count = 64;
        struct Mark {
            std::atomic<Position> position{0};
            std::atomic<EventHandle> event{EventHandle{}};
        };
        Mark marks_[count];
        std::size_t num_added_ = 0;
    };
    struct Lane;
    Position wait_until_enqueued(Lane& lane, Position position) noexcept;
    void await(Lane& lane, Position position, std::uint32_t device) noexcept;
    void tell_feeders(Lane& lane, Position position) noexcept;
    Status wait_for_lane(StreamHandle stream, graph::LaneId lane, Scratch& scratch) noexcept;
    struct Lane {
        bool is_urgent = false;
        std::atomic<StreamHandle> stream{StreamHandle{}};
        std::atomic<Position> enqueued{0};
        std::atomic<Position> completed{0};
        std::atomic<std::uint64_t> awaited_by{0};  ///< by device: its feeder waits for more to be put here
        /// By device, where it waits: the least position that it waits for. That feeder writes it.
        std::unique_ptr<std::atomic<Position>[]> awaited;
        /// By lane: how far it had been told to come after.
        std::unique_ptr<std::atomic<Position>[]> known;
        Marks marks;
    };
    struct FeederOfDevice {
        locks::Mutex lock;  ///< held while the feeder is told
        Feeder* feeder KMM_GUARDED_BY(lock) = nullptr;
    };
    static std::size_t index(LaneId lane) noexcept { return static_cast<std::size_t>(lane); }

    Driver& driver_;
    std::vector<int> ordinals_;
    std::uint32_t lanes_per_device_;
    std::vector<Lane> lanes_;
    std::vector<FeederOfDevice> feeders_;  ///< by device
    locks::Mutex kept_lock_;
    graph::Vector<EventHandle> kept_events_ KMM_GUARDED_BY(kept_lock_);
};

/// Numbers of tasks that failed, for those whose work is already handed out behind them. Empty but after a failure, and
/// then cleared when the runtime is idle. Any thread.
class FailedTasks {
  public:
    /// Where there is no memory to note it, every task counts as failed.
    void add(TaskNumber number) noexcept {
        const locks::Guard guard(mutex_);
        try {
            numbers_.insert(number);
        } catch (const std::bad_alloc&) {
            all_ = true;
        }
        count_.store(numbers_.size() + 1, std::memory_order_release);
    }
    /// From now on every task counts as failed.
    void add_all() noexcept {
        const locks::Guard guard(mutex_);
        all_ = true;
        count_.store(numbers_.size() + 1, std::memory_order_release);
    }
    bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
    bool contains(TaskNumber number) const {
        const locks::Guard guard(mutex_);
        return all_ || numbers_.count(number) != 0;
    }
    void clear() {
        const locks::Guard guard(mutex_);
        numbers_.clear();
        all_ = false;
        count_.store(0, std::memory_order_release);
    }

    /// Whether the task has failed, or one that it needs: then its work must not run on what is not there.
    bool concern(TaskNumber task, std::span<const TaskNumber> needed) const {
        if (!any()) return false;
        if (contains(task)) return true;
        for (const TaskNumber n : needed)
            if (contains(n)) return true;
        return false;
    }
    bool concern(const graph::Task& task) const { return concern(task.number, task.open_data_predecessors()); }

  private:
    mutable locks::Mutex mutex_;
    graph::UnorderedSet<TaskNumber> numbers_ KMM_GUARDED_BY(mutex_);
    bool all_ KMM_GUARDED_BY(mutex_) = false;
    std::atomic<std::size_t> count_{0};  ///< 0: none failed
};

/// A kernel on its way, for a driver that asks and tells about single ones.
struct KernelTicket {
    FailedTasks* failed_tasks;
    TaskNumber task;
    graph::Vector<TaskNumber> needed;  ///< tasks
    driver::KernelFailure failure;

    /// Skipped behind a failure, and a failure of its own is known before what comes after it begins. The ticket must
    /// outlive the kernel.
    driver::KernelHooks hooks() noexcept;
    /// Whether the task, or one that it needs, has failed; then the task counts as failed. Any thread.
    bool must_skip() const noexcept;
    /// The ticket's task counts as failed if one that it needs has failed. As a callback of a stream.
    static void pass_on_failure(void* ticket) noexcept;
};

}  // namespace kmm::engine
