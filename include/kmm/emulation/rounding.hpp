// Arithmetic and conversions of CUDA with a rounding direction in their names (__fadd_ru, __double2int_rz ..), and
// other casts. Plain functions without state: the rounding direction of the thread is changed for one operation.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <fenv.h>
#include <math.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kmm/emulation/beside_cuda.hpp"

namespace kmm::emulation::detail {

/// The thread's rounding direction (of fenv.h) for the length of a scope. Operands and results are volatile: compilers
/// do not move reads and writes of these across the calls.
class Rounding {
  public:
    explicit Rounding(int direction) : before_(fegetround()) { fesetround(direction); }
    ~Rounding() { fesetround(before_); }
    Rounding(const Rounding&) = delete;
    Rounding& operator=(const Rounding&) = delete;

  private:
    int before_;
};

inline double round_to_whole(double x, int direction) {
    const Rounding rounding(direction);
    const volatile double late = x;
    const volatile double whole = nearbyint(late);
    return whole;
}

/// As the PTX instruction cvt: what does not fit becomes the nearest number that does; a NaN becomes 0, or where one of
/// the types has 64 bits the number with the highest bit alone.
template<class I>
inline I to_integer(double x, int direction, bool is_double) {
    if (x != x) return is_double || sizeof(I) == 8 ? static_cast<I>(std::uint64_t{1} << (8 * sizeof(I) - 1)) : I(0);
    const double whole = round_to_whole(x, direction);
    const double end = ldexp(1.0, static_cast<int>(8 * sizeof(I)) - (std::is_signed<I>::value ? 1 : 0));
    if (whole >= end) return std::numeric_limits<I>::max();
    if (whole < (std::is_signed<I>::value ? -end : 0.0)) return std::numeric_limits<I>::min();
    return static_cast<I>(whole);
}

}  // namespace kmm::emulation::detail

// NOLINTBEGIN: the names are CUDA's.
#define KMM_DETAIL_IN_DIRECTIONS_(function) \
    function(rn, FE_TONEAREST) function(rz, FE_TOWARDZERO) function(ru, FE_UPWARD) function(rd, FE_DOWNWARD)

#define KMM_DETAIL_ARITHMETIC_(suffix, direction, letter, fma_name, f, T) \
    inline T __##letter##add_##suffix(T x, T y) {                         \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x, b = y;                                    \
        const volatile T result = a + b;                                  \
        return result;                                                    \
    }                                                                     \
    inline T __##letter##sub_##suffix(T x, T y) {                         \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x, b = y;                                    \
        const volatile T result = a - b;                                  \
        return result;                                                    \
    }                                                                     \
    inline T __##letter##mul_##suffix(T x, T y) {                         \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x, b = y;                                    \
        const volatile T result = a * b;                                  \
        return result;                                                    \
    }                                                                     \
    inline T __##letter##div_##suffix(T x, T y) {                         \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x, b = y;                                    \
        const volatile T result = a / b;                                  \
        return result;                                                    \
    }                                                                     \
    inline T __##letter##rcp_##suffix(T x) {                              \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x;                                           \
        const volatile T result = T(1) / a;                               \
        return result;                                                    \
    }                                                                     \
    inline T __##letter##sqrt_##suffix(T x) {                             \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x;                                           \
        const volatile T result = sqrt##f(a);                             \
        return result;                                                    \
    }                                                                     \
    inline T fma_name##_##suffix(T x, T y, T z) {                         \
        const kmm::emulation::detail::Rounding rounding(direction);       \
        const volatile T a = x, b = y, c = z;                             \
        const volatile T result = fma##f(a, b, c);                        \
        return result;                                                    \
    }
#define KMM_DETAIL_SINGLE_(suffix, direction) KMM_DETAIL_ARITHMETIC_(suffix, direction, f, __fmaf, f, float)
#define KMM_DETAIL_DOUBLE_(suffix, direction) KMM_DETAIL_ARITHMETIC_(suffix, direction, d, __fma, , double)
KMM_DETAIL_IN_DIRECTIONS_(KMM_DETAIL_SINGLE_)
KMM_DETAIL_IN_DIRECTIONS_(KMM_DETAIL_DOUBLE_)

#define KMM_DETAIL_IEEE_(suffix, direction) \
    inline float __fmaf_ieee_##suffix(float x, float y, float z) { return __fmaf_##suffix(x, y, z); }
KMM_DETAIL_IN_DIRECTIONS_(KMM_DETAIL_IEEE_)
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }

#define KMM_DETAIL_TO_INTEGERS_(suffix, direction)                                                                     \
    inline int __float2int_##suffix(float x) { return kmm::emulation::detail::to_integer<int>(x, direction, false); }  \
    inline unsigned __float2uint_##suffix(float x) {                                                                   \
        return kmm::emulation::detail::to_integer<unsigned>(x, direction, false);                                      \
    }                                                                                                                  \
    inline long long __float2ll_##suffix(float x) {                                                                    \
        return kmm::emulation::detail::to_integer<long long>(x, direction, false);                                     \
    }                                                                                                                  \
    inline unsigned long long __float2ull_##suffix(float x) {                                                          \
        return kmm::emulation::detail::to_integer<unsigned long long>(x, direction, false);                            \
    }                                                                                                                  \
    inline int __double2int_##suffix(double x) { return kmm::emulation::detail::to_integer<int>(x, direction, true); } \
    inline unsigned __double2uint_##suffix(double x) {                                                                 \
        return kmm::emulation::detail::to_integer<unsigned>(x, direction, true);                                       \
    }                                                                                                                  \
    inline long long __double2ll_##suffix(double x) {                                                                  \
        return kmm::emulation::detail::to_integer<long long>(x, direction, true);                                      \
    }                                                                                                                  \
    inline unsigned long long __double2ull_##suffix(double x) {                                                        \
        return kmm::emulation::detail::to_integer<unsigned long long>(x, direction, true);                             \
    }
KMM_DETAIL_IN_DIRECTIONS_(KMM_DETAIL_TO_INTEGERS_)

#define KMM_DETAIL_TO_NUMBER_(name, From, To)                   \
    KMM_DETAIL_TO_NUMBER_IN_(name, rn, FE_TONEAREST, From, To)  \
    KMM_DETAIL_TO_NUMBER_IN_(name, rz, FE_TOWARDZERO, From, To) \
    KMM_DETAIL_TO_NUMBER_IN_(name, ru, FE_UPWARD, From, To)     \
    KMM_DETAIL_TO_NUMBER_IN_(name, rd, FE_DOWNWARD, From, To)
/* Without an instruction for it, compilers convert an unsigned 0 by a difference: -0 when rounding down. */
#define KMM_DETAIL_TO_NUMBER_IN_(name, suffix, direction, From, To) \
    inline To name##_##suffix(From x) {                             \
        if (std::is_integral<From>::value && x == 0) return 0;      \
        const kmm::emulation::detail::Rounding rounding(direction); \
        const volatile From a = x;                                  \
        const volatile To result = static_cast<To>(a);              \
        return result;                                              \
    }
KMM_DETAIL_TO_NUMBER_(__double2float, double, float)
KMM_DETAIL_TO_NUMBER_(__int2float, int, float)
KMM_DETAIL_TO_NUMBER_(__uint2float, unsigned, float)
KMM_DETAIL_TO_NUMBER_(__ll2float, long long, float)
KMM_DETAIL_TO_NUMBER_(__ull2float, unsigned long long, float)
KMM_DETAIL_TO_NUMBER_(__ll2double, long long, double)
KMM_DETAIL_TO_NUMBER_(__ull2double, unsigned long long, double)
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

#undef KMM_DETAIL_TO_NUMBER_IN_
#undef KMM_DETAIL_TO_NUMBER_
#undef KMM_DETAIL_TO_INTEGERS_
#undef KMM_DETAIL_IEEE_
#undef KMM_DETAIL_DOUBLE_
#undef KMM_DETAIL_SINGLE_
#undef KMM_DETAIL_ARITHMETIC_
#undef KMM_DETAIL_IN_DIRECTIONS_

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
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x) & 0xffffffff); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 |
                                                       static_cast<unsigned>(low)));
}
// NOLINTEND

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
