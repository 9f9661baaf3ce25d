// CUDA's kernel language for plain C++ compilers: a file with __global__ functions compiles as C++ and its kernels run
// on the host driver. Owns the keywords (macros) and pulls in the rest; in files that nvcc or hipcc compiles it gives
// only KMM_DYNAMIC_SHARED and kmm::dim3 (but with -DKMM_USE_CUDA=0 all of it). KMM_NO_EMULATION, defined before,
// suppresses it.
//
// The threads of a block take turns on one OS thread, so a loop that spins until another thread of its block has
// written something does not end; waiting for another block may not end either (as on a device). A kernel may throw:
// the launch fails with the exception, and threads that wait are unwound (so a destructor that waits must be
// noexcept(false)). Not available: <<<>>>, textures, cooperative groups, inline PTX, device-side launches. CUDA's own
// headers, where wanted, go before this one. A standard header that uses [[__gnu__::__noinline__]] (<stacktrace>,
// <experimental/simd>) goes before it too.
#pragma once

#include "kmm/utils/macros.hpp"

#if KMM_DETAIL_HAS_DEVICE_CODE
#include "kmm/emulation/dynamic_shared.hpp"
#include "kmm/emulation/vector_types.hpp"
#elif !defined(KMM_NO_EMULATION)
// CUDA's host_defines.h gives these to plain compilers as well, with another meaning for __shared__.
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __shared__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
// A block runs on one OS thread from its first thread to its last.
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
// Empty, because standard headers write __attribute__((__noinline__)): both places must stay valid.
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

#include "kmm/emulation/atomics.hpp"
#include "kmm/emulation/builtins.hpp"
#include "kmm/emulation/dynamic_shared.hpp"
#include "kmm/emulation/engine.hpp"
#include "kmm/emulation/integers.hpp"
#include "kmm/emulation/kernel.hpp"
#include "kmm/emulation/math.hpp"
#include "kmm/emulation/rounding.hpp"
#include "kmm/emulation/state.hpp"
#include "kmm/emulation/vector_types.hpp"
#include "kmm/emulation/warp.hpp"
#endif
