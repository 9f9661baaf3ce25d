// Implements engine.hpp: handing blocks out and taking them back.
#include "rmm/pool/engine.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>

#include "rmm/aligned.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/detail/error.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::stream_kind;

// Recorded epochs that are left alone before they are asked about: each question costs a driver call.
constexpr std::size_t poll_slack = 64;

// Large blocks of different streams merge, and are cut where they fit best, only when their fences are known to have passed:
// the heap of a pool that many streams use would fall to pieces without. Eight streams that fill a pool of 40 GiB reach 88.6 % so,
// and 78.9 % with a poll every 32 frees (H200, medians of 15 seeds).
constexpr std::size_t large_frees_per_poll = 4;
// While the device lags behind, so that polls learn nothing, each comes after twice as many frees as the one before; up to these.
constexpr std::size_t most_large_frees_per_poll = 64;
// What more has passed is left to the polls of the next requests: clearing all of some thousand pieces takes milliseconds, under
// the lock.
constexpr std::size_t most_cleared_per_poll = 512;

// Small blocks of many streams, each in a span of its own, would keep much of a small pool from its large requests: the spans
// that streams get before they need them are no more of it than this.
constexpr std::size_t largest_share_of_own_spans = 16;
// After a refusal nobody looks for fresh memory for a span again for so many requests: looking costs as much as many of them.
constexpr std::size_t requests_per_refused_span = 256;

// The memory of so many streams that are captured is passed over in the search for other.
constexpr std::size_t most_avoided = 16;

std::uint64_t next_uid() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

pool_engine::pool_engine(std::unique_ptr<virtual_source> source, const pool_options& options)
    : driver_(rmm::detail::the_driver()),
      device_(rmm::detail::current_device()),
      uid_(next_uid()),
      source_(std::move(source)),
      registration_(make_memory_registration(driver_, read_debug_environment().nvtx, source_ != nullptr)),
      small_area_limit_(
          source_ == nullptr ? 0 : heap::small_request_limit(source_->maximum_bytes(), source_->granularity())),
      whole_granules_from_(source_ == nullptr
                               ? std::numeric_limits<std::size_t>::max()
                               : heap::whole_granules_from(source_->maximum_bytes(), source_->granularity())),
      options_(options),
      name_(options.name),
      heaps_{heap::heap(unit, heap::merging::same_timelines), heap::heap(unit, heap::merging::same_timelines)},
      timelines_(driver_, device_),
      large_frees_per_poll_(large_frees_per_poll),
      poll_above_(poll_slack) {
    if (source_ == nullptr) return;
    update_small_limit();
    rmm::detail::enter_ledger(device_, *this);
}

pool_engine::pool_engine(device_async_resource_ref upstream, const pool_options& options)
    : pool_engine(std::unique_ptr<virtual_source>(), options) {
    upstream_ = upstream;
    if (options.initial_bytes != 0) take_initial_block();
    rmm::detail::enter_ledger(device_, *this);
}

void pool_engine::take_initial_block() {
    const std::size_t bytes = options_.initial_bytes;
    void* const base = ask_upstream_for(bytes);
    try {
        const arena& a = arena_of(cuda_stream_view{});
        heap::fence_set fences;
        if (options_.ordered_upstream) fences.add({a.number, a.home.load()->epoch_now()});
        if (options_.ordered_upstream) a.home.load()->mark_used(a.home.load()->epoch_now());
        add_upstream_block(base, bytes, fences, cuda_stream_view{});
    } catch (...) {
        upstream_->deallocate_async(base, bytes, unit, cuda_stream_view{});
        throw;
    }
}

pool_engine::~pool_engine() {
    const rmm::detail::transit_scope until_it_is_the_drivers(device_);
    rmm::detail::leave_ledger(*this);
    driver::DeviceGuard on(driver_, device_);
    // The default stream, on which the memory goes back, comes after the last users. Streams that cannot be named any more
    // have left events, or the device is fenced.
    try {
        lock held(mutex_);
        bool out_of_reach = false;
        const driver::Status status = wait_for(held, timelines_.outstanding(), cuda_stream_view{},
                                               heap::heap::no_timeline, reach::device, &out_of_reach);
        if (!status.ok() || out_of_reach) wait_for_device();
        // Virtual memory is unmapped at once, not in stream order.
        if (source_ != nullptr) {
            const unlocked without(held);
            rmm::detail::report_failure(driver_.synchronize_stream({}), "wait for the users of a pool's memory");
        }
    } catch (const std::bad_alloc&) {
        wait_for_device();
    }
    for (const auto& [address, size_bytes] : regions_) {
        tell_removed(address, size_bytes);
        try {
            upstream_->deallocate_async(reinterpret_cast<void*>(address), size_bytes, unit, cuda_stream_view{});
        } catch (const std::exception& e) {
            rmm::detail::report_misuse("the upstream of a pool threw in deallocate: ", e.what());
        }
    }
    source_.reset();
}

std::size_t pool_engine::size_of(std::size_t bytes) const noexcept {
    if (bytes >= whole_granules_from_) return align_up(bytes, source_->granularity());
    return options_.block_bytes != 0 ? options_.block_bytes : align_up(bytes, unit);
}

// ---- handing out

void* pool_engine::allocate(std::size_t bytes, cuda_stream_view stream) {
    refusal why;
    if (void* const ptr = try_allocate(bytes, stream, &why)) [[likely]]
        return ptr;
    return allocate_short_of_memory(bytes, stream, &why);
}

void* pool_engine::try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    if (bytes > (options_.block_bytes != 0 ? options_.block_bytes : std::numeric_limits<std::size_t>::max() / 2)) {
        why->why = refusal::cause::too_large;
        return nullptr;
    }
    const std::size_t size = size_of(bytes);
    if (size <= small_limit_.load(std::memory_order_relaxed)) {
        bool same_stream = false;
        arena* const a = arena_at_hand(normalized(stream), &same_stream);
        if (a != nullptr && same_stream) {
            const std::lock_guard in(a->mutex);
            if (const heap::span_heap::taken block = a->heap.try_allocate(size, rmm::detail::current_tag()))
                return reinterpret_cast<void*>(block.address);
        }
    }
    return allocate_slowly(size, stream, why);
}

void* pool_engine::allocate_slowly(std::size_t size, cuda_stream_view stream, refusal* why) {
    if (const std::uint64_t capture = capture_of(stream)) return allocate_captured(size, stream, capture, why);
    arena& a = arena_of(stream);
    lock held(mutex_);
    release_ended_captures();
    if (more_to_clear_ || timelines_.num_recorded() > poll_above_ ||
        (large_frees_ >= large_frees_per_poll_ && timelines_.num_recorded() > 0))
        poll(held);
    if (needs_own_span(size, a) && !add_span(size, a) && !grow_by_span(held, a))
        spans_refused_ = requests_per_refused_span;
    bool polled = false;
    for (;;) {
        if (piece ready = find_ready(size, a)) {
            if (!cut_behind(held, &ready)) continue;
            return hand_out(ready, stream);
        }
        if (had_better_grow(size, a)) {
            refusal ignored;
            if (const piece grown = grow(held, size, a, stream, &ignored))
                return try_piece(held, grown, a, stream, last_resort(), why);
            spans_refused_ = requests_per_refused_span;
        }
        // What streams that are gone have left is reached by events of the device alone. Growing instead would have no end,
        // but a program that captures streams may be capturing one now, and such an event would spoil that.
        if (void* const ptr = try_fenced(held, size, a, stream, last_resort(), why)) return ptr;
        if (why->why == refusal::cause::driver) return nullptr;
        if (!polled && (more_to_clear_ || timelines_.num_recorded() > 0)) {
            poll(held);
            polled = true;
            continue;
        }
        if (growing_ && grower_ != std::this_thread::get_id()) {
            // Whoever grows goes on at once if it grows ahead: each step is a reason to look again.
            largest_missed_ = std::max(largest_missed_, size);
            grown_.wait(held, [this, seen = num_growths_] { return !growing_ || num_growths_ != seen; });
            polled = false;
            continue;
        }
        if (const piece grown = grow(held, size, a, stream, why))
            return try_piece(held, grown, a, stream, reach::device, why);
        // While upstream was asked, others may have freed something; and now whatever is free must do.
        if (const piece ready = find_ready(size, a)) return hand_out(ready, stream);
        return try_fenced(held, size, a, stream, reach::device, why);
    }
}

/// Of virtual memory, which begins with nothing, every stream gets a span of its own with its first small request: with what it finds
/// in the heap, all of its requests would go there, behind the lock of all streams.
bool pool_engine::needs_own_span(std::size_t size, const arena& a) noexcept {
    if (source_ == nullptr || growing_ || a.heap.span_bytes() != 0) return false;
    // The limit of small requests stays when the spans become smaller again.
    if (size > std::min(small_limit_.load(std::memory_order_relaxed), span_bytes())) return false;
    if (a.own_number() == heap::heap::no_timeline) return false;
    if (spans_refused_ > 0) {
        --spans_refused_;
        return false;
    }
    return arenas_.size() * span_bytes() <= source_->maximum_bytes() / largest_share_of_own_spans;
}

/// Virtual memory grows in small steps: a stream gets a span of its own rather than the leavings of others, for each of which
/// it would have to wait.
bool pool_engine::had_better_grow(std::size_t size, const arena& a) const noexcept {
    if (source_ == nullptr || growing_ || size > small_limit_.load(std::memory_order_relaxed)) return false;
    return (a.heap.span_bytes() == 0 && spans_refused_ == 0) ||
           heap::eager_growth(peak_bytes_, held_bytes()) >= span_bytes();
}

/// Makes the stream wait for the piece's last users, and hands it out; else puts it back. Null for an empty piece, for one
/// that cannot be waited for now (`*unreachable`: the timeline of a stream that is captured, or is farther away than allowed),
/// and (with the cause in `*why`) where the driver refuses.
void* pool_engine::try_piece(lock& held, const piece& taken, const arena& a, cuda_stream_view stream, reach how_far,
                             refusal* why, std::uint64_t* unreachable) {
    if (!taken) return nullptr;
    try {
        bool out_of_reach = false;
        const driver::Status status = taken.fences.empty() ? driver::Status{}
                                                           : wait_for(held, taken.fences, stream, a.own_number(),
                                                                      how_far, &out_of_reach, unreachable);
        if (!status.ok() && status.code != driver::Code::capture_error) {
            why->why = refusal::cause::driver;
            why->status = status;
        }
        if (!status.ok() || out_of_reach) {
            put_back(taken);
            return nullptr;
        }
    } catch (...) {
        put_back(taken);
        throw;
    }
    return hand_out(taken, stream);
}

/// The same for what other streams used last, without that of streams which cannot be waited for now.
void* pool_engine::try_fenced(lock& held, std::size_t size, arena& a, cuda_stream_view stream, reach how_far,
                              refusal* why) {
    std::vector<std::uint64_t> avoided;
    for (;;) {
        piece found = find_fenced(size, a, avoided);
        if (!cut_behind(held, &found)) continue;
        std::uint64_t unreachable = heap::heap::no_timeline;
        if (void* const ptr = try_piece(held, found, a, stream, how_far, why, &unreachable)) return ptr;
        if (unreachable == heap::heap::no_timeline || avoided.size() == most_avoided) return nullptr;
        avoided.push_back(unreachable);
    }
}

/// What the stream may use at once.
pool_engine::piece pool_engine::find_ready(std::size_t size, arena& a) {
    const std::uint64_t own = a.own_number();
    if (size <= small_limit_.load(std::memory_order_relaxed) && own != heap::heap::no_timeline) {
        for (bool more = true; more; more = add_span(size, a)) {
            const std::lock_guard in(a.mutex);
            drain(a);
            if (const heap::span_heap::taken t = a.heap.try_allocate(size, rmm::detail::current_tag()))
                return {t.address, t.size_bytes, {}, &a, t.position, false};
        }
    }
    const std::uint8_t area = area_of(size);
    heap::block b = heaps_[area].try_allocate_ready(size, own);
    return {b.address, b.size_bytes, std::move(b.fences), nullptr, 0, false, area};
}

/// What other streams used last: blocks of the arena that are away, whatever the heap can put together, blocks of other
/// arenas, whole spans of which something is away. O(blocks away + streams), or what merging needs.
pool_engine::piece pool_engine::find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) {
    if (piece away = take_away_block(size, a, avoided)) return away;
    const auto from_heap = [&](bool also_away) -> piece {
        collect_spans(also_away);
        const std::uint8_t area = area_of(size);
        heap::block b = heaps_[area].try_allocate(size, a.own_number(), avoided);
        return {b.address, b.size_bytes, std::move(b.fences), nullptr, 0, false, area};
    };
    if (piece merged = from_heap(false)) return merged;
    for (const auto& other : arenas_) {
        if (other.get() == &a) continue;
        if (std::find(avoided.begin(), avoided.end(), other->number) == avoided.end()) {
            const std::lock_guard in(other->mutex);
            if (const heap::span_heap::taken t = other->heap.try_allocate(size, rmm::detail::current_tag())) {
                piece found{t.address, t.size_bytes, {}, other.get(), t.position, false};
                const heap::fence last_use{other->number, t.position};
                if (t.position != 0 && !timelines_.has_passed(last_use)) found.fences.add(last_use);
                return found;
            }
        }
        if (piece away = take_away_block(size, *other, avoided)) return away;
    }
    return from_heap(true);
}

/// The beginning of the smallest block of the arena that fits and is away.
pool_engine::piece pool_engine::take_away_block(std::size_t size, arena& a, std::span<const std::uint64_t> avoided) {
    const std::lock_guard in(a.mutex);
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
    const heap::fence_set fences = a.away[best].fences;
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
    return {t.address, t.size_bytes, fences, &a, t.position, true};
}

/// Takes a span out of the heap that holds at least `size` and is ready for the arena's stream; false if there is none.
bool pool_engine::add_span(std::size_t size, arena& a) {
    constexpr std::size_t granule = span_directory::granule;
    const std::uint8_t area = span_area();
    for (std::size_t wanted = span_bytes(); wanted >= granule && wanted >= size; wanted /= 2) {
        // So much more that a multiple of the granule begins in it.
        heap::block b = heaps_[area].try_allocate_ready(wanted + granule - unit, a.own_number());
        // Virtual memory is aligned to the granule for the most part.
        if (!b && source_ != nullptr) {
            b = heaps_[area].try_allocate_ready(wanted, a.own_number());
            if (b && b.address % granule != 0) {
                give(area, b.address, b.size_bytes, b.fences);
                b = {};
            }
        }
        if (!b) continue;
        const std::uintptr_t begin = align_up(b.address, granule);
        const std::uintptr_t end = b.address + b.size_bytes;
        const bool fits = span_directory::can_hold(begin, wanted) &&
                          (options_.block_bytes == 0 || (begin - b.address) % options_.block_bytes == 0);
        if (!fits) {
            give(area, b.address, b.size_bytes, b.fences);
            return false;
        }
        if (begin > b.address) give(area, b.address, begin - b.address, b.fences);
        if (begin + wanted < end) give(area, begin + wanted, end - begin - wanted, b.fences);
        install_span(begin, wanted, b.fences, a);
        return true;
    }
    return false;
}

/// Memory that is nobody's becomes a span of the arena; back in the heap if the host has no memory for that.
void pool_engine::install_span(std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences, arena& a) {
    try {
        directory_.prepare(address, bytes);
        const std::lock_guard in(a.mutex);
        std::uint64_t position = 0;
        for (const heap::fence& f : fences) position = f.position;
        // Until its end, the directory says so and a free looks there.
        directory_.set(address, bytes, &a);
        try {
            a.heap.add_span(address, bytes, position);
            // What the stream left here before counts as freed by it.
            a.last_freed = std::max(a.last_freed, position);
        } catch (...) {
            directory_.set(address, bytes, nullptr);
            throw;
        }
    } catch (...) {
        give(span_area(), address, bytes, fences);
        throw;
    }
    update_small_limit();
}

/// Takes back what was away and may be used again. Under both locks. O(blocks away).
void pool_engine::drain(arena& a) {
    const std::uint64_t own = a.number.load(std::memory_order_relaxed);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < a.away.size(); ++i) {
        away_block& block = a.away[i];
        block.fences.prune([&](const heap::fence& f) { return timelines_.has_passed(f); });
        const bool ready = block.fences.empty() || (block.fences.size() == 1 && block.fences.begin()->timeline == own);
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

/// Gives every span in which nothing is in use back to the heap, so that it merges; `also_away`: also those in which blocks
/// are away. O(spans), and O(pieces of these spans + blocks away).
void pool_engine::collect_spans(bool also_away) {
    for (const auto& a : arenas_) {
        const std::lock_guard in(a->mutex);
        drain(*a);
        const auto fence_at = [&](std::uint64_t position) {
            const heap::fence last_use{a->number, position};
            return position == 0 || timelines_.has_passed(last_use) ? heap::fence_set{} : heap::fence_set{last_use};
        };
        std::size_t next = 0;
        while (const heap::span_heap::span s = a->heap.remove_empty_span(&next)) {
            directory_.set(s.address, s.size_bytes, nullptr);
            give_or_lose(span_area(), s.address, s.size_bytes, fence_at(s.position));
        }
        if (!also_away || a->away.empty()) continue;
        std::unordered_map<heap::span_heap::detached, std::size_t> away_at;
        for (std::size_t i = 0; i < a->away.size(); ++i) away_at[a->away[i].block] = i;
        std::vector<heap::block> parts;
        std::vector<std::size_t> gone;
        const auto note = [&](std::uintptr_t address, std::size_t size, std::uint64_t position,
                              heap::span_heap::detached block) {
            if (block == heap::span_heap::whole) {
                parts.push_back({address, size, fence_at(position)});
            } else {
                gone.push_back(away_at.at(block));
                parts.push_back({address, size, a->away[gone.back()].fences});
            }
        };
        next = 0;
        while (const heap::span_heap::span s = a->heap.remove_unused_span(&next, note)) {
            directory_.set(s.address, s.size_bytes, nullptr);
            for (const heap::block& part : parts) give_or_lose(span_area(), part.address, part.size_bytes, part.fences);
            parts.clear();
            // From the end, so that the indices before stay; what moves is looked up anew.
            std::sort(gone.begin(), gone.end(), std::greater<>());
            for (std::size_t i : gone) {
                away_at.erase(a->away[i].block);
                if (i + 1 != a->away.size()) {
                    a->away[i] = std::move(a->away.back());
                    away_at.at(a->away[i].block) = i;
                }
                a->away.pop_back();
            }
            gone.clear();
        }
    }
}

void pool_engine::give_or_lose(std::uint8_t area, std::uintptr_t address, std::size_t size,
                               const heap::fence_set& fences) noexcept {
    try {
        give(area, address, size, fences);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

/// Virtual memory that was taken out of its heap is free memory again.
void pool_engine::return_region(std::uint8_t area, const heap::range& region, const heap::fence_set& fences) noexcept {
    try {
        heap::fence_set unpassed = fences;
        unpassed.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
        heaps_[area].add_region(region.address, region.size_bytes, heap::border::open, unpassed);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

void pool_engine::put_back(const piece& taken) noexcept {
    if (taken.from == nullptr) return give_or_lose(taken.area, taken.address, taken.size_bytes, taken.fences);
    try {
        arena& a = *taken.from;
        const std::lock_guard in(a.mutex);
        if (!taken.was_away) {
            a.heap.free(taken.address, taken.position);
            return;
        }
        a.away.push_back({0, taken.fences});
        std::size_t size = 0;
        a.away.back().block = a.heap.detach(taken.address, &size);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

void* pool_engine::hand_out(const piece& taken, cuda_stream_view stream) {
    if (taken.from == nullptr) {
        try {
            large_.insert(taken.address,
                          {taken.size_bytes, taken.area, rmm::detail::tag_of_thread, nullptr, normalized(stream)});
        } catch (...) {
            put_back(taken);
            throw;
        }
        large_bytes_ += taken.size_bytes;
    }
    return reinterpret_cast<void*>(taken.address);
}

// ---- fences

/// Makes `stream` (whose own fences, of number `own`, need nothing) wait for `fences`. Lets the lock go for the driver.
/// `*out_of_reach`: nothing was done, because only an event of the device would do and `how_far` forbids it. `*unreachable`: the
/// timeline that is so far away, or whose stream is captured.
driver::Status pool_engine::wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream,
                                     std::uint64_t own, reach how_far, bool* out_of_reach, std::uint64_t* unreachable) {
    std::vector<pending_wait> waits;
    driver::Status status = prepare_waits(held, fences, own, how_far, &waits, out_of_reach);
    if (*out_of_reach && unreachable != nullptr) *unreachable = timelines_.first_out_of_reach(fences, own);
    if (!status.ok() || waits.empty()) return status;
    held.unlock();
    status = timelines_.carry_out(waits, rmm::detail::handle_of(stream));
    held.lock();
    if (status.code == driver::Code::capture_error && unreachable != nullptr)
        *unreachable = timelines_.first_not_recorded(waits);
    timelines_.finish(waits);
    return status;
}

/// Makes events where some are missing. Lets the lock go for that.
driver::Status pool_engine::prepare_waits(lock& held, const heap::fence_set& fences, std::uint64_t own, reach how_far,
                                          std::vector<pending_wait>* waits, bool* out_of_reach) {
    for (;;) {
        std::size_t missing = 0;
        const auto answer = timelines_.prepare_waits(fences, own, how_far, waits, &missing);
        if (answer == timelines::readiness::ready) return {};
        if (answer == timelines::readiness::needs_device) {
            *out_of_reach = true;
            return {};
        }
        std::vector<driver::EventHandle> made;
        driver::Status status;
        {
            const unlocked without(held);
            status = timelines_.create_events(missing, &made);
        }
        for (driver::EventHandle e : made) timelines_.give_spare(e);
        if (!status.ok()) return status;
    }
}

/// As `wait_for`, but the host waits, for as long as the device needs. Lets the lock go.
driver::Status pool_engine::wait_on_host(lock& held, const heap::fence_set& fences, reach how_far, bool* out_of_reach) {
    std::vector<pending_wait> waits;
    driver::Status status = prepare_waits(held, fences, heap::heap::no_timeline, how_far, &waits, out_of_reach);
    if (!status.ok() || waits.empty()) return status;
    held.unlock();
    status = timelines_.carry_out_on_host(waits);
    held.lock();
    timelines_.finish(waits);
    return status;
}

void pool_engine::wait_for_device() noexcept {
    (void)driver_.take_last_error();
    rmm::detail::report_failure(driver_.synchronize_device(device_), "wait for the users of a pool's memory");
}

/// Asks which recorded epochs have passed, and clears their fences. O(recorded epochs + pieces of their timelines).
void pool_engine::poll(lock& held) {
    std::vector<timelines::question> questions = timelines_.questions();
    large_frees_ = 0;  // others that come meanwhile need not ask too
    {
        const unlocked without(held);
        timelines_.ask(questions);
    }
    timelines_.answer(questions);
    const std::vector<std::uint64_t> moved = timelines_.moved();
    more_to_clear_ = false;
    for (heap::heap& h : heaps_)
        if (!moved.empty() &&
            !h.prune([&](std::uint64_t timeline) { return std::binary_search(moved.begin(), moved.end(), timeline); },
                     [this](const heap::fence& f) { return timelines_.has_passed(f); }, most_cleared_per_poll))
            more_to_clear_ = true;
    if (!more_to_clear_) timelines_.note_cleared(moved);
    timelines_.forget_idle();
    large_frees_per_poll_ =
        moved.empty() ? std::min(2 * large_frees_per_poll_, most_large_frees_per_poll) : large_frees_per_poll;
    // The next round comes when as many again have gathered, so that its cost is spread over what caused it.
    poll_above_ = 2 * timelines_.num_recorded() + poll_slack;
}

// ---- taking back

void pool_engine::free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    try {
        if (num_captures_.load(std::memory_order_relaxed) > 0 && free_captured(address, bytes, streams)) return;
        arena* const owner = directory_.find(address);
        if (owner != nullptr && streams.size() == 1)
            free_in_arena(*owner, address, bytes, streams.front());
        else
            free_behind(owner, address, bytes, streams);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

/// Where the stream is now, in the words of its timeline; counts the free. `*recorder`: the stream's arena.
heap::fence pool_engine::fence_now(cuda_stream_view stream, std::size_t bytes, arena** recorder) {
    const cudaStream_t handle = normalized(stream);
    arena* a = arena_at_hand(handle, nullptr);
    for (;;) {
        if (a == nullptr) a = &arena_of(stream);
        *recorder = a;
        if (a->kind.load(std::memory_order_relaxed) == stream_kind::unknown && is_of_other_device(stream)) {
            // No event of the pool's device covers it.
            rmm::detail::report_failure(driver_.synchronize_stream(rmm::detail::handle_of(stream)),
                                        "wait for a stream of another device");
        }
        // The timeline stays while the arena calls it its own.
        const std::lock_guard in(a->mutex);
        const cudaStream_t works_for = a->handle.load(std::memory_order_relaxed);
        timeline& home = *a->home.load(std::memory_order_relaxed);
        if ((works_for == handle && !home.has_ended()) ||
            a->kind.load(std::memory_order_relaxed) == stream_kind::unknown) {
            const std::uint64_t epoch = home.epoch_now();
            home.mark_used(epoch);
            a->count_free(bytes);
            return {home.number, epoch};
        }
        a = nullptr;
    }
}

void pool_engine::free_in_arena(arena& owner, std::uintptr_t address, std::size_t bytes, cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
    // The default streams of threads share a handle: only the thread's own arena tells.
    const bool at_home =
        owner.handle.load(std::memory_order_relaxed) == handle &&
        (handle != rmm::detail::per_thread_stream_handle() || arena_at_hand(handle, nullptr) == &owner);
    arena* recorder = &owner;
    std::size_t true_size = 0;
    bool done = false;
    if (at_home) {
        const std::lock_guard in(owner.mutex);
        timeline& home = *owner.home.load(std::memory_order_relaxed);
        if (owner.handle.load(std::memory_order_relaxed) == handle && !home.has_ended()) {
            const std::uint64_t epoch = home.epoch_now();
            true_size = owner.heap.free(address, epoch);
            if (true_size != 0) {
                home.mark_used(epoch);
                owner.last_freed = epoch;
                owner.count_free(true_size);
            }
            done = true;
        }
    }
    if (!done) {
        away_block away;
        away.fences.add(fence_now(stream, bytes, &recorder));
        const std::lock_guard in(owner.mutex);
        owner.away.push_back(std::move(away));
        owner.away.back().block = owner.heap.detach(address, &true_size);
        if (true_size == 0) owner.away.pop_back();
    }
    if (true_size != size_of(bytes)) report_size(address, bytes, true_size);
    if (should_record(*recorder)) record(*recorder, stream);
}

/// A block of the heap, or one that several streams use last.
void pool_engine::free_behind(arena* owner, std::uintptr_t address, std::size_t bytes,
                              std::span<const cuda_stream_view> streams) {
    heap::fence_set fences;
    for (cuda_stream_view stream : streams) {
        arena* recorder = nullptr;
        fences.add(fence_now(stream, size_of(bytes), &recorder));
        if (should_record(*recorder)) record(*recorder, stream);
    }
    std::size_t true_size = 0;
    std::size_t surplus = 0;
    if (owner != nullptr) {
        const std::lock_guard in(owner->mutex);
        owner->away.push_back({0, std::move(fences)});
        owner->away.back().block = owner->heap.detach(address, &true_size);
        if (true_size == 0) owner->away.pop_back();
    } else {
        const lock held(mutex_);
        if (const auto block = large_.take(address)) {
            true_size = block->size_bytes;
            large_bytes_ -= true_size;
            ++large_frees_;
            give(block->area, address, true_size, fences);
        }
        const std::size_t keep = release_above_.load(std::memory_order_relaxed);
        // Giving memory back orders the legacy stream, which spoils captures.
        if (free_bytes() > std::max(keep, trim_above_) && !has_seen_captures()) surplus = free_bytes() - keep;
    }
    if (surplus > 0) release_surplus(surplus);
    if (true_size != size_of(bytes)) report_size(address, bytes, true_size);
}

void pool_engine::release_surplus(std::size_t bytes) {
    lock held(mutex_);
    // A free never waits for a growth: upstream may be waiting for just this memory.
    if (growing_) return;
    const std::size_t released = trim(held, held_bytes() - std::min(bytes, held_bytes()));
    // Where nothing was whole, more must be free before it is worth looking again.
    trim_above_ = released > 0 ? 0 : free_bytes() + free_bytes() / 8;
}

/// Into the heap. What the heap cannot take is lost until the pool is destroyed.
void pool_engine::give(std::uint8_t area, std::uintptr_t address, std::size_t size, const heap::fence_set& fences) {
    heap::fence_set unpassed = fences;
    unpassed.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
    heaps_[area].free(address, size, unpassed);
}

/// A free that was no free of a block in use, or of a block of another size.
void pool_engine::report_size(std::uintptr_t address, std::size_t bytes, std::size_t true_size) const noexcept {
    try {
        char where[32];
        std::snprintf(where, sizeof(where), "%p", reinterpret_cast<void*>(address));
        if (true_size == 0)
            rmm::detail::report_misuse(
                std::string("a pool was given ") + where + " with " + std::to_string(bytes) +
                " bytes to free, which is not a block in use: freed twice, or by the wrong resource?");
        else
            rmm::detail::report_misuse(std::string("a pool was given ") + where + " with " + std::to_string(bytes) +
                                       " bytes to free; the block has " + std::to_string(true_size) +
                                       ". Free with the size that was allocated");
    } catch (const std::bad_alloc&) {
        rmm::detail::report_failure({driver::Code::out_of_memory, 0}, "describe a wrong free");
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
