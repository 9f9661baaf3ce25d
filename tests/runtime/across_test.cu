// Regions that cross chunks, in corners that random programs hardly meet: failures, full memories, debug mode.
#include "harness.hpp"

namespace {

constexpr std::int64_t n = 512;  // elements of a chunk
constexpr std::size_t chunk_bytes = n * sizeof(std::int64_t);

__global__ void set_to(kmm::GPUSubviewMut<std::int64_t> x, std::int64_t value) {
    const std::int64_t i = x.begin() + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < x.end()) x[i] = value + i;
}

__global__ void copy_to_other(kmm::GPUSubviewMut<std::int64_t> to, kmm::GPUSubview<std::int64_t> from,
                              kmm::GPUSubviewMut<std::int64_t> replaced, std::int64_t value) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < to.end() - to.begin()) to[to.begin() + i] = i < from.end() - from.begin() ? from[from.begin() + i] : 0;
    if (i < replaced.end() - replaced.begin()) replaced[replaced.begin() + i] = value;
}

__global__ void add_neighbours(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> to,
                               kmm::GPUSubview<std::int64_t> from) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    const std::int64_t left = i > from.begin() ? from[i - 1] : 0;
    const std::int64_t right = i + 1 < from.end() ? from[i + 1] : 0;
    to[i] = left + from[i] + right;
}

std::vector<std::int64_t> with_neighbours_added(const std::vector<std::int64_t>& old) {
    std::vector<std::int64_t> sums(old.size());
    for (std::size_t i = 0; i < old.size(); i++)
        sums[i] = (i > 0 ? old[i - 1] : 0) + old[i] + (i + 1 < old.size() ? old[i + 1] : 0);
    return sums;
}

Array<std::int64_t> chunked(const RuntimeHandle& rt, const std::vector<std::int64_t>& values) {
    Array<std::int64_t> a = rt.array<std::int64_t>(static_cast<std::int64_t>(values.size()), Dim<1>(n));
    a.copy_from(values);
    return a;
}

std::vector<DomainChunk> chunks_on(const RuntimeHandle& rt, std::int64_t count) {
    std::vector<DomainChunk> chunks;
    for (std::int64_t c = 0; c < count; c++)
        chunks.push_back(chunk_of(device(static_cast<std::size_t>(c) % num_devices(rt)), c * n, n));
    return chunks;
}

// Records exist around these places alone: inside a page of them, across two pages, across two tables of pages, at both
// ends.
TEST(AcrossChunks, of_an_array_of_very_many_chunks_few_are_used_and_their_neighbours_are_not_missed) {
    constexpr std::int64_t chunks = 1'000'000;
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.array<std::int64_t>(chunks * n, Dim<1>(n));
    auto b = rt.array<std::int64_t>(chunks * n, Dim<1>(n));
    for (const std::int64_t first : {0l, 20l, 62l, 32'766l, chunks - 4}) {
        SCOPED_TRACE("chunks from " + std::to_string(first));
        const std::int64_t begin = first * n, size = 4 * n;
        std::vector<std::int64_t> expected = counting<std::int64_t>(size);
        a.copy_from(expected.data(), kmm::Point<1>(begin), Dim<1>(size));
        const std::vector tasks{chunk_of(device(0), begin, n), chunk_of(device(0), begin + n, 2 * n),
                                chunk_of(device(0), begin + 3 * n, n)};
        for (int step = 0; step < 6; step++) {
            auto& from = step % 2 == 0 ? a : b;
            auto& to = step % 2 == 0 ? b : a;
            // The halo is cut off at the place's ends: beyond them nothing was written.
            for (const DomainChunk& task : tasks) {
                const std::int64_t low = task.offset[0], high = low + task.size[0];
                rt.parallel_submit(std::vector{task}, kmm::GPUKernel(add_neighbours, dim3(64)), _x, overwrite(to[_x]),
                                   from[kmm::range(std::max(low - 1, begin), std::min(high + 1, begin + size))]);
            }
            expected = with_neighbours_added(expected);
        }
        std::vector<std::int64_t> found(static_cast<std::size_t>(size));
        a.copy_to(found.data(), kmm::Point<1>(begin), Dim<1>(size));
        EXPECT_EQ(found, expected);
    }
    const auto unread = thrown_by<kmm::UninitializedRead>([&] {
        rt.submit(device(0), kmm::GPUKernel(set_to, dim3(64)).grid(dim3(1)), overwrite(b[kmm::range(0, n)]),
                  std::int64_t{1});
        rt.submit(host(), Host([](kmm::Subview<std::int64_t>) {}), a[kmm::range(3 * n, 6 * n)]);
    });
    ASSERT_NE(unread, nullptr);
    ASSERT_EQ(unread->region().size(), 1u);
    EXPECT_EQ(unread->region()[0].begin, 4 * n);
    EXPECT_EQ(unread->region()[0].end, 5 * n);
    a.synchronize();
}

// A write-back that was cancelled has settled long before an earlier task has.
TEST(AcrossChunks, what_a_failed_task_was_to_write_is_not_read_while_an_earlier_task_still_runs) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = chunked(rt, counting<std::int64_t>(2 * n)).named("a");
    rt.synchronize();
    Gate gate;
    const OpenAtEnd open(gate);
    rt.submit(host(), Host([gate] { gate.wait(); }).named("slow"));
    const kmm::EventId failing = rt.submit(
        host(), Host([](kmm::SubviewMut<std::int64_t>) { throw std::runtime_error("no values"); }).named("bad"),
        write(a[kmm::range(n / 2, n + n / 2)]));
    EXPECT_NE(thrown_by<kmm::TaskError>([&] { rt.wait(failing); }), nullptr);
    const auto read = thrown_by<kmm::TaskError>([&] { (void)a.copy_to_vector(); });
    ASSERT_NE(read, nullptr);
    EXPECT_TRUE(nests<std::runtime_error>(*read, "no values")) << read->what();
    const auto task = thrown_by<kmm::TaskError>(
        [&] { rt.wait(rt.submit(host(), Host([](kmm::Subview<std::int64_t>) {}), a[kmm::range(n, n + 2)])); });
    EXPECT_NE(task, nullptr);
    EXPECT_EQ(rt.stats().tasks_failed, 1u);
}

// Two dirty chunks fill the device; the snapshot of one, which the first task of the submit replaces, comes third.
TEST(AcrossChunks, a_snapshot_is_kept_of_what_an_earlier_task_of_the_submit_replaces_in_a_full_memory) {
    for (std::int64_t repeat = 0; repeat < 20; repeat++) {
        RuntimeConfig config = config_with(1);
        config.device_memory_limit = 3 * chunk_bytes;
        const RuntimeHandle rt = kmm::make_runtime(config);
        auto a = rt.array<std::int64_t>(3 * n, Dim<1>(n));
        for (std::int64_t c = 0; c < 3; c++)
            rt.submit(device(0), kmm::GPUKernel(set_to, dim3(64)).grid(dim3(8)),
                      overwrite(a[kmm::range(c * n, c * n + n)]), 10 + c);
        rt.synchronize();
        // Task 0 replaces chunk 0 and reads nothing; task 1 reads half of what chunk 0 was.
        const std::vector chunks{chunk_of(device(0), 0, n), chunk_of(device(0), n + n / 2, n / 2)};
        auto two = chunked(rt, std::vector<std::int64_t>(2 * n, 0));
        rt.parallel_submit(chunks, kmm::GPUKernel(copy_to_other, dim3(64)).grid(dim3(8)), overwrite(two[_x]),
                           a[kmm::range(_x - n, _x - n + 1)], overwrite(a[_x]), std::int64_t{7});
        std::vector<std::int64_t> values = two.copy_to_vector();
        for (std::int64_t i = 0; i < n / 2; i++)
            ASSERT_EQ(values[static_cast<std::size_t>(n + n / 2 + i)], 10 + n / 2 + i);
        values = a.copy_to_vector();
        for (std::int64_t i = 0; i < 3 * n; i += n / 2)
            EXPECT_EQ(values[static_cast<std::size_t>(i)], i < n || i == n + n / 2 ? 7 : 10 + i / n + i) << i;
        if (::testing::Test::HasFailure()) return;
    }
}

TEST(AcrossChunks, a_stencil_in_place_runs_in_debug_mode_too) {
    for (const std::size_t devices : {1, 2}) {
        if (too_few_devices(devices)) break;
        RuntimeConfig config = config_with(devices);
        config.debug_mode = true;
        const RuntimeHandle rt = kmm::make_runtime(config);
        std::vector<std::int64_t> expected = counting<std::int64_t>(4 * n);
        auto a = chunked(rt, expected);
        for (int step = 0; step < 3; step++) {
            rt.parallel_submit(chunks_on(rt, 4), kmm::GPUKernel(add_neighbours, dim3(64)), _x, write(a[_x]),
                               a[kmm::range(_x - 1, _x + 2)]);
            expected = with_neighbours_added(expected);
        }
        EXPECT_EQ(a.copy_to_vector(), expected);
    }
}

// Each device has a row of chunks; its tasks read an element of the devices beside it.
TEST(AcrossChunks, of_a_stencil_over_several_devices_the_edges_alone_are_copied) {
    constexpr std::int64_t chunks_of_each = 3;
    for (const std::size_t devices : {2, 4})
        for (const bool debug_mode : {false, true}) {
            if (too_few_devices(devices)) break;
            RuntimeConfig config = config_with(devices);
            config.debug_mode = debug_mode;
            const RuntimeHandle rt = kmm::make_runtime(config);
            const auto count = static_cast<std::int64_t>(devices) * chunks_of_each;
            std::vector<DomainChunk> tasks;
            for (std::int64_t c = 0; c < count; c++)
                tasks.push_back(chunk_of(device(static_cast<std::size_t>(c / chunks_of_each)), c * n, n));
            auto a = rt.array<std::int64_t>(count * n, Dim<1>(n)), b = rt.array<std::int64_t>(count * n, Dim<1>(n));
            rt.parallel_submit(tasks, kmm::GPUKernel(set_to, dim3(64)), overwrite(a[_x]), std::int64_t{5});
            std::vector<std::int64_t> expected = counting<std::int64_t>(count * n);
            for (std::int64_t& value : expected) value += 5;
            kmm::RuntimeStats before;
            constexpr int first_steps = 2, steps = 8;
            for (int step = 0; step < steps; step++) {
                if (step == first_steps) {  // chunks have come to lie side by side
                    rt.synchronize();
                    before = rt.stats();
                }
                rt.parallel_submit(tasks, kmm::GPUKernel(add_neighbours, dim3(64)), _x,
                                   overwrite((step % 2 == 0 ? b : a)[_x]),
                                   (step % 2 == 0 ? a : b)[kmm::range(_x - 1, _x + 2)]);
                expected = with_neighbours_added(expected);
            }
            rt.synchronize();
            const kmm::RuntimeStats copied = rt.stats() - before;
            const std::uint64_t edges = 2 * (devices - 1) * (steps - first_steps);
            EXPECT_EQ(copied.device_to_device.bytes, edges * sizeof(std::int64_t));
            EXPECT_EQ(copied.device_to_device.copies, edges);
            EXPECT_EQ(copied.gathered_bytes + copied.snapshot_bytes, 0u);
            EXPECT_EQ(copied.host_to_device.bytes + copied.device_to_host.bytes, 0u);
            EXPECT_EQ(a.copy_to_vector(), expected);
        }
}

// Nothing leaves the host, and the copies of all tasks together are more than it has.
TEST(AcrossChunks, functions_whose_copies_would_fill_the_host_run_a_few_at_a_time) {
    constexpr std::int64_t count = 8;
    for (const std::size_t spare_chunks : {3, 5}) {
        RuntimeConfig config = config_with(1);
        config.device_memory_limit = 4 * chunk_bytes;
        limit_host_memory(config, (2 * count + spare_chunks) * chunk_bytes);
        const RuntimeHandle rt = kmm::make_runtime(config);
        std::vector<std::int64_t> values = counting<std::int64_t>(count * n);
        auto a = chunked(rt, values), b = rt.array<std::int64_t>(count * n, Dim<1>(n));
        std::vector<DomainChunk> chunks;
        for (std::int64_t c = 0; c < count; c++) chunks.push_back(chunk_of(host(), c * n, n));
        for (int step = 0; step < 4; step++) {
            rt.parallel_submit(
                chunks,
                Host([](kmm::Range<std::int64_t> range, kmm::SubviewMut<std::int64_t> to,
                        kmm::Subview<std::int64_t> from) {
                    for (std::int64_t i = range.begin; i < range.end; i++)
                        to[i] = (i > from.begin() ? from[i - 1] : 0) + from[i] + (i + 1 < from.end() ? from[i + 1] : 0);
                }),
                _x, overwrite((step % 2 == 0 ? b : a)[_x]), (step % 2 == 0 ? a : b)[kmm::range(_x - 1, _x + 2)]);
            values = with_neighbours_added(values);
        }
        EXPECT_NO_THROW(rt.synchronize());
        EXPECT_EQ(a.copy_to_vector(), values);
    }
}

}  // namespace
