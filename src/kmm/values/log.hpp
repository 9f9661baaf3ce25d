// The library's log: one level and one destination a process. Any thread; a message that is not wanted costs one load.
#pragma once

#include <atomic>
#include <string>

namespace kmm::log {

enum Level : int { trace = 0, debug, info, warn, error, critical, off };

/// The current level; messages below it are dropped.
int level() noexcept;
inline bool wants(Level wanted) noexcept { return wanted >= level(); }

/// What KMM_LOG_LEVEL may say; null if `name` is one of these.
const char* refuse_level(const std::string& name);

/// One line, without a newline at the end. Never throws; a failure to write is ignored.
void write(Level level, const char* text) noexcept;
inline void write(Level level, const std::string& text) noexcept { write(level, text.c_str()); }

}  // namespace kmm::log
