// Requests to `Residency` and its answers: what may be evicted for a task, whether it was placed, counters of a memory.
//
// Owns: nothing, plain types. Must not know: chunks, heaps. Values: any thread may hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kmm/base/block_bytes.hpp"
#include "kmm/graph/position.hpp"

namespace kmm::memory {

struct MemoryCounters {
    std::size_t limit_bytes = 0;
    std::size_t current_bytes = 0;
    std::size_t peak_bytes = 0;
    std::size_t capacity_bytes = 0;  ///< taken from the driver
    std::uint64_t evictions = 0;
    std::uint64_t evicted_bytes = 0;    ///< written down because no other copy was valid
    std::uint64_t dropped_bytes = 0;    ///< dropped because another copy was valid, or no task needs it
    std::uint64_t refetches = 0;        ///< copies into this memory of what it had held and evicted, unchanged since
    std::uint64_t refetched_bytes = 0;  ///< in `refetches`
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t victims_tried = 0;  ///< chunks that a search for room examined, evictable or not
};

enum class Placement : std::uint8_t {
    granted,
    wait_growth,  ///< more memory was asked for
    wait_pins,    ///< until a running task lets go of a chunk or of memory
    busy_chunk,   ///< until the pins of one replica go; the task stands in its `waiting`
    lost,         ///< the content is gone: `Residency::lost_cause`
    full,         ///< no evictable replica here, or no room on the host to save one
    lacks,        ///< `full`, and the driver refused memory below the limit: `Residency::lacking` would suffice
    starved,      ///< the host has no memory for the records of it
};

/// Result of a search for a block.
enum class Found : std::uint8_t {
    yes,
    growing,  ///< more was asked for
    pinned,   ///< until something that is in use is let go of
    none,
    starved,  ///< the host has no memory for the records of it
};

/// What may be evicted from a memory for a task that is placed there.
enum class Room : std::uint8_t {
    spare,       ///< clean chunks
    idle,        ///< chunks that no task needs
    as_usual,    ///< also chunks that tasks need later, if they can be saved in the memory below
    in_a_hurry,  ///< the same, for a task that makes content ahead of its turn
    any,         ///< all chunks that are not pinned; dirty ones are saved in any memory with room
};

/// Memory that `Space::grown` got.
struct AddressRange {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
};

struct Reclaimed {
    struct Taken {
        std::size_t region = 0;  ///< its index
        graph::FenceSet users;   ///< work on devices that still uses it
    };
    std::vector<Taken> taken;   ///< regions that left the heap
    bool host_growing = false;  ///< more can be saved when the host's memory has grown
};

}  // namespace kmm::memory
