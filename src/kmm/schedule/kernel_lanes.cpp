#include "kmm/schedule/kernel_lanes.hpp"

#include <algorithm>

namespace kmm::schedule {

namespace {

/// The first one, by which a kernel's lane is chosen. Null: there is none.
const memory::Chunk* written_chunk(const Task& kernel) noexcept {
    const auto writes = std::ranges::find_if(kernel.uses, [](const graph::Use& u) { return u.writes; });
    return writes == kernel.uses.end() ? nullptr : writes->chunk;
}

}  // namespace

KernelLanes::KernelLanes(LanePositions& lanes, const SchedulerOptions& options) : lanes_(lanes) {
    for (std::uint32_t d = 0; d < options.num_devices; ++d)
        policies_.emplace_back(lanes.id(d, LaneRole::compute), options.compute_lanes, options.threads_at_once);
}

void KernelLanes::foresee(Task& kernel) {
    kernel.kernel_times = times_.find(kernel.kernel);
    if (const memory::Chunk* const c = written_chunk(kernel); c != nullptr)
        if (memory::Array* const array = c->array(); array != nullptr) array->written_by[kernel.memory].add(c->index);
}

LaneWish KernelLanes::wish(const Task& kernel) const noexcept {
    LaneWish wish;
    if (const memory::Chunk* const c = written_chunk(kernel); c != nullptr) {
        wish.chunk = c->index;
        const memory::Array* const array = c->array();
        wish.used_chunks = array != nullptr ? array->written_by[kernel.memory] : memory::ChunkRange(0, 0);
    }
    for (int axis = 0; axis < 3; ++axis)
        wish.num_threads *= std::uint64_t{kernel.kernel.grid[axis]} * kernel.kernel.block[axis];
    wish.is_short = times_.is_short(kernel.kernel_times);
    wish.allowed = kernel.where.stream_affinity().bits();
    return wish;
}

Fence KernelLanes::take(const Task& kernel) {
    const std::uint32_t device = kernel.memory.device();
    LanePolicy& policy = policies_[device];
    const LaneWish wish = this->wish(kernel);
    const std::uint32_t index = policy.choose(wish, kernel.fences, lanes_.compute_lanes(device));
    const Fence fence = lanes_.take(lanes_.id(device, LaneRole::compute, index));
    policy.put(index, fence.position, wish.is_short);
    return fence;
}

// A join waits for as much of each lane as there is by then: a mark for each of the many tasks before it would cost
// more than it saves.
bool KernelLanes::is_awaited_elsewhere(const Task& kernel) const noexcept {
    const std::uint32_t device = kernel.memory.device();
    const std::uint32_t lane = lanes_.info(kernel.lane).index;
    bool is_first = true;
    for (const graph::Predecessor& s : kernel.successors) {
        const Task& next = *s.after;
        if (next.kind == graph::TaskKind::join) continue;
        if (next.kind != graph::TaskKind::kernel || next.memory != kernel.memory) return true;
        if (policies_[device].will_leave(lane, wish(next), next.fences, is_first, lanes_.compute_lanes(device)))
            return true;
        is_first = false;
    }
    return false;
}

}  // namespace kmm::schedule
