// Maps streams to arenas.
//
// Each stream that calls a pool gets an arena. When the stream has ended, or was not seen for long while there are
// many, the arena is an orphan, and goes to a new stream once the work of the last one has passed. Owns: the arenas.
// Must not know: addresses, upstream. A collaborator of the engine, whose lock it takes or is handed; functions that
// any thread may call without the lock say so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "driver/driver.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/pool/arena.hpp"
#include "rmm/pool/chain.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_engine;

class arena_table {
  public:
    using lock = engine_lock;

    /// `uid`: no pool of the process has had it before. Throws std::bad_alloc.
    arena_table(pool_engine& pool, driver::Driver& driver, std::uint64_t uid)
        : pool_(pool), driver_(driver), uid_(uid) {}
    arena_table(const arena_table&) = delete;
    arena_table& operator=(const arena_table&) = delete;

    // ---- any thread, without the lock

    /// The arena that this thread used last for the handle; null if there is none. `*same_stream`, if asked for:
    /// whether the handle still is the stream that the arena works for, and is not captured; that calls the driver.
    arena* at_hand(cudaStream_t handle, bool* same_stream) noexcept;
    /// Of a stream that is the one of before, and not captured. Calls the driver.
    std::optional<arena_call> bound(cuda_stream_view stream) noexcept;
    /// Of any stream, which is identified now. May throw std::bad_alloc. Calls the driver.
    arena_call of(cuda_stream_view stream);
    std::size_t size() const noexcept { return num_arenas_.load(std::memory_order_relaxed); }

    // ---- under the lock

    /// One without a stream.
    arena& add() KMM_REQUIRES(in_engine);
    /// For a call that relies on its being its stream's, of an arena that was so just now.
    std::optional<arena_call> call_on(const lock& held, arena& a, cudaStream_t handle) noexcept KMM_REQUIRES(in_engine);
    /// Lets the lock go for the driver. O(1): looks at a few arenas whose streams may be gone.
    arena& bind(lock& held, const rmm::detail::stream_identity& who, cudaStream_t handle) KMM_REQUIRES(in_engine);
    auto begin() const noexcept KMM_REQUIRES(in_engine) { return arenas_.begin(); }
    auto end() const noexcept KMM_REQUIRES(in_engine) { return arenas_.end(); }
    /// An event of the device was recorded.
    void note_device_event() noexcept KMM_REQUIRES(in_engine) { binds_since_device_event_ = 0; }

  private:
    arena* take_clean_orphan(lock& held) KMM_REQUIRES(in_engine);
    bool is_clean(arena& a, std::uint64_t* last_freed) noexcept;
    void orphan(arena& a) noexcept KMM_REQUIRES(in_engine);
    void orphan_unused() noexcept KMM_REQUIRES(in_engine);
    void forget_what_left(lock& held) KMM_REQUIRES(in_engine);

    pool_engine& pool_;
    driver::Driver& driver_;
    const std::uint64_t uid_;
    std::vector<std::unique_ptr<arena>> arenas_ KMM_GUARDED_BY(in_engine);
    std::atomic<std::size_t> num_arenas_{0};
    heap::address_map<arena*, 0> by_number_ KMM_GUARDED_BY(in_engine);  // by number and one
    std::unordered_map<cudaStream_t, arena*> by_handle_ KMM_GUARDED_BY(in_engine);
    chain<arena, &arena::as_orphan> orphans_ KMM_GUARDED_BY(in_engine);
    std::size_t next_looked_at_ KMM_GUARDED_BY(in_engine) = 0;  // for an arena whose stream is gone
    std::size_t kept_unused_ KMM_GUARDED_BY(in_engine) = 64;    // of foreign streams, which may come back
    std::array<std::uint64_t, 128>
        taken_unused_ KMM_GUARDED_BY(in_engine){};  // numbers, and one, of streams that lost theirs last
    std::size_t num_taken_unused_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t
        binds_since_device_event_ KMM_GUARDED_BY(in_engine) = 0;  // of streams that found no arena they could take over
    std::size_t forget_above_ KMM_GUARDED_BY(in_engine) = 0;      // timelines without an arena
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
