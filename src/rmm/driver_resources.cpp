// Implements the resources that hand every request to the driver: cuda, managed, pinned host. Any thread.
#include "rmm/detail/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"

#include "rmm/aligned.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/detail/aligned.hpp"
#include "rmm/ledger.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/pinning.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

namespace driver = rmm::detail::driver;

void* allocate_pinned(std::size_t bytes, const char* what) {
    rmm::detail::refuse_after_fork();
    void* ptr = nullptr;
    const driver::Status status = rmm::detail::allocate_pinned(rmm::detail::the_driver(), bytes, &ptr);
    if (!status.ok()) rmm::detail::throw_allocation_failure(status, bytes, what, rmm::detail::memory_place::host);
    return ptr;
}

void free_pinned(void* ptr) noexcept {
    if (rmm::detail::lost_in_fork()) return;
    rmm::detail::report_failure(rmm::detail::free_pinned(rmm::detail::the_driver(), ptr), "free pinned memory");
}

// Never destroyed: resources that are statics are used at exit.
rmm::detail::block_record& device_blocks() {
    static auto* const blocks = new rmm::detail::block_record("cuda_memory_resource", "cuda_memory_resource", true);
    return *blocks;
}
// Pages of managed memory are on the device when they are used there; how many, the driver does not say.
rmm::detail::block_record& managed_blocks() {
    static auto* const blocks =
        new rmm::detail::block_record("managed_memory_resource", "managed_memory_resource", false);
    return *blocks;
}

// What the driver's pinned allocations are aligned to: whole pages on every driver, of which we promise this much.
constexpr std::size_t pinned_alignment = CUDA_ALLOCATION_ALIGNMENT;

}  // namespace

cuda_memory_resource::~cuda_memory_resource() = default;

void* cuda_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    driver::Driver& d = rmm::detail::the_driver();
    int device = -1;
    rmm::detail::check(d.current_device(&device));
    const rmm::detail::transit_scope transit(device);
    void* const ptr = rmm::detail::allocate_or_reclaim(device, bytes, stream, nullptr, "cuda_memory_resource",
                                                       [&](void** out) { return d.allocate(device, bytes, out); });
    device_blocks().note(device, ptr, bytes);
    return ptr;
}

void cuda_memory_resource::do_deallocate(void* ptr, std::size_t, cuda_stream_view) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    const auto until_free = device_blocks().forget(ptr);
    rmm::detail::report_failure(rmm::detail::the_driver().free(ptr), "free device memory");
}

bool cuda_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<cuda_memory_resource const*>(&other) != nullptr;
}

std::pair<std::size_t, std::size_t> cuda_memory_resource::do_get_mem_info(cuda_stream_view) const {
    return available_device_memory();
}

managed_memory_resource::~managed_memory_resource() = default;

void* managed_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    driver::Driver& d = rmm::detail::the_driver();
    const int device = rmm::detail::current_device();
    void* const ptr = rmm::detail::allocate_or_reclaim(device, bytes, stream, nullptr, "managed_memory_resource",
                                                       [&](void** out) { return d.allocate_managed(bytes, out); });
    managed_blocks().note(device, ptr, bytes);
    return ptr;
}

void managed_memory_resource::do_deallocate(void* ptr, std::size_t, cuda_stream_view) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    const auto until_free = managed_blocks().forget(ptr);
    rmm::detail::report_failure(rmm::detail::the_driver().free(ptr), "free managed memory");
}

bool managed_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<managed_memory_resource const*>(&other) != nullptr;
}

std::pair<std::size_t, std::size_t> managed_memory_resource::do_get_mem_info(cuda_stream_view) const {
    return available_device_memory();
}

pinned_host_memory_resource::~pinned_host_memory_resource() = default;

void* pinned_host_memory_resource::allocate(std::size_t bytes, std::size_t alignment) {
    detail::expect_plain_alignment(alignment);
    return bytes == 0 ? nullptr : allocate_pinned(bytes, "pinned_host_memory_resource");
}

void pinned_host_memory_resource::deallocate(void* ptr, std::size_t, std::size_t) noexcept {
    if (ptr != nullptr) free_pinned(ptr);
}

void* pinned_host_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }

void pinned_host_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    // What the driver's own call does by waiting for whoever uses the memory: pages that are given back are gone at once.
    if (rmm::detail::lost_in_fork()) return;
    if (ptr != nullptr && bytes >= rmm::detail::pin_from_bytes) {
        driver::Driver& d = rmm::detail::the_driver();
        driver::CaptureStatus capture = driver::CaptureStatus::none;
        std::uint64_t id = 0;
        const driver::StreamHandle handle = rmm::detail::handle_of(rmm::detail::meant(stream));
        if (!d.capture_status(handle, &capture, &id).ok()) (void)d.take_last_error();
        if (capture == driver::CaptureStatus::none)
            rmm::detail::report_failure(d.synchronize_stream(handle), "wait for the users of pinned memory");
    }
    deallocate(ptr, bytes);
}

bool pinned_host_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<pinned_host_memory_resource const*>(&other) != nullptr;
}

pinned_memory_resource::~pinned_memory_resource() = default;

void* pinned_memory_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) return nullptr;
    if (!is_supported_alignment(alignment) || alignment <= pinned_alignment)
        return allocate_pinned(bytes, "pinned_memory_resource");
    return rmm::detail::aligned_host_allocate(
        bytes, alignment, [](std::size_t padded) { return allocate_pinned(padded, "pinned_memory_resource"); });
}

void pinned_memory_resource::do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    if (!is_supported_alignment(alignment) || alignment <= pinned_alignment)
        free_pinned(ptr);
    else
        rmm::detail::aligned_host_deallocate(ptr, bytes, alignment, [](void* original) { free_pinned(original); });
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
