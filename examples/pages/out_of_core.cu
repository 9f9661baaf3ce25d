// Passes over an array of 64 MiB on a device that may use 16 MiB, and what each of them moves.
#include <cstdint>
#include <cstdio>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

__global__ void set(kmm::Range<int64_t> range, float value, kmm::GPUSubviewMut<float> a) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) a[i] = value;
}

__global__ void increase(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> a) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) a[i] += 1.0f;
}

__global__ void check(kmm::Range<int64_t> range, float value, kmm::GPUSubview<float> a) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) KMM_ASSERT(a[i] == value);
}

// Prints what moved since `before`, in MiB, and makes now the next `before`.
void print_moved(const kmm::RuntimeHandle& rt, const char* what, kmm::RuntimeStats& before) {
    rt.synchronize();
    const kmm::RuntimeStats now = rt.stats(), moved = now - before;
    std::printf("%-34s %8llu %8llu %8llu %8llu\n", what, (unsigned long long)moved.host_to_device.bytes >> 20,
                (unsigned long long)moved.device_to_host.bytes >> 20, (unsigned long long)moved.evicted_bytes >> 20,
                (unsigned long long)moved.dropped_clean_bytes >> 20);
    before = now;
}

int main() {
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    config.device_memory_limit = kmm::parse_byte_size("16MiB");
    auto rt = kmm::make_runtime(config);

    const int64_t n = 16 << 20, chunk_size = 1 << 20;  // 16 chunks of 4 MiB
    auto a = kmm::Array<float>{n}.named("a");
    kmm::RuntimeStats before = rt.stats();
    std::printf("%-34s %8s %8s %8s %8s\n", "MiB", "to GPU", "to host", "evicted", "dropped");

    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(set, 256), _x, 0.0f, overwrite(a[_x]));
    print_moved(rt, "first write, with overwrite", before);

    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(set, 256), _x, 1.0f, overwrite(a[_x]));
    print_moved(rt, "all replaced, with overwrite", before);

    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(set, 256), _x, 1.0f, write(a[_x]));
    print_moved(rt, "all replaced, with write", before);

    for (int pass = 0; pass < 4; pass++) {
        rt.parallel_submit(n, chunk_size, kmm::GPUKernel(increase, 256), _x, write(a[_x]));
        rt.synchronize();
    }
    print_moved(rt, "4 updates, waited for one by one", before);

    for (int pass = 0; pass < 4; pass++) {
        rt.parallel_submit(n, chunk_size, kmm::GPUKernel(increase, 256), _x, write(a[_x]));
    }
    print_moved(rt, "4 updates, submitted together", before);

    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(check, 256), _x, 9.0f, a[_x]);
    print_moved(rt, "a read", before);

    rt.parallel_submit(n, chunk_size, kmm::GPUKernel(check, 256), _x, 9.0f, a[_x]);
    print_moved(rt, "the same read again", before);

    std::printf("%s", rt.report().c_str());
    return 0;
}
