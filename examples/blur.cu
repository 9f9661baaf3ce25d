// Blurs a stack of grey images with binomial weights (close to a Gaussian), first along the rows, then along the
// columns.
//
//   blur [images] [height] [width] [radius]
//
// Shows a 3-D array, one task for each image, and a region whose extent is a variable of the program: a pass reads
// `radius` pixels more on either side. A small table, the weights, goes to each GPU once.
//
// The same file runs on a GPU (compiled by nvcc) and on a machine without one (compiled as C++, kernels emulated).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kmm/kmm.hpp"
#include "progress.hpp"

using namespace kmm::placeholders;

uint8_t first_pixel(int64_t image, int64_t y, int64_t x) {
    return static_cast<uint8_t>((image * 57 + (x / 8) * 91 + (y / 8) * 33 + (x * y) % 7) % 256);
}

/// `sum` has weights that add up to 4 to the power of the radius. Rounds to the nearest.
__host__ __device__ inline uint8_t to_pixel(uint32_t sum, int radius) {
    return static_cast<uint8_t>((sum + (1u << (2 * radius - 1))) >> (2 * radius));
}

enum class Along { rows, columns };

// Indices are those of the whole array: image, row, column. Beyond the border the pixel at the border counts: the first
// or the last one of `input`, whose region is cut off there.
__global__ void blur_once(kmm::Bounds<3> pixels, Along along, int radius, kmm::GPUView<uint32_t> weights,
                          kmm::GPUSubviewMut<uint8_t, 3> output, kmm::GPUSubview<uint8_t, 3> input) {
    const int64_t image = pixels.z.begin;
    const int64_t y = pixels.y.begin + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t x = pixels.x.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (y >= pixels.y.end || x >= pixels.x.end) return;
    uint32_t sum = 0;
    for (int k = -radius; k <= radius; k++) {
        const int64_t from_y = along == Along::columns ? min(max(y + k, input.begin(1)), input.end(1) - 1) : y;
        const int64_t from_x = along == Along::rows ? min(max(x + k, input.begin(2)), input.end(2) - 1) : x;
        sum += weights[k + radius] * input[image][from_y][from_x];
    }
    output[image][y][x] = to_pixel(sum, radius);
}

namespace {

/// Row 2 * radius of Pascal's triangle: 1 2 1, 1 4 6 4 1, ...
std::vector<uint32_t> binomial_weights(int radius) {
    std::vector<uint32_t> weights{1};
    for (int row = 1; row <= 2 * radius; row++) {
        weights.push_back(1);
        for (std::size_t k = weights.size() - 2; k > 0; k--) weights[k] += weights[k - 1];
    }
    return weights;
}

/// Makes one image. Runs on the host.
void draw(kmm::Bounds<3> pixels, kmm::SubviewMut<uint8_t, 3> images) {
    for (int64_t y = pixels.y.begin; y < pixels.y.end; y++) {
        for (int64_t x = pixels.x.begin; x < pixels.x.end; x++) {
            images[pixels.z.begin][y][x] = first_pixel(pixels.z.begin, y, x);
        }
    }
}

/// One image in plain loops on one thread.
std::vector<uint8_t> reference(int64_t image, int64_t height, int64_t width, int radius) {
    const std::vector<uint32_t> weights = binomial_weights(radius);
    std::vector<uint8_t> pixels;
    for (int64_t y = 0; y < height; y++) {
        for (int64_t x = 0; x < width; x++) pixels.push_back(first_pixel(image, y, x));
    }
    for (const Along along : {Along::rows, Along::columns}) {
        const std::vector<uint8_t> input = pixels;
        for (int64_t y = 0; y < height; y++) {
            for (int64_t x = 0; x < width; x++) {
                uint32_t sum = 0;
                for (int k = -radius; k <= radius; k++) {
                    const int64_t from_y = along == Along::columns ? std::clamp<int64_t>(y + k, 0, height - 1) : y;
                    const int64_t from_x = along == Along::rows ? std::clamp<int64_t>(x + k, 0, width - 1) : x;
                    sum += weights[std::size_t(k + radius)] * input[std::size_t(from_y * width + from_x)];
                }
                pixels[std::size_t(y * width + x)] = to_pixel(sum, radius);
            }
        }
    }
    return pixels;
}

bool run(const std::vector<Argument>& arguments) {
    const int64_t images = arguments[0].value, height = arguments[1].value, width = arguments[2].value;
    const int radius = static_cast<int>(arguments[3].value);
    auto rt = kmm::make_runtime();
    auto input = kmm::Array<uint8_t, 3>{{images, height, width}}.named("input");
    auto rows = kmm::Array<uint8_t, 3>{{images, height, width}}.named("rows");
    auto output = kmm::Array<uint8_t, 3>{{images, height, width}}.named("output");
    auto weights = rt.allocate(binomial_weights(radius)).named("weights");

    // Domain axes are x, y, z: the size is {width, height, images}, and each task has one image.
    const auto one_each = kmm::TileDomain({width, height, images}, {width, height, 1});
    const dim3 block(32, 8);

    Progress progress(rt, "blur");
    rt.parallel_submit(one_each, kmm::Host(draw), _xyz, overwrite(input[_z][_y][_x]));
    rt.parallel_submit(one_each, kmm::GPUKernel(blur_once, block).named("blur along rows"), _xyz, Along::rows, radius,
                       weights, overwrite(rows[_z][_y][_x]), input[_z][_y][range(_x - radius, _x + radius + 1)]);
    rt.parallel_submit(one_each, kmm::GPUKernel(blur_once, block).named("blur along columns"), _xyz, Along::columns,
                       radius, weights, overwrite(output[_z][_y][_x]),
                       rows[_z][range(_y - radius, _y + radius + 1)][_x]);
    progress.wait(rt.barrier());
    progress.print();

    for (int64_t image = 0; image < images; image++) {
        std::vector<uint8_t> result(static_cast<std::size_t>(height * width));
        output.copy_to(result.data(), {image, 0, 0}, {1, height, width});
        if (result != reference(image, height, width, radius)) {
            std::printf("image %lld is wrong\n", static_cast<long long>(image));
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    return run_example(
        argc, argv, "blur",
        {{"images", 16, 1, 100'000}, {"height", 240, 1, 100'000}, {"width", 320, 1, 100'000}, {"radius", 3, 1, 12}},
        run);
}
