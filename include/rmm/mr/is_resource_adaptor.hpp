// Which resources stand on another. Compile time only.
#pragma once

#include <type_traits>

#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_traits.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Whether `Resource` (or what it is a reference to) is a resource that tells its upstream by
/// `get_upstream_resource()`.
template<class Resource, class = void>
inline constexpr bool is_resource_adaptor = false;

template<class Resource>
inline constexpr bool is_resource_adaptor<
    Resource, std::void_t<decltype(std::declval<std::remove_reference_t<Resource> const&>().get_upstream_resource())>> =
    rmm::detail::is_resource<std::remove_cv_t<std::remove_reference_t<Resource>>>::value;

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
