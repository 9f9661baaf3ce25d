// Stars that attract each other, all pairs, in single precision.
//
//   nbody [stars] [steps]
//
// Shows tasks that read a whole array: each moves a part of the stars, and needs the positions of all of them. On
// several GPUs the new positions go to the others by themselves before the next step. Velocities are updated in place:
// each task reads and writes its own.
//
// The same file runs on a GPU (compiled by nvcc) and on a machine without one (compiled as C++, kernels emulated).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "kmm/kmm.hpp"
#include "progress.hpp"

using namespace kmm::placeholders;

constexpr float time_step = 0.01f;
constexpr float softening = 0.05f;  // squared distance that is added to each: close stars do not fly apart
constexpr int tile_size = 64;       // stars that a block of threads keeps in shared memory

/// Adds to `a` what a star at `other` (its mass in w) does to one at `here`.
__host__ __device__ inline void attract(float4& a, const float4& here, const float4& other) {
    const float x = other.x - here.x, y = other.y - here.y, z = other.z - here.z;
    const float inverse = 1.0f / sqrtf(x * x + y * y + z * z + softening);
    const float strength = other.w * inverse * inverse * inverse;
    a.x += strength * x;
    a.y += strength * y;
    a.z += strength * z;
}

/// The velocity and the position one step later.
__host__ __device__ inline void advance(float4& velocity, float4& position, const float4& a) {
    velocity.x += time_step * a.x;
    velocity.y += time_step * a.y;
    velocity.z += time_step * a.z;
    position.x += time_step * velocity.x;
    position.y += time_step * velocity.y;
    position.z += time_step * velocity.z;
}

// `now` is the whole array, `next` and `velocity` are the part of this task; the indices of all three are those of the
// whole array.
__global__ void move_stars(kmm::Range<int64_t> stars, kmm::GPUSubviewMut<float4> next,
                           kmm::GPUSubviewMut<float4> velocity, kmm::GPUView<float4> now) {
    __shared__ float4 tile[tile_size];
    const int64_t i = stars.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t num_stars = now.size(0);
    float4 position = i < stars.end ? now[i] : make_float4(0, 0, 0, 0);
    float4 a = make_float4(0, 0, 0, 0);
    for (int64_t begin = 0; begin < num_stars; begin += tile_size) {
        const int64_t length = num_stars - begin < tile_size ? num_stars - begin : tile_size;
        if (threadIdx.x < length) tile[threadIdx.x] = now[begin + threadIdx.x];
        __syncthreads();
        for (int64_t j = 0; j < length; j++) attract(a, position, tile[j]);
        __syncthreads();
    }
    if (i >= stars.end) return;
    float4 v = velocity[i];
    advance(v, position, a);
    velocity[i] = v;
    next[i] = position;
}

namespace {

/// Stars at rest in a cube, all of one mass; the masses add up to 1.
std::vector<float4> first_positions(int64_t num_stars) {
    std::vector<float4> result;
    std::uint32_t state = 12345;
    const auto random = [&state] {
        state = state * 1664525u + 1013904223u;
        return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
    };
    for (int64_t i = 0; i < num_stars; i++) {
        const float x = random(), y = random(), z = random();
        result.push_back(make_float4(x, y, z, 1.0f / static_cast<float>(num_stars)));
    }
    return result;
}

/// The same in plain loops on one thread.
std::vector<float4> reference(std::vector<float4> now, int64_t steps) {
    std::vector<float4> next = now, velocity(now.size(), make_float4(0, 0, 0, 0));
    for (int64_t step = 0; step < steps; step++) {
        for (std::size_t i = 0; i < now.size(); i++) {
            float4 a = make_float4(0, 0, 0, 0);
            for (const float4& other : now) attract(a, now[i], other);
            next[i] = now[i];
            advance(velocity[i], next[i], a);
        }
        std::swap(now, next);
    }
    return now;
}

bool run(const std::vector<Argument>& arguments) {
    const int64_t num_stars = arguments[0].value, steps = arguments[1].value;
    const std::vector<float4> first = first_positions(num_stars);
    auto rt = kmm::make_runtime();

    // Eight chunks, at home on the GPUs in turn; TileDomain deals its tasks in the same way.
    const int64_t part = (num_stars + 7) / 8;
    auto now = rt.array<float4>(num_stars, part).named("positions");
    auto next = rt.array<float4>(num_stars, part).named("next positions");
    auto velocity = rt.array<float4>(num_stars, part).named("velocity");

    Progress progress(rt, "nbody");
    now.copy_from(first);
    velocity.fill(make_float4(0, 0, 0, 0));
    const auto kernel = kmm::GPUKernel(move_stars, tile_size).named("move_stars");
    for (int64_t step = 0; step < steps; step++) {
        rt.parallel_submit(num_stars, part, kernel, _x, overwrite(next[_x]), write(velocity[_x]), now);
        std::swap(now, next);
    }
    progress.wait(rt.barrier());
    progress.print();

    // A GPU joins multiplications with additions: the last bits of its results differ.
    const std::vector<float4> result = now.copy_to_vector(), expected = reference(first, steps);
    int64_t wrong = 0;
    for (std::size_t i = 0; i < result.size(); i++) {
        const float4 &a = result[i], &b = expected[i];
        const bool is_close =
            std::abs(a.x - b.x) <= 1e-4f && std::abs(a.y - b.y) <= 1e-4f && std::abs(a.z - b.z) <= 1e-4f;
        wrong += is_close ? 0 : 1;
    }
    if (wrong > 0) std::printf("%lld of %lld stars are elsewhere\n", (long long)wrong, (long long)num_stars);
    return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_example(argc, argv, "nbody", {{"stars", 2048, 1, 10'000'000}, {"steps", 5, 0, 1'000'000}}, run);
}
