#include "kmm/schedule/lane_policy.hpp"

#include <algorithm>
#include <bit>

namespace kmm::schedule {

namespace {

// A kernel leaves its home lane if that has more than twice the kernels of the emptiest lane and this number more: the
// few chunks that a program works on may share a home. A small excess is normal, since neighbours are submitted one
// after the other.
constexpr graph::Position most_more_at_home = 16;

}  // namespace

std::uint32_t LanePolicy::spread(const LaneWish& wish) const noexcept {
    // Twice what fills the device, so that one kernel's last blocks run beside the next one's first.
    const std::uint64_t threads = std::max<std::uint64_t>(wish.num_threads, 1);
    const std::uint64_t lanes = (2 * threads_at_once_ - 1) / threads + 1;
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
        const graph::Position filled = lanes[lane].filled();
        if (filled < least) best = lane, least = filled;
    }
    return best;
}

/// The lane of short kernels: one without unfinished long kernels, if there is any.
std::uint32_t LanePolicy::shared(std::span<const LaneProgress> lanes) noexcept {
    if (!has_long(short_, lanes)) return short_;
    for (std::uint32_t lane = 0; lane < num_lanes_; ++lane)
        if (!has_long(lane, lanes)) return short_ = lane;
    return short_ = least_filled(0, num_lanes_, lanes);
}

/// To leave the lane that it waits for costs an event, and pays where many short kernels are on the shared one already.
std::uint32_t LanePolicy::for_short(Mask behind, std::span<const LaneProgress> lanes) noexcept {
    if (behind == 0) return shared(lanes);
    const std::uint32_t lane = one_of(behind);
    const bool joins = !has_long(lane, lanes) && !has_long(short_, lanes);
    return joins && lanes[short_].filled() >= lanes[lane].filled() ? short_ : lane;
}

/// Of the lanes that are waited for the one with least behind what is waited for.
LanePolicy::Follow LanePolicy::closest(const graph::FenceSet& waits,
                                       std::span<const LaneProgress> lanes) const noexcept {
    Follow best;
    for (const graph::Fence& f : waits) {
        const std::size_t lane = graph::index_of(f.lane) - first_;
        if (lane >= lanes.size() || lanes[lane].completed >= f.position) continue;
        const graph::Position between = lanes[lane].issued - f.position;
        if (between < best.between) best = {static_cast<std::uint32_t>(lane), between};
    }
    return best;
}

std::uint32_t LanePolicy::among(Mask allowed, const graph::FenceSet& waits,
                                std::span<const LaneProgress> lanes) const noexcept {
    std::uint32_t emptiest = 0;
    graph::Position least = ~graph::Position{0};
    for (std::uint32_t lane = 0; lane < num_lanes_; ++lane) {
        if ((allowed >> lane & 1) == 0 || lanes[lane].filled() >= least) continue;
        emptiest = lane;
        least = lanes[lane].filled();
    }
    const Follow follow = closest(waits, lanes);
    const bool may_follow = (allowed >> follow.lane & 1) != 0 && follow.between <= least;
    return may_follow ? follow.lane : emptiest;
}

std::uint32_t LanePolicy::choose(const LaneWish& wish, const graph::FenceSet& waits,
                                 std::span<const LaneProgress> lanes) noexcept {
    if (is_restricted(wish)) [[unlikely]]
        return among(wish.allowed, waits, lanes);
    const Mask behind = awaited(waits, lanes);
    if (wish.is_short) return for_short(behind, lanes);
    const bool has_home = wish.used_chunks.size() > 1;
    const std::uint32_t own = has_home ? home(wish) : next_;
    const std::uint32_t emptiest = least_filled(own, spread(wish), lanes);
    const graph::Position least = lanes[emptiest].filled();
    // To stay costs no event, and a wait for what was put between.
    if (!has_home || std::has_single_bit(behind)) {
        const Follow follow = closest(waits, lanes);
        if (follow.between <= least) return follow.lane;
    }
    if (has_home && behind != 0 && lanes[own].filled() <= 2 * least + most_more_at_home) return own;
    next_ = emptiest + 1;
    return emptiest;
}

bool LanePolicy::will_leave(std::uint32_t lane, const LaneWish& wish, const graph::FenceSet& waits, bool is_first,
                            std::span<const LaneProgress> lanes) const noexcept {
    if (is_restricted(wish)) [[unlikely]]
        return !is_first || (wish.allowed >> lane & 1) == 0;
    if (wish.is_short) return one_of(awaited(waits, lanes) | Mask{1} << lane) != lane;
    return wish.used_chunks.size() > 1 ? home(wish) != lane : !is_first;
}

}  // namespace kmm::schedule
