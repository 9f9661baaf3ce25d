// MULTI_STREAM_ALLOCATIONS_BENCH: whether allocations keep kernels of several streams from running beside each other.
// Each kernel runs for 100 us on the next stream and has a buffer of 1 MiB that is made before and dropped behind it;
// `raw` is the same without buffers.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "common.hpp"
#include "driver/registry.hpp"
#include "driver_machine.hpp"
#include "rmm_resources.hpp"

#include <rmm/device_buffer.hpp>

using namespace kmm::bench;

namespace {

constexpr const char* help = R"(RMM Multi Stream Allocations Benchmark

usage: MULTI_STREAM_ALLOCATIONS_BENCH [options]

  -r, --resource NAMES   pool, binning, arena, cuda_async, cuda or another resource (without it: all but managed)
  -k, --kernels COUNT    kernels (8)
  -s, --streams COUNT    streams (8)
  -w, --warm             every stream has freed memory before the clock starts
  -p, --profile          one run without timing
  --benchmark_filter=TEXT, --benchmark_out=FILE, --quick
)";

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr double kernel_microseconds = 100;

void run(Machine& machine, device_memory_resource* resource, const Streams& streams, std::size_t num_kernels) {
    for (std::size_t i = 0; i < num_kernels; ++i) {
        RawStream const stream = streams[i % streams.size()];
        rmm::device_buffer buffer;
        if (resource != nullptr) buffer = rmm::device_buffer(buffer_bytes, static_cast<cudaStream_t>(stream), resource);
        if (!machine.spin(stream, kernel_microseconds)) throw std::runtime_error("a kernel could not be started");
    }
    machine.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine line(argc, argv);
    if (line.flag("-h", "--help")) {
        std::fputs(help, stdout);
        return 0;
    }
    const std::string names = line.text("-r", "--resource").value_or("");
    const std::size_t num_kernels = std::max<std::size_t>(1, line.count("-k", "--kernels").value_or(8));
    const std::size_t num_streams = std::max<std::size_t>(1, line.count("-s", "--streams").value_or(8));
    const bool warm = line.flag("-w", "--warm");
    const bool profile = line.flag("-p", "--profile");
    Report report(line.num_left(), line.left());
    try {
        DriverMachine machine(kmm::driver::process_default());
        const Streams streams(machine, num_streams);
        const int repetitions = report.repetitions(9);
        Beside beside;
        beside.raw = time_each(repetitions, [&] { run(machine, nullptr, streams, num_kernels); });
        beside.note = std::to_string(num_kernels) + " kernels of 100 us on " + std::to_string(num_streams) +
                      " streams" + (warm ? ", warm" : "");
        for (const NamedResource& resource : resources_named(names)) {
            if (names.empty() && resource.name == "managed") continue;
            if (!report.wants(resource.name)) continue;
            Samples samples;
            for (int i = 0; i < (profile ? 1 : repetitions); ++i) {
                // Made afresh: the first turn of every stream is what the figure is about.
                ResourceShape shape;
                shape.initial_bytes = resource.grows ? 0 : std::size_t{256} << 20;
                const Resources made = resource.make(shape);
                if (warm) run(machine, made.top(), streams, std::max(num_kernels, num_streams));
                const auto begin = Clock::now();
                run(machine, made.top(), streams, num_kernels);
                samples.push_back(seconds_since(begin));
            }
            if (!profile) report.add(resource.name, samples, {"ms", Better::lower, 1e3}, beside);
        }
    } catch (const std::invalid_argument& error) {
        std::printf("%s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
