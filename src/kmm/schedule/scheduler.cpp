#include "kmm/schedule/scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kmm::schedule {

using graph::Access;
using graph::Predecessor;
using graph::TaskKind;
using graph::TaskState;
using memory::Placement;

namespace {

// A task that waited while the memory turned over this often is served before those that need less.
constexpr std::uint64_t patience_turnovers = 4;

// Tasks of a memory that wait for what others hold and keep nobody waiting.
constexpr std::size_t max_lacking = 16;

constexpr std::size_t index_of(LaneId lane) noexcept { return static_cast<std::size_t>(lane); }

}  // namespace

Scheduler::Scheduler(Outbox& outbox, graph::TaskTable& table, const SchedulerOptions& options,
                     std::vector<std::size_t> limits_bytes)
    : outbox_(outbox),
      table_(table),
      options_(options),
      lanes_per_device_(options.compute_lanes + 3 + options.launcher_lanes),
      queues_(limits_bytes.size()),
      next_lane_(options.num_devices, 0),
      residency_(*this, std::move(limits_bytes), options.debug) {
    counters_.by_device.resize(options.num_devices);
    for (std::uint32_t d = 0; d < options.num_devices; ++d) {
        for (std::uint32_t i = 0; i < lanes_per_device_; ++i) {
            Lane lane;
            lane.info.device = d;
            if (i < options.compute_lanes)
                lane.info.role = LaneRole::compute;
            else if (i == options.compute_lanes)
                lane.info.role = LaneRole::up;
            else if (i == options.compute_lanes + 1)
                lane.info.role = LaneRole::down;
            else if (i == options.compute_lanes + 2)
                lane.info.role = LaneRole::peer;
            else
                lane.info.role = LaneRole::launcher;
            lanes_.push_back(std::move(lane));
        }
    }
}

LaneId Scheduler::lane(std::uint32_t device, LaneRole role, std::uint32_t index) const noexcept {
    const std::uint32_t base = device * lanes_per_device_;
    const std::uint32_t k = options_.compute_lanes;
    switch (role) {
    case LaneRole::compute: return static_cast<LaneId>(base + index);
    case LaneRole::up: return static_cast<LaneId>(base + k);
    case LaneRole::down: return static_cast<LaneId>(base + k + 1);
    case LaneRole::peer: return static_cast<LaneId>(base + k + 2);
    case LaneRole::launcher: break;
    }
    return static_cast<LaneId>(base + k + 3 + index);
}

// ---------------------------------------------------------------------------------------------------- linking

void Scheduler::submit(Task& task) {
    ++unsettled_;
    if (task.kind != TaskKind::join) ++counters_.submitted;
    for (Access& a : task.accesses) {
        if (a.chunk == nullptr) continue;
        ++a.chunk->array->users;
        if (a.first_of_chunk)
            residency_.add_next_use(*a.chunk, task.number, a.writes_chunk && a.replaces_chunk && !a.needs_content);
    }
    table_.find(task.predecessors, [&](const Predecessor& p, Task* before) {
        if (before == nullptr) {
            if (p.data)
                if (const auto failure = outbox_.find_failure(p.number)) set_failure(task, failure);
            return;
        }
        before->successors.push_back({&task, p.data});
        ++task.unsettled_predecessors;
        if (!before->announced) {
            ++task.unissued_predecessors;
            return;
        }
        for (const Fence& f : before->completion)
            if (!passed(f)) task.waits.add(f);
        if (before->kind == TaskKind::kernel && before->number > task.latest_predecessor) {
            task.latest_predecessor = before->number;
            task.latest_predecessor_lane = before->lane;
        }
    });
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
        if (task.unissued_predecessors == 0 && !task.announced) {
            task.completion = task.waits;
            announce(task);
        }
        if (task.unsettled_predecessors == 0) settle(task);
        return;
    }
    if (state == TaskState::executed) {
        if (task.unsettled_predecessors == 0) settle(task);
        return;
    }
    if (state != TaskState::waiting) return;
    const bool free_to_go =
        task.kind == TaskKind::host ? task.unsettled_predecessors == 0 : task.unissued_predecessors == 0;
    if (free_to_go) make_ready(task);
}

void Scheduler::announce(Task& task) {
    task.announced = true;
    for (const Task::Successor& s : task.successors) {
        Task& next = *s.task;
        for (const Fence& f : task.completion)
            if (!passed(f)) next.waits.add(f);
        if (task.kind == TaskKind::kernel && task.number > next.latest_predecessor) {
            next.latest_predecessor = task.number;
            next.latest_predecessor_lane = task.lane;
        }
        if (--next.unissued_predecessors == 0) steps_.push_back({Step::What::check, &next});
    }
}

void Scheduler::set_failure(Task& task, const std::shared_ptr<graph::Failure>& from) {
    if (task.failure != nullptr && task.failure->root->number <= from->root->number) return;
    task.failure = task.kind == TaskKind::join ? from : outbox_.make_failure(task, nullptr, from->root);
}

void Scheduler::settle(Task& task) {
    if (task.state.load(std::memory_order_relaxed) == TaskState::settled) return;
    if (task.failure == nullptr && task.has_failed()) task.failure = outbox_.make_failure(task, task.thrown, nullptr);
    for (const Task::Successor& s : task.successors) {
        Task& next = *s.task;
        if (!task.announced) --next.unissued_predecessors;
        --next.unsettled_predecessors;
        if (task.failure != nullptr && s.data) set_failure(next, task.failure);
        steps_.push_back({Step::What::check, &next});
    }
    task.announced = true;
    for (Access& a : task.accesses)
        if (a.chunk != nullptr) drop_user(*a.chunk->array, 1);
    if (task.kind != TaskKind::join) {
        if (task.failure == nullptr)
            ++counters_.succeeded;
        else if (task.failure->root->number == task.number)
            ++counters_.failed;
        else
            ++counters_.cancelled;
    }
    task.state.store(TaskState::settled, std::memory_order_release);
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

void Scheduler::recycle_finished() {
    changed_.clear();
    for (Task* t : finished_) outbox_.recycle(*t);
    finished_.clear();
}

// ---------------------------------------------------------------------------------------------------- ready lists

void Scheduler::make_ready(Task& task) {
    if (task.failure != nullptr) {
        cancel(task);
        return;
    }
    task.state.store(TaskState::ready, std::memory_order_relaxed);
    task.turnover_at_ready = queues_[task.memory].fetched_bytes;
    task.waits_at_ready = queues_[task.memory].num_waits;
    enqueue(task);
}

void Scheduler::enqueue(Task& task) {
    Queue& q = queues_[task.memory];
    task.missing_bytes = residency_.missing_bytes(task);
    if (task.missing_bytes == 0) {
        task.in_resident_queue = true;
        q.resident.push_back(&task);
        return;
    }
    task.in_fetch_queue = true;
    q.fetch.insert({task.missing_bytes, task.number, &task});
    q.by_age.insert({task.number, &task});
    for (Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk) a.chunk->ready_tasks.push_back(&task);
}

void Scheduler::leave_fetch(Task& task) {
    Queue& q = queues_[task.memory];
    q.fetch.erase({task.missing_bytes, task.number, &task});
    q.by_age.erase({task.number, &task});
    task.in_fetch_queue = false;
    for (Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk) continue;
        auto& list = a.chunk->ready_tasks;
        const auto it = std::find(list.begin(), list.end(), &task);
        *it = list.back();
        list.pop_back();
    }
}

void Scheduler::residency_changed(Task& task) { changed_.push_back(&task); }

void Scheduler::rekey() {
    for (std::size_t i = 0; i < changed_.size(); ++i) {
        Task& t = *changed_[i];
        if (!t.in_fetch_queue) continue;
        const std::size_t missing = residency_.missing_bytes(t);
        if (missing == t.missing_bytes) continue;
        leave_fetch(t);
        enqueue(t);
    }
    changed_.clear();
}

void Scheduler::unblocked(Task& task) {
    task.blocked = false;
    --num_blocked_;
    enqueue(task);
}

void Scheduler::retry_all() {
    if (!any_stalled_) return;
    any_stalled_ = false;
    for (Queue& q : queues_) {
        q.stalled = false;
        for (auto* list : {&q.blocked, &q.lacking}) {
            graph::TaskList tasks;
            tasks.swap(*list);
            for (Task* t : tasks) unblocked(*t);
        }
    }
}

// ---------------------------------------------------------------------------------------------------- issuing

void Scheduler::dispatch() {
    run_steps();
    bool retried = false;
    for (;;) {
        const std::uint64_t before = num_issued_;
        if (options_.debug) {
            dispatch_in_order();
        } else {
            for (MemoryIndex m = 0; m < queues_.size(); ++m) dispatch_memory(m);
        }
        run_steps();
        if (num_issued_ != before) {
            retried = false;
            continue;
        }
        if (executing_ != 0 || growing_ != 0 || num_blocked_ == 0) break;
        // A task may have been blocked when memory was on its way from one place to another: nothing fails that fits
        // now.
        if (!retried) {
            retried = true;
            retry_all();
            continue;
        }
        if (!fail_stuck_task()) break;
        retried = false;
    }
    recycle_finished();
}

bool Scheduler::may_fetch(MemoryIndex m) const noexcept {
    if (m == 0) return true;
    const std::uint32_t d = m - 1;
    const std::size_t in = lanes_[index_of(lane(d, LaneRole::up))].bytes_in_flight +
                           lanes_[index_of(lane(d, LaneRole::peer))].bytes_in_flight;
    const std::size_t out = lanes_[index_of(lane(d, LaneRole::down))].bytes_in_flight;
    // In a small memory a few chunks are a large part of it: no more than a quarter of it is on its way.
    const std::size_t most = std::min(options_.link_bytes_in_flight, std::max<std::size_t>(1, residency_.limit(m) / 4));
    return in < most && out < most;
}

void Scheduler::dispatch_memory(MemoryIndex m) {
    Queue& q = queues_[m];
    // Four tasks for each thread keep the pool busy between two turns of the planner.
    const std::uint32_t most = m == 0 ? std::max(64u, 4 * options_.host_threads) : options_.tasks_in_flight;
    while (q.in_flight < most) {
        if (!changed_.empty()) rekey();
        Task* task = nullptr;
        if (!q.resident.empty()) {
            task = q.resident.front();
            q.resident.pop_front();
            task->in_resident_queue = false;
            if (residency_.missing_bytes(*task) != 0) {  // evicted since
                enqueue(*task);
                continue;
            }
        } else if (!q.fetch.empty() && !q.stalled && may_fetch(m)) {
            task = q.fetch.begin()->task;
            Task* oldest = q.by_age.begin()->second;
            if (q.fetched_bytes - oldest->turnover_at_ready > patience_turnovers * residency_.limit(m)) task = oldest;
            leave_fetch(*task);
        } else {
            break;
        }
        try_issue(*task);
        run_steps();
    }
}

void Scheduler::dispatch_in_order() {
    if (executing_ != 0) return;
    const TaskNumber next = table_.settled_up_to() + 1;
    Task* task = table_.find(next);
    if (task == nullptr || task->state.load(std::memory_order_relaxed) != TaskState::ready || task->blocked) return;
    if (task->in_fetch_queue) {
        leave_fetch(*task);
    } else {
        auto& list = queues_[task->memory].resident;
        list.erase(std::find(list.begin(), list.end(), task));
        task->in_resident_queue = false;
    }
    try_issue(*task);
}

void Scheduler::try_issue(Task& task) {
    if (task.has_failed()) {
        cancel(task);
        return;
    }
    Queue& q = queues_[task.memory];
    const Placement placement = residency_.place(task);
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
    case Placement::busy_chunk:
        task.blocked = true;
        ++num_blocked_;
        return;
    case Placement::wait_growth:
    case Placement::wait_pins:
    case Placement::full:
    case Placement::lacks:
        task.blocked = true;
        ++num_blocked_;
        ++counters_.memory_waits;
        if (!task.waited_for_memory) {
            task.waited_for_memory = true;
            ++counters_.tasks_waited;
            outbox_.memory_wait_begins(task);
        }
        if (placement == Placement::lacks && stand_aside(task)) return;
        q.blocked.push_back(&task);
        q.stalled = true;
        any_stalled_ = true;
        return;
    }
    end_memory_wait(task);
    ++num_issued_;
    ++executing_;
    ++q.in_flight;
    switch (task.kind) {
    case TaskKind::kernel: issue_kernel(task); break;
    case TaskKind::device_function: issue_launch(task); break;
    case TaskKind::host: issue_host(task); break;
    case TaskKind::join: break;
    }
}

// A successor stays in its predecessor's lane, where order is free; tasks with several converge on the latest one's.
LaneId Scheduler::choose_lane(Task& task) noexcept {
    const std::uint32_t device = task.memory - 1;
    if (task.latest_predecessor_lane != LaneId::none) {
        const Lane& l = lanes_[index_of(task.latest_predecessor_lane)];
        if (l.info.device == device && l.info.role == LaneRole::compute && l.completed < l.issued)
            return task.latest_predecessor_lane;
    }
    std::uint32_t best = 0;
    std::size_t least = ~std::size_t{0};
    const std::uint32_t first = next_lane_[device]++;
    for (std::uint32_t i = 0; i < options_.compute_lanes; ++i) {
        const std::uint32_t candidate = (first + i) % options_.compute_lanes;
        const Lane& l = lanes_[index_of(lane(device, LaneRole::compute, candidate))];
        if (l.in_flight.size() < least) best = candidate, least = l.in_flight.size();
        if (least == 0) break;
    }
    return lane(device, LaneRole::compute, best);
}

void Scheduler::issue_kernel(Task& task) {
    const LaneId id = choose_lane(task);
    Lane& l = lanes_[index_of(id)];
    const Fence fence{id, ++l.issued};
    task.lane = id;
    task.position = fence.position;
    task.completion.clear();
    task.completion.add(fence);
    for (const graph::AddressPatch& p : task.patches)
        std::memcpy(task.kernel.parameters + p.offset, &task.addresses[p.access], sizeof(void*));
    list_open_predecessors(task);
    Instruction instruction;
    instruction.op = Instruction::Op::kernel;
    instruction.lane = id;
    instruction.position = fence.position;
    instruction.task = &task;
    for (const Fence& f : task.waits)
        if (f.lane != id && !passed(f)) instruction.waits.add(f);
    residency_.issued(task, fence);
    l.in_flight.push_back({fence.position, &task});
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    ++counters_.kernels;
    outbox_.instruct(task.memory - 1, std::move(instruction));
    announce(task);
}

void Scheduler::list_open_predecessors(Task& task) {
    table_.find(task.predecessors, [&](const Predecessor& p, const Task* before) {
        if (before != nullptr && p.data) task.open_data_predecessors.push_back(p.number);
    });
}

void Scheduler::issue_launch(Task& task) {
    list_open_predecessors(task);
    task.waits.prune([this](const Fence& f) { return passed(f); });
    task.state.store(TaskState::launching, std::memory_order_relaxed);
    if (task.info && task.info->launcher == detail::LauncherInfo::Kind::kernel) ++counters_.kernels;
    residency_.pin(task);
    if (options_.functions_touch_memory)
        start_when_passed(task);
    else
        outbox_.launch(task.memory - 1, task);
}

void Scheduler::issue_host(Task& task) {
    residency_.pin(task);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    start_when_passed(task);
}

/// No thread waits for the fences: the lanes tell when they pass.
void Scheduler::start_when_passed(Task& task) {
    for (const Fence& f : task.waits) {
        if (passed(f)) continue;
        auto& watchers = lanes_[index_of(f.lane)].watchers;
        watchers.push_back({f.position, &task});
        std::push_heap(watchers.begin(), watchers.end(), std::greater<>());
        ++task.unpassed_fences;
    }
    if (task.unpassed_fences == 0) start(task);
}

/// Its inputs are there, or it has failed meanwhile.
void Scheduler::start(Task& task) {
    if (task.has_failed())
        host_done(task, task.thrown);
    else if (task.kind == TaskKind::device_function)
        outbox_.launch(task.memory - 1, task);
    else
        outbox_.run_on_host(task);
}

Fence Scheduler::copy(memory::Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                      std::uintptr_t destination, const FenceSet& waits, Task* task) {
    // The lane belongs to the device that the link belongs to: the destination's, but for the way down.
    const std::uint32_t device = to != 0 ? to - 1 : from - 1;
    const LaneRole role = from == 0 ? LaneRole::up : to == 0 ? LaneRole::down : LaneRole::peer;
    const LaneId id = lane(device, role);
    Lane& l = lanes_[index_of(id)];
    const Fence fence{id, ++l.issued};
    Instruction instruction;
    instruction.op = Instruction::Op::copy;
    instruction.lane = id;
    instruction.position = fence.position;
    instruction.task = task;
    instruction.chunk = &chunk;
    instruction.from = from;
    instruction.to = to;
    instruction.source = source;
    instruction.destination = destination;
    instruction.bytes = chunk.size_bytes;
    instruction.copied_at = chunk.copied_at;
    for (const Fence& f : waits)
        if (f.lane != id && !passed(f)) instruction.waits.add(f);
    l.in_flight.push_back({fence.position, nullptr, &chunk, chunk.size_bytes, from, to, chunk.copied_at});
    l.bytes_in_flight += chunk.size_bytes;
    ++chunk.array->users;
    const int direction = from == 0 ? 0 : to == 0 ? 1 : 2;
    for (TransferCounters* c : {&counters_.transfers, &counters_.by_device[device]}) {
        ++c->copies[direction];
        c->bytes[direction] += chunk.size_bytes;
    }
    if (to != 0) queues_[to].fetched_bytes += chunk.size_bytes;
    outbox_.instruct(device, std::move(instruction));
    return fence;
}

// ---------------------------------------------------------------------------------------------------- events

void Scheduler::advance(LaneId lane_id, Position completed) {
    Lane& l = lanes_[index_of(lane_id)];
    if (completed <= l.completed) return;
    l.completed = completed;
    while (!l.in_flight.empty() && l.in_flight.front().position <= completed) {
        const InFlight done = l.in_flight.front();
        l.in_flight.pop_front();
        if (done.task != nullptr) {
            executed(*done.task);
        } else {
            l.bytes_in_flight -= done.bytes;
            drop_user(*done.chunk->array, 1);
        }
    }
    while (!l.watchers.empty() && l.watchers.front().position <= completed) {
        Task* waiter = l.watchers.front().task;
        std::pop_heap(l.watchers.begin(), l.watchers.end(), std::greater<>());
        l.watchers.pop_back();
        if (--waiter->unpassed_fences == 0) start(*waiter);
    }
    run_steps();
    retry_all();
}

void Scheduler::executed(Task& task) {
    if (task.kernel_failure.error != nullptr)
        outbox_.kernel_failed(task, std::exchange(task.kernel_failure.error, nullptr));
    --executing_;
    --queues_[task.memory].in_flight;
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

void Scheduler::launched(Task& task, LaneId lane_id, Position position, std::exception_ptr thrown, bool finished) {
    Lane& l = lanes_[index_of(lane_id)];
    const Fence fence{lane_id, position};
    l.issued = position;
    l.in_flight.push_back({position, &task});
    task.lane = lane_id;
    task.position = position;
    task.completion.clear();
    task.completion.add(fence);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    residency_.unpin(task, &fence);
    if (thrown != nullptr)
        task.thrown = thrown;
    else
        announce(task);
    if (finished) return advance(lane_id, position);
    Instruction watch;
    watch.op = Instruction::Op::watch;
    watch.lane = lane_id;
    watch.position = position;
    outbox_.instruct(l.info.device, std::move(watch));
    run_steps();
    retry_all();
}

void Scheduler::host_done(Task& task, std::exception_ptr thrown) {
    if (thrown != nullptr) task.thrown = thrown;
    residency_.unpin(task, nullptr);
    executed(task);
    run_steps();
    retry_all();
}

void Scheduler::task_failed(Task& task, std::exception_ptr error) {
    if (task.thrown == nullptr) task.thrown = error;
}

void Scheduler::lane_failed(LaneId lane_id, Position position, std::exception_ptr error) {
    for (const InFlight& entry : lanes_[index_of(lane_id)].in_flight) {
        if (entry.position > position) break;
        if (entry.task != nullptr)
            task_failed(*entry.task, error);
        else
            copy_failed(*entry.chunk, entry.from, entry.to, entry.copied_at, error);
    }
}

void Scheduler::copy_failed(memory::Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uint64_t copied_at,
                            std::exception_ptr error) {
    auto cause = std::allocate_shared<graph::RootFailure>(graph::ReservedAllocator<graph::RootFailure>());
    cause->cause = error;
    cause->error = error;
    cause->number = table_.last();
    cause->delivered = true;  // who needs the chunk reports it
    const memory::Spoiled spoiled = residency_.copy_failed(chunk, from, to, copied_at, cause);
    // Tasks that were issued behind the copy would take what never arrived for the content. O(unsettled tasks), on
    // failures.
    table_.for_each([&](Task& t) {
        const TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != TaskState::issued && state != TaskState::launching) return;
        if (spoiled == memory::Spoiled::destination && t.memory != to) return;
        if (spoiled == memory::Spoiled::all_but_source && t.memory == from) return;
        for (const Access& a : t.accesses)
            if (a.chunk == &chunk && a.first_of_chunk && a.needs_content) task_failed(t, error);
    });
}

void Scheduler::grow(MemoryIndex memory, std::size_t bytes) {
    ++growing_;
    outbox_.grow(memory, bytes);
}

bool Scheduler::exchange(MemoryIndex memory, std::size_t bytes) {
    if (!outbox_.exchange(memory, bytes)) return false;
    ++growing_;
    return true;
}

void Scheduler::grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    --growing_;
    residency_.grown(memory, address, bytes, sealed);
    retry_all();
}

/// The task lacks memory that others in the process may hold: it waits for that, and nobody for it. False: there is no
/// such wait, or so many tasks stand aside already that trying all of them again would cost too much.
bool Scheduler::stand_aside(Task& task) {
    Queue& q = queues_[task.memory];
    if (q.lacking.size() >= max_lacking) return false;
    if (!q.waits) {
        const bool patient = task.waits_at_ready >= q.in_vain;
        if (!outbox_.await_memory(task.memory, residency_.lacking_bytes(), patient)) return false;
        q.waits = true;
        q.patient = patient;
        ++q.num_waits;
    }
    q.lacking.push_back(&task);
    any_stalled_ = true;
    return true;
}

void Scheduler::awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    Queue& q = queues_[memory];
    q.waits = false;
    graph::TaskList tasks;
    tasks.swap(q.lacking);
    if (bytes != 0) {
        q.in_vain = 0;
        residency_.awaited(memory, address, bytes, sealed);
        // The oldest, before tasks that need less take it away.
        const auto oldest = std::min_element(tasks.begin(), tasks.end(),
                                             [](const Task* a, const Task* b) { return a->number < b->number; });
        if (oldest != tasks.end()) {
            Task* const first = *oldest;
            tasks.erase(oldest);
            first->blocked = false;
            --num_blocked_;
            try_issue(*first);
        }
    } else if (q.patient) {
        q.in_vain = q.num_waits;
    }
    for (Task* t : tasks) {
        if (bytes == 0 && t->waits_at_ready < q.in_vain)
            fail_for_memory(*t);
        else
            unblocked(*t);
    }
    run_steps();
    retry_all();
}

bool Scheduler::waits_for_memory(const Task& task) const {
    const Queue& q = queues_[task.memory];
    for (const auto* list : {&q.blocked, &q.lacking})
        if (std::find(list->begin(), list->end(), &task) != list->end()) return true;
    return false;
}

void Scheduler::end_memory_wait(Task& task) {
    if (!task.waited_for_memory) return;
    task.waited_for_memory = false;
    outbox_.memory_wait_ends(task);
}

void Scheduler::cancel(Task& task) {
    end_memory_wait(task);
    for (Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk) residency_.remove_next_use(*a.chunk, task.number);
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    ++num_issued_;
    if (!task.announced) {
        task.completion = task.waits;
        announce(task);
    }
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

// Nothing runs that could release memory: the first of the tasks that found none fails, and the others try again.
bool Scheduler::fail_stuck_task() {
    Task* first = nullptr;
    for (Queue& q : queues_) {
        if (q.waits) continue;
        for (Task* t : q.blocked)
            if (first == nullptr || t->number < first->number) first = t;
    }
    if (first == nullptr) return false;
    auto& blocked = queues_[first->memory].blocked;
    blocked.erase(std::find(blocked.begin(), blocked.end(), first));
    fail_for_memory(*first);
    run_steps();
    retry_all();
    return true;
}

void Scheduler::fail_for_memory(Task& task) {
    task.blocked = false;
    --num_blocked_;
    outbox_.out_of_memory(task);
    cancel(task);
}

void Scheduler::release(memory::Array& array) {
    array.released = true;
    drop_user(array, 0);
    retry_all();
}

void Scheduler::drop_user(memory::Array& array, std::uint64_t users) {
    array.users -= users;
    if (array.users != 0 || !array.released) return;
    freed_arrays_.push_back(&array);
    residency_.free_array(array);
}

}  // namespace kmm::schedule
