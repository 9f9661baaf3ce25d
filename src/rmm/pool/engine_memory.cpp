// Implements the part of engine.hpp that gets memory from upstream and gives it back, and counts it.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "rmm/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/growth_mark.hpp"
#include "rmm/reclaim.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::format_bytes;

constexpr std::size_t no_maximum = ~std::size_t{0};

// Pools below this have no arenas: spans for every stream would be a large part of them.
constexpr std::size_t min_bytes_for_arenas = std::size_t{64} << 20;
// A span is such a share of what is free, so that many streams can have some; but no larger than a few requests of the
// largest size that is worth an arena, and no smaller than the pages that devices map.
constexpr std::size_t spans_in_free_memory = 128;
constexpr std::size_t max_span_bytes = std::size_t{64} << 20;
// Of virtual memory an arena gets a sixteenth more than it has: few steps, and little that it does not need. What is
// mapped at once is one physical piece, which cannot be moved while anything of it is in use.
constexpr std::size_t growth_of_arenas = 16;
constexpr std::size_t most_added_bytes = std::size_t{32} << 20;
// While less of virtual memory is in use (three quarters), the host does not wait to keep physical pieces whole.
constexpr std::size_t fitting_pieces_in_largest = 8;
// A request of more than this part of a span would leave much of it unused.
constexpr std::size_t requests_in_span = 8;
// Where upstream has less to give than is asked for ahead of requests, steps get smaller down to this.
constexpr std::size_t smallest_step_ahead = std::size_t{32} << 20;

/// What is behind it are figures, of which the pool gives its own.
std::string first_line(const char* text) { return std::string(text, std::strcspn(text, "\n")); }

}  // namespace

std::size_t pool_engine::span_bytes() const noexcept {
    constexpr std::size_t granule = span_directory::granule;
    if (const std::size_t block = options_.block_bytes; block != 0) {
        if (has_stocks_) return 0;
        // Blocks tile a span only if they are powers of two.
        return is_pow2(block) ? std::max(granule, requests_in_span * block) : 0;
    }
    if (source_ != nullptr) return granule;
    if (held_bytes() < min_bytes_for_arenas) return 0;
    std::size_t bytes = granule;
    while (bytes < max_span_bytes && 2 * bytes * spans_in_free_memory <= free_bytes()) bytes *= 2;
    return bytes;
}

/// What the arena is given where nothing in it holds `size` bytes. Virtual memory comes in granules, in proportion to
/// what the arena has already: those that touch become one span.
std::size_t pool_engine::span_for(std::size_t size, const arena& a) const noexcept {
    if (source_ == nullptr) return span_bytes();
    constexpr std::size_t granule = span_directory::granule;
    const std::size_t share = std::min(a.heap.span_bytes() / growth_of_arenas, most_added_bytes);
    return align_up(std::max({size, share, granule}), granule);
}

/// Never shrinks: what arenas hold is looked for there. That of virtual memory is the limit of its small area.
void pool_engine::update_small_limit() noexcept {
    if (source_ != nullptr) return;
    const std::size_t limit = span_bytes() / requests_in_span;
    if (limit > small_limit_.load(std::memory_order_relaxed)) small_limit_.store(limit, std::memory_order_relaxed);
}

std::optional<std::size_t> pool_engine::first_attempt(std::size_t size, refusal* why) const {
    const std::size_t held = held_bytes();
    const std::size_t maximum = options_.maximum_bytes;
    if (!options_.grows) {
        why->why = refusal::cause::exhausted;
        why->reason = "No room in arena.";
        return std::nullopt;
    }
    if (maximum == no_maximum) return std::max(size, options_.growth_bytes != 0 ? options_.growth_bytes : held);
    const std::size_t room = maximum > held ? align_up(maximum - held, unit) : 0;
    if (size > room) {
        why->why = refusal::cause::exhausted;
        why->reason = "Not enough room to grow, current/max/try size = " + format_bytes(held) + ", " +
                      format_bytes(maximum) + ", " + format_bytes(size);
        return std::nullopt;
    }
    if (options_.growth_bytes != 0) return std::max(size, std::min(options_.growth_bytes, room));
    return std::max(size, align_down(room / 2, unit));
}

/// Called with a miss, by one thread at a time. An empty piece, with the cause, if there is no more.
pool_engine::piece pool_engine::grow(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why) {
    const growth_mark growing(*this);
    if (source_ == nullptr) return grow_upstream(held, size, a, stream, why);
    // A small request gets granules of its stream's, if there is memory for some.
    if (size <= small_limit_.load(std::memory_order_relaxed)) {
        arena& spans = spans_of(a);
        const bool has_spans = &spans == common_ || spans.own_number() != heap::heap::no_timeline;
        const std::size_t bytes = has_spans ? span_for(size, spans) : align_up(size, span_directory::granule);
        bool grown = has_spans && spans_refused_ == 0 && heap::eager_growth(peak_bytes_, held_bytes()) >= bytes &&
                     grow_by_span(held, size, spans);
        refusal ignored;
        if (!grown)
            if (piece whole = grow_virtual(held, bytes, a.own_number(), &ignored)) {
                put_back(std::move(whole));
                grown = true;
            }
        if (grown)
            if (piece small = find_ready(size, a)) return small;
    }
    // Rather than move anything for it, a request of the small area goes to the other one.
    if (const std::uint8_t area = area_of(size); area != 0 && heap::eager_growth(peak_bytes_, held_bytes()) < size)
        if (heap::block b = heaps_[0].try_allocate(size, a.own_number()))
            return {b.address, b.size_bytes, std::move(b.fences), nullptr, 0, false, 0};
    refusal first;
    if (piece made = grow_virtual(held, size, a.own_number(), &first)) return made;
    // The device may have less to give than it seemed: then with what there is.
    if (first.status.code == driver::Code::out_of_memory) {
        refusal second;
        if (piece made = grow_virtual(held, size, a.own_number(), &second, 0)) return made;
        if (second.why == refusal::cause::driver) first = second;
    }
    *why = first;
    return {};
}

/// A span of fresh memory for the arena; false if there is none. What is free beside it is left alone: with that, the
/// span would not begin where spans must.
bool pool_engine::grow_by_span(lock& held, std::size_t size, arena& a) {
    const std::size_t bytes = span_for(size, a);
    const growth_mark growing(*this);
    virtual_source::growth grown;
    {
        const unlocked without(held);
        grown = source_->grow(bytes, span_area());
        if (grown.status.ok())
            tell_added(grown.made.address, grown.made.size_bytes, nullptr);
        else
            (void)driver_.take_last_error();
    }
    note_source();
    peak_held_bytes_ = std::max(peak_held_bytes_, held_bytes());
    if (!grown.status.ok()) return false;
    if (!add_mapped(held, span_area(), grown.made)) return false;
    heap::heap& h = heaps_[span_area()];
    peak_bytes_ = std::max(peak_bytes_, held_bytes() - free_bytes() + bytes);
    if (grown.made.address % span_directory::granule != 0 ||
        !span_directory::can_hold(grown.made.address, grown.made.size_bytes))
        return false;
    const heap::block span = h.take(grown.made.address, bytes);
    install_span(span.address, span.size_bytes, span.fences, a);
    return true;
}

/// What was mapped just now, which nobody uses, becomes free memory. Where the host has no memory to note it, it goes
/// back to the driver: false.
bool pool_engine::add_mapped(lock& held, std::uint8_t area, const heap::range& made) {
    try {
        heaps_[area].add_region(made.address, made.size_bytes, heap::border::open);
        return true;
    } catch (const std::bad_alloc&) {
        const unlocked without(held);
        tell_removed(made.address, made.size_bytes);
        (void)source_->trim(made);
    }
    note_source();
    return false;
}

pool_engine::piece pool_engine::grow_upstream(lock& held, std::size_t size, const arena& a, cuda_stream_view stream,
                                              refusal* why) {
    if (const auto first = first_attempt(size, why))
        if (piece grown = take_from_upstream(held, *first, size, a, stream, why)) return grown;
    return exchange(held, size, a, stream, why);
}

/// `size` bytes of a new block of upstream, which has up to `attempt`.
pool_engine::piece pool_engine::take_from_upstream(lock& held, std::size_t attempt, std::size_t size, const arena& a,
                                                   cuda_stream_view stream, refusal* why) {
    void* base = nullptr;
    {
        const unlocked without(held);
        base = ask_upstream(&attempt, size, stream, why);
        if (base != nullptr) tell_added(reinterpret_cast<std::uintptr_t>(base), attempt, &stream);
    }
    if (base == nullptr) {
        why->why = refusal::cause::exhausted;
        return {};
    }
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    try {
        heap::fence_set fences;
        if (options_.ordered_upstream) fences.add(a.home.load()->fence_now());
        add_upstream_block(base, attempt, fences);
        // The request's own stream is the one on which upstream gave the memory: its part needs no fence.
        const heap::block block = heaps_[0].take(address, size);
        return {block.address, block.size_bytes, {}, nullptr, 0, false, 0};
    } catch (...) {
        if (regions_.count(address) == 0) {
            const unlocked without(held);
            tell_removed(address, attempt);
            return_upstream(base, attempt, stream);
        }
        throw;
    }
}

// ---- what is free lies in several blocks of upstream, each too small

/// Blocks of upstream in which nothing is in use, of `bytes` together at least: as few bytes as that takes, small
/// blocks first. None if there is not as much. O(blocks of upstream log free pieces).
std::vector<heap::range> pool_engine::unused_blocks(std::size_t bytes) {
    std::vector<heap::range> unused;
    for (const auto& [address, size_bytes] : regions_)
        if (heaps_[0].is_free(address, size_bytes)) unused.push_back({address, size_bytes});
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

/// Gives blocks back that nobody uses, in the order of the stream, and asks upstream for one that the request fits
/// into: after a refusal, of the pool's maximum or of upstream. If upstream refuses again, it is asked for what it
/// was given.
pool_engine::piece pool_engine::exchange(lock& held, std::size_t size, const arena& a, cuda_stream_view stream,
                                         refusal* why) {
    if (!options_.grows || options_.block_bytes != 0) return {};
    const std::size_t maximum = options_.maximum_bytes;
    const bool is_limited = maximum != no_maximum;
    if (is_limited && size > maximum) return {};
    {
        // As for `trim`: upstream's own frees must not spoil a capture.
        const unlocked without(held);
        if (timelines_.is_part_of_capture(driver::legacy_stream())) return {};
    }
    collect_spans(true);
    // What the device has besides, nobody knows: without a maximum, what is given back must be enough.
    const std::size_t room = is_limited && !why->device_is_full ? maximum - std::min(maximum, held_bytes()) : 0;
    const std::vector<heap::range> unused = unused_blocks(size - std::min(room, size));
    // A single block that is large enough would have served the request, but for who must be waited for.
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
        // As much as before, if upstream has it.
        refusal again;
        if (piece made = take_from_upstream(held, std::max(size, sum), size, a, stream, &again)) return made;
        *why = again;
    }
    take_again(held, given_back, a, stream);
    return {};
}

/// In the order of the stream, whose own fences need nothing. False if its last users cannot be waited for: then
/// nothing has changed. Lets the lock go.
bool pool_engine::give_back_block(lock& held, const heap::range& block, cuda_stream_view stream, std::uint64_t own) {
    // What is taken is nobody's while the lock is let go.
    heap::block taken = heaps_[0].take(block.address, block.size_bytes);
    if (!taken) return false;
    driver::Status status;
    bool out_of_reach = false;
    try {
        status = wait_for(held, taken.fences, stream, own, last_resort(), &out_of_reach);
    } catch (...) {
        give_or_lose(0, taken.address, taken.size_bytes, std::move(taken.fences));
        throw;
    }
    if (!status.ok() || out_of_reach) {
        give_or_lose(0, taken.address, taken.size_bytes, std::move(taken.fences));
        return false;
    }
    heaps_[0].remove_taken(block.address, block.size_bytes);
    regions_.erase(block.address);
    if (has_stocks_) blocks_.remove_region(block.address, block.size_bytes);
    held_bytes_.fetch_sub(block.size_bytes, std::memory_order_relaxed);
    const unlocked without(held);
    tell_removed(block.address, block.size_bytes);
    return_upstream(reinterpret_cast<void*>(block.address), block.size_bytes, stream);
    return true;
}

/// Upstream has refused what it was given blocks for. What it does not give again, the pool may grow by when there
/// is more.
void pool_engine::take_again(lock& held, const std::vector<heap::range>& given_back, const arena& a,
                             cuda_stream_view stream) {
    for (const heap::range& block : given_back) {
        refusal ignored;
        piece again = take_from_upstream(held, block.size_bytes, block.size_bytes, a, stream, &ignored);
        if (!again) continue;
        if (options_.ordered_upstream) again.fences.add(a.home.load()->fence_now());
        put_back(std::move(again));
    }
}

/// Maps memory, fresh or from elsewhere in the pool, so that `size` bytes lie in a row.
pool_engine::piece pool_engine::grow_virtual(lock& held, std::size_t size, std::uint64_t own, refusal* why,
                                             std::size_t fresh_bytes) {
    const std::uint8_t area = area_of(size);
    heap::heap& h = heaps_[area];
    std::vector<heap::free_range> free;
    // What the host could not wait for is as good as in use.
    const bool streams_only = last_resort() == reach::streams;
    for (std::uint8_t i = 0; i < num_areas; ++i)
        heaps_[i].for_each_free([&](std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences) {
            const bool ready = std::all_of(fences.begin(), fences.end(),
                                           [this](const heap::fence& f) { return timelines_.has_passed(f); });
            if (!ready && streams_only &&
                timelines_.first_out_of_reach(fences, heap::heap::no_timeline) != heap::heap::no_timeline)
                return;
            free.push_back({{address, bytes}, ready, i});
        });
    std::sort(free.begin(), free.end(),
              [](const heap::free_range& x, const heap::free_range& y) { return x.where.address < y.where.address; });
    peak_bytes_ = std::max(peak_bytes_, held_bytes() - free_bytes() + size);
    virtual_source::growth_limits limits;
    limits.fresh_bytes = fresh_bytes;
    limits.eager_fresh_bytes = std::min(fresh_bytes, heap::eager_growth(peak_bytes_, held_bytes()));
    const heap::move_plan plan = source_->plan(size, free, area, limits);
    if (!plan.possible) {
        why->why = refusal::cause::exhausted;
        why->reason = "Not enough room to grow, current/max/try size = " + format_bytes(held_bytes()) + ", " +
                      format_bytes(source_->maximum_bytes()) + ", " + format_bytes(size);
        return {};
    }

    // What is moved, and what the result will lie beside, is nobody's while the lock is let go; then it is free again.
    struct removed_range {
        heap::range where;
        std::uint8_t area;
        heap::fence_set fences;
    };
    struct removal {
        ~removal() {
            for (removed_range& r : ranges)
                engine->give_or_lose(r.area, r.where.address, r.where.size_bytes, std::move(r.fences));
            if (kept) engine->give_or_lose(kept_area, kept.address, kept.size_bytes, std::move(kept.fences));
        }
        pool_engine* engine;
        std::uint8_t kept_area;
        std::vector<removed_range> ranges;
        heap::block kept;
    };
    std::optional<removal> removed(std::in_place, this, area);
    heap::fence_set users;
    // By what is free in one area: pieces that are moved together may lie in several.
    removed->ranges.reserve(free.size() + plan.moved.size());
    auto at = free.begin();
    for (const heap::range& m : plan.moved) {
        while (at->where.end() <= m.address) ++at;
        for (auto f = at; f != free.end() && f->where.address < m.end(); ++f) {
            const std::uintptr_t begin = std::max(f->where.address, m.address);
            const auto of_area = static_cast<std::uint8_t>(f->area);
            heap::block part = heaps_[of_area].take(begin, std::min(f->where.end(), m.end()) - begin);
            RMM_EXPECTS(part, "a pool of virtual memory planned to move memory that is in use");
            removed->ranges.push_back({{part.address, part.size_bytes}, of_area, std::move(part.fences)});
            users.add(removed->ranges.back().fences);
        }
    }
    removed->kept = h.take(plan.kept.address, plan.kept.size_bytes);
    bool out_of_reach = false;
    driver::Status status = wait_on_host(held, users, last_resort(), &out_of_reach);
    if (status.ok() && out_of_reach) status = {driver::Code::out_of_memory, 0};
    bool is_noted = true;
    if (status.ok()) {
        virtual_source::remapping made;
        {
            const unlocked without(held);
            for (const heap::range& m : plan.moved) tell_removed(m.address, m.size_bytes);
            made = source_->remap(plan);
            for (const heap::range& m : made.ranges) tell_added(m.address, m.size_bytes, nullptr);
            if (!made.status.ok()) (void)driver_.take_last_error();
        }
        note_source();
        status = made.status;
        // After a failure what was moved is where it was, but for what is spare now.
        const std::vector<removed_range> moved = std::exchange(removed->ranges, {});
        for (const removed_range& r : moved) heaps_[r.area].remove_taken(r.where.address, r.where.size_bytes);
        if (status.ok()) {
            for (const heap::range& m : made.ranges) is_noted &= add_mapped(held, area, m);
        } else {
            for (const removed_range& r : moved)
                for (const heap::range& m : made.ranges) {
                    const std::uintptr_t begin = std::max(r.where.address, m.address);
                    const std::uintptr_t end = std::min(r.where.end(), m.end());
                    if (begin < end) return_region(r.area, {begin, end - begin}, r.fences);
                }
        }
    }
    removed.reset();
    note_source();
    if (!is_noted) throw std::bad_alloc();
    peak_held_bytes_ = std::max(peak_held_bytes_, held_bytes());
    update_small_limit();
    if (!status.ok()) {
        why->why = status.code == driver::Code::out_of_memory ? refusal::cause::exhausted : refusal::cause::driver;
        why->device_is_full = status.code == driver::Code::out_of_memory;
        why->status = status;
        why->reason = "the device has no more memory to map";
        return {};
    }
    heap::block b = h.try_allocate(size, own);
    return {b.address, b.size_bytes, std::move(b.fences), nullptr, 0, false, area};
}

/// Of virtual memory: a block that ends inside a large physical piece keeps the free rest of that piece from being
/// moved. Where memory is scarce, the piece is cut at the block's end while nobody uses it. False if memory was lost to
/// the driver on the way; what is left of the block is in the heap again.
bool pool_engine::cut_behind(lock& held, piece* taken) {
    if (source_ == nullptr || !*taken || taken->from != nullptr) return true;
    if (growing_ && grower_ != std::this_thread::get_id()) return true;  // the source is at work
    const std::uintptr_t end = taken->address + taken->size_bytes;
    const std::uintptr_t at = align_up(end, source_->granularity());
    const heap::range whole = source_->piece_across(at);
    const std::size_t fitting = source_->fitting_piece(held_bytes() - free_bytes());
    if (whole.address < taken->address || !heap::is_worth_cutting(whole.size_bytes, fitting)) return true;
    // The piece is nobody's while the lock is let go.
    heap::heap& h = heaps_[taken->area];
    heap::block rest = h.take(end, whole.end() - end);
    if (!rest) return true;
    virtual_source::cutting done{{driver::Code::not_ready, 0}, whole};
    try {
        heap::fence_set all = taken->fences;
        all.add(rest.fences);
        all.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
        if (all.empty() || fitting * fitting_pieces_in_largest <= source_->largest_piece_bytes()) {
            const growth_mark cutting(*this);
            bool out_of_reach = false;
            done.status = wait_on_host(held, all, last_resort(), &out_of_reach);
            if (out_of_reach) done.status = {driver::Code::not_ready, 0};
            if (done.status.ok()) {
                rest.fences.clear();
                taken->fences.clear();
                const unlocked without(held);
                done = source_->cut(at);
                if (!done.status.ok()) (void)driver_.take_last_error();
            }
            note_source();
        }
    } catch (const std::bad_alloc&) {
        // It stays whole.
    }
    if (done.mapped.size_bytes != 0) {
        give_or_lose(taken->area, rest.address, rest.size_bytes, std::move(rest.fences));
        return true;
    }
    h.remove_taken(whole.address, whole.size_bytes);
    if (taken->address < whole.address)
        give_or_lose(taken->area, taken->address, whole.address - taken->address, std::move(taken->fences));
    else
        h.expect_fewer_frees(1);
    return false;
}

/// Without the lock. Null, with upstream's words in `*why`, after upstream has refused exactly `size`.
void* pool_engine::ask_upstream(std::size_t* attempt, std::size_t size, cuda_stream_view stream, refusal* why) {
    const std::size_t step = options_.block_bytes != 0 ? options_.block_bytes : unit;
    const rmm::detail::upstream_call call;
    for (;;) {
        try {
            return upstream_->allocate_async(*attempt, unit, rmm::detail::onward_stream(stream));
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
void pool_engine::return_upstream(void* base, std::size_t size, cuda_stream_view stream) noexcept {
    try {
        upstream_->deallocate_async(base, size, unit, rmm::detail::onward_stream(stream));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("the upstream of a pool threw in deallocate: ", e.what());
    } catch (...) {
        rmm::detail::report_misuse("the upstream of a pool threw in deallocate");
    }
}

void pool_engine::add_upstream_block(void* base, std::size_t bytes, const heap::fence_set& fences) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    RMM_EXPECTS(address % unit == 0, "the upstream of a pool gave memory that is not aligned to 256 bytes");
    const auto noted = regions_.emplace(address, bytes).first;
    try {
        // A copy across the border of two allocations of the driver may fail, even where they touch.
        if (has_stocks_) blocks_.add_region(address, bytes, options_.block_bytes);
        heaps_[0].add_region(address, bytes, heap::border::sealed, fences);
    } catch (...) {
        if (has_stocks_) blocks_.remove_region(address, bytes);
        regions_.erase(noted);
        throw;
    }
    held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    peak_held_bytes_ = std::max(peak_held_bytes_, held_bytes());
    update_small_limit();
}

bool pool_engine::grow_ahead(std::size_t bytes, std::size_t target_bytes) {
    lock held(mutex_);
    wait(grown_, held, [this] { return !growing_; });
    const growth_mark growing(*this);
    const std::size_t room = target_bytes - std::min(target_bytes, align_up(held_bytes(), unit));
    std::size_t attempt = std::min(room, std::max(bytes, std::exchange(largest_missed_, 0)));
    if (attempt == 0) return false;
    void* base = nullptr;
    {
        const unlocked without(held);
        refusal ignored;
        const cuda_stream_view stream;
        base = ask_upstream(&attempt, std::min(attempt, smallest_step_ahead), stream, &ignored);
        if (base != nullptr) tell_added(reinterpret_cast<std::uintptr_t>(base), attempt, &stream);
    }
    if (base == nullptr) return false;
    try {
        add_upstream_block(base, attempt, {});
    } catch (...) {
        const unlocked without(held);
        tell_removed(reinterpret_cast<std::uintptr_t>(base), attempt);
        return_upstream(base, attempt, cuda_stream_view{});
        throw;
    }
    return true;
}

std::size_t pool_engine::trim(std::size_t keep_bytes) {
    lock held(mutex_);
    wait(grown_, held, [this] { return !growing_ || grower_ == std::this_thread::get_id(); });
    return trim(held, keep_bytes);
}

/// While nobody else grows or shrinks the pool.
std::size_t pool_engine::trim(lock& held, std::size_t keep_bytes) {
    const growth_mark shrinking(*this);
    // Memory goes back upstream in the order of the legacy stream, which must not be touched while a stream that waits
    // for it is captured.
    bool spoils = false;
    {
        const unlocked without(held);
        spoils = timelines_.is_part_of_capture(driver::legacy_stream());
    }
    if (spoils) return 0;
    release_ended_captures();
    collect_spans(true);
    return source_ == nullptr ? trim_upstream(held, keep_bytes) : trim_virtual(held, keep_bytes);
}

std::size_t pool_engine::trim_upstream(lock& held, std::size_t keep_bytes) {
    std::size_t given_back = 0;
    for (auto at = regions_.begin(); at != regions_.end() && held_bytes() > keep_bytes;) {
        const auto [address, size_bytes] = *at;
        if (!heaps_[0].is_free(address, size_bytes)) {
            ++at;
            continue;
        }
        if (!give_back_block(held, {address, size_bytes}, cuda_stream_view{}, rmm::detail::legacy_number)) break;
        given_back += size_bytes;
        at = regions_.upper_bound(address);
    }
    return given_back;
}

/// Without the lock.
virtual_source::trimming pool_engine::trim_source(const heap::range& pieces) {
    tell_removed(pieces.address, pieces.size_bytes);
    virtual_source::trimming done{{}, 0, pieces};
    try {
        done = source_->trim(pieces);
    } catch (...) {
        tell_added(pieces.address, pieces.size_bytes, nullptr);
        throw;
    }
    if (done.left.size_bytes != 0) tell_added(done.left.address, done.left.size_bytes, nullptr);
    return done;
}

/// Gives whole pieces of free memory back. The host waits for their last users.
std::size_t pool_engine::trim_virtual(lock& held, std::size_t keep_bytes) {
    std::size_t given_back = 0;
    const auto without_lock = [&](auto&& trim_some) {
        virtual_source::trimming t;
        {
            const unlocked without(held);
            t = trim_some();
            if (!t.status.ok()) (void)driver_.take_last_error();
        }
        given_back += t.released_bytes;
        note_source();
        return t;
    };
    if (held_bytes() <= keep_bytes) return given_back;
    if (!without_lock([&] { return source_->release_spare(); }).status.ok()) return given_back;
    for (std::uint8_t area = 0; area < num_areas; ++area) {
        heap::heap& h = heaps_[area];
        h.merge_all();  // a physical piece may lie under several pieces with different fences
        std::vector<heap::range> whole;
        h.for_each_free([&](std::uintptr_t address, std::size_t bytes, const heap::fence_set&) {
            if (const heap::range r = source_->removable({address, bytes}); r.size_bytes != 0) whole.push_back(r);
        });
        for (const heap::range& r : whole) {
            if (held_bytes() <= keep_bytes) return given_back;
            heap::block taken = h.take(r.address, r.size_bytes);
            if (!taken) continue;
            bool out_of_reach = false;
            driver::Status status;
            try {
                status = wait_on_host(held, taken.fences, last_resort(), &out_of_reach);
            } catch (...) {
                give_or_lose(area, taken.address, taken.size_bytes, std::move(taken.fences));
                throw;
            }
            if (!status.ok() || out_of_reach) {
                give_or_lose(area, taken.address, taken.size_bytes, std::move(taken.fences));
                return given_back;
            }
            virtual_source::trimming t;
            try {
                t = without_lock([&] { return trim_source(r); });
            } catch (...) {
                give_or_lose(area, taken.address, taken.size_bytes, {});
                throw;
            }
            h.remove_taken(r.address, r.size_bytes);
            if (t.left.size_bytes != 0) return_region(area, t.left, {});
            if (!t.status.ok()) return given_back;
        }
    }
    return given_back;
}

virtual_source_counts pool_engine::mappings() {
    lock held(mutex_);
    wait(grown_, held, [this] { return !growing_ || grower_ == std::this_thread::get_id(); });
    return source_ == nullptr ? virtual_source_counts{} : source_->counts();
}

pool_statistics pool_engine::statistics() {
    const lock held(mutex_);
    release_ended_captures();
    collect_spans(true);
    pool_statistics s;
    s.held_bytes = held_bytes();
    s.in_use_bytes = large_bytes_;
    s.num_blocks = large_.size();
    s.largest_free_bytes = std::max(heaps_[0].largest_free_bytes(), heaps_[1].largest_free_bytes());
    for (arena* a = holders_.front(); a != nullptr; a = holders_.behind(*a)) {
        const std::lock_guard in(a->mutex);
        s.in_use_bytes += a->heap.live_bytes();
        s.num_blocks += a->heap.num_live();
        s.largest_free_bytes = std::max(s.largest_free_bytes, a->heap.largest_free_bytes());
    }
    if (has_stocks_) {
        const std::size_t num_out = num_blocks_out();
        s.in_use_bytes += num_out * options_.block_bytes;
        s.num_blocks += num_out;
    }
    std::size_t of_captures = 0;
    for (const auto& c : captures_) of_captures += c->held_bytes;
    // What captures have in use counts as such; the rest of their memory is nobody else's either.
    s.captured_bytes = of_captures;
    s.free_bytes = s.held_bytes - s.in_use_bytes;
    for (const auto& c : captures_) {
        for (const auto& [stream, free] : c->free_on) s.free_bytes -= free.free_bytes();
        for (const heap::block& b : c->freed_elsewhere) s.free_bytes -= b.size_bytes;
    }
    s.maximum_bytes = options_.maximum_bytes == no_maximum ? 0 : options_.maximum_bytes;
    s.num_upstream_blocks = regions_.size();
    // What is mapped elsewhere on demand is not in pieces.
    s.largest_free_bytes = std::max(s.largest_free_bytes, spare_bytes_);
    return s;
}

std::uint64_t pool_engine::num_steps() {
    const lock held(mutex_);
    return num_steps_ + timelines_.num_steps() + heaps_[0].num_steps() + heaps_[1].num_steps();
}

std::size_t pool_engine::num_remembered() {
    const lock held(mutex_);
    return arenas_.size() + timelines_.size();
}

bool pool_engine::is_locked() noexcept {
    const lock held(mutex_, std::try_to_lock);
    return !held || std::any_of(arenas_.begin(), arenas_.end(), [](const auto& a) {
        const std::unique_lock in(a->mutex, std::try_to_lock);
        return !in.owns_lock();
    });
}

void pool_engine::set_name(std::string name) {
    const lock held(mutex_);
    name_ = std::move(name);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
