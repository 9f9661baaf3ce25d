// Thrust's vector over our resources. Interop only: units of target rmm::rmm.
#pragma once

#include <rmm/detail/needs_cccl.hpp>

#include <thrust/device_vector.h>

#include <rmm/detail/export.hpp>
#include <rmm/detail/thrust_namespace.h>
#include <rmm/mr/thrust_allocator_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// A thrust::device_vector whose memory comes from the current resource, or from that of the allocator that it is
/// given. Unlike a device_uvector it initializes its elements, and it is not made for streams: it waits.
template<typename T>
using device_vector = thrust::device_vector<T, mr::thrust_allocator<T>>;

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
