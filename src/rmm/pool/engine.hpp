// The engine of every pool: serves requests, and takes blocks back.
//
// Two levels. Each stream has an arena (arena.hpp) for requests that are small against the pool; a request there, and a
// free on the same stream, take the arena's lock alone and call no more of the driver than tells who the stream is. The
// heap (pool_heap.hpp), under the engine's lock, has large blocks and the spans of arenas (span_pool.hpp). Small pools
// have no spans: all comes from the heap. Pools whose blocks have one size keep free blocks in stocks (stock_pool.hpp)
// instead of spans.
//
// Owns: in which order memory is looked for. Must not know: the public templates, other pools; how the parts work
// (pool_parts.hpp). Any thread. No lock is held over a call of the driver or of upstream. The device of the pool must
// be current, as for every resource.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/pool/engine_values.hpp"
#include "rmm/pool/pool_holder.hpp"
#include "rmm/resource_ref.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_engine final : public pool_holder {
  public:
    /// Takes the initial bytes from upstream (in one attempt). Arguments have been checked.
    pool_engine(device_async_resource_ref upstream, const pool_options& options);
    /// Of virtual memory: grows by mapping, and maps free memory elsewhere rather than failing because it is in pieces.
    /// The source has no error of its own.
    pool_engine(std::unique_ptr<virtual_source> source, const pool_options& options);
    ~pool_engine();

    /// `bytes` > 0 on `stream`, which is made to wait for the last users of the memory. Grows if nothing fits. Null,
    /// with the cause in `*why`, if that fails; the pool is unchanged then. Throws only std::bad_alloc of the host.
    void* try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why);
    /// As `try_allocate`, but reclaims memory before it fails, and throws an exception with the pool's figures. O(1)
    /// if the stream's arena has a block, else O(log free pieces + streams); O(free pieces) if only neighbours that
    /// are not merged yet fit.
    void* allocate(std::size_t bytes, cuda_stream_view stream);

    /// Null, and false, where it takes a wait or a call of the driver. Only of blocks of arenas, on the legacy stream.
    void* allocate_at_hand(std::size_t bytes, cuda_stream_view stream) noexcept;
    bool free_at_hand(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

    /// Takes a block back, which may be used again once the work queued now on every one of `streams` is done. Without
    /// streams it may be used at once: the caller has waited for all its users. O(1) for blocks of arenas, O(log free
    /// pieces) for others.
    void free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept;

    /// Only of a pool that has one.
    device_async_resource_ref upstream() const noexcept;
    /// Takes `bytes` more from upstream, or as much as a request needs that waits for it now; for a thread that grows
    /// the pool ahead of its users. At most until `target_bytes` are held. False if nothing was taken: upstream
    /// refused, or it is enough. Not for an upstream whose memory is ordered on a stream.
    bool grow_ahead(std::size_t bytes, std::size_t target_bytes);
    /// A free of a large block that leaves more than this unused in the heap trims down to it.
    void set_release_threshold(std::size_t bytes) noexcept { release_above_.store(bytes, std::memory_order_relaxed); }

  private:
    using reach = timelines::reach;
    static constexpr std::size_t no_threshold = ~std::size_t{0};

    /// The public constructors delegate to this one, so that ~pool_engine runs if taking the initial block throws.
    template<typename Make>
    pool_engine(const growth_traits& traits, const pool_options& options, Make&& make_growth)
        : pool_holder(traits, options, std::forward<Make>(make_growth)) {}
    void take_initial_block(std::size_t bytes);

    // ---- finding memory
    void* allocate_slowly(std::size_t size, cuda_stream_view stream, arena* known, others_have others, refusal* why);
    void tend(lock& held, std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    void* allocate_in_turn(lock& held, std::size_t size, arena& a, cuda_stream_view stream, others_have others,
                           refusal* why) KMM_REQUIRES(in_engine);
    void* try_piece(lock& held, piece taken, const arena& a, cuda_stream_view stream, reach how_far, refusal* why,
                    std::uint64_t* unreachable = nullptr) KMM_REQUIRES(in_engine);
    void* try_fenced(lock& held, std::size_t size, arena& a, cuda_stream_view stream, reach how_far, bool all_spans,
                     refusal* why) KMM_REQUIRES(in_engine);
    void drop_passed_fence(lock& held, piece* taken) KMM_REQUIRES(in_engine);
    void* allocate_short_of_memory(std::size_t bytes, cuda_stream_view stream, refusal* why);
    [[noreturn]] void throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream);

    // ---- taking back
    void free_in_arena(arena& owner, std::uintptr_t address, std::size_t bytes, cuda_stream_view stream);
    void free_behind(arena* owner, std::uintptr_t address, std::size_t bytes,
                     std::span<const cuda_stream_view> streams);
    void free_stocked(stocked_block& block, std::uintptr_t address, std::span<const cuda_stream_view> streams);
    void release_surplus();

    std::atomic<std::size_t> release_above_{no_threshold};
    std::size_t trim_above_ KMM_GUARDED_BY(in_engine) = 0;  // with less free, the threshold is not looked at
    upstream_growth* upstream_growth_ = nullptr;            // the form of growth, of a pool that has an upstream
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
