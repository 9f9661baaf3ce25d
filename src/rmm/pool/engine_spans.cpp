// Implements the part of engine.hpp that searches memory: the spans of arenas, their free and away blocks, and the heap
// behind.
//
// A stream's small requests get spans of their own, while few streams have spans. Further streams share the common
// arena, where a freed block is away for every stream until the free has passed. A stream with enough requests gets
// spans of its own. Entirely free spans leave their arena at the next collection; where memory is short, so do all
// granules without a block in use.
#include <algorithm>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/pool/growth.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Requests for shared memory after which a stream gets a span of its own, unless all streams together made more than
// most_holders times as many meanwhile.
constexpr std::uint32_t requests_of_busy_stream = 64;

// Arenas with blocks away that are examined in one search; the next search continues behind them.
constexpr std::size_t most_waiting_asked = 64;

}  // namespace

/// Whether the request goes to the common arena. Called once for each request, which it counts.
bool pool_engine::should_share(arena& a) noexcept {
    if (a.own_number() == heap::heap::no_timeline || chain<arena, &arena::as_holder>::contains(a)) return false;
    if (holders_.size() < growth_->most_span_holders()) return false;
    ++num_shared_;
    if (a.num_shared == 0) a.shared_since = num_shared_;
    if (++a.num_shared < requests_of_busy_stream) return true;
    a.num_shared = 0;
    return num_shared_ - a.shared_since > most_holders * requests_of_busy_stream;
}

/// A block that the stream may use without a wait.
piece pool_engine::find_ready(std::size_t size, arena& a) {
    const std::uint64_t own = a.own_number();
    if (facts_.has_stocks)
        if (piece stocked = find_stocked(size, a)) return stocked;
    if (!facts_.has_stocks && size <= small_limit_.load(std::memory_order_relaxed) && own != heap::heap::no_timeline) {
        arena& spans = spans_of(a);
        for (bool more = true; more; more = add_span(size, spans)) {
            const kmm::locks::Guard in(spans.mutex);
            drain(spans);
            if (const heap::span_heap::taken t = spans.try_allocate(size, rmm::detail::current_tag()))
                return {t.address, t.size_bytes, {}, &spans, t.position, false};
        }
    }
    return heap_.take_ready(size, own);
}

/// What other streams used last: blocks of the arena that are away, whatever the heap can put together, blocks of other
/// arenas, whole spans of which something is away. O(blocks away + arenas with spans), or what
/// merging needs.
piece pool_engine::find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided, bool all_spans) {
    if (facts_.has_stocks) {
        if (piece fenced = take_over(a, avoided, last_use::fenced)) return fenced;
        if (heap_[0].free_bytes() >= size)
            if (piece waited_for = heap_.take(size, a.own_number(), avoided)) return waited_for;
        return take_over(a, avoided, last_use::any);
    }
    if (piece away = take_away_block(size, a, avoided)) return away;
    const auto from_heap = [&](bool all) KMM_REQUIRES(in_engine) -> piece {
        const std::size_t collected = collect_spans(all);
        if (all) growth_->note_collected(collected);
        return heap_.take(size, a.own_number(), avoided);
    };
    if (piece merged = from_heap(false)) return merged;
    const bool is_small = size <= small_limit_.load(std::memory_order_relaxed);
    for (arena* other = holders_.front(); other != nullptr; other = holders_.behind(*other)) {
        if (other == &a && is_small) continue;  // it has been looked into
        if (std::find(avoided.begin(), avoided.end(), other->number) == avoided.end()) {
            const kmm::locks::Guard in(other->mutex);
            if (const heap::span_heap::taken t = other->try_allocate(size, rmm::detail::current_tag())) {
                piece found{t.address, t.size_bytes, {}, other, t.position, false};
                const heap::fence last_use{other->number, t.position};
                if (t.position != 0 && !timelines_.has_passed(last_use)) found.fences.add(last_use);
                return found;
            }
        }
        if (piece away = take_away_block(size, *other, avoided)) return away;
    }
    return all_spans ? from_heap(true) : piece{};
}

/// The beginning of the smallest block of the arena that fits and is away.
piece pool_engine::take_away_block(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) {
    const kmm::locks::Guard in(a.mutex);
    std::size_t best = a.away.size();
    std::size_t best_size = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i < a.away.size(); ++i) {
        const std::size_t s = a.heap.size_of(a.away[i].block);
        if (s >= size && s < best_size && !a.away[i].fences.has_any_of(avoided)) {
            best = i;
            best_size = s;
        }
    }
    if (best == a.away.size()) return {};
    heap::fence_set fences = a.away[best].fences;
    a.reserve_away(1);
    if (best_size > size) {
        a.away.push_back({0, fences});
        try {
            a.away.back().block = a.heap.split_detached(a.away[best].block, size);
        } catch (...) {
            a.away.pop_back();
            throw;
        }
    }
    const heap::span_heap::taken t = a.heap.take_detached(a.away[best].block, rmm::detail::current_tag());
    if (best + 1 != a.away.size()) a.away[best] = std::move(a.away.back());
    a.away.pop_back();
    return {t.address, t.size_bytes, std::move(fences), &a, t.position, true};
}

/// Takes a span out of the heap that holds at least `size` and is ready for the arena's stream; false if there is none.
bool pool_engine::add_span(std::size_t size, arena& a) {
    constexpr std::size_t granule = span_directory::granule;
    const std::uint8_t area = facts_.span_area();
    const std::size_t least = align_up(std::max(size, granule), granule);
    for (std::size_t wanted = growth_->span_for(size, a); wanted >= least;
         wanted = wanted == least ? 0 : std::max(least, align_down(wanted / 2, granule))) {
        heap::block b;
        // Virtual memory is aligned to the granule for the most part.
        if (facts_.traits.is_virtual) {
            b = heap_[area].try_allocate_ready(wanted, a.own_number());
            if (b && b.address % granule != 0) {
                heap_.give(area, b.address, b.size_bytes, b.fences);
                b = {};
            }
        }
        // So much more that a multiple of the granule begins in it.
        if (!b) b = heap_[area].try_allocate_ready(wanted + granule - pool_facts::unit, a.own_number());
        if (!b) continue;
        const std::uintptr_t begin = align_up(b.address, granule);
        const std::uintptr_t end = b.address + b.size_bytes;
        const bool fits = span_directory::can_hold(begin, wanted) &&
                          (facts_.options.block_bytes == 0 || (begin - b.address) % facts_.options.block_bytes == 0);
        if (!fits) {
            heap_.give(area, b.address, b.size_bytes, b.fences);
            return false;
        }
        try {
            heap_[area].expect_frees(std::size_t{begin > b.address} + std::size_t{begin + wanted < end});
        } catch (...) {
            heap_.give(area, b.address, b.size_bytes, b.fences);
            throw;
        }
        if (begin > b.address) heap_.give(area, b.address, begin - b.address, b.fences);
        if (begin + wanted < end) heap_.give(area, begin + wanted, end - begin - wanted, b.fences);
        install_span(begin, wanted, b.fences, a);
        return true;
    }
    return false;
}

/// Makes memory that was taken from the heap a span of the arena; gives it back if the host has no memory for that.
void pool_engine::install_span(std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences, arena& a) {
    try {
        directory_.prepare(address, bytes);
        const kmm::locks::Guard in(a.mutex);
        std::uint64_t position = 0;
        for (const heap::fence& f : fences) position = f.position;
        // Until its end, the directory says so and a free looks there.
        directory_.set(address, bytes, &a);
        try {
            const std::size_t num_spans = a.heap.num_spans();
            a.heap.add_span(address, bytes, position, facts_.traits.is_virtual);
            heap_[facts_.span_area()].expect_fewer_frees(num_spans + 1 - a.heap.num_spans());  // one for each span
            // What the stream left here before counts as freed by it.
            a.last_freed = std::max(a.last_freed, position);
            holders_.push_back(a);
        } catch (...) {
            directory_.set(address, bytes, nullptr);
            throw;
        }
    } catch (...) {
        heap_.give(facts_.span_area(), address, bytes, fences);
        throw;
    }
    update_small_limit();
}

/// Takes back the blocks away whose fences have passed. Under both locks. O(1) if no fence has passed since the last
/// time, else O(blocks away).
void pool_engine::drain(arena& a) {
    if (a.away.empty() || a.drained_at == timelines_.num_passes()) return;
    a.drained_at = timelines_.num_passes();
    const std::uint64_t own = a.number.load(std::memory_order_relaxed);
    std::size_t kept = 0;
    num_steps_ += a.away.size();
    for (std::size_t i = 0; i < a.away.size(); ++i) {
        away_block& block = a.away[i];
        block.fences.prune([&](const heap::fence& f) { return timelines_.has_passed(f); });
        const bool ready = block.fences.empty() ||
                           (&a != common_ && block.fences.size() == 1 && block.fences.begin()->timeline == own);
        if (ready) {
            const std::uint64_t position = block.fences.empty() ? 0 : block.fences.begin()->position;
            a.last_freed = std::max(a.last_freed, position);
            a.heap.free_detached(block.block, position);
        } else {
            if (kept != i) a.away[kept] = std::move(block);
            ++kept;
        }
    }
    a.away.resize(kept);
}

/// In a free: the arena may have something to give back. Any thread.
void pool_engine::note_change(arena& a) noexcept {
    if (a.is_changed.load(std::memory_order_relaxed) || a.is_changed.exchange(true, std::memory_order_acq_rel)) return;
    arena* first = changed_.load(std::memory_order_relaxed);
    do a.next_changed = first;
    while (!changed_.compare_exchange_weak(first, &a, std::memory_order_release, std::memory_order_relaxed));
}

/// Gives every span in which nothing is in use back to the heap, so that it merges; `all`: of every arena all granules
/// in which nothing is in use, with blocks that are away. O(arenas in which something has changed), or with `all`
/// O(arenas with spans + free pieces of a granule and more + blocks away), and says how much that is.
std::size_t pool_engine::collect_spans(bool all) {
    for (arena* a = changed_.exchange(nullptr, std::memory_order_acquire); a != nullptr;) {
        arena* const next = a->next_changed;
        a->is_changed.store(false, std::memory_order_release);
        collect_from(*a, false);
        a = next;
    }
    if (collected_at_ != timelines_.num_passes()) {
        if (waiting_.size() <= most_waiting_asked) collected_at_ = timelines_.num_passes();
        for (std::size_t n = std::min(waiting_.size(), most_waiting_asked); n > 0; --n)
            collect_from(*waiting_.take_front(), false);
    }
    if (!all) return 0;
    const std::size_t free_before = heap_.free_bytes();
    for (arena* a = holders_.front(); a != nullptr;) {
        arena* const next = holders_.behind(*a);
        collect_from(*a, true);
        a = next;
    }
    return heap_.free_bytes() - free_before;
}

void pool_engine::collect_from(arena& a, bool all) {
    ++num_steps_;
    if (facts_.has_stocks && !all) {
        // A search that looks into its stock finds out whether it is empty.
        a.is_listed = true;
        return holders_.push_back(a);
    }
    const kmm::locks::Guard in(a.mutex);
    if (facts_.has_stocks) {
        collect_stock(a);
        a.is_listed = false;
    }
    drain(a);
    const auto fence_at = [&](std::uint64_t position) {
        const heap::fence last_use{a.number, position};
        return position == 0 || timelines_.has_passed(last_use) ? heap::fence_set{} : heap::fence_set{last_use};
    };
    if (all) {
        collect_granules(a, fence_at);
    } else if (a.heap.num_unused_spans() > 0) {
        std::size_t next = 0;
        while (const heap::span_heap::span s = a.heap.remove_empty_span(&next)) {
            directory_.set(s.address, s.size_bytes, nullptr);
            heap_.give_or_lose(facts_.span_area(), s.address, s.size_bytes, fence_at(s.position));
        }
    }
    if (a.heap.num_spans() == 0 && chain<arena, &arena::as_holder>::contains(a)) {
        holders_.erase(a);
        update_small_limit();
    }
    waiting_.erase(a);
    if (!a.away.empty()) waiting_.push_back(a);
}

/// Whole granules in which nothing is in use, with the fences of what is away in them. What the host has no memory for
/// stays where it is.
template<typename FenceAt>
void pool_engine::collect_granules(arena& a, FenceAt&& fence_at) {
    heap::heap& h = heap_[facts_.span_area()];
    std::size_t num_expected = 0;  // frees of parts of the row that is looked at
    try {
        std::unordered_map<heap::span_heap::detached, std::size_t> away_at;
        std::vector<heap::span_heap::detached> away;
        for (std::size_t i = 0; i < a.away.size(); ++i) {
            away_at[a.away[i].block] = i;
            away.push_back(a.away[i].block);
        }
        std::vector<heap::block> parts;
        std::vector<std::size_t> gone;
        const auto note = [&](std::uintptr_t address, std::size_t size, std::uint64_t position,
                              heap::span_heap::detached block) {
            a.expect_held();
            // With the first part of a row one more: the span may fall into two.
            const std::size_t more = parts.empty() ? 2 : 1;
            h.expect_frees(more);
            num_expected += more;
            if (block == heap::span_heap::whole) {
                parts.push_back({address, size, fence_at(position)});
            } else {
                gone.push_back(away_at.at(block));
                parts.push_back({address, size, a.away[gone.back()].fences});
            }
        };
        std::size_t num_spans = a.heap.num_spans();
        const auto take = [&](std::uintptr_t address, std::size_t size) {
            expect_in_engine();
            a.expect_held();
            directory_.set(address, size, nullptr);
            for (heap::block& part : parts)
                heap_.give_or_lose(facts_.span_area(), part.address, part.size_bytes, std::move(part.fences));
            h.expect_fewer_frees(1 + num_spans - a.heap.num_spans());
            num_spans = a.heap.num_spans();
            num_expected = 0;
            parts.clear();
            // From the end, so that the indices before stay; what moves is looked up anew.
            std::sort(gone.begin(), gone.end(), std::greater<>());
            for (std::size_t i : gone) {
                away_at.erase(a.away[i].block);
                if (i + 1 != a.away.size()) {
                    a.away[i] = std::move(a.away.back());
                    away_at.at(a.away[i].block) = i;
                }
                a.away.pop_back();
            }
            gone.clear();
        };
        a.heap.remove_granules(span_directory::granule, std::move(away), note, take);
    } catch (const std::bad_alloc&) {
        h.expect_fewer_frees(num_expected);
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
