// The memory that a pool keeps at hand for one stream.
//
// An arena holds spans. Free blocks in them may be used on the arena's stream without a wait. A block that was freed
// on another stream is *away*: it comes back when that stream has passed the point of the free. When its stream has
// ended, an arena is given to another one. The common arena of each pool belongs to no stream: free blocks in it are
// ready for every stream.
//
// Owns: the spans' state. Must not know: upstream, the driver. Any thread, under `mutex`, which is taken after the
// engine's lock, and of a second arena only if it is free; only what is atomic is read without.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "rmm/heap/heap.hpp"
#include "rmm/heap/span_heap.hpp"
#include "rmm/pool/chain.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/pool/stock_signs.hpp"
#include "rmm/pool/timeline.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct away_block {
    heap::span_heap::detached block = 0;
    heap::fence_set fences;
};

struct ended_recording {
    timeline* on = nullptr;  // held until the end is noted
    recording what;
    bool is_recorded = false;
};

struct alignas(64) arena {
    /// Of an arena without a stream; no handle has this value.
    static cudaStream_t no_stream() noexcept { return reinterpret_cast<cudaStream_t>(~std::uintptr_t{0}); }
    /// Names the arena that many streams share; no handle either.
    static cudaStream_t shared_streams() noexcept { return reinterpret_cast<cudaStream_t>(~std::uintptr_t{1}); }
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    kmm::locks::ShortLock mutex;
    // The arena's stream; changed under the engine's lock and `mutex`.
    std::atomic<cudaStream_t> handle{no_stream()};
    std::atomic<std::uint64_t> number{0};  // of the stream's identity
    std::atomic<rmm::detail::stream_kind> kind{rmm::detail::stream_kind::foreign};
    std::atomic<timeline*> home{nullptr};

    // `timelines::num_passes` when the blocks away were last compared; `never`: one came since whose fences may have
    // passed.
    std::uint64_t drained_at KMM_GUARDED_BY(mutex) = never;
    std::uint64_t
        last_freed KMM_GUARDED_BY(mutex) = 0;  // the latest epoch in which the home stream freed something here

    // Frees on the home stream, of blocks of whichever arena, since an event was recorded on it. Approximate: threads
    // that share the stream may lose counts.
    std::atomic<std::uint32_t> num_unrecorded{0};
    std::atomic<std::size_t> unrecorded_bytes{0};
    std::atomic<std::uint32_t> num_recordings{0};
    std::atomic<std::uint32_t> num_put_off{0};  // recordings, since the last
    // Factor by which events of the stream are spaced out. Under the engine's lock: events since the spacing changed or
    // a search failed; and the number of failed searches at the last event.
    std::atomic<std::uint32_t> event_spacing{1};
    std::uint32_t num_unneeded = 0;
    std::uint64_t searches_seen = 0;

    // `is_used`: the stream was seen since the last check for unused arenas. `num_callers`: calls in progress that need
    // the arena to keep its stream.
    std::atomic<bool> is_used{true};
    std::atomic<std::uint32_t> num_callers{0};
    // In the list of `changed_arenas`: a span has become free, or a block was freed that is away.
    std::atomic<bool> is_changed{false};
    arena* next_changed = nullptr;

    // Of a pool of blocks of one size, instead of spans.
    shown_stock stock KMM_GUARDED_BY(mutex);
    // Blocks handed out here less those freed here; the sum over all arenas is in use. Changed under `mutex`.
    std::atomic<std::ptrdiff_t> num_out{0};
    std::uint32_t term KMM_GUARDED_BY(mutex) = 0;  // counts the streams that the arena has had
    // In the list of arenas that had a stock when they were last noted or looked at.
    std::atomic<bool> is_listed{false};

    // Under the engine's lock. Of virtual memory: the arena's window of addresses, and the preferred address of its
    // next fresh granules. Set by the thread that grows the pool.
    std::uintptr_t window KMM_GUARDED_BY(in_engine) = 0;
    std::uintptr_t grows_at KMM_GUARDED_BY(in_engine) = 0;
    chain_link<arena> as_holder;  // of spans
    // Read without the lock, too: a failed search of an arena costs as much as a successful one.
    std::atomic<bool> shares{false};                         // the stream's small requests go to the common arena
    std::uint32_t num_shared KMM_GUARDED_BY(in_engine) = 0;  // such requests
    std::uint64_t shared_since KMM_GUARDED_BY(in_engine) = 0;
    chain_link<arena> as_orphan;
    chain_link<arena> as_waiting;  // for the fences of blocks that are away

    // Most calls access only the members above.
    std::vector<away_block> away KMM_GUARDED_BY(mutex);
    heap::span_heap heap KMM_GUARDED_BY(mutex);

    // Of a pool of blocks of one size, where the stock is empty.
    stock_signs::place looks_behind KMM_GUARDED_BY(mutex);    // where it looked for a stock last
    std::uint32_t num_not_to_ask KMM_GUARDED_BY(mutex) = 0;   // requests left that do not query the driver
    std::uint32_t not_asked_after KMM_GUARDED_BY(mutex) = 0;  // their number, set after an answer without progress
    // A recording whose end is noted by the next holder of the engine's lock: see `next_ended`.
    std::atomic<bool> is_ending{false};
    ended_recording ended;
    arena* next_ended = nullptr;
    std::uint64_t num_steps KMM_GUARDED_BY(mutex) =
        0;  // signs, arenas and blocks that were looked at for it without the engine's lock

    /// Allocates from the spans. Reserves a place in `away` for each block in use, so that no free needs host memory.
    /// Throws std::bad_alloc, with nothing done.
    heap::span_heap::taken try_allocate(std::size_t size_bytes, std::uint16_t tag) KMM_REQUIRES(mutex) {
        reserve_away(1);
        return heap.try_allocate(size_bytes, tag);
    }
    /// As expect_in_engine, of the arena's lock.
    void expect_held() const noexcept KMM_ASSERT_HELD(mutex) {}
    // The spans change under both locks: either is enough to read these, which clang has no word for.
    std::size_t span_bytes() const noexcept KMM_REQUIRES(in_engine) KMM_UNCHECKED_LOCKS { return heap.span_bytes(); }
    std::size_t num_spans() const noexcept KMM_REQUIRES(in_engine) KMM_UNCHECKED_LOCKS { return heap.num_spans(); }
    void reserve_away(std::size_t more) KMM_REQUIRES(mutex) {
        const std::size_t wanted = away.size() + heap.num_live() + more;
        if (wanted > away.capacity()) away.reserve(2 * wanted);
    }

    /// The position of the last free of a block in the stock; 0: ready for every stream.
    std::uint64_t position_of(const stocked_block& block) const noexcept KMM_REQUIRES(mutex) {
        return block.term == term ? block.position : 0;
    }
    void note_out(stocked_block& block, cudaStream_t asks, rmm::detail::tag_number tag) noexcept KMM_REQUIRES(mutex) {
        block.stream.store(asks, std::memory_order_relaxed);
        block.tag.store(tag, std::memory_order_relaxed);
        block.in_use.store(block.address, std::memory_order_release);
        count_out(1);
    }
    void count_out(std::ptrdiff_t more) noexcept KMM_REQUIRES(mutex) {
        num_out.store(num_out.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }

    /// The timeline whose fences the arena's stream need not wait for; none, if the stream cannot be identified.
    std::uint64_t own_number() const noexcept {
        return kind.load(std::memory_order_relaxed) == rmm::detail::stream_kind::unknown
                   ? heap::heap::no_timeline
                   : number.load(std::memory_order_relaxed);
    }
    /// Of the stock; read without the lock.
    std::size_t num_uncovered() const noexcept KMM_UNCHECKED_LOCKS { return stock.num_uncovered(); }
    /// Counts `as_many` frees of `bytes` each.
    void count_free(std::size_t bytes, std::uint32_t as_many = 1) noexcept {
        num_unrecorded.store(num_unrecorded.load(std::memory_order_relaxed) + as_many, std::memory_order_relaxed);
        unrecorded_bytes.store(unrecorded_bytes.load(std::memory_order_relaxed) + as_many * bytes,
                               std::memory_order_relaxed);
    }
};

/// Arenas that may have something to give back. Noted by any thread; taken under the engine's lock.
class changed_arenas {
  public:
    void note(arena& a) noexcept {
        if (a.is_changed.load(std::memory_order_relaxed) || a.is_changed.exchange(true, std::memory_order_acq_rel))
            return;
        arena* first = first_.load(std::memory_order_relaxed);
        do a.next_changed = first;
        while (!first_.compare_exchange_weak(first, &a, std::memory_order_release, std::memory_order_relaxed));
    }
    /// f(arena), of each.
    template<typename F>
    void take_all(F&& f) KMM_REQUIRES(in_engine) {
        for (arena* a = first_.exchange(nullptr, std::memory_order_acquire); a != nullptr;) {
            arena* const next = a->next_changed;
            a->is_changed.store(false, std::memory_order_release);
            f(*a);
            a = next;
        }
    }

  private:
    std::atomic<arena*> first_{nullptr};
};

/// A call during which the arena keeps its stream.
class arena_call {
  public:
    explicit arena_call(arena& a) noexcept : arena_(&a) { a.num_callers.fetch_add(1, std::memory_order_relaxed); }
    arena_call(arena_call&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)) {}
    arena_call& operator=(arena_call&&) = delete;
    ~arena_call() {
        if (arena_ != nullptr) arena_->num_callers.fetch_sub(1, std::memory_order_release);
    }
    arena& operator*() const noexcept { return *arena_; }
    arena* operator->() const noexcept { return arena_; }

  private:
    arena* arena_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
