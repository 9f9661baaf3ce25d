// What the current device and the process's driver can do. The driver is asked each time; a refused query leaves no
// error behind. Any thread.
#pragma once

#include <rmm/detail/export.hpp>

/// First CUDA driver version (12.8) with hardware decompression.
#define RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION 12080

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Stream-ordered memory pools of the driver.
struct runtime_async_alloc {
    static bool is_supported();
    /// The names of 25.06.
    static bool is_export_handle_type_supported(int handle_type);
    static bool is_hwdecompress_supported();
};

/// Handles by which other processes can open a pool. The parameter takes a `cudaMemAllocationHandleType`; all its bits
/// must be supported. No handle (0) always is. Throws rmm::cuda_error if the driver cannot be asked.
struct export_handle_type {
    static bool is_supported(int handle_type);
};

/// Pools whose memory the decompression engine can read (CUDA 12.8, toolkit and driver).
struct hwdecompress {
    static bool is_supported();
};

/// Managed memory that host and device may use at the same time.
struct concurrent_managed_access {
    static bool is_supported();
};

/// Stream-ordered pools of managed memory (CUDA 13, toolkit and driver), shared by host and device at any time.
struct runtime_async_managed_alloc {
    static bool is_supported();
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
