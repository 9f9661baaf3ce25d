// From a pointer to a `__global__` function, in the user's file, to the handle that the runtime's driver launches.
//
// Owns: the cache of native handles of this process's user code. Must not know: the runtime. Any thread. C++17.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kmm/core/backends.hpp"
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

#if KMM_USE_CUDA
inline constexpr LauncherInfo::Mode kernel_mode = LauncherInfo::Mode::cuda;

/// Handles already asked for, by kernel and device. Lock-free: an entry is published by its kernel, once, and never
/// changes; when the table is full it is searched, and the driver asked (0.2 µs), each time.
class KernelHandleCache {
  public:
    const void* find(const void* kernel, int device) const noexcept {
        for (std::size_t probe = 0; probe < num_entries; probe++) {
            const Entry& entry = entries_[slot(kernel, device, probe)];
            const int state = entry.state.load(std::memory_order_acquire);
            if (state == empty) return nullptr;
            if (state == ready && entry.kernel == kernel && entry.device == device) return entry.handle;
        }
        return nullptr;
    }
    void insert(const void* kernel, int device, const void* handle) noexcept {
        for (std::size_t probe = 0; probe < num_entries; probe++) {
            Entry& entry = entries_[slot(kernel, device, probe)];
            int expected = empty;
            if (!entry.state.compare_exchange_strong(expected, filling, std::memory_order_acquire)) continue;
            entry.kernel = kernel;
            entry.device = device;
            entry.handle = handle;
            entry.state.store(ready, std::memory_order_release);
            return;
        }
    }

  private:
    enum : int { empty, filling, ready };
    struct Entry {
        std::atomic<int> state{empty};
        int device = 0;
        const void* kernel = nullptr;
        const void* handle = nullptr;
    };
    static constexpr std::size_t num_entries = 1024;  // kernels times devices of a large program; 24 KiB
    static std::size_t slot(const void* kernel, int device, std::size_t probe) noexcept {
        // Functions are 16-byte aligned at least: the low bits say nothing.
        return ((reinterpret_cast<std::uintptr_t>(kernel) >> 4) * 31 + static_cast<std::size_t>(device) + probe) %
               num_entries;
    }
    Entry entries_[num_entries];
};

inline KernelHandleCache kernel_handle_cache;

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
    if (const void* known = kernel_handle_cache.find(symbol, ordinal)) return known;
    UserDeviceScope scope(ordinal);
    cudaFunction_t function = nullptr;
    const cudaError_t status = cudaGetFuncBySymbol(&function, symbol);
    if (status != cudaSuccess) {
        (void)cudaGetLastError();
        throw_kernel_not_found(LauncherInfo::Mode::cuda, ordinal, static_cast<int>(status), cudaGetErrorName(status),
                               cudaGetErrorString(status));
    }
    kernel_handle_cache.insert(symbol, ordinal, reinterpret_cast<const void*>(function));
    return reinterpret_cast<const void*>(function);
}

#elif KMM_USE_HIP
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
