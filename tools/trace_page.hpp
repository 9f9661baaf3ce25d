// `kmm trace view`: a trace as one HTML page that needs no network. Owns: how the page holds the data. One thread.
//
// The page has three blocks of data, which trace_page/data.js reads. `kmm-head` is JSON: what there is. `kmm-texts` is
// a JSON list: texts go by their position in it. `kmm-rows` is base64 of numbers in groups of 7 bits, the lowest first,
// the 8th bit set in all but the last; signed ones have the sign in the lowest bit. Times are nanoseconds since
// `begin_ns` of the head, each less the one before it. In this order:
//   slices, for each of the head's "tracks" (a lane at a depth):   time, length, name, category, arguments
//   samples, for each of the head's "series" (a counter):          time, arguments
//   waits:   time, length, process, name, category, id (signed), arguments
//   marks:   time, process, name, category, arguments
// Arguments are the position of a shape in the head's "shapes", then a value for each key of the shape, by its kind:
// i the signed number itself, t a text, w a text that is a word (true, false, null), d the 8 bytes of a double.
#pragma once

#include <ostream>
#include <string>

#include "trace.hpp"

namespace kmm::tools {

/// Writes the page to `out`. `title` is what it says above (the trace's file). What goes wrong shows in the state of
/// `out`.
void write_page(const Trace& trace, const std::string& title, std::ostream& out);

}  // namespace kmm::tools
