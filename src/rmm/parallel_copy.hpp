// A copy inside the host's memory by several threads: one processor copies slower than a link to a device takes bytes.
//
// Owns: a few threads of the process, made at the first copy. Must not know: devices. Any thread.
#pragma once

#include <cstddef>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// As memcpy. Parts go to whichever thread is ready, so that one that wakes late delays nothing; while another copy has
/// the threads, the caller copies alone.
void copy_in_parallel(void* to, const void* from, std::size_t bytes);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
