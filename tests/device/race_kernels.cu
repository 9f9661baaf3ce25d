// A sum of tiles with and without its barriers, for race_test.cmake: built with ThreadSanitizer, the program with the
// argument `racy` must be told of the two marked lines, with `correct` of nothing. The marks are found by their text.
#include <cstdio>
#include <cstring>

#include "launch.hpp"

namespace {

template<bool Barriers>
__global__ void sum_tile(int* out, const int* in) {
    __shared__ int tile[64];
    tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];  // race: write
    if (Barriers) __syncthreads();
    int sum = tile[threadIdx.x] + tile[(threadIdx.x + 1) % blockDim.x];  // race: read
    sum += __syncthreads_count(0);
    tile[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, tile[0]);
}

// The same question for part of a warp: shuffles order nothing, __syncwarp does.
template<bool Barriers>
__global__ void shift_in_warp(int* out) {
    __shared__ int cells[32];
    for (int round = 0; round < 3; round++) {
        cells[threadIdx.x] = round;  // warp race: write
        const int mine = __shfl_xor_sync(0xffffffffu, round, 1);
        if (Barriers) __syncwarp();
        const int sum = mine + cells[(threadIdx.x + 1) % 32];  // warp race: read
        __syncwarp();
        out[threadIdx.x] = sum;
    }
}

template<bool Barriers>
bool tile_is_right() {
    constexpr unsigned blocks = 6;
    kmm_test::Data<int> in(blocks * 64, 1), out(1);
    kmm_test::launch(&sum_tile<Barriers>, blocks, 64, 0, out.get(), in.get());
    return out[0] == static_cast<int>(2 * blocks * 64);
}

template<bool Barriers>
bool warp_is_right() {
    kmm_test::Data<int> out(32);
    kmm_test::launch(&shift_in_warp<Barriers>, 1, 32, 0, out.get());
    return out[3] == 4;
}

}  // namespace

// Each argument names one run. Exit status 3: a result is wrong where nothing races.
int main(int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
        bool right = true;
        if (std::strcmp(argv[i], "correct") == 0)
            right = tile_is_right<true>() && warp_is_right<true>();
        else if (std::strcmp(argv[i], "racy") == 0)
            tile_is_right<false>();
        else if (std::strcmp(argv[i], "racy_warp") == 0)
            warp_is_right<false>();
        else
            right = false;
        if (!right) {
            std::printf("wrong result or unknown run '%s'\n", argv[i]);
            return 3;
        }
    }
    std::puts("ran to the end");
    return 0;
}
