// The spans of a pool's arenas: memory that streams cut into small blocks of their own.
//
// A stream's small requests get spans of its own, while few streams have spans. Further streams share the common arena,
// where a freed block is away for every stream until the free has passed. A stream with enough requests gets spans of
// its own. Entirely free spans leave their arena at the next collection; where memory is short, so do all granules
// without a block in use.
//
// Owns: which arena has which span, and what may be a small request. Must not know: the driver, upstream, how streams
// find their arenas. Under the engine's lock, where nothing else is said.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rmm/pool/arena.hpp"
#include "rmm/pool/pool_heap.hpp"
#include "rmm/pool/span_directory.hpp"
#include "rmm/pool/uncovered_frees.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// How much memory arenas get: decided by the form of growth (growth.hpp).
class span_policy {
  public:
    /// Bytes of the span for an arena in which nothing holds `size` bytes; 0: none.
    virtual std::size_t span_for(std::size_t size, const arena& a) const noexcept = 0;
    /// Requests up to this look into their stream's arena.
    virtual std::size_t small_limit() const noexcept = 0;
    /// Arenas that may have spans; further streams share the common arena.
    virtual std::size_t most_span_holders() const noexcept = 0;
    /// A request found nothing, and all arenas together gave this many bytes to the heap.
    virtual void note_collected(std::size_t) noexcept {}

  protected:
    ~span_policy() = default;
};

class span_pool {
  public:
    // Limit on arenas with spans. A span is at most such a part of the free memory: more spans would leave little, and
    // streams that allocate rarely would take them from each other.
    static constexpr std::size_t most_holders = 128;
    static constexpr std::size_t fewest_holders = 8;

    span_pool(const pool_facts& facts, timelines& streams, pool_heap& heap, arena& common, uncovered_frees& uncovered)
        : facts_(facts), timelines_(streams), heap_(heap), common_(common), uncovered_(uncovered) {}
    /// Once, before any request.
    void follow(span_policy& policy) noexcept {
        policy_ = &policy;
        update_small_limit();
    }
    /// When memory or an arena with spans has come or gone.
    void update_small_limit() noexcept { small_limit_.store(policy_->small_limit(), std::memory_order_relaxed); }

    // ---- any thread

    /// Requests up to this look into the stream's arena first.
    std::size_t small_limit() const noexcept { return small_limit_.load(std::memory_order_relaxed); }
    /// Where the small requests of the arena's stream go.
    arena& spans_of(arena& a) const noexcept { return a.shares.load(std::memory_order_relaxed) ? common_ : a; }
    /// The arena of the span around an address; null if there is none.
    arena* owner_of(std::uintptr_t address) const noexcept { return directory_.find(address); }
    /// Frees a block on the arena's own stream, which has not ended. The block's size; 0 if it is none in use.
    std::size_t free_at_home(arena& owner, std::uintptr_t address) noexcept KMM_REQUIRES(owner.mutex) {
        timeline& home = *owner.home.load(std::memory_order_relaxed);
        const std::uint64_t epoch = home.epoch_now();
        const std::size_t size = owner.heap.free(address, epoch);
        if (size == 0) return 0;
        home.mark_used(epoch);
        owner.last_freed = epoch;
        owner.count_free(size);
        if (owner.heap.num_unused_spans() > 0) changed_.note(owner);
        return size;
    }
    /// The arena's block comes back when the fences have passed: at once, if the arena's stream need not wait for them.
    /// Its size; 0 if it is none in use.
    std::size_t send_away(arena& owner, std::uintptr_t address, heap::fence_set fences);

    // ---- requests

    /// Where a small request goes. Called once for each, which it counts.
    arena& choose(arena& a) noexcept KMM_REQUIRES(in_engine);
    /// There was no fresh memory for a span: the next `requests_per_refused_span` requests seek none.
    void refuse_fresh_spans() noexcept KMM_REQUIRES(in_engine) { num_refused_ = requests_per_refused_span; }
    bool has_refused_fresh_spans() const noexcept KMM_REQUIRES(in_engine) { return num_refused_ > 0; }
    /// A block that the stream may use without a wait.
    piece find_ready(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    /// What other streams used last: blocks of the arena that are away, whatever the heap can put together, blocks of
    /// other arenas, whole spans of which something is away. O(blocks away + arenas with spans), or what merging needs.
    piece find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided, bool all_spans)
        KMM_REQUIRES(in_engine);
    void put_back(piece taken) noexcept KMM_REQUIRES(in_engine);

    // ---- spans

    /// Takes a span out of the heap that holds at least `size` and is ready for the arena's stream; false if there is
    /// none.
    bool add_span(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    /// Makes memory that was taken from the heap a span of the arena; gives it back if the host has no memory for that.
    void install_span(std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences, arena& a)
        KMM_REQUIRES(in_engine);
    /// Gives every span in which nothing is in use back to the heap, so that it merges; `all`: of every arena all
    /// granules in which nothing is in use, with blocks that are away. O(arenas in which something has changed), or
    /// with `all` O(arenas with spans + free pieces of a granule and more + blocks away), and says how much that is.
    std::size_t collect(bool all) KMM_REQUIRES(in_engine);

    std::size_t num_holders() const noexcept KMM_REQUIRES(in_engine) { return holders_.size(); }
    /// f(arena), of those that have spans, under the arena's lock.
    template<typename F>
    void for_each_holder(F&& f) const KMM_REQUIRES(in_engine) {
        for (arena* a = holders_.front(); a != nullptr; a = holders_.behind(*a)) {
            const kmm::locks::Guard in(a->mutex);
            f(*a);
        }
    }

  private:
    // A search for fresh memory costs as much as many requests.
    static constexpr std::size_t requests_per_refused_span = 256;

    bool should_share(arena& a) noexcept KMM_REQUIRES(in_engine);
    piece take_away_block(std::size_t size, arena& a, std::span<const std::uint64_t> avoided);
    void drain(arena& a) KMM_REQUIRES(in_engine, a.mutex);
    void collect_from(arena& a, bool all) KMM_REQUIRES(in_engine);
    template<typename FenceAt>
    void collect_granules(arena& a, FenceAt&& fence_at) KMM_REQUIRES(in_engine, a.mutex);

    const pool_facts& facts_;
    timelines& timelines_;
    pool_heap& heap_;
    arena& common_;
    uncovered_frees& uncovered_;
    span_policy* policy_ = nullptr;
    span_directory directory_;
    std::atomic<std::size_t> small_limit_{0};
    // Requests and frees read what is above without a lock: what changes has a line of the cache of its own.
    alignas(64) changed_arenas changed_;
    chain<arena, &arena::as_holder> holders_ KMM_GUARDED_BY(in_engine);
    chain<arena, &arena::as_waiting> waiting_ KMM_GUARDED_BY(in_engine);
    std::uint64_t collected_at_ KMM_GUARDED_BY(in_engine) = 0;  // passes with which the arenas that wait were compared
    std::uint64_t num_shared_ KMM_GUARDED_BY(in_engine) = 0;    // requests that count for the common arena
    std::size_t num_refused_ KMM_GUARDED_BY(in_engine) = 0;     // requests before fresh memory is sought again
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
