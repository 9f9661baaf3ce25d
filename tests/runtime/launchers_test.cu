// LauncherThreads and what runs in them: rows 7, 76 to 82, 85.
#include "harness.hpp"

#include "plain_part.hpp"

namespace {

__global__ void count_threads(kmm::GPUViewMut<unsigned> out) {
    atomicAdd(&out[0], 1u);
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) atomicAdd(&out[1], 1u);
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0 && threadIdx.y == 0 &&
        threadIdx.z == 0) {
        out[2] = gridDim.x;
        out[3] = gridDim.y;
        out[4] = gridDim.z;
    }
}

__global__ void reverse_through_shared(kmm::GPUViewMut<int> data) {
    KMM_DYNAMIC_SHARED(int, buffer);
    const int n = static_cast<int>(data.size());
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) buffer[i] = data[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] = buffer[n - 1 - i];
}

__global__ void takes_conversions(kmm::GPUViewMut<double> out, double from_int, std::int64_t from_long,
                                  kmm::Range<int> narrow) {
    out[0] = from_int + static_cast<double>(from_long) + narrow.begin + narrow.end;
}

__global__ void add_one(kmm::GPUViewMut<int> v) { v[threadIdx.x] += 1; }

TEST(Row007, a_plain_file_and_a_kernel_file_share_arrays) {
    for_each_configuration(working_set({8 * 4}), [](RuntimeHandle rt) {
        Array<int> a(8);
        submit_plain_device_function(rt, a, 4);
        rt.submit(device(0), GPUKernel(add_one, dim3(8)), write(a));
        submit_plain_host_function(rt, a);
        EXPECT_EQ(a.copy_to_vector(), std::vector<int>(8, 50));
        if (rt.info().driver() == kmm::DriverKind::Host) {
            submit_plain_kernel(rt, a);
            EXPECT_EQ(a.copy_to_vector(), std::vector<int>(8, 53));
        } else {
            const auto error = thrown_by<kmm::NotAvailable>([&] { submit_plain_kernel(rt, a); });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(says(*error, "plain_part.cpp")) << error->what();
            EXPECT_TRUE(says(*error, "cuda")) << error->what();
        }
    });
}

TEST(Row076, the_grid_is_the_ceiling_per_axis_unless_it_is_given) {
    for_each_configuration(working_set({5 * 4}), [](RuntimeHandle rt) {
        const auto run = [&](const kmm::DomainDim& size, auto kernel) {
            auto out = one_chunk<unsigned>(rt, 5);
            out.fill(0u);
            rt.parallel_submit(std::vector{DomainChunk{device(num_devices(rt) - 1), kmm::DomainPoint(), size}}, kernel,
                               write(out));
            return out.copy_to_vector();
        };
        using Counts = std::vector<unsigned>;
        EXPECT_EQ(run({10, 7, 3}, GPUKernel(count_threads, dim3(4, 2, 1))), (Counts{3 * 4 * 3 * 8, 36, 3, 4, 3}));
        EXPECT_EQ(run({10, 7, 3}, GPUKernel(count_threads, dim3(4, 2, 1), dim3(10, 7, 2))), (Counts{16, 2, 1, 1, 2}));
        EXPECT_EQ(run({3, 2, 1}, GPUKernel(count_threads, dim3(2), dim3())), (Counts{12, 6, 3, 2, 1}));
        EXPECT_EQ(run({100, 1, 1}, GPUKernel(count_threads, dim3(2)).grid(dim3(5))), (Counts{10, 5, 5, 1, 1}));
        EXPECT_EQ(run({0, 4, 1}, GPUKernel(count_threads, dim3(2))), (Counts{0, 0, 0, 0, 0}));
        auto out = one_chunk<unsigned>(rt, 5);
        out.fill(0u);
        rt.submit(device(0), GPUKernel(count_threads, dim3(64)), write(out));
        EXPECT_EQ(out.copy_to_vector(), (Counts{64, 1, 1, 1, 1}));
    });
}

TEST(Row077, dynamic_shared_memory_above_48_kib_works_and_above_the_maximum_is_refused) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        constexpr int n = 24 * 1024;
        const std::size_t most = rt.info().device(DeviceId(0)).max_shared_memory_per_block();
        if (most < n * sizeof(int)) GTEST_SKIP() << "the device has no 96 KiB of shared memory";
        auto a = rt.allocate(counting<int>(n));
        rt.submit(device(0), GPUKernel(reverse_through_shared, dim3(256)).shared_memory(n * sizeof(int)), write(a));
        std::vector<int> expected = counting<int>(n);
        std::reverse(expected.begin(), expected.end());
        EXPECT_EQ(a.copy_to_vector(), expected);
        EXPECT_THROW(
            rt.submit(device(0), GPUKernel(reverse_through_shared, dim3(256)).shared_memory(most + 1), write(a)),
            kmm::InvalidArgument);
        EXPECT_EQ(a.copy_to_vector(), expected);
    });
}

TEST(Row078, impossible_blocks_and_grids_are_refused_at_submit_naming_the_axis) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        auto out = one_chunk<unsigned>(rt, 5);
        out.fill(9u);
        const auto refused = [&](const kmm::DomainDim& size, auto kernel, const char* text) {
            const auto error = thrown_by<kmm::InvalidArgument>([&] {
                rt.parallel_submit(std::vector{DomainChunk{device(0), kmm::DomainPoint(), size}}, kernel, write(out));
            });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(says(*error, text)) << error->what();
        };
        refused({1}, GPUKernel(count_threads, dim3(0)), "block x is 0");
        refused({1}, GPUKernel(count_threads, dim3(1, 0)), "block y is 0");
        refused({1}, GPUKernel(count_threads, dim3(2048)), "block x is 2048");
        refused({1}, GPUKernel(count_threads, dim3(1024, 2)), "threads per block");
        refused({1, 70000}, GPUKernel(count_threads, dim3(1, 1)), "grid y is 70000");
        refused({1}, GPUKernel(count_threads, dim3(1)).grid(dim3(1, 1, 65536)), "grid z is 65536");
        refused({1}, GPUKernel(count_threads, dim3(1)).grid(dim3(0)), "grid x is 0");
        EXPECT_EQ(out.copy_to_vector(), std::vector<unsigned>(5, 9));
    });
}

void plain_function(kmm::ViewMut<double> out, double value) { out[0] = value; }

struct OwnLauncher {
    static constexpr kmm::ExecutionSpace execution_space = kmm::ExecutionSpace::Host;
    double add;
    std::string name() const { return "own launcher"; }
    void operator()(kmm::Resource& resource, DomainChunk chunk, kmm::ViewMut<double> out) {
        if (!resource.is<kmm::HostResource>()) throw std::logic_error("not a host resource");
        out[0] += add + static_cast<double>(chunk.offset[0]);
        if (out[0] > 1000) throw std::runtime_error("too much");
    }
};

TEST(Row079, generic_lambdas_function_pointers_own_launchers_and_conversions) {
    for_each_configuration(working_set({8}), [](RuntimeHandle rt) {
        auto out = one_chunk<double>(rt, 1);
        rt.submit(host(), Host(plain_function), overwrite(out), 3);
        EXPECT_EQ(out.copy_to_vector().at(0), 3.0);
        rt.submit(host(), Host([](auto view, auto value) { view[0] += static_cast<double>(value); }), write(out), 4L);
        EXPECT_EQ(out.copy_to_vector().at(0), 7.0);
        rt.parallel_submit(std::vector{chunk_of(host(), 20, 1)}, OwnLauncher{1.5}, write(out));
        EXPECT_EQ(out.copy_to_vector().at(0), 28.5);
        rt.parallel_submit(std::vector{chunk_of(device(0), 20, 3)}, GPUKernel(takes_conversions, dim3(1)).grid(dim3(1)),
                           write(out), 1, 2, _x);
        EXPECT_EQ(out.copy_to_vector().at(0), 46.0);
        const EventId e = rt.submit(host(), OwnLauncher{5000}, write(out));
        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(e); });
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->task_name(), "own launcher");
    });
}

TEST(Row080, messages_carry_the_place_of_the_launcher_and_its_name) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    int line = 0;
    const auto failing = [&] {
        line = __LINE__ + 1;
        return Host([] { throw std::runtime_error("on purpose"); }).named("the named one");
    };
    const auto named = thrown_by<kmm::TaskError>([&] { rt.wait(rt.submit(host(), failing())); });
    ASSERT_NE(named, nullptr);
    EXPECT_TRUE(says(*named, "the named one"));
    EXPECT_TRUE(says(*named, "launchers_test.cu:" + std::to_string(line))) << named->what();
    int other = 0;
    const auto failing_on_device = [&] {
        other = __LINE__ + 1;
        return GPU([](kmm::DeviceResource&) { throw 3; });
    };
    const auto unnamed = thrown_by<kmm::TaskError>([&] { rt.wait(rt.submit(device(0), failing_on_device())); });
    ASSERT_NE(unnamed, nullptr);
    EXPECT_TRUE(says(*unnamed, "launchers_test.cu:" + std::to_string(other))) << unnamed->what();
    EXPECT_TRUE(says(*unnamed, "GPU")) << unnamed->what();
}

TEST(Row081, submits_and_arrays_inside_host_and_device_functions_neither_deadlock_nor_fail) {
    for_each_configuration(working_set({100 * 8}), [](RuntimeHandle rt) {
        auto total = std::make_shared<std::atomic<int>>(0);
        auto trouble = std::make_shared<std::atomic<int>>(0);
        const auto inner = [rt, total, trouble] {
            try {
                for (int i = 0; i < 5; i++) {
                    Array<std::int64_t> a(100);
                    rt.parallel_submit(
                        std::vector{chunk_of(device(static_cast<std::size_t>(i) % rt.info().num_devices()), 0, 100)},
                        GPU([](kmm::DeviceResource& d, kmm::GPUSubviewMut<std::int64_t> v) { d.fill(v, 2); }),
                        overwrite(a[_x]));
                    auto b = rt.allocate(std::vector<std::int64_t>{1, 2, 3});
                    rt.submit(host(), Host([total](kmm::View<std::int64_t> v, kmm::View<std::int64_t> w) {
                                  *total += static_cast<int>(v[99] + w[2]);
                              }),
                              a, b);
                    rt.join(rt.barrier(), EventId());
                }
            } catch (...) {
                (*trouble)++;
            }
        };
        for (int i = 0; i < 6; i++) rt.submit(host(), Host(inner));
        for (int i = 0; i < 6; i++)
            rt.submit(device(static_cast<std::size_t>(i) % num_devices(rt)),
                      GPU([inner](kmm::DeviceResource&) { inner(); }));
        for (int i = 0; i < 3; i++) rt.synchronize();
        EXPECT_EQ(trouble->load(), 0);
        EXPECT_EQ(total->load(), 12 * 5 * 5);
    });
}

struct Wide {
    std::int64_t values[8];
};

TEST(Row082, fills_and_copies_of_every_size_and_layout) {
    for_each_configuration(working_set({64 * 64, 64 * 64}), [](RuntimeHandle rt) {
        const std::size_t d = num_devices(rt) - 1;
        auto wide = one_chunk<Wide>(rt, 10);
        rt.submit(device(d), GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<Wide> v) {
                      Wide w{};
                      for (int i = 0; i < 8; i++) w.values[i] = i + 1;
                      device.fill(v, w);
                  }),
                  overwrite(wide));
        EXPECT_EQ(wide.copy_to_vector().at(9).values[7], 8);
        auto grid = rt.array<int, 2>({8, 8}, {8, 8});
        grid.fill(1);
        auto other = rt.array<int, 2>({8, 8}, {8, 8});
        other.fill(0);
        rt.submit(device(d),
                  GPU([](kmm::DeviceResource& device, kmm::GPUSubviewMut<int, 2> inner) { device.fill(inner, 5); }),
                  write(grid[kmm::range(2, 6)][kmm::range(3, 5)]));
        rt.submit(device(d),
                  GPU([](kmm::DeviceResource& device, kmm::GPUSubview<int, 2> from, kmm::GPUSubviewMut<int, 2> to) {
                      device.copy(from, to);
                  }),
                  grid[kmm::range(1, 7)][kmm::range(2, 6)], write(other[kmm::range(0, 6)][kmm::range(4, 8)]));
        const std::vector<int> filled = grid.copy_to_vector(), copied = other.copy_to_vector();
        for (std::size_t i = 0; i < 8; i++)
            for (std::size_t j = 0; j < 8; j++) {
                const auto value = [](std::size_t r, std::size_t c) {
                    return r >= 2 && r < 6 && c >= 3 && c < 5 ? 5 : 1;
                };
                EXPECT_EQ(filled[8 * i + j], value(i, j));
                EXPECT_EQ(copied[8 * i + j], i < 6 && j >= 4 ? value(i + 1, j - 2) : 0);
            }
        const EventId odd = rt.submit(device(d), GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<Wide> v) {
                                          const int pattern = 3;
                                          device.fill_bytes(v.data(), 6, &pattern, 4);
                                      }),
                                      write(wide));
        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(odd); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(nests<kmm::InvalidArgument>(*error, ""));
    });
}

#if KMM_USE_CUDA
__global__ void legacy_add(int* data, int n) {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] += 7;
}

TEST(Row085, work_on_the_legacy_stream_sees_the_inputs_and_is_awaited) {
    for_each_configuration(working_set({100000 * 4}), [](RuntimeHandle rt) {
        for (int round = 0; round < 10; round++) {
            auto a = rt.allocate(counting<int>(100000));
            rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUViewMut<int> v) {
                          legacy_add<<<1, 256>>>(v.data(), static_cast<int>(v.size()));
                      }),
                      write(a));
            ASSERT_EQ(a.copy_to_vector(), counting<int>(100000, 7));
        }
    });
}

TEST(Row085, an_error_that_a_device_function_leaves_pending_fails_that_task_only) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        auto a = rt.allocate(counting<int>(10));
        const EventId bad = rt.submit(device(0), GPU([](kmm::DeviceResource&) {
                                          (void)cudaMemcpy(nullptr, nullptr, 10, cudaMemcpyDeviceToDevice);
                                      }));
        EXPECT_THROW(rt.wait(bad), kmm::TaskError);
        rt.submit(device(0), GPUKernel(add_one, dim3(10)), write(a));
        EXPECT_EQ(a.copy_to_vector(), counting<int>(10, 1));
    });
}
#else
TEST(Row085, the_legacy_stream_is_the_cuda_drivers_alone) { GTEST_SKIP() << "needs a build with CUDA and a GPU"; }
#endif

}  // namespace
