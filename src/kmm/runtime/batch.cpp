#include "kmm/runtime/batch.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace kmm::detail {

graph::TaskNumber Batch::add_helper(Task& record, TaskNumber made_for) {
    reserve_helper();
    const TaskNumber number = books_->table().add_helper(&record);
    record.made_for = record.comes_before = made_for;
    helpers_.push_back(&record);
    return number;
}

graph::TaskNumber Batch::add_helper_ahead(Task& record, TaskNumber made_for) {
    graph::room_for_one_more(ahead_);
    books_->table().reserve_helper();
    const TaskNumber number = books_->table().add_helper(&record);
    record.made_for = made_for;
    record.comes_before = first_;
    ahead_.push_back(&record);
    return number;
}

graph::Task& Batch::take_with_helpers() noexcept {
    const auto is_before = [](const Task* a, const Task* b) { return a->place() < b->place(); };
    std::stable_sort(ahead_.begin(), ahead_.end(), is_before);
    std::stable_sort(helpers_.begin(), helpers_.end(), is_before);
    Task* first = nullptr;
    Task** link = &first;
    const auto add = [&link](Task* t) {
        *link = t;
        link = &t->next_published;
    };
    auto ahead = ahead_.begin(), helper = helpers_.begin();
    const auto add_up_to = [&](TaskNumber place) {
        for (;;) {
            const bool any_ahead = ahead != ahead_.end() && (*ahead)->place() <= place;
            const bool any_helper = helper != helpers_.end() && (*helper)->place() <= place;
            if (!any_ahead && !any_helper) return;
            // Of one place those that come ahead of all tasks are first.
            add(any_ahead && (!any_helper || (*ahead)->place() <= (*helper)->place()) ? *ahead++ : *helper++);
        }
    };
    for (Task* const t : tasks_) {
        add_up_to(t->place());
        add(t);
    }
    add_up_to(~TaskNumber{0});
    ahead_.clear();
    helpers_.clear();
    tasks_.clear();
    return *first;
}

void Batch::drop_records() noexcept {
    for (graph::TaskList* const list : {&ahead_, &tasks_, &helpers_}) {
        for (Task* t : *list) books_->pool().give(t);
        list->clear();
    }
}

std::size_t Batch::leave_numbered() noexcept {
    std::size_t count = 0;
    for (graph::TaskList* const list : {&ahead_, &tasks_, &helpers_})
        count += std::erase_if(*list, [](const Task* t) { return t->number != 0; });
    return count;
}

graph::TaskNumber Batch::join(const graph::TaskNumbers& numbers, bool data) {
    Task* record = nullptr;
    try {
        record = books_->pool().take({.num_edges = numbers.size()});
        record->predecessors.reserve(numbers.size());
        for (const TaskNumber n : numbers) record->predecessors.push_back({n, data});
        return connects_ahead_ ? add_helper_ahead(*record, connecting_) : add_helper(*record, connecting_);
    } catch (const std::bad_alloc&) {
        if (record != nullptr) books_->pool().give(record);
        return 0;
    }
}

JoinBatch::JoinBatch(TaskBooks& books, const graph::Predecessors& predecessors, bool barrier, bool closes)
    : Batch(&books, closes) {
    Task& task = add_task({.num_edges = predecessors.size()});
    task.is_barrier = barrier;
    task.predecessors.append(predecessors.data(), predecessors.size());
}

}  // namespace kmm::detail
