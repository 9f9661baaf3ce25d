// Owns: the kernels of kernels.hpp for the cuda driver.
#include <cuda_runtime_api.h>

#include "kernels.hpp"

namespace driver_test {
namespace {

__global__ void add(int* data, unsigned n, int value) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += value;
}

__global__ void number(unsigned* out) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    const unsigned i = (z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x;
    out[i] = i;
}

__global__ void affine(unsigned long long* x, unsigned long long a, unsigned long long b) { *x = *x * a + b; }

__global__ void shared(unsigned char* out, unsigned n) {
    extern __shared__ unsigned char memory[];
    for (unsigned i = 0; i < n; ++i) memory[i] = static_cast<unsigned char>(i * 7);
    for (unsigned i = 0; i < n; ++i) out[i] = memory[i];
}

/// Serves every device, so that one set of handles does for all streams of a test.
template<typename F>
const void* handle(F* function) {
    cudaKernel_t result = nullptr;
    return cudaGetKernel(&result, reinterpret_cast<const void*>(function)) == cudaSuccess ? result : nullptr;
}

}  // namespace

Kernels cuda_kernels() { return {handle(add), handle(number), handle(affine), handle(shared)}; }

}  // namespace driver_test
