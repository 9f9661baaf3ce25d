// What the text of emulated kernels shares with the engine that schedules their threads (src/kmm/emulation): the
// built-in variables and the functions that may wait. Owns no state itself. Everything here belongs to the OS thread
// that runs the block; nothing may be called from outside a kernel unless it says so.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <cstdint>

#include "kmm/driver/host_kernel.hpp"
#include "kmm/emulation/beside_cuda.hpp"
#include "kmm/emulation/vector_types.hpp"

// Initial-exec: one or two instructions for an access from any binary. It takes its place from the small static reserve
// of the C library when the library is loaded late, so these variables must stay few.
#define KMM_DETAIL_EMULATION_VARIABLE extern __attribute__((tls_model("initial-exec"))) __thread

namespace kmm::emulation {

// CUDA's built-in variables. The engine writes them; kernels only read.
KMM_DETAIL_EMULATION_VARIABLE ::uint3 threadIdx;
KMM_DETAIL_EMULATION_VARIABLE ::uint3 blockIdx;
KMM_DETAIL_EMULATION_VARIABLE ::dim3 blockDim;
KMM_DETAIL_EMULATION_VARIABLE ::dim3 gridDim;

namespace detail {

/// The block that runs on this OS thread, as far as the loop over its threads (kernel.hpp) is concerned.
struct Block {
    const void* function = nullptr;
    const void* parameters = nullptr;
    /// The next thread to start, unless a loop is active; next.z == blockDim.z: none is left.
    ::uint3 next = {0, 0, 0};
    /// Flag of the active loop: set when its thread starts to wait, and others go on with the rest.
    bool* moved = nullptr;
    /// Start one thread and return (race detection: a thread shares its stack with no other).
    bool single = false;
};

/// Starts threads of the block until none is left or one of them had to wait (in kernel.hpp, one for each kernel type).
using StartThreads = void (*)(Block& block);

/// Runs the blocks [first, last) on the calling thread. Throws what the kernel threw, or KernelError. Never in a
/// kernel.
void run_blocks(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry, const void* parameters,
                std::uint64_t first, std::uint64_t last, StartThreads start);

/// Waits until every thread of the block that has not returned waits here.
void barrier();

struct BarrierVotes {
    int count;  ///< threads whose predicate was not 0
    bool any;
    bool all;
};
/// `barrier`, and counts predicates over the threads that took part.
BarrierVotes barrier_vote(bool predicate);

enum class WarpFunction : std::uint8_t {
    sync,
    ballot,
    any,
    all,
    shuffle,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    active
};

/// Waits until every lane named in `mask` that has not returned makes the same call with the same mask. Returns the
/// function's result as bits: the votes of ballot, 0 or 1 for any and all, the value of the lane read from for shuffles
/// (`operand` is the source lane, delta or lane mask; `width` the segment). Throws KernelError for a mask without the
/// calling lane and a width that is no power of two up to 32.
std::uint64_t warp_call(WarpFunction function, std::uint32_t mask, std::uint64_t value, int operand, int width);

/// The lanes of the warp that reach the same call together: those that wait there once no other lane can run.
std::uint32_t active_lanes();

/// Dynamic shared memory of the block, aligned to 128 bytes; null if the launch asked for none.
void* dynamic_shared() noexcept;

/// A full memory fence between OS threads, in a file that sanitizers do not complain about.
void fence() noexcept;

/// Ticks of a clock that never goes back; the unit is the processor's.
long long clock_ticks() noexcept;

}  // namespace detail
}  // namespace kmm::emulation

#if KMM_DETAIL_BESIDE_CUDA
#define threadIdx ::kmm::emulation::threadIdx
#define blockIdx ::kmm::emulation::blockIdx
#define blockDim ::kmm::emulation::blockDim
#define gridDim ::kmm::emulation::gridDim
#else
using kmm::emulation::blockDim;
using kmm::emulation::blockIdx;
using kmm::emulation::gridDim;
using kmm::emulation::threadIdx;
#endif

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
