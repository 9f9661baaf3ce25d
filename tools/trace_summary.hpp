// `kmm trace check`: what a trace says, as a page of text. Pure; one thread.
#pragma once

#include <string>

#include "trace.hpp"

namespace kmm::tools {

/// Duration, events by category, how busy each lane was, bytes copied each way, most memory in use and held, evictions,
/// failures, waits and the longest of them. Ends with a newline.
std::string summary_of(const Trace& trace);

}  // namespace kmm::tools
