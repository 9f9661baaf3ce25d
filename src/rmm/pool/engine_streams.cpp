// Implements the part of engine.hpp that asks the driver about streams, and records events on them.
#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::handle_of;
using rmm::detail::stream_kind;

// Frees of a stream per event: some nanoseconds a free, even where 16 threads record at the same time and contend in
// the driver. A free without an event is fenced when its memory is needed, by an event of the stream if it is ours,
// else of the whole device: the next user then waits longer than necessary.
constexpr std::uint32_t frees_per_event = 64;
// Or freed bytes per event: of all streams together this share of the pool, so that a free of a large block has no
// event as a rule.
constexpr std::size_t min_bytes_per_event = std::size_t{32} << 20;
constexpr std::size_t unrecorded_share = 8;
// For blocks of one size: events concern the oldest blocks of a stock, which as a rule were freed long ago.
constexpr std::size_t min_stocked_bytes_per_event = std::size_t{128} << 20;
// A small free defers the recording rather than wait for the engine's lock: retried after this many frees, and deferred
// at most `most_put_off` times.
constexpr std::uint32_t frees_until_retry = 8;
constexpr std::uint32_t most_put_off = 4;
// For blocks of one size, most streams reuse only their own: the spacing of a stream's events doubles, up to this
// factor, after each `unneeded_until_rarer` events without a failed search. The uncovered part of its stock stays
// bounded, as above: once a stream is captured, no event covers the stock of another stream that is idle.
constexpr std::uint32_t most_spacing = 16;
constexpr std::uint32_t unneeded_until_rarer = 8;
// Once captures were seen, there are no events of the device, and none of a stream while it is captured: the first
// frees of a stream have an event each, so that a short-lived stream leaves nothing uncovered.
constexpr std::uint32_t num_recorded_each = 64;

}  // namespace

/// Records an event of the device, which covers all frees so far. Releases the lock meanwhile.
void pool_engine::cover_by_device(lock& held) {
    recording now;
    if (!timelines_.begin_device_recording(&now)) {
        (void)make_events(held, 1);
        if (!timelines_.begin_device_recording(&now)) return;
    }
    arenas_.note_device_event();
    driver::Status status;
    {
        const unlocked without(held);
        status = timelines_.record_device(now);
        if (!status.ok()) (void)facts_.driver.take_last_error();
    }
    if (status.code == driver::Code::capture_error) note_capture();
    timelines_.end_device_recording(now, status.ok());
}

bool pool_engine::is_enough_for_event(std::size_t bytes, std::uint32_t spacing) const noexcept {
    return bytes >= (facts_.has_stocks ? min_stocked_bytes_per_event : min_bytes_per_event) * spacing &&
           bytes >= facts_.held_bytes() / unrecorded_share / arenas_.size() * spacing;
}

/// 1 in pools without stocks, where there are no events of the device, so that an event of the stream is all that
/// covers its frees, and where as much of the stock is uncovered as an event is to cover at most.
std::uint32_t pool_engine::event_spacing(const arena& a) const noexcept {
    const std::uint32_t spacing = a.event_spacing.load(std::memory_order_relaxed);
    if (spacing == 1 || !may_record_device()) return 1;
    const std::size_t uncovered = a.num_uncovered();
    return uncovered >= frees_per_event || is_enough_for_event(uncovered * facts_.options.block_bytes, 1) ? 1 : spacing;
}

bool pool_engine::should_record(const arena& a) const noexcept {
    // An event on the legacy stream holds up all blocking streams of the device; it is recorded when it is needed.
    const stream_kind kind = a.kind.load(std::memory_order_relaxed);
    if (kind == stream_kind::legacy || kind == stream_kind::unknown) return false;
    const std::uint32_t num_unrecorded = a.num_unrecorded.load(std::memory_order_relaxed);
    const std::uint32_t spacing = event_spacing(a);
    if (num_unrecorded >= frees_per_event * spacing) return true;
    if (is_enough_for_event(a.unrecorded_bytes.load(std::memory_order_relaxed), spacing)) return true;
    // Nothing else could ever cover it.
    if (kind != stream_kind::owned && !timelines_.has_device_events()) return true;
    return has_seen_captures() && a.num_recordings.load(std::memory_order_relaxed) < num_recorded_each;
}

/// Whether the recording can be deferred: the free is one of many small ones, and a later event may cover it.
bool pool_engine::may_put_off(const arena& a) const noexcept {
    if (!may_record_device() || a.num_put_off.load(std::memory_order_relaxed) >= most_put_off) return false;
    // Elsewhere a free of a large block has an event, for which its next user waits instead of for the whole device.
    return facts_.has_stocks || !is_enough_for_event(a.unrecorded_bytes.load(std::memory_order_relaxed), 1);
}

/// In a call that has brought the arena's stream: records an event that covers all frees on it so far. If that is
/// impossible now, it is left to the next call.
void pool_engine::record(arena& a, cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
    bool same_stream = false;
    if (arenas_.at_hand(handle, &same_stream) != &a || !same_stream) return;
    lock held(mutex_, std::defer_lock);
    if (!held.try_lock()) {
        if (may_put_off(a)) {
            a.num_put_off.fetch_add(1, std::memory_order_relaxed);
            a.num_unrecorded.store(frees_per_event * event_spacing(a) - frees_until_retry, std::memory_order_relaxed);
            if (facts_.has_stocks) a.unrecorded_bytes.store(0, std::memory_order_relaxed);
            return;
        }
        held.lock();
    }
    note_ended_recordings();
    if (a.handle != handle) return;
    // Also where it fails, so that the next attempt comes after as many frees.
    a.num_put_off.store(0, std::memory_order_relaxed);
    a.num_unrecorded.store(0, std::memory_order_relaxed);
    a.unrecorded_bytes.store(0, std::memory_order_relaxed);
    timeline& home = *a.home;
    recording now;
    if (!begin_recording(a, home, &now)) {
        timelines_.hold(home);  // while the lock is let go
        try {
            (void)make_events(held, 1);
        } catch (const std::bad_alloc&) {
            // As if there were none spare.
        }
        timelines_.let_go(home);
        if (a.home != &home) return;
        if (!begin_recording(a, home, &now)) return a.event_spacing.store(1, std::memory_order_relaxed);
    }
    a.num_recordings.fetch_add(1, std::memory_order_relaxed);
    timelines_.hold(home);
    held.unlock();
    const driver::Status status = facts_.driver.record_event(now.event, handle_of(stream));
    if (!status.ok()) (void)facts_.driver.take_last_error();
    if (!held.try_lock()) {
        if (!a.is_ending.exchange(true, std::memory_order_acquire)) {
            a.ended = {&home, now, status.ok()};
            arena* first = ended_.load(std::memory_order_relaxed);
            do a.next_ended = first;
            while (!ended_.compare_exchange_weak(first, &a, std::memory_order_release, std::memory_order_relaxed));
            return;
        }
        held.lock();  // another thread has recorded on the stream at the same time
    }
    note_ended_recordings();
    end_recording(a, {&home, now, status.ok()});
}

/// False: no spare event.
bool pool_engine::begin_recording(arena& a, timeline& home, recording* now) {
    const kmm::locks::Guard in(a.mutex);  // a free comes before, and is covered, or after
    const bool has_begun = timelines_.begin_recording(home, now);
    if (has_begun) a.stock.cover();
    return has_begun;
}

/// The arena may work for another stream by now.
void pool_engine::end_recording(arena& a, const ended_recording& ended) {
    timelines_.end_recording(*ended.on, ended.what, ended.is_recorded);
    timelines_.let_go(*ended.on);
    if (!facts_.has_stocks || a.home.load(std::memory_order_relaxed) != ended.on) return;
    std::uint32_t spacing = a.event_spacing.load(std::memory_order_relaxed);
    if (!ended.is_recorded || std::exchange(a.searches_seen, num_failed_searches_) != num_failed_searches_) {
        spacing = 1;
        a.num_unneeded = 0;
    } else if (++a.num_unneeded == unneeded_until_rarer) {
        spacing = std::min(2 * spacing, most_spacing);
        a.num_unneeded = 0;
    }
    a.event_spacing.store(spacing, std::memory_order_relaxed);
}

/// Under the lock: notes the recordings of threads that did not wait for the lock. Called before any lookup of recorded
/// events.
void pool_engine::note_ended_recordings() {
    if (ended_.load(std::memory_order_relaxed) == nullptr) return;
    for (arena* a = ended_.exchange(nullptr, std::memory_order_acquire); a != nullptr;) {
        arena* const next = a->next_ended;
        const ended_recording ended = a->ended;
        a->is_ending.store(false, std::memory_order_release);
        end_recording(*a, ended);
        a = next;
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
