// Implements <rmm/prefetch.hpp> and the compiled part of prefetch_resource_adaptor. Any thread; queues work, waits for
// nothing.
#include "rmm/prefetch.hpp"

#include "rmm/detail/runtime_capabilities.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/detail/prefetch_adaptor.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

void prefetch_bytes(void const* ptr, std::size_t size, cuda_device_id device, cuda_stream_view stream) {
    if (size == 0 || ptr == nullptr || !concurrent_managed_access::is_supported()) return;
    driver::Driver& d = the_driver();
    constexpr int host = -1;
    // An argument that the driver refuses means memory that is not managed, unless it is the device.
    if (device.value() != host && (device.value() < 0 || device.value() >= d.device_count())) {
        constexpr int native_invalid_device = 101;
        check({driver::Code::invalid_argument, native_invalid_device});
    }
    const driver::Status status = d.prefetch(ptr, size, device.value(), handle_of(stream));
    if (status.code == driver::Code::invalid_argument || status.code == driver::Code::not_supported)
        (void)d.take_last_error();
    else
        check(status);
}

}  // namespace detail

namespace mr {
namespace detail {

prefetch_adaptor::~prefetch_adaptor() = default;

void* prefetch_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    void* const ptr = upstream_allocate(bytes, stream);
    try {
        rmm::detail::prefetch_bytes(ptr, bytes, get_current_cuda_device(), rmm::detail::meant(stream));
    } catch (...) {
        undo_upstream_allocate(ptr, bytes, stream);
        throw;
    }
    return ptr;
}

void prefetch_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    upstream_deallocate(ptr, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
