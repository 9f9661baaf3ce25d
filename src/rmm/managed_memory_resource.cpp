// Implements <rmm/mr/managed_memory_resource.hpp>: every request goes to the driver. Any thread.
#include "rmm/mr/managed_memory_resource.hpp"

#include <cstddef>
#include <utility>

#include "rmm/captured_frees.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/ledger.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

namespace driver = rmm::detail::driver;

// Never destroyed: resources that are statics are used at exit. Pages of managed memory are on the device when they are
// used there; how many, the driver does not say.
rmm::detail::block_record& managed_blocks() {
    static auto* const blocks =
        new rmm::detail::block_record("managed_memory_resource", "managed_memory_resource", false);
    return *blocks;
}

void free_block(driver::Driver& d, void* ptr) noexcept {
    const auto until_free = managed_blocks().forget(ptr);
    rmm::detail::report_failure(d.free(ptr), "free managed memory");
}

}  // namespace

managed_memory_resource::~managed_memory_resource() = default;

void* managed_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    rmm::detail::note_allocation(rmm::detail::meant(stream));
    const int device = rmm::detail::current_device();
    void* const ptr = rmm::detail::allocate_or_reclaim(device, bytes, stream, nullptr, "managed_memory_resource",
                                                       [&](void** out) { return d.allocate_managed(bytes, out); });
    managed_blocks().note(device, ptr, bytes);
    return ptr;
}

void managed_memory_resource::do_deallocate(void* ptr, std::size_t, cuda_stream_view stream) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    if (!rmm::detail::defer_free(d, ptr, rmm::detail::meant(stream), &free_block)) free_block(d, ptr);
}

bool managed_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<managed_memory_resource const*>(&other) != nullptr;
}

std::pair<std::size_t, std::size_t> managed_memory_resource::do_get_mem_info(cuda_stream_view) const {
    return available_device_memory();
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
