// The same headers as the drop-in (target rmm::rmm, CUDA's headers on the path): streams and references convert to and
// from those of libcu++, on memory of the process's driver.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cuda/memory_resource>
#include <cuda/std/span>
#include <cuda/stream_ref>

#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/detail/cccl_adaptors.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

namespace {

using device_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
using rmm_test::recording_resource;

static_assert(sizeof(rmm::device_async_resource_ref) == 16);
static_assert(sizeof(rmm::cuda_stream_view) == 8);

TEST(Interop, streams_convert_both_ways) {
    rmm::cuda_stream stream;
    const cuda::stream_ref theirs = stream.view();
    EXPECT_EQ(theirs.get(), stream.value());
    const rmm::cuda_stream_view ours = theirs;
    EXPECT_EQ(ours, stream.view());
    EXPECT_TRUE(rmm::cuda_stream_view{cudaStreamLegacy}.is_default());
    EXPECT_TRUE(rmm::cuda_stream_view{cudaStreamPerThread}.is_per_thread_default());
}

TEST(Interop, our_reference_becomes_theirs_and_outlives_its_source) {
    recording_resource mr;
    auto simple = [&]() -> device_ref {
        rmm::device_async_resource_ref ours{mr};
        return ours;
    };
    device_ref theirs = simple();
    rmm::cuda_stream stream;
    void* const ptr = theirs.allocate_async(100, 64, stream.view());
    theirs.deallocate_async(ptr, 100, 64, stream.view());
    ASSERT_EQ(mr.allocations.size(), 1u);
    EXPECT_EQ(mr.allocations[0].bytes, 100u);
    EXPECT_EQ(mr.allocations[0].stream, stream.view());
}

TEST(Interop, a_reference_constructed_from_an_lvalue_copies_the_object_not_the_reference) {
    recording_resource a;
    recording_resource b;
    rmm::device_async_resource_ref ours{a};
    device_ref theirs(ours);
    ours = b;
    void* const ptr = theirs.allocate(10);
    theirs.deallocate(ptr, 10);
    EXPECT_EQ(a.allocations.size(), 1u);
    EXPECT_TRUE(b.allocations.empty());
}

TEST(Interop, weaker_references_of_theirs_can_be_made) {
    rmm::mr::pinned_host_memory_resource pinned;
    rmm::host_device_async_resource_ref ours{pinned};
    const cuda::mr::resource_ref<cuda::mr::host_accessible> host = ours;
    const cuda::mr::async_resource_ref<cuda::mr::device_accessible> device = ours;
    cuda::mr::async_resource_ref<cuda::mr::device_accessible, cuda::mr::host_accessible> both = ours;
    (void)host;
    (void)device;
    void* const ptr = both.allocate(10);
    EXPECT_NE(ptr, nullptr);
    both.deallocate(ptr, 10);
}

TEST(Interop, their_reference_becomes_ours) {
    recording_resource mr;
    device_ref theirs{mr};
    rmm::device_async_resource_ref ours = theirs;
    rmm::device_resource_ref weaker = theirs;
    rmm::cuda_stream stream;
    ours.deallocate_async(ours.allocate_async(100, stream), 100, stream);
    weaker.deallocate(weaker.allocate(50), 50);
    ASSERT_EQ(mr.allocations.size(), 2u);
    EXPECT_EQ(mr.allocations[0].stream, stream.view());
    EXPECT_EQ(ours, rmm::device_async_resource_ref{device_ref{mr}});
    {
        rmm::device_buffer buffer{100, stream, theirs};
        EXPECT_EQ(buffer.memory_resource(), ours);
    }
    EXPECT_EQ(mr.in_use, 0u);
}

/// A resource of a program that knows libcu++ but not rmm.
struct foreign_resource {
    void* allocate(std::size_t, std::size_t) {
        ++num_synchronous;
        return this;
    }
    void deallocate(void*, std::size_t, std::size_t) { ++num_synchronous; }
    void* allocate_async(std::size_t, std::size_t, cuda::stream_ref stream) {
        last_stream = stream.get();
        ++num_ordered;
        return this;
    }
    void deallocate_async(void*, std::size_t, std::size_t, cuda::stream_ref) { ++num_ordered; }
    bool operator==(const foreign_resource&) const { return true; }
    bool operator!=(const foreign_resource&) const { return false; }
    friend void get_property(const foreign_resource&, cuda::mr::device_accessible) noexcept {}
    cudaStream_t last_stream = nullptr;
    int num_synchronous = 0;
    int num_ordered = 0;
};

TEST(Interop, resources_of_libcu_programs_are_resources) {
    static_assert(std::is_convertible_v<foreign_resource&, rmm::device_async_resource_ref>);
    static_assert(std::is_convertible_v<foreign_resource*, rmm::device_async_resource_ref>);
    foreign_resource mr;
    rmm::device_async_resource_ref ref{mr};
    rmm::cuda_stream stream;
    EXPECT_EQ(ref.allocate_async(5, stream), &mr);
    EXPECT_EQ(mr.last_stream, stream.value());
    EXPECT_EQ(ref.allocate(5), &mr);
}

TEST(Interop, synchronous_calls_stay_synchronous_through_references_of_either_kind) {
    foreign_resource mr;
    rmm::device_async_resource_ref ours{mr};
    ours.deallocate(ours.allocate(8), 8);
    device_ref theirs{mr};
    rmm::device_resource_ref from_theirs = theirs;
    from_theirs.deallocate(from_theirs.allocate(8), 8);
    rmm::device_async_resource_ref ordered_from_theirs = theirs;
    ordered_from_theirs.deallocate_sync(ordered_from_theirs.allocate_sync(8), 8);
    device_ref from_ours = ours;
    from_ours.deallocate(from_ours.allocate(8, 8), 8, 8);
    EXPECT_EQ(mr.num_synchronous, 8);
    EXPECT_EQ(mr.num_ordered, 0);
}

TEST(Interop, the_names_of_25_10_mean_our_references) {
    static_assert(std::is_same_v<rmm::detail::cccl_async_resource_ref<device_ref>, rmm::device_async_resource_ref>);
    static_assert(std::is_same_v<rmm::device_async_resource_ref::base, device_ref>);
    static_assert(std::is_same_v<rmm::detail::cccl_resource_ref<cuda::mr::resource_ref<cuda::mr::host_accessible>>,
                                 rmm::host_resource_ref>);
    SUCCEED();
}

TEST(Interop, containers_of_this_unit_work_with_the_library) {
    rmm::cuda_stream stream;
    rmm::device_uvector<int> v(10, stream);
    v.set_element(3, 7, stream);
    EXPECT_EQ(v.element(3, stream), 7);
    const cuda::std::span<int> view = v;
    EXPECT_EQ(view.size(), 10u);
    EXPECT_EQ(view.data(), v.data());
    const auto& constant = v;
    const cuda::std::span<const int> constant_view = constant;
    EXPECT_EQ(constant_view.data(), v.data());
    EXPECT_EQ(v.rbegin().base(), v.end());
    rmm::device_scalar<double> scalar(2.5, stream);
    EXPECT_EQ(scalar.value(stream), 2.5);
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, 1024};
    rmm::device_buffer buffer{100, cuda::stream_ref{stream.value()}, pool};
    EXPECT_EQ(buffer.size(), 100u);
}

}  // namespace
