// Implements the part of engine.hpp that serves pools whose blocks all have one size (block_stock.hpp).
//
// A stream takes from its own stock first, then from what is free in the heap, then what has passed of another stream's
// stock, the blocks that were freed there longest ago; at last one block, for which it waits: rather one behind an
// event, if one of the few stocks that are looked at has some, than one for which an event must be recorded. Where the
// heap had nothing for the last request that asked it, as a rule once a pool is warm, a stream first looks into a few
// other stocks without the engine's lock: streams that take from each other often would wait for it.
#include <algorithm>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Blocks that a stream takes from the heap at once, or its share of half of them: other streams need blocks, too.
constexpr std::size_t most_refilled = 8;
// Signs of other stocks that a request reads; the next search continues behind them.
constexpr std::size_t most_signs_read = 32;
// Stocks that are looked into under the engine's lock.
constexpr std::size_t most_stocks_looked_into = 16;
// Requests of a stream that skip the query of the driver, after the device has lagged behind repeatedly.
constexpr std::uint32_t most_not_asked = 63;
// Blocks taken from another stream's stock at once: both streams wait for it.
constexpr std::size_t most_taken_over = 32;

}  // namespace

/// Puts a free block into the stock, where the arena's stream may use it without a wait. Under the arena's lock.
void pool_engine::enter_stock(arena& a, stocked_block& block, std::uint64_t position) noexcept {
    block.position = position;
    block.term = a.term;
    a.last_freed = std::max(a.last_freed, position);
    a.stock.push_back(block);
    if (!a.is_listed) note_change(a);
}

/// Null if neither the stream's stock nor a few others have a block, or the arena was rebound to another stream. The
/// engine's lock is taken only for queries of events. `*known`: result of the scan of the others.
stocked_block* pool_engine::take_stocked(arena& a, cudaStream_t asks, others_have* known) noexcept {
    stock_signs::place start;
    for (bool has_asked = false;; has_asked = true) {
        look seen;
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
        const bool has_learnt = fences_.ask_about(std::span(seen.waiting).first(seen.num_waiting));
        const kmm::locks::Guard in(a.mutex);
        a.not_asked_after = has_learnt ? 0 : std::min(2 * a.not_asked_after + 1, most_not_asked);
        a.num_not_to_ask = a.not_asked_after;
        if (!has_learnt) return nullptr;
    }
}

/// Under the arena's lock, without the engine's: moves passed blocks of another stock into this one. Skips a stock that
/// another thread keeps locked. `*seen`: result of the scan. O(1).
bool pool_engine::take_from_others(arena& a, look* seen) noexcept {
    const std::uint64_t device_passed = timelines_.device_passed();
    const std::uint64_t device_recorded = timelines_.device_recorded_up_to();
    const std::size_t num_signs = signs_.size();
    seen->is_complete = num_signs <= most_signs_read;
    for (std::size_t n = std::min(num_signs, most_signs_read); n > 0; --n) {
        const stock_sign& sign = *signs_.next(&a.looks_behind);
        ++a.num_steps;
        arena& other = *sign.of.load(std::memory_order_relaxed);
        const std::uint64_t freed = sign.oldest.load(std::memory_order_relaxed);
        if (freed == stock_sign::nothing || &other == &a) continue;
        if (freed > std::max(device_passed, sign.home.passed.load(std::memory_order_acquire))) {
            if (freed <= std::max(device_recorded, sign.home.recorded.load(std::memory_order_relaxed)))
                seen->note({sign.home.number.load(std::memory_order_relaxed), freed});
            continue;
        }
        ++a.num_steps;
        if (!other.mutex.try_lock_briefly()) {
            seen->is_complete = false;
            continue;
        }
        const kmm::locks::Guard in(other.mutex, std::adopt_lock);
        block_stock taken = split_passed(other, most_taken_over);
        if (taken.empty()) continue;
        a.num_steps += taken.size();
        while (stocked_block* const block = taken.take_front()) enter_stock(a, *block, 0);
        return true;
    }
    return false;
}

/// Under the arena's lock: of a block in its stock.
bool pool_engine::has_passed(const arena& of, const stocked_block& block) const noexcept {
    const std::uint64_t position = of.position_of(block);
    return position == 0 || timelines_.has_passed(*of.home.load(std::memory_order_relaxed), position);
}

/// Under the lock of `other`: takes the passed blocks of the older half of its stock; they are ready for every stream.
/// Other blocks stay: once their stream is idle, no event may ever cover them.
block_stock pool_engine::split_passed(arena& other, std::size_t most) noexcept {
    block_stock taken;
    for (std::size_t n = std::min((other.stock.size() + 1) / 2, most); n > 0; --n) {
        if (!has_passed(other, *other.stock.front())) break;
        stocked_block& oldest = *other.stock.take_front();
        oldest.position = 0;
        taken.push_back(oldest);
    }
    return taken;
}

/// A block of the stream's own stock, refilled from the heap, that it may use at once.
piece pool_engine::find_stocked(std::size_t size, arena& a) {
    if (a.own_number() == heap::heap::no_timeline) return {};
    for (bool more = true; more; more = refill(size, a)) {
        const kmm::locks::Guard in(a.mutex);
        if (stocked_block* const block = a.stock.take_back()) {
            piece taken{block->address, size, {}, &a};
            taken.block = block;
            return taken;
        }
    }
    return {};
}

/// Moves blocks from the heap into the arena's stock; false if the heap has none that is ready for its stream.
bool pool_engine::refill(std::size_t size, arena& a) {
    const std::size_t num_free = heap_[0].free_bytes() / size;
    const std::size_t share = num_free / (2 * facts_.num_arenas());
    std::size_t count = num_free == 0 ? 0 : std::clamp<std::size_t>(share, 1, most_refilled);
    for (; count > 0; count /= 2) {
        const heap::block b = heap_[0].try_allocate_ready(count * size, a.own_number());
        if (!b) continue;
        if (blocks_.find(b.address) == nullptr) {
            heap_.give(0, b.address, b.size_bytes, b.fences);
            return false;
        }
        try {
            heap_[0].expect_frees(count - 1);
        } catch (...) {
            heap_.give(0, b.address, b.size_bytes, b.fences);
            throw;
        }
        const std::uint64_t position = b.fences.empty() ? 0 : b.fences.begin()->position;
        const kmm::locks::Guard in(a.mutex);
        for (std::size_t i = count; i-- > 0;) enter_stock(a, *blocks_.find(b.address + i * size), position);
        heap_.note_dry(false);
        return true;
    }
    heap_.note_dry(true);
    return false;
}

/// Takes a block from another stream's stock. O(1), or O(stocks) for a block with any last use; and O(stocks that have
/// become empty), each once.
piece pool_engine::take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted) {
    if (wanted == last_use::any) {
        collect_spans(false);
        if (piece taken = take_over(a, avoided, wanted, holders_.size(), false)) return taken;
        return take_over(a, avoided, wanted, holders_.size(), true);
    }
    // The one that `put_best_stock_first` found.
    return take_over(a, avoided, wanted, 1, false);
}

/// Tries `num_to_ask` stocks; `waits`: also those that another thread has locked. That thread may be preempted, and a
/// wait for it here, under the engine's lock, delays all other threads.
piece pool_engine::take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted, std::size_t num_to_ask,
                             bool waits) {
    for (std::size_t n = holders_.size(); n > 0 && num_to_ask > 0; --n) {
        arena& other = *holders_.take_front();
        ++num_steps_;
        kmm::locks::Lock in(other.mutex, std::defer_lock);
        if (waits)
            in.lock();
        else if (!in.try_lock()) {
            holders_.push_back(other);
            --num_to_ask;
            continue;
        }
        // One that has nothing comes back with its next free.
        other.is_listed = !other.stock.empty();
        if (!other.is_listed) continue;
        holders_.push_back(other);
        if (&other == &a || std::find(avoided.begin(), avoided.end(), other.number) != avoided.end()) continue;
        --num_to_ask;
        if (piece taken = take_oldest(other, a, wanted)) return taken;
    }
    return {};
}

/// Under the lock of `other`: its oldest block, and of those that have passed more for the stock of `a`.
piece pool_engine::take_oldest(arena& other, arena& a, last_use wanted) {
    piece taken;
    stocked_block& oldest = *other.stock.front();
    if (const std::uint64_t position = other.position_of(oldest); !has_passed(other, oldest)) {
        const heap::fence use{other.number, position};
        if (wanted == last_use::passed || (wanted == last_use::fenced && !timelines_.is_recorded(use))) return taken;
        taken.fences.add(use);
        other.stock.take_front();
        oldest.position = 0;  // the piece has the fence
    } else {
        const bool has_stock = a.own_number() != heap::heap::no_timeline;
        taken.more = split_passed(other, has_stock ? most_taken_over : 1);
        num_steps_ += taken.more.size();
        taken.more.erase(oldest);
    }
    taken.address = oldest.address;
    taken.size_bytes = facts_.options.block_bytes;
    taken.from = &a;
    taken.block = &oldest;
    return taken;
}

/// Puts a stock before the others whose oldest block has passed; or, of a few, one that is behind an event, about which
/// the driver is asked if `may_ask`: to ask costs less than a wait. Whether that block has passed. O(1), and O(stocks
/// that have become empty), each once. Lets the lock go.
bool pool_engine::put_best_stock_first(lock& held, const arena& a, bool may_ask) {
    collect_spans(false);
    std::size_t num_to_look_into = most_stocks_looked_into;
    for (std::size_t n = holders_.size(); n > 0 && num_to_look_into > 0; --n) {
        arena& other = *holders_.front();
        heap::fence oldest;
        ++num_steps_;
        if (&other != &a) {
            kmm::locks::Lock in(other.mutex, std::defer_lock);
            if (in.try_lock()) {
                if (other.stock.empty()) {
                    other.is_listed = false;
                    holders_.erase(other);
                    continue;
                }
                if (has_passed(other, *other.stock.front())) return true;
                oldest = {other.number, other.position_of(*other.stock.front())};
            }
        }
        if (oldest.position != 0 && timelines_.is_recorded(oldest))
            return may_ask && fences_.asks_and_passes(held, oldest);
        holders_.push_back(*holders_.take_front());
        --num_to_look_into;
    }
    return false;
}

/// A piece that waits for one stream waits no more, if the driver says that this has passed. Lets the lock go.
void pool_engine::drop_passed_fence(lock& held, piece* taken) {
    if (!*taken || taken->fences.size() != 1) return;
    try {
        if (fences_.asks_and_passes(held, *taken->fences.begin())) taken->fences = {};
    } catch (...) {
        put_back(std::move(*taken));
        throw;
    }
}

void* pool_engine::hand_out_stocked(piece taken, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    arena& a = taken.from != nullptr ? *taken.from : *common_;
    {
        const kmm::locks::Guard in(a.mutex);
        a.note_out(*taken.block, handle, rmm::detail::current_tag());
        // Anybody may use these, unless the arena has gone over to another stream meanwhile.
        if (a.handle.load(std::memory_order_relaxed) == handle)
            while (stocked_block* const block = taken.more.take_front()) enter_stock(a, *block, 0);
    }
    while (stocked_block* const block = taken.more.take_front())
        heap_.give_or_lose(0, block->address, facts_.options.block_bytes, {});
    return reinterpret_cast<void*>(taken.address);
}

void pool_engine::put_back_stocked(piece taken) noexcept {
    arena& a = *taken.from;
    const kmm::locks::Guard in(a.mutex);
    while (stocked_block* const block = taken.more.take_front()) give_stocked(a, *block);
    give_stocked(a, *taken.block, std::move(taken.fences));
}

/// Under the arena's lock: of its stock, or on its way there. Into the heap, behind the arena's stream and `others`.
void pool_engine::give_stocked(const arena& a, const stocked_block& block, heap::fence_set others) noexcept {
    if (const std::uint64_t position = a.position_of(block); position != 0) others.add({a.number, position});
    heap_.give_or_lose(0, block.address, facts_.options.block_bytes, std::move(others));
}

/// Under the arena's lock: into the heap, where blocks that touch become one.
void pool_engine::collect_stock(arena& a) noexcept {
    while (stocked_block* const block = a.stock.take_front()) give_stocked(a, *block);
}

/// Under the engine's lock. A block that is freed meanwhile counts or does not. O(arenas).
std::size_t pool_engine::num_blocks_out() const noexcept {
    std::ptrdiff_t sum = 0;
    for (const auto& a : arenas_) sum += a->num_out.load(std::memory_order_relaxed);
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(sum, 0));
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
