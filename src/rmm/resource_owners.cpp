// Implements resource_owners.hpp.
#include "rmm/resource_owners.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/never_destroyed.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

struct owners {
    std::mutex mutex;
    std::unordered_map<int, owned_resource> of_device;
};
owners& all() { return ::kmm::driver::never_destroyed<owners>(); }

}  // namespace

std::shared_ptr<void> set_resource_with_owner(cuda_device_id device, mr::device_memory_resource* object,
                                              std::shared_ptr<void> owner) {
    refuse_after_fork();
    const driver::DriverUse use;  // whoever forks meanwhile leaves a child that must not wait for this lock
    owners& known = all();
    const std::lock_guard in(known.mutex);
    owned_resource& entry = known.of_device[device.value()];
    mr::set_per_device_resource(device, object);
    entry.object = object;
    return std::exchange(entry.owner, std::move(owner));
}

owned_resource resource_with_owner(cuda_device_id device) {
    refuse_after_fork();
    const driver::DriverUse use;
    owners& known = all();
    const std::lock_guard in(known.mutex);
    mr::device_memory_resource* const now = mr::get_per_device_resource(device);
    const auto at = known.of_device.find(device.value());
    // C++ may have set another since.
    if (at == known.of_device.end() || at->second.object != now) return {now, nullptr};
    return at->second;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
