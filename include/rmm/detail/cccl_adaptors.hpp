// The names under which 25.10 has its reference classes. Interop only: units of target rmm::rmm.
#pragma once

#include <rmm/detail/cuda_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Our reference with the properties of a reference of libcu++.
template<class Base>
using cccl_resource_ref = basic_resource_ref<foreign_ref<Base>::properties, false>;
template<class Base>
using cccl_async_resource_ref = basic_resource_ref<foreign_ref<Base>::properties, true>;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
