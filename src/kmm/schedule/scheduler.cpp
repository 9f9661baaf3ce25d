// Which ready task next: the ready lists and the turn that goes through them.
#include "kmm/schedule/scheduler.hpp"

#include <algorithm>
#include <utility>

#include "kmm/graph/room.hpp"

namespace kmm::schedule {

using graph::index_of;
using graph::TaskState;

namespace {

// So often the memory may turn over for tasks that pass over an older one. Those count that were submitted when that
// one was ready: of what was there already there is an end.
constexpr std::uint64_t patience_turnovers = 4;

}  // namespace

Scheduler::Scheduler(Outbox& outbox, graph::TaskTable& table, const SchedulerOptions& options,
                     memory::PerMemory<std::size_t> limits_bytes)
    : outbox_(outbox),
      table_(table),
      options_(options),
      lanes_per_device_(options.compute_lanes + 3 + options.launcher_lanes),
      queues_(memory::PerMemory<Queue>::of_devices(limits_bytes.num_devices())),
      residency_(*this, std::move(limits_bytes), options.debug, *options.trace, options.eviction) {
    counters_.by_device.resize(options.num_devices);
    progress_.resize(std::size_t{options.num_devices} * lanes_per_device_);
    for (std::uint32_t d = 0; d < options.num_devices; ++d) {
        for (std::uint32_t i = 0; i < lanes_per_device_; ++i) {
            Lane lane;
            const std::uint32_t k = options.compute_lanes;
            if (i < k)
                lane.info = {d, LaneRole::compute, i};
            else if (i < k + 3)
                lane.info = {d, i == k ? LaneRole::up : i == k + 1 ? LaneRole::down : LaneRole::peer, 0};
            else
                lane.info = {d, LaneRole::launcher, i - k - 3};
            lanes_.push_back(std::move(lane));
        }
        policies_.emplace_back(lane(d, LaneRole::compute), options.compute_lanes, options.threads_at_once);
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

// -------------------------------------------------------------------------------------------------------- ready lists

void Scheduler::make_ready(Task& task) {
    if (task.failure != nullptr) {
        cancel(task);
        return;
    }
    task.state.store(TaskState::ready, std::memory_order_relaxed);
    task.ready_at = num_ready_++;
    task.waits_at_ready = queues_[task.memory].num_waits;
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_task(*s, trace::What::ready, task);
    enqueue(task);
}

void Scheduler::enqueue(Task& task) {
    Queue& q = queues_[task.memory];
    task.missing_bytes = residency_.missing_bytes(task);
    if (options_.debug) {  // which one is next does not depend on what it misses
        if (graph::is_helper(task.number)) ready_helpers_.insert(PlacedTask(task));
        return;
    }
    if (task.missing_bytes == 0 && takes_what_is_there(options_.order)) {
        q.resident.push_back(&task);
        return;
    }
    task.in_fetch_queue = true;
    // The line that submits write is not looked at for a task that misses nothing.
    if (task.last_when_queued == 0) task.last_when_queued = table_.last();
    memory::ReadyUse* uses = nullptr;
    for (const graph::Use& u : task.uses) {
        if (u.role == graph::Use::Role::source) continue;
        memory::ReadyUse& use = ready_uses_.take();
        use.task = &task;
        use.chunk = u.chunk;
        use.next_of_task = uses;
        uses = &use;
        residency_.residents().listen(use);
    }
    weigh(task);
    q.fetch.insert({key_of(task), &task, uses});
    q.by_age.insert(PlacedTask(task));
}

void Scheduler::weigh(Task& task) {
    task.moved_bytes = residency_.moved_bytes(task);
    task.enables = Lookahead::enables(task);
    task.makes = residency_.made_bytes(task) != 0;
}

/// Where all but one of a task's predecessors are issued, that one may have become more urgent. O(predecessors), once
/// for each task, where any waits to be fetched.
void Scheduler::notice_last_predecessor(const Task& next) {
    if (!Lookahead::looks_at(next) || queues_[next.memory].fetch.empty()) return;
    for (const graph::Predecessor& p : next.predecessors) {
        ++num_steps_;
        Task* const before = table_.find(p.number);
        if (before == nullptr || before->memory != next.memory || !before->in_fetch_queue || before->enables) continue;
        changed_.push_back(before);
    }
}

void Scheduler::leave_fetch(Task& task) {
    Queue& q = queues_[task.memory];
    const auto entry = q.fetch.find({key_of(task), nullptr, nullptr});
    for (memory::ReadyUse* use = entry->uses; use != nullptr;) {
        memory::ReadyUse* const next = use->next_of_task;
        residency_.residents().stop_listening(*use);
        ready_uses_.give(*use);
        use = next;
    }
    q.fetch.erase(entry);
    q.by_age.erase(PlacedTask(task));
    task.in_fetch_queue = false;
}

void Scheduler::residency_changed(Task& task) { changed_.push_back(&task); }

void Scheduler::rekey() {
    for (std::size_t i = 0; i < changed_.size(); ++i) {
        Task& t = *changed_[i];
        ++num_steps_;
        if (!t.in_fetch_queue) continue;
        const std::size_t missing = residency_.missing_bytes(t);
        if (missing == 0 && takes_what_is_there(options_.order)) {
            leave_fetch(t);
            enqueue(t);
            continue;
        }
        Queue& q = queues_[t.memory];
        const OrderKey before = key_of(t);
        t.missing_bytes = missing;
        weigh(t);
        if (const OrderKey now = key_of(t); now != before) {
            auto entry = q.fetch.extract(q.fetch.find({before, nullptr, nullptr}));
            entry.value().key = now;
            q.fetch.insert(std::move(entry));
        }
    }
    graph::clear_and_keep_few(changed_);
}

// ----------------------------------------------------------------------------------------------------------- the turn

void Scheduler::dispatch() {
    run_steps();
    for (;;) {
        const std::uint64_t before = num_issued_;
        if (options_.debug) {
            dispatch_in_order();
        } else {
            for (const MemoryIndex m : queues_.memories()) dispatch_memory(m);
        }
        run_steps();
        if (num_issued_ == before && !hurry() && (in_flight_ != 0 || !wait_in_vain())) break;
    }
    recycle_finished();
}

/// A link is kept busy by the copy that runs and the one behind it; small ones come in larger numbers.
bool Scheduler::may_fetch(MemoryIndex m) const noexcept {
    if (!memory::Tiers::has_lanes(m)) return true;
    // In a small memory a few chunks are a large part of it: no more than a quarter of it is on its way.
    const std::size_t quarter = std::max<std::size_t>(1, residency_.space(m).counters.limit_bytes / 4);
    std::size_t in = 0;
    for (const LaneRole role : {LaneRole::up, LaneRole::peer, LaneRole::down}) {
        const Lane& l = lanes_[index_of(lane(m.device(), role))];
        const std::size_t most = l.in_flight.size() < 2 ? quarter : std::min(options_.link_bytes_in_flight, quarter);
        if (l.bytes_in_flight >= most) return false;
        if (role != LaneRole::down) in += l.bytes_in_flight;
    }
    return in < quarter;
}

/// The best of the first few, by how many tasks become possible with it. Of equal ones that read across chunks the one
/// whose chunks were used last: a wave over a grid goes on where it is, rather than begin in several places.
graph::Task* Scheduler::best_to_fetch(Queue& q) {
    Task* best = q.fetch.begin()->task;
    const std::size_t most_bytes = 2 * best->moved_bytes;
    BestWorth worth;
    std::size_t count = 0;
    for (auto at = q.fetch.begin(); at != q.fetch.end() && count < num_candidates; ++at, ++count) {
        Task& task = *at->task;
        if (task.moved_bytes > most_bytes) break;
        const std::size_t enabled = lookahead_.count_enabled(task, &num_steps_);
        const std::uint64_t use = enabled != 0 && !task.across().empty() ? residency_.last_use(task) : 0;
        if (worth.takes(enabled, task.moved_bytes, use)) best = &task;
    }
    return best;
}

/// As planned, where memory is short and the bytes are worth a plan; else the best for now.
Task& Scheduler::choose_to_fetch(Queue& q, MemoryIndex m) {
    Task* best = q.fetch.begin()->task;
    if (m.is_device() && looks_ahead(options_.order, best->moved_bytes, residency_.space(m).counters.limit_bytes)) {
        Task* planned = nullptr;
        if (options_.plans && plans(options_.order, best->moved_bytes, residency_.space(m).counters.limit_bytes) &&
            residency_.residents().has_evicted(m))
            planned = planned_to_fetch(q, m);
        else if (q.plan_is_over())
            drop_plan(q);  // what it uses is kept no longer
        best = planned != nullptr ? planned : best_to_fetch(q);
    } else if (q.plan_is_over()) {
        drop_plan(q);
    }
    Task& oldest = *q.by_age.begin()->task;
    q.oldest = oldest.number;
    q.last_when_queued = oldest.last_when_queued;
    return q.passed_over_bytes > patience_turnovers * residency_.space(m).counters.limit_bytes ? oldest : *best;
}

void Scheduler::dispatch_memory(MemoryIndex m) {
    Queue& q = queues_[m];
    // Four tasks for each thread keep the pool busy between two turns of the scheduler.
    const std::uint32_t most = m.is_host() ? std::max(64u, 4 * options_.host_threads) : options_.tasks_in_flight;
    while (q.in_flight < most) {
        if (!changed_.empty()) rekey();
        // One at a time: each is asked as if no other were let go.
        if (Task* const admitted = admission_.take_held_back(m)) enqueue(*admitted);
        Task* task = nullptr;
        std::size_t passing_bytes = 0;
        if (!q.resident.empty()) {
            task = q.resident.front();
            q.resident.pop_front();
            if (residency_.missing_bytes(*task) != 0) {  // evicted since
                enqueue(*task);
                continue;
            }
        } else if (Task* const front = admission_.closed_for(); front != nullptr) {
            if (front->memory != m || !front->in_fetch_queue || q.stalled || !may_fetch(m)) break;
            task = front;
            leave_fetch(*task);
        } else if (!q.fetch.empty() && !q.stalled && may_fetch(m)) {
            task = &choose_to_fetch(q, m);
            if (task->public_number() > q.last_when_queued) passing_bytes = task->missing_bytes;
            leave_fetch(*task);
        } else {
            break;
        }
        const std::uint64_t issued = num_issued_;
        const TaskNumber number = task->number;
        try_issue(*task);
        if (num_issued_ != issued) ++q.issued_in_plan;
        // A task that found no memory is not the oldest any more, until it is tried again.
        if (num_issued_ != issued) q.passed_over_bytes = number == q.oldest ? 0 : q.passed_over_bytes + passing_bytes;
        run_steps();
    }
}

void Scheduler::dispatch_in_order() {
    for (const Queue& q : queues_)
        if (q.in_flight != 0) return;
    const TaskNumber next = table_.settled_up_to() + 1;
    if (const auto helper = ready_helpers_.begin(); helper != ready_helpers_.end() && helper->place <= next) {
        Task& first = *helper->task;
        ready_helpers_.erase(helper);
        return try_issue(first);
    }
    Task* task = table_.find(next);
    if (task == nullptr || task->state.load(std::memory_order_relaxed) != TaskState::ready || task->blocked) return;
    try_issue(*task);
}

}  // namespace kmm::schedule
