// Arithmetic that reports overflow: std::overflow_error on the host, a failed kernel on a device.
//
// Owns: nothing; pure functions. Must not know: how a failure is reported, which detail/panic.hpp does, so that no
// exception type is needed here. Any thread, host and device.
#pragma once

#include "kmm/detail/panic.hpp"
#include "kmm/detail/standard.hpp"
#include "kmm/utils/checked_compare.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

namespace detail {

// Of unsigned types a comparison would be one that compilers warn of.
template<typename T>
KMM_HOST_DEVICE constexpr bool is_negative(T value) {
    if constexpr (std::is_signed<T>::value) {
        return value < 0;
    } else {
        return false;
    }
}

// True if a + b, a - b or a * b does not fit `T`; else the result is in `out`. The builtins are neither available in
// device code nor constant expressions for nvcc.
template<typename T>
KMM_HOST_DEVICE constexpr bool add_overflows(T a, T b, T& out) {
#if KMM_DETAIL_HAS_DEVICE_CODE
    constexpr T largest = NumberLimits<T>::largest;
    constexpr T smallest = NumberLimits<T>::smallest;
    if ((b > 0 && a > largest - b) || (is_negative(b) && a < smallest - b)) {
        return true;
    }
    out = static_cast<T>(a + b);
    return false;
#else
    return __builtin_add_overflow(a, b, &out);
#endif
}

template<typename T>
KMM_HOST_DEVICE constexpr bool sub_overflows(T a, T b, T& out) {
#if KMM_DETAIL_HAS_DEVICE_CODE
    constexpr T largest = NumberLimits<T>::largest;
    constexpr T smallest = NumberLimits<T>::smallest;
    if ((b > 0 && a < smallest + b) || (is_negative(b) && a > largest + b)) {
        return true;
    }
    out = static_cast<T>(a - b);
    return false;
#else
    return __builtin_sub_overflow(a, b, &out);
#endif
}

template<typename T>
KMM_HOST_DEVICE constexpr bool mul_overflows(T a, T b, T& out) {
#if KMM_DETAIL_HAS_DEVICE_CODE
    constexpr T largest = NumberLimits<T>::largest;
    constexpr T smallest = NumberLimits<T>::smallest;
    bool bad = false;
    if (a > 0) {
        bad = b > 0 ? a > largest / b : (is_negative(b) && b < smallest / a);
    } else if (is_negative(a)) {
        bad = b > 0 ? a < smallest / b : (is_negative(b) && a < largest / b);
    }
    if (bad) {
        return true;
    }
    out = static_cast<T>(a * b);
    return false;
#else
    return __builtin_mul_overflow(a, b, &out);
#endif
}

}  // namespace detail

template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T checked_add(const A& a, const B& b) {
    if constexpr (std::is_integral<T>::value) {
        T result = 0;
        if (KMM_UNLIKELY(detail::add_overflows(checked_cast<T>(a), checked_cast<T>(b), result))) {
            detail::fail_overflow("overflow in addition");
        }
        return result;
    } else {
        return a + b;
    }
}

template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T checked_sub(const A& a, const B& b) {
    if constexpr (std::is_integral<T>::value) {
        T result = 0;
        if (KMM_UNLIKELY(detail::sub_overflows(checked_cast<T>(a), checked_cast<T>(b), result))) {
            detail::fail_overflow("overflow in subtraction");
        }
        return result;
    } else {
        return a - b;
    }
}

template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T checked_mul(const A& a, const B& b) {
    if constexpr (std::is_integral<T>::value) {
        T result = 0;
        if (KMM_UNLIKELY(detail::mul_overflows(checked_cast<T>(a), checked_cast<T>(b), result))) {
            detail::fail_overflow("overflow in multiplication");
        }
        return result;
    } else {
        return a * b;
    }
}

template<typename T>
KMM_HOST_DEVICE constexpr T checked_neg(const T& a) {
    return checked_sub(T(0), a);
}

/// Sum of [begin, end) in the element type, starting with `initial`.
template<typename Iterator, typename T = std::decay_t<decltype(*std::declval<Iterator&>())>>
KMM_HOST_DEVICE constexpr T checked_sum(Iterator begin, Iterator end, T initial = T(0)) {
    for (; begin != end; ++begin) {
        initial = checked_add(initial, static_cast<T>(*begin));
    }
    return initial;
}

/// Product of [begin, end) in the element type, starting with `initial`.
template<typename Iterator, typename T = std::decay_t<decltype(*std::declval<Iterator&>())>>
KMM_HOST_DEVICE constexpr T checked_product(Iterator begin, Iterator end, T initial = T(1)) {
    for (; begin != end; ++begin) {
        initial = checked_mul(initial, static_cast<T>(*begin));
    }
    return initial;
}

}  // namespace kmm
