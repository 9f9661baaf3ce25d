// What the fuzz targets share that look at every element of an array: choices from the bytes of an input, random boxes
// and cuts, sets of elements.
//
// Owns: Input, Space. Must not know: how the library computes with boxes. One thread.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "kmm/detail/runtime_core.hpp"

namespace kmm_fuzz {

using kmm::detail::Box;

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
}
inline void require(bool condition, const char* what) {
    if (!condition) fail(what);
}

/// Choices made from the bytes of an input, which count as zeros behind its end. A generator that loops must end on
/// zeros.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
    bool is_over() const { return at_ == end_; }
    /// 0 to `below` - 1.
    std::size_t number(std::size_t below) {
        std::size_t n = byte();
        if (below > 256) n |= byte() << 8;
        return n % below;
    }
    /// `low` to `high`.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(number(static_cast<std::size_t>(high - low) + 1));
    }
    /// Never behind the end of the input.
    bool one_in(std::size_t n) { return number(n) == n - 1; }
    template<typename T> void shuffle(std::vector<T>& list) {
        for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[number(i)]);
    }
    std::int64_t eight_bytes() {
        std::uint64_t n = 0;
        for (int i = 0; i < 8; ++i) n = n << 8 | byte();
        return static_cast<std::int64_t>(n);
    }

  private:
    std::size_t byte() { return at_ == end_ ? 0u : *at_++; }

    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

inline constexpr std::size_t most_elements = 512;
/// Of one array, by their numbers.
using Elements = std::bitset<most_elements>;

inline std::size_t first_of(const Elements& elements) {
    std::size_t i = 0;
    while (i < most_elements && !elements[i]) ++i;
    return i;
}
inline bool is_inside(const Elements& inner, const Elements& outer) { return (inner & ~outer).none(); }

/// The elements of an array of at most `most_elements`, numbered row-major.
class Space {
  public:
    struct Element {
        std::int64_t at[kmm::detail::max_rank] = {};
    };

    Space(std::size_t rank, const std::int64_t* extents) : rank_(rank) {
        for (std::size_t k = 0; k < rank; ++k) array_.end[k] = extents[k];
        Element e;
        bool is_over = std::any_of(extents, extents + rank, [](std::int64_t n) { return n == 0; });
        while (!is_over) {
            elements_.push_back(e);
            std::size_t k = rank;
            while (k > 0 && ++e.at[k - 1] == extents[k - 1]) e.at[--k] = 0;
            is_over = k == 0;
        }
        require(elements_.size() <= most_elements, "the fuzz target made an array that is too large");
    }

    std::size_t rank() const { return rank_; }
    const Box& array() const { return array_; }
    std::size_t size() const { return elements_.size(); }
    const std::vector<Element>& elements() const { return elements_; }
    /// Those of the array that lie in the box.
    Elements in(const Box& box) const {
        Elements result;
        for (std::size_t i = 0; i < elements_.size(); ++i) result[i] = holds(box, elements_[i]);
        return result;
    }
    Elements all() const { return in(array_); }

  private:
    bool holds(const Box& box, const Element& e) const {
        for (std::size_t k = 0; k < rank_; ++k)
            if (e.at[k] < box.begin[k] || e.at[k] >= box.end[k]) return false;
        return true;
    }

    std::size_t rank_;
    Box array_;
    std::vector<Element> elements_;
};

/// Extents for an array of `rank` axes with at least one element and at most `most`; from 200 on, a large part of them.
inline std::vector<std::int64_t> random_extents(Input& in, std::size_t rank, std::int64_t most) {
    std::vector<std::int64_t> extents;
    const bool is_large = most >= 200;
    for (std::size_t k = 0; k < rank; ++k) {
        const std::int64_t fair = rank == 1 ? most : rank == 2 ? 24 : rank == 3 ? 8 : 5;
        const std::int64_t longest = std::min(fair, most);
        extents.push_back(in.between(is_large ? (longest + 1) / 2 : 1, longest));
        most /= extents.back();
    }
    in.shuffle(extents);
    return extents;
}

/// A part of a box, with elements.
inline Box random_part(Input& in, const Box& whole, std::size_t rank) {
    Box part = whole;
    for (std::size_t k = 0; k < rank; ++k) {
        if (in.one_in(3)) continue;  // all of this axis
        part.begin[k] = in.between(whole.begin[k], whole.end[k] - 1);
        part.end[k] = in.between(part.begin[k] + 1, whole.end[k]);
    }
    return part;
}

/// Cuts a box with elements into at most `most` parts at random places, in random order.
inline std::vector<Box> random_cuts(Input& in, const Box& whole, std::size_t rank, std::size_t most) {
    std::vector<Box> parts{whole};
    for (std::size_t tries = 0; rank > 0 && tries < 2 * most && parts.size() < most; ++tries) {
        const std::size_t i = in.number(parts.size()), k = in.number(rank);
        if (parts[i].end[k] - parts[i].begin[k] < 2) continue;
        Box high = parts[i];
        high.begin[k] = parts[i].end[k] = in.between(parts[i].begin[k] + 1, parts[i].end[k] - 1);
        parts.push_back(high);
    }
    in.shuffle(parts);
    return parts;
}

/// The cells of a regular grid from the origin on, row-major: the last ones of an axis are cut short.
inline std::vector<Box> grid_cells(const Box& array, std::size_t rank, const std::int64_t* cell) {
    std::vector<Box> cells{array};
    for (std::size_t k = 0; k < rank; ++k) {
        std::vector<Box> next;
        for (const Box& b : cells)
            for (std::int64_t begin = 0; begin < array.end[k]; begin += cell[k]) {
                next.push_back(b);
                next.back().begin[k] = begin;
                next.back().end[k] = std::min(begin + cell[k], array.end[k]);
            }
        cells = std::move(next);
    }
    return cells;
}

}  // namespace kmm_fuzz
