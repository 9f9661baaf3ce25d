// A fuzz target: any text as a record of a runtime (`kmm simulate`). It is refused with a text that names the record,
// or every policy plays it to an end: whatever the lines say, no memory is touched that is not the simulator's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

#include "kmm/trace/record_reader.hpp"
#include "simulate/plays.hpp"
#include "simulate/program_check.hpp"

namespace {

using namespace kmm;

/// Enough for every line of a record; more only takes time.
constexpr std::size_t most_chunks = 2000;

std::size_t num_chunks(const simulate::Program& program) {
    std::size_t n = 0;
    for (const trace::Array& a : program.arrays) n += a.chunks.size();
    return n;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
    simulate::Program program;
    bool complete = false;
    try {
        program.machine = trace::read_record(in, "input", program, &complete);
        simulate::check(program, "input");
        if (num_chunks(program) > most_chunks) return 0;
        for (const simulate::Policies& policies : simulate::all_policies()) {
            if (policies.before != simulate::Policies::Before::as_it_is) continue;
            (void)simulate::play(program, policies, {}, [](graph::TaskNumber) { return std::int64_t{1000}; }, 0);
        }
    } catch (const std::runtime_error& e) {
        if (*e.what() == '\0') std::abort();
    } catch (const std::invalid_argument& e) {
        if (std::string(e.what()).find("input") == std::string::npos) {
            std::fprintf(stderr, "records: \"%s\" does not name the record\n", e.what());
            std::abort();
        }
    }
    return 0;
}
