// The pool without its template face. Declares what src/rmm/pool/ implements; programs use pool_memory_resource.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// What a pool holds at one instant, in bytes.
struct pool_statistics {
    std::size_t held_bytes = 0;    ///< from upstream, used and free
    std::size_t in_use_bytes = 0;  ///< rounded up to 256 for each block
    std::size_t free_bytes = 0;
    std::size_t largest_free_bytes = 0;  ///< the largest request that needs no growth
    std::size_t maximum_bytes = 0;       ///< 0: none
    std::size_t captured_bytes = 0;      ///< kept for the graphs of stream captures, used and free
    std::size_t num_blocks = 0;          ///< blocks in use
    std::size_t num_upstream_blocks = 0;
};

/// Calls of the driver that a pool of virtual memory has made. A program in a steady state adds none.
struct mapping_counts {
    std::uint64_t pieces_created = 0;
    std::uint64_t pieces_released = 0;
    std::uint64_t pieces_mapped = 0;
    std::uint64_t pieces_unmapped = 0;
    std::uint64_t moves = 0;        ///< requests for which memory was mapped elsewhere
    std::uint64_t moved_bytes = 0;  ///< by these
};

namespace detail {

struct virtual_memory {
    std::size_t maximum_bytes = ~std::size_t{0};  ///< all ones: as much as the device has
    /// Which devices besides its own may use the memory, of those that can. Null: all that can.
    int const* readers = nullptr;
    std::size_t num_readers = 0;
    unsigned export_handle_types = 0;  ///< bits of cudaMemAllocationHandleType
    bool rdma = false;
    bool multicast = false;
};

class pool_engine;     // src/rmm/pool/engine.hpp
class pool_debugging;  // src/rmm/debug/pool_debugging.hpp

/// Of which kind a pool is. Sizes are multiples of 256.
struct pool_options {
    char const* name = "pool_memory_resource";    ///< in messages
    std::size_t initial_bytes = 0;                ///< taken from upstream at once, in one block
    std::size_t maximum_bytes = ~std::size_t{0};  ///< all ones: none
    /// 0: growth by as much again as is held (from 4 GiB on a 32nd), or half of the room under the maximum, at least
    /// what is needed. Else upstream is asked for exactly this much each time.
    std::size_t growth_bytes = 0;
    bool grows = true;
    /// 0: blocks of any size. Else every request takes one block of this size, and larger ones are refused.
    std::size_t block_bytes = 0;
    /// Memory of upstream is ready only on the stream on which it was asked for.
    bool ordered_upstream = true;
    /// Memory is the device's: if it is short there, other pools ask for what is not used here.
    bool on_device = true;
};

/// Owns an engine. Contract: pool_memory_resource. With RMM_DEBUG (docs/debugging-memory.md; read by the constructors,
/// which throw rmm::logic_error for a malformed one), blocks are checked as by debug_resource_adaptor.
class RMM_EXPORT pool {
  public:
    /// `ordered_upstream`: memory of upstream is ready only on the stream on which it was asked for. Resources of this
    /// library that are known not to be are recognised behind the reference.
    pool(device_async_resource_ref upstream, std::optional<std::size_t> initial_pool_size,
         std::optional<std::size_t> maximum_pool_size, bool ordered_upstream);
    /// Any kind of pool; null upstream: rmm::logic_error.
    pool(device_async_resource_ref upstream, pool_options const& options);
    /// A pool of virtual memory. rmm::logic_error where the driver has none, cannot reserve addresses, or where the
    /// device has not what is asked for.
    explicit pool(virtual_memory const& memory);
    ~pool();
    pool(pool const&) = delete;
    pool& operator=(pool const&) = delete;

    void* allocate(std::size_t bytes, cuda_stream_view stream);
    void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;
    /// Non-blocking variants, for small blocks of the legacy default stream: they need no call of the driver and no
    /// lock that another thread holds. Otherwise null, or false, with nothing done.
    void* allocate_at_hand(std::size_t bytes, cuda_stream_view stream) noexcept;
    [[nodiscard]] bool deallocate_at_hand(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;
    /// Frees a block that no queued work uses, nor did when it was allocated: it is reusable at once.
    void deallocate_idle(void* ptr, std::size_t bytes) noexcept;
    [[nodiscard]] device_async_resource_ref upstream() const noexcept;
    [[nodiscard]] std::size_t held_bytes() const noexcept;
    [[nodiscard]] pool_statistics statistics() const;
    std::size_t trim(std::size_t keep_bytes);
    void set_name(char const* name);
    [[nodiscard]] std::size_t in_use_bytes(char const* tag) const;
    void set_release_threshold(std::size_t bytes) noexcept;
    [[nodiscard]] mapping_counts mappings() const;
    [[nodiscard]] pool_engine& engine() noexcept { return *engine_; }
    /// Null: off.
    [[nodiscard]] pool_debugging* debugging() noexcept { return debugging_; }

  private:
    pool_engine* engine_;
    pool_debugging* debugging_ = nullptr;  // where RMM_DEBUG asks for it
};

/// What fixed_size_memory_resource is. Throws rmm::logic_error for sizes that make no pool.
[[nodiscard]] RMM_EXPORT pool_options fixed_size_options(std::size_t block_size, std::size_t blocks_to_preallocate);

/// What arena_memory_resource is; by default half of the device's free memory. Throws rmm::logic_error below 1 MiB.
[[nodiscard]] RMM_EXPORT pool_options arena_options(std::optional<std::size_t> arena_size);
/// Truncates the file of `dump_arena`, in the working directory.
RMM_EXPORT void begin_arena_dump() noexcept;
RMM_EXPORT void dump_arena(pool const& arena, std::size_t bytes) noexcept;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
