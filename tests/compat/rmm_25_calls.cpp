// The C++ calls of the introduction to RMM 25, from the two headers that it includes. Kernels: rmm_kernel_calls.cu.
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>

#include "expect.hpp"

void a_pool_of_the_driver_serves_buffers() {
    auto pool = rmm::mr::cuda_async_memory_resource{1 << 20};
    auto* const before = rmm::mr::set_current_device_resource(&pool);
    {
        rmm::cuda_stream stream;
        rmm::device_buffer bytes(1024, stream.view());
        stream.synchronize();
        EXPECT_THAT(bytes.data() != nullptr && bytes.size() == 1024);
        EXPECT_THAT(bytes.memory_resource() == rmm::device_async_resource_ref{pool});
        auto more = rmm::device_buffer(2048, stream.view());
        EXPECT_THAT(more.stream() == stream.view());
    }
    EXPECT_THAT(rmm::mr::set_current_device_resource(before) == &pool);
}

void the_same_with_nothing_said_about_sizes() {
    auto pool = rmm::mr::cuda_async_memory_resource{};
    rmm::cuda_stream stream;
    rmm::device_buffer bytes(1024, stream.view(), pool);
    EXPECT_THAT(bytes.capacity() == 1024);
}

int main() {
    a_pool_of_the_driver_serves_buffers();
    the_same_with_nothing_said_about_sizes();
}
