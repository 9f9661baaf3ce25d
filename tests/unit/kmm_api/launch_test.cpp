// Kernels: packed parameters, grids, limits, who runs what.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm_test::contains;
using kmm_test::small_runtime;
using kmm_test::text_of;

namespace {

__global__ void mixed(char c, kmm::GPUSubviewMut<double, 2> out, short s, const float* pointer,
                      kmm::GPUSubviewStrided<int, 2> strided, float f, kmm::Bounds<2, int> where, bool b) {
    for (int i = where.begin(0); i < where.end(0); i++) {
        for (int j = where.begin(1); j < where.end(1); j++) {
            out[i][j] = c + s + double(f) + b + double(pointer[0]) + strided[i][j];
        }
    }
}

/// Counts blocks per axis: `count[axis]` becomes the grid's size.
__global__ void count_blocks(kmm::GPUViewMut<int> count) {
    if (threadIdx.x + threadIdx.y + threadIdx.z != 0) return;
    if (blockIdx.y == 0 && blockIdx.z == 0) atomicAdd(&count[0], 1);
    if (blockIdx.x == 0 && blockIdx.z == 0) atomicAdd(&count[1], 1);
    if (blockIdx.x == 0 && blockIdx.y == 0) atomicAdd(&count[2], 1);
}

__global__ void nothing() {}
__global__ void use_shared(kmm::GPUViewMut<int> out) {
    KMM_DYNAMIC_SHARED(int, memory);
    memory[1000] = 5;
    out[0] = memory[1000];
}

__global__ void large_locals(kmm::GPUViewMut<int> out) {
    // More than a stack has by default, also of an instrumented thread.
    volatile char local[900'000];
    local[threadIdx.x] = 1;
    __syncthreads();
    if (local[threadIdx.x] == 1) atomicAdd(&out[0], 1);
}

std::vector<int> grid_of(const kmm::RuntimeHandle& rt, kmm::DomainDim size,
                         const kmm::GPUKernel<void (*)(kmm::GPUViewMut<int>)>& kernel) {
    auto count = rt.allocate({0, 0, 0});
    rt.wait(rt.parallel_submit(kmm::TileDomain(size, size), kernel, write(count)));
    return count.copy_to_vector();
}

}  // namespace

TEST(Kernels, parameters_of_every_kind_arrive_packed_and_converted) {
    auto rt = small_runtime();
    std::vector<int> numbers(40);
    for (int i = 0; i < 40; i++) numbers[static_cast<std::size_t>(i)] = i;
    auto in = rt.allocate(numbers.data(), 4, 10);
    auto offset = rt.allocate({0.0F, 0.5F});
    kmm::Array<double, 2> out{{4, 10}};
    rt.parallel_submit({10, 4}, {5, 2}, kmm::GPUKernel(mixed, 1, dim3(1024, 1024)), 'a', write(out[_y][_x]), 1000,
                       offset[1], in[_y][_x], 0.25, bounds(_y, _x), true);
    const std::vector<double> result = out.copy_to_vector();
    for (std::size_t i = 0; i < 40; i++) {
        EXPECT_EQ(result[i], 'a' + 1000 + 0.25 + 1 + 0.5 + static_cast<double>(i)) << i;
    }
}

TEST(Kernels, the_grid_covers_the_chunk_axis_by_axis) {
    auto rt = small_runtime();
    EXPECT_EQ(grid_of(rt, {100, 7, 3}, kmm::GPUKernel(count_blocks, dim3(32, 2))), (std::vector<int>{4, 4, 3}));
    EXPECT_EQ(grid_of(rt, {100, 7}, kmm::GPUKernel(count_blocks, 4, dim3(50, 7))), (std::vector<int>{2, 1, 1}));
    EXPECT_EQ(grid_of(rt, 6, kmm::GPUKernel(count_blocks, 32, dim3())), (std::vector<int>{6, 1, 1}));
    EXPECT_EQ(grid_of(rt, 6, kmm::GPUKernel(count_blocks, 32).grid(dim3(2, 3, 4))), (std::vector<int>{2, 3, 4}));
    EXPECT_EQ(grid_of(rt, 6, kmm::GPUKernel(count_blocks, 32).elements_per_block(3)), (std::vector<int>{2, 1, 1}));
}

TEST(Kernels, submit_launches_one_block_and_an_empty_chunk_none) {
    auto rt = small_runtime();
    auto count = rt.allocate({0, 0, 0});
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPUKernel(count_blocks, 64), write(count)));
    EXPECT_EQ(count.copy_to_vector(), (std::vector<int>{1, 1, 1}));
    rt.wait(rt.parallel_submit(std::vector<kmm::DomainChunk>{{kmm::DeviceId(0), 5, 0}},
                               kmm::GPUKernel(count_blocks, 64), write(count)));
    EXPECT_EQ(count.copy_to_vector(), (std::vector<int>{1, 1, 1}));
}

TEST(Kernels, a_geometry_that_the_device_cannot_run_is_refused_at_submit_with_axis_limit_and_place) {
    auto rt = small_runtime();
    const auto refused = [&](const auto& kernel, kmm::DomainDim size = 1) {
        return text_of<kmm::InvalidArgument>([&] { rt.parallel_submit(kmm::TileDomain(size, size), kernel); });
    };
    EXPECT_TRUE(contains(refused(kmm::GPUKernel(nothing, dim3(32, 0))), "block y is 0"));
    EXPECT_TRUE(contains(refused(kmm::GPUKernel(nothing, 1).grid(dim3(1, 1, 0))), "grid z is 0"));
    EXPECT_TRUE(contains(refused(kmm::GPUKernel(nothing, 1).elements_per_block(0)), "elements_per_block x is 0"));
    const std::string threads = refused(kmm::GPUKernel(nothing, dim3(512, 4)));
    EXPECT_TRUE(contains(threads, "2048") && contains(threads, "1024") && contains(threads, "launch_test.cpp"))
        << threads;
    EXPECT_TRUE(contains(refused(kmm::GPUKernel(nothing, dim3(1, 1, 65536))), "block z is 65536"));
    const std::string grid = refused(kmm::GPUKernel(nothing, 1), {1, 65536});
    EXPECT_TRUE(contains(grid, "grid y is 65536") && contains(grid, "65535")) << grid;
    EXPECT_TRUE(contains(refused(kmm::GPUKernel(nothing, 1).shared_memory(std::size_t(5) << 30)), "shared memory"));
    EXPECT_EQ(rt.stats().tasks_submitted, 0U);
}

TEST(Kernels, dynamic_shared_memory_is_as_large_as_asked_for) {
    auto rt = small_runtime();
    auto out = rt.allocate({0});
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPUKernel(use_shared, 1, 1, 96 * 1024), write(out)));
    EXPECT_EQ(out.copy_to_vector()[0], 5);
}

TEST(LauncherThreads, a_host_launcher_runs_device_chunks_on_the_host_and_a_device_launcher_refuses_the_host) {
    auto rt = small_runtime();
    std::atomic<int> on_host{0};
    auto A = rt.allocate({7});
    rt.wait(rt.submit(kmm::DeviceId(1), kmm::Host([&](kmm::View<int> v) { on_host += v[0]; }), A));
    rt.wait(
        rt.parallel_submit(std::vector<kmm::DomainChunk>{{kmm::DeviceId(0), 0, 1}, {kmm::ResourceId::host(), -3, 1}},
                           kmm::Host([&](kmm::Range<int64_t> r) { on_host += static_cast<int>(r.begin); }), _x));
    EXPECT_EQ(on_host, 4);
    EXPECT_THROW(rt.submit(kmm::ResourceId::host(), kmm::GPU([](kmm::DeviceResource&) {})),
                 kmm::InvalidResourceException);
    EXPECT_THROW(rt.submit(kmm::ResourceId::host(), kmm::GPUKernel(nothing, 1)), kmm::InvalidResourceException);
    const std::string text =
        text_of<kmm::InvalidResourceException>([&] { rt.submit(kmm::DeviceId(2), kmm::GPUKernel(nothing, 1)); });
    EXPECT_TRUE(contains(text, "GPU 2") && contains(text, "2 devices")) << text;
}

TEST(LauncherThreads, the_name_and_the_line_of_the_launcher_are_in_the_message) {
    auto rt = small_runtime();
    const int line = __LINE__ + 1;
    const auto failing = kmm::Host([] { throw std::runtime_error("broken pump"); }).named("pump");
    const std::string text = text_of<kmm::TaskError>([&] { rt.wait(rt.submit(kmm::ResourceId::host(), failing)); });
    EXPECT_TRUE(contains(text, "task \"pump\"") && contains(text, "broken pump") &&
                contains(text, "launch_test.cpp:" + std::to_string(line)))
        << text;
}

TEST(Launch, a_kernel_with_a_barrier_that_needs_more_stack_than_there_is_fails_with_a_text) {
    auto rt = small_runtime();
    auto out = rt.allocate({0});
    const auto large = kmm::GPUKernel(large_locals, 32).named("large");
    const std::string text = text_of<kmm::TaskError>([&] { rt.wait(rt.submit(kmm::DeviceId(0), large, write(out))); });
    EXPECT_TRUE(contains(text, "task \"large\"")) << text;
    EXPECT_TRUE(contains(text, "needs more than the 64 KiB of stack")) << text;
    EXPECT_TRUE(contains(text, "KMM_FIBER_STACK")) << text;

    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_device_memory = std::size_t(64) << 20;
    config.fiber_stack = std::size_t(1) << 20;
    const auto roomy = kmm::make_runtime(config);
    auto sum = roomy.allocate({0});
    roomy.wait(roomy.submit(kmm::DeviceId(0), large, write(sum)));
    EXPECT_EQ(sum.copy_to_vector(), std::vector<int>{32});
    for (const std::size_t bad : {std::size_t(0), std::size_t(1000), std::size_t(1) << 40}) {
        config.fiber_stack = bad;
        const std::string refused = text_of<kmm::InvalidArgument>([&] { kmm::make_runtime(config); });
        EXPECT_TRUE(contains(refused, "fiber_stack is " + std::to_string(bad) + ": use 16.00 KiB to 1.00 GiB"))
            << refused;
    }
}
