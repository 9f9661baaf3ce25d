// What is on each lane and how far it is, without a schedule.
#include "kmm/schedule/lane_positions.hpp"

#include <gtest/gtest.h>

#include "parts.hpp"

namespace kmm::parts_test::on_lanes {
namespace {

constexpr std::uint32_t num_compute = 3;

class LanePositionsTest : public ::testing::Test {
  protected:
    LanePositions lanes{2, num_compute, 2};
    const LaneId up = lanes.id(0, LaneRole::up);
    const LaneId down = lanes.id(0, LaneRole::down);
    const LaneId launcher = lanes.id(1, LaneRole::launcher, 1);
};

TEST_F(LanePositionsTest, lanes_are_numbered_device_by_device_in_the_order_of_their_roles) {
    std::size_t number = 0;
    for (std::uint32_t device = 0; device < 2; ++device) {
        const auto expect_next = [&](LaneRole role, std::uint32_t index) {
            const auto lane = static_cast<LaneId>(number++);
            EXPECT_EQ(lanes.id(device, role, index), lane);
            EXPECT_EQ(lanes.info(lane).device, device);
            EXPECT_EQ(lanes.info(lane).role, role);
            EXPECT_EQ(lanes.info(lane).index, index);
        };
        for (std::uint32_t i = 0; i < num_compute; ++i) expect_next(LaneRole::compute, i);
        for (const LaneRole role : {LaneRole::up, LaneRole::down, LaneRole::peer}) expect_next(role, 0);
        for (std::uint32_t i = 0; i < 2; ++i) expect_next(LaneRole::launcher, i);
        EXPECT_EQ(number, (device + 1) * lanes.per_device());
    }
    EXPECT_EQ(number, lanes.size());
}

TEST_F(LanePositionsTest, each_lane_counts_its_own_positions) {
    const LaneId compute = lanes.id(1, LaneRole::compute, 2);
    EXPECT_TRUE(is_same(lanes.take(compute), {compute, 1}));
    EXPECT_TRUE(is_same(lanes.take(up), {up, 1}));
    EXPECT_TRUE(is_same(lanes.take(compute), {compute, 2}));
    lanes.was_filled(compute, 7);
    EXPECT_TRUE(is_same(lanes.take(compute), {compute, 8}));
    ASSERT_TRUE(lanes.advance(compute, 5));
    const auto progress = lanes.compute_lanes(1);
    ASSERT_EQ(progress.size(), num_compute);
    EXPECT_EQ(progress[2].issued, 8u);
    EXPECT_EQ(progress[2].completed, 5u);
    EXPECT_EQ(progress[0].issued, 0u);
    EXPECT_EQ(lanes.compute_lanes(0)[2].issued, 0u) << "another device's";
}

TEST_F(LanePositionsTest, only_what_is_open_on_other_lanes_must_be_waited_for) {
    ASSERT_TRUE(lanes.advance(down, 4));
    ASSERT_TRUE(lanes.advance(launcher, 2));
    const FenceSet fences = set_of({{down, 4}, {launcher, 3}, {up, 6}});
    Position after_on_lane = 0;
    const FenceSet& waits = lanes.waits_of(up, fences, &after_on_lane);
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_TRUE(is_same(*waits.begin(), {launcher, 3}));
    EXPECT_EQ(after_on_lane, 6u);
    ASSERT_TRUE(lanes.advance(up, 6));
    after_on_lane = 0;
    EXPECT_TRUE(lanes.waits_of(up, set_of({{up, 6}}), &after_on_lane).empty()) << "those of the call before are gone";
    EXPECT_EQ(after_on_lane, 0u) << "it has passed";
}

TEST_F(LanePositionsTest, a_position_that_is_known_to_be_done_is_no_news) {
    EXPECT_TRUE(lanes.advance(up, 3));
    EXPECT_FALSE(lanes.advance(up, 3));
    EXPECT_FALSE(lanes.advance(up, 2));
    EXPECT_TRUE(lanes.passed({up, 3}));
    EXPECT_FALSE(lanes.passed({up, 4}));
    EXPECT_FALSE(lanes.passed({down, 1})) << "another lane";
}

TEST_F(LanePositionsTest, work_is_in_flight_from_when_it_is_added_until_it_is_taken_as_done) {
    Task tasks[3];
    for (Task& t : tasks) {
        const Fence fence = lanes.take(up);
        lanes.add(up, {.position = fence.position, .task = &t, .bytes = std::size_t{10} << fence.position});
    }
    EXPECT_EQ(lanes.num_in_flight(up), 3u);
    EXPECT_EQ(lanes.bytes_in_flight(up), 20u + 40u + 80u);
    EXPECT_FALSE(lanes.take_done(up).has_value());
    ASSERT_TRUE(lanes.advance(up, 2));
    EXPECT_EQ(lanes.num_in_flight(up), 3u) << "not taken yet";
    EXPECT_EQ(lanes.take_done(up)->task, &tasks[0]);
    EXPECT_EQ(lanes.take_done(up)->task, &tasks[1]);
    EXPECT_FALSE(lanes.take_done(up).has_value());
    EXPECT_EQ(lanes.num_in_flight(up), 1u);
    EXPECT_EQ(lanes.bytes_in_flight(up), 80u);
    EXPECT_EQ(lanes.num_in_flight(down), 0u);
}

TEST_F(LanePositionsTest, functions_that_ended_at_one_position_are_done_together) {
    Task first, second;
    lanes.was_filled(launcher, 2);
    lanes.add(launcher, {.position = 2, .task = &first});
    lanes.was_filled(launcher, 2);
    lanes.add(launcher, {.position = 2, .task = &second});
    ASSERT_TRUE(lanes.advance(launcher, 2));
    EXPECT_EQ(lanes.take_done(launcher)->task, &first);
    EXPECT_EQ(lanes.take_done(launcher)->task, &second);
}

TEST_F(LanePositionsTest, what_is_in_flight_up_to_a_position_is_visited_in_order) {
    for (Position p = 1; p <= 4; ++p) lanes.add(down, {.position = p});
    std::vector<Position> visited;
    lanes.each_in_flight(down, 3, [&](const schedule::InFlight& work) { visited.push_back(work.position); });
    EXPECT_EQ(visited, (std::vector<Position>{1, 2, 3}));
}

TEST_F(LanePositionsTest, watchers_are_taken_in_the_order_of_the_positions_that_they_wait_for) {
    Task tasks[5];
    const Position positions[] = {4, 1, 5, 3, 2};
    for (std::size_t i = 0; i < 5; ++i) lanes.watch({up, positions[i]}, tasks[i]);
    EXPECT_EQ(lanes.take_watcher(up), nullptr);
    ASSERT_TRUE(lanes.advance(up, 3));
    EXPECT_EQ(lanes.take_watcher(up), &tasks[1]);
    EXPECT_EQ(lanes.take_watcher(up), &tasks[4]);
    EXPECT_EQ(lanes.take_watcher(up), &tasks[3]);
    EXPECT_EQ(lanes.take_watcher(up), nullptr);
    EXPECT_EQ(lanes.take_watcher(down), nullptr);
    ASSERT_TRUE(lanes.advance(up, 4));
    EXPECT_EQ(lanes.take_watcher(up), &tasks[0]);
    EXPECT_EQ(lanes.take_watcher(up), nullptr);
}

TEST_F(LanePositionsTest, a_task_is_taken_once_for_each_fence_that_was_open_when_it_began_to_watch) {
    Task task;
    ASSERT_TRUE(lanes.advance(up, 1));
    lanes.watch({up, 1}, task);
    EXPECT_EQ(task.function.unpassed_fences, 0u) << "it has passed";
    lanes.watch({up, 2}, task);
    lanes.watch({down, 1}, task);
    EXPECT_EQ(task.function.unpassed_fences, 2u);
    ASSERT_TRUE(lanes.advance(up, 9));
    EXPECT_EQ(lanes.take_watcher(up), &task);
    EXPECT_EQ(lanes.take_watcher(up), nullptr);
    ASSERT_TRUE(lanes.advance(down, 1));
    EXPECT_EQ(lanes.take_watcher(down), &task);
    EXPECT_EQ(task.function.unpassed_fences, 2u) << "the caller counts those that are taken";
}

}  // namespace
}  // namespace kmm::parts_test::on_lanes
