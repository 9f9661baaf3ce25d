// The prefetching adaptor without its template face. The work is compiled (src/rmm/prefetch.cpp); programs use
// prefetch_resource_adaptor.
#pragma once

#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Contract: prefetch_resource_adaptor.
class RMM_EXPORT prefetch_adaptor : public adaptor {
  public:
    ~prefetch_adaptor() override;
    prefetch_adaptor(prefetch_adaptor const&) = delete;
    prefetch_adaptor& operator=(prefetch_adaptor const&) = delete;

  protected:
    explicit prefetch_adaptor(device_async_resource_ref upstream) : adaptor(upstream) {}
    prefetch_adaptor(prefetch_adaptor&&) noexcept = default;
    prefetch_adaptor& operator=(prefetch_adaptor&&) noexcept = default;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
