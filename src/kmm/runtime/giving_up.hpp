// What happens when the host has no memory for the books of a runtime, the reserve included (graph/host_reserve.hpp).
//
// Nobody can say any more what the schedule and residency stand for. Every task that has not settled fails, no new one
// is accepted, and what devices may still use stays until the runtime's end. But what was handed out runs on: a task is
// settled when nothing of it runs any more and what it comes after is settled, so that whoever waited for it may free
// what it used.
//
// Owns: tasks that had not settled, payloads and arrays that are to be destroyed later. Must not know: the
// message queue. Whoever has the baton, but for what says otherwise; allocates nothing.
#pragma once

#include <atomic>
#include <utility>

#include "kmm/engine/mailbox.hpp"
#include "kmm/runtime/engine_room.hpp"
#include "kmm/runtime/outgoing.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::detail {

class GivingUp {
  public:
    GivingUp(TaskBooks& books, EngineRoom& engine) noexcept : books_(books), engine_(engine) {}

    bool has_begun() const noexcept { return begun_; }
    /// Once: what has not been handed over is taken back.
    void begin(schedule::Scheduler& scheduler, Outgoing& outgoing) noexcept;
    /// Whenever something has ended since, or tasks were published: settles those of which nothing runs any more.
    void settle_what_is_over() noexcept;
    /// What stays true of a message although nobody keeps books any more. Any thread: of its own message that finds no
    /// room.
    void came_back(engine::Message& message) noexcept;
    /// Records whose payloads are to be destroyed without the baton, by next_published.
    graph::Task* take_dropped_payloads() noexcept { return std::exchange(dropped_payloads_, nullptr); }
    /// At the end, when nothing looks at them any more.
    void delete_dropped_arrays(schedule::Scheduler& scheduler) noexcept;

  private:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    bool settle_left_over() noexcept;
    bool is_over(Task& task) noexcept;
    bool may_run(const Task& task) const noexcept;
    void settle(Task& task) noexcept;
    void drop_at_end(memory::Array& array) noexcept;
    void add_to_dropped(memory::Array& array) noexcept;

    TaskBooks& books_;
    EngineRoom& engine_;
    bool begun_ = false;
    Task* dropped_payloads_ = nullptr;
    /// Not settled when the runtime gave up, each behind what it comes after; by next_published.
    Task* left_over_ = nullptr;
    TaskNumber looked_at_ = 0;  ///< the last that was looked at since
    TaskNumber helpers_looked_at_ = graph::first_helper;
    std::atomic<memory::Array*> dropped_arrays_{nullptr};  ///< to be deleted at the runtime's end; by next_dropped
};

}  // namespace kmm::detail
