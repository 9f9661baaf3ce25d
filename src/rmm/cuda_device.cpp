// Implements <rmm/cuda_device.hpp>. Any thread.
#include "rmm/cuda_device.hpp"

#include <string>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {

cuda_device_id get_current_cuda_device() { return cuda_device_id{detail::current_device()}; }

int get_num_cuda_devices() {
    try {
        return detail::the_driver().device_count();
    } catch (...) {
        return -1;  // promised not to throw; whatever needs the driver next says why there is none
    }
}

std::pair<std::size_t, std::size_t> available_device_memory() {
    detail::driver::Driver& driver = detail::the_driver();
    int device = -1;
    detail::check(driver.current_device(&device));
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    detail::check(driver.memory_info(device, &free_bytes, &total_bytes));
    return {free_bytes, total_bytes};
}

std::size_t percent_of_free_device_memory(int percent) {
    const auto free_bytes = static_cast<double>(available_device_memory().first);
    return align_down(static_cast<std::size_t>(free_bytes * (static_cast<double>(percent) / 100.0)),
                      CUDA_ALLOCATION_ALIGNMENT);
}

cuda_set_device_raii::cuda_set_device_raii(cuda_device_id dev_id)
    : old_device_{get_current_cuda_device()}, needs_reset_{dev_id.value() >= 0 && old_device_ != dev_id} {
    detail::refuse_after_fork();
    if (!needs_reset_) return;
    detail::driver::Driver& driver = detail::the_driver();
    const int present = driver.device_count();
    if (dev_id.value() >= present)
        throw rmm::cuda_error(
            kmm::driver::format("device {} cannot be made current: the {} driver has {} (numbered from 0)",
                                dev_id.value(), driver.name(), present));
    detail::check(driver.set_current_device(dev_id.value()));
}

cuda_set_device_raii::~cuda_set_device_raii() noexcept {
    if (needs_reset_ && !detail::lost_in_fork())
        detail::report_failure(detail::the_driver().set_current_device(old_device_.value()),
                               "make the previous device current again");
}

}  // namespace kmm_v0
}  // namespace rmm
