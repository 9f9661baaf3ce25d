// The library's log: one level and one destination a process. Any thread; a message that is not wanted costs one load.
// The handler is called by one thread at a time and with no lock held: it may log, ask for reports, and submit.
#pragma once

#include <atomic>
#include <string>

#include "driver/log_level.hpp"

namespace kmm::log {

/// The current level; messages below it are dropped.
int level() noexcept;
inline bool wants(Level wanted) noexcept { return wanted >= level(); }

/// One line, without a newline at the end. Never throws; a failure to write is ignored. Delivered when it returns,
/// unless another thread delivers just now or the caller is a thread of the library: then a little later, in order.
void write(Level level, const char* text) noexcept;
inline void write(Level level, const std::string& text) noexcept { write(level, text.c_str()); }
/// Writes both parts as one line; the first alone if there is no memory to join them.
void write(Level level, const char* text, const char* more) noexcept;
/// As `write`, but never calls the handler on this thread: for callers that a handler must not block.
void post(Level level, const char* text) noexcept;
inline void post(Level level, const std::string& text) noexcept { post(level, text.c_str()); }
/// As `post`, for callers that may be without memory. `text` must live until the process ends: the log has one reserved
/// place for such a line if it cannot be queued.
void last_words(Level level, const char* text) noexcept;
/// Creates the log's state, so that later messages need no memory for it. Throws std::bad_alloc.
void prepare();
/// Waits until all earlier lines are delivered, for at most one second; returns at once inside the handler. If the
/// system has no thread for it, the caller delivers them itself, without a timeout.
void flush() noexcept;
/// Set on the library's own threads: `write` calls no handler there, because other threads wait for them.
bool& of_library_thread() noexcept;

}  // namespace kmm::log
