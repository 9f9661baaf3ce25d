// The blocks behind tracking_resource_adaptor.
//
// Sixteen tables by address, each with its own lock, reduce contention. After the first call for the std::map that the
// interface promises, the blocks are in that map instead, so that the returned reference stays up to date.
//
// Owns: the records and their stacks. Must not know: resources. Any thread; locks are held for a fraction of a
// microsecond, but for the change into a map and the copy for a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "driver/locks.hpp"
#include "rmm/detail/stack_trace.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/mr/detail/tracking_adaptor.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class outstanding_allocations {
  public:
    explicit outstanding_allocations(bool capture_stacks) : capture_stacks_(capture_stacks) {}
    ~outstanding_allocations();
    outstanding_allocations(const outstanding_allocations&) = delete;
    outstanding_allocations& operator=(const outstanding_allocations&) = delete;

    /// What was known of the address before is replaced: its block was freed behind our back. Throws std::bad_alloc;
    /// the block is not known then.
    void add(void* ptr, std::size_t bytes);
    /// The bytes that were added; none if the address is unknown.
    std::optional<std::size_t> remove(void* ptr) noexcept;

    std::size_t num_blocks() const noexcept;
    std::size_t num_bytes() const noexcept;
    /// The blocks, from now on kept in this map. Not locked.
    const std::map<void*, allocation_info>& as_map() noexcept;
    std::string text() const;

  private:
    struct record {
        std::uintptr_t address = 0;
        std::size_t bytes = 0;
        rmm::detail::stack_trace* trace = nullptr;  // owned
    };
    struct alignas(64) shard {
        kmm::locks::ShortLock lock;
        heap::address_map<record> blocks KMM_GUARDED_BY(lock);  // empty once there is a map
        std::size_t num_blocks KMM_GUARDED_BY(lock) = 0;
        std::size_t num_bytes KMM_GUARDED_BY(lock) = 0;
    };
    static constexpr std::size_t num_shards = 16;  // more than threads that allocate at one instant

    shard& shard_of(const void* ptr) const noexcept;
    void insert(shard& home, void* ptr, std::size_t bytes, std::unique_ptr<rmm::detail::stack_trace> trace)
        KMM_REQUIRES(home.lock);
    record take(shard& home, void* ptr) noexcept KMM_REQUIRES(home.lock);
    template<typename Work>
    void with_all_locked(Work work) const;

    const bool capture_stacks_;
    mutable std::array<shard, num_shards> shards_;
    bool has_map_ = false;  // changes while every shard is locked, so that any shard's lock is enough to read it
    mutable kmm::locks::Mutex map_mutex_;  // after a shard's
    std::map<void*, allocation_info> map_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
