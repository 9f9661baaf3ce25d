// The regions of an array that the chunks of a domain use, as a formula: the region of each chunk, and which chunks use
// a box.
//
// Owns: the arithmetic of index maps that are affine. Must not know: who uses a region, when. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kmm/boxes/box.hpp"
#include "kmm/plan/domain_rule.hpp"

namespace kmm::ranks {

using detail::Box;
using detail::max_rank;
using plan::domain_rank;
using plan::DomainBox;
using plan::DomainRule;
using plan::Interval;

/// The indices along one axis of an array that domain index i uses: floor((scale * i + offset + [0, length)) /
/// divisor), of an axis of the domain; or the same interval for all. Numbers are small enough for results of 64 bits.
struct AxisRule {
    static constexpr std::uint8_t fixed = domain_rank;

    std::uint8_t axis = fixed;  ///< of the domain
    std::int64_t scale = 1;
    std::int64_t offset = 0;
    std::int64_t length = 1;   ///< at least 1
    std::int64_t divisor = 1;  ///< at least 1
    Interval interval;         ///< if fixed

    static AxisRule along(std::size_t axis, std::int64_t scale = 1, std::int64_t offset = 0, std::int64_t length = 1,
                          std::int64_t divisor = 1) noexcept {
        return {static_cast<std::uint8_t>(axis), scale, offset, length, divisor, {}};
    }
    static AxisRule all_of(Interval interval) noexcept { return {fixed, 1, 0, 1, 1, interval}; }

    /// What the indices of a tile use: the hull over them, nothing for an empty tile.
    Interval of(const Interval& tile) const noexcept;
    /// Whether what tiles use that follow each other leaves out nothing in between.
    bool has_no_gaps() const noexcept;
    /// Whether no index is used by two tiles, whatever tiles these are.
    bool keeps_apart() const noexcept;
    friend bool operator==(const AxisRule&, const AxisRule&) = default;
};

/// Regions of an array, clipped to it.
class RegionRule {
  public:
    RegionRule() = default;
    RegionRule(std::size_t rank, const Box& array, const std::array<AxisRule, max_rank>& axes) noexcept
        : rank_(rank), array_(array), axes_(axes) {}

    std::size_t rank() const noexcept { return rank_; }
    /// Of a chunk of the domain; of an empty region no axis need be empty but one.
    Box region(const DomainBox& chunk) const noexcept;
    /// Of all chunks: the smallest box that holds their regions; empty if there are none.
    Box hull(const DomainRule& domain) const noexcept;
    /// Whether the regions of all chunks fill their hull.
    bool fills_hull() const noexcept;
    /// The places of the tiles whose regions have elements in `box`; empty along some axis if there are none. Along an
    /// axis that the region does not hang on: all. O(log(tiles) * rank).
    DomainBox places_that_use(const DomainRule& domain, const Box& box) const noexcept;

  private:
    std::size_t rank_ = 0;
    Box array_;
    std::array<AxisRule, max_rank> axes_;
};

}  // namespace kmm::ranks
