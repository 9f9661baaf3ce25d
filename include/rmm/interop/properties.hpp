// Teaches <rmm/detail/resource_traits.hpp> the properties of libcu++. Interop only; included from there.
#pragma once

#include <rmm/detail/cuda_memory_resource.hpp>
#include <rmm/detail/resource_traits.hpp>

// What programs written for RMM get from its resource headers without asking.
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

template<>
struct is_device_accessible_tag<cuda::mr::device_accessible> : std::true_type {};
template<>
struct is_host_accessible_tag<cuda::mr::host_accessible> : std::true_type {};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
