// y = a * x + y: the host fills x and y, the GPU computes, the program reads the result.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

void fill(kmm::Range<int64_t> range, kmm::SubviewMut<float> x, kmm::SubviewMut<float> y) {
    for (int64_t i = range.begin; i < range.end; i++) {
        x[i] = float(i % 100);
        y[i] = 1.0f;
    }
}

__global__ void axpy(kmm::Range<int64_t> range, float a, kmm::GPUSubview<float> x, kmm::GPUSubviewMut<float> y) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] += a * x[i];
}

int main() {
    const int64_t n = 4'000'000, chunk_size = 1'000'000;
    auto rt = kmm::make_runtime();
    auto x = kmm::Array<float>{n}, y = kmm::Array<float>{n};

    rt.parallel_submit(n, chunk_size, kmm::Host(fill), _x, overwrite(x[_x]), overwrite(y[_x]));
    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(axpy, 256), _x, 2.0f, x[_x], write(y[_x]));

    const std::vector<float> result = y.copy_to_vector();  // waits for the tasks that it needs
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += result[std::size_t(i)] != 2.0f * float(i % 100) + 1.0f;

    const kmm::RuntimeStats stats = rt.stats();
    std::printf("y[42] is %g, %lld of %lld elements are wrong\n", double(result[42]), (long long)wrong, (long long)n);
    std::printf("%llu tasks, %llu bytes went to the GPU\n", (unsigned long long)stats.tasks_succeeded,
                (unsigned long long)stats.host_to_device.bytes);
    return wrong == 0 ? 0 : 1;
}
