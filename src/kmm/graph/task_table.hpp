// The table that finds the records of tasks by number.
//
// Owns: which numbers are taken, and the record of each that is not settled. Must not know: what a task is for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

/// Number -> record, for tasks that are not settled yet: numbers of the order of submission, and those of helpers. One
/// thread at a time adds, and one settles; neither waits for the other, except where a page of 1024 numbers begins or
/// ends. O(1).
class TaskTable {
  public:
    // ---- under the order lock
    /// Makes room for `count` more numbers, so that `add` cannot fail. Throws std::bad_alloc.
    void reserve(std::size_t count) { ordered_.reserve(count); }
    /// As `reserve`, for helpers.
    void reserve_helpers(std::size_t count) { helpers_.reserve(count); }
    void reserve_helper() { helpers_.reserve(1); }
    /// Numbers are handed out in order.
    TaskNumber add(Task* task) {
        reserve(1);
        return ordered_.add(&task, 1, 0);
    }
    /// Gives at least one task consecutive numbers, after `reserve`; returns the first.
    TaskNumber add(const TaskList& tasks) noexcept { return ordered_.add(tasks.data(), tasks.size(), 0); }
    TaskNumber add_helper(Task* task) {
        reserve_helper();
        return first_helper + helpers_.add(&task, 1, first_helper);
    }

    // ---- on the settling thread
    /// The record, or null when it is settled (or was never issued: compare with last()).
    Task* find(TaskNumber number) noexcept {
        return is_helper(number) ? helpers_.find(number - first_helper) : ordered_.find(number);
    }
    /// Calls `f(predecessor, record)` for each; null where settled.
    template<typename List, typename F> void find(List& predecessors, F&& f) {
        for (std::size_t i = 0; i < predecessors.size(); ++i) f(predecessors[i], find(predecessors[i].number));
    }
    void remove(TaskNumber number) noexcept {
        if (is_helper(number))
            helpers_.remove(number - first_helper);
        else
            ordered_.remove(number);
        // Sequentially consistent: a thread that waits for a count announces that before it reads the count.
        settled_.count.store(settled_.count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    }
    /// Calls `f(Task&)` for every task that is not settled. O(numbers from the first of them on): for failures and
    /// texts only.
    template<typename F> void for_each(F&& f) { for_each_up_to(last(), last_helper(), f); }
    /// Likewise, of those that had numbers when `last` and `last_helper` were these.
    template<typename F> void for_each_up_to(TaskNumber last, TaskNumber last_helper, F&& f) {
        ordered_.for_each_up_to(last, f);
        helpers_.for_each_up_to(last_helper - first_helper, f);
    }

    // ---- any thread
    TaskNumber last() const noexcept { return ordered_.last(); }
    /// As `last`, for helpers; a number below any of theirs if there was none.
    TaskNumber last_helper() const noexcept { return first_helper + helpers_.last(); }
    /// All numbers up to and including this one are settled, helpers' excepted.
    TaskNumber settled_up_to() const noexcept { return ordered_.settled_up_to(); }
    /// As `settled_up_to`, for helpers.
    TaskNumber helpers_settled_up_to() const noexcept { return first_helper + helpers_.settled_up_to(); }
    /// Tasks settled so far, helpers included.
    std::uint64_t num_settled() const noexcept { return settled_.count.load(std::memory_order_seq_cst); }
    /// The record, or null as `find`. It may be settled and recycled as soon as this returns, unless the caller keeps
    /// the settling thread waiting.
    Task* look_for(TaskNumber number) const noexcept {
        return is_helper(number) ? helpers_.look_for(number - first_helper) : ordered_.look_for(number);
    }
    bool is_settled(TaskNumber number) const noexcept { return look_for(number) == nullptr; }

  private:
    static constexpr std::size_t line = 64;
    static constexpr std::size_t page_size = 1024;
    struct Page {
        std::atomic<Task*> tasks[page_size] = {};
    };
    /// Pages by their number, in a ring with room for all live pages.
    struct Directory {
        explicit Directory(std::size_t size) : pages(new std::atomic<Page*>[size]()), mask(size - 1) {}
        std::atomic<Page*>& page(std::uint64_t number) const noexcept { return pages[number & mask]; }

        const std::unique_ptr<std::atomic<Page*>[]> pages;
        const std::uint64_t mask;          ///< a power of two less one
        std::unique_ptr<Directory> older;  ///< replaced by this one; freed once no thread reads it
    };
    /// Numbers from 1 on.
    class Series {
      public:
        explicit Series(std::atomic<TaskNumber>& settled_up_to);
        ~Series();
        Series(const Series&) = delete;
        Series& operator=(const Series&) = delete;

        // On the adding thread.
        void reserve(std::size_t count) {
            const TaskNumber last = last_.load(std::memory_order_relaxed) + count;
            if (last >= room_end_) [[unlikely]]
                add_pages(last);
        }
        /// Returns the first number; the records get theirs plus `offset`.
        TaskNumber add(Task* const* tasks, std::size_t count, TaskNumber offset) noexcept;

        // On the settling thread.
        Task* find(TaskNumber number) noexcept {
            if (number <= settled_up_to_.load(std::memory_order_relaxed) || !is_known(number)) return nullptr;
            return entry(number).load(std::memory_order_acquire);
        }
        void remove(TaskNumber number) noexcept;
        template<typename F> void for_each_up_to(TaskNumber end, F& f) {
            for (TaskNumber n = settled_up_to() + 1; n <= end; ++n)
                if (Task* const t = find(n)) f(*t);
        }

        // Any thread.
        TaskNumber last() const noexcept { return last_.load(std::memory_order_acquire); }
        TaskNumber settled_up_to() const noexcept { return settled_up_to_.load(std::memory_order_acquire); }
        Task* look_for(TaskNumber number) const noexcept;

      private:
        std::atomic<Task*>& entry(TaskNumber number) const noexcept {
            const Directory* const directory = directory_.load(std::memory_order_acquire);
            return directory->page(number / page_size).load(std::memory_order_relaxed)->tasks[number % page_size];
        }
        bool is_known(TaskNumber number) noexcept {
            if (number <= known_last_) [[likely]]
                return true;
            known_last_ = last();
            return number <= known_last_;
        }
        void add_pages(TaskNumber last);
        void drop_first_page(TaskNumber settled) noexcept;

        // Fields of the adding thread, of the settling thread, those that rarely change, and those that other threads
        // write have cache lines of their own.
        alignas(line) std::atomic<TaskNumber> last_{0};
        TaskNumber room_end_ = 0;  ///< the number after the last entry of the last page

        alignas(line) TaskNumber known_last_ = 0;   ///< `last_`, as last read
        std::atomic<std::uint64_t> first_page_{0};  ///< the first page that was not dropped

        alignas(line) std::atomic<TaskNumber>& settled_up_to_;
        std::atomic<Directory*> directory_;

        /// Guards changes of pages. The adding and the settling thread look pages up without it.
        alignas(line) mutable locks::TinyLock lock_;
        std::unique_ptr<Directory> newest_ KMM_GUARDED_BY(lock_);  ///< what `directory_` points to
        std::vector<std::unique_ptr<Page>> spare_ KMM_GUARDED_BY(lock_);
    };

    /// The fields that submits read.
    struct alignas(line) Settled {
        std::atomic<TaskNumber> ordered_up_to{0};
        std::atomic<TaskNumber> helpers_up_to{0};
        std::atomic<std::uint64_t> count{0};
    };
    Settled settled_;
    Series ordered_{settled_.ordered_up_to};
    Series helpers_{settled_.helpers_up_to};
};

}  // namespace kmm::graph
