// Which types are memory resources, told by their shape: no base class and no libcu++ needed. Compile time only.
//
// A resource states where its memory can be used by a function `get_property(Resource const&, Tag)` found by ADL. The
// tags are ours (below) in light units, and those of `cuda::mr` in units of target rmm::rmm
// (<rmm/interop/properties.hpp>).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Our own property tags.
struct device_accessible {};
struct host_accessible {};

template<class Tag>
struct is_device_accessible_tag : std::is_same<Tag, device_accessible> {};
template<class Tag>
struct is_host_accessible_tag : std::is_same<Tag, host_accessible> {};

template<class Resource, class Property, class = void>
struct has_property : std::false_type {};
template<class Resource, class Property>
struct has_property<Resource, Property,
                    std::void_t<decltype(get_property(std::declval<Resource const&>(), std::declval<Property>()))>>
    : std::true_type {};

template<class R, class = void>
struct has_equality : std::false_type {};
template<class R>
struct has_equality<R, std::void_t<decltype(static_cast<bool>(std::declval<R const&>() == std::declval<R const&>()))>>
    : std::true_type {};

// The four shapes: (bytes, alignment) and its `_sync` spelling; (bytes, alignment, stream) and its stream-first
// spelling.
template<class R, class = void>
struct has_plain_calls : std::false_type {};
template<class R>
struct has_plain_calls<R,
                       std::void_t<decltype(std::declval<R&>().deallocate(
                           std::declval<R&>().allocate(std::size_t{}, std::size_t{}), std::size_t{}, std::size_t{}))>>
    : std::is_same<void*, decltype(std::declval<R&>().allocate(std::size_t{}, std::size_t{}))> {};

template<class R, class = void>
struct has_sync_calls : std::false_type {};
template<class R>
struct has_sync_calls<
    R, std::void_t<decltype(std::declval<R&>().deallocate_sync(
           std::declval<R&>().allocate_sync(std::size_t{}, std::size_t{}), std::size_t{}, std::size_t{}))>>
    : std::is_same<void*, decltype(std::declval<R&>().allocate_sync(std::size_t{}, std::size_t{}))> {};

template<class R, class = void>
struct has_async_calls : std::false_type {};
template<class R>
struct has_async_calls<
    R, std::void_t<decltype(std::declval<R&>().deallocate_async(
           std::declval<R&>().allocate_async(std::size_t{}, std::size_t{}, std::declval<cuda_stream_view>()),
           std::size_t{}, std::size_t{}, std::declval<cuda_stream_view>()))>>
    : std::is_same<void*, decltype(std::declval<R&>().allocate_async(std::size_t{}, std::size_t{},
                                                                     std::declval<cuda_stream_view>()))> {};

template<class R, class = void>
struct has_stream_first_calls : std::false_type {};
template<class R>
struct has_stream_first_calls<
    R, std::void_t<decltype(std::declval<R&>().deallocate(
           std::declval<cuda_stream_view>(),
           std::declval<R&>().allocate(std::declval<cuda_stream_view>(), std::size_t{}, std::size_t{}), std::size_t{},
           std::size_t{}))>>
    : std::is_same<void*, decltype(std::declval<R&>().allocate(std::declval<cuda_stream_view>(), std::size_t{},
                                                               std::size_t{}))> {};

/// A type whose objects allocate.
template<class R>
struct is_resource : std::conjunction<std::negation<std::is_const<R>>, std::is_class<R>, has_equality<R>,
                                      std::disjunction<has_plain_calls<R>, has_sync_calls<R>>> {};
/// One that also allocates in stream order.
template<class R>
struct is_async_resource
    : std::conjunction<is_resource<R>, std::disjunction<has_async_calls<R>, has_stream_first_calls<R>>> {};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#ifdef RMM_WITH_CCCL
#include <rmm/interop/properties.hpp>
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

template<class R>
struct is_device_accessible_resource : std::disjunction<has_property<R, device_accessible>
#ifdef RMM_WITH_CCCL
                                                        ,
                                                        has_property<R, cuda::mr::device_accessible>
#endif
                                                        > {
};
template<class R>
struct is_host_accessible_resource : std::disjunction<has_property<R, host_accessible>
#ifdef RMM_WITH_CCCL
                                                      ,
                                                      has_property<R, cuda::mr::host_accessible>
#endif
                                                      > {
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
