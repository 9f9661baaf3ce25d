// The resources of rmm by name, each made afresh with its upstreams: for programs that measure or replay.
//
// Owns: the list. Must not know: what is done with a resource. Device 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#if __has_include(<rmm/mr/arena_memory_resource.hpp>)
#include <rmm/mr/arena_memory_resource.hpp>
#define KMM_BENCH_ARENA
#endif
#if __has_include(<rmm/mr/binning_memory_resource.hpp>)
#include <rmm/mr/binning_memory_resource.hpp>
#define KMM_BENCH_BINNING
#endif
#if __has_include(<rmm/mr/vmm_memory_resource.hpp>)
#include <rmm/mr/vmm_memory_resource.hpp>
#define KMM_BENCH_VMM
#endif
#if __has_include(<rmm/mr/statistics_resource_adaptor.hpp>)
#include <rmm/mr/statistics_resource_adaptor.hpp>
#define KMM_BENCH_STATISTICS
#endif
#if __has_include(<rmm/mr/logging_resource_adaptor.hpp>)
#include <rmm/mr/logging_resource_adaptor.hpp>
#define KMM_BENCH_LOGGING
#endif
#if __has_include(<rmm/mr/tracking_resource_adaptor.hpp>)
#include <rmm/mr/tracking_resource_adaptor.hpp>
#define KMM_BENCH_TRACKING
#endif

namespace kmm::bench {

using rmm::mr::device_memory_resource;

/// Resources upon each other, destroyed from the top.
class Resources {
  public:
    Resources() = default;
    Resources(Resources&&) = default;
    Resources& operator=(Resources&&) = delete;
    ~Resources() {
        while (!owned_.empty()) owned_.pop_back();
    }

    template<typename Resource, typename... Arguments>
    Resource* put(Arguments&&... arguments) {
        auto made = std::make_shared<Resource>(std::forward<Arguments>(arguments)...);
        Resource* const result = made.get();
        owned_.push_back(std::move(made));
        return result;
    }
    /// What the program calls.
    device_memory_resource* top() const { return owned_.back().get(); }

  private:
    std::vector<std::shared_ptr<device_memory_resource>> owned_;
};

struct NamedResource {
    std::string name;
    /// `initial`: bytes held from the start, 0 for a resource that grows from nothing. `maximum`: none for no limit.
    std::function<Resources(std::size_t initial, std::optional<std::size_t> maximum)> make;
    bool grows = true;
    bool is_adaptor = false;  ///< a pool behind an adaptor
};

/// Where a resource that logs writes to; whoever makes one removes it.
inline std::string benchmark_log_file() {
    return (std::filesystem::temp_directory_path() / "rmm_benchmark_log.csv").string();
}

inline std::size_t multiple_of_256(std::size_t bytes) { return bytes / 256 * 256; }

using CudaPool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

inline CudaPool* put_pool(Resources& resources, std::size_t initial, std::optional<std::size_t> maximum) {
    auto* const upstream = resources.put<rmm::mr::cuda_memory_resource>();
    if (maximum) maximum = multiple_of_256(*maximum);
    return resources.put<CudaPool>(upstream, multiple_of_256(initial), maximum);
}

/// All that this version of rmm has. `cuda` and `managed` know neither an initial nor a maximum size.
inline std::vector<NamedResource> named_resources() {
    using Maximum = std::optional<std::size_t>;
    std::vector<NamedResource> list;
    list.push_back({"pool", [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        put_pool(resources, initial, maximum);
                        return resources;
                    }});
#ifdef KMM_BENCH_ARENA
    list.push_back({"arena",
                    [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        auto* const upstream = resources.put<rmm::mr::cuda_memory_resource>();
                        Maximum size;
                        if (maximum || initial > 0) size = multiple_of_256(maximum.value_or(initial));
                        resources.put<rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource>>(upstream, size);
                        return resources;
                    },
                    false});
#endif
#ifdef KMM_BENCH_BINNING
    list.push_back({"binning", [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        CudaPool* const pool = put_pool(resources, initial, maximum);
                        resources.put<rmm::mr::binning_memory_resource<CudaPool>>(pool, std::int8_t{18},
                                                                                  std::int8_t{22});
                        return resources;
                    }});
#endif
#ifdef KMM_BENCH_VMM
    list.push_back({"vmm", [](std::size_t, Maximum maximum) {
                        Resources resources;
                        resources.put<rmm::mr::vmm_memory_resource>(maximum);
                        return resources;
                    }});
#endif
    list.push_back({"cuda_async", [](std::size_t, Maximum maximum) {
                        Resources resources;
                        using Async = rmm::mr::cuda_async_memory_resource;
                        resources.put<Async>(std::size_t{0}, Maximum{}, std::optional<Async::allocation_handle_type>{},
                                             maximum);
                        return resources;
                    }});
#ifdef KMM_BENCH_STATISTICS
    list.push_back({"pool_statistics",
                    [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        CudaPool* const pool = put_pool(resources, initial, maximum);
                        resources.put<rmm::mr::statistics_resource_adaptor<CudaPool>>(pool);
                        return resources;
                    },
                    true, true});
#endif
#ifdef KMM_BENCH_LOGGING
    list.push_back({"pool_logging",
                    [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        CudaPool* const pool = put_pool(resources, initial, maximum);
                        resources.put<rmm::mr::logging_resource_adaptor<CudaPool>>(pool, benchmark_log_file());
                        return resources;
                    },
                    true, true});
#endif
#ifdef KMM_BENCH_TRACKING
    list.push_back({"pool_tracking_stacks",
                    [](std::size_t initial, Maximum maximum) {
                        Resources resources;
                        CudaPool* const pool = put_pool(resources, initial, maximum);
                        resources.put<rmm::mr::tracking_resource_adaptor<CudaPool>>(pool, true);
                        return resources;
                    },
                    true, true});
#endif
    return list;
}

}  // namespace kmm::bench
