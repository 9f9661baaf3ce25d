#include "kmm/graph/task_table.hpp"

#include <utility>

namespace kmm::graph {

namespace {

// Pages of a first directory, more than most programs ever have at a time; it doubles.
constexpr std::size_t first_directory = 8;
// Most free pages that are kept; others go back to the host.
constexpr std::size_t most_spare = 4;

}  // namespace

TaskTable::Series::Series(std::atomic<TaskNumber>& settled_up_to)
    : settled_up_to_(settled_up_to), newest_(std::make_unique<Directory>(first_directory)) {
    directory_.store(newest_.get(), std::memory_order_relaxed);
    spare_.reserve(most_spare);
}

TaskTable::Series::~Series() {
    for (std::uint64_t p = first_page_.load(std::memory_order_relaxed); p * page_size < room_end_; ++p)
        delete newest_->page(p).load(std::memory_order_relaxed);
}

void TaskTable::Series::add_pages(TaskNumber last) {
    while (last >= room_end_) {
        const std::uint64_t number = room_end_ / page_size;
        std::unique_ptr<Page> page;
        {
            const locks::Guard guard(lock_);
            if (!spare_.empty()) {
                page = std::move(spare_.back());
                spare_.pop_back();
            }
        }
        // Allocates without the lock, so that the settling thread does not wait for the system.
        if (page == nullptr) page = std::make_unique<Page>();
        std::unique_ptr<Directory> larger;
        const std::uint64_t size = directory_.load(std::memory_order_relaxed)->mask + 1;
        if (number - first_page_.load(std::memory_order_acquire) == size)
            larger = std::make_unique<Directory>(2 * size);
        const locks::Guard guard(lock_);
        if (larger != nullptr) {
            for (std::uint64_t p = first_page_.load(std::memory_order_relaxed); p != number; ++p)
                larger->page(p).store(newest_->page(p).load(std::memory_order_relaxed), std::memory_order_relaxed);
            larger->older = std::move(newest_);
            newest_ = std::move(larger);
            directory_.store(newest_.get(), std::memory_order_release);
        }
        newest_->page(number).store(page.release(), std::memory_order_relaxed);
        room_end_ += page_size;
    }
}

TaskNumber TaskTable::Series::add(Task* const* tasks, std::size_t count, TaskNumber offset) noexcept {
    const TaskNumber before = last_.load(std::memory_order_relaxed);
    TaskNumber number = before;
    for (std::size_t i = 0; i < count; ++i) {
        tasks[i]->number = offset + ++number;
        entry(number).store(tasks[i], std::memory_order_release);
    }
    last_.store(number, std::memory_order_release);
    return before + 1;
}

void TaskTable::Series::remove(TaskNumber number) noexcept {
    entry(number).store(nullptr, std::memory_order_seq_cst);
    TaskNumber settled = settled_up_to_.load(std::memory_order_relaxed);
    if (number != settled + 1) return;
    do {
        ++settled;
        if ((settled + 1) % page_size == 0) drop_first_page(settled);
    } while (is_known(settled + 1) && entry(settled + 1).load(std::memory_order_relaxed) == nullptr);
    settled_up_to_.store(settled, std::memory_order_release);
}

/// All numbers of the first page are settled: it holds only nulls, and is reused for later numbers.
void TaskTable::Series::drop_first_page(TaskNumber settled) noexcept {
    std::unique_ptr<Page> over;
    std::unique_ptr<Directory> older;
    const locks::Guard guard(lock_);
    settled_up_to_.store(settled, std::memory_order_release);  // no lookup reads the page from here on
    const std::uint64_t first = first_page_.load(std::memory_order_relaxed);
    over.reset(newest_->page(first).load(std::memory_order_relaxed));
    first_page_.store(first + 1, std::memory_order_release);
    if (spare_.size() < most_spare) spare_.push_back(std::move(over));
    // Only the adding thread, which replaced it, and this thread read a directory without the lock: it is unused.
    older = std::move(newest_->older);
}

Task* TaskTable::Series::look_for(TaskNumber number) const noexcept {
    if (number <= settled_up_to() || number > last()) return nullptr;
    const locks::Guard guard(lock_);
    if (number <= settled_up_to()) return nullptr;  // its page may be gone
    return entry(number).load(std::memory_order_seq_cst);
}

}  // namespace kmm::graph
