#include "kmm/schedule/lane_policy.hpp"

#include <algorithm>
#include <bit>

namespace kmm::schedule {

std::uint32_t LanePolicy::spread(const LaneWish& wish) const noexcept {
    // Twice what fills the device, so that one kernel's last blocks run beside the next one's first.
    const std::uint64_t blocks = std::max<std::uint64_t>(wish.num_blocks, 1);
    const std::uint64_t lanes = (2 * std::uint64_t{multiprocessors_} + blocks - 1) / blocks;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(lanes, std::min(2u, num_lanes_), num_lanes_));
}

LanePolicy::Mask LanePolicy::awaited(const graph::FenceSet& waits, std::span<const LaneProgress> lanes) const noexcept {
    Mask mask = 0;
    for (const graph::Fence& f : waits) {
        const std::size_t lane = graph::index_of(f.lane) - first_;
        if (lane < lanes.size() && lanes[lane].completed < f.position) mask |= Mask{1} << lane;
    }
    return mask;
}

std::uint32_t LanePolicy::least_filled(std::uint32_t from, std::uint32_t count,
                                       std::span<const LaneProgress> lanes) noexcept {
    std::uint32_t best = from % count;
    graph::Position least = ~graph::Position{0};
    for (std::uint32_t i = 0; i < count && least != 0; ++i) {
        const std::uint32_t lane = (from + i) % count;
        const graph::Position filled = lanes[lane].issued - lanes[lane].completed;
        if (filled < least) best = lane, least = filled;
    }
    return best;
}

/// Short kernels wait for nobody's long ones.
std::uint32_t LanePolicy::for_short(std::span<const LaneProgress> lanes) noexcept {
    if (lanes[short_].completed >= long_until_[short_]) return short_;
    for (std::uint32_t lane = 0; lane < num_lanes_; ++lane)
        if (lanes[lane].completed >= long_until_[lane]) return short_ = lane;
    return short_ = least_filled(0, num_lanes_, lanes);
}

/// The lane that ends with what is waited for, so that nothing is between; else none.
std::uint32_t LanePolicy::right_behind(const graph::FenceSet& waits,
                                       std::span<const LaneProgress> lanes) const noexcept {
    for (const graph::Fence& f : waits) {
        const std::size_t lane = graph::index_of(f.lane) - first_;
        if (lane < lanes.size() && !lanes[lane].idle() && lanes[lane].issued == f.position)
            return static_cast<std::uint32_t>(lane);
    }
    return none;
}

std::uint32_t LanePolicy::choose(const LaneWish& wish, const graph::FenceSet& waits,
                                 std::span<const LaneProgress> lanes) noexcept {
    const Mask behind = awaited(waits, lanes);
    if (wish.is_short) return behind != 0 ? static_cast<std::uint32_t>(std::countr_zero(behind)) : for_short(lanes);
    const std::uint32_t count = spread(wish);
    const std::uint32_t follows = right_behind(waits, lanes);
    if (wish.num_chunks > 1) {
        const std::uint32_t own = home(wish);
        if (std::has_single_bit(behind) && follows != none) return follows;
        return behind != 0 ? own : least_filled(own, count, lanes);
    }
    return follows != none ? follows : least_filled(next_++, count, lanes);
}

bool LanePolicy::will_leave(std::uint32_t lane, const LaneWish& wish, const graph::FenceSet& waits, bool is_first,
                            std::span<const LaneProgress> lanes) const noexcept {
    if (wish.is_short)
        return static_cast<std::uint32_t>(std::countr_zero(awaited(waits, lanes) | Mask{1} << lane)) != lane;
    return wish.num_chunks > 1 ? home(wish) != lane : !is_first;
}

}  // namespace kmm::schedule
