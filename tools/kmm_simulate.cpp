#include "kmm_simulate.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "driver/name_text.hpp"
#include "help.hpp"
#include "kmm/error.hpp"
#include "kmm/trace/record_reader.hpp"
#include "simulate/fitting_plays.hpp"
#include "simulate/generators.hpp"
#include "simulate/plays.hpp"
#include "simulate/program_check.hpp"

namespace kmm::tools {
namespace {

using namespace kmm::simulate;

constexpr const char* usage =
    "usage: kmm simulate RECORD    a program that KMM_RECORD=FILE has written down\n"
    "       kmm simulate axpy      --size CHUNKS --steps PASSES\n"
    "       kmm simulate product   --size TILES            of each side of three matrices\n"
    "       kmm simulate cholesky  --size TILES\n"
    "       kmm simulate stencil   --size CHUNKS --steps N [--rank 1, 2 or 3]\n"
    "       kmm simulate map-reduce --size CHUNKS          made by one task each, read by another\n"
    "       kmm simulate random    --size CHUNKS --steps TASKS [--seed N]\n"
    "       kmm simulate pipeline  --size BLOCKS           each loaded, worked on, added to a sum and dropped\n"
    "       kmm simulate temporaries --size CHUNKS --steps TURNS   two arrays a turn, which are dropped\n"
    "       kmm simulate fitting   --size PROGRAMS [--seed N]  random ones that fit in the order of submission, each "
    "on\n"
    "                 a machine of its own; of several the sum\n"
    "what is made     --chunk BYTES (64MiB)\n"
    "                 of axpy, product, cholesky, stencil: --runs N (1): so often, each waited for;\n"
    "                 --made-on-device: what they begin with; either way, what is moved before the first run\n"
    "                 is not counted\n"
    "memory           --device-memory BYTES, --host-memory BYTES: of each device, of the host\n"
    "                 --room CHUNKS: the same for the devices, in chunks\n"
    "times            --task-us US or NAME=US (100; a record may know its own), --host-us US (20), --submit-us US (1)\n"
    "rates in GB/s    --up (55) --down (55) --both (94) --peer (375) --within (1700)\n"
    "--ours           ours alone, without the others to compare with\n";

constexpr const char* names_of_made =
    "axpy, product, cholesky, stencil, map-reduce, random, pipeline, temporaries, fitting";

struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Options {
  public:
    Options(int count, char** words) {
        for (int i = 0; i < count; ++i) read(words, count, i);
        if (what.empty()) throw Wrong(std::string("say what to play: a record, or ") + names_of_made);
    }

    std::string what;
    std::size_t size = 0, steps = 0, rank = 2, room = 0;
    std::uint64_t seed = 1;
    std::size_t chunk_bytes = std::size_t{64} << 20;
    std::size_t device_bytes = 0, host_bytes = 0;
    double submit_us = 1;
    std::optional<double> task_us;
    std::map<std::string, double> task_us_by_name;
    Rates rates;
    bool ours_alone = false;
    Runs runs;

  private:
    /// Neither "nan" nor what is too small or too large for a double is within any bounds.
    static std::optional<double> parsed(std::string_view text) noexcept {
        double value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
        return value;
    }
    /// Simulated nanoseconds of many tasks are counted in 64 bits.
    static double microseconds(const std::string& name, std::string_view text) {
        const std::optional<double> value = parsed(text);
        if (!value || !(*value >= 0 && *value <= 1e9))
            throw Wrong(driver::format("{} needs a number of microseconds from 0 to 1e9, but got {}", name,
                                       driver::in_quotes(text)));
        return *value;
    }
    static std::size_t count(const std::string& name, std::string_view text, std::size_t least = 1) {
        const std::optional<double> value = parsed(text);
        if (!value || !(*value >= static_cast<double>(least) && *value <= 1e9) ||
            *value != static_cast<double>(static_cast<std::size_t>(*value)))
            throw Wrong(driver::format("{} needs a whole number from {} to 1e9, but got {}", name, least,
                                       driver::in_quotes(text)));
        return static_cast<std::size_t>(*value);
    }
    static std::size_t bytes(const std::string& name, const std::string& text) {
        std::string why;
        const std::optional<std::size_t> value = driver::parse_byte_size(text, 0, &why);
        if (!value || *value == 0)
            throw Wrong(driver::format("{} needs a number of bytes such as 4GiB, but got {}{}", name,
                                       driver::in_quotes(text), why.empty() ? "" : ": " + why));
        return *value;
    }
    static double rate(const std::string& name, const std::string& text) {
        // A kilobyte and a petabyte a second: beyond these a play takes years of simulated time, or none.
        const std::optional<double> value = parsed(text);
        if (!value || !(*value >= 1e-6 && *value <= 1e6))
            throw Wrong(
                driver::format("{} needs a rate in GB/s from 1e-6 to 1e6, but got {}", name, driver::in_quotes(text)));
        return *value;
    }
    void read_task_us(const std::string& name, const std::string& text) {
        const std::size_t sign = text.rfind('=');
        if (sign == text.npos)
            task_us = microseconds(name, text);
        else
            task_us_by_name[text.substr(0, sign)] = microseconds(name, std::string_view(text).substr(sign + 1));
    }
    void read(char** words, int num_words, int& i) {
        const std::string word = words[i];
        if (word == "--ours") {
            ours_alone = true;
            return;
        }
        if (word == "--made-on-device") {
            runs.are_made_on_device = runs.are_waited_for = true;
            return;
        }
        if (word.rfind("--", 0) != 0) {
            if (!what.empty())
                throw Wrong("one program at a time, but got " + driver::in_quotes(what) + " and " +
                            driver::in_quotes(word));
            if (word.empty()) throw Wrong("an empty word is no program");
            what = word;
            return;
        }
        using Read = std::function<void(const std::string&)>;
        const std::map<std::string, Read> known = {
            {"--size", [&](const std::string& t) { size = count(word, t); }},
            {"--steps", [&](const std::string& t) { steps = count(word, t); }},
            {"--rank", [&](const std::string& t) { rank = count(word, t); }},
            {"--room", [&](const std::string& t) { room = count(word, t); }},
            {"--runs", [&](const std::string& t) { runs.count = count(word, t), runs.are_waited_for = true; }},
            {"--seed", [&](const std::string& t) { seed = count(word, t, 0); }},
            {"--chunk", [&](const std::string& t) { chunk_bytes = bytes(word, t); }},
            {"--device-memory", [&](const std::string& t) { device_bytes = bytes(word, t); }},
            {"--host-memory", [&](const std::string& t) { host_bytes = bytes(word, t); }},
            {"--task-us", [&](const std::string& t) { read_task_us(word, t); }},
            {"--host-us", [&](const std::string& t) { rates.function_ns = to_ns(microseconds(word, t)); }},
            {"--submit-us", [&](const std::string& t) { submit_us = microseconds(word, t); }},
            {"--up", [&](const std::string& t) { rates.up = rate(word, t); }},
            {"--down", [&](const std::string& t) { rates.down = rate(word, t); }},
            {"--both", [&](const std::string& t) { rates.both = rate(word, t); }},
            {"--peer", [&](const std::string& t) { rates.peer = rate(word, t); }},
            {"--within", [&](const std::string& t) { rates.within_device = rate(word, t); }},
        };
        const auto at = known.find(word);
        if (at == known.end()) throw Wrong("unknown option " + driver::in_quotes(word));
        if (++i == num_words) throw Wrong(word + " needs a value");
        at->second(words[i]);
    }

  public:
    static std::int64_t to_ns(double us) noexcept { return static_cast<std::int64_t>(us * 1e3); }
};

std::size_t or_else(std::size_t given, std::size_t usual) noexcept { return given != 0 ? given : usual; }

/// What a program comes to with these options, as numbers that do not overflow.
struct Extent {
    const char* name;
    double chunks, tasks;
};

std::optional<Extent> extent_of(const Options& o) {
    const auto n = [&](std::size_t usual) { return static_cast<double>(or_else(o.size, usual)); };
    const auto k = [&](std::size_t usual) { return static_cast<double>(or_else(o.steps, usual)); };
    const auto runs = static_cast<double>(o.runs.count);
    const Extent all[] = {
        {"axpy", 2 * n(128), n(128) * k(10) * runs},
        {"product", 3 * n(10) * n(10), n(10) * n(10) * n(10) * runs},
        {"cholesky", n(20) * n(20), n(20) * n(20) * n(20) / 6 * runs},
        {"stencil", 2 * n(16), n(16) * k(100) * runs},
        {"map-reduce", n(100), 2 * n(100)},
        {"random", n(100), k(1000)},
        {"pipeline", 2 * n(100), 3 * n(100)},
        {"temporaries", 2 * n(4) * k(100), 4 * n(4) * k(100)},
        {"fitting", 0, 0},
    };
    for (const Extent& e : all)
        if (o.what == e.name) return e;
    return std::nullopt;
}

/// One thread has to play all of it, and addresses of a memory are told apart by less than 64 bits.
void check_extent(const Options& o, const Extent& e) {
    constexpr double most_tasks = 1e7, most_bytes = 1e18;
    if (e.tasks > most_tasks || e.chunks > most_tasks)
        throw Wrong(driver::format("{} with --size {} and --steps {} makes more than 1e7 tasks or chunks: use fewer",
                                   o.what, o.size, o.steps));
    const double chunk = static_cast<double>(o.chunk_bytes);
    if (e.chunks * chunk > most_bytes || static_cast<double>(o.room) * chunk > most_bytes)
        throw Wrong(driver::format("chunks of {} bytes make arrays or memories of more than 1e18 bytes: use a smaller "
                                   "--chunk, --size or --room",
                                   o.chunk_bytes));
}

Program make(const Options& o) {
    const bool has_runs = o.what == "axpy" || o.what == "product" || o.what == "cholesky" || o.what == "stencil";
    if (o.runs.are_waited_for && !has_runs)
        throw Wrong("--runs and --made-on-device are for axpy, product, cholesky and stencil");
    const std::size_t device = or_else(o.device_bytes, or_else(o.room, 30) * o.chunk_bytes);
    const trace::Machine machine = machine_with(device, or_else(o.host_bytes, std::size_t{1} << 44));
    if (o.what == "axpy") return axpy(machine, or_else(o.size, 128), or_else(o.steps, 10), o.chunk_bytes, o.runs);
    if (o.what == "product") return product(machine, or_else(o.size, 10), o.chunk_bytes, o.runs);
    if (o.what == "cholesky") return cholesky(machine, or_else(o.size, 20), o.chunk_bytes, o.runs);
    if (o.what == "map-reduce") return map_reduce(machine, or_else(o.size, 100), o.chunk_bytes);
    if (o.what == "random")
        return random_tasks(machine, or_else(o.size, 100), or_else(o.steps, 1000), o.chunk_bytes, o.seed);
    if (o.what == "pipeline") return pipeline(machine, or_else(o.size, 100), o.chunk_bytes);
    if (o.what == "temporaries") return temporaries(machine, or_else(o.size, 4), or_else(o.steps, 100), o.chunk_bytes);
    if (o.rank < 1 || o.rank > 3) throw Wrong(driver::format("--rank is 1, 2 or 3, but got {}", o.rank));
    // A plane of the grid is a 1024th of a chunk; one plane on each side is read too.
    const std::size_t chunks = or_else(o.size, 16);
    constexpr std::size_t planes = 1024;
    const std::size_t plane = std::max<std::size_t>(1, o.chunk_bytes / sizeof(float) / planes);
    std::vector<std::int64_t> extents = {static_cast<std::int64_t>(chunks * planes)};
    if (o.rank == 1) extents[0] *= static_cast<std::int64_t>(plane);
    if (o.rank >= 2) extents.push_back(static_cast<std::int64_t>(o.rank == 2 ? plane : (plane + 63) / 64));
    if (o.rank == 3) extents.push_back(64);
    return stencil(machine, extents, chunks, 1, or_else(o.steps, 100), o.runs);
}

Program read(const Options& o) {
    errno = 0;
    std::ifstream in(o.what);
    if (!in)
        throw std::runtime_error(driver::name_text(o.what) + ": cannot be opened: " + std::strerror(errno) +
                                 "; or one of " + names_of_made);
    Program program;
    bool complete = false;
    program.machine = trace::read_record(in, o.what, program, &complete);
    simulate::check(program, o.what);
    if (!complete)
        std::fprintf(stderr, "kmm simulate: %s: the record is not complete: what is missing is not played\n",
                     o.what.c_str());
    for (const memory::MemoryIndex m : program.machine.limits_bytes.memories()) {
        const std::size_t given = m.is_host() ? o.host_bytes : or_else(o.device_bytes, o.room * o.chunk_bytes);
        if (given != 0) program.machine.limits_bytes[m] = given;
    }
    return program;
}

TimedDevices::KernelNs times_of(const Options& o, const Program& program) {
    std::map<graph::TaskNumber, std::int64_t> ns;
    for (const trace::Task& t : program.tasks) {
        const auto named = o.task_us_by_name.find(t.name);
        const auto recorded = program.kernel_ns.find(t.number);
        if (named != o.task_us_by_name.end())
            ns[t.number] = Options::to_ns(named->second);
        else if (!o.task_us && recorded != program.kernel_ns.end())
            ns[t.number] = recorded->second;
    }
    return [ns = std::move(ns)](graph::TaskNumber number) {
        const auto at = ns.find(number);
        return at == ns.end() ? std::int64_t{0} : std::max<std::int64_t>(1, at->second);
    };
}

void print(const Policies& policies, const Outcome& outcome) {
    std::printf("%-18s %-20s %9.2f %9.2f %9.2f %10.4f %10.4f%s\n", policies.order.c_str(), policies.eviction.c_str(),
                static_cast<double>(outcome.bytes_up) * 1e-9, static_cast<double>(outcome.bytes_down) * 1e-9,
                static_cast<double>(outcome.bytes_peer) * 1e-9, outcome.seconds, outcome.busy_seconds,
                !outcome.ended              ? "  stood still"
                : outcome.failed_tasks != 0 ? "  tasks failed"
                                            : "");
}

/// Several programs, of which only sums can be shown.
int run_fitting(const Options& o) {
    constexpr std::size_t most_seeds = 20;
    FittingSums sums;
    const std::size_t count = or_else(o.size, 1);
    for (std::uint64_t seed = o.seed; seed < o.seed + count; ++seed) sums.add(play_fitting(seed, o.rates));
    std::printf("%zu programs from seed %llu: %llu fit, %zu failed, %llu failed as submitted\n", count,
                static_cast<unsigned long long>(o.seed), static_cast<unsigned long long>(sums.num_fit()),
                sums.failed_seeds().size(), static_cast<unsigned long long>(sums.num_failed_in_order()));
    std::printf(
        "bytes moved by those as submitted, with victims by next use: %.3f; worst %.2f, of seed %llu; %zu of %llu "
        "above 1.2 and a quarter of all memory\n",
        sums.ratio(), sums.worst_ratio(), static_cast<unsigned long long>(sums.worst_seed()),
        sums.seeds_with_many_bytes().size(), static_cast<unsigned long long>(sums.num_compared()));
    const auto list = [](const char* what, const std::vector<std::uint64_t>& seeds) {
        if (seeds.empty()) return;
        std::printf("%s:", what);
        for (std::size_t i = 0; i < seeds.size() && i < most_seeds; ++i)
            std::printf(" %llu", static_cast<unsigned long long>(seeds[i]));
        std::printf("%s\n", seeds.size() > most_seeds ? " ..." : "");
    };
    list("failed", sums.failed_seeds());
    list("many bytes", sums.seeds_with_many_bytes());
    return sums.failed_seeds().empty() ? 0 : 1;
}

int run(const Options& o) {
    const std::optional<Extent> made = extent_of(o);
    if (made) check_extent(o, *made);
    if (o.what == "fitting") return run_fitting(o);
    const Program program = made ? make(o) : read(o);
    Rates rates = o.rates;
    if (o.task_us) rates.kernel_ns = std::max<std::int64_t>(1, Options::to_ns(*o.task_us));
    const TimedDevices::KernelNs times = times_of(o, program);
    std::size_t chunks = 0;
    for (const trace::Array& a : program.arrays)
        if (a.num_pieces == 0) chunks += a.chunks.size();
    std::string memories;
    for (const memory::MemoryIndex m : program.machine.limits_bytes.memories())
        memories += driver::format("{}{} on {}", memories.empty() ? "" : ", ",
                                   driver::byte_size_text(program.machine.limits_bytes[m]),
                                   m.is_host() ? std::string("the host") : "g" + std::to_string(m.device()));
    std::printf("%s: %zu tasks, %zu chunks; %s\n", o.what.c_str(), program.tasks.size(), chunks, memories.c_str());
    std::printf("%-18s %-20s %9s %9s %9s %10s %10s\n", "order", "eviction", "up GB", "down GB", "peer GB", "seconds",
                "in kernels");
    bool good = true;
    for (const Policies& policies : all_policies()) {
        const Outcome outcome = play(program, policies, rates, times, Options::to_ns(o.submit_us));
        print(policies, outcome);
        const bool as_recorded = !program.failed.empty();
        good = good && outcome.ended && (outcome.failed_tasks == 0 || as_recorded);
        if (o.ours_alone) break;
    }
    if (!good)
        std::fprintf(stderr, "kmm simulate: not every task ran: is the memory large enough for the largest task?\n");
    return good ? 0 : 1;
}

}  // namespace

int simulate(int num_arguments, char** arguments) {
    if (printed_help(num_arguments, arguments, usage)) return 0;
    try {
        return run(Options(num_arguments, arguments));
    } catch (const Wrong& wrong) {
        std::fprintf(stderr, "kmm simulate: %s\n%s", wrong.what(), usage);
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kmm simulate: %s\n", error.what());
        return 1;
    }
}

}  // namespace kmm::tools
