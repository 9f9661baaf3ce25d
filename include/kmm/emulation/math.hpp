// What CUDA's math functions have beyond math.h, and the fast ones, which are as exact as the others here. Plain
// functions without state. The errors are a few units in the last place, as CUDA promises for its own.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <math.h>

#include <limits>

#include "kmm/emulation/beside_cuda.hpp"

namespace kmm::emulation::detail {

inline constexpr double pi = 3.14159265358979323846;
inline constexpr double sqrt_pi = 1.77245385090551602730;

inline double sine_of_pi(double x) {
    double r = remainder(x, 2.0);  // exact
    if (fabs(r) > 0.5) r = copysign(1.0, r) - r;
    return copysign(sin(pi * r), r);
}
inline double cosine_of_pi(double x) {
    const double r = fabs(remainder(x, 2.0));
    if (r < 0.25) return cos(pi * r);
    return r < 0.75 ? sin(pi * (0.5 - r)) : -cos(pi * (1.0 - r));
}

/// A step of Newton's method after the library's cube root, which is off by a few units.
inline double inverse_cube_root(double x) {
    const double y = 1 / cbrt(x);
    if (y == 0 || !isfinite(y)) return y;
    return y + y * fma(-(x * y * y), y, 1.0) / 3;
}

/// The root of the sum of squares, of scaled numbers: no square overflows, or vanishes where it counts.
template<class T>
inline double root_of_squares(const T* x, int count) {
    double largest = 0;
    bool has_nan = false;
    for (int i = 0; i < count; ++i) {
        has_nan = has_nan || x[i] != x[i];
        largest = fmax(largest, fabs(static_cast<double>(x[i])));
    }
    if (isinf(largest)) return largest;
    if (has_nan) return std::numeric_limits<double>::quiet_NaN();
    if (largest == 0) return 0;
    int exponent = 0;
    frexp(largest, &exponent);
    double sum = 0;
    for (int i = 0; i < count; ++i) {
        const double scaled = ldexp(static_cast<double>(x[i]), -exponent);
        sum += scaled * scaled;
    }
    return ldexp(sqrt(sum), exponent);
}

/// exp(x * x) * erfc(x). The square is in two parts, so that its rounding does not become a relative error.
inline double scaled_erfc(double x) {
    if (x < -27) return std::numeric_limits<double>::infinity();  // it does not fit a double
    if (x < 25) {
        const double square = x * x;
        return exp(square) * exp(fma(x, x, -square)) * erfc(x);
    }
    // The asymptotic series: 1 - 1 / 2x^2 + 3 / 4x^4 - 15 / 8x^6 ...
    const double t = 0.5 / (x * x);
    double sum = 1;
    for (int odd = 13; odd > 0; odd -= 2) sum = 1 - odd * t * sum;
    return sum / (x * sqrt_pi);
}

/// Halley's method on erf(y) = x, for |x| < 1/2.
inline double inverse_erf_of_small(double x) {
    double y = x * sqrt_pi / 2;
    for (int i = 0; i < 4; ++i) {
        const double error = (erf(y) - x) * exp(y * y) * (sqrt_pi / 2);
        y -= error / (1 + y * error);
    }
    return y;
}

/// The same on erfc(y) = p, for 0 < p <= 1/2.
inline double inverse_erfc_of_small(double p) {
    const double t = sqrt(1.38629436111989061883 - 2 * ::log(p));  // of p / 2: Abramowitz and Stegun 26.2.23
    double y = (t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) *
               0.70710678118654752440;
    for (int i = 0; i < 5; ++i) {
        // (erfc(y) - p) over the slope -2 exp(-y^2) / sqrt(pi), of numbers that neither vanish nor overflow
        const double square = y * y, root = exp(square / 2);
        const double error = (p * root * root * exp(fma(y, y, -square)) - scaled_erfc(y)) * (sqrt_pi / 2);
        y -= error / (1 + y * error);
    }
    return y;
}
inline double inverse_erfc(double p) {
    if (!(p >= 0 && p <= 2)) return std::numeric_limits<double>::quiet_NaN();
    if (p == 0) return std::numeric_limits<double>::infinity();
    if (p == 2) return -std::numeric_limits<double>::infinity();
    if (fabs(1 - p) < 0.5) return inverse_erf_of_small(1 - p);
    return p < 1 ? inverse_erfc_of_small(p) : -inverse_erfc_of_small(2 - p);
}
inline double inverse_erf(double x) {
    if (!(fabs(x) <= 1)) return std::numeric_limits<double>::quiet_NaN();
    return fabs(x) < 0.5 ? inverse_erf_of_small(x) : copysign(inverse_erfc(1 - fabs(x)), x);
}

inline double normal_distribution(double x) {
    constexpr double high = 0.70710678118654752440, low = -4.8336466567264567e-17;  // together 1 / sqrt(2)
    const double y = -x * high;
    const double rest = fma(-x, high, -y) - x * low;
    const double value = erfc(y);
    return 0.5 * (isfinite(y) && value != 0 ? value - 2 / sqrt_pi * exp(-y * y) * rest : value);
}

/// Modified Bessel functions of the first kind, order 0 or 1: the series of x^2 / 4, all of whose terms are positive;
/// for large x the asymptotic one (Abramowitz and Stegun 9.6.10, 9.7.1).
inline double modified_bessel(int order, double x) {
    if (x != x) return x;
    const double size = fabs(x);
    long double sum = 1;
    if (size < 30) {
        const long double quarter = static_cast<long double>(size) * size / 4;
        long double term = 1;
        for (int k = 1; term > 1e-18 * sum; ++k) {
            term *= quarter / (static_cast<long double>(k) * (k + order));
            sum += term;
        }
        sum *= order == 0 ? 1 : static_cast<long double>(size) / 2;
    } else if (!isinf(size)) {
        double term = 1;
        for (int k = 1; k < 30 && fabs(term) > 1e-18; ++k) {
            const double odd = 2.0 * k - 1;
            term *= (odd * odd - 4 * order) / (8 * size * k);
            sum += term;
        }
        const double half = exp(size / 2);
        sum = half * (static_cast<double>(sum) / sqrt(2 * pi * size)) * half;
    } else {
        sum = size;
    }
    const auto result = static_cast<double>(sum);
    return order == 1 ? copysign(result, x) : result;
}

}  // namespace kmm::emulation::detail

// NOLINTBEGIN: the names are CUDA's.
// The C library of glibc has sincos; rsqrt from 2.42, and sinpi and cospi from 2.41 on (with GNU extensions, which g++
// and clang++ turn on).
#if defined(__GLIBC__) && defined(_GNU_SOURCE) && !KMM_DETAIL_BESIDE_CUDA
#define KMM_DETAIL_HAS_SINCOS_ 1
#define KMM_DETAIL_HAS_RSQRT_ __GLIBC_PREREQ(2, 42)
#define KMM_DETAIL_HAS_SINPI_ __GLIBC_PREREQ(2, 41)
#else
#define KMM_DETAIL_HAS_SINCOS_ 0
#define KMM_DETAIL_HAS_RSQRT_ 0
#define KMM_DETAIL_HAS_SINPI_ 0
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
#if !KMM_DETAIL_HAS_SINPI_
inline double sinpi(double x) { return kmm::emulation::detail::sine_of_pi(x); }
inline double cospi(double x) { return kmm::emulation::detail::cosine_of_pi(x); }
inline float sinpif(float x) { return static_cast<float>(kmm::emulation::detail::sine_of_pi(x)); }
inline float cospif(float x) { return static_cast<float>(kmm::emulation::detail::cosine_of_pi(x)); }
#endif
#undef KMM_DETAIL_HAS_SINCOS_
#undef KMM_DETAIL_HAS_RSQRT_
#undef KMM_DETAIL_HAS_SINPI_
// CUDA overloads these two for float.
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }

#define KMM_DETAIL_OF_ONE_(name, expression)            \
    inline double name(double x) { return expression; } \
    inline float name##f(float y) {                     \
        const double x = y;                             \
        return static_cast<float>(expression);          \
    }
KMM_DETAIL_OF_ONE_(rcbrt, kmm::emulation::detail::inverse_cube_root(x))
KMM_DETAIL_OF_ONE_(erfinv, kmm::emulation::detail::inverse_erf(x))
KMM_DETAIL_OF_ONE_(erfcinv, kmm::emulation::detail::inverse_erfc(x))
KMM_DETAIL_OF_ONE_(erfcx, kmm::emulation::detail::scaled_erfc(x))
KMM_DETAIL_OF_ONE_(normcdf, kmm::emulation::detail::normal_distribution(x))
KMM_DETAIL_OF_ONE_(normcdfinv, -1.41421356237309504880 * kmm::emulation::detail::inverse_erfc(2 * x))
KMM_DETAIL_OF_ONE_(cyl_bessel_i0, kmm::emulation::detail::modified_bessel(0, x))
KMM_DETAIL_OF_ONE_(cyl_bessel_i1, kmm::emulation::detail::modified_bessel(1, x))
#undef KMM_DETAIL_OF_ONE_

#define KMM_DETAIL_NORMS_(T, f)                                                       \
    inline T norm3d##f(T x, T y, T z) {                                               \
        const T all[] = {x, y, z};                                                    \
        return static_cast<T>(kmm::emulation::detail::root_of_squares(all, 3));       \
    }                                                                                 \
    inline T norm4d##f(T x, T y, T z, T w) {                                          \
        const T all[] = {x, y, z, w};                                                 \
        return static_cast<T>(kmm::emulation::detail::root_of_squares(all, 4));       \
    }                                                                                 \
    inline T rhypot##f(T x, T y) {                                                    \
        const T all[] = {x, y};                                                       \
        return static_cast<T>(1.0 / kmm::emulation::detail::root_of_squares(all, 2)); \
    }                                                                                 \
    inline T rnorm3d##f(T x, T y, T z) {                                              \
        const T all[] = {x, y, z};                                                    \
        return static_cast<T>(1.0 / kmm::emulation::detail::root_of_squares(all, 3)); \
    }                                                                                 \
    inline T rnorm4d##f(T x, T y, T z, T w) {                                         \
        const T all[] = {x, y, z, w};                                                 \
        return static_cast<T>(1.0 / kmm::emulation::detail::root_of_squares(all, 4)); \
    }                                                                                 \
    inline T rnorm##f(int dim, const T* x) {                                          \
        return static_cast<T>(1.0 / kmm::emulation::detail::root_of_squares(x, dim)); \
    }
KMM_DETAIL_NORMS_(double, )
KMM_DETAIL_NORMS_(float, f)
#undef KMM_DETAIL_NORMS_
#if !KMM_DETAIL_BESIDE_CUDA  // there it would be a macro, and the name is one of many libraries
inline double norm(int dim, const double* x) { return kmm::emulation::detail::root_of_squares(x, dim); }
#endif
inline float normf(int dim, const float* x) {
    return static_cast<float>(kmm::emulation::detail::root_of_squares(x, dim));
}

inline void sincospi(double x, double* s, double* c) {
    *s = sinpi(x);
    *c = cospi(x);
}
inline void sincospif(float x, float* s, float* c) {
    *s = sinpif(x);
    *c = cospif(x);
}

// ---- the fast ones
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return static_cast<float>(pow(10.0, static_cast<double>(x))); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
/// Between 0 and 1; 0 for a NaN.
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// ---- min and max by their names in C
inline unsigned umin(unsigned x, unsigned y) { return y < x ? y : x; }
inline unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }
inline long long llmin(long long x, long long y) { return y < x ? y : x; }
inline long long llmax(long long x, long long y) { return x < y ? y : x; }
inline unsigned long long ullmin(unsigned long long x, unsigned long long y) { return y < x ? y : x; }
inline unsigned long long ullmax(unsigned long long x, unsigned long long y) { return x < y ? y : x; }
// NOLINTEND

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
