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

/// One line, without a newline at the end. Never throws; a failure to write is ignored. Handed out when it returns,
/// unless some thread is in the handler just now or the caller is a thread of the library: then a little later, in
/// order.
void write(Level level, const char* text) noexcept;
inline void write(Level level, const std::string& text) noexcept { write(level, text.c_str()); }
/// The same of two parts, for where there may be no memory to join them: then the first alone.
void write(Level level, const char* text, const char* more) noexcept;
/// The same, but never handed out on this thread: where the caller must go on whatever the handler does.
void post(Level level, const char* text) noexcept;
inline void post(Level level, const std::string& text) noexcept { post(level, text.c_str()); }
/// The same for where there may be no memory: then the log keeps `text`, which must be there until the process ends, in
/// a place of its own, of which there is one, and says it as soon as it can.
void last_words(Level level, const char* text) noexcept;
/// Makes what the log keeps, so that later messages need no memory for that. Throws std::bad_alloc.
void prepare();
/// Waits until what was written so far is handed out; for one second at most, and not inside the handler. Where the
/// system gives no thread the caller hands it out itself, and the handler takes as long as it takes.
void flush() noexcept;
/// Set on threads that the library made: others wait for what they do.
bool& of_library_thread() noexcept;

}  // namespace kmm::log
