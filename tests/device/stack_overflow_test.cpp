// Kernels with barriers that need more stack than they have: they fail with a text, and what comes after them runs.
#include <gtest/gtest.h>

#include <alloca.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "launch.hpp"

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
#else
constexpr bool sanitized = false;
#endif

// Instrumented code has eight times the stack.
constexpr std::size_t large_bytes = sanitized ? 1'000'000 : 100'000;

/// Keeps the compiler from leaving the memory out.
void touch(char* memory, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 256) *static_cast<volatile char*>(memory + i) = static_cast<char>(i);
}

__global__ void large_frame(int* sum) {
    char local[large_bytes];
    touch(local, sizeof local);
    __syncthreads();
    atomicAdd(sum, local[256] == 0 ? 1 : 0);
}

__attribute__((noinline)) int recurse(int depth) {
    char local[4096];
    touch(local, sizeof local);
    const int below = depth == 0 ? 0 : recurse(depth - 1);
    touch(local, sizeof local);  // else the compiler makes a loop of it
    return below + local[512];
}

__global__ void recursion_behind_a_barrier(int depth, int* sum) {
    __syncthreads();
    if (threadIdx.x == 3 && blockIdx.x == 1) atomicAdd(sum, recurse(depth));
    __syncthreads();
}

struct Count {
    int* ended;
    ~Count() { atomicAdd(ended, 1); }
};
__global__ void one_overflows(int* ended) {
    const Count count{ended};
    if (threadIdx.x == 7) recurse(100'000);
    __syncthreads();
}

/// A barrier with any number of bytes left.
__global__ void barrier_deep_in_the_stack(std::size_t bytes, int* sum) {
    char* const local = static_cast<char*>(alloca(bytes));
    touch(local, bytes);
    __syncthreads();
    __syncwarp();
    atomicAdd(sum, 1);
}

__global__ void sum_up(int* sum) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, int(threadIdx.x));
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(sum, total);
}

__global__ void null_access(int* null) {
    __syncthreads();
    *static_cast<volatile int*>(null) = 1;
}

/// On the calling thread, with stacks of this size; the text of the failure, or "".
template<class... P, class... A>
std::string failure_of(std::size_t stack_bytes, void (*kernel)(P...), unsigned blocks, unsigned threads,
                       A... arguments) {
    auto geometry = kmm_test::geometry_of(dim3(blocks), dim3(threads), 0);
    geometry.stack_bytes = stack_bytes;
    const auto parameters = kmm_test::pack<P...>(static_cast<P>(arguments)...);
    const kmm::driver::HostKernel* const handle = kmm::emulation::kernel_handle(kernel);
    try {
        handle->run_blocks(*handle, geometry, parameters.data(), 0, blocks);
    } catch (const kmm::emulation::KernelError& error) {
        EXPECT_STRNE(error.what(), "");
        return error.what();
    }
    return "";
}

void expect_runs() {
    int sum = 0;
    EXPECT_EQ(failure_of(0, sum_up, 3, 64, &sum), "");
    EXPECT_EQ(sum, 3 * 64 * 63 / 2);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(StackOverflow, a_kernel_with_a_barrier_and_a_large_local_array_fails_with_a_text) {
    int sum = 0;
    const std::string text = failure_of(0, large_frame, 2, 8, &sum);
    EXPECT_TRUE(contains(text, ", 0, 0) of block (0, 0, 0) of kernel ")) << text;
    EXPECT_TRUE(contains(text, "needs more than the 64 KiB of stack")) << text;
    EXPECT_TRUE(contains(text, "KMM_FIBER_STACK=128KiB")) << text;
    EXPECT_EQ(sum, 0);
    expect_runs();
}

TEST(StackOverflow, larger_stacks_are_taken_for_a_launch_and_given_up_for_the_next) {
    for (int turn = 0; turn < 3; turn++) {
        int sum = 0;
        EXPECT_EQ(failure_of(256 << 10, large_frame, 2, 8, &sum), "");
        EXPECT_EQ(sum, 2 * 8);
        EXPECT_NE(failure_of(0, large_frame, 2, 8, &sum), "");
        expect_runs();
    }
}

TEST(StackOverflow, deep_recursion_behind_a_barrier_fails_naming_thread_and_block) {
    for (int turn = 0; turn < 20; turn++) {
        int sum = 0;
        EXPECT_EQ(failure_of(0, recursion_behind_a_barrier, 3, 32, 2, &sum), "");
        const std::string text = failure_of(0, recursion_behind_a_barrier, 3, 32, 100'000, &sum);
        EXPECT_TRUE(contains(text, "thread (3, 0, 0) of block (1, 0, 0)")) << text;
        expect_runs();
    }
}

TEST(StackOverflow, the_other_threads_of_the_block_are_unwound) {
    int ended = 0;
    EXPECT_NE(failure_of(0, one_overflows, 1, 32, &ended), "");
    EXPECT_EQ(ended, 7) << "those that waited; the others were not started";
    expect_runs();
}

TEST(StackOverflow, a_barrier_is_reached_or_refused_with_any_number_of_bytes_left) {
    const std::size_t factor = sanitized ? 8 : 1, step = sanitized ? 4096 : 256;
    int passed = 0, failed = 0;
    for (std::size_t bytes = factor * 50'000; bytes < factor * 90'000; bytes += step) {
        int sum = 0;
        const std::string text = failure_of(0, barrier_deep_in_the_stack, 1, 4, bytes, &sum);
        EXPECT_EQ(sum, text.empty() ? 4 : 0) << bytes;
        ++(text.empty() ? passed : failed);
    }
    EXPECT_GT(passed, 0);
    EXPECT_GT(failed, 0);
    expect_runs();
}

TEST(StackOverflowDeathTest, other_faults_go_to_the_handler_that_was_there_before) {
    if (sanitized) GTEST_SKIP() << "a sanitizer has a handler of its own";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto program = [] {
        struct sigaction action = {};
        action.sa_handler = [](int) { _exit(7); };
        sigaction(SIGSEGV, &action, nullptr);
        int sum = 0;
        if (failure_of(0, large_frame, 1, 8, &sum).empty()) _exit(1);
        failure_of(0, null_access, 1, 8, nullptr);
        _exit(2);
    };
    EXPECT_EXIT(program(), testing::ExitedWithCode(7), "");
}

TEST(StackOverflowDeathTest, other_faults_end_the_process_where_there_was_no_handler) {
    if (sanitized) GTEST_SKIP() << "a sanitizer has a handler of its own";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto program = [] {
        int sum = 0;
        if (failure_of(0, large_frame, 1, 8, &sum).empty()) _exit(1);
        failure_of(0, null_access, 1, 8, nullptr);
        _exit(2);
    };
    EXPECT_EXIT(program(), testing::KilledBySignal(SIGSEGV), "");
}
