// The tracking adaptor without its template face. The work is compiled (src/rmm/tracking_adaptor.cpp,
// outstanding_allocations.cpp).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include <rmm/detail/stack_trace.hpp>
#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Record of a block in use. `strace` is null if stacks are not captured.
struct RMM_EXPORT allocation_info {
    std::unique_ptr<rmm::detail::stack_trace> strace;
    std::size_t allocation_size;

    allocation_info() = delete;
    allocation_info(std::size_t size, bool capture_stack);
};

class outstanding_allocations;  // src/rmm/outstanding_allocations.hpp

/// Contract: tracking_resource_adaptor.
class RMM_EXPORT tracking_adaptor : public adaptor {
  public:
    using allocation_info = detail::allocation_info;

    [[nodiscard]] std::map<void*, allocation_info> const& get_outstanding_allocations() const noexcept;
    [[nodiscard]] std::size_t get_allocated_bytes() const noexcept;
    [[nodiscard]] std::string get_outstanding_allocations_str() const;
    void log_outstanding_allocations() const;
    ~tracking_adaptor() override;
    tracking_adaptor(tracking_adaptor const&) = delete;
    tracking_adaptor& operator=(tracking_adaptor const&) = delete;

  protected:
    tracking_adaptor(device_async_resource_ref upstream, bool capture_stacks);

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    std::unique_ptr<outstanding_allocations> allocations_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
