// Heat in a plate: in each step a cell comes closer to the mean of its four neighbours; the border keeps its
// temperature.
//
//   heat [rows] [columns] [steps]
//
// Shows tasks that read beyond their own chunk: each writes a band of rows, and reads one row more on either side. The
// neighbours' rows come from other chunks, on several GPUs from other GPUs.
//
// The same file runs on a GPU (compiled by nvcc) and on a machine without one (compiled as C++, kernels emulated).
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "kmm/kmm.hpp"
#include "progress.hpp"

using namespace kmm::placeholders;

// Multiplications by powers of two are exact: a GPU, which joins them with additions, gets the same bits as the CPU.
__host__ __device__ inline float next_value(float here, float north, float south, float west, float east) {
    return here + 0.125f * (((north + south) + (west + east)) - 4.0f * here);
}

__host__ __device__ inline float first_value(int64_t y, int64_t x) {
    return static_cast<float>((y * 31 + x * 17) % 1000);
}

__global__ void heat_up(kmm::Range<int64_t> rows, kmm::Range<int64_t> columns, kmm::GPUSubviewMut<float, 2> plate) {
    const int64_t y = rows.begin + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t x = columns.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (y < rows.end && x < columns.end) plate[y][x] = first_value(y, x);
}

// Indices are those of the whole plate. `now` is cut off at the border of the plate: what it does not hold is outside.
__global__ void diffuse(kmm::Range<int64_t> rows, kmm::Range<int64_t> columns, kmm::GPUSubviewMut<float, 2> next,
                        kmm::GPUSubview<float, 2> now) {
    const int64_t y = rows.begin + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t x = columns.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (y >= rows.end || x >= columns.end) return;
    if (now.in_bounds(y - 1, x - 1) && now.in_bounds(y + 1, x + 1)) {
        next[y][x] = next_value(now[y][x], now[y - 1][x], now[y + 1][x], now[y][x - 1], now[y][x + 1]);
    } else {
        next[y][x] = now[y][x];
    }
}

namespace {

/// The same in plain loops on one thread.
std::vector<float> reference(int64_t rows, int64_t columns, int64_t steps) {
    const auto at = [columns](int64_t y, int64_t x) { return std::size_t(y * columns + x); };
    std::vector<float> now(at(rows, 0));
    for (int64_t y = 0; y < rows; y++) {
        for (int64_t x = 0; x < columns; x++) now[at(y, x)] = first_value(y, x);
    }
    std::vector<float> next = now;  // with the border, which stays
    for (int64_t step = 0; step < steps; step++) {
        for (int64_t y = 1; y + 1 < rows; y++) {
            for (int64_t x = 1; x + 1 < columns; x++) {
                next[at(y, x)] = next_value(now[at(y, x)], now[at(y - 1, x)], now[at(y + 1, x)], now[at(y, x - 1)],
                                            now[at(y, x + 1)]);
            }
        }
        std::swap(now, next);
    }
    return now;
}

bool run(const std::vector<Argument>& arguments) {
    const int64_t rows = arguments[0].value, columns = arguments[1].value, steps = arguments[2].value;
    auto rt = kmm::make_runtime();
    auto now = kmm::Array<float, 2>{{rows, columns}}.named("now");
    auto next = kmm::Array<float, 2>{{rows, columns}}.named("next");

    // Domain axes are x, y, z: the size is {columns, rows}. Eight bands of rows; BlockDomain gives neighbouring bands
    // to the same GPU.
    const auto bands = kmm::BlockDomain({columns, rows}).tiles({columns, (rows + 7) / 8});
    const dim3 block(32, 8);

    Progress progress(rt, "heat");
    rt.parallel_submit(bands, kmm::GPUKernel(heat_up, block), _y, _x, overwrite(now[_y][_x]));
    for (int64_t step = 0; step < steps; step++) {
        rt.parallel_submit(bands, kmm::GPUKernel(diffuse, block), _y, _x, overwrite(next[_y][_x]),
                           now[range(_y - 1, _y + 2)][range(_x - 1, _x + 2)]);
        std::swap(now, next);  // swaps the handles; the tasks keep the arrays that they were submitted with
    }
    progress.wait(rt.barrier());
    progress.print();
    return now.copy_to_vector() == reference(rows, columns, steps);
}

}  // namespace

int main(int argc, char** argv) {
    return run_example(argc, argv, "heat",
                       {{"rows", 1024, 1, 1'000'000}, {"columns", 1024, 1, 1'000'000}, {"steps", 20, 0, 1'000'000}},
                       run);
}
