// A moving average: each element becomes the mean of itself and its two neighbours.
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

// `in` is what the mapping says, cut off at the ends of the array: an index that it does not have is outside.
__global__ void average(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> out, kmm::GPUSubview<float> in) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    const bool has_neighbours = in.in_bounds(i - 1) && in.in_bounds(i + 1);
    out[i] = has_neighbours ? (in[i - 1] + in[i] + in[i + 1]) / 3.0f : in[i];
}

__global__ void make_step(kmm::Range<int64_t> range, int64_t n, kmm::GPUSubviewMut<float> out) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) out[i] = i < n / 2 ? 0.0f : 9.0f;
}

void keep_region(kmm::Range<int64_t> range, kmm::Subview<float> in, kmm::Bounds<1>* regions) {
    regions[range.begin / 4] = in.bounds();
}

// Ten passes over an array of 8 chunks; returns the middle of the result.
float smooth(int64_t chunk_size, bool in_place) {
    auto rt = kmm::make_runtime();
    const int64_t n = 8 * chunk_size;
    auto a = kmm::Array<float>{n}, b = kmm::Array<float>{n};
    const auto chunks = kmm::BlockDomain(n).tiles(chunk_size);
    const auto kernel = kmm::GPUKernel(average, 256);
    rt.parallel_submit(chunks, kmm::GPUKernel(make_step, 256), _x, n, overwrite(a[_x]));
    for (int pass = 0; pass < 10; pass++) {
        if (in_place) {
            rt.parallel_submit(chunks, kernel, _x, overwrite(a[_x]), a[range(_x - 1, _x + 2)]);
        } else {
            rt.parallel_submit(chunks, kernel, _x, overwrite(b[_x]), a[range(_x - 1, _x + 2)]);
            std::swap(a, b);
        }
    }
    const std::vector<float> result = a.copy_to_vector();
    std::printf("chunks of %lld bytes, %s: %llu bytes gathered\n", (long long)chunk_size * 4,
                in_place ? "one array" : "two arrays", (unsigned long long)rt.stats().gathered_bytes);
    return result[std::size_t(n / 2)];
}

int main() {
    auto rt = kmm::make_runtime();
    auto small = rt.array<float>(12, 4);
    small.fill(0.0f);
    std::vector<kmm::Bounds<1>> regions(3);
    rt.wait(rt.parallel_submit(12, 4, kmm::Host(keep_region), _x, small[range(_x - 1, _x + 2)], regions.data()));
    for (int i = 0; i < 3; i++) {
        std::printf("task %d writes %d to %d, reads %ld to %ld\n", i, 4 * i, 4 * i + 3, long(regions[i].begin()),
                    long(regions[i].end() - 1));
    }

    const float a = smooth(65536, false), b = smooth(65536, true), c = smooth(65530, false);
    std::printf("right of the step: %.4f %.4f %.4f\n", double(a), double(b), double(c));
    return a == b && b == c ? 0 : 1;
}
