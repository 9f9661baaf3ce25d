// Pieces of memory that are filled with one element, in as few calls of the driver as it takes.
//
// Owns: nothing. Must not know: where the memory is, who waits. Any thread.
#pragma once

#include <cstddef>
#include <span>

#include "driver/driver.hpp"

namespace kmm::detail {

struct FillPiece {
    std::byte* at = nullptr;
    std::size_t count = 0;  ///< elements
};

void fill_on_host(const FillPiece& piece, const std::byte* element, std::size_t element_bytes) noexcept;

/// Puts the fill on the stream: fills the largest piece, and copies the others, at most 63, from it in one call. The
/// pieces share no byte. `element` is read during the call. No call reaches over two pieces, even if they touch: they
/// may lie in different allocations, which drivers refuse.
driver::Status put_fill_on_stream(std::span<const FillPiece> pieces, const std::byte* element,
                                  std::size_t element_bytes, driver::Driver& driver,
                                  driver::StreamHandle stream) noexcept;

}  // namespace kmm::detail
