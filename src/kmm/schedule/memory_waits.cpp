// Tasks that found no memory: who waits for what, who tries again, who fails.
#include <algorithm>
#include <utility>

#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

namespace {

// Tasks of a memory that wait for what others hold and keep nobody waiting.
constexpr std::size_t max_lacking = 16;

}  // namespace

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
            num_steps_ += tasks.size();
            for (Task* t : tasks) unblocked(*t);
        }
    }
}

/// Nothing leaves the host to make room. So temporaries are filled there before their tasks are placed only as far as
/// these will find room beside them.
bool Scheduler::may_fill_ahead(const Task& task) const noexcept {
    if (!task.fills_temporary || !task.memory.is_host() || num_filled_ahead_ == 0) return true;
    const memory::MemoryCounters& host = residency_.counters(task.memory);
    const std::size_t needed =
        filled_ahead_of_bytes_ + task.needed_after() + task.accesses.front().chunk->size_bytes + memory::heap_alignment;
    return host.current_bytes + needed <= host.limit_bytes;
}

void Scheduler::count_filled_ahead(const Task& task) noexcept {
    memory::Array& array = *task.accesses.front().chunk->array;
    array.filled_ahead = true;
    array.filled_ahead_of_bytes = task.needed_after();
    ++num_filled_ahead_;
    filled_ahead_of_bytes_ += task.needed_after();
}

bool Scheduler::waits_for_memory(const Task& task) const {
    const Queue& q = queues_[task.memory];
    for (const auto* list : {&q.blocked, &q.lacking})
        if (std::find(list->begin(), list->end(), &task) != list->end()) return true;
    return false;
}

void Scheduler::begin_memory_wait(Task& task) {
    if (task.waited_for_memory) return;
    task.waited_for_memory = true;
    ++counters_.tasks_waited;
    outbox_.memory_wait_begins(task);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_task(*s, trace::What::wait_begins, task);
}

void Scheduler::end_memory_wait(Task& task) {
    if (!task.waited_for_memory) return;
    task.waited_for_memory = false;
    outbox_.memory_wait_ends(task);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_task(*s, trace::What::wait_ends, task);
}

// -------------------------------------------------------------------------------------------------------- more memory

void Scheduler::grow(MemoryIndex memory, std::size_t bytes) {
    ++in_flight_;
    outbox_.grow(memory, bytes);
}

bool Scheduler::exchange(MemoryIndex memory, std::size_t bytes) {
    if (!outbox_.exchange(memory, bytes)) return false;
    ++in_flight_;
    return true;
}

void Scheduler::grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    --in_flight_;
    residency_.grown(memory, address, bytes, sealed);
    retry_all();
}

// --------------------------------------------------------------------------------------------------- memory of others

/// The task lacks memory that others in the process may hold: it waits for that, and nobody for it. False: there is no
/// such wait, or so many tasks stand aside already that trying all of them again would cost too much.
bool Scheduler::stand_aside(Task& task) {
    Queue& q = queues_[task.memory];
    if (q.lacking.size() >= max_lacking) return false;
    if (!q.waits) {
        const bool patient = task.waits_at_ready >= q.timed_out;
        if (!outbox_.await_memory(task.memory, residency_.lacking(), patient)) return false;
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
        q.timed_out = 0;
        residency_.awaited(memory, address, bytes, sealed);
        // The oldest, before tasks that need less take it away.
        const auto oldest = std::min_element(tasks.begin(), tasks.end(), [](const Task* a, const Task* b) {
            return a->public_number() < b->public_number();
        });
        if (oldest != tasks.end()) {
            Task* const first = *oldest;
            tasks.erase(oldest);
            first->blocked = false;
            --num_blocked_;
            try_issue(*first);
        }
    } else if (q.patient) {
        q.timed_out = q.num_waits;
    }
    for (Task* t : tasks) {
        if (bytes == 0 && t->waits_at_ready < q.timed_out)
            fail_for_memory(*t);
        else
            unblocked(*t);
    }
    run_steps();
    retry_all();
}

// ------------------------------------------------------------------------------------------- nothing left to wait for

// Nothing runs that could release memory: the first of the tasks that found none fails, and the others try again.
bool Scheduler::fail_stuck_task() {
    Task* first = nullptr;
    for (Queue& q : queues_) {
        if (q.waits) continue;
        num_steps_ += q.blocked.size();
        for (Task* t : q.blocked)
            if (first == nullptr || t->public_number() < first->public_number()) first = t;
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

}  // namespace kmm::schedule
