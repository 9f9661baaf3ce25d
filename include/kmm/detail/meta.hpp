// Small type functions of the API's templates. C++17.
#pragma once

#include <cstddef>

namespace kmm {
namespace detail {

template<typename...>
inline constexpr bool always_false_v = false;

template<typename T>
struct TypeIdentity {
    using type = T;
};
/// `T`, but not deduced from the argument.
template<typename T>
using NonDeduced = typename TypeIdentity<T>::type;

template<std::size_t I, typename... Ts>
struct NthType {
    using type = void;
};
template<typename T, typename... Ts>
struct NthType<0, T, Ts...> {
    using type = T;
};
template<std::size_t I, typename T, typename... Ts>
struct NthType<I, T, Ts...> : NthType<I - 1, Ts...> {};
/// The I-th of the types, void beyond the last.
template<std::size_t I, typename... Ts>
using nth_type_t = typename NthType<I, Ts...>::type;

}  // namespace detail
}  // namespace kmm
