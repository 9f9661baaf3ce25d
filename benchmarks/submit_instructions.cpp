// Submits tasks of one shape, many or few: scripts/count_instructions.py counts the instructions of the submitting
// thread under callgrind, and what is between two counts is the cost of submits alone.
//
//   submit_instructions SHAPE COUNT
//
// A host task that waits keeps the runtime busy, so that no submit plans on this thread. Nothing is timed here.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kmm/kmm.hpp"

namespace {

using namespace kmm::placeholders;
using kmm::Array;
using kmm::GPUKernel;
using kmm::RuntimeHandle;

constexpr std::int64_t n = 1024;
constexpr int num_arrays = 64;
constexpr int num_chunks = 16;

__global__ void increment(kmm::GPUViewMut<float> data) {
    if (threadIdx.x == 0) data[0] += 1;
}

__global__ void relax(kmm::GPUSubviewMut<float> out, kmm::GPUSubview<float> left, kmm::GPUSubview<float> middle,
                      kmm::GPUSubview<float> right) {
    if (threadIdx.x == 0) out[out.begin()] = left[left.begin()] + middle[middle.begin()] + right[right.begin()];
}

Array<float> zeros(const RuntimeHandle& rt, std::int64_t size) {
    Array<float> a = rt.array<float>(size, kmm::Dim<1>(n));
    a.copy_from(std::vector<float>(static_cast<std::size_t>(size), 0.0f));
    return a;
}

__global__ void smooth(kmm::GPUSubviewMut<float> out, kmm::GPUSubview<float> around) {
    if (threadIdx.x == 0) out[out.begin()] = around[around.begin()];
}

kmm::IndexMap chunk(int i) {
    const std::int64_t first = (i + num_chunks) % num_chunks * n;
    return kmm::range(first, first + n);
}

kmm::IndexMap with_border(int i) {
    const std::int64_t first = i * n;
    return kmm::range(first - 1, first + n + 1);
}

}  // namespace

int main(int argc, char** argv) {
    const char* const shape = argc == 3 ? argv[1] : "";
    const int count = argc == 3 ? std::atoi(argv[2]) : 0;
    const bool is_stencil = std::strcmp(shape, "stencil") == 0;
    const bool is_chain = std::strcmp(shape, "chain") == 0;
    const bool is_halo = std::strcmp(shape, "halo") == 0;
    if (count <= 0 || (!is_stencil && !is_chain && !is_halo && std::strcmp(shape, "independent") != 0)) {
        std::fprintf(stderr, "usage: submit_instructions independent|chain|stencil|halo COUNT\n");
        return 2;
    }
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.host_threads = 1;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const kmm::ResourceId device(kmm::DeviceId(0));
    std::vector<Array<float>> arrays;
    for (int i = 0; i < (is_stencil || is_halo ? 2 : is_chain ? 1 : num_arrays); ++i)
        arrays.push_back(zeros(rt, is_stencil || is_halo ? n * num_chunks : n));
    rt.synchronize();
    std::atomic<bool> is_open{false};
    rt.submit(kmm::ResourceId::host(), kmm::Host([&] { is_open.wait(false); }));
    const auto add = GPUKernel(increment, dim3(32)).grid(dim3(1));
    const auto step = GPUKernel(relax, dim3(32)).grid(dim3(1));
    const auto halo_step = GPUKernel(smooth, dim3(32)).grid(dim3(1));
    for (int i = 0; i < count; ++i) {
        if (!is_stencil && !is_halo) {
            rt.submit(device, add, kmm::write(arrays[static_cast<std::size_t>(i) % arrays.size()]));
            continue;
        }
        const int c = i % num_chunks;
        Array<float>& out = arrays[static_cast<std::size_t>(i / num_chunks % 2)];
        const Array<float>& in = arrays[static_cast<std::size_t>(1 - i / num_chunks % 2)];
        if (is_halo) {
            rt.submit(device, halo_step, kmm::overwrite(out[chunk(c)]), in[with_border(c)]);
            continue;
        }
        rt.submit(device, step, kmm::overwrite(out[chunk(c)]), in[chunk(c - 1)], in[chunk(c)], in[chunk(c + 1)]);
    }
    is_open.store(true);
    is_open.notify_all();
    rt.synchronize();
    return 0;
}
