// copy_to and copy_from with full memories; what a failed copy leaves in its destination.
#include "harness.hpp"

#include <cstring>
#include <random>

#include "kmm/dynamic.hpp"
#include "kmm/runtime/copy_buffers.hpp"

namespace {

/// Blocks of live data that lie about a memory, as small as they are made.
using Fillers = std::vector<Array<std::int32_t>>;
constexpr std::int64_t filler_size = 64;

void fill_memory(const RuntimeHandle& rt, ResourceId where, Fillers* fillers) {
    for (;;) {
        auto filler = rt.array<std::int32_t>(filler_size, Dim<1>(filler_size));
        try {
            if (where.is_host())
                rt.wait(rt.submit(where, Host([](kmm::ViewMut<std::int32_t> v) {
                                      for (std::int64_t i = 0; i < filler_size; i++) v[i] = 3;
                                  }),
                                  overwrite(filler)));
            else
                rt.wait(rt.submit(where, GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<std::int32_t> v) {
                                      d.fill(v, std::int32_t{3});
                                  }),
                                  overwrite(filler)));
        } catch (const kmm::TaskError& e) {
            EXPECT_TRUE(nests<kmm::OutOfMemory>(e, "")) << e.what();
            return;
        }
        fillers->push_back(filler);
    }
}

/// The host first: what devices make leaves for it as long as there is room.
Fillers fill_all_memory(const RuntimeHandle& rt) {
    Fillers fillers;
    fill_memory(rt, host(), &fillers);
    for (std::size_t i = 0; i < num_devices(rt); i++) fill_memory(rt, device(i), &fillers);
    for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_GE(m.current_bytes + 4096, m.limit_bytes);
    return fillers;
}

RuntimeConfig small_config(std::size_t num_devices) {
    RuntimeConfig config = config_with(num_devices);
    config.device_memory_limit = std::size_t{128} << 10;
    limit_host_memory(config, std::size_t{256} << 10);
    config.memory_wait = 0;
    return config;
}

/// A two-dimensional array in random chunks whose only valid content is on devices: a task there writes each of them.
struct OnDevices {
    OnDevices(const RuntimeHandle& rt, unsigned seed, std::int64_t rows, std::int64_t columns)
        : shape(rows, columns), reference(static_cast<std::size_t>(rows * columns)) {
        std::mt19937 random(seed);
        const auto pick = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        std::vector<kmm::ArrayChunk<2>> chunks{{MemoryId::host(), Point<2>(), shape}};
        for (int cut = 0; cut < 8; cut++) {
            kmm::ArrayChunk<2>& c =
                chunks[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(chunks.size()) - 1))];
            const auto axis = static_cast<std::size_t>(pick(0, 1));
            if (c.size[axis] < 2) continue;
            const std::int64_t at = pick(1, c.size[axis] - 1);
            kmm::ArrayChunk<2> rest = c;
            rest.offset[axis] += at;
            rest.size[axis] -= at;
            c.size[axis] = at;
            chunks.push_back(rest);
        }
        for (std::size_t i = 0; i < chunks.size(); i++) {
            const std::size_t d = i % num_devices(rt);
            chunks[i].owner_id = MemoryId(DeviceId(static_cast<std::uint8_t>(d)));
        }
        for (auto& v : reference) v = static_cast<std::int32_t>(pick(0, 1 << 30));
        array = rt.array<std::int32_t, 2>(shape, Distribution<2>::from_chunks(shape, chunks));
        array.copy_from(reference);
        kmm::Domain domain;
        for (const kmm::ArrayChunk<2>& c : chunks)
            domain.chunks.push_back({ResourceId(c.owner_id.as_device()), kmm::DomainPoint(c.offset[1], c.offset[0]),
                                     kmm::DomainDim(c.size[1], c.size[0])});
        rt.parallel_submit(domain, GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int32_t, 2>) {}),
                           write(array[_y][_x]));
        rt.synchronize();
    }
    std::vector<std::int32_t> part(std::int64_t row, std::int64_t column, std::int64_t rows,
                                   std::int64_t columns) const {
        std::vector<std::int32_t> values;
        for (std::int64_t i = row; i < row + rows; i++)
            for (std::int64_t j = column; j < column + columns; j++)
                values.push_back(reference[static_cast<std::size_t>(i * shape[1] + j)]);
        return values;
    }

    Dim<2> shape;
    std::vector<std::int32_t> reference;
    Array<std::int32_t, 2> array;
};

TEST(CopyOut, a_program_reads_its_data_out_where_devices_and_host_are_full_of_live_data) {
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > devices_available()) break;
        for (unsigned seed = 0; seed < static_cast<unsigned>(repeat(6, 2)); seed++) {
            SCOPED_TRACE(std::to_string(devices) + " devices, seed " + std::to_string(seed));
            const RuntimeHandle rt = kmm::make_runtime(small_config(devices));
            const OnDevices data(rt, seed, 60, 170);
            const Fillers fillers = fill_all_memory(rt);
            EXPECT_EQ(data.array.copy_to_vector(), data.reference);
            std::mt19937 random(seed);
            const auto pick = [&](std::int64_t low, std::int64_t high) {
                return std::uniform_int_distribution<std::int64_t>(low, high)(random);
            };
            const kmm::dynamic::Array same(data.array);
            for (int round = 0; round < 4; round++) {
                const std::int64_t row = pick(0, 59), column = pick(0, 169);
                const std::int64_t rows = pick(1, 60 - row), columns = pick(1, 170 - column);
                const std::vector<std::int32_t> expected = data.part(row, column, rows, columns);
                std::vector<std::int32_t> values(expected.size(), -1);
                data.array.copy_to(values.data(), Point<2>(row, column), Dim<2>(rows, columns));
                EXPECT_EQ(values, expected);
                // By columns, through the interface without types.
                std::vector<std::int32_t> turned(expected.size(), -1);
                const std::int64_t strides[] = {1, rows};
                same.copy_to(turned.data(), kmm::dynamic::box({row, column}, {row + rows, column + columns}), strides);
                for (std::int64_t i = 0; i < rows; i++)
                    for (std::int64_t j = 0; j < columns; j++)
                        ASSERT_EQ(turned[static_cast<std::size_t>(j * rows + i)],
                                  expected[static_cast<std::size_t>(i * columns + j)]);
            }
            for (const Array<std::int32_t>& filler : {fillers.front(), fillers.back()})
                EXPECT_EQ(filler.copy_to_vector(), std::vector<std::int32_t>(filler_size, 3));
            for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_LE(m.peak_bytes, m.limit_bytes);
        }
    }
}

TEST(CopyOut, to_device_memory_comes_from_the_device_where_the_data_is) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const OnDevices data(rt, 1, 30, 70);
    auto staging = one_chunk<std::int32_t>(rt, 30 * 70);
    Gate gate;
    const OpenAtEnd open(gate);
    auto address = std::make_shared<std::promise<std::int32_t*>>();
    std::future<std::int32_t*> known = address->get_future();
    rt.submit(device(0), GPU([gate, address](kmm::DeviceResource& d, kmm::GPUViewMut<std::int32_t> v) {
                  d.fill(v, std::int32_t{0});
                  d.synchronize();
                  address->set_value(v.data());
                  gate.wait();
              }),
              overwrite(staging));
    std::int32_t* const on_device = known.get();
    const kmm::RuntimeStats before = rt.stats();
    data.array.copy_to(on_device);
    const kmm::RuntimeStats copied = rt.stats() - before;
    gate.open();
    EXPECT_EQ(staging.copy_to_vector(), data.reference);
    EXPECT_EQ(copied.device_to_device.bytes, data.reference.size() * sizeof(std::int32_t));
    EXPECT_EQ(copied.device_to_host.bytes, 0u);
    EXPECT_EQ(copied.host_to_device.bytes, 0u);
}

TEST(CopyOut, elements_and_rows_larger_than_a_buffer_are_read_in_pieces) {
    struct Large {
        std::int64_t values[80'000];
    };
    static_assert(sizeof(Large) > kmm::detail::CopyBuffers::half_bytes);
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        auto large = std::make_unique<Large[]>(3);
        for (int i = 0; i < 3; i++)
            for (std::int64_t k = 0; k < 80'000; k++) large[static_cast<std::size_t>(i)].values[k] = 1000 * k + i;
        auto a = rt.array<Large>(3, Dim<1>(2));
        a.copy_from(large.get());
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, 2), chunk_of(device(num_devices(rt) - 1), 2, 1)},
                           GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<Large>) {}), write(a[_x]));
        auto read = std::make_unique<Large[]>(3);
        a.copy_to(read.get());
        EXPECT_EQ(std::memcmp(read.get(), large.get(), 3 * sizeof(Large)), 0);

        const OnDevices data(rt, 5, 5, 400'000);
        EXPECT_EQ(data.array.copy_to_vector(), data.reference);
        std::vector<std::int32_t> inner(3 * 300'000);
        data.array.copy_to(inner.data(), Point<2>(1, 50'000), Dim<2>(3, 300'000));
        EXPECT_EQ(inner, data.part(1, 50'000, 3, 300'000));
    });
}

TEST(CopyOut, very_many_small_chunks_come_from_devices_by_few_calls_of_the_driver) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        constexpr std::int64_t count = 2000, size = 7;
        auto a = rt.array<std::int32_t>(count * size, Dim<1>(size));
        const auto values = counting<std::int32_t>(count * size);
        a.copy_from(values);
        kmm::Domain domain;
        for (std::int64_t i = 0; i < count; i++)
            domain.chunks.push_back(chunk_of(device(static_cast<std::size_t>(i) % num_devices(rt)), i * size, size));
        rt.parallel_submit(domain, GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int32_t>) {}), write(a[_x]));
        EXPECT_EQ(a.copy_to_vector(), values);
    });
}

TEST(CopyOut, its_buffers_are_bounded_beside_the_limits_in_the_report_and_given_back) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(small_config(1));
    const auto buffers = [&] {
        const std::string report = rt.report(kmm::ReportFormat::Json), key = "\"copy_buffers\":{\"bytes\":";
        return std::stoul(report.substr(report.find(key) + key.size()));
    };
    EXPECT_EQ(buffers(), 0u);
    const OnDevices data(rt, 2, 60, 170);
    const kmm::RuntimeStats before = rt.stats();
    EXPECT_EQ(data.array.copy_to_vector(), data.reference);
    const kmm::RuntimeStats copied = rt.stats() - before;
    EXPECT_EQ(copied.device_to_host.bytes, data.reference.size() * sizeof(std::int32_t));
    EXPECT_EQ(copied.host_to_host.bytes, 0u);
    EXPECT_EQ(copied.evictions, 0u);
    EXPECT_EQ(copied.memory(MemoryId::host()).current_bytes, before.memory(MemoryId::host()).current_bytes);
    EXPECT_GT(buffers(), 0u);
    EXPECT_LE(buffers(), kmm::detail::CopyBuffers::most_buffers * kmm::detail::CopyBuffers::buffer_bytes);
    EXPECT_NE(rt.report().find("for copies to the program's memory, beside the limits"), std::string::npos);
    rt.trim_memory();
    EXPECT_EQ(buffers(), 0u);
    EXPECT_EQ(data.array.copy_to_vector(), data.reference);
}

TEST(CopyOut, many_threads_that_copy_at_once_share_few_buffers) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const OnDevices data(rt, 3, 40, 5000);
        std::vector<std::thread> threads;
        for (int t = 0; t < 6; t++)
            threads.emplace_back([&] {
                for (int i = 0; i < 5; i++) EXPECT_EQ(data.array.copy_to_vector(), data.reference);
            });
        for (std::thread& t : threads) t.join();
    });
}

TEST(CopyIn, one_that_finds_no_memory_for_a_chunk_leaves_no_new_parts_that_can_be_read) {
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > devices_available()) break;
        SCOPED_TRACE(std::to_string(devices) + " devices");
        const RuntimeHandle rt = kmm::make_runtime(small_config(devices));
        Fillers fillers = fill_all_memory(rt);
        // Room for three of the eight chunks.
        constexpr std::int64_t chunk = 4 * filler_size, size = 8 * chunk;
        fillers.erase(fillers.begin() + 100, fillers.begin() + 112);
        auto a = rt.array<std::int32_t>(size, Dim<1>(chunk));
        const auto values = counting<std::int32_t>(size);
        const auto error = thrown_by<kmm::TaskError>([&] { a.copy_from(values); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(nests<kmm::OutOfMemory>(*error, "found no memory")) << error->what();
        rt.synchronize();  // the caller was told of every chunk
        std::vector<std::int32_t> read(static_cast<std::size_t>(size), 77);
        EXPECT_THROW(a.copy_to(read.data()), kmm::TaskError);
        for (std::int64_t i = 0; i < 8; i++)
            EXPECT_THROW(a.copy_to(read.data(), Point<1>(i * chunk), Dim<1>(chunk)), kmm::TaskError) << i;
        EXPECT_EQ(read, std::vector<std::int32_t>(static_cast<std::size_t>(size), 77));
        fillers.clear();
        a.copy_from(values);
        EXPECT_EQ(a.copy_to_vector(), values);
    }
}

}  // namespace
