// A stream of blocks through GPUs with room for 4 of them and a host with room for 16: load on the host, compute on a
// GPU, add up on the host.
//
//   blocks [number of blocks] [samples in a block]
//
// Shows data that is never there as a whole. Every block is an array of its own; its memory is free again when the last
// handle has gone and the tasks that use it are done. The loop submits ahead; a task that finds no memory waits until
// earlier blocks are done.
//
// The same file runs on a GPU (compiled by nvcc) and on a machine without one (compiled as C++, kernels emulated).
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kmm/kmm.hpp"
#include "progress.hpp"

using namespace kmm::placeholders;

/// What a detector would deliver.
inline uint16_t raw_sample(int64_t block, int64_t i) {
    return static_cast<uint16_t>((block * 7919 + i * 104729) % 65521);
}

/// What is computed of a sample. Whole numbers, so that sums do not depend on their order.
__host__ __device__ inline int32_t calibrated(uint16_t raw) { return int32_t(raw) * 3 - 70000; }

__global__ void calibrate(kmm::Range<int64_t> range, kmm::GPUSubviewMut<int32_t> output,
                          kmm::GPUSubview<uint16_t> input) {
    const int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) output[i] = calibrated(input[i]);
}

namespace {

void load(int64_t block, kmm::ViewMut<uint16_t> raw) {
    for (int64_t i = raw.begin(); i < raw.end(); i++) raw[i] = raw_sample(block, i);
}

/// Adds up one block, into its own element of `sums`.
void add_up(int64_t block, kmm::View<int32_t> values, kmm::SubviewMut<int64_t> sums) {
    int64_t sum = 0;
    for (int64_t i = values.begin(); i < values.end(); i++) sum += values[i];
    sums[block] = sum;
}

std::vector<int64_t> reference(int64_t num_blocks, int64_t num_samples) {
    std::vector<int64_t> sums;
    for (int64_t block = 0; block < num_blocks; block++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < num_samples; i++) sum += calibrated(raw_sample(block, i));
        sums.push_back(sum);
    }
    return sums;
}

bool run(const std::vector<Argument>& arguments) {
    const int64_t num_blocks = arguments[0].value, num_samples = arguments[1].value;
    const std::size_t block_bytes = std::size_t(num_samples) * (sizeof(uint16_t) + sizeof(int32_t));
    const std::size_t reserve = std::size_t(1) << 16;  // chunks are rounded up to 256 bytes
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    config.device_memory_limit = 4 * block_bytes + reserve;
    config.host_memory_limit = 16 * block_bytes + 4 * reserve + std::size_t(num_blocks) * sizeof(int64_t);
    auto rt = kmm::make_runtime(config);
    const std::vector<kmm::ResourceId>& gpus = rt.info().resources();
    std::printf("blocks: %lld blocks, %.2f MiB in all\n", static_cast<long long>(num_blocks),
                static_cast<double>(num_blocks) * static_cast<double>(block_bytes) / (1 << 20));

    Progress progress(rt, "blocks");
    auto sums = rt.array<int64_t>(num_blocks, kmm::Distribution<1>::single(num_blocks));  // one chunk, on the host
    for (int64_t block = 0; block < num_blocks; block++) {
        auto raw = kmm::Array<uint16_t>{num_samples};
        auto values = kmm::Array<int32_t>{num_samples};
        rt.submit(kmm::ResourceId::host(), kmm::Host(load), block, overwrite(raw));
        const kmm::DomainChunk all_samples{gpus[std::size_t(block) % gpus.size()], 0, num_samples};  // GPUs in turn
        rt.parallel_submit(kmm::Domain{{all_samples}}, kmm::GPUKernel(calibrate, 256), _x, overwrite(values[_x]),
                           raw[_x]);
        rt.submit(kmm::ResourceId::host(), kmm::Host(add_up), block, values, overwrite(sums[block]));
    }  // the handles end here; the tasks keep their arrays
    progress.wait(rt.barrier());
    progress.print();
    return sums.copy_to_vector() == reference(num_blocks, num_samples);
}

}  // namespace

int main(int argc, char** argv) {
    return run_example(argc, argv, "blocks",
                       {{"number of blocks", 100, 1, 1'000'000}, {"samples in a block", 200'000, 1, 1'000'000'000}},
                       run);
}
