// Owns: the syntax of sizes.
#include "driver/byte_size.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>

namespace {

using kmm::driver::byte_size_text;
using kmm::driver::fixed_text;
using kmm::driver::parse_byte_size;

std::size_t parsed(std::string_view text, std::size_t whole = 0) {
    std::string error;
    const auto result = parse_byte_size(text, whole, &error);
    EXPECT_TRUE(result) << text << ": " << error;
    return result.value_or(0);
}

void refused(std::string_view text, std::size_t whole = 1000) {
    std::string error;
    EXPECT_FALSE(parse_byte_size(text, whole, &error)) << text;
    EXPECT_NE(error.find("'" + std::string(text) + "'"), std::string::npos) << "the text is named: " << error;
    EXPECT_NE(error.find("4GiB"), std::string::npos) << "the accepted forms are shown: " << error;
}

TEST(ByteSize, numbers_without_a_unit_are_bytes) {
    EXPECT_EQ(parsed("0"), 0u);
    EXPECT_EQ(parsed("17"), 17u);
    EXPECT_EQ(parsed("17b"), 17u);
    EXPECT_EQ(parsed("1e9"), 1'000'000'000u);
    EXPECT_EQ(parsed("1E+3"), 1000u);
    EXPECT_EQ(parsed("2500e-2"), 25u);
}

TEST(ByteSize, units_are_decimal_or_binary_in_any_letter_case_with_or_without_a_blank) {
    EXPECT_EQ(parsed("500MB"), 500'000'000u);
    EXPECT_EQ(parsed("500 mb"), 500'000'000u);
    EXPECT_EQ(parsed("4GiB"), std::size_t{1} << 32);
    EXPECT_EQ(parsed("4gi"), std::size_t{1} << 32);
    EXPECT_EQ(parsed("1m"), 1'000'000u);
    EXPECT_EQ(parsed("1.5k"), 1500u);
    EXPECT_EQ(parsed("3 KIB"), 3072u);
    EXPECT_EQ(parsed("2T"), 2'000'000'000'000u);
    EXPECT_EQ(parsed("2TiB"), std::size_t{2} << 40);
}

TEST(ByteSize, fractions_are_rounded_down_and_exact) {
    EXPECT_EQ(parsed("1.0000000001k"), 1000u);
    EXPECT_EQ(parsed("0.3333333333333333333333333333333333GiB"), 357913941u);
    EXPECT_EQ(parsed("0.1k"), 100u);
    EXPECT_EQ(parsed("1.999"), 1u);
    EXPECT_EQ(parsed("0.000001M"), 1u);
}

TEST(ByteSize, percentages_are_of_the_whole) {
    EXPECT_EQ(parsed("90%", 1000), 900u);
    EXPECT_EQ(parsed("90 %", 1000), 900u);
    EXPECT_EQ(parsed("100%", 12345), 12345u);
    EXPECT_EQ(parsed("0.5%", 1000), 5u);
    EXPECT_EQ(parsed("1e1%", 1000), 100u);
    EXPECT_EQ(parsed("33.3%", 10), 3u);
    EXPECT_EQ(parsed("100%", std::numeric_limits<std::size_t>::max()), std::numeric_limits<std::size_t>::max());
}

TEST(ByteSize, the_largest_size_is_the_largest_that_can_be_addressed) {
    EXPECT_EQ(parsed("18446744073709551615"), std::numeric_limits<std::size_t>::max());
    refused("18446744073709551616");
    refused("1e30");
    refused("1e999999999999999999999");
    refused("99999999999999999999999999999999999999999999999999T");
    refused("16777216TiB");
}

TEST(ByteSize, everything_else_is_refused_with_the_text_and_the_forms) {
    for (const char* text :
         {"",   " ",  "MB", "-1",  "+1",  "12X",  "nan",   "inf",  "0x10", "0%",   "101%", "100.0000001%",
          "1.", ".5", "1e", "1e+", "1 2", "1MBB", "1kibi", "1 % ", " 12",  "1,5k", "%"})
        refused(text);
}

TEST(ByteSize, texts_have_the_largest_unit_that_is_not_above_the_size) {
    EXPECT_EQ(byte_size_text(0), "0 B");
    EXPECT_EQ(byte_size_text(1023), "1023 B");
    EXPECT_EQ(byte_size_text(1024), "1.00 KiB");
    EXPECT_EQ(byte_size_text(std::size_t{3} << 19), "1.50 MiB");
    EXPECT_EQ(byte_size_text(std::size_t{1000} << 30), "1000.00 GiB");
    EXPECT_EQ(byte_size_text(std::size_t{2048} << 30), "2.00 TiB");
    EXPECT_EQ(byte_size_text(std::numeric_limits<std::size_t>::max()), "16.00 EiB");
}

TEST(ByteSize, texts_have_a_point_whatever_the_locale) {
    const std::string before = std::setlocale(LC_ALL, nullptr);
    const char* with_comma = nullptr;
    for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "nl_NL.UTF-8"})
        if (with_comma == nullptr) with_comma = std::setlocale(LC_ALL, name);
    EXPECT_EQ(fixed_text(1.5, 2), "1.50");
    EXPECT_EQ(byte_size_text(std::size_t{3} << 19), "1.50 MiB");
    std::setlocale(LC_ALL, before.c_str());
    EXPECT_EQ(fixed_text(-0.125, 9), "-0.125000000");
    EXPECT_EQ(fixed_text(1e300, 0).size(), 301u);
    if (with_comma == nullptr) GTEST_SKIP() << "no locale with a comma is installed";
}

TEST(ByteSize, a_percentage_of_nothing_known_is_refused) { refused("5%", 0); }

}  // namespace
