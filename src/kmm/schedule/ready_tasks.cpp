#include "kmm/schedule/ready_tasks.hpp"

#include <utility>

#include "kmm/graph/room.hpp"

namespace kmm::schedule {

namespace {

// How often the memory may turn over for tasks that pass over an older one. Those count that were submitted when that
// one was ready: of those before there is an end.
constexpr std::uint64_t patience_turnovers = 4;

}  // namespace

ReadyTasks::ReadyTasks(graph::TaskTable& table, memory::Residency& residency, const SchedulerOptions& options)
    : table_(table),
      residency_(residency),
      options_(options),
      queues_(memory::PerMemory<Queue>::of_devices(residency.residents().num_devices())),
      planned_(table, residency) {}

void ReadyTasks::add(Task& task) {
    task.missing_bytes = residency_.missing_bytes(task);
    if (options_.debug) {  // which one is next does not depend on what it misses
        if (graph::is_helper(task.number)) ready_helpers_.insert(PlacedTask(task));
        return;
    }
    Queue& q = queues_[task.memory];
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
        memory::ReadyUse& use = uses_.take();
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

OrderKey ReadyTasks::key_of(const Task& task) const noexcept {
    return schedule::key_of(options_.order, {task.missing_bytes, task.moved_bytes,
                                             needs_room(task.missing_bytes, limit_bytes(task.memory)), task.makes,
                                             task.enables, task.ready_at, task.place(), task.number});
}

void ReadyTasks::weigh(Task& task) {
    task.moved_bytes = residency_.moved_bytes(task);
    task.enables = Lookahead::enables(task);
    task.makes = residency_.made_bytes(task) != 0;
}

void ReadyTasks::notice_last_predecessor(const Task& next) {
    if (!Lookahead::looks_at(next) || queues_[next.memory].fetch.empty()) return;
    for (const graph::Predecessor& p : next.predecessors) {
        ++num_steps_;
        Task* const before = table_.find(p.number);
        if (before == nullptr || before->memory != next.memory || !before->in_fetch_queue || before->enables) continue;
        changed_.push_back(before);
    }
}

void ReadyTasks::leave(Task& task) {
    Queue& q = queues_[task.memory];
    const auto entry = q.fetch.find({key_of(task)});
    for (memory::ReadyUse* use = entry->uses; use != nullptr;) {
        memory::ReadyUse* const next = use->next_of_task;
        residency_.residents().stop_listening(*use);
        uses_.give(*use);
        use = next;
    }
    q.fetch.erase(entry);
    q.by_age.erase(PlacedTask(task));
    task.in_fetch_queue = false;
}

void ReadyTasks::order_again() {
    for (std::size_t i = 0; i < changed_.size(); ++i) {
        Task& t = *changed_[i];
        ++num_steps_;
        if (!t.in_fetch_queue) continue;
        const std::size_t missing = residency_.missing_bytes(t);
        if (missing == 0 && takes_what_is_there(options_.order)) {
            leave(t);
            add(t);
            continue;
        }
        Queue& q = queues_[t.memory];
        const OrderKey before = key_of(t);
        t.missing_bytes = missing;
        weigh(t);
        if (const OrderKey now = key_of(t); now != before) {
            auto entry = q.fetch.extract(q.fetch.find({before}));
            entry.value().key = now;
            q.fetch.insert(std::move(entry));
        }
    }
    graph::clear_and_keep_few(changed_);
}

bool ReadyTasks::first_was_evicted(MemoryIndex m) {
    Queue& q = queues_[m];
    if (q.resident.empty()) return false;
    Task& first = *q.resident.front();
    if (residency_.missing_bytes(first) == 0) return false;
    q.resident.pop_front();
    add(first);
    return true;
}

/// The best of the first few, by how many tasks become possible with it. Of equal ones that read across chunks the one
/// whose chunks were used last: a wave over a grid goes on where it is, rather than begin in several places.
Task* ReadyTasks::best_to_fetch(Queue& q) {
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
Task& ReadyTasks::choose(Queue& q, MemoryIndex m) {
    Task* best = q.fetch.begin()->task;
    if (m.is_device() && looks_ahead(options_.order, best->moved_bytes, limit_bytes(m))) {
        Task* planned = nullptr;
        if (options_.plans && plans(options_.order, best->moved_bytes, limit_bytes(m)) &&
            residency_.residents().has_evicted(m))
            planned = planned_.next(m, q.fetch);
        else if (planned_.is_over(m))
            planned_.drop(m);  // what it uses is kept no longer
        best = planned != nullptr ? planned : best_to_fetch(q);
    } else if (planned_.is_over(m)) {
        planned_.drop(m);
    }
    Task& oldest = *q.by_age.begin()->task;
    q.oldest = oldest.number;
    q.last_when_queued = oldest.last_when_queued;
    return q.passed_over_bytes > patience_turnovers * limit_bytes(m) ? oldest : *best;
}

Task& ReadyTasks::take_to_fetch(Queue& q, MemoryIndex m) {
    Task& task = choose(q, m);
    if (task.public_number() > q.last_when_queued) q.passing_bytes = task.missing_bytes;
    leave(task);
    return task;
}

void ReadyTasks::issued(MemoryIndex m, TaskNumber task) noexcept {
    Queue& q = queues_[m];
    planned_.issued(m);
    q.passed_over_bytes = task == q.oldest ? 0 : q.passed_over_bytes + q.passing_bytes;
}

Task* ReadyTasks::take_front(const Admission& admission) {
    for (Queue& q : queues_) {
        if (q.by_age.empty()) continue;
        Task& first = *q.by_age.begin()->task;
        if (!admission.is_front(first)) continue;
        leave(first);
        return &first;
    }
    return nullptr;
}

Task* ReadyTasks::take_in_order() {
    const TaskNumber next = table_.settled_up_to() + 1;
    if (const auto helper = ready_helpers_.begin(); helper != ready_helpers_.end() && helper->place <= next) {
        Task& first = *helper->task;
        ready_helpers_.erase(helper);
        return &first;
    }
    Task* const task = table_.find(next);
    if (task == nullptr || task->state.load(std::memory_order_relaxed) != graph::TaskState::ready || task->blocked)
        return nullptr;
    return task;
}

}  // namespace kmm::schedule
