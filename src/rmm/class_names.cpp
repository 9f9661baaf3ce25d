// Implements class_names.hpp. Any thread.
#include "rmm/class_names.hpp"

#include <atomic>
#include <utility>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

std::atomic<bool> as_in_python{false};
thread_local bool for_programs = false;

bool is_in_name(char c) noexcept { return (c >= 'a' && c <= 'z') || c == '_'; }

void append_in_python(std::string* to, std::string_view name) {
    bool begins = true;
    for (const char c : name) {
        if (c != '_') *to += begins ? static_cast<char>(c - 'a' + 'A') : c;
        begins = c == '_';
    }
}

}  // namespace

void name_classes_as_in_python() noexcept { as_in_python.store(true, std::memory_order_relaxed); }

names_for_programs::names_for_programs() noexcept : before_(std::exchange(for_programs, true)) {}
names_for_programs::~names_for_programs() { for_programs = before_; }

std::string with_class_names(std::string_view text) {
    if (!as_in_python.load(std::memory_order_relaxed) || for_programs) return std::string(text);
    std::string result;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = begin;
        while (end < text.size() && is_in_name(text[end])) ++end;
        const std::string_view word = text.substr(begin, end - begin);
        if (word.ends_with("_resource") || word.ends_with("_adaptor"))
            append_in_python(&result, word);
        else
            result += word;
        if (end < text.size()) result += text[end++];
        begin = end;
    }
    return result;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
