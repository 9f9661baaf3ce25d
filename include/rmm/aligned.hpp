// Arithmetic on alignments. Owns the two constants; knows nothing else. Any thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Alignment of host memory for which none was asked.
static constexpr std::size_t RMM_DEFAULT_HOST_ALIGNMENT{alignof(std::max_align_t)};

/// Least alignment of device memory: what the driver's own allocator gives.
static constexpr std::size_t CUDA_ALLOCATION_ALIGNMENT{256};

/// Whether `value` is a power of two; 0 is none.
[[nodiscard]] constexpr bool is_pow2(std::size_t value) noexcept { return value != 0 && (value & (value - 1)) == 0; }

[[nodiscard]] constexpr bool is_supported_alignment(std::size_t alignment) noexcept { return is_pow2(alignment); }

/// The next multiple of `alignment` (a power of two) that is not below `value`. Wraps where none fits into size_t.
[[nodiscard]] constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
    assert(is_supported_alignment(alignment));
    return (value + (alignment - 1)) & ~(alignment - 1);
}

/// The next multiple of `alignment` (a power of two) that is not above `value`.
[[nodiscard]] constexpr std::size_t align_down(std::size_t value, std::size_t alignment) noexcept {
    assert(is_supported_alignment(alignment));
    return value & ~(alignment - 1);
}

[[nodiscard]] constexpr bool is_aligned(std::size_t value, std::size_t alignment) noexcept {
    assert(is_supported_alignment(alignment));
    return (value & (alignment - 1)) == 0;
}

[[nodiscard]] inline bool is_pointer_aligned(void* ptr, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept {
    return is_aligned(static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(ptr)), alignment);
}

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
