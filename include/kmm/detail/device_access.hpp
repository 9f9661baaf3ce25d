// Whether the calling thread may touch device memory: it runs an emulated kernel, or a task on the host driver. Owns two
// counters for each thread; the runtime and the emulation raise and lower them, views and KMM_ASSERT read them.
#pragma once

namespace kmm::detail {

/// Nesting depth of tasks on the host driver that this thread runs. Raised and lowered by the runtime.
inline thread_local int device_access_depth = 0;
/// Nesting depth of emulated kernels that this thread runs. Raised and lowered by the emulation.
inline thread_local int emulated_kernel_depth = 0;

inline bool in_emulated_kernel() noexcept {
    return emulated_kernel_depth > 0;
}

inline bool device_access_allowed() noexcept {
    return (device_access_depth | emulated_kernel_depth) > 0;
}

/// Allows device access on this thread while it lives.
class DeviceAccessScope {
  public:
    DeviceAccessScope() noexcept {
        ++device_access_depth;
    }
    ~DeviceAccessScope() {
        --device_access_depth;
    }
    DeviceAccessScope(const DeviceAccessScope&) = delete;
    DeviceAccessScope& operator=(const DeviceAccessScope&) = delete;
};

}  // namespace kmm::detail
