// What an engine says to its callers, and what its form of growth says to it: plain values.
//
// Must not know: the engine. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "driver/driver.hpp"
#include "rmm/heap/heap.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace driver = ::kmm::driver;

/// Why `try_allocate` gave nothing.
struct refusal {
    enum class cause : std::uint8_t { none, too_large, exhausted, driver } why = cause::none;
    bool device_is_full = false;  ///< for `exhausted`: the driver has no more; else a limit that was set
    std::string reason;           ///< for `exhausted`: what upstream said, or which limit was met
    driver::Status status;        ///< for `driver`: the failed call

    /// `exhausted`: `size` bytes more than `held` would be above `maximum`.
    void meet_maximum(std::size_t held, std::size_t maximum, std::size_t size);
};

/// Requirements of the form of growth on sizes and addresses.
struct growth_traits {
    bool is_virtual = false;
    heap::placement placement = heap::placement::small_from_below;
    /// Requests up to this, and spans, have an area of addresses of their own; 0: there is one area.
    std::size_t small_area_limit = 0;
    /// Requests from this size on are rounded up to the granularity.
    std::size_t whole_granules_from = std::numeric_limits<std::size_t>::max();
    std::size_t granularity = 1;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
