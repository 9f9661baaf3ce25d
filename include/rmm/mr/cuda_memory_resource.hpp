// The driver's own allocator of device memory.
#pragma once

#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Memory of the current device, straight from the driver (cudaMalloc, cudaFree). Freeing is ordered by the driver and
/// may wait for the device. The stream is ignored, unless it is being captured: what is freed there goes back when the
/// graph and its executable graphs are gone. So the stream of a free must exist, or have been an rmm::cuda_stream. Any
/// two are equal. Thread-safe.
class RMM_EXPORT cuda_memory_resource final : public device_memory_resource {
  public:
    cuda_memory_resource() = default;
    ~cuda_memory_resource() override;
    cuda_memory_resource(cuda_memory_resource const&) = default;
    cuda_memory_resource(cuda_memory_resource&&) = default;
    cuda_memory_resource& operator=(cuda_memory_resource const&) = default;
    cuda_memory_resource& operator=(cuda_memory_resource&&) = default;

    [[nodiscard]] bool supports_get_mem_info() const noexcept override { return true; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;
    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view stream) const override;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
