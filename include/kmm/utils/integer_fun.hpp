// Rounding functions of integers. A divisor or multiple of 0 is undefined behaviour, as for `/`.
//
// Owns: nothing; pure functions. Must not know: what is rounded (tiles, bytes, grids). Any thread, host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

/// a / b, rounded towards minus infinity for every sign.
template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T div_floor(const A& a, const B& b) {
    static_assert(std::is_integral<T>::value, "div_floor is for integers");
    T numerator = static_cast<T>(a);
    T divisor = static_cast<T>(b);
    T quotient = static_cast<T>(numerator / divisor);
    T remainder = static_cast<T>(numerator % divisor);
    if constexpr (std::is_signed<T>::value) {
        return static_cast<T>(quotient - ((remainder != 0 && ((remainder < 0) != (divisor < 0))) ? 1 : 0));
    } else {
        return quotient;
    }
}

/// a / b, rounded towards plus infinity for every sign.
template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T div_ceil(const A& a, const B& b) {
    static_assert(std::is_integral<T>::value, "div_ceil is for integers");
    T numerator = static_cast<T>(a);
    T divisor = static_cast<T>(b);
    T quotient = static_cast<T>(numerator / divisor);
    T remainder = static_cast<T>(numerator % divisor);
    if constexpr (std::is_signed<T>::value) {
        return static_cast<T>(quotient + ((remainder != 0 && ((remainder < 0) == (divisor < 0))) ? 1 : 0));
    } else {
        return static_cast<T>(quotient + (remainder != 0 ? 1 : 0));
    }
}

/// The smallest multiple of `multiple` that is not below `value`, whatever the signs; std::overflow_error if it does
/// not fit.
template<typename A, typename B, typename T = std::common_type_t<A, B>>
KMM_HOST_DEVICE constexpr T round_up_to_multiple(const A& value, const B& multiple) {
    const T step = static_cast<T>(multiple);
    // A negative step reaches the larger multiple with the smaller factor.
    return checked_mul(step < T(0) ? div_floor<A, B, T>(value, multiple) : div_ceil<A, B, T>(value, multiple), step);
}

template<typename T>
KMM_HOST_DEVICE constexpr bool is_power_of_two(const T& value) {
    static_assert(std::is_integral<T>::value, "is_power_of_two is for integers");
    return value > 0 && (value & (value - 1)) == 0;
}

/// The smallest power of two that is not below `value` (1 for values below 1); std::overflow_error if it does not fit.
template<typename T>
KMM_HOST_DEVICE constexpr T round_up_to_power_of_two(const T& value) {
    T result = 1;
    while (result < value) {
        result = checked_mul(result, T(2));
    }
    return result;
}

}  // namespace kmm
