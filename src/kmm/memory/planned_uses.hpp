// Where a plan of the next tasks uses a chunk in one memory.
//
// Owns: the links of these lists. Must not know: what a task or a plan is. Guarded by the scheduler's baton.
#pragma once

#include <cstdint>
#include <deque>

namespace kmm::memory {

struct PlannedUse {
    std::uint32_t position = 0;  ///< of the task in the plan, from 1
    PlannedUse* next = nullptr;  ///< or the next free record
};

class PlannedUsePool {
  public:
    PlannedUse& take() {
        if (free_ == nullptr) return made_.emplace_back();
        PlannedUse& use = *free_;
        free_ = use.next;
        return use;
    }
    void give(PlannedUse& use) noexcept {
        use.next = free_;
        free_ = &use;
    }

  private:
    std::deque<PlannedUse> made_;  // without the host's reserve: plans are optional
    PlannedUse* free_ = nullptr;
};

/// In ascending order. Records come from a pool, and are returned to it before the list is destroyed.
class PlannedUses {
  public:
    bool empty() const noexcept { return first_ == nullptr; }
    /// The first position; must not be empty. O(1).
    std::uint32_t first() const noexcept { return first_->position; }
    /// `position` is below all others: plans are entered from end to start. O(1).
    void push_front(std::uint32_t position, PlannedUsePool& pool) {
        PlannedUse& use = pool.take();
        use.position = position;
        use.next = first_;
        first_ = &use;
    }
    /// No effect if there is no such use. O(uses before it): tasks are issued nearly in the plan's order. Adds the
    /// entries examined to `*steps`.
    void remove(std::uint32_t position, PlannedUsePool& pool, std::uint64_t* steps) noexcept {
        PlannedUse** at = &first_;
        for (; *at != nullptr && (*at)->position < position; at = &(*at)->next) ++*steps;
        if (*at == nullptr || (*at)->position != position) return;
        PlannedUse& use = **at;
        *at = use.next;
        pool.give(use);
    }

  private:
    PlannedUse* first_ = nullptr;
};

}  // namespace kmm::memory
