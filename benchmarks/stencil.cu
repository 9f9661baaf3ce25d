// A stencil of five points over a matrix in 16 chunks of rows, from one array to another and back: each task reads its
// chunk and a row of each neighbour. Raw: the very same kernel in one launch a step on memory of its own. Where both
// arrays do not fit, what counts is how many chunks move. Output: common.hpp.
#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::GPUKernel;
using kmm::GPUSubview;
using kmm::GPUSubviewMut;
using kmm::RuntimeHandle;
using Rows = kmm::Range<std::int64_t>;

constexpr std::int64_t num_chunks = 16;
const dim3 block(64, 4);

KMM_HOST_DEVICE float first_value(std::int64_t row, std::int64_t column) {
    return static_cast<float>((row * 31 + column * 17) % 1009);
}

__global__ void initialize(Rows x, Rows y, GPUSubviewMut<float, 2> to) {
    const std::int64_t row = y.begin + std::int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const std::int64_t column = x.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row < y.end && column < x.end) to[row][column] = first_value(row, column);
}

__global__ void step(Rows x, Rows y, std::int64_t size, GPUSubviewMut<float, 2> to, GPUSubview<float, 2> from) {
    const std::int64_t row = y.begin + std::int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const std::int64_t column = x.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= y.end || column >= x.end) return;
    const float old = from[row][column];
    const bool border = row == 0 || column == 0 || row == size - 1 || column == size - 1;
    to[row][column] = border ? old
                             : 0.2f * (old + from[row - 1][column] + from[row + 1][column] + from[row][column - 1] +
                                       from[row][column + 1]);
}

/// Tasks of one row of chunks each; neighbouring ones on the same device.
std::vector<kmm::DomainChunk> tasks(std::int64_t size, std::size_t num_devices) {
    std::vector<kmm::DomainChunk> chunks;
    const std::int64_t rows = size / num_chunks;
    for (std::int64_t c = 0; c < num_chunks; ++c)
        chunks.push_back({device(static_cast<std::size_t>(c) * num_devices / num_chunks), kmm::DomainPoint(0, c * rows),
                          kmm::DomainDim(size, rows)});
    return chunks;
}

class Stencil {
  public:
    Stencil(RuntimeHandle rt, std::int64_t size)
        : rt_(std::move(rt)),
          size_(size),
          tasks_(tasks(size, rt_.info().num_devices())),
          a_(rt_.array<float, 2>(kmm::Dim<2>(size, size), kmm::Dim<2>(size / num_chunks, size))),
          b_(rt_.array<float, 2>(kmm::Dim<2>(size, size), kmm::Dim<2>(size / num_chunks, size))) {
        rt_.parallel_submit(tasks_, GPUKernel(initialize, block), _x, _y, overwrite(a_[_y][_x]));
        rt_.synchronize();
    }
    void run(int steps) {
        for (int i = 0; i < steps; ++i, ++steps_)
            rt_.parallel_submit(tasks_, GPUKernel(step, block), _x, _y, size_,
                                overwrite((steps_ % 2 == 0 ? b_ : a_)[_y][_x]),
                                (steps_ % 2 == 0 ? a_ : b_)[kmm::range(_y - 1, _y + 2)][_x]);
        rt_.synchronize();
    }
    std::vector<float> values() const { return (steps_ % 2 == 0 ? a_ : b_).copy_to_vector(); }
    int steps() const { return steps_; }
    const RuntimeHandle& runtime() const { return rt_; }

  private:
    RuntimeHandle rt_;
    std::int64_t size_;
    std::vector<kmm::DomainChunk> tasks_;
    Array<float, 2> a_, b_;
    int steps_ = 0;
};

/// The same on the host, one row after the other.
std::vector<float> reference(std::int64_t size, int steps) {
    const auto at = [size](std::int64_t row, std::int64_t column) {
        return static_cast<std::size_t>(row * size + column);
    };
    std::vector<float> from(static_cast<std::size_t>(size * size)), to(from.size());
    for (std::int64_t r = 0; r < size; ++r)
        for (std::int64_t c = 0; c < size; ++c) from[at(r, c)] = first_value(r, c);
    for (int i = 0; i < steps; ++i, from.swap(to))
        for (std::int64_t r = 0; r < size; ++r)
            for (std::int64_t c = 0; c < size; ++c) {
                const bool border = r == 0 || c == 0 || r == size - 1 || c == size - 1;
                to[at(r, c)] = border ? from[at(r, c)]
                                      : 0.2f * (from[at(r, c)] + from[at(r - 1, c)] + from[at(r + 1, c)] +
                                                from[at(r, c - 1)] + from[at(r, c + 1)]);
            }
    return from;
}

void expect_equal(const std::vector<float>& found, const std::vector<float>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (std::abs(found[i] - expected[i]) > 1e-3f * std::abs(expected[i]) + 1e-3f)
            Report::stop("stencil: element " + std::to_string(i) + " is " + std::to_string(found[i]) + " instead of " +
                         std::to_string(expected[i]));
}

#if KMM_USE_CUDA
raw::Measured same_kernel_raw(std::int64_t size, int steps, int repetitions) {
    raw::Measured result;
    try {
        const std::size_t bytes = static_cast<std::size_t>(size * size) * sizeof(float);
        float* data[2] = {};
        cudaStream_t stream = nullptr;
        KMM_GPU_CHECK(cudaSetDevice(0));
        KMM_GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (float*& array : data) {
            KMM_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&array), bytes));
            KMM_GPU_CHECK(cudaMemset(array, 0, bytes));
        }
        const std::int64_t stride[2] = {size, 1};
        const Rows all(0, size);
        const kmm::Bounds<2> bounds(all, all);
        const dim3 grid(static_cast<unsigned>((size + block.x - 1) / block.x),
                        static_cast<unsigned>((size + block.y - 1) / block.y));
        result.seconds = time_each(repetitions, [&] {
            for (int i = 0; i < steps; ++i)
                step<<<grid, block, 0, stream>>>(
                    all, all, size, GPUSubviewMut<float, 2>::from_region(data[(i + 1) % 2], bounds, stride),
                    GPUSubview<float, 2>::from_region(data[i % 2], bounds, stride));
            KMM_GPU_CHECK(cudaGetLastError());
            KMM_GPU_CHECK(cudaStreamSynchronize(stream));
        });
        for (double& sample : result.seconds) sample /= steps;
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

void run_resident(Report& report) {
    if (!report.wants("stencil/resident")) return;
    const auto size = sized<std::int64_t>(report, 16384, 8192, 256);
    const int steps = sized(report, 50, 20, 4);
    const int repetitions = report.repetitions(7);
    const std::size_t bytes = 2 * static_cast<std::size_t>(size * size) * sizeof(float);
    Stencil stencil(kmm::make_runtime(config_for(1, 4 * bytes)), size);
    stencil.run(4);  // chunks are laid side by side
    const auto before = stencil.runtime().stats();
    Samples ours = time_each(repetitions, [&] { stencil.run(steps); });
    for (double& sample : ours) sample /= steps;
    const auto copied = stencil.runtime().stats() - before;
    const std::uint64_t bytes_copied =
        copied.gathered_bytes + copied.host_to_device.bytes + copied.device_to_host.bytes;
    if (!on_gpu) expect_equal(stencil.values(), reference(size, stencil.steps()));
    const raw::Measured same = same_kernel_raw(size, steps, repetitions);
    const Unit unit = gigabytes_per_second(2.0 * sizeof(float) * static_cast<double>(size * size));
    Beside beside{
        samples_of(same), std::nullopt,
        with_raw_error(
            note_of("raw: the same kernel, one launch a step; bytes copied: " + std::to_string(bytes_copied)), same)};
    if (beside.raw) beside.must = must_on_gpu(report, 0.90 * unit.of(median(*beside.raw)));
    report.add("stencil/resident", ours, unit, beside);
}

/// The same steps by all devices: each computes the chunks that lie on it, and reads a row of its neighbours.
void run_across_devices(Report& report) {
    if (!report.wants("stencil/across_devices")) return;
    std::size_t num_devices = 4;
    while (num_devices > 1 && !why_not(num_devices).empty()) num_devices /= 2;
    if (num_devices == 1) {
        report.skip("stencil/across_devices", why_not(2));
        return;
    }
    const auto size = sized<std::int64_t>(report, 16384, 8192, 256);
    const int steps = sized(report, 50, 20, 4);
    const std::size_t bytes = 2 * static_cast<std::size_t>(size * size) * sizeof(float);
    Stencil stencil(kmm::make_runtime(config_for(num_devices, 4 * bytes)), size);
    stencil.run(4);
    const auto before = stencil.runtime().stats();
    const int repetitions = report.repetitions(7);
    Samples ours = time_each(repetitions, [&] { stencil.run(steps); });
    for (double& sample : ours) sample /= steps;
    const auto copied = stencil.runtime().stats() - before;
    const double rows = static_cast<double>(copied.device_to_device.bytes + copied.gathered_bytes) /
                        static_cast<double>(size) / sizeof(float) / (stencil.steps() - 4);
    if (!on_gpu) expect_equal(stencil.values(), reference(size, stencil.steps()));
    const raw::Measured same = same_kernel_raw(size, steps, repetitions);
    report.add("stencil/across_devices", ours,
               gigabytes_per_second(2.0 * sizeof(float) * static_cast<double>(size * size)),
               {samples_of(same), std::nullopt,
                with_raw_error(note_of(std::to_string(num_devices) +
                                       " devices; raw: the same kernel on one; rows "
                                       "copied in a step: " +
                                       std::to_string(rows)),
                               same)});
}

/// Both arrays take four times what the device has.
void run_out_of_core(Report& report) {
    if (!report.wants("stencil/quarter")) return;
    const auto size = sized<std::int64_t>(report, 16384, 8192, 256);
    const int steps = sized(report, 100, 100, 100);
    const std::size_t chunk_bytes = static_cast<std::size_t>(size * size / num_chunks) * sizeof(float);
    kmm::RuntimeConfig config = config_for(1, 64 * chunk_bytes);
    config.device_memory_limit = 2 * num_chunks * chunk_bytes / 4;
    Stencil stencil(kmm::make_runtime(config), size);
    const auto before = stencil.runtime().stats();
    const Samples elapsed = time_each(1, [&] { stencil.run(steps); });
    const auto moved = stencil.runtime().stats() - before;
    const double chunks = static_cast<double>(moved.host_to_device.bytes + moved.device_to_host.bytes) /
                          static_cast<double>(chunk_bytes) / (stencil.steps() / steps);
    if (!on_gpu) expect_equal(stencil.values(), reference(size, stencil.steps()));
    report.add("stencil/quarter_chunks_moved", Samples{chunks}, {"chunks", Better::lower, 1},
               {std::nullopt, 600.0, note_of("both ways, in 100 steps submitted at once")});
    report.add("stencil/quarter", elapsed, kmm::bench::seconds(),
               {std::nullopt, std::nullopt, note_of("the same steps")});
}

void run(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) {
        report.skip("stencil/resident", missing);
        report.skip("stencil/across_devices", missing);
        report.skip("stencil/quarter", missing);
        return;
    }
    run_resident(report);
    run_across_devices(report);
    run_out_of_core(report);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
