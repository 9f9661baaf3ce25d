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

/// Pieces that follow each other become one. How many there are then, at the begin of the list. O(pieces).
std::size_t join_pieces(std::span<FillPiece> pieces, std::size_t element_bytes) noexcept;

void fill_on_host(const FillPiece& piece, const std::byte* element, std::size_t element_bytes) noexcept;

/// Puts the fill on the stream; the pieces share no byte. The largest one is filled, and the others, where there are
/// any, are copied from it, 64 in a call. `element` is read during the call.
driver::Status put_fill_on_stream(std::span<const FillPiece> pieces, const std::byte* element,
                                  std::size_t element_bytes, driver::Driver& driver,
                                  driver::StreamHandle stream) noexcept;

}  // namespace kmm::detail
