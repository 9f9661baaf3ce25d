// A position with N coordinates. A plain value; host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/fixed_vector.hpp"
#include "kmm/utils/range.hpp"

namespace kmm {

/// N coordinates, all 0 by default. The members are x, y, z, w for N <= 4. Missing axes
/// count as 0. Conversions that would lose a value throw std::overflow_error. One axis is a number: it converts to T.
template<std::size_t N, typename T = default_index_type>
struct Point : fixed_vector<T, N> {
    using base_type = fixed_vector<T, N>;
    using base_type::get_or_default;

    /// All axes 0.
    KMM_HOST_DEVICE constexpr Point() : base_type(detail::filled_storage<N>(T(0))) {}
    KMM_HOST_DEVICE constexpr explicit Point(const typename base_type::storage_type& values) : base_type(values) {}

    /// One number for each axis.
    template<typename... Us, typename = detail::enable_elements_t<T, N, Us...>>
    KMM_HOST_DEVICE constexpr Point(const Us&... values) : base_type(values...) {}

    KMM_HOST_DEVICE constexpr Point(const base_type& that) : base_type(that) {}

    /// Another element type.
    template<typename U, typename = std::enable_if_t<!std::is_same<T, U>::value>>
    KMM_HOST_DEVICE constexpr Point(const fixed_vector<U, N>& that) : Point(from(that)) {}

    /// Another rank: missing axes become 0; axes that go must be 0.
    template<typename U, std::size_t M, typename = std::enable_if_t<N != M>>
    KMM_HOST_DEVICE constexpr Point(const Point<M, U>& that) : Point(from(that)) {}
    template<typename U, std::size_t M, typename = std::enable_if_t<N != M>>
    KMM_HOST_DEVICE constexpr explicit Point(const fixed_vector<U, M>& that) : Point(from(that)) {}

    template<typename U, std::size_t M>
    KMM_HOST_DEVICE static constexpr Point from(const fixed_vector<U, M>& that) {
        Point result;
        if constexpr (M > 0) {
            for (std::size_t i = 0; i < M; i++) {
                if constexpr (N > 0) {
                    if (i < N) {
                        result.at(i) = detail::element_cast<T>(that.at(i));
                        continue;
                    }
                }
                if (KMM_UNLIKELY(!is_equal(that.at(i), T(0)))) {
                    detail::fail_overflow("conversion to a lower rank would lose an axis that is not 0");
                }
            }
        }
        return result;
    }

    /// Whether every coordinate has the same value as a `U`.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        return base_type::template is_convertible_to<U>();
    }
    /// Whether a `Point<M, U>` has the same values: those of axes that go must be 0.
    template<std::size_t M, typename U = T>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                if (!is_convertible<U>(this->at(i)) || (i >= M && !is_equal(this->at(i), T(0)))) {
                    return false;
                }
            }
        }
        return true;
    }

    KMM_HOST_DEVICE static constexpr Point fill(const T& value) { return Point(detail::filled_storage<N>(value)); }
    KMM_HOST_DEVICE static constexpr Point one() { return fill(T(1)); }
    KMM_HOST_DEVICE static constexpr Point zero() { return fill(T(0)); }

    /// The value of `axis`; 0 for an axis >= N.
    KMM_HOST_DEVICE constexpr T get_or_default(std::size_t axis) const {
        if constexpr (N > 0) {
            if (axis < N) {
                return this->at(axis);
            }
        }
        return T(0);
    }
};

template<typename... Us>
Point(const Us&...) -> Point<sizeof...(Us)>;
template<typename T, std::size_t N>
Point(const fixed_vector<T, N>&) -> Point<N, T>;

/// Equal if all axes are; missing axes count as 0.
template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator==(const Point<N, T>& a, const Point<M, U>& b) {
    for (std::size_t i = 0; i < (N > M ? N : M); i++) {
        if (!is_equal(a.get_or_default(i), b.get_or_default(i))) {
            return false;
        }
    }
    return true;
}

template<typename T, std::size_t N, typename U, std::size_t M>
KMM_HOST_DEVICE constexpr bool operator!=(const Point<N, T>& a, const Point<M, U>& b) {
    return !(a == b);
}

/// The axes of `a`, then those of `b`.
template<std::size_t N, std::size_t M, typename T>
KMM_HOST_DEVICE constexpr Point<N + M, T> concat(const Point<N, T>& a, const Point<M, T>& b) {
    Point<N + M, T> result;
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
struct std::hash<kmm::Point<N, T>> : std::hash<kmm::fixed_vector<T, N>> {};
#endif
