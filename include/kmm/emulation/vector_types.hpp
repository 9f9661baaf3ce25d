// dim3 and the vector types with CUDA's names, layout and alignment, for plain C++ files. If CUDA's vector_types.h came
// before, its types are used (they are the same structs of the same name, so files of both kinds link together). Owns
// no state.
#pragma once

#include "kmm/utils/macros.hpp"

#if KMM_IS_RTC
// The compiler knows them.
#elif defined(__CUDACC__) || defined(__CUDA__)
#include <vector_types.h>
#elif defined(__HIPCC__) || defined(__HIP__)
#include <hip/hip_runtime_api.h>
#include <hip/hip_vector_types.h>
#elif defined(__VECTOR_TYPES_H__)
#include <vector_functions.h>
#else

// NOLINTBEGIN: the names are CUDA's.
#define KMM_DETAIL_VECTOR_(type, T, align2, align4)                       \
    struct type##1 { T x; };                                              \
    struct alignas(align2) type##2 { T x, y; };                           \
    struct type##3 { T x, y, z; };                                        \
    struct alignas(align4) type##4 { T x, y, z, w; };                     \
    constexpr type##1 make_##type##1(T x) { return {x}; }                 \
    constexpr type##2 make_##type##2(T x, T y) { return {x, y}; }         \
    constexpr type##3 make_##type##3(T x, T y, T z) { return {x, y, z}; } \
    constexpr type##4 make_##type##4(T x, T y, T z, T w) { return {x, y, z, w}; }

// The four-component types of 8 bytes each exist in two more alignments since CUDA 13.
#define KMM_DETAIL_WIDE_VECTOR_(type, T)                                                  \
    KMM_DETAIL_VECTOR_(type, T, 16, 16)                                                   \
    struct alignas(16) type##4_16a { T x, y, z, w; };                                     \
    struct alignas(32) type##4_32a { T x, y, z, w; };                                     \
    constexpr type##4_16a make_##type##4_16a(T x, T y, T z, T w) { return {x, y, z, w}; } \
    constexpr type##4_32a make_##type##4_32a(T x, T y, T z, T w) { return {x, y, z, w}; }

KMM_DETAIL_VECTOR_(char, signed char, 2, 4)
KMM_DETAIL_VECTOR_(uchar, unsigned char, 2, 4)
KMM_DETAIL_VECTOR_(short, short, 4, 8)
KMM_DETAIL_VECTOR_(ushort, unsigned short, 4, 8)
KMM_DETAIL_VECTOR_(int, int, 8, 16)
KMM_DETAIL_VECTOR_(uint, unsigned int, 8, 16)
KMM_DETAIL_VECTOR_(float, float, 8, 16)
KMM_DETAIL_WIDE_VECTOR_(long, long)
KMM_DETAIL_WIDE_VECTOR_(ulong, unsigned long)
KMM_DETAIL_WIDE_VECTOR_(longlong, long long)
KMM_DETAIL_WIDE_VECTOR_(ulonglong, unsigned long long)
KMM_DETAIL_WIDE_VECTOR_(double, double)

#undef KMM_DETAIL_WIDE_VECTOR_
#undef KMM_DETAIL_VECTOR_

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
// NOLINTEND

#endif

namespace kmm {
using dim3 = ::dim3;
}  // namespace kmm
