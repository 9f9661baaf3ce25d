// Spellings that only one era of RMM had, and that are all offered: headers of both trees, functions of 23.12 and of
// 25.12.
#include <gtest/gtest.h>

#include <type_traits>

#include "rmm/detail/aligned.hpp"
#include "rmm/detail/cuda_util.hpp"
#include "rmm/detail/dynamic_load_runtime.hpp"
#include "rmm/detail/runtime_async_alloc.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
// 25.12 has its headers in rmm/mr, older releases in rmm/mr/device.
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/callback_memory_resource.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/device/aligned_resource_adaptor.hpp"
#include "rmm/mr/device/callback_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/device_memory_resource.hpp"
#include "rmm/mr/device/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/device/limiting_resource_adaptor.hpp"
#include "rmm/mr/device/managed_memory_resource.hpp"
#include "rmm/mr/device/owning_wrapper.hpp"
#include "rmm/mr/device/per_device_resource.hpp"
#include "rmm/mr/device/polymorphic_allocator.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/mr/device/prefetch_resource_adaptor.hpp"
#include "rmm/mr/device/sam_headroom_memory_resource.hpp"
#include "rmm/mr/device/system_memory_resource.hpp"
#include "rmm/mr/device/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/is_resource_adaptor.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/polymorphic_allocator.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "rmm/prefetch.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm::mr;

/// Overrides as 25.12 declares them: deallocation is noexcept.
class newer_resource final : public device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override {}
};

TEST(Spellings, resources_may_declare_deallocation_noexcept) {
    newer_resource mr;
    EXPECT_FALSE(mr.supports_streams());
    EXPECT_FALSE(mr.supports_get_mem_info());
    EXPECT_EQ(mr.get_mem_info(rmm::cuda_stream_view{}).second, 0u);
}

TEST(Spellings, stream_first_and_sync_calls_of_25_12) {
    cuda_memory_resource mr;
    rmm::cuda_stream stream;
    mr.deallocate(stream, mr.allocate(stream, 100), 100);
    mr.deallocate(stream, mr.allocate(stream, 100, 64), 100, 64);
    mr.deallocate_sync(mr.allocate_sync(100), 100);
    rmm::cuda_stream_view const view{};
    static_assert(noexcept(mr.deallocate(view, nullptr, 0)) && noexcept(mr.deallocate_sync(nullptr, 0)));
    (void)view;
    rmm::device_async_resource_ref ref{mr};
    ref.deallocate(stream, ref.allocate(stream, 100), 100);
    ref.deallocate_sync(ref.allocate_sync(100), 100);
    EXPECT_THROW((void)mr.allocate(stream, 100, 48), rmm::logic_error);
}

TEST(Spellings, which_resources_support_streams_and_tell_memory) {
    cuda_memory_resource cuda;
    managed_memory_resource managed;
    cuda_async_memory_resource async{MiB};
    cuda_async_view_memory_resource view{async.pool_handle()};
    cuda_async_managed_memory_resource async_managed;
    pool_memory_resource<cuda_memory_resource> pool{&cuda, MiB};
    pinned_host_memory_resource pinned;
    for (device_memory_resource* mr :
         {static_cast<device_memory_resource*>(&async), static_cast<device_memory_resource*>(&view),
          static_cast<device_memory_resource*>(&async_managed), static_cast<device_memory_resource*>(&pool)}) {
        EXPECT_TRUE(mr->supports_streams());
        EXPECT_FALSE(mr->supports_get_mem_info());
    }
    for (device_memory_resource* mr :
         {static_cast<device_memory_resource*>(&cuda), static_cast<device_memory_resource*>(&managed)}) {
        EXPECT_FALSE(mr->supports_streams());
        EXPECT_TRUE(mr->supports_get_mem_info());
        EXPECT_EQ(mr->get_mem_info(rmm::cuda_stream_view{}), rmm::available_device_memory());
    }
    EXPECT_FALSE(pinned.supports_streams());
    EXPECT_FALSE(system_memory_resource{}.supports_streams());
}

TEST(Spellings, upstreams_by_pointer_and_pools_without_sizes) {
    cuda_memory_resource cuda;
    const std::size_t half = rmm::percent_of_free_device_memory(50);
    pool_memory_resource<cuda_memory_resource> pool{&cuda};
    EXPECT_EQ(pool.pool_size(), half);
    pool.deallocate(pool.allocate(MiB), MiB);
    EXPECT_EQ(pool.get_upstream(), &cuda);
    EXPECT_EQ(&pool.upstream_resource(), &cuda);
    limiting_resource_adaptor<decltype(pool)> limited{&pool, MiB};
    EXPECT_TRUE(limited.get_upstream()->is_equal(pool));
    EXPECT_EQ(make_limiting_adaptor(&pool, MiB), limited);
    statistics_resource_adaptor<decltype(pool)> counted{&pool};
    EXPECT_EQ(make_statistics_adaptor(&pool), counted);
    EXPECT_TRUE(counted.get_upstream()->is_equal(pool));
    tracking_resource_adaptor<decltype(pool)> tracked{&pool};
    EXPECT_EQ(make_tracking_adaptor(&pool), tracked);
    EXPECT_TRUE(tracked.get_upstream()->is_equal(pool));
    logging_resource_adaptor<decltype(pool)> logged{&pool, "/dev/null"};
    EXPECT_EQ(make_logging_adaptor(&pool, "/dev/null"), logged);
    EXPECT_TRUE(logged.get_upstream()->is_equal(pool));
}

TEST(Spellings, alignment_functions_in_detail) {
    EXPECT_EQ(rmm::detail::align_up(5, rmm::detail::CUDA_ALLOCATION_ALIGNMENT), 256u);
    EXPECT_EQ(rmm::detail::align_down(300, 256), 256u);
    EXPECT_TRUE(rmm::detail::is_aligned(512, 256));
    EXPECT_TRUE(rmm::detail::is_pow2(64));
    EXPECT_TRUE(rmm::detail::is_supported_alignment(rmm::detail::RMM_DEFAULT_HOST_ALIGNMENT));
    EXPECT_TRUE(rmm::detail::is_pointer_aligned(nullptr));
    void* const ptr = rmm::detail::aligned_allocate(100, 128, [](std::size_t bytes) { return ::operator new(bytes); });
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, 128));
    rmm::detail::aligned_deallocate(ptr, 100, 128, [](void* p) { ::operator delete(p); });
}

TEST(Spellings, capabilities_under_the_names_of_every_era) {
    EXPECT_EQ(rmm::detail::available_device_memory(), rmm::available_device_memory());
    EXPECT_TRUE(rmm::detail::runtime_async_alloc::is_supported());
    EXPECT_TRUE(rmm::detail::async_alloc::is_supported());
    EXPECT_TRUE(rmm::detail::runtime_async_alloc::is_export_handle_type_supported(0));
    EXPECT_FALSE(rmm::detail::export_handle_type::is_supported(1));
    EXPECT_EQ(rmm::detail::runtime_async_alloc::is_hwdecompress_supported(), rmm::detail::hwdecompress::is_supported());
}

TEST(Spellings, scalars_of_0_16) {
    rmm::cuda_stream stream;
    rmm::device_scalar<int> scalar{5};
    scalar.set_value(42, stream);
    EXPECT_EQ(scalar.value(stream), 42);
}

TEST(Spellings, reverse_iterators_of_25_10) {
    rmm::device_uvector<int> vector(10, rmm::cuda_stream_default);
    EXPECT_EQ(vector.rbegin().base(), vector.end());
    EXPECT_EQ(vector.crend().base(), vector.cbegin());
    EXPECT_EQ(vector.rend() - vector.rbegin(), 10);
}

}  // namespace
