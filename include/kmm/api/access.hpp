// How an argument of a submit uses its data: read, write, overwrite, reduce, accumulate. Small aggregates of references
// that live within the call expression of the submit. Nothing here runs on a thread of the library.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "kmm/api/mapper.hpp"
#include "kmm/core/reduction.hpp"

namespace kmm {

/// The elements as before the submit. `Arg` is const except where a write may follow: `A[_x]` of a non-const array.
template<typename Arg, typename M = All>
struct Read {
    Arg& argument;
    M access_mapper;
};

/// In-place update: the elements as before the submit, then what the task stored.
template<typename Arg, typename M = All>
struct Write {
    Arg& argument;
    M access_mapper;
};

/// What the task stored; on entry unspecified. Every element of the region counts as written.
template<typename Arg, typename M = All>
struct Overwrite {
    Arg& argument;
    M access_mapper;
};

/// One private copy of the region for each index of `M`.
template<typename M>
struct Privatize {
    M private_mapper;
};

/// No private axes.
using NoPrivatize = MultiIndexMap<0>;

/// `op` over all contributions of the submit. On entry the identity.
template<typename Arg, typename M = All, typename P = NoPrivatize, typename Op = Reduction>
struct Reduce {
    Arg& argument;
    M access_mapper;
    P private_mapper;
    Op op;
};

/// `op` of the old content and all contributions of the submit. On entry the identity.
template<typename Arg, typename M = All, typename P = NoPrivatize, typename Op = Reduction>
struct Accumulate {
    Arg& argument;
    M access_mapper;
    P private_mapper;
    Op op;
};

namespace detail {

/// `A[i]` of an array of rank Rank > 1: waits for the indices of the other axes.
template<typename Arg, std::size_t Rank, std::size_t K>
struct PartialAccess {
    Arg& argument;
    MultiIndexMap<K> indices;

    template<typename I, typename = std::enable_if_t<is_index_v<I>>>
    auto operator[](const I& index) const {
        // Aggregates of temporaries: the map is made where it stays.
        using Access =
            std::conditional_t<K + 1 == Rank, Read<Arg, MultiIndexMap<Rank>>, PartialAccess<Arg, Rank, K + 1>>;
        return Access{argument, {indices, into_index_map(index), std::make_index_sequence<K>()}};
    }
};

/// `argument[index]`, the first of Rank axes. For the operator[] of arrays.
template<std::size_t Rank, typename Arg, typename I>
auto index_access(Arg& argument, const I& index) {
    static_assert(is_index_v<I>, "an index is an axis expression, an integer, a range or _");
    static_assert(Rank > 0, "an array of rank 0 has no axes");
    using Access = std::conditional_t<Rank == 1, Read<Arg, MultiIndexMap<1>>, PartialAccess<Arg, Rank, 1>>;
    return Access{argument, MultiIndexMap<1>(index)};
}

template<typename T>
struct IsPartialAccess : std::false_type {};
template<typename Arg, std::size_t Rank, std::size_t K>
struct IsPartialAccess<PartialAccess<Arg, Rank, K>> : std::true_type {};

// `A[_x]` of an array with more axes. It stays what it is, so that the compiler says this and little else.
template<typename T>
inline constexpr bool is_partial_v = IsPartialAccess<std::remove_cv_t<std::remove_reference_t<T>>>::value;
template<typename T>
constexpr const T& refuse_partial(const T& partial) {
    static_assert(!is_partial_v<T>,
                  "an index is missing: an array needs one index for each axis, such as A[_y][_x]; _ is a whole axis");
    return partial;
}

template<typename T>
struct AccessTraits {
    static constexpr bool is_access = false;
};
template<typename Arg, typename M>
struct AccessTraits<Read<Arg, M>> {
    static constexpr bool is_access = true;
    using argument_type = Arg;
    using mapper_type = M;
};

template<typename T>
inline constexpr bool is_access_v = AccessTraits<std::remove_cv_t<std::remove_reference_t<T>>>::is_access;

// An argument (or `A[..]` of one) that a task may write.
template<typename T>
constexpr void check_writable() {
    static_assert(!std::is_const<T>::value, "write, overwrite, reduce and accumulate need an array that is not const");
}

// What `A[..]` or `A` stands for: the argument and its mapping.
template<typename T>
constexpr decltype(auto) argument_of(T& argument) {
    if constexpr (is_access_v<T>) {
        return (argument.argument);
    } else {
        return (argument);
    }
}

template<typename T>
constexpr auto mapper_of(T& argument) {
    if constexpr (is_access_v<T>) {
        return argument.access_mapper;
    } else {
        (void)argument;
        return All();
    }
}

// The type of the argument itself: `A[..]` is a Read, so that `write(A[..])` has to unwrap it.
template<typename T>
using argument_of_t = std::remove_reference_t<decltype(argument_of(std::declval<T&>()))>;

template<template<typename, typename> class Access, typename T>
auto make_access(T& argument) {
    if constexpr (is_partial_v<T>) {
        return refuse_partial(argument);
    } else {
        using Arg = argument_of_t<T>;
        check_writable<Arg>();
        return Access<Arg, decltype(mapper_of(argument))>{argument_of(argument), mapper_of(argument)};
    }
}

template<template<typename, typename> class Access, typename T, typename M>
Access<T, std::decay_t<M>> make_access(T& argument, const M& mapper) {
    static_assert(!is_access_v<T> && !is_partial_v<T>,
                  "the mapping is given twice: write either A[..] or a second argument");
    check_writable<T>();
    return {argument, mapper};
}

template<template<typename, typename, typename, typename> class Access, typename Op, typename P, typename T>
auto make_reduction(const Op& op, const P& privatize, T& argument) {
    if constexpr (is_partial_v<T>) {
        return refuse_partial(argument);
    } else {
        using Arg = argument_of_t<T>;
        check_writable<Arg>();
        return Access<Arg, decltype(mapper_of(argument)), P, Op>{argument_of(argument), mapper_of(argument), privatize,
                                                                 op};
    }
}

template<template<typename, typename, typename, typename> class Access, typename Op, typename P, typename T, typename M>
Access<T, std::decay_t<M>, P, Op> make_reduction(const Op& op, const P& privatize, T& argument, const M& mapper) {
    static_assert(!is_access_v<T> && !is_partial_v<T>,
                  "the mapping is given twice: write either A[..] or a second argument");
    check_writable<T>();
    return {argument, mapper, privatize, op};
}

template<typename T>
struct IsReductionOp : std::is_same<T, Reduction> {};
template<typename T, typename F, bool HostOnly>
struct IsReductionOp<CustomReduction<T, F, HostOnly>> : std::true_type {};

template<typename Op>
using enable_op_t = std::enable_if_t<IsReductionOp<Op>::value, int>;

template<typename T>
struct IsPrivatize : std::false_type {};
template<typename M>
struct IsPrivatize<Privatize<M>> : std::true_type {};

template<typename T>
using enable_argument_t = std::enable_if_t<!IsPrivatize<std::remove_cv_t<std::remove_reference_t<T>>>::value, int>;

}  // namespace detail

// ---- read(A), read(A, mapping), read(A[..])
template<typename T>
auto read(const T& argument) {
    if constexpr (detail::is_partial_v<T>) {
        return detail::refuse_partial(argument);
    } else {
        using Arg = const detail::argument_of_t<const T>;
        return Read<Arg, decltype(detail::mapper_of(argument))>{detail::argument_of(argument),
                                                                detail::mapper_of(argument)};
    }
}
template<typename T, typename M>
Read<const T, std::decay_t<M>> read(const T& argument, const M& mapper) {
    static_assert(!detail::is_access_v<T> && !detail::is_partial_v<T>,
                  "the mapping is given twice: write either A[..] or a second argument");
    return {argument, mapper};
}

// ---- write(A), write(A, mapping), write(A[..])
template<typename T>
auto write(T&& argument) {
    return detail::make_access<Write>(argument);
}
template<typename T, typename M>
auto write(T&& argument, const M& mapper) {
    return detail::make_access<Write>(argument, mapper);
}

// ---- overwrite(A), overwrite(A, mapping), overwrite(A[..])
template<typename T>
auto overwrite(T&& argument) {
    return detail::make_access<Overwrite>(argument);
}
template<typename T, typename M>
auto overwrite(T&& argument, const M& mapper) {
    return detail::make_access<Overwrite>(argument, mapper);
}

/// One private copy of the reduced region for each index of the mapping: `privatize(_y)`, `privatize(_x, range(0, 4))`.
template<typename I, typename... Is>
auto privatize(const I& first, const Is&... others) {
    if constexpr (detail::is_index_v<I>) {
        return Privatize<MultiIndexMap<1 + sizeof...(Is)>>{bounds(first, others...)};
    } else {
        static_assert(sizeof...(Is) == 0, "privatize takes indices, or one mapping");
        return Privatize<std::decay_t<I>>{first};
    }
}

// ---- reduce(op, [privatize(..),] A), reduce(op, [privatize(..),] A, mapping), reduce(op, [privatize(..),] A[..])
template<typename Op, typename T, detail::enable_op_t<Op> = 0>
auto reduce(const Op& op, T&& argument) {
    return detail::make_reduction<Reduce>(op, NoPrivatize(), argument);
}
template<typename Op, typename T, typename M, detail::enable_op_t<Op> = 0, detail::enable_argument_t<T> = 0>
auto reduce(const Op& op, T&& argument, const M& mapper) {
    return detail::make_reduction<Reduce>(op, NoPrivatize(), argument, mapper);
}
template<typename Op, typename P, typename T, detail::enable_op_t<Op> = 0>
auto reduce(const Op& op, const Privatize<P>& privatize, T&& argument) {
    return detail::make_reduction<Reduce>(op, privatize.private_mapper, argument);
}
template<typename Op, typename P, typename T, typename M, detail::enable_op_t<Op> = 0>
auto reduce(const Op& op, const Privatize<P>& privatize, T&& argument, const M& mapper) {
    return detail::make_reduction<Reduce>(op, privatize.private_mapper, argument, mapper);
}

// ---- accumulate: the same forms
template<typename Op, typename T, detail::enable_op_t<Op> = 0>
auto accumulate(const Op& op, T&& argument) {
    return detail::make_reduction<Accumulate>(op, NoPrivatize(), argument);
}
template<typename Op, typename T, typename M, detail::enable_op_t<Op> = 0, detail::enable_argument_t<T> = 0>
auto accumulate(const Op& op, T&& argument, const M& mapper) {
    return detail::make_reduction<Accumulate>(op, NoPrivatize(), argument, mapper);
}
template<typename Op, typename P, typename T, detail::enable_op_t<Op> = 0>
auto accumulate(const Op& op, const Privatize<P>& privatize, T&& argument) {
    return detail::make_reduction<Accumulate>(op, privatize.private_mapper, argument);
}
template<typename Op, typename P, typename T, typename M, detail::enable_op_t<Op> = 0>
auto accumulate(const Op& op, const Privatize<P>& privatize, T&& argument, const M& mapper) {
    return detail::make_reduction<Accumulate>(op, privatize.private_mapper, argument, mapper);
}

}  // namespace kmm
