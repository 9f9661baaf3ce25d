// Owns: kernels by handle.
#include <numeric>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverKernels : public DriverTest {};

TEST_P(DriverKernels, every_thread_of_every_block_runs_once_in_every_geometry) {
    struct Shape {
        Dim3 grid, block;
    };
    for (const Shape& shape :
         {Shape{{1, 1, 1}, {1, 1, 1}}, Shape{{5, 1, 1}, {32, 1, 1}}, Shape{{3, 4, 5}, {8, 4, 2}},
          Shape{{100, 7, 1}, {33, 2, 1}}, Shape{{1, 1, 9}, {1, 1, 64}}, Shape{{2, 3, 4}, {1024, 1, 1}}}) {
        const std::size_t n =
            std::size_t{1} * shape.grid.x * shape.grid.y * shape.grid.z * shape.block.x * shape.block.y * shape.block.z;
        auto* out = device_memory<unsigned>(n);
        KMM_OK(driver().fill(out, "\xff", 1, n * 4, stream()));
        const Parameters p(out);
        KMM_OK(driver().launch(launch_of(kernels().number, p, shape.grid, shape.block), stream()));
        std::vector<unsigned> expected(n);
        std::iota(expected.begin(), expected.end(), 0u);
        EXPECT_EQ(read(out, n), expected);
    }
}

TEST_P(DriverKernels, parameters_are_copied_by_the_call) {
    Gate gate;
    int* data = device_memory<int>(256);
    KMM_OK(fill_ints(data, 0, 256, stream()));
    KMM_OK(close(gate, stream()));
    struct {
        int* data;
        unsigned n;
        int value;
    } parameters{data, 256, 3};
    KernelLaunch launch;
    launch.function = kernels().add;
    launch.block = {256, 1, 1};
    launch.parameters = &parameters;
    launch.parameter_bytes = sizeof(parameters);
    KMM_OK(driver().launch(launch, stream()));
    parameters = {nullptr, 0, 0};
    gate.open();
    EXPECT_EQ(read(data, 256), std::vector<int>(256, 3));
}

TEST_P(DriverKernels, dynamic_shared_memory_up_to_the_maximum) {
    DeviceProperties properties;
    KMM_OK(driver().properties(0, &properties));
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{40000}, properties.max_shared_memory_per_block}) {
        auto* out = device_memory(bytes);
        KMM_OK(driver().prepare_kernel(kernels().shared, static_cast<std::uint32_t>(bytes)));
        const Parameters p(out, static_cast<unsigned>(bytes));
        KernelLaunch launch = launch_of(kernels().shared, p);
        launch.shared_bytes = static_cast<std::uint32_t>(bytes);
        KMM_OK(driver().launch(launch, stream()));
        const auto result = read(out, bytes);
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(result[i], static_cast<unsigned char>(i * 7));
    }
    EXPECT_FALSE(
        driver()
            .prepare_kernel(kernels().shared, static_cast<std::uint32_t>(properties.max_shared_memory_per_block + 1))
            .ok());
    (void)driver().take_last_error();
}

TEST_P(DriverKernels, impossible_launches_are_refused_and_harm_nothing) {
    int* data = device_memory<int>(256);
    KMM_OK(fill_ints(data, 1, 256, stream()));
    const Parameters p(data, 256u, 1);
    for (const KernelLaunch& launch :
         {launch_of(kernels().add, p, {0, 1, 1}, {32, 1, 1}), launch_of(kernels().add, p, {1, 1, 1}, {0, 1, 1}),
          launch_of(kernels().add, p, {1, 1, 1}, {1025, 1, 1}), launch_of(kernels().add, p, {1, 1, 1}, {64, 32, 1}),
          launch_of(kernels().add, p, {1, 65536, 1}, {1, 1, 1}), launch_of(nullptr, p)}) {
        EXPECT_FALSE(driver().launch(launch, stream()).ok());
        (void)driver().take_last_error();
    }
    KMM_OK(add(data, 256, 1, stream()));
    EXPECT_EQ(read(data, 256), std::vector<int>(256, 2));
}

TEST_P(DriverKernels, large_launches_are_complete_before_what_follows) {
    constexpr unsigned n = 300000;
    int* data = device_memory<int>(n);
    KMM_OK(fill_ints(data, 0, n, stream()));
    for (int i = 0; i < 10; ++i) KMM_OK(add(data, n, 1, stream()));
    EXPECT_EQ(read(data, n), std::vector<int>(n, 10));
}

TEST_P(DriverKernels, kernels_of_two_streams_make_progress_together) {
    const StreamHandle second = new_stream();
    Gate gate;
    int* data = device_memory<int>(1000);
    KMM_OK(fill_ints(data, 0, 1000, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(close(gate, second));
    KMM_OK(add(data, 1000, 1, second));
    KMM_OK(add(data, 1000, 1, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    gate.open();
    EXPECT_EQ(read(data, 1000), std::vector<int>(1000, 2));
}

KMM_ON_EVERY_DRIVER(DriverKernels);

}  // namespace
}  // namespace driver_test
