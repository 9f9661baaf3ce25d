// Implements log_level.hpp.
#include "driver/log_level.hpp"

#include <algorithm>
#include <iterator>

namespace kmm::log {
namespace {

struct Names {
    const char* name;
    std::string_view short_form;
};
constexpr Names names[] = {{"trace", {}},    {"debug", {}},    {"info", {}}, {"warning", "warn"},
                           {"error", "err"}, {"critical", {}}, {"off", {}}};
static_assert(std::size(names) == off + 1);

/// Letters only, and not of the locale.
bool is_either_case(std::string_view text, std::string_view lower) noexcept {
    const auto equals = [&](char shift) {
        return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                          [shift](char written, char wanted) { return written == wanted - shift; });
    };
    return !lower.empty() && (equals(0) || equals('a' - 'A'));
}

}  // namespace

const char* name_of(Level level) noexcept {
    return level >= trace && level <= off ? names[level].name : names[off].name;
}

std::optional<Level> level_named(std::string_view name) noexcept {
    for (int level = trace; level <= off; ++level)
        if (is_either_case(name, names[level].name) || is_either_case(name, names[level].short_form))
            return static_cast<Level>(level);
    return std::nullopt;
}

}  // namespace kmm::log
