// A kernel task: from stored arguments to packed kernel parameters, and the table of the addresses and strides in them,
// which are written when the task is placed. The table also fills aggregates of the program's whose members are views
// and values: to initialise them runs none of its code.
//
// Owns: nothing. The submitting thread. Must not know: arrays, mappings. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kmm/api/argument.hpp"
#include "kmm/api/view_argument.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/kernel_parameters.hpp"
#include "kmm/detail/members.hpp"
#include "kmm/detail/runtime_core.hpp"

namespace kmm {
namespace detail {

// The library's own domains and layouts. A view with one of the program's is a type of the program's.
template<typename D>
struct IsOwnDomain : std::false_type {};
template<std::size_t N, typename I>
struct IsOwnDomain<views::dynamic_domain<N, I>> : std::true_type {};
template<std::size_t N, typename I>
struct IsOwnDomain<views::dynamic_subdomain<N, I>> : std::true_type {};
template<typename I, I... Sizes>
struct IsOwnDomain<views::static_domain<I, Sizes...>> : std::true_type {};
template<typename D, typename D::index_type... Offsets>
struct IsOwnDomain<views::static_offset<D, Offsets...>> : IsOwnDomain<D> {};
template<typename L>
struct IsOwnLayout : std::false_type {};
template<typename S>
struct IsOwnLayout<views::right_to_left_layout<S>> : std::true_type {};
template<typename S>
struct IsOwnLayout<views::left_to_right_layout<S>> : std::true_type {};
template<typename S>
struct IsOwnLayout<views::strided_layout<S>> : std::true_type {};
template<typename S, S... Strides>
struct IsOwnLayout<views::static_layout<S, Strides...>> : std::true_type {};

template<typename P>
struct IsView : std::false_type {};
template<typename T, typename D, typename L>
struct IsView<AbstractView<T, D, L, views::device_accessor>>
    : std::bool_constant<IsOwnDomain<D>::value && IsOwnLayout<L>::value> {};
template<typename T, typename D, typename L>
struct IsView<AbstractView<T, D, L, views::host_accessor>> : IsView<AbstractView<T, D, L, views::device_accessor>> {};

/// Whether the program has an ArgumentUnpack of its own for what the task stores as `S`.
template<typename S>
inline constexpr bool is_unpacked_by_program_v =
    !IsStoredView<S>::value && !std::is_same_v<decltype(ArgumentUnpack<ExecutionSpace::Device, S>::call(
                                                   std::declval<TaskContext&>(), std::declval<S&>())),
                                               S&>;

/// What the members of an aggregate parameter are made of: a stored view, or the members of a stored aggregate.
template<typename S>
constexpr auto elements_of(S& stored) noexcept {
    if constexpr (IsStoredView<std::remove_const_t<S>>::value) {
        return std::tie(stored);
    } else {
        return members_of(stored);
    }
}
template<typename S>
using ElementsOf = decltype(elements_of(std::declval<S&>()));
template<typename P>
using MembersOf = decltype(members_of(std::declval<const P&>()));
template<std::size_t I, typename References>
using TypeAt = std::remove_cv_t<std::remove_reference_t<std::tuple_element_t<I, References>>>;

/// Whether the library's code alone makes the member `M` of the stored element `S`, if there are addresses in it.
template<typename S, typename M>
constexpr bool makes_member() noexcept;
template<typename S, typename P, std::size_t... I>
constexpr bool makes_members(std::index_sequence<I...>) noexcept {
    return (makes_member<TypeAt<I, ElementsOf<S>>, TypeAt<I, MembersOf<P>>>() && ...) &&
           !(std::is_convertible_v<TypeAt<I, ElementsOf<S>>&, TypeAt<I, MembersOf<P>>> && ...);
}
/// Whether the parameter `P` is an aggregate with one member for each element of `S`, so that no initializer of its own
/// is used, and some are views. None is a reference or const. Parameters are aligned to 16 bytes at most.
template<typename S, typename P>
constexpr bool is_memberwise() noexcept {
    if constexpr (std::is_convertible_v<S&, P> || !std::is_aggregate_v<P> || !std::is_trivially_copyable_v<P> ||
                  !std::is_copy_assignable_v<P>) {
        return false;
    } else {
        constexpr std::size_t count = std::tuple_size_v<MembersOf<P>>;
        if constexpr (count != 0 && count == std::tuple_size_v<ElementsOf<S>> && alignof(P) <= 16) {
            return makes_members<S, P>(std::make_index_sequence<count>());
        }
        return false;
    }
}
template<typename S, typename M>
constexpr bool makes_member() noexcept {
    if constexpr (!IsStoredView<S>::value) {
        return !is_unpacked_by_program_v<S> && (std::is_convertible_v<S&, M> || is_memberwise<S, M>());
    } else if constexpr (IsView<M>::value || std::is_pointer_v<M>) {
        return std::is_convertible_v<view_of_t<S, ExecutionSpace::Device>, M>;
    } else {
        return is_memberwise<S, M>();
    }
}

/// Whether what the task stores as `S` becomes the kernel parameter `P` only when the task is launched: where the
/// program's code makes it from an address, a constructor that takes a view, or its ArgumentUnpack. That code runs on a
/// launcher thread, which then launches (late_kernel.hpp).
template<typename S, typename P>
constexpr bool is_built_late() noexcept {
    if constexpr (!IsStoredView<S>::value) {
        return is_unpacked_by_program_v<S>;
    } else if constexpr (IsView<P>::value || !(std::is_class_v<P> || std::is_union_v<P>)) {
        return false;
    } else {
        return !is_memberwise<S, P>();
    }
}
template<typename S, typename P>
inline constexpr bool is_built_late_v = is_built_late<S, P>();

/// How the stored argument `S` becomes the kernel parameter `P`. Values convert at once.
template<typename S, typename P, typename = void>
struct KernelParameter {
    static_assert(std::is_convertible_v<S&, P>,
                  "an argument does not convert to the kernel's parameter; what stores array accesses becomes an "
                  "aggregate of as many members, each made of one stored member");
    static constexpr std::size_t num_fields = 0;

    static P convert(S& stored) { return static_cast<P>(stored); }
    static void add_fields(Submission&, const std::byte*, std::size_t, const S&) noexcept {}
};

/// An array access: the parameter is a view, or a pointer to the region's first element.
template<typename S, typename P>
struct KernelParameter<S, P, std::enable_if_t<IsStoredView<S>::value && !is_memberwise<S, P>()>> {
    using view_type = view_of_t<S, ExecutionSpace::Device>;
    static_assert(
        IsView<P>::value || std::is_pointer_v<P>,
        "a kernel parameter that receives an array must be one of kmm's GPU views, a pointer, or a type of the "
        "program's that is constructed from such a view");
    static_assert(std::is_convertible_v<view_type, P>,
                  "an array argument does not fit the kernel's view parameter: a mutable view needs write(..) or "
                  "overwrite(..), a "
                  "region needs a GPUSubview[Mut], element type and rank must be equal");
    // The last axis is contiguous: its stride is 1.
    static constexpr std::size_t num_fields =
        IsView<P>::value && view_type::rank >= 2 ? std::size_t{view_type::rank} : 1;

    static P convert(const S& stored) noexcept {
        return static_cast<P>(make_view<ExecutionSpace::Device>(stored, nullptr, AccessLayout()));
    }
    /// `at`: where the parameter begins in the packed `parameters`.
    static void add_fields(Submission& submission, const std::byte*, std::size_t at, const S& stored) {
        if constexpr (IsView<P>::value) {
            submission.add_field(ParameterField::address(at + P::data_member_offset(), stored.access));
            if constexpr (num_fields > 1 && P::num_stored_strides != 0)
                for (std::size_t axis = 0; axis + 1 < P::rank; axis++)
                    submission.add_field(ParameterField::stride(at + P::stride_offset(axis), stored.access, axis,
                                                                sizeof(typename P::stride_type)));
        } else {
            submission.add_field(ParameterField::address(at, stored.access));
        }
    }
};

/// An aggregate: member by member.
template<typename S, typename P, typename Indices = std::make_index_sequence<std::tuple_size_v<MembersOf<P>>>>
struct MemberwiseParameter;
template<typename S, typename P, std::size_t... I>
struct MemberwiseParameter<S, P, std::index_sequence<I...>> {
    template<std::size_t K>
    using member = KernelParameter<TypeAt<K, ElementsOf<S>>, TypeAt<K, MembersOf<P>>>;
    static constexpr std::size_t num_fields = (member<I>::num_fields + ...);

    static P convert(S& stored) {
        const auto elements = elements_of(stored);
        return P{member<I>::convert(std::get<I>(elements))...};
    }
    static void add_fields(Submission& submission, const std::byte* parameters, std::size_t at, const S& stored) {
        const auto elements = elements_of(stored);
        const auto members = members_of(*reinterpret_cast<const P*>(parameters + at));
        const auto offset = [parameters](const auto& m) {
            return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&m) - parameters);
        };
        (member<I>::add_fields(submission, parameters, offset(std::get<I>(members)), std::get<I>(elements)), ...);
    }
};
template<typename S, typename P>
struct KernelParameter<S, P, std::enable_if_t<is_memberwise<S, P>()>> : MemberwiseParameter<S, P> {};

/// The parameter list `P...` built from the stored arguments `S...`.
template<typename Parameters, typename... S>
struct KernelRecipe;

template<typename... P, typename... S>
struct KernelRecipe<void(P...), S...> {
    static_assert(sizeof...(P) == sizeof...(S), "the number of arguments differs from the kernel's parameters");
    static_assert((!std::is_reference_v<P> && ...), "a kernel takes its parameters by value");
    static_assert((std::is_trivially_copyable_v<P> && ...), "kernel parameters must be trivially copyable");

    static constexpr auto offsets = parameter_offsets<P...>();
    static constexpr std::uint32_t parameter_bytes = offsets[sizeof...(P)];
    static constexpr std::size_t num_fields = (KernelParameter<S, P>::num_fields + ... + 0);

    /// Hands the kernel of the current task over to `submission`.
    static void submit(Submission& submission, const KernelDraft& draft, S&... stored) {
        // Conversions may throw: they come before anything is handed over.
        const PackedParameters<P...> packed{KernelParameter<S, P>::convert(stored)...};
        auto* const parameters = static_cast<std::byte*>(submission.set_kernel(draft));
        std::memcpy(parameters, packed.data(), parameter_bytes);
        [[maybe_unused]] std::size_t i = 0;
        (KernelParameter<S, P>::add_fields(submission, parameters, offsets[i++], stored), ...);
    }
};

template<typename Kernel>
struct KernelSignature;
template<typename... P>
struct KernelSignature<void (*)(P...)> {
    using type = void(P...);
};
template<typename... P>
struct KernelSignature<void (*)(P...) noexcept> {
    using type = void(P...);
};

}  // namespace detail
}  // namespace kmm
