// What happens when the host has no memory for the books of a runtime, the reserve included (graph/host_reserve.hpp).
//
// The state of schedule and residency is not known from then on. Every task that has not settled fails, no new one is
// accepted, and what devices may still use is kept until the runtime's end. Work that was handed out runs on: a task is
// settled when nothing of it runs any more and its predecessors are settled, so that a thread that waited for it may
// free what it used.
//
// Owns: tasks that had not settled, payloads and arrays that are to be destroyed later. Must not know: the message
// queue. Runs under the baton unless stated otherwise; allocates nothing.
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
    /// Notes the end of a task, or the release of an array, from a message that the scheduler will not handle. Any
    /// thread, for its own message that found no room in the queue.
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
