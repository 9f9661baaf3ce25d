// What only CUDA itself can tell of memory: where a range was prefetched to, who may open a pool, what the
// decompression engine reads. Skipped on the host driver.
#include <gtest/gtest.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/runtime_capabilities.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/prefetch.hpp"

namespace {

using namespace rmm::mr;

bool on_gpu() { return kmm::driver::process_default().kind() == kmm::driver::Kind::cuda; }

/// What only a GPU can tell: where a range was last prefetched to.
class PrefetchOnGpu : public testing::Test {
  protected:
    void SetUp() override {
        if (!on_gpu()) GTEST_SKIP() << "the host driver has all memory near";
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

TEST_F(PrefetchOnGpu, a_scalar_and_a_part_of_a_buffer_go_to_the_device) {
    rmm::device_scalar<int> scalar(stream_, managed_);
    rmm::prefetch<int>({scalar.data(), scalar.size()}, device_, stream_);
    rmm::device_buffer buffer{1 << 20, stream_, managed_};
    EXPECT_EQ(last_prefetched_to(buffer.data(), buffer.size()), cudaInvalidDeviceId);
    rmm::prefetch(buffer.data(), buffer.size(), device_, stream_);
    stream_.synchronize();
    EXPECT_EQ(last_prefetched_to(scalar.data(), sizeof(int)), device_.value());
    EXPECT_EQ(last_prefetched_to(buffer.data(), buffer.size()), device_.value());
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

TEST(PoolOnGpu, other_processes_may_open_a_pool_that_was_made_for_it) {
    constexpr auto descriptor = cuda_async_memory_resource::allocation_handle_type::posix_file_descriptor;
    if (!on_gpu()) GTEST_SKIP() << "needs CUDA";
    if (!rmm::detail::export_handle_type::is_supported(static_cast<int>(descriptor)))
        GTEST_SKIP() << "the device exports no file descriptors";
    cuda_async_memory_resource mr{0, {}, descriptor};
    mr.deallocate(mr.allocate(1000), 1000);
    int file = -1;
    EXPECT_EQ(cudaMemPoolExportToShareableHandle(&file, mr.pool_handle(), cudaMemHandleTypePosixFileDescriptor, 0),
              cudaSuccess);
    EXPECT_GE(file, 0);
    cuda_async_memory_resource closed{0};
    EXPECT_NE(cudaMemPoolExportToShareableHandle(&file, closed.pool_handle(), cudaMemHandleTypePosixFileDescriptor, 0),
              cudaSuccess);
    (void)cudaGetLastError();
}

TEST(PoolOnGpu, fabric_handles_where_the_device_has_them) {
    constexpr auto fabric = cuda_async_memory_resource::allocation_handle_type::fabric;
    if (!on_gpu()) GTEST_SKIP() << "needs CUDA";
    if (!rmm::detail::export_handle_type::is_supported(static_cast<int>(fabric)))
        GTEST_SKIP() << "the device has no fabric handles";
    cuda_async_memory_resource mr{0, {}, fabric};
    mr.deallocate(mr.allocate(1000), 1000);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

#if CUDART_VERSION >= 12080
template<typename Resource>
void expect_decompression(Resource&& mr) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &entry, 4000, cudaEnableDefault, &found),
              cudaSuccess);
    void* const ptr = mr.allocate(1 << 20);
    int capable = 0;
    EXPECT_EQ(reinterpret_cast<decltype(&cuPointerGetAttribute)>(entry)(
                  &capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, reinterpret_cast<CUdeviceptr>(ptr)),
              CUDA_SUCCESS);
    EXPECT_NE(capable, 0);
    mr.deallocate(ptr, 1 << 20);
}

TEST(MemoryOnGpu, can_be_read_by_the_decompression_engine) {
    if (!on_gpu() || !rmm::detail::hwdecompress::is_supported()) GTEST_SKIP() << "needs CUDA 12.8";
    expect_decompression(cuda_memory_resource{});
    expect_decompression(cuda_async_memory_resource{0});
}
#endif

TEST(MemoryOnGpu, calls_of_the_runtime_succeed_inside_the_macros) {
    if (!on_gpu()) GTEST_SKIP() << "needs CUDA";
    const std::array<int, 5> source{1, 2, 3, 4, 5};
    std::array<int, 5> result{};
    void* ptr = nullptr;
    RMM_CUDA_TRY_ALLOC(cudaMalloc(&ptr, sizeof(source)), sizeof(source));
    RMM_CUDA_TRY(cudaMemcpy(ptr, source.data(), sizeof(source), cudaMemcpyDefault));
    RMM_CUDA_TRY(cudaMemcpy(result.data(), ptr, sizeof(source), cudaMemcpyDefault));
    RMM_ASSERT_CUDA_SUCCESS(cudaFree(ptr));
    EXPECT_EQ(result, source);
    EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaMalloc(&ptr, std::size_t{1} << 50)), rmm::out_of_memory);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(StreamOnGpu, the_runtime_reports_its_flag) {
    if (!on_gpu()) GTEST_SKIP() << "needs CUDA";
    const auto flags_of = [](rmm::cuda_stream_view stream) {
        unsigned int flags = 99;
        EXPECT_EQ(cudaStreamGetFlags(stream.value(), &flags), cudaSuccess);
        return flags;
    };
    const rmm::cuda_stream ordered{rmm::cuda_stream::flags::sync_default};
    const rmm::cuda_stream free_running{rmm::cuda_stream::flags::non_blocking};
    EXPECT_EQ(flags_of(ordered), cudaStreamDefault);
    EXPECT_EQ(flags_of(free_running), cudaStreamNonBlocking);
    const rmm::cuda_stream_pool by_default;
    for (std::size_t i = 0; i < by_default.get_pool_size(); ++i)
        EXPECT_EQ(flags_of(by_default.get_stream(i)), cudaStreamDefault);
    const rmm::cuda_stream_pool pool{2, rmm::cuda_stream::flags::non_blocking};
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(flags_of(pool.get_stream(i)), cudaStreamNonBlocking);
}

TEST(MemoryOnGpu, system_memory_is_where_it_was_first_touched) {
    if (!on_gpu() || !detail::is_system_memory_supported(rmm::get_current_cuda_device()))
        GTEST_SKIP() << "the device does not reach pageable memory";
    constexpr std::size_t bytes = std::size_t{64} << 20;
    system_memory_resource mr;
    rmm::cuda_stream stream;
    const std::size_t before = rmm::available_device_memory().first;
    void* const by_host = mr.allocate(bytes, stream);
    std::memset(by_host, 1, bytes);
    EXPECT_EQ(rmm::available_device_memory().first, before);
    mr.deallocate(by_host, bytes, stream);
}

}  // namespace
