// Implements <rmm/detail/runtime_capabilities.hpp>. Any thread.
#include "rmm/detail/runtime_capabilities.hpp"

#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

// CUDA's numbers of device attributes, which every driver answers.
constexpr int attribute_concurrent_managed_access = 89;
constexpr int attribute_memory_pools_supported = 115;
constexpr int attribute_memory_pool_handle_types = 119;

/// The attribute of the current device, or `otherwise` where the driver does not know.
bool has_attribute(int number, bool otherwise) {
    driver::Driver& d = the_driver();
    int value = 0;
    const driver::Status status = d.attribute(current_device(), number, &value);
    if (!status.ok()) (void)d.take_last_error();
    return status.ok() ? value == 1 : otherwise;
}

}  // namespace

bool runtime_async_alloc::is_supported() {
    return the_driver().capabilities().memory_pools && has_attribute(attribute_memory_pools_supported, true);
}

bool runtime_async_alloc::is_export_handle_type_supported(int handle_type) {
    return export_handle_type::is_supported(handle_type);
}

bool runtime_async_alloc::is_hwdecompress_supported() { return hwdecompress::is_supported(); }

bool export_handle_type::is_supported(int handle_type) {
    if (handle_type == 0) return true;
    driver::Driver& d = the_driver();
    int supported = 0;
    const driver::Status status = d.attribute(current_device(), attribute_memory_pool_handle_types, &supported);
    if (status.code == driver::Code::invalid_argument) {
        (void)d.take_last_error();  // a driver that does not know the question
        return false;
    }
    check(status);
    return (handle_type & supported) == handle_type;
}

bool hwdecompress::is_supported() { return the_driver().capabilities().hardware_decompression; }

bool concurrent_managed_access::is_supported() {
    return the_driver().capabilities().managed_memory && has_attribute(attribute_concurrent_managed_access, false);
}

bool runtime_async_managed_alloc::is_supported() {
    return the_driver().capabilities().managed_pools && concurrent_managed_access::is_supported();
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
