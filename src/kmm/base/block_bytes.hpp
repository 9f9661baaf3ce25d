// What the block of a chunk takes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kmm::memory {

/// Addresses of blocks are multiples of this, and sizes are rounded up to it.
inline constexpr std::size_t heap_alignment = 256;

/// What is asked for: from any address of a heap an aligned one is not further away than the difference.
constexpr std::size_t block_bytes_of(std::size_t size_bytes, std::size_t alignment) noexcept {
    return size_bytes == 0 ? 0 : size_bytes + (alignment - heap_alignment);
}
/// What a block for `bytes` takes.
constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return (bytes + heap_alignment - 1) / heap_alignment * heap_alignment;
}
/// The sum, or the largest number where it does not fit: of sizes that are compared with a limit.
constexpr std::size_t sum_bytes(std::size_t a, std::size_t b) noexcept { return a + b < a ? SIZE_MAX : a + b; }

}  // namespace kmm::memory
