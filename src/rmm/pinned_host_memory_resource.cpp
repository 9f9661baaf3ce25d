// Implements <rmm/mr/pinned_host_memory_resource.hpp> and <rmm/mr/host/pinned_memory_resource.hpp>. Any thread.
#include "rmm/mr/pinned_host_memory_resource.hpp"

#include <cstddef>
#include <cstdint>

#include "rmm/aligned.hpp"
#include "rmm/captured_frees.hpp"
#include "rmm/detail/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/pinning.hpp"
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

// What the driver's pinned allocations are aligned to: whole pages on every driver, of which we promise this much.
constexpr std::size_t pinned_alignment = CUDA_ALLOCATION_ALIGNMENT;

}  // namespace

pinned_host_memory_resource::~pinned_host_memory_resource() = default;

void* pinned_host_memory_resource::allocate(std::size_t bytes, std::size_t alignment) {
    detail::expect_plain_alignment(alignment);
    return bytes == 0 ? nullptr : allocate_pinned(bytes, "pinned_host_memory_resource");
}

void pinned_host_memory_resource::deallocate(void* ptr, std::size_t, std::size_t) noexcept {
    if (ptr != nullptr) free_pinned(ptr);
}

void* pinned_host_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::note_allocation(rmm::detail::meant(stream));
    return allocate(bytes);
}

void pinned_host_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    driver::Driver& d = rmm::detail::the_driver();
    rmm::detail::free_deferred(d);
    const cuda_stream_view meant = rmm::detail::meant(stream);
    if (rmm::detail::defer_free(d, ptr, meant, [](driver::Driver&, void* block) noexcept { free_pinned(block); }))
        return;
    // Waits for the users of the memory, as the driver's own call does: the pages are unmapped at once.
    if (bytes >= rmm::detail::pin_from_bytes)
        rmm::detail::report_failure(rmm::detail::wait_for_users(d, meant), "wait for the users of pinned memory");
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
