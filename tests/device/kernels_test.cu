// Barriers, shared memory, early return, geometry, parameters: the same text runs emulated and on a GPU, and both are
// compared with a plain computation.
#include <gtest/gtest.h>

#include <numeric>

#include "launch.hpp"

using kmm_test::Data;
using kmm_test::launch;

namespace {

__global__ void write_coordinates(unsigned* out) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[at] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y +
              100000 * threadIdx.z;
}

__global__ void write_coordinates_after_barriers(unsigned* out) {
    __syncthreads();
    const uint3 before = threadIdx;
    __syncthreads();
    const unsigned thread = before.x + blockDim.x * (before.y + blockDim.y * before.z);
    out[thread] = threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z;
}

// Reverses each block through shared memory: wrong unless every thread has written before any reads.
__global__ void reverse_blocks(int* data) {
    __shared__ int tile[256];
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = data[at];
    __syncthreads();
    data[at] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse_blocks_dynamic(int* data) {
    KMM_DYNAMIC_SHARED(int, tile);
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = data[at];
    __syncthreads();
    data[at] = tile[blockDim.x - 1 - threadIdx.x];
}

// Two names, one memory; doubles need the alignment.
__global__ void dynamic_shared_has_two_names(double* out) {
    KMM_DYNAMIC_SHARED(double, numbers);
    KMM_DYNAMIC_SHARED(unsigned char, bytes);
    numbers[threadIdx.x] = 1.5 * threadIdx.x;
    __syncthreads();
    double copy = 0;
    for (unsigned i = 0; i < sizeof copy; i++) {
        reinterpret_cast<unsigned char*>(&copy)[i] = bytes[sizeof copy * (blockDim.x - 1 - threadIdx.x) + i];
    }
    out[threadIdx.x] = copy;
}

__global__ void sum_blocks(float* out, const float* in, unsigned n) {
    __shared__ float tile[256];
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = at < n ? in[at] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = tile[0];
}

// A wave: cell i becomes the old cell i - 1, `rounds` times, two barriers a round.
__global__ void rotate(int* data, int rounds) {
    for (int r = 0; r < rounds; r++) {
        const int left = data[(threadIdx.x + blockDim.x - 1) % blockDim.x];
        __syncthreads();
        data[threadIdx.x] = left;
        __syncthreads();
    }
}

// A third returns before the first barrier, a third before the second.
__global__ void return_early(int* data) {
    if (threadIdx.x % 3 == 0) return;
    atomicAdd(&data[0], 1);
    __syncthreads();
    if (threadIdx.x % 3 == 1) {
        data[1 + threadIdx.x] = data[0];
        return;
    }
    __syncthreads();
    data[1 + threadIdx.x] = -data[0];
}

__global__ void vote_at_barriers(int* out) {
    const int count = __syncthreads_count(threadIdx.x % 3 == 0);
    const int none = __syncthreads_or(threadIdx.x > 1000);
    const int one = __syncthreads_or(threadIdx.x == 7);
    const int most = __syncthreads_and(threadIdx.x != 7);
    const int all = __syncthreads_and(threadIdx.x < 1000);
    const int again = __syncthreads_count(threadIdx.x < 5);
    out[threadIdx.x] =
        count + 1000 * (none != 0) + 2000 * (one != 0) + 4000 * (most != 0) + 8000 * (all != 0) + 100000 * again;
}

__global__ void transpose(float* out, const float* in, unsigned n) {
    __shared__ float tile[8][9];
    const unsigned x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    const unsigned tx = blockIdx.y * 8 + threadIdx.x, ty = blockIdx.x * 8 + threadIdx.y;
    if (tx < n && ty < n) out[ty * n + tx] = tile[threadIdx.x][threadIdx.y];
}

struct Pair {
    char small;
    double large;
};
__global__ void take_many_parameters(double* out, char a, short b, float4 c, char d, Pair e, const int* f, bool g) {
    a++;  // each thread has its own copy
    e.large += a;
    out[threadIdx.x] = a + b + c.x + c.y + c.z + c.w + d + e.small + e.large + *f + (g ? 0.5 : 0);
}

__constant__ int table_of_constants[4] = {2, 3, 5, 7};
__device__ int square(int x) { return x * x; }
__device__ __forceinline__ int cube(int x) { return x * square(x); }
template<class T>
__global__ void __launch_bounds__(128) call_device_functions(T* out) {
    out[threadIdx.x] =
        static_cast<T>(square(static_cast<int>(threadIdx.x)) + cube(table_of_constants[threadIdx.x % 4]));
}

__global__ void count_bits(unsigned long long* out, unsigned long long x) {
    const unsigned low = static_cast<unsigned>(x);
    out[0] = __popc(low) + 100 * __popcll(x);
    out[1] = __clz(static_cast<int>(low)) + 100 * __clzll(static_cast<long long>(x));
    out[2] = __ffs(static_cast<int>(low)) + 100 * __ffsll(static_cast<long long>(x));
    out[3] = __brev(low);
    out[4] = __brevll(x);
    out[5] =
        static_cast<unsigned long long>(max(min(7, 3u), 2) + max(3L, 4L) + min(5ull, 6ull)) + (clock64() != 0 ? 0 : 0);
    out[6] = static_cast<unsigned>(warpSize);
}

__global__ void compute_floats(double* out, float x, double y) {
    float s, c;
    sincosf(x, &s, &c);
    double ds, dc;
    sincos(y, &ds, &dc);
    out[0] = s + 2 * c;
    out[1] = ds + 2 * dc;
    out[2] = rsqrtf(x) + rsqrt(y);
    out[3] = max(x, 0.25f) + min(y, 100.0) + max(x, y);
    out[4] = __int_as_float(__float_as_int(x)) + __longlong_as_double(__double_as_longlong(y));
    out[5] = __ldg(&out[6]);
}

}  // namespace

TEST(Kernels, know_their_block_and_thread_in_three_dimensions) {
    KMM_NEED_DEVICE();
    const dim3 grid(3, 4, 2), block(5, 3, 4);
    Data<unsigned> out(24 * 60, ~0u);
    launch(&write_coordinates, grid, block, 0, out.get());
    std::size_t at = 0;
    for (unsigned bz = 0; bz < 2; bz++)
        for (unsigned by = 0; by < 4; by++)
            for (unsigned bx = 0; bx < 3; bx++)
                for (unsigned tz = 0; tz < 4; tz++)
                    for (unsigned ty = 0; ty < 3; ty++)
                        for (unsigned tx = 0; tx < 5; tx++)
                            ASSERT_EQ(out[at++], bx + 10 * by + 100 * bz + 1000 * tx + 10000 * ty + 100000 * tz);
}

TEST(Kernels, know_their_thread_after_waiting) {
    KMM_NEED_DEVICE();
    Data<unsigned> out(7 * 5 * 3, ~0u);
    launch(&write_coordinates_after_barriers, 1, dim3(7, 5, 3), 0, out.get());
    for (unsigned i = 0; i < 105; i++) ASSERT_EQ(out[i], i % 7 + 100 * (i / 7 % 5) + 10000 * (i / 35));
}

TEST(Kernels, exchange_data_through_static_shared_memory) {
    KMM_NEED_DEVICE();
    for (const unsigned block : {1u, 2u, 31u, 32u, 33u, 256u}) {
        Data<int> data(block * 9);
        for (unsigned i = 0; i < block * 9; i++) data[i] = static_cast<int>(i);
        launch(&reverse_blocks, 9, block, 0, data.get());
        for (unsigned i = 0; i < block * 9; i++) {
            ASSERT_EQ(data[i], static_cast<int>(i / block * block + (block - 1 - i % block)));
        }
    }
}

TEST(Kernels, exchange_data_through_dynamic_shared_memory) {
    KMM_NEED_DEVICE();
    for (const unsigned block : {1u, 96u, 1024u}) {
        Data<int> data(block * 5);
        for (unsigned i = 0; i < block * 5; i++) data[i] = static_cast<int>(i);
        launch(&reverse_blocks_dynamic, 5, block, block * 4, data.get());
        for (unsigned i = 0; i < block * 5; i++) {
            ASSERT_EQ(data[i], static_cast<int>(i / block * block + (block - 1 - i % block)));
        }
    }
}

TEST(Kernels, see_one_dynamic_shared_memory_under_every_name) {
    KMM_NEED_DEVICE();
    Data<double> out(64, -1);
    launch(&dynamic_shared_has_two_names, 1, 64, 64 * sizeof(double), out.get());
    for (unsigned i = 0; i < 64; i++) ASSERT_EQ(out[i], 1.5 * (63 - i));
}

TEST(Kernels, wait_at_barriers_in_a_loop) {
    KMM_NEED_DEVICE();
    const unsigned n = 10000;
    Data<float> in(n), out(40);
    for (unsigned i = 0; i < n; i++) in[i] = static_cast<float>(i % 13);
    launch(&sum_blocks, 40, 256, 0, out.get(), in.get(), n);
    for (unsigned b = 0; b < 40; b++) {
        float expected = 0;
        for (unsigned i = b * 256; i < (b + 1) * 256 && i < n; i++) expected += static_cast<float>(i % 13);
        ASSERT_EQ(out[b], expected);
    }
}

TEST(Kernels, wait_at_hundreds_of_barriers_with_the_largest_block) {
    KMM_NEED_DEVICE();
    const int rounds = 150;
    Data<int> data(1024);
    for (unsigned i = 0; i < 1024; i++) data[i] = static_cast<int>(i);
    launch(&rotate, 1, 1024, 0, data.get(), rounds);
    for (unsigned i = 0; i < 1024; i++) ASSERT_EQ(data[(i + rounds) % 1024], static_cast<int>(i));
}

TEST(Kernels, leave_barriers_to_the_threads_that_remain) {
    KMM_NEED_DEVICE();
    Data<int> data(97);
    launch(&return_early, 1, 96, 0, data.get());
    EXPECT_EQ(data[0], 64);
    for (unsigned t = 0; t < 96; t++) ASSERT_EQ(data[1 + t], t % 3 == 0 ? 0 : t % 3 == 1 ? 64 : -64);
}

TEST(Kernels, count_votes_at_barriers) {
    KMM_NEED_DEVICE();
    Data<int> out(100);
    launch(&vote_at_barriers, 1, 100, 0, out.get());
    for (unsigned i = 0; i < 100; i++) ASSERT_EQ(out[i], 34 + 2000 + 8000 + 500000);
}

TEST(Kernels, transpose_with_two_dimensional_blocks) {
    KMM_NEED_DEVICE();
    const unsigned n = 37;
    Data<float> in(n * n), out(n * n);
    for (unsigned i = 0; i < n * n; i++) in[i] = static_cast<float>(i);
    launch(&transpose, dim3(5, 5), dim3(8, 8), 0, out.get(), in.get(), n);
    for (unsigned y = 0; y < n; y++)
        for (unsigned x = 0; x < n; x++) ASSERT_EQ(out[x * n + y], in[y * n + x]);
}

TEST(Kernels, receive_parameters_of_mixed_alignment_as_private_copies) {
    KMM_NEED_DEVICE();
    Data<double> out(40);
    Data<int> f(1, 1000);
    launch(&take_many_parameters, 1, 40, 0, out.get(), 1, 2, make_float4(1, 2, 3, 4), 5, Pair{6, 7.25}, f.get(), true);
    for (unsigned i = 0; i < 40; i++) ASSERT_EQ(out[i], 2 + 2 + 10 + 5 + 6 + 9.25 + 1000 + 0.5);
}

TEST(Kernels, call_functions_and_read_constants) {
    KMM_NEED_DEVICE();
    Data<long long> out(128);
    launch(&call_device_functions<long long>, 1, 128, 0, out.get());
    const int constants[] = {2, 3, 5, 7};
    for (long long i = 0; i < 128; i++) {
        const int c = constants[i % 4];
        ASSERT_EQ(out[static_cast<std::size_t>(i)], i * i + c * c * c);
    }
}

TEST(Kernels, have_the_integer_functions) {
    KMM_NEED_DEVICE();
    Data<unsigned long long> out(7);
    launch(&count_bits, 1, 1, 0, out.get(), 0x00f0000000000013ull);
    EXPECT_EQ(out[0], 3u + 700u);
    EXPECT_EQ(out[1], 27u + 800u);
    EXPECT_EQ(out[2], 1u + 100u);
    EXPECT_EQ(out[3], 0xc8000000u);
    EXPECT_EQ(out[4], 0xc800000000000f00ull);
    EXPECT_EQ(out[5], 3u + 4u + 5u);
    EXPECT_EQ(out[6], 32u);
    launch(&count_bits, 1, 1, 0, out.get(), 0ull);
    EXPECT_EQ(out[0], 0u);
    EXPECT_EQ(out[1], 32u + 6400u);
    EXPECT_EQ(out[2], 0u);
}

TEST(Kernels, have_the_floating_point_functions) {
    KMM_NEED_DEVICE();
    Data<double> out(7);
    out[6] = 42;
    const float x = 0.75f;
    const double y = 2.5;
    launch(&compute_floats, 1, 1, 0, out.get(), x, y);
    EXPECT_NEAR(out[0], std::sin(0.75) + 2 * std::cos(0.75), 1e-5);
    EXPECT_NEAR(out[1], std::sin(2.5) + 2 * std::cos(2.5), 1e-12);
    EXPECT_NEAR(out[2], 1 / std::sqrt(0.75) + 1 / std::sqrt(2.5), 1e-5);
    EXPECT_EQ(out[3], 0.75 + 2.5 + 2.5);
    EXPECT_EQ(out[4], 3.25);
    EXPECT_EQ(out[5], 42);
}
