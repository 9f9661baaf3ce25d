// Page-locked host memory that devices reach too.
#pragma once

#include <cstddef>

#include <rmm/aligned.hpp>
#include <rmm/detail/cuda_types.hpp>
#include <rmm/detail/resource_traits.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Page-locked host memory, aligned to 256 bytes. Below 32 MiB by cudaMallocHost; from there on in whole huge pages of
/// 2 MiB that many threads touch and the driver registers, which is ten times quicker (0.04 s for a GiB). The stream is
/// ignored, but that a deallocation of that size waits for it, and where it is being captured: as for
/// cuda_memory_resource (not by the static functions). Usable through its static functions as in 25.10, and as
/// a device_memory_resource as in 25.12. 0 bytes are null; null is not freed. Throws rmm::bad_alloc or
/// rmm::out_of_memory; an alignment that is no power of two or above 256 throws as device_memory_resource says. Any two
/// are equal. Thread-safe.
class RMM_EXPORT pinned_host_memory_resource : public device_memory_resource {
  public:
    pinned_host_memory_resource() = default;
    ~pinned_host_memory_resource() override;
    pinned_host_memory_resource(pinned_host_memory_resource const&) = default;
    pinned_host_memory_resource(pinned_host_memory_resource&&) = default;
    pinned_host_memory_resource& operator=(pinned_host_memory_resource const&) = default;
    pinned_host_memory_resource& operator=(pinned_host_memory_resource&&) = default;

    static void* allocate(std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT);
    static void* allocate(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }
    static void* allocate(cuda_stream_view, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        return allocate_sync(bytes, alignment);
    }
    static void deallocate(void* ptr, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT) noexcept;
    static void deallocate(void* ptr, std::size_t bytes, cuda_stream_view) noexcept { deallocate(ptr, bytes); }
    static void deallocate(cuda_stream_view, void* ptr, std::size_t bytes,
                           std::size_t /*alignment*/ = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        deallocate(ptr, bytes);
    }

    static void* allocate_async(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }
    static void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view) {
        return allocate(bytes, alignment);
    }
    static void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view) noexcept { deallocate(ptr, bytes); }
    static void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view) noexcept {
        deallocate(ptr, bytes, alignment);
    }

    static void* allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        detail::expect_alignment(alignment);
        return allocate(bytes);
    }
    static void deallocate_sync(void* ptr, std::size_t bytes,
                                std::size_t /*alignment*/ = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        deallocate(ptr, bytes);
    }

    bool operator==(pinned_host_memory_resource const&) const { return true; }
    bool operator!=(pinned_host_memory_resource const&) const { return false; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;
};

/// Host accessible as well as, through its base, device accessible.
template<class Property, std::enable_if_t<rmm::detail::is_host_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(pinned_host_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
