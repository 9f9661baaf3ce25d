// A kernel that writes where nothing is takes the device from the process. A pool then gives errors: it neither hangs
// nor ends the process. GPU only; a process of its own.
#include <gtest/gtest.h>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"

__global__ void write_nowhere() { *reinterpret_cast<volatile int*>(0x10) = 1; }

namespace {

TEST(DeviceLost, pools_fail_with_errors_and_end_in_order) {
    if (kmm::driver::process_default().kind() == kmm::driver::Kind::host) GTEST_SKIP() << "no GPU";
    constexpr std::size_t MiB = std::size_t{1} << 20;
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, 64 * MiB};
    rmm::mr::vmm_memory_resource vmm;
    rmm::cuda_stream a;
    rmm::cuda_stream b;
    for (rmm::mr::device_memory_resource* mr : std::initializer_list<rmm::mr::device_memory_resource*>{&pool, &vmm}) {
        rmm::device_buffer small(1000, a, *mr);
        rmm::device_buffer large(20 * MiB, a, *mr);
    }
    rmm::device_buffer held(30 * MiB, a, pool);
    rmm::device_buffer mapped(30 * MiB, a, vmm);
    write_nowhere<<<1, 1, 0, a.value()>>>();
    EXPECT_THROW(a.synchronize(), rmm::cuda_error);
    // What the driver still gives is its own affair (mapping may go on working); what it refuses is an error.
    for (rmm::mr::device_memory_resource* mr : std::initializer_list<rmm::mr::device_memory_resource*>{&pool, &vmm}) {
        try {
            void* const ptr = mr->allocate(4096 * MiB, b);
            mr->deallocate(ptr, 4096 * MiB, b);
        } catch (const rmm::bad_alloc&) {}
    }
    for (int i = 0; i < 100; ++i) {
        for (rmm::mr::device_memory_resource* mr :
             std::initializer_list<rmm::mr::device_memory_resource*>{&pool, &vmm}) {
            try {
                void* const ptr = mr->allocate(1000, b);
                mr->deallocate(ptr, 1000, a);
            } catch (const rmm::bad_alloc&) {
            } catch (const rmm::cuda_error&) {}
        }
    }
}

}  // namespace
