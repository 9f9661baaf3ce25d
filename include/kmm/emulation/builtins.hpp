// The remaining functions that CUDA gives to kernels without an include: barriers, fences, bits, min and max, and what
// math.h lacks. Plain functions without state; the barriers wait in the engine.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <math.h>

#include <cstring>

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

template<class T>
inline T __ldg(const T* address) {
    return *address;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    const auto low = __brev(static_cast<unsigned>(x));
    return static_cast<unsigned long long>(low) << 32 | __brev(static_cast<unsigned>(x >> 32));
}

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
// The C library of glibc has sincos, and rsqrt from 2.42 on (with GNU extensions, which g++ and clang++ turn on).
#if defined(__GLIBC__) && defined(_GNU_SOURCE) && !KMM_DETAIL_BESIDE_CUDA
#define KMM_DETAIL_HAS_SINCOS_ 1
#define KMM_DETAIL_HAS_RSQRT_ __GLIBC_PREREQ(2, 42)
#else
#define KMM_DETAIL_HAS_SINCOS_ 0
#define KMM_DETAIL_HAS_RSQRT_ 0
#endif
#if !KMM_DETAIL_HAS_SINCOS_
inline void sincos(double x, double* s, double* c) {
    *s = sin(x);
    *c = cos(x);
}
inline void sincosf(float x, float* s, float* c) {
    *s = sinf(x);
    *c = cosf(x);
}
#endif
#if !KMM_DETAIL_HAS_RSQRT_
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#endif
// CUDA overloads these two for float.
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
#undef KMM_DETAIL_HAS_SINCOS_
#undef KMM_DETAIL_HAS_RSQRT_

// Bits of one type read as the other.
#define KMM_DETAIL_BIT_CAST_(name, To, From)       \
    inline To name(From from) {                    \
        static_assert(sizeof(To) == sizeof(From)); \
        To to;                                     \
        std::memcpy(&to, &from, sizeof(To));       \
        return to;                                 \
    }
KMM_DETAIL_BIT_CAST_(__float_as_int, int, float)
KMM_DETAIL_BIT_CAST_(__int_as_float, float, int)
KMM_DETAIL_BIT_CAST_(__float_as_uint, unsigned, float)
KMM_DETAIL_BIT_CAST_(__uint_as_float, float, unsigned)
KMM_DETAIL_BIT_CAST_(__double_as_longlong, long long, double)
KMM_DETAIL_BIT_CAST_(__longlong_as_double, double, long long)
#undef KMM_DETAIL_BIT_CAST_

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
