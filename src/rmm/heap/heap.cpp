// Owns: the algorithms of heap.hpp. Must not know: drivers, streams, threads, kmm. Runs on whichever thread holds the
// lock of the pool that owns the heap.
//
// Every public call either does all of its work or throws and leaves the heap as it was: nodes are made before anything
// is linked, and what an allocation splits or shrinks keeps its nodes.
#include "rmm/heap/heap.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {
namespace {

std::string describe(std::uintptr_t address, std::size_t size_bytes) {
    return std::to_string(size_bytes) + " bytes at address " + std::to_string(address);
}

}  // namespace

void fence_set::add(fence f) {
    if (size_ == 0) {
        first_ = f;
        size_ = 1;
        return;
    }
    if (size_ == 1) {
        if (first_.timeline == f.timeline) {
            first_.position = std::max(first_.position, f.position);
            return;
        }
        several_ = first_.timeline < f.timeline ? std::vector<fence>{first_, f} : std::vector<fence>{f, first_};
        size_ = 2;
        return;
    }
    auto at = std::lower_bound(several_.begin(), several_.end(), f.timeline,
                               [](const fence& a, std::uint64_t timeline) { return a.timeline < timeline; });
    if (at != several_.end() && at->timeline == f.timeline)
        at->position = std::max(at->position, f.position);
    else
        several_.insert(at, f);
    size_ = several_.size();
}

void fence_set::add(const fence_set& other) {
    if (size_ == 0) {
        *this = other;
        return;
    }
    for (const fence& f : other) add(f);
}

bool fence_set::same_timelines(const fence_set& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end(),
                      [](const fence& a, const fence& b) { return a.timeline == b.timeline; });
}

heap::heap(std::size_t alignment, merging how) : alignment_(alignment), merging_(how) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        throw std::invalid_argument("heap alignment " + std::to_string(alignment) + " is not a power of two");
}

heap::piece_map::iterator heap::insert(std::uintptr_t address, std::size_t size_bytes, fence_set fences) {
    const owner of = owner_of(fences);
    auto at = free_.emplace(address, piece{size_bytes, std::move(fences)}).first;
    try {
        by_size_.insert({of, size_bytes, address});
    } catch (...) {
        free_.erase(at);
        throw;
    }
    free_bytes_ += size_bytes;
    return at;
}

void heap::erase(piece_map::iterator at) {
    by_size_.erase({owner_of(at->second.fences), at->second.size_bytes, at->first});
    free_bytes_ -= at->second.size_bytes;
    free_.erase(at);
}

void heap::resize(piece_map::iterator at, std::uintptr_t address, std::size_t size_bytes) noexcept {
    auto key = by_size_.extract({owner_of(at->second.fences), at->second.size_bytes, at->first});
    key.value().size_bytes = size_bytes;
    key.value().address = address;
    by_size_.insert(std::move(key));

    free_bytes_ += size_bytes;
    free_bytes_ -= at->second.size_bytes;
    at->second.size_bytes = size_bytes;
    if (address != at->first) {
        auto next = std::next(at);
        auto node = free_.extract(at);
        node.key() = address;
        free_.insert(next, std::move(node));
    }
}

void heap::add_region(std::uintptr_t address, std::size_t size_bytes, border borders, const fence_set& fences) {
    const std::uintptr_t begin = (address + alignment_ - 1) / alignment_ * alignment_;
    const std::uintptr_t end = (address + size_bytes) / alignment_ * alignment_;
    if (address + size_bytes < address || begin < address)
        throw std::invalid_argument("heap region of " + describe(address, size_bytes) + " wraps around");
    if (end <= begin) return;  // not one aligned unit in it

    auto next = regions_.upper_bound(begin);
    const bool hits_next = next != regions_.end() && next->first < end;
    const bool hits_previous = next != regions_.begin() && std::prev(next)->first + std::prev(next)->second > begin;
    if (hits_next || hits_previous)
        throw std::invalid_argument("heap region of " + describe(address, size_bytes) + " overlaps an earlier one");

    auto region = regions_.emplace(begin, end - begin).first;
    try {
        insert(begin, end - begin, fences);
    } catch (...) {
        regions_.erase(region);
        throw;
    }
    capacity_bytes_ += end - begin;
    if (borders == border::sealed) return;
    if (next != regions_.end() && next->first == end) {
        region->second += next->second;
        regions_.erase(next);
        join_at(end);
    }
    if (region != regions_.begin()) {
        auto previous = std::prev(region);
        if (previous->first + previous->second == begin) {
            previous->second += region->second;
            regions_.erase(region);
            join_at(begin);
        }
    }
}

/// Merges the pieces before and behind `address`, if both are free and may be one.
void heap::join_at(std::uintptr_t address) {
    auto behind = free_.find(address);
    if (behind == free_.end() || behind == free_.begin()) return;
    auto before = std::prev(behind);
    if (before->first + before->second.size_bytes != address || !crosses(address) ||
        !joins(before->second.fences, behind->second.fences))
        return;
    const std::size_t size = before->second.size_bytes + behind->second.size_bytes;
    before->second.fences.add(behind->second.fences);
    erase(behind);
    resize(before, before->first, size);
}

bool heap::remove_region(std::uintptr_t address, std::size_t size_bytes, fence_set* left) {
    const std::uintptr_t begin = (address + alignment_ - 1) / alignment_ * alignment_;
    const std::uintptr_t end = (address + size_bytes) / alignment_ * alignment_;
    if (end <= begin) return false;

    auto first = free_.upper_bound(begin);
    if (first == free_.begin()) return false;
    --first;
    auto last = first;
    std::uintptr_t covered = first->first;
    fence_set fences;
    for (; last != free_.end() && last->first == covered && covered < end; ++last) {
        covered += last->second.size_bytes;
        if (covered > begin) fences.add(last->second.fences);
    }
    if (covered < end) return false;
    if (!fences.empty() && left == nullptr) return false;
    if (left != nullptr) fences.add(*left);

    auto region = std::prev(regions_.upper_bound(begin));
    const std::uintptr_t region_end = region->first + region->second;
    if (end < region_end) regions_.emplace(end, region_end - end);
    try {
        remove_free_range(begin, end);
    } catch (...) {
        if (end < region_end) regions_.erase(end);
        throw;
    }
    if (region->first == begin)
        regions_.erase(region);
    else
        region->second = begin - region->first;
    capacity_bytes_ -= end - begin;
    if (left != nullptr) *left = std::move(fences);
    return true;
}

void heap::remove_free_range(std::uintptr_t begin, std::uintptr_t end) {
    auto at = std::prev(free_.upper_bound(begin));
    while (at != free_.end() && at->first < end) {
        auto next = std::next(at);
        const std::uintptr_t at_begin = at->first;
        const std::uintptr_t at_end = at_begin + at->second.size_bytes;
        if (at_end > end && at_begin < begin) insert(end, at_end - end, at->second.fences);
        if (at_begin < begin)
            resize(at, at_begin, begin - at_begin);
        else if (at_end > end)
            resize(at, end, at_end - end);
        else
            erase(at);
        at = next;
    }
}

/// The smallest piece that fits among those without fences and those of `own`; the lowest of equals.
heap::key_set::iterator heap::find_ready(std::size_t size, owner own) const {
    auto best = by_size_.lower_bound({nobody, size, 0});
    if (best != by_size_.end() && best->of != nobody) best = by_size_.end();
    if (own == nobody) return best;
    const auto mine = by_size_.lower_bound({own, size, 0});
    if (mine == by_size_.end() || mine->of != own) return best;
    return best == by_size_.end() || mine->size_bytes < best->size_bytes ? mine : best;
}

/// The smallest piece that fits, with whosever fences. O(owners log pieces).
heap::key_set::iterator heap::find_fenced(std::size_t size) const {
    auto best = by_size_.end();
    owner of = nobody;
    for (auto key = by_size_.lower_bound({nobody + 1, 0, 0}); key != by_size_.end();) {
        of = key->of;
        key = by_size_.lower_bound({of, size, 0});
        if (key != by_size_.end() && key->of == of &&
            (best == by_size_.end() || key->size_bytes < best->size_bytes ||
             (key->size_bytes == best->size_bytes && key->address < best->address)))
            best = key;
        if (of == several) break;
        key = by_size_.lower_bound({of + 1, 0, 0});
    }
    return best;
}

/// The same without fences of some timelines. O(pieces).
heap::key_set::iterator heap::find_fenced(std::size_t size, std::span<const std::uint64_t> avoided) const {
    auto best = by_size_.end();
    for (auto key = by_size_.lower_bound({nobody + 1, 0, 0}); key != by_size_.end(); ++key)
        if (key->size_bytes >= size && (best == by_size_.end() || key->size_bytes < best->size_bytes) &&
            !free_.find(key->address)->second.fences.has_any_of(avoided))
            best = key;
    return best;
}

/// The first `size` bytes of the piece.
block heap::cut(key_set::iterator key, std::size_t size) {
    auto at = free_.find(key->address);
    block result{at->first, size, {}};
    if (at->second.size_bytes == size) {
        result.fences = std::move(at->second.fences);
        by_size_.erase(key);
        free_bytes_ -= size;
        free_.erase(at);
    } else {
        result.fences = at->second.fences;
        resize(at, at->first + size, at->second.size_bytes - size);
    }
    return result;
}

block heap::try_allocate(std::size_t size_bytes, std::uint64_t own, std::span<const std::uint64_t> avoided) {
    if (size_bytes == 0 || size_bytes > free_bytes_) return {};
    const std::size_t size = round_up(size_bytes);
    auto key = find_ready(size, own == no_timeline ? nobody : own + 1);
    if (key == by_size_.end()) key = avoided.empty() ? find_fenced(size) : find_fenced(size, avoided);
    return key == by_size_.end() ? coalesce_for(size, avoided) : cut(key, size);
}

block heap::try_allocate_ready(std::size_t size_bytes, std::uint64_t own) {
    if (size_bytes == 0 || size_bytes > free_bytes_) return {};
    const std::size_t size = round_up(size_bytes);
    const auto key = find_ready(size, own == no_timeline ? nobody : own + 1);
    return key == by_size_.end() ? block{} : cut(key, size);
}

block heap::take(std::uintptr_t address, std::size_t size_bytes) {
    const std::uintptr_t end = address + size_bytes;
    auto at = free_.upper_bound(address);
    if (size_bytes == 0 || at == free_.begin()) return {};
    --at;
    block result{address, size_bytes, {}};
    std::uintptr_t covered = at->first;
    for (; at != free_.end() && at->first == covered && covered < end; ++at) {
        covered += at->second.size_bytes;
        if (covered > address) result.fences.add(at->second.fences);
    }
    if (covered < end) return {};
    remove_free_range(address, end);
    return result;
}

block heap::coalesce_for(std::size_t size, std::span<const std::uint64_t> avoided) {
    // Of all rows of touching pieces that together are large enough, and lose nothing when their first is left out of
    // it, the smallest. What is left of the last piece keeps its own fences.
    auto best = free_.end();
    std::size_t best_total = std::numeric_limits<std::size_t>::max();
    auto first = free_.begin();
    std::size_t total = 0;
    std::uintptr_t end = 0;
    for (auto last = free_.begin(); last != free_.end(); ++last) {
        if (last->second.fences.has_any_of(avoided)) {
            end = 0;  // the next one begins a row
            continue;
        }
        if (last->first != end || !crosses(end)) {
            first = last;
            total = 0;
        }
        total += last->second.size_bytes;
        end = last->first + last->second.size_bytes;
        while (total - first->second.size_bytes >= size) {
            total -= first->second.size_bytes;
            ++first;
        }
        if (total >= size && total < best_total) {
            best = first;
            best_total = total;
        }
    }
    if (best == free_.end()) return {};

    block result{best->first, size, {}};
    std::size_t covered = 0;
    for (auto at = best; covered < size; ++at) {
        result.fences.add(at->second.fences);
        covered += at->second.size_bytes;
    }
    remove_free_range(result.address, result.address + size);
    return result;
}

void heap::give(std::uintptr_t address, std::size_t size, const fence_set& fences) {
    const std::uintptr_t end = address + size;
    auto next = free_.lower_bound(address);
    auto previous = next == free_.begin() ? free_.end() : std::prev(next);
    const std::uintptr_t previous_end = previous == free_.end() ? 0 : previous->first + previous->second.size_bytes;
    if ((next != free_.end() && next->first < end) || (previous != free_.end() && previous_end > address))
        throw std::logic_error("heap: " + describe(address, size) +
                               " overlap memory that is free already; was it freed twice, or with a wrong size?");

    const bool joins_previous = previous != free_.end() && previous_end == address &&
                                joins(previous->second.fences, fences) && crosses(address);
    const bool joins_next =
        next != free_.end() && next->first == end && joins(next->second.fences, fences) && crosses(end);
    if (joins_previous) {
        // Of the same timelines, so that this allocates nothing.
        previous->second.fences.add(fences);
        const std::size_t tail = joins_next ? next->second.size_bytes : 0;
        if (joins_next) {
            previous->second.fences.add(next->second.fences);
            erase(next);
        }
        resize(previous, previous->first, previous->second.size_bytes + size + tail);
    } else if (joins_next) {
        next->second.fences.add(fences);
        resize(next, address, next->second.size_bytes + size);
    } else {
        insert(address, size, fences);
    }
}

void heap::free(std::uintptr_t address, std::size_t size_bytes, const fence_set& fences) {
    if (size_bytes == 0) return;
    const std::size_t size = round_up(size_bytes);
    auto region = regions_.upper_bound(address);
    const bool inside = region != regions_.begin() && size >= size_bytes && address % alignment_ == 0 &&
                        address - (--region)->first <= region->second &&
                        size <= region->second - (address - region->first);
    if (!inside)
        throw std::logic_error("heap: " + describe(address, size_bytes) +
                               " were not allocated here; free what try_allocate returned, with the size asked for");
    give(address, size, fences);
}

/// The fences of the piece have changed behind the back of the size index.
void heap::index_anew(piece_map::iterator at, owner before) noexcept {
    auto key = by_size_.extract({before, at->second.size_bytes, at->first});
    key.value().of = owner_of(at->second.fences);
    by_size_.insert(std::move(key));
}

void heap::merge_all() {
    for (auto at = free_.begin(); at != free_.end();) {
        const std::uintptr_t address = at->first;
        std::size_t size = at->second.size_bytes;
        fence_set fences = at->second.fences;
        auto next = std::next(at);
        for (; next != free_.end() && next->first == address + size && crosses(next->first); ++next) {
            size += next->second.size_bytes;
            fences.add(next->second.fences);
        }
        if (size != at->second.size_bytes) {
            while (std::next(at) != next) erase(std::next(at));
            const owner before = owner_of(at->second.fences);
            at->second.fences = std::move(fences);
            index_anew(at, before);
            resize(at, address, size);
        }
        at = next;
    }
}

std::size_t heap::largest_free_bytes() const {
    std::size_t largest = 0;
    std::size_t run = 0;
    std::uintptr_t end = 0;
    for (const auto& [address, free_piece] : free_) {
        run = address == end && crosses(address) ? run + free_piece.size_bytes : free_piece.size_bytes;
        end = address + free_piece.size_bytes;
        largest = std::max(largest, run);
    }
    return largest;
}

std::size_t heap::extent_if_freed(std::uintptr_t address, std::size_t size_bytes) const {
    std::uintptr_t begin = address;
    std::uintptr_t end = address + round_up(size_bytes);
    auto at = free_.lower_bound(address);
    for (auto next = at; next != free_.end() && next->first == end && crosses(end); ++next)
        end += next->second.size_bytes;
    while (at != free_.begin() && std::prev(at)->first + std::prev(at)->second.size_bytes == begin && crosses(begin)) {
        --at;
        begin = at->first;
    }
    return end - begin;
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
