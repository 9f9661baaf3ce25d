#include "kmm/runtime/process_share.hpp"

#include <algorithm>

namespace kmm::detail {

supply::ShareFigures ProcessShare::share_of(std::uint32_t device) {
    const auto m = memory::MemoryIndex::of_device(device);
    supply::ShareFigures share;
    if (driver::lost_in_fork()) return share;  // nothing of it can be had there
    share.held_bytes = engine_.memory_service().figures().device_bytes[device];
    share.limit_bytes = platform_.limit_bytes(m);
    const auto read = [&](schedule::Scheduler& scheduler, Outgoing&) {
        const memory::Residency& r = scheduler.residency();
        const memory::MemoryCounters& k = r.space(m).counters;
        share.in_use_bytes = k.current_bytes;
        share.evictable_bytes = std::min(k.current_bytes, r.residents().evictable_bytes(m));
        share.largest_free_bytes = r.space(m).heap.largest_free_bytes();
        share.peak_bytes = k.peak_bytes;
        share.num_chunks = r.residents().num_resident(m);
    };
    try {
        turns_.with_baton(read);
    } catch (const OutOfMemory&) {
        // The runtime is lost: what it holds is known, not what of it is used.
    }
    return share;
}

std::size_t ProcessShare::reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                             std::chrono::steady_clock::time_point deadline) noexcept {
    if (driver::lost_in_fork()) return 0;
    // Kernels may wait for what the task does next.
    const bool at_once = engine::TaskScope::current() != nullptr;
    return engine_.memory_service().reclaim(memory::MemoryIndex::of_device(device), bytes, at_once, deadline);
}

}  // namespace kmm::detail
