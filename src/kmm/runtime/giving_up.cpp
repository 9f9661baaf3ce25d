// What happens when the host has no memory for the books of a runtime, the reserve included (graph/host_reserve.hpp).
//
// Nobody can say any more what the schedule and residency stand for. Every task that has not settled fails, no new one
// is accepted, and what devices may still use stays until the runtime's end. But what was handed out runs on: a task is
// settled when nothing of it runs any more and what it comes after is settled, so that whoever waited for it may free
// what it used. Whoever has the baton, but for `came_back`; allocates nothing.
#include <algorithm>

#include "kmm/base/log.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

using engine::Message;
using graph::Custody;
using graph::TaskState;

namespace {

// Array::users of an array that is in the list of those that go at the end.
constexpr std::uint64_t users_of_dropped = ~std::uint64_t{0};

}  // namespace

void RuntimeCore::begin_to_give_up() noexcept {
    must_give_up_.store(true);
    if (gave_up_from_.load() == 0) gave_up_from_.store(table_.settled_up_to() + 1);
}

/// Also called whenever something has ended since, or tasks were published.
void RuntimeCore::give_up() noexcept {
    begin_to_give_up();
    if (!std::exchange(has_given_up_, true)) {
        log::last_words(log::Level::critical, "the host has no memory for the books of a kmm runtime: its tasks fail");
        take_back_what_is_not_on_its_way();
        failed_tasks_.add_all();  // kernels and functions that were handed out: what they need may never come
    }
    read_after_giving_up();
    // What was never handed out keeps nobody waiting on a lane; functions that have returned since may have put more
    // there.
    if (!ends_)
        for (const auto& thread : device_threads_) thread->no_more_instructions();
    settle_what_is_over();
}

void RuntimeCore::take_back_what_is_not_on_its_way() noexcept {
    for (auto& instructions : outgoing_) {
        instructions.for_each([this](const schedule::Instruction& i) {
            if (i.op != schedule::Instruction::Op::kernel) return;
            if (Task* const t = table_.find(i.task)) t->custody.store(Custody::scheduler);
        });
        instructions.clear();
    }
    for (Task* const t : to_host_) {
        t->custody.store(Custody::scheduler);
        if (t->state.load(std::memory_order_relaxed) == TaskState::settled)  // its payload was to be destroyed there
            t->next_published = std::exchange(dropped_payloads_, t);
    }
    to_host_.clear();
    for (memory::Array* const a : scheduler_->freed_arrays()) drop_at_end(*a);
    scheduler_->freed_arrays().clear();
}

/// What the turn that was broken off has not read to the end, and what came since.
void RuntimeCore::read_after_giving_up() noexcept {
    const auto read = [this](std::size_t first) KMM_REQUIRES(baton_) {
        for (; first < messages_.size(); ++first) came_back(messages_[first]);
        messages_.clear();
        next_message_ = 0;
    };
    read(next_message_);
    message_queue_.take(messages_);
    read(0);
}

/// What stays true of a message although nobody keeps books any more. Any thread: of its own message that finds no
/// room.
void RuntimeCore::came_back(Message& m) noexcept {
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

void RuntimeCore::settle_what_is_over() noexcept {
    TaskNumber last = 0;
    {
        // A submit that has numbers has published them, or has lost them, when it gives up the lock. Nobody waits for
        // the baton under it.
        const locks::Guard guard(order_);
        last = table_.last();
    }
    Task** link = &left_over_;
    while (*link != nullptr) link = &(*link)->next_published;
    for (TaskNumber n = std::max(looked_at_, table_.settled_up_to()) + 1; n <= last; ++n) {
        Task* const task = table_.find(n);
        if (task == nullptr) continue;
        task->next_published = nullptr;
        *link = task;
        link = &task->next_published;
    }
    looked_at_ = last;
    // In the order of their numbers: what a task comes after has nearly always been looked at before it.
    while (settle_left_over()) {}
}

/// Returns whether any was settled.
bool RuntimeCore::settle_left_over() noexcept {
    bool any = false;
    for (Task** link = &left_over_; *link != nullptr;) {
        Task& task = **link;
        if (!is_over(task)) {
            link = &task.next_published;
            continue;
        }
        *link = task.next_published;
        settle_after_giving_up(task);
        any = true;
    }
    return any;
}

bool RuntimeCore::is_over(Task& task) noexcept {
    if (may_run(task)) return false;
    if (task.is_barrier) return table_.settled_up_to() + 1 >= task.number;
    // What it waited for at the last look, so that very many predecessors are not all asked each time.
    if (task.awaited_predecessor != 0 && !is_settled(task.awaited_predecessor)) return false;
    for (const graph::Predecessor& p : task.predecessors) {
        if (is_settled(p.number)) continue;
        task.awaited_predecessor = p.number;
        return false;
    }
    return true;
}

/// Whether a thread or a device may still be at it.
bool RuntimeCore::may_run(const Task& task) const noexcept {
    const Custody custody = task.custody.load(std::memory_order_acquire);
    if (custody == Custody::scheduler) return false;
    const bool on_host = task.kind == graph::TaskKind::host;
    if (custody == Custody::given_away) {
        const TaskState state = task.state.load(std::memory_order_relaxed);
        if (state != TaskState::launching && state != TaskState::issued) return false;  // its end was read
        if (state == TaskState::launching || on_host) return true;
    }
    return !on_host && !lanes_->passed({task.lane, task.position});
}

void RuntimeCore::settle_after_giving_up(Task& task) noexcept {
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.chunk->array->released) drop_at_end(*a.chunk->array);
    task.failure = nullptr;
    task.state.store(TaskState::settled, std::memory_order_release);
    settled(task);
    if (task.payload != nullptr) task.next_published = std::exchange(dropped_payloads_, &task);
}

/// Once for each array that the schedule knows to be released: it may be free already, and several tasks may have used
/// it.
void RuntimeCore::drop_at_end(memory::Array& array) noexcept {
    if (array.users == users_of_dropped) return;
    array.users = users_of_dropped;
    add_to_dropped(array);
}

/// Any thread.
void RuntimeCore::add_to_dropped(memory::Array& array) noexcept {
    array.next_dropped = dropped_arrays_.load();
    while (!dropped_arrays_.compare_exchange_weak(array.next_dropped, &array)) {}
}

/// At the end, when nothing looks at them any more.
void RuntimeCore::delete_dropped_arrays() noexcept {
    if (scheduler_ == nullptr) return;
    if (has_given_up_)
        scheduler_->for_each_array_on_its_way([this](memory::Array& array) {
            if (array.released) drop_at_end(array);
        });
    for (memory::Array *a = dropped_arrays_.load(), *next = nullptr; a != nullptr; a = next) {
        next = a->next_dropped;
        delete a;
    }
}

}  // namespace kmm::detail
