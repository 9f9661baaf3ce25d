// Copies between pageable memory of the host and a device through page-locked memory of ours: while one piece crosses
// the link, the processor copies the next. Drivers do the same piece by piece, without the overlap.
//
// Owns: page-locked pieces, kept for the next copy until the process ends. Must not know: Python, buffers. Any thread.
#pragma once

#include <cstddef>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// Each does the whole copy on the legacy default stream of the current device, and returns when it is done; or does
/// nothing and returns false, where the driver's own way is as good: few bytes, memory of the host that is page-locked,
/// no page-locked memory to be had. On the host driver both ways are copies by the processor: callers leave this one
/// out there. Throws rmm::cuda_error. Which of the addresses is the host's must be true.
bool copy_staged_to_device(void* to, const void* from_host, std::size_t bytes);
bool copy_staged_to_host(void* to_host, const void* from, std::size_t bytes);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
