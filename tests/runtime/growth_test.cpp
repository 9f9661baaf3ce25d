// What many of a kind cost the thread that makes them, counted in bytes asked of the system: in proportion to their
// number; and what chunks that were used keep. Replaces operator new of the process.
#include "harness.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "driver/registry.hpp"
#include "kmm/graph/compact_history.hpp"
#include "kmm/memory/chunk.hpp"

namespace {

thread_local std::uint64_t bytes_of_this_thread = 0;
/// Of the process, and not given back.
std::atomic<std::int64_t> held_bytes{0};

void* counted(std::size_t bytes) noexcept {
    bytes_of_this_thread += bytes;
    void* const p = std::malloc(bytes == 0 ? 1 : bytes);
    held_bytes += static_cast<std::int64_t>(malloc_usable_size(p));
    return p;
}

void release(void* p) noexcept {
    held_bytes -= static_cast<std::int64_t>(malloc_usable_size(p));
    std::free(p);
}

void* counted_or_throw(std::size_t bytes) {
    void* const p = counted(bytes);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

}  // namespace

// Inlined, the compiler would take them for a pair that does not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted_or_throw(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted_or_throw(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
[[gnu::noinline]] void operator delete(void* p) noexcept { release(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { release(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { release(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { release(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }

namespace {

constexpr std::int64_t few = 8192;

/// What a new thread asks of the system for `f(runtime)`, on a runtime that has done nothing yet.
template<typename F>
std::uint64_t bytes_of_first(F&& f, std::size_t num_devices = 1) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(num_devices));
    std::uint64_t bytes = 0;
    std::thread([&] {
        const std::uint64_t before = bytes_of_this_thread;
        f(rt);
        bytes = bytes_of_this_thread - before;
    }).join();
    rt.synchronize();
    return bytes;
}

/// Twice the work may ask for a little more than twice the bytes: vectors double. Without that it would be four times.
void expect_proportional(std::uint64_t once, std::uint64_t twice) {
    EXPECT_LT(static_cast<double>(twice), 2.8 * static_cast<double>(once)) << once << " and " << twice << " bytes";
}

TEST(Growth, the_first_submit_of_a_thread_costs_in_proportion_to_its_tasks) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    const auto submit = [](std::int64_t tasks) {
        return bytes_of_first([tasks](const RuntimeHandle& rt) { rt.parallel_submit(tasks, 1, Host([] {})); });
    };
    expect_proportional(submit(few), submit(2 * few));
}

TEST(Growth, the_first_copy_of_a_thread_costs_in_proportion_to_the_chunks) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    const auto copy = [](std::int64_t chunks) {
        return bytes_of_first([chunks](const RuntimeHandle& rt) {
            rt.array<char>(Dim<1>(chunks), Dim<1>(1)).copy_from(std::vector<char>(static_cast<std::size_t>(chunks)));
        });
    };
    expect_proportional(copy(few), copy(2 * few));
}

std::vector<std::size_t> numbers_of_devices() {
    if (driver_under_test() == kmm::DriverKind::Host) return {1, 8};
    return {1};
}

constexpr std::int64_t floats_of_4_kib = 1024;

TEST(Growth, an_array_takes_no_more_for_a_million_chunks_than_for_one_until_they_are_used) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    for (const std::size_t devices : numbers_of_devices()) {
        const auto make = [&](std::int64_t chunks) {
            return bytes_of_first(
                [chunks](const RuntimeHandle& rt) {
                    const auto array = rt.array<float>(Dim<1>(chunks * floats_of_4_kib), Dim<1>(floats_of_4_kib));
                    EXPECT_EQ(array.distribution().num_chunks(), static_cast<std::size_t>(chunks));
                },
                devices);
        };
        const std::uint64_t once = make(1'000'000);
        EXPECT_LT(once, 8192u);
        EXPECT_EQ(make(2'000'000), once);
    }
}

/// What is held more for each of `count` chunks of a million that tasks have used, each `apart` from the one before.
std::int64_t bytes_of_a_used_chunk(const RuntimeHandle& rt, std::int64_t count, std::int64_t apart) {
    constexpr std::int64_t chunks = 1'000'000;
    std::int64_t held = 0;
    for (int round = 0; round < 2; round++) {  // the first one makes what stays with the runtime
        std::optional<Array<float>> array = rt.array<float>(Dim<1>(chunks * floats_of_4_kib), Dim<1>(floats_of_4_kib));
        rt.synchronize();
        rt.trim_memory();  // records of tasks
        const std::int64_t before = held_bytes;
        for (std::int64_t i = 0; i < count; i++) {
            const std::int64_t begin = i * apart * floats_of_4_kib;
            rt.submit(host(), Host([](kmm::SubviewMut<float>) {}),
                      overwrite((*array)[kmm::range(begin, begin + floats_of_4_kib)]));
        }
        rt.synchronize();
        rt.trim_memory();
        held = held_bytes - before;
        array.reset();
        (void)rt.stats();  // the runtime has read that the array is gone
        if (round == 1) {
            const std::size_t records = sizeof(kmm::memory::Chunk) + sizeof(kmm::graph::CompactHistory);
            EXPECT_GE(held - (held_bytes - before), count * static_cast<std::int64_t>(records))
                << "lists that have grown stay, records do not";
        }
    }
    return held / count;
}

TEST(Growth, a_chunk_that_is_used_takes_its_records_and_one_alone_a_page_and_all_is_given_back) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    for (const std::size_t devices : numbers_of_devices()) {
        const RuntimeHandle rt = kmm::make_runtime(config_with(devices));
        constexpr std::size_t records = sizeof(kmm::memory::Chunk) + sizeof(kmm::graph::CompactHistory);
        // Replicas, and what heaps and lists of residents know of them.
        const std::size_t others = (devices + 1) * sizeof(kmm::memory::Replica) + 1024;
        const std::int64_t dense = bytes_of_a_used_chunk(rt, 2048, 1);
        EXPECT_LT(dense, static_cast<std::int64_t>(records + others));
        constexpr std::size_t page = 64 * records + 2 * 128;
        const std::int64_t spread = bytes_of_a_used_chunk(rt, 2048, 487);
        EXPECT_LT(spread, static_cast<std::int64_t>(page + others));
        RecordProperty("dense_bytes_" + std::to_string(devices), static_cast<int>(dense));
        RecordProperty("spread_bytes_" + std::to_string(devices), static_cast<int>(spread));
    }
}

/// What the allocator of the system has handed out, aligned blocks among it; 0: it is another one (sanitizers).
std::size_t handed_out() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

void write_many_chunks(const RuntimeHandle& rt, std::int64_t chunks) {
    Array<char> a = rt.array<char>(Dim<1>(chunks), Dim<1>(1));
    rt.parallel_submit(chunks, 1, Host([](kmm::SubviewMut<char>) {}), overwrite(a[_x]));
    rt.synchronize();
}

TEST(Growth, a_thread_keeps_the_lists_of_small_submits_and_not_those_of_large_ones) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const auto bytes_of = [&](std::int64_t tasks) {
        const std::uint64_t before = bytes_of_this_thread;
        rt.parallel_submit(tasks, 1, Host([](kmm::Range<std::int64_t>, kmm::Range<std::int64_t>) {}), _x, _x);
        const std::uint64_t bytes = bytes_of_this_thread - before;
        rt.synchronize();
        return bytes;
    };
    const auto submit = [&](std::int64_t chunks) {
        const std::uint64_t before = bytes_of_this_thread;
        write_many_chunks(rt, chunks);
        return bytes_of_this_thread - before;
    };
    submit(1000);
    rt.trim_memory();
    const std::uint64_t first = submit(1000), again = submit(1000);
    EXPECT_LT(again + 100'000, first) << "its lists are there";
    const std::uint64_t large = submit(100'000);
    EXPECT_GT(submit(100'000), large / 2) << "its lists were given back";
    EXPECT_GT(bytes_of(10), 0u);
}

TEST(Growth, what_threads_keep_of_submits_is_given_back_when_asked_and_with_the_runtime) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    if (handed_out() == 0) GTEST_SKIP() << "another allocator";
    constexpr std::size_t little = std::size_t{2} << 20;
    constexpr std::int64_t chunks = 8000;  // as many as are kept
    std::optional<RuntimeHandle> rt = kmm::make_runtime(config_with(1));
    write_many_chunks(*rt, 1000);
    rt->trim_memory();
    const std::size_t before = handed_out();
    std::vector<Gate> ready(3), go(2);
    std::thread other([&] {
        for (int i = 0; i < 2; i++) {
            write_many_chunks(*rt, chunks);
            ready[static_cast<std::size_t>(i)].open();
            go[static_cast<std::size_t>(i)].wait();
        }
    });
    ready[0].wait();
    write_many_chunks(*rt, 40 * chunks);
    (void)rt->stats();  // the runtime has read that the arrays are gone
    rt->trim_memory();
    EXPECT_LT(handed_out(), before + little);
    go[0].open();
    ready[1].wait();
    EXPECT_GT(handed_out(), before + little) << "lists, and records of tasks";
    rt.reset();
    EXPECT_LT(handed_out(), before + little);
    go[1].open();
    other.join();
}

TEST(Growth, a_host_task_that_waits_with_a_halo_of_27_pieces_takes_6_kib) {
    if (devices_available() == 0) GTEST_SKIP() << "the driver under test has no device here";
    if (handed_out() == 0) GTEST_SKIP() << "another allocator";
    constexpr std::int64_t side = 24, edge = 4;  // chunks, and elements of one
    RuntimeConfig config = config_with(1);
    config.host_threads = 1;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const Dim<3> size(side * edge, side * edge, side * edge), chunk(edge, edge, edge);
    Array<int, 3> a = rt.array<int, 3>(size, chunk);
    const Gate gate;
    const OpenAtEnd open(gate);
    rt.parallel_submit(TileDomain(size, chunk), Host([gate](kmm::SubviewMut<int, 3>) { gate.wait(); }),
                       overwrite(a(_x, _y, _z)));
    const std::size_t before = handed_out();
    std::int64_t tasks = 0;
    for (std::int64_t i = 1; i + 1 < side; i++)
        for (std::int64_t j = 1; j + 1 < side; j++)
            for (std::int64_t k = 1; k + 1 < side; k++, tasks++)
                rt.submit(host(), Host([](kmm::Subview<int, 3>) {}),
                          a(kmm::range(edge * i - 1, edge * i + edge + 1),
                            kmm::range(edge * j - 1, edge * j + edge + 1),
                            kmm::range(edge * k - 1, edge * k + edge + 1)));
    const std::size_t each = (handed_out() - before) / static_cast<std::size_t>(tasks);
    RecordProperty("bytes", static_cast<int>(each));
    EXPECT_LE(each, 6u << 10);
    gate.open();
    rt.synchronize();
}

TEST(Growth, events_of_the_host_driver_cost_in_proportion_to_their_number) {
    const auto make = [](std::int64_t events) {
        const auto driver = kmm::driver::make_host_driver({});
        const std::uint64_t before = bytes_of_this_thread;
        for (std::int64_t i = 0; i < events; i++) {
            kmm::driver::EventHandle event;
            EXPECT_TRUE(driver->create_event(0, false, false, &event).ok());
        }
        return bytes_of_this_thread - before;
    };
    expect_proportional(make(few), make(2 * few));
}

}  // namespace
