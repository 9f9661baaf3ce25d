// Page-locked host memory that is quick to get: huge pages, touched by many threads, then registered with the driver.
//
// One thread of the driver faults and locks page by page: half a second for a GiB. Touched first, the same memory is
// registered in 0.02 s, and 16 threads touch it in as little (benchmarks/pinning.cpp).
//
// Owns: which large blocks of the pinned resources were made like that. Must not know: resources, pools. Any thread.
#pragma once

#include <cstddef>

#include "driver/driver.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// Page-locked memory, of many threads' making or (where that does not work) of the driver's own call.
struct pinned_block {
    void* address = nullptr;
    std::size_t size_bytes = 0;
    void* reservation = nullptr;  ///< null: the driver's own
    std::size_t reserved_bytes = 0;
};

/// What `pin` rounds sizes up to, and aligns to: a huge page of every processor that has devices.
inline constexpr std::size_t pinning_unit = std::size_t{2} << 20;

/// Below this the pinned resources leave it to the driver: its call costs 16 ms there, which is little to save, and
/// rounding up to whole huge pages would waste more than a sixteenth.
inline constexpr std::size_t pin_from_bytes = std::size_t{32} << 20;

/// Takes `bytes` > 0, rounded up to `pinning_unit`, aligned to it, and away from other such blocks (a copy must not
/// cross from one page-locked range into another). Blocks for as long as pinning takes: 0.04 s for a GiB, up to 16
/// threads that end with the call. Never asks for more than the machine has to give (touched pages are not refused, the
/// process ends). Where the memory cannot be registered, or devices could not use it by its address: the driver's own
/// call, for exactly `bytes`. Must be called with a device current.
kmm::driver::Status pin(kmm::driver::Driver& driver, std::size_t bytes, pinned_block* out) noexcept;

/// Frees a block of `pin`, which must not be in use any more. Blocks as long as the driver's call.
void unpin(kmm::driver::Driver& driver, const pinned_block& block) noexcept;

/// For the pinned resources: `pin` from `pin_from_bytes` on, else the driver's own call.
kmm::driver::Status allocate_pinned(kmm::driver::Driver& driver, std::size_t bytes, void** out) noexcept;
/// Takes back what `allocate_pinned` gave.
kmm::driver::Status free_pinned(kmm::driver::Driver& driver, void* ptr) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
