// The resources of rmm by name, each made afresh with its upstreams: for programs that measure or replay.
//
// Owns: the list. Must not know: what is done with a resource. Device 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
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

/// What a resource is made with.
struct ResourceShape {
    std::size_t initial_bytes = 0;               ///< held from the start; 0: grows from nothing
    std::optional<std::size_t> maximum_bytes;    ///< none: no limit
    device_memory_resource* upstream = nullptr;  ///< null: a cuda_memory_resource of its own
};

struct NamedResource {
    std::string name;
    std::string title;  ///< as in RMM's table of results
    std::function<Resources(const ResourceShape&)> make;
    bool grows = true;
    bool has_upstream = true;  ///< takes its memory from `upstream`, and heeds the sizes of the shape
    bool is_adaptor = false;   ///< a pool behind an adaptor
};

/// Where a resource that logs writes to; whoever makes one removes it.
inline std::string benchmark_log_file() {
    return (std::filesystem::temp_directory_path() / "rmm_benchmark_log.csv").string();
}

inline std::size_t multiple_of_256(std::size_t bytes) { return bytes / 256 * 256; }

inline device_memory_resource* upstream_of(Resources& resources, const ResourceShape& shape) {
    return shape.upstream != nullptr ? shape.upstream : resources.put<rmm::mr::cuda_memory_resource>();
}

using Pool = rmm::mr::pool_memory_resource<device_memory_resource>;

inline Pool* put_pool(Resources& resources, const ResourceShape& shape) {
    std::optional<std::size_t> maximum;
    if (shape.maximum_bytes) maximum = multiple_of_256(*shape.maximum_bytes);
    return resources.put<Pool>(upstream_of(resources, shape), multiple_of_256(shape.initial_bytes), maximum);
}

inline Resources make_pool(const ResourceShape& shape) {
    Resources resources;
    put_pool(resources, shape);
    return resources;
}

/// A resource of its own kind, without an upstream.
template<typename Resource>
Resources make_alone(const ResourceShape&) {
    Resources resources;
    resources.put<Resource>();
    return resources;
}

inline Resources make_cuda_async(const ResourceShape& shape) {
    using Async = rmm::mr::cuda_async_memory_resource;
    Resources resources;
    resources.put<Async>(std::size_t{0}, std::optional<std::size_t>{}, std::optional<Async::allocation_handle_type>{},
                         shape.maximum_bytes);
    return resources;
}

template<typename Adaptor, typename... Arguments>
Resources make_on_pool(const ResourceShape& shape, Arguments... arguments) {
    Resources resources;
    Pool* const pool = put_pool(resources, shape);
    resources.put<Adaptor>(pool, arguments...);
    return resources;
}

/// All that this version of rmm has; the five that RMM replays first, in its order.
inline std::vector<NamedResource> named_resources() {
    std::vector<NamedResource> list;
    list.push_back({"pool", "Pool Resource", make_pool});
#ifdef KMM_BENCH_ARENA
    list.push_back({"arena", "Arena Resource",
                    [](const ResourceShape& shape) {
                        Resources resources;
                        std::optional<std::size_t> size;
                        if (shape.maximum_bytes || shape.initial_bytes > 0)
                            size = multiple_of_256(shape.maximum_bytes.value_or(shape.initial_bytes));
                        auto* const upstream = upstream_of(resources, shape);
                        resources.put<rmm::mr::arena_memory_resource<device_memory_resource>>(upstream, size);
                        return resources;
                    },
                    false});
#endif
#ifdef KMM_BENCH_BINNING
    list.push_back({"binning", "Binning Resource", [](const ResourceShape& shape) {
                        return make_on_pool<rmm::mr::binning_memory_resource<Pool>>(shape, std::int8_t{18},
                                                                                    std::int8_t{22});
                    }});
#endif
    list.push_back({"cuda", "CUDA Resource", make_alone<rmm::mr::cuda_memory_resource>, true, false});
    list.push_back({"managed", "Managed Resource", make_alone<rmm::mr::managed_memory_resource>, true, false});
    list.push_back({"cuda_async", "CUDA Async Resource", make_cuda_async, true, false});
#ifdef KMM_BENCH_VMM
    list.push_back({"vmm", "VMM Resource",
                    [](const ResourceShape& shape) {
                        Resources resources;
                        resources.put<rmm::mr::vmm_memory_resource>(shape.maximum_bytes);
                        return resources;
                    },
                    true, false});
#endif
#ifdef KMM_BENCH_STATISTICS
    list.push_back(
        {"pool_statistics", "Pool with Statistics",
         [](const ResourceShape& shape) { return make_on_pool<rmm::mr::statistics_resource_adaptor<Pool>>(shape); },
         true, true, true});
#endif
#ifdef KMM_BENCH_LOGGING
    list.push_back({"pool_logging", "Pool with Logging",
                    [](const ResourceShape& shape) {
                        return make_on_pool<rmm::mr::logging_resource_adaptor<Pool>>(shape, benchmark_log_file());
                    },
                    true, true, true});
#endif
#ifdef KMM_BENCH_TRACKING
    list.push_back(
        {"pool_tracking_stacks", "Pool with Tracking",
         [](const ResourceShape& shape) { return make_on_pool<rmm::mr::tracking_resource_adaptor<Pool>>(shape, true); },
         true, true, true});
#endif
    return list;
}

/// Those of a list with commas; of an empty list all but the adaptors. Throws std::invalid_argument for a name that is
/// none.
inline std::vector<NamedResource> resources_named(const std::string& names) {
    const std::vector<NamedResource> all = named_resources();
    std::vector<NamedResource> result;
    if (names.empty()) {
        for (const NamedResource& each : all) {
            if (!each.is_adaptor) result.push_back(each);
        }
        return result;
    }
    for (std::size_t begin = 0; begin <= names.size();) {
        const std::size_t end = std::min(names.find(',', begin), names.size());
        const std::string name = names.substr(begin, end - begin);
        const std::size_t before = result.size();
        for (const NamedResource& each : all) {
            if (each.name == name) result.push_back(each);
        }
        if (result.size() == before) throw std::invalid_argument("Error: invalid memory_resource name: " + name);
        begin = end + 1;
    }
    return result;
}

}  // namespace kmm::bench
