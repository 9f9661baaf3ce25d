// Implements byte_size.hpp. Pure; any thread.
//
// The arithmetic of the parser is exact (integers, not floating point), so that limits near SIZE_MAX and decimal
// fractions come out as they are written.
#include "driver/byte_size.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>

#include "driver/format.hpp"

namespace kmm::driver {
namespace {

using Wide = unsigned __int128;

/// 10^18 * 2^64 and 10^18 * 2^40 both fit 128 bits; later digits of a number this long cannot change a whole byte of
/// any size that is met in practice. SIZE_MAX itself has 20 digits and is kept by `max_digits_plain`.
constexpr int max_digits_percent = 18;
constexpr int max_digits_plain = 24;

/// digits * 10^exponent
struct Decimal {
    Wide digits = 0;
    long exponent = 0;
};

struct Scanner {
    std::string_view text;
    std::size_t at = 0;

    bool digit() const { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); }
    bool accept(char lower) {
        if (at >= text.size() || std::tolower(static_cast<unsigned char>(text[at])) != lower) return false;
        ++at;
        return true;
    }
};

void add_digit(Decimal& value, int max_digits, int& num_digits, char digit, bool fraction) {
    if (num_digits < max_digits) {
        value.digits = value.digits * 10 + static_cast<unsigned>(digit - '0');
        if (value.digits != 0) ++num_digits;
        if (fraction) --value.exponent;
    } else if (!fraction) {
        ++value.exponent;
    }
}

bool scan_number(Scanner& in, int max_digits, Decimal* out) {
    int num_digits = 0;
    if (!in.digit()) return false;
    while (in.digit()) add_digit(*out, max_digits, num_digits, in.text[in.at++], false);
    if (in.accept('.')) {
        if (!in.digit()) return false;
        while (in.digit()) add_digit(*out, max_digits, num_digits, in.text[in.at++], true);
    }
    if (in.accept('e')) {
        const bool negative = in.at < in.text.size() && in.text[in.at] == '-';
        if (negative || (in.at < in.text.size() && in.text[in.at] == '+')) ++in.at;
        if (!in.digit()) return false;
        long exponent = 0;
        // Beyond this every number is zero or too large, whatever its digits are.
        while (in.digit())
            exponent = exponent < 100000 ? exponent * 10 + (in.text[in.at++] - '0') : (++in.at, exponent);
        out->exponent += negative ? -exponent : exponent;
    }
    return true;
}

/// floor(value.digits * 10^value.exponent), or nothing above `limit`.
std::optional<Wide> to_integer(Decimal value, Wide limit) {
    if (value.digits == 0) return Wide{0};
    for (; value.exponent > 0; --value.exponent) {
        if (value.digits > limit) return std::nullopt;
        value.digits *= 10;
    }
    for (; value.exponent < 0 && value.digits != 0; ++value.exponent) value.digits /= 10;
    if (value.digits > limit) return std::nullopt;
    return value.digits;
}

std::optional<std::uint64_t> unit_factor(std::string_view unit) {
    std::string lower;
    for (char c : unit) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower.empty() || lower == "b") return 1;
    constexpr std::string_view prefixes = "kmgt";
    const std::size_t prefix = prefixes.find(lower[0]);
    if (prefix == std::string_view::npos) return std::nullopt;
    const std::string rest = lower.substr(1);
    const bool binary = rest == "i" || rest == "ib";
    if (!binary && !rest.empty() && rest != "b") return std::nullopt;
    std::uint64_t factor = 1;
    for (std::size_t i = 0; i <= prefix; ++i) factor *= binary ? 1024 : 1000;
    return factor;
}

std::optional<std::size_t> refuse(std::string_view text, const char* why, std::string* error_text) {
    if (error_text != nullptr)
        *error_text = driver::format(
            "'{}' {}; a size is a number and an optional unit, e.g. 500MB, 4GiB, 1.5k, 1e9 or 90%", text, why);
    return std::nullopt;
}

}  // namespace

std::optional<std::size_t> parse_byte_size(std::string_view text, std::size_t whole, std::string* error_text) {
    const bool percent = !text.empty() && text.back() == '%';
    Scanner in{text};
    Decimal number;
    if (!scan_number(in, percent ? max_digits_percent : max_digits_plain, &number))
        return refuse(text, "does not begin with a decimal number", error_text);
    while (in.at < text.size() && (text[in.at] == ' ' || text[in.at] == '\t')) ++in.at;
    const std::string_view unit = text.substr(in.at);
    const Wide most = std::numeric_limits<std::size_t>::max();

    if (unit == "%") {
        // Compared in units of 10^-16 percent: finer than any percentage that somebody writes.
        const std::optional<Wide> fine = to_integer({number.digits, number.exponent + 16}, Wide{1000000000000000000u});
        if (number.digits == 0 || !fine) return refuse(text, "is not a percentage above 0 and at most 100", error_text);
        if (whole == 0)
            return refuse(text, "is a percentage, and nothing is known that it could be a part of", error_text);
        return static_cast<std::size_t>(*to_integer({number.digits * whole, number.exponent - 2}, ~Wide{0} / 10));
    }
    const std::optional<std::uint64_t> factor = unit_factor(unit);
    if (!factor) return refuse(text, "has an unknown unit", error_text);
    const std::optional<Wide> bytes = to_integer({number.digits * *factor, number.exponent}, most);
    if (!bytes) return refuse(text, "is more than this machine can address", error_text);
    return static_cast<std::size_t>(*bytes);
}

std::string fixed_text(double value, int decimals) {
    char text[std::numeric_limits<double>::max_exponent10 + 16];
    const auto end = std::to_chars(text, std::end(text), value, std::chars_format::fixed, std::min(decimals, 9)).ptr;
    return {text, end};
}

std::string byte_size_text(std::size_t bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
    return driver::format("{} {}", fixed_text(value, unit == 0 ? 0 : 2), units[unit]);
}

}  // namespace kmm::driver
