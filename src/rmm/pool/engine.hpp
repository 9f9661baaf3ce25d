// The engine of every pool: which bytes of a few upstream blocks are free, and what a stream waits for to use them.
//
// Two levels. Each stream has an arena (arena.hpp) for requests that are small against the pool; a request there, and a
// free on the same stream, take the arena's lock alone and call no more of the driver than tells who the stream is. The
// heap (heap.hpp), under the engine's lock, has large blocks and the spans of arenas. Small pools have no spans: all
// comes from the heap. Pools whose blocks have one size keep free blocks in stocks (block_stock.hpp) instead of spans.
//
// Owns: the heap and the arenas over it, the streams' fences; where the memory comes from is a matter of its form of
// growth (growth.hpp). Must not know: the public templates, other pools. Any thread. No lock is held over a call of the
// driver or of upstream. The device of the pool must be current, as for every resource.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rmm/aligned.hpp"
#include "rmm/debug/memory_registration.hpp"
#include "rmm/heap/heap.hpp"
#include "rmm/ledger.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/pool/arena.hpp"
#include "rmm/pool/arena_table.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/pool/engine_values.hpp"
#include "rmm/pool/growth_turn.hpp"
#include "rmm/pool/large_blocks.hpp"
#include "rmm/pool/piece.hpp"
#include "rmm/pool/pool_facts.hpp"
#include "rmm/pool/pool_fences.hpp"
#include "rmm/pool/pool_heap.hpp"
#include "rmm/pool/span_directory.hpp"
#include "rmm/pool/stream_state.hpp"
#include "rmm/pool/timeline.hpp"
#include "rmm/pool/uncovered_frees.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/resource_ref.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct capture_heap;
class captures;
class growth;
class upstream_growth;

class pool_engine final : public rmm::detail::memory_holder {
  public:
    /// Takes the initial bytes from upstream (in one attempt). Arguments have been checked.
    pool_engine(device_async_resource_ref upstream, const pool_options& options);
    /// Of virtual memory: grows by mapping, and maps free memory elsewhere rather than failing because it is in pieces.
    /// The source has no error of its own.
    pool_engine(std::unique_ptr<virtual_source> source, const pool_options& options);
    ~pool_engine();
    pool_engine(const pool_engine&) = delete;
    pool_engine& operator=(const pool_engine&) = delete;

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
    std::size_t held_bytes() const noexcept { return facts_.held_bytes(); }
    const pool_options& options() const noexcept { return facts_.options; }
    /// The tool that watches the pool's memory; mostly null. The engine tells it of upstream's blocks, its caller
    /// of others.
    memory_registration* registration() const noexcept { return registration_.get(); }
    pool_statistics statistics();
    /// Of a pool of virtual memory.
    virtual_source_counts mappings();
    std::size_t trim(std::size_t keep_bytes);
    /// Takes `bytes` more from upstream, or as much as a request needs that waits for it now; for a thread that grows
    /// the pool ahead of its users. At most until `target_bytes` are held. False if nothing was taken: upstream
    /// refused, or it is enough. Not for an upstream whose memory is ordered on a stream.
    bool grow_ahead(std::size_t bytes, std::size_t target_bytes);
    void set_name(std::string name);
    /// Of the streams, arenas, events and pieces that the pool keeps, how many it has looked at so far: what the tests
    /// of its complexity compare.
    std::uint64_t num_steps();
    /// Timelines and arenas: what the pool remembers of streams.
    std::size_t num_remembered();
    /// Whether a thread has the engine's lock or that of an arena just now: what tests ask in each call of the driver.
    bool is_locked() noexcept;
    /// In use under a tag. O(blocks in use).
    std::size_t in_use_bytes(const char* tag);
    /// A free of a large block that leaves more than this unused in the heap trims down to it.
    void set_release_threshold(std::size_t bytes) noexcept { release_above_.store(bytes, std::memory_order_relaxed); }

    // ---- as a holder of memory
    rmm::detail::holder_figures figures() override;
    void add_by_tag(rmm::detail::tag_sums* sums) override;
    bool gave(const void* memory) noexcept override;
    void add_blocks(std::vector<rmm::detail::held_block>* blocks) override;
    std::size_t give_back(std::size_t bytes) noexcept override;

  private:
    pool_engine(const growth_traits& traits, const pool_options& options);

    friend class captures;
    friend class growth;
    friend class upstream_growth;
    friend class virtual_growth;
    using lock = engine_lock;
    using reach = timelines::reach;

    /// Result of a scan of other streams' stocks: the fences of the oldest blocks that may be behind an event;
    /// `is_complete`: all stocks were scanned.
    struct look {
        std::array<heap::fence, 4> waiting;
        std::size_t num_waiting = 0;
        bool is_complete = false;
        /// The oldest ones stay, in order.
        void note(heap::fence use) noexcept {
            for (std::size_t i = 0; i < num_waiting; ++i)
                if (use.position < waiting[i].position) std::swap(use, waiting[i]);
            if (num_waiting < waiting.size()) waiting[num_waiting++] = use;
        }
    };
    /// Result of a scan of other streams' stocks that found no reusable block. `not_known`: it was incomplete;
    /// `recorded`: a block is behind an event, which was queried or is not to be now; `nothing`: no event covers any.
    enum class others_have : std::uint8_t { not_known, recorded, nothing };
    // Limit on arenas with spans. A span is at most such a part of the free memory: more spans would leave little, and
    // streams that allocate rarely would take them from each other.
    static constexpr std::size_t most_holders = 128;
    static constexpr std::size_t fewest_holders = 8;
    static constexpr std::size_t no_threshold = ~std::size_t{0};
    /// Where the small requests of the arena's stream go.
    arena& spans_of(arena& a) noexcept { return a.shares.load(std::memory_order_relaxed) ? *common_ : a; }
    bool should_share(arena& a) noexcept KMM_REQUIRES(in_engine);
    void note_change(arena& a) noexcept;

    // ---- finding memory
    void* allocate_slowly(std::size_t size, cuda_stream_view stream, arena* known, others_have others, refusal* why);
    void tend(lock& held, std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    void* allocate_in_turn(lock& held, std::size_t size, arena& a, cuda_stream_view stream, others_have others,
                           refusal* why) KMM_REQUIRES(in_engine);
    void* try_piece(lock& held, piece taken, const arena& a, cuda_stream_view stream, reach how_far, refusal* why,
                    std::uint64_t* unreachable = nullptr) KMM_REQUIRES(in_engine);
    void* try_fenced(lock& held, std::size_t size, arena& a, cuda_stream_view stream, reach how_far, bool all_spans,
                     refusal* why) KMM_REQUIRES(in_engine);
    piece find_ready(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    piece find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided, bool all_spans)
        KMM_REQUIRES(in_engine);
    piece take_away_block(std::size_t size, arena& a, std::span<const std::uint64_t> avoided);
    bool add_span(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    void install_span(std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences, arena& a)
        KMM_REQUIRES(in_engine);
    void drain(arena& a) KMM_REQUIRES(in_engine, a.mutex);
    std::size_t collect_spans(bool all) KMM_REQUIRES(in_engine);
    void collect_from(arena& a, bool all) KMM_REQUIRES(in_engine);
    template<typename FenceAt>
    void collect_granules(arena& a, FenceAt&& fence_at) KMM_REQUIRES(in_engine, a.mutex);
    void put_back(piece taken) noexcept KMM_REQUIRES(in_engine);
    void* hand_out(piece taken, cuda_stream_view stream) KMM_REQUIRES(in_engine);

    // ---- taking back
    std::size_t free_at_home(arena& owner, std::uintptr_t address) noexcept KMM_REQUIRES(owner.mutex);
    void free_in_arena(arena& owner, std::uintptr_t address, std::size_t bytes, cuda_stream_view stream);
    std::size_t send_away(arena& owner, std::uintptr_t address, heap::fence_set fences);
    void free_behind(arena* owner, std::uintptr_t address, std::size_t bytes,
                     std::span<const cuda_stream_view> streams);
    std::size_t unused_bytes() noexcept KMM_REQUIRES(in_engine);
    void release_surplus();
    void report_size(std::uintptr_t address, std::size_t bytes, std::size_t true_size) const noexcept;

    // ---- blocks of one size (engine_stocks.cpp)
    stocked_block* take_stocked(arena& a, cudaStream_t asks, others_have* known) noexcept;
    bool take_from_others(arena& a, look* seen) noexcept KMM_REQUIRES(a.mutex);
    block_stock split_passed(arena& other, std::size_t most) noexcept KMM_REQUIRES(other.mutex);
    bool has_passed(const arena& of, const stocked_block& block) const noexcept KMM_REQUIRES(of.mutex);
    piece find_stocked(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    bool refill(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    /// Of a free block: known to have passed; that, or behind a recorded event; any.
    enum class last_use : std::uint8_t { passed, fenced, any };
    piece take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted) KMM_REQUIRES(in_engine);
    piece take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted, std::size_t num_to_ask,
                    bool waits) KMM_REQUIRES(in_engine);
    piece take_oldest(arena& other, arena& a, last_use wanted) KMM_REQUIRES(in_engine, other.mutex);
    void enter_stock(arena& a, stocked_block& block, std::uint64_t position) noexcept KMM_REQUIRES(a.mutex);
    bool put_best_stock_first(lock& held, const arena& a, bool may_ask) KMM_REQUIRES(in_engine);
    void drop_passed_fence(lock& held, piece* taken) KMM_REQUIRES(in_engine);
    void* hand_out_stocked(piece taken, cuda_stream_view stream) noexcept KMM_REQUIRES(in_engine);
    void put_back_stocked(piece taken) noexcept KMM_REQUIRES(in_engine);
    void give_stocked(const arena& a, const stocked_block& block, heap::fence_set others = {}) noexcept
        KMM_REQUIRES(in_engine, a.mutex);
    void free_stocked(stocked_block& block, std::uintptr_t address, std::span<const cuda_stream_view> streams);
    void collect_stock(arena& a) noexcept KMM_REQUIRES(in_engine, a.mutex);
    std::size_t num_blocks_out() const noexcept KMM_REQUIRES(in_engine);

    // ---- growing and shrinking: growth.hpp
    std::size_t trim(lock& held, std::size_t keep_bytes) KMM_REQUIRES(in_engine);
    void tell_added(std::uintptr_t address, std::size_t bytes, const cuda_stream_view* behind) const noexcept {
        if (registration_ != nullptr) registration_->add_region(reinterpret_cast<void*>(address), bytes, behind);
    }
    void tell_removed(std::uintptr_t address, std::size_t bytes) const noexcept {
        if (registration_ != nullptr) registration_->remove_region(reinterpret_cast<void*>(address), bytes);
    }
    void update_small_limit() noexcept;

    // ---- when there is no more
    void* allocate_short_of_memory(std::size_t bytes, cuda_stream_view stream, refusal* why);
    std::string name_in_texts() const KMM_REQUIRES(in_engine);  // under the lock
    [[noreturn]] void throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream);
    std::vector<std::pair<cudaStream_t, std::size_t>> in_use_by_stream();

    pool_facts facts_;
    const std::unique_ptr<memory_registration> registration_;
    span_directory directory_;
    stocked_blocks blocks_;  // of a pool with stocks
    stock_signs signs_;
    std::atomic<std::size_t> small_limit_{0};  // requests up to this look into the stream's arena first
    std::atomic<std::size_t> release_above_{no_threshold};

    engine_mutex mutex_;
    std::string name_ KMM_GUARDED_BY(in_engine);  // empty: that of the class
    timelines timelines_;
    pool_heap heap_;
    growth_turn turn_;
    pool_fences fences_;
    arena_table arenas_;
    uncovered_frees uncovered_;
    chain<arena, &arena::as_holder> holders_ KMM_GUARDED_BY(in_engine);
    chain<arena, &arena::as_waiting> waiting_ KMM_GUARDED_BY(in_engine);
    std::atomic<arena*> changed_{nullptr};                      // see note_change
    std::uint64_t collected_at_ KMM_GUARDED_BY(in_engine) = 0;  // passes with which the arenas that wait were compared
    std::uint64_t num_shared_ KMM_GUARDED_BY(in_engine) = 0;    // requests that count for the common arena
    large_blocks large_;
    const std::unique_ptr<captures> captures_;                 // captures.hpp
    arena* const common_;                                      // whose free memory is ready for every stream
    std::size_t trim_above_ KMM_GUARDED_BY(in_engine) = 0;     // with less free, the threshold is not looked at
    std::size_t spans_refused_ KMM_GUARDED_BY(in_engine) = 0;  // requests before a stream without a span may ask again
    std::uint64_t num_steps_ KMM_GUARDED_BY(in_engine) = 0;    // arenas, blocks away and fences that were looked at
    std::unique_ptr<growth> growth_;
    upstream_growth* upstream_growth_ = nullptr;  // the same, of a pool that has an upstream
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
