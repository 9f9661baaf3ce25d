// How the runtime makes a DeviceResource and moves it from task to task.
//
// Owns: nothing. Must not know: tasks, lanes. A resource is used by one thread at a time, the one that runs the task.
#pragma once

#include <memory>

#include "driver/driver.hpp"
#include "kmm/core/resource.hpp"

namespace kmm::detail {

class DeviceResourceAccess {
  public:
    /// One for each lane, made once: the device's description is copied. `driver` must outlive it.
    static std::unique_ptr<DeviceResource> make(const DeviceInfo& info, driver::Driver& driver,
                                                driver::StreamHandle stream) {
        return std::unique_ptr<DeviceResource>(new DeviceResource(info, driver, stream.native));
    }
    /// Before each task: which chunk it works on, and the hooks of the kernels that it launches (may be null). Both
    /// must live until the task's function has returned, what the hooks name until its work is done.
    static void begin_task(DeviceResource& resource, const DomainChunk& chunk,
                           const driver::KernelHooks* hooks) noexcept {
        resource.chunk_ = &chunk;
        resource.hooks_ = hooks;
    }
    static driver::Driver& driver(const DeviceResource& resource) noexcept { return *resource.driver_; }
};

}  // namespace kmm::detail
