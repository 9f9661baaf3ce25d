// Rounds of tasks whose grids fill a sixteenth of a device, or less: how many of them run side by side with 8 to 64
// compute streams. Raw: the same kernels, each of a round on a stream of its own. Output: common.hpp.
#include "kmm_runtime.hpp"

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::GPUKernel;
using kmm::GPUSubviewMut;
using kmm::RuntimeHandle;

constexpr unsigned block_threads = 256;
constexpr int elements = 8 * 256;  // of a task: 8 blocks
// About 50 us on a GPU: multiplications that wait for each other.
constexpr int turns = on_gpu ? 20'000 : 20;
constexpr int num_rounds = on_gpu ? 50 : 5;

KMM_HOST_DEVICE float worked(float value) {
    for (int i = 0; i < turns; ++i) value = fmaf(value, 0.5f, 1.0f);
    return value;
}

__global__ void work(kmm::Range<std::int64_t> range, GPUSubviewMut<float> data) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) data[i] = worked(data[i]) + 1;
}

float expected(int rounds) {
    float value = 0;
    for (int i = 0; i < rounds; ++i) value = worked(value) + 1;
    return value;
}

void expect_equal(const Array<float>& array, int rounds) {
    const float right = expected(rounds);
    for (const float value : array.copy_to_vector())
        if (value != right)
            Report::stop("small grids left " + std::to_string(value) + " instead of " + std::to_string(right));
}

RuntimeHandle make_runtime(std::size_t num_streams) {
    kmm::RuntimeConfig config = config_for(1, std::size_t{64} << 20);
    if (num_streams != 0) config.device_concurrent_streams = num_streams;
    return kmm::make_runtime(config);
}

/// An array for each task of a round.
Samples own_arrays(const RuntimeHandle& rt, int tasks, int repetitions) {
    std::vector<Array<float>> arrays;
    for (int i = 0; i < tasks; ++i) arrays.push_back(rt.allocate(std::vector<float>(elements, 0.0f)));
    const Samples samples = time_each(repetitions, [&] {
        for (int round = 0; round < num_rounds; ++round)
            for (Array<float>& array : arrays)
                rt.parallel_submit(kmm::TileDomain(elements, elements), GPUKernel(work, block_threads), _x,
                                   write(array[_x]));
        rt.synchronize();
    });
    for (const Array<float>& array : arrays) expect_equal(array, num_rounds * (repetitions + 1));
    return samples;
}

/// A chunk of one array for each.
Samples one_array(const RuntimeHandle& rt, int tasks, int repetitions) {
    const std::int64_t size = std::int64_t{tasks} * elements;
    Array<float> array = rt.array<float>(size, elements);
    array.fill(0.0f);
    rt.synchronize();
    const kmm::TileDomain domain(size, elements);
    const Samples samples = time_each(repetitions, [&] {
        for (int round = 0; round < num_rounds; ++round)
            rt.parallel_submit(domain, GPUKernel(work, block_threads), _x, write(array[_x]));
        rt.synchronize();
    });
    expect_equal(array, num_rounds * (repetitions + 1));
    return samples;
}

#if KMM_USE_CUDA
raw::Measured on_raw_streams(int tasks, int repetitions) {
    raw::Measured result;
    try {
        KMM_GPU_CHECK(cudaSetDevice(0));
        float* data = nullptr;
        KMM_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(float) * elements * tasks));
        KMM_GPU_CHECK(cudaMemset(data, 0, sizeof(float) * elements * tasks));
        std::vector<cudaStream_t> streams(static_cast<std::size_t>(tasks));
        for (cudaStream_t& stream : streams) KMM_GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        const std::int64_t stride[1] = {1};
        result.seconds = time_each(repetitions, [&] {
            for (int round = 0; round < num_rounds; ++round)
                for (int task = 0; task < tasks; ++task) {
                    const kmm::Range<std::int64_t> range(std::int64_t{task} * elements,
                                                         std::int64_t{task + 1} * elements);
                    work<<<elements / block_threads, block_threads, 0, streams[static_cast<std::size_t>(task)]>>>(
                        range, GPUSubviewMut<float>::from_region(data + range.begin, kmm::Bounds<1>(range), stride));
                }
            KMM_GPU_CHECK(cudaGetLastError());
            KMM_GPU_CHECK(cudaDeviceSynchronize());
        });
        for (cudaStream_t stream : streams) KMM_GPU_CHECK(cudaStreamDestroy(stream));
        KMM_GPU_CHECK(cudaFree(data));
    } catch (const std::exception& error) {
        result = {{}, error.what()};
    }
    return result;
}
#else
raw::Measured on_raw_streams(int, int) { return {{}, "not available"}; }
#endif

void run(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) return report.skip("small_grids", missing);
    const int repetitions = report.repetitions(5);
    for (const int tasks : {16, 32, 64}) {
        const std::string name = "small_grids/" + std::to_string(tasks) + "_tasks";
        if (!report.wants(name)) continue;
        const raw::Measured raw = on_raw_streams(tasks, repetitions);
        for (const std::size_t streams : {0, 8, 16, 32, 64}) {
            const RuntimeHandle rt = make_runtime(streams);
            std::string with = "/";
            with.append(streams == 0 ? "default" : std::to_string(streams)).append("_streams");
            const auto add = [&](const char* how, const Samples& samples) {
                report.add(name + how + with, samples, microseconds(),
                           {samples_of(raw), std::nullopt, with_raw_error(note_of("50 rounds"), raw)});
            };
            add("/own_arrays", own_arrays(rt, tasks, repetitions));
            add("/one_array", one_array(rt, tasks, repetitions));
        }
    }
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
