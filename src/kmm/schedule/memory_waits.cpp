// Tasks that found no memory: their waits, retries and failures.
#include <algorithm>
#include <utility>

#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

namespace {

// Most tasks of a memory that may stand aside: all of them retry whenever memory may have become free.
constexpr std::size_t max_lacking = 16;

}  // namespace

void Scheduler::unblocked(Task& task) {
    task.blocked = false;
    --num_blocked_;
    enqueue(task);
}

void Scheduler::retry_all() {
    admission_.room_has_changed();
    if (!any_stalled_) return;
    any_stalled_ = false;
    for (Queue& q : queues_) {
        q.stalled = false;
        for (auto* list : {&q.blocked, &q.lacking}) {
            graph::TaskList tasks;
            tasks.swap(*list);
            num_steps_ += tasks.size();
            for (Task* t : tasks) {
                if (admission_.gives_way(*t)) {
                    list->push_back(t);
                    any_stalled_ = true;
                } else {
                    unblocked(*t);
                }
            }
        }
    }
}

bool Scheduler::waits_for_memory(const Task& task) const {
    const Queue& q = queues_[task.memory];
    for (const auto* list : {&q.blocked, &q.lacking})
        if (std::find(list->begin(), list->end(), &task) != list->end()) return true;
    return admission_.is_held_back(task);
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

void Scheduler::bounce_came(std::uintptr_t address, std::size_t bytes) {
    --in_flight_;
    bounce_refused_ = bytes == 0;
    residency_.compaction().set_bounce(address, bytes);
    retry_all();
}

void Scheduler::grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    --in_flight_;
    if (bytes != 0) may_fit_now();
    residency_.space(memory).grown(address, bytes, sealed);
    retry_all();
}

// --------------------------------------------------------------------------------------------------- memory of others

/// The task waits for memory that others in the process may hold, and blocks no other task meanwhile. False: no such
/// wait is possible, or `max_lacking` tasks stand aside already.
bool Scheduler::stand_aside(Task& task) {
    Queue& q = queues_[task.memory];
    if (q.lacking.size() >= max_lacking) return false;
    if (!q.waits) {
        const bool patient = task.waits_at_ready >= q.timed_out;
        if (!patient && !admission_.is_front(task)) return false;  // it had its patient wait
        if (!outbox_.await_memory(task.memory, residency_.lacking(), patient)) return false;
        q.waits = true;
        q.patient = patient;
        ++q.num_waits;
    }
    admission_.stands_aside(task);
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
        may_fit_now();
        q.timed_out = 0;
        residency_.space(memory).given_again(address, bytes, sealed);
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
        if (bytes == 0 && t->waits_at_ready < q.timed_out && admission_.is_front(*t))
            fail_for_memory(*t);
        else
            unblocked(*t);
    }
    run_steps();
    retry_all();
}

// ------------------------------------------------------------------------------------------- nothing left to wait for

/// Nothing but functions of the program runs, and one of them may block until a thread of the program has seen the end
/// of a task that is held back. A device function that is being launched is no such sign for its own device. False: no
/// change.
bool Scheduler::hurry() {
    if (in_flight_ == 0 || in_flight_ != functions_.count()) return false;
    bool any = false;
    for (const MemoryIndex m : queues_.memories())
        if (m.is_host() || queues_[m].in_flight == 0) any = admission_.hurry(m) || any;
    return any;
}

void Scheduler::interval_passed() {
    const bool has_long_function = functions_.look();
    std::optional<TaskNumber> front;
    if (admission_.closed_for() != nullptr || admission_.any_held_back()) front = admission_.front();
    const bool is_stuck = front.has_value() && front == stuck_front_;
    stuck_front_ = front;
    if (!is_stuck || !has_long_function) return admission_.moves_again();
    admission_.nothing_moves();
    any_stalled_ = true;  // the memories that the front has closed
    retry_all();
}

// Nothing runs that could release memory. A task that was blocked while copies were under way may fit now. Steps, until
// a task is issued: the front retries alone; after compaction; after one of its chunks has changed places with another,
// as long as there are such; all other tasks retry without the front, so that these do not evict each other's chunks
// by turns; the front fails. A swap brings a chunk of the front one memory nearer, and each other step only moves
// content out of the memory of the tasks that retry, so that this ends. False: no task waits, or only for memory of
// others in the process.
bool Scheduler::wait_in_vain() {
    if (num_blocked_ == 0 && !admission_.any_held_back()) return false;
    switch (tried_) {
    case Tried::nothing:
        tried_ = Tried::front;
        do_without_plans();  // the one that needs least may fit, where the one that is planned does not
        retry_all();
        try_front();
        return true;
    case Tried::front:
        if (compact()) {
            retry_all();
            return true;
        }
        tried_ = Tried::compaction;
        [[fallthrough]];
    case Tried::compaction:
        if (swap()) {
            retry_all();
            return true;
        }
        tried_ = Tried::others;
        admission_.give_way();
        retry_all();
        return true;
    case Tried::others: break;
    }
    return fail_front();
}

/// Compacts the memories if their free bytes together suffice for the front. True: something was moved, or a bounce
/// buffer was asked for.
bool Scheduler::compact() {
    // Each compaction makes one free piece, which blocks that are evicted for the front may split again.
    constexpr std::uint32_t most = 8;
    const Task* const front = admission_.closed_for();
    if (front == nullptr || num_compactions_ == most) return false;
    std::size_t free_bytes = 0;
    for (const MemoryIndex m : queues_.memories()) free_bytes += residency_.space(m).free_bytes();
    if (free_bytes < residency_.block_bytes_missing(*front)) return false;
    std::size_t bounce_bytes = 0;
    for (const MemoryIndex m : queues_.device_memories())
        bounce_bytes = std::max(bounce_bytes, residency_.compaction().bounce_bytes_to_compact(m));
    if (ask_for_bounce(bounce_bytes)) return true;
    bool any = residency_.compaction().compact(MemoryIndex::host());
    for (const MemoryIndex m : queues_.device_memories()) any = residency_.compaction().compact(m) || any;
    num_compactions_ += any ? 1 : 0;
    return any;
}

/// Swaps one chunk for the front. True: the copies were requested, or a bounce buffer was.
bool Scheduler::swap() {
    Task* const front = admission_.closed_for();
    if (front == nullptr) return false;
    const std::size_t bytes = residency_.compaction().bounce_bytes_to_swap(*front);
    return bytes != 0 && (ask_for_bounce(bytes) || residency_.compaction().swap_for(*front));
}

/// False: the buffer is large enough already, or cannot be had.
bool Scheduler::ask_for_bounce(std::size_t bytes) {
    if (bytes <= residency_.compaction().bounce_bytes() || bounce_refused_ || !outbox_.ask_for_bounce(bytes))
        return false;
    ++in_flight_;
    return true;
}

/// False: it is in no list of ready tasks that miss memory.
bool Scheduler::try_front() {
    for (Queue& q : queues_) {
        if (q.by_age.empty()) continue;
        Task& first = *q.by_age.begin()->task;
        if (!admission_.is_front(first)) continue;
        leave_fetch(first);
        try_issue(first);
        return true;
    }
    return false;
}

/// False: it is not blocked, or memory of others in the process may still come.
bool Scheduler::fail_front() {
    Task* first = nullptr;
    for (Queue& q : queues_) {
        if (q.waits) return false;
        num_steps_ += q.blocked.size();
        for (Task* t : q.blocked)
            if (first == nullptr || t->place() < first->place()) first = t;
    }
    if (first == nullptr || !admission_.is_front(*first)) return try_front();
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
