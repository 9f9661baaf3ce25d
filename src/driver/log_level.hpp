// How much a message matters: levels and their names, the same for the log of kmm and the loggers of rmm.
//
// Owns: the numbers, the names. Must not know: who logs, where lines go. Any thread.
#pragma once

#include <optional>
#include <string_view>

namespace kmm::log {

/// RAPIDS' numbers. No message is at `off`.
enum Level : int { trace = 0, debug, info, warn, error, critical, off };

/// As lines of text name it: "warning" for `warn`.
const char* name_of(Level level) noexcept;

/// What the environment and programs may write: a name in lower or upper case, or a short form (`warn`, `err`).
std::optional<Level> level_named(std::string_view name) noexcept;

/// The names for an error's text.
inline constexpr const char* accepted_level_names = "trace, debug, info, warn, error, critical, off";

}  // namespace kmm::log
