// Reads a file of the trace-event format, as a runtime writes it and Perfetto shows it. One thread.
#pragma once

#include <istream>
#include <string>

#include "trace.hpp"

namespace kmm::tools {

/// The trace in the file `path`. Throws TraceError, which names the file, the number of the event (the first of
/// "traceEvents" is 1) and what is wrong with it; a file that ends before the trace does is read as far as it goes
/// (Trace::is_cut_off). Events may stand in any order; unknown keys are allowed. The file is
/// read once from begin to end and never held as a whole: what is kept takes less.
Trace read_trace(const std::string& path);

/// The same of a stream; `name` is for errors.
Trace read_trace(std::istream& in, const std::string& name);

}  // namespace kmm::tools
