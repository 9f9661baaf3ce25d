// Address ranges, and which addresses of a reservation have nothing mapped at them.
//
// Owns: the holes. Must not know: drivers, pieces, fences. Pure and not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

struct range {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    std::uintptr_t end() const noexcept { return address + size_bytes; }
    friend bool operator==(const range&, const range&) = default;
};

/// Appends `r`, or extends the last range if `r` begins where that ends.
void append_merged(std::vector<range>& ranges, range r);

/// The holes of one reservation, sorted by address; holes that touch are one. There are about as many as runs of mapped
/// memory (hundreds), so that a sorted vector serves. All calls O(holes).
class address_holes {
  public:
    /// Makes `add` and `take` free of allocations for `calls` more calls of either. Throws std::bad_alloc.
    void reserve(std::size_t calls) { holes_.reserve(holes_.size() + calls); }

    /// Addresses that are free from now on. They must not overlap a hole.
    void add(range r);
    /// Takes `r` out. False, and no change, if it is not wholly inside one hole.
    bool take(range r);
    /// Where a new range of `size_bytes` leaves most room around it: the middle of the largest hole, rounded down to
    /// `alignment`. Nothing if no hole is large enough. The range is not taken.
    std::optional<std::uintptr_t> roomiest(std::size_t size_bytes, std::size_t alignment) const;

    std::size_t room_behind(std::uintptr_t address) const noexcept;  ///< of a hole, from there on; 0 if none has it
    std::size_t room_before(std::uintptr_t address) const noexcept;  ///< of the hole that ends there; 0 if none does
    std::size_t free_bytes() const noexcept;
    const std::vector<range>& all() const noexcept { return holes_; }

  private:
    std::vector<range> holes_;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
