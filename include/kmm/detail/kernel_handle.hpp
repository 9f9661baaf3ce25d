// From a pointer to a `__global__` function, in the user's file, to the handle that the runtime's driver launches.
//
// Owns: the cache of native handles of this process's user code. Must not know: the runtime. Any thread. C++17.
#pragma once

#include <cstdint>

#include "kmm/core/backends.hpp"
#include "kmm/detail/kernel_handle_table.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/emulation.hpp"
#include "kmm/emulation/vector_types.hpp"
#include "kmm/error.hpp"

namespace kmm {
namespace detail {

/// DE: a kernel has no code for a device. `device` is the native ordinal.
[[noreturn]] void throw_kernel_not_found(LauncherInfo::Mode mode, int device, int status, const char* status_name,
                                         const char* status_text);
/// NA: a file without the emulation that is compiled for no driver has no kernels.
[[noreturn]] void throw_no_emulation();

inline namespace KMM_DETAIL_FILE_KIND {

/// Stands for the kind of file in the symbols of templates whose other parameters are the same in all.
struct FileKind {};

#ifdef KMM_USE_CUDA
inline constexpr LauncherInfo::Mode kernel_mode = LauncherInfo::Mode::cuda;

/// Handles already asked for, by kernel and ordinal of the device.
inline KernelHandleTable<> kernel_handles;

/// Makes a device current in the user's copy of the CUDA runtime for a scope.
class UserDeviceScope {
  public:
    explicit UserDeviceScope(int device) {
        if (cudaGetDevice(&previous_) == cudaSuccess && previous_ != device) {
            changed_ = cudaSetDevice(device) == cudaSuccess;
        }
    }
    ~UserDeviceScope() {
        if (changed_) (void)cudaSetDevice(previous_);
    }
    UserDeviceScope(const UserDeviceScope&) = delete;
    UserDeviceScope& operator=(const UserDeviceScope&) = delete;

  private:
    int previous_ = 0;
    bool changed_ = false;
};

/// The handle of a kernel on the device with this native ordinal. DE.
template<typename... P>
const void* kernel_handle(void (*kernel)(P...), int ordinal) {
    const void* symbol = reinterpret_cast<const void*>(kernel);
    const auto variant = static_cast<std::uintptr_t>(ordinal);
    if (const void* known = kernel_handles.find(symbol, variant)) return known;
    UserDeviceScope scope(ordinal);
    cudaFunction_t function = nullptr;
    const cudaError_t status = cudaGetFuncBySymbol(&function, symbol);
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        throw_kernel_not_found(LauncherInfo::Mode::cuda, ordinal, static_cast<int>(status), cudaGetErrorName(status),
                               cudaGetErrorString(status));
    }
    const void* handle = reinterpret_cast<const void*>(function);
    (void)kernel_handles.insert(symbol, variant, handle);  // without memory for it, the driver is asked again
    return handle;
}

#elif defined(KMM_USE_HIP)
inline constexpr LauncherInfo::Mode kernel_mode = LauncherInfo::Mode::hip;

/// HIP launches by the address of the kernel's host function; its runtime finds the code of the current device.
template<typename... P>
const void* kernel_handle(void (*kernel)(P...), int) {
    return reinterpret_cast<const void*>(kernel);
}

#elif !defined(KMM_NO_EMULATION) && !KMM_DETAIL_HAS_DEVICE_CODE
inline constexpr LauncherInfo::Mode kernel_mode = LauncherInfo::Mode::host;

template<typename... P>
const void* kernel_handle(void (*kernel)(P...), int) {
    return kmm::emulation::kernel_handle(kernel);
}

#else
inline constexpr LauncherInfo::Mode kernel_mode = LauncherInfo::Mode::host;

template<typename... P>
const void* kernel_handle(void (*)(P...), int) {
    throw_no_emulation();
}
#endif

}  // namespace KMM_DETAIL_FILE_KIND
}  // namespace detail
}  // namespace kmm
