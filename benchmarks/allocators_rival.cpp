// The figures of allocators.cpp, measured with RAPIDS' RMM in place of ours: the same requests, sizes and names.
//
// A program of its own, because both libraries have the namespace rmm: it sees RMM's headers and none of ours. Built
// only with -DKMM_RIVAL_RMM=DIR, where DIR holds the unpacked wheels of librmm and rapids-logger (25.10 and 26.10 were
// tried). The arguments are those of allocators.cpp. Where no GPU answers, one line says so.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // one source for releases of several years
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "allocator_figures.hpp"
#include "raw_cuda.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/version_config.hpp>
#if RMM_VERSION_MAJOR >= 26
#include <cuda/memory_resource>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#else
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#endif

using namespace kmm::bench;

namespace {

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error));
}

class CudaMachine final : public Machine {
  public:
    RawStream create_stream() override {
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        return stream;
    }
    void destroy_stream(RawStream stream) override {
        check(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "cudaStreamDestroy");
    }
    void synchronize() override { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
    bool spin(RawStream stream, double microseconds) override { return raw::keep_busy(stream, microseconds); }
    std::size_t free_bytes() override {
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }
};

std::size_t multiple_of_256(std::size_t bytes) { return bytes / 256 * 256; }
const std::string log_file = (std::filesystem::temp_directory_path() / "rmm_benchmark_log.csv").string();

#if RMM_VERSION_MAJOR >= 26

/// Resources are values that share what they own; the program calls them through the type that containers hold.
using Resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

class RivalSubject {
  public:
    explicit RivalSubject(Resource resource) : resource_(std::move(resource)) {}
    void* allocate(std::size_t bytes, RawStream stream) { return resource_.allocate(view(stream), bytes, 256); }
    void deallocate(void* pointer, std::size_t bytes, RawStream stream) {
        resource_.deallocate(view(stream), pointer, bytes, 256);
    }
    bool make_current(bool on) {
        if (on)
            rmm::mr::set_current_device_resource(resource_);
        else
            rmm::mr::reset_current_device_resource();
        return true;
    }
    void make_and_drop_buffer(std::size_t bytes, RawStream stream) { rmm::device_buffer buffer(bytes, view(stream)); }
    std::uint64_t growths() { return 0; }

  private:
    static rmm::cuda_stream_view view(RawStream stream) { return static_cast<cudaStream_t>(stream); }
    Resource resource_;
};

rmm::mr::pool_memory_resource pool_of(const Shape& shape) {
    return rmm::mr::pool_memory_resource(rmm::mr::cuda_memory_resource(), multiple_of_256(shape.initial_bytes),
                                         shape.maximum_bytes);
}

Resource make_pool(const Shape& shape) { return pool_of(shape); }
Resource make_arena(const Shape& shape) {
    return rmm::mr::arena_memory_resource(rmm::mr::cuda_memory_resource(), multiple_of_256(shape.initial_bytes));
}
Resource make_binning(const Shape& shape) { return rmm::mr::binning_memory_resource(pool_of(shape), 18, 22); }
Resource make_cuda_async(const Shape&) { return rmm::mr::cuda_async_memory_resource(std::size_t{0}); }
Resource make_statistics(const Shape& shape) { return rmm::mr::statistics_resource_adaptor(pool_of(shape)); }
Resource make_logging(const Shape& shape) { return rmm::mr::logging_resource_adaptor(pool_of(shape), log_file); }
Resource make_tracking(const Shape& shape) { return rmm::mr::tracking_resource_adaptor(pool_of(shape), true); }

#else

using Base = rmm::mr::device_memory_resource;
/// The resource that the program calls and what it stands on, destroyed from the top.
using Resource = std::vector<std::shared_ptr<Base>>;

class RivalSubject {
  public:
    explicit RivalSubject(Resource resources) : resources_(std::move(resources)), resource_(resources_.back().get()) {}
    ~RivalSubject() {
        while (!resources_.empty()) resources_.pop_back();
    }
    RivalSubject(const RivalSubject&) = delete;
    RivalSubject& operator=(const RivalSubject&) = delete;
    void* allocate(std::size_t bytes, RawStream stream) { return resource_->allocate(bytes, view(stream)); }
    void deallocate(void* pointer, std::size_t bytes, RawStream stream) {
        resource_->deallocate(pointer, bytes, view(stream));
    }
    bool make_current(bool on) {
        rmm::mr::set_current_device_resource(on ? resource_ : nullptr);
        // A null pointer leaves the containers' reference null as well.
        if (!on) rmm::mr::reset_current_device_resource_ref();
        return true;
    }
    void make_and_drop_buffer(std::size_t bytes, RawStream stream) { rmm::device_buffer buffer(bytes, view(stream)); }
    std::uint64_t growths() { return 0; }

  private:
    static rmm::cuda_stream_view view(RawStream stream) { return static_cast<cudaStream_t>(stream); }
    Resource resources_;
    Base* resource_;
};

Resource make_pool(const Shape& shape) {
    const auto upstream = std::make_shared<rmm::mr::cuda_memory_resource>();
    return {upstream, std::make_shared<rmm::mr::pool_memory_resource<Base>>(
                          upstream.get(), multiple_of_256(shape.initial_bytes), shape.maximum_bytes)};
}
Resource make_arena(const Shape& shape) {
    const auto upstream = std::make_shared<rmm::mr::cuda_memory_resource>();
    return {upstream, std::make_shared<rmm::mr::arena_memory_resource<Base>>(upstream.get(),
                                                                             multiple_of_256(shape.initial_bytes))};
}
Resource make_cuda_async(const Shape&) {
    return {std::make_shared<rmm::mr::cuda_async_memory_resource>(std::size_t{0})};
}
template<typename Top, typename... Arguments>
Resource on_pool(const Shape& shape, Arguments... arguments) {
    Resource resources = make_pool(shape);
    resources.push_back(std::make_shared<Top>(resources.back().get(), arguments...));
    return resources;
}
Resource make_binning(const Shape& shape) {
    return on_pool<rmm::mr::binning_memory_resource<Base>>(shape, std::int8_t{18}, std::int8_t{22});
}
Resource make_statistics(const Shape& shape) { return on_pool<rmm::mr::statistics_resource_adaptor<Base>>(shape); }
Resource make_logging(const Shape& shape) { return on_pool<rmm::mr::logging_resource_adaptor<Base>>(shape, log_file); }
Resource make_tracking(const Shape& shape) { return on_pool<rmm::mr::tracking_resource_adaptor<Base>>(shape, true); }

#endif

/// A pool of the driver, called directly.
class DriverPool {
  public:
    explicit DriverPool(const Shape& shape) {
        cudaMemPoolProps properties{};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.maxSize = shape.maximum_bytes.value_or(0);
        check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
        unsigned long long keep = std::numeric_limits<unsigned long long>::max();
        check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
    }
    ~DriverPool() { (void)cudaMemPoolDestroy(pool_); }
    DriverPool(const DriverPool&) = delete;
    DriverPool& operator=(const DriverPool&) = delete;
    void* allocate(std::size_t bytes, RawStream stream) {
        void* pointer = nullptr;
        check(cudaMallocFromPoolAsync(&pointer, bytes, pool_, static_cast<cudaStream_t>(stream)),
              "cudaMallocFromPoolAsync");
        return pointer;
    }
    void deallocate(void* pointer, std::size_t, RawStream stream) {
        (void)cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream));
    }
    bool make_current(bool) { return false; }
    void make_and_drop_buffer(std::size_t, RawStream) {}
    std::uint64_t growths() {
        std::uint64_t bytes = 0;
        (void)cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes);
        return bytes;
    }

  private:
    cudaMemPool_t pool_ = nullptr;
};

struct Rival {
    const char* name;
    Resource (*make)(const Shape&);
    Takes takes;
};

constexpr Rival rivals[] = {
    {"pool", make_pool, Takes::everything},
    {"arena", make_arena, Takes::all_but_growth},
    {"binning", make_binning, Takes::everything},
    {"cuda_async", make_cuda_async, Takes::all_but_limits},
    {"pool_statistics", make_statistics, Takes::churn_only},
    {"pool_logging", make_logging, Takes::churn_only},
    {"pool_tracking_stacks", make_tracking, Takes::churn_only},
};

}  // namespace

int main(int argc, char** argv) {
    AllocatorArguments arguments(argc, argv);
    int num_devices = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&num_devices); error != cudaSuccess || num_devices == 0) {
        std::printf("not available: no GPU answers (%s)\n", cudaGetErrorName(error));
        return 0;
    }
    Report report(arguments.count(), arguments.values());
    const std::string prefix =
        "rmm" + std::to_string(RMM_VERSION_MAJOR) + "." + std::to_string(RMM_VERSION_MINOR) + "_";
    try {
        CudaMachine machine;
        const Scale scale = arguments.apply_to(Scale());
        Comparison comparison;
        if (arguments.wants("malloc_async")) {
            AllocatorFigures<DriverPool>(report, machine, scale, comparison)
                .run({"malloc_async", [](const Shape& shape) { return std::make_unique<DriverPool>(shape); }}, true);
        }
        AllocatorFigures<RivalSubject> figures(report, machine, scale, comparison);
        for (const Rival& rival : rivals) {
            if (!arguments.wants(rival.name)) continue;
            figures.run({prefix + rival.name,
                         [&](const Shape& shape) { return std::make_unique<RivalSubject>(rival.make(shape)); },
                         rival.takes});
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::remove(log_file.c_str());
    return 0;
}
