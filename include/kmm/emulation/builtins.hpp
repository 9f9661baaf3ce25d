// The remaining functions that CUDA gives to kernels without an include: barriers, fences, the clock, min and max.
// Plain functions without state; the barriers wait in the engine.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <math.h>

#include "kmm/emulation/beside_cuda.hpp"
#include "kmm/emulation/engine.hpp"

inline void __syncthreads() { kmm::emulation::detail::barrier(); }
inline int __syncthreads_count(int predicate) { return kmm::emulation::detail::barrier_vote(predicate != 0).count; }
inline int __syncthreads_and(int predicate) { return kmm::emulation::detail::barrier_vote(predicate != 0).all; }
inline int __syncthreads_or(int predicate) { return kmm::emulation::detail::barrier_vote(predicate != 0).any; }

inline void __threadfence() { kmm::emulation::detail::fence(); }
inline void __threadfence_block() { kmm::emulation::detail::fence(); }
inline void __threadfence_system() { kmm::emulation::detail::fence(); }

inline long long clock64() { return kmm::emulation::detail::clock_ticks(); }

#if !KMM_DETAIL_BESIDE_CUDA || !defined(__NVCC__)  // whose headers have these for the host too
// Ordinary functions, as in CUDA: they win against std::min and std::max under `using namespace std`. Mixed arguments
// are converted as CUDA converts them; for floating point the number wins against a NaN.
#define KMM_DETAIL_MIN_MAX_(R, A, B)                                                          \
    constexpr R min(A a, B b) {                                                               \
        return static_cast<R>(b) < static_cast<R>(a) ? static_cast<R>(b) : static_cast<R>(a); \
    }                                                                                         \
    constexpr R max(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(b) : static_cast<R>(a); }
#define KMM_DETAIL_MIN_MAX_SIGNED_(T)                       \
    KMM_DETAIL_MIN_MAX_(T, T, T)                            \
    KMM_DETAIL_MIN_MAX_(unsigned T, unsigned T, unsigned T) \
    KMM_DETAIL_MIN_MAX_(unsigned T, unsigned T, T)          \
    KMM_DETAIL_MIN_MAX_(unsigned T, T, unsigned T)
KMM_DETAIL_MIN_MAX_SIGNED_(int)
KMM_DETAIL_MIN_MAX_SIGNED_(long)
KMM_DETAIL_MIN_MAX_SIGNED_(long long)
#undef KMM_DETAIL_MIN_MAX_SIGNED_
#undef KMM_DETAIL_MIN_MAX_
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
#endif

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
