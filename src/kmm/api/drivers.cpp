// Owns: the public list of drivers. Any thread.
#include "kmm/api/drivers.hpp"

#include "driver/registry.hpp"
#include "kmm/engine/device_error.hpp"

namespace kmm {

std::vector<DriverStatus> available_drivers() {
    std::vector<DriverStatus> result;
    for (const driver::Candidate& candidate : driver::candidates()) {
        DriverStatus status;
        status.driver = detail::driver_kind(candidate.kind);
        status.usable = candidate.usable;
        status.reason = candidate.reason;
        status.num_devices = candidate.num_devices > 0 ? static_cast<std::size_t>(candidate.num_devices) : 0;
        result.push_back(status);
    }
    return result;
}

}  // namespace kmm
