// Implements <rmm/cuda_stream_view.hpp>, <rmm/cuda_stream.hpp> and <rmm/cuda_stream_pool.hpp>. Any thread.
#include "rmm/cuda_stream.hpp"

#include <cassert>
#include <ostream>

#include "rmm/cuda_stream_pool.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/status.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

void synchronize_stream(cudaStream_t stream) { check(the_driver().synchronize_stream(driver::StreamHandle{stream})); }

void synchronize_stream_no_throw(cudaStream_t stream) noexcept {
    if (lost_in_fork()) return;
    const driver::Status status = the_driver().synchronize_stream(driver::StreamHandle{stream});
    report_failure(status, "wait for a stream");
    assert(status.ok());
}

std::string format_stream(cuda_stream_view stream) { return address_text(stream.value()); }

}  // namespace detail

std::ostream& operator<<(std::ostream& os, cuda_stream_view stream) { return os << detail::format_stream(stream); }

cuda_stream::cuda_stream(flags flags) : record_{detail::owned_stream::create(flags == flags::non_blocking)} {
    stream_ = record_->handle();
}

void cuda_stream::close() noexcept {
    if (record_ != nullptr) record_->close();
}

cuda_stream_pool::cuda_stream_pool(std::size_t pool_size, cuda_stream::flags flags) {
    RMM_EXPECTS(pool_size > 0, "a stream pool of 0 streams was asked for; it needs at least 1");
    streams_.reserve(pool_size);
    for (std::size_t i = 0; i < pool_size; ++i) streams_.emplace_back(flags);
}

}  // namespace kmm_v0
}  // namespace rmm
