// Implements <rmm/mr/detail/logging_adaptor.hpp>, over allocation_log.hpp. Any thread; no lock is held over a call of
// upstream.
#include "rmm/mr/detail/logging_adaptor.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rmm/allocation_log.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/logger.hpp"
#include "rmm/meant_stream.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

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

// The log is whole in the child of a fork, so that an upstream of the program's own can be used there: ours refuse
// themselves.
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

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
