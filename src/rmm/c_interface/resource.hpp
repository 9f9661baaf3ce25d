// What stands behind an rmm_resource of <rmm/rmm.h>: a resource of C++ with a count of references.
//
// Owns: the resource, unless others made it; a reference to what it stands on. Must not know: kinds, options, texts of
// errors. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/device_table.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/mr/detail/statistics_adaptor.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "rmm/rmm.h"

struct rmm_resource {
  public:
    using object_type = rmm::mr::device_memory_resource;
    using counters_type = rmm::mr::detail::statistics_adaptor;

    /// Takes a reference to `upstream`, which may be null.
    rmm_resource(std::string kind, int device, rmm_resource* upstream)
        : kind_(std::move(kind)), device_(device), upstream_(rmm_retain(upstream)) {}
    virtual ~rmm_resource() { rmm_release(upstream_); }
    rmm_resource(const rmm_resource&) = delete;
    rmm_resource& operator=(const rmm_resource&) = delete;

    const std::string& kind() const noexcept { return kind_; }
    int device() const noexcept { return device_; }
    rmm_resource* upstream() const noexcept { return upstream_; }
    void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    /// True for the last one.
    bool release() noexcept { return references_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    virtual object_type& object() noexcept = 0;
    /// Fills the groups that it knows.
    virtual void read(rmm_statistics* out) { (void)out; }
    /// Bytes given back; nothing from what keeps none.
    virtual std::optional<std::size_t> trim(std::size_t keep_bytes) {
        (void)keep_bytes;
        return std::nullopt;
    }
    /// False where there are no names.
    virtual bool set_name(const char* name) {
        (void)name;
        return false;
    }
    /// Null where there are none.
    virtual counters_type* counters() noexcept { return nullptr; }
    /// Under which Python knows it, if it does.
    virtual std::shared_ptr<void> face() const { return nullptr; }
    /// What Python had set stays Python's when C puts it back.
    virtual bool is_set_by_python() const noexcept { return false; }

    /// Blocks of callers that do not say how large they are when they free them.
    struct sized_block {
        std::size_t size_bytes = 0;
        cudaStream_t stream = nullptr;
    };
    struct {
        kmm::locks::ShortLock mutex;
        rmm::heap::address_map<sized_block> blocks KMM_GUARDED_BY(mutex);
    } sized;

  private:
    const std::string kind_;
    const int device_;
    rmm_resource* const upstream_;
    std::atomic<std::size_t> references_{1};
};

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {

/// A resource that this made. What `Resource` can be asked is found out from its type.
template<typename Resource>
class opened final : public rmm_resource {
  public:
    template<typename... Arguments>
    opened(std::string kind, int device, rmm_resource* upstream, Arguments&&... arguments)
        : rmm_resource(std::move(kind), device, upstream), resource_(std::forward<Arguments>(arguments)...) {}

    Resource& resource() noexcept { return resource_; }
    object_type& object() noexcept override { return resource_; }

    void read(rmm_statistics* out) override {
        if constexpr (has_pool) {
            const mr::pool_statistics s = resource_.statistics();
            out->known |= RMM_KNOWS_POOL;
            out->held_bytes = s.held_bytes;
            out->in_use_bytes = s.in_use_bytes;
            out->free_bytes = s.free_bytes;
            out->largest_free_bytes = s.largest_free_bytes;
            out->maximum_bytes = s.maximum_bytes;
            out->num_blocks = s.num_blocks;
            out->num_upstream_blocks = s.num_upstream_blocks;
        }
        if constexpr (requires(Resource& r) { r.get_allocated_bytes(); }) {
            out->known |= RMM_KNOWS_ALLOCATED;
            out->allocated_bytes = resource_.get_allocated_bytes();
        }
        if constexpr (requires(Resource& r) { r.get_allocation_limit(); })
            out->limit_bytes = resource_.get_allocation_limit();
    }
    std::optional<std::size_t> trim(std::size_t keep_bytes) override {
        if constexpr (requires(Resource& r) { r.trim(keep_bytes); })
            return resource_.trim(keep_bytes);
        else
            return std::nullopt;
    }
    bool set_name(const char* name) override {
        if constexpr (requires(Resource& r) { r.set_name(name); }) {
            resource_.set_name(name);
            return true;
        } else {
            return false;
        }
    }
    counters_type* counters() noexcept override {
        if constexpr (std::is_base_of_v<counters_type, Resource>)
            return &resource_;
        else
            return nullptr;
    }

  private:
    static constexpr bool has_pool = requires(Resource& r, mr::pool_statistics s) { s = r.statistics(); };

    Resource resource_;
};

/// A resource made outside the C interface, with its owner if one was set.
class external final : public rmm_resource {
  public:
    external(int device, rmm::detail::owned_resource resource)
        : rmm_resource("external", device, nullptr), resource_(std::move(resource)) {}
    object_type& object() noexcept override { return *resource_.object; }
    std::shared_ptr<void> face() const override { return resource_.face; }
    bool is_set_by_python() const noexcept override { return resource_.is_set_by_python; }

  private:
    const rmm::detail::owned_resource resource_;
};

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
