// From a driver's status to kmm::DeviceError, for code that runs inside tasks.
//
// Owns: nothing. Must not know: tasks. Any thread.
#pragma once

#include <cstdint>

#include "driver/driver.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/error.hpp"

namespace kmm::detail {

DriverKind driver_kind(driver::Kind kind) noexcept;
const char* driver_text(driver::Kind kind) noexcept;      ///< "cuda"
const char* mode_text(LauncherInfo::Mode mode) noexcept;  ///< "CUDA (nvcc)"

/// The exception for a failed call on `device`; clears the thread's pending native error. `attempted` completes
/// "... failed", e.g. "a copy in a task".
[[noreturn]] void throw_device_error(driver::Driver& driver, int device, driver::Status status, const char* attempted);

inline void check_device(driver::Driver& driver, int device, driver::Status status, const char* attempted) {
    if (!status.ok()) throw_device_error(driver, device, status, attempted);
}

/// NA unless kernels compiled in `mode` run on `kind`. `who` begins the text: a place, or a function.
void require_kernel_mode(driver::Kind kind, LauncherInfo::Mode mode, const char* who);

/// IA naming axis and limit if a launch does not fit the device.
void check_launch_geometry(const DeviceInfo& device, const std::uint32_t (&grid)[3], const std::uint32_t (&block)[3],
                           std::size_t shared_bytes);

}  // namespace kmm::detail
