// Owns: what texts with values look like.
#include "driver/format.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <locale>
#include <string>

namespace {

using kmm::driver::count_text;

struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
    char do_decimal_point() const override { return ','; }
};

TEST(Format, values_take_the_places_of_braces_in_their_order) {
    const std::string name = "axpy";
    EXPECT_EQ(kmm::driver::format("task \"{}\" chunk {} of {}", name, 3, std::size_t{16}),
              "task \"axpy\" chunk 3 of 16");
    EXPECT_EQ(kmm::driver::format("{{{}...{}}}", -1, 2), "{-1...2}");
}

TEST(Format, the_largest_numbers_keep_all_digits) {
    EXPECT_EQ(kmm::driver::format("{} {}", std::numeric_limits<std::uint64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()),
              "18446744073709551615 -9223372036854775808");
}

TEST(Format, six_decimals_of_a_double_are_those_of_to_string) {
    for (const double value : {0.0, 0.1, -1.5, 2.0 / 3, 123456789.987654321, 1e-7, 1e22})
        EXPECT_EQ(kmm::driver::format("{:f}", value), std::to_string(value));
}

TEST(Format, the_locale_of_the_program_changes_no_number) {
    const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
    const std::string text = kmm::driver::format("{} {:f}", 1234567, 0.5);
    std::locale::global(before);
    EXPECT_EQ(text, "1234567 0.500000");
}

TEST(Format, one_of_a_kind_is_counted_in_the_singular) {
    EXPECT_EQ(count_text(0, "chunk"), "0 chunks");
    EXPECT_EQ(count_text(1, "chunk"), "1 chunk");
    EXPECT_EQ(count_text(2, "chunk"), "2 chunks");
}

}  // namespace
