#include "kmm/graph/failures.hpp"

#include <algorithm>

namespace kmm::graph {

void Failures::add(const Task& task) {
    const locks::Guard guard(mutex_);
    failures_.emplace(task.number, task.failure);
    any_.store(true, std::memory_order_release);
    first_.store(std::min(first_.load(std::memory_order_relaxed), task.place()), std::memory_order_release);
    RootFailure& root = *task.failure->root;
    if (root.number != task.number || root.delivered) return;
    link(root);
}

std::shared_ptr<Failure> Failures::find(TaskNumber number) const {
    if (!any_.load(std::memory_order_acquire)) return nullptr;
    const locks::Guard guard(mutex_);
    const auto it = failures_.find(number);
    return it == failures_.end() ? nullptr : it->second;
}

void Failures::link(RootFailure& root) noexcept {
    root.next = first_undelivered_;
    if (root.next != nullptr) root.next->previous = &root;
    first_undelivered_ = &root;
    root.listed = true;
}

void Failures::unlink(RootFailure& root) noexcept {
    root.delivered = true;
    if (!root.listed) return;
    (root.previous == nullptr ? first_undelivered_ : root.previous->next) = root.next;
    if (root.next != nullptr) root.next->previous = root.previous;
    root.previous = root.next = nullptr;
    root.listed = false;
}

std::shared_ptr<Failure> Failures::deliver(TaskNumber number) {
    if (!any_.load(std::memory_order_acquire)) return nullptr;
    const locks::Guard guard(mutex_);
    const auto it = failures_.find(number);
    if (it == failures_.end()) return nullptr;
    unlink(*it->second->root);
    return it->second;
}

std::vector<std::shared_ptr<RootFailure>> Failures::deliver_before(TaskNumber number) {
    std::vector<std::shared_ptr<RootFailure>> roots;
    if (!any_.load(std::memory_order_acquire)) return roots;
    {
        const locks::Guard guard(mutex_);
        for (RootFailure* r = first_undelivered_; r != nullptr; r = r->next, ++num_looked_at_)
            if (r->number < number) roots.push_back(failures_.at(r->number)->root);
        for (const auto& r : roots) unlink(*r);
    }
    std::sort(roots.begin(), roots.end(), [](const auto& a, const auto& b) { return a->number < b->number; });
    return roots;
}

void Failures::take_back(const std::vector<std::shared_ptr<RootFailure>>& roots) noexcept {
    const locks::Guard guard(mutex_);
    for (const auto& r : roots) {
        r->delivered = false;
        if (!r->listed) link(*r);
    }
}

std::uint64_t Failures::num_looked_at() const {
    const locks::Guard guard(mutex_);
    return num_looked_at_;
}

}  // namespace kmm::graph
