// Reads the CSV file that rmm::mr::logging_resource_adaptor writes.
//
// Owns: nothing. Must not know: who logged, or what becomes of the events. Any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

enum class action : std::uint8_t { ALLOCATE, FREE, ALLOCATE_FAILURE };

/// One line of a log.
struct event {
    event() = default;
    event(action act, std::size_t size, void const* pointer)
        : event{act, size, reinterpret_cast<std::uintptr_t>(pointer)} {}
    event(action act, std::size_t size, std::uintptr_t pointer) : act{act}, size{size}, pointer{pointer} {}
    event(std::size_t thread_id, action act, std::size_t size, std::uintptr_t pointer, std::uintptr_t stream,
          std::size_t index)
        : act{act}, size{size}, pointer{pointer}, thread_id{thread_id}, stream{stream}, index{index} {}

    action act{};
    std::size_t size{};
    std::uintptr_t pointer{};
    std::size_t thread_id{};
    std::uintptr_t stream{};
    std::size_t index{};  ///< the number of the line, from 0 behind the header
};

inline bool operator==(event const& lhs, event const& rhs) {
    return lhs.act == rhs.act && lhs.size == rhs.size && lhs.pointer == rhs.pointer;
}

/// The lines of one file, with texts for what is wrong in them.
class log_reader {
  public:
    explicit log_reader(std::string const& filename) : filename_{filename}, file_{filename} {
        if (!file_) throw rmm::logic_error("cannot read the log '" + filename + "'");
    }

    std::vector<event> read() {
        std::vector<event> events;
        if (!next_line()) refuse("there is no header");
        columns const at = header();
        std::size_t const num_columns = fields_.size();
        while (next_line()) {
            if (fields_.size() != num_columns)
                refuse("it has " + std::to_string(fields_.size()) + " columns and the header " +
                       std::to_string(num_columns));
            events.emplace_back(number(at.thread, 10), act(at.act), number(at.size, 10), number(at.pointer, 16),
                                static_cast<std::uintptr_t>(number(at.stream, 16)), events.size());
        }
        return events;
    }

  private:
    struct columns {
        std::size_t thread, act, pointer, size, stream;
    };

    /// The next line that is not empty, cut into its fields.
    bool next_line() {
        while (std::getline(file_, text_)) {
            ++line_;
            if (!text_.empty() && text_.back() == '\r') text_.pop_back();
            if (text_.empty()) continue;
            fields_.clear();
            std::string_view rest{text_};
            for (auto comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
                fields_.push_back(rest.substr(0, comma));
                rest.remove_prefix(comma + 1);
            }
            fields_.push_back(rest);
            return true;
        }
        return false;
    }

    columns header() {
        return {column("Thread"), column("Action"), column("Pointer"), column("Size"), column("Stream")};
    }
    std::size_t column(std::string_view name) {
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            if (fields_[i] == name) return i;
        }
        refuse("the header has no column '" + std::string{name} + "'");
    }

    action act(std::size_t column) {
        std::string_view const name = fields_[column];
        if (name == "allocate") return action::ALLOCATE;
        if (name == "free") return action::FREE;
        if (name == "allocate failure") return action::ALLOCATE_FAILURE;
        refuse("unknown action '" + std::string{name} + "'");
    }

    /// Addresses come as 0x12ab, 12ab, 0 or (nil), which releases wrote in turn.
    std::size_t number(std::size_t column, int base) {
        std::string_view digits = fields_[column];
        if (base == 16) {
            if (digits == "(nil)") return 0;
            if (digits.substr(0, 2) == "0x") digits.remove_prefix(2);
        }
        std::size_t result = 0;
        auto const end = digits.data() + digits.size();
        auto const parsed = std::from_chars(digits.data(), end, result, base);
        if (parsed.ec != std::errc{} || parsed.ptr != end || digits.empty())
            refuse("'" + std::string{fields_[column]} + "' is no number");
        return result;
    }

    [[noreturn]] void refuse(std::string const& reason) const {
        throw rmm::logic_error(filename_ + ":" + std::to_string(line_) + ": " + reason);
    }

    std::string filename_;
    std::ifstream file_;
    std::string text_;
    std::size_t line_{};
    std::vector<std::string_view> fields_;
};

/// The events of a log, in its order. Throws rmm::logic_error, with the line, where the file cannot be read, a line has
/// another number of columns than the header, an action is unknown, or a number is none.
inline std::vector<event> parse_csv(std::string const& filename) { return log_reader{filename}.read(); }

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
