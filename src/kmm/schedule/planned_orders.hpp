// The planned order of the next tasks of each memory: when one is made, and how far it is followed.
//
// Owns: the planned orders, and the search that makes them. Must not know: lanes, how much of a link is free. Runs
// under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kmm/graph/task_table.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/order_search.hpp"
#include "kmm/schedule/tasks_by_key.hpp"

namespace kmm::schedule {

class PlannedOrders {
  public:
    PlannedOrders(graph::TaskTable& table, memory::Residency& residency);

    /// The next task of the memory's planned order that is among these ready ones; null: there is no such order, or it
    /// does not hold. Where the last one is over it searches for a new one, as OrderSearch::make says.
    graph::Task* next(memory::MemoryIndex memory, const TasksByKey& ready);
    /// A task of the memory was issued.
    void issued(memory::MemoryIndex memory) noexcept { ++orders_[memory].num_issued; }
    /// Whether as many were as the order is followed for: what it uses need not be kept any longer.
    bool is_over(memory::MemoryIndex memory) const noexcept { return orders_[memory].is_over(); }
    void drop(memory::MemoryIndex memory) noexcept { drop(orders_[memory]); }
    /// None is followed or made until a task has been issued. O(tasks of the orders).
    void do_without() noexcept;
    /// Entries of lists that were looked at in all.
    std::uint64_t num_steps() const noexcept { return num_steps_ + search_.num_steps(); }

  private:
    struct Order {
        std::vector<graph::TaskNumber> tasks;
        std::size_t next = 0;          ///< in `tasks`
        std::uint64_t num_issued = 0;  ///< since a search was tried last
        std::uint64_t holds_for = 0;   ///< tasks until it is tried again
        std::uint64_t evictions = 0;   ///< of the memory, when an order was made last
        bool is_over() const noexcept { return num_issued >= holds_for; }
    };
    void make(Order& order, memory::MemoryIndex memory, const TasksByKey& ready);
    void drop(Order& order) noexcept;

    graph::TaskTable& table_;
    memory::Residency& residency_;
    OrderSearch search_;
    memory::PerMemory<Order> orders_;
    std::vector<graph::Task*> rest_;  ///< of the order that was dropped last, as far as there was memory for it
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
