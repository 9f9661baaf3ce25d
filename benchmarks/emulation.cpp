// What emulated kernels cost on the CPU: a thread that never waits, a wait at a barrier or warp function, a handle. One
// OS thread, no driver: HostKernel::run_blocks is called directly. Output: common.hpp.
#include "kmm/emulation.hpp"

#include <cstdint>
#include <vector>

#include "common.hpp"

namespace {

using kmm::driver::HostKernel;
using kmm::driver::HostLaunchGeometry;
using namespace kmm::bench;

__global__ void add(float* c, const float* a, const float* b, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) c[i] = a[i] + b[i];
}

__global__ void many_barriers(int* out, int rounds) {
    int sum = 0;
    for (int r = 0; r < rounds; r++) {
        sum += r;
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void many_shuffles(int* out, int rounds) {
    int value = static_cast<int>(threadIdx.x);
    for (int r = 0; r < rounds; r++) value = __shfl_xor_sync(0xffffffffu, value, 1);
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void tiled_sum(float* out, const float* in) {
    __shared__ float tile[256];
    tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = tile[0];
}

void run(const HostKernel* kernel, unsigned grid, unsigned block, const void* parameters) {
    HostLaunchGeometry geometry;
    geometry.grid[0] = grid;
    geometry.block[0] = block;
    kernel->run_blocks(*kernel, geometry, parameters, 0, grid);
}

Unit nanoseconds_each(double things) { return {"ns", Better::lower, 1e9 / things}; }

void measure_plain_loops(Report& report) {
    constexpr unsigned block = 256;
    constexpr unsigned grid = 256;  // 768 KiB of floats: stays in the second-level cache
    const int n = static_cast<int>(block * grid);
    std::vector<float> a(block * grid, 1.0f), b(a), c(a);
    const int calls = report.size(50, 2);
    struct {
        float* c;
        const float* a;
        const float* b;
        int n;
    } parameters{c.data(), a.data(), b.data(), n};
    const auto raw = time_calls(report.repetitions(9), calls, [&] {
        for (int i = 0; i < n; i++)
            c[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>(i)] + b[static_cast<std::size_t>(i)];
    });
    const auto measure = [&](const char* name, const HostKernel* kernel, double must) {
        if (!report.wants(name)) return;
        report.add(name, time_calls(report.repetitions(9), calls, [&] { run(kernel, grid, block, &parameters); }),
                   nanoseconds_each(n), {raw, must, "per thread of c = a + b; raw: the loop in C++"});
    };
    measure("emulation/thread", kmm::emulation::kernel_handle(&add), 3);
    measure("emulation/thread_inlined", kmm::emulation::kernel_handle<&add>(), 1);
}

void measure_waits(Report& report) {
    const int rounds = report.size(1000, 10);
    for (const unsigned block : {32u, 256u, 1024u}) {
        std::vector<int> out(block);
        struct {
            int* out;
            int rounds;
        } parameters{out.data(), rounds};
        const auto measure = [&](const std::string& name, const HostKernel* kernel, std::optional<double> must) {
            if (!report.wants(name)) return;
            report.add(
                name, time_calls(report.repetitions(9), report.size(4, 1), [&] { run(kernel, 1, block, &parameters); }),
                nanoseconds_each(static_cast<double>(rounds) * block), {std::nullopt, must, "per thread and wait"});
        };
        measure("emulation/barrier/" + std::to_string(block), kmm::emulation::kernel_handle(&many_barriers), 20);
        measure("emulation/shuffle/" + std::to_string(block), kmm::emulation::kernel_handle(&many_shuffles),
                std::nullopt);
    }
}

void measure_tiled_sum(Report& report) {
    const std::string name = "emulation/tiled_sum";
    if (!report.wants(name)) return;
    const unsigned grid = report.size(256u, 4u);
    std::vector<float> in(std::size_t{grid} * 256, 1.0f), out(grid);
    struct {
        float* out;
        const float* in;
    } parameters{out.data(), in.data()};
    const auto* const kernel = kmm::emulation::kernel_handle(&tiled_sum);
    report.add(name, time_calls(report.repetitions(9), 2, [&] { run(kernel, grid, 256, &parameters); }),
               nanoseconds_each(grid * 256.0),
               {std::nullopt, std::nullopt, "per thread; 10 barriers in blocks of 256"});
}

void measure_handle(Report& report) {
    const std::string name = "emulation/kernel_handle";
    if (!report.wants(name)) return;
    const int calls = report.size(1'000'000, 100);
    std::uintptr_t sum = 0;
    const auto samples = time_calls(report.repetitions(9), calls, [&] {
        void (*volatile kernel)(int*, int) = &many_barriers;
        sum += reinterpret_cast<std::uintptr_t>(kmm::emulation::kernel_handle(kernel));
    });
    report.add(name, samples, nanoseconds(), {std::nullopt, 30.0, sum != 0 ? "a repeat" : ""});
}

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    measure_plain_loops(report);
    measure_waits(report);
    measure_tiled_sum(report);
    measure_handle(report);
}
