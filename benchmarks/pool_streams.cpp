// What an allocation costs in a pool that very many streams use: streams and threads that come and go, and streams that
// live side by side.
//
// Streams that come and go: each makes two small allocations and frees them. The figure is the time of the last
// thousand over that of the second thousand, and what the process has grown by between: a pool keeps nothing of streams
// that are gone. Streams that live: 500 blocks are in use, of sizes within 50 % of the mean; a pair is the free of any
// of them on its own stream and an allocation on any stream. The figures that must be reached are of the host driver on
// two cores.
//
// Of the pairs of 4 MB the pool, all of which is there from the beginning, serves 55 % from arenas; virtual memory,
// which holds less, has smaller arenas and serves all from its heap. With 8 MB, which neither keeps in arenas, both
// need the same time.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common.hpp"
#include "driver/check.hpp"
#include "driver/registry.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/vmm_memory_resource.hpp>

using namespace kmm::bench;
namespace driver = kmm::driver;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t pool_bytes = std::size_t{6} << 30;

using Resource = rmm::mr::device_memory_resource;

struct Subject {
    std::string name;
    std::function<std::unique_ptr<Resource>()> make;
};

double resident_bytes() {
    long pages = 0, resident = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr) return 0;
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void use_twice(Resource& pool, rmm::cuda_stream_view stream) {
    void* const a = pool.allocate(1024, stream);
    void* const b = pool.allocate(3000, stream);
    pool.deallocate(a, 1024, stream);
    pool.deallocate(b, 3000, stream);
}

/// `use(pool)` makes a stream, uses it twice, and ends it.
void measure_short_lived(Report& report, const std::string& name, const Subject& subject, int total,
                         const std::function<void(Resource&)>& use) {
    if (!report.wants(name)) return;
    auto pool = subject.make();
    const int part = total / 100;
    const auto run = [&](int streams) {
        const auto begin = Clock::now();
        for (int i = 0; i < streams; ++i) use(*pool);
        return seconds_since(begin) / streams;
    };
    (void)run(part);
    const double early = run(part);
    const double early_bytes = resident_bytes();
    (void)run(total - 3 * part);
    const double late = run(part);
    const double grown = resident_bytes() - early_bytes;
    report.add(name + "/early", {early}, microseconds());
    report.add(name + "/late_over_early", {late / early}, {"times", Better::lower, 1},
               {.raw = {}, .must = 1.5, .note = {}});
    report.add(name + "/host_bytes_a_stream", {grown / (total - 2 * part)}, {"bytes", Better::lower, 1},
               {.raw = {}, .must = 16, .note = {}});
}

void measure_live(Report& report, const std::string& name, Resource& pool, std::vector<rmm::cuda_stream>& streams,
                  std::size_t mean_bytes, std::optional<double> must) {
    if (!report.wants(name)) return;
    struct block {
        void* pointer;
        std::size_t bytes;
        std::size_t stream;
    };
    std::mt19937_64 random(1);
    const auto make = [&]() -> block {
        const std::size_t bytes = mean_bytes / 2 + random() % mean_bytes;
        const std::size_t stream = random() % streams.size();
        return {pool.allocate(bytes, streams[stream]), bytes, stream};
    };
    std::vector<block> live;
    for (int i = 0; i < 500; ++i) live.push_back(make());
    const auto pair = [&] {
        block& b = live[random() % live.size()];
        pool.deallocate(b.pointer, b.bytes, streams[b.stream]);
        b = make();
    };
    const int pairs = report.size(20'000, 200);
    for (int i = 0; i < 4 * pairs; ++i) pair();
    const Samples samples = time_calls(report.repetitions(7), pairs, pair);
    for (const block& b : live) pool.deallocate(b.pointer, b.bytes, streams[b.stream]);
    report.add(name, samples, microseconds(), {.raw = {}, .must = must, .note = {}});
}

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    rmm::mr::cuda_memory_resource cuda;
    const std::size_t bytes = report.size(pool_bytes, 256 * MiB);
    const Subject subjects[] = {
        {"pool",
         [&]() -> std::unique_ptr<Resource> {
             return std::make_unique<rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>>(cuda, bytes, bytes);
         }},
        {"vmm", [&]() -> std::unique_ptr<Resource> { return std::make_unique<rmm::mr::vmm_memory_resource>(bytes); }}};
    const auto flags = rmm::cuda_stream::flags::non_blocking;
    auto& device = driver::process_default();

    for (const Subject& subject : subjects) {
        const std::string name = subject.name + "/short_lived";
        measure_short_lived(report, name + "_streams", subject, report.size(100'000, 1'000), [&](Resource& pool) {
            rmm::cuda_stream stream(flags);
            use_twice(pool, stream);
        });
        measure_short_lived(report, name + "_foreign_streams", subject, report.size(100'000, 1'000),
                            [&](Resource& pool) {
                                driver::StreamHandle stream;
                                driver::check(device, device.create_stream(0, true, 0, &stream), "create a stream");
                                use_twice(pool, static_cast<cudaStream_t>(stream.native));
                                driver::check(device, device.destroy_stream(stream), "destroy a stream");
                            });
        measure_short_lived(report, name + "_threads", subject, report.size(100'000, 1'000), [&](Resource& pool) {
            std::thread([&] { use_twice(pool, rmm::cuda_stream_per_thread); }).join();
        });
    }
    for (const std::size_t count : {8, 1000, 8000}) {
        std::vector<rmm::cuda_stream> streams;
        for (std::size_t i = 0; i < (report.quick() ? count / 8 : count); ++i) streams.emplace_back(flags);
        for (const Subject& subject : subjects) {
            const std::string name = subject.name + "/live_streams_" + std::to_string(count);
            const bool most = count == 8000;
            const auto must = [&](double figure) { return most ? std::optional<double>(figure) : std::nullopt; };
            auto pool = subject.make();
            const bool has_arenas_for_4_mb = subject.name == "pool";
            measure_live(report, name + "/4MB", *pool, streams, 4'000'000,
                         has_arenas_for_4_mb ? must(1.5) : std::nullopt);
            pool = subject.make();
            measure_live(report, name + "/4KB", *pool, streams, 4096, must(0.7));
        }
    }
}
