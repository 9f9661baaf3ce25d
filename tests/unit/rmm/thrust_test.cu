// Thrust over our resources: its allocator (on any driver), its vector and its algorithms (they launch CUDA's kernels,
// so on the cuda driver only). One file, because Thrust is dear to compile.
#include <gtest/gtest.h>

#include <thrust/fill.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/uninitialized_fill.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "driver/registry.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_runtime_api.h"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/device/arena_memory_resource.hpp"
#include "rmm/mr/device/binning_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_memory_resource.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/managed_memory_resource.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/mr/device/system_memory_resource.hpp"
#include "rmm/mr/device/thrust_allocator_adaptor.hpp"
#include "rmm/thrust_rmm_allocator.h"

template class rmm::mr::thrust_allocator<int>;

namespace {

using rmm::mr::thrust_allocator;

static_assert(
    std::is_same_v<std::allocator_traits<thrust_allocator<int>>::rebind_alloc<double>, thrust_allocator<double>>);
static_assert(std::is_base_of_v<thrust::device_malloc_allocator<int>, thrust_allocator<int>>);
static_assert(cuda::has_property<thrust_allocator<int>, cuda::mr::device_accessible>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_t, rmm::exec_policy>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_nosync_t, rmm::exec_policy_nosync>);

TEST(ThrustAllocator, uses_its_stream_and_the_current_resource) {
    rmm::cuda_stream stream;
    const thrust_allocator<int> allocator{stream.view()};
    EXPECT_EQ(allocator.stream(), stream.view());
    EXPECT_EQ(allocator.get_upstream_resource(), rmm::mr::get_current_device_resource_ref());
    EXPECT_EQ(thrust_allocator<int>{}.stream(), rmm::cuda_stream_default);
    EXPECT_EQ(allocator.resource(), allocator.memory_resource());
}

TEST(ThrustAllocator, asks_for_exact_bytes_on_its_stream) {
    rmm_test::recording_resource mr;
    rmm::cuda_stream stream;
    thrust_allocator<int> allocator{stream.view(), mr};
    auto ptr = allocator.allocate(100);
    EXPECT_NE(ptr.get(), nullptr);
    allocator.deallocate(ptr, 100);
    EXPECT_EQ(mr.allocations[0].bytes, 400u);
    EXPECT_EQ(mr.allocations[0].stream, stream.view());
    EXPECT_EQ(mr.frees[0].bytes, 400u);
    EXPECT_EQ(mr.frees[0].stream, stream.view());
}

TEST(ThrustAllocator, a_rebound_copy_keeps_resource_stream_and_device) {
    rmm_test::recording_resource mr;
    rmm::cuda_stream stream;
    const thrust_allocator<int> ints{stream.view(), mr};
    thrust_allocator<double> doubles{ints};
    EXPECT_EQ(doubles.stream(), stream.view());
    EXPECT_EQ(doubles.get_upstream_resource(), rmm::device_async_resource_ref{mr});
    doubles.deallocate(doubles.allocate(3), 3);
    EXPECT_EQ(mr.allocations[0].bytes, 24u);
}

TEST(ThrustAllocator, works_on_the_device_on_which_it_was_made) {
    if (rmm::get_num_cuda_devices() < 2) GTEST_SKIP() << "needs two devices";
    rmm_test::recording_resource mr;
    thrust_allocator<int> allocator{rmm::cuda_stream_view{}, mr};
    rmm::cuda_set_device_raii other{rmm::cuda_device_id{1}};
    auto ptr = allocator.allocate(1);
    allocator.deallocate(ptr, 1);
    EXPECT_EQ(mr.allocations[0].device, 0);
    EXPECT_EQ(mr.frees[0].device, 0);
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
}

TEST(ThrustAllocator, refuses_counts_whose_bytes_cannot_be_counted) {
    thrust_allocator<double> allocator;
    EXPECT_THROW((void)allocator.allocate((std::size_t{1} << 61) + 1), rmm::bad_alloc);
}

TEST(ExecPolicy, can_be_made_in_every_way) {
    rmm::cuda_stream stream;
    rmm_test::recording_resource mr;
    rmm::exec_policy plain;
    rmm::exec_policy with_both{stream, mr};
    rmm::exec_policy_nosync nosync{stream.view()};
    EXPECT_EQ(with_both.get_allocator().stream(), stream.view());
    EXPECT_EQ(with_both.get_allocator().get_upstream_resource(), rmm::device_async_resource_ref{mr});
    EXPECT_EQ(get_stream(with_both), stream.value());
    EXPECT_EQ(get_stream(nosync), stream.value());
    EXPECT_EQ(get_stream(plain->on(stream.value())), stream.value());
    EXPECT_EQ(plain->on(stream.value()).get_allocator().stream(), rmm::cuda_stream_default);
}

/// What launches kernels.
class Thrust : public testing::Test {
  protected:
    void SetUp() override {
        if (kmm::driver::process_default().kind() != kmm::driver::Kind::cuda)
            GTEST_SKIP() << "Thrust's kernels run on the cuda driver";
    }
};

template<typename Resource>
void sum_a_vector(Resource& mr) {
    rmm::mr::set_current_device_resource(&mr);
    {
        rmm::device_vector<int> ints(100, 1);
        EXPECT_EQ(thrust::reduce(ints.begin(), ints.end()), 100);
    }
    rmm::mr::set_current_device_resource(nullptr);
}

TEST_F(Thrust, a_device_vector_takes_its_memory_from_the_current_resource) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::managed_memory_resource managed;
    rmm::mr::cuda_async_memory_resource async{std::size_t{1} << 20};
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20};
    rmm_test::recording_resource recording;
    sum_a_vector(cuda);
    sum_a_vector(managed);
    sum_a_vector(async);
    rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, 8 << 20};
    rmm::mr::binning_memory_resource<decltype(pool)> binning{&pool, 18, 22};
    sum_a_vector(pool);
    sum_a_vector(arena);
    sum_a_vector(binning);
    sum_a_vector(recording);
    ASSERT_FALSE(recording.allocations.empty());
    EXPECT_EQ(recording.allocations[0].bytes, 400u);
    EXPECT_EQ(recording.in_use, 0u);
}

template<typename Policy>
void sort_on(Policy const& policy, rmm::cuda_stream_view stream) {
    constexpr int n = 100'000;
    rmm::device_uvector<std::int64_t> numbers(n, stream);
    thrust::sequence(policy, numbers.begin(), numbers.end(), std::int64_t{n}, std::int64_t{-1});
    thrust::sort(policy, numbers.begin(), numbers.end());
    EXPECT_EQ(numbers.front_element(stream), 1);
    EXPECT_EQ(numbers.back_element(stream), n);
    EXPECT_EQ(thrust::reduce(policy, numbers.begin(), numbers.end()), std::int64_t{n} * (n + 1) / 2);
}

TEST_F(Thrust, algorithms_run_on_the_stream_with_temporaries_from_the_resource) {
    rmm::cuda_stream stream;
    rmm_test::recording_resource mr;
    sort_on(rmm::exec_policy{stream, mr}, stream);
    EXPECT_FALSE(mr.allocations.empty());
    for (const auto& request : mr.allocations) EXPECT_EQ(request.stream, stream.view());
    EXPECT_EQ(mr.in_use, 0u);
    mr.allocations.clear();
    sort_on(rmm::exec_policy_nosync{stream, mr}, stream);
    EXPECT_FALSE(mr.allocations.empty());
    EXPECT_EQ(mr.in_use, 0u);
}

TEST_F(Thrust, the_spelling_of_0_16_works) {
    rmm::cuda_stream stream;
    sort_on(rmm::exec_policy(stream)->on(stream.value()), stream);
    rmm::device_uvector<std::int32_t> zeros(100, stream);
    thrust::uninitialized_fill(thrust::cuda::par.on(stream.value()), zeros.begin(), zeros.end(), std::int32_t{0});
    thrust::sort(rmm::exec_policy(stream)->on(stream.value()), zeros.begin(), zeros.end());
    EXPECT_EQ(zeros.back_element(stream), 0);
}

TEST_F(Thrust, system_memory_that_a_kernel_touches_first_is_of_the_device) {
    if (!rmm::mr::detail::is_system_memory_supported(rmm::get_current_cuda_device()))
        GTEST_SKIP() << "the device does not reach pageable memory";
    constexpr std::size_t count = std::size_t{64} << 18;  // 64 MiB of words
    rmm::mr::system_memory_resource mr;
    rmm::cuda_stream stream;
    rmm::device_uvector<std::int32_t> numbers(count, stream, mr);
    stream.synchronize();
    const std::size_t before = rmm::available_device_memory().first;
    thrust::fill(rmm::exec_policy{stream}, numbers.begin(), numbers.end(), std::int32_t{7});
    stream.synchronize();
    EXPECT_LT(rmm::available_device_memory().first, before);
    EXPECT_EQ(numbers.data()[count - 1], 7);  // the host reads it where it is
}

TEST_F(Thrust, a_vector_may_be_destroyed_while_another_device_is_current) {
    if (rmm::get_num_cuda_devices() < 2) GTEST_SKIP() << "needs two devices";
    auto ints = std::make_unique<rmm::device_vector<int>>(100, 1);
    rmm::cuda_set_device_raii other{rmm::cuda_device_id{1}};
    ints.reset();
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
