#include "kmm/runtime/giving_up.hpp"

#include <algorithm>

#include "kmm/base/log.hpp"

namespace kmm::detail {

using engine::Message;
using graph::Custody;
using graph::TaskState;

namespace {

// Array::users of an array that is in the list of those that go at the end.
constexpr std::uint64_t users_of_dropped = ~std::uint64_t{0};

}  // namespace

void GivingUp::begin(schedule::Scheduler& scheduler, Outgoing& outgoing) noexcept {
    begun_ = true;
    log::last_words(log::Level::critical, "the host has no memory for the books of a kmm runtime: its tasks fail");
    outgoing.take_back([this](Task& t) {
        t.custody.store(Custody::scheduler);
        if (t.state.load(std::memory_order_relaxed) == TaskState::settled)  // its payload was to be destroyed there
            t.next_published = std::exchange(dropped_payloads_, &t);
    });
    for (memory::Array* const a : scheduler.freed_arrays()) drop_at_end(*a);
    scheduler.freed_arrays().clear();
    engine_.failed_tasks().add_all();  // kernels and functions that were handed out: what they need may never come
}

void GivingUp::came_back(Message& m) noexcept {
    switch (m.what) {
    case Message::What::launched:
        m.task->lane = m.lane;
        m.task->position = m.position;
        m.task->custody.store(Custody::returned, std::memory_order_release);
        break;
    case Message::What::host_done: m.task->custody.store(Custody::returned, std::memory_order_release); break;
    case Message::What::release: {
        auto& array = *static_cast<memory::Array*>(m.object);
        if (array.released)
            drop_at_end(array);  // the message was read, but not to the end
        else
            add_to_dropped(array);
        break;
    }
    default: break;  // how far lanes are is asked of them
    }
}

void GivingUp::settle_what_is_over() noexcept {
    graph::TaskTable& table = books_.table();
    TaskNumber last = 0, last_helper = 0;
    {
        // Under this lock each number has been published, or lost. No thread waits for the baton while it holds it.
        const locks::Guard guard(books_.order());
        last = table.last();
        last_helper = table.last_helper();
    }
    Task** link = &left_over_;
    while (*link != nullptr) link = &(*link)->next_published;
    const auto append = [&link](Task* task) {
        task->next_published = nullptr;
        task->awaited_predecessor = 0;
        *link = task;
        link = &task->next_published;
    };
    // In the order in which they were submitted: what a task comes after has nearly always been looked at before it.
    TaskNumber helper = std::max(helpers_looked_at_, table.helpers_settled_up_to()) + 1;
    const auto append_helpers = [&](TaskNumber first_successor) {
        for (; helper <= last_helper; ++helper) {
            Task* const task = table.find(helper);
            if (task == nullptr) continue;
            if (task->place() > first_successor) return;
            append(task);
        }
    };
    for (TaskNumber n = std::max(looked_at_, table.settled_up_to()) + 1; n <= last; ++n) {
        append_helpers(n);
        if (Task* const task = table.find(n)) append(task);
    }
    append_helpers(graph::first_helper);
    looked_at_ = last;
    helpers_looked_at_ = last_helper;
    while (settle_left_over()) {}
}

/// Returns whether any was settled.
bool GivingUp::settle_left_over() noexcept {
    bool any = false;
    for (Task** link = &left_over_; *link != nullptr;) {
        Task& task = **link;
        if (!is_over(task)) {
            link = &task.next_published;
            continue;
        }
        *link = task.next_published;
        settle(task);
        any = true;
    }
    return any;
}

bool GivingUp::is_over(Task& task) noexcept {
    if (may_run(task)) return false;
    if (task.is_barrier) return books_.table().settled_up_to() + 1 >= task.number;
    // What it waited for at the last look, so that very many predecessors are not all asked each time.
    if (task.awaited_predecessor != 0 && books_.table().find(task.awaited_predecessor) != nullptr) return false;
    for (const graph::Predecessor& p : task.predecessors) {
        if (books_.table().find(p.number) == nullptr) continue;
        task.awaited_predecessor = p.number;
        return false;
    }
    return true;
}

/// Whether a thread or a device may still be at it.
bool GivingUp::may_run(const Task& task) const noexcept {
    const Custody custody = task.custody.load(std::memory_order_acquire);
    if (custody == Custody::scheduler) return false;
    const bool on_host = task.kind == graph::TaskKind::host ||
                         (task.kind == graph::TaskKind::transfer && task.lane == graph::LaneId::none);
    if (custody == Custody::given_away) {
        const TaskState state = task.state.load(std::memory_order_relaxed);
        if (state != TaskState::launching && state != TaskState::issued) return false;  // its end was read
        if (state == TaskState::launching || on_host) return true;
    }
    return !on_host && !engine_.lanes().passed({task.lane, task.position});
}

void GivingUp::settle(Task& task) noexcept {
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.chunk->array->released) drop_at_end(*a.chunk->array);
    task.failure = nullptr;
    task.state.store(TaskState::settled, std::memory_order_release);
    books_.settle(task);
    if (task.has_payload()) task.next_published = std::exchange(dropped_payloads_, &task);
}

/// Once for each array that the schedule knows to be released: it may be free already, and several tasks may have used
/// it.
void GivingUp::drop_at_end(memory::Array& array) noexcept {
    if (array.users == users_of_dropped) return;
    array.users = users_of_dropped;
    add_to_dropped(array);
}

/// Any thread.
void GivingUp::add_to_dropped(memory::Array& array) noexcept {
    array.next_dropped = dropped_arrays_.load();
    while (!dropped_arrays_.compare_exchange_weak(array.next_dropped, &array)) {}
}

void GivingUp::delete_dropped_arrays(schedule::Scheduler& scheduler) noexcept {
    if (begun_)
        scheduler.for_each_array_on_its_way([this](memory::Array& array) {
            if (array.released) drop_at_end(array);
        });
    for (memory::Array *a = dropped_arrays_.load(), *next = nullptr; a != nullptr; a = next) {
        next = a->next_dropped;
        delete a;
    }
}

}  // namespace kmm::detail
