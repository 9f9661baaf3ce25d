// The blocks of a pool in which all have one size (block_stock.hpp), each in the stock of the stream that freed it.
//
// A stream takes from its own stock first, then from what is free in the heap, then what has passed of another stream's
// stock, the blocks that were freed there longest ago; at last one block, for which it waits: rather one behind an
// event, if one of the few stocks that are looked at has some, than one for which an event must be recorded. Where the
// heap had nothing for the last request that asked it, as a rule once a pool is warm, a stream first looks into a few
// other stocks without the engine's lock: streams that take from each other often would wait for it.
//
// Owns: the blocks' records, and which arenas have a stock. Must not know: the driver, upstream, how streams find their
// arenas. Under the engine's lock, where nothing else is said.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "rmm/pool/arena.hpp"
#include "rmm/pool/pool_heap.hpp"
#include "rmm/pool/stock_signs.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Result of a scan of other streams' stocks that found no reusable block. `not_known`: it was incomplete; `recorded`:
/// a block is behind an event, which was queried or is not to be now; `nothing`: no event covers any.
enum class others_have : std::uint8_t { not_known, recorded, nothing };

class stock_pool {
  public:
    stock_pool(const pool_facts& facts, timelines& streams, pool_heap& heap, arena& common, stock_signs& signs);
    // ---- any thread, without the engine's lock

    /// Null if neither the stream's stock nor a few others have a block, or the arena was rebound to another stream.
    /// `ask(fences)` asks the driver about events, and says whether any has passed. `*known`: result of the scan of the
    /// others.
    template<typename Ask>
    stocked_block* take(arena& a, cudaStream_t asks, others_have* known, Ask&& ask) noexcept {
        stock_signs::place start;
        for (bool has_asked = false;; has_asked = true) {
            scan seen;
            {
                const kmm::locks::Guard in(a.mutex);
                if (a.handle.load(std::memory_order_relaxed) != asks) return nullptr;
                bool is_found = !a.stock.empty();
                if (!is_found) {
                    if (!heap_.is_dry()) return nullptr;
                    if (has_asked)
                        a.looks_behind = start;  // the second look sees what the driver was asked about
                    else
                        start = a.looks_behind;
                    is_found = take_from_others(a, &seen);
                }
                if (is_found) {
                    stocked_block& block = *a.stock.take_back();
                    a.note_out(block, asks, rmm::detail::current_tag());
                    return &block;
                }
                *known = !seen.is_complete      ? others_have::not_known
                         : seen.num_waiting > 0 ? others_have::recorded
                                                : others_have::nothing;
                const bool may_ask = !has_asked && seen.num_waiting > 0;
                if (!may_ask || a.num_not_to_ask > 0) {
                    if (may_ask) --a.num_not_to_ask;
                    return nullptr;
                }
            }
            const bool has_learnt = ask(std::span<const heap::fence>(seen.waiting).first(seen.num_waiting));
            note_answer(a, has_learnt);
            if (!has_learnt) return nullptr;
        }
    }
    /// A block that was in use, freed on the arena's stream at the position.
    void take_in(arena& a, stocked_block& block, std::uint64_t position) noexcept KMM_REQUIRES(a.mutex) {
        a.count_out(-1);
        enter(a, block, position);
    }
    /// The records, which any thread may look up.
    stocked_blocks& blocks() noexcept { return blocks_; }

    // ---- under it

    /// A block that the stream may use without a wait: of its own stock, refilled from the heap.
    piece find_ready(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    /// What other streams used last; rather behind an event than not. O(1), or O(stocks) for a block with any last use;
    /// and O(stocks that have become empty), each once.
    piece find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) KMM_REQUIRES(in_engine);
    /// Puts a stock before the others whose oldest block has passed; or, of a few, one that is behind an event. Whether
    /// that block has passed; `*behind`: the fence of the other. O(1), and O(stocks that have become empty), each once.
    bool put_best_first(const arena& a, heap::fence* behind) KMM_REQUIRES(in_engine);
    /// A passed block of the stock that was put first; empty if another thread was faster.
    piece take_passed(arena& a) KMM_REQUIRES(in_engine) { return take_over(a, {}, last_use::passed, 1, false); }
    void* hand_out(piece&& taken, cuda_stream_view stream) noexcept KMM_REQUIRES(in_engine);
    void put_back(piece taken) noexcept KMM_REQUIRES(in_engine);
    /// Notes which arenas have got a stock; `all`: gives what is in stocks to the heap, where blocks that touch become
    /// one, and says how much that is.
    std::size_t collect(bool all) KMM_REQUIRES(in_engine);

  private:
    /// Result of a scan of other streams' stocks: the fences of the oldest blocks that may be behind an event;
    /// `is_complete`: all stocks were scanned.
    struct scan {
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
    /// Of a free block: known to have passed; that, or behind a recorded event; any.
    enum class last_use : std::uint8_t { passed, fenced, any };

    /// A free block, which the arena's stream may use without a wait.
    void enter(arena& a, stocked_block& block, std::uint64_t position) noexcept KMM_REQUIRES(a.mutex) {
        block.position = position;
        block.term = a.term;
        a.last_freed = std::max(a.last_freed, position);
        a.stock.push_back(block);
        if (!a.is_listed) changed_.note(a);
    }
    bool take_from_others(arena& a, scan* seen) noexcept KMM_REQUIRES(a.mutex);
    void note_answer(arena& a, bool has_learnt) noexcept;
    block_stock split_passed(arena& other, std::size_t most) noexcept KMM_REQUIRES(other.mutex);
    bool has_passed(const arena& of, const stocked_block& block) const noexcept KMM_REQUIRES(of.mutex);
    bool refill(std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    piece take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted, std::size_t num_to_ask,
                    bool waits) KMM_REQUIRES(in_engine);
    piece take_oldest(arena& other, arena& a, last_use wanted) KMM_REQUIRES(in_engine, other.mutex);
    void give(const arena& a, const stocked_block& block, heap::fence_set others = {}) noexcept
        KMM_REQUIRES(in_engine, a.mutex);

    const pool_facts& facts_;
    timelines& timelines_;
    pool_heap& heap_;
    arena& common_;
    stock_signs& signs_;
    stocked_blocks blocks_;
    alignas(64) changed_arenas changed_;  // requests and frees read what is above without a lock
    chain<arena, &arena::as_holder> holders_ KMM_GUARDED_BY(in_engine);  // of a stock, when they were last looked at
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
