// Frees on streams that are being captured, of resources that give their blocks back to the driver at once.
//
// What the stream captures uses the block each time the graph is launched. So the free is deferred until the graph,
// the executable graphs made of it, and their launches are gone. The driver tells of their end on any thread, and must
// not be called there: the block is listed, and freed by the next call of a resource that defers frees, or when the
// device is short of memory. Owns: the list. Must not know: resources. Any thread; there is no lock.
#pragma once

#include "rmm/cuda_stream_view.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

using deferred_free = void (*)(driver::Driver& d, void* ptr) noexcept;

/// For a free of `ptr` on `stream`, the handle that is meant. True: the stream is being captured, and `free` is called
/// when the graph is gone. Where the driver cannot tell of that, the block is never freed, which is reported. False:
/// the caller frees the block. Asks nothing about the legacy stream, which cannot be captured, nor about an
/// rmm::cuda_stream that has ended: a block may outlive it. Any other stream must exist.
[[nodiscard]] bool defer_free(driver::Driver& d, void* ptr, cuda_stream_view stream, deferred_free free) noexcept;

/// The stream that an allocation names exists: it may have the handle of an rmm::cuda_stream that has ended.
void note_allocation(cuda_stream_view stream) noexcept;

/// Waits for the users of memory that goes at once, for which the driver would not wait: for the stream, or where that
/// is an rmm::cuda_stream that has ended, whose work may go on, for all that the current device does.
[[nodiscard]] driver::Status wait_for_users(driver::Driver& d, cuda_stream_view stream) noexcept;

/// Frees the blocks of this driver whose graphs are gone. O(1) where there are none.
void free_deferred(driver::Driver& d) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
