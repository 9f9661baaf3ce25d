// The events of a pool that are not in use.
#include <gtest/gtest.h>

#include <vector>

#include "rmm/pool/timeline.hpp"
#include "scripted_driver.hpp"

namespace {

using namespace rmm;

TEST(SpareEvents, are_taken_in_turn_and_destroyed_with_their_owner) {
    kmm::driver::testing::ScriptedDriver driver;
    {
        mr::detail::spare_events spare(driver, 0);
        EXPECT_EQ(spare.take().native, nullptr);
        spare.expect(3);
        std::vector<kmm::driver::EventHandle> made;
        ASSERT_TRUE(spare.create(3, &made).ok());
        for (kmm::driver::EventHandle event : made) spare.give(event);
        EXPECT_EQ(spare.take().native, made.back().native);
        EXPECT_EQ(spare.size(), 2u);
        (void)driver.destroy_event(made.back());
    }
    EXPECT_EQ(driver.count("destroy_event"), 3u);
    driver.fail_call("create_event", 2, kmm::driver::Code::out_of_memory);
    mr::detail::spare_events spare(driver, 0);
    std::vector<kmm::driver::EventHandle> made;
    EXPECT_FALSE(spare.create(3, &made).ok());
    ASSERT_EQ(made.size(), 1u) << "what was made is kept";
    (void)driver.destroy_event(made.front());
}

}  // namespace
