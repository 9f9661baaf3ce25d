// The door to libcu++'s memory resources: includes <cuda/memory_resource> and maps the names of the concepts, which
// CCCL 3.1 changed. Interop only: units of target rmm::rmm.
#pragma once

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#error "RMM requires LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE to be defined: target rmm::rmm defines it"
#endif
#ifdef RMM_CCCL_WAS_NOT_FOUND
#include <rmm/detail/needs_cccl.hpp>
#endif

#include <cuda/memory_resource>

#include <rmm/detail/export.hpp>

#if defined(CCCL_MAJOR_VERSION) && (CCCL_MAJOR_VERSION > 3 || (CCCL_MAJOR_VERSION == 3 && CCCL_MINOR_VERSION >= 1))
#define RMM_DETAIL_CCCL_STREAM_FIRST 1
#else
#define RMM_DETAIL_CCCL_STREAM_FIRST 0
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {
namespace polyfill {

#if RMM_DETAIL_CCCL_STREAM_FIRST
template<class Resource>
inline constexpr bool resource = cuda::mr::synchronous_resource<Resource>;
template<class Resource, class... Properties>
inline constexpr bool resource_with = cuda::mr::synchronous_resource_with<Resource, Properties...>;
template<class Resource>
inline constexpr bool async_resource = cuda::mr::resource<Resource>;
template<class Resource, class... Properties>
inline constexpr bool async_resource_with = cuda::mr::resource_with<Resource, Properties...>;
#else
template<class Resource>
inline constexpr bool resource = cuda::mr::resource<Resource>;
template<class Resource, class... Properties>
inline constexpr bool resource_with = cuda::mr::resource_with<Resource, Properties...>;
template<class Resource>
inline constexpr bool async_resource = cuda::mr::async_resource<Resource>;
template<class Resource, class... Properties>
inline constexpr bool async_resource_with = cuda::mr::async_resource_with<Resource, Properties...>;
#endif

}  // namespace polyfill
}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
