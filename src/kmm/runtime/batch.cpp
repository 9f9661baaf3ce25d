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

void Batch::merge_helpers() noexcept {
    if (ahead_.empty() && helpers_.empty()) return;
    try {
        ahead_.reserve(ahead_.size() + tasks_.size() + helpers_.size());
    } catch (const std::bad_alloc&) {
        return;  // they come in another order, which takes longer
    }
    ahead_.insert(ahead_.end(), helpers_.begin(), helpers_.end());
    ahead_.insert(ahead_.end(), tasks_.begin(), tasks_.end());
    std::stable_sort(ahead_.begin(), ahead_.end(),
                     [](const Task* a, const Task* b) { return a->place() < b->place(); });
    tasks_.clear();
    helpers_.clear();
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
