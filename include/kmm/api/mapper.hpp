// Mapping expressions: which indices of an array (or which numbers) belong to a chunk of a domain. Plain values without
// allocation; evaluated on the submitting thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <type_traits>
#include <utility>

#include "kmm/core/domain.hpp"
#include "kmm/detail/index_chain.hpp"
#include "kmm/detail/panic.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm {

/// The index along axis k of the domain. An axis k >= 3 has the single index 0.
class Axis {
  public:
    constexpr Axis() noexcept = default;
    explicit constexpr Axis(std::size_t axis) noexcept : axis_(axis) {}
    constexpr std::size_t get() const noexcept { return axis_; }

  private:
    std::size_t axis_ = 0;
};

/// As an index: the whole axis. As a mapping: the whole array.
struct All {
    constexpr All operator()() const noexcept { return {}; }
};

/// As a mapping: array axis k is domain axis k. As a plain argument: the Bounds<3> of the domain chunk.
struct OneToOne {
    constexpr OneToOne operator()() const noexcept { return {}; }
};

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
    static IndexMap constant(index_type value);
    /// [first index of begin, first index of end). Both on the same axis, or one of them constant, else InvalidArgument;
    /// so is a range that depends on an axis and is empty for all its indices.
    static IndexMap range(const IndexMap& begin, const IndexMap& end);
    /// The same with the first index of `last` included.
    static IndexMap closed_range(const IndexMap& begin, const IndexMap& last);

    /// The operations act on every index of the interval. `divide_by` rounds towards minus infinity; InvalidArgument for 0.
    IndexMap offset_by(index_type value) const;
    IndexMap scale_by(index_type value) const;
    IndexMap divide_by(index_type divisor) const;
    IndexMap negate() const;

    /// The hull over the indices of `chunk`, not clipped: begin <= end. The whole axis is [0, INT64_MAX).
    /// std::overflow_error if a result leaves 64 bits.
    Range<index_type> apply(const DomainChunk& chunk) const {
        if (kind_ == Kind::axis && post_.is_identity()) {
            const Range<index_type> indices = axis_range(chunk);
            return indices.is_empty() ? Range<index_type>(indices.begin, indices.begin) : indices;
        }
        return apply_general(chunk);
    }
    /// The same, clipped to `axis`: begin := clamp(begin, axis), end := clamp(end, begin, axis.end).
    Range<index_type> apply(const DomainChunk& chunk, const Range<index_type>& axis) const {
        if (kind_ == Kind::all) {
            return axis;
        }
        const Range<index_type> raw = apply(chunk);
        const index_type begin = clamp(raw.begin, axis.begin, axis.end);
        return Range<index_type>(begin, clamp(raw.end, begin, axis.end));
    }
    Range<index_type> operator()(const DomainChunk& chunk) const { return apply(chunk); }

  private:
    // `axis`: post(i). `interval`: post of [begin(i), end(i)). `constant`: as `interval` or `axis` at i = 0.
    enum struct Kind : std::uint8_t { axis, interval, all };

    static constexpr index_type clamp(index_type value, index_type low, index_type high) noexcept {
        return value < low ? low : (high < value ? (high < low ? low : high) : value);
    }
    Range<index_type> axis_range(const DomainChunk& chunk) const {
        if (is_constant_ || axis_.get() >= DOMAIN_DIMS) {
            return Range<index_type>(0, 1);
        }
        const index_type begin = chunk.offset.at(axis_.get());
        return Range<index_type>(begin, checked_add(begin, chunk.size.at(axis_.get())));
    }
    Range<index_type> apply_general(const DomainChunk& chunk) const;
    detail::IndexChain first_index() const;
    bool is_empty_everywhere() const;
    bool is_empty_at(index_type index) const;
    bool is_empty_over(index_type first, index_type last) const;

    Kind kind_;
    bool is_constant_ = false;
    Axis axis_;
    detail::IndexChain post_;
    detail::IndexChain begin_;
    detail::IndexChain end_;
};

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

/// One index map for each of N axes.
template<std::size_t N>
class MultiIndexMap {
  public:
    static constexpr std::size_t rank = N;

    template<typename... Is, typename = std::enable_if_t<sizeof...(Is) == N && (detail::is_index_v<Is> && ...)>>
    explicit MultiIndexMap(const Is&... indices) : axes_{into_index_map(indices)...} {}
    template<std::size_t... Ks>
    MultiIndexMap(const MultiIndexMap<N - 1>& head, const IndexMap& last, std::index_sequence<Ks...>)
        : axes_{head.axis(Ks)..., last} {}

    const IndexMap& axis(std::size_t k) const noexcept { return axes_[k]; }
    /// Not clipped.
    Bounds<N> operator()(const DomainChunk& chunk) const {
        Bounds<N> result;
        for (std::size_t k = 0; k < N; k++) {
            result[k] = axes_[k].apply(chunk);
        }
        return result;
    }
    /// Clipped to `array`.
    Bounds<N> operator()(const DomainChunk& chunk, const Bounds<N>& array) const {
        Bounds<N> result;
        for (std::size_t k = 0; k < N; k++) {
            result[k] = axes_[k].apply(chunk, array[k]);
        }
        return result;
    }

  private:
    IndexMap axes_[N];
};

template<>
class MultiIndexMap<0> {
  public:
    static constexpr std::size_t rank = 0;
    const IndexMap& axis(std::size_t k) const = delete;
    Bounds<0> operator()(const DomainChunk&) const noexcept { return {}; }
    Bounds<0> operator()(const DomainChunk&, const Bounds<0>&) const noexcept { return {}; }
};

/// One index for each axis of an array.
template<typename... Is, typename = std::enable_if_t<(sizeof...(Is) > 0) && (detail::is_index_v<Is> && ...)>>
MultiIndexMap<sizeof...(Is)> bounds(const Is&... indices) {
    return MultiIndexMap<sizeof...(Is)>(indices...);
}

namespace detail {

template<typename... Ls, std::size_t... Ks>
MultiIndexMap<sizeof...(Ls)> tile_map(std::index_sequence<Ks...>, const Ls&... lengths) {
    return MultiIndexMap<sizeof...(Ls)>(
        IndexMap(Axis(Ks), checked_cast<default_index_type>(lengths), 0, checked_cast<default_index_type>(lengths))...);
}

}  // namespace detail

/// [l * i, l * i + l) on each axis: domain index i stands for a tile of l_k indices along axis k. Lengths below 1:
/// InvalidArgument.
template<typename... Ls, typename = std::enable_if_t<(sizeof...(Ls) > 0) && (std::is_integral<Ls>::value && ...)>>
MultiIndexMap<sizeof...(Ls)> tile(const Ls&... lengths) {
    return detail::tile_map(std::make_index_sequence<sizeof...(Ls)>(), lengths...);
}

inline constexpr All all{};
inline constexpr OneToOne one_to_one{};

/// `using namespace kmm::placeholders;`, or define KMM_GLOBAL_PLACEHOLDERS before the first include.
namespace placeholders {

inline constexpr Axis _x{0}, _y{1}, _z{2};
inline constexpr Axis _i{0}, _j{1}, _k{2};
inline constexpr Axis _0{0}, _1{1}, _2{2};
inline constexpr All _{};
inline const MultiIndexMap<2> _xy{Axis(0), Axis(1)};
inline const MultiIndexMap<3> _xyz{Axis(0), Axis(1), Axis(2)};
inline const MultiIndexMap<2> _ij{Axis(0), Axis(1)};
inline const MultiIndexMap<3> _ijk{Axis(0), Axis(1), Axis(2)};
using kmm::all;
using kmm::one_to_one;

}  // namespace placeholders

namespace detail {

// What a mapping gives for a chunk alone: its result type, or void if it cannot be used so.
template<typename M, typename = void>
struct PlainResult {
    using type = void;
};
template<typename M>
struct PlainResult<M, std::void_t<decltype(std::declval<const M&>()(std::declval<const DomainChunk&>()))>> {
    using type = decltype(std::declval<const M&>()(std::declval<const DomainChunk&>()));
};

template<typename R>
struct BoundsRank {
    static constexpr std::size_t value = static_cast<std::size_t>(-1);
};
template<std::size_t N, typename T>
struct BoundsRank<Bounds<N, T>> {
    static constexpr std::size_t value = N;
};

}  // namespace detail

/// The rank of the boxes that a mapping gives for a chunk alone; size_t(-1) if it depends on the array.
template<typename M>
inline constexpr std::size_t mapper_dimensionality = detail::BoundsRank<typename detail::PlainResult<M>::type>::value;
template<std::size_t N>
inline constexpr std::size_t mapper_dimensionality<MultiIndexMap<N>> = N;
template<>
inline constexpr std::size_t mapper_dimensionality<IndexMap> = 1;
template<>
inline constexpr std::size_t mapper_dimensionality<Axis> = 1;
template<>
inline constexpr std::size_t mapper_dimensionality<OneToOne> = DOMAIN_DIMS;

/// Whether a mapping can select a region of an array of rank N.
template<typename M, std::size_t N>
inline constexpr bool is_dimensionality_accepted_by_mapper =
    std::is_same<M, All>::value || std::is_same<M, OneToOne>::value || (detail::is_index_v<M> && N == 1) ||
    (!detail::is_index_v<M> && std::is_invocable_r<Bounds<N>, const M&, DomainChunk, Bounds<N>>::value);

namespace detail {

template<std::size_t N>
Bounds<N> clip(const Bounds<N>& region, const Bounds<N>& array) {
    Bounds<N> result;
    for (std::size_t k = 0; k + 1 <= N; k++) {
        const Range<> raw = region[k];
        const Range<> axis = array[k];
        const default_index_type begin =
            raw.begin < axis.begin ? axis.begin : (axis.end < raw.begin ? axis.end : raw.begin);
        const default_index_type end = raw.end < begin ? begin : (axis.end < raw.end ? axis.end : raw.end);
        result[k] = Range<>(begin, end);
    }
    return result;
}

/// The region of an array that `mapper` gives for `chunk`, clipped to the array.
template<std::size_t N, typename M>
Bounds<N> evaluate_access(const M& mapper, const DomainChunk& chunk, const Bounds<N>& array) {
    static_assert(
        is_dimensionality_accepted_by_mapper<M, N>,
        "this mapping does not fit the array: it needs one index for each axis of the array, or must be callable as "
        "Bounds<N>(DomainChunk, Bounds<N>)");
    if constexpr (std::is_same<M, All>::value) {
        return array;
    } else if constexpr (std::is_same<M, OneToOne>::value) {
        Bounds<N> region;
        for (std::size_t k = 0; k + 1 <= N; k++) {
            region[k] = IndexMap(Axis(k)).apply(chunk, array[k]);
        }
        return region;
    } else if constexpr (is_index_v<M>) {
        return Bounds<N>(into_index_map(mapper).apply(chunk, array[0]));
    } else if constexpr (std::is_same<M, MultiIndexMap<N>>::value) {
        return mapper(chunk, array);
    } else {
        return clip<N>(Bounds<N>(mapper(chunk, array)), array);
    }
}

// Whether a call operator, if there is exactly one, maps a chunk. A generic lambda must not be asked: it is a value.
template<typename F>
struct MapsChunk : std::false_type {};
template<typename M, std::size_t N, typename T>
struct MapsChunk<Bounds<N, T> (M::*)(DomainChunk) const> : std::true_type {};
template<typename M, std::size_t N, typename T>
struct MapsChunk<Bounds<N, T> (M::*)(const DomainChunk&) const> : std::true_type {};
template<typename M, std::size_t N, typename T>
struct MapsChunk<Bounds<N, T> (M::*)(DomainChunk) const noexcept> : std::true_type {};
template<typename M, std::size_t N, typename T>
struct MapsChunk<Bounds<N, T> (M::*)(const DomainChunk&) const noexcept> : std::true_type {};

// With several call operators (one for accesses, one for chunks) an aggregate is asked, or a class that declares
// `static constexpr bool is_mapper = true`.
template<typename M>
struct MapsChunkWhenCalled : std::bool_constant<BoundsRank<typename PlainResult<M>::type>::value <= 8> {};
template<typename M, typename = void>
struct IsUserMapper : std::conjunction<std::is_class<M>, std::is_aggregate<M>, MapsChunkWhenCalled<M>> {};
template<typename M>
struct IsUserMapper<M, std::void_t<decltype(&M::operator())>> : MapsChunk<decltype(&M::operator())> {};

template<typename M, typename = void>
struct IsDeclaredMapper : IsUserMapper<M> {};
template<typename M>
struct IsDeclaredMapper<M, std::enable_if_t<M::is_mapper>> : std::true_type {};

/// Whether `M` is a mapping that a task receives evaluated when it is passed as a plain argument.
template<typename M>
struct IsPlainMapper : IsDeclaredMapper<M> {};
template<>
struct IsPlainMapper<Axis> : std::true_type {};
template<>
struct IsPlainMapper<IndexMap> : std::true_type {};
template<>
struct IsPlainMapper<OneToOne> : std::true_type {};
template<std::size_t N>
struct IsPlainMapper<MultiIndexMap<N>> : std::true_type {};

/// What a task receives for a mapping as a plain argument: a Range for an index, Bounds for several. Not clipped.
template<typename M>
auto evaluate_plain(const M& mapper, const DomainChunk& chunk) {
    static_assert(!std::is_same<M, All>::value, "_ alone says nothing as a plain argument: pass an axis or a range");
    if constexpr (std::is_same<M, OneToOne>::value) {
        return Bounds<DOMAIN_DIMS>(DomainBounds(chunk.offset, chunk.size));
    } else if constexpr (is_index_v<M>) {
        return into_index_map(mapper).apply(chunk);
    } else {
        return mapper(chunk);
    }
}

/// The box of private copies that `mapper` gives for `chunk`. Not clipped.
template<typename M>
auto evaluate_private(const M& mapper, const DomainChunk& chunk) {
    if constexpr (is_index_v<M>) {
        return Bounds<1>(into_index_map(mapper).apply(chunk));
    } else {
        auto result = evaluate_plain(mapper, chunk);
        static_assert(BoundsRank<decltype(result)>::value <= 8, "a private mapping gives Bounds<K> for a DomainChunk");
        return result;
    }
}

}  // namespace detail

}  // namespace kmm

#ifdef KMM_GLOBAL_PLACEHOLDERS
using namespace kmm::placeholders;
#endif
