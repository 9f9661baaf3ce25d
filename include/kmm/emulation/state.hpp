// Questions that code outside a kernel's own text asks about emulated kernels: does one run here, which thread of it.
// Declares only; needs nothing of the emulated language, so every header and every compile mode may include it.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace kmm::emulation {

/// Where the calling code runs in an emulated kernel; all zero outside one.
struct Where {
    std::uint32_t block[3] = {0, 0, 0};
    std::uint32_t thread[3] = {0, 0, 0};
};

/// Whether the calling code runs inside an emulated kernel. Any thread; never blocks.
bool in_kernel() noexcept;

/// Block and thread of the calling code. Any thread; never blocks.
Where where() noexcept;

/// Thrown out of a launch whose block cannot go on: its threads wait for each other at different places, or a warp
/// function was called with arguments that CUDA forbids. The text says which threads wait where.
class KernelError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace kmm::emulation
