// The logger of rmm's own messages.
#pragma once

#include <string>

#include <rapids_logger/logger.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/logger_macros.hpp>  // 23.12 had them here

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// The sink of the default logger: the file that the environment variable RMM_DEBUG_LOG_FILE names, emptied, or stderr
/// where it is unset. Decided at the first call of this or of default_logger(). Throws std::runtime_error if the file
/// cannot be opened.
rapids_logger::sink_ptr default_sink();

/// "[%6t][%H:%M:%S:%f][%-6l] %v"
std::string default_pattern();

/// The logger "RMM": level `info`, flush level `off`. Lives until the process ends, also for destructors of static
/// objects. Thread-safe. Throws what default_sink() throws.
rapids_logger::logger& default_logger();

/// The name of 23.12.
inline rapids_logger::logger& logger() { return default_logger(); }

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
