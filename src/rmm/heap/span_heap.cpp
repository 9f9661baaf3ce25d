// Owns: the algorithms of span_heap.hpp. Must not know: streams, drivers, locks. Runs on whichever thread holds the
// lock of the arena that owns the heap.
#include "rmm/heap/span_heap.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "rmm/aligned.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

span_heap::span_heap(std::size_t unit_bytes) : unit_log2_(static_cast<unsigned>(std::countr_zero(unit_bytes))) {
    for (auto& row : heads_) row.fill(none);
}

span_heap::list_class span_heap::class_of(std::uint32_t units) noexcept {
    if (units < steps) return {0, units};
    const auto log2 = static_cast<unsigned>(std::bit_width(units)) - 1;
    return {log2 - steps_log2 + 1, (units >> (log2 - steps_log2)) & (steps - 1)};
}

void span_heap::link(index at) noexcept {
    piece& p = pieces_[at];
    const auto [row, step] = class_of(p.units);
    index& head = heads_[row][step];
    p.previous = none;
    p.next = head;
    if (head != none) pieces_[head].previous = at;
    head = at;
    steps_in_row_[row] = static_cast<std::uint16_t>(steps_in_row_[row] | 1u << step);
    rows_ |= 1u << row;
    free_bytes_ += bytes(p.units);
}

void span_heap::unlink(index at) noexcept {
    piece& p = pieces_[at];
    free_bytes_ -= bytes(p.units);
    if (p.next != none) pieces_[p.next].previous = p.previous;
    if (p.previous != none) {
        pieces_[p.previous].next = p.next;
        return;
    }
    const auto [row, step] = class_of(p.units);
    heads_[row][step] = p.next;
    if (p.next != none) return;
    steps_in_row_[row] = static_cast<std::uint16_t>(steps_in_row_[row] & ~(1u << step));
    if (steps_in_row_[row] == 0) rows_ &= ~(1u << row);
}

/// A free piece of at least `units`, or none.
span_heap::index span_heap::find(std::uint32_t units) const noexcept {
    const auto own = class_of(units);
    int probes = 0;
    for (index at = heads_[own.row][own.step]; at != none && probes < max_probes; at = pieces_[at].next, ++probes)
        if (pieces_[at].units >= units) return at;
    // In every class behind the request's own, all pieces fit.
    unsigned row = own.row;
    std::uint32_t in_row = own.step + 1 < steps ? steps_in_row_[row] & ~((2u << own.step) - 1) : 0;
    if (in_row == 0) {
        const std::uint32_t rows = row + 1 < num_rows ? rows_ & ~((2u << row) - 1) : 0;
        if (rows == 0) return none;
        row = static_cast<unsigned>(std::countr_zero(rows));
        in_row = steps_in_row_[row];
    }
    return heads_[row][static_cast<unsigned>(std::countr_zero(in_row))];
}

/// Afterwards `count` calls of `new_piece`, two at most, cannot fail.
void span_heap::reserve_pieces(int count) {
    index at = unused_;
    for (; count > 0 && at != none; --count) at = pieces_[at].next;
    for (; count > 0; --count) {
        pieces_.emplace_back();
        const auto made = static_cast<index>(pieces_.size() - 1);
        pieces_[made].next = unused_;
        unused_ = made;
    }
}

span_heap::index span_heap::new_piece() noexcept {
    const index at = unused_;
    unused_ = pieces_[at].next;
    pieces_[at] = piece{};
    return at;
}

void span_heap::drop_piece(index at) noexcept {
    pieces_[at].is = state::unused;
    pieces_[at].next = unused_;
    unused_ = at;
}

// ---- spans

/// Afterwards `new_record` cannot fail.
void span_heap::reserve_record() {
    if (!unused_records_.empty()) return;
    unused_records_.reserve(spans_.size() + 1);
    std::map<std::uintptr_t, std::uint32_t> made;
    made.emplace(0, static_cast<std::uint32_t>(spans_.size()));
    spans_.emplace_back();
    unused_records_.push_back(made.extract(made.begin()));
}

std::uint32_t span_heap::new_record(const span_record& s) noexcept {
    record_node node = std::move(unused_records_.back());
    unused_records_.pop_back();
    const std::uint32_t of = node.mapped();
    spans_[of] = s;
    node.key() = s.address;
    by_address_.insert(std::move(node));
    ++num_spans_;
    if (s.num_live == 0) ++num_unused_spans_;
    return of;
}

void span_heap::drop_record(std::uint32_t of) noexcept {
    span_record& s = spans_[of];
    if (s.num_live == 0) --num_unused_spans_;
    --num_spans_;
    unused_records_.push_back(by_address_.extract(s.address));
    s = {};
}

/// The span begins there from now on.
void span_heap::move_record(std::uint32_t of, std::uintptr_t address) noexcept {
    record_node node = by_address_.extract(spans_[of].address);
    node.key() = address;
    by_address_.insert(std::move(node));
    spans_[of].address = address;
}

/// Walks both rows at once, away from each other. O(the shorter one).
span_heap::shorter_side span_heap::shorter_of(index left, index right) const noexcept {
    std::uint32_t live_left = 0;
    std::uint32_t live_right = 0;
    for (; left != none && right != none; num_steps_ += 2) {
        live_left += pieces_[left].is == state::live ? 1 : 0;
        live_right += pieces_[right].is == state::live ? 1 : 0;
        left = pieces_[left].before;
        right = pieces_[right].behind;
    }
    return left == none ? shorter_side{true, live_left} : shorter_side{false, live_right};
}

void span_heap::renumber(index from, bool to_the_left, std::uint32_t of) noexcept {
    for (index at = from; at != none; at = to_the_left ? pieces_[at].before : pieces_[at].behind) {
        pieces_[at].in_span = of;
        ++num_steps_;
    }
}

std::uint32_t span_heap::span_that_begins_at(std::uintptr_t address) const noexcept {
    const auto at = by_address_.find(address);
    return at == by_address_.end() ? none : at->second;
}

std::uint32_t span_heap::span_that_ends_at(std::uintptr_t address) const noexcept {
    const auto behind = by_address_.lower_bound(address);
    if (behind == by_address_.begin()) return none;
    const std::uint32_t of = std::prev(behind)->second;
    return spans_[of].address + bytes(spans_[of].units) == address ? of : none;
}

/// Makes one span of two that touch.
void span_heap::join(std::uint32_t before, std::uint32_t behind) noexcept {
    const span_record a = spans_[before];
    const span_record b = spans_[behind];
    const bool keeps_behind = shorter_of(a.last, b.first).is_left;
    if (keeps_behind)
        renumber(a.last, true, behind);
    else
        renumber(b.first, false, before);
    pieces_[a.last].behind = b.first;
    pieces_[b.first].before = a.last;
    drop_record(keeps_behind ? before : behind);
    const std::uint32_t kept = keeps_behind ? behind : before;
    if (keeps_behind) move_record(behind, a.address);
    if (spans_[kept].num_live == 0 && a.num_live + b.num_live != 0) --num_unused_spans_;
    spans_[kept] = {a.address, a.units + b.units, a.first, b.last, a.num_live + b.num_live};
}

void span_heap::add_span(std::uintptr_t address, std::size_t size_bytes, std::uint64_t position, bool joins) {
    reserve_pieces(1);
    reserve_record();
    const index at = new_piece();
    piece& p = pieces_[at];
    p.address = address;
    p.units = static_cast<std::uint32_t>(size_bytes >> unit_log2_);
    p.is = state::detached;  // until it is merged with free neighbours
    const std::uint32_t made = new_record({address, p.units, at, at, 0});
    p.in_span = made;
    span_bytes_ += size_bytes;
    if (joins) {
        if (const std::uint32_t before = span_that_ends_at(address); before != none) join(before, made);
        const std::uint32_t behind = span_that_begins_at(address + size_bytes);
        if (behind != none) join(pieces_[at].in_span, behind);
    }
    release(at, position);
}

span_heap::span span_heap::remove_empty_span(std::size_t* from) noexcept {
    for (; *from < spans_.size(); ++*from) {
        const span_record& s = spans_[*from];
        if (s.units == 0 || s.num_live != 0) continue;
        const piece& first = pieces_[s.first];
        if (first.is != state::free || first.units != s.units) continue;
        const span removed{s.address, bytes(s.units), first.position};
        unlink(s.first);
        drop_piece(s.first);
        span_bytes_ -= removed.size_bytes;
        drop_record(static_cast<std::uint32_t>(*from));
        return removed;
    }
    return {};
}

/// Appends the free pieces of at least `least_bytes`.
void span_heap::add_large_free(std::size_t least_bytes, std::vector<index>* pieces) const {
    const auto units = static_cast<std::uint32_t>(least_bytes >> unit_log2_);
    const auto least = class_of(units);
    for (unsigned row = least.row; row < num_rows; ++row)
        for (unsigned step = row == least.row ? least.step : 0; (steps_in_row_[row] >> step) != 0; ++step)
            for (index at = heads_[row][step]; at != none; at = pieces_[at].next, ++num_steps_)
                if (pieces_[at].units >= units) pieces->push_back(at);
}

/// The pieces beside each other of which none is in use, the given one among them, and the whole granules in them.
span_heap::row span_heap::row_around(index at, std::size_t granule_bytes) const noexcept {
    index last = at;
    index first = at;
    for (; pieces_[first].before != none && pieces_[pieces_[first].before].is != state::live; ++num_steps_)
        first = pieces_[first].before;
    for (; pieces_[last].behind != none && pieces_[pieces_[last].behind].is != state::live; ++num_steps_)
        last = pieces_[last].behind;
    row r;
    r.all_end = end_of(pieces_[last]);
    std::uintptr_t begin = align_up(pieces_[first].address, granule_bytes);
    std::uintptr_t end = align_down(end_of(pieces_[last]), granule_bytes);
    // A detached block across the border stays, and with it the granules that it reaches into.
    for (index i = first; i != none && pieces_[i].address < begin; i = i == last ? none : pieces_[i].behind)
        if (pieces_[i].is == state::detached && end_of(pieces_[i]) > begin)
            begin = align_up(end_of(pieces_[i]), granule_bytes);
    for (index i = last; i != none && end_of(pieces_[i]) > end; i = i == first ? none : pieces_[i].before)
        if (pieces_[i].is == state::detached && pieces_[i].address < end)
            end = align_down(pieces_[i].address, granule_bytes);
    if (begin >= end) return r;
    r.begin = begin;
    r.end = end;
    for (r.first = first; end_of(pieces_[r.first]) <= begin;) r.first = pieces_[r.first].behind;
    return r;
}

/// Throws std::bad_alloc, with nothing done.
void span_heap::remove_row(const row& r) {
    reserve_pieces(2);
    reserve_record();
    const auto cut_free_piece = [this](index at, std::uintptr_t where) {
        unlink(at);
        const index rest = split(at, static_cast<std::uint32_t>((where - pieces_[at].address) >> unit_log2_));
        link(at);
        link(rest);
        return rest;
    };
    const index first = pieces_[r.first].address < r.begin ? cut_free_piece(r.first, r.begin) : r.first;
    const std::uint32_t of = pieces_[first].in_span;
    const index left = pieces_[first].before;
    index right = first;
    while (right != none && pieces_[right].address < r.end) {
        if (end_of(pieces_[right]) > r.end) cut_free_piece(right, r.end);
        const index behind = pieces_[right].behind;
        if (pieces_[right].is == state::free) unlink(right);
        drop_piece(right);
        right = behind;
    }
    span_bytes_ -= r.end - r.begin;
    if (left != none) pieces_[left].behind = none;
    if (right != none) pieces_[right].before = none;
    span_record& s = spans_[of];
    const auto units_left = static_cast<std::uint32_t>((r.begin - s.address) >> unit_log2_);
    const auto units_behind = s.units - static_cast<std::uint32_t>((r.end - s.address) >> unit_log2_);
    if (left == none && right == none) return drop_record(of);
    if (left == none) {
        move_record(of, r.end);
        s.units = units_behind;
        s.first = right;
        return;
    }
    if (right == none) {
        s.units = units_left;
        s.last = left;
        return;
    }
    // The shorter side gets another number.
    const shorter_side shorter = shorter_of(left, right);
    const span_record whole_span = s;
    span_record on_left{s.address, units_left, s.first, left, shorter.num_live};
    span_record on_right{r.end, units_behind, right, s.last, shorter.num_live};
    (shorter.is_left ? on_right : on_left).num_live = whole_span.num_live - shorter.num_live;
    if (whole_span.num_live == 0) --num_unused_spans_;
    if (shorter.is_left) move_record(of, r.end);
    s = shorter.is_left ? on_right : on_left;
    if (s.num_live == 0) ++num_unused_spans_;
    renumber(shorter.is_left ? left : right, shorter.is_left, new_record(shorter.is_left ? on_left : on_right));
}

/// Leaves the first `units` to the piece; the rest, in the same state, is returned. A descriptor has been reserved.
span_heap::index span_heap::split(index at, std::uint32_t units) noexcept {
    const index rest = new_piece();
    piece& whole = pieces_[at];
    piece& r = pieces_[rest];
    r.address = whole.address + bytes(units);
    r.units = whole.units - units;
    r.position = whole.position;
    r.before = at;
    r.behind = whole.behind;
    r.in_span = whole.in_span;
    r.is = whole.is;
    if (whole.behind != none)
        pieces_[whole.behind].before = rest;
    else
        spans_[whole.in_span].last = rest;
    whole.behind = rest;
    whole.units = units;
    return rest;
}

span_heap::taken span_heap::try_allocate(std::size_t size_bytes, std::uint16_t tag) {
    const std::size_t wanted = size_bytes >> unit_log2_;
    if (wanted > ~std::uint32_t{0} || size_bytes > free_bytes_) return {};
    const auto units = static_cast<std::uint32_t>(wanted);
    const index at = find(units);
    if (at == none) return {};
    live_.reserve_one();
    reserve_pieces(1);
    unlink(at);
    if (pieces_[at].units > units) link(split(at, units));
    piece& p = pieces_[at];
    p.is = state::live;
    p.tag = tag;
    live_.insert(p.address >> unit_log2_, at);
    if (spans_[p.in_span].num_live++ == 0) --num_unused_spans_;
    live_bytes_ += size_bytes;
    return {p.address, size_bytes, p.position};
}

std::size_t span_heap::free(std::uintptr_t address, std::uint64_t position) noexcept {
    const index at = take_live(address);
    if (at == none) return 0;
    const std::size_t size = bytes(pieces_[at].units);
    live_bytes_ -= size;
    if (--spans_[pieces_[at].in_span].num_live == 0) ++num_unused_spans_;
    release(at, position);
    return size;
}

span_heap::detached span_heap::detach(std::uintptr_t address, std::size_t* out_bytes) noexcept {
    const index at = take_live(address);
    *out_bytes = 0;
    if (at == none) return none;
    pieces_[at].is = state::detached;
    *out_bytes = bytes(pieces_[at].units);
    live_bytes_ -= *out_bytes;
    if (--spans_[pieces_[at].in_span].num_live == 0) ++num_unused_spans_;
    return at;
}

void span_heap::free_detached(detached block, std::uint64_t position) noexcept { release(block, position); }

span_heap::taken span_heap::take_detached(detached block, std::uint16_t tag) {
    piece& p = pieces_[block];
    live_.insert(p.address >> unit_log2_, block);
    p.is = state::live;
    p.tag = tag;
    if (spans_[p.in_span].num_live++ == 0) --num_unused_spans_;
    live_bytes_ += bytes(p.units);
    return {p.address, bytes(p.units), p.position};
}

span_heap::detached span_heap::split_detached(detached block, std::size_t size_bytes) {
    reserve_pieces(1);
    return split(block, static_cast<std::uint32_t>(size_bytes >> unit_log2_));
}

/// Makes the piece free, as one with its free neighbours.
void span_heap::release(index at, std::uint64_t position) noexcept {
    pieces_[at].position = position;
    if (const index behind = pieces_[at].behind; behind != none && pieces_[behind].is == state::free) {
        unlink(behind);
        piece& p = pieces_[at];
        const piece& b = pieces_[behind];
        p.units += b.units;
        p.position = std::max(p.position, b.position);
        p.behind = b.behind;
        if (b.behind != none)
            pieces_[b.behind].before = at;
        else
            spans_[p.in_span].last = at;
        drop_piece(behind);
    }
    if (const index before = pieces_[at].before; before != none && pieces_[before].is == state::free) {
        unlink(before);
        piece& b = pieces_[before];
        const piece& p = pieces_[at];
        b.units += p.units;
        b.position = std::max(b.position, p.position);
        b.behind = p.behind;
        if (p.behind != none)
            pieces_[p.behind].before = before;
        else
            spans_[b.in_span].last = before;
        drop_piece(at);
        at = before;
    }
    pieces_[at].is = state::free;
    link(at);
}

std::size_t span_heap::largest_free_bytes() const noexcept {
    if (rows_ == 0) return 0;
    const auto row = static_cast<unsigned>(std::bit_width(rows_)) - 1;
    const auto step = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(steps_in_row_[row]))) - 1;
    std::uint32_t largest = 0;
    for (index at = heads_[row][step]; at != none; at = pieces_[at].next)
        largest = std::max(largest, pieces_[at].units);
    return bytes(largest);
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
