// Implements arena_table.hpp.
//
// A handle does not identify a stream. An arena is bound to an identified stream. An allocation checks that the handle
// still is this stream (14 ns on a GPU), and rebinds if not. A free does not check, and may be attributed to the
// previous stream of the handle. That is harmless: such a free stays unfenced until either an allocation has verified
// the stream (then it was the same all the time), or an event of the whole device covers both streams.
#include "rmm/pool/arena_table.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::identify;
using rmm::detail::stream_identity;
using rmm::detail::stream_kind;

/// Cached result of a thread's last lookup of a handle in a pool.
struct remembered {
    std::uint64_t pool = 0;
    cudaStream_t handle = nullptr;
    arena* at = nullptr;
    std::uint64_t generation = 0;  // of our own streams
};
// A thread works with up to some 64 streams of a few pools; two neighbouring slots serve one place. One that looks up
// thousands again and again gets more slots, 32 bytes each.
constexpr unsigned first_slots_log2 = 8;
constexpr unsigned most_slots_log2 = 14;
// Trivial, so that frees during the destruction of thread-local objects may use them.
thread_local std::array<remembered, std::size_t{1} << first_slots_log2> first_slots;
thread_local remembered* more_slots = nullptr;
thread_local unsigned slots_log2 = first_slots_log2;
thread_local std::uint32_t num_forgotten = 0;  // repeated lookups of evicted handles since the last growth
struct more_slots_owner {
    ~more_slots_owner() {
        slots_log2 = first_slots_log2;
        delete[] std::exchange(more_slots, nullptr);
    }
    void grow() noexcept {
        auto* const made = new (std::nothrow) remembered[std::size_t{1} << (slots_log2 + 2)];
        num_forgotten = 0;
        if (made == nullptr) return;
        slots_log2 += 2;
        delete[] std::exchange(more_slots, made);
    }
};

remembered* slots() noexcept { return more_slots != nullptr ? more_slots : first_slots.data(); }

std::size_t place_of(std::uint64_t pool, cudaStream_t handle) noexcept {
    // Handles are addresses, or numbers of the host driver in steps of 256.
    const std::uint64_t key = reinterpret_cast<std::uintptr_t>(handle) / 16 + pool * 0x51ed27;
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> (64 - slots_log2));  // 2^64 over the golden ratio
}

remembered* recall(std::uint64_t pool, cudaStream_t handle) noexcept {
    const std::size_t place = place_of(pool, handle);
    remembered* const all = slots();
    for (const std::size_t i : {place, place ^ 1})
        if (all[i].handle == handle && all[i].pool == pool) return &all[i];
    return nullptr;
}

/// `again`: the thread, or another, has looked it up before.
void remember(const remembered& what, bool again) noexcept {
    remembered* slot = recall(what.pool, what.handle);
    if (slot == nullptr) {
        if (again && ++num_forgotten >= 4u << slots_log2 && slots_log2 < most_slots_log2 &&
            !rmm::detail::this_thread_is_ending()) {
            thread_local more_slots_owner owner;
            owner.grow();
        }
        const std::size_t place = place_of(what.pool, what.handle);
        remembered* const all = slots();
        all[place ^ 1] = all[place];
        slot = &all[place];
    }
    *slot = what;
}

// Orphans examined for a new stream before it gets a new arena.
constexpr std::size_t max_orphans_asked = 4;
// Arenas checked in turn for ended streams, per new stream: more than one, so that arenas of ended streams stay a small
// part of all.
constexpr std::size_t arenas_looked_at = 8;
// The end of a foreign stream cannot be detected: beyond `kept_unused_` arenas, one that was unused between two checks
// goes to another stream. If its stream comes back, more streams are in use than that, and `kept_unused_` doubles, up
// to this limit: 10 MiB of host memory.
constexpr std::size_t most_kept_unused = 4096;
// An event of the device covers the frees of orphans whose streams left no event. It takes the driver as long as one
// new stream for each group of this many timelines, so it is recorded that rarely.
constexpr std::size_t timelines_per_bind = 64;
// Timelines without an arena that accumulate before `forget_what_left` runs.
constexpr std::size_t most_left = 64;

std::uint64_t next_uid() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

arena_table::arena_table(pool_facts& facts, engine_mutex& mutex, timelines& streams, pool_heap& heap,
                         pool_fences& fences, stock_signs& signs)
    : facts_(facts), mutex_(mutex), timelines_(streams), heap_(heap), fences_(fences), signs_(signs), uid_(next_uid()) {
    lock held(mutex_);
    common_ = &add();
    common_->kind = stream_kind::unknown;
    common_->number = heap::heap::no_timeline;
    // Made now, so that a free has it where the host has no memory for another.
    unknown_ = &bind(held, {stream_kind::unknown, rmm::detail::unknown_number, nullptr}, arena::no_stream());
}

/// One without a stream.
arena& arena_table::add() {
    arena& a = *arenas_.emplace_back(std::make_unique<arena>());
    facts_.arenas.store(arenas_.size(), std::memory_order_relaxed);
    return a;
}

arena* arena_table::at_hand(cudaStream_t handle, bool* same_stream) noexcept {
    if (handle == rmm::detail::per_thread_stream_handle() && rmm::detail::this_thread_is_ending()) return nullptr;
    remembered* const known = recall(uid_, handle);
    if (known == nullptr || known->at->handle.load(std::memory_order_relaxed) != handle) return nullptr;
    arena* const a = known->at;
    if (!a->is_used.load(std::memory_order_relaxed)) a->is_used.store(true, std::memory_order_relaxed);
    if (same_stream == nullptr) return a;
    const stream_kind kind = a->kind.load(std::memory_order_relaxed);
    if (kind == stream_kind::legacy) {
        *same_stream = true;
        return a;
    }
    *same_stream = false;
    driver::CaptureStatus captured = driver::CaptureStatus::none;
    if (!facts_.driver.capture_status(driver::StreamHandle{handle}, &captured, nullptr).ok() ||
        captured != driver::CaptureStatus::none)
        return a;
    if (kind == stream_kind::foreign) {
        std::uint64_t id = 0;
        *same_stream = facts_.driver.stream_id(driver::StreamHandle{handle}, &id).ok() &&
                       rmm::detail::foreign_number(id) == a->number.load(std::memory_order_relaxed);
    } else if (kind == stream_kind::per_thread) {
        *same_stream = true;
    } else if (const std::uint64_t now = rmm::detail::owned_streams_generation(); known->generation == now) {
        *same_stream = true;
    } else {
        // Some stream of ours was made or destroyed since.
        *same_stream =
            identify(facts_.driver, cuda_stream_view{handle}).number == a->number.load(std::memory_order_relaxed);
        if (*same_stream) known->generation = now;
    }
    return a;
}

/// Nothing if the arena of a foreign stream was rebound, which may happen while no call uses it.
std::optional<arena_call> arena_table::call_on(const lock&, arena& a, cudaStream_t handle) noexcept {
    if (a.kind.load(std::memory_order_relaxed) == stream_kind::foreign && a.handle != handle) return std::nullopt;
    return arena_call(a);
}

std::optional<arena_call> arena_table::bound(cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    bool same_stream = false;
    arena* const a = at_hand(handle, &same_stream);
    if (a == nullptr || !same_stream) return std::nullopt;
    if (a->kind.load(std::memory_order_relaxed) != stream_kind::foreign) return arena_call(*a);
    const lock held(mutex_);
    return call_on(held, *a, handle);
}

arena_call arena_table::of(cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
    if (std::optional<arena_call> known = bound(stream)) return std::move(*known);
    const std::uint64_t generation = rmm::detail::owned_streams_generation();
    stream_identity who;
    if (handle != rmm::detail::legacy_stream_handle())
        who = is_captured(facts_.driver, stream)
                  ? stream_identity{stream_kind::unknown, rmm::detail::unknown_number, nullptr}
                  : identify(facts_.driver, stream);
    // The pool's events are those of its device; a stream of another one is waited for where it frees.
    if ((who.kind == stream_kind::foreign || who.kind == stream_kind::owned) &&
        is_of_other_device(facts_.driver, facts_.device, stream))
        who = {stream_kind::unknown, rmm::detail::unknown_number, nullptr};
    lock held(mutex_);
    arena* const* const known = by_number_.find(who.number + 1);
    arena& a = known != nullptr ? **known : bind(held, who, handle);
    if (who.kind != stream_kind::unknown) remember({uid_, handle, &a, generation}, known != nullptr);
    a.is_used.store(true, std::memory_order_relaxed);
    return arena_call(a);
}

arena& arena_table::of_free(cuda_stream_view stream) {
    try {
        return *of(stream);
    } catch (const std::bad_alloc&) {
        return *unknown_;  // an event of the device covers it
    }
}

/// No event of the pool's device would cover what is freed on it.
void arena_table::wait_if_of_other_device(cuda_stream_view stream) noexcept {
    if (!is_of_other_device(facts_.driver, facts_.device, stream)) return;
    rmm::detail::report_failure(facts_.driver.synchronize_stream(rmm::detail::handle_of(stream)),
                                "wait for a stream of another device");
}

heap::fence arena_table::fence_now(cuda_stream_view stream, std::size_t bytes, arena** recorder) {
    heap::fence now;
    with_home(stream, [&](arena& a, timeline& home) {
        *recorder = &a;
        a.count_free(bytes);
        now = home.fence_now();
    });
    return now;
}

/// Skipped if the handle names another stream now.
void arena_table::record(arena& a, cuda_stream_view stream) {
    bool same_stream = false;
    if (at_hand(normalized(stream), &same_stream) == &a && same_stream) fences_.record(a, stream);
}

arena& arena_table::bind(lock& held, const stream_identity& who, cudaStream_t handle) {
    fences_.note_ended_recordings();
    const bool has_handle = who.kind != stream_kind::per_thread && who.kind != stream_kind::unknown;
    if (has_handle)
        if (const auto stale = by_handle_.find(handle); stale != by_handle_.end()) orphan(*stale->second);
    if (who.kind == stream_kind::foreign && arenas_.size() > kept_unused_ &&
        std::find(taken_unused_.begin(), taken_unused_.end(), who.number + 1) != taken_unused_.end())
        kept_unused_ = std::min(2 * kept_unused_, most_kept_unused);
    orphan_unused();
    if (timelines_.num_left() > forget_above_) forget_what_left(held);
    arena* a = who.kind == stream_kind::unknown ? nullptr : take_clean_orphan(held);
    if (arena* const* const meanwhile = by_number_.find(who.number + 1)) {
        if (a != nullptr) orphans_.push_front(*a);
        return **meanwhile;
    }
    if (a == nullptr) a = &add();
    try {
        if (facts_.has_stocks && who.kind != stream_kind::unknown) {
            const kmm::locks::Guard in(a->mutex);
            if (a->stock.sign() == nullptr) a->stock.set_sign(signs_.add(*a));
        }
        timeline& home = timelines_.at(who);
        by_number_.reserve_one();
        if (has_handle) by_handle_[handle] = a;
        by_number_.insert(who.number + 1, a);
        const kmm::locks::Guard in(a->mutex);
        timelines_.hold(home);
        if (stock_sign* const sign = a->stock.sign()) {
            // Its last timeline may be shown by the arena of a stream that has come back.
            if (timeline* before = a->home; before != nullptr && before->shown == &sign->home)
                timelines::show(*before, nullptr);
            timelines::show(home, &sign->home);
        }
        if (timeline* before = a->home) timelines_.let_go(*before);
        a->home = &home;
        a->number = who.number;
        a->kind = who.kind;
        fences_.begin_anew(*a);
        a->drained_at = arena::never;
        ++a->term;  // the previous stream has passed all frees in the stock
        a->stock.cover();
        a->shares = false;
        a->num_shared = 0;
        a->handle = who.kind == stream_kind::unknown ? arena::no_stream() : handle;
    } catch (...) {
        orphans_.push_front(*a);
        throw;
    }
    return *a;
}

/// Unbinds the arena from its stream, which has ended, or was not seen for long and gets another arena if it comes
/// back.
void arena_table::orphan(arena& a) noexcept {
    by_number_.take(a.number + 1);
    by_handle_.erase(a.handle);
    const kmm::locks::Guard in(a.mutex);
    a.handle = arena::no_stream();
    orphans_.push_back(a);
}

/// Ends of threads and streams are not notified: each new stream pays for a check of some arenas.
void arena_table::orphan_unused() noexcept {
    for (std::size_t i = std::min(arenas_looked_at, arenas_.size()); i > 0; --i) {
        next_looked_at_ = (next_looked_at_ + 1) % arenas_.size();
        arena& a = *arenas_[next_looked_at_];
        timelines_.count_steps();
        if (a.handle == arena::no_stream()) continue;
        bool is_over = false;
        switch (a.kind.load(std::memory_order_relaxed)) {
        case stream_kind::per_thread: is_over = rmm::detail::thread_has_ended(a.number); break;
        case stream_kind::owned: is_over = a.home.load()->has_ended(); break;
        case stream_kind::foreign:
            is_over = !a.is_used.exchange(false, std::memory_order_relaxed) && arenas_.size() > kept_unused_ &&
                      a.num_callers.load(std::memory_order_acquire) == 0;
            if (is_over) taken_unused_[num_taken_unused_++ % taken_unused_.size()] = a.number + 1;
            break;
        case stream_kind::legacy:
        case stream_kind::unknown: break;
        }
        if (is_over) orphan(a);
    }
}

/// Whether the free memory of an arena without a stream is ready for every stream; and the epoch of the last free of
/// its previous stream here.
bool arena_table::is_clean(arena& a, std::uint64_t* last_freed) noexcept {
    const kmm::locks::Guard in(a.mutex);
    *last_freed = a.last_freed;
    const timeline* const home = a.home.load();
    return home == nullptr || timelines_.has_passed({home->number, a.last_freed}) ||
           (a.heap.num_spans() == 0 && a.away.empty() && a.stock.empty());
}

/// An arena without a stream whose free memory is ready for every stream, or null. Releases the lock for driver calls.
arena* arena_table::take_clean_orphan(lock& held) {
    bool is_uncovered = false;
    for (std::size_t n = std::min(max_orphans_asked, orphans_.size()); n > 0 && !orphans_.empty(); --n) {
        // Off the list, no other thread takes it during the driver call, and it keeps its timeline.
        arena* const a = orphans_.take_front();
        timelines_.count_steps();
        std::uint64_t last_freed = 0;
        try {
            if (is_clean(*a, &last_freed)) return a;
            std::vector<timelines::question> few;
            timelines_.add_questions_about(*a->home.load(), last_freed, &few);
            if (few.empty()) {
                is_uncovered = true;
            } else {
                {
                    const unlocked without(held);
                    timelines_.ask(few);
                }
                timelines_.answer(few);
            }
        } catch (...) {
            orphans_.push_back(*a);
            throw;
        }
        if (is_clean(*a, &last_freed)) return a;
        orphans_.push_back(*a);
    }
    ++binds_since_device_event_;
    if (is_uncovered && fences_.may_record_device() &&
        binds_since_device_event_ * timelines_per_bind >= timelines_.size())
        cover_by_device(held);
    return nullptr;
}

/// Records an event of the device, which covers all frees so far. Releases the lock meanwhile.
void arena_table::cover_by_device(lock& held) {
    recording now;
    if (!fences_.begin_device_recording(held, &now)) return;
    binds_since_device_event_ = 0;
    fences_.record_device(held, now);
}

/// Forgets timelines without an arena whose frees have all passed; covers the others by an event of the device.
void arena_table::forget_what_left(lock& held) {
    for (const bool again : {true, false}) {
        if (timelines_.num_recorded() > 0) {
            std::vector<timelines::question> questions = timelines_.questions(most_left);
            {
                const unlocked without(held);
                timelines_.ask(questions);
            }
            timelines_.answer(questions);
        }
        heap_.clear_passed();
        if (!again || timelines_.num_left() <= most_left || !fences_.may_record_device()) break;
        cover_by_device(held);
    }
    forget_above_ = timelines_.num_left() + most_left;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
