// Boxes of array indices without their rank: intersections, remainders, text. Pure. Where the rank is known, giving it
// saves looking at axes that are [0, 1) in every box.
#pragma once

#include <string>

#include "kmm/detail/runtime_core.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm::boxes {

using detail::Box;
using detail::max_rank;

inline bool is_empty(const Box& b, std::size_t rank = max_rank) noexcept {
    for (std::size_t k = 0; k < rank; ++k)
        if (b.begin[k] >= b.end[k]) return true;
    return false;
}
inline bool equal(const Box& a, const Box& b, std::size_t rank = max_rank) noexcept {
    for (std::size_t k = 0; k < rank; ++k)
        if (a.begin[k] != b.begin[k] || a.end[k] != b.end[k]) return false;
    return true;
}
inline bool contains(const Box& outer, const Box& inner, std::size_t rank = max_rank) noexcept {
    for (std::size_t k = 0; k < rank; ++k)
        if (inner.begin[k] < outer.begin[k] || inner.end[k] > outer.end[k]) return false;
    return true;
}
inline bool overlaps(const Box& a, const Box& b, std::size_t rank = max_rank) noexcept {
    for (std::size_t k = 0; k < rank; ++k)
        if (a.begin[k] >= b.end[k] || b.begin[k] >= a.end[k]) return false;
    return true;
}
inline Box intersection(const Box& a, const Box& b, std::size_t rank = max_rank) noexcept {
    Box r;
    for (std::size_t k = 0; k < rank; ++k) {
        r.begin[k] = a.begin[k] > b.begin[k] ? a.begin[k] : b.begin[k];
        r.end[k] = a.end[k] < b.end[k] ? a.end[k] : b.end[k];
        if (r.end[k] < r.begin[k]) r.end[k] = r.begin[k];
    }
    return r;
}
/// The smallest box that holds both.
inline Box around(const Box& a, const Box& b) noexcept {
    Box r;
    for (std::size_t k = 0; k < max_rank; ++k) {
        r.begin[k] = a.begin[k] < b.begin[k] ? a.begin[k] : b.begin[k];
        r.end[k] = a.end[k] > b.end[k] ? a.end[k] : b.end[k];
    }
    return r;
}
/// Of a box inside an array, whose elements a number can count; 0 for an empty box of any extents.
inline std::int64_t volume(const Box& b, std::size_t rank = max_rank) noexcept {
    if (is_empty(b, rank)) return 0;
    std::int64_t v = 1;
    for (std::size_t k = 0; k < rank; ++k) v *= b.end[k] - b.begin[k];
    return v;
}
/// Strides in elements of the packed row-major box, for the first `rank` axes.
inline void row_major_strides(const Box& b, std::int64_t* strides, std::size_t rank = max_rank) noexcept {
    std::int64_t step = 1;
    for (std::size_t k = rank; k-- > 0;) {
        strides[k] = step;
        // Only where there are no elements that it could lead to.
        if (detail::mul_overflows(step, b.end[k] - b.begin[k], step)) step = 0;
    }
}
/// Calls `piece(Box)` for disjoint boxes that cover `from` without `hole` (which must overlap `from`). At most 2 *
/// rank.
template<typename F> void subtract(Box from, const Box& hole, F&& piece) {
    for (std::size_t k = 0; k < max_rank; ++k) {
        if (from.begin[k] < hole.begin[k]) {
            Box low = from;
            low.end[k] = hole.begin[k];
            piece(low);
            from.begin[k] = hole.begin[k];
        }
        if (hole.end[k] < from.end[k]) {
            Box high = from;
            high.begin[k] = hole.end[k];
            piece(high);
            from.end[k] = hole.end[k];
        }
    }
}
/// `{0...4096, 0...65536}` for the first `rank` axes; `{}` for rank 0.
std::string to_text(const Box&, std::size_t rank);

}  // namespace kmm::boxes
