// <rmm/detail/logging_assert.hpp> in a unit with assertions, whatever the build.
#ifdef NDEBUG
#undef NDEBUG
#endif
#include "rmm/detail/logging_assert.hpp"

#include <gtest/gtest.h>

namespace {

int num_evaluations = 0;
bool holds(bool result) {
    ++num_evaluations;
    return result;
}

TEST(LoggingAssert, evaluates_once_and_says_nothing_when_true) {
    testing::internal::CaptureStderr();
    if (num_evaluations == 0)
        RMM_LOGGING_ASSERT(holds(true));
    else
        RMM_LOGGING_ASSERT(holds(false));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(num_evaluations, 1);
}

TEST(LoggingAssertDeathTest, logs_before_it_aborts) {
    EXPECT_DEATH(RMM_LOGGING_ASSERT(holds(false)),
                 "\\[critical\\] \\[.*logging_assert_test.cpp:[0-9]+\\] Assertion holds\\(false\\) failed\\.");
}

}  // namespace
