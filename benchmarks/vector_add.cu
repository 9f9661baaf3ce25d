// c = a + b over arrays that stay on one device, in ten chunks: what the runtime costs where the kernels are long.
// Raw: the very same kernel, launched by hand in ten pieces on memory of its own. Output: common.hpp.
#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::GPUKernel;
using kmm::GPUSubview;
using kmm::GPUSubviewMut;
using kmm::RuntimeHandle;

constexpr int num_chunks = 10;
constexpr unsigned block_threads = 256;

__global__ void initialize(kmm::Range<std::int64_t> range, GPUSubviewMut<float> a, GPUSubviewMut<float> b) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    a[i] = static_cast<float>(i % 4999999);
    b[i] = static_cast<float>(i % 7);
}

__global__ void vector_add(kmm::Range<std::int64_t> range, GPUSubviewMut<float> output, GPUSubview<float> left,
                           GPUSubview<float> right) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    output[i] = left[i] + right[i];
}

__global__ void count_wrong(kmm::Range<std::int64_t> range, GPUSubview<float> sums,
                            kmm::GPUViewMut<unsigned long long> wrong) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    if (sums[i] != static_cast<float>(i % 4999999) + static_cast<float>(i % 7)) atomicAdd(wrong.data(), 1ull);
}

void check(const RuntimeHandle& rt, const Array<float>& c, std::int64_t chunk) {
    Array<unsigned long long> wrong = rt.allocate<unsigned long long>({0ull});
    for (std::int64_t first = 0; first < c.size(0); first += chunk) {
        const std::int64_t size = std::min(chunk, c.size(0) - first);
        const std::vector<kmm::DomainChunk> part{{device(0), kmm::DomainPoint(first), kmm::DomainDim(size)}};
        rt.parallel_submit(part, GPUKernel(count_wrong, block_threads), _x, c[_x], write(wrong));
    }
    const unsigned long long found = wrong.copy_to_vector().at(0);
    if (found != 0) Report::stop("vector_add: " + std::to_string(found) + " elements are wrong");
}

#if KMM_USE_CUDA
/// The pieces that the runtime would make, on one stream of our own.
raw::Measured same_kernel_raw(std::int64_t count, int rounds, int repetitions) {
    raw::Measured result;
    try {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        const std::int64_t chunk = (count + num_chunks - 1) / num_chunks;
        float* data[3] = {};
        cudaStream_t stream = nullptr;
        KMM_GPU_CHECK(cudaSetDevice(0));
        KMM_GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (float*& array : data) {
            KMM_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&array), bytes));
            KMM_GPU_CHECK(cudaMemset(array, 0, bytes));
        }
        KMM_GPU_CHECK(cudaDeviceSynchronize());
        const auto one_round = [&] {
            const std::int64_t stride[1] = {1};
            for (std::int64_t first = 0; first < count; first += chunk) {
                const kmm::Range<std::int64_t> range(first, std::min(first + chunk, count));
                const kmm::Bounds<1> bounds(range);
                const auto blocks =
                    static_cast<unsigned>((range.end - range.begin + block_threads - 1) / block_threads);
                vector_add<<<blocks, block_threads, 0, stream>>>(
                    range, GPUSubviewMut<float>::from_region(data[2] + first, bounds, stride),
                    GPUSubview<float>::from_region(data[0] + first, bounds, stride),
                    GPUSubview<float>::from_region(data[1] + first, bounds, stride));
            }
        };
        result.seconds = time_each(repetitions, [&] {
            for (int round = 0; round < rounds; ++round) one_round();
            KMM_GPU_CHECK(cudaGetLastError());
            KMM_GPU_CHECK(cudaStreamSynchronize(stream));
        });
        for (double& sample : result.seconds) sample /= rounds;
        for (float* array : data) KMM_GPU_CHECK(cudaFree(array));
        KMM_GPU_CHECK(cudaStreamDestroy(stream));
    } catch (const std::exception& error) {
        result = {{}, error.what()};
    }
    return result;
}
#else
raw::Measured same_kernel_raw(std::int64_t, int, int) { return {{}, "not available"}; }
#endif

Samples through_kmm(std::int64_t count, int rounds, int repetitions) {
    const std::size_t bytes = 3 * static_cast<std::size_t>(count) * sizeof(float);
    const RuntimeHandle rt = kmm::make_runtime(config_for(1, 2 * bytes));
    const std::int64_t chunk = (count + num_chunks - 1) / num_chunks;
    Array<float> a(count), b(count), c(count);
    rt.parallel_submit(count, chunk, GPUKernel(initialize, block_threads), _x, overwrite(a[_x]), overwrite(b[_x]));
    rt.synchronize();
    Samples samples = time_each(repetitions, [&] {
        for (int round = 0; round < rounds; ++round)
            rt.parallel_submit(count, chunk, GPUKernel(vector_add, block_threads), _x, overwrite(c[_x]), a[_x], b[_x]);
        rt.synchronize();
    });
    for (double& sample : samples) sample /= rounds;
    check(rt, c, chunk);
    return samples;
}

void run(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) return report.skip("vector_add/resident", missing);
    if (!report.wants("vector_add/resident")) return;
    const auto count = sized<std::int64_t>(report, 500'000'000, 50'000'000, 1'000'000);
    const int rounds = sized(report, 20, 4, 4);
    const int repetitions = report.repetitions(7);
    const Samples ours = through_kmm(count, rounds, repetitions);
    const raw::Measured same = same_kernel_raw(count, rounds, repetitions);
    const Unit unit = gigabytes_per_second(12.0 * static_cast<double>(count));
    Beside beside{samples_of(same), std::nullopt,
                  with_raw_error(note_of("raw: the same kernel in ten launches"), same)};
    if (beside.raw) beside.must = must_on_gpu(report, 0.97 * unit.of(median(*beside.raw)));
    report.add("vector_add/resident", ours, unit, beside);
    if (!on_gpu) return;
    const raw::Measured plain = raw::vector_add(static_cast<std::size_t>(count), num_chunks, rounds, repetitions);
    report.add(
        "vector_add/resident_beside_pointers", ours, unit,
        {samples_of(plain), std::nullopt, with_raw_error("raw: a kernel on plain pointers in ten launches", plain)});
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
