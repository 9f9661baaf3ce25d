// The memory that a pool gives to stream captures, and takes back when their graphs are destroyed.
//
// It is handed the engine's lock or takes it, releases it for calls of the driver, and works on the parts of the pool.
// Owns: the memory of each capture (capture.hpp). Must not know: how memory is searched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rmm/pool/capture.hpp"
#include "rmm/pool/pool_parts.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class growth;

class captures {
  public:
    captures(pool_parts& pool, growth& grows) noexcept : pool_(pool), growth_(grows) {}
    captures(const captures&) = delete;
    captures& operator=(const captures&) = delete;

    /// Whether the pool has memory of captures. Any thread; O(1).
    bool any() const noexcept { return num_heaps_.load(std::memory_order_relaxed) > 0; }

    // ---- without the engine's lock

    /// Allocates for a stream whose capture has this id. Null, with the cause, if there is no idle memory.
    void* allocate(std::size_t size, cuda_stream_view stream, std::uint64_t id, refusal* why);
    /// True if the block belongs to a capture, and was taken back.
    bool free(std::uintptr_t address, std::size_t bytes, std::span<const cuda_stream_view> streams);

    // ---- under it

    /// Into the pool. O(1) where no capture has ended, else O(captures + what is free in the ended ones).
    void release_ended() KMM_REQUIRES(in_engine);
    struct sums {
        std::size_t held_bytes = 0;  ///< taken from the pool
        std::size_t free_bytes = 0;  ///< of these not in use
    };
    sums figures() const noexcept KMM_REQUIRES(in_engine);

  private:
    using lock = engine_lock;

    capture_heap* find(std::uint64_t id) noexcept KMM_REQUIRES(in_engine);
    capture_heap* begin(lock& held, cuda_stream_view stream, std::uint64_t id, refusal* why) KMM_REQUIRES(in_engine);
    heap::block take_chunk(lock& held, capture_heap& c, std::size_t size, cudaStream_t handle, refusal* why)
        KMM_REQUIRES(in_engine);
    piece find_idle(lock& held, std::size_t size) KMM_REQUIRES(in_engine);
    piece grow_idle(lock& held, std::size_t size, refusal* why) KMM_REQUIRES(in_engine);
    piece idle_or_nothing(lock& held, piece taken, refusal* why) KMM_REQUIRES(in_engine);
    void expect_parts(capture_heap& c) KMM_REQUIRES(in_engine);
    void give_part(capture_heap& c, std::uint8_t area, std::uintptr_t address, std::size_t size,
                   heap::fence_set fences) noexcept KMM_REQUIRES(in_engine);

    pool_parts& pool_;
    growth& growth_;
    std::vector<std::unique_ptr<capture_heap>> heaps_ KMM_GUARDED_BY(in_engine);
    std::atomic<std::size_t> num_heaps_{0};
    std::uint64_t ended_seen_ KMM_GUARDED_BY(in_engine) = 0;  // ends of captures that have been looked at
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
