// Virtual memory of one GPU, used by kernels of another: access is set when a piece is mapped. Two GPUs.
#include <gtest/gtest.h>

#include "driver/registry.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"

__global__ void add_one(unsigned* words, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] += 1;
}

namespace {

TEST(VmmPeers, a_kernel_of_another_gpu_reads_and_writes_what_one_gpu_mapped) {
    auto& driver = kmm::driver::process_default();
    if (driver.kind() == kmm::driver::Kind::host || driver.device_count() < 2) GTEST_SKIP() << "needs two GPUs";
    bool reaches = false;
    ASSERT_TRUE(driver.can_access_peer(1, 0, &reaches).ok());
    if (!reaches) GTEST_SKIP() << "GPU 1 does not reach GPU 0";
    constexpr unsigned count = 5 << 20;
    rmm::cuda_set_device_raii on_zero{rmm::cuda_device_id{0}};
    rmm::mr::vmm_memory_resource vmm{std::size_t{256} << 20};
    rmm::cuda_stream stream;
    // Moved pieces keep the access, too: the second block is put together from two.
    void* const first = vmm.allocate(100 << 20, stream);
    void* const gap = vmm.allocate(20 << 20, stream);
    void* const second = vmm.allocate(100 << 20, stream);
    vmm.deallocate(first, 100 << 20, stream);
    vmm.deallocate(second, 100 << 20, stream);
    stream.synchronize();
    auto* const words = static_cast<unsigned*>(vmm.allocate(180 << 20, stream));
    EXPECT_GE(vmm.mappings().moves, 1u);
    const unsigned value = 41;
    ASSERT_TRUE(driver.fill(words, &value, sizeof(value), count, {stream.value()}).ok());
    stream.synchronize();
    {
        rmm::cuda_set_device_raii on_one{rmm::cuda_device_id{1}};
        rmm::cuda_stream there;
        add_one<<<(count + 255) / 256, 256, 0, there.value()>>>(words, count);
        there.synchronize();
    }
    unsigned last = 0;
    ASSERT_TRUE(driver.copy(&last, words + count - 1, sizeof(last), {stream.value()}).ok());
    stream.synchronize();
    EXPECT_EQ(last, 42u);
    vmm.deallocate(words, 180 << 20, stream);
    vmm.deallocate(gap, 20 << 20, stream);
}

}  // namespace
