// Implements options.hpp.
#include "rmm/c_interface/options.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/c_interface/errors.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

bool separates(char c) noexcept { return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

options::options(const char* kind, const char* text, std::size_t (*whole_bytes)())
    : kind_(kind), whole_bytes_(whole_bytes) {
    if (text != nullptr) parse(text);
}

void options::refuse(const std::string& why) const {
    throw invalid_argument(kmm::driver::format("the options of a resource of kind '{}': {}", kind_, why));
}

void options::parse(const char* text) {
    for (const char* at = text; *at != 0;) {
        if (separates(*at)) {
            ++at;
            continue;
        }
        const char* const begin = at;
        while (*at != 0 && *at != '=' && !separates(*at)) ++at;
        entry e;
        e.key.assign(begin, at);
        if (*at != '=' || e.key.empty()) refuse(kmm::driver::format("'{}' is not followed by '=' and a value", e.key));
        ++at;
        if (*at == '"') {
            for (++at;; ++at) {
                if (*at == 0) refuse(kmm::driver::format("the double quotes of '{}' do not end", e.key));
                if (*at == '"') {
                    ++at;
                    if (*at != '"') break;
                }
                e.value += *at;
            }
            if (*at != 0 && !separates(*at))
                refuse(kmm::driver::format("there is something behind the double quotes of '{}'", e.key));
        } else {
            while (*at != 0 && !separates(*at)) {
                if (*at == '"')
                    refuse(kmm::driver::format("a double quote in the middle of '{}': put all of the value in quotes",
                                               e.key));
                e.value += *at++;
            }
        }
        if (std::any_of(entries_.begin(), entries_.end(), [&](const entry& other) { return other.key == e.key; }))
            refuse(kmm::driver::format("'{}' stands twice", e.key));
        entries_.push_back(std::move(e));
    }
}

std::optional<std::string> options::text(const char* key) {
    known_.emplace_back(key);
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) { return e.key == key; });
    if (at == entries_.end()) return std::nullopt;
    at->asked = true;
    return at->value;
}

std::optional<std::size_t> options::bytes(const char* key) {
    const std::optional<std::string> value = text(key);
    if (!value) return std::nullopt;
    const bool is_share = value->find('%') != value->npos;
    std::string why;
    const auto found = kmm::driver::parse_byte_size(*value, is_share ? whole_bytes_() : 0, &why);
    if (!found) refuse(kmm::driver::format("'{}': {}", key, why));
    return is_share ? align_down(*found, CUDA_ALLOCATION_ALIGNMENT) : *found;
}

std::optional<std::size_t> options::count(const char* key) {
    const std::optional<std::string> value = text(key);
    if (!value) return std::nullopt;
    std::size_t number = 0;
    const char* const end = value->data() + value->size();
    const auto parsed = std::from_chars(value->data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end)
        refuse(kmm::driver::format("'{}' is '{}': use a number of 0 or more", key, *value));
    return number;
}

bool options::flag(const char* key) {
    const std::optional<std::string> value = text(key);
    if (!value || *value == "0" || *value == "false") return false;
    if (*value == "1" || *value == "true") return true;
    refuse(kmm::driver::format("'{}' is '{}': use 0, 1, false or true", key, *value));
}

void options::miss(const char* key, const char* example) const {
    refuse(kmm::driver::format("'{}' is needed, as in {}={}", key, key, example));
}

void options::expect_no_more() const {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [](const entry& e) { return !e.asked; });
    if (at == entries_.end()) return;
    std::string names;
    for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
    refuse(kmm::driver::format("'{}' is unknown; known {}", at->key, names.empty() ? "is none" : "are " + names));
}

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
