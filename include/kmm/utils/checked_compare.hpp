// Comparisons of arithmetic values that are right for every mix of types.
//
// Owns: nothing; pure functions. Must not know: errors, which checked_math.hpp adds. Any thread, host and device.
#pragma once

#include <limits>
#include <type_traits>

#include "kmm/utils/macros.hpp"

namespace kmm {

namespace detail {

// std::numeric_limits as values: nvcc refuses calls of its functions in device code.
template<typename T>
struct NumberLimits {
    static constexpr T smallest = std::numeric_limits<T>::min();
    static constexpr T largest = std::numeric_limits<T>::max();
    static constexpr T infinity = std::numeric_limits<T>::infinity();
};

}  // namespace detail

/// a == b as numbers, whatever the signs and widths of the types.
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_equal(const A& a, const B& b) {
    if constexpr (std::is_integral<A>::value && std::is_integral<B>::value) {
        if constexpr (std::is_signed<A>::value && !std::is_signed<B>::value) {
            return a >= 0 && static_cast<std::make_unsigned_t<A>>(a) == b;
        } else if constexpr (!std::is_signed<A>::value && std::is_signed<B>::value) {
            return b >= 0 && static_cast<std::make_unsigned_t<B>>(b) == a;
        } else {
            return a == b;
        }
    } else {
        return a == b;
    }
}

/// a < b as numbers, whatever the signs and widths of the types.
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_less(const A& a, const B& b) {
    if constexpr (std::is_integral<A>::value && std::is_integral<B>::value) {
        if constexpr (std::is_signed<A>::value && !std::is_signed<B>::value) {
            return a < 0 || static_cast<std::make_unsigned_t<A>>(a) < b;
        } else if constexpr (!std::is_signed<A>::value && std::is_signed<B>::value) {
            return b >= 0 && a < static_cast<std::make_unsigned_t<B>>(b);
        } else {
            return a < b;
        }
    } else {
        return a < b;
    }
}

/// Whether the integer `value` lies between the smallest and the largest value of the integer type `T`.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool in_range(const V& value) {
    constexpr T smallest = detail::NumberLimits<T>::smallest;
    constexpr T largest = detail::NumberLimits<T>::largest;
    return !is_less(value, smallest) && !is_less(largest, value);
}

namespace detail {

// Whether the floating-point `value` lies in the integer type `T`; 2^digits is exact in every floating-point type.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool float_in_integer_range(V value) {
    constexpr V limit = V(2) * static_cast<V>(T(1) << (std::numeric_limits<T>::digits - 1));
    if constexpr (std::is_signed<T>::value) {
        return value >= -limit && value < limit;
    } else {
        return value >= V(0) && value < limit;
    }
}

}  // namespace detail

/// Whether `value` has the same value as a `T`. Between floating-point types only the range counts.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool is_convertible(const V& value) {
    if constexpr (!std::is_arithmetic<T>::value || !std::is_arithmetic<V>::value || std::is_same<T, V>::value) {
        return std::is_convertible<V, T>::value;
    } else if constexpr (std::is_same<T, bool>::value) {
        return value == V(0) || value == V(1);
    } else if constexpr (std::is_integral<T>::value && std::is_integral<V>::value) {
        return in_range<T>(value);
    } else if constexpr (std::is_integral<T>::value) {
        return detail::float_in_integer_range<T>(value) && static_cast<V>(static_cast<T>(value)) == value;
    } else if constexpr (std::is_integral<V>::value) {
        T converted = static_cast<T>(value);
        return detail::float_in_integer_range<V>(converted) && static_cast<V>(converted) == value;
    } else if constexpr (std::numeric_limits<T>::digits >= std::numeric_limits<V>::digits) {
        return true;
    } else {
        constexpr V largest = static_cast<V>(detail::NumberLimits<T>::largest);
        constexpr V infinity = detail::NumberLimits<V>::infinity;
        return value != value || (value >= -largest && value <= largest) || value == infinity || value == -infinity;
    }
}

}  // namespace kmm
