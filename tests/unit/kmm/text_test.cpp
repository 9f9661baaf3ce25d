// Texts of messages and reports: kmm/base/text.hpp.
#include "kmm/base/text.hpp"

#include <gtest/gtest.h>

namespace {

using kmm::detail::seconds_text;

TEST(Text, seconds_have_three_digits_and_the_unit_that_fits) {
    EXPECT_EQ(seconds_text(0), "0 s");
    EXPECT_EQ(seconds_text(1234.4), "1234 s");
    EXPECT_EQ(seconds_text(100), "100 s");
    EXPECT_EQ(seconds_text(30), "30 s");
    EXPECT_EQ(seconds_text(12.34), "12.3 s");
    EXPECT_EQ(seconds_text(1.25), "1.25 s");
    EXPECT_EQ(seconds_text(0.05), "50 ms");
    EXPECT_EQ(seconds_text(0.0404), "40.4 ms");
    EXPECT_EQ(seconds_text(150e-6), "150 us");
    EXPECT_EQ(seconds_text(2.5e-6), "2.5 us");
    EXPECT_EQ(seconds_text(5e-9), "0.005 us");
}

}  // namespace
