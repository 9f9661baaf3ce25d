// Implements engine.hpp: handing blocks out and taking them back.
#include "rmm/pool/engine.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/pool/captures.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/shortage.hpp"
#include "rmm/reclaim.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::stream_kind;

// Requests after a refused span for which no fresh memory is sought for another: a search costs as much as many
// requests.
constexpr std::size_t requests_per_refused_span = 256;

// Limit on the timelines out of reach whose memory one search avoids.
constexpr std::size_t most_avoided = 16;

}  // namespace

pool_engine::pool_engine(const growth_traits& traits, const pool_options& options)
    : facts_(rmm::detail::the_driver(), rmm::detail::current_device(), traits, options),
      registration_(make_memory_registration(facts_.driver, read_debug_environment().nvtx, traits.is_virtual)),
      blocks_(std::max(options.block_bytes, pool_facts::smallest_stocked_bytes)),
      timelines_(facts_.driver, facts_.device, mutex_.gone()),
      heap_(facts_, timelines_),
      turn_(facts_.device),
      fences_(facts_, mutex_, timelines_, heap_),
      arenas_(facts_, mutex_, timelines_, heap_, fences_, signs_),
      uncovered_(arenas_.common().mutex),
      captures_(std::make_unique<captures>(*this)),
      common_(&arenas_.common()) {}

pool_engine::pool_engine(std::unique_ptr<virtual_source> source, const pool_options& options)
    : pool_engine(virtual_growth::traits_of(*source), options) {
    growth_ = std::make_unique<virtual_growth>(*this, std::move(source));
    update_small_limit();
    rmm::detail::enter_ledger(facts_.device, *this);
}

pool_engine::pool_engine(device_async_resource_ref upstream, const pool_options& options)
    : pool_engine(growth_traits(), options) {
    auto growing = std::make_unique<upstream_growth>(*this, upstream);
    upstream_growth_ = growing.get();
    growth_ = std::move(growing);
    update_small_limit();
    if (options.initial_bytes != 0) upstream_growth_->take_initial_block();
    rmm::detail::enter_ledger(facts_.device, *this);
}

pool_engine::~pool_engine() {
    const rmm::detail::transit_scope until_it_is_the_drivers(facts_.device);
    rmm::detail::leave_ledger(*this);
    driver::DeviceGuard on(facts_.driver, facts_.device);
    // The default stream, on which the memory goes back, comes after the last users. Streams that cannot be named any
    // more have left events, or the device is fenced.
    try {
        lock held(mutex_);
        bool out_of_reach = false;
        const driver::Status status = fences_.wait_for(held, timelines_.outstanding(), cuda_stream_view{},
                                                       heap::heap::no_timeline, reach::device, &out_of_reach);
        if (!status.ok() || out_of_reach) fences_.wait_for_device();
        // Virtual memory is unmapped at once, not in stream order.
        if (facts_.traits.is_virtual) {
            const unlocked without(held);
            rmm::detail::report_failure(facts_.driver.synchronize_stream({}), "wait for the users of a pool's memory");
        }
    } catch (const std::bad_alloc&) {
        fences_.wait_for_device();
    }
    if (growth_ != nullptr) growth_->release();  // none where the host had no memory for it
}

/// When memory or an arena with spans has come or gone.
void pool_engine::update_small_limit() noexcept {
    small_limit_.store(growth_->small_limit(), std::memory_order_relaxed);
}

// ---- handing out

void* pool_engine::allocate(std::size_t bytes, cuda_stream_view stream) {
    refusal why;
    if (void* const ptr = try_allocate(bytes, stream, &why)) [[likely]]
        return ptr;
    return allocate_short_of_memory(bytes, stream, &why);
}

void* pool_engine::try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    if (bytes >
        (facts_.options.block_bytes != 0 ? facts_.options.block_bytes : std::numeric_limits<std::size_t>::max() / 2)) {
        why->why = refusal::cause::too_large;
        return nullptr;
    }
    const std::size_t size = facts_.size_of(bytes);
    arena* known = nullptr;
    others_have others = others_have::not_known;
    if (size <= small_limit_.load(std::memory_order_relaxed)) {
        bool same_stream = false;
        arena* const a = arenas_.at_hand(normalized(stream), &same_stream);
        known = same_stream ? a : nullptr;
        if (known != nullptr && facts_.has_stocks) {
            if (stocked_block* const block = take_stocked(*a, normalized(stream), &others))
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
    if (handle != rmm::detail::legacy_stream_handle() || bytes == 0 || facts_.options.block_bytes != 0) return nullptr;
    const std::size_t limit = small_limit_.load(std::memory_order_relaxed);
    if (bytes > limit || facts_.size_of(bytes) > limit) return nullptr;
    arena* const a = arenas_.at_hand(handle, nullptr);
    if (a == nullptr || a->shares.load(std::memory_order_relaxed)) return nullptr;
    kmm::locks::Lock in(a->mutex, std::defer_lock);
    if (!in.try_lock() || a->handle.load(std::memory_order_relaxed) != handle) return nullptr;
    try {
        return reinterpret_cast<void*>(a->try_allocate(facts_.size_of(bytes), rmm::detail::current_tag()).address);
    } catch (const std::exception&) {
        return nullptr;  // a blocking allocation reports the error
    }
}

void* pool_engine::allocate_short_of_memory(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    // What is freed while a stream is captured could not be ordered before the capture.
    if (why->why == refusal::cause::exhausted && capture_of(facts_.driver, stream) == 0) {
        rmm::detail::reclaim_rounds others(facts_.device, facts_.size_of(bytes), stream, this);
        while (others.ask(why->device_is_full && facts_.options.on_device)) {
            *why = {};
            if (void* const ptr = try_allocate(bytes, stream, why)) return ptr;
            if (why->why != refusal::cause::exhausted) break;
        }
    }
    throw_refusal(bytes, *why, stream);
}

void pool_engine::throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream) {
    pool_account account;
    account.self = this;
    if (why.why == refusal::cause::exhausted) {
        account.now = statistics();
        if (shortage::names_holders()) {
            add_by_tag(&account.by_tag);
            account.by_stream = in_use_by_stream();
        }
    }
    {
        const lock held(mutex_);
        account.name = name_in_texts();
    }
    shortage(facts_, account, bytes, stream).raise(why);
}

/// `known`: the stream's arena, if the stream was verified and is not captured. `others`: result of the last scan of
/// other streams' stocks.
void* pool_engine::allocate_slowly(std::size_t size, cuda_stream_view stream, arena* known, others_have others,
                                   refusal* why) {
    if (known != nullptr) {
        lock held(mutex_);
        if (const std::optional<arena_call> call = arenas_.call_on(held, *known, normalized(stream)))
            return allocate_in_turn(held, size, **call, stream, others, why);
    } else if (const std::optional<arena_call> call = arenas_.bound(stream)) {
        lock held(mutex_);
        return allocate_in_turn(held, size, **call, stream, others, why);
    }
    if (const std::uint64_t capture = capture_of(facts_.driver, stream))
        return captures_->allocate(size, stream, capture, why);
    const arena_call call = arenas_.of(stream);
    lock held(mutex_);
    return allocate_in_turn(held, size, *call, stream, others, why);
}

/// Maintenance before a search: ended captures, events, polls, and a span for the arena.
void pool_engine::tend(lock& held, std::size_t size, arena& a) {
    captures_->release_ended();
    fences_.catch_up(held, uncovered_);
    if (!facts_.has_stocks && size <= small_limit_.load(std::memory_order_relaxed)) {
        a.shares = should_share(a);
        arena& spans = spans_of(a);
        if (spans_refused_ > 0) --spans_refused_;
        if (!growth_->give_own_span(held, size, spans)) spans_refused_ = requests_per_refused_span;
    }
}

void* pool_engine::allocate_in_turn(lock& held, std::size_t size, arena& a, cuda_stream_view stream, others_have others,
                                    refusal* why) {
    tend(held, size, a);
    bool polled = false;
    bool in_vain = false;
    bool takes_all_spans = growth_->comes_after_arenas(size);
    for (;;) {
        fences_.note_ended_recordings();
        if (piece ready = find_ready(size, a)) {
            if (!growth_->cut_behind(held, &ready)) continue;
            return hand_out(std::move(ready), stream);
        }
        if (facts_.has_stocks && others != others_have::nothing) {
            const bool may_ask = std::exchange(others, others_have::nothing) == others_have::not_known;
            if (put_best_stock_first(held, a, may_ask))
                if (piece best = take_over(a, {}, last_use::passed)) return hand_out(std::move(best), stream);
        }
        if (!std::exchange(in_vain, true)) fences_.note_failed_search();
        if (growth_->is_better_than_waiting(size, spans_of(a))) {
            refusal ignored;
            if (piece grown = growth_->grow_rather_than_wait(held, size, a, stream, &ignored)) {
                if (void* const ptr =
                        try_piece(held, std::move(grown), a, stream, fences_.last_resort_of_streams(), why))
                    return ptr;
                if (why->why == refusal::cause::driver) return nullptr;
            }
            spans_refused_ = requests_per_refused_span;
        }
        // Memory of ended streams needs an event of the device. Growing instead would be unbounded; but once captures
        // were seen, no such event is recorded here, as it could spoil one.
        if (void* const ptr = try_fenced(held, size, a, stream, fences_.last_resort_of_streams(), takes_all_spans, why))
            return ptr;
        if (why->why == refusal::cause::driver) return nullptr;
        if (!polled && fences_.may_gain_by_poll()) {
            fences_.poll(held);
            polled = true;
            continue;
        }
        if (turn_.is_of_another_thread()) {
            turn_.wait_for_end(held, size);
            polled = false;
            continue;
        }
        if (piece grown = growth_->grow(held, size, a, stream, why))
            return try_piece(held, std::move(grown), a, stream, reach::device, why);
        if (!takes_all_spans && why->why == refusal::cause::exhausted) {
            growth_->note_collected(collect_spans(true));
            takes_all_spans = true;
            continue;
        }
        // Other threads may have freed memory during the call of upstream; and now any free memory must do.
        if (piece ready = find_ready(size, a)) return hand_out(std::move(ready), stream);
        return try_fenced(held, size, a, stream, reach::device, true, why);
    }
}

/// Makes the stream wait for the piece's last users, and hands it out; else puts it back. Null for an empty piece, for
/// one that cannot be waited for now (`*unreachable`: the timeline of a stream that is captured, or is farther away
/// than allowed), and (with the cause in `*why`) where the driver refuses.
void* pool_engine::try_piece(lock& held, piece taken, const arena& a, cuda_stream_view stream, reach how_far,
                             refusal* why, std::uint64_t* unreachable) {
    if (!taken) return nullptr;
    try {
        bool out_of_reach = false;
        const driver::Status status =
            taken.fences.empty()
                ? driver::Status{}
                : fences_.wait_for(held, taken.fences, stream, a.own_number(), how_far, &out_of_reach, unreachable);
        if (!status.ok() && status.code != driver::Code::capture_error) {
            why->why = refusal::cause::driver;
            why->status = status;
        }
        if (!status.ok() || out_of_reach) {
            put_back(std::move(taken));
            return nullptr;
        }
    } catch (...) {
        put_back(std::move(taken));
        throw;
    }
    return hand_out(std::move(taken), stream);
}

/// As `try_piece`, for memory that other streams used last, except streams that cannot be waited for now.
void* pool_engine::try_fenced(lock& held, std::size_t size, arena& a, cuda_stream_view stream, reach how_far,
                              bool all_spans, refusal* why) {
    std::vector<std::uint64_t> avoided;
    for (;;) {
        piece found = find_fenced(size, a, avoided, all_spans);
        if (!growth_->cut_behind(held, &found)) continue;
        if (facts_.has_stocks && found.from == nullptr) drop_passed_fence(held, &found);
        // Memory that many streams wait for, as that of upstream may be, is ready for all after a poll, and goes into
        // spans.
        if (!found.fences.empty()) fences_.count_towards_poll();
        std::uint64_t unreachable = heap::heap::no_timeline;
        if (void* const ptr = try_piece(held, std::move(found), a, stream, how_far, why, &unreachable)) return ptr;
        if (unreachable == heap::heap::no_timeline || avoided.size() == most_avoided) return nullptr;
        avoided.push_back(unreachable);
    }
}

void pool_engine::put_back(piece taken) noexcept {
    if (taken.block != nullptr) return put_back_stocked(std::move(taken));
    if (taken.from == nullptr)
        return heap_.give_or_lose(taken.area, taken.address, taken.size_bytes, std::move(taken.fences));
    try {
        arena& a = *taken.from;
        const kmm::locks::Guard in(a.mutex);
        taken.fences.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
        if (!taken.was_away || taken.fences.empty()) {
            a.heap.free(taken.address, taken.position);
            return;
        }
        a.away.push_back({0, std::move(taken.fences)});
        std::size_t size = 0;
        a.away.back().block = a.heap.detach(taken.address, &size);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

void* pool_engine::hand_out(piece taken, cuda_stream_view stream) {
    if (taken.block == nullptr && facts_.has_stocks) taken.block = blocks_.find(taken.address);
    if (taken.block != nullptr) return hand_out_stocked(std::move(taken), stream);
    if (taken.from == nullptr) {
        try {
            large_.insert(taken.address,
                          {taken.size_bytes, taken.area, rmm::detail::tag_of_thread, nullptr, normalized(stream)});
        } catch (...) {
            put_back(std::move(taken));
            throw;
        }
    }
    return reinterpret_cast<void*>(taken.address);
}

// ---- taking back

void pool_engine::free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    try {
        if (captures_->any() && captures_->free(address, bytes, streams)) return;
        if (facts_.has_stocks)
            if (stocked_block* const block = blocks_.take_back(address)) return free_stocked(*block, address, streams);
        arena* const owner = directory_.find(address);
        if (owner != nullptr && streams.size() == 1)
            free_in_arena(*owner, address, bytes, streams.front());
        else
            free_behind(owner, address, bytes, streams);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

/// On the arena's own stream, which has not ended; under the arena's lock. The block's size; 0 if it is none in use.
std::size_t pool_engine::free_at_home(arena& owner, std::uintptr_t address) noexcept {
    timeline& home = *owner.home.load(std::memory_order_relaxed);
    const std::uint64_t epoch = home.epoch_now();
    const std::size_t size = owner.heap.free(address, epoch);
    if (size == 0) return 0;
    home.mark_used(epoch);
    owner.last_freed = epoch;
    owner.count_free(size);
    if (owner.heap.num_unused_spans() > 0) note_change(owner);
    return size;
}

void pool_engine::free_in_arena(arena& owner, std::uintptr_t address, std::size_t bytes, cuda_stream_view stream) {
    const cudaStream_t handle = normalized(stream);
    // The default streams of threads share a handle: only the thread's own arena tells.
    const bool at_home =
        owner.handle.load(std::memory_order_relaxed) == handle &&
        (handle != rmm::detail::per_thread_stream_handle() || arenas_.at_hand(handle, nullptr) == &owner);
    arena* recorder = &owner;
    std::size_t true_size = 0;
    bool done = false;
    if (at_home) {
        const kmm::locks::Guard in(owner.mutex);
        if (owner.handle.load(std::memory_order_relaxed) == handle &&
            !owner.home.load(std::memory_order_relaxed)->has_ended()) {
            true_size = free_at_home(owner, address);
            done = true;
        }
    }
    if (!done) {
        heap::fence_set fences;
        fences.add(arenas_.fence_now(stream, bytes, &recorder));
        true_size = send_away(owner, address, std::move(fences));
    }
    if (true_size != facts_.size_of(bytes)) report_size(address, bytes, true_size);
    arenas_.record_if_due(*recorder, stream);
}

bool pool_engine::free_at_hand(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    const cudaStream_t handle = normalized(stream);
    if (handle != rmm::detail::legacy_stream_handle() || facts_.has_stocks || address == 0) return false;
    if (captures_->any() || facts_.options.block_bytes != 0) return false;
    arena* const owner = directory_.find(address);
    // An event that is due is recorded by a free that may call the driver.
    if (owner == nullptr || owner->handle.load(std::memory_order_relaxed) != handle || fences_.should_record(*owner))
        return false;
    kmm::locks::Lock in(owner->mutex, std::defer_lock);
    if (!in.try_lock() || owner->handle.load(std::memory_order_relaxed) != handle) return false;
    const std::size_t true_size = free_at_home(*owner, address);
    if (true_size != 0 && true_size != facts_.size_of(bytes)) report_size(address, bytes, true_size);
    return true_size != 0;
}

/// The arena's block comes back when the fences have passed: at once, if the arena's stream need not wait for them. Its
/// size; 0 if it is none in use.
std::size_t pool_engine::send_away(arena& owner, std::uintptr_t address, heap::fence_set fences) {
    std::size_t size = 0;
    const kmm::locks::Guard in(owner.mutex);
    // An arena without a stream may be on its way to another one, which would wait for nothing.
    const bool is_own = fences.size() == 1 && &owner != common_ &&
                        owner.handle.load(std::memory_order_relaxed) != arena::no_stream() &&
                        fences.begin()->timeline == owner.number.load(std::memory_order_relaxed);
    if (fences.empty() || is_own) {
        const std::uint64_t position = fences.empty() ? 0 : fences.begin()->position;
        size = owner.heap.free(address, position);
        if (size != 0) owner.last_freed = std::max(owner.last_freed, position);
        if (owner.heap.num_unused_spans() > 0) note_change(owner);
        return size;
    }
    owner.away.push_back({0, std::move(fences)});
    away_block& away = owner.away.back();
    away.block = owner.heap.detach(address, &size);
    if (size == 0) {
        owner.away.pop_back();
        return 0;
    }
    if (away.fences.size() > 1) owner.drained_at = arena::never;  // some may have passed
    if (&owner == common_) uncovered_.note_shared(away.fences);
    note_change(owner);
    return size;
}

/// A block of the heap, or one that several streams use last.
void pool_engine::free_behind(arena* owner, std::uintptr_t address, std::size_t bytes,
                              std::span<const cuda_stream_view> streams) {
    heap::fence_set fences;
    for (cuda_stream_view stream : streams) {
        arena* recorder = nullptr;
        fences.add(arenas_.fence_now(stream, facts_.size_of(bytes), &recorder));
        arenas_.record_if_due(*recorder, stream);
    }
    std::size_t true_size = 0;
    if (owner != nullptr) {
        true_size = send_away(*owner, address, std::move(fences));
    } else {
        const lock held(mutex_);
        if (const auto block = large_.take(address)) {
            true_size = block->size_bytes;
            fences_.count_towards_poll();
            uncovered_.note_large(fences);
            heap_.give(block->area, address, true_size, std::move(fences));
        }
    }
    if (owner == nullptr) release_surplus();
    if (true_size != facts_.size_of(bytes)) report_size(address, bytes, true_size);
}

/// A block of a stock, which is noted as not in use already, goes to the stock of the stream that frees it; into the
/// heap where several streams used it, none, or one that cannot be told from others.
void pool_engine::free_stocked(stocked_block& block, std::uintptr_t address,
                               std::span<const cuda_stream_view> streams) {
    const std::size_t size = facts_.options.block_bytes;
    heap::fence_set fences;
    for (cuda_stream_view stream : streams) {
        arena* recorder = nullptr;
        bool is_stocked = false;
        arenas_.with_home(stream, [&](arena& a, timeline& home) {
            a.expect_held();
            recorder = &a;
            const heap::fence now = home.fence_now();
            is_stocked = streams.size() == 1 && a.own_number() != heap::heap::no_timeline;
            // A block that goes into the heap is not among the uncovered blocks of the stock.
            a.count_free(size, is_stocked ? 1 : fences_.event_spacing(a));
            if (is_stocked) {
                a.count_out(-1);
                enter_stock(a, block, now.position);
            } else {
                fences.add(now);
            }
        });
        arenas_.record_if_due(*recorder, stream);
        if (is_stocked) return;
    }
    const lock held(mutex_);
    {
        const kmm::locks::Guard in(common_->mutex);
        common_->count_out(-1);
    }
    fences_.count_towards_poll();
    uncovered_.note_large(fences);
    heap_.give(0, address, size, std::move(fences));
}

/// Unused bytes that could go back: in the heap and, of virtual memory, in arenas.
std::size_t pool_engine::unused_bytes() noexcept {
    std::size_t bytes = heap_.free_bytes();
    for (arena* a = facts_.traits.is_virtual ? holders_.front() : nullptr; a != nullptr; a = holders_.behind(*a)) {
        const kmm::locks::Guard in(a->mutex);
        bytes += a->heap.free_bytes();
    }
    return bytes;
}

/// In a free: trims unused memory beyond the release threshold. O(1) if none is set, else O(arenas with spans).
void pool_engine::release_surplus() {
    const std::size_t keep = release_above_.load(std::memory_order_relaxed);
    // Giving memory back orders the legacy stream, which spoils captures.
    if (keep == no_threshold || has_seen_captures()) return;
    lock held(mutex_);
    const std::size_t unused = unused_bytes();
    // A free never waits for a growth: upstream may be waiting for just this memory.
    if (unused <= std::max(keep, trim_above_) || turn_.is_taken()) return;
    std::size_t released = 0;
    try {
        released = trim(held, facts_.held_bytes() - std::min(unused - keep, facts_.held_bytes()));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a pool could not give memory back: ", e.what());
    }
    // If nothing could be released, retry only when an eighth more is unused.
    trim_above_ = released > 0 ? 0 : unused_bytes() + unused_bytes() / 8;
}

/// Reports a free of a block that is not in use, or that has another size.
void pool_engine::report_size(std::uintptr_t address, std::size_t bytes, std::size_t true_size) const noexcept {
    try {
        const std::string where = rmm::detail::address_text(reinterpret_cast<void*>(address));
        if (true_size == 0)
            rmm::detail::report_misuse(driver::format("a pool was given {} with {} bytes to free, which is not a "
                                                      "block in use: freed twice, or by the wrong resource?",
                                                      where, bytes));
        else
            rmm::detail::report_misuse(driver::format(
                "a pool was given {} with {} bytes to free; the block has {}. Free with the size that was allocated",
                where, bytes, true_size));
    } catch (const std::bad_alloc&) {
        rmm::detail::report_failure({driver::Code::out_of_memory, 0}, "describe a wrong free");
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
