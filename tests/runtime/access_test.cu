// Access modes: what a task sees, and what later tasks and copies see of what it stored.
#include <cmath>

#include "harness.hpp"

namespace {

constexpr std::int64_t block = 64;

__global__ void store_index(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x, std::int64_t add) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = i + add;
}

__global__ void add_to(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x, std::int64_t value) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] += value;
}

__global__ void triple_plus_index(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = 3 * x[i] + i;
}

__global__ void copy_elements(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> to,
                              kmm::GPUSubview<std::int64_t> from) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) to[i] = from[i];
}

__global__ void axpy(kmm::Range<std::int64_t> range, float a, kmm::GPUSubview<float> x, kmm::GPUSubviewMut<float> y) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] = a * x[i] + y[i];
}

__global__ void set_floats(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> x, float slope) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = slope * static_cast<float>(i % 1000);
}

template<typename F>
GPUKernel<F> kernel(F f) {
    return GPUKernel<F>(f, dim3(block));
}

// ---------------------------------------------------------------------------------------------------- rows 56, 57

TEST(Row057, overwrite_of_a_whole_chunk_moves_no_old_bytes) {
    constexpr std::int64_t n = 1000;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            auto a = rt.allocate(counting<std::int64_t>(n));
            rt.synchronize();
            const kmm::RuntimeStats before = rt.stats();
            rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, kernel(store_index), _x, overwrite(a[_x]),
                               std::int64_t{7});
            rt.synchronize();
            const kmm::RuntimeStats after = rt.stats() - before;
            EXPECT_EQ(after.host_to_device.bytes, 0u);
            EXPECT_EQ(after.device_to_device.bytes, 0u);
            EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n, 7));
        }
    });
}

TEST(Row057, overwrite_of_a_part_keeps_the_rest_of_the_chunk) {
    constexpr std::int64_t n = 1000;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            auto a = rt.allocate(counting<std::int64_t>(n));
            rt.parallel_submit(std::vector{chunk_of(device(d), 300, 200)}, kernel(store_index), _x, overwrite(a[_x]),
                               std::int64_t{50000});
            std::vector<std::int64_t> expected = counting<std::int64_t>(n);
            for (std::int64_t i = 300; i < 500; i++) expected[static_cast<std::size_t>(i)] += 50000;
            EXPECT_EQ(a.copy_to_vector(), expected);
        }
    });
}

TEST(Row057, write_sees_the_old_values) {
    constexpr std::int64_t n = 1000;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        for (std::size_t d = 0; d < num_devices(rt); d++)
            rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, kernel(add_to), _x, write(a[_x]),
                               std::int64_t{1000});
        rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) {
                      for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] += 5;
                  }),
                  write(a));
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n, 5 + 1000 * static_cast<std::int64_t>(num_devices(rt))));
    });
}

// Parts of one chunk, each written by a submit of its own: whoever comes first in time must not take the others' place.
TEST(Row056, parts_of_one_chunk_written_by_different_submits_all_take_effect_in_any_order_of_execution) {
    constexpr std::int64_t n = 1024;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        const std::size_t devices = num_devices(rt);
        for (int round = 0; round < 4; round++) {
            auto a = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(0))));
            auto flag = rt.array<std::int64_t>(1, Distribution<1>::single(1, MemoryId::host()));
            Gate gate;
            const OpenAtEnd open(gate);
            rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> f) {
                          gate.wait();
                          f[0] = 0;
                      }),
                      overwrite(flag));
            // The first part has its place in the order before the others, and runs after them.
            rt.submit(host(), Host([](kmm::SubviewMut<std::int64_t> part, kmm::View<std::int64_t> f) {
                          for (std::int64_t i = part.begin(); i < part.end(); i++) part[i] = i + f[0];
                      }),
                      overwrite(a[kmm::range(0, 256)]), flag);
            std::vector<EventId> others;
            for (std::int64_t part = 1; part < 4; part++) {
                const ResourceId where = (part + round) % 2 == 0 ? device(static_cast<std::size_t>(part) % devices)
                                                                 : device(static_cast<std::size_t>(round) % devices);
                others.push_back(rt.parallel_submit(std::vector{chunk_of(where, part * 256, 256)}, kernel(store_index),
                                                    _x, overwrite(a[_x]), std::int64_t{0}));
            }
            for (const EventId e : others) rt.wait(e);
            gate.open();
            ASSERT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
        }
    });
}

TEST(Row056, parts_written_on_one_device_survive_an_eviction_in_between) {
    constexpr std::int64_t n = 1024;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        auto a = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(0))));
        auto other = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(0))));
        auto flag = rt.array<std::int64_t>(1, Distribution<1>::single(1, MemoryId(DeviceId(0))));
        Gate gate;
        const OpenAtEnd open(gate);
        rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> f) {
                      gate.wait();
                      f[0] = 0;
                  }),
                  overwrite(flag));
        auto late = GPU([](kmm::DeviceResource& device, kmm::GPUSubviewMut<std::int64_t> part,
                           kmm::Range<std::int64_t>) { device.fill(part, -1); });
        auto after_flag = Host([](kmm::SubviewMut<std::int64_t> part, kmm::View<std::int64_t>) {
            for (std::int64_t i = part.begin(); i < part.end(); i++) part[i] = -2;
        });
        rt.submit(host(), after_flag, overwrite(a[kmm::range(0, 100)]), flag);
        rt.wait(rt.parallel_submit(std::vector{chunk_of(device(0), 512, 512)}, late, overwrite(a[_x]), _x));
        // Takes the only place on the device where memory is scarce.
        rt.wait(rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, kernel(store_index), _x,
                                   overwrite(other[_x]), std::int64_t{0}));
        rt.wait(rt.parallel_submit(std::vector{chunk_of(device(0), 100, 412)}, late, overwrite(a[_x]), _x));
        gate.open();
        std::vector<std::int64_t> expected(n, -1);
        std::fill_n(expected.begin(), 100, -2);
        EXPECT_EQ(a.copy_to_vector(), expected);
        EXPECT_EQ(other.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row056, parts_of_one_chunk_from_several_devices_in_one_submit_all_take_effect) {
    constexpr std::int64_t n = 1000, part = 100;
    for_each_configuration(working_set({n * 8, part * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n, -5000));
        std::vector<DomainChunk> chunks;
        for (std::int64_t i = 1; i < 9; i++)
            chunks.push_back(chunk_of(device(static_cast<std::size_t>(i) % num_devices(rt)), i * part, part));
        rt.parallel_submit(chunks, kernel(store_index), _x, overwrite(a[_x]), std::int64_t{7});
        rt.parallel_submit(chunks, kernel(add_to), _x, write(a[_x]), std::int64_t{1});
        std::vector<std::int64_t> expected = counting<std::int64_t>(n, -5000);
        for (std::int64_t i = part; i < 9 * part; i++) expected[static_cast<std::size_t>(i)] = i + 8;
        EXPECT_EQ(a.copy_to_vector(), expected);
    });
}

// ---------------------------------------------------------------------------------------------------- rows 58, 59

TEST(Row058, an_in_place_update_on_any_device_is_seen_by_copy_to) {
    constexpr std::int64_t n = 777;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            auto a = rt.allocate(counting<std::int64_t>(n));
            for (int step = 1; step <= 3; step++) {
                rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, kernel(add_to), _x, write(a[_x]),
                                   std::int64_t{10});
                ASSERT_EQ(a.copy_to_vector(), counting<std::int64_t>(n, 10 * step));
            }
        }
    });
}

TEST(Row058, updates_that_alternate_between_host_and_devices_are_all_seen) {
    constexpr std::int64_t n = 777;
    for_each_configuration(working_set({n * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        std::vector<std::int64_t> expected = counting<std::int64_t>(n);
        for (int step = 0; step < 12; step++) {
            rt.parallel_submit(std::vector{chunk_of(device(static_cast<std::size_t>(step) % num_devices(rt)), 0, n)},
                               kernel(triple_plus_index), _x, write(a[_x]));
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) {
                          for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = v[i] % 10007 + 1;
                      }),
                      write(a));
            for (std::int64_t i = 0; i < n; i++) {
                auto& e = expected[static_cast<std::size_t>(i)];
                e = (3 * e + i) % 10007 + 1;
            }
            if (step % 3 == 0) {
                ASSERT_EQ(a.copy_to_vector(), expected);
            }
        }
        EXPECT_EQ(a.copy_to_vector(), expected);
    });
}

void run_axpy(const RuntimeHandle& rt, std::int64_t n, std::int64_t chunk, int passes, std::size_t only_device,
              bool all_devices) {
    Array<float> x(n), y(n);
    kmm::Domain domain;
    for (std::int64_t begin = 0, i = 0; begin < n; begin += chunk, i++) {
        const ResourceId where = device(all_devices ? static_cast<std::size_t>(i) % num_devices(rt) : only_device);
        domain.chunks.push_back(chunk_of(where, begin, std::min(chunk, n - begin)));
    }
    rt.parallel_submit(domain, kernel(set_floats), _x, overwrite(x[_x]), 1.0f);
    rt.parallel_submit(domain, kernel(set_floats), _x, overwrite(y[_x]), 2.0f);
    for (int pass = 0; pass < passes; pass++) rt.parallel_submit(domain, kernel(axpy), _x, 2.0f, x[_x], write(y[_x]));
    const std::vector<float> result = y.copy_to_vector();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; i++)
        if (result[static_cast<std::size_t>(i)] != static_cast<float>(2 + 2 * passes) * static_cast<float>(i % 1000))
            wrong++;
    EXPECT_EQ(wrong, 0);
    const std::vector<float> input = x.copy_to_vector();
    for (std::int64_t i = 0; i < n; i++)
        wrong += input[static_cast<std::size_t>(i)] != static_cast<float>(i % 1000) ? 1 : 0;
    EXPECT_EQ(wrong, 0);
}

TEST(Row059, four_passes_of_axpy_out_of_core_have_no_wrong_element) {
    const std::int64_t chunk = repeat(4096, 256), n = 32 * chunk - 17;
    const auto chunk_bytes = static_cast<std::size_t>(chunk) * sizeof(float);
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "no device";
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > available) break;
        RuntimeConfig config = config_with(devices);
        for (const std::size_t pairs : {1, 2, 8}) {  // of the 32 that there are: 4x oversubscribed with 8 on one device
            config.device_memory_limit = pairs * working_set({chunk_bytes, chunk_bytes});
            const RuntimeHandle rt = kmm::make_runtime(config);
            SCOPED_TRACE(std::to_string(devices) + " devices, room for " + std::to_string(pairs) + " pairs");
            for (std::size_t d = 0; d < devices; d++) run_axpy(rt, n, chunk, 4, d, false);
            run_axpy(rt, n, chunk, 4, 0, true);
            for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_LE(m.peak_bytes, m.limit_bytes);
        }
    }
}

// ---------------------------------------------------------------------------------------------------- rows 60, 61, 62

TEST(Row060, a_task_that_reads_what_it_writes_sees_the_old_values) {
    constexpr std::int64_t n = 100;
    for_each_configuration(working_set({n * 8, n * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        const kmm::RuntimeStats before = rt.stats();
        rt.submit(host(), Host([](kmm::SubviewMut<std::int64_t> to, kmm::View<std::int64_t> from) {
                      for (std::int64_t i = to.begin(); i < to.end(); i++) to[i] = from[i] + from[99 - i] + from[i / 2];
                  }),
                  write(a[kmm::range(0, 50)]), a);
        std::vector<std::int64_t> expected = counting<std::int64_t>(n);
        for (std::int64_t i = 0; i < 50; i++) expected[static_cast<std::size_t>(i)] = n - 1 + i / 2;
        EXPECT_EQ(a.copy_to_vector(), expected);
        EXPECT_EQ((rt.stats() - before).snapshot_bytes, static_cast<std::uint64_t>(n * 8));
    });
}

TEST(Row061, one_array_as_several_read_arguments_with_equal_and_overlapping_regions) {
    constexpr std::int64_t n = 600;
    for_each_configuration(working_set({n * 8, n * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        auto sums = rt.array<std::int64_t>(3, Distribution<1>::single(3, MemoryId::host()));
        const auto sum = [](const kmm::Subview<std::int64_t>& v) {
            std::int64_t s = 0;
            for (std::int64_t i = v.begin(); i < v.end(); i++) s += v[i];
            return s;
        };
        rt.submit(host(),
                  Host([sum](kmm::ViewMut<std::int64_t> out, kmm::Subview<std::int64_t> left,
                             kmm::Subview<std::int64_t> same, kmm::Subview<std::int64_t> shifted) {
                      out[0] = sum(left);
                      out[1] = sum(same);
                      out[2] = sum(shifted);
                  }),
                  overwrite(sums), a[kmm::range(0, 300)], a[kmm::range(0, 300)], a[kmm::range(100, 400)]);
        EXPECT_EQ(sums.copy_to_vector(), (std::vector<std::int64_t>{44850, 44850, 74850}));
        // On a device: the same chunk twice counts once.
        auto out = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(0))));
        rt.parallel_submit(std::vector{chunk_of(device(num_devices(rt) - 1), 0, 300)}, kernel(copy_elements), _x,
                           overwrite(out[_x]), a[_x]);
        std::vector<std::int64_t> part(300);
        out.copy_to(part.data(), Point<1>(0), Dim<1>(300));
        EXPECT_EQ(part, counting<std::int64_t>(300));
    });
}

TEST(Row062, two_tasks_of_one_submit_that_write_one_element_conflict_and_nothing_is_queued) {
    for_each_configuration(working_set({100 * 8}), [&](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(100)).named("pressure");
        const ResourceId where = device(0);
        const std::vector chunks{chunk_of(where, 0, 60), chunk_of(where, 50, 50)};
        const std::uint64_t before = rt.stats().tasks_submitted;
        const auto error = thrown_by<kmm::ConflictingAccess>(
            [&] { rt.parallel_submit(chunks, kernel(store_index).named("store"), _x, write(a[_x]), std::int64_t{5}); });
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->array_name(), "pressure");
        EXPECT_EQ(error->first().chunk_index + error->second().chunk_index, 1u);
        ASSERT_EQ(error->overlap().size(), 1u);
        EXPECT_EQ(error->overlap()[0].begin, 50);
        EXPECT_EQ(error->overlap()[0].end, 60);
        EXPECT_TRUE(says(*error, "pressure"));
        EXPECT_TRUE(says(*error, "task \"store\" chunk 0 of 2 (offset {0}, size {60}")) << error->what();
        EXPECT_TRUE(says(*error, "task \"store\" chunk 1 of 2 (offset {50}, size {50}")) << error->what();
        EXPECT_TRUE(error->where().is_known());
        rt.synchronize();
        EXPECT_EQ(rt.stats().tasks_submitted, before);
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(100));
    });
}

TEST(Row062, two_writing_arguments_of_one_task_conflict_where_they_overlap) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.allocate(counting<std::int64_t>(100));
    auto both = Host([](kmm::SubviewMut<std::int64_t> l, kmm::SubviewMut<std::int64_t> r) {
        for (std::int64_t i = l.begin(); i < l.end(); i++) l[i] = -1;
        for (std::int64_t i = r.begin(); i < r.end(); i++) r[i] = -2;
    });
    const auto error = thrown_by<kmm::ConflictingAccess>(
        [&] { rt.submit(host(), both, write(a[kmm::range(0, 60)]), write(a[kmm::range(40, 100)])); });
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->first().argument + error->second().argument, 1u);
    rt.submit(host(), both, write(a[kmm::range(0, 40)]), overwrite(a[kmm::range(60, 100)]));
    std::vector<std::int64_t> expected = counting<std::int64_t>(100);
    std::fill(expected.begin(), expected.begin() + 40, -1);
    std::fill(expected.begin() + 60, expected.end(), -2);
    EXPECT_EQ(a.copy_to_vector(), expected);
}

// ---------------------------------------------------------------------------------------------------- rows 65, 66

TEST(Row065, views_have_the_bounds_of_the_clipped_region_and_global_indices_on_the_host) {
    for_each_configuration(0, [&](RuntimeHandle rt) {
        const auto data = counting<std::int64_t>(10 * 6);
        auto a = rt.allocate(data.data(), 6, 10);
        auto first = Scalar<std::int64_t>();
        rt.submit(host(), Host([](kmm::ViewMut<std::int64_t, 0> s) { *s = 17; }), overwrite(first));
        kmm::EventId e = rt.parallel_submit(
            std::vector{DomainChunk{host(), kmm::DomainPoint(8, 2), kmm::DomainDim(4, 2)}},
            Host([](kmm::View<std::int64_t, 2> whole, kmm::Subview<std::int64_t, 2> part,
                    kmm::Subview<std::int64_t, 2> outside, kmm::Range<std::int64_t> x, kmm::Range<int> narrow,
                    kmm::Bounds<2> xy, kmm::Bounds<3> domain, kmm::View<std::int64_t, 0> scalar, double value) {
                const auto expect = [](bool ok, const char* what) {
                    if (!ok) throw std::runtime_error(what);
                };
                expect(whole.begin(0) == 0 && whole.end(0) == 6 && whole.begin(1) == 0 && whole.end(1) == 10,
                       "bounds of the whole array");
                expect(part.begin(0) == 2 && part.end(0) == 4 && part.begin(1) == 8 && part.end(1) == 10,
                       "bounds of the clipped part");
                for (std::int64_t i = part.begin(0); i < part.end(0); i++)
                    for (std::int64_t j = part.begin(1); j < part.end(1); j++)
                        expect(part[i][j] == 10 * i + j && whole[i][j] == 10 * i + j, "contents");
                expect(outside.is_empty() && outside.size() == 0, "a region outside is empty");
                expect(x.begin == 8 && x.end == 12, "an axis is not clipped as a plain argument");
                expect(narrow.begin == 2 && narrow.end == 4, "a range of another type");
                expect(xy.begin(0) == 8 && xy.end(1) == 4, "bounds");
                expect(domain.begin(0) == 8 && domain.end(1) == 4 && domain.end(2) == 1, "one_to_one");
                expect(*scalar == 17 && scalar() == 17, "a scalar");
                expect(value == 2.5, "a value");
            }),
            a, a[_y][_x], a[_y + 10][_], _x, _y, _xy, one_to_one, first, 2.5);
        rt.wait(e);
    });
}

struct DeviceFindings {
    std::int64_t begin[2], end[2], sizes[2], sum, value;
};

__global__ void inspect(kmm::GPUSubview<std::int64_t, 2> part, kmm::GPUView<std::int64_t, 2> whole,
                        kmm::Range<std::int64_t> x, kmm::Bounds<2> xy, kmm::GPUView<std::int64_t, 0> scalar,
                        DeviceFindings base, kmm::GPUViewMut<DeviceFindings> out) {
    DeviceFindings f = base;
    for (int k = 0; k < 2; k++) {
        f.begin[k] = part.begin(k);
        f.end[k] = part.end(k);
        f.sizes[k] = whole.size(k);
    }
    for (std::int64_t i = part.begin(0); i < part.end(0); i++)
        for (std::int64_t j = part.begin(1); j < part.end(1); j++) f.sum += part[i][j] - whole[i][j] + 1;
    f.value += *scalar + x.begin + xy.end(1);
    out[0] = f;
}

TEST(Row065, views_have_the_bounds_of_the_clipped_region_and_global_indices_on_devices) {
    for_each_configuration(working_set({480, sizeof(DeviceFindings), 8}), [&](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            const auto data = counting<std::int64_t>(10 * 6);
            auto a = rt.allocate(data.data(), 6, 10);
            Scalar<std::int64_t> first;
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t, 0> s) { *s = 17; }), overwrite(first));
            auto out = one_chunk<DeviceFindings>(rt, 1);
            DeviceFindings base{};
            base.value = 1000;
            rt.parallel_submit(std::vector{DomainChunk{device(d), kmm::DomainPoint(8, 2), kmm::DomainDim(4, 2)}},
                               GPUKernel(inspect, dim3(1)).grid(dim3(1)), a[_y][_x], a, _x, _xy, first, base,
                               overwrite(out));
            const DeviceFindings f = out.copy_to_vector().at(0);
            EXPECT_EQ(f.begin[0], 2);
            EXPECT_EQ(f.end[0], 4);
            EXPECT_EQ(f.begin[1], 8);
            EXPECT_EQ(f.end[1], 10);
            EXPECT_EQ(f.sizes[0], 6);
            EXPECT_EQ(f.sizes[1], 10);
            EXPECT_EQ(f.sum, 4);
            EXPECT_EQ(f.value, 1000 + 17 + 8 + 4);
        }
    });
}

TEST(Row066, values_and_functors_are_copied_per_task) {
    for_each_configuration(0, [&](RuntimeHandle rt) {
        Gate gate;
        const OpenAtEnd open(gate);
        auto out = rt.array<std::int64_t>(4, Distribution<1>::single(4, MemoryId::host()));
        std::int64_t value = 5;
        std::vector<std::int64_t> list{1, 2, 3};
        struct Functor {
            Gate gate;
            std::int64_t calls = 0;
            void operator()(kmm::SubviewMut<std::int64_t> v, std::int64_t passed, const std::vector<std::int64_t>& l) {
                gate.wait();
                calls++;  // each task has a copy of its own
                for (std::int64_t i = v.begin(); i < v.end(); i++)
                    v[i] = passed * 100 + static_cast<std::int64_t>(l.size()) * 10 + calls;
            }
        };
        Functor functor{gate};
        rt.parallel_submit(std::vector{chunk_of(host(), 0, 2), chunk_of(host(), 2, 2)}, Host(functor),
                           overwrite(out[_x]), value, list);
        value = 9;
        list.assign(7, 0);
        functor.calls = 100;
        gate.open();
        EXPECT_EQ(out.copy_to_vector(), std::vector<std::int64_t>(4, 531));
    });
}

// ---------------------------------------------------------------------------------------------------- row 68

__global__ void copy_raw(kmm::GPUViewMut<std::int32_t> to, kmm::GPUView<std::int32_t> from) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < static_cast<std::int64_t>(to.size())) to[i] = from[i];
}

/// Writes the even elements only, after noting what it found.
__global__ void write_even(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int32_t> x,
                           kmm::GPUSubviewMut<std::int32_t> found) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    found[i] = x[i];
    if (i % 2 == 0) x[i] = static_cast<std::int32_t>(i);
}

TEST(Row068, debug_mode_fills_fresh_and_overwritten_memory_with_a_pattern) {
    KMM_NEED_DEVICES(1);
    constexpr std::int64_t n = 300;
    constexpr auto pattern = static_cast<std::int32_t>(0xFFFCFFEE);
    RuntimeConfig config = config_with(1);
    config.debug_mode = true;
    const RuntimeHandle rt = kmm::make_runtime(config);
    for (const bool on_host : {false, true}) {
        SCOPED_TRACE(on_host ? "host task" : "kernel");
        auto x = rt.array<std::int32_t>(n, Dim<1>(n));
        auto found = rt.array<std::int32_t>(n, Dim<1>(n));
        const auto run = [&](std::int64_t begin, std::int64_t size) {
            const std::vector chunks{chunk_of(on_host ? host() : device(0), begin, size)};
            if (on_host) {
                rt.parallel_submit(chunks,
                                   Host([](kmm::Range<std::int64_t> range, kmm::SubviewMut<std::int32_t> v,
                                           kmm::SubviewMut<std::int32_t> f) {
                                       for (std::int64_t i = range.begin; i < range.end; i++) {
                                           f[i] = v[i];
                                           if (i % 2 == 0) v[i] = static_cast<std::int32_t>(i);
                                       }
                                   }),
                                   _x, overwrite(x[_x]), overwrite(found[_x]));
            } else {
                rt.parallel_submit(chunks, kernel(write_even), _x, overwrite(x[_x]), overwrite(found[_x]));
            }
        };
        run(0, n);
        std::vector<std::int32_t> expected(n, pattern);
        EXPECT_EQ(found.copy_to_vector(), expected) << "fresh memory";
        for (std::int64_t i = 0; i < n; i += 2) expected[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
        EXPECT_EQ(x.copy_to_vector(), expected) << "what the task left alone";
        // A part is overwritten: the pattern is there, and the rest keeps its values.
        x.copy_from(counting<std::int32_t>(n));
        run(100, 7);
        std::vector<std::int32_t> kept = counting<std::int32_t>(n);
        for (const std::size_t i : {101, 103, 105}) kept[i] = pattern;
        EXPECT_EQ(x.copy_to_vector(), kept) << "part of a chunk";
        EXPECT_EQ(found.copy_to_vector()[103], pattern);
    }
    // As floating-point numbers the pattern is none.
    auto floats = rt.array<double>(n, Dim<1>(n));
    rt.submit(host(), Host([](kmm::ViewMut<double>) {}), overwrite(floats));
    for (const double value : floats.copy_to_vector()) ASSERT_TRUE(std::isnan(value));
}

TEST(Row068, debug_mode_fills_the_overwritten_block_of_a_matrix_and_logs_regions_outside) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.debug_mode = true;
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<std::string> lines;
    kmm::set_log_handler(
        [](int, const char* text, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(text); },
        &lines);
    auto a = rt.array<std::int16_t, 2>({6, 10}, {6, 10}).named("matrix");
    a.copy_from(std::vector<std::int16_t>(60, 1));
    rt.parallel_submit(std::vector{DomainChunk{device(0), kmm::DomainPoint(8, 2), kmm::DomainDim(4, 3)}},
                       GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int16_t, 2>) {}), overwrite(a[_y][_x]));
    const std::vector<std::int16_t> values = a.copy_to_vector();
    kmm::set_log_handler(nullptr, nullptr);
    for (std::size_t y = 0; y < 6; y++)
        for (std::size_t x = 0; x < 10; x++)
            EXPECT_EQ(values[10 * y + x], y >= 2 && y < 5 && x >= 8 ? static_cast<std::int16_t>(0xFFEE) : 1);
    const auto logged = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
        return line.find("{2...5, 8...12}") != std::string::npos && line.find("matrix") != std::string::npos;
    });
    EXPECT_NE(logged, lines.end());
}

TEST(Row048, a_range_that_looks_closed_is_told_of_once_for_each_place) {
    KMM_NEED_DEVICES(1);
    for (const bool asked : {false, true}) {
        RuntimeConfig config = config_with(1);
        config.range_check = asked;
        const RuntimeHandle rt = kmm::make_runtime(config);
        std::vector<std::string> lines;
        kmm::set_log_handler(
            [](int, const char* text, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(text); },
            &lines);
        auto from = rt.array<float, 2>({8, 8}, {4, 4}).named("from"), to = rt.array<float, 2>({8, 8}, {4, 4});
        from.fill(1);
        for (int step = 0; step < 3; step++)
            rt.parallel_submit(TileDomain(Dim<2>(8, 8), Dim<2>(4, 4)),
                               Host([](kmm::SubviewMut<float, 2>, kmm::Subview<float, 2>, kmm::Subview<float, 2>) {}),
                               write(to[_y][_x]), from[kmm::range(_y - 1, _y + 1)][_x],
                               from[_y][kmm::range(_x - 1, _x + 2)]);
        rt.synchronize();
        kmm::set_log_handler(nullptr, nullptr);
        ASSERT_EQ(lines.size(), asked ? 1u : 0u);
        if (!asked) continue;
        for (const char* text :
             {"argument 1 of", "access_test.cu:", "range(_y - 1, _y + 1) of from", "closed_range(_y - 1, _y + 1)"})
            EXPECT_NE(lines[0].find(text), std::string::npos) << "without " << text << ": " << lines[0];
    }
}

TEST(Row068, normal_mode_transfers_nothing_for_fresh_memory) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto from = rt.array<std::int32_t>(1000, Dim<1>(1000));
    from.fill(3);
    rt.synchronize();
    const kmm::RuntimeStats before = rt.stats();
    Array<std::int32_t> to(1000);
    rt.submit(device(0), GPUKernel(copy_raw, dim3(block)).grid(dim3(16)), overwrite(to), from);
    rt.synchronize();
    const kmm::RuntimeStats after = rt.stats() - before;
    EXPECT_EQ(after.host_to_device.bytes + after.device_to_host.bytes + after.device_to_device.bytes, 0u);
    EXPECT_EQ(to.copy_to_vector(), std::vector<std::int32_t>(1000, 3));
}

// ------------------------------------------------------------------------------------------------- what is not offered

struct PairOfArrays {
    Array<std::int64_t> left;
    Array<std::int64_t> right;
};
struct PairOfViews {
    kmm::View<std::int64_t> left;
    kmm::View<std::int64_t> right;
};

}  // namespace

KMM_DEFINE_STRUCT_ARGUMENT(PairOfArrays, it.left, it.right)
KMM_DEFINE_STRUCT_VIEW(PairOfArrays, PairOfViews)

namespace {

TEST(NotOffered, reductions_struct_arguments_leases_adoption_and_the_rest_say_so) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.allocate(counting<std::int64_t>(10));
    Scalar<std::int64_t> sum;
    auto accumulate_into = Host([](kmm::ViewMut<std::int64_t, 0>, kmm::View<std::int64_t>) {});
    EXPECT_THROW(rt.submit(host(), accumulate_into, reduce(kmm::Reduction::Sum, sum), a), kmm::NotAvailable);
    EXPECT_THROW(rt.submit(host(), accumulate_into, accumulate(kmm::Reduction::Sum, sum), a), kmm::NotAvailable);
    EXPECT_FALSE(sum.has_instance());
    PairOfArrays pair{a, a};
    EXPECT_THROW(rt.submit(host(), Host([](PairOfViews) {}), pair), kmm::NotAvailable);
    EXPECT_THROW(rt.lease(a), kmm::NotAvailable);
    EXPECT_THROW(rt.lease_chunk(write(a), 0), kmm::NotAvailable);
    std::vector<std::int64_t> own(10);
    EXPECT_THROW(rt.adopt(own.data(), Dim<1>(10)), kmm::NotAvailable);
    EXPECT_THROW(rt.adopt(own.data(), Dim<1>(10), MemoryId::host()), kmm::NotAvailable);
    EXPECT_THROW(rt.copy(a, a), kmm::NotAvailable);
    EXPECT_THROW(rt.redistribute(a, a.distribution()), kmm::NotAvailable);
    EXPECT_THROW(rt.record_stream(DeviceId(0), nullptr), kmm::NotAvailable);
    EXPECT_THROW(rt.stream_wait(DeviceId(0), nullptr, EventId()), kmm::NotAvailable);
    EXPECT_THROW(rt.submit(device(0), GPU([](kmm::DeviceResource&) {}).scratch(100)), kmm::NotAvailable);
    rt.wait(rt.submit(device(0), GPU([](kmm::DeviceResource& d) {
                          EXPECT_THROW(d.scratch(100), kmm::NotAvailable);
                          EXPECT_THROW(d.blas(), kmm::NotAvailable);
                      })));
    RuntimeConfig config = config_with(1);
    config.spill_directory = "/nonexistent";
    EXPECT_THROW(kmm::make_runtime(config), kmm::NotAvailable);
    EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(10));
}

}  // namespace
