// How lanes come after each other: kmm/engine/lanes.hpp on the scripted driver, whose calls are counted and whose
// streams stand still while they are held.
#include "kmm/engine/lanes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <initializer_list>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "forwarding_driver.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::Status;
using kmm::driver::StreamHandle;
using kmm::driver::testing::ForwardingDriver;
using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;
using kmm::engine::FailedTasks;
using kmm::engine::KernelTicket;
using kmm::engine::Lanes;
using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::Task;

constexpr LaneId a{0};
constexpr LaneId b{1};
constexpr LaneId c{2};

FenceSet set_of(std::initializer_list<Fence> fences) {
    FenceSet set;
    for (const Fence f : fences) set.add(f);
    return set;
}

/// Three lanes of one device, with work that writes its name down when it runs.
struct Fixture {
    struct Work {
        std::string* ran;
        char name;
    };
    std::string ran;
    std::list<Work> works;  // outlive the driver, which runs at its end what was held
    ScriptedDriver driver;
    Lanes lanes{driver, {0}, 3};
    Lanes::Scratch scratch{lanes};

    StreamHandle stream(LaneId lane) {
        Status status;
        const StreamHandle s = lanes.stream(lane, &status);
        EXPECT_TRUE(status.ok());
        return s;
    }
    void put(StreamHandle s, char name) {
        Work& work = works.emplace_back(Work{&ran, name});
        const auto run = [](void* user) {
            const auto* w = static_cast<const Work*>(user);
            *w->ran += w->name;
        };
        EXPECT_TRUE(driver.host_callback(s, run, &work).ok());
    }
    void put(LaneId lane, char name, Position position) {
        put(stream(lane), name);
        lanes.enqueued(lane, position);
    }
    bool come_after(LaneId lane, std::initializer_list<Fence> fences) {
        return lanes.come_after(lane, set_of(fences).view(), scratch).ok();
    }
    std::size_t num_records() const { return driver.count("record_event"); }
    std::size_t num_waits() const { return driver.count("wait_event"); }
};

TEST(Lanes, only_the_streams_of_urgent_lanes_are_urgent) {
    struct PriorityDriver : ForwardingDriver {
        using ForwardingDriver::ForwardingDriver;
        std::vector<int> priorities;
        void called(const char*) noexcept override {}
        Status create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept override {
            priorities.push_back(priority);
            return ForwardingDriver::create_stream(device, non_blocking, priority, out);
        }
    };
    ScriptedDriver scripted;
    PriorityDriver driver(scripted);
    Lanes lanes(driver, {0}, 3);
    lanes.make_urgent(b);
    lanes.make_streams(0);
    EXPECT_EQ(driver.priorities, (std::vector<int>{0, kmm::driver::most_urgent, 0}));
}

TEST(Lanes, a_stream_is_made_once_however_many_threads_ask_for_it_first) {
    constexpr int threads = 4;
    /// Lets nobody make a stream before everybody is about to.
    struct MeetingDriver : ForwardingDriver {
        using ForwardingDriver::ForwardingDriver;
        std::barrier<> all{threads};
        void called(const char* call) noexcept override {
            if (std::string(call) == "create_stream") all.arrive_and_wait();
        }
    };
    ScriptedDriver scripted;
    MeetingDriver driver(scripted);
    {
        Lanes lanes(driver, {0}, 3);
        std::vector<std::future<StreamHandle>> streams;
        for (int t = 0; t < threads; ++t)
            streams.push_back(std::async(std::launch::async, [&] {
                Status status{Code::unknown};
                const StreamHandle s = lanes.stream(b, &status);
                EXPECT_TRUE(status.ok());
                return s;
            }));
        Status status;
        std::vector<StreamHandle> got;
        for (auto& s : streams) got.push_back(s.get());
        for (const StreamHandle s : got) EXPECT_EQ(s, lanes.stream(b, &status));
        EXPECT_EQ(scripted.count("create_stream"), std::size_t{threads});
        EXPECT_EQ(scripted.count("destroy_stream"), std::size_t{threads - 1}) << "those of the threads that were late";
    }
    EXPECT_EQ(scripted.count("destroy_stream"), std::size_t{threads});
}

TEST(Lanes, a_stream_that_the_driver_refuses_is_asked_for_again) {
    Fixture f;
    f.driver.fail_call("create_stream", 1, Code::out_of_memory);
    Status status;
    EXPECT_EQ(f.lanes.stream(a, &status), StreamHandle{});
    EXPECT_EQ(status.code, Code::out_of_memory);
    EXPECT_NE(f.stream(a), StreamHandle{});
}

TEST(Lanes, a_lane_comes_after_what_is_on_another_on_the_device) {
    Fixture f;
    f.driver.hold(f.stream(a));
    f.put(a, 'a', 1);
    ASSERT_TRUE(f.come_after(b, {{a, 1}}));
    f.put(b, 'b', 1);
    f.put(c, 'c', 1);
    EXPECT_EQ(f.ran, "c") << "the lane that was told to wait does, another does not";
    f.driver.release_all();
    EXPECT_EQ(f.ran, "cab");
}

TEST(Lanes, waits_that_earlier_ones_imply_are_left_out) {
    Fixture f;
    f.driver.hold(f.stream(a));
    f.put(a, '1', 1);
    f.put(a, '2', 2);
    f.put(a, '3', 3);
    ASSERT_TRUE(f.come_after(b, {{a, 2}}));
    EXPECT_EQ(f.num_records(), 1u);
    EXPECT_EQ(f.num_waits(), 1u);
    // The event covers all that was on the lane, so that the third position is known as well as the first.
    for (const Position p : {1u, 2u, 3u}) ASSERT_TRUE(f.come_after(b, {{a, p}}));
    EXPECT_EQ(f.num_waits(), 1u);
    f.put(a, '4', 4);
    ASSERT_TRUE(f.come_after(b, {{a, 4}}));
    EXPECT_EQ(f.num_waits(), 2u) << "what came to the lane since is not implied";
    ASSERT_TRUE(f.come_after(c, {{a, 1}}));
    EXPECT_EQ(f.num_waits(), 3u) << "what one lane waits for another does not";
    EXPECT_EQ(f.num_records(), 3u);
    EXPECT_EQ(f.driver.count("create_event"), 1u) << "a scratch has one event for each device";
}

TEST(Lanes, of_marks_the_earliest_behind_a_fence_is_waited_for_and_old_ones_are_forgotten) {
    ScriptedDriver driver(ScriptedOptions{.num_devices = 2});
    Lanes lanes(driver, {0, 1}, 2);
    Lanes::Scratch scratch(lanes);
    constexpr LaneId other{2};
    Status status;
    const StreamHandle from = lanes.stream(other, &status);
    constexpr Position count = 200;
    std::vector<kmm::driver::EventHandle> events(count + 1);
    for (Position p = 1; p <= count; ++p) {
        ASSERT_TRUE(driver.create_event(1, false, false, &events[p]).ok());
        ASSERT_TRUE(driver.record_event(events[p], from).ok());
        if (p % 2 == 0) lanes.marked(other, p, events[p]);
        lanes.enqueued(other, p);
    }
    const auto waited_for = [&](LaneId lane, Position position) {
        driver.clear_log();
        EXPECT_TRUE(lanes.come_after(lane, set_of({{other, position}}).view(), scratch).ok());
        for (const auto& entry : driver.log())
            if (entry.call == "wait_event") return entry.event;
        return kmm::driver::EventHandle{};
    };
    EXPECT_EQ(waited_for(a, 10), events[count - 126]) << "64 are kept";
    EXPECT_EQ(waited_for(a, 20), kmm::driver::EventHandle{}) << "which the first implies";
    EXPECT_EQ(waited_for(a, 151), events[152]);
    EXPECT_EQ(waited_for(a, 152), kmm::driver::EventHandle{});
    EXPECT_EQ(waited_for(b, 200), events[200]);
    for (const auto event : events) lanes.keep_event(event);
}

// One thread marks, with events that it records anew once they have passed, and another waits for marks: what it finds
// is at or behind what it asked for.
TEST(Lanes, marks_are_found_while_others_are_made) {
    ScriptedDriver driver(ScriptedOptions{.num_devices = 2});
    Lanes lanes(driver, {0, 1}, 2);
    constexpr LaneId other{2};
    Status status;
    const StreamHandle from = lanes.stream(other, &status);
    constexpr Position count = 4000;
    constexpr std::size_t num_events = 200;
    std::vector<kmm::driver::EventHandle> events(num_events);
    std::unordered_map<void*, std::atomic<Position>> recorded;  // the position behind which it was recorded last
    for (auto& event : events) {
        ASSERT_TRUE(driver.create_event(1, false, false, &event).ok());
        recorded[event.native] = 0;
    }
    driver.clear_log();
    std::atomic<Position> waited{0};
    std::thread marks([&] {
        for (Position p = 1; p <= count; ++p) {
            // Of the marks that can still be found none has passed.
            while (p > num_events && waited.load() + num_events < p) std::this_thread::yield();
            const auto event = events[p % num_events];
            EXPECT_TRUE(driver.record_event(event, from).ok());
            recorded[event.native] = p;
            lanes.marked(other, p, event);
            lanes.enqueued(other, p);
        }
    });
    Lanes::Scratch scratch(lanes);
    std::size_t num_found = 0;
    for (Position there = 0; there < count;) {
        const Position now = lanes.enqueued(other);
        if (now == there) continue;
        there = now;
        driver.clear_log();
        EXPECT_TRUE(lanes.come_after(a, set_of({{other, there}}).view(), scratch).ok());
        for (const auto& entry : driver.log()) {
            if (entry.call != "wait_event") continue;
            const auto found = recorded.find(entry.event.native);
            ASSERT_NE(found, recorded.end()) << "what it asked for was marked before it was put there";
            EXPECT_GE(found->second.load(), there);
            ++num_found;
        }
        waited = there;
    }
    marks.join();
    EXPECT_GT(num_found, 0u);
    for (const auto event : events) lanes.keep_event(event);
}

TEST(Lanes, fences_that_have_passed_and_those_of_the_lane_itself_cost_nothing) {
    Fixture f;
    f.driver.hold(f.stream(a));
    f.put(a, '1', 5);
    f.put(a, '2', 6);
    f.lanes.completed(a, 5);
    f.put(b, 'b', 7);
    ASSERT_TRUE(f.come_after(b, {{a, 5}, {b, 7}}));
    EXPECT_EQ(f.num_records() + f.num_waits(), 0u);
    ASSERT_TRUE(f.come_after(b, {{a, 6}}));
    EXPECT_EQ(f.num_waits(), 1u);
}

TEST(Lanes, a_lane_whose_work_failed_before_it_had_a_stream_is_not_waited_for) {
    Fixture f;
    f.lanes.enqueued(a, 1);
    ASSERT_TRUE(f.come_after(b, {{a, 1}}));
    EXPECT_EQ(f.num_records() + f.num_waits(), 0u);
    EXPECT_EQ(f.driver.count("create_event"), 0u);
}

TEST(Lanes, a_wait_that_the_driver_refused_is_not_taken_for_one_that_was_made) {
    for (const char* const call : {"record_event", "wait_event"}) {
        Fixture f;
        f.driver.hold(f.stream(a));
        f.put(a, 'a', 1);
        f.driver.fail_call(call, 1, Code::out_of_memory);
        EXPECT_FALSE(f.come_after(b, {{a, 1}})) << call;
        ASSERT_TRUE(f.come_after(b, {{a, 1}})) << call;
        f.put(b, 'b', 1);
        EXPECT_EQ(f.ran, "") << call;
        f.driver.release_all();
        EXPECT_EQ(f.ran, "ab") << call;
    }
}

TEST(Lanes, who_comes_after_work_that_is_not_on_its_lane_yet_waits_until_it_is) {
    Fixture f;
    f.driver.hold(f.stream(a));
    f.lanes.enqueued(a, 1);
    std::atomic<bool> begun{false};
    auto other = std::async(std::launch::async, [&] {
        begun = true;
        return f.come_after(b, {{a, 2}});
    });
    while (!begun.load()) std::this_thread::yield();
    f.put(f.stream(a), 'a');
    EXPECT_EQ(f.num_records(), 0u) << "an event now would fence work that may not be all";
    f.lanes.enqueued(a, 2);
    ASSERT_TRUE(other.get());
    f.put(b, 'b', 1);
    EXPECT_EQ(f.ran, "");
    f.driver.release_all();
    EXPECT_EQ(f.ran, "ab");
}

TEST(Lanes, a_stream_that_is_no_lane_is_ordered_after_all_that_has_not_passed) {
    Fixture f;
    f.driver.hold(f.stream(a));
    f.driver.hold(f.stream(b));
    f.put(a, 'a', 1);
    f.put(b, 'b', 1);
    f.lanes.completed(c, 1);
    StreamHandle own;
    ASSERT_TRUE(f.driver.create_stream(0, true, 0, &own).ok());
    ASSERT_TRUE(f.lanes.order_after(own, set_of({{a, 1}, {b, 1}, {c, 1}}), f.scratch).ok());
    EXPECT_EQ(f.num_waits(), 2u);
    f.put(own, 'x');
    f.driver.release(f.stream(b));
    EXPECT_EQ(f.ran, "b");
    f.driver.release_all();
    EXPECT_EQ(f.ran, "bax");
}

TEST(Lanes, the_furthest_completed_position_counts_in_whatever_order_threads_tell) {
    Fixture f;
    f.lanes.completed(a, 5);
    f.lanes.completed(a, 3);
    EXPECT_TRUE(f.lanes.passed({a, 5}));
    EXPECT_FALSE(f.lanes.passed({a, 6}));
    EXPECT_FALSE(f.lanes.passed({b, 1}));
    constexpr Position last = 1'000'000;
    std::vector<std::future<bool>> threads;
    for (Position t = 0; t < 4; ++t)
        threads.push_back(std::async(std::launch::async, [&, t] {
            bool ever_back = false;
            for (Position p = 1 + t; p <= last; p += 4) {
                f.lanes.completed(a, p);
                ever_back |= !f.lanes.passed({a, p});
            }
            return ever_back;
        }));
    for (auto& t : threads) EXPECT_FALSE(t.get());
    EXPECT_TRUE(f.lanes.passed({a, last}));
    EXPECT_FALSE(f.lanes.passed({a, last + 1}));
}

TEST(Lanes, a_thread_waits_until_all_fences_have_passed_and_for_nothing_behind_them) {
    Fixture f;
    f.lanes.enqueued(a, 4);
    std::atomic<bool> begun{false};
    auto waiter = std::async(std::launch::async, [&] {
        begun = true;
        f.lanes.wait_on_host(set_of({{a, 3}, {b, 1}}));
        return f.lanes.passed({a, 3}) && f.lanes.passed({b, 1});
    });
    while (!begun.load()) std::this_thread::yield();
    for (const Fence done : {Fence{a, 1}, Fence{a, 2}, Fence{a, 3}, Fence{b, 1}}) {
        for (int i = 0; i < 500; ++i) std::this_thread::yield();  // by now it sleeps, most likely
        f.lanes.completed(done.lane, done.position);
    }
    EXPECT_TRUE(waiter.get());
}

TEST(Lanes, the_streams_of_a_device_are_made_as_far_as_the_driver_lets) {
    ScriptedOptions options;
    options.num_devices = 2;
    ScriptedDriver driver(options);
    Lanes lanes(driver, {1, 0}, 3);
    EXPECT_EQ(lanes.device(LaneId{2}), 0u);
    EXPECT_EQ(lanes.device(LaneId{3}), 1u);
    driver.fail_call("create_stream", 3, Code::out_of_memory);
    lanes.make_streams(1);
    EXPECT_EQ(driver.count("create_stream"), 3u);
    EXPECT_TRUE(driver.take_last_error().ok()) << "nobody else finds the refusal";
    Status status;
    int ordinal = -1;
    EXPECT_TRUE(driver.stream_device(lanes.stream(LaneId{3}, &status), &ordinal).ok());
    EXPECT_EQ(ordinal, 0) << "of the second device, which has the driver's number 0";
    EXPECT_EQ(driver.count("create_stream"), 3u);
}

struct CountingFeeder final : Lanes::Feeder {
    int told = 0;
    void lanes_came_further() noexcept override { ++told; }
};

TEST(Lanes, a_feeder_that_waits_is_told_of_the_position_that_it_waits_for_and_of_none_before) {
    for (const Position n : {Position{100}, Position{200}}) {
        ScriptedDriver driver(ScriptedOptions{.num_devices = 2});
        Lanes lanes(driver, {0, 1}, 2);
        CountingFeeder feeder;
        lanes.set_feeder(0, &feeder);
        const LaneId there{2};
        const Fence far[] = {{there, n}};
        const Fence beyond[] = {{there, n + 1}};
        const Fence near[] = {{there, n / 2}};
        EXPECT_FALSE(lanes.are_enqueued(far, 0));
        EXPECT_FALSE(lanes.are_enqueued(near, 0));
        EXPECT_FALSE(lanes.are_enqueued(far, 0)) << "the nearest one counts";
        for (Position p = 1; p < n / 2; ++p) lanes.enqueued(there, p);
        EXPECT_EQ(feeder.told, 0);
        lanes.enqueued(there, n / 2);
        EXPECT_EQ(feeder.told, 1);
        EXPECT_TRUE(lanes.are_enqueued(near, 0));
        EXPECT_FALSE(lanes.are_enqueued(far, 0));
        for (Position p = n / 2 + 1; p <= n; ++p) lanes.enqueued(there, p);
        EXPECT_EQ(feeder.told, 2);
        EXPECT_TRUE(lanes.are_enqueued(far, 0));
        EXPECT_FALSE(lanes.are_enqueued(beyond, 0));
        lanes.set_feeder(0, nullptr);
        lanes.enqueued(there, n + 1);
        EXPECT_EQ(feeder.told, 2);
    }
}

TEST(FailedTasks, concern_themselves_and_those_that_need_their_data) {
    FailedTasks failed;
    Task task;
    task.number = 7;
    task.cold_part(kmm::graph::UseOfReserve::no).open_data_predecessors = {3, 5};
    EXPECT_FALSE(failed.any());
    failed.add(4);
    EXPECT_TRUE(failed.any());
    EXPECT_FALSE(failed.concern(task));
    failed.add(5);
    EXPECT_TRUE(failed.concern(task));
    EXPECT_FALSE(failed.contains(7)) << "a look marks nobody";
    failed.clear();
    EXPECT_FALSE(failed.any());
    EXPECT_FALSE(failed.concern(task));
    failed.add(7);
    EXPECT_TRUE(failed.concern(task));
    failed.clear();
    failed.add_all();
    EXPECT_TRUE(failed.concern(task));
}

TEST(FailedTasks, a_kernel_is_skipped_behind_a_failure_and_then_counts_as_failed) {
    FailedTasks failed;
    KernelTicket first{&failed, 1, {}, {}};
    KernelTicket second{&failed, 2, {1}, {}};
    KernelTicket third{&failed, 3, {2}, {}};
    const auto hooks = first.hooks();
    EXPECT_EQ(hooks.failure, &first.failure);
    const auto next = second.hooks();
    const auto last = third.hooks();
    EXPECT_FALSE(next.skip(next.user));
    hooks.failed(hooks.user);
    EXPECT_TRUE(next.skip(next.user));
    EXPECT_TRUE(last.skip(last.user)) << "of one that was skipped nothing can be read either";
}

}  // namespace
