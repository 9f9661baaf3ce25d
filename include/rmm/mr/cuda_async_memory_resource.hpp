// A stream-ordered memory pool of the driver, owned.
#pragma once

#include <cstdint>
#include <optional>

#include <rmm/detail/cuda_types.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {
class driver_pool;  // src/rmm/driver_pool.hpp
}  // namespace detail

namespace mr {

/// Makes a memory pool of the driver on the current device and allocates from it in stream order. Where CUDA is 12.8 or
/// newer, the device's decompression engine can read the memory. The destructor destroys the pool. Equal only to
/// itself. Thread-safe.
class RMM_EXPORT cuda_async_memory_resource final : public device_memory_resource {
  public:
    /// Handles by which other processes open a pool; values of cudaMemAllocationHandleType.
    enum class allocation_handle_type : std::int32_t {
        none = 0x0,
        posix_file_descriptor = 0x1,
        win32 = 0x2,
        win32_kmt = 0x4,
        fabric = 0x8,
    };
    enum class mempool_usage : unsigned short { hw_decompress = 0x2 };

    /// `initial_pool_size`: bytes that the pool holds from the start (default: half of the free memory).
    /// `release_threshold`: bytes that it keeps when they are free (default: the device's total memory).
    /// `maximum_pool_size`: bytes that it never exceeds (default: none); the driver may round it up.
    /// Throws rmm::logic_error where the device has no memory pools or not the handle type, rmm::cuda_error or
    /// rmm::out_of_memory if the pool cannot be made or filled; nothing is left behind then.
    cuda_async_memory_resource(std::optional<std::size_t> initial_pool_size = {},
                               std::optional<std::size_t> release_threshold = {},
                               std::optional<allocation_handle_type> export_handle_type = {},
                               std::optional<std::size_t> maximum_pool_size = {});
    ~cuda_async_memory_resource() override;
    cuda_async_memory_resource(cuda_async_memory_resource const&) = delete;
    cuda_async_memory_resource(cuda_async_memory_resource&&) = delete;
    cuda_async_memory_resource& operator=(cuda_async_memory_resource const&) = delete;
    cuda_async_memory_resource& operator=(cuda_async_memory_resource&&) = delete;

    [[nodiscard]] cudaMemPool_t pool_handle() const noexcept { return pool_; }
    [[nodiscard]] bool supports_streams() const noexcept override { return true; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;

    cudaMemPool_t pool_{};
    rmm::detail::driver_pool* record_{};  // how much is in use
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
