// A box of indices: one range for each axis. A plain value; host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/dim.hpp"
#include "kmm/utils/fixed_vector.hpp"
#include "kmm/utils/point.hpp"
#include "kmm/utils/range.hpp"

namespace kmm {

/// N ranges, all [0, 0) by default; the members are x, y, z, w for N <= 4. A missing axis counts as [0, 1). A box
/// without axes has one element. Conversions that would lose a value throw std::overflow_error.
template<std::size_t N, typename T = default_index_type>
struct Bounds : detail::VectorStorage<Range<T>, N> {
    using value_type = Range<T>;
    using storage_type = detail::VectorStorage<Range<T>, N>;

    KMM_HOST_DEVICE constexpr Bounds() : storage_type{} {}
    KMM_HOST_DEVICE constexpr explicit Bounds(const storage_type& ranges) : storage_type(ranges) {}

    /// One range for each axis; a number n stands for [0, n).
    template<typename... Rs, typename = std::enable_if_t<(N > 0) && sizeof...(Rs) == N &&
                                                         (std::is_convertible<Rs, Range<T>>::value && ...)>>
    KMM_HOST_DEVICE constexpr Bounds(const Rs&... ranges) : storage_type{Range<T>(ranges)...} {}

    /// [0, size) on every axis.
    template<typename U>
    KMM_HOST_DEVICE constexpr Bounds(const Dim<N, U>& size) : Bounds(from_bounds(Point<N, T>{}, Point<N, T>(size))) {}

    /// Another index type.
    template<typename U, typename = std::enable_if_t<!std::is_same<T, U>::value>>
    KMM_HOST_DEVICE constexpr Bounds(const Bounds<N, U>& that) : Bounds(from(that)) {}

    /// Another rank: missing axes become [0, 1); axes that go must be [0, 1).
    template<typename U, std::size_t M, typename = std::enable_if_t<N != M>>
    KMM_HOST_DEVICE constexpr Bounds(const Bounds<M, U>& that) : Bounds(from(that)) {}

    template<std::size_t M, typename U>
    KMM_HOST_DEVICE static constexpr Bounds from(const Bounds<M, U>& that) {
        for (std::size_t i = N; i + 1 <= M; i++) {
            if (KMM_UNLIKELY(that.get_or_default(i) != Range<T>(T(0), T(1)))) {
                detail::fail_overflow("conversion to a lower rank would lose an axis that is not 0...1");
            }
        }
        return generate([&](std::size_t i) { return Range<T>::from(that.get_or_default(i)); });
    }

    /// begin <= index < end on every axis.
    KMM_HOST_DEVICE static constexpr Bounds from_bounds(const Point<N, T>& begin, const Point<N, T>& end) {
        return generate([&](std::size_t i) { return Range<T>(begin.get_or_default(i), end.get_or_default(i)); });
    }

    /// offset <= index < offset + size on every axis.
    KMM_HOST_DEVICE static constexpr Bounds from_offset_size(const Point<N, T>& offset, const Dim<N, T>& size) {
        return generate([&](std::size_t i) {
            T first = offset.get_or_default(i);
            return Range<T>(first, checked_add(first, size.get_or_default(i)));
        });
    }

    /// [0, 0) on every axis.
    KMM_HOST_DEVICE static constexpr Bounds empty() { return Bounds(); }

    /// [0, 1) on every axis.
    KMM_HOST_DEVICE static constexpr Bounds one() {
        return generate([](std::size_t) { return Range<T>(T(0), T(1)); });
    }

    KMM_HOST_DEVICE constexpr Range<T>& operator[](std::size_t i) {
        if constexpr (N > 0) {
            if (KMM_LIKELY(i < N)) {
                return this->at(i);
            }
        }
        detail::fail_out_of_range(i, N);
    }
    KMM_HOST_DEVICE constexpr const Range<T>& operator[](std::size_t i) const {
        if constexpr (N > 0) {
            if (KMM_LIKELY(i < N)) {
                return this->at(i);
            }
        }
        detail::fail_out_of_range(i, N);
    }

    /// The range of `axis`; [0, 1) for an axis >= N.
    KMM_HOST_DEVICE constexpr Range<T> get_or_default(std::size_t axis) const {
        if constexpr (N > 0) {
            if (axis < N) {
                return this->at(axis);
            }
        }
        return Range<T>(T(0), T(1));
    }

    /// The range of `axis`; `value` for an axis >= N.
    KMM_HOST_DEVICE constexpr Range<T> get_or_default(std::size_t axis, const Range<T>& value) const {
        return axis < N ? get_or_default(axis) : value;
    }

    /// Whether all bounds fit `U`.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        for (std::size_t i = 0; i != N; i++) {
            if (!get_or_default(i).template is_convertible_to<U>()) {
                return false;
            }
        }
        return true;
    }

    /// Whether a `Bounds<M, U>` has the same bounds: axes that go must be [0, 1).
    template<std::size_t M, typename U = T>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        for (std::size_t i = M; i + 1 <= N; i++) {
            if (get_or_default(i) != Range<T>(T(0), T(1))) {
                return false;
            }
        }
        return is_convertible_to<U>();
    }

    KMM_HOST_DEVICE constexpr T begin(std::size_t axis) const { return get_or_default(axis).begin; }
    KMM_HOST_DEVICE constexpr T end(std::size_t axis) const { return get_or_default(axis).end; }
    KMM_HOST_DEVICE constexpr T size(std::size_t axis) const { return get_or_default(axis).size(); }
    KMM_HOST_DEVICE constexpr Point<N, T> begin() const {
        Point<N, T> result;
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                result.at(i) = this->at(i).begin;
            }
        }
        return result;
    }
    KMM_HOST_DEVICE constexpr Point<N, T> end() const {
        Point<N, T> result;
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                result.at(i) = this->at(i).end;
            }
        }
        return result;
    }
    /// Number of indices on each axis, 0 where the range is empty.
    KMM_HOST_DEVICE constexpr Dim<N, T> size() const {
        Dim<N, T> result;
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                result.at(i) = this->at(i).size();
            }
        }
        return result;
    }

    /// Number of elements; std::overflow_error if it does not fit T.
    KMM_HOST_DEVICE constexpr T volume() const { return size().volume(); }

    KMM_HOST_DEVICE constexpr bool is_empty() const {
        for (std::size_t i = 0; i != N; i++) {
            if (get_or_default(i).is_empty()) {
                return true;
            }
        }
        return false;
    }

    KMM_HOST_DEVICE constexpr Bounds intersection(const Bounds& that) const {
        return generate([&](std::size_t i) { return get_or_default(i).intersection(that.get_or_default(i)); });
    }

    /// The smallest box that contains both; an empty one adds nothing.
    KMM_HOST_DEVICE constexpr Bounds unite(const Bounds& that) const {
        if (that.is_empty()) {
            return *this;
        }
        if (is_empty()) {
            return that;
        }
        return generate([&](std::size_t i) {
            Range<T> a = get_or_default(i);
            Range<T> b = that.get_or_default(i);
            return Range<T>(b.begin < a.begin ? b.begin : a.begin, a.end < b.end ? b.end : a.end);
        });
    }

    /// Whether the two have an element in common.
    KMM_HOST_DEVICE constexpr bool overlaps(const Bounds& that) const {
        for (std::size_t i = 0; i != N; i++) {
            if (!get_or_default(i).overlaps(that.get_or_default(i))) {
                return false;
            }
        }
        return true;
    }

    /// Whether every element of `that` is in this box; true if `that` is empty. Of either a missing axis is [0, 1).
    template<std::size_t M, typename U>
    KMM_HOST_DEVICE constexpr bool contains(const Bounds<M, U>& that) const {
        if (that.is_empty()) {
            return true;
        }
        for (std::size_t i = 0; i < (N > M ? N : M); i++) {
            if (!get_or_default(i).contains(that.get_or_default(i))) {
                return false;
            }
        }
        return true;
    }

    /// Whether [0, size) lies in this box.
    template<std::size_t M, typename U>
    KMM_HOST_DEVICE constexpr bool contains(const Dim<M, U>& size) const {
        return contains(Bounds<M, U>(size));
    }
    /// A missing coordinate is 0.
    template<std::size_t M, typename U>
    KMM_HOST_DEVICE constexpr bool contains(const Point<M, U>& point) const {
        for (std::size_t i = 0; i < (N > M ? N : M); i++) {
            if (!get_or_default(i).contains(point.get_or_default(i))) {
                return false;
            }
        }
        return true;
    }
    template<typename... Is, typename = std::enable_if_t<(std::is_integral<Is>::value && ...)>>
    KMM_HOST_DEVICE constexpr bool contains(const Is&... indices) const {
        return contains(Point<sizeof...(Is)>(indices...));
    }

    KMM_HOST_DEVICE constexpr Bounds shift_by(const Point<N, T>& offset) const {
        return generate([&](std::size_t i) { return get_or_default(i).shift_by(offset.get_or_default(i)); });
    }

    /// Cuts `axis` at `middle` (clamped): this box keeps what lies before, the result is the rest. An axis >= N is [0,
    /// 1), so that one side gets all and the other is empty.
    KMM_HOST_DEVICE constexpr Bounds split_tail_along(std::size_t axis, const T& middle) {
        if constexpr (N == 0) {
            detail::fail_out_of_range(axis, N);  // its one element cannot be parted
        }
        Bounds tail = *this;
        if (axis < N) {
            tail[axis] = (*this)[axis].split_tail(middle);
        } else if (T(0) < middle) {
            tail = empty();
        } else {
            *this = empty();
        }
        return tail;
    }

  private:
    template<typename F>
    KMM_HOST_DEVICE static constexpr Bounds generate(F range_of_axis) {
        Bounds result;
        if constexpr (N > 0) {
            for (std::size_t i = 0; i != N; i++) {
                result.at(i) = range_of_axis(i);
            }
        }
        (void)range_of_axis;
        return result;
    }
};

template<std::size_t N, typename T>
Bounds(const Dim<N, T>&) -> Bounds<N, T>;
template<typename... Rs>
Bounds(const Rs&...) -> Bounds<sizeof...(Rs)>;

/// Equal if all ranges are; missing axes count as [0, 1).
template<std::size_t N, typename T, std::size_t M, typename U>
KMM_HOST_DEVICE constexpr bool operator==(const Bounds<N, T>& a, const Bounds<M, U>& b) {
    for (std::size_t i = 0; i < (N > M ? N : M); i++) {
        if (a.get_or_default(i) != b.get_or_default(i)) {
            return false;
        }
    }
    return true;
}

template<std::size_t N, typename T, std::size_t M, typename U>
KMM_HOST_DEVICE constexpr bool operator!=(const Bounds<N, T>& a, const Bounds<M, U>& b) {
    return !(a == b);
}

/// The axes of `a`, then those of `b`.
template<std::size_t N, std::size_t M, typename T>
KMM_HOST_DEVICE constexpr Bounds<N + M, T> concat(const Bounds<N, T>& a, const Bounds<M, T>& b) {
    Bounds<N + M, T> result;
    if constexpr (N + M > 0) {
        for (std::size_t i = 0; i < N + M; i++) {
            result.at(i) = i < N ? a.get_or_default(i) : b.get_or_default(i - N);
        }
    }
    return result;
}

}  // namespace kmm

#if !KMM_IS_RTC
namespace kmm {

template<typename C, typename Traits, std::size_t N, typename T>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const Bounds<N, T>& that) {
    stream << "{";
    for (std::size_t i = 0; i != N; i++) {
        stream << (i > 0 ? ", " : "") << that[i];
    }
    return stream << "}";
}

}  // namespace kmm

template<std::size_t N, typename T>
struct std::hash<kmm::Bounds<N, T>> {
    std::size_t operator()(const kmm::Bounds<N, T>& that) const {
        std::size_t seed = N;
        for (std::size_t i = 0; i != N; i++) {
            kmm::hash_combine(seed, that[i]);
        }
        return seed;
    }
};
#endif
