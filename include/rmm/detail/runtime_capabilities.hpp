// What the current device and the process's driver can do. Answers are remembered for each device; a refused query leaves
// no error behind. Any thread.
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

/// Handles by which other processes can open a pool. The parameter takes a `cudaMemAllocationHandleType`. True only for
/// what cuda_async_memory_resource can create, which is no handle (0).
struct export_handle_type {
    static bool is_supported(int handle_type);
};

/// Memory that the decompression engine can read. False: our driver layer does not ask for such memory.
struct hwdecompress {
    static bool is_supported();
};

/// Managed memory that host and device may use at the same time.
struct concurrent_managed_access {
    static bool is_supported();
};

/// Stream-ordered pools of managed memory (25.12). False: the driver layer has none.
struct runtime_async_managed_alloc {
    static bool is_supported();
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
