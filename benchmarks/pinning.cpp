// What a GiB of pinned memory costs: asked from the driver, and by mapping, touching with n threads and registering,
// with and without huge pages. Then how soon pools of pinned memory are ready: the same bytes mapped, touched by all
// threads and registered in one go are the raw figure beside them, and the driver's own call is measured too. On the
// cuda driver where there is one, else on host, whose pinned memory is ordinary memory (and pools touch nothing).
// Output: common.hpp.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "common.hpp"
#include "driver/registry.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/status.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::driver;

constexpr double gib = 1073741824.0;

void must_be_ok(Status status, const char* what, Driver& driver) {
    if (!status.ok()) {
        Report::stop(std::string(what) + " failed on the " + driver.name() + " driver: " + driver.error_text(status));
    }
}

/// Touches every page once, each thread a share of its own.
void touch(char* memory, std::size_t bytes, int num_threads) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t share = (bytes / num_threads / page + 1) * page;
    time_threads(num_threads, [&](int thread) {
        const std::size_t end = std::min(bytes, share * (thread + 1));
        for (std::size_t at = share * thread; at < end; at += page) memory[at] = 0;
    });
}

struct Steps {
    Samples touching, registering, unregistering, together;
};

Steps map_touch_register(Driver& driver, std::size_t bytes, int num_threads, bool huge_pages, int repetitions) {
    Steps steps;
    const double per_gib = gib / static_cast<double>(bytes);
    for (int i = 0; i < repetitions; ++i) {
        const auto begin = Clock::now();
        void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) Report::stop("mmap of " + std::to_string(bytes) + " bytes failed: use --quick");
        (void)::madvise(mapped, bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        touch(static_cast<char*>(mapped), bytes, num_threads);
        const double touched = seconds_since(begin);
        must_be_ok(driver.register_host(mapped, bytes), "register_host", driver);
        const double registered = seconds_since(begin);
        must_be_ok(driver.unregister_host(mapped), "unregister_host", driver);
        const double unregistered = seconds_since(begin);
        ::munmap(mapped, bytes);
        steps.touching.push_back(touched * per_gib);
        steps.registering.push_back((registered - touched) * per_gib);
        steps.unregistering.push_back((unregistered - registered) * per_gib);
        steps.together.push_back(registered * per_gib);
    }
    return steps;
}

Samples allocate_pinned(Driver& driver, std::size_t bytes, int repetitions) {
    Samples samples;
    for (int i = 0; i < repetitions; ++i) {
        void* memory = nullptr;
        const auto begin = Clock::now();
        must_be_ok(driver.allocate_pinned(bytes, &memory), "allocate_pinned", driver);
        samples.push_back(seconds_since(begin) * gib / static_cast<double>(bytes));
        must_be_ok(driver.free_pinned(memory), "free_pinned", driver);
    }
    return samples;
}

/// Seconds, not per GiB: a pool has a fixed size.
struct PoolTimes {
    Samples one_block;    ///< pool_memory_resource<pinned_host_memory_resource>, constructed
    Samples first_block;  ///< pinned_pool_memory_resource: until 64 MiB of it are in use
    Samples whole;        ///< until all of it is there
    Samples unpin;
};

PoolTimes fill_pools(std::size_t bytes, int repetitions) {
    constexpr std::size_t first_bytes = std::size_t{64} << 20;
    PoolTimes times;
    rmm::mr::pinned_host_memory_resource upstream;
    for (int i = 0; i < repetitions; ++i) {
        auto begin = Clock::now();
        {
            rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> pool(&upstream, bytes, bytes);
            times.one_block.push_back(seconds_since(begin));
            begin = Clock::now();
        }
        times.unpin.push_back(seconds_since(begin));
        begin = Clock::now();
        rmm::mr::pinned_pool_memory_resource growing(bytes, bytes);
        void* const first = growing.allocate(first_bytes);
        times.first_block.push_back(seconds_since(begin));
        if (growing.wait_until_grown() < bytes) Report::stop("the machine has less memory than the pool was to have");
        times.whole.push_back(seconds_since(begin));
        growing.deallocate(first, first_bytes);
    }
    return times;
}

void measure_pools(Report& report, Driver& driver, const std::string& base, std::size_t bytes, bool with_driver) {
    const rmm::detail::driver_scope same_driver(driver);
    const std::string name = base + "pool_" + std::to_string(bytes >> 20) + "_MiB";
    if (!report.wants(name)) return;
    const int repetitions = report.repetitions(3);
    const double times_per_gib = static_cast<double>(bytes) / gib;
    Samples raw = map_touch_register(driver, bytes, 16, true, repetitions).together;
    for (double& s : raw) s *= times_per_gib;
    const PoolTimes times = fill_pools(bytes, repetitions);
    // The requirement is for 16 GiB.
    const auto must = bytes == std::size_t{16} << 30 ? std::optional<double>(1.0) : std::nullopt;
    report.add(name + "/one_block", times.one_block, seconds(), {raw, must, "pool_memory_resource over pinned"});
    report.add(name + "/growing_whole", times.whole, seconds(), {raw, must, "pinned_pool_memory_resource"});
    report.add(name + "/growing_first_64_MiB", times.first_block, seconds(), {});
    report.add(name + "/unpin", times.unpin, seconds(), {});
    if (!with_driver) return;
    Samples own = allocate_pinned(driver, bytes, 1);
    for (double& s : own) s *= times_per_gib;
    report.add(name + "/drivers_own_call", own, seconds(), {raw, {}, "cudaHostAlloc"});
}

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    std::string reason;
    std::shared_ptr<Driver> driver = open(Kind::cuda, &reason);
    if (!driver) {
        report.skip("cuda/pinning", reason);
        driver = open(Kind::host, &reason);
        if (!driver) Report::stop("no driver: " + reason);
    }
    must_be_ok(driver->set_current_device(0), "set_current_device", *driver);
    const auto bytes = report.size<std::size_t>(std::size_t{2} << 30, 64 << 20);
    const int repetitions = report.repetitions(3);
    const std::string base = std::string(driver->name()) + "/pinning/";

    if (report.wants(base + "allocate_pinned")) {
        report.add(base + "allocate_pinned", allocate_pinned(*driver, bytes, repetitions), seconds(),
                   {{}, {}, "per GiB"});
    }
    for (const int num_threads : {1, 4, 16}) {
        for (const bool huge_pages : {true, false}) {
            const std::string name =
                base + std::to_string(num_threads) + (huge_pages ? "_threads_huge" : "_threads_small");
            if (!report.wants(name)) continue;
            const Steps steps = map_touch_register(*driver, bytes, num_threads, huge_pages, repetitions);
            report.add(name, steps.together, seconds(), {{}, {}, "per GiB"});
            report.add(name + "/touch", steps.touching, seconds(), {{}, {}, "per GiB"});
            report.add(name + "/register", steps.registering, seconds(), {{}, {}, "per GiB"});
            report.add(name + "/unregister", steps.unregistering, seconds(), {{}, {}, "per GiB"});
        }
    }
    const bool real = driver->kind() == Kind::cuda;
    for (const std::size_t mib : {std::size_t{64}, std::size_t{1024}, std::size_t{16384}}) {
        if (mib > (report.quick() ? 64u : real ? 16384u : 1024u)) continue;
        measure_pools(report, *driver, base, mib << 20, real);
    }
}
