// Maps streams to arenas.
//
// Each stream that calls a pool gets an arena. When the stream has ended, or was not seen for long while there are
// many, the arena is an orphan, and goes to a new stream once the work of the last one has passed. Owns: the arenas.
// Must not know: addresses, upstream. It takes the engine's lock or is handed it; functions that any thread may call
// without the lock say so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/pool/pool_fences.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class arena_table {
  public:
    using lock = engine_lock;

    /// `signs`: gets one of each arena that may have a stock. Throws std::bad_alloc.
    arena_table(pool_facts& facts, engine_mutex& mutex, timelines& streams, pool_heap& heap, pool_fences& fences,
                stock_signs& signs);
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
    /// Calls f(arena, home) under the lock of the arena that works for the stream, whose timeline `home` is. Where the
    /// host has no memory for an arena, that of streams that cannot be told from others.
    template<typename F>
    void with_home(cuda_stream_view stream, F&& f) {
        const cudaStream_t handle = normalized(stream);
        for (arena* a = at_hand(handle, nullptr);; a = nullptr) {
            if (a == nullptr) a = &of_free(stream);
            const bool is_unknown = a->kind.load(std::memory_order_relaxed) == rmm::detail::stream_kind::unknown;
            if (is_unknown) wait_if_of_other_device(stream);
            // The timeline stays while the arena calls it its own.
            const kmm::locks::Guard in(a->mutex);
            const cudaStream_t works_for = a->handle.load(std::memory_order_relaxed);
            timeline& home = *a->home.load(std::memory_order_relaxed);
            if ((works_for == handle && !home.has_ended()) ||
                a->kind.load(std::memory_order_relaxed) == rmm::detail::stream_kind::unknown)
                return f(*a, home);
        }
    }
    /// Where the stream is now, in the words of its timeline; counts a free of `bytes`. `*recorder`: its arena.
    heap::fence fence_now(cuda_stream_view stream, std::size_t bytes, arena** recorder);
    /// After a free on the arena's stream: records an event if one is due.
    void record_if_due(arena& a, cuda_stream_view stream) {
        if (fences_.should_record(a)) record(a, stream);
    }
    /// Its free memory is ready for every stream.
    arena& common() noexcept { return *common_; }

    // ---- under the lock

    /// For a call that relies on its being its stream's, of an arena that was so just now.
    std::optional<arena_call> call_on(const lock& held, arena& a, cudaStream_t handle) noexcept KMM_REQUIRES(in_engine);
    auto begin() const noexcept KMM_REQUIRES(in_engine) { return arenas_.begin(); }
    auto end() const noexcept KMM_REQUIRES(in_engine) { return arenas_.end(); }

  private:
    arena& add() KMM_REQUIRES(in_engine);
    /// Lets the lock go for the driver. O(1): looks at a few arenas whose streams may be gone.
    arena& bind(lock& held, const rmm::detail::stream_identity& who, cudaStream_t handle) KMM_REQUIRES(in_engine);
    arena& of_free(cuda_stream_view stream);
    void record(arena& a, cuda_stream_view stream);
    void wait_if_of_other_device(cuda_stream_view stream) noexcept;
    void cover_by_device(lock& held) KMM_REQUIRES(in_engine);
    arena* take_clean_orphan(lock& held) KMM_REQUIRES(in_engine);
    bool is_clean(arena& a, std::uint64_t* last_freed) noexcept;
    void orphan(arena& a) noexcept KMM_REQUIRES(in_engine);
    void orphan_unused() noexcept KMM_REQUIRES(in_engine);
    void forget_what_left(lock& held) KMM_REQUIRES(in_engine);

    pool_facts& facts_;
    engine_mutex& mutex_;
    timelines& timelines_;
    pool_heap& heap_;
    pool_fences& fences_;
    stock_signs& signs_;
    const std::uint64_t uid_;  // no pool of the process has had it before
    std::vector<std::unique_ptr<arena>> arenas_ KMM_GUARDED_BY(in_engine);
    arena* common_ = nullptr;
    arena* unknown_ = nullptr;                                          // of streams that cannot be told from others
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
