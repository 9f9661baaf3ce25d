// Implements upstream_growth (growth.hpp): blocks of an upstream resource.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "rmm/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/growth_turn.hpp"
#include "rmm/reclaim.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t no_maximum = ~std::size_t{0};
constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;

// Pools below this have no arenas: spans for every stream would be a large part of them.
constexpr std::size_t min_bytes_for_arenas = std::size_t{64} << 20;
// A span is such a share of what is free, so that many streams can have some; but no larger than a few requests of the
// largest size that is worth an arena, and no smaller than the pages that devices map.
constexpr std::size_t spans_in_free_memory = 128;
constexpr std::size_t max_span_bytes = std::size_t{64} << 20;
// A request of more than this part of a span would leave much of it unused.
constexpr std::size_t requests_in_span = 8;
// Those of more than such a part of the largest that arenas serve get what the spans there are have free, but no span
// more: many streams, each with another one for a few of these, would keep much of a pool.
constexpr std::size_t parts_worth_a_span = 2;
// The spans of all streams are no more of a pool than this.
constexpr std::size_t share_of_holders = 4;
// Where upstream has less to give than is asked for ahead of requests, steps get smaller down to this.
constexpr std::size_t smallest_step_ahead = std::size_t{32} << 20;

// A pool without a maximum doubles at each step, so that it asks upstream seldom. After the last step it may hold twice
// what it needs; a pool from this size on grows by such a part of what it holds.
constexpr std::size_t large_pool_bytes = std::size_t{4} << 30;
constexpr std::size_t parts_of_large_pool = 32;

// A pool of blocks of one size grows rather than wait while fewer blocks are free than this number per stream and than
// are in use: otherwise most streams have none when they need one. (Host driver, 64 streams, 710 of 768 blocks in use:
// 80 ns a pair and 63 events of the device for 10 000 requests; with such growth 44 ns.) This growth is at most one
// part in `parts_without` of the memory held without it.
constexpr std::size_t free_blocks_of_stream = 4;
constexpr std::size_t parts_without = 4;
// Requests that would have to wait between two counts of the blocks, at least: a count costs a step for each stream.
// The number doubles after each refusal of upstream, up to a million.
constexpr std::size_t least_short = 64;
constexpr unsigned most_refused = 14;

/// What is behind it are figures, of which the pool gives its own.
std::string first_line(const char* text) { return text == nullptr ? "" : std::string(text, std::strcspn(text, "\n")); }

}  // namespace

// ---- what arenas get

std::size_t upstream_growth::span_for(std::size_t size, const arena&) const noexcept {
    constexpr std::size_t granule = span_directory::granule;
    if (const std::size_t block = pool_.facts.options.block_bytes; block != 0) {
        if (pool_.facts.has_stocks) return 0;
        // Blocks tile a span only if they are powers of two.
        return is_pow2(block) ? std::max(granule, requests_in_span * block) : 0;
    }
    if (pool_.facts.held_bytes() < min_bytes_for_arenas) return 0;
    if (parts_worth_a_span * size > pool_.spans.small_limit()) return 0;
    std::size_t bytes = granule;
    while (bytes < max_span_bytes && 2 * bytes * spans_in_free_memory <= pool_.heap.free_bytes()) bytes *= 2;
    return bytes;
}

/// Never shrinks: what arenas hold is looked for there.
std::size_t upstream_growth::small_limit() const noexcept {
    if (pool_.facts.has_stocks) return pool_.facts.options.block_bytes;
    return std::max(pool_.spans.small_limit(), span_for(0, pool_.arenas.common()) / requests_in_span);
}

std::size_t upstream_growth::most_span_holders() const noexcept {
    const std::size_t spans = pool_.facts.held_bytes() / share_of_holders / span_directory::granule;
    return std::clamp(spans, span_pool::fewest_holders, span_pool::most_holders);
}

// ---- growing

std::optional<std::size_t> upstream_growth::first_attempt(std::size_t size, refusal* why) const {
    const std::size_t held = pool_.facts.held_bytes();
    const std::size_t maximum = pool_.facts.options.maximum_bytes;
    if (!pool_.facts.options.grows) {
        why->why = refusal::cause::exhausted;
        why->reason = "No room in arena.";
        return std::nullopt;
    }
    if (maximum == no_maximum) {
        const std::size_t step = held < large_pool_bytes ? held : align_up(held / parts_of_large_pool, unit);
        return std::max(size, pool_.facts.options.growth_bytes != 0 ? pool_.facts.options.growth_bytes : step);
    }
    const std::size_t room = maximum > held ? align_up(maximum - held, unit) : 0;
    if (size > room) {
        why->meet_maximum(held, maximum, size);
        return std::nullopt;
    }
    if (pool_.facts.options.growth_bytes != 0) return std::max(size, std::min(pool_.facts.options.growth_bytes, room));
    return std::max(size, align_down(room / 2, unit));
}

bool upstream_growth::is_better_than_waiting(std::size_t size, const arena&) noexcept {
    if (!pool_.facts.has_stocks || !pool_.facts.options.grows || pool_.turn.is_taken()) return false;
    // Upstream may be a pool that has an event of the device recorded for this.
    if (has_seen_captures()) return false;
    const std::size_t streams = pool_.facts.num_arenas();
    if (++num_short_ < std::max(streams, least_short) << num_refused_) return false;
    num_short_ = 0;
    pool_.streams.count_steps(streams);
    const std::size_t blocks = pool_.facts.held_bytes() / size;
    const std::size_t in_use = std::min(pool_.num_blocks_out(), blocks);
    return blocks - in_use < std::min(free_blocks_of_stream * streams, in_use) && more_rather_than_wait() >= size;
}

std::size_t upstream_growth::more_rather_than_wait() const noexcept {
    const std::size_t most = (pool_.facts.held_bytes() - rather_than_wait_bytes_) / parts_without;
    return most - std::min(most, rather_than_wait_bytes_);
}

/// Takes one block for each stream, as far as the limits allow, in a single request to upstream.
piece upstream_growth::grow_rather_than_wait(lock& held, std::size_t size, arena& a, cuda_stream_view stream,
                                             refusal* why) {
    const growth_mark growing(pool_.turn);
    const rmm::detail::optional_request may_be_refused;
    const std::size_t most = first_attempt(size, why).value_or(0);
    const std::size_t bytes = std::min({most, pool_.facts.num_arenas() * size, more_rather_than_wait() / size * size});
    piece grown = bytes == 0 ? piece{} : take_from_upstream(held, bytes, bytes, size, a, stream, why);
    if (grown) rather_than_wait_bytes_ += bytes;
    num_refused_ = grown ? 0 : std::min(num_refused_ + 1, most_refused);
    return grown;
}

piece upstream_growth::grow(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why) {
    const growth_mark growing(pool_.turn);
    if (const auto first = first_attempt(size, why))
        if (piece grown = take_from_upstream(held, *first, size, size, a, stream, why)) return grown;
    return exchange(held, size, a, stream, why);
}

piece upstream_growth::grow_idle(lock& held, std::size_t size, refusal* why) {
    // Neither the captured stream nor the legacy one may be asked for memory: on a stream of our own.
    driver::StreamHandle own;
    driver::Status status;
    {
        const unlocked without(held);
        status = pool_.facts.driver.create_stream(pool_.facts.device, true, 0, &own);
        if (!status.ok()) (void)pool_.facts.driver.take_last_error();
    }
    if (!status.ok()) {
        why->why = refusal::cause::driver;
        why->status = status;
        return {};
    }
    const cuda_stream_view stream{static_cast<cudaStream_t>(own.native)};
    piece grown;
    try {
        std::optional<arena_call> a;
        {
            const unlocked without(held);
            a.emplace(pool_.arenas.of(stream));
        }
        pool_.turn.wait_for_others(held);
        grown = grow(held, size, **a, stream, why);
    } catch (...) {
        const unlocked without(held);
        (void)pool_.facts.driver.destroy_stream(own);
        throw;
    }
    {
        const unlocked without(held);
        rmm::detail::report_failure(pool_.facts.driver.synchronize_stream(own), "wait for memory of a pool's upstream");
        rmm::detail::report_failure(pool_.facts.driver.destroy_stream(own), "destroy a stream");
    }
    return grown;
}

/// `size` bytes of a new block of upstream, which has up to `attempt`, and `least` at least.
piece upstream_growth::take_from_upstream(lock& held, std::size_t attempt, std::size_t least, std::size_t size,
                                          const arena& a, cuda_stream_view stream, refusal* why) {
    void* base = nullptr;
    {
        const unlocked without(held);
        base = ask_upstream(&attempt, least, stream, why);
        if (base != nullptr) pool_.tell_added(reinterpret_cast<std::uintptr_t>(base), attempt, &stream);
    }
    if (base == nullptr) {
        why->why = refusal::cause::exhausted;
        return {};
    }
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    try {
        heap::fence_set fences;
        if (pool_.facts.options.ordered_upstream) fences.add(a.home.load()->fence_now());
        add_block(base, attempt, fences);
        // The request's own stream is the one on which upstream gave the memory: its part needs no fence.
        piece taken = piece::of_heap(pool_.heap[0].take(address, size), 0);
        taken.fences.clear();
        return taken;
    } catch (...) {
        if (regions_.count(address) == 0) {
            const unlocked without(held);
            pool_.tell_removed(address, attempt);
            return_upstream(base, attempt, stream);
        }
        throw;
    }
}

bool upstream_growth::take_initial_block(refusal* why) {
    std::size_t bytes = pool_.facts.options.initial_bytes;
    const cuda_stream_view stream;
    void* const base = ask_upstream(&bytes, bytes, stream, why);
    if (base == nullptr) return false;
    pool_.tell_added(reinterpret_cast<std::uintptr_t>(base), bytes, &stream);
    try {
        const arena_call a = pool_.arenas.of(stream);
        heap::fence_set fences;
        if (pool_.facts.options.ordered_upstream) fences.add(a->home.load()->fence_now());
        const lock held(pool_.mutex);
        add_block(base, bytes, fences);
    } catch (...) {
        pool_.tell_removed(reinterpret_cast<std::uintptr_t>(base), bytes);
        return_upstream(base, bytes, stream);
        throw;
    }
    return true;
}

bool upstream_growth::grow_ahead(std::size_t bytes, std::size_t target_bytes) {
    lock held(pool_.mutex);
    pool_.turn.wait_until_free(held);
    const growth_mark growing(pool_.turn);
    const std::size_t room = target_bytes - std::min(target_bytes, align_up(pool_.facts.held_bytes(), unit));
    std::size_t attempt = std::min(room, std::max(bytes, pool_.turn.take_largest_missed()));
    if (attempt == 0) return false;
    void* base = nullptr;
    {
        const unlocked without(held);
        refusal ignored;
        const cuda_stream_view stream;
        base = ask_upstream(&attempt, std::min(attempt, smallest_step_ahead), stream, &ignored);
        if (base != nullptr) pool_.tell_added(reinterpret_cast<std::uintptr_t>(base), attempt, &stream);
    }
    if (base == nullptr) return false;
    try {
        add_block(base, attempt, {});
    } catch (...) {
        const unlocked without(held);
        pool_.tell_removed(reinterpret_cast<std::uintptr_t>(base), attempt);
        return_upstream(base, attempt, cuda_stream_view{});
        throw;
    }
    return true;
}

// ---- what is free lies in several blocks of upstream, each too small

/// Blocks of upstream in which nothing is in use, of `bytes` together at least: as few bytes as that takes, small
/// blocks first. None if there is not as much. O(blocks of upstream log free pieces).
std::vector<heap::range> upstream_growth::unused_blocks(std::size_t bytes) {
    std::vector<heap::range> unused;
    for (const auto& [address, size_bytes] : regions_)
        if (pool_.heap[0].is_free(address, size_bytes)) unused.push_back({address, size_bytes});
    std::sort(unused.begin(), unused.end(),
              [](const heap::range& x, const heap::range& y) { return x.size_bytes < y.size_bytes; });
    std::size_t sum = 0;
    auto last = unused.begin();
    for (; last != unused.end() && sum < bytes; ++last) sum += last->size_bytes;
    if (sum < bytes) return {};
    unused.erase(last, unused.end());
    // With the last of them, some others may not be needed; the largest of these stay.
    for (std::size_t i = unused.size(); i-- > 0;) {
        if (sum - unused[i].size_bytes < bytes) continue;
        sum -= unused[i].size_bytes;
        unused.erase(unused.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return unused;
}

/// After a refusal by the pool's maximum or by upstream: gives unused blocks back, in stream order, and asks upstream
/// for a block that holds the request. If upstream refuses again, takes blocks of the returned sizes again.
piece upstream_growth::exchange(lock& held, std::size_t size, const arena& a, cuda_stream_view stream, refusal* why) {
    if (!pool_.facts.options.grows || pool_.facts.options.block_bytes != 0) return {};
    const std::size_t maximum = pool_.facts.options.maximum_bytes;
    const bool is_limited = maximum != no_maximum;
    if (is_limited && size > maximum) return {};
    {
        // As for `trim`: upstream's own frees must not spoil a capture.
        const unlocked without(held);
        if (pool_.streams.is_part_of_capture(driver::legacy_stream())) return {};
    }
    pool_.collect(true);
    // Other free memory of the device is unknown: without a maximum, the returned blocks must suffice.
    const std::size_t room =
        is_limited && !why->device_is_full ? maximum - std::min(maximum, pool_.facts.held_bytes()) : 0;
    const std::vector<heap::range> unused = unused_blocks(size - std::min(room, size));
    // A single large enough block would have served the request, had its users been within reach.
    if (unused.empty() || (unused.size() == 1 && unused.front().size_bytes >= size)) return {};
    std::vector<heap::range> given_back;
    given_back.reserve(unused.size());
    std::size_t sum = 0;
    for (const heap::range& block : unused) {
        if (!give_back_block(held, block, stream, a.own_number())) break;
        given_back.push_back(block);
        sum += block.size_bytes;
    }
    if (given_back.size() == unused.size()) {
        // As much as was given back, if upstream has it.
        refusal again;
        if (piece made = take_from_upstream(held, std::max(size, sum), size, size, a, stream, &again)) return made;
        *why = again;
    }
    take_again(held, given_back, a, stream);
    return {};
}

/// In the order of the stream, whose own fences need nothing. False if its last users cannot be waited for: then
/// nothing has changed. Lets the lock go.
bool upstream_growth::give_back_block(lock& held, const heap::range& block, cuda_stream_view stream,
                                      std::uint64_t own) {
    // Taken out of the heap, so that no other thread uses the block while the lock is released.
    heap::block taken = pool_.heap[0].take(block.address, block.size_bytes);
    if (!taken) return false;
    driver::Status status;
    bool out_of_reach = false;
    try {
        status = pool_.fences.wait_for(held, taken.fences, stream, own, pool_.fences.last_resort(), &out_of_reach);
    } catch (...) {
        pool_.heap.give_or_lose(0, taken.address, taken.size_bytes, std::move(taken.fences));
        throw;
    }
    if (!status.ok() || out_of_reach) {
        pool_.heap.give_or_lose(0, taken.address, taken.size_bytes, std::move(taken.fences));
        return false;
    }
    pool_.heap[0].remove_taken(block.address, block.size_bytes);
    regions_.erase(block.address);
    if (pool_.facts.has_stocks) pool_.stocks.blocks().remove_region(block.address);
    pool_.facts.note_held(pool_.facts.held_bytes() - block.size_bytes);
    rather_than_wait_bytes_ -= std::min(rather_than_wait_bytes_, block.size_bytes);
    const unlocked without(held);
    pool_.tell_removed(block.address, block.size_bytes);
    return_upstream(reinterpret_cast<void*>(block.address), block.size_bytes, stream);
    return true;
}

/// Upstream has refused what it was given blocks for. What it does not give again, the pool may grow by when there
/// is more.
void upstream_growth::take_again(lock& held, const std::vector<heap::range>& given_back, const arena& a,
                                 cuda_stream_view stream) {
    for (const heap::range& block : given_back) {
        refusal ignored;
        piece again =
            take_from_upstream(held, block.size_bytes, block.size_bytes, block.size_bytes, a, stream, &ignored);
        if (!again) continue;
        if (pool_.facts.options.ordered_upstream) again.fences.add(a.home.load()->fence_now());
        pool_.put_back(std::move(again));
    }
}

// ---- upstream

/// Without the lock. Null, with upstream's words in `*why`, after upstream has refused exactly `size`.
void* upstream_growth::ask_upstream(std::size_t* attempt, std::size_t size, cuda_stream_view stream, refusal* why) {
    const std::size_t step = pool_.facts.options.block_bytes != 0 ? pool_.facts.options.block_bytes : unit;
    const rmm::detail::upstream_call call;
    for (;;) {
        try {
            return upstream_.allocate_async(*attempt, unit, rmm::detail::onward_stream(stream));
        } catch (const rmm::out_of_memory& e) {
            why->reason = first_line(e.what());
            why->device_is_full =
                e.shortage().limit == memory_limit::device || e.shortage().limit == memory_limit::unknown;
        } catch (const std::exception& e) {
            why->reason = first_line(e.what());
            why->device_is_full = true;  // for all that is known
        }
        if (*attempt <= size) return nullptr;
        *attempt = std::max(size, *attempt / 2 / step * step);
    }
}

/// Without the lock. What upstream throws is reported: the pool goes on without the block.
void upstream_growth::return_upstream(void* base, std::size_t size, cuda_stream_view stream) noexcept {
    try {
        upstream_.deallocate_async(base, size, unit, rmm::detail::onward_stream(stream));
    } catch (...) {
        report_throw_in_deallocate("the upstream of a pool");
    }
}

void upstream_growth::add_block(void* base, std::size_t bytes, const heap::fence_set& fences) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    RMM_EXPECTS(address % unit == 0, "the upstream of a pool gave memory that is not aligned to 256 bytes");
    const auto noted = regions_.emplace(address, bytes).first;
    try {
        // A copy across the border of two allocations of the driver may fail, even where they touch.
        if (pool_.facts.has_stocks) pool_.stocks.blocks().add_region(address, bytes);
        pool_.heap[0].add_region(address, bytes, heap::border::sealed, fences);
    } catch (...) {
        if (pool_.facts.has_stocks) pool_.stocks.blocks().remove_region(address);
        regions_.erase(noted);
        throw;
    }
    pool_.heap.note_dry(false);
    pool_.facts.note_held(pool_.facts.held_bytes() + bytes);
    pool_.spans.update_small_limit();
}

std::size_t upstream_growth::trim(lock& held, std::size_t keep_bytes) {
    std::size_t given_back = 0;
    for (auto at = regions_.begin(); at != regions_.end() && pool_.facts.held_bytes() > keep_bytes;) {
        const auto [address, size_bytes] = *at;
        if (!pool_.heap[0].is_free(address, size_bytes)) {
            ++at;
            continue;
        }
        if (!give_back_block(held, {address, size_bytes}, cuda_stream_view{}, rmm::detail::legacy_number)) break;
        given_back += size_bytes;
        at = regions_.upper_bound(address);
    }
    return given_back;
}

void upstream_growth::release() noexcept {
    for (const auto& [address, size_bytes] : regions_) {
        pool_.tell_removed(address, size_bytes);
        return_upstream(reinterpret_cast<void*>(address), size_bytes, cuda_stream_view{});
    }
    regions_.clear();
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
