// Aligned host memory out of an allocator that knows no alignment, and the names under which older releases kept
// <rmm/aligned.hpp>. Any thread.
#pragma once

#include <rmm/aligned.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

using rmm::kmm_v0::align_down;
using rmm::kmm_v0::align_up;
using rmm::kmm_v0::CUDA_ALLOCATION_ALIGNMENT;
using rmm::kmm_v0::is_aligned;
using rmm::kmm_v0::is_pointer_aligned;
using rmm::kmm_v0::is_pow2;
using rmm::kmm_v0::is_supported_alignment;
using rmm::kmm_v0::RMM_DEFAULT_HOST_ALIGNMENT;

/// Calls `alloc(padded)` once and returns a pointer in it that is a multiple of `alignment` (a power of two) with
/// `bytes` usable bytes behind it; null if `alloc` gave null. Freed by `aligned_host_deallocate` with the same
/// arguments.
template<typename Alloc>
void* aligned_host_allocate(std::size_t bytes, std::size_t alignment, Alloc alloc) {
    assert(is_pow2(alignment));
    if (bytes > std::numeric_limits<std::size_t>::max() - alignment - sizeof(std::ptrdiff_t)) throw std::bad_alloc{};
    void* const original = alloc(bytes + alignment + sizeof(std::ptrdiff_t));
    if (original == nullptr) return nullptr;
    auto const start = reinterpret_cast<std::uintptr_t>(original) + sizeof(std::ptrdiff_t);
    auto const aligned = (start + (alignment - 1)) & ~(static_cast<std::uintptr_t>(alignment) - 1);
    auto const offset = static_cast<std::ptrdiff_t>(aligned - reinterpret_cast<std::uintptr_t>(original));
    char* const result = static_cast<char*>(original) + offset;
    // The offset stands right before the block, which need not be aligned for it.
    std::memcpy(result - sizeof(offset), &offset, sizeof(offset));
    return result;
}

/// Calls `dealloc(original)` once with what `alloc` returned. Null: nothing happens.
template<typename Dealloc>
void aligned_host_deallocate(void* ptr, std::size_t /*bytes*/, std::size_t /*alignment*/, Dealloc dealloc) noexcept {
    if (ptr == nullptr) return;
    std::ptrdiff_t offset{};
    std::memcpy(&offset, static_cast<char*>(ptr) - sizeof(offset), sizeof(offset));
    dealloc(static_cast<void*>(static_cast<char*>(ptr) - offset));
}

/// The names of 23.12.
template<typename Alloc>
void* aligned_allocate(std::size_t bytes, std::size_t alignment, Alloc alloc) {
    return aligned_host_allocate(bytes, alignment, alloc);
}
template<typename Dealloc>
void aligned_deallocate(void* ptr, std::size_t bytes, std::size_t alignment, Dealloc dealloc) noexcept {
    aligned_host_deallocate(ptr, bytes, alignment, dealloc);
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
