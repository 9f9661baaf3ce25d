// Host memory of any resource, for the host to use. The work is compiled (src/rmm/host_memory.cpp).
#pragma once

#include <cstddef>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Page-locked memory: one pinned_host_memory_resource for the process, never destroyed.
host_resource_ref default_host_resource();

/// Memory that the host may use when the call returns: waits for the stream where the resource hands out memory in
/// stream order. 0 bytes are null and ask nobody. `stream` is what a resource of the program sees, `meant` what is
/// meant by it.
void* allocate_host(host_resource_ref const& mr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream,
                    cuda_stream_view meant);
/// On the stream where the resource is stream-ordered. Waits for nothing that the resource does not wait for. Null:
/// nothing.
void deallocate_host(host_resource_ref const& mr, void* ptr, std::size_t bytes, std::size_t alignment,
                     cuda_stream_view stream, cuda_stream_view meant) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
