#include "ranks/region_rule.hpp"

#include <algorithm>

#include "kmm/utils/integer_fun.hpp"

namespace kmm::ranks {

namespace {

/// The first place in [begin, end) from which on `holds` is true, which it is from some place on; else `end`.
template<typename F> std::int64_t first_place(std::int64_t begin, std::int64_t end, F&& holds) {
    while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        if (holds(middle))
            end = middle;
        else
            begin = middle + 1;
    }
    return begin;
}

}  // namespace

Interval AxisRule::of(const Interval& tile) const noexcept {
    if (axis == fixed) return tile.is_empty() ? Interval{} : interval;
    if (tile.is_empty()) return {};
    const std::int64_t low = scale >= 0 ? tile.begin : tile.end - 1;
    const std::int64_t high = scale >= 0 ? tile.end - 1 : tile.begin;
    return {div_floor(scale * low + offset, divisor), div_floor(scale * high + offset + length - 1, divisor) + 1};
}

// Before the division, the last index of one tile and the first of the next lie |scale| - length + 1 apart, and up to
// `divisor` apart both are of the same index afterwards or of two that follow each other.
bool AxisRule::has_no_gaps() const noexcept {
    return axis == fixed || (scale >= 0 ? scale : -scale) <= length - 1 + divisor;
}

bool AxisRule::keeps_apart() const noexcept {
    return axis != fixed && (scale >= 0 ? scale : -scale) - length + 1 >= divisor;
}

Box RegionRule::region(const DomainBox& chunk) const noexcept {
    Box r;
    for (std::size_t k = 0; k < rank_; ++k) {
        const AxisRule& rule = axes_[k];
        const Interval used = rule.axis == AxisRule::fixed ? rule.interval : rule.of(chunk.axes[rule.axis]);
        r.begin[k] = std::clamp(used.begin, array_.begin[k], array_.end[k]);
        r.end[k] = std::clamp(used.end, r.begin[k], array_.end[k]);
    }
    return r;
}

Box RegionRule::hull(const DomainRule& domain) const noexcept {
    DomainBox all;
    if (domain.num_chunks() == 0) {
        Box nothing = array_;
        std::copy(nothing.begin, nothing.begin + rank_, nothing.end);
        return nothing;
    }
    for (std::size_t k = 0; k < domain_rank; ++k) {
        const std::int64_t count = domain.num_tiles(k);
        if (count > 0) all.axes[k] = {domain.tile(k, 0).begin, domain.tile(k, count - 1).end};
    }
    return region(all);
}

bool RegionRule::fills_hull() const noexcept {
    return std::all_of(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(rank_),
                       [](const AxisRule& rule) { return rule.has_no_gaps(); });
}

DomainBox RegionRule::places_that_use(const DomainRule& domain, const Box& box) const noexcept {
    DomainBox places;
    for (std::size_t k = 0; k < domain_rank; ++k) places.axes[k] = {0, domain.num_tiles(k)};
    for (std::size_t k = 0; k < rank_; ++k) {
        const AxisRule& rule = axes_[k];
        const Interval wanted = {std::max(box.begin[k], array_.begin[k]), std::min(box.end[k], array_.end[k])};
        if (rule.axis == AxisRule::fixed) {
            if (wanted.is_empty() || rule.interval.is_empty() || !rule.interval.overlaps(wanted)) return {};
            continue;
        }
        Interval& along = places.axes[rule.axis];
        // What tiles use moves one way with their place, so that those before the box and those behind it lie at the
        // two ends.
        const bool up = rule.scale >= 0;
        const auto used = [&](std::int64_t place) { return rule.of(domain.tile(rule.axis, place)); };
        const auto is_below = [&](std::int64_t place) { return used(place).end <= wanted.begin; };
        const auto is_above = [&](std::int64_t place) { return used(place).begin >= wanted.end; };
        if (wanted.is_empty()) return {};
        const std::int64_t count = domain.num_tiles(rule.axis);
        const std::int64_t from =
            first_place(0, count, [&](std::int64_t p) { return up ? !is_below(p) : !is_above(p); });
        const std::int64_t to =
            first_place(from, count, [&](std::int64_t p) { return up ? is_above(p) : is_below(p); });
        along.begin = std::max(along.begin, from);
        along.end = std::min(along.end, to);
        if (along.is_empty()) return {};
    }
    return places;
}

}  // namespace kmm::ranks
