// Owns: the algorithms of heap.hpp. Must not know: drivers, streams, threads, kmm. Runs on the thread that holds the
// lock of the pool that owns the heap.
//
// Strong exception guarantee: every public call either succeeds or throws and leaves the heap as it was. Nodes and
// copies of fences are made before anything is linked, and a split or shrunk piece keeps its node.
#include "rmm/heap/heap.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "driver/format.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {
namespace {

// Nodes are made in lots: a small heap has few, and a large one asks the host rarely.
constexpr std::size_t least_nodes = 8;
constexpr std::size_t most_nodes = 256;

// Sums of rows serve only searches in which no single piece fits. Maintaining them takes a third of the time of each
// change; up to this number of pieces a linear search takes less than a microsecond instead.
constexpr std::size_t few_pieces = 128;

std::string describe(std::uintptr_t address, std::size_t size_bytes) {
    return kmm::driver::format("{} bytes at address {}", size_bytes, address);
}

/// The range lies strictly inside the piece.
template<typename Piece>
bool is_inside(const Piece& p, std::uintptr_t begin, std::uintptr_t end) noexcept {
    return p.address < begin && end < p.end();
}

}  // namespace

heap::heap(std::size_t alignment, merging how, placement where)
    : alignment_(alignment), merging_(how), placement_(where) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        throw std::invalid_argument(kmm::driver::format("heap alignment {} is not a power of two", alignment));
}

// ---- nodes

/// Ensures `count` unused nodes beyond those reserved for expected frees. Throws std::bad_alloc, with nothing done.
void heap::reserve_nodes(std::size_t count) {
    const std::size_t wanted = std::min(num_expected_, most_expected_) + count;
    if (unused_.size >= wanted) return;
    const std::size_t made = std::max(wanted - unused_.size, std::clamp(num_pieces_ / 2, least_nodes, most_nodes));
    nodes_.push_back(std::make_unique<piece[]>(made));
    for (std::size_t i = made; i > 0; --i) {
        piece* const node = &nodes_.back()[i - 1];
        // Xorshift (Marsaglia): any order of priorities that has nothing to do with addresses will do.
        seed_ ^= seed_ << 13;
        seed_ ^= seed_ >> 17;
        seed_ ^= seed_ << 5;
        node->priority = seed_;
        unused_.put(node);
    }
}

heap::piece* heap::node_list::take() noexcept {
    piece* const node = first;
    first = node->in_sizes.child[0];
    --size;
    return node;
}

void heap::node_list::put(piece* node) noexcept {
    node->fences.clear();
    node->in_sizes.child[0] = first;
    first = node;
    ++size;
}

void heap::expect_frees(std::size_t more) {
    reserve_nodes(more);
    num_expected_ += more;
}

// ---- one piece

/// Mostly branch-free: branches here would be unpredictable, as they depend on the addresses.
bool heap::address_order::update(piece& p) const noexcept {
    constexpr static row_sums none{0, ~std::uintptr_t{0}, 0, 0, 0, false};  // no piece ends or begins there
    const piece* const left = address_tree::left(&p);
    const piece* const right = address_tree::right(&p);
    const std::size_t largest =
        std::max({p.of == nobody ? p.size_bytes : 0, left != nullptr ? left->largest_ready_bytes : 0,
                  right != nullptr ? right->largest_ready_bytes : 0});
    const bool changes = std::exchange(p.largest_ready_bytes, largest) != largest;
    if (!sums_rows) return changes;
    const row_sums& l = left != nullptr ? left->below : none;
    const row_sums& r = right != nullptr ? right->below : none;
    const std::size_t before = l.end == p.address && !p.begins_region ? l.last_row_bytes : 0;
    const std::size_t behind = r.begin == p.end() && !r.begins_region ? r.first_row_bytes : 0;
    const std::size_t row = before + p.size_bytes + behind;
    row_sums sums;
    sums.begin = left != nullptr ? l.begin : p.address;
    sums.end = right != nullptr ? r.end : p.end();
    sums.first_row_bytes = before == p.address - sums.begin ? row : l.first_row_bytes;
    sums.last_row_bytes = behind == sums.end - p.end() ? row : r.last_row_bytes;
    sums.longest_bytes = std::max({row, l.longest_bytes, r.longest_bytes});
    sums.begins_region = left != nullptr ? l.begins_region : p.begins_region;
    if (p.below == sums) return changes;
    p.below = sums;
    return true;
}

void heap::enter_sizes(piece* at) noexcept {
    if (at->of == nobody) return ready_.insert(at);
    by_owner_.insert(at);
    if (fenced_is_kept_) fenced_.insert(at);
}

void heap::leave_sizes(piece* at) noexcept {
    if (at->of == nobody) return ready_.erase(at);
    by_owner_.erase(at);
    if (fenced_is_kept_) fenced_.erase(at);
}

/// Between two neighbours, of which one may be null. A node has been reserved.
void heap::insert(piece* before, std::uintptr_t address, std::size_t size_bytes, bool begins_region, fence_set fences,
                  owner of, piece* behind) noexcept {
    piece* const at = unused_.take();
    at->address = address;
    at->size_bytes = size_bytes;
    at->begins_region = begins_region;
    at->fences = std::move(fences);
    at->of = of;
    by_address_.insert_between(before, at, behind);
    enter_sizes(at);
    free_bytes_ += size_bytes;
    if (++num_pieces_ > few_pieces && !by_address_.order().sums_rows) by_address_.set_order({{}, true});
}

void heap::erase(piece* at) noexcept {
    leave_sizes(at);
    by_address_.erase(at);
    free_bytes_ -= at->size_bytes;
    --num_pieces_;
    unused_.put(at);
    if (num_pieces_ < few_pieces / 2 && by_address_.order().sums_rows) by_address_.set_order({{}, false});
}

/// The order of addresses stays as it is.
void heap::resize(piece* at, std::uintptr_t address, std::size_t size_bytes, bool begins_region) noexcept {
    leave_sizes(at);
    free_bytes_ += size_bytes;
    free_bytes_ -= at->size_bytes;
    at->address = address;
    at->size_bytes = size_bytes;
    at->begins_region = begins_region;
    enter_sizes(at);
    by_address_.changed(at);
}

/// Merges the piece with the one behind it, if both may be one.
void heap::join_with_next(piece* before) noexcept {
    piece* const behind = address_tree::next(before);
    if (behind == nullptr || !touch(*before, *behind) || !joins(before->fences, behind->fences)) return;
    const std::size_t size = before->size_bytes + behind->size_bytes;
    before->fences.add(behind->fences);  // of the same timelines: this allocates nothing
    erase(behind);
    resize(before, before->address, size, before->begins_region);
}

/// A piece that has left the trees of sizes enters them as one with its neighbours, as far as they may be one. What
/// joins leaves and enters each tree once.
void heap::enter_joined(piece* at) noexcept {
    piece* const before = address_tree::previous(at);
    piece* const behind = address_tree::next(at);
    const bool joins_behind = behind != nullptr && touch(*at, *behind) && joins(at->fences, behind->fences);
    const bool joins_before = before != nullptr && touch(*before, *at) && joins(before->fences, at->fences);
    piece* const kept = joins_before ? before : at;
    if (joins_before) leave_sizes(before);
    if (joins_behind) leave_sizes(behind);
    // One change of the sums after the other: each goes up the tree as far as it matters.
    std::size_t joined = kept->size_bytes;
    for (piece* const gone : {joins_before ? at : nullptr, joins_behind ? behind : nullptr}) {
        if (gone == nullptr) continue;
        kept->fences.add(gone->fences);  // of the same timelines: this allocates nothing
        joined += gone->size_bytes;
        by_address_.erase(gone);
        --num_pieces_;
        unused_.put(gone);
    }
    kept->size_bytes = joined;
    enter_sizes(kept);
    by_address_.changed(kept);  // it may have lost its fences, and be ready now
}

/// Whether a region begins at the address has changed.
void heap::note_border(std::uintptr_t address, bool is_border) noexcept {
    piece* const at = at_or_behind(by_address_, address);
    if (at == nullptr || at->address != address) return;
    at->begins_region = is_border;
    by_address_.changed(at);
    if (piece* const before = address_tree::previous(at)) join_with_next(before);
}

// ---- regions

void heap::add_region(std::uintptr_t address, std::size_t size_bytes, border borders, const fence_set& fences) {
    const std::uintptr_t begin = (address + alignment_ - 1) / alignment_ * alignment_;
    const std::uintptr_t end = (address + size_bytes) / alignment_ * alignment_;
    if (address + size_bytes < address || begin < address)
        throw std::invalid_argument(
            kmm::driver::format("heap region of {} wraps around", describe(address, size_bytes)));
    if (end <= begin) return;  // not one aligned unit in it

    piece* const previous = at_or_before(regions_, begin);
    piece* const next = previous == nullptr ? regions_.first() : region_tree::next(previous);
    if ((next != nullptr && next->address < end) || (previous != nullptr && previous->end() > begin))
        throw std::invalid_argument(
            kmm::driver::format("heap region of {} overlaps an earlier one", describe(address, size_bytes)));
    fence_set own = fences;
    reserve_nodes(2);

    piece* region = unused_.take();
    region->address = begin;
    region->size_bytes = end - begin;
    region->is_sealed = borders == border::sealed;
    regions_.insert(region);
    piece* const behind = at_or_behind(by_address_, begin);
    piece* const before = behind != nullptr ? address_tree::previous(behind) : by_address_.last();
    const owner of = owner_of(own);
    insert(before, begin, end - begin, true, std::move(own), of, behind);
    capacity_bytes_ += end - begin;
    if (next != nullptr && next->address == end) {
        const bool joins_next = !region->is_sealed && !next->is_sealed;
        if (joins_next) {
            region->size_bytes += next->size_bytes;
            regions_.erase(next);
            unused_.put(next);
        }
        note_border(end, !joins_next);
    }
    if (previous != nullptr && previous->end() == begin && !region->is_sealed && !previous->is_sealed) {
        previous->size_bytes += region->size_bytes;
        regions_.erase(region);
        unused_.put(region);
        note_border(begin, false);
    }
}

bool heap::remove_region(std::uintptr_t address, std::size_t size_bytes, fence_set* left) {
    const std::uintptr_t begin = (address + alignment_ - 1) / alignment_ * alignment_;
    const std::uintptr_t end = (address + size_bytes) / alignment_ * alignment_;
    if (end <= begin) return false;

    piece* const first = first_of_free(begin, end);
    if (first == nullptr) return false;
    fence_set fences;
    for (const piece* at = first; at != nullptr && at->address < end; at = address_tree::next(at))
        fences.add(at->fences);
    if (!fences.empty() && left == nullptr) return false;
    if (left != nullptr) fences.add(*left);
    fence_set copy;
    if (is_inside(*first, begin, end)) copy = first->fences;
    reserve_nodes(2);

    remove_from_regions(begin, end);
    remove_free_range(first, begin, end, std::move(copy));
    if (left != nullptr) *left = std::move(fences);
    return true;
}

void heap::remove_taken(std::uintptr_t address, std::size_t size_bytes) noexcept {
    // The node of the free that will not come serves where a region is cut in two.
    remove_from_regions(address, address + size_bytes);
    expect_fewer_frees(1);
}

/// Where that leaves two parts of one region, a node is needed.
void heap::remove_from_regions(std::uintptr_t begin, std::uintptr_t end) noexcept {
    for (piece* region = at_or_before(regions_, begin); region != nullptr && region->address < end;) {
        piece* const next = region_tree::next(region);
        const std::uintptr_t region_end = region->end();
        if (region_end > end) {
            piece* const rest = unused_.take();
            rest->address = end;
            rest->size_bytes = region_end - end;
            rest->is_sealed = region->is_sealed;
            regions_.insert(rest);
        }
        if (region->address < begin) {
            region->size_bytes = begin - region->address;
        } else {
            regions_.erase(region);
            unused_.put(region);
        }
        region = next;
    }
    capacity_bytes_ -= end - begin;
}

void heap::remove_free_range(piece* at, std::uintptr_t begin, std::uintptr_t end, fence_set copy) noexcept {
    while (at != nullptr && at->address < end) {
        piece* const next = address_tree::next(at);
        const std::uintptr_t at_end = at->end();
        const bool begins_region = at->begins_region;
        const owner of = at->of;
        if (at->address < begin) {
            resize(at, at->address, begin - at->address, begins_region);
            // NOLINTNEXTLINE(bugprone-use-after-move): no piece is behind the one that reaches beyond the end
            if (at_end > end) insert(at, end, at_end - end, false, std::move(copy), of, next);
        } else if (at_end > end) {
            resize(at, end, at_end - end, false);
        } else {
            erase(at);
        }
        at = next;
    }
}

// ---- searches

/// The piece in which the range begins; null if not all of it is free.
heap::piece* heap::first_of_free(std::uintptr_t begin, std::uintptr_t end) const noexcept {
    piece* const first = at_or_before(by_address_, begin);
    if (first == nullptr) return nullptr;
    std::uintptr_t covered = first->address;
    for (const piece* at = first; at != nullptr && at->address == covered && covered < end; at = address_tree::next(at))
        covered += at->size_bytes;
    return covered < end ? nullptr : first;
}

/// The smallest piece of the owner that fits; the lowest of equals.
heap::piece* heap::first_of(owner of, std::size_t size) const noexcept {
    const place where = place_of(size, 0);
    piece* const at = by_owner_.lower_bound([=](const piece& p) { return is_before(p, of, where); }, &num_steps_);
    return at != nullptr && at->of == of ? at : nullptr;
}

/// The smaller of the best piece without fences and the best of `own`; for small requests the lower of both.
heap::piece* heap::find_ready(std::size_t size, std::uint64_t own) const noexcept {
    const bool from_below = size < small_below_bytes();
    piece* const free = from_below ? find_lowest_ready(size) : ready_.first_from(size, &num_steps_);
    if (own == no_timeline) return free;
    piece* const mine = first_of(owner_of(own, false), size);
    if (mine == nullptr || free == nullptr) return mine == nullptr ? free : mine;
    const bool mine_is_better = from_below ? mine->address < free->address : mine->size_bytes < free->size_bytes;
    return mine_is_better ? mine : free;
}

/// The lowest piece without fences that fits.
heap::piece* heap::find_lowest_ready(std::size_t size) const noexcept {
    piece* at = by_address_.root();
    if (at == nullptr || at->largest_ready_bytes < size) return nullptr;
    for (;;) {
        ++num_steps_;
        piece* const left = address_tree::left(at);
        if (left != nullptr && left->largest_ready_bytes >= size)
            at = left;
        else if (at->of == nobody && at->size_bytes >= size)
            return at;
        else
            at = address_tree::right(at);
    }
}

/// The smallest piece with fences that fits, without fences of the timelines `avoided`.
heap::piece* heap::find_fenced(std::size_t size, std::span<const std::uint64_t> avoided) noexcept {
    keep_fenced();
    piece* at = fenced_.lower_bound([=](const piece& p) { return p.size_bytes < size; }, &num_steps_);
    if (avoided.empty()) return at;
    for (; at != nullptr && at->fences.has_any_of(avoided); at = fenced_tree::next(at)) ++num_steps_;
    return at;
}

/// Builds `fenced_` for a search. `cut` drops it after as many changes as there are pieces without a search: a heap
/// with one user never needs it.
void heap::keep_fenced() noexcept {
    num_changes_ = 0;
    if (fenced_is_kept_) return;
    fenced_is_kept_ = true;
    for (piece* at = by_owner_.first(); at != nullptr; at = owner_tree::next(at)) {
        ++num_steps_;
        fenced_.insert(at);
    }
}

/// O(free pieces).
std::size_t heap::longest_row_bytes() const noexcept {
    std::size_t longest = 0;
    std::size_t row = 0;
    const piece* before = nullptr;
    for (const piece* at = by_address_.first(); at != nullptr; before = at, at = address_tree::next(at)) {
        ++num_steps_;
        row = at->size_bytes + (before != nullptr && touch(*before, *at) ? row : 0);
        longest = std::max(longest, row);
    }
    return longest;
}

/// The first piece of the lowest row that is long enough.
heap::piece* heap::find_row(std::size_t size) const noexcept {
    if (by_address_.empty() || by_address_.root()->below.longest_bytes < size) return nullptr;
    for (piece* at = by_address_.root();;) {
        ++num_steps_;
        piece* const left = address_tree::left(at);
        if (left != nullptr && left->below.longest_bytes >= size) {
            at = left;
            continue;
        }
        piece* const right = address_tree::right(at);
        std::size_t before = 0;
        std::size_t row = at->size_bytes;
        if (left != nullptr && left->below.end == at->address && !at->begins_region)
            before = left->below.last_row_bytes;
        if (right != nullptr && right->below.begin == at->end() && !right->below.begins_region)
            row += right->below.first_row_bytes;
        if (before + row >= size) return before == 0 ? at : at_or_behind(by_address_, at->address - before);
        at = right;
    }
}

heap::piece* heap::find_row(std::size_t size, std::span<const std::uint64_t> avoided) const noexcept {
    const bool has_sums = by_address_.order().sums_rows;
    piece* at = has_sums ? find_row(size) : by_address_.first();
    if (avoided.empty() && has_sums) return at;
    piece* first = nullptr;
    const piece* before = nullptr;
    std::size_t total = 0;
    for (; at != nullptr; before = at, at = address_tree::next(at)) {
        ++num_steps_;
        if (at->fences.has_any_of(avoided)) {
            first = nullptr;
            continue;
        }
        if (first == nullptr || !touch(*before, *at)) {
            first = at;
            total = 0;
        }
        total += at->size_bytes;
        if (total >= size) return first;
    }
    return nullptr;
}

// ---- giving out

block heap::try_allocate(std::size_t size_bytes, std::uint64_t own, std::span<const std::uint64_t> avoided) {
    if (block ready = try_allocate_ready(size_bytes, own)) return ready;
    if (size_bytes == 0 || size_bytes > free_bytes_) return {};
    const std::size_t size = round_up(size_bytes);
    piece* const fenced = find_fenced(size, avoided);
    piece* const row = fenced == nullptr ? find_row(size, avoided) : nullptr;
    if (fenced == nullptr && row == nullptr) return {};
    block taken = fenced != nullptr ? cut(fenced, size) : take_range(row, row->address, size);
    note_request(size);
    return taken;
}

block heap::try_allocate_ready(std::size_t size_bytes, std::uint64_t own) {
    if (size_bytes == 0 || size_bytes > free_bytes_) return {};
    const std::size_t size = round_up(size_bytes);
    piece* const ready = find_ready(size, own);
    if (ready == nullptr) return {};
    block taken = cut(ready, size);
    note_request(size);
    return taken;
}

void heap::note_request(std::size_t size) noexcept {
    if (placement_ == placement::best_fit) return;
    largest_lately_ = std::max(size, largest_lately_ - largest_lately_ / requests_remembered);
}

/// The first `size` bytes of the piece.
block heap::cut(piece* at, std::size_t size) {
    reserve_nodes(1);
    if (fenced_is_kept_ && ++num_changes_ > num_pieces_) {
        fenced_is_kept_ = false;
        fenced_ = {};
    }
    block result{at->address, size, {}};
    if (at->size_bytes == size) {
        result.fences = std::move(at->fences);
        erase(at);
    } else {
        result.fences = at->fences;
        resize(at, at->address + size, at->size_bytes - size, false);
    }
    ++num_expected_;
    return result;
}

block heap::take(std::uintptr_t address, std::size_t size_bytes) {
    piece* const first = first_of_free(address, address + size_bytes);
    return first == nullptr || size_bytes == 0 ? block{} : take_range(first, address, size_bytes);
}

/// All of it is free, from the piece `first` on.
block heap::take_range(piece* first, std::uintptr_t address, std::size_t size) {
    const std::uintptr_t end = address + size;
    block result{address, size, {}};
    for (const piece* at = first; at != nullptr && at->address < end; at = address_tree::next(at))
        result.fences.add(at->fences);
    fence_set copy;
    if (is_inside(*first, address, end)) copy = first->fences;
    reserve_nodes(2);
    remove_free_range(first, address, end, std::move(copy));
    ++num_expected_;
    return result;
}

// ---- taking back

void heap::free(std::uintptr_t address, std::size_t size_bytes, fence_set fences) {
    if (size_bytes == 0) return;
    const std::size_t size = round_up(size_bytes);
    const std::uintptr_t end = address + size;
    const piece* const region = at_or_before(regions_, address);
    const bool is_inside_region = region != nullptr && size >= size_bytes && address % alignment_ == 0 &&
                                  address < region->end() && size <= region->end() - address;
    if (!is_inside_region)
        throw std::logic_error(kmm::driver::format(
            "heap: {} were not allocated here; free what try_allocate returned, with the size asked for",
            describe(address, size_bytes)));
    piece* const next = at_or_behind(by_address_, address);
    piece* const previous = next != nullptr ? address_tree::previous(next) : by_address_.last();
    if ((next != nullptr && next->address < end) || (previous != nullptr && previous->end() > address))
        throw std::logic_error(kmm::driver::format(
            "heap: {} overlap memory that is free already; was it freed twice, or with a wrong size?",
            describe(address, size)));

    const bool begins_region = address == region->address;
    const bool joins_previous =
        previous != nullptr && previous->end() == address && !begins_region && joins(previous->fences, fences);
    const bool joins_next =
        next != nullptr && next->address == end && !next->begins_region && joins(next->fences, fences);
    if (joins_previous) {
        // Of the same timelines, so that this allocates nothing.
        previous->fences.add(fences);
        std::size_t joined = previous->size_bytes + size;
        if (joins_next) {
            previous->fences.add(next->fences);
            joined += next->size_bytes;
            erase(next);
        }
        resize(previous, previous->address, joined, previous->begins_region);
    } else if (joins_next) {
        next->fences.add(fences);
        resize(next, address, next->size_bytes + size, begins_region);
    } else {
        if (num_expected_ == 0 || unused_.size == 0) reserve_nodes(1);
        const owner of = owner_of(fences);
        insert(previous, address, size, begins_region, std::move(fences), of, next);
    }
    expect_fewer_frees(1);
}

void heap::merge_all() {
    ++num_merges_;
    for (piece* at = by_address_.first(); at != nullptr; at = address_tree::next(at)) {
        std::size_t size = at->size_bytes;
        fence_set fences = at->fences;
        owner of = at->of;
        const piece* last = at;
        for (const piece* behind = address_tree::next(at); behind != nullptr && touch(*last, *behind);
             last = behind, behind = address_tree::next(behind)) {
            size += behind->size_bytes;
            fences.add(behind->fences);
            if (of == nobody) of = behind->of;
        }
        if (last == at) continue;
        if (fences.size() > 1) of |= of_several;
        while (size != at->size_bytes) {
            piece* const behind = address_tree::next(at);
            const std::size_t sum = at->size_bytes + behind->size_bytes;
            erase(behind);
            resize(at, at->address, sum, at->begins_region);
        }
        leave_sizes(at);
        at->fences = std::move(fences);
        at->of = of;
        enter_sizes(at);
        by_address_.changed(at);
    }
}

bool heap::begins_region(std::uintptr_t address) const noexcept {
    const piece* const region = at_or_before(regions_, address);
    return region != nullptr && region->address == address;
}

std::size_t heap::extent_if_freed(std::uintptr_t address, std::size_t size_bytes) const {
    std::uintptr_t begin = address;
    std::uintptr_t end = address + round_up(size_bytes);
    const piece* const region = at_or_before(regions_, address);
    const piece* behind = at_or_behind(by_address_, address);
    const piece* before = behind != nullptr ? address_tree::previous(behind) : by_address_.last();
    for (; behind != nullptr && behind->address == end && !behind->begins_region; behind = address_tree::next(behind))
        end += behind->size_bytes;
    bool is_border = region != nullptr && region->address == address;
    for (; before != nullptr && before->end() == begin && !is_border; before = address_tree::previous(before)) {
        begin = before->address;
        is_border = before->begins_region;
    }
    return end - begin;
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
