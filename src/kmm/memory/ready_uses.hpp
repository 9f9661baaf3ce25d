// The ready tasks that wait for a chunk to be fetched into their memory, to be notified when it changes there.
//
// Owns: the links of these lists. Must not know: what a task or a chunk is. Guarded by the scheduler's baton.
#pragma once

#include "kmm/graph/host_reserve.hpp"

namespace kmm::graph {
struct Task;
}  // namespace kmm::graph

namespace kmm::memory {

struct Chunk;

/// A task's entry in the list of a chunk, for the task's memory.
struct ReadyUse {
    graph::Task* task = nullptr;
    Chunk* chunk = nullptr;
    ReadyUse* previous = nullptr;
    ReadyUse* next = nullptr;
    ReadyUse* next_of_task = nullptr;  ///< or the next free record
};

/// In the order in which they were added; every call but `for_each` is O(1).
class ReadyUses {
  public:
    void push_back(ReadyUse& use) noexcept {
        use.previous = last_;
        use.next = nullptr;
        (last_ != nullptr ? last_->next : first_) = &use;
        last_ = &use;
    }
    void erase(ReadyUse& use) noexcept {
        (use.previous != nullptr ? use.previous->next : first_) = use.next;
        (use.next != nullptr ? use.next->previous : last_) = use.previous;
    }
    bool empty() const noexcept { return first_ == nullptr; }
    template<typename F>
    void for_each(F&& f) const {
        for (const ReadyUse* use = first_; use != nullptr; use = use->next) f(*use->task);
    }

  private:
    ReadyUse* first_ = nullptr;
    ReadyUse* last_ = nullptr;
};

/// A free list of records. O(1).
class ReadyUsePool {
  public:
    ReadyUse& take() {
        if (free_ == nullptr) free_ = &made_.emplace_back();
        ReadyUse& use = *free_;
        free_ = use.next_of_task;
        ++num_used_;
        use = {};
        return use;
    }
    void give(ReadyUse& use) noexcept {
        use.next_of_task = free_;
        free_ = &use;
        --num_used_;
    }
    /// Frees the memory of all records if none is in use.
    void trim() noexcept {
        if (num_used_ != 0) return;
        free_ = nullptr;
        made_.clear();
    }

  private:
    graph::Deque<ReadyUse> made_;
    ReadyUse* free_ = nullptr;
    std::size_t num_used_ = 0;
};

}  // namespace kmm::memory
