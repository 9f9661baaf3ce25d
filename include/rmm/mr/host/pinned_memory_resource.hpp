// Page-locked host memory as a host resource.
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Page-locked host memory that devices reach too, got as by pinned_host_memory_resource. 0 bytes are null. Streams are
/// ignored. Throws rmm::bad_alloc or rmm::out_of_memory. Equal only to itself. Thread-safe.
class RMM_EXPORT pinned_memory_resource final : public host_memory_resource {
  public:
    pinned_memory_resource() = default;
    ~pinned_memory_resource() override;
    pinned_memory_resource(pinned_memory_resource const&) = default;
    pinned_memory_resource(pinned_memory_resource&&) = default;
    pinned_memory_resource& operator=(pinned_memory_resource const&) = default;
    pinned_memory_resource& operator=(pinned_memory_resource&&) = default;

    using host_memory_resource::allocate;
    using host_memory_resource::deallocate;
    void* allocate(cuda_stream_view, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        return allocate(bytes, alignment);
    }
    void deallocate(cuda_stream_view, void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        deallocate(ptr, bytes, alignment);
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view) {
        return allocate(bytes, alignment);
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }
    void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view) {
        deallocate(ptr, bytes, alignment);
    }
    void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view) { deallocate(ptr, bytes); }

  private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment) override;
};

/// Device accessible as well as, through its base, host accessible.
template<class Property, std::enable_if_t<rmm::detail::is_device_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(pinned_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
