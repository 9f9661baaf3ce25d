// How views turn indices into addresses: strides in elements, static or dynamic. Plain values; host and device. Part of
// kmm/core/view.hpp.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/detail/view_domain.hpp"
#include "kmm/utils/checked_math.hpp"

#if !KMM_IS_RTC
namespace kmm::detail {

/// InvalidArgument with shape and element size.
[[noreturn]] void throw_view_too_large(std::size_t rank, const long long* sizes, std::size_t element_bytes);

}  // namespace kmm::detail
#endif

namespace kmm::views {

namespace detail {

// Of elements: on the host the largest number where the product does not fit.
KMM_HOST_DEVICE constexpr std::size_t counted_product(std::size_t a, std::size_t b) noexcept {
#if KMM_IS_DEVICE
    return a * b;
#elif KMM_DETAIL_HAS_DEVICE_CODE
    return a != 1 && b != 0 && a > static_cast<std::size_t>(-1) / b ? static_cast<std::size_t>(-1) : a * b;
#else
    std::size_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? static_cast<std::size_t>(-1) : result;
#endif
}

// Of elements that a number of type I counts: the largest number where there are more.
template<typename I>
KMM_HOST_DEVICE constexpr I as_count(std::size_t count) noexcept {
    constexpr auto most = static_cast<std::size_t>(kmm::detail::NumberLimits<I>::largest);
    return static_cast<I>(count < most ? count : most);
}

template<typename V, typename = void>
struct IsView : std::false_type {};
template<typename V>
struct IsView<V, std::void_t<typename V::domain_type, typename V::accessor_type>> : std::true_type {};

// Whether P may stand for the address of elements T: what converts to one, but no view, which has sizes and an accessor
// of its own.
template<typename P, typename T>
inline constexpr bool is_address_v = std::is_convertible<P, T*>::value && !IsView<P>::value;

// InvalidArgument, or a failed kernel, unless the bytes of packed elements fit 63 bits and their strides S.
template<typename L, typename S, typename D>
KMM_HOST_DEVICE constexpr void check_packed(const D& domain, std::size_t element_bytes) {
    // The pitch is the largest stride: that of the axis whose index changes last.
    constexpr std::size_t slowest = L::is_left_to_right ? D::rank - 1 : 0;
    auto bytes = static_cast<long long>(element_bytes);
    long long pitch = 1;
    bool fits = true;
    for (std::size_t i = 0; i + 1 <= D::rank; i++) {
        const auto n = static_cast<long long>(domain.size(i));
        if (n <= 0) {
            return;
        }
        fits = fits && !kmm::detail::mul_overflows(bytes, n, bytes);
        if (i != slowest) {
            fits = fits && !kmm::detail::mul_overflows(pitch, n, pitch);
        }
    }
    if (KMM_UNLIKELY(!fits || !is_convertible<S>(pitch))) {
#if KMM_IS_DEVICE
        kmm::detail::panic("a view has more bytes, or larger strides, than its type can count", __FILE__, __LINE__);
#else
        long long sizes[D::rank + 1] = {};
        for (std::size_t i = 0; i + 1 <= D::rank; i++) {
            sizes[i] = static_cast<long long>(domain.size(i));
        }
        kmm::detail::throw_view_too_large(D::rank, sizes, element_bytes);
#endif
    }
}

// Of strides beyond the largest number: a view without elements may have such, others are refused.
template<typename S, typename I>
KMM_HOST_DEVICE constexpr S wrapping_product(S stride, I size) noexcept {
    using U = std::make_unsigned_t<S>;
    return static_cast<S>(static_cast<U>(1u * static_cast<U>(stride) * static_cast<U>(size)));
}

}  // namespace detail

/// All strides stored.
template<std::size_t N, typename S = default_stride_type>
struct strided_mapping;

/// Rank 0 or 1 without gaps: nothing stored.
template<std::size_t N, typename S = default_stride_type>
struct linear_mapping {
    static_assert(N <= 1, "more axes need strides");
    using stride_type = S;
    static constexpr std::size_t rank = N;
    static constexpr std::size_t num_stored = 0;
    KMM_HOST_DEVICE static constexpr std::size_t stored_at(std::size_t) noexcept { return 0; }

    KMM_HOST_DEVICE static constexpr S stride(std::size_t) noexcept { return S(1); }
    template<typename D>
    KMM_HOST_DEVICE static constexpr linear_mapping from_domain(const D&) noexcept {
        return {};
    }
    template<typename P>
    KMM_HOST_DEVICE static constexpr linear_mapping from_strides(const P&) noexcept {
        return {};
    }
};

/// The stride of axis A is 1 (the first or the last axis); the others are stored.
template<std::size_t N, std::size_t A, typename S = default_stride_type>
struct contiguous_axis_mapping {
    static_assert(N >= 1 && (A == 0 || A + 1 == N), "the contiguous axis is the first or the last");
    using stride_type = S;
    static constexpr std::size_t rank = N;
    static constexpr std::size_t num_stored = N - 1;
    /// Which of those stored is the stride of an axis other than A.
    KMM_HOST_DEVICE static constexpr std::size_t stored_at(std::size_t axis) noexcept {
        return axis - (axis > A ? 1 : 0);
    }

    constexpr contiguous_axis_mapping() noexcept = default;
    /// From another stride type that is not wider.
    template<typename U, std::enable_if_t<!std::is_same<U, S>::value && detail::widens_v<U, S>, int> = 0>
    KMM_HOST_DEVICE constexpr contiguous_axis_mapping(const contiguous_axis_mapping<N, A, U>& that) noexcept {
        for (std::size_t i = 0; i < N; i++) {
            set(i, static_cast<S>(that.stride(i)));
        }
    }
    KMM_HOST_DEVICE constexpr S stride(std::size_t axis) const noexcept {
        if constexpr (N > 1) {
            if (axis != A && axis < N) {
                return strides_[stored_at(axis)];
            }
        }
        return S(1);
    }
    /// Packed: row-major if the last axis is contiguous, else column-major.
    template<typename D>
    KMM_HOST_DEVICE static constexpr contiguous_axis_mapping from_domain(const D& domain) noexcept {
        contiguous_axis_mapping result;
        S stride = S(1);
        for (std::size_t k = 0; k < N; k++) {
            std::size_t axis = A == 0 ? k : N - 1 - k;
            result.set(axis, stride);
            stride = detail::wrapping_product<S>(stride, domain.size(axis));
        }
        return result;
    }
    /// `strides[i]` for every axis; that of axis A counts as 1.
    template<typename P>
    KMM_HOST_DEVICE static constexpr contiguous_axis_mapping from_strides(const P& strides) noexcept {
        contiguous_axis_mapping result;
        for (std::size_t i = 0; i < N; i++) {
            result.set(i, static_cast<S>(strides[i]));
        }
        return result;
    }

  private:
    KMM_HOST_DEVICE constexpr void set(std::size_t axis, S value) noexcept {
        if constexpr (N > 1) {
            if (axis != A) {
                strides_[stored_at(axis)] = value;
            }
        }
        (void)axis;
        (void)value;
    }

    fixed_vector<S, N - 1> strides_;
};

/// Strides known at compile time.
template<typename S, S... Strides>
struct static_mapping {
    using stride_type = S;
    static constexpr std::size_t rank = sizeof...(Strides);
    static constexpr std::size_t num_stored = 0;
    KMM_HOST_DEVICE static constexpr std::size_t stored_at(std::size_t) noexcept { return 0; }

    KMM_HOST_DEVICE static constexpr S stride(std::size_t axis) noexcept {
        const S strides[rank + 1] = {Strides..., S(1)};
        return strides[axis < rank ? axis : rank];
    }
    template<typename D>
    KMM_HOST_DEVICE static constexpr static_mapping from_domain(const D&) noexcept {
        return {};
    }
    template<typename P>
    KMM_HOST_DEVICE static constexpr static_mapping from_strides(const P&) noexcept {
        return {};
    }
};

template<std::size_t N, typename S>
struct strided_mapping {
    using stride_type = S;
    static constexpr std::size_t rank = N;
    static constexpr std::size_t num_stored = N;
    KMM_HOST_DEVICE static constexpr std::size_t stored_at(std::size_t axis) noexcept { return axis; }

    constexpr strided_mapping() noexcept = default;
    KMM_HOST_DEVICE constexpr strided_mapping(const fixed_vector<S, N>& strides) noexcept : strides_(strides) {}
    /// From any mapping of this rank whose stride type is not wider.
    template<typename M, std::enable_if_t<M::rank == N && !std::is_same<M, strided_mapping>::value &&
                                              detail::widens_v<typename M::stride_type, S>,
                                          int> = 0>
    KMM_HOST_DEVICE constexpr strided_mapping(const M& that) noexcept : strides_(from_mapping(that).strides_) {}

    KMM_HOST_DEVICE constexpr S stride(std::size_t axis) const noexcept {
        return axis + 1 <= N ? strides_[axis] : S(1);
    }
    /// Packed, row-major.
    template<typename D>
    KMM_HOST_DEVICE static constexpr strided_mapping from_domain(const D& domain) noexcept {
        strided_mapping result;
        S stride = S(1);
        for (std::size_t k = 0; k + 1 <= N; k++) {
            result.strides_[N - 1 - k] = stride;
            stride = detail::wrapping_product<S>(stride, domain.size(N - 1 - k));
        }
        return result;
    }
    template<typename P>
    KMM_HOST_DEVICE static constexpr strided_mapping from_strides(const P& strides) noexcept {
        strided_mapping result;
        for (std::size_t i = 0; i + 1 <= N; i++) {
            result.strides_[i] = static_cast<S>(strides[i]);
        }
        return result;
    }
    template<typename M>
    KMM_HOST_DEVICE static constexpr strided_mapping from_mapping(const M& that) noexcept {
        strided_mapping result;
        for (std::size_t i = 0; i + 1 <= N; i++) {
            result.strides_[i] = static_cast<S>(that.stride(i));
        }
        return result;
    }

  private:
    fixed_vector<S, N> strides_;
};

/// Row-major: the last axis is contiguous. The default.
template<typename S = default_stride_type>
struct right_to_left_layout {
    using stride_type = S;
    static constexpr bool is_left_to_right = false;
    template<std::size_t N>
    using mapping_type = std::conditional_t<(N > 1), contiguous_axis_mapping<(N > 1 ? N : 2), (N > 1 ? N - 1 : 1), S>,
                                            linear_mapping<(N > 1 ? 1 : N), S>>;
};

using default_layout = right_to_left_layout<>;

/// Column-major: the first axis is contiguous.
template<typename S = default_stride_type>
struct left_to_right_layout {
    using stride_type = S;
    static constexpr bool is_left_to_right = true;
    template<std::size_t N>
    using mapping_type =
        std::conditional_t<(N > 1), contiguous_axis_mapping<(N > 1 ? N : 2), 0, S>, linear_mapping<(N > 1 ? 1 : N), S>>;
};

/// Any strides.
template<typename S = default_stride_type>
struct strided_layout {
    using stride_type = S;
    static constexpr bool is_left_to_right = false;
    template<std::size_t N>
    using mapping_type = strided_mapping<N, S>;
};

/// Strides known at compile time.
template<typename S, S... Strides>
struct static_layout {
    using stride_type = S;
    static constexpr bool is_left_to_right = false;
    template<std::size_t N>
    using mapping_type = static_mapping<S, Strides...>;
};

namespace detail {

// The layout of what remains of N axes without axis A.
template<typename L, std::size_t N, std::size_t A>
struct drop_layout {
    using type = strided_layout<typename L::stride_type>;
};
template<typename S, std::size_t N>
struct drop_layout<right_to_left_layout<S>, N, 0> {
    using type = right_to_left_layout<S>;
};
template<typename S, std::size_t N>
struct drop_layout<left_to_right_layout<S>, N, N - 1> {
    using type = left_to_right_layout<S>;
};

template<std::size_t A, typename To, typename M>
KMM_HOST_DEVICE constexpr To drop_mapping(const M& mapping) noexcept {
    fixed_vector<typename M::stride_type, M::rank - 1> strides;
    for (std::size_t i = 0; i + 1 < M::rank; i++) {
        strides[i] = mapping.stride(skip_axis(i, A));
    }
    return To::from_strides(strides);
}

}  // namespace detail

}  // namespace kmm::views
