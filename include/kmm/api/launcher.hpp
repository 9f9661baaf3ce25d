// How a task's function is called: `Host`, `GPU`, `GPUKernel`, and what makes a type a launcher.
//
// Owns: the launchers. Must not know: arrays, the runtime. Made on the submitting thread; the copies inside tasks run
// on threads of the library. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "kmm/core/backends.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/kernel_handle.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/gpu_utils.hpp"

namespace kmm {
namespace detail {

template<typename T, typename = void>
struct IsLauncher : std::false_type {};
template<typename T>
struct IsLauncher<T, std::void_t<decltype(std::decay_t<T>::execution_space)>>
    : std::is_same<std::remove_cv_t<decltype(std::decay_t<T>::execution_space)>, ExecutionSpace> {};

/// Whether a type has a static member `execution_space` of type `ExecutionSpace`.
template<typename T>
inline constexpr bool is_launcher_v = IsLauncher<T>::value;

/// Calls `f` with lvalues, as `f(args...)` in the documentation says; with rvalues where only those fit.
template<typename F, typename... Args>
void call_host_function(F& f, Args&... args) {
    if constexpr (std::is_invocable_v<F&, Args&...>) {
        static_cast<void>(f(args...));
    } else {
        static_assert(std::is_invocable_v<F&, Args&&...>, "the parameters of the function do not fit the arguments: a "
                                                          "read gives View or Subview, write and overwrite give "
                                                          "ViewMut or SubviewMut, an axis gives Range");
        static_cast<void>(f(std::move(args)...));
    }
}

inline namespace KMM_DETAIL_FILE_KIND {

/// The last error of the vendor's runtime is kept by each copy of that runtime, and the one that the function's file is
/// linked with need not be the library's: so it is looked at here, where the file is compiled.
inline void check_pending_error(bool report) {
#ifdef KMM_USE_CUDA
    const cudaError_t pending = cudaGetLastError();
    if (report) check_gpu(pending, "a call in the device function, which left its error pending,", SourceLocation());
#elif defined(KMM_USE_HIP)
    const hipError_t pending = hipGetLastError();
    if (report) check_gpu(pending, "a call in the device function, which left its error pending,", SourceLocation());
#else
    static_cast<void>(report);
#endif
}

template<typename F, typename... Args>
void call_device_function(F& f, DeviceResource& device, Args&... args) {
    check_pending_error(false);  // what was left by whatever ran here before is not this task's
    if constexpr (std::is_invocable_v<F&, DeviceResource&, Args&...>) {
        static_cast<void>(f(device, args...));
    } else {
        static_assert(std::is_invocable_v<F&, DeviceResource&, Args&&...>,
                      "the parameters of the function do not fit the arguments: first DeviceResource&, then for a read "
                      "GPUView or "
                      "GPUSubview, for write and overwrite GPUViewMut or GPUSubviewMut, for an axis Range");
        static_cast<void>(f(device, std::move(args)...));
    }
    check_pending_error(true);
}

}  // namespace KMM_DETAIL_FILE_KIND

/// What `GPUKernel` says about a launch, as plain data for compiled code.
struct KernelGeometry {
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t elements[3] = {1, 1, 1};
    std::uint32_t grid[3] = {1, 1, 1};
    bool has_grid = false;
    std::size_t shared_bytes = 0;
};

}  // namespace detail

namespace detail {
template<typename F>
struct IsKernelPointer : std::false_type {};
template<typename... P>
struct IsKernelPointer<void (*)(P...)> : std::true_type {};
template<typename... P>
struct IsKernelPointer<void (*)(P...) noexcept> : std::true_type {};
}  // namespace detail

/// Calls `f(args...)` on one thread of the host pool. `f` is copied once per task; copies may run concurrently.
template<typename F>
class Host {
  public:
    static constexpr ExecutionSpace execution_space = ExecutionSpace::Host;
    using function_type = F;

    Host(F f, SourceLocation where = SourceLocation::current()) : function_(std::move(f)), where_(where) {}

    template<typename... Args>
    void operator()(Resource&, DomainChunk, Args&&... args) {
        detail::call_host_function(function_, args...);
    }

    /// A copy with a name for messages.
    Host named(std::string name) const {
        Host copy = *this;
        copy.name_ = std::move(name);
        return copy;
    }
    const std::string& name() const noexcept { return name_; }
    SourceLocation location() const noexcept { return where_; }
    const F& function() const noexcept { return function_; }

  private:
    F function_;
    std::string name_;
    SourceLocation where_;
};

// A kernel pointer or a device function of one type means something else in a file of another kind.
inline namespace KMM_DETAIL_FILE_KIND {

/// Calls `f(DeviceResource&, args...)` on a thread of the runtime with the task's device current; `f` enqueues work on
/// `device.stream()` and returns. On the host driver `f` may touch its views by itself: it is called when its inputs
/// are there.
template<typename F>
class GPU {
  public:
    static constexpr ExecutionSpace execution_space = ExecutionSpace::Device;
    using function_type = F;

    GPU(F f, SourceLocation where = SourceLocation::current()) : function_(std::move(f)), where_(where) {}

    template<typename... Args>
    void operator()(Resource& resource, DomainChunk, Args&&... args) {
        detail::call_device_function(function_, resource.cast<DeviceResource>(), args...);
    }

    GPU named(std::string name) const {
        GPU copy = *this;
        copy.name_ = std::move(name);
        return copy;
    }
    /// A copy that declares scratch memory: `DeviceResource::scratch` cannot fail for these bytes.
    GPU scratch(std::size_t bytes) const {
        GPU copy = *this;
        copy.scratch_bytes_ = bytes;
        return copy;
    }
    const std::string& name() const noexcept { return name_; }
    SourceLocation location() const noexcept { return where_; }
    std::size_t scratch_bytes(const DomainChunk&) const noexcept { return scratch_bytes_; }
    const F& function() const noexcept { return function_; }

  private:
    F function_;
    std::string name_;
    std::size_t scratch_bytes_ = 0;
    SourceLocation where_;
};

/// Launches `kernel<<<grid, block, shared>>>(args...)` on the task's stream. Per axis the grid is
/// ceil(chunk.size / elements_per_block); an empty chunk launches nothing. `kernel` is a pointer to a `__global__`
/// function returning void, with parameters by value.
template<typename F>
class GPUKernel {
    static_assert(
        detail::IsKernelPointer<F>::value,
        "GPUKernel needs a pointer to a __global__ function that returns void; use GPU(f) for other callables");

  public:
    static constexpr ExecutionSpace execution_space = ExecutionSpace::Device;
    using function_type = F;

    GPUKernel(F function, dim3 block, SourceLocation where = SourceLocation::current())
        : GPUKernel(function, block, block, 0, where) {}

    GPUKernel(F function, dim3 block, dim3 elements_per_block, std::uint32_t shared_memory = 0,
              SourceLocation where = SourceLocation::current())
        : kernel_(function), where_(where) {
        store(block, geometry_.block);
        store(elements_per_block, geometry_.elements);
        geometry_.shared_bytes = shared_memory;
    }

    GPUKernel named(std::string name) const {
        GPUKernel copy = *this;
        copy.name_ = std::move(name);
        return copy;
    }
    /// A copy that launches exactly this grid for every chunk that is not empty.
    GPUKernel grid(dim3 blocks) const {
        GPUKernel copy = *this;
        store(blocks, copy.geometry_.grid);
        copy.geometry_.has_grid = true;
        return copy;
    }
    GPUKernel elements_per_block(dim3 elements) const {
        GPUKernel copy = *this;
        store(elements, copy.geometry_.elements);
        return copy;
    }
    /// A copy with this much dynamic shared memory for each block.
    GPUKernel shared_memory(std::size_t bytes) const {
        GPUKernel copy = *this;
        copy.geometry_.shared_bytes = bytes;
        return copy;
    }
    const std::string& name() const noexcept { return name_; }
    SourceLocation location() const noexcept { return where_; }
    F kernel() const noexcept { return kernel_; }
    const detail::KernelGeometry& geometry() const noexcept { return geometry_; }

  private:
    static void store(dim3 from, std::uint32_t (&to)[3]) noexcept {
        to[0] = from.x;
        to[1] = from.y;
        to[2] = from.z;
    }

    F kernel_;
    std::string name_;
    detail::KernelGeometry geometry_;
    SourceLocation where_;
};

}  // namespace KMM_DETAIL_FILE_KIND
}  // namespace kmm
