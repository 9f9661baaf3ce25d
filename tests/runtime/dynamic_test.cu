// Arrays and submits whose types are known when the program runs (kmm/dynamic.hpp), beside the same in the typed API.
#include "harness.hpp"

#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kmm/dynamic.hpp"

namespace {

namespace dynamic = kmm::dynamic;
using dynamic::AccessMode;
using dynamic::Parameter;
using dynamic::RunningTask;
using kmm::DataType;
using kmm::ScalarType;
using Field = Parameter::Field;

/// Each row of `out` is that of `in` times `factor`; all that hangs on the arrays comes from the table.
struct ScaleParameters {
    float* out = nullptr;
    const float* in = nullptr;
    std::int64_t out_stride = 0;
    std::int64_t in_stride = 0;
    std::int64_t rows = 0;
    std::int32_t first_column = 0;
    std::int32_t end_column = 0;
    float factor = 0;
};
__global__ void scale(ScaleParameters p) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    for (std::int32_t k = 0; k < p.end_column - p.first_column; k++)
        p.out[row * p.out_stride + k] = p.factor * p.in[row * p.in_stride + k] + static_cast<float>(p.first_column + k);
}
constexpr std::uint32_t at(std::size_t offset) { return static_cast<std::uint32_t>(offset); }
const std::vector<Parameter> scale_table = {
    {Field::Address, 8, 0, 0, at(offsetof(ScaleParameters, out))},
    {Field::Address, 8, 0, 1, at(offsetof(ScaleParameters, in))},
    {Field::Stride, 8, 0, 0, at(offsetof(ScaleParameters, out_stride))},
    {Field::Stride, 8, 0, 1, at(offsetof(ScaleParameters, in_stride))},
    {Field::Size, 8, 0, 0, at(offsetof(ScaleParameters, rows))},
    {Field::Begin, 4, 1, 0, at(offsetof(ScaleParameters, first_column))},
    {Field::End, 4, 1, 0, at(offsetof(ScaleParameters, end_column))},
};
dynamic::Kernel scale_kernel(const RuntimeHandle& rt, DeviceId device, const ScaleParameters& p, std::uint32_t blocks) {
    dynamic::Kernel kernel;
    kernel.handle = dynamic::kernel_handle(scale, rt, device);
    kernel.grid[0] = blocks;
    kernel.block[0] = 32;
    kernel.parameters = &p;
    kernel.parameter_bytes = sizeof p;
    kernel.table = scale_table.data();
    kernel.table_size = static_cast<std::uint32_t>(scale_table.size());
    return kernel;
}

constexpr std::int64_t rows = 40, columns = 24, chunk_rows = 10;

std::vector<dynamic::Chunk> row_chunks(const RuntimeHandle& rt) {
    std::vector<dynamic::Chunk> chunks;
    for (std::int64_t r = 0; r < rows; r += chunk_rows) {
        const auto owner = static_cast<std::uint8_t>(static_cast<std::size_t>(r / chunk_rows) % num_devices(rt));
        chunks.push_back({MemoryId(DeviceId(owner)), dynamic::box({r, 0}, {r + chunk_rows, columns})});
    }
    return chunks;
}

TEST(Dynamic, a_kernel_finds_addresses_strides_and_bounds_where_its_table_says) {
    for_each_configuration(working_set({rows * columns * 4, chunk_rows * columns * 4}), [](RuntimeHandle rt) {
        std::vector<float> values(rows * columns);
        std::iota(values.begin(), values.end(), 0.0F);
        const dynamic::Array in(rt, ScalarType::Float32, {rows, columns}, row_chunks(rt));
        const dynamic::Array out(rt, ScalarType::Float32, {rows, columns}, row_chunks(rt));
        in.copy_from(values.data());
        const float nothing = -1;
        out.fill(&nothing);
        // Inner columns of each chunk, in one submit; then of rows that cross chunks.
        dynamic::Submit submit(rt, "scale");
        ScaleParameters p;
        p.factor = 2;
        for (std::int64_t r = 0; r < rows; r += chunk_rows) {
            const DeviceId device(
                static_cast<std::uint8_t>(static_cast<std::size_t>(r / chunk_rows) % num_devices(rt)));
            const dynamic::Box region = dynamic::box({r, 3}, {r + chunk_rows, 20});
            submit.kernel(device, {}, scale_kernel(rt, device, p, 1),
                          {{&out, AccessMode::Write, region}, {&in, AccessMode::Read, region}});
        }
        rt.wait(submit.commit());
        const dynamic::Box crossing = dynamic::box({5, 3}, {35, 20});
        dynamic::Submit second(rt);
        p.factor = 3;
        second.kernel(DeviceId(0), {}, scale_kernel(rt, DeviceId(0), p, 1),
                      {{&out, AccessMode::Write, crossing}, {&in, AccessMode::Read, crossing}});
        second.commit();
        std::vector<float> result(rows * columns);
        out.copy_to(result.data());
        for (std::int64_t r = 0; r < rows; r++)
            for (std::int64_t k = 0; k < columns; k++) {
                const auto i = static_cast<std::size_t>(r * columns + k);
                const float factor = r >= 5 && r < 35 ? 3 : 2;
                const float expected = k >= 3 && k < 20 ? factor * values[i] + static_cast<float>(k) : -1;
                ASSERT_EQ(result[i], expected) << "row " << r << ", column " << k;
            }
    });
}

/// A function of the test with what it captured.
template<typename F>
dynamic::Function function_of(F f) {
    return {[](void* user, const RunningTask& task) { (*static_cast<F*>(user))(task); }, new F(std::move(f)),
            [](void* user) noexcept { delete static_cast<F*>(user); }};
}

// Random regions of a 2-D array, against a loop in the order of submission.
TEST(Dynamic, functions_on_random_regions_give_what_one_after_the_other_gives) {
    for_each_configuration(working_set({rows * columns * 8, rows * columns * 8}), [](RuntimeHandle rt) {
        std::mt19937 random(5);
        const auto below = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
        };
        const DataType type = DataType::of<std::int64_t>();
        const dynamic::Array a(rt, type, {rows, columns}, row_chunks(rt));
        std::vector<std::int64_t> model(rows * columns, 1);
        const std::int64_t one = 1;
        a.fill(&one);
        for (int step = 1; step <= 60; step++) {
            const std::int64_t r = below(rows), k = below(columns);
            const std::int64_t height = 1 + below(rows - r), width = 1 + below(columns - k);
            const dynamic::Box region = dynamic::box({r, k}, {r + height, k + width});
            const auto work = [=](const RunningTask& task) {
                auto* const data = static_cast<std::int64_t*>(task.address(0));
                for (std::int64_t y = 0; y < height; y++)
                    for (std::int64_t x = 0; x < width; x++) {
                        std::int64_t& cell = data[y * task.strides(0)[0] + x * task.strides(0)[1]];
                        cell = cell * 3 + step + y - x;
                    }
            };
            dynamic::Submit submit(rt, "step");
            submit.host_function(chunk_of(host(), r, height), function_of(work), {{&a, AccessMode::Write, region}});
            const EventId event = submit.commit();
            if (step % 20 == 0) rt.wait(event);
            for (std::int64_t y = 0; y < height; y++)
                for (std::int64_t x = 0; x < width; x++) {
                    std::int64_t& cell = model[static_cast<std::size_t>((r + y) * columns + k + x)];
                    cell = cell * 3 + step + y - x;
                }
        }
        ASSERT_EQ((a.as<std::int64_t, 2>().copy_to_vector()), model);
        std::vector<std::int64_t> part(3 * 50, -1);
        const std::int64_t strides[] = {50, 2};
        a.copy_to(part.data(), dynamic::box({7, 2}, {10, 22}), strides);
        for (std::int64_t y = 0; y < 3; y++)
            for (std::int64_t x = 0; x < 50; x++)
                ASSERT_EQ(part[static_cast<std::size_t>(y * 50 + x)],
                          x % 2 == 0 && x < 40 ? model[static_cast<std::size_t>((y + 7) * columns + 2 + x / 2)] : -1);
    });
}

TEST(Dynamic, typed_and_untyped_handles_are_the_same_array) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Array<float, 2> typed{Dim<2>(8, 4)};
    const dynamic::Array untyped = typed;
    EXPECT_FALSE(untyped.is_bound());
    EXPECT_EQ(untyped.type(), DataType(ScalarType::Float32));
    EXPECT_EQ(untyped.rank(), 2u);
    EXPECT_EQ(untyped.size(0), 8);
    EXPECT_EQ(untyped.size(1), 4);
    EXPECT_EQ(untyped.size(5), 1);
    // The untyped submit binds it; its regions are the chunks.
    dynamic::Submit submit(rt);
    for (std::int64_t r = 0; r < 8; r += 2)
        submit.host_function({}, function_of([r](const RunningTask& task) {
                                 std::fill_n(static_cast<float*>(task.address(0)), 8, static_cast<float>(r));
                             }),
                             {{&untyped, AccessMode::Overwrite, dynamic::box({r, 0}, {r + 2, 4})}});
    submit.commit();
    EXPECT_TRUE(untyped.is_bound());
    EXPECT_EQ(untyped.chunks().size(), 4u);
    rt.parallel_submit(2, 1, Host([](kmm::SubviewMut<float, 2> v) {
                           for (auto y = v.begin(0); y < v.end(0); y++)
                               for (auto x = v.begin(1); x < v.end(1); x++) v[y][x] += 0.5F;
                       }),
                       write(typed[kmm::range(4 * _x, 4 * _x + 4)][_]));
    const std::vector<float> result = untyped.as<float, 2>().copy_to_vector();
    for (std::size_t i = 0; i < result.size(); i++)
        EXPECT_EQ(result[i], static_cast<float>(i / 8 * 2) + 0.5F) << "element " << i;
    EXPECT_THROW((void)(untyped.as<float, 1>()), kmm::InvalidArgument);
    EXPECT_THROW((void)(untyped.as<double, 2>()), kmm::InvalidArgument);
}

TEST(Dynamic, elements_may_be_of_a_type_that_is_made_when_the_program_runs) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const DataType record = DataType::made("sample", 12, 4);
    EXPECT_EQ(record, DataType::made("sample", 12, 4));
    EXPECT_NE(record, DataType::made("sample", 16, 4));
    EXPECT_NE(record, DataType::made("other", 12, 4));
    EXPECT_NE(record, DataType());
    EXPECT_EQ(record.name(), "sample");
    for (const auto& [size, alignment] :
         {std::pair(0u, 4u), std::pair(12u, 8u), std::pair(12u, 3u), std::pair(8192u, 8192u)})
        EXPECT_THROW((void)DataType::made("bad", size, alignment), kmm::InvalidArgument);
    EXPECT_THROW((void)DataType::made("", 4, 4), kmm::InvalidArgument);

    const dynamic::Array a(rt, record, {100}, {{MemoryId::host(), dynamic::box({0}, {100})}});
    std::vector<std::int32_t> values(300);
    std::iota(values.begin(), values.end(), 0);
    a.copy_from(values.data());
    std::vector<std::int32_t> part(30);
    a.copy_to(part.data(), dynamic::box({20}, {30}));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 60));
    EXPECT_THROW((void)(a.as<float, 1>()), kmm::InvalidArgument);
    EXPECT_THROW(dynamic::Array(DataType(), {4}), kmm::InvalidArgument);
    EXPECT_THROW(dynamic::Array(record, {-1}), kmm::InvalidArgument);
    EXPECT_THROW(dynamic::Array(record, std::vector<std::int64_t>(9, 1)), kmm::InvalidArgument);
}

TEST(Dynamic, device_functions_get_the_stream_and_the_memory_of_their_device) {
    for_each_configuration(working_set({1024}), [](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            const dynamic::Array a(ScalarType::Int32, {256});
            dynamic::Submit submit(rt, "fill");
            submit.device_function(DeviceId(static_cast<std::uint8_t>(d)), {}, function_of([](const RunningTask& task) {
                                       const std::int32_t value = 7;
                                       task.resource().cast<kmm::DeviceResource>().fill_bytes(task.address(0), 1024,
                                                                                              &value, sizeof value);
                                   }),
                                   {{&a, AccessMode::Overwrite, a.whole()}});
            submit.commit();
            ASSERT_EQ(a.as<std::int32_t>().copy_to_vector(), std::vector<std::int32_t>(256, 7));
        }
    });
}

/// Counts how often what it was given was destroyed.
struct Owned {
    std::atomic<int> destroyed{0};
    dynamic::Function function(void (*run)(void*, const RunningTask&)) {
        return {run, this, [](void* user) noexcept { ++static_cast<Owned*>(user)->destroyed; }};
    }
};

TEST(Dynamic, a_function_is_destroyed_once_whatever_becomes_of_its_submit) {
    KMM_NEED_DEVICES(1);
    const auto nothing = [](void*, const RunningTask&) {};
    Owned ran, threw, cancelled, dropped, refused, conflicting;
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        const dynamic::Array a(rt, ScalarType::Int32, {16}, {{MemoryId::host(), dynamic::box({0}, {16})}});
        const std::vector<dynamic::Access> whole{{&a, AccessMode::Overwrite, a.whole()}};
        const auto submit_one = [&](const dynamic::Function& f, AccessMode mode) {
            dynamic::Submit submit(rt, "one");
            submit.host_function({}, f, {{&a, mode, a.whole()}});
            return submit.commit();
        };
        submit_one(ran.function(nothing), AccessMode::Overwrite);
        const EventId failing = submit_one(
            threw.function([](void*, const RunningTask&) { throw std::runtime_error("no luck"); }), AccessMode::Write);
        const EventId behind = submit_one(cancelled.function(nothing), AccessMode::Read);
        EXPECT_THROW(rt.wait(failing), kmm::TaskError);
        EXPECT_THROW(rt.wait(behind), kmm::TaskError);
        {
            dynamic::Submit submit(rt);
            submit.host_function({}, dropped.function(nothing), whole);
        }
        dynamic::Submit submit(rt);
        EXPECT_THROW(
            submit.host_function({}, refused.function(nothing), {{&a, AccessMode::Read, dynamic::box({0}, {17})}}),
            kmm::InvalidArgument);
        // The refused task is not there; two that write the same are refused together.
        for (int i = 0; i < 2; i++)
            submit.host_function({}, conflicting.function(nothing), {{&a, AccessMode::Overwrite, a.whole()}});
        EXPECT_THROW(submit.commit(), kmm::ConflictingAccess);
        EXPECT_EQ(conflicting.destroyed, 2);
        EXPECT_THROW(submit.commit(), kmm::InvalidArgument);
    }
    EXPECT_EQ(ran.destroyed, 1);
    EXPECT_EQ(threw.destroyed, 1);
    EXPECT_EQ(cancelled.destroyed, 1);
    EXPECT_EQ(dropped.destroyed, 1);
    EXPECT_EQ(refused.destroyed, 1);
    EXPECT_EQ(conflicting.destroyed, 2);
}

/// The text of the error that `f` throws.
template<typename F>
std::string refusal(F&& f) {
    try {
        f();
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
    return "nothing was refused";
}
void expect_says(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Dynamic, what_does_not_fit_is_refused_by_name_and_the_submit_goes_on) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    dynamic::Array a(rt, ScalarType::Float32, {rows, columns},
                     {{MemoryId::host(), dynamic::box({0, 0}, {rows, columns})}});
    a.named("cells");
    const float zero = 0;
    a.fill(&zero);
    dynamic::Submit submit(rt, "scale");
    ScaleParameters p;
    const auto refused = [&](const Parameter& entry, std::initializer_list<const char*> parts) {
        dynamic::Kernel kernel = scale_kernel(rt, DeviceId(0), p, 1);
        kernel.table = &entry;
        kernel.table_size = 1;
        expect_says(refusal([&] { submit.kernel(DeviceId(0), {}, kernel, {{&a, AccessMode::Write, a.whole()}}); }),
                    parts);
    };
    refused({Field::Address, 8, 0, 1, 0}, {"entry 0", "Address", "access 1", "has 1"});
    refused({Field::Stride, 8, 2, 0, 0}, {"Stride", "axis 2", "cells", "2 axes"});
    refused({Field::Size, 2, 0, 0, 0}, {"Size", "2 bytes"});
    refused({Field::Address, 4, 0, 0, 0}, {"Address", "4 bytes"});
    refused({Field::Begin, 8, 0, 0, at(sizeof p - 4)}, {"Begin", "bytes 52 to 60 of 56"});
    const auto refused_kernel = [&](auto&& change, std::initializer_list<const char*> parts) {
        dynamic::Kernel kernel = scale_kernel(rt, DeviceId(0), p, 1);
        change(kernel);
        const std::vector<dynamic::Access> accesses(2, {&a, AccessMode::Write, a.whole()});
        expect_says(refusal([&] { submit.kernel(DeviceId(0), {}, kernel, accesses); }), parts);
    };
    refused_kernel([](dynamic::Kernel& k) { k.handle = nullptr; }, {"null pointer"});
    refused_kernel([](dynamic::Kernel& k) { k.parameters = nullptr; }, {"parameters is null"});
    refused_kernel([](dynamic::Kernel& k) { k.table = nullptr; }, {"7 entries", "null"});
    refused_kernel([](dynamic::Kernel& k) { k.block[1] = 0; }, {"block", "0"});
    expect_says(refusal([&] { submit.host_function({}, {}, {}); }), {"null pointer"});
    expect_says(
        refusal([&] { submit.kernel(DeviceId(0), {}, scale_kernel(rt, DeviceId(0), p, 1), {dynamic::Access()}); }),
        {"access 0", "no array"});
    expect_says(refusal([&] { (void)dynamic::box({0, 0}, {1}); }), {"2", "1"});
    const dynamic::Array far(ScalarType::Int8, {std::int64_t{3} << 32});
    const Parameter end{Field::End, 4, 0, 0, 0};
    dynamic::Kernel kernel = scale_kernel(rt, DeviceId(0), p, 1);
    kernel.table = &end;
    kernel.table_size = 1;
    expect_says(refusal([&] { submit.kernel(DeviceId(0), {}, kernel, {{&far, AccessMode::Read, far.whole()}}); }),
                {"12884901888", "4 bytes"});
    kernel.table_size = 0;
    EXPECT_THROW(submit.kernel(DeviceId(9), {}, kernel, {{&a, AccessMode::Read, a.whole()}}),
                 kmm::InvalidResourceException);
    // What is good is still done.
    const dynamic::Box row = dynamic::box({0, 0}, {1, columns});
    const dynamic::Box other = dynamic::box({1, 0}, {2, columns});
    submit.kernel(DeviceId(0), {}, scale_kernel(rt, DeviceId(0), p, 1),
                  {{&a, AccessMode::Write, row}, {&a, AccessMode::Read, other}});
    rt.wait(submit.commit());
    EXPECT_EQ((a.as<float, 2>().copy_to_vector()[columns - 1]), static_cast<float>(columns - 1));
    EXPECT_EQ(dynamic::Submit(rt).commit(), EventId());
}

TEST(Dynamic, tells_whether_a_submit_would_wait) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.max_pending_tasks = 3;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const Gate gate;
    EXPECT_FALSE(dynamic::would_wait(rt));
    for (int i = 0; i < 3; i++) rt.submit(host(), Host([gate] { gate.wait(); }));
    EXPECT_TRUE(dynamic::would_wait(rt));
    bool inside = true;
    gate.open();
    rt.synchronize();
    EXPECT_FALSE(dynamic::would_wait(rt));
    rt.submit(host(), Host([&] { inside = dynamic::would_wait(rt); }));
    rt.synchronize();
    EXPECT_FALSE(inside);
}

TEST(Dynamic, axes_beyond_the_rank_are_not_looked_at) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    dynamic::Box whole = dynamic::box({0, 0}, {3, 4});
    whole.begin[5] = whole.end[5] = 3;
    whole.begin[2] = 9;
    const dynamic::Array a(rt, ScalarType::Int32, {3, 4}, {{MemoryId::host(), whole}});
    std::vector<std::int32_t> values(12), result(12, -1);
    std::iota(values.begin(), values.end(), 1);
    a.copy_from(values.data(), whole);
    a.copy_to(result.data(), whole);
    EXPECT_EQ(result, values);
    std::int32_t seen = 0;
    dynamic::Submit submit(rt);
    submit.host_function({}, function_of([&seen](const RunningTask& task) {
                             seen = static_cast<const std::int32_t*>(task.address(0))[11];
                         }),
                         {{&a, AccessMode::Read, whole}});
    rt.wait(submit.commit());
    EXPECT_EQ(seen, 12);
}

// The strides of a region without elements do not hang on the submits before.
TEST(Dynamic, a_region_without_elements_has_no_address_and_no_strides) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const dynamic::Array a(rt, ScalarType::Int32, {3, 4}, {{MemoryId::host(), dynamic::box({0, 0}, {3, 4})}});
    const std::int32_t zero = 0;
    a.fill(&zero);
    for (int round = 0; round < 2; round++) {
        std::int64_t strides = -1;
        void* address = &strides;
        dynamic::Submit submit(rt);
        submit.host_function({}, function_of([&](const RunningTask& task) {
                                 strides = task.strides(0)[0] + task.strides(0)[1];
                                 address = task.address(0);
                             }),
                             {{&a, AccessMode::Read, dynamic::box({1, 1}, {1, 3})}});
        rt.wait(submit.commit());
        EXPECT_EQ(strides, 0);
        EXPECT_EQ(address, nullptr);
        Array<float, 2> other = rt.array<float, 2>({5, 77}, {5, 77});
        rt.submit(host(), Host([](kmm::ViewMut<float, 2>) {}), write(other));
        rt.synchronize();
    }
}

TEST(Dynamic, a_submit_may_be_filled_on_one_thread_and_end_on_another) {
    KMM_NEED_DEVICES(1);
    Owned ran, dropped;
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        const auto nothing = [](void*, const RunningTask&) {};
        auto committed = std::make_unique<dynamic::Submit>(rt);
        auto left = std::make_unique<dynamic::Submit>(rt);
        std::thread([&] {
            // The array's last handle goes here.
            const dynamic::Array a(ScalarType::Int32, {16});
            committed->host_function({}, ran.function(nothing), {{&a, AccessMode::Overwrite, a.whole()}});
            left->host_function({}, dropped.function(nothing), {{&a, AccessMode::Overwrite, a.whole()}});
        }).join();
        left.reset();
        EXPECT_EQ(dropped.destroyed, 1);
        rt.wait(committed->commit());
    }
    // A function may be destroyed a little after its task has ended; with the runtime it has been.
    EXPECT_EQ(ran.destroyed, 1);
    EXPECT_EQ(dropped.destroyed, 1);
}

TEST(Dynamic, tasks_of_one_submit_are_of_one_kind) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const auto nothing = [](const RunningTask&) {};
    dynamic::Submit submit(rt);
    submit.host_function({}, function_of(nothing), {});
    expect_says(refusal([&] { submit.device_function(DeviceId(0), {}, function_of(nothing), {}); }), {"each kind"});
    ScaleParameters p;
    dynamic::Kernel kernel = scale_kernel(rt, DeviceId(0), p, 1);
    kernel.table_size = 0;
    expect_says(refusal([&] { submit.kernel(DeviceId(0), {}, kernel, {}); }), {"each kind"});
    const dynamic::Array a(ScalarType::Int32, {16});
    expect_says(
        refusal([&] { submit.host_function({}, function_of(nothing), {{&a, static_cast<AccessMode>(7), a.whole()}}); }),
        {"mode 7"});
    rt.wait(submit.commit());
}

}  // namespace
