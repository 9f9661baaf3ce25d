// The records of what lies in one memory: replicas, ghosts, and the order in which replicas would leave.
//
// Plain data; belongs to Residency.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/memory/ghosts.hpp"
#include "kmm/memory/record_slabs.hpp"
#include "kmm/memory/replica.hpp"
#include "kmm/memory/victim_order.hpp"

namespace kmm::memory {

struct Residents {
    static constexpr std::size_t record_slab_bytes = 16384;

    RecordSlabs<Replica, SystemMemory, record_slab_bytes> replicas;  ///< all of this memory
    RecordSlabs<Ghosts, SystemMemory, record_slab_bytes> ghosts;
    bool indexed = false;  ///< `victims` is maintained: from the first eviction on
    VictimOrder victims;
    RecordSlabs<Victim, SystemMemory, record_slab_bytes> victim_records;  ///< with `indexed` one a replica
    std::size_t idle_bytes = 0;                                           ///< of evictable replicas that no task needs
    std::size_t spare_bytes = 0;                                          ///< of clean evictable replicas
    std::uint64_t num_pinned = 0;                                         ///< of `replicas`
    std::size_t pinned_bytes = 0;                                         ///< that these take

    /// Throws std::bad_alloc. As many replicas need no memory to come then, and none needs any to leave.
    void reserve(std::size_t count) {
        replicas.reserve(count);
        if (indexed) victim_records.reserve(count);
    }
    void trim() noexcept {
        victim_records.trim();
        replicas.trim();
        ghosts.trim();
    }
};

}  // namespace kmm::memory
