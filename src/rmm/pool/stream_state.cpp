// Implements stream_state.hpp.
#include "rmm/pool/stream_state.hpp"

#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

using rmm::detail::handle_of;

std::atomic<bool> captures_seen{false};

bool is_captured(driver::Driver& driver, cuda_stream_view stream) noexcept {
    driver::CaptureStatus status = driver::CaptureStatus::none;
    if (!driver.capture_status(handle_of(stream), &status, nullptr).ok()) {
        (void)driver.take_last_error();
        return false;
    }
    if (status == driver::CaptureStatus::none) return false;
    note_capture();
    return true;
}

std::uint64_t capture_of(driver::Driver& driver, cuda_stream_view stream) noexcept {
    if (normalized(stream) == rmm::detail::legacy_stream_handle()) return 0;
    driver::CaptureStatus status = driver::CaptureStatus::none;
    std::uint64_t id = 0;
    if (!driver.capture_status(handle_of(stream), &status, &id).ok()) {
        (void)driver.take_last_error();
        return 0;
    }
    return status == driver::CaptureStatus::active ? id : 0;
}

bool is_of_other_device(driver::Driver& driver, int device, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    if (handle == rmm::detail::legacy_stream_handle() || handle == rmm::detail::per_thread_stream_handle())
        return false;
    int of = device;
    if (!driver.stream_device(handle_of(stream), &of).ok()) (void)driver.take_last_error();
    return of != device;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
