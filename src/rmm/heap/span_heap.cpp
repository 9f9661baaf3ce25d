// Owns: the algorithms of span_heap.hpp. Must not know: streams, drivers, locks. Runs on whichever thread holds the
// lock of the arena that owns the heap.
#include "rmm/heap/span_heap.hpp"

#include <algorithm>
#include <bit>

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

/// Afterwards `new_piece` cannot fail.
void span_heap::reserve_piece() {
    if (unused_ != none) return;
    pieces_.emplace_back();
    const auto made = static_cast<index>(pieces_.size() - 1);
    pieces_[made].next = unused_;
    unused_ = made;
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

void span_heap::add_span(std::uintptr_t address, std::size_t size_bytes, std::uint64_t position) {
    reserve_piece();
    auto slot = spans_.begin();
    if (num_spans_ == spans_.size())
        slot = spans_.emplace(spans_.end());
    else
        while (slot->units != 0) ++slot;
    const index at = new_piece();
    piece& p = pieces_[at];
    p.address = address;
    p.units = static_cast<std::uint32_t>(size_bytes >> unit_log2_);
    p.position = position;
    p.in_span = static_cast<std::uint32_t>(slot - spans_.begin());
    p.is = state::free;
    *slot = {address, p.units, at, 0};
    ++num_spans_;
    ++num_unused_spans_;
    span_bytes_ += size_bytes;
    link(at);
}

span_heap::span span_heap::remove_empty_span(std::size_t* from) noexcept {
    for (; *from < spans_.size(); ++*from) {
        span_record& s = spans_[*from];
        if (s.units == 0 || s.num_live != 0) continue;
        const piece& first = pieces_[s.first];
        if (first.is == state::free && first.units == s.units) return remove(s);
    }
    return {};
}

/// Nothing in it is in use.
span_heap::span span_heap::remove(span_record& s) noexcept {
    const span removed{s.address, bytes(s.units), pieces_[s.first].position};
    for (index at = s.first; at != none;) {
        const index behind = pieces_[at].behind;
        if (pieces_[at].is == state::free) unlink(at);
        drop_piece(at);
        at = behind;
    }
    span_bytes_ -= removed.size_bytes;
    --num_spans_;
    --num_unused_spans_;
    s = {};
    return removed;
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
    if (whole.behind != none) pieces_[whole.behind].before = rest;
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
    reserve_piece();
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
    reserve_piece();
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
        if (b.behind != none) pieces_[b.behind].before = at;
        drop_piece(behind);
    }
    if (const index before = pieces_[at].before; before != none && pieces_[before].is == state::free) {
        unlink(before);
        piece& b = pieces_[before];
        const piece& p = pieces_[at];
        b.units += p.units;
        b.position = std::max(b.position, p.position);
        b.behind = p.behind;
        if (p.behind != none) pieces_[p.behind].before = before;
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
