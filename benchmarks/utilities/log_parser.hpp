// Reads what logging_resource_adaptor writes, in every release since 0.16.
//
// Owns: the event and the parser. Must not know: resources. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rmm/error.hpp>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

enum class action { ALLOCATE, FREE, ALLOCATE_FAILURE };

/// One line of a log.
struct event {
    event() = default;
    event(action what, std::size_t bytes, void const* ptr)
        : event(what, bytes, reinterpret_cast<std::uintptr_t>(ptr)) {}
    event(action what, std::size_t bytes, std::uintptr_t ptr) : act{what}, size{bytes}, pointer{ptr} {}
    event(std::size_t thread, action what, std::size_t bytes, std::uintptr_t ptr, std::uintptr_t stream_handle,
          std::size_t row)
        : act{what}, size{bytes}, pointer{ptr}, thread_id{thread}, stream{stream_handle}, index{row} {}

    action act{};
    std::size_t size{};
    std::uintptr_t pointer{};
    std::size_t thread_id{};
    std::uintptr_t stream{};
    std::size_t index{};  ///< number of the row, from 0
    std::size_t line{};   ///< of the file, from 1; 0: of no file

    /// The same thing happened: thread, stream and place in the log are not compared.
    friend bool operator==(event const& a, event const& b) {
        return a.act == b.act && a.size == b.size && a.pointer == b.pointer;
    }
    friend bool operator!=(event const& a, event const& b) { return !(a == b); }

    friend std::ostream& operator<<(std::ostream& os, event const& e) {
        char const* const names[] = {"allocate", "free", "allocate failure"};
        return os << "Thread: " << e.thread_id << "  " << names[static_cast<int>(e.act)] << " Size: " << e.size
                  << " Pointer: 0x" << std::hex << e.pointer << " Stream: 0x" << e.stream << std::dec;
    }
};

/// A line cut at its commas; no field of a log has commas or quotes.
inline std::vector<std::string_view> split_line(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    std::vector<std::string_view> fields;
    for (;;) {
        std::size_t const comma = line.find(',');
        fields.push_back(line.substr(0, comma));
        if (comma == std::string_view::npos) return fields;
        line.remove_prefix(comma + 1);
    }
}

[[noreturn]] inline void refuse_line(std::string const& filename, std::size_t line, std::string const& why) {
    throw rmm::logic_error("cannot read the log '" + filename + "', line " + std::to_string(line) + ": " + why);
}

/// Decimal, hexadecimal after "0x", or one of the ways to print null. False for anything else.
inline bool parse_number(std::string_view text, std::uint64_t* value) {
    *value = 0;
    if (text == "(nil)" || text == "nullptr") return true;
    int base = 10;
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        text.remove_prefix(2);
    }
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
    return error == std::errc{} && end == text.data() + text.size();
}

/// What is wrong with a text that `parse_number` refuses.
inline char const* why_no_number(std::string_view text) {
    bool const hexadecimal = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (hexadecimal) text.remove_prefix(2);
    char const* const digits = hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
    return !text.empty() && text.find_first_not_of(digits) == text.npos ? "too large for 64 bits" : "no number";
}

/// The events of a log, in its order. Columns are found by their names. Throws rmm::logic_error, with file, line and
/// reason, for a file that cannot be read, a column that is missing, a line of another length, an unknown action, or
/// what is no number.
inline std::vector<event> parse_csv(std::string const& filename) {
    std::ifstream file(filename);
    std::string line;
    if (!file || !std::getline(file, line)) refuse_line(filename, 1, "the file cannot be opened, or is empty");

    enum column { thread, what, pointer, size, stream, num_columns };
    constexpr std::array<std::string_view, num_columns> names = {"Thread", "Action", "Pointer", "Size", "Stream"};
    std::array<std::size_t, num_columns> places{};
    std::vector<std::string_view> const titles = split_line(line);
    std::size_t const num_fields = titles.size();
    for (std::size_t c = 0; c < num_columns; ++c) {
        auto const found = std::find(titles.begin(), titles.end(), names[c]);
        if (found == titles.end()) refuse_line(filename, 1, "there is no column '" + std::string(names[c]) + "'");
        places[c] = static_cast<std::size_t>(found - titles.begin());
    }

    std::vector<event> events;
    for (std::size_t number = 2; std::getline(file, line); ++number) {
        std::vector<std::string_view> const fields = split_line(line);
        if (fields.size() == 1 && fields[0].empty()) continue;
        if (fields.size() != num_fields)
            refuse_line(filename, number,
                        std::to_string(fields.size()) + " columns instead of " + std::to_string(num_fields));
        auto const number_of = [&](column c) {
            std::uint64_t value = 0;
            std::string_view const text = fields[places[c]];
            if (!parse_number(text, &value))
                refuse_line(filename, number, "'" + std::string(text) + "' is " + why_no_number(text));
            return static_cast<std::size_t>(value);
        };
        auto const action_of = [&](std::string_view name) {
            if (name == "allocate") return action::ALLOCATE;
            if (name == "free") return action::FREE;
            if (name == "allocate failure") return action::ALLOCATE_FAILURE;
            refuse_line(filename, number, "the action '" + std::string(name) + "' is unknown");
        };
        events.emplace_back(number_of(thread), action_of(fields[places[what]]), number_of(size), number_of(pointer),
                            number_of(stream), events.size());
        events.back().line = number;
    }
    return events;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
