// Implements span_pool.hpp.
#include "rmm/pool/span_pool.hpp"

#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rmm/aligned.hpp"
#include "rmm/status.hpp"
#include "rmm/tags.hpp"

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

/// Whether the request goes to the common arena.
bool span_pool::should_share(arena& a) noexcept {
    if (a.own_number() == heap::heap::no_timeline || chain<arena, &arena::as_holder>::contains(a)) return false;
    if (holders_.size() < policy_->most_span_holders()) return false;
    ++num_shared_;
    if (a.num_shared == 0) a.shared_since = num_shared_;
    if (++a.num_shared < requests_of_busy_stream) return true;
    a.num_shared = 0;
    return num_shared_ - a.shared_since > most_holders * requests_of_busy_stream;
}

arena& span_pool::choose(arena& a) noexcept {
    a.shares = should_share(a);
    if (num_refused_ > 0) --num_refused_;
    return spans_of(a);
}

piece span_pool::find_ready(std::size_t size, arena& a) {
    const std::uint64_t own = a.own_number();
    if (size <= small_limit() && own != heap::heap::no_timeline) {
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

piece span_pool::find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided, bool all_spans) {
    if (piece away = take_away_block(size, a, avoided)) return away;
    const auto from_heap = [&](bool all) KMM_REQUIRES(in_engine) -> piece {
        const std::size_t collected = collect(all);
        if (all) policy_->note_collected(collected);
        return heap_.take(size, a.own_number(), avoided);
    };
    if (piece merged = from_heap(false)) return merged;
    const bool is_small = size <= small_limit();
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
piece span_pool::take_away_block(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) {
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

void span_pool::put_back(piece taken) noexcept {
    try {
        arena& a = *taken.from;
        const kmm::locks::Guard in(a.mutex);
        taken.fences.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
        if (!taken.was_away || taken.fences.empty()) {
            a.heap.free(taken.address, taken.position);
            return;
        }
        a.away.push_back({0, std::move(taken.fences)});
        std::size_t size = 0;
        a.away.back().block = a.heap.detach(taken.address, &size);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

bool span_pool::add_span(std::size_t size, arena& a) {
    constexpr std::size_t granule = span_directory::granule;
    const std::uint8_t area = facts_.span_area();
    const std::size_t least = align_up(std::max(size, granule), granule);
    for (std::size_t wanted = policy_->span_for(size, a); wanted >= least;
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

void span_pool::install_span(std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences, arena& a) {
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

std::size_t span_pool::send_away(arena& owner, std::uintptr_t address, heap::fence_set fences) {
    std::size_t size = 0;
    const kmm::locks::Guard in(owner.mutex);
    // An arena without a stream may be on its way to another one, which would wait for nothing.
    const bool is_own = fences.size() == 1 && &owner != &common_ &&
                        owner.handle.load(std::memory_order_relaxed) != arena::no_stream() &&
                        fences.begin()->timeline == owner.number.load(std::memory_order_relaxed);
    if (fences.empty() || is_own) {
        const std::uint64_t position = fences.empty() ? 0 : fences.begin()->position;
        size = owner.heap.free(address, position);
        if (size != 0) owner.last_freed = std::max(owner.last_freed, position);
        if (owner.heap.num_unused_spans() > 0) changed_.note(owner);
        return size;
    }
    owner.away.push_back({0, std::move(fences)});
    away_block& away = owner.away.back();
    away.block = owner.heap.detach(address, &size);
    if (size == 0) {
        owner.away.pop_back();
        return 0;
    }
    if (away.fences.size() > 1) owner.drained_at = arena::never;  // some may have passed
    if (&owner == &common_) uncovered_.note_shared(away.fences);
    changed_.note(owner);
    return size;
}

/// Takes back the blocks away whose fences have passed. Under both locks. O(1) if no fence has passed since the last
/// time, else O(blocks away).
void span_pool::drain(arena& a) {
    if (a.away.empty() || a.drained_at == timelines_.num_passes()) return;
    a.drained_at = timelines_.num_passes();
    const std::uint64_t own = a.number.load(std::memory_order_relaxed);
    std::size_t kept = 0;
    timelines_.count_steps(a.away.size());
    for (std::size_t i = 0; i < a.away.size(); ++i) {
        away_block& block = a.away[i];
        block.fences.prune([&](const heap::fence& f) { return timelines_.has_passed(f); });
        const bool ready = block.fences.empty() ||
                           (&a != &common_ && block.fences.size() == 1 && block.fences.begin()->timeline == own);
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

std::size_t span_pool::collect(bool all) {
    changed_.take_all([this](arena& a) KMM_REQUIRES(in_engine) { collect_from(a, false); });
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

void span_pool::collect_from(arena& a, bool all) {
    timelines_.count_steps();
    const kmm::locks::Guard in(a.mutex);
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
void span_pool::collect_granules(arena& a, FenceAt&& fence_at) {
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
