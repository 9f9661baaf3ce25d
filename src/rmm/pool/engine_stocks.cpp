// Implements the part of engine.hpp that serves pools whose blocks all have one size (block_stock.hpp).
//
// A stream takes from its own stock first, then from what is free in the heap, then what has passed of another stream's
// stock, the blocks that were freed there longest ago; at last one block, for which it waits: rather one behind an event, if one of
// the few stocks that are looked at has some, than one for which an event must be recorded.
#include <algorithm>
#include <utility>

#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// A stream takes as many blocks of the heap at once, or its share of half of them: what one stream keeps, others miss.
constexpr std::size_t most_refilled = 8;
// Stocks of other streams that are looked into for blocks that have passed; the next search goes on behind them.
constexpr std::size_t most_stocks_asked = 4;
// And for one behind an event, which spares the driver an event of the whole device.
constexpr std::size_t most_asked_for_events = 16;
// Of another stream's stock at once: both streams wait for it.
constexpr std::size_t most_taken_over = 64;

}  // namespace

/// Under the arena's lock: what is there may be used by the arena's stream without a wait.
void pool_engine::enter_stock(arena& a, stocked_block& block, std::uint64_t position) noexcept {
    block.position = position;
    block.term = a.term;
    a.last_freed = std::max(a.last_freed, position);
    a.stock.push_back(block);
    if (!a.is_listed) note_change(a);
}

/// A block that the stream may use at once.
pool_engine::piece pool_engine::find_stocked(std::size_t size, arena& a) {
    if (a.own_number() == heap::heap::no_timeline) return {};
    for (bool more = true; more; more = refill(size, a)) {
        const std::lock_guard in(a.mutex);
        if (stocked_block* const block = a.stock.take_back()) {
            piece taken{block->address, size, {}, &a};
            taken.block = block;
            return taken;
        }
    }
    return take_over(a, {}, last_use::passed);
}

/// From the heap into the arena's stock; false if nothing there is ready for its stream.
bool pool_engine::refill(std::size_t size, arena& a) {
    const std::size_t share = heaps_[0].free_bytes() / size / (2 * arenas_.size());
    for (std::size_t count = std::clamp<std::size_t>(share, 1, most_refilled); count > 0; count /= 2) {
        const heap::block b = heaps_[0].try_allocate_ready(count * size, a.own_number());
        if (!b) continue;
        if (blocks_.find(b.address) == nullptr) {
            give(0, b.address, b.size_bytes, b.fences);
            return false;
        }
        try {
            heaps_[0].expect_frees(count - 1);
        } catch (...) {
            give(0, b.address, b.size_bytes, b.fences);
            throw;
        }
        const std::uint64_t position = b.fences.empty() ? 0 : b.fences.begin()->position;
        const std::lock_guard in(a.mutex);
        for (std::size_t i = count; i-- > 0;) enter_stock(a, *blocks_.find(b.address + i * size), position);
        return true;
    }
    return false;
}

/// Of what other streams have. O(1), or O(stocks) for one with any last use; and O(stocks that have become empty), each once.
pool_engine::piece pool_engine::take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted) {
    collect_spans(false);
    std::size_t num_to_ask = wanted == last_use::passed   ? most_stocks_asked
                             : wanted == last_use::fenced ? 1  // the one that `ask_about_stock` put before the others
                                                          : holders_.size();
    for (std::size_t n = holders_.size(); n > 0 && num_to_ask > 0; --n) {
        arena& other = *holders_.take_front();
        const std::lock_guard in(other.mutex);
        ++num_steps_;
        // One that has nothing comes back with its next free.
        other.is_listed = !other.stock.empty();
        if (!other.is_listed) continue;
        holders_.push_back(other);
        if (&other == &a || std::find(avoided.begin(), avoided.end(), other.number) != avoided.end()) continue;
        --num_to_ask;
        if (piece taken = take_older_half(other, a, wanted)) return taken;
    }
    return {};
}

/// Under the lock of `other`. One block is for the request, the rest for the stock of `a`: only of blocks that have passed,
/// since nothing may ever cover what waits for `a`, of which this request may be all.
pool_engine::piece pool_engine::take_older_half(arena& other, arena& a, last_use wanted) {
    const bool has_stock = a.own_number() != heap::heap::no_timeline;
    const bool takes_more = has_stock && wanted == last_use::passed;
    piece taken;
    for (std::size_t n = takes_more ? std::min((other.stock.size() + 1) / 2, most_taken_over) : 1; n > 0; --n) {
        stocked_block& oldest = *other.stock.front();
        ++num_steps_;
        const heap::fence use{other.number, other.position_of(oldest)};
        const bool has_passed = use.position == 0 || timelines_.has_passed(use);
        if (!has_passed && (wanted == last_use::passed || (wanted == last_use::fenced && !timelines_.is_recorded(use))))
            break;
        if (!has_passed) taken.fences.add(use);
        other.stock.erase(oldest);
        oldest.position = 0;  // the piece has the fence
        if (taken.block != nullptr) {
            taken.more.push_back(oldest);
            continue;
        }
        taken.address = oldest.address;
        taken.size_bytes = options_.block_bytes;
        taken.from = &a;
        taken.block = &oldest;
    }
    return taken;
}

/// Puts a stock before the others whose oldest block has passed, or is behind an event that the driver says has passed: to ask
/// costs less than a wait. False if there is none. O(1). Lets the lock go.
bool pool_engine::ask_about_stock(lock& held, const arena& a) {
    std::size_t num_to_ask = most_asked_for_events;
    for (std::size_t n = holders_.size(); n > 0 && num_to_ask > 0; --n, --num_to_ask) {
        arena& other = *holders_.front();
        heap::fence oldest;
        ++num_steps_;
        if (&other != &a) {
            const std::lock_guard in(other.mutex);
            if (!other.stock.empty()) oldest = {other.number, other.position_of(*other.stock.front())};
            if (!other.stock.empty() && (oldest.position == 0 || timelines_.has_passed(oldest))) return true;
        }
        if (oldest.position != 0 && timelines_.is_recorded(oldest)) return ask_about(held, oldest);
        holders_.push_back(*holders_.take_front());
    }
    return false;
}

/// Whether it has passed. What the answer tells serves others, too. Lets the lock go.
bool pool_engine::ask_about(lock& held, const heap::fence& use) {
    timeline* const of = timelines_.find(use.timeline);
    if (of == nullptr) return true;
    std::vector<timelines::question> few = timelines_.questions_about(*of, use.position);
    if (few.empty()) return false;
    {
        const unlocked without(held);
        timelines_.ask(few);
    }
    timelines_.answer(few);
    clear_passed();
    return timelines_.has_passed(use);
}

/// The same for a piece that waits for one stream.
void pool_engine::ask_about(lock& held, piece* taken) {
    if (!*taken || taken->fences.size() != 1) return;
    try {
        if (ask_about(held, *taken->fences.begin())) taken->fences = {};
    } catch (...) {
        put_back(std::move(*taken));
        throw;
    }
}

void* pool_engine::hand_out_stocked(piece taken, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    arena& a = taken.from != nullptr ? *taken.from : *common_;
    {
        const std::lock_guard in(a.mutex);
        a.note_out(*taken.block, handle, rmm::detail::current_tag());
        // Anybody may use these, unless the arena has gone over to another stream meanwhile.
        if (a.handle.load(std::memory_order_relaxed) == handle)
            while (stocked_block* const block = taken.more.take_front()) enter_stock(a, *block, 0);
    }
    while (stocked_block* const block = taken.more.take_front())
        give_or_lose(0, block->address, options_.block_bytes, {});
    return reinterpret_cast<void*>(taken.address);
}

void pool_engine::put_back_stocked(piece taken) noexcept {
    arena& a = *taken.from;
    const std::lock_guard in(a.mutex);
    while (stocked_block* const block = taken.more.take_front()) give_stocked(a, *block);
    give_stocked(a, *taken.block, std::move(taken.fences));
}

/// Under the arena's lock: of its stock, or on its way there. Into the heap, behind the arena's stream and `others`.
void pool_engine::give_stocked(const arena& a, const stocked_block& block, heap::fence_set others) noexcept {
    if (const std::uint64_t position = a.position_of(block); position != 0) others.add({a.number, position});
    give_or_lose(0, block.address, options_.block_bytes, std::move(others));
}

/// Under the arena's lock: into the heap, where blocks that touch become one.
void pool_engine::collect_stock(arena& a) noexcept {
    while (stocked_block* const block = a.stock.take_front()) give_stocked(a, *block);
}

/// Under the engine's lock. A block that is freed meanwhile counts or does not.
std::size_t pool_engine::num_blocks_out() noexcept {
    std::ptrdiff_t sum = 0;
    for (const auto& a : arenas_) {
        const std::lock_guard in(a->mutex);
        sum += a->num_out;
    }
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(sum, 0));
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
