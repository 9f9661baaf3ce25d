// Looks at the front of the schedule stand an interval apart.
#include <gtest/gtest.h>

#include "kmm/runtime/look_times.hpp"

namespace {

using kmm::detail::LookTimes;
using std::chrono::seconds;

TEST(LookTimes, one_is_due_an_interval_after_the_one_before_was_taken_however_late_that_was) {
    const LookTimes::Clock::time_point begin{seconds(1000)};
    LookTimes times(seconds(10), begin);
    EXPECT_FALSE(times.is_due(begin + seconds(9)));
    EXPECT_TRUE(times.is_due(begin + seconds(10)));
    EXPECT_FALSE(times.is_due(begin + seconds(21))) << "the first was not taken yet";
    times.taken(begin + seconds(22));
    EXPECT_FALSE(times.is_due(begin + seconds(31)));
    EXPECT_TRUE(times.is_due(begin + seconds(32)));
}

}  // namespace
