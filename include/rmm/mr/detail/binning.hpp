// The compiled part of binning_memory_resource: which of several resources serves which size. Owns the bins that it
// makes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct bins;  // src/rmm/binning_memory_resource.cpp

/// Contract: binning_memory_resource.
class RMM_EXPORT binning {
  public:
    explicit binning(device_async_resource_ref upstream);
    binning(device_async_resource_ref upstream, int min_size_exponent, int max_size_exponent);
    ~binning();
    binning(binning const&) = delete;
    binning& operator=(binning const&) = delete;

    [[nodiscard]] device_async_resource_ref upstream() const noexcept;
    void add_bin(std::size_t allocation_size, device_async_resource_ref const* bin_resource);
    void* allocate(std::size_t bytes, cuda_stream_view stream);
    void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

  private:
    bins* bins_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
