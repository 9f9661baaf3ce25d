// Reads what RecordWriter writes.
//
// Owns: the form of the lines, as the writer does. Must not know: what becomes of them. Any thread.
#pragma once

#include <iosfwd>
#include <string>

#include "kmm/trace/collector.hpp"

namespace kmm::trace {

/// Tells `consumer` what the lines say, in their order, times and threads 0. Returns the machine of the first lines.
/// Throws InvalidArgument that names the line and what was expected there; `name` is the file's, for that text. A
/// record whose last line says that events were lost, or has no last line, is read all the same: `*complete` says.
/// O(length).
Machine read_record(std::istream& in, const std::string& name, Consumer& consumer, bool* complete);

}  // namespace kmm::trace
