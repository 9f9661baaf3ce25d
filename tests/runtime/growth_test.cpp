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
