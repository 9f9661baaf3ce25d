// The streams that a pool has seen, and the events that fence what was freed on them.
//
// Everything freed on a stream since the last time that a block left it belongs to the stream's current epoch, and carries
// the fence {stream, epoch}. The default stream and our own streams are fenced late: the event of an epoch is recorded when
// a block leaves the stream, and covers every earlier epoch. The event of any other stream is recorded in the call that
// frees, which alone may touch the handle; the epoch keeps the latest.
//
// Owns: timelines, and events for as long as the pool lives. Must not know: addresses, upstream. Not thread-safe: the
// engine brings the lock; functions that call the driver say so and are called without it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/driver.hpp"
#include "rmm/heap/heap.hpp"
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
};

/// A free block that its stream keeps for its next request of that size.
struct kept_block {
    std::uintptr_t address = 0;
    std::uint64_t epoch = 0;
};

struct timeline {
    explicit timeline(const rmm::detail::stream_identity& who);
    ~timeline();
    timeline(const timeline&) = delete;
    timeline& operator=(const timeline&) = delete;

    bool fenced_late() const noexcept {
        return kind == rmm::detail::stream_kind::legacy || kind == rmm::detail::stream_kind::owned;
    }
    bool is_idle() const noexcept { return recorded.empty() && passed >= last_used && num_kept == 0; }

    rmm::detail::stream_kind kind;
    std::uint64_t number;
    rmm::detail::owned_stream* owned;
    std::uint64_t epoch = 0;              // what is freed now belongs to this one
    std::uint64_t last_used = 0;          // the latest epoch in which something was freed
    std::uint64_t passed = 0;             // this epoch and all before are known to have passed
    std::uint64_t version = 0;            // of `recorded`, for streams that are fenced early
    std::deque<recorded_epoch> recorded;  // ascending epochs

    // By size, newest last; a vector may be empty. Their fence is {number, epoch}.
    std::unordered_map<std::size_t, std::vector<kept_block>> kept;
    std::size_t num_kept = 0;
};

/// What a stream must do before it may use a block; made under the lock, carried out without it.
struct pending_wait {
    std::uint64_t number = 0;   // of the timeline that is waited for
    driver::EventHandle event;  // null: to be recorded
    driver::EventHandle spare;  // where to record
    std::uint64_t epoch = 0;    // what the recording will cover
    rmm::detail::owned_stream* owned =
        nullptr;  // the stream if it is ours, retained; null: the legacy one or a foreign one
    bool recorded = false;
};

class timelines {
  public:
    timelines(driver::Driver& driver, int device) : driver_(driver), device_(device) {}
    /// Calls the driver: destroys all events.
    ~timelines();

    timeline* find(std::uint64_t number) noexcept;
    timeline& at(const rmm::detail::stream_identity& who);
    /// The fence of something that is freed on `t` now.
    heap::fence fence_now(timeline& t) noexcept {
        t.last_used = t.epoch;
        return {t.number, t.epoch};
    }

    /// Whether the fence is known to have passed. Asks nobody.
    bool has_passed(const heap::fence& f) noexcept {
        timeline* t = find(f.timeline);
        return t == nullptr || f.position <= t->passed;
    }

    /// Appends to `*out` the waits that stand for `fences` on another stream than `own`. Needs spare events; returns how
    /// many are missing, and has done nothing where that is not 0.
    std::size_t prepare_waits(const heap::fence_set& fences, std::uint64_t own, std::vector<pending_wait>* out);
    /// Without the lock: records what must be recorded, and makes `stream` wait. Stops at the first failure.
    driver::Status carry_out(std::vector<pending_wait>& waits, driver::StreamHandle stream) noexcept;
    /// Keeps what `carry_out` recorded, and takes back the spare events that it did not need.
    void finish(std::vector<pending_wait>& waits);

    /// Without the lock: makes events.
    driver::Status create_events(std::size_t count, std::vector<driver::EventHandle>* out);
    void destroy_event(driver::EventHandle event) noexcept { (void)driver_.destroy_event(event); }
    /// Null if none is spare.
    driver::EventHandle take_spare() noexcept;
    void give_spare(driver::EventHandle event) { spare_.push_back(event); }

    /// Makes `event`, which the caller recorded, the fence of the current epoch of an early-fenced stream, unless something
    /// was adopted since `version`. The epoch's event of before becomes spare.
    bool adopt(timeline& t, driver::EventHandle event, std::uint64_t version);

    struct question {
        std::uint64_t number = 0;
        recorded_epoch recorded;
        bool has_passed = false;
    };
    /// All recorded epochs; to be asked (`ask`) without the lock.
    std::vector<question> questions() const;
    void ask(std::vector<question>& questions) noexcept;
    void answer(const std::vector<question>& answers);
    /// Drops timelines of which nothing is left. Only after the heap was pruned.
    void forget_idle();
    std::size_t num_recorded() const noexcept { return num_recorded_; }

    /// Every epoch that may not have passed, as fences; for the end of the pool.
    heap::fence_set outstanding() const;
    auto begin() { return timelines_.begin(); }
    auto end() { return timelines_.end(); }

  private:
    void add_recorded(timeline& t, const recorded_epoch& entry);

    driver::Driver& driver_;
    int device_;
    std::unordered_map<std::uint64_t, std::unique_ptr<timeline>> timelines_;
    std::vector<driver::EventHandle> spare_;
    std::uint64_t counter_ = 0;  // epochs, versions, stamps: one source, so that none repeats when a stream comes back
    std::size_t num_recorded_ = 0;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
