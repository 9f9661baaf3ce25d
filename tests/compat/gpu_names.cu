// The names of KMM 0.3 for the driver's types, constants and functions, called from a namespace of the program's as its
// users do. Compiled as CUDA, and as HIP where its headers are; run on a GPU.
#include "kmm/kmm.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace program {

using kmm::GPUcontext, kmm::GPUdevice, kmm::GPUdeviceptr, kmm::GPUevent_t, kmm::GPUresult, kmm::GPUstream_t;

void expect(bool right, int line) {
    if (right) return;
    std::fprintf(stderr, "wrong at line %d\n", line);
    std::exit(1);
}
#define EXPECT(...) expect((__VA_ARGS__), __LINE__)

__global__ void twice(float* data) { data[threadIdx.x] *= 2; }

void use_a_context_of_the_device() {
    int count = 0;
    KMM_GPU_CHECK(gpuInit(0));
    KMM_GPU_CHECK(gpuDeviceGetCount(&count));
    GPUdevice device, current;
    KMM_GPU_CHECK(gpuDeviceGet(&device, 0));
    char name[100] = "";
    int value = 0;
    std::size_t total = 0, free = 0;
    KMM_GPU_CHECK(gpuDeviceGetName(name, sizeof name, device));
    KMM_GPU_CHECK(gpuDeviceGetAttribute(&value, GPU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
    KMM_GPU_CHECK(gpuDeviceTotalMem(&total, device));
    EXPECT(count > 0 && name[0] != 0 && value >= 256 && total > 0);
    GPUcontext context;
    KMM_GPU_CHECK(gpuDevicePrimaryCtxRetain(&context, device));
    KMM_GPU_CHECK(gpuCtxPushCurrent(context));
    KMM_GPU_CHECK(gpuCtxGetDevice(&current));
    KMM_GPU_CHECK(gpuMemGetInfo(&free, &total));
    EXPECT(current == device && free <= total);
    GPUcontext popped;
    KMM_GPU_CHECK(gpuCtxPopCurrent(&popped));
    KMM_GPU_CHECK(gpuCtxSetCurrent(context));
    EXPECT(popped == context);
}

void copy_and_fill_on_a_stream() {
    GPUstream_t stream;
    KMM_GPU_CHECK(gpuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING));
    GPUdeviceptr device, other;
    KMM_GPU_CHECK(gpuMemAlloc(&device, 64 * sizeof(float)));
    KMM_GPU_CHECK(gpuMemAlloc(&other, 64 * sizeof(float)));
    void* pinned = nullptr;
    KMM_GPU_CHECK(gpuMemHostAlloc(&pinned, 64 * sizeof(float), GPU_MEMHOSTALLOC_PORTABLE));
    float* const host = static_cast<float*>(pinned);
    for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
    KMM_GPU_CHECK(gpuMemcpyHtoDAsync(device, host, 64 * sizeof(float), stream));
    twice<<<1, 64, 0, stream>>>(reinterpret_cast<float*>(device));
    KMM_GPU_CHECK(gpuGetLastError());
    KMM_GPU_CHECK(gpuMemcpyAsync(other, device, 64 * sizeof(float), stream));
    KMM_GPU_CHECK(gpuMemcpyDtoHAsync(host, other, 64 * sizeof(float), stream));
    GPUevent_t event;
    KMM_GPU_CHECK(gpuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
    KMM_GPU_CHECK(gpuEventRecord(event, stream));
    KMM_GPU_CHECK(gpuStreamWaitEvent(stream, event, GPU_EVENT_WAIT_DEFAULT));
    KMM_GPU_CHECK(gpuEventSynchronize(event));
    EXPECT(gpuEventQuery(event) == GPU_SUCCESS && host[63] == 126);
    KMM_GPU_CHECK(gpuMemsetD8Async(device, 0, 64 * sizeof(float), stream));
    KMM_GPU_CHECK(gpuMemcpyDtoHAsync(host, device, 64 * sizeof(float), stream));
    KMM_GPU_CHECK(gpuStreamSynchronize(stream));
    EXPECT(host[63] == 0);
    KMM_GPU_CHECK(gpuEventDestroy(event));
    KMM_GPU_CHECK(gpuStreamDestroy(stream));
    KMM_GPU_CHECK(gpuMemFree(device));
    KMM_GPU_CHECK(gpuMemFree(other));
    KMM_GPU_CHECK(gpuMemFreeHost(pinned));
}

void name_an_error() {
    const char *name = nullptr, *text = nullptr;
    const GPUresult status = GPU_ERROR_OUT_OF_MEMORY;
    KMM_GPU_CHECK(gpuGetErrorName(status, &name));
    KMM_GPU_CHECK(gpuGetErrorString(status, &text));
    EXPECT(std::strlen(name) > 0 && std::strlen(text) > 0);
}

// Of the header's later versions.
void use_the_runtime() {
    using kmm::gpu_error_t;
    float* data = nullptr;
    const gpu_error_t status = gpu_malloc(reinterpret_cast<void**>(&data), 1 << 20);
    EXPECT(status == decltype(status)(0) && gpu_get_error_string(status) != nullptr);
    EXPECT(gpu_free(data) == decltype(status)(0) && gpu_device_synchronize() == decltype(status)(0));
    gpu_mem_pool_t pool;
    EXPECT(gpu_device_get_default_mem_pool(&pool, 0) == decltype(status)(0));
}

}  // namespace program

int main() {
    int count = 0;
    if (gpuInit(0) != GPU_SUCCESS || gpuDeviceGetCount(&count) != GPU_SUCCESS || count == 0) return 77;
    program::use_a_context_of_the_device();
    program::copy_and_fill_on_a_stream();
    program::name_an_error();
    program::use_the_runtime();
}
