// What a runtime has counted so far, as plain numbers.
//
// Owns: RuntimeStats and its parts. Must not know: who counts, and when. Plain values; any thread. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kmm/core/identifiers.hpp"

namespace kmm {

/// Copies over one kind of link.
struct CopyStats {
    std::uint64_t bytes = 0;
    std::uint64_t copies = 0;
};

/// One memory: how much of it the runtime holds. Gauges, not counters: the difference of two stats keeps the later
/// ones.
struct MemoryStats {
    MemoryId memory = MemoryId::host();
    std::uint64_t current_bytes = 0;
    std::uint64_t peak_bytes = 0;   ///< never above `limit_bytes`
    std::uint64_t limit_bytes = 0;  ///< the effective limit
};

/// Counters that only grow, from the start of the runtime; exact once it is idle. Copies of user buffers are included.
struct RuntimeStats {
    std::uint64_t tasks_submitted = 0;
    std::uint64_t tasks_succeeded = 0;
    std::uint64_t tasks_failed = 0;
    std::uint64_t tasks_cancelled = 0;
    std::uint64_t kernels_launched = 0;

    CopyStats host_to_device;
    CopyStats device_to_host;
    CopyStats device_to_device;
    CopyStats host_to_host;
    CopyStats host_to_disk;
    CopyStats disk_to_host;

    std::uint64_t gathered_bytes = 0;  ///< copied together because a region crosses chunks
    std::uint64_t snapshot_bytes = 0;  ///< copied because a submit reads what it writes
    std::uint64_t evictions = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t dropped_clean_bytes = 0;  ///< evicted without a copy, because another valid one exists
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t threads_started = 0;

    std::vector<MemoryStats> memories;  ///< the host first, then the devices in order

    /// The numbers of one memory; all zero if the runtime does not have it.
    MemoryStats memory(MemoryId id) const {
        for (const MemoryStats& entry : memories) {
            if (entry.memory == id) return entry;
        }
        MemoryStats none;
        none.memory = id;
        return none;
    }
};

inline CopyStats operator-(const CopyStats& a, const CopyStats& b) noexcept {
    return CopyStats{a.bytes - b.bytes, a.copies - b.copies};
}

/// What happened between `b` (earlier) and `a` (later) of one runtime. `memories` are those of `a`.
inline RuntimeStats operator-(const RuntimeStats& a, const RuntimeStats& b) {
    RuntimeStats r = a;
    r.tasks_submitted -= b.tasks_submitted;
    r.tasks_succeeded -= b.tasks_succeeded;
    r.tasks_failed -= b.tasks_failed;
    r.tasks_cancelled -= b.tasks_cancelled;
    r.kernels_launched -= b.kernels_launched;
    r.host_to_device = a.host_to_device - b.host_to_device;
    r.device_to_host = a.device_to_host - b.device_to_host;
    r.device_to_device = a.device_to_device - b.device_to_device;
    r.host_to_host = a.host_to_host - b.host_to_host;
    r.host_to_disk = a.host_to_disk - b.host_to_disk;
    r.disk_to_host = a.disk_to_host - b.disk_to_host;
    r.gathered_bytes -= b.gathered_bytes;
    r.snapshot_bytes -= b.snapshot_bytes;
    r.evictions -= b.evictions;
    r.evicted_bytes -= b.evicted_bytes;
    r.dropped_clean_bytes -= b.dropped_clean_bytes;
    r.allocations -= b.allocations;
    r.frees -= b.frees;
    r.threads_started -= b.threads_started;
    return r;
}

}  // namespace kmm
