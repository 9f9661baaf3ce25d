// From published tasks to instructions for lanes: a state machine without threads, clocks or drivers.
//
// Owns: the life of tasks (what they come after, when they are issued, settled, failed), and its parts: which task is
// next (ready_tasks.hpp), whether it may have memory (admission.hpp), what is tried where there is none
// (memory_waits.hpp), on which lane (kernel_lanes.hpp, transfers.hpp) and how far these are (lane_positions.hpp), and
// where content is (residency.hpp). Must not know: drivers, threads. Events go in (`submit`, `advance`, `launched`,
// `host_done`, ...), instructions come out through `Outbox` (outbox.hpp), and `dispatch` issues what can be issued. One
// caller at a time (the scheduler's baton). A call costs O(memories + work it causes). All tasks or all replicas of a
// memory are scanned only after a failed copy, at the first search for victims there, and when nothing else can be done
// for want of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

#include "kmm/graph/task_table.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/admission.hpp"
#include "kmm/schedule/kernel_lanes.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/schedule/memory_waits.hpp"
#include "kmm/schedule/outbox.hpp"
#include "kmm/schedule/ready_tasks.hpp"
#include "kmm/schedule/running_functions.hpp"
#include "kmm/schedule/served_requests.hpp"
#include "kmm/schedule/transfers.hpp"

namespace kmm::schedule {

class Scheduler final : private MemoryWaits::Issuer {
  public:
    Scheduler(Outbox& outbox, graph::TaskTable& table, const SchedulerOptions& options,
              memory::PerMemory<std::size_t> limits_bytes);

    const LanePositions& lanes() const noexcept { return lanes_; }

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
    void launched(Task& task, LaneId lane, Position position, const std::exception_ptr& thrown, bool finished = false);
    void host_done(Task& task, const std::exception_ptr& thrown);
    /// The duration of a launch that was to be measured.
    void measured(KernelTimes::Id kernel, std::int64_t ns) noexcept { kernel_lanes_.measured(kernel, ns); }
    /// Nothing that was put on the lane can be trusted: its tasks up to `position` fail. Comes before the lane
    /// advances.
    void lane_failed(LaneId lane, Position position, const std::exception_ptr& error) {
        transfers_.lane_failed(lane, position, error);
    }
    /// The task's own work, or a copy made for it, could not be done. The task is found until its lane has advanced
    /// past it.
    void task_failed(TaskNumber number, const std::exception_ptr& error);
    /// The task's kernel threw while it ran. Likewise.
    void kernel_threw(TaskNumber number, std::exception_ptr thrown);
    /// The copy that has this position did not happen. Comes before the lane advances past it. O(what is in flight on
    /// the lane, and uses of unsettled tasks).
    void copy_failed(LaneId lane, Position position, const std::exception_ptr& error) {
        transfers_.failed(lane, position, error);
    }
    void grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed = false) {
        waits_.grown(memory, address, bytes, sealed);
    }
    /// The answer to Outbox::await_memory. With memory, the first submitted of the tasks that wait for it is tried
    /// first. After a timeout the front fails, if it was ready before that wait began.
    void awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
        waits_.awaited(memory, address, bytes, sealed);
    }
    /// At intervals of the watchdog's length. Where the front has waited for a whole one, and a function of the program
    /// has run for as long, whatever else ran: that one may wait for a thread of the program, and the thread for a task
    /// that is held back. Only relaxed admission helps.
    void interval_passed() { waits_.interval_passed(functions_.look()); }
    /// The answer to Outbox::ask_for_bounce; 0 bytes: there is none.
    void bounce_came(std::uintptr_t address, std::size_t bytes) { waits_.bounce_came(address, bytes); }
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
    bool waits_for_memory(const Task& task) const { return waits_.waits(task); }
    bool is_held_back(const Task& task) const noexcept { return admission_.is_held_back(task); }
    /// Tasks of the memory that were given what they need and are not executed.
    std::uint32_t in_flight(MemoryIndex memory) const noexcept { return in_flight_[memory]; }
    const SchedulerCounters& counters() const noexcept { return counters_; }
    memory::Residency& residency() noexcept { return residency_; }
    const memory::Residency& residency() const noexcept { return residency_; }
    /// Frees cached memory that is not in use. O(its size).
    void trim() noexcept;
    /// Entries of lists and trees that were looked at in all, here and in the parts: what tests of complexity count.
    std::uint64_t num_steps() const noexcept {
        return num_steps_ + residency_.num_steps() + ready_.num_steps() + admission_.num_steps() + waits_.num_steps();
    }
    /// Arrays and temporaries that may be deleted: the caller takes and deletes them.
    graph::Vector<memory::Owner*>& freed_owners() noexcept { return freed_owners_; }

  private:
    struct Step {
        enum class What : std::uint8_t { check, announce, settle } what;
        Task* task;
    };

    void run_steps();
    void check(Task& task);
    void announce(Task& task);
    void executed(Task& task);
    void settle(Task& task);
    void settle_barriers();
    void set_failure(Task& task, const std::shared_ptr<graph::Failure>& from);
    void cancel(Task& task);
    void drop_user(memory::Owner& owner, std::uint64_t users);
    void recycle_finished();

    void make_ready(Task& task);
    void dispatch_memory(MemoryIndex memory);
    void dispatch_in_order();
    bool hurry();
    /// Events to come that may free or add memory: tasks that have theirs and are not executed, copies on their way,
    /// memory that was asked for. While there is any, no task fails for want of memory.
    std::uint64_t num_awaited() const noexcept {
        return num_in_flight_ + transfers_.num_in_flight() + waits_.num_asked();
    }
    void has_progressed() noexcept {
        ++num_issued_;
        waits_.may_fit_now();
    }

    void try_issue(Task& task) override;
    void fail_for_memory(Task& task) override;
    void end_dependents() override { run_steps(); }
    void issue_kernel(Task& task);
    void issue_launch(Task& task);
    void issue_host(Task& task);
    void issue_transfer(Task& task);
    void list_needed(Task& task);
    void stands_at(Task& task, Fence fence);
    void start_when_passed(Task& task);
    void start(Task& task);
    void function_ended(const Task& task) noexcept;

    Outbox& outbox_;
    graph::TaskTable& table_;
    const SchedulerOptions options_;
    SchedulerCounters counters_;
    LanePositions lanes_;
    KernelLanes kernel_lanes_;
    ServedRequests requests_;
    memory::Residency residency_;
    Transfers transfers_;
    Admission admission_{residency_};
    ReadyTasks ready_;
    MemoryWaits waits_;
    graph::Vector<Step> steps_;
    graph::Deque<Task*> barriers_;
    graph::TaskList finished_;  ///< settled; recycled at the end of `dispatch`, when no call holds a pointer
    graph::Vector<memory::Owner*> freed_owners_;
    // Of the instruction that is being made; they keep their memory.
    graph::Vector<TaskNumber> needed_tasks_;
    graph::Vector<Fill> fills_;
    memory::Boxes boxes_;
    memory::PerMemory<std::uint32_t> in_flight_;  ///< tasks
    std::uint64_t num_in_flight_ = 0;             ///< of all memories
    RunningFunctions functions_;                  ///< of these
    std::uint64_t unsettled_ = 0;
    std::uint64_t num_issued_ = 0;
    std::uint32_t num_ready_ = 0;  ///< that have become ready so far
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
