// Waiting with any clock, and counters.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <vector>

#include "small_runtime.hpp"

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

TEST(Deadlines, the_longest_durations_have_no_bound) {
    EXPECT_FALSE(kmm::detail::deadline_after(std::chrono::hours::max()).bounded);
    EXPECT_FALSE(kmm::detail::deadline_after(std::chrono::nanoseconds::max()).bounded);
    EXPECT_FALSE(
        kmm::detail::deadline_after(std::chrono::duration<double>(std::numeric_limits<double>::infinity())).bounded);
}

TEST(Deadlines, a_negative_or_zero_duration_ends_now_and_a_fraction_is_rounded_up) {
    const auto before = Steady::now();
    const auto past = kmm::detail::deadline_after(-5s);
    EXPECT_TRUE(past.bounded && past.time >= before && past.time <= Steady::now());
    const auto tiny = kmm::detail::deadline_after(std::chrono::duration<double, std::nano>(0.1));
    EXPECT_GE(tiny.time, before + 1ns);
}

TEST(Deadlines, wait_until_accepts_the_limits_of_every_clock) {
    auto rt = kmm_test::small_runtime(1);
    const kmm::EventId done = rt.barrier();
    rt.wait(done);
    EXPECT_TRUE(rt.wait_until(done, Steady::time_point::max()));
    EXPECT_TRUE(rt.wait_until(done, std::chrono::system_clock::time_point::max()));
    EXPECT_TRUE(rt.wait_until(done, Steady::time_point::min()));
    EXPECT_TRUE(rt.wait_until(done, std::chrono::time_point<std::chrono::system_clock, std::chrono::hours>::max()));
    EXPECT_TRUE(rt.wait_for(done, std::chrono::hours::max()));
    EXPECT_TRUE(rt.wait_for(done, 0ms));
}

TEST(Deadlines, a_wait_ends_without_success_when_the_time_is_up) {
    auto rt = kmm_test::small_runtime(1);
    std::promise<void> gate;
    auto event = rt.submit(kmm::ResourceId::host(), kmm::Host([opened = gate.get_future().share()] { opened.wait(); }));
    EXPECT_FALSE(rt.wait_for(event, 0s));
    EXPECT_FALSE(rt.wait_until(event, std::chrono::system_clock::now() - 1h));
    const auto start = Steady::now();
    EXPECT_FALSE(rt.wait_for(event, 20ms));
    EXPECT_GE(Steady::now() - start, 20ms);
    EXPECT_FALSE(rt.wait_until(event, std::chrono::system_clock::now() + 10ms));
    EXPECT_FALSE(rt.worker().query_event(event, std::chrono::system_clock::now()));
    EXPECT_FALSE(rt.worker().is_idle());
    gate.set_value();
    EXPECT_TRUE(rt.wait_until(event, Steady::now() + 1h));
}

TEST(Joins, of_very_many_events_in_any_order_are_done_when_the_last_is_and_count_each_once) {
    auto rt = kmm_test::small_runtime(1);
    std::promise<void> gate;
    const kmm::EventId last =
        rt.submit(kmm::ResourceId::host(), kmm::Host([opened = gate.get_future().share()] { opened.wait(); }));
    EXPECT_EQ(rt.join(last, kmm::EventId(), last), last);
    EXPECT_EQ(rt.join({last, last, last}), last);
    EXPECT_EQ(rt.join(kmm::EventId(), kmm::EventId()), kmm::EventId());
    std::vector<kmm::EventId> events;
    for (int i = 0; i < 2000; i++) events.push_back(rt.submit(kmm::ResourceId::host(), kmm::Host([] {})));
    events.push_back(last);
    std::vector<kmm::EventId> twice(events.rbegin(), events.rend());
    twice.insert(twice.end(), events.begin(), events.end());
    const kmm::EventId all = rt.join(kmm::EventList(twice.begin(), twice.end()));
    const kmm::EventId others = rt.join(kmm::EventList(events.begin(), events.end() - 1));
    rt.wait(others);
    for (const kmm::EventId e : events) EXPECT_EQ(rt.is_done(e), e != last);
    EXPECT_FALSE(rt.is_done(all));
    gate.set_value();
    rt.wait(all);
    EXPECT_TRUE(rt.is_done(last));
}

TEST(Stats, a_difference_subtracts_counters_and_keeps_the_later_gauges) {
    kmm::RuntimeStats a, b;
    a.tasks_submitted = 10;
    b.tasks_submitted = 4;
    a.host_to_device = {100, 3};
    b.host_to_device = {40, 1};
    a.memories.push_back({kmm::MemoryId(kmm::DeviceId(1)), 5, 6, 7});
    b.memories.push_back({kmm::MemoryId(kmm::DeviceId(1)), 1, 1, 7});
    const kmm::RuntimeStats d = a - b;
    EXPECT_EQ(d.tasks_submitted, 6U);
    EXPECT_EQ(d.host_to_device.bytes, 60U);
    EXPECT_EQ(d.host_to_device.copies, 2U);
    EXPECT_EQ(d.memory(kmm::DeviceId(1)).current_bytes, 5U);
    EXPECT_EQ(d.memory(kmm::DeviceId(0)).limit_bytes, 0U);
}

TEST(Handles, a_runtime_is_reached_again_through_its_worker_and_its_arrays) {
    auto rt = kmm_test::small_runtime(1);
    kmm::RuntimeHandle again(rt.worker());
    EXPECT_EQ(&again.worker(), &rt.worker());
    auto A = rt.allocate({1, 2, 3});
    EXPECT_EQ(&A.runtime(), &rt.worker());
    EXPECT_EQ(&again.info(), &rt.worker().system_info());
    EXPECT_THROW(kmm::RuntimeHandle(std::shared_ptr<kmm::Runtime>()), kmm::InvalidArgument);
}

TEST(Handles, the_report_of_the_process_holds_that_of_every_runtime) {
    auto first = kmm_test::small_runtime(1);
    auto second = kmm_test::small_runtime(1);
    const std::string text = kmm::report();
    EXPECT_GE(text.size(), first.report().size() + second.report().size());
    const std::string json = kmm::report(kmm::ReportFormat::Json);
    EXPECT_TRUE(json.front() == '[' && json.back() == ']' && kmm_test::contains(json, "}, {")) << json;
}
