// One memory as residency sees it: its heap, its replicas, the order of its victims, and what its driver refused.
//
// Plain data, and what it forgets when there may be room again; belongs to Residency.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/advanced_lanes.hpp"
#include "kmm/memory/ghosts.hpp"
#include "kmm/memory/placement.hpp"
#include "kmm/memory/record_slabs.hpp"
#include "kmm/memory/replica.hpp"
#include "kmm/memory/victim_order.hpp"
#include "rmm/heap/heap.hpp"

namespace kmm::memory {

struct Space {
    struct Unfreed {
        std::uintptr_t address;
        std::size_t bytes;
        FenceSet users;
    };
    struct Unadded {
        std::uintptr_t address;
        std::size_t bytes;
        bool sealed;
    };
    static constexpr std::size_t record_slab_bytes = 16384;

    rmm::heap::heap heap;
    MemoryCounters counters;
    bool growing = false;
    std::uint32_t refusals = 0;   ///< by the driver, in a row; after the first one chunks are evicted instead
    std::size_t asked_bytes = 0;  ///< what the driver was asked for last
    /// Capacity when the driver refused more, or others took from it; until it is larger.
    std::size_t given_at_most_bytes = ~std::size_t{0};
    /// Smallest size that the driver refused since its last success; smaller requests may be tried. 0: do not ask.
    std::size_t refused_bytes = 0;
    bool exchanging = false;       ///< the pending answer is that to an exchange
    bool freed_meanwhile = false;  ///< something was freed since the driver was asked: it may be asked again
    bool no_exchange = false;      ///< the last one was refused, and nothing has changed since
    bool has_sealed = false;       ///< chunks in it that touch may lie in several allocations of the driver
    bool indexed = false;          ///< `victims` is maintained: from the first eviction on
    VictimOrder victims;
    std::size_t idle_bytes = 0;                                           ///< of evictable replicas that no task needs
    std::size_t spare_bytes = 0;                                          ///< of clean evictable replicas
    RecordSlabs<Victim, SystemMemory, record_slab_bytes> victim_records;  ///< with `indexed` one a replica
    RecordSlabs<Replica, SystemMemory, record_slab_bytes> replicas;       ///< all of this memory
    RecordSlabs<Ghosts, SystemMemory, record_slab_bytes> ghosts;
    AdvancedLanes advanced;               ///< since the heap last looked at what they have passed
    graph::Vector<std::uint64_t> pruned;  ///< lanes of which the heap is told that they have passed something
    rmm::heap::heap::pruning pruning;     ///< how far it has come with these
    bool is_pruning = false;
    // What the heap could not note for want of host memory: it is told again before the next allocation.
    graph::Vector<Unfreed> unfreed;
    graph::Vector<Unadded> unadded;
    std::size_t exchanged_of_bytes = 0;         ///< capacity when the last exchange was asked for
    std::uint64_t exchanged_at = 0;             ///< the tick then
    std::uint64_t num_pinned = 0;               ///< of `replicas`
    std::size_t pinned_bytes = 0;               ///< that these take
    std::size_t unfit_bytes = ~std::size_t{0};  ///< from this size on nothing fits, until something is freed
    /// Cached bound: saving a chunk of at least this size here fails until this memory changes.
    std::size_t refuses_bytes = ~std::size_t{0};

    /// Chunks that could not be saved here may fit now.
    void may_save_again() noexcept { refuses_bytes = ~std::size_t{0}; }
    /// The heap gets more memory: sizes that did not fit may fit now.
    void may_fit_again() noexcept {
        unfit_bytes = ~std::size_t{0};
        may_save_again();
    }
    /// A replica has become evictable or was freed.
    void may_exchange_again() noexcept {
        may_save_again();
        // The answer to one that is under way is about what was free when it was asked for.
        if (exchanging)
            freed_meanwhile = true;
        else
            no_exchange = false;
    }
};

}  // namespace kmm::memory
