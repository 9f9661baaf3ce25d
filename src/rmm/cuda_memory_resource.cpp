// Implements <rmm/mr/cuda_memory_resource.hpp>: every request goes to the driver. Any thread.
#include "rmm/mr/cuda_memory_resource.hpp"

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

// Never destroyed: resources that are statics are used at exit.
rmm::detail::block_record& device_blocks() {
    static auto* const blocks = new rmm::detail::block_record("cuda_memory_resource", "cuda_memory_resource", true);
    return *blocks;
}

void free_block(driver::Driver& d, void* ptr) noexcept {
    const auto until_free = device_blocks().forget(ptr);
    rmm::detail::report_failure(d.free(ptr), "free device memory");
}

}  // namespace

cuda_memory_resource::~cuda_memory_resource() = default;

void* cuda_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    rmm::detail::note_allocation(rmm::detail::meant(stream));
    int device = -1;
    rmm::detail::check(d.current_device(&device));
    const rmm::detail::transit_scope transit(device);
    void* const ptr = rmm::detail::allocate_or_reclaim(device, bytes, stream, nullptr, "cuda_memory_resource",
                                                       [&](void** out) { return d.allocate(device, bytes, out); });
    device_blocks().note(device, ptr, bytes);
    return ptr;
}

void cuda_memory_resource::do_deallocate(void* ptr, std::size_t, cuda_stream_view stream) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    if (!rmm::detail::defer_free(d, ptr, rmm::detail::meant(stream), &free_block)) free_block(d, ptr);
}

bool cuda_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<cuda_memory_resource const*>(&other) != nullptr;
}

std::pair<std::size_t, std::size_t> cuda_memory_resource::do_get_mem_info(cuda_stream_view) const {
    return available_device_memory();
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
