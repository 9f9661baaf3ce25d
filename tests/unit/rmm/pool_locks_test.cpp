// Pools call the driver without their locks: a call may take long, or wait for work whose callbacks allocate.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "forwarding_driver.hpp"
#include "lock_taker.hpp"
#include "lock_watch.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::Code;
using kmm::driver::StreamHandle;
using kmm::driver::testing::ScriptedDriver;
using mr::detail::pool_engine;
using rmm_test::foreign_stream;
using rmm_test::lock_taker;
using rmm_test::lock_watch;
using rmm_test::non_blocking;
using rmm_test::watching;

enum class made_of { upstream, virtual_memory };

/// Of the driver of the innermost scope.
std::unique_ptr<pool_engine> make_pool(made_of what, mr::cuda_memory_resource& cuda, std::size_t initial_bytes) {
    mr::detail::pool_options options;
    options.maximum_bytes = 128 * MiB;
    options.ordered_upstream = false;
    options.initial_bytes = what == made_of::upstream ? initial_bytes : 0;
    if (what == made_of::upstream) return std::make_unique<pool_engine>(cuda, options);
    mr::detail::virtual_source_options source;
    source.maximum_bytes = 128 * MiB;
    return std::make_unique<pool_engine>(
        std::make_unique<mr::detail::virtual_source>(rmm::detail::the_driver(), 0, source), options);
}

/// Blocks of two streams, each freed on the other's or behind both.
void use(pool_engine& pool, cuda_stream_view a, cuda_stream_view b) {
    const cuda_stream_view both[] = {a, b};
    void* const small = pool.allocate(1 * KiB, a);
    void* const of_both = pool.allocate(3 * KiB, b);
    void* const large = pool.allocate(5 * MiB, a);
    pool.free(small, 1 * KiB, {&b, 1});
    pool.free(of_both, 3 * KiB, both);
    pool.free(large, 5 * MiB, {&b, 1});
    void* const own = pool.allocate(2 * KiB, a);
    pool.free(own, 2 * KiB, {&a, 1});
}

/// Each round brings streams that did not exist before.
void use_and_end_streams(pool_engine& pool, kmm::driver::Driver& driver, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        const cuda_stream own = non_blocking();
        StreamHandle foreign;
        ASSERT_TRUE(driver.create_stream(0, true, 0, &foreign).ok());
        const cuda_stream_view foreign_view{static_cast<cudaStream_t>(foreign.native)};
        use(pool, own, foreign_view);
        use(pool, foreign_view, cuda_stream_view{});
        std::thread([&] {
            const rmm::detail::driver_scope same_driver(driver);
            use(pool, cuda_stream_per_thread, own);
        }).join();
        if (i % 10 == 9) pool.trim(0);
        EXPECT_TRUE(driver.destroy_stream(foreign).ok());
    }
}

TEST(PoolLocks, none_is_held_over_a_call_of_the_driver_while_streams_come_and_go) {
    for (const bool device_events : {true, false}) {
        const auto host = kmm::driver::make_host_driver(
            {.num_devices = 1, .memory_bytes = 256 * MiB, .num_threads = 0, .device_events = device_events});
        lock_watch driver(*host);
        const rmm::detail::driver_scope scope(driver);
        mr::cuda_memory_resource cuda;
        for (const made_of what : {made_of::upstream, made_of::virtual_memory}) {
            const auto pool = make_pool(what, cuda, 64 * MiB);
            const watching here(driver, *pool);
            const std::size_t destroyed_before = driver.num_calls("destroy_event");
            use_and_end_streams(*pool, driver, 400);
            EXPECT_EQ(driver.under_lock(), "");
            // Or else the test has seen no end of a stream.
            EXPECT_GE(driver.num_calls("destroy_event") - destroyed_before, 100u);
            EXPECT_GE(driver.num_calls("record_event"), 100u);
        }
    }
}

TEST(PoolLocks, none_is_held_over_a_call_of_the_driver_where_calls_fail) {
    ScriptedDriver scripted({.num_devices = 1, .memory_bytes = 128 * MiB});
    // Nothing could be done about these, or tests make them.
    scripted.exempt({"current_device", "set_current_device", "memory_info", "free", "create_stream", "destroy_stream"});
    lock_watch driver(scripted);
    const rmm::detail::driver_scope scope(driver);
    mr::cuda_memory_resource cuda;
    std::size_t num_failures = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
        std::mt19937 random(seed);
        const made_of what = seed % 2 == 0 ? made_of::upstream : made_of::virtual_memory;
        const auto pool = make_pool(what, cuda, 0);
        struct block {
            void* ptr;
            std::size_t bytes;
        };
        std::vector<block> live;
        std::vector<cuda_stream> streams;
        for (int i = 0; i < 4; ++i) streams.push_back(non_blocking());
        {
            const watching here(driver, *pool);
            for (int step = 0; step < 200; ++step) {
                const cuda_stream_view stream = streams[random() % streams.size()];
                if (random() % 2 == 0)
                    scripted.fail_at(1 + random() % 8, random() % 2 ? Code::unknown : Code::out_of_memory);
                if (random() % 3 != 0 || live.empty()) {
                    const std::size_t bytes = random() % 2 != 0 ? 1 + random() % (64 * KiB) : 1 + random() % (40 * MiB);
                    mr::detail::refusal why;
                    if (void* const ptr = pool->try_allocate(bytes, stream, &why)) live.push_back({ptr, bytes});
                } else {
                    std::swap(live[random() % live.size()], live.back());
                    pool->free(live.back().ptr, live.back().bytes, {&stream, 1});
                    live.pop_back();
                }
                if (step % 25 == 24) pool->trim(0);
            }
            num_failures = scripted.num_failures();
            scripted.clear_failures();
        }
        const cuda_stream_view last = streams.front();
        for (const block& b : live) pool->free(b.ptr, b.bytes, {&last, 1});
    }
    EXPECT_EQ(driver.under_lock(), "");
    EXPECT_GE(num_failures, 500u);
}

TEST(PoolLocks, an_event_whose_thread_did_not_wait_for_the_lock_goes_with_the_pool) {
    ScriptedDriver scripted;
    const rmm::detail::driver_scope on(scripted);
    mr::cuda_memory_resource cuda;
    for (int i = 0; i < 200; ++i) {
        const auto pool = make_pool(made_of::upstream, cuda, 32 * MiB);
        const foreign_stream stream(scripted);
        void* const block = pool->allocate(32 * MiB, stream.view());
        const cuda_stream_view frees = stream.view();
        const lock_taker others(*pool);
        pool->free(block, 32 * MiB, {&frees, 1});
    }
    EXPECT_GT(scripted.count("create_event"), 0u);
    EXPECT_EQ(scripted.count("create_event"), scripted.count("destroy_event"));
}

TEST(PoolLocks, small_frees_record_an_event_sooner_or_later_however_often_the_lock_is_taken) {
    ScriptedDriver scripted({.num_devices = 1, .memory_bytes = 256 * MiB});
    const rmm::detail::driver_scope on(scripted);
    mr::cuda_memory_resource cuda;
    for (const made_of what : {made_of::upstream, made_of::virtual_memory}) {
        const auto pool = make_pool(what, cuda, 128 * MiB);
        const foreign_stream stream(scripted);
        const cuda_stream_view frees = stream.view();
        const std::size_t before = scripted.count("record_event");
        const lock_taker others(*pool);
        // Each recording is put off four times at most, by eight frees.
        for (int i = 0; i < 20 * 2 * 64; ++i) pool->free(pool->allocate(1 * KiB, frees), 1 * KiB, {&frees, 1});
        EXPECT_GE(scripted.count("record_event") - before, 20u);
    }
}

/// Notes whether the host waits for the device under a lock of the pool.
class watches_waits final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    pool_engine* pool = nullptr;
    int num_waits = 0;
    int num_under_lock = 0;

  protected:
    void called(const char* call) noexcept override {
        if (pool == nullptr || std::string_view(call) != "synchronize_device") return;
        ++num_waits;
        num_under_lock += pool->is_locked();
    }
};

TEST(PoolLocks, are_free_while_the_end_of_the_pool_waits_for_the_device) {
    ScriptedDriver scripted;
    watches_waits driver(scripted);
    const rmm::detail::driver_scope scope(driver);
    mr::cuda_memory_resource cuda;
    std::unique_ptr<pool_engine> pool = make_pool(made_of::upstream, cuda, 16 * MiB);
    StreamHandle made;
    ASSERT_TRUE(scripted.create_stream(0, true, 0, &made).ok());
    const cuda_stream_view stream{static_cast<cudaStream_t>(made.native)};
    pool->free(pool->allocate(5 * MiB, stream), 5 * MiB, {&stream, 1});
    // The users of the memory cannot be waited for otherwise.
    scripted.fail_call("device_event_record", 1, Code::unknown);
    driver.pool = pool.get();
    testing::internal::CaptureStderr();
    pool.reset();
    (void)testing::internal::GetCapturedStderr();
    EXPECT_EQ(driver.num_waits, 1);
    EXPECT_EQ(driver.num_under_lock, 0);
}

}  // namespace
