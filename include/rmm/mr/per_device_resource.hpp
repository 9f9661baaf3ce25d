// The resource that containers take when they are given none: one for each device.
//
// One table for the process. All functions are thread-safe against one another; the result of racing setters is one of
// them. The caller keeps a resource alive until its last use; nothing is destroyed here, at process exit either.
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// The process-wide cuda_memory_resource that serves every device until another is set.
device_memory_resource* initial_resource();

/// The resource of the current device, and that device: one question to the driver for both.
struct current_resource {
    device_async_resource_ref ref;
    cuda_device_id device;
};
current_resource get_current_resource();

}  // namespace detail

/// After `set_*_ref(r)` the pointer is that of the object of `r` if it derives from device_memory_resource, else of a
/// resource that allocates through `r`.
device_memory_resource* get_per_device_resource(cuda_device_id device_id);
/// Returns the previous one. Null restores the initial resource.
device_memory_resource* set_per_device_resource(cuda_device_id device_id, device_memory_resource* new_mr);

device_async_resource_ref get_per_device_resource_ref(cuda_device_id device_id);
/// Returns the previous one. A reference to null restores the initial resource.
device_async_resource_ref set_per_device_resource_ref(cuda_device_id device_id,
                                                      device_async_resource_ref new_resource_ref);
device_async_resource_ref reset_per_device_resource_ref(cuda_device_id device_id);

// The same for the device that is current on the calling thread.
device_memory_resource* get_current_device_resource();
device_memory_resource* set_current_device_resource(device_memory_resource* new_mr);
device_async_resource_ref get_current_device_resource_ref();
device_async_resource_ref set_current_device_resource_ref(device_async_resource_ref new_resource_ref);
device_async_resource_ref reset_current_device_resource_ref();

/// Names from before 0.16.
inline device_memory_resource* get_default_resource() { return get_current_device_resource(); }
inline device_memory_resource* set_default_resource(device_memory_resource* new_mr) {
    return set_current_device_resource(new_mr);
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
