// What a pool does about the fences of free memory: records events behind frees, makes streams and the host wait, and
// asks the driver what has passed.
//
// Owns: when events are recorded and asked about. Must not know: where memory is; how streams find their arenas. Under
// the engine's lock, which calls of the driver let go, where nothing else is said.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/pool/arena.hpp"
#include "rmm/pool/pool_heap.hpp"
#include "rmm/pool/stream_state.hpp"
#include "rmm/pool/uncovered_frees.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_fences {
  public:
    using lock = engine_lock;
    using reach = timelines::reach;

    pool_fences(const pool_facts& facts, engine_mutex& mutex, timelines& streams, pool_heap& heap)
        : facts_(facts), mutex_(mutex), timelines_(streams), heap_(heap) {}
    // ---- how far a request goes for memory that others used

    /// How far to go for what can wait: not so far that a capture is spoiled.
    static reach last_resort() noexcept { return has_seen_captures() ? reach::streams : reach::device; }
    /// Nor so far that the host waits.
    reach last_resort_of_streams() const noexcept {
        return timelines_.has_device_events() ? last_resort() : reach::streams;
    }
    bool may_record_device() const noexcept { return timelines_.has_device_events() && !has_seen_captures(); }

    // ---- waits

    /// Makes `stream` (whose own fences, of number `own`, need nothing) wait for `fences`. `*out_of_reach`: nothing was
    /// done, because only an event of the device would do and `how_far` forbids it. `*unreachable`: the timeline that
    /// is so far away, or whose stream is captured.
    driver::Status wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream, std::uint64_t own,
                            reach how_far, bool* out_of_reach, std::uint64_t* unreachable = nullptr)
        KMM_REQUIRES(in_engine);
    /// As `wait_for`, but the host waits, for as long as the device needs.
    driver::Status wait_on_host(lock& held, const heap::fence_set& fences, reach how_far, bool* out_of_reach)
        KMM_REQUIRES(in_engine);
    /// Without the lock.
    void wait_for_device() noexcept;
    /// Counts towards the next poll (`poll_after`).
    void count_towards_poll() noexcept KMM_REQUIRES(in_engine) { ++num_since_poll_; }

    // ---- what has passed

    /// Before a search: covers frees that no event covers, and asks about events, where enough have gathered.
    void catch_up(lock& held, uncovered_frees& uncovered) KMM_REQUIRES(in_engine);
    /// Asks which recorded epochs have passed, of `most_timelines` streams and the device, and clears their fences.
    /// O(what is asked + pieces of the timelines that have moved).
    void poll(lock& held, std::size_t most_timelines = ~std::size_t{0}) KMM_REQUIRES(in_engine);
    /// For a request that found nothing. Blocks of one size do not merge: there, what has passed meanwhile serves only
    /// where streams may be out of reach.
    bool may_gain_by_poll() const noexcept KMM_REQUIRES(in_engine);
    /// Whether it has passed, says the driver. The answer serves others, too.
    bool asks_and_passes(lock& held, const heap::fence& use) KMM_REQUIRES(in_engine);
    /// Without the lock, which is held for the events alone: what has passed is cleared by a later request. False if
    /// nothing has, or the host has no memory to ask with.
    bool ask_about(std::span<const heap::fence> uses) noexcept;
    /// Begins an event of the device that covers all frees up to now; `record_device` must follow. False: there is no
    /// event.
    bool begin_device_recording(lock& held, recording* now) KMM_REQUIRES(in_engine);
    void record_device(lock& held, const recording& now) KMM_REQUIRES(in_engine);

    // ---- events of one stream

    /// An event is due on the arena's stream. Any thread.
    bool should_record(const arena& a) const noexcept;
    /// Factor on the base interval between events of the arena's stream. Any thread.
    std::uint32_t event_spacing(const arena& a) const noexcept;
    /// Without the lock, in a call that has brought the arena's stream: records an event that covers all frees on it so
    /// far. If that is impossible now, it is left to the next call.
    void record(arena& a, cuda_stream_view stream);
    /// The arena works for another stream from now on.
    void begin_anew(arena& a) const noexcept KMM_REQUIRES(in_engine);
    /// Notes the recordings of threads that did not wait for the lock. Called before any lookup of recorded events.
    void note_ended_recordings() KMM_REQUIRES(in_engine);
    /// A request found nothing to use at once.
    void note_failed_search() noexcept KMM_REQUIRES(in_engine) { ++num_failed_searches_; }

  private:
    // Large blocks that different streams freed merge, and are cut by best fit, only when their fences are known to
    // have passed: eight streams that fill a pool of 40 GiB reach 88.6 % with a poll every 4 frees, and 78.9 % with one
    // every 32 (H200, medians of 15 seeds).
    static constexpr std::size_t poll_after = 4;
    /// Timelines queried in one poll; the next poll queries others. A pool without stocks examines all blocks away
    /// after a poll, so that many small polls would cost more than they save.
    std::size_t timelines_per_poll() const noexcept { return facts_.has_stocks ? 8 : 32; }

    driver::Status prepare_waits(lock& held, const heap::fence_set& fences, std::uint64_t own, reach how_far,
                                 std::vector<pending_wait>* waits, bool* out_of_reach) KMM_REQUIRES(in_engine);
    driver::Status make_events(lock& held, std::size_t count) KMM_REQUIRES(in_engine);
    /// Records an event for each of the latest frees: of each stream of ours that can be named, and one of the device
    /// for all other streams, if it may be.
    void cover(lock& held, uncovered_frees& uncovered) KMM_REQUIRES(in_engine);
    void poll_in_turn(lock& held) KMM_REQUIRES(in_engine);
    bool ask_behind(lock& held, std::span<const heap::fence> uses) KMM_REQUIRES(in_engine);
    bool is_enough_for_event(std::size_t bytes, std::uint32_t spacing) const noexcept;
    bool may_put_off(const arena& a) const noexcept;
    bool begin_recording(arena& a, timeline& home, recording* now) KMM_REQUIRES(in_engine);
    void end_recording(arena& a, const ended_recording& ended) KMM_REQUIRES(in_engine);

    const pool_facts& facts_;
    engine_mutex& mutex_;
    timelines& timelines_;
    pool_heap& heap_;
    alignas(64) std::atomic<arena*> ended_{nullptr};  // see note_ended_recordings; frees read what is above
    std::uint64_t num_failed_searches_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t num_since_poll_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t poll_after_ KMM_GUARDED_BY(in_engine) = poll_after;  // grows while polls learn nothing
    std::size_t poll_above_ KMM_GUARDED_BY(in_engine) = 64;  // recorded epochs: then all timelines are asked about
    std::size_t num_to_ask_ KMM_GUARDED_BY(in_engine) = 0;   // timelines of that round that were not asked about yet
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
