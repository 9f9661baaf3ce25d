// A resource as an allocator of Thrust. Interop only: units of target rmm::rmm.
#pragma once

#include <rmm/detail/needs_cccl.hpp>

#include <cstddef>
#include <limits>
#include <type_traits>

#include <thrust/device_malloc_allocator.h>
#include <thrust/device_ptr.h>

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/element_access.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_traits.hpp>
#include <rmm/detail/thrust_namespace.h>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Allocates device memory from a resource on one stream, for thrust::device_vector and for temporaries of algorithms.
/// Remembers the device that was current when it was made, and makes it current around every call. Owns neither
/// resource nor stream. Thread-safe where the resource is.
template<typename T>
class thrust_allocator : public thrust::device_malloc_allocator<T> {
  public:
    using Base = thrust::device_malloc_allocator<T>;
    using pointer = typename Base::pointer;
    using size_type = typename Base::size_type;

    template<typename U>
    struct rebind {
        using other = thrust_allocator<U>;
    };

    /// The default stream and the resource that is current now.
    RMM_UNIT_INLINE thrust_allocator() : thrust_allocator(cuda_stream_view{}) {}
    RMM_UNIT_INLINE explicit thrust_allocator(cuda_stream_view stream)
        : thrust_allocator(stream, get_current_device_resource_ref()) {}
    RMM_UNIT_INLINE thrust_allocator(cuda_stream_view stream, rmm::device_async_resource_ref mr)
        : stream_{stream}, explicit_stream_{rmm::detail::explicit_stream(stream)}, mr_{mr} {}
    /// Takes resource, stream and device.
    template<typename U>
    thrust_allocator(thrust_allocator<U> const& other)
        : Base(other),
          stream_{other.stream_},
          explicit_stream_{other.explicit_stream_},
          mr_{other.mr_},
          device_{other.device_} {}

    /// Throws rmm::bad_alloc, also where the size in bytes does not fit into size_t.
    pointer allocate(size_type num) {
        if (num > std::numeric_limits<size_type>::max() / sizeof(T)) rmm::detail::refuse_element_count(num, sizeof(T));
        cuda_set_device_raii const device{device_};
        return thrust::device_pointer_cast(static_cast<T*>(rmm::detail::allocate_on(
            mr_.raw(), num * sizeof(T), CUDA_ALLOCATION_ALIGNMENT, stream_, explicit_stream_)));
    }
    /// What the resource throws is reported: destructors of vectors call this.
    void deallocate(pointer ptr, size_type num) noexcept {
        try {
            cuda_set_device_raii const device{device_};
            rmm::detail::deallocate_on(mr_.raw(), thrust::raw_pointer_cast(ptr), num * sizeof(T),
                                       CUDA_ALLOCATION_ALIGNMENT, stream_, explicit_stream_);
        } catch (...) {
            detail::report_throw_in_deallocate();
        }
    }

    [[nodiscard]] rmm::device_async_resource_ref get_upstream_resource() const noexcept { return mr_; }
    /// The names of 23.12 and 0.16.
    [[nodiscard]] rmm::device_async_resource_ref memory_resource() const noexcept { return mr_; }
    [[nodiscard]] rmm::device_async_resource_ref resource() const noexcept { return mr_; }
    [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

    template<class Property, std::enable_if_t<rmm::detail::is_device_accessible_tag<Property>::value, int> = 0>
    friend void get_property(thrust_allocator const&, Property) noexcept {}

  private:
    template<typename U>
    friend class thrust_allocator;

    cuda_stream_view stream_;
    cuda_stream_view
        explicit_stream_;  // what is meant by it: the calls are made in units that may mean another default stream
    rmm::device_async_resource_ref mr_;
    cuda_device_id device_{};
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
