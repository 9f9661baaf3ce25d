// How Thrust's algorithms use a stream and a resource. Interop only: units of target rmm::rmm.
#pragma once

#include <rmm/detail/needs_cccl.hpp>

#include <thrust/detail/execute_with_allocator.h>
#include <thrust/system/cuda/execution_policy.h>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/thrust_namespace.h>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/thrust_allocator_adaptor.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

using thrust_exec_policy_t =
    thrust::detail::execute_with_allocator<mr::thrust_allocator<char>, thrust::cuda_cub::execute_on_stream_base>;
using thrust_exec_policy_nosync_t =
    thrust::detail::execute_with_allocator<mr::thrust_allocator<char>, thrust::cuda_cub::execute_on_stream_nosync_base>;

/// The first argument of an algorithm of Thrust: it runs on `work_stream` (`stream` is a member of Thrust's), and its
/// temporary memory comes from `mr` on that stream. Owns neither. The algorithm waits for the stream where Thrust's own
/// policy would.
class exec_policy : public thrust_exec_policy_t {
  public:
    RMM_UNIT_INLINE explicit exec_policy(cuda_stream_view work_stream = cuda_stream_default,
                                         device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : thrust_exec_policy_t(thrust::cuda_cub::execute_on_stream_base<thrust_exec_policy_t>(work_stream.value()),
                               mr::thrust_allocator<char>(work_stream, mr)) {}

    /// `rmm::exec_policy(stream)->on(stream)`, as 0.16 had it.
    thrust_exec_policy_t* operator->() noexcept { return this; }
    thrust_exec_policy_t const* operator->() const noexcept { return this; }
};

/// The same, but the algorithm waits for the stream only where its result needs it.
class exec_policy_nosync : public thrust_exec_policy_nosync_t {
  public:
    RMM_UNIT_INLINE explicit exec_policy_nosync(cuda_stream_view work_stream = cuda_stream_default,
                                                device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : thrust_exec_policy_nosync_t(
              thrust::cuda_cub::execute_on_stream_nosync_base<thrust_exec_policy_nosync_t>(work_stream.value()),
              mr::thrust_allocator<char>(work_stream, mr)) {}
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
