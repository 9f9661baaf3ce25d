// Views in a program built with KMM_BOUNDS_CHECK=1: an executable of its own, as the value must be one in all files.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kmm/core/view.hpp"
#include "kmm/error.hpp"

static_assert(KMM_BOUNDS_CHECK == 1);

namespace {

template<typename F>
std::string refusal(F access) {
    try {
        access();
        return "accepted";
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
}

TEST(Row124, an_index_outside_is_reported_with_the_bounds) {
    std::vector<int> values(12);
    const kmm::ViewMut<int, 2> v(values.data(), {3, 4});
    EXPECT_EQ(refusal([&] { v(3, 0) = 1; }), "view index {3, 0} is outside the view's bounds {0...3, 0...4}");
    EXPECT_NE(refusal([&] { v[0][4] = 1; }).find("{4}"), std::string::npos);
    EXPECT_NE(refusal([&] { v[-1][0] = 1; }).find("-1"), std::string::npos);
    EXPECT_NE(refusal([&] { v.access({0, -1}) = 1; }).find("{0, -1}"), std::string::npos);
    EXPECT_EQ(refusal([&] { v[2][3] = 1; }), "accepted");
    EXPECT_NE(refusal([&] { (void)v.drop_axis<1>(4); }).find("4"), std::string::npos);
    EXPECT_EQ(values, (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(Row124, offsets_count_for_regions) {
    std::vector<int> values(12);
    const auto v = kmm::ViewMut<int, 2>(values.data(), {3, 4}).shift_to({10, 20});
    EXPECT_EQ(refusal([&] { v[12][23] = 1; }), "accepted");
    EXPECT_NE(refusal([&] { v[9][20] = 1; }).find("10...13"), std::string::npos);
    EXPECT_NE(refusal([&] { v(10, 24) = 1; }).find("20...24"), std::string::npos);
}

}  // namespace
