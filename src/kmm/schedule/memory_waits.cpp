#include "kmm/schedule/memory_waits.hpp"

#include <algorithm>
#include <utility>

#include "kmm/schedule/notes.hpp"

namespace kmm::schedule {

namespace {

// Most tasks of a memory that may stand aside: all of them retry whenever memory may have become free.
constexpr std::size_t max_lacking = 16;

}  // namespace

MemoryWaits::MemoryWaits(Issuer& issuer, Outbox& outbox, memory::Residency& residency, Admission& admission,
                         ReadyTasks& ready, const SchedulerOptions& options, SchedulerCounters& counters)
    : issuer_(issuer),
      outbox_(outbox),
      residency_(residency),
      admission_(admission),
      ready_(ready),
      options_(options),
      counters_(counters),
      memories_(memory::PerMemory<Memory>::of_devices(residency.residents().num_devices())) {}

// --------------------------------------------------------------------------------------------------------------- tasks

void MemoryWaits::wait_for_chunk(Task& task) noexcept {
    task.blocked = true;
    ++num_blocked_;
}

void MemoryWaits::wait(Task& task, bool lacks) {
    wait_for_chunk(task);
    ++counters_.memory_waits;
    if (!task.waited_for_memory) {
        outbox_.memory_wait_begins(task);
        task.waited_for_memory = true;
        ++counters_.tasks_waited;
        if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
            note_task(*s, trace::What::wait_begins, task);
    }
    any_stalled_ = true;
    if (lacks && stand_aside(task)) return;
    Memory& m = memories_[task.memory];
    m.blocked.push_back(&task);
    m.is_stalled = true;
}

void MemoryWaits::unblocked(Task& task) {
    task.blocked = false;
    --num_blocked_;
    ready_.add(task);
}

void MemoryWaits::end(Task& task) {
    if (!task.waited_for_memory) return;
    task.waited_for_memory = false;
    outbox_.memory_wait_ends(task);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_task(*s, trace::What::wait_ends, task);
}

void MemoryWaits::retry_all() {
    admission_.room_has_changed();
    if (!any_stalled_) return;
    any_stalled_ = false;
    for (Memory& m : memories_) {
        m.is_stalled = false;
        for (auto* list : {&m.blocked, &m.lacking}) {
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

bool MemoryWaits::waits(const Task& task) const {
    const Memory& m = memories_[task.memory];
    for (const auto* list : {&m.blocked, &m.lacking})
        if (std::find(list->begin(), list->end(), &task) != list->end()) return true;
    return admission_.is_held_back(task);
}

void MemoryWaits::may_fit_now() noexcept {
    tried_ = Tried::nothing;
    num_compactions_ = 0;
    bounce_refused_ = false;
    admission_.stop_giving_way();
}

// --------------------------------------------------------------------------------------------------------- more memory

void MemoryWaits::grow(MemoryIndex memory, std::size_t bytes) {
    ++num_asked_;
    outbox_.grow(memory, bytes);
}

bool MemoryWaits::exchange(MemoryIndex memory, std::size_t bytes) {
    if (!outbox_.exchange(memory, bytes)) return false;
    ++num_asked_;
    return true;
}

void MemoryWaits::bounce_came(std::uintptr_t address, std::size_t bytes) {
    --num_asked_;
    bounce_refused_ = bytes == 0;
    residency_.compaction().set_bounce(address, bytes);
    retry_all();
}

void MemoryWaits::grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    --num_asked_;
    if (bytes != 0) may_fit_now();
    residency_.space(memory).grown(address, bytes, sealed);
    retry_all();
}

/// The task waits for memory that others in the process may hold, and blocks no other task meanwhile. False: no such
/// wait is possible, or `max_lacking` tasks stand aside already.
bool MemoryWaits::stand_aside(Task& task) {
    Memory& m = memories_[task.memory];
    if (m.lacking.size() >= max_lacking) return false;
    if (!m.is_awaited) {
        const bool patient = task.waits_at_ready >= m.timed_out;
        if (!patient && !admission_.is_front(task)) return false;  // it had its patient wait
        if (!outbox_.await_memory(task.memory, residency_.lacking(), patient)) return false;
        m.is_awaited = true;
        m.is_patient = patient;
        ++m.num_begun;
    }
    admission_.stands_aside(task);
    m.lacking.push_back(&task);
    return true;
}

void MemoryWaits::awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    Memory& m = memories_[memory];
    m.is_awaited = false;
    graph::TaskList tasks;
    tasks.swap(m.lacking);
    if (bytes != 0) {
        may_fit_now();
        m.timed_out = 0;
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
            issuer_.try_issue(*first);
        }
    } else if (m.is_patient) {
        m.timed_out = m.num_begun;
    }
    for (Task* t : tasks) {
        if (bytes != 0 || t->waits_at_ready >= m.timed_out || !admission_.is_front(*t)) {
            unblocked(*t);
            continue;
        }
        t->blocked = false;
        --num_blocked_;
        issuer_.fail_for_memory(*t);
    }
    // Only now: while a front fails, what comes behind it is not the front yet.
    issuer_.end_dependents();
    retry_all();
}

// ------------------------------------------------------------------------------------------- nothing left to wait for

void MemoryWaits::interval_passed(bool has_long_function) {
    std::optional<TaskNumber> front;
    if (admission_.closed_for() != nullptr || admission_.any_held_back()) front = admission_.front();
    const bool is_stuck = front.has_value() && front == stuck_front_;
    stuck_front_ = front;
    if (!is_stuck || !has_long_function) return admission_.moves_again();
    admission_.nothing_moves();
    any_stalled_ = true;  // the memories that the front has closed
    retry_all();
}

bool MemoryWaits::step_in_vain() {
    if (num_blocked_ == 0 && !admission_.any_held_back()) return false;
    switch (tried_) {
    case Tried::nothing:
        tried_ = Tried::front;
        ready_.do_without_orders();  // the one that needs least may fit, where the one that is planned does not
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
bool MemoryWaits::compact() {
    // Each compaction makes one free piece, which blocks that are evicted for the front may split again.
    constexpr std::uint32_t most = 8;
    const Task* const front = admission_.closed_for();
    if (front == nullptr || num_compactions_ == most) return false;
    memory::Compaction& compaction = residency_.compaction();
    std::size_t free_bytes = 0;
    for (const MemoryIndex m : memories_.memories()) free_bytes += residency_.space(m).free_bytes();
    if (free_bytes < residency_.block_bytes_missing(*front)) return false;
    std::size_t bounce_bytes = 0;
    for (const MemoryIndex m : memories_.device_memories())
        bounce_bytes = std::max(bounce_bytes, compaction.bounce_bytes_to_compact(m));
    if (ask_for_bounce(bounce_bytes)) return true;
    bool any = compaction.compact(MemoryIndex::host());
    for (const MemoryIndex m : memories_.device_memories()) any = compaction.compact(m) || any;
    num_compactions_ += any ? 1 : 0;
    return any;
}

/// Swaps one chunk for the front. True: the copies were requested, or a bounce buffer was.
bool MemoryWaits::swap() {
    Task* const front = admission_.closed_for();
    if (front == nullptr) return false;
    const std::size_t bytes = residency_.compaction().bounce_bytes_to_swap(*front);
    return bytes != 0 && (ask_for_bounce(bytes) || residency_.compaction().swap_for(*front));
}

/// False: the buffer is large enough already, or cannot be had.
bool MemoryWaits::ask_for_bounce(std::size_t bytes) {
    if (bytes <= residency_.compaction().bounce_bytes() || bounce_refused_ || !outbox_.ask_for_bounce(bytes))
        return false;
    ++num_asked_;
    return true;
}

/// False: it is in no list of ready tasks that miss memory.
bool MemoryWaits::try_front() {
    Task* const front = ready_.take_front(admission_);
    if (front != nullptr) issuer_.try_issue(*front);
    return front != nullptr;
}

/// False: it is not blocked, or memory of others in the process may still come.
bool MemoryWaits::fail_front() {
    Task* first = nullptr;
    for (const Memory& m : memories_) {
        if (m.is_awaited) return false;
        num_steps_ += m.blocked.size();
        for (Task* t : m.blocked)
            if (first == nullptr || t->place() < first->place()) first = t;
    }
    if (first == nullptr || !admission_.is_front(*first)) return try_front();
    auto& blocked = memories_[first->memory].blocked;
    blocked.erase(std::find(blocked.begin(), blocked.end(), first));
    first->blocked = false;
    --num_blocked_;
    issuer_.fail_for_memory(*first);
    issuer_.end_dependents();
    retry_all();
    return true;
}

}  // namespace kmm::schedule
