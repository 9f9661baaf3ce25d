// What tasks without memory ask of a chunk, in each memory: which wait for it, and where a plan uses it.
//
// Owns: the links of these lists. Must not know: what a task or a chunk is. Guarded by the scheduler's baton.
#pragma once

#include <cstdint>

#include "kmm/base/memory_index.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/planned_uses.hpp"
#include "kmm/memory/ready_uses.hpp"
#include "kmm/memory/record_slabs.hpp"

namespace kmm::memory {

/// The demands on a chunk in one memory; exists while there is any such task.
struct Demand {
    MemoryIndex memory;
    std::uint16_t place_in_slab = 0;
    Demand* next = nullptr;  ///< of the chunk; or the next free record
    ReadyUses ready;         ///< tasks in the memory's fetch queue that use the chunk: their missing bytes follow it
    PlannedUses planned;     ///< by tasks of the memory's plan

    bool is_over() const noexcept { return ready.empty() && planned.empty(); }
    static Demand*& free_link(Demand& demand) noexcept { return demand.next; }
    void recycle() noexcept {
        ready = {};
        planned = {};
    }
};
using DemandPool = RecordSlabs<Demand, graph::HostReserve, 4096>;

/// The demands on one chunk. Each call is O(memories with a demand).
class Demands {
  public:
    Demands() = default;
    Demands(const Demands&) = delete;
    Demands& operator=(const Demands&) = delete;
    /// Null: there is none.
    Demand* find(MemoryIndex m) const noexcept {
        Demand* at = first_;
        while (at != nullptr && at->memory != m) at = at->next;
        return at;
    }
    bool is_planned(MemoryIndex m) const noexcept {
        const Demand* const demand = find(m);
        return demand != nullptr && !demand->planned.empty();
    }
    /// Throws std::bad_alloc if the host's reserve is exhausted too, with nothing done.
    Demand& find_or_make(MemoryIndex m, DemandPool& pool) {
        if (Demand* const found = find(m)) return *found;
        Demand& made = pool.take();
        made.memory = m;
        made.next = first_;
        first_ = &made;
        return made;
    }
    void drop_if_over(Demand& demand, DemandPool& pool) noexcept {
        if (!demand.is_over()) return;
        Demand** at = &first_;
        while (*at != &demand) at = &(*at)->next;
        *at = demand.next;
        pool.give(demand);
    }
    bool empty() const noexcept { return first_ == nullptr; }

  private:
    Demand* first_ = nullptr;
};

}  // namespace kmm::memory
