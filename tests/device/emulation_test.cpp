// What only emulated kernels have: errors that reach the caller, threads that are unwound, handles, types, the state
// that other code may ask for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "kmm/detail/device_access.hpp"
#include "launch.hpp"

using kmm::emulation::KernelError;
using kmm_test::Data;
using kmm_test::launch;

namespace {

/// Counts the objects alive on the stacks of kernels.
struct Guard {
    explicit Guard(std::atomic<int>* count) : count_(count) { ++*count_; }
    ~Guard() { --*count_; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    std::atomic<int>* count_;
};

struct WaitsWhenDestroyed {
    ~WaitsWhenDestroyed() noexcept(false) { __syncthreads(); }
};

__global__ void throw_in_one_thread(std::atomic<int>* alive, int* reached, unsigned thread) {
    const Guard guard(alive);
    __syncthreads();
    if (threadIdx.x == thread) throw std::domain_error("thread " + std::to_string(thread));
    __syncthreads();
    reached[threadIdx.x] = 1;
}

__global__ void throw_while_lanes_wait(std::atomic<int>* alive) {
    const Guard guard(alive);
    if (threadIdx.x == 40) throw std::domain_error("40");
    __syncwarp();
    __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void throw_without_waiting(int* started) {
    started[threadIdx.x] = 1;
    if (threadIdx.x == 3) throw 3;
}

__global__ void throw_late(int* blocks) {
    if (threadIdx.x == 0) blocks[blockIdx.x] = 1;
    if (blockIdx.x == 2) throw std::domain_error("block 2");
}

__global__ void wait_in_destructors(int* out) {
    const WaitsWhenDestroyed waits;
    __syncthreads();
    if (threadIdx.x == 5) throw std::domain_error("5");
    out[threadIdx.x] = 1;
}

// Every thread is inside its own catch block, with its own exception, while it waits.
__global__ void wait_while_handling(int* out) {
    const int me = static_cast<int>(threadIdx.x);
    try {
        throw me;
    } catch (int outer) {
        __syncthreads();
        try {
            if (me % 2 == 0) throw 100 + me;
            __syncthreads();
            throw;
        } catch (int inner) {
            if (me % 2 == 0) __syncthreads();
            out[me] = outer + 1000 * inner;
        }
    }
}

__global__ void wait_at_different_places(int* out) {
    if (threadIdx.x < 8)
        __syncthreads();
    else
        __syncwarp();
    out[threadIdx.x] = 1;
}

__global__ void name_a_lane_that_never_comes(int* out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
    else
        out[threadIdx.x] = __shfl_sync(0xffff0003u, 1, 0);
}

__global__ void leave_self_out(int* out) { out[threadIdx.x] = __shfl_sync(0x1u, 1, 0); }
__global__ void use_odd_width(int* out) { out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0, 12); }

__global__ void meet_at_two_barriers(int* out) {
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
        out[threadIdx.x] = 1;
    } else {
        __syncthreads();
        out[threadIdx.x] = 2;
    }
}

__global__ void look_around(int* wrong) {
    const auto check = [&] {
        const kmm::emulation::Where w = kmm::emulation::where();
        if (!kmm::emulation::in_kernel() || !kmm::detail::device_access_allowed() || w.block[1] != blockIdx.y ||
            w.thread[0] != threadIdx.x || w.thread[2] != threadIdx.z) {
            atomicAdd(wrong, 1);
        }
    };
    check();
    __syncthreads();
    check();
}

__global__ void do_nothing() {}
__global__ void do_nothing_else() {}
__global__ void start_another() {
    const auto* const handle = kmm::emulation::kernel_handle(&do_nothing);
    handle->run_blocks(*handle, kmm_test::geometry_of(1, 1, 0), nullptr, 0, 1);
}

__global__ void reverse_order_of_blocks(int* order, int* next) {
    if (threadIdx.x == 0) order[(*next)++] = static_cast<int>(blockIdx.x);
}

// 20 KiB of stack in use while all threads of the block wait.
__global__ void use_much_stack(long* out) {
    volatile int numbers[5000];
    for (int i = 0; i < 5000; i++) numbers[i] = i + static_cast<int>(threadIdx.x);
    __syncthreads();
    long sum = 0;
    for (int i = 0; i < 5000; i++) sum += numbers[i];
    out[threadIdx.x] = sum;
}

__global__ void misaligned(double* out, char a, double b) { out[0] = a + b; }

using Layout = std::pair<std::size_t, std::size_t>;
template<class T>
Layout layout() {
    return {sizeof(T), alignof(T)};
}

std::string error_of(void (*kernel)(int*), unsigned threads) {
    Data<int> out(threads);
    try {
        launch(kernel, 1, threads, 0, out.get());
    } catch (const KernelError& e) {
        return e.what();
    }
    return "no error";
}

void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace

TEST(EmulatedKernel, that_throws_fails_the_launch_and_unwinds_every_thread_that_waits) {
    for (const unsigned thread : {0u, 17u, 63u}) {
        std::atomic<int> alive{0};
        Data<int> reached(64);
        try {
            launch(&throw_in_one_thread, 1, 64, 0, &alive, reached.get(), thread);
            FAIL() << "nothing was thrown";
        } catch (const std::domain_error& e) {
            EXPECT_EQ(e.what(), "thread " + std::to_string(thread));
        }
        EXPECT_EQ(alive, 0);
        EXPECT_EQ(std::accumulate(reached.values().begin(), reached.values().end(), 0), 0);
    }
}

TEST(EmulatedKernel, that_throws_discards_lanes_at_warp_functions) {
    std::atomic<int> alive{0};
    EXPECT_THROW(launch(&throw_while_lanes_wait, 1, 96, 0, &alive), std::domain_error);
    EXPECT_EQ(alive, 0);
}

TEST(EmulatedKernel, that_throws_starts_no_more_threads) {
    Data<int> started(64);
    EXPECT_THROW(launch(&throw_without_waiting, 1, 64, 0, started.get()), int);
    EXPECT_EQ(std::accumulate(started.values().begin(), started.values().end(), 0), 4);
}

TEST(EmulatedKernel, that_throws_runs_no_more_blocks_of_its_range) {
    Data<int> blocks(5);
    const auto* const handle = kmm::emulation::kernel_handle(&throw_late);
    const auto parameters = kmm_test::pack<int*>(blocks.get());
    const auto geometry = kmm_test::geometry_of(5, 8, 0);
    EXPECT_THROW(handle->run_blocks(*handle, geometry, parameters.data(), 1, 5), std::domain_error);
    EXPECT_EQ(blocks.values(), (std::vector<int>{0, 1, 1, 0, 0}));
}

TEST(EmulatedKernel, can_run_again_after_a_failure) {
    std::atomic<int> alive{0};
    Data<int> reached(64);
    EXPECT_THROW(launch(&throw_in_one_thread, 1, 64, 0, &alive, reached.get(), 1), std::domain_error);
    launch(&throw_in_one_thread, 1, 64, 0, &alive, reached.get(), 64);
    EXPECT_EQ(std::accumulate(reached.values().begin(), reached.values().end(), 0), 64);
}

TEST(EmulatedKernel, that_throws_may_have_barriers_in_destructors) {
    Data<int> out(32);
    EXPECT_THROW(launch(&wait_in_destructors, 1, 32, 0, out.get()), std::domain_error);
}

TEST(EmulatedKernel, may_wait_while_it_handles_exceptions) {
    Data<int> out(50);
    launch(&wait_while_handling, 1, 50, 0, out.get());
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(out[static_cast<std::size_t>(i)], i + 1000 * (i % 2 == 0 ? 100 + i : i));
    }
    EXPECT_EQ(std::current_exception(), nullptr);
}

TEST(EmulatedKernel, whose_threads_wait_for_each_other_at_different_places_is_an_error) {
    const std::string text = error_of(&wait_at_different_places, 40);
    expect_contains(text, "no thread of block (0, 0, 0)");
    expect_contains(text, "of 40 threads 8 have returned, 8 wait at __syncthreads(), 24 at warp functions");
    expect_contains(text, "thread (8, 0, 0) waits at __syncwarp(0xffffffff, ...) for the lanes 0x000000ff");
}

TEST(EmulatedKernel, that_names_lanes_which_make_another_call_is_an_error) {
    const std::string text = error_of(&name_a_lane_that_never_comes, 32);
    expect_contains(text, "thread (0, 0, 0) waits at __shfl_sync(0xffffffff, ...) for the lanes 0xffff0000");
}

TEST(EmulatedKernel, that_leaves_the_caller_out_of_the_mask_is_an_error) {
    expect_contains(error_of(&leave_self_out, 32), "the mask 0x00000001 does not name the calling lane 1");
}

TEST(EmulatedKernel, that_shuffles_with_an_odd_width_is_an_error) {
    expect_contains(error_of(&use_odd_width, 32), "the width 12 is not 1, 2, 4, 8, 16 or 32");
}

TEST(EmulatedKernel, may_meet_at_one_barrier_from_two_places) {
    Data<int> out(33);
    launch(&meet_at_two_barriers, 1, 33, 0, out.get());
    for (unsigned i = 0; i < 33; i++) ASSERT_EQ(out[i], i % 2 == 0 ? 1 : 2);
}

TEST(EmulatedKernel, tells_other_code_where_it_is) {
    EXPECT_FALSE(kmm::emulation::in_kernel());
    EXPECT_FALSE(kmm::detail::device_access_allowed());
    Data<int> wrong(1);
    launch(&look_around, dim3(2, 3), dim3(4, 1, 3), 0, wrong.get());
    EXPECT_EQ(wrong[0], 0);
    EXPECT_FALSE(kmm::emulation::in_kernel());
    EXPECT_FALSE(kmm::detail::device_access_allowed());
    EXPECT_EQ(kmm::emulation::where().thread[0], 0u);
}

TEST(EmulatedKernel, cannot_start_another) { EXPECT_THROW(launch(&start_another, 1, 1, 0), KernelError); }

TEST(EmulatedKernel, has_a_place_that_barriers_must_be_in) {
    EXPECT_THROW(__syncthreads(), KernelError);
    EXPECT_THROW(__syncwarp(), KernelError);
}

TEST(EmulatedKernel, runs_the_blocks_that_it_is_asked_for_in_order) {
    Data<int> order(4, -1), next(1);
    const auto* const handle = kmm::emulation::kernel_handle(&reverse_order_of_blocks);
    const auto parameters = kmm_test::pack<int*, int*>(order.get(), next.get());
    handle->run_blocks(*handle, kmm_test::geometry_of(100, 3, 0), parameters.data(), 7, 10);
    EXPECT_EQ(order.values(), (std::vector<int>{7, 8, 9, -1}));
    handle->run_blocks(*handle, kmm_test::geometry_of(100, 3, 0), parameters.data(), 7, 7);
    EXPECT_EQ(next[0], 3);
}

TEST(EmulatedKernel, has_room_on_the_stack_of_every_thread) {
    Data<long> out(512);
    launch(&use_much_stack, 1, 512, 0, out.get());
    for (unsigned i = 0; i < 512; i++) ASSERT_EQ(out[i], 4999L * 5000 / 2 + 5000L * i);
}

TEST(EmulatedKernel, takes_parameters_from_any_address) {
    Data<double> out(1);
    const auto parameters = kmm_test::pack<double*, char, double>(out.get(), 3, 0.25);
    ASSERT_EQ(parameters.size(), 24u);
    std::vector<unsigned char> shifted(parameters.size() + 64);
    const auto base = reinterpret_cast<std::uintptr_t>(shifted.data());
    unsigned char* const odd = shifted.data() + (64 - base % 64) % 64 + 3;
    std::copy(parameters.begin(), parameters.end(), odd);
    const auto* const handle = kmm::emulation::kernel_handle(&misaligned);
    handle->run_blocks(*handle, kmm_test::geometry_of(1, 1, 0), odd, 0, 1);
    EXPECT_EQ(out[0], 3.25);
}

TEST(KernelHandle, is_one_for_each_kernel_on_every_thread) {
    const auto* const handle = kmm::emulation::kernel_handle(&do_nothing);
    const kmm::driver::HostKernel* from_other_thread = nullptr;
    std::thread([&] { from_other_thread = kmm::emulation::kernel_handle(&do_nothing); }).join();
    EXPECT_EQ(handle, from_other_thread);
    EXPECT_NE(handle, kmm::emulation::kernel_handle(&do_nothing_else));
    EXPECT_EQ(handle->function, reinterpret_cast<const void*>(&do_nothing));
}

TEST(KernelHandle, stays_the_same_however_many_kernels_there_are) {
    static char functions[5000][16];  // addresses of kernels that nobody launches
    const auto run = kmm::emulation::kernel_handle(&do_nothing)->run_blocks;
    std::vector<const kmm::driver::HostKernel*> handles;
    for (const auto& function : functions) {
        handles.push_back(kmm::emulation::detail::find_kernel(function, run));
        ASSERT_EQ(handles.back()->function, function);
    }
    for (std::size_t i = 0; i < handles.size(); ++i)
        ASSERT_EQ(kmm::emulation::detail::find_kernel(functions[i], run), handles[i]);
}

TEST(KernelHandle, of_a_kernel_known_at_compile_time_runs_it) {
    Data<int> out(64);
    const auto* const handle = kmm::emulation::kernel_handle<&meet_at_two_barriers>();
    EXPECT_EQ(handle, kmm::emulation::kernel_handle<&meet_at_two_barriers>());
    const auto parameters = kmm_test::pack<int*>(out.get());
    handle->run_blocks(*handle, kmm_test::geometry_of(1, 64, 0), parameters.data(), 0, 1);
    for (unsigned i = 0; i < 64; i++) ASSERT_EQ(out[i], i % 2 == 0 ? 1 : 2);
}

// The expected numbers are those of CUDA 13's vector_types.h on 64-bit Linux.
TEST(VectorTypes, have_the_layout_of_cuda) {
    EXPECT_EQ(layout<char1>(), Layout(1, 1));
    EXPECT_EQ(layout<uchar2>(), Layout(2, 2));
    EXPECT_EQ(layout<char3>(), Layout(3, 1));
    EXPECT_EQ(layout<uchar4>(), Layout(4, 4));
    EXPECT_EQ(layout<short2>(), Layout(4, 4));
    EXPECT_EQ(layout<ushort3>(), Layout(6, 2));
    EXPECT_EQ(layout<short4>(), Layout(8, 8));
    EXPECT_EQ(layout<int2>(), Layout(8, 8));
    EXPECT_EQ(layout<uint3>(), Layout(12, 4));
    EXPECT_EQ(layout<uint4>(), Layout(16, 16));
    EXPECT_EQ(layout<float1>(), Layout(4, 4));
    EXPECT_EQ(layout<float2>(), Layout(8, 8));
    EXPECT_EQ(layout<float3>(), Layout(12, 4));
    EXPECT_EQ(layout<float4>(), Layout(16, 16));
    EXPECT_EQ(layout<long2>(), Layout(16, 16));
    EXPECT_EQ(layout<ulong3>(), Layout(24, 8));
    EXPECT_EQ(layout<longlong1>(), Layout(8, 8));
    EXPECT_EQ(layout<ulonglong2>(), Layout(16, 16));
    EXPECT_EQ(layout<longlong4_32a>(), Layout(32, 32));
    EXPECT_EQ(layout<double2>(), Layout(16, 16));
    EXPECT_EQ(layout<double3>(), Layout(24, 8));
    EXPECT_EQ(layout<double4_16a>(), Layout(32, 16));
    EXPECT_EQ(layout<dim3>(), Layout(12, 4));
    static_assert(std::is_same_v<kmm::dim3, ::dim3>);
    const dim3 d = make_uint3(4, 5, 6);
    const uint3 u = d;
    EXPECT_EQ(u.z, 6u);
    EXPECT_EQ(dim3(7).z, 1u);
    EXPECT_EQ(make_ushort4(1, 2, 3, 4).w, 4);
}
