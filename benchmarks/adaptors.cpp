// What the adaptors that watch add to an allocation or a free: nanoseconds on top of an upstream that does nothing, and
// on top of a pool. One thread, 64 blocks in its hand at a time.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "common.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"

namespace {

using namespace rmm::mr;
using namespace kmm::bench;
using upstream_type = device_memory_resource;

/// Gives 256 addresses in turn, which nobody uses.
class nothing_resource final : public device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override {
        return reinterpret_cast<void*>((1 + num_++ % 256) * 256);
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    std::uintptr_t num_ = 0;
};

/// Seconds of each repetition, for one request.
Samples time_requests(Report& report, device_memory_resource& mr) {
    constexpr int num_blocks = 64;
    return time_calls(report.repetitions(11), report.size(1000, 100), [&] {
        void* blocks[num_blocks];
        for (void*& ptr : blocks) ptr = mr.allocate(1024);
        for (void* ptr : blocks) mr.deallocate(ptr, 1024);
    });
}

struct Watcher {
    const char* name;
    double must_ns;  ///< of what it adds to the pool
    std::function<std::unique_ptr<device_memory_resource>(upstream_type*)> make;
};

void measure(Report& report, const char* upstream_name, upstream_type& upstream, const Watcher& watcher,
             std::optional<double> must_ns) {
    const std::string name = std::string("adaptor_") + watcher.name + "_over_" + upstream_name;
    if (!report.wants(name)) return;
    constexpr double requests = 128;
    Samples bare = time_requests(report, upstream);
    Samples watched = time_requests(report, *watcher.make(&upstream));
    const double base = median(bare) / requests;
    for (double& sample : bare) sample /= requests;
    for (double& sample : watched) sample = sample / requests - base;
    report.add(name, watched, nanoseconds(),
               {.raw = bare, .must = must_ns, .note = "added to each request; raw: without"});
}

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    const std::string file = (std::filesystem::temp_directory_path() / "kmm_bench_adaptors.csv").string();
    const Watcher watchers[] = {
        {"logging", 150, [&](auto* up) { return std::make_unique<logging_resource_adaptor<upstream_type>>(up, file); }},
        {"statistics", 50, [](auto* up) { return std::make_unique<statistics_resource_adaptor<upstream_type>>(up); }},
        {"tracking", 150, [](auto* up) { return std::make_unique<tracking_resource_adaptor<upstream_type>>(up); }},
        {"tracking_stacks", 1000,
         [](auto* up) { return std::make_unique<tracking_resource_adaptor<upstream_type>>(up, true); }},
    };
    nothing_resource nothing;
    cuda_memory_resource cuda;
    constexpr std::size_t pool_bytes = std::size_t{16} << 20;
    pool_memory_resource<cuda_memory_resource> pool(&cuda, pool_bytes, pool_bytes);
    for (const Watcher& watcher : watchers) {
        measure(report, "nothing", nothing, watcher, std::nullopt);
        measure(report, "pool", pool, watcher, watcher.must_ns);
    }
    std::error_code ignored;  // the next run empties it
    std::filesystem::remove(file, ignored);
    return 0;
}
