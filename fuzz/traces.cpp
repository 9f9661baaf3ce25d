// A fuzz target: any text as a trace (`kmm trace`). It is refused with a text that names the file, or it is summed up
// and becomes a page.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "trace_page.hpp"
#include "trace_reader.hpp"
#include "trace_summary.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kmm::tools;
    std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
    try {
        const Trace trace = read_trace(in, "input");
        if (summary_of(trace).empty()) std::abort();
        std::ostringstream page;
        write_page(trace, "input", page);
        if (!page || page.str().empty()) std::abort();
    } catch (const TraceError& e) {
        if (std::string(e.what()).find("input") == std::string::npos) {
            std::fprintf(stderr, "traces: \"%s\" does not name the file\n", e.what());
            std::abort();
        }
    }
    return 0;
}
