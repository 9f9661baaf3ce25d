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

/// Memory that the host may use when the call returns: synchronises the stream if the resource allocates in stream
/// order. 0 bytes: null, without a call of the resource. Resources of the program receive the handle `stream`, which
/// stands for the stream `meant`.
void* allocate_host(host_resource_ref const& mr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream,
                    cuda_stream_view meant);
/// On the stream if the resource is stream-ordered. Blocks only if the resource does. Ignores null.
void deallocate_host(host_resource_ref const& mr, void* ptr, std::size_t bytes, std::size_t alignment,
                     cuda_stream_view stream, cuda_stream_view meant) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
