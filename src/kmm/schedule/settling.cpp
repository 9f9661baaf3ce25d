// A task from its publication to its end: edges to other tasks, failures, release of unused arrays.
#include <algorithm>

#include "kmm/graph/room.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

using graph::index_of;
using graph::Predecessor;
using graph::TaskKind;
using graph::TaskState;
using graph::Use;

void Scheduler::submit(Task& task) {
    ++unsettled_;
    mark_small_parts(task);
    if (task.is_counted()) ++counters_.submitted;
    for (const Use& u : task.uses) {
        memory::Owner& owner = *u.chunk->owner;
        ++owner.users;
        if (owner.is_temporary()) --owner.uses_to_come;
        residency_.residents().add_next_use(*u.chunk, memory::next_use_of(task, u));
    }
    admission_.add(task);
    if (task.kind == TaskKind::kernel) note_lane_wish(task);
    note_neighbours(task);
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
            if (!passed(f)) task.fences.add(f);
    });
    if (task.unissued_predecessors == 1) notice_last_predecessor(task);
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
        task.kind == TaskKind::host || (task.kind == TaskKind::transfer && !memory::Tiers::has_lanes(task.memory));
    const bool free_to_go = on_host ? task.unsettled_predecessors == 0 : task.unissued_predecessors == 0;
    if (free_to_go) make_ready(task);
}

void Scheduler::announce(Task& task) {
    task.announced = true;
    for (const Predecessor& s : task.successors) {
        Task& next = *s.after;
        // A task that was cancelled may settle much later, and what needs it must not be issued meanwhile.
        if (task.failure != nullptr && s.data) set_failure(next, task.failure);
        for (const Fence& f : task.fences)
            if (!passed(f)) next.fences.add(f);
        if (--next.unissued_predecessors == 0) steps_.push_back({Step::What::check, &next});
        if (next.unissued_predecessors == 1) notice_last_predecessor(next);
    }
}

void Scheduler::executed(Task& task) {
    if (task.kernel_failure != nullptr && task.kernel_failure->error != nullptr)
        outbox_.kernel_failed(task, std::exchange(task.kernel_failure->error, nullptr));
    --in_flight_;
    --queues_[task.memory].in_flight;
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

void Scheduler::set_failure(Task& task, const std::shared_ptr<graph::Failure>& from) {
    if (task.failure != nullptr && task.failure->root->number <= from->root->number) return;
    task.failure = task.kind == TaskKind::join ? from : outbox_.make_failure(task, nullptr, from->root);
}

void Scheduler::settle(Task& task) {
    if (task.state.load(std::memory_order_relaxed) == TaskState::settled) return;
    if (task.failure == nullptr && task.has_failed()) task.failure = outbox_.make_failure(task, task.thrown, nullptr);
    for (const Predecessor& s : task.successors) {
        Task& next = *s.after;
        if (!task.announced && --next.unissued_predecessors == 1) notice_last_predecessor(next);
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
    end_memory_wait(task);
    if (task.planned_at != 0) residency_.residents().unplan(task);
    for (const Use& u : task.uses) residency_.residents().remove_next_use(*u.chunk, memory::next_use_of(task, u));
    task.state.store(TaskState::executed, std::memory_order_relaxed);
    has_progressed();
    if (task.failure == nullptr) task.failure = outbox_.make_failure(task, task.thrown, nullptr);
    if (!task.announced) announce(task);
    if (task.unsettled_predecessors == 0) steps_.push_back({Step::What::settle, &task});
}

void Scheduler::recycle_finished() {
    // A dispatch does not look at them where each memory has as many tasks on their way as it may.
    if (!changed_.empty()) rekey();
    for (Task* t : finished_) outbox_.recycle(*t);
    graph::clear_and_keep_few(finished_);
    graph::clear_and_keep_few(moves_);  // one gather may have very many
    graph::clear_and_keep_few(needed_tasks_);
}

// ----------------------------------------------------------------------------------------------------------- failures

void Scheduler::task_failed(Task& task, std::exception_ptr error) {
    if (task.thrown == nullptr) task.thrown = error;
}

void Scheduler::task_failed(TaskNumber number, std::exception_ptr error) {
    if (Task* const task = table_.find(number)) task_failed(*task, std::move(error));
}

void Scheduler::kernel_threw(TaskNumber number, std::exception_ptr thrown) {
    if (Task* const task = table_.find(number)) outbox_.kernel_failed(*task, std::move(thrown));
}

void Scheduler::lane_failed(LaneId lane_id, Position position, std::exception_ptr error) {
    graph::Vector<InFlight> copies;
    for (const InFlight& entry : lanes_[index_of(lane_id)].in_flight) {
        if (entry.position > position) break;
        if (entry.task != nullptr)
            task_failed(*entry.task, error);
        else
            copies.push_back(entry);
    }
    copies_failed(copies, error);
}

void Scheduler::copy_failed(LaneId lane_id, Position position, const std::exception_ptr& error) {
    graph::Vector<InFlight> copies;
    for (const InFlight& entry : lanes_[index_of(lane_id)].in_flight) {
        if (entry.position > position) break;
        if (entry.position == position && entry.chunk != nullptr) copies.push_back(entry);
    }
    copies_failed(copies, error);
}

/// Whether a placed task may have taken for content what the failed copy never brought: its use of the copy's chunk.
bool Scheduler::copy_concerns(const InFlight& copy, const Use& use) noexcept {
    return copy.is_part ? memory::may_have_taken_part(use, copy.to, copy.copied_at)
                        : memory::may_have_taken(use, copy.copied_at);
}

void Scheduler::copies_failed(std::span<InFlight> copies, const std::exception_ptr& error) {
    if (copies.empty()) return;
    for (const InFlight& copy : copies) {
        if (copy.is_part) {
            residency_.part_failed(*copy.chunk, copy.to, copy.copied_at);
            continue;
        }
        auto cause = std::allocate_shared<graph::RootFailure>(graph::ReservedAllocator<graph::RootFailure>());
        cause->cause = error;
        cause->error = error;
        cause->number = table_.last();
        cause->delivered = true;  // who needs the chunk reports it
        residency_.copy_failed(*copy.chunk, copy.copied_at, cause);
    }
    // Tasks that were issued behind a copy would take what never arrived for the content.
    std::sort(copies.begin(), copies.end(), [](const InFlight& a, const InFlight& b) { return a.chunk < b.chunk; });
    const auto is_bad = [&](const Use& u) {
        const auto first =
            std::lower_bound(copies.begin(), copies.end(), u.chunk,
                             [](const InFlight& c, const memory::Chunk* chunk) { return c.chunk < chunk; });
        for (auto c = first; c != copies.end() && c->chunk == u.chunk; ++c)
            if (copy_concerns(*c, u)) return true;
        return false;
    };
    table_.for_each([&](Task& t) {
        const TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != TaskState::issued && state != TaskState::launching) return;
        for (const Use& u : t.uses)
            if (is_bad(u)) task_failed(t, error);
    });
}

// ------------------------------------------------------------------------------------------------------------- arrays

void Scheduler::release(memory::Array& array) {
    array.released = true;
    if (array.users != 0) residency_.residents().released(array);
    drop_user(array, 0);
    may_fit_now();
    retry_all();
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

}  // namespace kmm::schedule
