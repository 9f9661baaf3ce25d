// What one allocate or deallocate of rmm costs, and how full its resources get; beside them the driver's own allocator.
//
// On the cuda driver the sizes are those of a large GPU; on the host driver they are small, and `raw` is its emulated
// pool. Further arguments: see AllocatorArguments.
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "address_upstream.hpp"
#include "allocator_figures.hpp"
#include "driver/check.hpp"
#include "driver/registry.hpp"
#include "driver_machine.hpp"
#include "rmm_resources.hpp"

#include <rmm/device_buffer.hpp>

using namespace kmm::bench;
namespace driver = kmm::driver;

namespace {

/// A resource of rmm, as a program calls it: through the base class.
class RmmSubject {
  public:
    explicit RmmSubject(Resources resources) : resources_(std::move(resources)), resource_(resources_.top()) {
        pool_ = dynamic_cast<Pool*>(resource_);
#ifdef KMM_BENCH_VMM
        virtual_ = dynamic_cast<rmm::mr::vmm_memory_resource*>(resource_);
#endif
    }
    void* allocate(std::size_t bytes, RawStream stream) { return resource_->allocate(bytes, view(stream)); }
    void deallocate(void* pointer, std::size_t bytes, RawStream stream) {
        resource_->deallocate(pointer, bytes, view(stream));
    }
    bool make_current(bool on) {
        rmm::mr::set_current_device_resource(on ? resource_ : nullptr);
        return true;
    }
    void make_and_drop_buffer(std::size_t bytes, RawStream stream) { rmm::device_buffer buffer(bytes, view(stream)); }
    std::uint64_t growths() {
#ifdef KMM_BENCH_VMM
        if (virtual_ != nullptr) return virtual_->mappings().pieces_mapped;
#endif
        return pool_ != nullptr ? pool_->pool_size() : 0;
    }

  private:
    static rmm::cuda_stream_view view(RawStream stream) { return static_cast<cudaStream_t>(stream); }

    Resources resources_;
    rmm::mr::device_memory_resource* resource_;
    Pool* pool_ = nullptr;
#ifdef KMM_BENCH_VMM
    rmm::mr::vmm_memory_resource* virtual_ = nullptr;
#endif
};

std::unique_ptr<RmmSubject> make_pool_over_pool(const ResourceShape& shape) {
    Resources resources;
    Pool* const below = put_pool(resources, shape);
    put_pool(resources, {shape.initial_bytes / 2, shape.maximum_bytes, below});
    return std::make_unique<RmmSubject>(std::move(resources));
}

/// What pools hold of addresses is not free on the device either.
class LargeHostMachine final : public DriverMachine {
  public:
    explicit LargeHostMachine(driver::Driver& driver) : DriverMachine(driver), upstream_(DriverMachine::free_bytes()) {}
    std::size_t free_bytes() override { return DriverMachine::free_bytes() - upstream_.held_bytes(); }
    AddressUpstream& upstream() { return upstream_; }

  private:
    AddressUpstream upstream_;
};

/// A pool of the driver, called directly: cudaMallocFromPoolAsync on the cuda driver.
class DriverPool {
  public:
    DriverPool(driver::Driver& driver, const Shape& shape) : driver_(driver) {
        driver::check(driver_, driver_.create_pool(0, {.maximum_bytes = shape.maximum_bytes.value_or(0)}, &pool_),
                      "create a pool");
        (void)driver_.set_pool_release_threshold(pool_, std::numeric_limits<std::uint64_t>::max());
    }
    ~DriverPool() { (void)driver_.destroy_pool(pool_); }
    DriverPool(const DriverPool&) = delete;
    DriverPool& operator=(const DriverPool&) = delete;

    void* allocate(std::size_t bytes, RawStream stream) {
        void* pointer = nullptr;
        driver::check(driver_, driver_.allocate_async(pool_, bytes, {stream}, &pointer), "allocate");
        return pointer;
    }
    void deallocate(void* pointer, std::size_t, RawStream stream) { (void)driver_.free_async(pointer, {stream}); }
    bool make_current(bool) { return false; }
    void make_and_drop_buffer(std::size_t, RawStream) {}
    std::uint64_t growths() { return 0; }

  private:
    driver::Driver& driver_;
    driver::PoolHandle pool_;
};

Scale small_scale() {
    Scale scale;
    scale.pool_bytes = std::size_t{256} << 20;
    scale.largest_bytes = std::size_t{256} << 10;
    scale.buffer_pool_bytes = std::size_t{32} << 20;
    scale.limit_bytes = std::size_t{512} << 20;
    scale.busy_bytes = std::size_t{4} << 20;
    scale.num_small = 20'000;
    scale.sample_seconds = 0.02;
    scale.num_seeds = 2;
    scale.efficiency_operations = 2'000;
    scale.steps_per_rise = 20;
    scale.tail_requests = 200'000;
    scale.holes = {1'000};
    return scale;
}

/// What RAPIDS' RMM reached in its pool on an H200 with CUDA 13.0, the better of 25.10 and 26.10: ours must not be
/// slower, nor use the memory worse. allocators_rival measures it anew on the machine at hand.
std::map<std::string, double> rival_figures() {
    return {{"pool/churn", 720},
            {"pool/churn_16_threads", 1084},
            {"pool/churn_64_streams", 719},
            {"pool/churn_64_streams_freed_elsewhere", 2278},
            {"pool/churn_1000_holes", 3800},
            {"pool/churn_10000_holes", 29'600},
            {"pool/churn_100000_holes", 340'000},
            {"pool/free_while_busy", 307},
            {"pool/device_buffer", 464},
            {"pool/device_buffer_8_threads", 1573},
            {"pool/live_share_1_stream", 74},
            {"pool/live_share_8_streams", 47},
            {"pool/reserved_over_live", 1.88},
            {"pool_statistics/churn", 951},
            {"pool_logging/churn", 1832},
            {"pool_tracking_stacks/churn", 2211}};
}

Takes takes(const NamedResource& resource) {
    if (resource.is_adaptor) return Takes::churn_only;
    if (resource.name == "cuda" || resource.name == "managed") return Takes::all_but_limits;
    return resource.grows ? Takes::everything : Takes::all_but_growth;
}

}  // namespace

int main(int argc, char** argv) {
    AllocatorArguments arguments(argc, argv);
    Report report(arguments.count(), arguments.values());
    try {
        driver::Driver& driver = driver::process_default();
        const bool is_host = driver.kind() == driver::Kind::host;
        const bool is_small = is_host && !arguments.large();
        std::unique_ptr<DriverMachine> own = std::make_unique<DriverMachine>(driver);
        device_memory_resource* upstream = nullptr;
        if (is_host && arguments.large()) {
            auto large = std::make_unique<LargeHostMachine>(driver);
            upstream = &large->upstream();
            own = std::move(large);
        }
        DriverMachine& machine = *own;
        const Scale scale = arguments.apply_to(is_small ? small_scale() : Scale());
        Comparison comparison;
        const bool usual = driver.kind() == driver::Kind::cuda && !report.quick() && arguments.usual_sizes();
        if (usual) comparison.must = rival_figures();
        if (arguments.wants("malloc_async")) {
            const Maker<DriverPool> maker{
                "malloc_async", [&](const Shape& shape) { return std::make_unique<DriverPool>(driver, shape); },
                Takes::everything};
            AllocatorFigures<DriverPool>(report, machine, scale, comparison).run(maker, true);
        }
        AllocatorFigures<RmmSubject> figures(report, machine, scale, comparison);
        for (const NamedResource& resource : named_resources()) {
            // Tens of microseconds an operation: only for those who ask.
            const bool is_slow = resource.name == "cuda" || resource.name == "managed";
            if (is_slow ? !arguments.names(resource.name) : !arguments.wants(resource.name)) continue;
            const auto make = [&](const Shape& shape) {
                return std::make_unique<RmmSubject>(
                    resource.make({shape.initial_bytes, shape.maximum_bytes, upstream}));
            };
            figures.run({resource.name, make, takes(resource)});
        }
        // The memory of its upstream is ready on one stream only, that of the other pools' upstream at once.
        if (arguments.wants("pool_over_pool"))
            figures.run({"pool_over_pool",
                         [&](const Shape& shape) {
                             return make_pool_over_pool({shape.initial_bytes, shape.maximum_bytes, upstream});
                         },
                         Takes::churn_and_holes});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::remove(benchmark_log_file().c_str());
    return 0;
}
