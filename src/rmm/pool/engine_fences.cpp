// Implements the part of engine.hpp that waits for the last users of memory, and asks whether they are done.
#include <algorithm>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Recorded epochs that may gather before they are queried: each query costs a driver call.
constexpr std::size_t poll_slack = 64;

// Limit of the poll interval, in frees and waits: it doubles while polls learn nothing because the device lags behind.
constexpr std::size_t most_since_poll = 64;
// Frees of many streams that are covered by events together: one of the device costs 2 ns for each stream on the host
// driver.
constexpr std::size_t frees_per_cover = 128;
constexpr std::size_t few_arenas = 64;

}  // namespace

/// Makes `stream` (whose own fences, of number `own`, need nothing) wait for `fences`. Lets the lock go for the driver.
/// `*out_of_reach`: nothing was done, because only an event of the device would do and `how_far` forbids it.
/// `*unreachable`: the timeline that is so far away, or whose stream is captured.
driver::Status pool_engine::wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream,
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
driver::Status pool_engine::prepare_waits(lock& held, const heap::fence_set& fences, std::uint64_t own, reach how_far,
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
driver::Status pool_engine::make_events(lock& held, std::size_t count) {
    std::vector<driver::EventHandle> made;
    made.reserve(count);
    timelines_.expect_events(count);
    driver::Status status;
    {
        const unlocked without(held);
        status = timelines_.create_events(count, &made);
    }
    timelines_.expect_fewer_events(count - made.size());
    for (driver::EventHandle e : made) timelines_.give_spare(e);
    return status;
}

/// As `wait_for`, but the host waits, for as long as the device needs. Lets the lock go.
driver::Status pool_engine::wait_on_host(lock& held, const heap::fence_set& fences, reach how_far, bool* out_of_reach) {
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

void pool_engine::wait_for_device() noexcept {
    (void)facts_.driver.take_last_error();
    rmm::detail::report_failure(facts_.driver.synchronize_device(facts_.device),
                                "wait for the users of a pool's memory");
}

/// Asks which recorded epochs have passed, of `most_timelines` streams and the device, and clears their fences. O(what
/// is asked + pieces of the timelines that have moved).
void pool_engine::poll(lock& held, std::size_t most_timelines) {
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

/// For a request that found nothing. Blocks of one size do not merge: there, what has passed meanwhile serves only
/// where streams may be out of reach.
bool pool_engine::may_gain_by_poll() const noexcept {
    if (facts_.has_stocks && last_resort_of_streams() == reach::device) return false;
    return heap_.has_more_to_clear() || timelines_.num_recorded() > 0;
}

/// A few timelines of a round that asks about each once, so that no request waits for many answers of the driver. The
/// next round comes when twice as much has gathered as this one left, so that its cost is spread over what caused it.
void pool_engine::poll_in_turn(lock& held) {
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

/// In a free: there may be no event for this yet. What finds no room here is fenced when it is needed.
void pool_engine::note_uncovered(std::vector<heap::fence>& list, const heap::fence_set& fences) noexcept {
    for (const heap::fence& f : fences) {
        if (list.size() == list.capacity()) return;
        list.push_back(f);
        num_uncovered_.fetch_add(1, std::memory_order_relaxed);
    }
}

/// Few streams record events themselves, every so often; of many each frees too seldom for that.
bool pool_engine::should_cover() const noexcept {
    return num_uncovered_.load(std::memory_order_relaxed) >= frees_per_cover && arenas_.size() > few_arenas;
}

/// Records events for the latest frees: of each stream of ours that can be named, and one of the device for all others,
/// if it may be. Lets the lock go.
void pool_engine::cover(lock& held) {
    note_ended_recordings();
    std::vector<heap::fence> latest;
    latest.reserve(2 * most_uncovered);
    latest.assign(uncovered_.begin(), uncovered_.end());
    uncovered_.clear();
    {
        const kmm::locks::Guard in(common_->mutex);
        latest.insert(latest.end(), common_uncovered_.begin(), common_uncovered_.end());
        common_uncovered_.clear();
        num_uncovered_.store(0, std::memory_order_relaxed);
    }
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

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
