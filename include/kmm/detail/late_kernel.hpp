// A kernel with parameters that the program's own code makes from addresses: they are built by the launcher thread that
// launches it, when the task runs.
//
// Owns: what such a task stores. A launcher thread, with no lock held; never the scheduler or a device's thread, which
// run none of the program's code. Must not know: arrays, mappings. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kmm/api/argument.hpp"
#include "kmm/api/launcher.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/kernel_parameters.hpp"
#include "kmm/detail/kernel_task.hpp"
#include "kmm/detail/runtime_core.hpp"

namespace kmm {
namespace detail {

/// Payload of a task: the launch as it was checked at the submit, and the stored arguments `S...` of the parameters.
template<typename Signature, typename... S>
struct LateKernel;

template<typename... P, typename... S>
struct LateKernel<void(P...), S...> {
    static_assert((!std::is_reference_v<P> && ...), "a kernel takes its parameters by value");
    static constexpr std::uint32_t parameter_bytes = static_cast<std::uint32_t>(PackedParameters<P...>::size_bytes);
    static constexpr std::size_t num_fields = 0;  // the program's code makes the parameters

    KernelDraft draft;  ///< without a function the chunk is empty: nothing is built, nothing launched
    std::tuple<S...> arguments;

    static void run(void* payload, TaskContext& context) {
        run(*static_cast<LateKernel*>(payload), context, std::index_sequence_for<P...>());
    }
    static void destroy(void* payload) noexcept { static_cast<LateKernel*>(payload)->~LateKernel(); }

  private:
    template<std::size_t... I>
    static void run(LateKernel& self, TaskContext& context, std::index_sequence<I...>) {
        if (self.draft.function == nullptr) return;
        check_pending_error(false);  // what was left by whatever ran here before is not this task's
        // Braces: from left to right. A constructor of the program's may throw.
        const PackedParameters<P...> packed{
            build<P>(ArgumentUnpack<ExecutionSpace::Device, S>::call(context, std::get<I>(self.arguments)))...};
        check_pending_error(true);
        const KernelDraft& d = self.draft;
        static_cast<DeviceResource&>(*context.resource)
            .launch_packed(d.function, d.grid, d.block, d.shared_bytes, packed.data(), d.parameter_bytes);
    }
    template<typename Parameter, typename Argument>
    static Parameter build(Argument&& argument) {
        static_assert(std::is_constructible_v<Parameter, Argument>,
                      "an array argument does not fit the kernel's view parameter: the parameter's type has no "
                      "constructor that takes the view (read gives GPUView or GPUSubview, write and overwrite give "
                      "GPUViewMut or GPUSubviewMut)");
        return static_cast<Parameter>(std::forward<Argument>(argument));
    }
};

template<typename Signature, typename... S>
struct HasLateParameters;
template<typename... P, typename... S>
struct HasLateParameters<void(P...), S...> {
    static constexpr bool get() noexcept {
        // With another number of them KernelRecipe says what is wrong.
        if constexpr (sizeof...(P) == sizeof...(S)) {
            return (is_built_late_v<S, P> || ...);
        } else {
            return false;
        }
    }
    static constexpr bool value = get();
};
template<typename L, typename... S>
struct BuildsLate : std::false_type {};
template<typename F, typename... S>
struct BuildsLate<GPUKernel<F>, S...> : HasLateParameters<typename KernelSignature<F>::type, S...> {};

/// Whether the tasks of a launcher `L` with the stored arguments `S...` are kernels that need a `LateKernel`.
template<typename L, typename... S>
inline constexpr bool builds_late_v = BuildsLate<L, S...>::value;

}  // namespace detail
}  // namespace kmm
