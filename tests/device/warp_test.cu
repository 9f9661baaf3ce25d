// Warp functions: shuffles, votes, barriers of part of a warp, lanes that return; the same text on a GPU.
#include <gtest/gtest.h>

#include "launch.hpp"

using kmm_test::Data;
using kmm_test::launch;

namespace {

// The reference: what lane `lane` receives, when the lanes hold lane * 3 + 1.
unsigned expected_source(int kind, unsigned lane, unsigned operand, unsigned width) {
    const unsigned base = lane / width * width;
    switch (kind) {
    case 0: return base + operand % width;
    case 1: return lane < base + operand ? lane : lane - operand;
    case 2: return lane + operand >= base + width ? lane : lane + operand;
    default: return (lane ^ operand) >= base + width ? lane : lane ^ operand;
    }
}

template<class T>
__global__ void shuffle_all(T* out, const unsigned* operands, int num_operands, int width) {
    const T mine = static_cast<T>(threadIdx.x % 32 * 3 + 1);
    for (int i = 0; i < num_operands; i++) {
        const unsigned operand = operands[i];
        T* const to = out + (static_cast<unsigned>(i) * blockDim.x + threadIdx.x) * 4;
        to[0] = __shfl_sync(0xffffffffu, mine, static_cast<int>(operand), width);
        to[1] = __shfl_up_sync(0xffffffffu, mine, operand, width);
        to[2] = __shfl_down_sync(0xffffffffu, mine, operand, width);
        to[3] = __shfl_xor_sync(0xffffffffu, mine, static_cast<int>(operand), width);
    }
}

__global__ void sum_warps(int* out, const int* in) {
    int value = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
    if (threadIdx.x % 32 == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

// The usual block sum: shuffles in each warp, shared memory, shuffles in the first warp.
__global__ void sum_block(int* out, const int* in) {
    __shared__ int of_warp[32];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int value = in[threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    if (warp != 0) return;
    value = lane < blockDim.x / 32 ? of_warp[lane] : 0;
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
    if (lane == 0) *out = value;
}

__global__ void vote(unsigned* out) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned even = __ballot_sync(0xffffffffu, lane % 2 == 0);
    const int any = __any_sync(0xffffffffu, lane == 5 && warp == 0);
    const int all = __all_sync(0xffffffffu, lane != 5 || warp == 0);
    out[threadIdx.x] = (even == 0x55555555u) + 2u * (any != 0) + 4u * (all != 0);
}

// The two halves of a warp go different ways and talk among themselves.
__global__ void talk_in_halves(int* out) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int value = lane;
    if (lane < 16) {
        for (int i = 8; i > 0; i /= 2) value += __shfl_xor_sync(0x0000ffffu, value, i);
    } else {
        value = static_cast<int>(__popc(__ballot_sync(0xffff0000u, lane % 3 == 0)));
        __syncwarp(0xffff0000u);
        value += __shfl_sync(0xffff0000u, lane, 20);
    }
    __syncwarp();
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, value, 16);
}

// Lanes hand a token on through shared memory with nothing but __syncwarp between.
__global__ void rotate_in_warp(int* out, int rounds) {
    __shared__ int cells[64];
    const unsigned base = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    cells[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncwarp();
    for (int r = 0; r < rounds; r++) {
        const int left = cells[base + (lane + 31) % 32];
        __syncwarp();
        cells[threadIdx.x] = left;
        __syncwarp();
    }
    out[threadIdx.x] = cells[threadIdx.x];
}

// One addition for all lanes that want one, whichever those are.
__global__ void add_together(unsigned* counter, unsigned* place) {
    if (threadIdx.x % 3 == 0) return;
    const unsigned active = __activemask();
    const unsigned lane = threadIdx.x % 32;
    const int leader = __ffs(static_cast<int>(active)) - 1;
    unsigned start = 0;
    if (static_cast<int>(lane) == leader) start = atomicAdd(counter, static_cast<unsigned>(__popc(active)));
    start = __shfl_sync(active, start, leader);
    place[threadIdx.x] = start + static_cast<unsigned>(__popc(active & ((1u << lane) - 1)));
}

// Lane indices follow x, then y, then z.
__global__ void sum_rows(int* out) {
    int value = 1 + static_cast<int>(threadIdx.x);
    for (int i = 1; i < 8; i *= 2) value += __shfl_xor_sync(0xffffffffu, value, i, 8);
    out[threadIdx.x + 8 * (threadIdx.y + 4 * threadIdx.z)] = value + 1000 * static_cast<int>(threadIdx.z);
}

template<class T>
class Shuffles : public testing::Test {};
using ShuffleTypes = testing::Types<int, unsigned, long, unsigned long, long long, unsigned long long, float, double>;
TYPED_TEST_SUITE(Shuffles, ShuffleTypes);

}  // namespace

TYPED_TEST(Shuffles, read_from_the_lane_that_cuda_names) {
    KMM_NEED_DEVICE();
    const std::vector<unsigned> numbers{0, 1, 3, 7, 16, 31};
    Data<unsigned> operands(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); i++) operands[i] = numbers[i];
    for (const unsigned width : {32u, 16u, 8u, 4u, 2u, 1u}) {
        Data<TypeParam> out(numbers.size() * 64 * 4);
        launch(&shuffle_all<TypeParam>, 1, 64, 0, out.get(), operands.get(), numbers.size(), width);
        for (std::size_t i = 0; i < numbers.size() * 64 * 4; i++) {
            const int kind = static_cast<int>(i % 4);
            const unsigned lane = i / 4 % 32, operand = numbers[i / 4 / 64];
            ASSERT_EQ(out[i], static_cast<TypeParam>(expected_source(kind, lane, operand, width) * 3 + 1))
                << "kind " << kind << " lane " << lane << " operand " << operand << " width " << width;
        }
    }
}

TEST(Warps, sum_by_shuffles) {
    KMM_NEED_DEVICE();
    Data<int> in(1024), out(32);
    for (unsigned i = 0; i < 1024; i++) in[i] = static_cast<int>(i * i % 101);
    launch(&sum_warps, 4, 256, 0, out.get(), in.get());
    for (unsigned w = 0; w < 32; w++) {
        int expected = 0;
        for (unsigned i = 0; i < 32; i++) expected += in[w * 32 + i];
        ASSERT_EQ(out[w], expected);
    }
}

TEST(Warps, and_barriers_of_the_block_mix) {
    KMM_NEED_DEVICE();
    for (const unsigned block : {32u, 64u, 512u, 1024u}) {
        Data<int> in(block), out(1);
        int expected = 0;
        for (unsigned i = 0; i < block; i++) expected += in[i] = static_cast<int>(i * 7 % 50);
        launch(&sum_block, 1, block, 0, out.get(), in.get());
        ASSERT_EQ(out[0], expected);
    }
}

TEST(Warps, vote) {
    KMM_NEED_DEVICE();
    Data<unsigned> out(64);
    launch(&vote, 1, 64, 0, out.get());
    for (unsigned t = 0; t < 64; t++) ASSERT_EQ(out[t], t < 32 ? 1u + 2u + 4u : 1u);
}

TEST(Warps, split_into_groups_that_do_not_wait_for_each_other) {
    KMM_NEED_DEVICE();
    Data<int> out(96);
    launch(&talk_in_halves, 1, 96, 0, out.get());
    for (unsigned t = 0; t < 96; t++) ASSERT_EQ(out[t], t % 32 < 16 ? 5 + 20 : 120);
}

TEST(Warps, order_shared_memory_by_syncwarp) {
    KMM_NEED_DEVICE();
    Data<int> out(64);
    launch(&rotate_in_warp, 1, 64, 0, out.get(), 45);
    for (unsigned t = 0; t < 64; t++) ASSERT_EQ(out[t], static_cast<int>(t / 32 * 32 + (t + 32 * 2 - 45 % 32) % 32));
}

TEST(Warps, know_which_lanes_are_together) {
    KMM_NEED_DEVICE();
    Data<unsigned> counter(1), place(128, 1000);
    launch(&add_together, 1, 128, 0, counter.get(), place.get());
    unsigned wanted = 0;
    std::vector<int> taken(128, 0);
    for (unsigned t = 0; t < 128; t++) {
        if (t % 3 == 0) {
            ASSERT_EQ(place[t], 1000u);
            continue;
        }
        wanted++;
        ASSERT_LT(place[t], 128u);
        ASSERT_EQ(taken[place[t]]++, 0);
    }
    EXPECT_EQ(counter[0], wanted);
}

TEST(Warps, follow_the_linear_thread_index) {
    KMM_NEED_DEVICE();
    Data<int> out(8 * 4 * 3);
    launch(&sum_rows, 1, dim3(8, 4, 3), 0, out.get());
    for (unsigned t = 0; t < 96; t++) ASSERT_EQ(out[t], 36 + 1000 * static_cast<int>(t / 32));
}
