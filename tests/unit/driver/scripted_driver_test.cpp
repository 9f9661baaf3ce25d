// Owns: the scripted driver, on which the tests of the layers above stand.
#include "scripted_driver.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace {

using namespace kmm::driver;
using namespace kmm::driver::testing;

class Scripted : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(driver.create_stream(0, true, 0, &a).ok());
        ASSERT_TRUE(driver.create_stream(0, true, 0, &b).ok());
        ASSERT_TRUE(driver.create_event(0, false, false, &event).ok());
        ASSERT_TRUE(driver.allocate(0, 1000, &memory).ok());
        driver.clear_log();
    }
    Status fill(char value, StreamHandle s) { return driver.fill(memory, &value, 1, 1000, s); }
    char first() const { return *static_cast<const char*>(memory); }

    ScriptedDriver driver{{2, 1 << 20}};
    StreamHandle a, b;
    EventHandle event;
    void* memory = nullptr;
};

TEST_F(Scripted, work_runs_at_once_in_automatic_mode) {
    ASSERT_TRUE(fill('x', a).ok());
    EXPECT_EQ(first(), 'x');
    EXPECT_EQ(driver.num_pending(), 0u);
    ASSERT_TRUE(driver.record_event(event, a).ok());
    EXPECT_TRUE(driver.query_event(event).ok());
}

TEST_F(Scripted, in_manual_mode_time_is_the_tests) {
    driver.set_automatic(false);
    ASSERT_TRUE(fill('x', a).ok());
    ASSERT_TRUE(fill('y', a).ok());
    ASSERT_TRUE(driver.record_event(event, a).ok());
    EXPECT_EQ(driver.query_event(event).code, Code::not_ready);
    EXPECT_EQ(driver.num_pending(), 3u);
    EXPECT_TRUE(driver.step());
    EXPECT_EQ(first(), 'x');
    EXPECT_TRUE(driver.step());
    EXPECT_EQ(first(), 'y');
    EXPECT_TRUE(driver.step());
    EXPECT_TRUE(driver.query_event(event).ok());
    EXPECT_FALSE(driver.step());
}

TEST_F(Scripted, a_held_stream_holds_who_waits_for_it) {
    driver.hold(a);
    ASSERT_TRUE(driver.record_event(event, a).ok());
    ASSERT_TRUE(driver.wait_event(b, event).ok());
    ASSERT_TRUE(fill('z', b).ok());
    EXPECT_NE(first(), 'z');
    EXPECT_EQ(driver.query_stream(b).code, Code::not_ready);
    driver.release(a);
    EXPECT_EQ(first(), 'z');
    EXPECT_TRUE(driver.query_stream(b).ok());
}

TEST_F(Scripted, a_wait_for_held_work_ends_when_another_thread_releases_it) {
    driver.hold(a);
    ASSERT_TRUE(fill('w', a).ok());
    std::thread other([&] { driver.release(a); });
    EXPECT_TRUE(driver.synchronize_stream(a).ok());
    other.join();
    EXPECT_EQ(first(), 'w');
}

TEST_F(Scripted, the_nth_call_fails_and_has_no_effect) {
    driver.fail_at(3, Code::out_of_memory);
    void* p = nullptr;
    EXPECT_TRUE(fill('a', a).ok());
    EXPECT_TRUE(driver.record_event(event, a).ok());
    EXPECT_EQ(driver.allocate(0, 256, &p).code, Code::out_of_memory);
    EXPECT_EQ(p, nullptr);
    EXPECT_EQ(driver.take_last_error().code, Code::out_of_memory);
    EXPECT_TRUE(driver.allocate(0, 256, &p).ok());
    EXPECT_TRUE(driver.free(p).ok());
    EXPECT_EQ(driver.num_failures(), 1u);
}

TEST_F(Scripted, the_nth_call_of_a_name_fails) {
    driver.fail_call("fill", 2, Code::invalid_argument);
    EXPECT_TRUE(fill('a', a).ok());
    EXPECT_TRUE(driver.record_event(event, a).ok());
    EXPECT_EQ(fill('b', a).code, Code::invalid_argument);
    EXPECT_EQ(first(), 'a');
    EXPECT_TRUE(fill('c', a).ok());
}

TEST_F(Scripted, exempt_calls_are_not_counted) {
    driver.exempt({"query_event", "free"});
    driver.fail_at(2, Code::unknown);
    const std::uint64_t before = driver.num_calls();
    EXPECT_TRUE(driver.query_event(event).ok());
    EXPECT_TRUE(fill('a', a).ok());
    EXPECT_TRUE(driver.free(nullptr).ok());
    EXPECT_EQ(driver.num_calls(), before + 1);
    EXPECT_EQ(fill('b', a).code, Code::unknown);
}

TEST_F(Scripted, the_log_tells_calls_directions_and_bytes) {
    char up[100] = {};
    ASSERT_TRUE(driver.copy(memory, up, 100, a).ok());
    ASSERT_TRUE(driver.copy(up, memory, 60, a).ok());
    ASSERT_TRUE(driver.copy(static_cast<char*>(memory) + 500, memory, 40, b).ok());
    const auto lines = driver.log_lines();
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].substr(0, 12), "copy H2D 100");
    EXPECT_EQ(lines[1].substr(0, 11), "copy D2H 60");
    EXPECT_EQ(lines[2].substr(0, 11), "copy D2D 40");
    const Traffic traffic = driver.traffic();
    EXPECT_EQ(traffic.host_to_device_bytes, 100u);
    EXPECT_EQ(traffic.device_to_host_bytes, 60u);
    EXPECT_EQ(traffic.device_to_device_bytes, 40u);
    EXPECT_EQ(driver.count("copy"), 3u);
    driver.clear_log();
    EXPECT_EQ(driver.traffic().num_copies, 0u);
}

TEST_F(Scripted, memory_is_limited_and_can_be_capped_lower) {
    void* p = nullptr;
    EXPECT_EQ(driver.allocate(0, 2 << 20, &p).code, Code::out_of_memory);
    driver.set_memory_cap(0, 100'000);
    EXPECT_EQ(driver.allocate(0, 200'000, &p).code, Code::out_of_memory);
    EXPECT_TRUE(driver.allocate(1, 200'000, &p).ok()) << "the other device is as large as before";
    std::size_t free = 0, total = 0;
    EXPECT_TRUE(driver.memory_info(0, &free, &total).ok());
    EXPECT_LT(free, 100'000u);
}

TEST_F(Scripted, a_lost_device_fails_every_call_and_the_other_goes_on) {
    StreamHandle other;
    ASSERT_TRUE(driver.create_stream(1, true, 0, &other).ok());
    driver.lose_device(0);
    EXPECT_EQ(fill('a', a).code, Code::device_lost);
    EXPECT_EQ(driver.synchronize_device(0).code, Code::device_lost);
    EXPECT_TRUE(driver.synchronize_stream(other).ok());
    void* p = nullptr;
    EXPECT_TRUE(driver.allocate(1, 256, &p).ok());
}

TEST_F(Scripted, the_legacy_stream_orders_blocking_streams_only) {
    StreamHandle blocking;
    ASSERT_TRUE(driver.create_stream(0, false, 0, &blocking).ok());
    driver.hold(blocking);
    ASSERT_TRUE(fill('1', blocking).ok());
    ASSERT_TRUE(fill('2', StreamHandle{}).ok());
    EXPECT_EQ(driver.query_stream(StreamHandle{}).code, Code::not_ready);
    ASSERT_TRUE(fill('3', a).ok());
    EXPECT_EQ(first(), '3');
    driver.release(blocking);
    EXPECT_EQ(first(), '2');
}

TEST_F(Scripted, destroyed_streams_finish_their_work) {
    driver.hold(a);
    ASSERT_TRUE(fill('d', a).ok());
    ASSERT_TRUE(driver.destroy_stream(a).ok());
    EXPECT_EQ(fill('e', a).code, Code::invalid_handle);
    driver.release_all();
    EXPECT_EQ(first(), 'd');
    EXPECT_EQ(driver.num_pending(), 0u);
}

TEST_F(Scripted, memory_freed_on_a_stream_is_used_again_only_when_the_stream_has_come_there) {
    PoolHandle pool;
    ASSERT_TRUE(driver.create_pool(0, {}, &pool).ok());
    ASSERT_TRUE(driver.set_pool_release_threshold(pool, ~std::uint64_t{0}).ok());
    void* p = nullptr;
    void* q = nullptr;
    void* r = nullptr;
    ASSERT_TRUE(driver.allocate_async(pool, 1000, a, &p).ok());
    driver.hold(a);
    ASSERT_TRUE(driver.free_async(p, a).ok());
    ASSERT_TRUE(driver.allocate_async(pool, 1000, b, &q).ok());
    EXPECT_NE(p, q);
    driver.release(a);
    ASSERT_TRUE(driver.allocate_async(pool, 1000, b, &r).ok());
    EXPECT_EQ(p, r);
    ASSERT_TRUE(driver.free_async(q, b).ok());
    ASSERT_TRUE(driver.free_async(r, b).ok());
}

}  // namespace
