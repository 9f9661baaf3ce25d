// What a kernel handle points to on the host driver: the meeting point of emulated kernels (kmm/emulation.hpp, which
// makes these) and the host driver (which runs them). Belongs to the driver layer; knows nothing of kmm or rmm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kmm::driver {

/// Geometry of one emulated launch, as the kernel sees it.
struct HostLaunchGeometry {
    std::uint32_t grid[3] = {1, 1, 1};
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t shared_bytes = 0;  ///< dynamic shared memory of each block
    std::size_t stack_bytes = 0;     ///< of a thread in a kernel with barriers; 0: the default
};

/// A kernel that a C++ compiler built. `run_blocks` runs the blocks [first, last) of the grid (numbered x fastest) on
/// the calling thread, one after the other; several threads may run different blocks of one launch at the same time. It
/// may throw what the kernel threw; the remaining blocks of the range are then not run. `parameters` are packed as
/// described at `KernelLaunch` and stay valid and unchanged during the launch.
struct HostKernel {
    void (*run_blocks)(const HostKernel& kernel, const HostLaunchGeometry& geometry, const void* parameters,
                       std::uint64_t first, std::uint64_t last) = nullptr;
    const void* function = nullptr;  ///< the user's function pointer
    const char* name = nullptr;      ///< for messages; may be null
};

}  // namespace kmm::driver
