// Implements the compiled part of the adaptors that watch: logging, statistics, tracking. Any thread; no lock is held over a
// call of upstream.
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "rmm/allocation_log.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/logger.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/detail/logging_adaptor.hpp"
#include "rmm/mr/detail/statistics_adaptor.hpp"
#include "rmm/mr/detail/tracking_adaptor.hpp"
#include "rmm/outstanding_allocations.hpp"
#include "rmm/pool/short_lock.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

// ---- logging

logging_adaptor::logging_adaptor(device_async_resource_ref upstream, std::string const& filename, bool auto_flush)
    : logging_adaptor(upstream, {std::make_shared<rapids_logger::basic_file_sink_mt>(filename, true)}, auto_flush) {}

logging_adaptor::logging_adaptor(device_async_resource_ref upstream, std::ostream& stream, bool auto_flush)
    : logging_adaptor(upstream, {std::make_shared<rapids_logger::ostream_sink_mt>(stream)}, auto_flush) {}

logging_adaptor::logging_adaptor(device_async_resource_ref upstream,
                                 std::initializer_list<rapids_logger::sink_ptr> sinks, bool auto_flush)
    : adaptor(upstream), log_(std::make_unique<allocation_log>(std::vector(sinks), auto_flush)) {}

logging_adaptor::~logging_adaptor() = default;

logging_adaptor::logging_adaptor(logging_adaptor&&) noexcept = default;

logging_adaptor& logging_adaptor::operator=(logging_adaptor&&) noexcept = default;

void logging_adaptor::flush() { log_->flush(); }

std::string logging_adaptor::header() const { return std::string(allocation_log::header); }

std::string logging_adaptor::filename_of_environment() {
    const char* filename = std::getenv("RMM_LOG_FILE");
    RMM_EXPECTS(
        filename != nullptr,
        "RMM logging requested without an explicit file name, but RMM_LOG_FILE is unset: name a file, or set it");
    return filename;
}

// The log is whole in the child of a fork, so that an upstream of the program's own can be used there: ours refuse themselves.
void* logging_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    void* ptr = nullptr;
    try {
        ptr = upstream_allocate(bytes, stream);
    } catch (...) {
        log_->record(allocation_log::action::allocate_failure, nullptr, bytes, rmm::detail::meant(stream));
        throw;
    }
    log_->record(allocation_log::action::allocate, ptr, bytes, rmm::detail::meant(stream));
    return ptr;
}

void logging_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    log_->record(allocation_log::action::free, ptr, bytes, rmm::detail::meant(stream));
    upstream_deallocate(ptr, bytes, stream);
}

// ---- statistics

struct statistics_adaptor::state {
    struct section {
        statistics_counter bytes;
        statistics_counter blocks;
    };

    rmm::detail::short_lock lock;
    section innermost;
    std::vector<section> around;
};

statistics_adaptor::statistics_adaptor(device_async_resource_ref upstream)
    : adaptor(upstream), state_(std::make_unique<state>()) {}

statistics_adaptor::~statistics_adaptor() {
    if (lost_in_fork()) (void)state_.release();
}

statistics_counter statistics_adaptor::get_bytes_counter() const noexcept {
    if (rmm::detail::lost_in_fork()) return {};
    const std::lock_guard lock(state_->lock);
    return state_->innermost.bytes;
}

statistics_counter statistics_adaptor::get_allocations_counter() const noexcept {
    if (rmm::detail::lost_in_fork()) return {};
    const std::lock_guard lock(state_->lock);
    return state_->innermost.blocks;
}

std::pair<statistics_counter, statistics_counter> statistics_adaptor::push_counters() {
    rmm::detail::refuse_after_fork();
    const std::lock_guard lock(state_->lock);
    const state::section outer = state_->innermost;
    state_->around.push_back(outer);
    state_->innermost = {};
    return {outer.bytes, outer.blocks};
}

std::pair<statistics_counter, statistics_counter> statistics_adaptor::pop_counters() {
    rmm::detail::refuse_after_fork();
    const std::lock_guard lock(state_->lock);
    if (state_->around.empty()) throw std::out_of_range("cannot pop the last counter pair");
    const state::section ended = state_->innermost;
    state_->innermost = state_->around.back();
    state_->around.pop_back();
    state_->innermost.bytes.add_counters_from_tracked_sub_block(ended.bytes);
    state_->innermost.blocks.add_counters_from_tracked_sub_block(ended.blocks);
    return {ended.bytes, ended.blocks};
}

void* statistics_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    void* const ptr = upstream_allocate(bytes, stream);
    const std::lock_guard lock(state_->lock);
    state_->innermost.bytes += static_cast<std::int64_t>(bytes);
    state_->innermost.blocks += 1;
    return ptr;
}

void statistics_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    if (ptr != nullptr || bytes == 0) {
        const std::lock_guard lock(state_->lock);
        state_->innermost.bytes -= static_cast<std::int64_t>(bytes);
        state_->innermost.blocks -= 1;
    }
    upstream_deallocate(ptr, bytes, stream);
}

// ---- tracking

namespace {

/// Misuse is told, but `deallocate` does not throw for it.
template<typename... Arguments>
void log_error(const char* format, Arguments... arguments) noexcept {
    try {
        default_logger().error(format, arguments...);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("could not log \"", format, "\": ", e.what());
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
    if (ptr == nullptr) return ptr;
    try {
        allocations_->add(ptr, bytes);
    } catch (...) {
        upstream_deallocate(ptr, bytes, stream);
        throw;
    }
    return ptr;
}

void tracking_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    if (ptr != nullptr) {
        const std::optional<std::size_t> recorded = allocations_->remove(ptr);
        if (!recorded)
            log_error("Deallocating a pointer that was not tracked. Ptr: %p [%zuB], Current Num. Allocations: %zu", ptr,
                      bytes, allocations_->num_blocks());
        else if (*recorded != bytes)
            log_error("Alloc bytes (%zu) and Dealloc bytes (%zu) do not match", *recorded, bytes);
    }
    upstream_deallocate(ptr, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
