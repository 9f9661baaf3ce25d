// One memory without chunks: how it grows, what a refusal of the driver means, and which blocks are taken first.
#include "kmm/memory/space.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kmm/memory/heap_fences.hpp"

namespace {

using kmm::graph::Fence;
using kmm::graph::LaneId;
using kmm::graph::FenceSet;
using kmm::memory::MemoryIndex;
using kmm::memory::Space;

constexpr std::size_t unit = 4096;
constexpr std::size_t limit = 16 * unit;
constexpr std::uintptr_t base = std::uintptr_t{1} << 32;
constexpr auto lane = static_cast<LaneId>(3);

/// What a driver is asked for; the test answers.
class Asked final : public kmm::memory::SpaceRequests {
  public:
    void grow(MemoryIndex, std::size_t bytes) override { growths.push_back(bytes); }
    bool exchange(MemoryIndex, std::size_t bytes) override {
        exchanges.push_back(bytes);
        return true;
    }
    bool may_ask_again(MemoryIndex) noexcept override { return is_time; }
    bool passed(Fence fence) const noexcept override { return fence.position <= completed; }

    std::vector<std::size_t> growths;
    std::vector<std::size_t> exchanges;
    bool is_time = false;
    kmm::graph::Position completed = 0;
};

class SpaceTest : public ::testing::Test {
  protected:
    explicit SpaceTest(MemoryIndex m = MemoryIndex::of_device(0)) {
        space.open(asked, kmm::trace::nobody_listens, m, limit);
    }
    static FenceSet at(kmm::graph::Position position) {
        FenceSet set;
        set.add({lane, position});
        return set;
    }
    Asked asked;
    Space space;
};

TEST_F(SpaceTest, asks_for_no_more_than_its_limit_leaves) {
    ASSERT_TRUE(space.may_grow(unit));
    space.grow(10 * unit);
    EXPECT_TRUE(space.is_growing());
    space.grown(base, 10 * unit);
    EXPECT_FALSE(space.is_growing());
    EXPECT_EQ(space.left_bytes(), 6 * unit);
    space.grow(10 * unit);
    EXPECT_EQ(asked.growths, (std::vector<std::size_t>{10 * unit, 6 * unit}));
    space.grown(base + 10 * unit, 6 * unit);
    EXPECT_FALSE(space.may_grow(unit)) << "it is at its limit";
    EXPECT_EQ(space.take_free(16 * unit).address, base) << "what touches is one piece";
}

TEST_F(SpaceTest, asks_a_driver_that_refused_for_less_once_more_or_when_it_is_time) {
    space.grow(8 * unit);
    space.grown(base, 4 * unit);
    space.grow(8 * unit);
    space.grown(0, 0);
    EXPECT_TRUE(space.is_refused());
    EXPECT_EQ(space.usable_bytes(), 4 * unit) << "others have the rest";
    EXPECT_FALSE(space.may_grow(8 * unit));
    EXPECT_TRUE(space.may_grow(7 * unit));
    EXPECT_TRUE(space.ask_once_more(8 * unit));
    space.grown(0, 0);
    EXPECT_FALSE(space.ask_once_more(8 * unit)) << "it refused twice";
    asked.is_time = true;
    EXPECT_TRUE(space.may_grow(8 * unit));
    asked.is_time = false;
    space.array_was_freed();
    EXPECT_TRUE(space.may_grow(8 * unit));
    space.grow(8 * unit);
    space.grown(base + 4 * unit, 8 * unit);
    EXPECT_EQ(space.usable_bytes(), limit);
}

TEST_F(SpaceTest, exchanges_free_pieces_only_where_they_are_enough_and_not_twice_for_nothing) {
    space.grown(base, 2 * unit, true);
    space.grown(base + 2 * unit, 2 * unit, true);
    space.grow(12 * unit);
    space.grown(0, 0);
    EXPECT_FALSE(space.take_free(3 * unit)) << "two allocations that touch";
    EXPECT_FALSE(space.exchange(3 * unit, 0, 5)) << "chunks of the task are there still";
    EXPECT_FALSE(space.exchange(17 * unit, 17 * unit, 5)) << "no exchange gives more than there is";
    ASSERT_TRUE(space.exchange(3 * unit, 4 * unit, 5));
    EXPECT_EQ(asked.exchanges, std::vector<std::size_t>{4 * unit});
    EXPECT_TRUE(space.came_since_exchange(5));
    EXPECT_FALSE(space.came_since_exchange(4));
    EXPECT_FALSE(space.exchange(3 * unit, 4 * unit, 6)) << "one is under way";
    space.grown(0, 0);
    EXPECT_FALSE(space.exchange(3 * unit, 4 * unit, 7)) << "nothing has changed since it was refused";
    space.may_exchange_again();
    ASSERT_TRUE(space.exchange(3 * unit, 4 * unit, 8));
    space.may_exchange_again();
    space.grown(0, 0);
    EXPECT_TRUE(space.exchange(3 * unit, 4 * unit, 9)) << "something was freed while it was under way";
}

TEST_F(SpaceTest, takes_what_is_ready_before_what_must_be_waited_for) {
    space.grown(base, 2 * unit);
    const auto first = space.take_free(unit), second = space.take_free(unit);
    ASSERT_TRUE(first && second);
    space.give(first.address, unit, at(9));
    space.give(second.address, unit, at(5));
    asked.completed = 5;
    space.advanced(lane);
    const auto ready = space.take_free(unit);
    EXPECT_EQ(ready.address, second.address);
    EXPECT_TRUE(ready.fences.empty());
    const auto busy = space.take_free(unit);
    EXPECT_EQ(busy.address, first.address);
    EXPECT_EQ(kmm::memory::graph_fences(busy.fences).size(), 1u);
    EXPECT_TRUE(asked.growths.empty());
    space.grow_ahead(busy);
    EXPECT_EQ(asked.growths, std::vector<std::size_t>{unit}) << "what comes next need not wait";
    asked.completed = 9;
    space.grown(base + 2 * unit, unit);
    space.grow_ahead(busy);
    EXPECT_EQ(asked.growths.size(), 1u) << "its user has passed";
}

TEST_F(SpaceTest, gives_back_what_is_wholly_free_with_the_work_that_uses_it) {
    space.grown(base, 2 * unit, true);
    space.grown(base + 2 * unit, 2 * unit, true);
    const auto block = space.take_free(unit);
    const std::uintptr_t other = block.address == base ? base + 2 * unit : base;
    EXPECT_FALSE(space.take_back(block.address / (2 * unit) * (2 * unit), 2 * unit)) << "a block is in use there";
    EXPECT_TRUE(space.take_back(other, 2 * unit));
    EXPECT_EQ(space.counters.capacity_bytes, 2 * unit);
    space.give(block.address, unit, at(4));
    const std::uintptr_t region = other == base ? base + 2 * unit : base;
    EXPECT_FALSE(space.take_back(region, 2 * unit)) << "a device still uses it";
    FenceSet users;
    EXPECT_TRUE(space.take_back(region, 2 * unit, &users));
    EXPECT_EQ(users.size(), 1u);
    space.leave_to_others();
    EXPECT_TRUE(space.is_refused());
    EXPECT_EQ(space.usable_bytes(), 0u);
    EXPECT_FALSE(space.may_grow(unit)) << "others got it";
}

TEST_F(SpaceTest, remembers_from_which_size_on_nothing_can_be_saved_there_until_it_changes) {
    space.grown(base, limit);
    ASSERT_TRUE(space.take_free(15 * unit));
    EXPECT_EQ(space.lacks_from(17 * unit, false), limit + 1) << "it never fits";
    EXPECT_EQ(space.lacks_from(8 * unit, false), unit + 1) << "a unit is free";
    EXPECT_EQ(space.refuses_from(), ~std::size_t{0});
    space.refuse_from(8 * unit);
    space.refuse_from(9 * unit);
    EXPECT_EQ(space.refuses_from(), 8 * unit);
    space.may_fit_again();
    EXPECT_EQ(space.refuses_from(), ~std::size_t{0});
}

}  // namespace
