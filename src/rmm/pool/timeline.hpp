// The streams that a pool has seen, and the events that fence what was freed on them.
//
// Everything freed on a stream since its last event was recorded belongs to the stream's current epoch, and carries
// the fence {stream, epoch}. Every now and then a call that brings the stream records an event (`begin_recording`).
// What the last event does not cover is fenced when a block leaves the stream: the default stream and our own streams
// may be touched then, and of the default stream there are no other events; for any other handle the whole device has
// an event recorded.
//
// Epochs of all streams come from one counter, so that an event of the device covers all frees up to a number, on every
// stream. The cost of an event, a question or the end of a stream does not depend on the number of streams: changed
// timelines are linked in chains.
//
// Owns: timelines, and events for as long as the pool lives. Must not know: addresses, upstream. Not thread-safe but
// for what is atomic: the engine brings the lock; functions that call the driver say so and are called without it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driver/driver.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/heap/heap.hpp"
#include "rmm/pool/chain.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace driver = ::kmm::driver;

/// An event that has been recorded: everything freed up to `epoch` is usable once it has passed.
struct recorded_epoch {
    std::uint64_t epoch = 0;
    std::uint64_t stamp = 0;  ///< tells this recording from a later one of the same event
    driver::EventHandle event;
    bool borrowed = false;  ///< the event marks the end of a stream of ours and belongs to it
    bool busy = false;      ///< is being recorded again: counts as before, is not asked about, and is not given away
};

/// An event on its way onto a stream, without the lock.
struct recording {
    std::uint64_t epoch = 0;  // what it will cover
    std::uint64_t stamp = 0;  // of the entry that is recorded again; 0: the event is new
    driver::EventHandle event;
};

/// How far a timeline has come, for those who do not have the lock: hints.
struct shown_timeline {
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint64_t> recorded{0};  ///< this epoch and all before have had an event
    std::atomic<std::uint64_t> passed{0};    ///< and these have passed
};

// What a free looks at stands together.
struct alignas(64) timeline {
    /// `of_device`: below which no epoch of anything freed now is, as an event of the device covers these.
    timeline(const rmm::detail::stream_identity& who, const std::atomic<std::uint64_t>& of_device);
    ~timeline();
    timeline(const timeline&) = delete;
    timeline& operator=(const timeline&) = delete;

    bool fenced_late() const noexcept {
        return kind == rmm::detail::stream_kind::legacy || kind == rmm::detail::stream_kind::owned;
    }
    /// Whether the handle may be another stream's by now, as far as is known without asking the driver.
    bool has_ended() const noexcept { return owned != nullptr && !owned->is_open(); }
    /// The epoch of a free now. Any thread; call `mark_used` before the free is visible to other threads.
    std::uint64_t epoch_now() const noexcept {
        return std::max(epoch.load(std::memory_order_seq_cst), device_epoch.load(std::memory_order_seq_cst));
    }
    void mark_used(std::uint64_t e) noexcept {
        std::uint64_t last = last_used.load(std::memory_order_relaxed);
        while (last < e && !last_used.compare_exchange_weak(last, e, std::memory_order_relaxed)) {}
    }
    /// Of what is freed now, and counts as freed. Any thread.
    heap::fence fence_now() noexcept {
        const heap::fence now{number, epoch_now()};
        mark_used(now.position);
        return now;
    }

    rmm::detail::stream_kind kind;
    std::uint64_t number;
    rmm::detail::owned_stream* owned;
    const std::atomic<std::uint64_t>& device_epoch;
    std::atomic<std::uint64_t> epoch{0};      // what is freed now belongs to this one, or to the device's
    std::atomic<std::uint64_t> last_used{0};  // the latest epoch in which something was freed
    std::uint64_t covered = 0;                // up to here an event was asked for, whether or not that succeeded
    std::atomic<std::uint64_t> passed{0};     // this epoch and all before are known to have passed
    std::uint64_t cleared = 0;                // the heaps have no fences any more up to this one
    std::vector<recorded_epoch> recorded;     // ascending epochs; few
    std::uint64_t recorded_up_to = 0;         // this epoch and all before have had an event
    shown_timeline* shown = nullptr;
    int num_arenas = 0;                // that call this timeline their own, and calls that use it without the lock
    chain_link<timeline> as_recorded;  // something is recorded
    chain_link<timeline> as_moved;     // has passed more than was cleared
    chain_link<timeline> as_left;      // of no arena
};

/// What a stream must do before it may use a block; made under the lock, carried out without it.
struct pending_wait {
    std::uint64_t number = 0;                    // of the timeline that is waited for
    driver::EventHandle event;                   // null: to be recorded
    driver::EventHandle spare;                   // where to record
    std::uint64_t epoch = 0;                     // what the recording will cover
    rmm::detail::owned_stream* owned = nullptr;  // the stream if it is ours, retained
    bool whole_device = false;  // neither ours nor the legacy stream: the device is fenced, or waited for
    bool recorded = false;
};

/// Events of a pool that are not in use. Destroys them at its end.
class spare_events {
  public:
    spare_events(driver::Driver& driver, int device) : driver_(driver), device_(device) {}
    ~spare_events();
    spare_events(const spare_events&) = delete;
    spare_events& operator=(const spare_events&) = delete;

    /// Without the lock: makes events.
    driver::Status create(std::size_t count, std::vector<driver::EventHandle>* out);
    /// Null if none is spare.
    driver::EventHandle take() noexcept;
    /// Before `more` events are made: reserves room for all events to be spare at once. Throws std::bad_alloc.
    void expect(std::size_t more) {
        const std::size_t wanted = num_events_ + more;
        if (wanted > spare_.capacity()) spare_.reserve(2 * wanted);
        num_events_ = wanted;
    }
    /// `fewer` of the expected events were not made.
    void expect_fewer(std::size_t fewer) noexcept { num_events_ -= fewer; }
    /// One that was expected.
    void give(driver::EventHandle event) noexcept { spare_.push_back(event); }
    std::size_t size() const noexcept { return spare_.size(); }

  private:
    driver::Driver& driver_;
    const int device_;
    std::vector<driver::EventHandle> spare_;
    std::size_t num_events_ = 0;  // spare, recorded, or on their way
};

class timelines {
  public:
    /// `gone` gets the streams of ours that are referred to no more.
    timelines(driver::Driver& driver, int device, rmm::detail::gone_streams& gone)
        : driver_(driver),
          device_(device),
          gone_(gone),
          has_device_events_(driver.capabilities().device_event),
          spare_(driver, device) {}
    /// Calls the driver: destroys all events.
    ~timelines();

    timeline* find(std::uint64_t number) const noexcept {
        timeline* const* const known = timelines_.find(number + 1);
        return known == nullptr ? nullptr : *known;
    }
    timeline& at(const rmm::detail::stream_identity& who);
    /// Whether the fence is known to have passed. Does not call the driver.
    bool has_passed(const heap::fence& f) noexcept {
        if (f.position <= device_passed_) return true;
        timeline* t = find(f.timeline);
        return t == nullptr || f.position <= t->passed;
    }
    /// Whether a position of a held timeline is known to have passed. Any thread, without the lock.
    bool has_passed(const timeline& t, std::uint64_t position) const noexcept {
        return position <= device_passed_.load(std::memory_order_acquire) ||
               position <= t.passed.load(std::memory_order_acquire);
    }
    /// Applies to every timeline. Any thread, without the lock.
    std::uint64_t device_recorded_up_to() const noexcept {
        return device_recorded_up_to_.load(std::memory_order_relaxed);
    }
    std::uint64_t device_passed() const noexcept { return device_passed_.load(std::memory_order_acquire); }
    /// From now on the timeline is shown there; null: nowhere.
    static void show(timeline& t, shown_timeline* at) noexcept {
        t.shown = at;
        if (at == nullptr) return;
        at->number.store(t.number, std::memory_order_relaxed);
        at->recorded.store(t.recorded_up_to, std::memory_order_relaxed);
        at->passed.store(t.passed.load(std::memory_order_relaxed), std::memory_order_release);
    }
    /// Whether an event that is recorded covers the fence.
    bool is_recorded(const heap::fence& f) const noexcept {
        const timeline* const t = find(f.timeline);
        return t != nullptr && find_recorded(*t, f.position) != nullptr;
    }
    /// Changes whenever fences have passed.
    std::uint64_t num_passes() const noexcept { return num_passes_; }

    bool has_device_events() const noexcept { return has_device_events_; }
    /// How far a wait may go. `device`: to an event of the whole device, which invalidates captures in progress; of a
    /// driver that has no such event, the host waits for the device.
    enum class reach : std::uint8_t { streams, device };
    enum class readiness : std::uint8_t { ready, needs_events, needs_device };
    /// Appends to `*out` the waits that stand for `fences` on another stream than `own`; nothing where the answer is
    /// not `ready`. `needs_events`: `*missing` more spare ones. `needs_device`: an event of the device, which
    /// `how_far` forbids.
    readiness prepare_waits(const heap::fence_set& fences, std::uint64_t own, reach how_far,
                            std::vector<pending_wait>* out, std::size_t* missing);
    /// The timeline for which `prepare_waits` would answer `needs_device` with `reach::streams`; `no_timeline`: none.
    std::uint64_t first_out_of_reach(const heap::fence_set& fences, std::uint64_t own);
    /// Of waits that were carried out and failed: the timeline that could not be fenced; `no_timeline`: it was
    /// not that.
    static std::uint64_t first_not_recorded(const std::vector<pending_wait>& waits) noexcept;
    /// Without the lock: records what must be recorded, and makes `stream` wait. Stops at the first failure.
    driver::Status carry_out(std::vector<pending_wait>& waits, driver::StreamHandle stream) noexcept {
        return carry_out(waits, &stream);
    }
    /// As `carry_out`, but the host waits.
    driver::Status carry_out_on_host(std::vector<pending_wait>& waits) noexcept { return carry_out(waits, nullptr); }
    /// Appends the events that would cover these frees and are not recorded yet: one for each stream of ours, and one
    /// of the device for all other streams, if `how_far` allows it. The default stream is left out. Uses spare events
    /// only; returns how many more it would need.
    std::size_t prepare_cover(std::span<const heap::fence> frees, reach how_far, std::vector<pending_wait>* out);
    /// Without the lock: records the events of `prepare_cover`, without a wait. A failed one is left as it was.
    void record(std::vector<pending_wait>& waits) noexcept;
    /// Keeps what `carry_out` recorded, and takes back the spare events that it did not need.
    void finish(std::vector<pending_wait>& waits);

    /// Without the lock: whether an event recorded on the stream, or a wait, would become part of a capture or
    /// spoil one.
    bool is_part_of_capture(driver::StreamHandle stream) noexcept;
    spare_events& spare() noexcept { return spare_; }

    /// Everything freed on `t` so far gets the epoch of the result, whose event the caller records on the stream
    /// without the lock, and hands in with what came of it. The stream must be the timeline's, which the caller has
    /// verified. A timeline that has enough events records its latest again: what that covered waits a little longer
    /// then, if at all. False if a spare event is needed and there is none.
    bool begin_recording(timeline& t, recording* out) noexcept;
    void end_recording(timeline& t, const recording& what, bool recorded);

    struct question {
        std::uint64_t number = 0;
        recorded_epoch recorded;
        bool has_passed = false;
        rmm::detail::owned_stream* owned = nullptr;  // to which a borrowed event belongs; retained until the answer
    };
    /// The recorded epochs of the device and of at most `most` timelines, beginning after those of the last call. The
    /// caller asks the driver about them (`ask`) without the lock.
    std::vector<question> questions(std::size_t most);
    /// Those of the device alone.
    std::vector<question> questions_of_device() const;
    /// Appends the recorded epoch that covers `position`, of the timeline or, once in `*few`, of the device; nothing if
    /// nothing covers it. With one of the timeline its latest, which mostly has passed too and then tells most. A
    /// stream that has ended is covered by the event of its end.
    void add_questions_about(timeline& t, std::uint64_t position, std::vector<question>* few);
    void ask(std::vector<question>& questions) noexcept;
    void answer(const std::vector<question>& answers);

    /// The same as `begin_recording` for the whole device, which covers all that was freed so far, on any stream.
    /// False also where the driver cannot.
    bool begin_device_recording(recording* out) noexcept;
    driver::Status record_device(const recording& what) noexcept {
        return driver_.device_event_record(device_, what.event);
    }
    void end_device_recording(const recording& what, bool recorded);
    /// Whether an event of the device covers this.
    bool is_device_recorded(std::uint64_t position) const noexcept {
        return !device_recorded_.empty() && position <= device_recorded_.back().epoch;
    }

    /// An arena, or a call, has the timeline as its own; and has it no more.
    void hold(timeline& t) noexcept {
        if (++t.num_arenas == 1) left_.erase(t);
    }
    void let_go(timeline& t) noexcept {
        if (--t.num_arenas == 0) left_.push_back(t);
    }
    /// Drops timelines of which nothing is left. Only after the heap was pruned. O(what it drops), or bounded.
    void forget_idle();
    /// Timelines without an arena that cannot be forgotten yet.
    std::size_t num_left() const noexcept { return left_.size(); }
    /// What has passed and of which the heaps may have fences; and: now they have none.
    struct progress {
        std::vector<std::uint64_t> numbers;  // of timelines, ascending
        std::vector<std::uint64_t> passed;   // up to which epoch of each
        std::uint64_t of_device = 0;         // up to here on every timeline; 0: no more than was cleared
        bool none() const noexcept { return numbers.empty() && of_device == 0; }
    };
    progress moved() const;
    /// Whether there is more than that: of the device, of any timeline.
    bool has_device_moved() const noexcept { return device_passed_ != device_cleared_; }
    bool has_moved() const noexcept { return has_device_moved() || !moved_.empty(); }
    void note_cleared(const progress& moved) noexcept;
    std::size_t num_recorded() const noexcept { return num_recorded_; }
    /// Timelines of which something is recorded.
    std::size_t num_with_recorded() const noexcept { return with_recorded_.size(); }
    std::size_t size() const noexcept { return timelines_.size(); }
    /// Timelines, events and questions that were looked at so far, and what other parts of the pool count here under
    /// the lock (arenas, stocks, blocks away): what tests compare.
    std::uint64_t num_steps() const noexcept { return num_steps_; }
    void count_steps(std::size_t more = 1) noexcept { num_steps_ += more; }

    /// Every epoch with frees that may not have passed, as fences; for the end of the pool.
    heap::fence_set outstanding() const;

  private:
    std::uint64_t close_epoch(std::atomic<std::uint64_t>& epoch) noexcept;
    bool begin(std::vector<recorded_epoch>& recorded, recording* out) noexcept;
    std::optional<recorded_epoch> end(std::vector<recorded_epoch>& recorded, const recording& what, bool succeeded);
    void add_device_recorded(const recorded_epoch& entry);
    /// What is waited for instead of the fence; null: nothing is recorded yet.
    const recorded_epoch* find_recorded(const timeline& t, std::uint64_t position) const noexcept;
    bool is_idle(const timeline& t) const noexcept {
        return t.num_arenas == 0 && t.recorded.empty() && !chain<timeline, &timeline::as_moved>::contains(t) &&
               t.last_used.load(std::memory_order_relaxed) <= std::max(t.cleared, device_cleared_);
    }
    void note_passed(timeline& t, std::uint64_t epoch) noexcept;
    void note_device_passed(std::uint64_t epoch) noexcept;
    void add_question(std::vector<question>* all, const timeline& t, const recorded_epoch& r) const;
    driver::Status carry_out(std::vector<pending_wait>& waits, const driver::StreamHandle* stream) noexcept;
    driver::Status record_one(pending_wait& w) noexcept;
    void add_recorded(timeline& t, const recorded_epoch& entry);

    driver::Driver& driver_;
    int device_;
    rmm::detail::gone_streams& gone_;
    const bool has_device_events_;
    heap::address_map<timeline*, 0> timelines_;  // by number and one
    spare_events spare_;
    std::uint64_t counter_ = 0;  // epochs, versions, stamps: one source, so that none repeats when a stream comes back
    std::size_t num_recorded_ = 0;

    // Read without the lock, the first by every free: on a line of the cache that nothing else changes.
    alignas(64) std::atomic<std::uint64_t> device_epoch_{0};
    std::atomic<std::uint64_t> device_passed_{0};  // up to here everything has passed, on every timeline
    std::atomic<std::uint64_t> device_recorded_up_to_{0};
    alignas(64) std::uint64_t num_passes_ = 0;
    std::vector<recorded_epoch> device_recorded_;  // ascending epochs
    std::uint64_t device_cleared_ = 0;             // and the heaps have no such fences any more
    mutable std::uint64_t num_steps_ = 0;
    chain<timeline, &timeline::as_recorded> with_recorded_;
    chain<timeline, &timeline::as_moved> moved_;
    chain<timeline, &timeline::as_left> left_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
