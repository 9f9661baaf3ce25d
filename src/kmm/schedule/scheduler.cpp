#include "kmm/schedule/scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kmm/graph/room.hpp"
#include "kmm/memory/places.hpp"
#include "kmm/memory/regions.hpp"
#include "kmm/schedule/notes.hpp"

namespace kmm::schedule {

using graph::Predecessor;
using graph::TaskKind;
using graph::TaskState;
using graph::Use;
using memory::Placement;
using memory::Tiers;

Scheduler::Scheduler(Outbox& outbox, graph::TaskTable& table, const SchedulerOptions& options,
                     memory::PerMemory<std::size_t> limits_bytes)
    : outbox_(outbox),
      table_(table),
      options_(options),
      lanes_(options.num_devices, options.compute_lanes, options.launcher_lanes),
      kernel_lanes_(lanes_, options_),
      requests_(outbox, table, lanes_, transfers_, ready_, waits_),
      residency_(requests_, limits_bytes, options.debug, *options.trace, options.eviction),
      transfers_(outbox, table, lanes_, residency_, options_, counters_),
      ready_(table, residency_, options_),
      waits_(*this, outbox, residency_, admission_, ready_, options_, counters_),
      in_flight_(memory::PerMemory<std::uint32_t>::of_devices(limits_bytes.num_devices())) {
    counters_.by_device.resize(options.num_devices);
}

void Scheduler::trim() noexcept {
    if (steps_.empty()) graph::Vector<Step>().swap(steps_);
    ready_.trim();
    residency_.residents().trim_records();
}

// --------------------------------------------------------------------------------------- from submission to settlement

void Scheduler::foresee(Task& first) {
    if (first.next_published == nullptr) return;
    for (Task* t = &first; t != nullptr; t = t->next_published) {
        admission_.add(*t);
        if (t->kind == TaskKind::kernel) kernel_lanes_.foresee(*t);
        memory::note_neighbours(*t);
    }
}

void Scheduler::submit(Task& task) {
    ++unsettled_;
    memory::mark_small_parts(task);
    if (task.is_counted()) ++counters_.submitted;
    for (const Use& u : task.uses) {
        memory::Owner& owner = *u.chunk->owner;
        ++owner.users;
        if (owner.is_temporary()) --owner.uses_to_come;
        residency_.residents().add_next_use(*u.chunk, memory::next_use_of(task, u));
    }
    admission_.add(task);
    if (task.kind == TaskKind::kernel) kernel_lanes_.foresee(task);
    memory::note_neighbours(task);
    table_.find(task.predecessors, [&](Predecessor& p, Task* before) {
        if (before == nullptr) {
            if (p.data)
                if (const auto failure = outbox_.find_failure(p.number)) set_failure(task, failure);
            return;
        }
        before->successors.add(p, task);
        ++task.unsettled_predecessors;
        if (p.data && before->failure != nullptr) set_failure(task, before->failure);
        if (!before->announced) {
            ++task.unissued_predecessors;
            return;
        }
        for (const Fence& f : before->fences)
            if (!lanes_.passed(f)) task.fences.add(f);
    });
    if (task.unissued_predecessors == 1) ready_.notice_last_predecessor(task);
    if (task.kind == TaskKind::join) task.join.num_settled_before = 0;
    if (task.is_barrier) {
        auto at = barriers_.end();
        while (at != barriers_.begin() && (*(at - 1))->number > task.number) --at;
        barriers_.insert(at, &task);
        settle_barriers();
    }
    steps_.push_back({Step::What::check, &task});
    run_steps();
}

void Scheduler::run_steps() {
    // A list instead of recursion: a chain of a hundred thousand settled tasks must not take a hundred thousand frames.
    while (!steps_.empty()) {
        const Step step = steps_.back();
        steps_.pop_back();
        switch (step.what) {
        case Step::What::check: check(*step.task); break;
        case Step::What::announce: announce(*step.task); break;
        case Step::What::settle: settle(*step.task); break;
        }
    }
}

void Scheduler::check(Task& task) {
    const TaskState state = task.state.load(std::memory_order_relaxed);
    if (state == TaskState::settled) return;
    if (task.kind == TaskKind::join) {
        if (task.is_barrier) return;
        // It is done when that is which it comes after.
        if (task.unissued_predecessors == 0 && !task.announced) announce(task);
        if (task.unsettled_predecessors == 0) settle(task);
        return;
    }
    if (state == TaskState::executed) {
        if (task.unsettled_predecessors == 0) settle(task);
        return;
    }
    if (state != TaskState::waiting) return;
    // What the host itself does begins when it is known how everything before it has ended.
    const bool on_host =
        task.kind == TaskKind::host || (task.kind == TaskKind::transfer && !Tiers::has_lanes(task.memory));
    const bool free_to_go = on_host ? task.unsettled_predecessors == 0 : task.unissued_predecessors == 0;
    if (free_to_go) make_ready(task);
}

void Scheduler::make_ready(Task& task) {
    if (task.failure != nullptr) {
        cancel(task);
        return;
    }
    task.state.store(TaskState::ready, std::memory_order_relaxed);
    task.ready_at = num_ready_++;
    task.waits_at_ready = waits_.num_begun(task.memory);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_task(*s, trace::What::ready, task);
    ready_.add(task);
}

void Scheduler::announce(Task& task) {
    task.announced = true;
    for (const Predecessor& s : task.successors) {
        Task& next = *s.after;
        // A task that was cancelled may settle much later, and what needs it must not be issued meanwhile.
        if (task.failure != nullptr && s.data) set_failure(next, task.failure);
        for (const Fence& f : task.fences)
            if (!lanes_.passed(f)) next.fences.add(f);
        if (--next.unissued_predecessors == 0) steps_.push_back({Step::What::check, &next});
        if (next.unissued_predecessors == 1) ready_.notice_last_predecessor(next);
    }
}

void Scheduler::executed(Task& task) {
    if (task.kernel_failure != nullptr && task.kernel_failure->error != nullptr)
        outbox_.kernel_failed(task, std::exchange(task.kernel_failure->error, nullptr));
    --num_in_flight_;
    --in_flight_[task.memory];
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

void Scheduler::settle(Task& task) {
    if (task.state.load(std::memory_order_relaxed) == TaskState::settled) return;
    if (task.failure == nullptr && task.has_failed()) task.failure = outbox_.make_failure(task, task.thrown, nullptr);
    for (const Predecessor& s : task.successors) {
        Task& next = *s.after;
        if (!task.announced && --next.unissued_predecessors == 1) ready_.notice_last_predecessor(next);
        --next.unsettled_predecessors;
        if (task.failure != nullptr && s.data) set_failure(next, task.failure);
        steps_.push_back({Step::What::check, &next});
    }
    task.announced = true;
    for (const Use& u : task.uses) drop_user(*u.chunk->owner, 1);
    if (task.is_counted()) {
        if (task.failure == nullptr)
            ++counters_.succeeded;
        else if (task.failure->root->number == task.number)
            ++counters_.failed;
        else
            ++counters_.cancelled;
    } else if (task.is_write_back() && task.ended_ill()) {
        ++counters_.failed;  // one that fills a temporary fails as the task that it is made for
    }
    task.state.store(TaskState::settled, std::memory_order_release);
    if (trace::Sink* const s = options_.trace->sink(); s != nullptr && task.kind != TaskKind::join) [[unlikely]]
        note_settled(*s, task);
    --unsettled_;
    outbox_.settled(task);
    finished_.push_back(&task);
    settle_barriers();
}

void Scheduler::settle_barriers() {
    while (!barriers_.empty() && table_.settled_up_to() + 1 >= barriers_.front()->number) {
        Task* barrier = barriers_.front();
        barriers_.pop_front();
        barrier->is_barrier = false;
        steps_.push_back({Step::What::settle, barrier});
    }
}

void Scheduler::cancel(Task& task) {
    admission_.cancelled(task);
    waits_.end(task);
    if (task.order_position != 0) residency_.residents().unplan(task);
    for (const Use& u : task.uses) residency_.residents().remove_next_use(*u.chunk, memory::next_use_of(task, u));
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    has_progressed();
    if (task.failure == nullptr) task.failure = outbox_.make_failure(task, task.thrown, nullptr);
    if (!task.announced) announce(task);
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

void Scheduler::set_failure(Task& task, const std::shared_ptr<graph::Failure>& from) {
    if (task.failure != nullptr && task.failure->root->number <= from->root->number) return;
    task.failure = task.kind == TaskKind::join ? from : outbox_.make_failure(task, nullptr, from->root);
}

void Scheduler::task_failed(TaskNumber number, const std::exception_ptr& error) {
    if (Task* const task = table_.find(number)) task->note_thrown(error);
}

void Scheduler::kernel_threw(TaskNumber number, std::exception_ptr thrown) {
    if (Task* const task = table_.find(number)) outbox_.kernel_failed(*task, std::move(thrown));
}

void Scheduler::release(memory::Array& array) {
    array.released = true;
    if (array.users != 0) residency_.residents().released(array);
    drop_user(array, 0);
    waits_.may_fit_now();
    waits_.retry_all();
}

void Scheduler::drop_user(memory::Owner& owner, std::uint64_t users) {
    owner.users -= users;
    if (!owner.is_unused()) return;
    admission_.gone(owner);
    freed_owners_.push_back(&owner);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::array_freed, .array = owner.number});
    residency_.residents().free_chunks(owner);
}

void Scheduler::recycle_finished() {
    // A dispatch does not look at them where each memory has as many tasks on their way as it may.
    ready_.refresh();
    for (Task* t : finished_) outbox_.recycle(*t);
    graph::clear_and_keep_few(finished_);
    graph::clear_and_keep_few(boxes_);  // one transfer may have very many
    graph::clear_and_keep_few(needed_tasks_);
}

// ------------------------------------------------------------------------------------------------------------ the turn

void Scheduler::dispatch() {
    run_steps();
    for (;;) {
        const std::uint64_t before = num_issued_;
        if (options_.debug) {
            dispatch_in_order();
        } else {
            for (const MemoryIndex m : in_flight_.memories()) dispatch_memory(m);
        }
        run_steps();
        if (num_issued_ == before && !hurry() && (num_awaited() != 0 || !waits_.step_in_vain())) break;
    }
    recycle_finished();
}

void Scheduler::dispatch_memory(MemoryIndex m) {
    // Four tasks for each thread keep the pool busy between two turns of the scheduler.
    const std::uint32_t most = m.is_host() ? std::max(64u, 4 * options_.host_threads) : options_.tasks_in_flight;
    const auto may_fetch = [&] { return !waits_.is_stalled(m) && transfers_.may_fetch(m); };
    while (in_flight_[m] < most) {
        ready_.refresh();
        // One at a time: each is asked as if no other were let go.
        if (Task* const admitted = admission_.take_held_back(m)) ready_.add(*admitted);
        if (ready_.first_was_evicted(m)) continue;
        Task* const task = ready_.take(m, admission_.closed_for(), may_fetch);
        if (task == nullptr) break;
        const std::uint64_t issued = num_issued_;
        const TaskNumber number = task->number;
        try_issue(*task);
        // A task that found no memory is not the oldest any more, until it is tried again.
        if (num_issued_ != issued) ready_.issued(m, number);
        run_steps();
    }
}

/// Debug mode.
void Scheduler::dispatch_in_order() {
    if (num_in_flight_ != 0) return;
    if (Task* const task = ready_.take_in_order()) try_issue(*task);
}

/// Nothing but functions of the program runs, and one of them may block until a thread of the program has seen the end
/// of a task that is held back. A device function that is being launched is no such sign for its own device. False: no
/// change.
bool Scheduler::hurry() {
    if (num_awaited() == 0 || num_awaited() != functions_.count()) return false;
    bool any = false;
    for (const MemoryIndex m : in_flight_.memories())
        if (m.is_host() || in_flight_[m] == 0) any = admission_.hurry(m) || any;
    return any;
}

void Scheduler::fail_for_memory(Task& task) {
    outbox_.out_of_memory(task);
    cancel(task);
}

// ------------------------------------------------------------------------------------------------------ what is issued

void Scheduler::try_issue(Task& task) {
    if (task.has_failed()) {
        cancel(task);
        return;
    }
    ++num_steps_;
    const std::optional<memory::Room> room = admission_.room_for(task);
    if (!room) return admission_.hold_back(task, false);
    const Placement placement = residency_.place(task, *room);
    switch (placement) {
    case Placement::granted: break;
    case Placement::lost:
        task.thrown = residency_.lost_cause()->cause;
        cancel(task);
        return;
    case Placement::starved:
        task.thrown = outbox_.no_host_memory();
        cancel(task);
        return;
    case Placement::busy_chunk: waits_.wait_for_chunk(task); return;
    case Placement::wait_growth:
    case Placement::wait_pins:
    case Placement::full:
    case Placement::lacks:
        if (*room == memory::Room::idle || *room == memory::Room::in_a_hurry) return admission_.hold_back(task, true);
        if (*room == memory::Room::any && task.is_unplaced && placement != Placement::lacks) admission_.close_for(task);
        waits_.wait(task, placement == Placement::lacks);
        return;
    }
    admission_.placed(task);
    waits_.end(task);
    has_progressed();
    ++num_in_flight_;
    ++in_flight_[task.memory];
    switch (task.kind) {
    case TaskKind::kernel: issue_kernel(task); break;
    case TaskKind::device_function: issue_launch(task); break;
    case TaskKind::host: issue_host(task); break;
    case TaskKind::transfer: issue_transfer(task); break;
    case TaskKind::join: break;
    }
}

/// Its position is known: what comes after it waits for that.
void Scheduler::stands_at(Task& task, Fence fence) {
    task.lane = fence.lane;
    task.position = fence.position;
    task.fences.clear();
    task.fences.add(fence);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
}

void Scheduler::issue_kernel(Task& task) {
    list_needed(task);
    const Fence fence = kernel_lanes_.take(task);
    const FenceSet& waits = lanes_.waits_of(fence.lane, task.fences);
    stands_at(task, fence);
    Instruction instruction;
    instruction.op = Instruction::Op::kernel;
    instruction.lane = fence.lane;
    instruction.position = fence.position;
    instruction.mark = kernel_lanes_.is_awaited_elsewhere(task);
    instruction.measure = kernel_lanes_.count_launch(task);
    instruction.kernel_times = task.kernel_times;
    instruction.waits = waits.view();
    instruction.task = task.number;
    instruction.function = task.kernel.function;
    std::copy_n(task.kernel.grid, 3, instruction.grid);
    std::copy_n(task.kernel.block, 3, instruction.block);
    instruction.shared_bytes = task.kernel.shared_bytes;
    instruction.parameters = {task.kernel.parameters, task.kernel.parameter_bytes};
    instruction.needed_tasks = needed_tasks_;
    instruction.fills = fills_;
    instruction.info = task.info.get();
    residency_.issued(task, fence);
    lanes_.add(fence.lane, {.position = fence.position, .task = &task});
    ++counters_.kernels;
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::launch, .lane = fence.lane, .position = fence.position, .task = task.number},
                &waits);
    outbox_.instruct(task.memory.device(), instruction);
    announce(task);
}

void Scheduler::issue_launch(Task& task) {
    list_needed(task);
    if (!needed_tasks_.empty())
        task.cold_part(graph::UseOfReserve::yes, needed_tasks_.size() * sizeof(TaskNumber))
            .open_data_predecessors.append(needed_tasks_.data(), needed_tasks_.size());
    task.fences.prune([this](const Fence& f) { return lanes_.passed(f); });
    task.state.store(TaskState::launching, std::memory_order_relaxed);
    if (task.info && task.info->launcher == detail::LauncherInfo::Kind::kernel) ++counters_.kernels;
    residency_.pin(task);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_start(*s, task, lanes_);
    if (options_.functions_touch_memory)
        start_when_passed(task);
    else
        start(task);
}

void Scheduler::issue_host(Task& task) {
    residency_.pin(task);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_start(*s, task, lanes_);
    start_when_passed(task);
}

/// On a copy lane, or within a memory without lanes by a thread.
void Scheduler::issue_transfer(Task& task) {
    const memory::Transfer transfer = memory::task_transfer(task, boxes_);
    if (!Tiers::has_lanes(transfer.from) && !Tiers::has_lanes(task.memory)) {
        transfers_.count(transfer);
        task.function = {{run_transfer, nullptr}, &task};
        return issue_host(task);
    }
    list_needed(task);
    const Fence fence = transfers_.put(transfer, task.fences, needed_tasks_, fills_);
    stands_at(task, fence);
    residency_.issued(task, fence);
    announce(task);
}

/// What must be well for the task: those before it that have not settled, and whose failure skips it; and what is
/// filled first, in debug mode.
void Scheduler::list_needed(Task& task) {
    fills_.clear();
    for (const graph::Unset& unset : task.unset()) fills_.push_back(fill_of(task, unset));
    needed_tasks_.clear();
    table_.find(task.predecessors, [&](const Predecessor& p, Task* before) {
        if (before == nullptr || !p.data) return;
        if (before->kind != TaskKind::join) return needed_tasks_.push_back(p.number);
        // Of a join its predecessors are listed. The settled ones at the front are skipped from now on, so that a scan
        // is bounded by the tasks under way.
        graph::TaskEdges& joined = before->predecessors;
        std::uint32_t& first = before->join.num_settled_before;
        while (first != joined.size() && table_.find(joined[first].number) == nullptr) ++first;
        for (std::size_t i = first; i != joined.size(); ++i)
            if (joined[i].data && table_.find(joined[i].number) != nullptr) needed_tasks_.push_back(joined[i].number);
    });
}

/// No thread waits for the fences: the lanes tell when they pass.
void Scheduler::start_when_passed(Task& task) {
    for (const Fence& f : task.fences) lanes_.watch(f, task);
    if (task.function.unpassed_fences == 0) start(task);
}

/// Its inputs are there, or it has failed meanwhile.
void Scheduler::start(Task& task) {
    if (task.kind != TaskKind::transfer) functions_.began(task);
    if (task.has_failed())
        host_done(task, task.thrown);
    else if (task.kind == TaskKind::device_function)
        outbox_.launch(task.memory.device(), task);
    else
        outbox_.run_on_host(task);
}

void Scheduler::function_ended(const Task& task) noexcept {
    functions_.ended(task);
    if (functions_.has_run_long(task)) admission_.moves_again();
}

// -------------------------------------------------------------------------------------------------------- what is done

void Scheduler::advance(LaneId lane, Position completed) {
    if (!lanes_.advance(lane, completed)) return;
    residency_.residents().advanced(lane);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::completed, .lane = lane, .position = completed});
    while (const auto done = lanes_.take_done(lane)) {
        if (done->task != nullptr) {
            executed(*done->task);
        } else {
            transfers_.ended();
            drop_user(*done->chunk->owner, 1);
        }
    }
    while (Task* const task = lanes_.take_watcher(lane))
        if (--task->function.unpassed_fences == 0) start(*task);
    run_steps();
    waits_.retry_all();
}

void Scheduler::launched(Task& task, LaneId lane, Position position, const std::exception_ptr& thrown, bool finished) {
    function_ended(task);
    const Fence fence{lane, position};
    lanes_.was_filled(lane, position);
    lanes_.add(lane, {.position = position, .task = &task});
    stands_at(task, fence);
    residency_.unpin(task, &fence);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::returned, .lane = lane, .position = position, .task = task.number});
    if (thrown != nullptr)
        task.thrown = thrown;
    else
        announce(task);
    if (finished) return advance(lane, position);
    Instruction watch;
    watch.op = Instruction::Op::watch;
    watch.lane = lane;
    watch.position = position;
    outbox_.instruct(lanes_.info(lane).device, watch);
    run_steps();
    waits_.retry_all();
}

void Scheduler::host_done(Task& task, const std::exception_ptr& thrown) {
    if (task.kind != TaskKind::transfer) function_ended(task);
    if (thrown != nullptr) task.thrown = thrown;
    residency_.unpin(task, nullptr);
    executed(task);
    run_steps();
    waits_.retry_all();
}

}  // namespace kmm::schedule
