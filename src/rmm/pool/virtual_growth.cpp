// Implements virtual_growth (growth.hpp): physical pieces that are mapped side by side.
#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "rmm/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/growth_turn.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// An arena that has enough gets a sixteenth more than it has: few steps, and little that it does not need. What is
// mapped at once is one physical piece, which cannot be moved while anything of it is in use.
constexpr std::size_t growth_of_arenas = 16;
constexpr std::size_t most_added_bytes = std::size_t{32} << 20;
// What one stream has freed is no room for another before it is known to have passed. Among several streams the pool
// may grow by such a part of the peak more before it moves memory, which costs as much of the driver's time as hundreds
// of requests. (8 streams, 20 of 40 GiB live, sizes to 1 GiB, 40 000 operations for each of 15 seeds: 252 moves without
// that, 16 with it; live at the first refusal 98.8 % either way.)
constexpr std::size_t share_of_what_waits = 16;
// While less is in use (three quarters), the host does not wait to keep physical pieces whole.
constexpr std::size_t fitting_pieces_in_largest = 8;
// Requests that a stream's share of the pool must hold, so that the stream's own holes serve them. (Host driver, 512
// MiB, 16 streams, 86 % live, requests around 1 MiB: 2.7 % are refused where this is 8, 1.1 % with 32, 0.07 % with 64,
// 0.09 % with 128.)
constexpr std::size_t requests_in_share = 64;
constexpr std::size_t least_small_limit = std::size_t{256} << 10;
// Small blocks of many streams, each in a span of its own, would keep much of a small pool from its large requests: the
// spans that streams get before they need them are no more of it than this.
constexpr std::size_t largest_share_of_own_spans = 16;
// While the maximum is far, each stream may keep as much for the requests to come before others get it; all streams
// that may have spans together a sixteenth of the maximum.
constexpr std::size_t most_kept_by_stream = std::size_t{32} << 20;
// What arenas give together is worth taking it from all of them where it is such a part of what is held.
constexpr std::size_t parts_worth_collecting = 16;
// Arenas that have spans, each a granule at least, are no more of a small pool than this.
constexpr std::size_t share_of_holders = 4;

}  // namespace

growth_traits virtual_growth::traits_of(const virtual_source& source) noexcept {
    growth_traits traits;
    traits.is_virtual = true;
    // Pieces are mapped side by side where none is large enough: the tightest is best.
    traits.placement = heap::placement::best_fit;
    traits.small_area_limit = heap::small_request_limit(source.maximum_bytes(), source.granularity());
    traits.whole_granules_from = heap::whole_granules_from(source.maximum_bytes(), source.granularity());
    traits.granularity = source.granularity();
    return traits;
}

void virtual_growth::note_source() noexcept {
    pool_.facts.note_held(source_->held_bytes());
    spare_bytes_ = source_->spare_bytes();
}

/// What lies free in arenas is not: their streams, or others, use it before the pool grows.
std::size_t virtual_growth::in_use_bytes() const noexcept {
    return pool_.facts.held_bytes() - std::min(pool_.unused_bytes(), pool_.facts.held_bytes());
}

/// Bytes that may be taken from the driver before memory is moved or waited for; `slack` raises the limit.
std::size_t virtual_growth::eager_bytes(std::size_t slack) const noexcept {
    const std::size_t waiting = pool_.spans.num_holders() > 1 ? peak_bytes_ / share_of_what_waits : 0;
    const std::size_t until = std::max(heap::eager_growth(peak_bytes_, 0) + waiting + slack, eager_until_);
    return until - std::min(until, pool_.facts.held_bytes());
}

std::size_t virtual_growth::kept_by_stream() const noexcept {
    return std::min(most_kept_by_stream,
                    source_->maximum_bytes() / largest_share_of_own_spans / span_pool::most_holders);
}

/// Where arenas had little to give, the pool grows a while before they are asked again.
void virtual_growth::note_collected(std::size_t bytes) noexcept {
    const std::size_t step = pool_.facts.held_bytes() / parts_worth_collecting;
    if (bytes < step) eager_until_ = pool_.facts.held_bytes() + step;
}

// ---- what arenas get

/// Granules, in proportion to what the arena has already: those that touch become one span. While more may be held than
/// is in use, and there is room, as much again, up to what a stream may keep: each step costs as much of the driver's
/// time as a hundred requests.
std::size_t virtual_growth::span_for(std::size_t size, const arena& a) const noexcept {
    std::size_t share = std::min(a.span_bytes() / growth_of_arenas, most_added_bytes);
    const std::size_t doubled = std::min(a.span_bytes(), kept_by_stream());
    const bool has_room = pool_.facts.held_bytes() + doubled <= source_->maximum_bytes();
    if (has_room && doubled > share && eager_bytes(pool_.spans.num_holders() * kept_by_stream()) >= doubled)
        share = doubled;
    return align_up(std::max({size, share, granule}), granule);
}

/// What is large beside its stream's share of the pool comes from the heap, where the holes of all streams are one: in
/// arenas each stream has to find room among its own.
std::size_t virtual_growth::small_limit() const noexcept {
    const std::size_t share = source_->maximum_bytes() / std::max(std::size_t{1}, pool_.spans.num_holders());
    return std::min(std::max(std::bit_floor(share / requests_in_share), least_small_limit),
                    pool_.facts.traits.small_area_limit);
}

std::size_t virtual_growth::most_span_holders() const noexcept {
    const std::size_t granules = source_->maximum_bytes() / granule;
    // One of them is the common arena.
    const std::size_t fewest =
        std::clamp(granules / share_of_holders, std::size_t{2}, span_pool::fewest_holders + 1) - 1;
    return std::clamp(granules / largest_share_of_own_spans, fewest, span_pool::most_holders);
}

/// A pool of virtual memory begins empty, so every stream gets a span of its own with its first small request.
/// Otherwise the heap, which has memory by then, would serve all small requests behind the lock that all streams share.
bool virtual_growth::needs_own_span(std::size_t size, const arena& a) const noexcept {
    if (pool_.turn.is_taken() || a.span_bytes() != 0) return false;
    if (size > std::min(pool_.spans.small_limit(), granule)) return false;
    if ((a.own_number() == heap::heap::no_timeline && &a != &pool_.arenas.common()) ||
        pool_.spans.has_refused_fresh_spans())
        return false;
    return &a == &pool_.arenas.common() ||
           (pool_.spans.num_holders() + 1) * granule <= source_->maximum_bytes() / largest_share_of_own_spans;
}

bool virtual_growth::give_own_span(lock& held, std::size_t size, arena& a) {
    return !needs_own_span(size, a) || pool_.spans.add_span(size, a) || grow_by_span(held, size, a);
}

/// Virtual memory grows in small steps: a stream gets a span of its own rather than the leavings of others, for each of
/// which it would have to wait.
bool virtual_growth::is_better_than_waiting(std::size_t size, const arena& a) noexcept {
    if (pool_.turn.is_taken() || pool_.facts.area_of(size) == 0 || pool_.spans.has_refused_fresh_spans()) return false;
    const bool is_small = size <= pool_.spans.small_limit();
    const std::size_t bytes = is_small ? span_for(size, a) : size;
    if (pool_.facts.held_bytes() + bytes > source_->maximum_bytes()) return false;
    if (is_small && a.span_bytes() == 0 && size <= granule) return true;
    // What streams may keep is for their small requests.
    return eager_bytes(is_small ? pool_.spans.num_holders() * kept_by_stream() : 0) >= bytes;
}

// ---- growing

/// Called with a miss, by one thread at a time. An empty piece, with the cause, if there is no more.
piece virtual_growth::grow(lock& held, std::size_t size, arena& a, cuda_stream_view, refusal* why) {
    const growth_mark growing(pool_.turn);
    // A small request gets granules of its stream's, if there is memory for some.
    if (size <= pool_.spans.small_limit()) {
        arena& spans = pool_.spans.spans_of(a);
        const bool has_spans = &spans == &pool_.arenas.common() || spans.own_number() != heap::heap::no_timeline;
        const std::size_t bytes = has_spans ? span_for(size, spans) : align_up(size, granule);
        // Fresh memory beside what the arena has: what else is free would have to be moved.
        bool grown = has_spans && !pool_.spans.has_refused_fresh_spans() &&
                     pool_.facts.held_bytes() + bytes <= source_->maximum_bytes() && grow_by_span(held, size, spans);
        refusal ignored;
        if (!grown)
            if (piece whole = grow_or_move(held, bytes, a.own_number(), &ignored)) {
                pool_.put_back(std::move(whole));
                grown = true;
            }
        if (grown)
            if (piece small = pool_.find_ready(size, a)) return small;
    }
    // Rather than move anything for it, a request of the small area goes to the other one.
    if (const std::uint8_t area = pool_.facts.area_of(size); area != 0 && eager_bytes() < size)
        if (heap::block b = pool_.heap[0].try_allocate(size, a.own_number())) return piece::of_heap(std::move(b), 0);
    refusal first;
    if (piece made = grow_or_move(held, size, a.own_number(), &first)) return made;
    // The device may have less to give than it seemed: then with what it has left, and with none of that.
    if (first.status.code == driver::Code::out_of_memory) {
        for (const std::size_t fresh_bytes : {free_of_device(held), std::size_t{0}}) {
            refusal second;
            if (piece made = grow_or_move(held, size, a.own_number(), &second, fresh_bytes)) return made;
            if (second.why == refusal::cause::driver) first = second;
        }
    }
    *why = first;
    return {};
}

std::size_t virtual_growth::free_of_device(lock& held) {
    const unlocked without(held);
    std::size_t free_bytes = 0, total_bytes = 0;
    if (!pool_.facts.driver.memory_info(pool_.facts.device, &free_bytes, &total_bytes).ok())
        (void)pool_.facts.driver.take_last_error();
    return free_bytes / source_->granularity() * source_->granularity();
}

piece virtual_growth::grow_idle(lock& held, std::size_t size, refusal* why) {
    pool_.turn.wait_for_others(held);
    const growth_mark growing(pool_.turn);
    return grow_or_move(held, size, heap::heap::no_timeline, why);
}

/// A span of fresh memory for the arena; false if there is none. What is free beside it is left alone: with that, the
/// span would not begin where spans must.
bool virtual_growth::grow_by_span(lock& held, std::size_t size, arena& a) {
    const std::size_t bytes = span_for(size, a);
    const growth_mark growing(pool_.turn);
    if (a.window == 0)
        a.window = align_up(source_->window(num_windows_++ % span_pool::most_holders, num_windows), granule);
    if (a.num_spans() == 0) a.grows_at = a.window;
    virtual_source::growth grown;
    {
        const unlocked without(held);
        grown = source_->grow(bytes, pool_.facts.span_area(), &a.grows_at);
        if (grown.status.ok())
            pool_.tell_added(grown.made.address, grown.made.size_bytes, nullptr);
        else
            (void)pool_.facts.driver.take_last_error();
    }
    note_source();
    if (!grown.status.ok()) return false;
    if (!add_mapped(held, pool_.facts.span_area(), grown.made)) return false;
    heap::heap& h = pool_.heap[pool_.facts.span_area()];
    peak_bytes_ = std::max(peak_bytes_, in_use_bytes() + size);
    if (grown.made.address % granule != 0 || !span_directory::can_hold(grown.made.address, grown.made.size_bytes))
        return false;
    const heap::block span = h.take(grown.made.address, bytes);
    pool_.spans.install_span(span.address, span.size_bytes, span.fences, a);
    return true;
}

/// Adds newly mapped memory to the heap as free. False: the host had no memory for that, and the memory went back to
/// the driver.
bool virtual_growth::add_mapped(lock& held, std::uint8_t area, const heap::range& made) {
    try {
        pool_.heap[area].add_region(made.address, made.size_bytes, heap::border::open);
        return true;
    } catch (const std::bad_alloc&) {
        const unlocked without(held);
        pool_.tell_removed(made.address, made.size_bytes);
        (void)source_->trim(made);
    }
    note_source();
    return false;
}

/// Free ranges by address, without those whose users the host could not wait for.
std::vector<heap::free_range> virtual_growth::free_ranges() {
    std::vector<heap::free_range> free;
    const bool streams_only = pool_.fences.last_resort() == timelines::reach::streams;
    for (std::uint8_t i = 0; i < pool_facts::num_areas; ++i)
        pool_.heap[i].for_each_free([&](std::uintptr_t address, std::size_t bytes, const heap::fence_set& fences) {
            const bool ready = std::all_of(fences.begin(), fences.end(),
                                           [this](const heap::fence& f) { return pool_.streams.has_passed(f); });
            if (!ready && streams_only &&
                pool_.streams.first_out_of_reach(fences, heap::heap::no_timeline) != heap::heap::no_timeline)
                return;
            free.push_back({{address, bytes}, ready, i});
        });
    std::sort(free.begin(), free.end(),
              [](const heap::free_range& x, const heap::free_range& y) { return x.where.address < y.where.address; });
    return free;
}

/// The ranges that a plan moves, and the range beside the result: out of the heap while the lock is released. The
/// destructor frees the remaining ones.
struct virtual_growth::taken_ranges {
    struct part {
        heap::range where;
        std::uint8_t area;
        heap::fence_set fences;
    };

    explicit taken_ranges(pool_parts& of) noexcept : pool(of) {}
    ~taken_ranges() {
        for (part& p : moved) pool.heap.give_or_lose(p.area, p.where.address, p.where.size_bytes, std::move(p.fences));
        if (kept) pool.heap.give_or_lose(kept_area, kept.address, kept.size_bytes, std::move(kept.fences));
    }
    taken_ranges(const taken_ranges&) = delete;
    taken_ranges& operator=(const taken_ranges&) = delete;

    /// Out of the heaps. `free`: by address.
    void take(const heap::move_plan& plan, std::uint8_t area, const std::vector<heap::free_range>& free)
        KMM_REQUIRES(in_engine) {
        // By what is free in one area: pieces that are moved together may lie in several.
        moved.reserve(free.size() + plan.moved.size());
        auto at = free.begin();
        for (const heap::range& m : plan.moved) {
            while (at->where.end() <= m.address) ++at;
            for (auto f = at; f != free.end() && f->where.address < m.end(); ++f) {
                const std::uintptr_t begin = std::max(f->where.address, m.address);
                heap::block b = pool.heap[f->area].take(begin, std::min(f->where.end(), m.end()) - begin);
                RMM_EXPECTS(b, "a pool of virtual memory planned to move memory that is in use");
                moved.push_back({{b.address, b.size_bytes}, static_cast<std::uint8_t>(f->area), std::move(b.fences)});
            }
        }
        kept_area = area;
        kept = pool.heap[area].take(plan.kept.address, plan.kept.size_bytes);
    }
    /// Of what is moved.
    heap::fence_set users() const {
        heap::fence_set all;
        for (const part& p : moved) all.add(p.fences);
        return all;
    }

    pool_parts& pool;
    std::vector<part> moved;
    heap::block kept;
    std::uint8_t kept_area = 0;
};

/// Carries the plan out, when the users of what it moves are done. Throws std::bad_alloc where what was mapped found no
/// room in the heap, and went back to the driver. Lets the lock go.
driver::Status virtual_growth::remap(lock& held, const heap::move_plan& plan, std::uint8_t area, taken_ranges& taken) {
    virtual_source::remapping made;
    {
        const unlocked without(held);
        for (const heap::range& m : plan.moved) pool_.tell_removed(m.address, m.size_bytes);
        made = source_->remap(plan);
        for (const heap::range& m : made.ranges) pool_.tell_added(m.address, m.size_bytes, nullptr);
        if (!made.status.ok()) (void)pool_.facts.driver.take_last_error();
    }
    note_source();
    const std::vector<taken_ranges::part> moved = std::exchange(taken.moved, {});
    for (const taken_ranges::part& p : moved) pool_.heap[p.area].remove_taken(p.where.address, p.where.size_bytes);
    if (made.status.ok()) {
        bool is_noted = true;
        for (const heap::range& m : made.ranges) is_noted &= add_mapped(held, area, m);
        if (!is_noted) throw std::bad_alloc();
        return made.status;
    }
    // After a failure what was moved is where it was, but for what is spare now.
    for (const taken_ranges::part& p : moved)
        for (const heap::range& m : made.ranges) {
            const std::uintptr_t begin = std::max(p.where.address, m.address);
            const std::uintptr_t end = std::min(p.where.end(), m.end());
            if (begin < end) return_region(p.area, {begin, end - begin}, p.fences);
        }
    return made.status;
}

/// Maps memory, fresh or from elsewhere in the pool, so that `size` bytes lie in a row. The host waits for the users of
/// what is moved.
piece virtual_growth::grow_or_move(lock& held, std::size_t size, std::uint64_t own, refusal* why,
                                   std::size_t fresh_bytes) {
    const std::uint8_t area = pool_.facts.area_of(size);
    peak_bytes_ = std::max(peak_bytes_, in_use_bytes() + size);
    const std::vector<heap::free_range> free = free_ranges();
    virtual_source::growth_limits limits;
    limits.fresh_bytes = fresh_bytes;
    limits.eager_fresh_bytes = std::min(fresh_bytes, eager_bytes());
    const heap::move_plan plan = source_->plan(size, free, area, limits);
    if (!plan.possible) {
        why->meet_maximum(pool_.facts.held_bytes(), source_->maximum_bytes(), size);
        return {};
    }
    driver::Status status;
    {
        taken_ranges taken(pool_);
        taken.take(plan, area, free);
        bool out_of_reach = false;
        status = pool_.fences.wait_on_host(held, taken.users(), pool_.fences.last_resort(), &out_of_reach);
        if (status.ok() && out_of_reach) status = {driver::Code::out_of_memory, 0};
        if (status.ok()) status = remap(held, plan, area, taken);
    }
    note_source();
    pool_.spans.update_small_limit();
    if (!status.ok()) {
        why->why = status.code == driver::Code::out_of_memory ? refusal::cause::exhausted : refusal::cause::driver;
        why->device_is_full = status.code == driver::Code::out_of_memory;
        why->status = status;
        why->reason = "the device has no more memory to map";
        return {};
    }
    return pool_.heap.take(size, own);
}

/// Cuts the physical piece in which the block ends, at the block's end, before the block is used: the free rest of a
/// large piece could not be moved otherwise. Only where memory is scarce. False: the piece was lost to the driver on
/// the way, and the remaining part of the block is in the heap again.
bool virtual_growth::cut_behind(lock& held, piece* taken) {
    if (!*taken || taken->from != nullptr) return true;
    if (pool_.turn.is_of_another_thread()) return true;  // the source is at work
    const std::uintptr_t end = taken->address + taken->size_bytes;
    const std::uintptr_t at = align_up(end, source_->granularity());
    const heap::range whole = source_->piece_across(at);
    const std::size_t fitting = source_->fitting_piece(pool_.facts.held_bytes() - pool_.heap.free_bytes());
    if (whole.address < taken->address || !heap::is_worth_cutting(whole.size_bytes, fitting)) return true;
    // Takes the rest out of the heap, so that no other thread uses the piece while the lock is released.
    heap::heap& h = pool_.heap[taken->area];
    heap::block rest;
    try {
        rest = h.take(end, whole.end() - end);
    } catch (const std::bad_alloc&) {
        // It stays whole.
    }
    if (!rest) return true;
    virtual_source::cutting done{{driver::Code::not_ready, 0}, whole};
    try {
        heap::fence_set all = taken->fences;
        all.add(rest.fences);
        all.prune([this](const heap::fence& f) { return pool_.streams.has_passed(f); });
        if (all.empty() || fitting * fitting_pieces_in_largest <= source_->largest_piece_bytes()) {
            const growth_mark cutting(pool_.turn);
            bool out_of_reach = false;
            done.status = pool_.fences.wait_on_host(held, all, pool_.fences.last_resort(), &out_of_reach);
            if (out_of_reach) done.status = {driver::Code::not_ready, 0};
            if (done.status.ok()) {
                rest.fences.clear();
                taken->fences.clear();
                const unlocked without(held);
                done = source_->cut(at);
                if (!done.status.ok()) (void)pool_.facts.driver.take_last_error();
            }
            note_source();
        }
    } catch (const std::bad_alloc&) {
        // It stays whole.
    }
    if (done.mapped.size_bytes != 0) {
        pool_.heap.give_or_lose(taken->area, rest.address, rest.size_bytes, std::move(rest.fences));
        return true;
    }
    h.remove_taken(whole.address, whole.size_bytes);
    if (taken->address < whole.address)
        pool_.heap.give_or_lose(taken->area, taken->address, whole.address - taken->address, std::move(taken->fences));
    else
        h.expect_fewer_frees(1);
    return false;
}

/// Virtual memory that was taken out of its heap is free memory again.
void virtual_growth::return_region(std::uint8_t area, const heap::range& region,
                                   const heap::fence_set& fences) noexcept {
    try {
        heap::fence_set unpassed = fences;
        unpassed.prune([this](const heap::fence& f) { return pool_.streams.has_passed(f); });
        pool_.heap[area].add_region(region.address, region.size_bytes, heap::border::open, unpassed);
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

// ---- shrinking

/// Without the lock.
virtual_source::trimming virtual_growth::trim_source(const heap::range& pieces) {
    pool_.tell_removed(pieces.address, pieces.size_bytes);
    virtual_source::trimming done{{}, 0, pieces};
    try {
        done = source_->trim(pieces);
    } catch (...) {
        pool_.tell_added(pieces.address, pieces.size_bytes, nullptr);
        throw;
    }
    if (done.left.size_bytes != 0) pool_.tell_added(done.left.address, done.left.size_bytes, nullptr);
    return done;
}

/// Gives whole pieces of free memory back. The host waits for their last users.
std::size_t virtual_growth::trim(lock& held, std::size_t keep_bytes) {
    eager_until_ = 0;
    std::size_t given_back = 0;
    const auto without_lock = [&](auto&& trim_some) KMM_REQUIRES(in_engine) {
        virtual_source::trimming t;
        {
            const unlocked without(held);
            t = trim_some();
            if (!t.status.ok()) (void)pool_.facts.driver.take_last_error();
        }
        given_back += t.released_bytes;
        note_source();
        return t;
    };
    if (pool_.facts.held_bytes() <= keep_bytes) return given_back;
    if (!without_lock([&] { return source_->release_spare(); }).status.ok()) return given_back;
    for (std::uint8_t area = 0; area < pool_facts::num_areas; ++area) {
        heap::heap& h = pool_.heap[area];
        h.merge_all();  // a physical piece may lie under several pieces with different fences
        std::vector<heap::range> whole;
        h.for_each_free([&](std::uintptr_t address, std::size_t bytes, const heap::fence_set&) {
            if (const heap::range r = source_->removable({address, bytes}); r.size_bytes != 0) whole.push_back(r);
        });
        for (const heap::range& r : whole) {
            if (pool_.facts.held_bytes() <= keep_bytes) return given_back;
            heap::block taken = h.take(r.address, r.size_bytes);
            if (!taken) continue;
            bool out_of_reach = false;
            driver::Status status;
            try {
                status = pool_.fences.wait_on_host(held, taken.fences, pool_.fences.last_resort(), &out_of_reach);
            } catch (...) {
                pool_.heap.give_or_lose(area, taken.address, taken.size_bytes, std::move(taken.fences));
                throw;
            }
            if (!status.ok() || out_of_reach) {
                pool_.heap.give_or_lose(area, taken.address, taken.size_bytes, std::move(taken.fences));
                return given_back;
            }
            virtual_source::trimming t;
            try {
                t = without_lock([&] { return trim_source(r); });
            } catch (...) {
                pool_.heap.give_or_lose(area, taken.address, taken.size_bytes, {});
                throw;
            }
            h.remove_taken(r.address, r.size_bytes);
            if (t.left.size_bytes != 0) return_region(area, t.left, {});
            if (!t.status.ok()) return given_back;
        }
    }
    return given_back;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
