// Whether the calling thread may touch device memory: it runs an emulated kernel, or a task on the host driver. Owns
// one counter for each thread; the runtime and the emulation raise and lower it, views read it.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_IS_RTC

namespace kmm::detail {

/// Nesting depth, on this thread, of tasks on the host driver and of emulated kernels.
inline thread_local int device_access_depth = 0;

/// Whether an emulated kernel runs here that did not raise the counter. Not inline: views ask only if the counter is 0.
bool device_access_allowed_without_scope() noexcept;

inline bool device_access_allowed() noexcept {
    return device_access_depth > 0 || device_access_allowed_without_scope();
}

/// Allows device access on this thread while it lives. Made for each block range of an emulated kernel and each task on
/// the host driver; costs an increment.
class DeviceAccessScope {
  public:
    DeviceAccessScope() noexcept { ++device_access_depth; }
    ~DeviceAccessScope() { --device_access_depth; }
    DeviceAccessScope(const DeviceAccessScope&) = delete;
    DeviceAccessScope& operator=(const DeviceAccessScope&) = delete;
};

}  // namespace kmm::detail

#endif
