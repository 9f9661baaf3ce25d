// Adaptors and prefetch as the drop-in (target rmm::rmm): the concepts of libcu++ that they model, and its spans.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cuda/memory_resource>
#include <cuda/std/span>

#include <type_traits>

#include "rmm/detail/cuda_memory_resource.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/device/aligned_resource_adaptor.hpp"
#include "rmm/mr/device/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/device/limiting_resource_adaptor.hpp"
#include "rmm/mr/device/managed_memory_resource.hpp"
#include "rmm/mr/device/owning_wrapper.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/mr/device/prefetch_resource_adaptor.hpp"
#include "rmm/mr/device/sam_headroom_memory_resource.hpp"
#include "rmm/mr/device/system_memory_resource.hpp"
#include "rmm/mr/device/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/is_resource_adaptor.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/prefetch.hpp"

namespace {

using namespace rmm::mr;

/// The row of an adaptor: device accessible whatever its upstream; C and M: copy and move construction and assignment.
template<typename T, bool IsAdaptor, bool Copies, bool Moves, bool IsFinal>
constexpr bool is_row = rmm::detail::polyfill::resource<T> && rmm::detail::polyfill::async_resource<T> &&
                        rmm::detail::polyfill::async_resource_with<T, cuda::mr::device_accessible> &&
                        !cuda::has_property<T, cuda::mr::host_accessible> && is_resource_adaptor<T> == IsAdaptor &&
                        std::is_copy_constructible_v<T> == Copies && std::is_copy_assignable_v<T> == Copies &&
                        std::is_move_constructible_v<T> == Moves && std::is_move_assignable_v<T> == Moves &&
                        std::is_final_v<T> == IsFinal && !std::is_default_constructible_v<T> &&
                        std::is_convertible_v<T&, rmm::device_async_resource_ref>;

static_assert(is_row<failure_callback_resource_adaptor<cuda_memory_resource>, true, false, true, true>);
static_assert(is_row<prefetch_resource_adaptor<cuda_memory_resource>, true, false, true, true>);
static_assert(is_row<limiting_resource_adaptor<cuda_memory_resource>, true, false, false, true>);
static_assert(is_row<aligned_resource_adaptor<cuda_memory_resource>, true, false, false, true>);
static_assert(is_row<thread_safe_resource_adaptor<cuda_memory_resource>, true, false, false, true>);
static_assert(is_row<limiting_resource_adaptor<pinned_host_memory_resource>, true, false, false, true>);
static_assert(is_row<owning_wrapper<pool_memory_resource<cuda_memory_resource>, cuda_memory_resource>, false, false,
                     true, false>);
static_assert(is_resource_adaptor<pool_memory_resource<cuda_memory_resource>&>);

template<typename T, bool Host, bool CopiesAndMoves>
constexpr bool is_plain_row =
    rmm::detail::polyfill::async_resource_with<T, cuda::mr::device_accessible> &&
    cuda::has_property<T, cuda::mr::host_accessible> == Host && !is_resource_adaptor<T> && std::is_final_v<T> &&
    std::is_copy_constructible_v<T> == CopiesAndMoves && std::is_move_assignable_v<T> == CopiesAndMoves;
static_assert(is_plain_row<system_memory_resource, true, true>);
static_assert(is_plain_row<sam_headroom_memory_resource, false, false>);
static_assert(is_plain_row<cuda_async_managed_memory_resource, false, false>);

TEST(InteropAdaptors, stand_behind_references_of_libcupp) {
    cuda_memory_resource cuda;
    limiting_resource_adaptor adaptor{&cuda, 1024};
    rmm::device_async_resource_ref ours{adaptor};
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> theirs = ours;
    rmm::cuda_stream stream;
    void* const ptr = theirs.allocate_async(100, 64, stream.view());
    EXPECT_EQ(adaptor.get_allocated_bytes(), 256u);
    theirs.deallocate_async(ptr, 100, 64, stream.view());
    aligned_resource_adaptor<cuda_memory_resource> over_theirs{theirs, 512};
    over_theirs.deallocate(over_theirs.allocate(100), 100);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
}

TEST(InteropPrefetch, takes_spans) {
    managed_memory_resource managed;
    rmm::cuda_stream stream;
    rmm::device_uvector<int> vector(100, stream, managed);
    const auto device = rmm::get_current_cuda_device();
    rmm::prefetch<int>(vector, device, stream);
    rmm::prefetch<int>({vector.begin(), vector.begin() + vector.size() / 2}, device, stream);
    rmm::device_scalar<int> scalar(stream, managed);
    rmm::prefetch<int>(cuda::std::span<int const>{scalar.data(), scalar.size()}, device, stream);
    rmm::prefetch(cuda::std::span<int const>{scalar.data(), scalar.size()}, device, stream);  // T is deduced
    rmm::prefetch(vector.data(), vector.size() * sizeof(int), rmm::cuda_device_id{cudaCpuDeviceId}, stream);
    stream.synchronize();
}

}  // namespace
