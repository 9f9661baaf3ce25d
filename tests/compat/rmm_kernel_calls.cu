// The calls of the introductions to RMM 0.16, hipMM and RMM 25 that launch a kernel or an algorithm of Thrust. Needs a
// GPU.
#include <cstdint>

#include <cuda_runtime_api.h>

#include <thrust/execution_policy.h>
#include <thrust/sort.h>
#include <thrust/uninitialized_fill.h>

#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/thrust_rmm_allocator.h>

#include "expect.hpp"

__global__ void count_down(void* numbers, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) static_cast<std::int32_t*>(numbers)[i] = n - i;
}

__global__ void add_one(std::int32_t* number) { ++*number; }

constexpr int n = 1000;

void a_kernel_uses_a_buffer_on_its_stream() {
    rmm::cuda_stream stream;
    auto buffer = rmm::device_buffer(n * sizeof(std::int32_t), stream.view());
    count_down<<<4, 256, 0, stream.value()>>>(buffer.data(), n);
    rmm::device_uvector<std::int32_t> copy(n, stream.view());
    EXPECT_THAT(cudaMemcpyAsync(copy.data(), buffer.data(), buffer.size(), cudaMemcpyDefault, stream.value()) ==
                cudaSuccess);
    EXPECT_THAT(copy.front_element(stream) == n && copy.back_element(stream) == 1);
}

void a_kernel_uses_a_scalar(cudaStream_t s) {
    rmm::device_scalar<std::int32_t> a{s};
    a.set_value(42, s);
    add_one<<<1, 1, 0, s>>>(a.data());
    EXPECT_THAT(a.value(s) == 43);
}

void thrust_sorts(cudaStream_t s) {
    rmm::device_uvector<std::int32_t> v(n, s);
    thrust::uninitialized_fill(thrust::cuda::par.on(s), v.begin(), v.end(), std::int32_t{0});
    EXPECT_THAT(v.back_element(s) == 0);
    for (int way = 0; way < 3; ++way) {
        count_down<<<4, 256, 0, s>>>(v.data(), n);
        if (way == 0) thrust::sort(rmm::exec_policy(s)->on(s), v.begin(), v.end());
        if (way == 1) thrust::sort(rmm::exec_policy(s), v.begin(), v.end());
        if (way == 2) thrust::sort(rmm::exec_policy_nosync(s), v.begin(), v.end());
        EXPECT_THAT(v.front_element(s) == 1 && v.back_element(s) == n);
    }
    rmm::device_vector<std::int32_t> w(n, 7);
    EXPECT_THAT(w.size() == n && w[n - 1] == 7);
}

int main() {
    int num_gpus = 0;
    if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) return 77;
    auto async = rmm::mr::cuda_async_memory_resource{};
    rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource> pool{rmm::mr::get_current_device_resource(),
                                                                        1 << 24};
    for (rmm::mr::device_memory_resource* mr :
         {rmm::mr::get_current_device_resource(), static_cast<rmm::mr::device_memory_resource*>(&async),
          static_cast<rmm::mr::device_memory_resource*>(&pool)}) {
        rmm::mr::set_current_device_resource(mr);
        a_kernel_uses_a_buffer_on_its_stream();
        cudaStream_t s = nullptr;
        EXPECT_THAT(cudaStreamCreate(&s) == cudaSuccess);
        a_kernel_uses_a_scalar(s);
        thrust_sorts(s);
        EXPECT_THAT(cudaStreamSynchronize(s) == cudaSuccess);
        EXPECT_THAT(cudaStreamDestroy(s) == cudaSuccess);
    }
    rmm::mr::set_current_device_resource(nullptr);
}
