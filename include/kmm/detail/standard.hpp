// The standard headers of what kernels use. Compilers at run time (NVRTC, hipRTC) have none: there each is the one of
// the include path, which a program may have set up for its own kernels, or else the stand-in below. Knows nothing of
// the library but its macros.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_IS_RTC
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string_view>  // a small header that declares std::hash
#include <type_traits>
#include <utility>
#else

#if __has_include(<cstddef>)
#include <cstddef>
#else
namespace std {
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));
using nullptr_t = decltype(nullptr);
}  // namespace std
using std::ptrdiff_t;
using std::size_t;
#endif

// The types are those of CCCL's headers, which may stand beside this one: int64_t is a long long.
#if __has_include(<cstdint>)
#include <cstdint>
#else
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using intptr_t = signed long long;
using uintptr_t = unsigned long long;
namespace std {
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
}  // namespace std
#endif

#if __has_include(<type_traits>)
#include <type_traits>
#else
namespace std {

template<typename T, T v>
struct integral_constant {
    using value_type = T;
    using type = integral_constant;
    static constexpr T value = v;
    __device__ constexpr operator T() const noexcept { return v; }
};
template<bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template<typename...>
using void_t = void;
template<bool b, typename T = void>
struct enable_if {};
template<typename T>
struct enable_if<true, T> {
    using type = T;
};
template<bool b, typename T = void>
using enable_if_t = typename enable_if<b, T>::type;
template<bool b, typename T, typename F>
struct conditional {
    using type = T;
};
template<typename T, typename F>
struct conditional<false, T, F> {
    using type = F;
};
template<bool b, typename T, typename F>
using conditional_t = typename conditional<b, T, F>::type;

template<typename T>
struct remove_cv {
    using type = T;
};
template<typename T>
struct remove_cv<const T> {
    using type = T;
};
template<typename T>
struct remove_cv<volatile T> {
    using type = T;
};
template<typename T>
struct remove_cv<const volatile T> {
    using type = T;
};
template<typename T>
struct remove_reference {
    using type = T;
};
template<typename T>
struct remove_reference<T&> {
    using type = T;
};
template<typename T>
struct remove_reference<T&&> {
    using type = T;
};
template<typename T>
using remove_cv_t = typename remove_cv<T>::type;
template<typename T>
using remove_reference_t = typename remove_reference<T>::type;

template<typename A, typename B>
struct is_same : false_type {};
template<typename A>
struct is_same<A, A> : true_type {};
template<typename A, typename B>
inline constexpr bool is_same_v = is_same<A, B>::value;

namespace kmm_detail {

template<typename T, typename... Us>
inline constexpr bool is_one_of_v = (is_same_v<T, Us> || ...);
template<typename T>
inline constexpr bool is_integral_v =
    is_one_of_v<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short, unsigned short, int,
                unsigned int, long, unsigned long, long long, unsigned long long>;
template<typename T>
inline constexpr bool is_floating_point_v = is_one_of_v<T, float, double, long double>;

template<typename T>
struct identity {
    using type = T;
};
template<typename T>
__device__ identity<T&&> referenced(int);
template<typename T>
__device__ identity<T> referenced(...);

template<typename T, bool = is_integral_v<T> || is_floating_point_v<T>>
struct is_signed_number : bool_constant<(T(-1) < T(0))> {};
template<typename T>
struct is_signed_number<T, false> : false_type {};

template<typename T>
struct unsigned_of {};
template<>
struct unsigned_of<char> : identity<unsigned char> {};
template<>
struct unsigned_of<signed char> : identity<unsigned char> {};
template<>
struct unsigned_of<unsigned char> : identity<unsigned char> {};
template<>
struct unsigned_of<short> : identity<unsigned short> {};
template<>
struct unsigned_of<unsigned short> : identity<unsigned short> {};
template<>
struct unsigned_of<int> : identity<unsigned int> {};
template<>
struct unsigned_of<unsigned int> : identity<unsigned int> {};
template<>
struct unsigned_of<long> : identity<unsigned long> {};
template<>
struct unsigned_of<unsigned long> : identity<unsigned long> {};
template<>
struct unsigned_of<long long> : identity<unsigned long long> {};
template<>
struct unsigned_of<unsigned long long> : identity<unsigned long long> {};

}  // namespace kmm_detail

template<typename T>
struct add_rvalue_reference : decltype(kmm_detail::referenced<T>(0)) {};
template<typename T>
__device__ typename add_rvalue_reference<T>::type declval() noexcept;

template<typename T>
struct is_integral : bool_constant<kmm_detail::is_integral_v<remove_cv_t<T>>> {};
template<typename T>
struct is_floating_point : bool_constant<kmm_detail::is_floating_point_v<remove_cv_t<T>>> {};
template<typename T>
struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template<typename T>
struct is_signed : kmm_detail::is_signed_number<remove_cv_t<T>> {};
template<typename T>
struct make_unsigned : kmm_detail::unsigned_of<remove_cv_t<T>> {};
template<typename T>
using make_unsigned_t = typename make_unsigned<T>::type;
template<typename From, typename To>
struct is_convertible : bool_constant<__is_convertible_to(From, To)> {};

namespace kmm_detail {

template<typename T>
__device__ identity<remove_cv_t<T>> passed_by_value(T);
template<typename A, typename B>
using type_of_either_t = decltype(false ? declval<A>() : declval<B>());

}  // namespace kmm_detail

// What a parameter passed by value has: arrays and functions become pointers.
template<typename T>
struct decay : decltype(kmm_detail::passed_by_value(declval<T>())){};
template<typename T>
using decay_t = typename decay<T>::type;

template<typename... Ts>
struct common_type {};
template<typename T>
struct common_type<T> : decay<T> {};
template<typename A, typename B>
struct common_type<A, B> : decay<kmm_detail::type_of_either_t<decay_t<A>, decay_t<B>>> {};
template<typename A, typename B, typename C, typename... Ts>
struct common_type<A, B, C, Ts...> : common_type<typename common_type<A, B>::type, C, Ts...> {};
template<typename... Ts>
using common_type_t = typename common_type<Ts...>::type;

}  // namespace std
#endif

#if __has_include(<utility>)
#include <utility>
#else
namespace std {

template<typename T, T... values>
struct integer_sequence {
    using value_type = T;
    __device__ static constexpr size_t size() noexcept { return sizeof...(values); }
};
template<size_t... values>
using index_sequence = integer_sequence<size_t, values...>;

namespace kmm_detail {

template<size_t n, size_t... values>
struct counted : counted<n - 1, n - 1, values...> {};
template<size_t... values>
struct counted<0, values...> {
    using type = index_sequence<values...>;
};

}  // namespace kmm_detail

template<size_t n>
using make_index_sequence = typename kmm_detail::counted<n>::type;

}  // namespace std
#endif

#if __has_include(<limits>)
#include <limits>
#else
namespace std {

template<typename T>
struct numeric_limits {
    static_assert(is_integral<T>::value, "the stand-in for <limits> has integers, float and double");
    static constexpr bool is_specialized = true, is_integer = true, has_infinity = false, has_quiet_NaN = false;
    static constexpr bool is_signed = std::is_signed<T>::value;
    static constexpr int digits = is_same_v<T, bool> ? 1 : int(8 * sizeof(T)) - (is_signed ? 1 : 0);
    // 2^(digits - 1) - 1 and as much again and 1, so that nothing overflows on the way.
    __device__ static constexpr T max() noexcept { return T((((T(1) << (digits - 1)) - T(1)) << 1) + T(1)); }
    __device__ static constexpr T min() noexcept { return is_signed ? T(-max() - T(1)) : T(0); }
    __device__ static constexpr T lowest() noexcept { return min(); }
    __device__ static constexpr T epsilon() noexcept { return T(0); }
    __device__ static constexpr T infinity() noexcept { return T(0); }
    __device__ static constexpr T quiet_NaN() noexcept { return T(0); }
};
template<>
struct numeric_limits<float> {
    static constexpr bool is_specialized = true, is_integer = false, has_infinity = true, has_quiet_NaN = true;
    static constexpr bool is_signed = true;
    static constexpr int digits = 24;
    __device__ static constexpr float max() noexcept { return 0x1.fffffep127F; }
    __device__ static constexpr float min() noexcept { return 0x1p-126F; }
    __device__ static constexpr float lowest() noexcept { return -max(); }
    __device__ static constexpr float epsilon() noexcept { return 0x1p-23F; }
    __device__ static constexpr float infinity() noexcept { return __builtin_bit_cast(float, 0x7f800000); }
    __device__ static constexpr float quiet_NaN() noexcept { return __builtin_bit_cast(float, 0x7fc00000); }
};
template<>
struct numeric_limits<double> {
    static constexpr bool is_specialized = true, is_integer = false, has_infinity = true, has_quiet_NaN = true;
    static constexpr bool is_signed = true;
    static constexpr int digits = 53;
    __device__ static constexpr double max() noexcept { return 0x1.fffffffffffffp1023; }
    __device__ static constexpr double min() noexcept { return 0x1p-1022; }
    __device__ static constexpr double lowest() noexcept { return -max(); }
    __device__ static constexpr double epsilon() noexcept { return 0x1p-52; }
    __device__ static constexpr double infinity() noexcept { return __builtin_bit_cast(double, 0x7ff0000000000000); }
    __device__ static constexpr double quiet_NaN() noexcept { return __builtin_bit_cast(double, 0x7ff8000000000000); }
};
template<typename T>
struct numeric_limits<const T> : numeric_limits<T> {};
template<typename T>
struct numeric_limits<volatile T> : numeric_limits<T> {};
template<typename T>
struct numeric_limits<const volatile T> : numeric_limits<T> {};

}  // namespace std
#endif

#endif
