// Whether a task's cost stays the same when there are twice as many: arrays of mixed sizes out of core, tasks that read
// one chunk, readers behind a slow reader, failing tasks in full memories. Each at n and 2n; what the schedule and the
// memory do for a task must not grow with them. Host driver, kernels that do next to nothing. Output: common.hpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <vector>

#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::EventId;
using kmm::GPUKernel;
using kmm::GPUView;
using kmm::GPUViewMut;
using kmm::ResourceId;
using kmm::RuntimeConfig;
using kmm::RuntimeHandle;

using Byte = unsigned char;

__global__ void touch(GPUViewMut<Byte> data) { data[0] = static_cast<Byte>(data[0] + 1); }
__global__ void set(GPUViewMut<Byte> data) { data[0] = 1; }
__global__ void copy_first(GPUViewMut<Byte> out, GPUView<Byte> in) { out[0] = in[0]; }
__global__ void look(GPUView<Byte>) {}

constexpr std::size_t kibi = 1024;

RuntimeConfig config_with(std::size_t device_bytes) {
    RuntimeConfig config = config_for(1, 2 * device_bytes);  // the limit decides, not what there is
    config.driver = kmm::DriverKind::Host;
    config.device_memory_limit = device_bytes;
    config.host_threads = 1;
    return config;
}

void forget_failures(const RuntimeHandle& rt) {
    try {
        rt.synchronize();
    } catch (const std::exception&) {
        // Whoever wants to know has its event.
    }
}

std::vector<Array<Byte>> make_arrays(const RuntimeHandle& rt, const std::vector<std::size_t>& sizes) {
    std::vector<Array<Byte>> arrays;
    arrays.reserve(sizes.size());
    for (const std::size_t size : sizes) {
        const auto length = static_cast<std::int64_t>(size);
        arrays.push_back(rt.array<Byte>(length, kmm::Dim<1>(length)));
    }
    return arrays;
}

/// A host task that ends when the gate is opened; what comes after it becomes ready at once.
class Gate {
  public:
    template<typename... Arguments>
    explicit Gate(const RuntimeHandle& rt, Arguments&&... arguments) {
        rt.submit(ResourceId::host(), kmm::Host([this](auto&&...) { is_open_.wait(false); }),
                  std::forward<Arguments>(arguments)...);
    }
    ~Gate() { open(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    void open() {
        is_open_.store(true);
        is_open_.notify_all();
    }

  private:
    std::atomic<bool> is_open_{false};
};

// --------------------------------------------------------------------------------------------------- out of core

struct Sizes {
    const char* name;
    std::size_t (*draw)(std::mt19937_64&, std::size_t least, std::size_t most);
};

constexpr Sizes distributions[] = {
    {"uniform", [](std::mt19937_64& random, std::size_t least,
                   std::size_t most) { return std::uniform_int_distribution<std::size_t>(least, most)(random); }},
    {"logarithmic",
     [](std::mt19937_64& random, std::size_t least, std::size_t most) {
         const double power = std::uniform_real_distribution<double>(0, 1)(random);
         return static_cast<std::size_t>(double(least) * std::pow(double(most) / double(least), power));
     }},
    {"two_sizes",
     [](std::mt19937_64& random, std::size_t least, std::size_t most) { return random() % 32 != 0 ? least : most; }},
};

enum class Tiers { ample, tight };  ///< whether the host has room for all arrays

/// Two passes in random orders, submitted at once, over four times what the device may use.
double out_of_core(const Sizes& distribution, std::size_t count, std::size_t largest, Tiers tiers) {
    std::mt19937_64 random(count);
    std::vector<std::size_t> sizes(count);
    std::size_t sum = 0;
    for (std::size_t& size : sizes) sum += size = distribution.draw(random, largest / 256, largest);
    RuntimeConfig config = config_with(std::max(sum / 4, 2 * largest));
    // What the device may use is the host's memory too on this driver. What must be saved often finds no place.
    if (tiers == Tiers::tight) config.host_memory_limit = config.device_memory_limit + sum / 100 * 98;
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<Array<Byte>> arrays = make_arrays(rt, sizes);
    for (Array<Byte>& a : arrays) rt.submit(device(0), GPUKernel(set, dim3(1)).grid(dim3(1)), kmm::overwrite(a));
    forget_failures(rt);  // in tight tiers what is left may be in pieces too small
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    const auto begin = Clock::now();
    for (int pass = 0; pass < 2; ++pass) {
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t i : order)
            rt.submit(device(0), GPUKernel(touch, dim3(1)).grid(dim3(1)), kmm::write(arrays[i]));
    }
    forget_failures(rt);  // in tight tiers what is left may be in pieces too small
    return seconds_since(begin) / double(2 * count);
}

// ----------------------------------------------------------------------------------------------------- one chunk

/// All of them are ready when the array that they read is written. Each writes an array of its own, and those with the
/// smallest go first: in another order than they were submitted.
double readers_of_one_chunk(std::size_t count, std::size_t device_bytes) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(device_bytes));
    std::vector<Array<Byte>> shared = make_arrays(rt, {64 * kibi});
    std::mt19937_64 random(count);
    std::vector<std::size_t> sizes(count);
    for (std::size_t& size : sizes) size = 1 + random() % (4 * kibi);
    std::vector<Array<Byte>> own = make_arrays(rt, sizes);
    Gate gate(rt, kmm::overwrite(shared[0]));
    for (Array<Byte>& a : own)
        rt.submit(device(0), GPUKernel(copy_first, dim3(1)).grid(dim3(1)), kmm::overwrite(a), shared[0]);
    const auto begin = Clock::now();
    gate.open();
    rt.synchronize();
    return seconds_since(begin) / double(count);
}

/// Readers of one chunk, half of them behind a task that is slow, and a writer behind them all.
double readers_behind_a_slow_reader(std::size_t count) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(std::size_t{64} << 20));
    std::vector<Array<Byte>> arrays = make_arrays(rt, {64 * kibi, kibi});
    rt.submit(ResourceId::host(), kmm::Host([](auto&&...) {}), kmm::overwrite(arrays[0]));
    rt.synchronize();
    Gate gate(rt, arrays[0], kmm::overwrite(arrays[1]));
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        if (i < count / 2)
            rt.submit(device(0), GPUKernel(copy_first, dim3(1)).grid(dim3(1)), kmm::write(arrays[1]), arrays[0]);
        else
            rt.submit(device(0), GPUKernel(look, dim3(1)).grid(dim3(1)), arrays[0]);
    }
    const EventId writer = rt.submit(device(0), GPUKernel(touch, dim3(1)).grid(dim3(1)), kmm::write(arrays[0]));
    gate.open();
    rt.wait(writer);
    rt.synchronize();
    return seconds_since(begin) / double(count);
}

// ----------------------------------------------------------------------------------------------------- failing

enum class Failing { for_memory, by_themselves };

void await_failure(const RuntimeHandle& rt, EventId event) {
    try {
        rt.wait(event);
    } catch (const std::exception&) {
        return;
    }
    Report::stop("many_tasks: a task succeeded that was to fail");
}

/// A device and a host that are full of chunks which are nowhere else. Host threads: one beside a slow task.
struct FullMemories {
    FullMemories(std::size_t num_chunks, std::size_t chunk_bytes)
        : rt(kmm::make_runtime(config(num_chunks, chunk_bytes))),
          held(make_arrays(rt, std::vector<std::size_t>(num_chunks, chunk_bytes))) {
        // Those that find no place any more fail.
        for (Array<Byte>& a : held) rt.submit(device(0), GPUKernel(set, dim3(1)).grid(dim3(1)), kmm::overwrite(a));
        forget_failures(rt);
    }
    /// The first that was written was the first to leave the device.
    Array<Byte>& on_host() { return held.front(); }
    Array<Byte>& on_device(std::size_t i) { return held[held.size() * 5 / 8 + i % (held.size() / 8)]; }

    static RuntimeConfig config(std::size_t num_chunks, std::size_t chunk_bytes) {
        RuntimeConfig result = config_with(num_chunks * chunk_bytes / 2);
        result.host_memory_limit = num_chunks * chunk_bytes;
        result.host_threads = 2;
        return result;
    }

    RuntimeHandle rt;
    std::vector<Array<Byte>> held;
};

/// As many tasks as chunks find no memory, or throw.
double failing_in_full_memories(std::size_t count, Failing how) {
    constexpr std::size_t size = 4 * kibi;
    FullMemories full(count, size);
    std::vector<Array<Byte>> more = make_arrays(full.rt, std::vector<std::size_t>(count, size));
    std::vector<EventId> events;
    events.reserve(count);
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
        if (how == Failing::for_memory)
            events.push_back(full.rt.submit(device(0), GPUKernel(set, dim3(1)).grid(dim3(1)), kmm::overwrite(more[i])));
        else
            events.push_back(full.rt.submit(
                device(0), kmm::GPU([](auto&&...) { throw std::runtime_error("as asked"); }), full.on_device(i)));
    }
    for (const EventId event : events) await_failure(full.rt, event);
    const double elapsed = seconds_since(begin) / double(count);
    forget_failures(full.rt);
    return elapsed;
}

/// Device and host are full of what cannot leave, a reader on the host is slow, and a task waits for memory. Meanwhile
/// others end, and after each there might be room.
double waiting_behind_a_slow_reader(std::size_t count) {
    constexpr std::size_t size = 4 * kibi;
    FullMemories full(count, size);
    Gate gate(full.rt, full.on_host());
    std::vector<Array<Byte>> more = make_arrays(full.rt, {size});
    const EventId waiting = full.rt.submit(device(0), GPUKernel(set, dim3(1)).grid(dim3(1)), kmm::overwrite(more[0]));
    const auto begin = Clock::now();
    EventId last;
    for (std::size_t i = 0; i < count; ++i) last = full.rt.submit(ResourceId::host(), kmm::Host([] {}));
    full.rt.wait(last);
    const double elapsed = seconds_since(begin) / double(count);
    gate.open();
    await_failure(full.rt, waiting);
    return elapsed;
}

/// `work(n)` gives the seconds of a task; the figure at n, at 2n, and how much more all of 2n take.
template<typename Work>
void measure(Report& report, const std::string& name, std::size_t n, const std::string& note, Work work) {
    if (!report.wants(name)) return;
    Samples once, twice;
    for (int i = 0; i < report.repetitions(3); ++i) {
        once.push_back(work(n));
        twice.push_back(work(2 * n));
    }
    report.add(name + "/" + std::to_string(n), once, microseconds(), {std::nullopt, std::nullopt, note});
    report.add(name + "/" + std::to_string(2 * n), twice, microseconds(), {std::nullopt, std::nullopt, note});
    report.add(name + "/growth", {2 * median(twice) / median(once)}, plain_count(),
               {std::nullopt, std::nullopt, "all of 2n beside all of n"});
}

void run(Report& report) {
    const std::size_t n = report.size<std::size_t>(16000, 200);
    for (const Sizes& distribution : distributions) {
        for (const Tiers tiers : {Tiers::ample, Tiers::tight}) {
            const std::string host = tiers == Tiers::ample ? "ample" : "tight";
            measure(report, std::string("many_tasks/out_of_core/") + distribution.name + "/" + host, n,
                    "per task, copies included; arrays of 64 B to 16 KiB, a quarter on the device; host: " + host,
                    [&](std::size_t count) { return out_of_core(distribution, count, 16 * kibi, tiers); });
        }
    }
    measure(report, "many_tasks/out_of_core/large", n / 4, "per task, copies included; arrays of 4 KiB to 1 MiB",
            [](std::size_t count) { return out_of_core(distributions[1], count, 1024 * kibi, Tiers::ample); });
    measure(report, "many_tasks/readers_of_one_chunk", n, "per task, ready at once",
            [](std::size_t count) { return readers_of_one_chunk(count, std::size_t{256} << 20); });
    measure(report, "many_tasks/readers_of_one_chunk/small_device", n, "per task; a device of 1 MiB",
            [](std::size_t count) { return readers_of_one_chunk(count, std::size_t{1} << 20); });
    measure(report, "many_tasks/readers_behind_a_slow_reader", n, "per task", readers_behind_a_slow_reader);
    measure(report, "many_tasks/waiting_behind_a_slow_reader", n, "per task that ends; memories are full",
            waiting_behind_a_slow_reader);
    measure(report, "many_tasks/failing/for_memory", n, "per task",
            [](std::size_t count) { return failing_in_full_memories(count, Failing::for_memory); });
    measure(report, "many_tasks/failing/by_themselves", n, "per task; device functions that throw",
            [](std::size_t count) { return failing_in_full_memories(count, Failing::by_themselves); });
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
