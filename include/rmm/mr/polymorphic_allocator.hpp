// Allocators over memory resources: one that is given a stream with every call, and one that remembers a stream.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/element_access.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Allocates elements of T from any device resource, in stream order; constructs nothing. Owns no resource: that must
/// outlive what it allocates. Thread-safe where the resource is. Allocators are equal where their resources are,
/// whatever their T.
template<typename T>
class polymorphic_allocator {
  public:
    using value_type = T;

    /// Uses the resource that is current now.
    polymorphic_allocator() = default;
    /// Implicit, so that a reference serves where an allocator is wanted.
    polymorphic_allocator(device_async_resource_ref mr) : mr_{mr} {}
    template<typename U>
    polymorphic_allocator(polymorphic_allocator<U> const& other) noexcept : mr_{other.get_upstream_resource()} {}

    /// Throws rmm::bad_alloc, also where the size in bytes does not fit into size_t.
    RMM_UNIT_INLINE value_type* allocate(std::size_t num, cuda_stream_view stream) {
        if (num > std::numeric_limits<std::size_t>::max() / sizeof(T))
            rmm::detail::refuse_element_count(num, sizeof(T));
        return static_cast<value_type*>(mr_.allocate_async(num * sizeof(T), CUDA_ALLOCATION_ALIGNMENT, stream));
    }
    RMM_UNIT_INLINE void deallocate(value_type* ptr, std::size_t num, cuda_stream_view stream) {
        mr_.deallocate_async(ptr, num * sizeof(T), CUDA_ALLOCATION_ALIGNMENT, stream);
    }

    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return mr_; }
    /// The name of 23.12.
    [[nodiscard]] device_async_resource_ref resource() const noexcept { return mr_; }

  private:
    device_async_resource_ref mr_{get_current_device_resource_ref()};
};

template<typename T, typename U>
bool operator==(polymorphic_allocator<T> const& lhs, polymorphic_allocator<U> const& rhs) {
    return lhs.get_upstream_resource() == rhs.get_upstream_resource();
}
template<typename T, typename U>
bool operator!=(polymorphic_allocator<T> const& lhs, polymorphic_allocator<U> const& rhs) {
    return !(lhs == rhs);
}

/// Makes a standard allocator of one that wants a stream with every call: passes the same stream each time. Does not
/// own the stream. Equal where the allocators below are, whatever their streams.
template<typename Allocator>
class stream_allocator_adaptor {
  public:
    using value_type = typename std::allocator_traits<Allocator>::value_type;

    stream_allocator_adaptor() = delete;
    stream_allocator_adaptor(Allocator const& allocator, cuda_stream_view stream)
        : allocator_{allocator}, stream_{stream} {}
    template<typename OtherAllocator>
    stream_allocator_adaptor(stream_allocator_adaptor<OtherAllocator> const& other)
        : allocator_{other.underlying_allocator()}, stream_{other.stream()} {}

    template<typename T>
    struct rebind {
        using other = stream_allocator_adaptor<typename std::allocator_traits<Allocator>::template rebind_alloc<T>>;
    };

    RMM_UNIT_INLINE value_type* allocate(std::size_t num) { return allocator_.allocate(num, stream()); }
    /// What the resource throws is reported: destructors of containers call this.
    RMM_UNIT_INLINE void deallocate(value_type* ptr, std::size_t num) noexcept {
        try {
            allocator_.deallocate(ptr, num, stream());
        } catch (...) {
            detail::report_throw_in_deallocate();
        }
    }

    [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }
    [[nodiscard]] Allocator underlying_allocator() const noexcept { return allocator_; }

  private:
    Allocator allocator_;
    cuda_stream_view stream_;
};

template<typename A, typename O>
bool operator==(stream_allocator_adaptor<A> const& lhs, stream_allocator_adaptor<O> const& rhs) {
    return lhs.underlying_allocator() == rhs.underlying_allocator();
}
template<typename A, typename O>
bool operator!=(stream_allocator_adaptor<A> const& lhs, stream_allocator_adaptor<O> const& rhs) {
    return !(lhs == rhs);
}

/// The factory of 23.12.
template<typename Allocator>
stream_allocator_adaptor<Allocator> make_stream_allocator_adaptor(Allocator const& allocator, cuda_stream_view stream) {
    return {allocator, stream};
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
