// Implements <rmm/mr/detail/statistics_adaptor.hpp>. Any thread; no lock is held over a call of upstream.
#include "rmm/mr/detail/statistics_adaptor.hpp"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct statistics_adaptor::state {
    struct section {
        statistics_counter bytes;
        statistics_counter blocks;
    };

    kmm::locks::ShortLock lock;
    section innermost KMM_GUARDED_BY(lock);
    std::vector<section> around KMM_GUARDED_BY(lock);
};

statistics_adaptor::statistics_adaptor(device_async_resource_ref upstream)
    : adaptor(upstream), state_(std::make_unique<state>()) {}

statistics_adaptor::~statistics_adaptor() {
    if (lost_in_fork()) (void)state_.release();
}

statistics_counter statistics_adaptor::get_bytes_counter() const noexcept {
    if (rmm::detail::lost_in_fork()) return {};
    const kmm::locks::Guard lock(state_->lock);
    return state_->innermost.bytes;
}

statistics_counter statistics_adaptor::get_allocations_counter() const noexcept {
    if (rmm::detail::lost_in_fork()) return {};
    const kmm::locks::Guard lock(state_->lock);
    return state_->innermost.blocks;
}

std::pair<statistics_counter, statistics_counter> statistics_adaptor::push_counters() {
    rmm::detail::refuse_after_fork();
    const kmm::locks::Guard lock(state_->lock);
    const state::section outer = state_->innermost;
    state_->around.push_back(outer);
    state_->innermost = {};
    return {outer.bytes, outer.blocks};
}

std::pair<statistics_counter, statistics_counter> statistics_adaptor::pop_counters() {
    rmm::detail::refuse_after_fork();
    const kmm::locks::Guard lock(state_->lock);
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
    const kmm::locks::Guard lock(state_->lock);
    state_->innermost.bytes += static_cast<std::int64_t>(bytes);
    state_->innermost.blocks += 1;
    return ptr;
}

void statistics_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    if (ptr != nullptr || bytes == 0) {
        const kmm::locks::Guard lock(state_->lock);
        state_->innermost.bytes -= static_cast<std::int64_t>(bytes);
        state_->innermost.blocks -= 1;
    }
    upstream_deallocate(ptr, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
