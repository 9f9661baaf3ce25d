// Arrays and mappings as arguments of a submit: from `A`, `A[..]`, `write(..)`, `_x` to what each task stores.
//
// Owns: the library's argument handlers. They refer to the arrays of the call and live no longer than it. The
// submitting thread. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kmm/api/access.hpp"
#include "kmm/api/argument.hpp"
#include "kmm/api/array.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/api/view_argument.hpp"
#include "kmm/detail/meta.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/lease.hpp"

namespace kmm {
namespace detail {

// The array that a class is or is derived from; void if there is none.
template<typename T, std::size_t N>
Array<T, N> base_array(const Array<T, N>*);
void base_array(const volatile void*);
template<typename A>
using base_array_t = decltype(base_array(static_cast<A*>(nullptr)));

template<typename A>
struct ArrayTypes : ArrayTypes<base_array_t<A>> {};
template<>
struct ArrayTypes<void>;
template<typename T, std::size_t N>
struct ArrayTypes<Array<T, N>> {
    using element = T;
    static constexpr std::size_t rank = N;
};
// Refused before: so that what the compiler adds does not speak of other types.
template<typename A, std::size_t N, std::size_t K>
struct ArrayTypes<PartialAccess<A, N, K>> : ArrayTypes<std::remove_const_t<A>> {};

/// Handler of one access of the array `A` with the mapping `M`.
template<typename A, typename M, AccessKind Kind>
class AccessHandler {
    static_assert(!std::is_void_v<base_array_t<A>>,
                  "read, write and overwrite need a kmm::Array; pass the arrays of a struct as arguments of their own");
    using Types = ArrayTypes<std::remove_const_t<A>>;
    static constexpr std::size_t N = Types::rank;

  public:
    using type = StoredView<typename Types::element, N, Kind != AccessKind::read, std::is_same_v<M, All>>;
    using ignores_domain = void;

    AccessHandler(const A& array, const M& mapper) : array_(&array), mapper_(as_indices<N>(mapper)) {}

    void initialize(const TaskGroupInit&) {}
    type before_submit(TaskInstance& task) {
        const auto add = [&](const auto&... wanted) {
            const AddedAccess added = task.submission.add_access(array_->record(), Kind, task.argument, wanted...);
            return type{to_bounds<N>(added.region), added.number};
        };
        if constexpr (std::is_same_v<M, All>) {
            return add(nullptr);
        } else if constexpr (N > 0 && std::is_same_v<Stored, MultiIndexMap<N>>) {
            return add(mapper_.axes, task.chunk);
        } else {
            const Box wanted = to_box(Bounds<N>(mapper_(task.chunk, Bounds<N>(array_->size()))));
            return add(&wanted);
        }
    }
    void commit(const TaskGroupCommit& group) {
        if constexpr (Kind != AccessKind::read)
            if (array_->is_empty()) array_bind_without_elements(array_->record(), group.runtime);
    }
    void after_submit(const TaskSubmissionResult&) {}

  private:
    using Stored = std::decay_t<decltype(as_indices<N>(std::declval<const M&>()))>;
    const A* array_;
    Stored mapper_;
};

[[noreturn]] inline void throw_no_reductions() {
    throw_not_available("reduce and accumulate are not offered by this version of kmm; write one partial result per "
                        "task and combine them in a second "
                        "submit");
}

/// Handler of reduce and accumulate: K private axes, then those of the array.
template<typename A, typename M, typename P>
class ReductionHandler {
    using Types = ArrayTypes<std::remove_const_t<A>>;
    static constexpr std::size_t K =
        BoundsRank<decltype(evaluate_private(std::declval<const P&>(), std::declval<const DomainChunk&>()))>::value;

  public:
    using type = StoredView<typename Types::element, K + Types::rank, true, std::is_same_v<M, All> && K == 0>;

    void initialize(const TaskGroupInit&) { throw_no_reductions(); }
    type before_submit(TaskInstance&) { throw_no_reductions(); }
    void commit(const TaskGroupCommit&) {}
    void after_submit(const TaskSubmissionResult&) {}
};

/// A mapping as a plain argument: evaluated for each chunk, not clipped.
template<typename M>
class GeneralHandler<M, std::enable_if_t<IsPlainMapper<M>::value>> {
  public:
    using type = std::decay_t<decltype(evaluate_plain(std::declval<const M&>(), std::declval<const DomainChunk&>()))>;
    using ignores_domain = void;

    explicit GeneralHandler(M mapper) : mapper_(std::move(mapper)) {}
    void initialize(const TaskGroupInit&) {}
    type before_submit(TaskInstance& task) { return evaluate_plain(mapper_, task.chunk); }
    void commit(const TaskGroupCommit&) {}
    void after_submit(const TaskSubmissionResult&) {}

  private:
    M mapper_;
};

/// The lease that an access asks for.
template<typename Access>
struct LeaseOf {
    static_assert(always_false_v<Access>, "lease needs an array, A[..], read(..), write(..) or overwrite(..)");
};
template<typename T, std::size_t N>
struct LeaseOf<Array<T, N>> {
    using type = Lease<const T, N>;
};
template<typename A, typename M>
struct LeaseOf<Read<A, M>> {
    using type =
        Lease<const typename ArrayTypes<std::remove_const_t<A>>::element, ArrayTypes<std::remove_const_t<A>>::rank>;
};
template<typename A, typename M>
struct LeaseOf<Write<A, M>> {
    using type = Lease<typename ArrayTypes<A>::element, ArrayTypes<A>::rank>;
};
template<typename A, typename M>
struct LeaseOf<Overwrite<A, M>> {
    using type = Lease<typename ArrayTypes<A>::element, ArrayTypes<A>::rank>;
};

}  // namespace detail

// ---- arrays and accesses
namespace detail {

/// A class derived from Array is read as the array.
template<typename A>
class GeneralHandler<A, std::enable_if_t<!std::is_void_v<base_array_t<A>>>> : public ArgumentHandler<base_array_t<A>> {
  public:
    explicit GeneralHandler(const A& array) : ArgumentHandler<base_array_t<A>>(array) {}
};

}  // namespace detail

template<typename T, std::size_t N>
struct ArgumentHandler<Array<T, N>> : detail::AccessHandler<Array<T, N>, All, detail::AccessKind::read> {
    explicit ArgumentHandler(const Array<T, N>& array)
        : detail::AccessHandler<Array<T, N>, All, detail::AccessKind::read>(array, All()) {}
};

template<typename A, typename M>
struct ArgumentHandler<Read<A, M>> : detail::AccessHandler<A, M, detail::AccessKind::read> {
    explicit ArgumentHandler(const Read<A, M>& access)
        : detail::AccessHandler<A, M, detail::AccessKind::read>(access.argument, access.access_mapper) {}
};

template<typename A, typename M>
struct ArgumentHandler<Write<A, M>> : detail::AccessHandler<A, M, detail::AccessKind::write> {
    static_assert(!std::is_const_v<A>, "write needs an array that is not const");
    explicit ArgumentHandler(const Write<A, M>& access)
        : detail::AccessHandler<A, M, detail::AccessKind::write>(access.argument, access.access_mapper) {}
};

template<typename A, typename M>
struct ArgumentHandler<Overwrite<A, M>> : detail::AccessHandler<A, M, detail::AccessKind::overwrite> {
    static_assert(!std::is_const_v<A>, "overwrite needs an array that is not const");
    explicit ArgumentHandler(const Overwrite<A, M>& access)
        : detail::AccessHandler<A, M, detail::AccessKind::overwrite>(access.argument, access.access_mapper) {}
};

template<typename A, typename M, typename P, typename Op>
struct ArgumentHandler<Reduce<A, M, P, Op>> : detail::ReductionHandler<A, M, P> {
    explicit ArgumentHandler(const Reduce<A, M, P, Op>&) {}
};
template<typename A, typename M, typename P, typename Op>
struct ArgumentHandler<Accumulate<A, M, P, Op>> : detail::ReductionHandler<A, M, P> {
    explicit ArgumentHandler(const Accumulate<A, M, P, Op>&) {}
};

template<typename A, std::size_t N, std::size_t K>
struct ArgumentHandler<detail::PartialAccess<A, N, K>> {
    static_assert(detail::always_false_v<A>,
                  "an index is missing: an array needs one index for each axis, such as A[_y][_x]; _ is a whole axis");
};

template<>
struct ArgumentHandler<All> {
    template<typename M>
    explicit ArgumentHandler(const M&) {
        static_assert(detail::always_false_v<M>, "_ alone says nothing as a plain argument: pass an axis or a range");
    }
    using type = All;
    void initialize(const TaskGroupInit&) {}
    type before_submit(TaskInstance&) { return {}; }
    void commit(const TaskGroupCommit&) {}
    void after_submit(const TaskSubmissionResult&) {}
};

}  // namespace kmm
