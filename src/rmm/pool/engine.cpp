// Implements engine.hpp: handing blocks out and taking them back.
#include "rmm/pool/engine.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/reclaim.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Limit on the timelines out of reach whose memory one search avoids.
constexpr std::size_t most_avoided = 16;

}  // namespace

pool_engine::pool_engine(std::unique_ptr<virtual_source> source, const pool_options& options)
    : pool_engine(virtual_growth::traits_of(*source), options,
                  [&](pool_parts& parts) { return std::make_unique<virtual_growth>(parts, std::move(source)); }) {
    rmm::detail::enter_ledger(parts_.facts.device, *this);
}

pool_engine::pool_engine(device_async_resource_ref upstream, const pool_options& options)
    : pool_engine(growth_traits(), options,
                  [&](pool_parts& parts) { return std::make_unique<upstream_growth>(parts, upstream); }) {
    upstream_growth_ = static_cast<upstream_growth*>(growth_.get());
    if (options.initial_bytes != 0) take_initial_block(options.initial_bytes);
    rmm::detail::enter_ledger(parts_.facts.device, *this);
}

pool_engine::~pool_engine() {
    const rmm::detail::transit_scope until_it_is_the_drivers(parts_.facts.device);
    rmm::detail::leave_ledger(*this);
    driver::DeviceGuard on(parts_.facts.driver, parts_.facts.device);
    // The default stream, on which the memory goes back, comes after the last users. Streams that cannot be named any
    // more have left events, or the device is fenced.
    try {
        lock held(parts_.mutex);
        bool out_of_reach = false;
        const driver::Status status = parts_.fences.wait_for(held, parts_.streams.outstanding(), cuda_stream_view{},
                                                             heap::heap::no_timeline, reach::device, &out_of_reach);
        if (!status.ok() || out_of_reach) {
            const unlocked without(held);
            parts_.fences.wait_for_device();
        }
        // Virtual memory is unmapped at once, not in stream order.
        if (parts_.facts.traits.is_virtual) {
            const unlocked without(held);
            rmm::detail::report_failure(parts_.facts.driver.synchronize_stream({}),
                                        "wait for the users of a pool's memory");
        }
    } catch (const std::bad_alloc&) {
        parts_.fences.wait_for_device();
    }
    growth_->release();
}

// ---- handing out

void* pool_engine::allocate(std::size_t bytes, cuda_stream_view stream) {
    refusal why;
    if (void* const ptr = try_allocate(bytes, stream, &why)) [[likely]]
        return ptr;
    return allocate_short_of_memory(bytes, stream, &why);
}

void* pool_engine::try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    if (bytes > (parts_.facts.options.block_bytes != 0 ? parts_.facts.options.block_bytes
                                                       : std::numeric_limits<std::size_t>::max() / 2)) {
        why->why = refusal::cause::too_large;
        return nullptr;
    }
    const std::size_t size = parts_.facts.size_of(bytes);
    arena* known = nullptr;
    others_have others = others_have::not_known;
    if (size <= parts_.spans.small_limit()) {
        bool same_stream = false;
        arena* const a = parts_.arenas.at_hand(normalized(stream), &same_stream);
        known = same_stream ? a : nullptr;
        if (known != nullptr && parts_.facts.has_stocks) {
            const auto ask = [this](std::span<const heap::fence> uses) { return parts_.fences.ask_about(uses); };
            if (stocked_block* const block = parts_.stocks.take(*a, normalized(stream), &others, ask))
                return reinterpret_cast<void*>(block->address);
        } else if (known != nullptr && !a->shares.load(std::memory_order_relaxed)) {
            const kmm::locks::Guard in(a->mutex);
            // Unless the arena was rebound to another stream meanwhile.
            if (a->handle.load(std::memory_order_relaxed) == normalized(stream))
                if (const heap::span_heap::taken block = a->try_allocate(size, rmm::detail::current_tag()))
                    return reinterpret_cast<void*>(block.address);
        }
    }
    return allocate_slowly(size, stream, known, others, why);
}

void* pool_engine::allocate_at_hand(std::size_t bytes, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = normalized(stream);
    if (handle != rmm::detail::legacy_stream_handle() || bytes == 0 || parts_.facts.options.block_bytes != 0)
        return nullptr;
    const std::size_t limit = parts_.spans.small_limit();
    if (bytes > limit || parts_.facts.size_of(bytes) > limit) return nullptr;
    arena* const a = parts_.arenas.at_hand(handle, nullptr);
    if (a == nullptr || a->shares.load(std::memory_order_relaxed)) return nullptr;
    kmm::locks::Lock in(a->mutex, std::defer_lock);
    if (!in.try_lock() || a->handle.load(std::memory_order_relaxed) != handle) return nullptr;
    try {
        return reinterpret_cast<void*>(
            a->try_allocate(parts_.facts.size_of(bytes), rmm::detail::current_tag()).address);
    } catch (const std::exception&) {
        return nullptr;  // a blocking allocation reports the error
    }
}

void* pool_engine::allocate_short_of_memory(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    // What is freed while a stream is captured could not be ordered before the capture.
    if (why->why == refusal::cause::exhausted && capture_of(parts_.facts.driver, stream) == 0) {
        rmm::detail::reclaim_rounds others(parts_.facts.device, parts_.facts.size_of(bytes), stream, this);
        while (others.ask(why->device_is_full && parts_.facts.options.on_device)) {
            *why = {};
            if (void* const ptr = try_allocate(bytes, stream, why)) return ptr;
            if (why->why != refusal::cause::exhausted) break;
        }
    }
    throw_refusal(bytes, *why, stream);
}

void pool_engine::throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream) {
    const pool_account has = account(why);
    shortage(parts_.facts, has, bytes, stream).raise(why);
}

/// What the pool begins with, in one block. Throws where upstream has it not even after others were asked.
void pool_engine::take_initial_block(std::size_t bytes) {
    rmm::detail::reclaim_rounds others(parts_.facts.device, bytes, cuda_stream_view{}, this);
    refusal why;
    do {
        if (upstream_growth_->take_initial_block(&why)) return;
    } while (others.ask(why.device_is_full && parts_.facts.options.on_device));
    why.why = refusal::cause::exhausted;
    throw_refusal(bytes, why, cuda_stream_view{});
}

device_async_resource_ref pool_engine::upstream() const noexcept { return upstream_growth_->upstream(); }

bool pool_engine::grow_ahead(std::size_t bytes, std::size_t target_bytes) {
    return upstream_growth_->grow_ahead(bytes, target_bytes);
}

/// `known`: the stream's arena, if the stream was verified and is not captured. `others`: result of the last scan of
/// other streams' stocks.
void* pool_engine::allocate_slowly(std::size_t size, cuda_stream_view stream, arena* known, others_have others,
                                   refusal* why) {
    if (known != nullptr) {
        lock held(parts_.mutex);
        if (const std::optional<arena_call> call = parts_.arenas.call_on(held, *known, normalized(stream)))
            return allocate_in_turn(held, size, **call, stream, others, why);
    } else if (const std::optional<arena_call> call = parts_.arenas.bound(stream)) {
        lock held(parts_.mutex);
        return allocate_in_turn(held, size, **call, stream, others, why);
    }
    if (const std::uint64_t capture = capture_of(parts_.facts.driver, stream))
        return captures_.allocate(size, stream, capture, why);
    const arena_call call = parts_.arenas.of(stream);
    lock held(parts_.mutex);
    return allocate_in_turn(held, size, *call, stream, others, why);
}

/// Maintenance before a search: ended captures, events, polls, and a span for the arena.
void pool_engine::tend(lock& held, std::size_t size, arena& a) {
    captures_.release_ended();
    parts_.fences.catch_up(held, parts_.uncovered);
    if (parts_.facts.has_stocks || size > parts_.spans.small_limit()) return;
    if (!growth_->give_own_span(held, size, parts_.spans.choose(a))) parts_.spans.refuse_fresh_spans();
}

void* pool_engine::allocate_in_turn(lock& held, std::size_t size, arena& a, cuda_stream_view stream, others_have others,
                                    refusal* why) {
    tend(held, size, a);
    bool polled = false;
    bool in_vain = false;
    bool takes_all_spans = growth_->comes_after_arenas(size);
    for (;;) {
        parts_.fences.note_ended_recordings();
        if (piece ready = parts_.find_ready(size, a)) {
            if (!growth_->cut_behind(held, &ready)) continue;
            return parts_.hand_out(std::move(ready), stream);
        }
        if (parts_.facts.has_stocks && others != others_have::nothing) {
            const bool may_ask = std::exchange(others, others_have::nothing) == others_have::not_known;
            heap::fence behind;
            if (parts_.stocks.put_best_first(a, &behind) ||
                (may_ask && behind.position != 0 && parts_.fences.asks_and_passes(held, behind)))
                if (piece best = parts_.stocks.take_passed(a)) return parts_.hand_out(std::move(best), stream);
        }
        if (!std::exchange(in_vain, true)) parts_.fences.note_failed_search();
        if (growth_->is_better_than_waiting(size, parts_.spans.spans_of(a))) {
            refusal ignored;
            if (piece grown = growth_->grow_rather_than_wait(held, size, a, stream, &ignored)) {
                if (void* const ptr =
                        try_piece(held, std::move(grown), a, stream, parts_.fences.last_resort_of_streams(), why))
                    return ptr;
                if (why->why == refusal::cause::driver) return nullptr;
            }
            parts_.spans.refuse_fresh_spans();
        }
        // Memory of ended streams needs an event of the device. Growing instead would be unbounded; but once captures
        // were seen, no such event is recorded here, as it could spoil one.
        if (void* const ptr =
                try_fenced(held, size, a, stream, parts_.fences.last_resort_of_streams(), takes_all_spans, why))
            return ptr;
        if (why->why == refusal::cause::driver) return nullptr;
        if (!polled && parts_.fences.may_gain_by_poll()) {
            parts_.fences.poll(held);
            polled = true;
            continue;
        }
        if (parts_.turn.is_of_another_thread()) {
            parts_.turn.wait_for_end(held, size);
            polled = false;
            continue;
        }
        if (piece grown = growth_->grow(held, size, a, stream, why))
            return try_piece(held, std::move(grown), a, stream, reach::device, why);
        if (!takes_all_spans && why->why == refusal::cause::exhausted) {
            growth_->note_collected(parts_.collect(true));
            takes_all_spans = true;
            continue;
        }
        // Other threads may have freed memory during the call of upstream; and now any free memory must do.
        if (piece ready = parts_.find_ready(size, a)) return parts_.hand_out(std::move(ready), stream);
        return try_fenced(held, size, a, stream, reach::device, true, why);
    }
}

/// Makes the stream wait for the piece's last users, and hands it out; else puts it back. Null for an empty piece, for
/// one that cannot be waited for now (`*unreachable`: the timeline of a stream that is captured, or is farther away
/// than allowed), and where the driver refuses. `*why`: the refusal of the driver; a capture, if nothing else is known.
void* pool_engine::try_piece(lock& held, piece taken, const arena& a, cuda_stream_view stream, reach how_far,
                             refusal* why, std::uint64_t* unreachable) {
    if (!taken) return nullptr;
    try {
        bool out_of_reach = false;
        const driver::Status status = taken.fences.empty()
                                          ? driver::Status{}
                                          : parts_.fences.wait_for(held, taken.fences, stream, a.own_number(), how_far,
                                                                   &out_of_reach, unreachable);
        if (status.code == driver::Code::capture_error) {
            if (why->why == refusal::cause::none) {
                why->why = refusal::cause::exhausted;
                why->reason = "what is free cannot be waited for while a stream is captured";
            }
        } else if (!status.ok()) {
            why->why = refusal::cause::driver;
            why->status = status;
        }
        if (!status.ok() || out_of_reach) {
            parts_.put_back(std::move(taken));
            return nullptr;
        }
    } catch (...) {
        parts_.put_back(std::move(taken));
        throw;
    }
    return parts_.hand_out(std::move(taken), stream);
}

/// As `try_piece`, for memory that other streams used last, except streams that cannot be waited for now.
void* pool_engine::try_fenced(lock& held, std::size_t size, arena& a, cuda_stream_view stream, reach how_far,
                              bool all_spans, refusal* why) {
    std::vector<std::uint64_t> avoided;
    for (;;) {
        piece found = parts_.find_fenced(size, a, avoided, all_spans);
        if (!growth_->cut_behind(held, &found)) continue;
        if (parts_.facts.has_stocks && found.from == nullptr) drop_passed_fence(held, &found);
        // Memory that many streams wait for, as that of upstream may be, is ready for all after a poll, and goes into
        // spans.
        if (!found.fences.empty()) parts_.fences.count_towards_poll();
        std::uint64_t unreachable = heap::heap::no_timeline;
        if (void* const ptr = try_piece(held, std::move(found), a, stream, how_far, why, &unreachable)) return ptr;
        if (unreachable == heap::heap::no_timeline || avoided.size() == most_avoided) return nullptr;
        avoided.push_back(unreachable);
    }
}

/// A piece that waits for one stream waits no more, if the driver says that this has passed. Lets the lock go.
void pool_engine::drop_passed_fence(lock& held, piece* taken) {
    if (!*taken || taken->fences.size() != 1) return;
    try {
        if (parts_.fences.asks_and_passes(held, *taken->fences.begin())) taken->fences = {};
    } catch (...) {
        parts_.put_back(std::move(*taken));
        throw;
    }
}

// ---- taking back

void pool_engine::free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    try {
        if (captures_.any() && captures_.free(address, bytes, streams)) return;
        if (parts_.facts.has_stocks)
            if (stocked_block* const block = parts_.stocks.blocks().take_back(address))
                return free_stocked(*block, address, streams);
        arena* const owner = parts_.spans.owner_of(address);
        if (owner != nullptr && streams.size() == 1)
            free_in_arena(*owner, address, bytes, streams.front());
        else
            free_behind(owner, address, bytes, streams);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

void pool_engine::free_in_arena(arena& owner, std::uintptr_t address, std::size_t bytes, cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
    // The default streams of threads share a handle: only the thread's own arena tells.
    const bool at_home =
        owner.handle.load(std::memory_order_relaxed) == handle &&
        (handle != rmm::detail::per_thread_stream_handle() || parts_.arenas.at_hand(handle, nullptr) == &owner);
    arena* recorder = &owner;
    std::size_t true_size = 0;
    bool done = false;
    if (at_home) {
        const kmm::locks::Guard in(owner.mutex);
        if (owner.handle.load(std::memory_order_relaxed) == handle &&
            !owner.home.load(std::memory_order_relaxed)->has_ended()) {
            true_size = parts_.spans.free_at_home(owner, address);
            done = true;
        }
    }
    if (!done) {
        heap::fence_set fences;
        fences.add(parts_.arenas.fence_now(stream, bytes, &recorder));
        true_size = parts_.spans.send_away(owner, address, std::move(fences));
    }
    if (true_size != parts_.facts.size_of(bytes)) parts_.report_size(address, bytes, true_size);
    parts_.arenas.record_if_due(*recorder, stream);
}

bool pool_engine::free_at_hand(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    const cudaStream_t handle = normalized(stream);
    if (handle != rmm::detail::legacy_stream_handle() || parts_.facts.has_stocks || address == 0) return false;
    if (captures_.any() || parts_.facts.options.block_bytes != 0) return false;
    arena* const owner = parts_.spans.owner_of(address);
    // An event that is due is recorded by a free that may call the driver.
    if (owner == nullptr || owner->handle.load(std::memory_order_relaxed) != handle ||
        parts_.fences.should_record(*owner))
        return false;
    kmm::locks::Lock in(owner->mutex, std::defer_lock);
    if (!in.try_lock() || owner->handle.load(std::memory_order_relaxed) != handle) return false;
    const std::size_t true_size = parts_.spans.free_at_home(*owner, address);
    if (true_size != 0 && true_size != parts_.facts.size_of(bytes)) parts_.report_size(address, bytes, true_size);
    return true_size != 0;
}

/// A block of the heap, or one that several streams use last.
void pool_engine::free_behind(arena* owner, std::uintptr_t address, std::size_t bytes,
                              std::span<const cuda_stream_view> streams) {
    heap::fence_set fences;
    for (cuda_stream_view stream : streams) {
        arena* recorder = nullptr;
        fences.add(parts_.arenas.fence_now(stream, parts_.facts.size_of(bytes), &recorder));
        parts_.arenas.record_if_due(*recorder, stream);
    }
    std::size_t true_size = 0;
    if (owner != nullptr) {
        true_size = parts_.spans.send_away(*owner, address, std::move(fences));
    } else {
        const lock held(parts_.mutex);
        if (const auto block = parts_.large.take(address)) {
            true_size = block->size_bytes;
            parts_.fences.count_towards_poll();
            parts_.uncovered.note_large(fences);
            parts_.heap.give(block->area, address, true_size, std::move(fences));
        }
    }
    if (owner == nullptr) release_surplus();
    if (true_size != parts_.facts.size_of(bytes)) parts_.report_size(address, bytes, true_size);
}

/// A block of a stock, which is noted as not in use already, goes to the stock of the stream that frees it; into the
/// heap where several streams used it, none, or one that cannot be told from others.
void pool_engine::free_stocked(stocked_block& block, std::uintptr_t address,
                               std::span<const cuda_stream_view> streams) {
    const std::size_t size = parts_.facts.options.block_bytes;
    heap::fence_set fences;
    for (cuda_stream_view stream : streams) {
        arena* recorder = nullptr;
        bool is_stocked = false;
        parts_.arenas.with_home(stream, [&](arena& a, timeline& home) {
            a.expect_held();
            recorder = &a;
            const heap::fence now = home.fence_now();
            is_stocked = streams.size() == 1 && a.own_number() != heap::heap::no_timeline;
            // A block that goes into the heap is not among the uncovered blocks of the stock.
            a.count_free(size, is_stocked ? 1 : parts_.fences.event_spacing(a));
            if (is_stocked)
                parts_.stocks.take_in(a, block, now.position);
            else
                fences.add(now);
        });
        parts_.arenas.record_if_due(*recorder, stream);
        if (is_stocked) return;
    }
    const lock held(parts_.mutex);
    {
        const kmm::locks::Guard in(parts_.arenas.common().mutex);
        parts_.arenas.common().count_out(-1);
    }
    parts_.fences.count_towards_poll();
    parts_.uncovered.note_large(fences);
    parts_.heap.give(0, address, size, std::move(fences));
}

/// In a free: trims unused memory beyond the release threshold. O(1) if none is set, else O(arenas with spans).
void pool_engine::release_surplus() {
    const std::size_t keep = release_above_.load(std::memory_order_relaxed);
    // Giving memory back orders the legacy stream, which spoils captures.
    if (keep == no_threshold || has_seen_captures()) return;
    lock held(parts_.mutex);
    const std::size_t unused = parts_.unused_bytes();
    // A free never waits for a growth: upstream may be waiting for just this memory.
    if (unused <= std::max(keep, trim_above_) || parts_.turn.is_taken()) return;
    std::size_t released = 0;
    try {
        released = trim(held, parts_.facts.held_bytes() - std::min(unused - keep, parts_.facts.held_bytes()));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a pool could not give memory back: ", e.what());
    }
    // If nothing could be released, retry only when an eighth more is unused.
    trim_above_ = released > 0 ? 0 : parts_.unused_bytes() + parts_.unused_bytes() / 8;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
