// REPLAY_BENCH: replays a log of rmm::mr::logging_resource_adaptor on the resources of this library.
//
// For each resource one line with the milliseconds, the failures and how much memory it took for what was live. Exit
// status: 0 everything was served (or help was printed); 1 a resource refused something or could not be made; 2 the
// arguments or the log are wrong.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "common.hpp"
#include "replay.hpp"
#include "rmm_resources.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/error.hpp>

using namespace kmm::bench;

namespace {

constexpr const char* help = R"(RMM Replay Benchmark: replays a log of memory allocations and frees

usage: REPLAY_BENCH -f FILE [options]

  -f, --file FILE       log that a logging_resource_adaptor wrote; without it this text is printed
  -r, --resource NAMES  pool, arena, binning, cuda, managed or another resource of this library, several with commas
                        (without it: all of them)
  -s, --size GIB        simulated device memory (fractions allowed): no device memory is used. For resources that take
                        their memory from another one
  -t, --threads         each thread of the log at its own pace, without the order of the whole log
  -v, --verbose         print every event
  --benchmark_repetitions=N (3), --benchmark_filter=TEXT, --benchmark_out=FILE
)";

struct Arguments {
    std::string file;
    std::string resources;
    double simulated_gib = 0;
    ReplayOrder order = ReplayOrder::of_the_log;
    bool verbose = false;
    int repetitions = 3;
};

Arguments parse(CommandLine& line) {
    Arguments result;
    if (line.flag("-h", "--help")) return result;
    result.file = line.text("-f", "--file").value_or("");
    result.resources = line.text("-r", "--resource").value_or("");
    result.simulated_gib = line.number("-s", "--size").value_or(0);
    if (line.flag("-t", "--threads")) result.order = ReplayOrder::of_each_thread;
    result.verbose = line.flag("-v", "--verbose");
    result.repetitions =
        std::max(1, static_cast<int>(line.count("--benchmark_repetitions", "--benchmark_repetitions").value_or(3)));
    return result;
}

/// Counts what a resource takes from its upstream; or, with a size, stands in for device memory: addresses that nobody
/// may touch, never given out twice. Thread-safe.
class Source final : public rmm::mr::device_memory_resource {
  public:
    explicit Source(std::size_t simulated_bytes) : end_(first_address + simulated_bytes) {}
    std::size_t peak_bytes() const { return peak_; }

  private:
    static constexpr std::size_t first_address = 0x100;

    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        void* pointer = nullptr;
        if (end_ == first_address) {
            pointer = device_.allocate(bytes, stream);
        } else {
            const std::size_t rounded = bytes / 256 * 256 + (bytes % 256 != 0 ? 256 : 0);  // 0 if that overflows
            std::size_t next = next_.load();
            do {
                if (bytes > end_ - next || rounded > end_ - next)
                    throw rmm::bad_alloc("the simulated memory is full (failed to allocate " + std::to_string(bytes) +
                                         " bytes)");
            } while (!next_.compare_exchange_weak(next, next + rounded));
            pointer = reinterpret_cast<void*>(next);
        }
        const std::size_t held = held_.fetch_add(bytes) + bytes;
        std::size_t peak = peak_.load();
        while (peak < held && !peak_.compare_exchange_weak(peak, held)) {}
        return pointer;
    }
    void do_deallocate(void* pointer, std::size_t bytes, rmm::cuda_stream_view stream) override {
        if (end_ == first_address) device_.deallocate(pointer, bytes, stream);
        held_.fetch_sub(bytes);
    }

    rmm::mr::cuda_memory_resource device_;
    std::size_t end_;
    std::atomic<std::size_t> next_ = first_address, held_ = 0, peak_ = 0;
};

class Program {
  public:
    Program(const Arguments& arguments, Report& report, const ReplayLog& log)
        : arguments_(arguments), report_(report), log_(log), streams_(log) {}

    /// False where something was refused.
    bool run(const NamedResource& resource) {
        if (!report_.wants(resource.title)) return true;
        if (simulated() && !resource.has_upstream && !is_plain(resource)) {
            report_.skip(resource.title, "not available: takes no simulated memory");
            return true;
        }
        try {
            return measure(resource);
        } catch (const std::exception& error) {
            std::printf("Exception caught: %s\n", error.what());
            report_.skip(resource.title, std::string("failed: ") + error.what());
            return false;
        }
    }

  private:
    /// Holds what is live and nothing else.
    static bool is_plain(const NamedResource& resource) {
        return resource.name == "cuda" || resource.name == "managed";
    }
    bool simulated() const { return arguments_.simulated_gib > 0; }

    bool measure(const NamedResource& resource) {
        Samples seconds, over_live;
        std::vector<ReplayFailure> failures;
        for (int i = 0; i < arguments_.repetitions; ++i) {
            const std::size_t free_before = rmm::available_device_memory().first;
            std::size_t taken = 0;
            const ReplayResult result = once(resource, free_before, taken);
            seconds.push_back(result.seconds);
            if (log_.peak_bytes() > 0 && !is_plain(resource))
                over_live.push_back(static_cast<double>(taken) / static_cast<double>(log_.peak_bytes()));
            if (failures.empty()) failures = result.failures;
        }
        Beside beside;
        beside.note = std::to_string(log_.events().size()) + " events, " + std::to_string(log_.threads().size()) +
                      (log_.threads().size() == 1 ? " thread, " : " threads, ") +
                      (arguments_.order == ReplayOrder::of_the_log ? "in the order of the log" : "each thread alone") +
                      ", peak of live memory " + std::to_string(log_.peak_bytes()) + " B, " +
                      std::to_string(failures.size()) + " failures";
        report_.add(resource.title, seconds, {"ms", Better::lower, 1e3}, beside);
        if (!over_live.empty()) report_.add(resource.title + "/reserved_over_live", over_live, {"", Better::lower, 1});
        tell(resource, failures);
        return failures.empty();
    }

    /// `taken`: the most bytes that the resource held, or where it does not say, what is missing behind the last event.
    ReplayResult once(const NamedResource& resource, std::size_t free_before, std::size_t& taken) {
        const auto simulated_bytes =
            simulated() ? multiple_of_256(static_cast<std::size_t>(arguments_.simulated_gib * (1 << 30))) : 0;
        Source source(simulated_bytes);
        ResourceShape shape;
        if (resource.has_upstream) shape.upstream = &source;
        if (simulated_bytes > 0) {
            shape.initial_bytes = simulated_bytes;
            shape.maximum_bytes = simulated_bytes;
        }
        const Resources made = resource.make(shape);
        struct Look {
            std::size_t before, missing;
        } look{free_before, 0};
        const auto look_at = [](void* user) {
            Look& seen = *static_cast<Look*>(user);
            const std::size_t now = rmm::available_device_memory().first;
            seen.missing = seen.before > now ? seen.before - now : 0;
        };
        ReplayResult result = replay(log_, *made.top(), streams_, arguments_.order, look_at, &look);
        taken = resource.has_upstream ? source.peak_bytes() : look.missing;
        return result;
    }

    void tell(const NamedResource& resource, const std::vector<ReplayFailure>& failures) const {
        constexpr std::size_t most = 10;
        for (std::size_t i = 0; i < failures.size(); ++i) {
            if (i == most && !arguments_.verbose) {
                std::printf("%s: %zu more failures (-v prints them)\n", resource.title.c_str(), failures.size() - i);
                break;
            }
            const Event& event = log_.events()[failures[i].event];
            const std::string& reason = failures[i].reason;
            std::printf("%s: line %zu, event %zu, thread %zu, %zu bytes: %s\n", resource.title.c_str(), event.line,
                        event.index, event.thread_id, event.size,
                        arguments_.verbose ? reason.c_str() : reason.substr(0, reason.find('\n')).c_str());
        }
    }

    const Arguments& arguments_;
    Report& report_;
    const ReplayLog& log_;
    ReplayStreams streams_;
};

void print_events(const std::vector<Event>& events) {
    constexpr const char* names[] = {"ALLOCATE", "FREE", "ALLOCATE FAILURE"};
    for (const Event& event : events) {
        std::printf("Thread: %zu  %s Size: %zu Pointer: 0x%zx Stream: 0x%zx\n", event.thread_id,
                    names[static_cast<int>(event.act)], event.size, static_cast<std::size_t>(event.pointer),
                    static_cast<std::size_t>(event.stream));
    }
}

/// What the log says that no program has done; replayed as far as it makes sense.
void print_odd(const ReplayLog& log, bool verbose) {
    constexpr std::size_t most = 10;
    const std::size_t told = std::min(log.odd().size(), verbose ? log.odd().size() : most);
    for (std::size_t i = 0; i < told; ++i) std::printf("LOG is odd, %s\n", log.odd()[i].c_str());
    if (log.num_odd() > told) std::printf("LOG has %zu more odd events\n", log.num_odd() - told);
}

/// Null where the log cannot be replayed, which is told.
std::unique_ptr<ReplayLog> make_log(std::vector<Event> events) {
    try {
        return std::make_unique<ReplayLog>(std::move(events));
    } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        return nullptr;
    }
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine line(argc, argv);
    const Arguments arguments = parse(line);
    if (arguments.file.empty()) {
        std::fputs(help, stdout);
        return 0;
    }
    std::vector<NamedResource> resources;
    try {
        resources = resources_named(arguments.resources);
    } catch (const std::invalid_argument& error) {
        std::printf("%s\n", error.what());
        return 2;
    }
    std::vector<Event> events;
    try {
        events = rmm::detail::parse_csv(arguments.file);
    } catch (const std::exception& error) {
        std::printf("Failed to parse events: %s\n", error.what());
        return 2;
    }
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    std::printf("Using CUDA per-thread default stream.\n");
#endif
    if (arguments.simulated_gib > 0)
        std::printf("Simulating GPU with memory size of %zu bytes.\n",
                    static_cast<std::size_t>(arguments.simulated_gib * (1 << 30)));
    std::printf("Total Events: %zu\n", events.size());
    if (arguments.verbose) print_events(events);
    const std::unique_ptr<ReplayLog> known = make_log(std::move(events));
    if (known == nullptr) return 2;
    const ReplayLog& log = *known;
    print_odd(log, arguments.verbose);
    try {
        for (std::size_t i = 0; i < log.threads().size(); ++i)
            std::printf("Thread %zu: %zu events\n", i, log.threads()[i].size());
        Report report(line.num_left(), line.left());
        Program program(arguments, report, log);
        bool all_served = true;
        for (const NamedResource& resource : resources) all_served = program.run(resource) && all_served;
        if (log.num_leaked() > 0)
            std::printf("LOG shows leak of %zu allocations of %zu total bytes\n", log.num_leaked(), log.leaked_bytes());
        std::remove(benchmark_log_file().c_str());
        return all_served ? 0 : 1;
    } catch (const std::exception& error) {
        std::printf("Exception caught: %s\n", error.what());
        return 1;
    }
}
