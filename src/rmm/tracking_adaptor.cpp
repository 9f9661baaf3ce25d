// Implements <rmm/mr/detail/tracking_adaptor.hpp>, over outstanding_allocations.hpp. Any thread; no lock is held over a
// call of upstream.
#include "rmm/mr/detail/tracking_adaptor.hpp"

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rmm/logger.hpp"
#include "rmm/outstanding_allocations.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

/// Misuse is told, but `deallocate` does not throw for it.
template<typename... Arguments>
void log_error(const char* format, Arguments... arguments) noexcept {
    try {
        default_logger().error(format, arguments...);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("could not log \"", format, "\": ", e.what());
    } catch (...) {  // of a sink of the program
        rmm::detail::report_misuse("could not log \"", format, "\"");
    }
}

}  // namespace

tracking_adaptor::tracking_adaptor(device_async_resource_ref upstream, bool capture_stacks)
    : adaptor(upstream), allocations_(std::make_unique<outstanding_allocations>(capture_stacks)) {}

tracking_adaptor::~tracking_adaptor() {
    if (lost_in_fork()) (void)allocations_.release();  // another thread may have been at work on it
}

std::map<void*, allocation_info> const& tracking_adaptor::get_outstanding_allocations() const noexcept {
    return allocations_->as_map();
}

std::size_t tracking_adaptor::get_allocated_bytes() const noexcept { return allocations_->num_bytes(); }

std::string tracking_adaptor::get_outstanding_allocations_str() const { return allocations_->text(); }

void tracking_adaptor::log_outstanding_allocations() const {
    rapids_logger::logger& logger = default_logger();
    if (logger.should_log(rapids_logger::level_enum::debug))
        logger.debug("Outstanding Allocations: " + get_outstanding_allocations_str());
}

void* tracking_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    void* const ptr = upstream_allocate(bytes, stream);
    // Blocks of 0 bytes have nothing that could be lost, and upstream may give several of them one address.
    if (ptr == nullptr || bytes == 0) return ptr;
    try {
        allocations_->add(ptr, bytes);
    } catch (...) {
        undo_upstream_allocate(ptr, bytes, stream);
        throw;
    }
    return ptr;
}

void tracking_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    if (ptr != nullptr) {
        const std::optional<std::size_t> recorded = allocations_->remove(ptr);
        if (!recorded && bytes != 0)
            log_error("Deallocating a pointer that was not tracked. Ptr: %p [%zuB], Current Num. Allocations: %zu", ptr,
                      bytes, allocations_->num_blocks());
        else if (recorded && *recorded != bytes)
            log_error("Alloc bytes (%zu) and Dealloc bytes (%zu) do not match", *recorded, bytes);
    }
    upstream_deallocate(ptr, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
