// The size of a box with N axes. A plain value; host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/fixed_vector.hpp"
#include "kmm/utils/point.hpp"
#include "kmm/utils/range.hpp"

namespace kmm {

/// N extents, all 1 by default. The members are x, y, z, w for N <= 4. Missing axes
/// count as 1. Conversions that would lose a value throw std::overflow_error. One axis is a number: it converts to T.
template<std::size_t N, typename T = default_index_type>
struct Dim : fixed_vector<T, N> {
    using base_type = fixed_vector<T, N>;
    using base_type::get_or_default;

    /// All axes 1.
    KMM_HOST_DEVICE constexpr Dim() : base_type(detail::filled_storage<N>(T(1))) {}
    KMM_HOST_DEVICE constexpr explicit Dim(const typename base_type::storage_type& values) : base_type(values) {}

    /// One number for each axis.
    template<typename... Us, typename = detail::enable_elements_t<T, N, Us...>>
    KMM_HOST_DEVICE constexpr Dim(const Us&... values) : base_type(values...) {}

    KMM_HOST_DEVICE constexpr Dim(const base_type& that) : base_type(that) {}

    /// Another element type.
    template<typename U, typename = std::enable_if_t<!std::is_same<T, U>::value>>
    KMM_HOST_DEVICE constexpr Dim(const fixed_vector<U, N>& that) : Dim(from(that)) {}

    /// Another rank: missing axes become 1; axes that go must be 1.
    template<typename U, std::size_t M, typename = std::enable_if_t<N != M>>
    KMM_HOST_DEVICE constexpr Dim(const Dim<M, U>& that) : Dim(from(that)) {}
    template<typename U, std::size_t M, typename = std::enable_if_t<N != M>>
    KMM_HOST_DEVICE constexpr explicit Dim(const fixed_vector<U, M>& that) : Dim(from(that)) {}

    template<typename U, std::size_t M>
    KMM_HOST_DEVICE static constexpr Dim from(const fixed_vector<U, M>& that) {
        Dim result;
        if constexpr (M > 0) {
            for (std::size_t i = 0; i < M; i++) {
                if constexpr (N > 0) {
                    if (i < N) {
                        result.at(i) = detail::element_cast<T>(that.at(i));
                        continue;
                    }
                }
                if (KMM_UNLIKELY(!is_equal(that.at(i), T(1)))) {
                    detail::fail_overflow("conversion to a lower rank would lose an axis that is not 1");
                }
            }
        }
        return result;
    }

    /// Whether every extent has the same value as a `U`.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        return base_type::template is_convertible_to<U>();
    }
    /// Whether a `Dim<M, U>` has the same values: those of axes that go must be 1.
    template<std::size_t M, typename U = T>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                if (!is_convertible<U>(this->at(i)) || (i >= M && !is_equal(this->at(i), T(1)))) {
                    return false;
                }
            }
        }
        return true;
    }

    KMM_HOST_DEVICE static constexpr Dim fill(const T& value) { return Dim(detail::filled_storage<N>(value)); }
    KMM_HOST_DEVICE static constexpr Dim one() { return fill(T(1)); }
    KMM_HOST_DEVICE static constexpr Dim zero() { return fill(T(0)); }

    /// The value of `axis`; 1 for an axis >= N.
    KMM_HOST_DEVICE constexpr T get_or_default(std::size_t axis) const {
        if constexpr (N > 0) {
            if (axis < N) {
                return this->at(axis);
            }
        }
        return T(1);
    }

    /// Whether there is no element: an axis of 0 or less.
    KMM_HOST_DEVICE constexpr bool is_empty() const {
        if constexpr (N > 0) {
            for (std::size_t i = 0; i < N; i++) {
                if (!(T(0) < this->at(i))) {
                    return true;
                }
            }
        }
        return false;
    }

    /// Number of elements, 0 if empty; std::overflow_error if it does not fit T.
    KMM_HOST_DEVICE constexpr T volume() const {
        if (is_empty()) {
            return T(0);
        }
        T result = T(1);
        if constexpr (N > 0) {
            for (std::size_t i = 0; i < N; i++) {
                result = checked_mul(result, this->at(i));
            }
        }
        return result;
    }

    /// Whether 0 <= point < size on every axis; a missing coordinate is 0, a missing size 1.
    template<std::size_t M, typename U>
    KMM_HOST_DEVICE constexpr bool contains(const Point<M, U>& point) const {
        for (std::size_t i = 0; i < (N > M ? N : M); i++) {
            if (!in_range(point.get_or_default(i), get_or_default(i))) {
                return false;
            }
        }
        return true;
    }
    template<typename... Is, typename = std::enable_if_t<(std::is_integral<Is>::value && ...)>>
    KMM_HOST_DEVICE constexpr bool contains(const Is&... indices) const {
        return contains(Point<sizeof...(Is), default_index_type>(indices...));
    }
};

template<typename... Us>
Dim(const Us&...) -> Dim<sizeof...(Us)>;
template<typename T, std::size_t N>
Dim(const fixed_vector<T, N>&) -> Dim<N, T>;

template<std::size_t N, typename T = default_index_type>
using Size = Dim<N, T>;

/// Equal if all axes are; missing axes count as 1.
template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator==(const Dim<N, T>& a, const Dim<M, U>& b) {
    for (std::size_t i = 0; i < (N > M ? N : M); i++) {
        if (!is_equal(a.get_or_default(i), b.get_or_default(i))) {
            return false;
        }
    }
    return true;
}

template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator!=(const Dim<N, T>& a, const Dim<M, U>& b) {
    return !(a == b);
}

/// The axes of `a`, then those of `b`.
template<std::size_t N, std::size_t M, typename T>
KMM_HOST_DEVICE constexpr Dim<N + M, T> concat(const Dim<N, T>& a, const Dim<M, T>& b) {
    Dim<N + M, T> result;
    if constexpr (N + M > 0) {
        for (std::size_t i = 0; i < N + M; i++) {
            result.at(i) = i < N ? a.get_or_default(i) : b.get_or_default(i - N);
        }
    }
    return result;
}

}  // namespace kmm

#if !KMM_IS_RTC
// Equal points of different ranks hash alike only if converted to one rank first.
template<std::size_t N, typename T>
struct std::hash<kmm::Dim<N, T>> : std::hash<kmm::fixed_vector<T, N>> {};
#endif
