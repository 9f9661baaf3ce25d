// C = A + B over arrays larger than the device memory, in chunks that move between device and host by themselves.
//
//   vector_add [number of elements]
//
// The same file runs on a GPU (compiled by nvcc) and on a machine without one (compiled as C++, kernels emulated). Exit
// status 1 if any element of C is wrong.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

// Whole numbers below 2^24 are exact in float: every sum can be checked for equality, and neighbours differ.
__host__ __device__ inline float value_of_a(int64_t i) { return static_cast<float>(i % 4'999'999); }
__host__ __device__ inline float value_of_b(int64_t i) { return static_cast<float>((i * 7 + 3) % 8'388'593); }

__global__ void initialize(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> a, kmm::GPUSubviewMut<float> b) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    a[i] = value_of_a(i);
    b[i] = value_of_b(i);
}

__global__ void vector_add(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> output, kmm::GPUSubview<float> left,
                           kmm::GPUSubview<float> right) {
    int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    output[i] = left[i] + right[i];
}

namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Waits for `event`; draws a bar on a terminal when it takes long.
void wait_with_progress(const kmm::RuntimeHandle& rt, kmm::EventId event, std::uint64_t first_task,
                        std::uint64_t num_tasks, const char* what) {
    const bool draw = isatty(STDERR_FILENO) != 0;
    bool drawn = false;
    while (!rt.wait_for(event, std::chrono::milliseconds(500))) {
        if (!draw) continue;
        const std::uint64_t done = rt.stats().tasks_succeeded - first_task;
        const int filled = static_cast<int>(40 * done / num_tasks);
        std::fprintf(stderr, "\r%-12s [%.*s%*s] %llu of %llu", what, filled, "########################################",
                     40 - filled, "", static_cast<unsigned long long>(done),
                     static_cast<unsigned long long>(num_tasks));
        drawn = true;
    }
    if (drawn) std::fprintf(stderr, "\r\033[K");
}

void print_link(const char* name, const kmm::CopyStats& link) {
    if (link.copies > 0) {
        std::printf("  %-18s %9.3f GiB in %llu copies\n", name, static_cast<double>(link.bytes) / gib,
                    static_cast<unsigned long long>(link.copies));
    }
}

void print_stats(const kmm::RuntimeStats& stats) {
    print_link("host to device", stats.host_to_device);
    print_link("device to host", stats.device_to_host);
    print_link("device to device", stats.device_to_device);
    std::printf("  %-18s %9.3f GiB in %llu evictions\n", "evicted", static_cast<double>(stats.evicted_bytes) / gib,
                static_cast<unsigned long long>(stats.evictions));
    for (const kmm::MemoryStats& memory : stats.memories) {
        if (memory.memory.is_device()) {
            std::printf("  GPU %d peak        %9.3f GiB of %.3f GiB\n", int(memory.memory.as_device().get()),
                        static_cast<double>(memory.peak_bytes) / gib, static_cast<double>(memory.limit_bytes) / gib);
        }
    }
}

/// Runs on the host, once for each chunk of C: counts what differs from the expected sums.
void count_wrong(kmm::Range<int64_t> range, kmm::Subview<float> c, std::atomic<int64_t>* wrong) {
    int64_t count = 0;
    for (int64_t i = range.begin; i < range.end; i++) {
        if (c[i] != value_of_a(i) + value_of_b(i)) count++;
    }
    *wrong += count;
}

/// The environment's settings, with a device limit below the data where the user gave none: so that it spills.
kmm::RuntimeConfig configure(bool has_gpu, int64_t n) {
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    const std::size_t data_bytes = static_cast<std::size_t>(n) * 3 * sizeof(float);
    if (std::getenv("KMM_DEVICE_MEM") == nullptr) {
        const std::size_t third = data_bytes / 3;
        const std::size_t smallest = std::size_t(64) << 20;
        const std::size_t largest = std::size_t(8) << 30;
        config.device_memory_limit = third < smallest ? smallest : (third > largest ? largest : third);
        if (!has_gpu && config.virtual_device_memory == 0) config.virtual_device_memory = config.device_memory_limit;
    }
    return config;
}

bool uses_gpu() {
    const kmm::DriverKind wanted = kmm::default_config_from_environment().driver;
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        if (!status.usable || (wanted != kmm::DriverKind::Auto && wanted != status.driver)) continue;
        return status.driver != kmm::DriverKind::Host;
    }
    return false;
}

/// 24 GB on a GPU, or what fits into one GPU's share and half of the machine's memory; without a GPU 768 MB, which
/// takes seconds on two cores.
int64_t fitting_size(bool has_gpu) {
    const int64_t usual = has_gpu ? 2'000'000'000 : 64'000'000;
    const int64_t machine = int64_t(sysconf(_SC_PHYS_PAGES)) * int64_t(sysconf(_SC_PAGESIZE));
    const int64_t gpu = has_gpu ? int64_t(6) << 30 : 0;
    const int64_t fits = (machine / 2 + gpu) / int64_t(3 * sizeof(float));
    return fits < usual ? fits : usual;
}

int run(int64_t requested) {
    const bool has_gpu = uses_gpu();
    const int64_t n = requested > 0 ? requested : fitting_size(has_gpu);
    const int64_t chunk_size = n < 30 ? 1 : n / 30;
    const dim3 block_size = 256;

    auto rt = kmm::make_runtime(configure(has_gpu, n));
    const std::uint64_t num_chunks = static_cast<std::uint64_t>((n + chunk_size - 1) / chunk_size);
    std::printf("vector_add: n = %lld, 3 arrays, %.3f GiB, %llu chunks each\n", static_cast<long long>(n),
                3.0 * sizeof(float) * static_cast<double>(n) / gib, static_cast<unsigned long long>(num_chunks));
    for (const kmm::DeviceInfo& device : rt.info().devices()) {
        std::printf("  GPU %d: %s, may use %.3f GiB\n", int(device.device_id().get()), device.name().c_str(),
                    static_cast<double>(device.memory_limit()) / gib);
    }

    auto A = kmm::Array<float>{n};
    auto B = kmm::Array<float>{n};
    auto C = kmm::Array<float>{n};
    auto start = std::chrono::steady_clock::now();
    kmm::EventId ready =
        rt.parallel_submit(n, chunk_size, kmm::GPUKernel(initialize, block_size), _x, write(A[_x]), write(B[_x]));
    wait_with_progress(rt, ready, 0, num_chunks, "initialize");
    std::printf("initialize: %.3f s\n", seconds_since(start));

    const kmm::RuntimeStats before = rt.stats();
    start = std::chrono::steady_clock::now();
    kmm::EventId added =
        rt.parallel_submit(n, chunk_size, kmm::GPUKernel(vector_add, block_size), _x, write(C[_x]), A[_x], B[_x]);
    wait_with_progress(rt, added, before.tasks_succeeded, num_chunks, "add");
    const double seconds = seconds_since(start);
    std::printf("add: %.3f s, %.2f GB/s\n", seconds, 3.0 * sizeof(float) * static_cast<double>(n) / 1e9 / seconds);
    print_stats(rt.stats() - before);

    std::atomic<int64_t> wrong{0};
    const std::uint64_t tasks_before = rt.stats().tasks_succeeded;
    kmm::EventId checked = rt.parallel_submit(n, chunk_size, kmm::Host(count_wrong), _x, C[_x], &wrong);
    wait_with_progress(rt, checked, tasks_before, num_chunks, "check");
    if (wrong != 0) {
        std::printf("%lld of %lld elements are wrong\n", static_cast<long long>(wrong), static_cast<long long>(n));
        return 1;
    }
    std::printf("Correctness check completed: %lld elements are right.\n", static_cast<long long>(n));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    char* end = nullptr;
    const long long requested = argc > 1 ? std::strtoll(argv[1], &end, 10) : 0;
    if (argc > 2 || (argc > 1 && (*end != '\0' || requested <= 0))) {
        std::fprintf(stderr, "usage: vector_add [number of elements, at least 1]\n");
        return 2;
    }
    try {
        return run(requested);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "vector_add: %s\n", error.what());
        return 1;
    }
}
