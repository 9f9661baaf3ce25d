// Which task next, on which device, behind what: from published tasks to instructions for lanes.
//
// Owns: the links between unsettled tasks, the ready lists, the lanes' positions. A state machine without threads,
// clocks or drivers: events go in (`submit`, `advance`, `launched`, `host_done`, ...), instructions come out through
// `Outbox` (outbox.hpp), and `dispatch` issues what can be issued. One caller at a time (the scheduler's baton). A call
// costs O(memories + work it causes). All tasks or all replicas of a memory are scanned only after a failed copy, at
// the first search for victims there, and when nothing else can be done for want of memory.
//
// Order of issue among ready tasks: those that miss nothing in the order in which they became ready, then as
// order_policy.hpp says, looking a little ahead (lookahead.hpp), or, where memory is short, as planned (planner.hpp).
// What was submitted later than a task became ready may pass it over while the memory turns over four times. A task
// that makes content ahead of its turn must be admitted (admission.hpp). For want of memory only the front fails, the
// first task in the order of submission that has not been given its memory.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kmm/graph/task_table.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/admission.hpp"
#include "kmm/schedule/instruction.hpp"
#include "kmm/schedule/kernel_times.hpp"
#include "kmm/schedule/lane_policy.hpp"
#include "kmm/schedule/lookahead.hpp"
#include "kmm/schedule/order_policy.hpp"
#include "kmm/schedule/outbox.hpp"
#include "kmm/schedule/planner.hpp"
#include "kmm/schedule/running_functions.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::schedule {

using graph::Fence;
using graph::FenceSet;
using graph::LaneId;
using graph::LaneInfo;
using graph::LaneRole;
using graph::Position;

class Scheduler final : private memory::Requests {
  public:
    Scheduler(Outbox& outbox, graph::TaskTable& table, const SchedulerOptions& options,
              memory::PerMemory<std::size_t> limits_bytes);

    // ---- lanes, numbered device by device: compute, up, down, peer, launchers
    std::uint32_t lanes_per_device() const noexcept { return lanes_per_device_; }
    LaneId lane(std::uint32_t device, LaneRole role, std::uint32_t index = 0) const noexcept;
    LaneInfo lane_info(LaneId lane) const noexcept { return lanes_[static_cast<std::size_t>(lane)].info; }
    std::size_t num_lanes() const noexcept { return lanes_.size(); }

    // ---- events
    /// The task and those that follow it (Task::next_published) are going to be submitted: lanes are chosen, and memory
    /// is given, with all of them in view, although the first may be issued before the last is submitted. May be left
    /// out. O(tasks).
    void foresee(Task& first);
    void submit(Task& task);
    /// Everything on the lane up to `completed` is done.
    void advance(LaneId lane, Position completed);
    /// A device function has returned; what it put on the lane ends at `position`. `thrown`: it failed. `finished`: the
    /// device has completed the lane up to there.
    void launched(Task& task, LaneId lane, Position position, std::exception_ptr thrown, bool finished = false);
    void host_done(Task& task, std::exception_ptr thrown);
    /// The duration of a launch that was to be measured.
    void measured(KernelTimes::Id kernel, std::int64_t ns) noexcept { kernel_times_.measured(kernel, ns); }
    /// Nothing that was put on the lane can be trusted: its tasks up to `position` fail. Comes before the lane
    /// advances.
    void lane_failed(LaneId lane, Position position, std::exception_ptr error);
    /// The task's own work, or a copy made for it, could not be done. Comes before the lane advances past it.
    void task_failed(Task& task, std::exception_ptr error);
    /// The same by number, by which the task is found until its lane has advanced past it.
    void task_failed(TaskNumber number, std::exception_ptr error);
    /// The task's kernel threw while it ran. Likewise.
    void kernel_threw(TaskNumber number, std::exception_ptr thrown);
    /// The copy that has this position did not happen. Comes before the lane advances past it. O(what is in flight on
    /// the lane, and uses of unsettled tasks).
    void copy_failed(LaneId lane, Position position, const std::exception_ptr& error);
    void grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed = false);
    /// The answer to Outbox::await_memory. With memory, the first submitted of the tasks that wait for it is tried
    /// first. After a timeout the front fails, if it was ready before that wait began.
    void awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed);
    /// At intervals of the watchdog's length. Where the front has waited for a whole one, and a function of the program
    /// has run for as long, whatever else ran: that one may wait for a thread of the program, and the thread for a task
    /// that is held back. Only relaxed admission helps.
    void interval_passed();
    /// The answer to Outbox::ask_for_bounce; 0 bytes: there is none.
    void bounce_came(std::uintptr_t address, std::size_t bytes);
    /// Memory that was taken back and could not be exchanged: no answer to anything.
    void given_again(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
        residency_.space(memory).given_again(address, bytes, sealed);
    }
    /// No handle of the array is left; it is among `freed_owners` when its tasks are settled.
    void release(memory::Array& array);

    /// Issues everything that can be issued now.
    void dispatch();

    bool idle() const noexcept { return unsettled_ == 0; }
    std::uint64_t unsettled() const noexcept { return unsettled_; }
    /// Whether the task stands aside until memory becomes free. O(such tasks); for reports.
    bool waits_for_memory(const Task& task) const;
    bool is_held_back(const Task& task) const noexcept { return admission_.is_held_back(task); }
    /// Tasks of the memory that were given what they need and are not executed.
    std::uint32_t in_flight(MemoryIndex memory) const noexcept { return queues_[memory].in_flight; }
    const SchedulerCounters& counters() const noexcept { return counters_; }
    memory::Residency& residency() noexcept { return residency_; }
    const memory::Residency& residency() const noexcept { return residency_; }
    /// Frees cached memory that is not in use. O(its size).
    void trim() noexcept {
        if (steps_.empty()) graph::Vector<Step>().swap(steps_);
        ready_uses_.trim();
        residency_.residents().trim_records();
    }
    /// Entries of lists and trees that were looked at in all, here and for memory: what the tests of complexity count.
    std::uint64_t num_steps() const noexcept {
        return num_steps_ + residency_.num_steps() + planner_.num_steps() + admission_.num_steps();
    }
    /// Arrays and temporaries that may be deleted: the caller takes and deletes them.
    graph::Vector<memory::Owner*>& freed_owners() noexcept { return freed_owners_; }

  private:
    struct InFlight {
        Position position = 0;
        Task* task = nullptr;            ///< null for copies
        memory::Chunk* chunk = nullptr;  ///< for copies
        std::size_t bytes = 0;
        std::uint64_t copied_at = 0;
        memory::MemoryIndex to{};  ///< for copies
        bool is_part = false;      ///< of Requests::copy_part
    };
    struct Watcher {
        Position position;
        Task* task;
        friend bool operator>(const Watcher& a, const Watcher& b) { return a.position > b.position; }
    };
    /// Where the last copy of a lane ended.
    struct CopyEnd {
        Position position = 0;
        memory::MemoryIndex from{};
        memory::MemoryIndex to{};
        std::uintptr_t source = 0;
        std::uintptr_t destination = 0;
    };
    struct Lane {
        LaneInfo info;
        CopyEnd last_copy;
        std::size_t bytes_in_flight = 0;
        graph::Deque<InFlight> in_flight;
        graph::Vector<Watcher> watchers;  ///< a heap: tasks whose functions wait for a position
    };
    struct FetchEntry {
        OrderKey key;
        Task* task = nullptr;
        memory::ReadyUse* uses = nullptr;  ///< the first; by these it is told what changes
        friend bool operator<(const FetchEntry& a, const FetchEntry& b) noexcept { return a.key < b.key; }
    };
    struct Queue {                     ///< ready tasks of one memory
        graph::Deque<Task*> resident;  ///< nothing is missing
        graph::Set<FetchEntry> fetch;
        TasksByPlace by_age;      ///< of `fetch`
        graph::TaskList blocked;  ///< had no memory; tried again when some may have become free
        /// Lack memory that others in the process may hold. They block no other task, and are retried with those of
        /// `blocked`.
        graph::TaskList lacking;
        // The memory service awaits such memory on their behalf, one wait at a time, numbered from 1.
        std::uint32_t num_waits = 0;  ///< begun so far
        bool waits = false;           ///< the latest has not been answered
        bool patient = false;         ///< the latest tries until its timeout, and not only once
        /// Number of the latest patient wait that timed out; 0: memory has come since. The front fails if it became
        /// ready before that wait began. A task that became ready later gets a patient wait of its own.
        std::uint32_t timed_out = 0;
        bool stalled = false;
        std::uint32_t in_flight = 0;
        TaskNumber oldest = 0;            ///< the first of `by_age`, when a task was chosen last
        TaskNumber last_when_queued = 0;  ///< of that one: see Task::last_when_queued
        /// What tasks missed that were submitted later than that and were issued since the oldest one was last.
        std::uint64_t passed_over_bytes = 0;
        std::vector<TaskNumber> plan;  ///< in the order in which they are best issued
        std::size_t next_in_plan = 0;
        std::uint64_t issued_in_plan = 0;     ///< tasks, since planning was tried last
        std::uint64_t plan_holds_for = 0;     ///< number of tasks until it is tried again
        std::uint64_t evictions_planned = 0;  ///< of the memory, when a plan was made last
        bool plan_is_over() const noexcept { return issued_in_plan >= plan_holds_for; }
    };
    struct Step {
        enum class What : std::uint8_t { check, announce, settle } what;
        Task* task;
    };

    // memory::Requests
    Fence copy(memory::Chunk&, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
               const FenceSet& waits, Task* task) override;
    Fence gather(Task& task, const graph::Across& across, const FenceSet& waits) override;
    Fence copy_parts(memory::Chunk&, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                     std::uintptr_t destination, const FenceSet& waits, const graph::Vector<TaskNumber>& readers,
                     std::size_t* bytes) override;
    Fence copy_part(memory::Chunk&, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
                    const FenceSet& waits, Task& task, const graph::BoxTransfer& part) override;
    void move_on_host(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes) override {
        outbox_.move_on_host(destination, source, bytes);
    }
    void grow(MemoryIndex memory, std::size_t bytes) override;
    bool exchange(MemoryIndex memory, std::size_t bytes) override;
    bool may_ask_again(MemoryIndex memory) noexcept override { return outbox_.may_ask_again(memory); }
    bool passed(Fence fence) const noexcept override {
        return fence.position <= progress_[graph::index_of(fence.lane)].completed;
    }
    bool linked(MemoryIndex from, MemoryIndex to) const noexcept override { return outbox_.linked(from, to); }
    void residency_changed(Task& task) override;
    void unblocked(Task& task) override;

    void run_steps();
    void check(Task& task);
    void announce(Task& task);
    void settle(Task& task);
    void set_failure(Task& task, const std::shared_ptr<graph::Failure>& from);
    void make_ready(Task& task);
    void enqueue(Task& task);
    void leave_fetch(Task& task);
    void weigh(Task& task);
    OrderKey key_of(const Task& task) const noexcept {
        return schedule::key_of(options_.order,
                                {task.missing_bytes, task.moved_bytes,
                                 needs_room(task.missing_bytes, residency_.space(task.memory).counters.limit_bytes),
                                 task.makes, task.enables, task.ready_at, task.place(), task.number});
    }
    void notice_last_predecessor(const Task& next);
    Task& choose_to_fetch(Queue& queue, MemoryIndex memory);
    Task* best_to_fetch(Queue& queue);
    Task* planned_to_fetch(Queue& queue, MemoryIndex memory);
    void make_plan(Queue& queue, MemoryIndex memory);
    void drop_plan(Queue& queue) noexcept;
    void do_without_plans() noexcept;
    void try_issue(Task& task);
    void cancel(Task& task);
    void issue_kernel(Task& task);
    void issue_host(Task& task);
    void issue_transfer(Task& task);
    static void mark_small_parts(Task& task) noexcept;
    void put_copy(Instruction& instruction, const FenceSet& waits, Task* task);
    bool extends(const CopyEnd& last, const Instruction& copy) const noexcept;
    static bool copy_concerns(const InFlight& copy, const graph::Use& use) noexcept;
    void copies_failed(std::span<InFlight> copies, const std::exception_ptr& error);
    Instruction put_move(Task& task, const MovedBoxes& boxes, const FenceSet& waits, memory::Chunk* chunk);
    static MemoryIndex link_source(const Task& task, const MovedBoxes& boxes) noexcept;
    void issue_transfer_on_host(Task& task);
    std::size_t count_moved(const Task& task, const graph::BoxTransfer& box, std::uint32_t device) noexcept;
    void executed(Task& task);
    void issue_launch(Task& task);
    void list_needed_tasks(Task& task);
    void list_fills(const Task& task);
    void start_when_passed(Task& task);
    void start(Task& task);
    void retry_all();
    void rekey();
    void recycle_finished();
    bool may_fetch(MemoryIndex memory) const noexcept;
    void dispatch_memory(MemoryIndex memory);
    void dispatch_in_order();
    void note_lane_wish(Task& task);
    void note_neighbours(const Task& task);
    static const memory::Chunk* written_chunk(const Task& task) noexcept;
    LaneWish lane_wish(const Task& task) const noexcept;
    std::span<const LaneProgress> compute_lanes(std::uint32_t device) const noexcept {
        return {progress_.data() + std::size_t{device} * lanes_per_device_, options_.compute_lanes};
    }
    bool is_awaited_elsewhere(const Task& task) const noexcept;
    void settle_barriers();
    void drop_user(memory::Owner& owner, std::uint64_t users);
    void function_ended(const Task& task) noexcept {
        functions_.ended(task);
        if (functions_.has_run_long(task)) admission_.moves_again();
    }
    bool hurry();
    bool wait_in_vain();
    bool compact();
    bool swap();
    bool ask_for_bounce(std::size_t bytes);
    bool try_front();
    /// What was tried in vain may succeed now.
    void may_fit_now() noexcept {
        tried_ = Tried::nothing;
        num_compactions_ = 0;
        bounce_refused_ = false;
        admission_.stop_giving_way();
    }
    void has_progressed() noexcept {
        ++num_issued_;
        may_fit_now();
    }
    bool fail_front();
    void fail_for_memory(Task& task);
    bool stand_aside(Task& task);
    void begin_memory_wait(Task& task);
    void end_memory_wait(Task& task);
    // Trace events.
    void note_task(trace::Sink& sink, trace::What what, const Task& task) const;
    void note_settled(trace::Sink& sink, const Task& task) const;
    void note_start(trace::Sink& sink, const Task& task) const;

    Outbox& outbox_;
    graph::TaskTable& table_;
    SchedulerOptions options_;
    std::uint32_t lanes_per_device_;
    std::vector<Lane> lanes_;
    std::vector<LaneProgress> progress_;  ///< by lane
    std::vector<LanePolicy> policies_;    ///< by device
    KernelTimes kernel_times_;
    memory::PerMemory<Queue> queues_;
    graph::Vector<Step> steps_;
    FenceSet instruction_waits_;              ///< of the instruction that is being made; keeps its memory
    graph::Vector<Fill> fills_;               ///< likewise
    graph::Vector<BoxMove> moves_;            ///< likewise
    graph::Vector<TaskNumber> needed_tasks_;  ///< likewise
    /// Debug mode: helpers that are ready, by the place in the order that they stand at.
    TasksByPlace ready_helpers_;
    graph::Deque<Task*> barriers_;
    graph::TaskList finished_;  ///< settled; recycled at the end of `dispatch`, when no call holds a pointer
    memory::ReadyUsePool ready_uses_;
    Lookahead lookahead_;
    graph::TaskList changed_;  ///< in a fetch queue, with missing bytes that may have changed
    std::uint64_t num_blocked_ = 0;
    /// Latest step of `wait_in_vain` since a task was issued.
    enum class Tried : std::uint8_t { nothing, front, compaction, others } tried_ = Tried::nothing;
    std::uint32_t num_compactions_ = 0;  ///< since a task was issued
    bool bounce_refused_ = false;        ///< since a task was issued
    bool any_stalled_ = false;
    std::uint64_t num_issued_ = 0;
    std::uint32_t num_ready_ = 0;  ///< that have become ready so far
    std::uint64_t num_steps_ = 0;
    graph::Vector<memory::Owner*> freed_owners_;
    std::uint64_t unsettled_ = 0;
    /// Events to come that may free or add memory: tasks that have theirs and are not executed, copies on their way,
    /// memory that was asked for. While there is any, no task fails for want of memory.
    std::uint64_t in_flight_ = 0;
    RunningFunctions functions_;             ///< of `in_flight_`
    std::optional<TaskNumber> stuck_front_;  ///< at the latest `interval_passed`, if a task was held back
    SchedulerCounters counters_;
    memory::Residency residency_;
    Admission admission_{residency_};
    Planner planner_{residency_};
    std::vector<Task*> rest_of_plan_;  ///< of the one that was dropped last, as far as there was memory for it
};

}  // namespace kmm::schedule
