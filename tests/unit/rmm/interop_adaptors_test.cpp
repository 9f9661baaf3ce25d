// Adaptors and prefetch as the drop-in (target rmm::rmm): the concepts of libcu++ that they model, and its spans.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cuda/memory_resource>
#include <cuda/std/span>

#include <type_traits>

#include "driver/registry.hpp"
#include "rmm/detail/cuda_memory_resource.hpp"
#include "rmm/detail/runtime_capabilities.hpp"
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

/// What only a GPU can tell: where a range was last prefetched to.
class PrefetchOnGpu : public testing::Test {
  protected:
    void SetUp() override {
        if (kmm::driver::process_default().kind() != kmm::driver::Kind::cuda)
            GTEST_SKIP() << "the host driver has all memory near";
        if (!rmm::detail::concurrent_managed_access::is_supported()) GTEST_SKIP() << "no concurrent managed access";
    }
    static int last_prefetched_to(void const* ptr, std::size_t bytes) {
        int location = cudaInvalidDeviceId;
        EXPECT_EQ(cudaMemRangeGetAttribute(&location, sizeof(location), cudaMemRangeAttributeLastPrefetchLocation, ptr,
                                           bytes),
                  cudaSuccess);
        return location;
    }
    managed_memory_resource managed_;
    rmm::cuda_stream stream_;
    rmm::cuda_device_id device_ = rmm::get_current_cuda_device();
};

TEST_F(PrefetchOnGpu, a_range_goes_to_the_device_and_back) {
    rmm::device_uvector<int> vector(1 << 20, stream_, managed_);
    EXPECT_EQ(last_prefetched_to(vector.data(), vector.size() * sizeof(int)), cudaInvalidDeviceId);
    rmm::prefetch<int>({vector.begin(), vector.begin() + vector.size() / 2}, device_, stream_);
    stream_.synchronize();
    EXPECT_EQ(last_prefetched_to(vector.data(), vector.size() / 2 * sizeof(int)), device_.value());
    EXPECT_EQ(last_prefetched_to(vector.data() + vector.size() / 2, vector.size() / 2 * sizeof(int)),
              cudaInvalidDeviceId);
    rmm::prefetch<int>(vector, rmm::cuda_device_id{cudaCpuDeviceId}, stream_);
    stream_.synchronize();
    EXPECT_EQ(last_prefetched_to(vector.data(), vector.size() * sizeof(int)), cudaCpuDeviceId);
}

TEST_F(PrefetchOnGpu, the_adaptor_prefetches_what_it_gives_and_only_it) {
    prefetch_resource_adaptor adaptor{&managed_};
    rmm::device_buffer prefetched{1 << 20, stream_, adaptor};
    rmm::device_buffer plain{1 << 20, stream_, managed_};
    stream_.synchronize();
    EXPECT_EQ(last_prefetched_to(prefetched.data(), prefetched.size()), device_.value());
    EXPECT_EQ(last_prefetched_to(plain.data(), plain.size()), cudaInvalidDeviceId);
    EXPECT_NO_THROW(rmm::prefetch(prefetched.data(), prefetched.size(), device_, stream_));
}

TEST_F(PrefetchOnGpu, memory_that_is_not_managed_leaves_no_error_behind) {
    cuda_memory_resource cuda;
    rmm::device_buffer buffer{1 << 20, stream_, cuda};
    EXPECT_NO_THROW(rmm::prefetch(buffer.data(), buffer.size(), device_, stream_));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_TRUE(kmm::driver::process_default().take_last_error().ok());
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
