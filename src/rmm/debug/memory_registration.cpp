// Implements memory_registration.hpp: the choice. Any thread.
#include "rmm/debug/memory_registration.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

bool is_being_captured(driver::Driver& driver, cuda_stream_view stream) noexcept {
    driver::CaptureStatus status = driver::CaptureStatus::none;
    if (driver.capture_status({stream.value()}, &status, nullptr).ok()) return status != driver::CaptureStatus::none;
    // The default stream, while another one is captured that is ordered with it.
    (void)driver.take_last_error();
    return true;
}

std::unique_ptr<memory_registration> make_memory_registration(driver::Driver& driver, bool nvtx, bool is_virtual) {
    if (driver.kind() == driver::Kind::host) return make_asan_registration(driver);
    return nvtx && !is_virtual ? make_nvtx_registration(driver) : nullptr;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
