// The driver's stream-ordered pool of managed memory.
#pragma once

#include <rmm/detail/cuda_types.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Allocates managed memory in stream order from the pool that the driver keeps for the current device, which it does
/// not own: release threshold and contents are shared with all users of that pool. 0 bytes are null. Throws
/// rmm::bad_alloc or rmm::out_of_memory. Equal iff the pools are the same. Thread-safe.
class RMM_EXPORT cuda_async_managed_memory_resource final : public device_memory_resource {
  public:
    /// Throws rmm::logic_error below CUDA 13, and where host and device cannot share managed memory at any time.
    cuda_async_managed_memory_resource();
    ~cuda_async_managed_memory_resource() override;
    cuda_async_managed_memory_resource(cuda_async_managed_memory_resource const&) = delete;
    cuda_async_managed_memory_resource(cuda_async_managed_memory_resource&&) = delete;
    cuda_async_managed_memory_resource& operator=(cuda_async_managed_memory_resource const&) = delete;
    cuda_async_managed_memory_resource& operator=(cuda_async_managed_memory_resource&&) = delete;

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
