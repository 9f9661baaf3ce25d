// Implements <rmm/detail/host_memory.hpp>. Any thread.
#include "rmm/detail/host_memory.hpp"

#include "rmm/host_memory.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

bool hands_out_in_stream_order(host_resource_ref const& mr) noexcept {
    const raw_ref& raw = mr.raw();
    if (raw.operations->allocate == nullptr) return false;
    if (raw.operations == &device_memory_resource_operations)
        return static_cast<mr::device_memory_resource*>(raw.resource)->supports_streams();
    // Has the calls and ignores the stream. Resources of programs that have them are believed.
    return raw.operations->equal != operations_of<mr::pinned_memory_resource>::value.equal;
}

host_resource_ref default_host_resource() {
    // Never destroyed: memory may be freed by destructors of static objects.
    static auto& pinned = *new mr::pinned_host_memory_resource;
    return host_resource_ref{pinned};
}

void* allocate_host(host_resource_ref const& mr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream,
                    cuda_stream_view meant) {
    if (bytes == 0) return nullptr;
    const raw_ref& raw = mr.raw();
    if (raw.operations->allocate == nullptr) return raw.operations->allocate_sync(raw.resource, bytes, alignment);
    void* const ptr = allocate_on(raw, bytes, alignment, stream, meant);
    if (!hands_out_in_stream_order(mr)) return ptr;
    const driver::Status waited = the_driver().synchronize_stream(handle_of(meant));
    if (!waited.ok()) {
        deallocate_host(mr, ptr, bytes, alignment, stream, meant);
        check(waited);
    }
    return ptr;
}

void deallocate_host(host_resource_ref const& mr, void* ptr, std::size_t bytes, std::size_t alignment,
                     cuda_stream_view stream, cuda_stream_view meant) noexcept {
    if (ptr == nullptr) return;
    const raw_ref& raw = mr.raw();
    try {
        if (raw.operations->deallocate != nullptr)
            deallocate_on(raw, ptr, bytes, alignment, stream, meant);
        else
            raw.operations->deallocate_sync(raw.resource, ptr, bytes, alignment);
    } catch (...) {
        mr::detail::report_throw_in_deallocate();
    }
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
