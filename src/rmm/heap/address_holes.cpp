#include "rmm/heap/address_holes.hpp"

#include <algorithm>
#include <iterator>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {
namespace {

template<typename Holes> auto first_ending_behind(Holes& holes, std::uintptr_t address) {
    return std::partition_point(holes.begin(), holes.end(), [=](const range& h) { return h.end() <= address; });
}

}  // namespace

void append_merged(std::vector<range>& ranges, range r) {
    if (!ranges.empty() && ranges.back().end() == r.address)
        ranges.back().size_bytes += r.size_bytes;
    else
        ranges.push_back(r);
}

void address_holes::add(range r) {
    if (r.size_bytes == 0) return;
    auto next = first_ending_behind(holes_, r.address);
    const bool joins_next = next != holes_.end() && next->address == r.end();
    const bool joins_previous = next != holes_.begin() && std::prev(next)->end() == r.address;
    if (joins_previous) {
        std::prev(next)->size_bytes += r.size_bytes + (joins_next ? next->size_bytes : 0);
        if (joins_next) holes_.erase(next);
    } else if (joins_next) {
        next->address = r.address;
        next->size_bytes += r.size_bytes;
    } else {
        holes_.insert(next, r);
    }
}

bool address_holes::take(range r) {
    const auto hole = first_ending_behind(holes_, r.address);
    if (hole == holes_.end() || hole->address > r.address || hole->end() < r.end()) return false;
    const range before{hole->address, r.address - hole->address};
    const range behind{r.end(), hole->end() - r.end()};
    if (before.size_bytes != 0 && behind.size_bytes != 0)
        holes_.insert(std::next(hole), behind)[-1] = before;
    else if (before.size_bytes != 0)
        *hole = before;
    else if (behind.size_bytes != 0)
        *hole = behind;
    else
        holes_.erase(hole);
    return true;
}

std::optional<std::uintptr_t> address_holes::roomiest(std::size_t size_bytes, std::size_t alignment) const {
    const auto largest = std::max_element(holes_.begin(), holes_.end(),
                                          [](const range& a, const range& b) { return a.size_bytes < b.size_bytes; });
    if (largest == holes_.end() || largest->size_bytes < size_bytes) return std::nullopt;
    return largest->address + (largest->size_bytes - size_bytes) / 2 / alignment * alignment;
}

std::size_t address_holes::room_behind(std::uintptr_t address) const noexcept {
    const auto hole = first_ending_behind(holes_, address);
    return hole != holes_.end() && hole->address <= address ? hole->end() - address : 0;
}

std::size_t address_holes::room_before(std::uintptr_t address) const noexcept {
    const auto next = first_ending_behind(holes_, address);
    return next != holes_.begin() && std::prev(next)->end() == address ? std::prev(next)->size_bytes : 0;
}

std::size_t address_holes::free_bytes() const noexcept {
    std::size_t total = 0;
    for (const range& h : holes_) total += h.size_bytes;
    return total;
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
