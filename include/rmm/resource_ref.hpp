// Non-owning references to memory resources of any type. 16 bytes: the object and what to do with it. One layout in
// light units and in units with libcu++, whose own references convert both ways there (<rmm/interop/resource_ref.hpp>).
#pragma once

#include <cstddef>
#include <type_traits>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_operations.hpp>
#include <rmm/fwd.hpp>  // device_async_resource_ref and its like

#ifdef RMM_WITH_CCCL
#include <rmm/interop/resource_ref.hpp>
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

#ifndef RMM_WITH_CCCL
template<unsigned Properties, bool StreamOrdered>
struct ref_interop {};
#endif

/// A reference to a resource: owns nothing, copies freely. Made implicitly from a non-const lvalue of a resource, from
/// a pointer to one (not checked for null), or from a reference that promises at least as much. Calls behave as those
/// of the resource, with the exact byte count; forms without a stream are the resource's own `allocate` and
/// `deallocate`, which for a device_memory_resource order on the default stream (handle 0) and wait for nothing. An
/// alignment must be a power of two that is not above 256 for device memory.
template<unsigned Properties, bool StreamOrdered>
class basic_resource_ref : public ref_interop<Properties, StreamOrdered> {
    static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  public:
    template<class R, std::enable_if_t<refers_to<R, Properties, StreamOrdered>::value, int> = 0>
    basic_resource_ref(R& resource) noexcept : basic_resource_ref(&resource) {}

    template<class R, std::enable_if_t<refers_to<R, Properties, StreamOrdered>::value, int> = 0>
    basic_resource_ref(R* resource) noexcept : raw_{nullptr, nullptr} {
        if constexpr (derives_from_device_memory_resource<R>::value)
            raw_ = {static_cast<mr::device_memory_resource*>(resource), &device_memory_resource_operations};
        else
            raw_ = {resource, &operations_of<R>::value};
    }

    template<unsigned OtherProperties, bool OtherStreamOrdered,
             std::enable_if_t<(OtherProperties & Properties) == Properties && (OtherStreamOrdered || !StreamOrdered) &&
                                  (OtherProperties != Properties || OtherStreamOrdered != StreamOrdered),
                              int> = 0>
    basic_resource_ref(basic_resource_ref<OtherProperties, OtherStreamOrdered> const& other) noexcept
        : raw_{other.raw()} {}

    template<class F,
             std::enable_if_t<foreign_ref<F>::known && (foreign_ref<F>::properties & Properties) == Properties &&
                                  (foreign_ref<F>::stream_ordered || !StreamOrdered),
                              int> = 0>
    basic_resource_ref(F const& other) : raw_{foreign_ref<F>::convert(other)} {}

    basic_resource_ref(std::nullptr_t) = delete;

    RMM_UNIT_INLINE void* allocate(std::size_t bytes) const { return allocate_sync(bytes, default_alignment); }
    RMM_UNIT_INLINE void* allocate(std::size_t bytes, std::size_t alignment) const {
        return allocate_sync(bytes, alignment);
    }
    RMM_UNIT_INLINE void deallocate(void* ptr, std::size_t bytes) const {
        deallocate_sync(ptr, bytes, default_alignment);
    }
    RMM_UNIT_INLINE void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) const {
        deallocate_sync(ptr, bytes, alignment);
    }
    RMM_UNIT_INLINE void* allocate_sync(std::size_t bytes) const { return allocate_sync(bytes, default_alignment); }
    RMM_UNIT_INLINE void* allocate_sync(std::size_t bytes, std::size_t alignment) const {
        // The default stream of this unit, not of the one that made the reference.
        stream_meaning const meaning{cuda_stream_view{}, detail::explicit_stream(cuda_stream_view{})};
        return raw_.operations->allocate_sync(raw_.resource, bytes, alignment);
    }
    RMM_UNIT_INLINE void deallocate_sync(void* ptr, std::size_t bytes) const {
        deallocate_sync(ptr, bytes, default_alignment);
    }
    RMM_UNIT_INLINE void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment) const {
        stream_meaning const meaning{cuda_stream_view{}, detail::explicit_stream(cuda_stream_view{})};
        raw_.operations->deallocate_sync(raw_.resource, ptr, bytes, alignment);
    }

    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void* allocate_async(std::size_t bytes, cuda_stream_view stream) const {
        return allocate_async(bytes, default_alignment, stream);
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const {
        return detail::allocate_on(raw_, bytes, alignment, stream, detail::explicit_stream(stream));
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream) const {
        deallocate_async(ptr, bytes, default_alignment, stream);
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment,
                                          cuda_stream_view stream) const {
        detail::deallocate_on(raw_, ptr, bytes, alignment, stream, detail::explicit_stream(stream));
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void* allocate(cuda_stream_view stream, std::size_t bytes) const {
        return allocate_async(bytes, default_alignment, stream);
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment) const {
        return allocate_async(bytes, alignment, stream);
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void deallocate(cuda_stream_view stream, void* ptr, std::size_t bytes) const {
        deallocate_async(ptr, bytes, default_alignment, stream);
    }
    template<bool Ordered = StreamOrdered, std::enable_if_t<Ordered, int> = 0>
    RMM_UNIT_INLINE void deallocate(cuda_stream_view stream, void* ptr, std::size_t bytes,
                                    std::size_t alignment) const {
        deallocate_async(ptr, bytes, alignment, stream);
    }

    /// Object and operations, for the library and for interop.
    [[nodiscard]] raw_ref const& raw() const noexcept { return raw_; }
    /// A reference with the same object; for the library: nothing checks that the object has the properties.
    [[nodiscard]] static basic_resource_ref from_raw(raw_ref raw) noexcept { return basic_resource_ref{raw, 0}; }

    friend bool operator==(basic_resource_ref const& a, basic_resource_ref const& b) noexcept {
        return equal_refs(a.raw_, b.raw_);
    }
    friend bool operator!=(basic_resource_ref const& a, basic_resource_ref const& b) noexcept { return !(a == b); }

    template<class Property,
             std::enable_if_t<((Properties & on_device) != 0 && is_device_accessible_tag<Property>::value) ||
                                  ((Properties & on_host) != 0 && is_host_accessible_tag<Property>::value),
                              int> = 0>
    friend constexpr void get_property(basic_resource_ref const&, Property) noexcept {}

  private:
    basic_resource_ref(raw_ref raw, int /*unused*/) noexcept : raw_{raw} {}

    raw_ref raw_;
};

}  // namespace detail

namespace detail {
[[noreturn]] void refuse_null_resource();
}  // namespace detail

/// A reference to `*res`. Throws rmm::logic_error for null.
template<class Resource>
device_async_resource_ref to_device_async_resource_ref_checked(Resource* res) {
    if (res == nullptr) detail::refuse_null_resource();
    return device_async_resource_ref{*res};
}

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
