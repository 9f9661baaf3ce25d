// What a pool asks the driver about a stream: whether it is captured, and of which device it is.
//
// Owns: whether any stream was seen captured, once for the process. Must not know: pools. Any thread, without a lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/driver.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace driver = ::kmm::driver;

/// Both values of the legacy default stream as one.
inline cudaStream_t normalized(cuda_stream_view stream) noexcept {
    return stream.value() == nullptr ? rmm::detail::legacy_stream_handle() : stream.value();
}
/// Whether any pool of the process was called with a stream that was being captured.
extern std::atomic<bool> captures_seen;
inline bool has_seen_captures() noexcept { return captures_seen.load(std::memory_order_relaxed); }
inline void note_capture() noexcept { captures_seen.store(true, std::memory_order_relaxed); }
/// Notes a capture, too.
bool is_captured(driver::Driver& driver, cuda_stream_view stream) noexcept;
/// The id of the stream's capture; 0: it is not captured, or cannot be.
std::uint64_t capture_of(driver::Driver& driver, cuda_stream_view stream) noexcept;
bool is_of_other_device(driver::Driver& driver, int device, cuda_stream_view stream) noexcept;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
