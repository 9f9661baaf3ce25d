// What this machine, or the container that the program runs in, has and can still give.
//
// Owns: nothing. Must not know: which devices there are. Any thread.
#pragma once

#include <cstddef>

namespace kmm::driver {

/// Bytes of physical memory, or the limit of the container (cgroup version 2 or 1) if that is smaller. Read once.
std::size_t machine_memory_bytes() noexcept;

inline constexpr std::size_t unknown_bytes = ~std::size_t{0};

/// Bytes that the machine and the container can give now, pages of files that would be dropped included;
/// `unknown_bytes` where neither tells. Reads three small files of the kernel: some 30 microseconds.
std::size_t available_memory_bytes() noexcept;

/// Processors that this thread may run on, at least 1.
std::size_t usable_processors() noexcept;

}  // namespace kmm::driver
