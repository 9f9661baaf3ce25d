// A box of elements on both sides of a copy, and the part of it that the driver moves in one call.
//
// Owns: nothing. Must not know: where the memory is, who waits. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"
#include "kmm/detail/runtime_core.hpp"

namespace kmm::detail {

/// Axes beyond the rank have one element and come first; strides in elements, of any sign.
struct StridedCopy {
    std::byte* to;
    const std::int64_t* to_strides;
    const std::byte* from;
    const std::int64_t* from_strides;
    const std::int64_t* sizes;
};

/// As many of the innermost axes as one box of the driver can have: each steps over what is nested in it, on both
/// sides. Axes whose elements follow each other without a gap belong to its run. Steps in bytes. `*box` gets everything
/// but the addresses. Returns how many of the first axes are left to be walked.
std::size_t innermost_box(const std::int64_t* sizes, const std::int64_t* to_steps, const std::int64_t* from_steps,
                          std::size_t element_bytes, driver::BoxMove* box) noexcept;

/// Puts the copy on the stream: in one call of the driver where a box holds all of it, else in one for 64 boxes.
driver::Status put_on_stream(const StridedCopy& copy, std::size_t element_bytes, driver::Driver& driver,
                             driver::StreamHandle stream) noexcept;

}  // namespace kmm::detail
