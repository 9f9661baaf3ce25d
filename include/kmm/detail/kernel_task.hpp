// A kernel task: from stored arguments to packed kernel parameters, before addresses and strides are known.
//
// Owns: nothing. The submitting thread, but for `KernelRecipe::finish`, which runs when the layouts are known. Must not
// know: arrays, mappings. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kmm/api/argument.hpp"
#include "kmm/api/view_argument.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/kernel_parameters.hpp"
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

/// Whether what the task stores as `S` becomes the kernel parameter `P` only when the task is launched: where the
/// program's code makes it from an address, a constructor that takes a view, or its ArgumentUnpack. That code runs on a
/// launcher thread, which then launches (late_kernel.hpp).
template<typename S, typename P>
inline constexpr bool is_built_late_v =
    IsStoredView<S>::value ? !IsView<P>::value && (std::is_class_v<P> || std::is_union_v<P>)
                           : !std::is_same_v<decltype(ArgumentUnpack<ExecutionSpace::Device, S>::call(
                                                 std::declval<TaskContext&>(), std::declval<S&>())),
                                             S&>;

/// Stands in a recipe for what needs no finishing.
struct NothingToFinish {};

/// How the stored argument `S` becomes the kernel parameter `P`. Values convert at once.
template<typename S, typename P, typename = void>
struct KernelParameter {
    static_assert(std::is_convertible_v<S&, P>, "an argument does not convert to the kernel's parameter");
    static constexpr bool needs_layout = false;
    static constexpr bool needs_address = false;
    using recipe_type = NothingToFinish;

    static P convert(S& stored) { return static_cast<P>(stored); }
    static recipe_type recipe(const S&) noexcept { return {}; }
    static std::uint32_t access(const S&) noexcept { return 0; }
};

/// An array access: the parameter is a view, or a pointer to the region's first element.
template<typename S, typename P>
struct KernelParameter<S, P, std::enable_if_t<IsStoredView<S>::value>> {
    using view_type = view_of_t<S, ExecutionSpace::Device>;
    static_assert(
        IsView<P>::value || std::is_pointer_v<P>,
        "a kernel parameter that receives an array must be one of kmm's GPU views, a pointer, or a type of the "
        "program's that is constructed from such a view");
    static_assert(std::is_convertible_v<view_type, P>,
                  "an array argument does not fit the kernel's view parameter: a mutable view needs write(..) or "
                  "overwrite(..), a "
                  "region needs a GPUSubview[Mut], element type and rank must be equal");
    // The last axis is contiguous: only a view of two axes and more has strides of its own.
    static constexpr bool needs_layout = IsView<P>::value && view_type::rank >= 2;
    static constexpr bool needs_address = true;
    using recipe_type = std::conditional_t<needs_layout, S, NothingToFinish>;

    static P convert(const S& stored) noexcept { return build(stored, AccessLayout()); }
    static P build(const S& stored, const AccessLayout& layout) noexcept {
        return static_cast<P>(make_view<ExecutionSpace::Device>(stored, nullptr, layout));
    }
    static recipe_type recipe(const S& stored) noexcept {
        if constexpr (needs_layout) {
            return stored;
        } else {
            return {};
        }
    }
    static std::uint32_t access(const S& stored) noexcept { return stored.access; }
    static constexpr std::size_t address_offset() noexcept {
        if constexpr (IsView<P>::value) {
            return P::data_member_offset();
        } else {
            return 0;
        }
    }
};

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
    static constexpr bool needs_layout = (KernelParameter<S, P>::needs_layout || ...);
    using Recipe = PackedParameters<typename KernelParameter<S, P>::recipe_type...>;

    /// Hands the kernel of the current task over to `submission`.
    static void submit(Submission& submission, const KernelDraft& draft, S&... stored) {
        submit(submission, draft, std::index_sequence_for<P...>(), stored...);
    }

  private:
    static constexpr auto recipe_offsets = parameter_offsets<typename KernelParameter<S, P>::recipe_type...>();

    template<std::size_t... I>
    static void submit(Submission& submission, const KernelDraft& draft, std::index_sequence<I...>, S&... stored) {
        // Conversions may throw: they come before anything is handed over.
        const PackedParameters<P...> packed{KernelParameter<S, P>::convert(stored)...};
        std::memcpy(submission.set_kernel(draft), packed.data(), parameter_bytes);
        if constexpr (needs_layout) {
            const Recipe recipe{KernelParameter<S, P>::recipe(stored)...};
            submission.set_finish(&finish, recipe.data(), Recipe::size_bytes);
        }
        (add_patch<I, S, P>(submission, stored), ...);
    }

    template<std::size_t I, typename Stored, typename Parameter>
    static void add_patch(Submission& submission, const Stored& stored) {
        if constexpr (KernelParameter<Stored, Parameter>::needs_address) {
            constexpr std::size_t offset = offsets[I] + KernelParameter<Stored, Parameter>::address_offset();
            submission.add_patch(
                AddressPatch{static_cast<std::uint32_t>(offset), KernelParameter<Stored, Parameter>::access(stored)});
        }
    }

    static void finish(const void* recipe, const AccessLayout* layouts, void* parameters) {
        finish_all(static_cast<const unsigned char*>(recipe), layouts, static_cast<unsigned char*>(parameters),
                   std::index_sequence_for<P...>());
    }
    template<std::size_t... I>
    static void finish_all(const unsigned char* recipe, const AccessLayout* layouts, unsigned char* parameters,
                           std::index_sequence<I...>) noexcept {
        (finish_one<I, S, P>(recipe, layouts, parameters), ...);
    }
    template<std::size_t I, typename Stored, typename Parameter>
    static void finish_one(const unsigned char* recipe, const AccessLayout* layouts,
                           unsigned char* parameters) noexcept {
        if constexpr (KernelParameter<Stored, Parameter>::needs_layout) {
            Stored stored;
            std::memcpy(static_cast<void*>(&stored), recipe + recipe_offsets[I], sizeof(Stored));
            const Parameter value = KernelParameter<Stored, Parameter>::build(stored, layouts[stored.access]);
            std::memcpy(parameters + offsets[I], static_cast<const void*>(&value), sizeof(Parameter));
        }
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
