// Running out of memory, eviction, several runtimes: rows 107 to 110, 113, 116.
#include <sys/resource.h>

#include <random>

#include "harness.hpp"

namespace {

__global__ void store_float(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> x, float slope) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = slope * static_cast<float>(i % 1000);
}

__global__ void store_gated(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> x, float slope,
                            kmm::GPUView<float> zero) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = slope * static_cast<float>(i % 1000) + zero[0];
}

__global__ void add_arrays(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> sum, kmm::GPUSubview<float> left,
                           kmm::GPUSubview<float> right) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) sum[i] += left[i] + right[i];
}

__global__ void pick_one(kmm::GPUViewMut<float> out, kmm::GPUSubview<float> in, std::int64_t at) { out[0] += in[at]; }

__global__ void mix_numbers(kmm::GPUViewMut<std::uint32_t> x, kmm::GPUView<std::uint32_t> other) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < static_cast<std::int64_t>(x.size())) x[i] = 5 * x[i] + other[i];
}

constexpr std::int64_t n = 4096;
constexpr std::size_t bytes = n * sizeof(float);

GPUKernel<void (*)(kmm::Range<std::int64_t>, kmm::GPUSubviewMut<float>, float)> store() {
    return GPUKernel(store_float, dim3(64));
}

EventId fill_on(const RuntimeHandle& rt, std::size_t d, Array<float>& a, float slope) {
    return rt.parallel_submit(std::vector{chunk_of(device(d), 0, a.size(0))}, store(), _x, overwrite(a[_x]), slope);
}

bool is_filled(const Array<float>& a, float slope) {
    const std::vector<float> values = a.copy_to_vector();
    for (std::size_t i = 0; i < values.size(); i++)
        if (values[i] != slope * static_cast<float>(i % 1000)) return false;
    return true;
}

// ---------------------------------------------------------------------------------------------------- full memories

TEST(FullMemories, devices_and_the_host_exchange_chunks_where_all_are_full_to_the_last_byte) {
    KMM_NEED_DEVICES(1);
    constexpr std::size_t on_device = 3, on_host = 5;
    for (const std::size_t devices : {1, 2}) {
        if (devices > devices_available()) break;
        RuntimeConfig config = config_with(devices);
        config.device_memory_limit = on_device * bytes;
        limit_host_memory(config, on_host * bytes);
        const RuntimeHandle rt = kmm::make_runtime(config);
        const Host mix_on_host([](kmm::ViewMut<std::uint32_t> x, kmm::View<std::uint32_t> other) {
            for (std::int64_t i = 0; i < n; i++) x[i] = 5 * x[i] + other[i];
        });
        std::vector<Array<std::uint32_t>> arrays;
        std::vector<std::uint32_t> values;  // of all elements of an array
        for (std::size_t a = 0; a < on_host + devices * on_device; a++) {
            arrays.push_back(one_chunk<std::uint32_t>(rt, n));
            values.push_back(static_cast<std::uint32_t>(a));
            const auto value = values.back();
            if (a < on_host)
                rt.submit(host(), Host([value](kmm::ViewMut<std::uint32_t> x) {
                              for (std::int64_t i = 0; i < n; i++) x[i] = value;
                          }),
                          overwrite(arrays[a]));
            else
                rt.submit(device((a - on_host) / on_device),
                          GPU([value](kmm::DeviceResource& d, kmm::GPUViewMut<std::uint32_t> x) { d.fill(x, value); }),
                          overwrite(arrays[a]));
            rt.synchronize();
        }
        std::mt19937 random(static_cast<unsigned>(devices));
        for (int round = repeat(200, 40); round != 0; round--) {
            const std::size_t a = random() % arrays.size(),
                              b = (a + 1 + random() % (arrays.size() - 1)) % arrays.size();
            if (const std::size_t where = random() % (devices + 1); where == devices)
                rt.submit(host(), mix_on_host, write(arrays[a]), arrays[b]);
            else
                rt.submit(device(where), GPUKernel(mix_numbers, dim3(64)).grid(dim3(n / 64)), write(arrays[a]),
                          arrays[b]);
            values[a] = 5 * values[a] + values[b];
            if (random() % 4 == 0) rt.synchronize();
        }
        for (std::size_t a = 0; a < arrays.size(); a++)
            ASSERT_EQ(arrays[a].copy_to_vector(), std::vector<std::uint32_t>(n, values[a]));
        for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_EQ(m.current_bytes, m.limit_bytes);
    }
}

// ---------------------------------------------------------------------------------------------------- row 107

TEST(Row107, a_task_that_can_never_fit_on_a_device_is_refused_at_submit_with_every_line) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 2 * bytes;
    const RuntimeHandle rt = kmm::make_runtime(config);
    auto a = one_chunk<float>(rt, n).named("pressure"), b = one_chunk<float>(rt, n), c = one_chunk<float>(rt, n);
    fill_on(rt, 0, a, 1.0f);
    fill_on(rt, 0, b, 2.0f);
    const int line = __LINE__ + 2;
    const auto error = thrown_by<kmm::OutOfMemory>([&] {
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_arrays, dim3(64)).named("stencil"), _x,
                           overwrite(c[_x]), a[_x], b[_x]);
    });
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->memory(), MemoryId(DeviceId(0)));
    EXPECT_EQ(error->requested(), 3 * bytes);
    EXPECT_EQ(error->limit(), 2 * bytes);
    for (const std::string& text :
         {std::string("task \"stencil\" chunk 0 of 1 can never run on"), std::string("GPU 0: needs"),
          std::string("\n  needs: "), std::string("read pressure"), std::string("\n  limit: device_memory_limit"),
          std::string("\n  try: "), std::string("KMM_DEVICE_MEM="),
          "\n  submitted at memory_test.cu:" + std::to_string(line)})
        EXPECT_TRUE(says(*error, text)) << "without \"" << text << "\":\n" << error->what();
    // No trace of it is left: the next submit works, and the array that it was to write first is still without content.
    EXPECT_THROW(c.copy_to_vector(), kmm::UninitializedRead);
    rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, store(), _x, overwrite(c[_x]), 3.0f);
    EXPECT_TRUE(is_filled(c, 3.0f));
    EXPECT_TRUE(is_filled(a, 1.0f));
}

TEST(Row107, a_task_that_can_never_fit_on_the_host_is_refused_at_submit) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 4 * bytes;
    limit_host_memory(config, 2 * bytes);
    const RuntimeHandle rt = kmm::make_runtime(config);
    Array<float> a(3 * n), small(n);
    auto set = Host([](kmm::ViewMut<float> v) {
        for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = static_cast<float>(i % 1000);
    });
    const auto error = thrown_by<kmm::OutOfMemory>([&] { rt.submit(host(), set, overwrite(a)); });
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->memory(), MemoryId::host());
    EXPECT_TRUE(says(*error, "can never run on the host")) << error->what();
    EXPECT_TRUE(says(*error, "KMM_HOST_MEM")) << error->what();
    EXPECT_FALSE(a.has_instance());
    rt.submit(host(), set, overwrite(small));
    EXPECT_TRUE(is_filled(small, 1.0f));
}

/// The text of the refusal of a task that overwrites one chunk of so many bytes.
std::string refusal(const RuntimeHandle& rt, ResourceId where, std::size_t size_bytes) {
    auto large = rt.array<float>(static_cast<std::int64_t>(size_bytes / sizeof(float)));
    const auto error = thrown_by<kmm::OutOfMemory>([&] {
        if (where.is_device())
            rt.submit(where, GPU([](kmm::DeviceResource&, kmm::GPUViewMut<float>) {}), overwrite(large));
        else
            rt.submit(where, Host([](kmm::ViewMut<float>) {}), overwrite(large));
    });
    return error == nullptr ? "" : error->what();
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Row107, only_settings_that_would_help_are_offered) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = std::size_t{8} << 20;
    limit_host_memory(config, std::size_t{8} << 20);
    const RuntimeHandle rt = kmm::make_runtime(config);
    const std::size_t total = rt.info().device(DeviceId(0)).total_memory_size();
    const std::size_t machine = rt.info().host_memory_size();
    // Within what the device has, its limit is what stands in the way.
    const std::string small = refusal(rt, device(0), std::size_t{16} << 20);
    EXPECT_TRUE(contains(small, "KMM_DEVICE_MEM=16MiB or more")) << small;
    EXPECT_TRUE(contains(small, "device_memory_limit 8.00 MiB")) << small;
    EXPECT_FALSE(contains(small, "VIRTUAL")) << small;
    // On the host driver the device's memory comes out of the host's.
    EXPECT_EQ(contains(small, "with KMM_HOST_MEM="), driver_under_test() == kmm::DriverKind::Host) << small;
    const std::string medium = refusal(rt, device(0), total + (total / 4096 + 1) * 4096);
    if (driver_under_test() == kmm::DriverKind::Host) {
        // A virtual device can be made larger, and the limit must follow.
        EXPECT_TRUE(contains(medium, "KMM_VIRTUAL_DEVICE_MEM=")) << medium;
        EXPECT_TRUE(contains(medium, "on virtual GPU 0: needs")) << medium;
    } else {
        EXPECT_FALSE(contains(medium, "KMM_")) << medium;
        EXPECT_TRUE(contains(medium, "no setting helps")) << medium;
    }
    for (const ResourceId where : {device(0), host()}) {
        const std::string never = refusal(rt, where, 2 * std::max(machine, total));
        EXPECT_FALSE(contains(never, "KMM_")) << never;
        EXPECT_TRUE(contains(never, "no setting helps")) << never;
        EXPECT_TRUE(contains(never, "smaller chunks")) << never;
    }
    const std::string on_host = refusal(rt, host(), std::size_t{16} << 20);
    // On the host driver the 8 MiB of the device come out of the host tier too.
    const bool shared = driver_under_test() == kmm::DriverKind::Host;
    EXPECT_TRUE(contains(on_host, shared ? "KMM_HOST_MEM=24MiB or more" : "KMM_HOST_MEM=16MiB or more")) << on_host;
}

#if !KMM_USE_CUDA
TEST(Row107, the_host_memory_that_is_offered_is_enough_where_virtual_devices_take_their_part_of_it) {
    if (driver_under_test() != kmm::DriverKind::Host) GTEST_SKIP() << "a GPU's memory is its own";
    RuntimeConfig config = config_with(1);
    config.virtual_device_memory = 0;
    config.host_memory_limit = std::size_t{12} << 20;
    constexpr std::size_t wanted = std::size_t{10} << 20;
    const std::string text = refusal(kmm::make_runtime(config), host(), wanted);
    const std::size_t at = text.find("KMM_HOST_MEM=");
    ASSERT_NE(at, std::string::npos) << text;
    const std::string rest = text.substr(at + 13);
    config.host_memory_limit = kmm::parse_byte_size(rest.substr(0, rest.find(' ')));
    const RuntimeHandle rt = kmm::make_runtime(config);
    Array<float> a(static_cast<std::int64_t>(wanted / sizeof(float)));
    EXPECT_NO_THROW(rt.wait(rt.submit(host(), Host([](kmm::ViewMut<float>) {}), overwrite(a)))) << text;
}
#endif

// ---------------------------------------------------------------------------------------------------- row 108

TEST(Row108, when_all_tiers_are_full_tasks_fail_with_a_report_and_go_on_after_memory_was_released) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 4 * bytes;
    limit_host_memory(config, 4 * bytes + 1024);  // and the single elements below
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<Array<float>> arrays;
    std::vector<EventId> events;
    for (int i = 0; i < 12; i++) {
        arrays.push_back(one_chunk<float>(rt, n).named("block " + std::to_string(i)));
        events.push_back(fill_on(rt, 0, arrays.back(), static_cast<float>(i)));
    }
    int failed = 0;
    for (const EventId e : events) {
        try {
            rt.wait(e);
        } catch (const kmm::TaskError& error) {
            failed++;
            EXPECT_TRUE(nests<kmm::OutOfMemory>(error, "found no memory")) << error.what();
            // All share one report: see shortage_texts_test.cpp.
            const std::string report = thrown_by<kmm::OutOfMemory>([&] { std::rethrow_if_nested(error); })->report();
            if (driver_under_test() == kmm::DriverKind::Host) {
                EXPECT_TRUE(contains(report, "others (programs, runtimes, the driver) 0 B")) << report;
            }
            for (const char* text :
                 {"memory: total ", ", limit ", ", in use ", ", cached but free ", ", largest free piece ",
                  ", others (programs, runtimes, the driver) ", ", free now ", "held by: no running task",
                  "arrays:", "tiers:", "try:", "KMM_DEVICE_MEM=", "KMM_HOST_MEM=", "release arrays", "block "})
                EXPECT_TRUE(contains(report, text)) << "without " << text << "\n" << report;
        }
    }
    // Eight fit in both tiers, and a write-back may need one place in between.
    EXPECT_GE(failed, 4);
    EXPECT_LE(failed, 5);
    std::vector<Array<float>> good;
    for (std::size_t i = 0; i < arrays.size(); i++)
        if (rt.status(events[i]) == kmm::EventStatus::Succeeded) good.push_back(arrays[i]);
    // Most of them go: the same work succeeds, and nothing that was kept is lost.
    const std::size_t kept = 2;
    std::vector<Array<float>> keep(good.begin(), good.begin() + kept);
    good.clear();
    arrays.clear();
    std::vector<Array<float>> again;
    for (int i = 0; i < 4; i++) {
        again.push_back(one_chunk<float>(rt, n));
        fill_on(rt, 0, again.back(), static_cast<float>(100 + i));
    }
    rt.synchronize();
    for (std::size_t i = 0; i < kept; i++) {
        auto out = one_chunk<float>(rt, 1);
        out.copy_from(std::vector<float>{0});
        rt.submit(device(0), GPUKernel(pick_one, dim3(1)), write(out), keep[i][_], std::int64_t{3});
        rt.wait(rt.barrier());
    }
    for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_LE(m.peak_bytes, m.limit_bytes);
}

// Small chunks fill both tiers, and each of the thousands of tasks that find no room learns that without a look at all
// that is there. Looking at all of it took minutes.
TEST(Row108, thousands_of_tasks_that_find_both_tiers_full_of_small_chunks_are_told_within_a_second) {
    KMM_NEED_DEVICES(1);
    const std::int64_t chunks = repeat(70'000, 14'000);
    constexpr std::int64_t chunk_bytes = 256;
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = static_cast<std::size_t>(chunks * 60);
    limit_host_memory(config, static_cast<std::size_t>(chunks * 180));
    const RuntimeHandle rt = kmm::make_runtime(config);
    const auto cpu_seconds = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    };
    {
        auto a = rt.array<char>(Dim<1>(chunks * chunk_bytes), Dim<1>(chunk_bytes));
        rt.parallel_submit(TileDomain(Dim<1>(chunks * chunk_bytes), Dim<1>(chunk_bytes)),
                           GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<char>) {}), overwrite(a[_x]));
        const double submitted_at = cpu_seconds();
        const auto error = thrown_by<kmm::TaskError>([&] { rt.synchronize(); });
        const double seconds = cpu_seconds() - submitted_at;
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(nests<kmm::OutOfMemory>(*error, "found no memory")) << error->what();
        const auto cause = thrown_by<kmm::OutOfMemory>([&] { std::rethrow_if_nested(*error); });
        EXPECT_TRUE(contains(cause->report(), "arrays: array")) << cause->report();
        // CPU time of the process, in which what ran before the last submit is not even counted: other work of the
        // machine must not fail the test. Sanitizers are slower by themselves, and on GPUs the time of all calls of the
        // driver for 70 000 functions, and of the threads that ask it for completions, is in it.
        const bool others_count = short_run() || driver_under_test() != kmm::DriverKind::Host;
        EXPECT_LT(seconds, others_count ? 60.0 : 2.0);
        const kmm::RuntimeStats stats = rt.stats();
        EXPECT_GT(stats.tasks_failed, static_cast<std::uint64_t>(chunks / 20));
        EXPECT_GT(stats.tasks_succeeded, static_cast<std::uint64_t>(chunks * 8 / 10));
        EXPECT_EQ(error->also_failed().size() + 1, stats.tasks_failed);
    }
    auto again = one_chunk<float>(rt, n);
    rt.wait(fill_on(rt, 0, again, 1.0f));
}

// A chunk that finds no place on the host makes others lose their host copies on the way: the order of victims changes
// while it is being walked.
TEST(Row108, a_dirty_chunk_that_fits_nowhere_does_not_disturb_the_eviction_of_others) {
    KMM_NEED_DEVICES(1);
    constexpr std::int64_t unit = 16384;
    constexpr std::size_t unit_bytes = unit * sizeof(float);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 19 * unit_bytes;
    limit_host_memory(config, 8 * unit_bytes);
    config.watchdog = 0.1;  // what the program waits for comes behind tasks that wait for the program
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<Array<float>> small;
    Gate gate;
    const OpenAtEnd open(gate);
    auto flag = one_chunk<float>(rt, 1);
    auto out = one_chunk<float>(rt, 1);
    for (int i = 0; i < 7; i++) {
        std::vector<float> values(unit);
        for (std::int64_t k = 0; k < unit; k++)
            values[static_cast<std::size_t>(k)] = static_cast<float>(i + 1) * static_cast<float>(k % 1000);
        small.push_back(one_chunk<float>(rt, unit));
        small.back().copy_from(values);
    }
    out.copy_from(std::vector<float>{0});
    auto big = one_chunk<float>(rt, 10 * unit);
    rt.wait(fill_on(rt, 0, big, 7.0f));
    const auto read_all = [&](bool after_flag) {
        for (auto& s : small) {
            if (after_flag)
                rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUView<float>, kmm::GPUView<float>) {}), s,
                          flag);
            else
                rt.submit(device(0), GPUKernel(pick_one, dim3(1)), write(out), s[_], std::int64_t{1});
        }
    };
    read_all(false);
    rt.synchronize();
    rt.submit(host(), Host([gate](kmm::ViewMut<float> v) {
                  gate.wait();
                  v[0] = 1;
              }),
              overwrite(flag));
    read_all(true);  // their next uses are known now, and far away
    auto more = one_chunk<float>(rt, 5 * unit);
    rt.wait(fill_on(rt, 0, more, 3.0f));
    gate.open();
    rt.synchronize();
    EXPECT_EQ(out.copy_to_vector().at(0), 28.0f);
    for (int i = 0; i < 7; i++) EXPECT_TRUE(is_filled(small[static_cast<std::size_t>(i)], static_cast<float>(i + 1)));
    // There is no room for all of it on the host beside the others: it is looked at where it is.
    rt.submit(device(0), GPUKernel(pick_one, dim3(1)), write(out), more[_], std::int64_t{1});
    EXPECT_EQ(out.copy_to_vector().at(0), 31.0f);
}

/// How a thread of the program learns that a task has ended before it lets another one end.
enum class Waits { by_asking, in_a_submit, beside_others };

class HeldBack : public testing::TestWithParam<Waits> {};

// Seven tasks wait for a function, it for the program, and the program for a task that they leave no room.
TEST_P(HeldBack, a_task_that_the_program_waits_for_before_it_lets_a_function_end_runs) {
    KMM_NEED_DEVICES(1);
    constexpr std::int64_t unit = 16384;
    constexpr std::size_t unit_bytes = unit * sizeof(float);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 19 * unit_bytes;
    limit_host_memory(config, 8 * unit_bytes);
    config.watchdog = 0.05;
    config.max_pending_tasks = GetParam() == Waits::beside_others ? 20 : 9;
    const RuntimeHandle rt = kmm::make_runtime(config);
    auto flag = one_chunk<float>(rt, 1), large = one_chunk<float>(rt, 10 * unit), made = one_chunk<float>(rt, 5 * unit);
    std::vector<Array<float>> small;
    for (int i = 0; i < 7; i++) {
        small.push_back(one_chunk<float>(rt, unit));
        fill_on(rt, 0, small.back(), static_cast<float>(i));
    }
    rt.wait(fill_on(rt, 0, large, 7.0f));
    Gate gate;
    const OpenAtEnd open(gate);
    rt.submit(host(), Host([gate](kmm::ViewMut<float> v) {
                  gate.wait();
                  v[0] = 1;
              }),
              overwrite(flag));
    for (auto& s : small)
        rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUView<float>, kmm::GPUView<float>) {}), s, flag);
    const EventId event = fill_on(rt, 0, made, 3.0f);
    const auto has_ended = [&] {
        const kmm::EventStatus status = rt.status(event);
        return status == kmm::EventStatus::Succeeded || status == kmm::EventStatus::Failed;
    };
    if (GetParam() == Waits::beside_others) {
        // One or two of them are unfinished at all times.
        for (EventId last; !has_ended();) {
            const EventId next = rt.submit(device(0), GPU([](kmm::DeviceResource&) {}));
            rt.wait(std::exchange(last, next));
        }
    } else if (GetParam() == Waits::by_asking)
        while (!has_ended()) std::this_thread::yield();
    else
        rt.submit(host(), Host([] {}));  // the tenth
    EXPECT_EQ(rt.status(event), kmm::EventStatus::Succeeded);
    gate.open();
    rt.synchronize();
    EXPECT_TRUE(is_filled(made, 3.0f));
    EXPECT_TRUE(is_filled(large, 7.0f));
    for (int i = 0; i < 7; i++) EXPECT_TRUE(is_filled(small[static_cast<std::size_t>(i)], static_cast<float>(i)));
}

INSTANTIATE_TEST_SUITE_P(Row108, HeldBack, testing::Values(Waits::by_asking, Waits::in_a_submit, Waits::beside_others),
                         [](const testing::TestParamInfo<Waits>& info) {
                             return info.param == Waits::by_asking     ? "by_asking"
                                    : info.param == Waits::in_a_submit ? "in_a_submit"
                                                                       : "beside_others";
                         });

// ---------------------------------------------------------------------------------------------------- rows 109, 110

TEST(Row109, tasks_with_two_inputs_of_half_the_limit_in_conflicting_orders_always_make_progress) {
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "no device";
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > available) break;
        RuntimeConfig config = config_with(devices);
        config.device_memory_limit = working_set({bytes, bytes, bytes});
        const RuntimeHandle rt = kmm::make_runtime(config);
        Array<float> in[4], sums[4];
        for (int i = 0; i < 4; i++) {
            in[i] = one_chunk<float>(rt, n);
            sums[i] = one_chunk<float>(rt, n);
            fill_on(rt, static_cast<std::size_t>(i) % devices, in[i], static_cast<float>(1 << i));
            fill_on(rt, static_cast<std::size_t>(i) % devices, sums[i], 0.0f);
        }
        const int rounds = repeat(40, 8);
        std::vector<std::thread> threads;
        for (int t = 0; t < 2; t++)
            threads.emplace_back([&, t] {
                for (int r = 0; r < rounds; r++)
                    for (int i = 0; i < 4; i++) {
                        const int j = (i + 1 + r % 3) % 4;
                        Array<float>& left = t == 0 ? in[i] : in[j];
                        Array<float>& right = t == 0 ? in[j] : in[i];
                        rt.parallel_submit(
                            std::vector{chunk_of(device(static_cast<std::size_t>(r + t) % devices), 0, n)},
                            GPUKernel(add_arrays, dim3(64)), _x, write(sums[i][_x]), left[_x], right[_x]);
                    }
            });
        for (std::thread& t : threads) t.join();
        rt.synchronize();
        for (int i = 0; i < 4; i++) {
            float slope = 0;
            for (int r = 0; r < rounds; r++) slope += 2 * static_cast<float>((1 << i) + (1 << ((i + 1 + r % 3) % 4)));
            EXPECT_TRUE(is_filled(sums[i], slope));
        }
        for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_LE(m.peak_bytes, m.limit_bytes);
    }
}

TEST(Row110, a_read_only_sweep_writes_nothing_back_and_an_overwrite_sweep_reads_nothing_in) {
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "no device";
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > available) break;
        RuntimeConfig config = config_with(devices);
        config.device_memory_limit = working_set({4 * bytes, 8});
        const RuntimeHandle rt = kmm::make_runtime(config);
        constexpr std::int64_t chunks = 16;
        auto a = rt.array<float>(chunks * n, Dim<1>(n));
        std::vector<float> values(static_cast<std::size_t>(chunks * n));
        for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 1000);
        a.copy_from(values);
        const kmm::RuntimeStats before = rt.stats();
        auto look = GPU([](kmm::DeviceResource&, kmm::GPUSubview<float>) {});
        for (int pass = 0; pass < 3; pass++) rt.parallel_submit(chunks * n, n, look, a[_x]);
        rt.synchronize();
        const kmm::RuntimeStats read = rt.stats() - before;
        EXPECT_EQ(read.device_to_host.bytes, 0u);
        EXPECT_EQ(read.evicted_bytes, 0u);
        EXPECT_GE(read.host_to_device.bytes, static_cast<std::size_t>(chunks) * bytes);
        // All passes are known before the first can run: what will be replaced is not worth saving.
        Gate gate;
        const OpenAtEnd open(gate);
        auto zero = one_chunk<float>(rt, 1);
        rt.submit(host(), Host([gate](kmm::ViewMut<float> v) {
                      gate.wait();
                      v[0] = 0;
                  }),
                  overwrite(zero));
        const kmm::RuntimeStats start = rt.stats();
        for (int pass = 1; pass <= 3; pass++)
            rt.parallel_submit(chunks * n, n, GPUKernel(store_gated, dim3(64)), _x, overwrite(a[_x]),
                               static_cast<float>(pass), zero);
        gate.open();
        rt.synchronize();
        const kmm::RuntimeStats written = rt.stats() - start;
        // Of the data nothing comes in; the gate's four bytes do, again where they had to leave in between.
        EXPECT_LT(written.host_to_device.bytes, bytes);
        EXPECT_LT(written.device_to_device.bytes, bytes);
        EXPECT_LE(written.device_to_host.bytes, static_cast<std::size_t>(chunks) * bytes);
        EXPECT_TRUE(is_filled(a, 3.0f));
    }
}

// ---------------------------------------------------------------------------------------------------- row 113, report

/// More than fits on the devices, kernels that take from other devices, host tasks, copies from and to the program.
std::vector<Array<float>> spill_and_copy(const RuntimeHandle& rt) {
    const std::size_t devices = num_devices(rt);
    constexpr std::size_t count = 12;
    std::vector<Array<float>> arrays;
    for (std::size_t i = 0; i < count; i++) {
        arrays.push_back(one_chunk<float>(rt, n).named("spilled " + std::to_string(i)));
        fill_on(rt, i % devices, arrays.back(), static_cast<float>(i));
    }
    for (int round = 0; round < 3; round++) {
        for (std::size_t i = 0; i + 2 < count; i++)
            rt.parallel_submit(std::vector{chunk_of(device((i + static_cast<std::size_t>(round)) % devices), 0, n)},
                               GPUKernel(add_arrays, dim3(64)), _x, write(arrays[i][_x]), arrays[i + 1][_x],
                               arrays[i + 2][_x]);
        rt.submit(host(), Host([](kmm::ViewMut<float> v) {
                      for (std::int64_t k = 0; k < n; k++) v[k] = static_cast<float>(k % 1000);
                  }),
                  overwrite(arrays[0]));
        arrays[1].copy_from(std::vector<float>(n, 0.0f));
        EXPECT_TRUE(is_filled(arrays[count - 1], static_cast<float>(count - 1)));
        EXPECT_TRUE(is_filled(arrays[0], 1.0f));
    }
    return arrays;
}

TEST(Row113, no_memory_ever_holds_more_than_its_limit_while_tasks_spill_and_copy) {
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "no device";
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > available) break;
        SCOPED_TRACE(std::to_string(devices) + " devices");
        RuntimeConfig config = config_with(devices);
        config.device_memory_limit = working_set({bytes, bytes, bytes});
        const std::size_t host_bytes = working_set({13 * bytes});
        limit_host_memory(config, host_bytes);
        const RuntimeHandle rt = kmm::make_runtime(config);
        const std::vector<Array<float>> arrays = spill_and_copy(rt);
        rt.synchronize();
        const kmm::RuntimeStats s = rt.stats();
        EXPECT_GT(s.evictions, 0u);
        ASSERT_EQ(s.memories.size(), devices + 1);
        for (const kmm::MemoryStats& m : s.memories) {
            EXPECT_LE(m.peak_bytes, m.limit_bytes);
            EXPECT_LE(m.current_bytes, m.peak_bytes);
            EXPECT_GT(m.peak_bytes, 0u);
            EXPECT_EQ(m.limit_bytes, m.memory.is_host() ? host_bytes : config.device_memory_limit);
        }
    }
}

TEST(Report, tells_links_evictions_what_was_fetched_again_waits_and_who_holds_what) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = working_set({bytes, bytes, bytes});
    const RuntimeHandle rt = kmm::make_runtime(config);
    const std::vector<Array<float>> arrays = spill_and_copy(rt);
    rt.synchronize();
    const kmm::RuntimeStats s = rt.stats();
    // Three rounds of one copy in and two out, of which some are read on the device.
    EXPECT_GE(s.host_to_host.copies, 3u);
    EXPECT_LE(s.host_to_host.copies, 9u);
    EXPECT_EQ(s.host_to_host.bytes, s.host_to_host.copies * bytes);
    EXPECT_EQ(s.allocations - s.frees, s.memories[0].current_bytes / bytes + s.memories[1].current_bytes / bytes);
    const std::string text = rt.report();
    const std::string place = driver_under_test() == kmm::DriverKind::Host ? "virtual GPU 0" : "GPU 0";
    for (const std::string& part :
         {std::string("host to device"), std::string("GB/s while busy"), std::string("host to host"),
          std::string("fetched again"), std::string("waited for memory"), "memory     " + place,
          std::string("held by spilled "), std::string("gathered   0 B")})
        EXPECT_TRUE(contains(text, part)) << "without \"" << part << "\":\n" << text;
    EXPECT_FALSE(contains(text, "fetched again 0 B")) << text;
    EXPECT_FALSE(contains(text, "waits      0 tasks")) << text;
    const std::string json = rt.report(kmm::ReportFormat::Json);
    for (const char* key : {"host_to_device",
                            "device_to_host",
                            "device_to_device",
                            "host_to_host",
                            "host_to_disk",
                            "disk_to_host",
                            "gathered_bytes",
                            "snapshot_bytes",
                            "evictions",
                            "evicted_bytes",
                            "dropped_clean_bytes",
                            "refetched_bytes",
                            "allocations",
                            "frees",
                            "threads_started",
                            "busy_seconds",
                            "gigabytes_per_second_while_busy",
                            "memory_waits",
                            "current_bytes",
                            "peak_bytes",
                            "limit_bytes",
                            "largest_arrays"})
        EXPECT_TRUE(contains(json, std::string("\"") + key + "\":")) << "without " << key << ":\n" << json;
}

// ---------------------------------------------------------------------------------------------------- rows 8, 116

TEST(Row008, exceeding_the_limit_of_one_device_evicts_only_there) {
    KMM_NEED_DEVICES(2);
    RuntimeConfig config = config_with(2);
    config.device_memory_limit = 4 * bytes;
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<Array<float>> left, right;
    for (int i = 0; i < 3; i++) {
        right.push_back(one_chunk<float>(rt, n));
        fill_on(rt, 1, right.back(), static_cast<float>(i + 1));
    }
    rt.synchronize();
    EXPECT_EQ(rt.stats().evictions, 0u);
    for (int i = 0; i < 10; i++) {
        left.push_back(one_chunk<float>(rt, n));
        fill_on(rt, 0, left.back(), static_cast<float>(i + 1));
    }
    rt.synchronize();
    const kmm::RuntimeStats s = rt.stats();
    EXPECT_GE(s.evictions, 6u);
    EXPECT_EQ(s.memory(MemoryId(DeviceId(1))).current_bytes, 3 * bytes);
    EXPECT_EQ(s.memory(MemoryId(DeviceId(0))).limit_bytes, 4 * bytes);
    for (int i = 0; i < 10; i++) EXPECT_TRUE(is_filled(left[static_cast<std::size_t>(i)], static_cast<float>(i + 1)));
    for (int i = 0; i < 3; i++) EXPECT_TRUE(is_filled(right[static_cast<std::size_t>(i)], static_cast<float>(i + 1)));
}

TEST(Trim, memory_that_is_free_goes_back_to_the_driver_and_is_taken_again_when_it_is_needed) {
    KMM_NEED_DEVICES(1);
    constexpr std::int64_t large = std::int64_t{24} << 20;  // 96 MiB
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = std::size_t{200} << 20;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const auto free_now = [&] { return rt.info().device(DeviceId(0)).free_memory(); };
    auto kept = one_chunk<float>(rt, n);
    fill_on(rt, 0, kept, 3.0f);
    rt.synchronize();
    // From here on: a GPU's driver takes memory of its own when the first kernel is loaded.
    const std::size_t before = free_now();
    for (int round = 0; round < 3; round++) {
        {
            auto a = one_chunk<float>(rt, large);
            auto b = one_chunk<float>(rt, large);
            a.fill(1.0f);
            b.fill(2.0f);
            rt.synchronize();
            // Beside the piece of the range that was there already.
            EXPECT_LE(free_now() + 128 * 1024 * 1024, before);
            rt.trim_memory();  // what is in use stays
            std::vector<float> last(1);
            b.copy_to(last.data(), Point<1>(large - 1), Dim<1>(1));
            EXPECT_EQ(last[0], 2.0f);
        }
        rt.trim_memory();
        EXPECT_GE(free_now() + 64 * 1024 * 1024, before);
    }
    EXPECT_TRUE(is_filled(kept, 3.0f));
}

TEST(Row008, devices_have_separate_addresses_and_are_not_the_host) {
    KMM_NEED_DEVICES(2);
    const RuntimeHandle rt = kmm::make_runtime(config_with(2));
    auto addresses = std::make_shared<std::array<std::atomic<const void*>, 2>>();
    std::vector<Array<float>> arrays(2, Array<float>(n));
    for (std::size_t d = 0; d < 2; d++) {
        arrays[d] = one_chunk<float>(rt, n);
        rt.submit(device(d), GPU([addresses, d](kmm::DeviceResource& device, kmm::GPUViewMut<float> v) {
                      (*addresses)[d] = v.data();
                      device.fill(v, 1.0f);
                  }),
                  overwrite(arrays[d]));
    }
    rt.synchronize();
    for (std::size_t d = 0; d < 2; d++)
        EXPECT_EQ(rt.memory_affinity_for_address((*addresses)[d]), MemoryId(DeviceId(static_cast<std::uint8_t>(d))));
    EXPECT_EQ(rt.memory_affinity_for_address(addresses.get()), MemoryId::host());
    const char* first = static_cast<const char*>((*addresses)[0].load());
    const char* second = static_cast<const char*>((*addresses)[1].load());
    EXPECT_TRUE(first + bytes <= second || second + bytes <= first);
}

TEST(Row116, two_runtimes_share_a_device_from_two_threads) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 6 * bytes;
    const RuntimeHandle runtimes[2] = {kmm::make_runtime(config), kmm::make_runtime(config)};
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&, t] {
            const RuntimeHandle rt = runtimes[t];
            std::vector<Array<float>> arrays;
            for (int i = 0; i < 20; i++) {
                arrays.push_back(one_chunk<float>(rt, n));
                fill_on(rt, 0, arrays.back(), static_cast<float>(i + 10 * t));
            }
            for (int i = 0; i < 20; i++)
                wrong += is_filled(arrays[static_cast<std::size_t>(i)], static_cast<float>(i + 10 * t)) ? 0 : 1;
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong.load(), 0);
    auto a = one_chunk<float>(runtimes[0], n);
    const EventId event = fill_on(runtimes[0], 0, a, 1.0f);
    const auto error = thrown_by<kmm::InvalidArgument>([&] { fill_on(runtimes[1], 0, a, 2.0f); });
    ASSERT_NE(error, nullptr);
    for (const RuntimeHandle& rt : runtimes)
        EXPECT_TRUE(says(*error, "runtime " + std::to_string(rt.info().runtime_number()))) << error->what();
    EXPECT_THROW(runtimes[1].wait(event), kmm::InvalidArgument);
    EXPECT_TRUE(is_filled(a, 1.0f));
}

}  // namespace
