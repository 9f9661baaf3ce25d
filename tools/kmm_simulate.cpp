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
#include "kmm/error.hpp"
#include "kmm/trace/record_reader.hpp"
#include "simulate/generators.hpp"
#include "simulate/plays.hpp"

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
    "what is made     --chunk BYTES (64MiB)\n"
    "                 of axpy, product, cholesky, stencil: --runs N (1): so often, each waited for;\n"
    "                 --made-on-device: what they begin with; either way, what is moved before the first run\n"
    "                 is not counted\n"
    "memory           --device-memory BYTES, --host-memory BYTES: of each device, of the host\n"
    "                 --room CHUNKS: the same for the devices, in chunks\n"
    "times            --task-us US or NAME=US (100; a record may know its own), --host-us US (20), --submit-us US (1)\n"
    "rates in GB/s    --up (55) --down (55) --both (94) --peer (375) --within (1700)\n"
    "--ours           ours alone, without the others to compare with\n";

struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Options {
  public:
    Options(int count, char** words) {
        for (int i = 0; i < count; ++i) read(words, count, i);
        if (what.empty())
            throw Wrong("say what to play: a record, or axpy, product, cholesky, stencil, map-reduce, random");
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
    static double number(const std::string& name, std::string_view text) {
        double value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1e15)
            throw Wrong(driver::format("{} needs a number that is not negative, but got '{}'", name, text));
        return value;
    }
    static std::size_t count(const std::string& name, std::string_view text) {
        const double value = number(name, text);
        if (value != static_cast<double>(static_cast<std::size_t>(value)) || value > 1e9)
            throw Wrong(driver::format("{} needs a whole number up to 1e9, but got '{}'", name, text));
        return static_cast<std::size_t>(value);
    }
    static std::size_t bytes(const std::string& name, const std::string& text) {
        std::string why;
        const std::optional<std::size_t> value = driver::parse_byte_size(text, 0, &why);
        if (!value || *value == 0)
            throw Wrong(driver::format("{} needs a number of bytes such as 4GiB, but got '{}'{}", name, text,
                                       why.empty() ? "" : ": " + why));
        return *value;
    }
    static double rate(const std::string& name, const std::string& text) {
        const double value = number(name, text);
        if (value == 0) throw Wrong(name + " needs a rate above 0");
        return value;
    }
    void read_task_us(const std::string& name, const std::string& text) {
        const std::size_t sign = text.rfind('=');
        if (sign == text.npos)
            task_us = number(name, text);
        else
            task_us_by_name[text.substr(0, sign)] = number(name, std::string_view(text).substr(sign + 1));
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
            if (!what.empty()) throw Wrong("one program at a time, but got '" + what + "' and '" + word + "'");
            what = word;
            return;
        }
        using Read = std::function<void(const std::string&)>;
        const std::map<std::string, Read> known = {
            {"--size", [&](const std::string& t) { size = count(word, t); }},
            {"--steps", [&](const std::string& t) { steps = count(word, t); }},
            {"--rank", [&](const std::string& t) { rank = count(word, t); }},
            {"--room", [&](const std::string& t) { room = count(word, t); }},
            {"--runs",
             [&](const std::string& t) {
                 runs.count = std::max<std::size_t>(1, count(word, t)), runs.are_waited_for = true;
             }},
            {"--seed", [&](const std::string& t) { seed = count(word, t); }},
            {"--chunk", [&](const std::string& t) { chunk_bytes = bytes(word, t); }},
            {"--device-memory", [&](const std::string& t) { device_bytes = bytes(word, t); }},
            {"--host-memory", [&](const std::string& t) { host_bytes = bytes(word, t); }},
            {"--task-us", [&](const std::string& t) { read_task_us(word, t); }},
            {"--host-us", [&](const std::string& t) { rates.function_ns = to_ns(number(word, t)); }},
            {"--submit-us", [&](const std::string& t) { submit_us = number(word, t); }},
            {"--up", [&](const std::string& t) { rates.up = rate(word, t); }},
            {"--down", [&](const std::string& t) { rates.down = rate(word, t); }},
            {"--both", [&](const std::string& t) { rates.both = rate(word, t); }},
            {"--peer", [&](const std::string& t) { rates.peer = rate(word, t); }},
            {"--within", [&](const std::string& t) { rates.within_device = rate(word, t); }},
        };
        const auto at = known.find(word);
        if (at == known.end()) throw Wrong("unknown option '" + word + "'");
        if (++i == num_words) throw Wrong(word + " needs a value");
        at->second(words[i]);
    }

  public:
    static std::int64_t to_ns(double us) noexcept { return static_cast<std::int64_t>(us * 1e3); }
};

bool is_made(const std::string& what) {
    return what == "axpy" || what == "product" || what == "cholesky" || what == "stencil" || what == "map-reduce" ||
           what == "random";
}

std::size_t or_else(std::size_t given, std::size_t usual) noexcept { return given != 0 ? given : usual; }

Program make(const Options& o) {
    const std::size_t device = or_else(o.device_bytes, or_else(o.room, 30) * o.chunk_bytes);
    const bool has_runs = o.what == "axpy" || o.what == "product" || o.what == "cholesky" || o.what == "stencil";
    if (o.runs.are_waited_for && !has_runs)
        throw Wrong("--runs and --made-on-device are for axpy, product, cholesky and stencil");
    const trace::Machine machine = machine_with(device, or_else(o.host_bytes, std::size_t{1} << 44));
    if (o.what == "axpy") return axpy(machine, or_else(o.size, 128), or_else(o.steps, 10), o.chunk_bytes, o.runs);
    if (o.what == "product") return product(machine, or_else(o.size, 10), o.chunk_bytes, o.runs);
    if (o.what == "cholesky") return cholesky(machine, or_else(o.size, 20), o.chunk_bytes, o.runs);
    if (o.what == "map-reduce") return map_reduce(machine, or_else(o.size, 100), o.chunk_bytes);
    if (o.what == "random")
        return random_tasks(machine, or_else(o.size, 100), or_else(o.steps, 1000), o.chunk_bytes, o.seed);
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
        throw std::runtime_error(o.what + ": cannot be opened: " + std::strerror(errno) +
                                 "; or one of axpy, product, cholesky, stencil, map-reduce, random");
    Program program;
    bool complete = false;
    program.machine = trace::read_record(in, o.what, program, &complete);
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

int run(const Options& o) {
    const Program program = is_made(o.what) ? make(o) : read(o);
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
