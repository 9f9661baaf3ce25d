// A + B with the calls of a README: sizes as plain numbers, tiles as two of them, a mapping each. Exits with 1 if an
// element is wrong.
#include "kmm/kmm.hpp"

__global__ void sum(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> out, kmm::GPUSubview<float> a,
                    kmm::GPUSubview<float> b) {
    int64_t i = blockIdx.x * blockDim.x + threadIdx.x + range.begin;
    if (i >= range.end) return;
    out[i] = a[i] + b[i];
}

int main() {
    long n = 300'000;
    long chunk_size = n / 10;
    dim3 block_size = 256;

    auto rt = kmm::make_runtime();
    auto A = kmm::Array<float>{n};
    auto B = kmm::Array<float>{n};
    auto C = kmm::Array<float>{n};
    initialize_inputs(A, B);
    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(sum, block_size), _x, write(C[_x]), A[_x], B[_x]);
    rt.synchronize();

    const auto result = C.copy_to_vector();
    for (long i = 0; i < n; i++) {
        if (result[static_cast<size_t>(i)] != float(i % 512) + float(i % 7)) return 1;
    }
    return C.distribution().num_chunks() == 10 ? 0 : 1;
}
