// RANDOM_ALLOCATIONS_BENCH: a random mix of allocations and frees on one stream. 73 of 100 steps allocate, of 1 MiB up
// to the largest size; what is live stays under 16000 MiB (on the host driver under an eighth of the device).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "allocator_workloads.hpp"
#include "command_line.hpp"
#include "common.hpp"
#include "driver/registry.hpp"
#include "rmm_resources.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>

using namespace kmm::bench;

namespace {

constexpr const char* help = R"(RMM Random Allocations Benchmark

usage: RANDOM_ALLOCATIONS_BENCH [options]

  -r, --resource NAMES   pool, binning, arena, cuda_async, cuda or another resource (without it: all but managed)
  -n, --numallocs COUNT  steps (1000; without -n and -m: 1000, 10000 and 100000)
  -m, --maxsize MIB      largest allocation (4096; without -n and -m: 1 to 4096)
  -p, --profile          one run without timing
  --benchmark_filter=TEXT, --benchmark_out=FILE, --quick
)";

constexpr double longest_seconds = 2;

struct Steps {
    std::size_t count;
    std::size_t most_mib;
    std::size_t cap_mib;
};

/// How many requests were refused.
std::size_t run(device_memory_resource& resource, const Steps& steps) {
    struct Live {
        void* pointer;
        std::size_t mib;
    };
    constexpr std::size_t mib = std::size_t{1} << 20;
    std::vector<Live> live;
    std::size_t used = 0, refused = 0;
    Draw draw(1);
    const auto drop = [&](std::size_t i) {
        resource.deallocate(live[i].pointer, live[i].mib * mib, rmm::cuda_stream_default);
        used -= live[i].mib;
        live[i] = live.back();
        live.pop_back();
    };
    for (std::size_t step = 0; step < steps.count; ++step) {
        const bool wants_more = draw.below(100) < 73;
        const std::size_t size = 1 + draw.below(steps.most_mib);
        const std::size_t victim = draw.next();
        if (wants_more && used + size <= steps.cap_mib) {
            try {
                live.push_back({resource.allocate(size * mib, rmm::cuda_stream_default), size});
                used += size;
                continue;
            } catch (const std::exception&) {
                ++refused;
            }
        }
        if (!live.empty()) drop(victim % live.size());
    }
    while (!live.empty()) drop(live.size() - 1);
    return refused;
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine line(argc, argv);
    if (line.flag("-h", "--help")) {
        std::fputs(help, stdout);
        return 0;
    }
    const std::string names = line.text("-r", "--resource").value_or("");
    const std::optional<std::size_t> count = line.count("-n", "--numallocs");
    const std::optional<std::size_t> most = line.count("-m", "--maxsize");
    const bool profile = line.flag("-p", "--profile");
    Report report(line.num_left(), line.left());
    try {
        const bool is_host = kmm::driver::process_default().kind() == kmm::driver::Kind::host;
        std::vector<std::size_t> counts{1'000, 10'000, 100'000}, sizes{1, 4, 64, 256, 1024, 4096};
        if (count || most) {
            counts = {count.value_or(1'000)};
            sizes = {std::max<std::size_t>(1, most.value_or(4'096))};
        } else if (is_host || report.quick()) {
            counts = {1'000};
            sizes = {1, 64};
        }
        std::size_t cap_mib = 16'000;
        if (is_host) cap_mib = std::min(cap_mib, (rmm::available_device_memory().second >> 20) / 8);
        for (const NamedResource& resource : resources_named(names)) {
            if (names.empty() && resource.name == "managed") continue;
            for (const std::size_t most_mib : sizes) {
                double seconds_per_step = 0;
                for (const std::size_t num_steps : counts) {
                    const std::string name =
                        resource.name + "/" + std::to_string(num_steps) + "/" + std::to_string(most_mib);
                    if (!report.wants(name)) continue;
                    if (!profile && seconds_per_step * static_cast<double>(num_steps) > longest_seconds) {
                        report.skip(name, "left out: would take long; ask for it with -n and -m");
                        continue;
                    }
                    ResourceShape shape;
                    // An arena does not grow; half of its memory for the fragments.
                    if (!resource.grows) shape.initial_bytes = cap_mib << 21;
                    const Resources made = resource.make(shape);
                    std::size_t refused = 0;
                    const auto work = [&] { refused = run(*made.top(), {num_steps, most_mib, cap_mib}); };
                    if (profile) {
                        work();
                        continue;
                    }
                    Beside beside;
                    const Samples samples = time_each(report.repetitions(3), work);
                    seconds_per_step = median(samples) / static_cast<double>(num_steps);
                    beside.note = std::to_string(refused) + " requests refused, seed 1";
                    report.add(name, samples, {"ms", Better::lower, 1e3}, beside);
                }
            }
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
