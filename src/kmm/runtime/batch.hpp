// Tasks that take their places in the order together, and how they get there: RuntimeCore::commit, the one place that
// holds the order lock for a submit.
//
// Owns: records until they are published. Must not know: arrays as the program sees them, launchers, the scheduler.
// Built by the submitting thread.
#pragma once

#include <cstdint>

#include "kmm/graph/history.hpp"
#include "kmm/graph/room.hpp"
#include "kmm/runtime/task_books.hpp"

namespace kmm::plan {
struct Request;
}  // namespace kmm::plan

namespace kmm::detail {

class Batch : public graph::Past {
  public:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    /// `closes`: the runtime takes nothing after this batch.
    explicit Batch(TaskBooks* books = nullptr, bool closes = false) noexcept : closes_(closes), books_(books) {}
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    /// For an empty batch that is used again.
    void set_books(TaskBooks& books) noexcept { books_ = &books; }
    /// In the order of their numbers, which will follow each other.
    graph::TaskList& tasks() noexcept { return tasks_; }
    const graph::TaskList& tasks() const noexcept { return tasks_; }
    /// A new record behind the others. Throws std::bad_alloc.
    Task& add_task(const graph::RecordSize& size = {}) {
        graph::room_for_one_more(tasks_);
        return *tasks_.emplace_back(books_->pool().take(size));
    }
    /// After a commit: number of the first task, and of the last, which is done when all are if `connect` made it so.
    TaskNumber first() const noexcept { return first_; }
    TaskNumber last() const noexcept { return first_ + num_tasks_ - 1; }

    // What a commit does, in this order, under the order lock.
    /// The last checks: throws what the submit throws, and nothing has changed. Everything that can fail belongs here.
    virtual void check() {}
    /// Arrays become the runtime's. Throws what `check` does; those that were bound before stay so.
    virtual void bind() {}
    /// The tasks have their numbers: what each comes after. Fails only where the reserve of host memory is used up.
    virtual void connect() = 0;
    /// The first of all tasks and helpers, which are linked (Task::next_published) by their places, each helper in
    /// front of the task that it stands before: in this order the schedule is told of them. There is a task. Empties
    /// the lists. Takes no memory that it needs. O(n log helpers).
    Task& take_all() noexcept {
        if (!ahead_.empty() || !helpers_.empty()) [[unlikely]]
            return take_with_helpers();
        for (std::size_t i = 0; i + 1 < tasks_.size(); ++i) tasks_[i]->next_published = tasks_[i + 1];
        Task& first = *tasks_.front();
        tasks_.clear();
        return first;
    }
    /// For listeners: one for each access of the tasks, in their order; null: each access is of its whole chunk.
    virtual const plan::Request* requests() const noexcept { return nullptr; }
    /// For listeners: when the submit began; 0: they are not told.
    virtual std::int64_t begin_ns() const noexcept { return 0; }

  protected:
    ~Batch() { drop(); }
    /// Records that were not published go back.
    void drop() noexcept {
        if (!tasks_.empty() || !ahead_.empty() || !helpers_.empty()) [[unlikely]]
            drop_records();
    }
    /// Where `connect` failed: those that have numbers stay in the table. Returns how many these are.
    std::size_t leave_numbered() noexcept;
    TaskBooks& books() const noexcept { return *books_; }
    /// In `check`: room for a helper. Throws std::bad_alloc.
    void reserve_helper() {
        graph::room_for_one_more(helpers_);
        books_->table().reserve_helper();
    }
    /// Likewise for `count` helpers, each ahead or not.
    void reserve_helpers(std::size_t count) {
        ahead_.reserve(ahead_.size() + count);
        helpers_.reserve(helpers_.size() + count);
        books_->table().reserve_helpers(count);
    }
    /// In `connect`: a task without a place of its own in the order, placed immediately before `made_for`. Takes
    /// the record and returns its number. Without room it throws std::bad_alloc, and has done nothing.
    TaskNumber add_helper(Task& record, TaskNumber made_for);
    /// As `add_helper`, but placed and published before all tasks of the batch, since it reads what they replace.
    /// `made_for`: the first task that needs it.
    TaskNumber add_helper_ahead(Task& record, TaskNumber made_for);
    /// Whether the number is that of a task or helper of this batch, rather than of one before it.
    bool is_own(TaskNumber number) const noexcept {
        return graph::is_helper(number) ? number > last_helper_before_ : number >= first_;
    }
    /// Which task `connect` is at: joins of readers are made for it.
    void connects(TaskNumber task) noexcept { connecting_ = task, connects_ahead_ = false; }
    /// Likewise for a helper of `add_helper_ahead`.
    void connects_ahead(TaskNumber made_for) noexcept { connecting_ = made_for, connects_ahead_ = true; }
    /// graph::Past.
    TaskNumber join(const graph::TaskNumbers& numbers, bool data) final;

  private:
    friend class RuntimeCore;

    Task& take_with_helpers() noexcept;
    void drop_records() noexcept;
    /// Tasks that have settled by now need no edges, up to the first one that ever failed. For listeners all edges are
    /// kept, so that a record does not depend on timing.
    void look_back(bool somebody_listens) noexcept {
        // In this order: a failure is known before its task counts as settled.
        const TaskNumber settled = books_->table().settled_up_to();
        const TaskNumber helper = books_->table().helpers_settled_up_to();
        const TaskNumber first_failed = books_->first_failed();
        // Helpers have no place in the order: once a task has failed any of them may have.
        if (settled < first_failed && !somebody_listens) [[likely]]
            return forget_up_to(settled, first_failed == graph::no_failure ? helper : graph::first_helper);
        forget_up_to(somebody_listens ? 0 : first_failed - 1, graph::first_helper);
    }

    const bool closes_;
    TaskBooks* books_;
    graph::TaskList tasks_;
    graph::TaskList ahead_;    ///< helpers that are published before the tasks
    graph::TaskList helpers_;  ///< the others
    TaskNumber first_ = 0;
    std::size_t num_tasks_ = 0;
    TaskNumber connecting_ = 0;
    bool connects_ahead_ = false;
    TaskNumber last_helper_before_ = 0;
};

/// One task that does nothing: done when those before it are.
class JoinBatch final : public Batch {
  public:
    /// After `predecessors`; a barrier: after all that was submitted before it. `closes`: and nothing comes after it.
    JoinBatch(TaskBooks& books, const graph::Predecessors& predecessors, bool barrier, bool closes = false);
    void connect() override {}
};

}  // namespace kmm::detail
