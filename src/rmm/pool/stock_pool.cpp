// Implements stock_pool.hpp.
#include "rmm/pool/stock_pool.hpp"

#include "rmm/pool/stream_state.hpp"
#include "rmm/status.hpp"

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

stock_pool::stock_pool(const pool_facts& facts, timelines& streams, pool_heap& heap, arena& common, stock_signs& signs)
    : facts_(facts),
      timelines_(streams),
      heap_(heap),
      common_(common),
      signs_(signs),
      blocks_(std::max(facts.options.block_bytes, pool_facts::smallest_stocked_bytes)) {}

/// Under the arena's lock, without the engine's: moves passed blocks of another stock into this one. Skips a stock that
/// another thread keeps locked. `*seen`: result of the scan. O(1).
bool stock_pool::take_from_others(arena& a, scan* seen) noexcept {
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
        while (stocked_block* const block = taken.take_front()) enter(a, *block, 0);
        return true;
    }
    return false;
}

void stock_pool::note_answer(arena& a, bool has_learnt) noexcept {
    const kmm::locks::Guard in(a.mutex);
    a.not_asked_after = has_learnt ? 0 : std::min(2 * a.not_asked_after + 1, most_not_asked);
    a.num_not_to_ask = a.not_asked_after;
}

/// Under the arena's lock: of a block in its stock.
bool stock_pool::has_passed(const arena& of, const stocked_block& block) const noexcept {
    const std::uint64_t position = of.position_of(block);
    return position == 0 || timelines_.has_passed(*of.home.load(std::memory_order_relaxed), position);
}

/// Under the lock of `other`: takes the passed blocks of the older half of its stock; they are ready for every stream.
/// Other blocks stay: once their stream is idle, no event may ever cover them.
block_stock stock_pool::split_passed(arena& other, std::size_t most) noexcept {
    block_stock taken;
    for (std::size_t n = std::min((other.stock.size() + 1) / 2, most); n > 0; --n) {
        if (!has_passed(other, *other.stock.front())) break;
        stocked_block& oldest = *other.stock.take_front();
        oldest.position = 0;
        taken.push_back(oldest);
    }
    return taken;
}

piece stock_pool::find_ready(std::size_t size, arena& a) {
    const bool has_stock = a.own_number() != heap::heap::no_timeline;
    for (bool more = has_stock; more; more = refill(size, a)) {
        const kmm::locks::Guard in(a.mutex);
        if (stocked_block* const block = a.stock.take_back()) {
            piece taken{block->address, size, {}, &a};
            taken.block = block;
            return taken;
        }
    }
    return heap_.take_ready(size, a.own_number());
}

/// Moves blocks from the heap into the arena's stock; false if the heap has none that is ready for its stream.
bool stock_pool::refill(std::size_t size, arena& a) {
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
        for (std::size_t i = count; i-- > 0;) enter(a, *blocks_.find(b.address + i * size), position);
        heap_.note_dry(false);
        return true;
    }
    heap_.note_dry(true);
    return false;
}

piece stock_pool::find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) {
    // Of the stock that `put_best_first` found.
    if (piece fenced = take_over(a, avoided, last_use::fenced, 1, false)) return fenced;
    if (heap_[0].free_bytes() >= size)
        if (piece waited_for = heap_.take(size, a.own_number(), avoided)) return waited_for;
    collect(false);
    if (piece taken = take_over(a, avoided, last_use::any, holders_.size(), false)) return taken;
    return take_over(a, avoided, last_use::any, holders_.size(), true);
}

/// Tries `num_to_ask` stocks; `waits`: also those that another thread has locked. That thread may be preempted, and a
/// wait for it here, under the engine's lock, delays all other threads.
piece stock_pool::take_over(arena& a, std::span<const std::uint64_t> avoided, last_use wanted, std::size_t num_to_ask,
                            bool waits) {
    for (std::size_t n = holders_.size(); n > 0 && num_to_ask > 0; --n) {
        arena& other = *holders_.take_front();
        timelines_.count_steps();
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
piece stock_pool::take_oldest(arena& other, arena& a, last_use wanted) {
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
        timelines_.count_steps(taken.more.size());
        taken.more.erase(oldest);
    }
    taken.address = oldest.address;
    taken.size_bytes = facts_.options.block_bytes;
    taken.from = &a;
    taken.block = &oldest;
    return taken;
}

bool stock_pool::put_best_first(const arena& a, heap::fence* behind) {
    collect(false);
    std::size_t num_to_look_into = most_stocks_looked_into;
    for (std::size_t n = holders_.size(); n > 0 && num_to_look_into > 0; --n) {
        arena& other = *holders_.front();
        heap::fence oldest;
        timelines_.count_steps();
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
        if (oldest.position != 0 && timelines_.is_recorded(oldest)) {
            *behind = oldest;
            return false;
        }
        holders_.push_back(*holders_.take_front());
        --num_to_look_into;
    }
    return false;
}

void* stock_pool::hand_out(piece&& taken, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    arena& a = taken.from != nullptr ? *taken.from : common_;
    {
        const kmm::locks::Guard in(a.mutex);
        a.note_out(*taken.block, handle, rmm::detail::current_tag());
        // Anybody may use these, unless the arena has gone over to another stream meanwhile.
        if (a.handle.load(std::memory_order_relaxed) == handle)
            while (stocked_block* const block = taken.more.take_front()) enter(a, *block, 0);
    }
    while (stocked_block* const block = taken.more.take_front())
        heap_.give_or_lose(0, block->address, facts_.options.block_bytes, {});
    return reinterpret_cast<void*>(taken.address);
}

void stock_pool::put_back(piece taken) noexcept {
    arena& a = *taken.from;
    const kmm::locks::Guard in(a.mutex);
    while (stocked_block* const block = taken.more.take_front()) give(a, *block);
    give(a, *taken.block, std::move(taken.fences));
}

/// Under the arena's lock: of its stock, or on its way there. Into the heap, behind the arena's stream and `others`.
void stock_pool::give(const arena& a, const stocked_block& block, heap::fence_set others) noexcept {
    if (const std::uint64_t position = a.position_of(block); position != 0) others.add({a.number, position});
    heap_.give_or_lose(0, block.address, facts_.options.block_bytes, std::move(others));
}

std::size_t stock_pool::collect(bool all) {
    changed_.take_all([this](arena& a) KMM_REQUIRES(in_engine) {
        timelines_.count_steps();
        // A search that looks into its stock finds out whether it is empty.
        a.is_listed = true;
        holders_.push_back(a);
    });
    if (!all) return 0;
    const std::size_t free_before = heap_.free_bytes();
    while (arena* const a = holders_.take_front()) {
        timelines_.count_steps();
        const kmm::locks::Guard in(a->mutex);
        while (stocked_block* const block = a->stock.take_front()) give(*a, *block);
        a->is_listed = false;
    }
    return heap_.free_bytes() - free_before;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
