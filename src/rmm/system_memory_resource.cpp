// Implements <rmm/mr/system_memory_resource.hpp> and <rmm/mr/sam_headroom_memory_resource.hpp>. Any thread; deallocate
// waits for its stream.
#include "rmm/mr/system_memory_resource.hpp"

#include <cstdlib>

#include "rmm/captured_frees.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/headroom.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

namespace driver = rmm::detail::driver;

// CUDA's number of the attribute, which every driver answers.
constexpr int attribute_pageable_memory_access = 88;

constexpr int host = -1;

// A process has no more addresses, so such a request is refused before an allocator that ends the process over it
// (those of the sanitizers) sees it.
constexpr std::size_t addresses_of_a_process = std::size_t{1} << 48;

/// For a resource of the class `what`.
void* allocate_pageable(std::size_t bytes, const char* what) {
    rmm::detail::refuse_after_fork();
    void* ptr = nullptr;
    // At least one byte, so that every address is another's.
    if (bytes > addresses_of_a_process || posix_memalign(&ptr, CUDA_ALLOCATION_ALIGNMENT, bytes == 0 ? 1 : bytes) != 0)
        rmm::detail::throw_host_out_of_memory(bytes, what);
    return ptr;
}

}  // namespace

namespace detail {

bool is_system_memory_supported(cuda_device_id device_id) {
    int value = 0;
    rmm::detail::check(
        rmm::detail::the_driver().attribute(device_id.value(), attribute_pageable_memory_access, &value));
    return value == 1;
}

}  // namespace detail

system_memory_resource::system_memory_resource() {
    RMM_EXPECTS(detail::is_system_memory_supported(get_current_cuda_device()),
                "System memory allocator is not supported with this hardware/software version: the current device does "
                "not reach pageable host memory; use a " +
                    rmm::detail::with_class_names("managed_memory_resource"));
}

system_memory_resource::~system_memory_resource() = default;

void* system_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::note_allocation(rmm::detail::meant(stream));
    return allocate_pageable(bytes, "system_memory_resource");
}

void system_memory_resource::do_deallocate(void* ptr, std::size_t, cuda_stream_view stream) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    const cuda_stream_view meant = rmm::detail::meant(stream);
    if (rmm::detail::defer_free(d, ptr, meant, [](driver::Driver&, void* block) noexcept { std::free(block); })) return;
    // The host's allocator knows no streams: the block must be unused when it gets it.
    rmm::detail::report_failure(rmm::detail::wait_for_users(d, meant),
                                "wait for the stream on which system memory is freed");
    std::free(ptr);
}

bool system_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    return dynamic_cast<system_memory_resource const*>(&other) != nullptr;
}

sam_headroom_memory_resource::sam_headroom_memory_resource(std::size_t headroom)
    : headroom_{new detail::headroom(headroom)} {}

sam_headroom_memory_resource::~sam_headroom_memory_resource() { delete headroom_; }

void* sam_headroom_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view) {
    void* const ptr = allocate_pageable(bytes, "sam_headroom_memory_resource");
    if (bytes == 0) return ptr;
    try {
        driver::Driver& d = rmm::detail::the_driver();
        int device = -1;
        rmm::detail::check(d.current_device(&device));
        const std::size_t on_device = headroom_->bytes_on_device(bytes, [] { return available_device_memory().first; });
        driver::Status status;
        if (on_device > 0) status = d.prefer_location(ptr, on_device, device);
        if (status.ok() && on_device < bytes)
            status = d.prefer_location(static_cast<char*>(ptr) + on_device, bytes - on_device, host);
        if (!status.ok())
            rmm::detail::throw_allocation_failure(status, bytes, "sam_headroom_memory_resource, advising the driver,");
    } catch (...) {
        std::free(ptr);  // never used: no stream to wait for
        throw;
    }
    return ptr;
}

void sam_headroom_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    system_.deallocate(ptr, bytes, stream);
}

bool sam_headroom_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    const auto* sam = dynamic_cast<sam_headroom_memory_resource const*>(&other);
    return sam != nullptr && sam->headroom_->headroom_bytes == headroom_->headroom_bytes;
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
