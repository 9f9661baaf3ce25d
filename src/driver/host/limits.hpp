// The limits of a virtual device. Owns: these numbers, which are those that users of real devices know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kmm::driver::host {

inline constexpr int max_threads_per_block = 1024;
inline constexpr std::int64_t max_block_dim[3] = {1024, 1024, 64};
inline constexpr std::int64_t max_grid_dim[3] = {2147483647, 65535, 65535};
/// More than any GPU has, so that a kernel that fits a GPU always fits here.
inline constexpr std::size_t max_shared_memory_per_block = 1 << 20;
/// Alignment of every allocation, as on CUDA.
inline constexpr std::size_t memory_alignment = 256;
/// Granularity of virtual memory, as on CUDA.
inline constexpr std::size_t virtual_granularity = 2 << 20;
inline constexpr int max_devices = 64;
/// Longest fill pattern.
inline constexpr std::size_t max_pattern_bytes = 64;

}  // namespace kmm::driver::host
