// Memory of the host's own allocator, where devices reach it.
#pragma once

#include <cstddef>

#include <rmm/cuda_device.hpp>
#include <rmm/detail/resource_traits.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Whether the device reads and writes pageable host memory (cudaDevAttrPageableMemoryAccess). Throws rmm::cuda_error
/// where it cannot be asked.
bool is_system_memory_supported(cuda_device_id device_id);

}  // namespace detail

/// Pageable host memory, aligned to 256 bytes, for devices that reach it (Grace Hopper, or drivers with heterogeneous
/// memory management). Its pages are made where they are first touched: by the host in host memory, by a device in its
/// memory.
///
/// 0 bytes are a unique address. `allocate` ignores the stream; `deallocate` waits for it, unless it is being
/// captured: as for cuda_memory_resource. Throws rmm::out_of_memory
/// where the host has no more. Any two are equal. Thread-safe.
class RMM_EXPORT system_memory_resource final : public device_memory_resource {
  public:
    /// Throws rmm::logic_error where the current device does not reach such memory.
    system_memory_resource();
    ~system_memory_resource() override;
    system_memory_resource(system_memory_resource const&) = default;
    system_memory_resource(system_memory_resource&&) = default;
    system_memory_resource& operator=(system_memory_resource const&) = default;
    system_memory_resource& operator=(system_memory_resource&&) = default;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;
};

/// Host accessible as well as, through its base, device accessible.
template<class Property, std::enable_if_t<rmm::detail::is_host_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(system_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
