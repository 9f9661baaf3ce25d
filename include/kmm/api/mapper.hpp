// Mapping expressions: which indices of an array (or which numbers) belong to a chunk of a domain. Plain values without
// allocation; evaluated on the submitting thread.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "kmm/core/domain.hpp"
#include "kmm/detail/index_map.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm {

/// One index map for each of N axes.
template<std::size_t N>
class MultiIndexMap {
  public:
    static constexpr std::size_t rank = N;

    template<typename... Is, typename = std::enable_if_t<sizeof...(Is) == N && (detail::is_index_v<Is> && ...)>>
    explicit MultiIndexMap(const Is&... indices) : axes{into_index_map(indices)...} {}
    template<std::size_t... Ks>
    MultiIndexMap(const MultiIndexMap<N - 1>& head, const IndexMap& last, std::index_sequence<Ks...>)
        : axes{head.axis(Ks)..., last} {}

    const IndexMap& axis(std::size_t k) const noexcept { return axes[k]; }
    /// Not clipped.
    Bounds<N> operator()(const DomainChunk& chunk) const {
        Bounds<N> result;
        for (std::size_t k = 0; k < N; k++) {
            result[k] = axes[k].apply(chunk);
        }
        return result;
    }
    /// Clipped to `array`.
    Bounds<N> operator()(const DomainChunk& chunk, const Bounds<N>& array) const {
        Bounds<N> result;
        for (std::size_t k = 0; k < N; k++) {
            result[k] = axes[k].apply(chunk, array[k]);
        }
        return result;
    }

    IndexMap axes[N];
};

template<>
class MultiIndexMap<0> {
  public:
    static constexpr std::size_t rank = 0;
    const IndexMap& axis(std::size_t k) const = delete;
    Bounds<0> operator()(const DomainChunk&) const noexcept { return {}; }
    Bounds<0> operator()(const DomainChunk&, const Bounds<0>&) const noexcept { return {}; }
};

template<typename C, typename Traits, std::size_t N>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const MultiIndexMap<N>& map) {
    stream << "bounds(";
    if constexpr (N > 0) {
        for (std::size_t k = 0; k < N; k++) {
            stream << (k > 0 ? ", " : "") << map.axes[k].text();
        }
    }
    return stream << ")";
}

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

namespace detail {

// Whether a functor gives a box of N axes: boxes of other ranks convert, which is not meant.
template<typename M, std::size_t N, typename = void>
struct GivesBox : std::false_type {};
template<typename M, std::size_t N>
struct GivesBox<M, N, std::enable_if_t<std::is_invocable_r<Bounds<N>, const M&, DomainChunk, Bounds<N>>::value>> {
    static constexpr std::size_t rank =
        BoundsRank<std::decay_t<std::invoke_result_t<const M&, DomainChunk, Bounds<N>>>>::value;
    static constexpr bool value = rank == N || rank == static_cast<std::size_t>(-1);
};

}  // namespace detail

/// Whether a mapping can select a region of an array of rank N.
template<typename M, std::size_t N>
inline constexpr bool is_dimensionality_accepted_by_mapper =
    std::is_same<M, All>::value || std::is_same<M, OneToOne>::value || (detail::is_index_v<M> && N == 1) ||
    (!detail::is_index_v<M> && detail::GivesBox<M, N>::value);

namespace detail {

template<std::size_t... Ks>
MultiIndexMap<sizeof...(Ks)> axes_in_order(std::index_sequence<Ks...>) {
    return MultiIndexMap<sizeof...(Ks)>(Axis(Ks)...);
}

/// A mapping of an array of rank N as one index for each axis: the values that a submit evaluates. `_`, which is the
/// whole array, and functions of the program's stay as they are.
template<std::size_t N, typename M>
decltype(auto) as_indices(const M& mapper) {
    static_assert(
        is_dimensionality_accepted_by_mapper<M, N>,
        "this mapping does not fit the array: it needs one index for each axis of the array, or must be callable as "
        "Bounds<N>(DomainChunk, Bounds<N>)");
    if constexpr (std::is_same<M, OneToOne>::value && N > 0) {
        return axes_in_order(std::make_index_sequence<N>());
    } else if constexpr (is_index_v<M> && !std::is_same<M, All>::value) {
        return MultiIndexMap<1>(mapper);
    } else {
        return (mapper);
    }
}

/// The region of an array that `mapper` gives for `chunk`, clipped to the array.
template<std::size_t N, typename M>
Bounds<N> evaluate_access(const M& mapper, const DomainChunk& chunk, const Bounds<N>& array) {
    Bounds<N> region(as_indices<N>(mapper)(chunk, array));
    for (std::size_t k = 0; k + 1 <= N; k++) region[k] = clipped(region[k], array[k]);
    return region;
}

// The box that a function gives for a chunk alone, deduced from its address: of an overloaded call operator, from the
// one overload that has this form. A set of overloads with a template is not deduced, so that nothing is instantiated:
// the body of a generic lambda, which is a value, need not compile for a DomainChunk.
template<typename B, typename M>
B box_for_chunk(B (M::*)(DomainChunk) const);
template<typename B, typename M>
B box_for_chunk(B (M::*)(const DomainChunk&) const);
template<typename B>
B box_for_chunk(B (*)(DomainChunk));
template<typename B>
B box_for_chunk(B (*)(const DomainChunk&));

template<typename M, typename = void>
struct BoxForChunk {
    using type = void;
};
template<typename F>
struct BoxForChunk<F*, std::void_t<decltype(box_for_chunk(std::declval<F*>()))>> {
    using type = decltype(box_for_chunk(std::declval<F*>()));
};
template<typename M>
struct BoxForChunk<M, std::void_t<decltype(box_for_chunk(&M::operator()))>> {
    using type = decltype(box_for_chunk(&M::operator()));
};

template<typename M>
struct IsUserMapper : std::bool_constant<BoundsRank<typename BoxForChunk<M>::type>::value <= 8> {};

// A class whose call operator is a template says `static constexpr bool is_mapper = true`.
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
    if constexpr (is_index_v<M>) {
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
