// Comparisons and conversions of arithmetic values that are right for every mix of types: what is compared is the
// number itself, never the number after a conversion.
//
// Owns: nothing; pure functions. Must not know: how a failure is reported, which detail/panic.hpp does. Any thread,
// host and device.
#pragma once

#include "kmm/detail/panic.hpp"
#include "kmm/detail/standard.hpp"
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

namespace detail {

// Whether the floating-point `value` lies in the integer type `T`; 2^digits is exact in every floating-point type.
// Never for a NaN.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool float_in_integer_range(V value) {
    constexpr V limit = V(2) * static_cast<V>(T(1) << (std::numeric_limits<T>::digits - 1));
    if constexpr (std::is_signed<T>::value) {
        return value >= -limit && value < limit;
    } else {
        return value >= V(0) && value < limit;
    }
}

// How the integer `a` compares with the number `b`, which is not a NaN: -1, 0 or 1.
template<typename A, typename B>
KMM_HOST_DEVICE constexpr int compare_integer_with_float(A a, B b) {
    if (!float_in_integer_range<A>(b)) {
        return b < B(0) ? 1 : -1;
    }
    const A whole = static_cast<A>(b);  // towards zero
    if (a != whole) {
        return a < whole ? -1 : 1;
    }
    const B rest = b - static_cast<B>(whole);
    return rest > B(0) ? -1 : (rest < B(0) ? 1 : 0);
}

}  // namespace detail

/// a == b as numbers, whatever the signs, widths and kinds of the types. A NaN equals nothing.
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
    } else if constexpr (std::is_integral<A>::value && std::is_floating_point<B>::value) {
        return b == b && detail::compare_integer_with_float(a, b) == 0;
    } else if constexpr (std::is_floating_point<A>::value && std::is_integral<B>::value) {
        return a == a && detail::compare_integer_with_float(b, a) == 0;
    } else {
        return a == b;
    }
}

/// a < b as numbers, whatever the signs, widths and kinds of the types. Never with a NaN.
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
    } else if constexpr (std::is_integral<A>::value && std::is_floating_point<B>::value) {
        return b == b && detail::compare_integer_with_float(a, b) < 0;
    } else if constexpr (std::is_floating_point<A>::value && std::is_integral<B>::value) {
        return a == a && detail::compare_integer_with_float(b, a) > 0;
    } else {
        return a < b;
    }
}

/// The other comparisons of numbers. With a NaN only `is_not_equal` holds.
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_not_equal(const A& a, const B& b) {
    return !is_equal(a, b);
}
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_less_equal(const A& a, const B& b) {
    return is_less(a, b) || is_equal(a, b);
}
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_greater(const A& a, const B& b) {
    return is_less(b, a);
}
template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool is_greater_equal(const A& a, const B& b) {
    return is_less_equal(b, a);
}

/// Whether the integer `value` lies between the smallest and the largest value of the integer type `T`.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool in_range(const V& value) {
    constexpr T smallest = detail::NumberLimits<T>::smallest;
    constexpr T largest = detail::NumberLimits<T>::largest;
    return !is_less(value, smallest) && !is_less(largest, value);
}

/// 0 <= value < length
template<typename V, typename L,
         typename = std::enable_if_t<std::is_arithmetic<V>::value && std::is_arithmetic<L>::value>>
KMM_HOST_DEVICE constexpr bool in_range(const V& value, const L& length) {
    return !is_less(value, 0) && is_less(value, length);
}

namespace detail {

// Whether a number of the floating-point type V lies between the smallest and the largest of T, or is none of them at
// all (infinite, NaN), which every floating-point type has.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool in_float_range(const V& value) {
    if constexpr (std::numeric_limits<T>::digits >= std::numeric_limits<V>::digits) {
        return true;
    } else {
        constexpr V largest = static_cast<V>(NumberLimits<T>::largest);
        constexpr V infinity = NumberLimits<V>::infinity;
        return value != value || (value >= -largest && value <= largest) || value == infinity || value == -infinity;
    }
}

}  // namespace detail

/// Whether there is a `T` with exactly this value: 0.5 is a float, 0.1 (a double) is none. A NaN is one of every
/// floating-point type.
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
    } else {
        return detail::in_float_range<T>(value) && (value != value || static_cast<V>(static_cast<T>(value)) == value);
    }
}

namespace detail {

// What a conversion may do without being an overflow: between floating-point types it may round.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr bool casts_without_overflow(const V& value) {
    if constexpr (std::is_floating_point<T>::value && std::is_floating_point<V>::value) {
        return in_float_range<T>(value);
    } else {
        return is_convertible<T>(value);
    }
}

}  // namespace detail

/// `value` as a `T`; std::overflow_error if that would change the value. Between floating-point types it is rounded,
/// and only a value beyond the largest of `T` is an overflow.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr T checked_cast(const V& value) {
    if (KMM_UNLIKELY(!detail::casts_without_overflow<T>(value))) {
        detail::fail_overflow("overflow in conversion of a number: the value does not fit the type");
    }
    return static_cast<T>(value);
}

/// The same as `checked_cast<T>(value)`.
template<typename T, typename V>
KMM_HOST_DEVICE constexpr T checked_convert(const V& value) {
    return checked_cast<T>(value);
}

/// Stores `value` as a `T` in `*result` and returns true; if it does not fit, false, and `*result` stays as it was.
template<typename V, typename T>
KMM_HOST_DEVICE constexpr bool checked_convert(const V& value, T* result) {
    if (!detail::casts_without_overflow<T>(value)) {
        return false;
    }
    *result = static_cast<T>(value);
    return true;
}

}  // namespace kmm
