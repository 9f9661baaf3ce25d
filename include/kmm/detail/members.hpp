// The members of an aggregate class: how many there are, and references to them.
//
// Owns: nothing. Runs no code of the class, and counts only where the count is certain: a class with arrays, or with a
// member that `{}` does not initialise, has none. Not for classes with anonymous unions, or with members in a base
// beside their own, nor for objects with bit-fields that are not const: compilers refuse references to their members.
// Must not know: views, tasks. C++17.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kmm {
namespace detail {

/// Initialises any member of `T`, but no base and no `T`. Looks like a view, so that a view is copied from it rather
/// than made of it as an address. Never called: it is defined for compilers that warn.
template<typename T>
struct AnyMember {
    using domain_type = void;
    using accessor_type = void;
    template<typename M, typename = std::enable_if_t<!std::is_base_of_v<M, T>>>
    operator M() {
        throw AnyMember();
    }
};
template<typename T, std::size_t>
AnyMember<T> any_member();

/// Whether `T{any, any, ..}` compiles.
template<typename T, typename Members, typename = void>
struct TakesMembers : std::false_type {};
template<typename T, std::size_t... I>
struct TakesMembers<T, std::index_sequence<I...>, std::void_t<decltype(T{any_member<T, I>()...})>> : std::true_type {};

/// The same with `{}` between: it stands for a whole member, also for an array, of which each `any` is one element.
template<typename T, typename Before, typename After, typename = void>
struct TakesWhole : std::false_type {};
template<typename T, std::size_t... I, std::size_t... K>
struct TakesWhole<T, std::index_sequence<I...>, std::index_sequence<K...>,
                  std::void_t<decltype(T{any_member<T, I>()..., {}, any_member<T, K>()...})>> : std::true_type {};

inline constexpr std::size_t most_members = 12;

template<typename T, std::size_t... I>
constexpr std::size_t counted_if_whole(std::index_sequence<I...>) noexcept {
    constexpr std::size_t count = sizeof...(I);
    constexpr bool all =
        (TakesWhole<T, std::make_index_sequence<I>, std::make_index_sequence<count - 1 - I>>::value && ...);
    return all && !TakesWhole<T, std::index_sequence<I...>, std::index_sequence<>>::value ? count : 0;
}
template<typename T, std::size_t Tried = most_members + 1>
constexpr std::size_t count_members() noexcept {
    if constexpr (Tried == 0 || !std::is_class_v<T> || !std::is_aggregate_v<T>) {
        return 0;
    } else if constexpr (!TakesMembers<T, std::make_index_sequence<Tried>>::value) {
        return count_members<T, Tried - 1>();
    } else {
        return Tried > most_members ? 0 : counted_if_whole<T>(std::make_index_sequence<Tried>());
    }
}

/// References to all members of an object, in their order; none where their number is not known or above
/// `most_members`.
template<typename T>
constexpr auto members_of([[maybe_unused]] T& object) noexcept {
    constexpr std::size_t count = count_members<std::remove_const_t<T>>();
#define KMM_DETAIL_MEMBERS(COUNT, ...) \
    if constexpr (count == COUNT) {    \
        auto& [__VA_ARGS__] = object;  \
        return std::tie(__VA_ARGS__);  \
    }
    if constexpr (count == 0) return std::tie();
    KMM_DETAIL_MEMBERS(1, a)
    KMM_DETAIL_MEMBERS(2, a, b)
    KMM_DETAIL_MEMBERS(3, a, b, c)
    KMM_DETAIL_MEMBERS(4, a, b, c, d)
    KMM_DETAIL_MEMBERS(5, a, b, c, d, e)
    KMM_DETAIL_MEMBERS(6, a, b, c, d, e, f)
    KMM_DETAIL_MEMBERS(7, a, b, c, d, e, f, g)
    KMM_DETAIL_MEMBERS(8, a, b, c, d, e, f, g, h)
    KMM_DETAIL_MEMBERS(9, a, b, c, d, e, f, g, h, i)
    KMM_DETAIL_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
    KMM_DETAIL_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
    KMM_DETAIL_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
#undef KMM_DETAIL_MEMBERS
}

}  // namespace detail
}  // namespace kmm
