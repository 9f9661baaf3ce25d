// Index expressions: axes, integers, ranges and their arithmetic. Plain values without allocation; evaluated on the
// submitting thread. Part of kmm/api/mapper.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>

#include "kmm/core/domain.hpp"
#include "kmm/detail/index_chain.hpp"
#include "kmm/detail/panic.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/range.hpp"

namespace kmm {

namespace detail {

/// Of the indices that a mapping gives for one axis of an array, those of the array; an empty range at the nearest
/// border.
constexpr Range<> clipped(const Range<>& wanted, const Range<>& axis) noexcept {
    const default_index_type begin =
        wanted.begin < axis.begin ? axis.begin : (axis.end < wanted.begin ? axis.end : wanted.begin);
    return Range<>(begin, wanted.end < begin ? begin : (axis.end < wanted.end ? axis.end : wanted.end));
}

}  // namespace detail

/// The index along axis k of the domain. An axis k >= 3 has the single index 0.
class Axis {
  public:
    constexpr Axis() noexcept = default;
    explicit constexpr Axis(std::size_t axis) noexcept : axis_(axis) {}
    constexpr std::size_t get() const noexcept { return axis_; }
    explicit constexpr operator std::size_t() const noexcept { return axis_; }
    /// The indices of the chunk along this axis; with `array` clipped to it. As IndexMap::apply.
    Range<> operator()(const DomainChunk& chunk) const;
    Bounds<1> operator()(const DomainChunk& chunk, const Bounds<1>& array) const;

  private:
    std::size_t axis_ = 0;
};

/// As an index: the whole axis. As a mapping: the whole array.
struct All {
    constexpr All operator()() const noexcept { return {}; }
    template<std::size_t N>
    constexpr Bounds<N> operator()(const DomainChunk&, const Bounds<N>& array) const noexcept {
        return array;
    }
};

/// As a mapping: array axis k is domain axis k. As a plain argument: the Bounds<3> of the domain chunk.
struct OneToOne {
    constexpr OneToOne operator()() const noexcept { return {}; }
    Bounds<DOMAIN_DIMS> operator()(const DomainChunk& chunk) const { return DomainBounds(chunk.offset, chunk.size); }
    template<std::size_t N>
    Bounds<N> operator()(const DomainChunk& chunk, const Bounds<N>& array) const {
        Bounds<N> region;
        for (std::size_t k = 0; k + 1 <= N; k++) {
            region[k] = Axis(k)(chunk, Bounds<1>(array[k]))[0];
        }
        return region;
    }
};
/// KMM's name.
using IdentityMap = OneToOne;

/// An interval of indices for each domain index. Built from axes, integers and the operators below, or directly:
/// floor((scale * i + offset + [0, length)) / divisor).
class IndexMap {
  public:
    using index_type = default_index_type;

    /// [i, i + 1) for i along `axis`.
    IndexMap(Axis axis) noexcept : kind_(Kind::axis), axis_(axis) {}
    /// The whole axis.
    IndexMap(All) noexcept : kind_(Kind::all) {}
    /// InvalidArgument if `length` < 1 or `divisor` is 0.
    IndexMap(Axis axis, index_type scale, index_type offset = 0, index_type length = 1, index_type divisor = 1);

    /// [value, value + 1)
    static IndexMap constant(index_type value) {
        IndexMap result{Axis()};
        result.is_constant_ = true;
        result.set_fixed(value, value);
        return result;
    }
    /// [first index of begin, first index of end). Both on the same axis, or one of them constant, else
    /// InvalidArgument; so is a range that depends on an axis and is empty for all its indices.
    static IndexMap range(const IndexMap& begin, const IndexMap& end) {
        // The bounds of a range of numbers need no evaluation.
        if (begin.kind_ != Kind::fixed || end.kind_ != Kind::fixed) return range_along_axis(begin, end);
        IndexMap result{Axis()};
        result.is_constant_ = true;
        if (end.first_ > begin.first_)
            result.set_fixed(begin.first_, end.first_ - 1);
        else
            result.set_empty(begin.first_, end.first_);
        return result;
    }
    /// The same with the first index of `last` included.
    static IndexMap closed_range(const IndexMap& begin, const IndexMap& last);

    /// The operations act on every index of the interval. `divide_by` rounds towards minus infinity; InvalidArgument
    /// for 0.
    IndexMap offset_by(index_type value) const;
    IndexMap scale_by(index_type value) const;
    IndexMap divide_by(index_type divisor) const;
    IndexMap negate() const;

    /// The hull over the indices of `chunk`, not clipped: begin <= end. The whole axis is [0, INT64_MAX).
    /// std::overflow_error if a result leaves 64 bits.
    Range<index_type> apply(const DomainChunk& chunk) const {
        if (kind_ == Kind::fixed) {
            return is_empty_ ? Range<index_type>(first_, first_)
                             : Range<index_type>(first_, checked_add(last_, index_type(1)));
        }
        if (kind_ == Kind::axis && post_.is_identity()) {
            const Range<index_type> indices = axis_range(chunk);
            return indices.is_empty() ? Range<index_type>(indices.begin, indices.begin) : indices;
        }
        return apply_general(chunk);
    }
    /// The same, clipped to `axis`: begin := clamp(begin, axis), end := clamp(end, begin, axis.end).
    Range<index_type> apply(const DomainChunk& chunk, const Range<index_type>& axis) const {
        return kind_ == Kind::all ? axis : detail::clipped(apply(chunk), axis);
    }
    Range<index_type> operator()(const DomainChunk& chunk) const { return apply(chunk); }
    Bounds<1> operator()(const DomainChunk& chunk, const Bounds<1>& array) const { return apply(chunk, array[0]); }
    /// As it could be written: "range(_x - 1, _x + 2)". Operations that were combined stand as one.
    std::string text() const;
    /// Whether this looks like a range of KMM 0.3, whose end belongs to it: as far to either side of an index, or one
    /// index short of a tile, and was not made by `closed_range`. False if a bound at index 0 or 1 leaves 64 bits.
    bool looks_closed() const noexcept;

  private:
    // `axis`: post(i). `interval`: post of [begin(i), end(i)). A constant is either at i = 0. `fixed`: a constant
    // interval of numbers, [first, last], or an empty [first, last); the chains are not used.
    enum struct Kind : std::uint8_t { axis, interval, all, fixed };

    Range<index_type> axis_range(const DomainChunk& chunk) const {
        if (is_constant_ || axis_.get() >= DOMAIN_DIMS) {
            return Range<index_type>(0, 1);
        }
        const index_type begin = chunk.offset.at(axis_.get());
        return Range<index_type>(begin, checked_add(begin, chunk.size.at(axis_.get())));
    }
    void set_fixed(index_type first, index_type last) noexcept {
        kind_ = Kind::fixed;
        first_ = first;
        last_ = last;
    }
    void set_empty(index_type begin, index_type end) noexcept {
        set_fixed(begin, end);
        is_empty_ = true;
    }
    Range<index_type> apply_general(const DomainChunk& chunk) const;
    static IndexMap range_along_axis(const IndexMap& begin, const IndexMap& end);
    /// A fixed interval as chains of operations, to which others can be added.
    IndexMap as_chains() const;
    detail::IndexChain first_index() const;
    bool is_empty_everywhere() const;
    bool is_empty_at(index_type index) const;
    bool is_empty_over(index_type first, index_type last) const;

    Kind kind_;
    bool is_constant_ = false;
    bool is_empty_ = false;
    bool is_closed_ = false;  // made by closed_range
    Axis axis_;
    index_type first_ = 0;
    index_type last_ = 0;
    detail::IndexChain post_;
    detail::IndexChain begin_;
    detail::IndexChain end_;
};

inline Range<> Axis::operator()(const DomainChunk& chunk) const { return IndexMap(*this).apply(chunk); }
inline Bounds<1> Axis::operator()(const DomainChunk& chunk, const Bounds<1>& array) const {
    return IndexMap(*this)(chunk, array);
}

namespace detail {

template<typename I>
inline constexpr bool is_index_v = std::is_integral<I>::value || std::is_same<I, Axis>::value ||
                                   std::is_same<I, IndexMap>::value || std::is_same<I, All>::value;

template<typename I>
inline constexpr bool is_expression_v = std::is_same<I, Axis>::value || std::is_same<I, IndexMap>::value;

template<typename E, typename I>
using enable_operation_t = std::enable_if_t<is_expression_v<E> && std::is_integral<I>::value, IndexMap>;

}  // namespace detail

/// An axis, an integer, `_` or an expression as an IndexMap.
inline IndexMap into_index_map(Axis axis) noexcept { return IndexMap(axis); }
inline IndexMap into_index_map(All all) noexcept { return IndexMap(all); }
inline const IndexMap& into_index_map(const IndexMap& map) noexcept { return map; }
template<typename I, typename = std::enable_if_t<std::is_integral<I>::value>>
IndexMap into_index_map(I value) {
    return IndexMap::constant(checked_cast<default_index_type>(value));
}

// ---- the operators; a constant that does not fit 64 bits throws std::overflow_error
template<typename E, typename I>
detail::enable_operation_t<E, I> operator+(const E& map, const I& value) {
    return IndexMap(map).offset_by(checked_cast<default_index_type>(value));
}
template<typename I, typename E>
detail::enable_operation_t<E, I> operator+(const I& value, const E& map) {
    return IndexMap(map).offset_by(checked_cast<default_index_type>(value));
}
template<typename E, typename I>
detail::enable_operation_t<E, I> operator-(const E& map, const I& value) {
    return IndexMap(map).offset_by(checked_neg(checked_cast<default_index_type>(value)));
}
template<typename I, typename E>
detail::enable_operation_t<E, I> operator-(const I& value, const E& map) {
    return IndexMap(map).negate().offset_by(checked_cast<default_index_type>(value));
}
template<typename E, typename I>
detail::enable_operation_t<E, I> operator*(const E& map, const I& value) {
    return IndexMap(map).scale_by(checked_cast<default_index_type>(value));
}
template<typename I, typename E>
detail::enable_operation_t<E, I> operator*(const I& value, const E& map) {
    return IndexMap(map).scale_by(checked_cast<default_index_type>(value));
}
/// Rounded towards minus infinity.
template<typename E, typename I>
detail::enable_operation_t<E, I> operator/(const E& map, const I& value) {
    return IndexMap(map).divide_by(checked_cast<default_index_type>(value));
}
template<typename E>
std::enable_if_t<detail::is_expression_v<E>, IndexMap> operator-(const E& map) {
    return IndexMap(map).negate();
}
template<typename E>
std::enable_if_t<detail::is_expression_v<E>, IndexMap> operator+(const E& map) {
    return IndexMap(map);
}

/// [first index of `begin`, first index of `end`): half-open, like every range of the library.
template<typename B, typename E, typename = std::enable_if_t<detail::is_index_v<B> && detail::is_index_v<E>>>
IndexMap range(const B& begin, const E& end) {
    return IndexMap::range(into_index_map(begin), into_index_map(end));
}
/// [0, end)
template<typename I, typename = std::enable_if_t<std::is_integral<I>::value>>
IndexMap range(const I& end) {
    return IndexMap::range(IndexMap::constant(0), into_index_map(end));
}
/// The same as `range`, with the first index of `last` included.
template<typename B, typename E, typename = std::enable_if_t<detail::is_index_v<B> && detail::is_index_v<E>>>
IndexMap closed_range(const B& begin, const E& last) {
    return IndexMap::closed_range(into_index_map(begin), into_index_map(last));
}

template<typename C, typename Traits, typename E>
std::enable_if_t<detail::is_expression_v<E> || std::is_same<E, All>::value, std::basic_ostream<C, Traits>&>
operator<<(std::basic_ostream<C, Traits>& stream, const E& map) {
    return stream << IndexMap(map).text();
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const OneToOne&) {
    return stream << "one_to_one";
}

}  // namespace kmm
