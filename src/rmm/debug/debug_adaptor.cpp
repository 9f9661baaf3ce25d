// Implements <rmm/mr/detail/debug_adaptor.hpp>. Any thread.
#include "rmm/mr/detail/debug_adaptor.hpp"

#include <string>

#include "rmm/class_names.hpp"
#include "rmm/debug/block_checker.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

class upstream_memory final : public memory_below {
  public:
    explicit upstream_memory(device_async_resource_ref upstream) : upstream_(upstream) {}
    void* allocate(std::size_t bytes, cuda_stream_view stream) override {
        return upstream_.allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, rmm::detail::onward_stream(stream));
    }
    void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override {
        try {
            upstream_.deallocate_async(ptr, bytes, CUDA_ALLOCATION_ALIGNMENT, rmm::detail::onward_stream(stream));
        } catch (...) {
            report_throw_in_deallocate("the upstream of an adaptor");
        }
    }
    void deallocate_unused(void* ptr, std::size_t bytes, cuda_stream_view own) noexcept override {
        deallocate(ptr, bytes, own);
    }

  private:
    device_async_resource_ref upstream_;
};

}  // namespace

struct debug_parts {
    debug_parts(device_async_resource_ref upstream, const debug_options& options, const char* to_get_stacks)
        : below(upstream),
          checker(below, nullptr, options, {rmm::detail::with_class_names("a debug_resource_adaptor"), to_get_stacks}) {
    }
    upstream_memory below;
    block_checker checker;
};

namespace {

debug_options options_by_environment() {
    const debug_environment environment = read_debug_environment();
    return environment.enabled ? environment.options : debug_options{};
}

}  // namespace

debug_adaptor::debug_adaptor(device_async_resource_ref upstream)
    : adaptor(upstream), parts_{new debug_parts(upstream, options_by_environment(), stacks_by_environment)} {}

debug_adaptor::debug_adaptor(device_async_resource_ref upstream, debug_options const& options)
    : adaptor(upstream), parts_{new debug_parts(upstream, options, "set debug_options::stacks")} {}

debug_adaptor::~debug_adaptor() {
    if (!rmm::detail::lost_in_fork()) delete parts_;
}

std::size_t debug_adaptor::check() {
    rmm::detail::refuse_after_fork();
    return parts_->checker.check();
}

debug_counts debug_adaptor::counts() const {
    rmm::detail::refuse_after_fork();
    return parts_->checker.counts();
}

std::size_t debug_adaptor::quarantined_bytes() const {
    rmm::detail::refuse_after_fork();
    return parts_->checker.quarantined_bytes();
}

void* debug_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    return parts_->checker.allocate(bytes, rmm::detail::meant_stream(stream));
}

void debug_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    parts_->checker.deallocate(ptr, bytes, rmm::detail::meant_stream(stream));
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
