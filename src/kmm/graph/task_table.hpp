// The table that finds the records of tasks by number.
//
// Owns: which numbers are taken, and the record of each that is not settled. Must not know: what a task is for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

/// Number -> record, for numbers that are not settled yet: those of the order of submission, and those of helpers. Any
/// thread; each call takes a spin lock for some ten instructions. O(1).
class TaskTable {
  public:
    /// Room for so many numbers more, so that `add` cannot fail. By the one who holds the order lock.
    void reserve(std::size_t count) { reserve(ordered_, count); }
    /// The same for helpers. Throws std::bad_alloc.
    void reserve_helpers(std::size_t count) { reserve(helpers_, count); }
    void reserve_helper() { reserve(helpers_, 1); }
    /// Numbers are handed out in order by the one who holds the order lock.
    TaskNumber add(Task* task) {
        reserve(1);
        return add(ordered_, &task, 1);
    }
    /// Numbers that follow each other, for which room was made; at least one task. The first of them.
    TaskNumber add(const TaskList& tasks) noexcept { return add(ordered_, tasks.data(), tasks.size()); }
    TaskNumber add_helper(Task* task) {
        reserve_helper();
        return first_helper + add(helpers_, &task, 1);
    }
    TaskNumber last() const noexcept { return ordered_.last.load(std::memory_order_acquire); }
    /// The same for helpers; a number below any of theirs if there was none.
    TaskNumber last_helper() const noexcept { return first_helper + helpers_.last.load(std::memory_order_acquire); }
    /// The record, or null when it is settled (or was never issued: compare with last()).
    Task* find(TaskNumber number) noexcept {
        const locks::Guard guard(lock_);
        return locate(number);
    }
    /// Calls `f(predecessor, record)` for each, without the lock; null where settled. Takes it once for a thousand of
    /// them and needs no memory: a task may come after any number of others. By the one who settles tasks.
    template<typename List, typename F> void find(List& predecessors, F&& f) {
        Task* found[found_at_once];
        for (std::size_t first = 0; first < predecessors.size(); first += found_at_once) {
            const std::size_t count = std::min(found_at_once, predecessors.size() - first);
            find(predecessors.data() + first, count, found);
            for (std::size_t i = 0; i < count; ++i) f(predecessors[first + i], found[i]);
        }
    }
    /// Calls `f(task or null)` under the lock: the record cannot be recycled meanwhile.
    template<typename F> auto with(TaskNumber number, F&& f) {
        const locks::Guard guard(lock_);
        return f(locate(number));
    }
    void remove(TaskNumber number) noexcept;
    /// Calls `f(Task&)` for every task that is not settled, under the lock. O(tasks): for failures only.
    template<typename F> void for_each(F&& f) {
        const locks::Guard guard(lock_);
        for (const Series* const series : {&ordered_, &helpers_})
            for (const auto& page : series->pages)
                for (Task* t : page->tasks)
                    if (t != nullptr) f(*t);
    }
    /// Every number up to and including this one is settled; helpers do not count. Amortised O(1).
    TaskNumber settled_up_to() const noexcept { return ordered_.settled_up_to.load(std::memory_order_acquire); }
    /// The same for helpers.
    TaskNumber helpers_settled_up_to() const noexcept {
        return first_helper + helpers_.settled_up_to.load(std::memory_order_acquire);
    }

  private:
    static constexpr std::size_t page_size = 1024;
    static constexpr std::size_t found_at_once = 1024;
    struct Page {
        Task* tasks[page_size] = {};
    };
    /// Numbers from 1 on. Under the table's lock, but for the atomics, and for `room_end`.
    struct Series {
        Series() { spare.reserve(4); }
        Task*& entry(TaskNumber number) noexcept {
            const TaskNumber relative = number - first_page_number;
            return pages[static_cast<std::size_t>(relative / page_size)]->tasks[relative % page_size];
        }
        Task* locate(TaskNumber number) noexcept {
            if (number <= settled_up_to.load(std::memory_order_relaxed) ||
                number > last.load(std::memory_order_relaxed))
                return nullptr;
            return entry(number);
        }
        void remove(TaskNumber number) noexcept;

        std::deque<std::unique_ptr<Page>> pages;
        std::vector<std::unique_ptr<Page>> spare;
        TaskNumber first_page_number = 0;  ///< number of the first entry of pages.front()
        /// The number after the last entry of pages.back(), which stays when a page at the front goes. Order lock, not
        /// the table's: that the scheduler takes for every task, and a submit should wait for its cache line once.
        TaskNumber room_end = 0;
        std::atomic<TaskNumber> last{0};
        std::atomic<TaskNumber> settled_up_to{0};
    };

    Task* locate(TaskNumber number) noexcept KMM_REQUIRES(lock_) {
        return is_helper(number) ? helpers_.locate(number - first_helper) : ordered_.locate(number);
    }
    void reserve(Series& series, std::size_t count) {
        const TaskNumber last = series.last.load(std::memory_order_relaxed) + count;
        if (last >= series.room_end) [[unlikely]]
            add_pages(series, last);
    }
    void add_pages(Series& series, TaskNumber last);
    /// The first number.
    TaskNumber add(Series& series, Task* const* tasks, std::size_t count) noexcept;
    void find(const Predecessor* predecessors, std::size_t count, Task** out) noexcept;

    mutable locks::TinyLock lock_;
    Series ordered_;
    Series helpers_;
};

}  // namespace kmm::graph
