// Atomic functions on every type that CUDA has, between the threads of many blocks; the same text on a GPU.
#include <gtest/gtest.h>

#include "launch.hpp"

using kmm_test::Data;
using kmm_test::launch;

namespace {

constexpr unsigned grid = 24, block = 128;
constexpr unsigned threads = grid * block;

template<class T>
__global__ void add_ones(T* sum) {
    atomicAdd(sum, static_cast<T>(1));
    atomicAdd_block(sum, static_cast<T>(1));
    atomicAdd_system(sum, static_cast<T>(1));
}

template<class T>
__global__ void subtract_ones(T* sum) {
    atomicSub(sum, static_cast<T>(1));
}

template<class T>
__global__ void find_extremes(T* low, T* high) {
    const T mine = static_cast<T>(blockIdx.x * blockDim.x + threadIdx.x + 5);
    atomicMin(low, mine);
    atomicMax(high, mine);
}

// Each thread puts its number in and carries away another: at the end all numbers are there once.
template<class T>
__global__ void pass_on(T* cell, T* got) {
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    got[me] = atomicExch(cell, static_cast<T>(me));
}

template<class T>
__global__ void combine_bits(T* all_and, T* all_or, T* all_xor) {
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    const T bit = static_cast<T>(T{1} << me % (8 * sizeof(T)));
    atomicAnd(all_and, static_cast<T>(~bit));
    atomicOr(all_or, static_cast<T>(me % 2 == 0 ? bit : T{0}));
    atomicXor(all_xor, static_cast<T>(me + 1));
}

// A counter kept by compare-and-swap alone.
template<class T>
__global__ void count_by_swaps(T* counter) {
    T seen = T{0};
    for (;;) {
        const T before = atomicCAS(counter, seen, static_cast<T>(seen + 1));
        if (before == seen) break;
        seen = before;
    }
}

__global__ void count_around(unsigned* up, unsigned* down) {
    atomicInc(up, 99);
    atomicDec(down, 99);
}

__global__ void return_old_values(unsigned* cells) {
    cells[1] = atomicInc(&cells[0], 3);
    cells[2] = atomicDec(&cells[0], 3);
    cells[3] = atomicMax(&cells[0], 17u);
    cells[4] = atomicCAS(&cells[0], 17u, 18u);
    cells[5] = atomicCAS(&cells[0], 17u, 19u);
}

__global__ void histogram(unsigned* out, const unsigned char* in, unsigned n) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// The last block to finish adds up what the others left: fence, count, read.
__global__ void sum_by_last_block(int* partial, unsigned* done, int* total) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
        __threadfence();
        last = atomicInc(done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x != 0) return;
    __threadfence();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += partial[i];
    *total = sum;
}

template<class T>
class Numbers : public testing::Test {};
using AddTypes = testing::Types<int, unsigned, unsigned long long, float, double>;
TYPED_TEST_SUITE(Numbers, AddTypes);

template<class T>
class Integers : public testing::Test {};
using OrderedTypes = testing::Types<int, unsigned, long long, unsigned long long>;
TYPED_TEST_SUITE(Integers, OrderedTypes);

template<class T>
class Bits : public testing::Test {};
using BitTypes = testing::Types<int, unsigned, unsigned long long>;
TYPED_TEST_SUITE(Bits, BitTypes);

template<class T>
class Swaps : public testing::Test {};
// clang's own CUDA headers declare atomicCAS of 16 bits and do not define it.
#if defined(__clang__) && defined(__CUDA__)
using SwapTypes = testing::Types<int, unsigned, unsigned long long>;
#else
using SwapTypes = testing::Types<int, unsigned, unsigned long long, unsigned short>;
#endif
TYPED_TEST_SUITE(Swaps, SwapTypes);

template<class T>
class Exchanges : public testing::Test {};
using ExchangeTypes = testing::Types<int, unsigned, unsigned long long, float>;
TYPED_TEST_SUITE(Exchanges, ExchangeTypes);

}  // namespace

TYPED_TEST(Numbers, added_by_all_threads_are_all_counted) {
    KMM_NEED_DEVICE();
    Data<TypeParam> sum(1);
    launch(&add_ones<TypeParam>, grid, block, 0, sum.get());
    EXPECT_EQ(sum[0], static_cast<TypeParam>(3 * threads));
}

TEST(Atomics, subtract) {
    KMM_NEED_DEVICE();
    Data<int> i(1, 5);
    Data<unsigned> u(1, threads);
    launch(&subtract_ones<int>, grid, block, 0, i.get());
    launch(&subtract_ones<unsigned>, grid, block, 0, u.get());
    EXPECT_EQ(i[0], 5 - static_cast<int>(threads));
    EXPECT_EQ(u[0], 0u);
}

TYPED_TEST(Integers, are_compared_for_minimum_and_maximum) {
    KMM_NEED_DEVICE();
    Data<TypeParam> low(1, TypeParam{1000000}), high(1, TypeParam{1});
    launch(&find_extremes<TypeParam>, grid, block, 0, low.get(), high.get());
    EXPECT_EQ(low[0], TypeParam{5});
    EXPECT_EQ(high[0], static_cast<TypeParam>(threads + 4));
}

TYPED_TEST(Exchanges, lose_no_value) {
    KMM_NEED_DEVICE();
    Data<TypeParam> cell(1, static_cast<TypeParam>(threads)), got(threads);
    launch(&pass_on<TypeParam>, grid, block, 0, cell.get(), got.get());
    std::vector<int> seen(threads + 1, 0);
    seen[static_cast<std::size_t>(cell[0])]++;
    for (const TypeParam value : got.values()) seen[static_cast<std::size_t>(value)]++;
    for (const int count : seen) ASSERT_EQ(count, 1);
}

TYPED_TEST(Bits, are_combined) {
    KMM_NEED_DEVICE();
    Data<TypeParam> all_and(1, static_cast<TypeParam>(~TypeParam{0})), all_or(1), all_xor(1);
    launch(&combine_bits<TypeParam>, grid, block, 0, all_and.get(), all_or.get(), all_xor.get());
    TypeParam expected_or{0}, expected_xor{0};
    for (unsigned me = 0; me < threads; me++) {
        if (me % 2 == 0) expected_or |= static_cast<TypeParam>(TypeParam{1} << me % (8 * sizeof(TypeParam)));
        expected_xor ^= static_cast<TypeParam>(me + 1);
    }
    EXPECT_EQ(all_and[0], TypeParam{0});
    EXPECT_EQ(all_or[0], expected_or);
    EXPECT_EQ(all_xor[0], expected_xor);
}

TYPED_TEST(Swaps, count_every_thread) {
    KMM_NEED_DEVICE();
    Data<TypeParam> counter(1);
    launch(&count_by_swaps<TypeParam>, grid, block, 0, counter.get());
    EXPECT_EQ(counter[0], static_cast<TypeParam>(threads));
}

TEST(Atomics, count_around_a_limit) {
    KMM_NEED_DEVICE();
    Data<unsigned> up(1), down(1, 50);
    launch(&count_around, grid, block, 0, up.get(), down.get());
    EXPECT_EQ(up[0], threads % 100);
    EXPECT_EQ(down[0], (50 + 100 * threads - threads) % 100);
}

TEST(Atomics, return_the_old_value) {
    KMM_NEED_DEVICE();
    Data<unsigned> cells(6, 3);
    launch(&return_old_values, 1, 1, 0, cells.get());
    EXPECT_EQ(cells.values(), (std::vector<unsigned>{18, 3, 0, 3, 17, 18}));
}

TEST(Atomics, work_on_shared_memory) {
    KMM_NEED_DEVICE();
    const unsigned n = 50000;
    Data<unsigned char> in(n);
    Data<unsigned> out(16);
    std::vector<unsigned> expected(16, 0);
    for (unsigned i = 0; i < n; i++) {
        in[i] = static_cast<unsigned char>(i * i % 16);
        expected[in[i]]++;
    }
    launch(&histogram, grid, block, 0, out.get(), in.get(), n);
    EXPECT_EQ(out.values(), expected);
}

TEST(Atomics, with_fences_tell_the_last_block_that_it_is_the_last) {
    KMM_NEED_DEVICE();
    Data<int> partial(grid), total(1);
    Data<unsigned> done(1);
    launch(&sum_by_last_block, grid, 32, 0, partial.get(), done.get(), total.get());
    EXPECT_EQ(total[0], static_cast<int>(grid * (grid + 1) / 2));
}
