// What a reference to a resource is made of: an object and its operations. Knows neither references nor libcu++; those
// who make references include <rmm/resource_ref.hpp>.
#pragma once

#include <cstddef>
#include <type_traits>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_traits.hpp>
#include <rmm/detail/stream_meaning.hpp>
#include <rmm/fwd.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// How to use a resource of some type; one constant object for each type. The stream-ordered calls are null for
/// resources without.
struct resource_operations {
    void* (*allocate)(void* resource, std::size_t bytes, std::size_t alignment, cuda_stream_view stream);
    void (*deallocate)(void* resource, void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream);
    void* (*allocate_sync)(void* resource, std::size_t bytes, std::size_t alignment);
    void (*deallocate_sync)(void* resource, void* ptr, std::size_t bytes, std::size_t alignment);
    bool (*equal)(void const* a, void const* b);
};

/// For every class derived from device_memory_resource (the object is the base), so that references made from the base
/// and from the derived class are the same.
RMM_EXPORT extern const resource_operations device_memory_resource_operations;

template<class R>
using derives_from_device_memory_resource = std::is_convertible<R*, mr::device_memory_resource*>;

template<class R>
struct operations_of {
    static void* allocate(void* resource, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        if constexpr (has_async_calls<R>::value)
            return static_cast<R*>(resource)->allocate_async(bytes, alignment, stream);
        else
            return static_cast<R*>(resource)->allocate(stream, bytes, alignment);
    }
    static void deallocate(void* resource, void* ptr, std::size_t bytes, std::size_t alignment,
                           cuda_stream_view stream) {
        if constexpr (has_async_calls<R>::value)
            static_cast<R*>(resource)->deallocate_async(ptr, bytes, alignment, stream);
        else
            static_cast<R*>(resource)->deallocate(stream, ptr, bytes, alignment);
    }
    static void* allocate_sync(void* resource, std::size_t bytes, std::size_t alignment) {
        if constexpr (has_plain_calls<R>::value)
            return static_cast<R*>(resource)->allocate(bytes, alignment);
        else
            return static_cast<R*>(resource)->allocate_sync(bytes, alignment);
    }
    static void deallocate_sync(void* resource, void* ptr, std::size_t bytes, std::size_t alignment) {
        if constexpr (has_plain_calls<R>::value)
            static_cast<R*>(resource)->deallocate(ptr, bytes, alignment);
        else
            static_cast<R*>(resource)->deallocate_sync(ptr, bytes, alignment);
    }
    static bool equal(void const* a, void const* b) {
        return static_cast<bool>(*static_cast<R const*>(a) == *static_cast<R const*>(b));
    }
    static constexpr resource_operations make() {
        if constexpr (is_async_resource<R>::value)
            return {&operations_of::allocate, &operations_of::deallocate, &operations_of::allocate_sync,
                    &operations_of::deallocate_sync, &operations_of::equal};
        else
            return {nullptr, nullptr, &operations_of::allocate_sync, &operations_of::deallocate_sync,
                    &operations_of::equal};
    }
    static constexpr resource_operations value = make();
};

template<class T>
struct is_resource_ref : std::false_type {};
template<unsigned Properties, bool StreamOrdered>
struct is_resource_ref<basic_resource_ref<Properties, StreamOrdered>> : std::true_type {};

/// Turns references of other libraries into ours; specialized in
/// <rmm/interop/resource_ref.hpp>.
template<class T>
struct foreign_ref {
    static constexpr bool known = false;
    static constexpr bool stream_ordered = false;
    static constexpr unsigned properties = 0;
};
/// Base of every reference: conversions to references of other libraries; empty in light units.
template<unsigned Properties, bool StreamOrdered>
struct ref_interop;

/// Whether a reference with these properties can be made from an R. Lazy, that R is not looked at without need.
template<class R, unsigned Properties, bool StreamOrdered>
struct refers_to
    : std::conjunction<
          std::negation<is_resource_ref<R>>, std::bool_constant<!foreign_ref<R>::known>,
          std::conditional_t<StreamOrdered, is_async_resource<R>, is_resource<R>>,
          std::disjunction<std::bool_constant<(Properties & on_device) == 0>, is_device_accessible_resource<R>>,
          std::disjunction<std::bool_constant<(Properties & on_host) == 0>, is_host_accessible_resource<R>>> {};

struct raw_ref {
    void* resource;
    resource_operations const* operations;
};

/// Slow path of `allocate_on` and `deallocate_on`: `meant` is another handle than `given`.
RMM_EXPORT void* allocate_marked(raw_ref const& ref, std::size_t bytes, std::size_t alignment, cuda_stream_view given,
                                 cuda_stream_view meant);
RMM_EXPORT void deallocate_marked(raw_ref const& ref, void* ptr, std::size_t bytes, std::size_t alignment,
                                  cuda_stream_view given, cuda_stream_view meant);

/// Stream-ordered calls with an explicit stream `meant` for handle `given`: resources of the program receive `given`,
/// resources of this library work on `meant`.
RMM_UNIT_INLINE void* allocate_on(raw_ref const& ref, std::size_t bytes, std::size_t alignment, cuda_stream_view given,
                                  cuda_stream_view meant) {
    return given.value() == meant.value() ? ref.operations->allocate(ref.resource, bytes, alignment, given)
                                          : allocate_marked(ref, bytes, alignment, given, meant);
}
RMM_UNIT_INLINE void deallocate_on(raw_ref const& ref, void* ptr, std::size_t bytes, std::size_t alignment,
                                   cuda_stream_view given, cuda_stream_view meant) {
    if (given.value() == meant.value())
        ref.operations->deallocate(ref.resource, ptr, bytes, alignment, given);
    else
        deallocate_marked(ref, ptr, bytes, alignment, given, meant);
}

/// Whether memory allocated through one may be freed through the other: the same object; two resources derived from
/// device_memory_resource that are equal; two of one type that are equal.
RMM_EXPORT bool equal_refs(raw_ref const& a, raw_ref const& b) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
