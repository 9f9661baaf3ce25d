// Emulated kernels in a file that a CUDA compiler translates (-DKMM_USE_CUDA=0): it has seen CUDA's own declarations of
// the kernel language, which are for devices alone, so that ours bear other names. Owns these names; empty in plain
// files.
#pragma once

#include "kmm/utils/macros.hpp"

#if defined(__CUDACC__) && !KMM_DETAIL_HAS_DEVICE_CODE
#define KMM_DETAIL_BESIDE_CUDA 1

// NOLINTBEGIN: the names are CUDA's.
#define __syncthreads kmm_emulated_syncthreads
#define __syncthreads_count kmm_emulated_syncthreads_count
#define __syncthreads_and kmm_emulated_syncthreads_and
#define __syncthreads_or kmm_emulated_syncthreads_or
#define __syncwarp kmm_emulated_syncwarp
#define __threadfence kmm_emulated_threadfence
#define __threadfence_block kmm_emulated_threadfence_block
#define __threadfence_system kmm_emulated_threadfence_system
#define clock64 kmm_emulated_clock64
#define __ldg kmm_emulated_ldg
#define __popc kmm_emulated_popc
#define __popcll kmm_emulated_popcll
#define __clz kmm_emulated_clz
#define __clzll kmm_emulated_clzll
#define __ffs kmm_emulated_ffs
#define __ffsll kmm_emulated_ffsll
#define __brev kmm_emulated_brev
#define __brevll kmm_emulated_brevll
#define __float_as_int kmm_emulated_float_as_int
#define __int_as_float kmm_emulated_int_as_float
#define __float_as_uint kmm_emulated_float_as_uint
#define __uint_as_float kmm_emulated_uint_as_float
#define __double_as_longlong kmm_emulated_double_as_longlong
#define __longlong_as_double kmm_emulated_longlong_as_double
#define __ballot_sync kmm_emulated_ballot_sync
#define __any_sync kmm_emulated_any_sync
#define __all_sync kmm_emulated_all_sync
#define __activemask kmm_emulated_activemask
#define __shfl_sync kmm_emulated_shfl_sync
#define __shfl_up_sync kmm_emulated_shfl_up_sync
#define __shfl_down_sync kmm_emulated_shfl_down_sync
#define __shfl_xor_sync kmm_emulated_shfl_xor_sync
#define rsqrt kmm_emulated_rsqrt
#define rsqrtf kmm_emulated_rsqrtf
#define sincos kmm_emulated_sincos
#define sincosf kmm_emulated_sincosf
#define warpSize kmm_emulated_warpSize
#define atomicAdd kmm_emulated_atomicAdd
#define atomicAdd_block kmm_emulated_atomicAdd_block
#define atomicAdd_system kmm_emulated_atomicAdd_system
#define atomicSub kmm_emulated_atomicSub
#define atomicSub_block kmm_emulated_atomicSub_block
#define atomicSub_system kmm_emulated_atomicSub_system
#define atomicExch kmm_emulated_atomicExch
#define atomicExch_block kmm_emulated_atomicExch_block
#define atomicExch_system kmm_emulated_atomicExch_system
#define atomicMin kmm_emulated_atomicMin
#define atomicMin_block kmm_emulated_atomicMin_block
#define atomicMin_system kmm_emulated_atomicMin_system
#define atomicMax kmm_emulated_atomicMax
#define atomicMax_block kmm_emulated_atomicMax_block
#define atomicMax_system kmm_emulated_atomicMax_system
#define atomicAnd kmm_emulated_atomicAnd
#define atomicAnd_block kmm_emulated_atomicAnd_block
#define atomicAnd_system kmm_emulated_atomicAnd_system
#define atomicOr kmm_emulated_atomicOr
#define atomicOr_block kmm_emulated_atomicOr_block
#define atomicOr_system kmm_emulated_atomicOr_system
#define atomicXor kmm_emulated_atomicXor
#define atomicXor_block kmm_emulated_atomicXor_block
#define atomicXor_system kmm_emulated_atomicXor_system
#define atomicInc kmm_emulated_atomicInc
#define atomicInc_block kmm_emulated_atomicInc_block
#define atomicInc_system kmm_emulated_atomicInc_system
#define atomicDec kmm_emulated_atomicDec
#define atomicDec_block kmm_emulated_atomicDec_block
#define atomicDec_system kmm_emulated_atomicDec_system
#define atomicCAS kmm_emulated_atomicCAS
#define atomicCAS_block kmm_emulated_atomicCAS_block
#define atomicCAS_system kmm_emulated_atomicCAS_system
// NOLINTEND
#else
#define KMM_DETAIL_BESIDE_CUDA 0
#endif
