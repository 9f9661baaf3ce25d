// A non-owning view of a stream-ordered memory pool of the driver.
#pragma once

#include <rmm/detail/cuda_types.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Allocates from a driver pool in stream order (cudaMallocFromPoolAsync, cudaFreeAsync). Does not own the pool. Equal
/// to a view of the same pool. A default-constructed view has no pool and throws rmm::logic_error when asked for
/// memory. Thread-safe.
class RMM_EXPORT cuda_async_view_memory_resource final : public device_memory_resource {
  public:
    /// Throws rmm::logic_error for a null handle, and where the current device has no memory pools.
    cuda_async_view_memory_resource(cudaMemPool_t pool_handle);
    cuda_async_view_memory_resource() = default;
    ~cuda_async_view_memory_resource() override;
    cuda_async_view_memory_resource(cuda_async_view_memory_resource const&) = default;
    cuda_async_view_memory_resource(cuda_async_view_memory_resource&&) = default;
    cuda_async_view_memory_resource& operator=(cuda_async_view_memory_resource const&) = default;
    cuda_async_view_memory_resource& operator=(cuda_async_view_memory_resource&&) = default;

    [[nodiscard]] cudaMemPool_t pool_handle() const noexcept { return pool_; }
    [[nodiscard]] bool supports_streams() const noexcept override { return true; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;

    cudaMemPool_t pool_{};
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
