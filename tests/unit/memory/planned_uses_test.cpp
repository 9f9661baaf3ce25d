// The list of the places where a plan uses a chunk.
#include <gtest/gtest.h>

#include "kmm/memory/planned_uses.hpp"

namespace {

using kmm::memory::PlannedUsePool;
using kmm::memory::PlannedUses;

TEST(PlannedUses, that_end_out_of_order_leave_the_others_in_order) {
    PlannedUsePool pool;
    PlannedUses uses;
    std::uint64_t steps = 0;
    for (const std::uint32_t position : {9u, 7u, 5u, 3u, 1u}) uses.push_front(position, pool);
    EXPECT_EQ(uses.first(), 1u);
    uses.remove(5, pool, &steps);
    uses.remove(6, pool, &steps);  // there is none
    uses.remove(1, pool, &steps);
    EXPECT_EQ(uses.first(), 3u);
    uses.remove(3, pool, &steps);
    EXPECT_EQ(uses.first(), 7u);
    uses.remove(9, pool, &steps);
    uses.remove(7, pool, &steps);
    EXPECT_TRUE(uses.empty());
    EXPECT_LE(steps, 10u);
    uses.push_front(2, pool);
    EXPECT_EQ(uses.first(), 2u) << "a record is used again";
    uses.remove(2, pool, &steps);
}

TEST(PlannedUses, that_end_in_the_plans_order_take_one_step_each_however_many_there_are) {
    for (const std::uint32_t n : {1000u, 2000u}) {
        PlannedUsePool pool;
        PlannedUses uses;
        std::uint64_t steps = 0;
        for (std::uint32_t position = n; position > 0; --position) uses.push_front(position, pool);
        for (std::uint32_t position = 1; position <= n; ++position) uses.remove(position, pool, &steps);
        EXPECT_TRUE(uses.empty());
        EXPECT_LE(steps, n);
    }
}

}  // namespace
