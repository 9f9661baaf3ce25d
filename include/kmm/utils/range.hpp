// A half-open interval of numbers. A plain value; host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/fixed_vector.hpp"
#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

/// Indices are 64-bit and signed throughout the library.
using default_index_type = signed long;
using index_t = default_index_type;

/// The numbers begin, begin + 1, ..., end - 1; empty if end <= begin.
template<typename T = default_index_type>
struct Range {
    using value_type = T;
    T begin{};
    T end{};

    constexpr Range() = default;

    /// [0, end). std::overflow_error if `end` does not fit T.
    template<typename E, typename = std::enable_if_t<std::is_convertible<E, T>::value &&
                                                     (std::is_arithmetic<E>::value || detail::IsOneAxis<E>::value)>>
    KMM_HOST_DEVICE constexpr Range(const E& end_) : begin(T{}), end(detail::element_cast<T>(end_)) {}

    /// [begin, end). std::overflow_error if one of them does not fit T.
    template<typename B, typename E,
             typename = std::enable_if_t<std::is_convertible<B, T>::value && std::is_convertible<E, T>::value>>
    KMM_HOST_DEVICE constexpr Range(const B& begin_, const E& end_)
        : begin(detail::element_cast<T>(begin_)), end(detail::element_cast<T>(end_)) {}

    /// Another element type; std::overflow_error if a bound does not fit.
    template<typename U, typename = std::enable_if_t<!std::is_same<T, U>::value && std::is_convertible<U, T>::value>>
    KMM_HOST_DEVICE constexpr Range(const Range<U>& that)
        : begin(checked_cast<T>(that.begin)), end(checked_cast<T>(that.end)) {}

    template<typename U>
    KMM_HOST_DEVICE static constexpr Range from(const Range<U>& that) {
        return Range(checked_cast<T>(that.begin), checked_cast<T>(that.end));
    }

    /// Whether both bounds fit `U`.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool is_convertible_to() const {
        return is_convertible<U>(begin) && is_convertible<U>(end);
    }

    KMM_HOST_DEVICE constexpr bool is_empty() const { return !(begin < end); }

    /// Number of indices; 0 if empty.
    KMM_HOST_DEVICE constexpr T size() const { return begin < end ? static_cast<T>(end - begin) : T{}; }

    template<typename I, typename = std::enable_if_t<std::is_arithmetic<I>::value>>
    KMM_HOST_DEVICE constexpr bool contains(const I& index) const {
        return !is_less(index, begin) && is_less(index, end);
    }

    /// Whether every index of `that` is in this one; true if `that` is empty.
    template<typename U>
    KMM_HOST_DEVICE constexpr bool contains(const Range<U>& that) const {
        return that.is_empty() || (!is_less(that.begin, begin) && !is_less(end, that.end));
    }

    /// Whether the two have an index in common.
    KMM_HOST_DEVICE constexpr bool overlaps(const Range& that) const {
        return begin < that.end && that.begin < end && !is_empty() && !that.is_empty();
    }

    /// The common indices. Without any, an empty range that begins at the larger begin.
    KMM_HOST_DEVICE constexpr Range intersection(const Range& that) const {
        T first = begin < that.begin ? that.begin : begin;
        T last = end < that.end ? end : that.end;
        return Range(first, last < first ? first : last);
    }

    /// Cuts at `middle` (clamped to the range): this range becomes [begin, middle), the result is [middle, end).
    KMM_HOST_DEVICE constexpr Range split_tail(const T& middle) {
        T cut = middle < begin ? begin : (end < middle ? end : middle);
        Range tail(cut, end);
        end = cut;
        return tail;
    }

    /// Both bounds moved by `offset`; std::overflow_error if they leave the type.
    KMM_HOST_DEVICE constexpr Range shift_by(const T& offset) const {
        return Range(checked_add(begin, offset), checked_add(end, offset));
    }
};

namespace detail {

// The number that a bound of a range is.
template<typename E>
struct BoundType {
    using type = E;
};
template<typename T>
struct BoundType<Point<1, T>> {
    using type = T;
};
template<typename T>
struct BoundType<Dim<1, T>> {
    using type = T;
};
// The element type of a range with two bounds, where the program names none: its size fits, and no bound that is signed
// becomes unsigned.
template<typename B, typename E>
using deduced_bound_t = std::conditional_t<
    std::is_integral<typename BoundType<B>::type>::value && std::is_integral<typename BoundType<E>::type>::value,
    default_index_type, std::common_type_t<typename BoundType<B>::type, typename BoundType<E>::type>>;

}  // namespace detail

template<typename E>
Range(E) -> Range<typename detail::BoundType<E>::type>;
template<typename B, typename E>
Range(B, E) -> Range<detail::deduced_bound_t<B, E>>;

template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool operator==(const Range<A>& a, const Range<B>& b) {
    return is_equal(a.begin, b.begin) && is_equal(a.end, b.end);
}

template<typename A, typename B>
KMM_HOST_DEVICE constexpr bool operator!=(const Range<A>& a, const Range<B>& b) {
    return !(a == b);
}

}  // namespace kmm

#if !KMM_IS_RTC
namespace kmm {

template<typename C, typename Traits, typename T>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const Range<T>& that) {
    return stream << that.begin << "..." << that.end;
}

}  // namespace kmm

template<typename T>
struct std::hash<kmm::Range<T>> {
    std::size_t operator()(const kmm::Range<T>& that) const { return kmm::hash_fields(that.begin, that.end); }
};
#endif
