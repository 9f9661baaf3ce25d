#include "kmm/graph/task_table.hpp"

namespace kmm::graph {

void TaskTable::add_pages(Series& series, TaskNumber last) {
    while (last >= series.room_end) {
        std::unique_ptr<Page> page;
        {
            const locks::Guard guard(lock_);
            if (!series.spare.empty()) {
                page = std::move(series.spare.back());
                series.spare.pop_back();
            }
        }
        // Without the lock: the system may take long, and those who settle tasks do not wait for it.
        if (page == nullptr) page = std::make_unique<Page>();
        const locks::Guard guard(lock_);
        series.pages.push_back(std::move(page));
        series.room_end += page_size;
    }
}

TaskNumber TaskTable::add(Series& series, Task* const* tasks, std::size_t count) noexcept {
    const TaskNumber before = series.last.load(std::memory_order_relaxed);
    const TaskNumber offset = &series == &helpers_ ? first_helper : 0;
    const locks::Guard guard(lock_);
    TaskNumber number = before;
    for (std::size_t i = 0; i < count; ++i) {
        series.entry(++number) = tasks[i];
        tasks[i]->number = offset + number;
    }
    series.last.store(number, std::memory_order_release);
    return before + 1;
}

void TaskTable::find(const Predecessor* predecessors, std::size_t count, Task** out) noexcept {
    const locks::Guard guard(lock_);
    for (std::size_t i = 0; i < count; ++i) out[i] = locate(predecessors[i].number);
}

void TaskTable::remove(TaskNumber number) noexcept {
    const locks::Guard guard(lock_);
    if (is_helper(number))
        helpers_.remove(number - first_helper);
    else
        ordered_.remove(number);
}

void TaskTable::Series::remove(TaskNumber number) noexcept {
    entry(number) = nullptr;
    TaskNumber settled = settled_up_to.load(std::memory_order_relaxed);
    const TaskNumber end = last.load(std::memory_order_relaxed);
    if (number != settled + 1) return;
    while (settled < end) {
        if (entry(settled + 1) != nullptr) break;
        ++settled;
        // A page whose numbers are all settled holds only nulls again and serves a later page.
        if ((settled + 1 - first_page_number) % page_size == 0) {
            if (spare.size() < spare.capacity()) spare.push_back(std::move(pages.front()));
            pages.pop_front();
            first_page_number += page_size;
        }
    }
    settled_up_to.store(settled, std::memory_order_release);
}

}  // namespace kmm::graph
