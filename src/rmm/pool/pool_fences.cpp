// Implements pool_fences.hpp.
#include "rmm/pool/pool_fences.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/status.hpp"

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

// Recorded epochs that may gather before they are queried: each query costs a driver call.
constexpr std::size_t poll_slack = 64;

// Limit of the poll interval, in frees and waits: it doubles while polls learn nothing because the device lags behind.
constexpr std::size_t most_since_poll = 64;
// Frees of many streams that are covered by events together: one of the device costs 2 ns for each stream on the host
// driver.
constexpr std::size_t frees_per_cover = 128;
constexpr std::size_t few_arenas = 64;

}  // namespace

driver::Status pool_fences::wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream,
                                     std::uint64_t own, reach how_far, bool* out_of_reach, std::uint64_t* unreachable) {
    std::vector<pending_wait> waits;
    driver::Status status = prepare_waits(held, fences, own, how_far, &waits, out_of_reach);
    if (*out_of_reach && unreachable != nullptr) *unreachable = timelines_.first_out_of_reach(fences, own);
    if (!status.ok() || waits.empty()) return status;
    {
        const unlocked without(held);
        status = timelines_.carry_out(waits, rmm::detail::handle_of(stream));
    }
    if (status.code == driver::Code::capture_error && unreachable != nullptr)
        *unreachable = timelines_.first_not_recorded(waits);
    timelines_.finish(waits);
    return status;
}

/// Makes events where some are missing. Lets the lock go for that.
driver::Status pool_fences::prepare_waits(lock& held, const heap::fence_set& fences, std::uint64_t own, reach how_far,
                                          std::vector<pending_wait>* waits, bool* out_of_reach) {
    note_ended_recordings();
    for (;;) {
        std::size_t missing = 0;
        const auto answer = timelines_.prepare_waits(fences, own, how_far, waits, &missing);
        if (answer == timelines::readiness::ready) return {};
        if (answer == timelines::readiness::needs_device) {
            *out_of_reach = true;
            return {};
        }
        if (const driver::Status status = make_events(held, missing); !status.ok()) return status;
    }
}

/// Spare ones. Lets the lock go. Throws std::bad_alloc, with nothing done.
driver::Status pool_fences::make_events(lock& held, std::size_t count) {
    std::vector<driver::EventHandle> made;
    made.reserve(count);
    timelines_.spare().expect(count);
    driver::Status status;
    {
        const unlocked without(held);
        status = timelines_.spare().create(count, &made);
    }
    timelines_.spare().expect_fewer(count - made.size());
    for (driver::EventHandle e : made) timelines_.spare().give(e);
    return status;
}

driver::Status pool_fences::wait_on_host(lock& held, const heap::fence_set& fences, reach how_far, bool* out_of_reach) {
    std::vector<pending_wait> waits;
    driver::Status status = prepare_waits(held, fences, heap::heap::no_timeline, how_far, &waits, out_of_reach);
    if (!status.ok() || waits.empty()) return status;
    {
        const unlocked without(held);
        status = timelines_.carry_out_on_host(waits);
    }
    timelines_.finish(waits);
    return status;
}

void pool_fences::wait_for_device() noexcept {
    (void)facts_.driver.take_last_error();
    rmm::detail::report_failure(facts_.driver.synchronize_device(facts_.device),
                                "wait for the users of a pool's memory");
}

void pool_fences::poll(lock& held, std::size_t most_timelines) {
    note_ended_recordings();
    std::vector<timelines::question> questions = timelines_.questions(most_timelines);
    num_since_poll_ = 0;  // others that come meanwhile need not ask too
    const std::uint64_t passes = timelines_.num_passes();
    {
        const unlocked without(held);
        timelines_.ask(questions);
    }
    timelines_.answer(questions);
    heap_.clear_passed();
    poll_after_ = passes == timelines_.num_passes() ? std::min(2 * poll_after_, most_since_poll) : poll_after;
}

bool pool_fences::may_gain_by_poll() const noexcept {
    if (facts_.has_stocks && last_resort_of_streams() == reach::device) return false;
    return heap_.has_more_to_clear() || timelines_.num_recorded() > 0;
}

/// A few timelines of a round that asks about each once, so that no request waits for many answers of the driver. The
/// next round comes when twice as much has gathered as this one left, so that its cost is spread over what caused it.
void pool_fences::poll_in_turn(lock& held) {
    const auto note_end = [this]() KMM_REQUIRES(in_engine) {
        if (num_to_ask_ == 0) poll_above_ = 2 * timelines_.num_recorded() + poll_slack;
    };
    if (num_to_ask_ == 0) num_to_ask_ = timelines_.num_with_recorded();
    const std::size_t num_asked = std::min(num_to_ask_, timelines_per_poll());
    num_to_ask_ -= num_asked;
    note_end();  // others that come meanwhile begin no other round
    poll(held, num_asked);
    note_end();
}

/// Asks the driver about the events behind these, and notes what has passed. Whether anything has. Lets the lock go.
bool pool_fences::ask_behind(lock& held, std::span<const heap::fence> uses) {
    std::vector<timelines::question> few;
    few.reserve(2 * uses.size());
    for (const heap::fence& use : uses)
        if (timeline* const of = timelines_.find(use.timeline)) timelines_.add_questions_about(*of, use.position, &few);
    if (few.empty()) return false;
    const std::uint64_t passes = timelines_.num_passes();
    {
        const unlocked without(held);
        timelines_.ask(few);
    }
    timelines_.answer(few);
    return timelines_.num_passes() != passes;
}

bool pool_fences::asks_and_passes(lock& held, const heap::fence& use) {
    if (ask_behind(held, std::span(&use, 1))) heap_.clear_passed();
    return timelines_.has_passed(use);
}

bool pool_fences::ask_about(std::span<const heap::fence> uses) noexcept {
    try {
        lock held(mutex_);
        note_ended_recordings();
        const bool has_learnt = ask_behind(held, uses);
        if (has_learnt) heap_.expect_more_to_clear();
        return has_learnt;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void pool_fences::catch_up(lock& held, uncovered_frees& uncovered) {
    // Few streams record events themselves, every so often; of many each frees too seldom for that.
    if (uncovered.size() >= frees_per_cover && facts_.num_arenas() > few_arenas) cover(held, uncovered);
    if (timelines_.num_recorded() > poll_above_ || num_to_ask_ > 0)
        poll_in_turn(held);
    else if (num_since_poll_ >= poll_after_ && timelines_.num_recorded() > 0)
        poll(held, timelines_per_poll());
    else if (heap_.has_more_to_clear() && heap_.free_bytes() > 0)
        heap_.clear_passed();  // fences of what is free in a heap
}

void pool_fences::cover(lock& held, uncovered_frees& uncovered) {
    note_ended_recordings();
    const std::vector<heap::fence> latest = uncovered.take_all();
    const reach how_far = may_record_device() ? reach::device : reach::streams;
    // Nothing fails from here on, so that what is prepared is finished.
    std::vector<pending_wait> events;
    events.reserve(2 * latest.size());
    if (const std::size_t missing = timelines_.prepare_cover(latest, how_far, &events); missing > 0) {
        try {
            if (make_events(held, missing).ok()) (void)timelines_.prepare_cover(latest, how_far, &events);
        } catch (const std::bad_alloc&) {
            // Then these stay uncovered.
        }
    }
    if (events.empty()) return;
    {
        const unlocked without(held);
        timelines_.record(events);
    }
    for (const pending_wait& w : events)
        if (w.whole_device && !w.recorded) note_capture();  // which is why it failed, as far as is known
    timelines_.finish(events);
}

bool pool_fences::begin_device_recording(lock& held, recording* now) {
    if (timelines_.begin_device_recording(now)) return true;
    (void)make_events(held, 1);
    return timelines_.begin_device_recording(now);
}

void pool_fences::record_device(lock& held, const recording& now) {
    driver::Status status;
    {
        const unlocked without(held);
        status = timelines_.record_device(now);
        if (!status.ok()) (void)facts_.driver.take_last_error();
    }
    if (status.code == driver::Code::capture_error) note_capture();
    timelines_.end_device_recording(now, status.ok());
}

// ---- events of one stream

bool pool_fences::is_enough_for_event(std::size_t bytes, std::uint32_t spacing) const noexcept {
    return bytes >= (facts_.has_stocks ? min_stocked_bytes_per_event : min_bytes_per_event) * spacing &&
           bytes >= facts_.held_bytes() / unrecorded_share / facts_.num_arenas() * spacing;
}

/// 1 in pools without stocks, where there are no events of the device, so that an event of the stream is all that
/// covers its frees, and where as much of the stock is uncovered as an event is to cover at most.
std::uint32_t pool_fences::event_spacing(const arena& a) const noexcept {
    const std::uint32_t spacing = a.event_spacing.load(std::memory_order_relaxed);
    if (spacing == 1 || !may_record_device()) return 1;
    const std::size_t uncovered = a.num_uncovered();
    return uncovered >= frees_per_event || is_enough_for_event(uncovered * facts_.options.block_bytes, 1) ? 1 : spacing;
}

bool pool_fences::should_record(const arena& a) const noexcept {
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
bool pool_fences::may_put_off(const arena& a) const noexcept {
    if (!may_record_device() || a.num_put_off.load(std::memory_order_relaxed) >= most_put_off) return false;
    // Elsewhere a free of a large block has an event, for which its next user waits instead of for the whole device.
    return facts_.has_stocks || !is_enough_for_event(a.unrecorded_bytes.load(std::memory_order_relaxed), 1);
}

void pool_fences::record(arena& a, cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
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
bool pool_fences::begin_recording(arena& a, timeline& home, recording* now) {
    const kmm::locks::Guard in(a.mutex);  // a free comes before, and is covered, or after
    const bool has_begun = timelines_.begin_recording(home, now);
    if (has_begun) a.stock.cover();
    return has_begun;
}

void pool_fences::begin_anew(arena& a) const noexcept {
    a.num_unrecorded = 0;
    a.unrecorded_bytes = 0;
    a.event_spacing = 1;
    a.num_unneeded = 0;
    a.searches_seen = num_failed_searches_;
    a.num_recordings = 0;
}

/// The arena may work for another stream by now.
void pool_fences::end_recording(arena& a, const ended_recording& ended) {
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

void pool_fences::note_ended_recordings() {
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
