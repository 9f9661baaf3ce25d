// Host and page-locked resources as an allocator of the standard library.
#pragma once

#include <cstddef>
#include <limits>
#include <type_traits>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/element_access.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/host_memory.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// A standard allocator over a resource of host memory: `std::vector<float, rmm::mr::host_allocator<float>>` holds
/// page-locked memory. Does not own the resource, which must outlive what it allocates. Where the resource is
/// stream-ordered (a pool of page-locked memory), memory comes and goes on the legacy default stream, and allocating
/// waits for it.
///
/// What a device still does with the memory of a container must be over before the container frees it. Moves and swaps
/// of containers take the allocator along. Equal where the resources are. Thread-safe where the resource is.
template<typename T>
class host_allocator {
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    /// Page-locked memory.
    host_allocator() : mr_{rmm::detail::default_host_resource()} {}
    /// Implicit, so that a resource serves where an allocator is wanted.
    host_allocator(host_resource_ref mr) noexcept : mr_{mr} {}
    template<class Resource, std::enable_if_t<std::is_convertible<Resource*, host_resource_ref>::value, int> = 0>
    host_allocator(Resource* resource) noexcept : mr_{resource} {}
    template<typename U>
    host_allocator(host_allocator<U> const& other) noexcept : mr_{other.get_upstream_resource()} {}

    /// Throws std::bad_alloc or a class derived from it, also where the size in bytes does not fit into size_t.
    [[nodiscard]] T* allocate(std::size_t num) {
        if (num > std::numeric_limits<std::size_t>::max() / sizeof(T))
            rmm::detail::refuse_element_count(num, sizeof(T));
        cuda_stream_view const legacy{};
        return static_cast<T*>(rmm::detail::allocate_host(mr_, num * sizeof(T), alignment, legacy, legacy));
    }
    void deallocate(T* ptr, std::size_t num) noexcept {
        cuda_stream_view const legacy{};
        rmm::detail::deallocate_host(mr_, ptr, num * sizeof(T), alignment, legacy, legacy);
    }

    [[nodiscard]] host_resource_ref get_upstream_resource() const noexcept { return mr_; }

  private:
    static constexpr std::size_t alignment =
        alignof(T) < alignof(std::max_align_t) ? alignof(std::max_align_t) : alignof(T);

    host_resource_ref mr_;
};

template<typename T, typename U>
bool operator==(host_allocator<T> const& a, host_allocator<U> const& b) noexcept {
    return a.get_upstream_resource() == b.get_upstream_resource();
}
template<typename T, typename U>
bool operator!=(host_allocator<T> const& a, host_allocator<U> const& b) noexcept {
    return !(a == b);
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
