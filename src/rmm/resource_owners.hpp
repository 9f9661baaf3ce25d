// Who keeps the resource of a device alive: for those that allocate from it now and free to the same one later, whichever is set then.
//
// Owns: a reference to each owner that was given with a resource, until another resource is given. Must not know: what an owner is.
// Any thread.
#pragma once

#include <memory>

#include "rmm/cuda_device.hpp"
#include "rmm/mr/device_memory_resource.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

struct owned_resource {
    mr::device_memory_resource* object = nullptr;
    std::shared_ptr<void> owner;  ///< none, where whoever set the resource keeps it alive himself
};

/// As mr::set_per_device_resource. Returns the owner of before, so that the caller may let go of it without locks.
[[nodiscard]] std::shared_ptr<void> set_resource_with_owner(cuda_device_id device, mr::device_memory_resource* object,
                                                            std::shared_ptr<void> owner);
/// The resource of the device now. Constant time, under a lock.
owned_resource resource_with_owner(cuda_device_id device);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
