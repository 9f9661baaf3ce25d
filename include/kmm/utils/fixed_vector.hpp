// A vector of N values with names for the first four. A plain value; host and device.
#pragma once

#include "kmm/detail/panic.hpp"
#include "kmm/detail/standard.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

template<std::size_t N, typename T>
struct Point;
template<std::size_t N, typename T>
struct Dim;
template<typename T, std::size_t N>
struct fixed_vector;

namespace detail {

// Vectors of one element, which convert to it: a number wherever a number is wanted.
template<typename U>
struct IsOneAxis : std::false_type {};
template<typename T>
struct IsOneAxis<fixed_vector<T, 1>> : std::true_type {};
template<typename T>
struct IsOneAxis<Point<1, T>> : std::true_type {};
template<typename T>
struct IsOneAxis<Dim<1, T>> : std::true_type {};

// Base of the vectors V of N elements: for one element the conversion to it, else nothing.
template<typename V, typename T, std::size_t N>
struct OneAxisNumber {};
template<typename V, typename T>
struct OneAxisNumber<V, T, 1> {
    KMM_HOST_DEVICE constexpr operator T() const { return static_cast<const V&>(*this).x; }
};

// The members of a vector, reachable by name and by number. `at` does not check its argument.
template<typename T, std::size_t N>
struct VectorStorage {
    T items[N];
    KMM_HOST_DEVICE constexpr T& at(std::size_t i) { return items[i]; }
    KMM_HOST_DEVICE constexpr const T& at(std::size_t i) const { return items[i]; }
};

template<typename T>
struct VectorStorage<T, 0> {};

template<typename T>
struct VectorStorage<T, 1> {
    T x;
    KMM_HOST_DEVICE constexpr T& at(std::size_t) { return x; }
    KMM_HOST_DEVICE constexpr const T& at(std::size_t) const { return x; }
};

template<typename T>
struct VectorStorage<T, 2> {
    T x, y;
    KMM_HOST_DEVICE constexpr T& at(std::size_t i) { return i == 0 ? x : y; }
    KMM_HOST_DEVICE constexpr const T& at(std::size_t i) const { return i == 0 ? x : y; }
};

template<typename T>
struct VectorStorage<T, 3> {
    T x, y, z;
    KMM_HOST_DEVICE constexpr T& at(std::size_t i) { return i == 0 ? x : (i == 1 ? y : z); }
    KMM_HOST_DEVICE constexpr const T& at(std::size_t i) const { return i == 0 ? x : (i == 1 ? y : z); }
};

template<typename T>
struct VectorStorage<T, 4> {
    T x, y, z, w;
    KMM_HOST_DEVICE constexpr T& at(std::size_t i) { return i == 0 ? x : (i == 1 ? y : (i == 2 ? z : w)); }
    KMM_HOST_DEVICE constexpr const T& at(std::size_t i) const { return i == 0 ? x : (i == 1 ? y : (i == 2 ? z : w)); }
};

// A T from a number or from anything else that converts to T; numbers are checked.
template<typename T, typename U>
KMM_HOST_DEVICE constexpr T element_cast(const U& value) {
    if constexpr (std::is_arithmetic<T>::value && std::is_arithmetic<U>::value) {
        return checked_cast<T>(value);
    } else if constexpr (std::is_arithmetic<T>::value && IsOneAxis<U>::value) {
        return checked_cast<T>(value.x);
    } else {
        return static_cast<T>(value);
    }
}

// Whether a U may become an element T without being asked: a fraction never becomes an integer.
template<typename T, typename U>
inline constexpr bool is_element_v =
    std::is_convertible<U, T>::value && !(std::is_floating_point<U>::value && std::is_integral<T>::value);

template<typename T, std::size_t N, typename... Us>
using enable_elements_t = std::enable_if_t<(N > 0) && sizeof...(Us) == N && (is_element_v<T, Us> && ...)>;

template<std::size_t N, typename T>
KMM_HOST_DEVICE constexpr VectorStorage<T, N> filled_storage(const T& value) {
    VectorStorage<T, N> result{};
    if constexpr (N > 0) {
        for (std::size_t i = 0; i != N; i++) {
            result.at(i) = value;
        }
    }
    (void)value;
    return result;
}

}  // namespace detail

/// N values of type T, all T{} by default. The members are x, y, z, w for N <= 4. An index out of range throws
/// std::out_of_range on the host and fails the kernel on a device. One value is a T: it converts to it.
template<typename T, std::size_t N>
struct fixed_vector : detail::VectorStorage<T, N>, detail::OneAxisNumber<fixed_vector<T, N>, T, N> {
    using value_type = T;
    using storage_type = detail::VectorStorage<T, N>;

    KMM_HOST_DEVICE constexpr fixed_vector() : storage_type{} {}
    KMM_HOST_DEVICE constexpr explicit fixed_vector(const storage_type& values) : storage_type(values) {}

    /// One value for each element; std::overflow_error if a number does not fit T.
    template<typename... Us, typename = detail::enable_elements_t<T, N, Us...>>
    KMM_HOST_DEVICE constexpr fixed_vector(const Us&... values) : storage_type{detail::element_cast<T>(values)...} {}

    KMM_HOST_DEVICE static constexpr fixed_vector fill(const T& value) {
        return fixed_vector(detail::filled_storage<N>(value));
    }

    KMM_HOST_DEVICE static constexpr std::size_t size() { return N; }

    /// Element `i`; `value` for i >= N.
    KMM_HOST_DEVICE constexpr T get_or_default(std::size_t i, const T& value) const {
        if constexpr (N > 0) {
            if (i < N) {
                return this->at(i);
            }
        }
        (void)i;
        return value;
    }

    /// Whether every element has the same value as a `U`.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                if (!is_convertible<U>(this->at(i))) {
                    return false;
                }
            }
        }
        return true;
    }

    KMM_HOST_DEVICE constexpr T& operator[](std::size_t i) {
        if constexpr (N > 0) {
            if (KMM_LIKELY(i < N)) {
                return this->at(i);
            }
        }
        detail::fail_out_of_range(i, N);
    }
    KMM_HOST_DEVICE constexpr const T& operator[](std::size_t i) const {
        if constexpr (N > 0) {
            if (KMM_LIKELY(i < N)) {
                return this->at(i);
            }
        }
        detail::fail_out_of_range(i, N);
    }

    KMM_HOST_DEVICE T* begin() { return reinterpret_cast<T*>(this); }
    KMM_HOST_DEVICE const T* begin() const { return reinterpret_cast<const T*>(this); }
    KMM_HOST_DEVICE T* end() { return begin() + N; }
    KMM_HOST_DEVICE const T* end() const { return begin() + N; }
};

/// Vectors of different lengths differ.
template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator==(const fixed_vector<T, N>& a, const fixed_vector<U, M>& b) {
    if constexpr (N > 0 && N == M) {
        for (std::size_t i = 0; i != N; i++) {
            if (!is_equal(a.at(i), b.at(i))) {
                return false;
            }
        }
    }
    return N == M;
}

template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator!=(const fixed_vector<T, N>& a, const fixed_vector<U, M>& b) {
    return !(a == b);
}

/// The elements of `a`, then those of `b`.
template<typename T, std::size_t N, std::size_t M>
KMM_HOST_DEVICE constexpr fixed_vector<T, N + M> concat(const fixed_vector<T, N>& a, const fixed_vector<T, M>& b) {
    fixed_vector<T, N + M> result;
    if constexpr (N > 0) {
        for (std::size_t i = 0; i < N; i++) {
            result.at(i) = a.at(i);
        }
    }
    if constexpr (M > 0) {
        for (std::size_t i = 0; i < M; i++) {
            result.at(N + i) = b.at(i);
        }
    }
    return result;
}

}  // namespace kmm

#if !KMM_IS_RTC
namespace kmm {

template<typename C, typename Traits, typename T, std::size_t N>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const fixed_vector<T, N>& that) {
    stream << "{";
    for (std::size_t i = 0; i != N; i++) {
        stream << (i > 0 ? ", " : "") << that[i];
    }
    return stream << "}";
}

}  // namespace kmm

template<typename T, std::size_t N>
struct std::hash<kmm::fixed_vector<T, N>> {
    std::size_t operator()(const kmm::fixed_vector<T, N>& that) const {
        return kmm::hash_range(that.begin(), that.end());
    }
};
#endif
