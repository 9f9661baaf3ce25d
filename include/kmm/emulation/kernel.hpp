// Turns a pointer to an emulated kernel into the handle that the host driver launches, and holds the loop over a
// block's threads, which is a template so that it calls the kernel directly. Must not know the driver beyond
// HostKernel.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kmm/detail/kernel_parameters.hpp"
#include "kmm/driver/host_kernel.hpp"
#include "kmm/emulation/engine.hpp"

namespace kmm::emulation {
namespace detail {

template<class... P>
constexpr std::size_t parameter_alignment() {
    std::size_t result = 1;
    for (std::size_t a : {alignof(P)..., std::size_t{1}}) result = a > result ? a : result;
    return result;
}

/// The loop over the threads of a block. A kernel that never waits runs as a plain loop: `moved` cannot change, and
/// threadIdx counts up in memory. When a thread waits, the engine notes which thread comes next from threadIdx.
template<class Call>
inline void start_threads(Block& block, const Call& call) {
    if (block.single) return call();
    bool moved = false;
    block.moved = &moved;
    threadIdx = block.next;
    for (;;) {
        call();
        if (moved) return;
        if (++threadIdx.x < blockDim.x) continue;
        threadIdx.x = 0;
        if (++threadIdx.y < blockDim.y) continue;
        threadIdx.y = 0;
        if (++threadIdx.z < blockDim.z) continue;
        break;
    }
    block.moved = nullptr;
    block.next = threadIdx;
}

/// The kernel of a handle, by pointer: any function of this type.
template<class... P>
struct AnyKernel {
    template<std::size_t... I>
    static void call(void (*kernel)(P...), const char* bytes, std::index_sequence<I...>) {
        [[maybe_unused]] constexpr auto offsets = kmm::detail::parameter_offsets<P...>();
        (void)bytes;
        kernel(*reinterpret_cast<const P*>(bytes + offsets[I])...);
    }
    static void start(Block& block) {
        const auto kernel = reinterpret_cast<void (*)(P...)>(const_cast<void*>(block.function));
        const char* const bytes = static_cast<const char*>(block.parameters);
        start_threads(block, [=] { call(kernel, bytes, std::index_sequence_for<P...>{}); });
    }
};

/// One kernel known at compile time: the compiler may inline it into the loop.
template<auto Kernel, class... P>
struct OneKernel {
    static void start(Block& block) {
        const char* const bytes = static_cast<const char*>(block.parameters);
        start_threads(block, [=] { AnyKernel<P...>::call(Kernel, bytes, std::index_sequence_for<P...>{}); });
    }
};

/// `HostKernel::run_blocks` for kernels with parameters P. Parameters that lie at a worse alignment than their types
/// need are moved first.
template<class Kernel, class... P>
void run_kernel(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry, const void* parameters,
                std::uint64_t first, std::uint64_t last) {
    static_assert((std::is_object_v<P> && ...), "a kernel takes its parameters by value");
    constexpr std::size_t alignment = parameter_alignment<P...>();
    constexpr std::size_t size = kmm::detail::parameter_offsets<P...>()[sizeof...(P)];
    if (reinterpret_cast<std::uintptr_t>(parameters) % alignment == 0) {
        run_blocks(kernel, geometry, parameters, first, last, &Kernel::start);
    } else {
        alignas(alignment) unsigned char aligned[size > 0 ? size : 1];
        std::memcpy(aligned, parameters, size);
        run_blocks(kernel, geometry, aligned, first, last, &Kernel::start);
    }
}

using RunBlocks = decltype(driver::HostKernel::run_blocks);
/// The handle of (function, run), made on first use and kept for the life of the process. Any thread. A repeat takes no
/// lock.
const driver::HostKernel* find_kernel(const void* function, RunBlocks run);

template<auto Kernel, class... P>
const driver::HostKernel* handle_of(void (*)(P...)) {
    return find_kernel(reinterpret_cast<const void*>(Kernel), &run_kernel<OneKernel<Kernel, P...>, P...>);
}

}  // namespace detail

/// The handle of a kernel: what `KernelLaunch::function` is on the host driver. The same for the same function, valid
/// for the life of the process. Any thread; no lock and a few nanoseconds after the first call. Parameters are copied
/// as bytes, as CUDA does.
template<class... P>
const driver::HostKernel* kernel_handle(void (*kernel)(P...)) {
    return detail::find_kernel(reinterpret_cast<const void*>(kernel),
                               &detail::run_kernel<detail::AnyKernel<P...>, P...>);
}

/// The same for a kernel that is known at compile time, which saves a call through a pointer for each thread.
template<auto Kernel>
const driver::HostKernel* kernel_handle() {
    static const driver::HostKernel* const handle = detail::handle_of<Kernel>(Kernel);
    return handle;
}

}  // namespace kmm::emulation

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
