// What many of a kind cost the thread that makes them, counted in bytes asked of the system: in proportion to their
// number. Replaces operator new of the process.
#include "harness.hpp"

#include <cstdlib>
#include <new>

#include "driver/registry.hpp"

namespace {

thread_local std::uint64_t bytes_of_this_thread = 0;

void* counted(std::size_t bytes) noexcept {
    bytes_of_this_thread += bytes;
    return std::malloc(bytes == 0 ? 1 : bytes);
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
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace {

constexpr std::int64_t few = 8192;

/// What a new thread asks of the system for `f(runtime)`, on a runtime that has done nothing yet.
template<typename F>
std::uint64_t bytes_of_first(F&& f) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
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
