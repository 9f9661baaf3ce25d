// Memory that host and devices share and the driver moves.
#pragma once

#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Managed memory of the driver (cudaMallocManaged, cudaFree). Freeing is ordered by the driver and may wait for the
/// device. The stream is ignored, unless it is being captured: as for cuda_memory_resource. Any two are equal.
/// Thread-safe.
class RMM_EXPORT managed_memory_resource final : public device_memory_resource {
  public:
    managed_memory_resource() = default;
    ~managed_memory_resource() override;
    managed_memory_resource(managed_memory_resource const&) = default;
    managed_memory_resource(managed_memory_resource&&) = default;
    managed_memory_resource& operator=(managed_memory_resource const&) = default;
    managed_memory_resource& operator=(managed_memory_resource&&) = default;

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

#include <rmm/detail/brings.hpp>
