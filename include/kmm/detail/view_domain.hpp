// The index boxes of views: sizes and offsets, static or dynamic. Plain values; host and device. Part of
// kmm/core/view.hpp.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm::views {

using default_index_type = signed long;
/// 64-bit: an element number times a stride never wraps.
using default_stride_type = signed long;

/// Sizes known at compile time, from index 0.
template<typename I, I... Sizes>
struct static_domain {
    using index_type = I;
    static constexpr std::size_t rank = sizeof...(Sizes);
    static constexpr bool has_offset = false;
    static constexpr bool is_static = true;

    KMM_HOST_DEVICE static constexpr I size(std::size_t axis) noexcept {
        const I sizes[rank + 1] = {Sizes..., I(1)};
        return sizes[axis < rank ? axis : rank];
    }
    KMM_HOST_DEVICE static constexpr I offset(std::size_t) noexcept { return I(0); }
};

/// The domain D, moved to offsets known at compile time.
template<typename D, typename D::index_type... Offsets>
struct static_offset : D {
    static_assert(sizeof...(Offsets) == D::rank && !D::has_offset,
                  "one offset for each axis of a domain without offsets");
    using base_domain = D;
    using index_type = typename D::index_type;
    static constexpr bool has_offset = true;

    constexpr static_offset() = default;
    KMM_HOST_DEVICE constexpr static_offset(const D& domain) noexcept : D(domain) {}
    /// From the same offsets of a domain that knows no less.
    template<typename E, std::enable_if_t<!std::is_same<E, D>::value && std::is_convertible<E, D>::value, int> = 0>
    KMM_HOST_DEVICE constexpr static_offset(const static_offset<E, Offsets...>& that) noexcept
        : D(static_cast<const E&>(that)) {}
    KMM_HOST_DEVICE static constexpr index_type offset(std::size_t axis) noexcept {
        const index_type offsets[D::rank + 1] = {Offsets..., index_type(0)};
        return offsets[axis < D::rank ? axis : D::rank];
    }
};

namespace detail {

template<typename From, typename To>
inline constexpr bool widens_v = std::is_integral<From>::value &&
                                 std::is_signed<From>::value == std::is_signed<To>::value && sizeof(From) <= sizeof(To);

// Whether a domain E may become one of N axes, index type I, with or without offsets, without being asked.
template<typename E, std::size_t N, typename I, bool HasOffset, typename = void>
struct is_domain_of : std::false_type {};
template<typename E, std::size_t N, typename I, bool HasOffset>
struct is_domain_of<E, N, I, HasOffset, std::void_t<decltype(E::has_offset), typename E::index_type>>
    : std::bool_constant<E::rank == N && (HasOffset || !E::has_offset) && widens_v<typename E::index_type, I>> {};

}  // namespace detail

/// N sizes, from index 0. Empty by default.
template<std::size_t N, typename I = default_index_type>
struct dynamic_domain {
    using index_type = I;
    static constexpr std::size_t rank = N;
    static constexpr bool has_offset = false;
    static constexpr bool is_static = false;

    KMM_HOST_DEVICE constexpr dynamic_domain() noexcept : sizes_() {}
    template<typename... Us, typename = kmm::detail::enable_elements_t<I, N, Us...>>
    KMM_HOST_DEVICE constexpr dynamic_domain(const Us&... sizes) : sizes_(sizes...) {}
    KMM_HOST_DEVICE constexpr dynamic_domain(const Dim<N, I>& sizes) noexcept : sizes_(sizes) {}
    template<typename U>
    KMM_HOST_DEVICE constexpr dynamic_domain(const fixed_vector<U, N>& sizes) : sizes_(Dim<N, I>(sizes)) {}
    template<typename E, std::enable_if_t<detail::is_domain_of<E, N, I, false>::value, int> = 0>
    KMM_HOST_DEVICE constexpr dynamic_domain(const E& that) noexcept : sizes_() {
        for (std::size_t i = 0; i + 1 <= N; i++) {
            sizes_[i] = static_cast<I>(that.size(i));
        }
    }

    KMM_HOST_DEVICE constexpr I size(std::size_t axis) const noexcept { return axis + 1 <= N ? sizes_[axis] : I(1); }
    KMM_HOST_DEVICE static constexpr I offset(std::size_t) noexcept { return I(0); }

  private:
    fixed_vector<I, N> sizes_;
};

/// N offsets and N sizes. Empty by default.
template<std::size_t N, typename I = default_index_type>
struct dynamic_subdomain {
    using index_type = I;
    static constexpr std::size_t rank = N;
    static constexpr bool has_offset = true;
    static constexpr bool is_static = false;

    KMM_HOST_DEVICE constexpr dynamic_subdomain() noexcept : offsets_(), sizes_() {}
    /// From index 0. Two lists of numbers in braces are offsets and sizes, so that sizes alone are a Dim.
    KMM_HOST_DEVICE constexpr dynamic_subdomain(const Dim<N, I>& sizes) noexcept : offsets_(), sizes_(sizes) {}
    KMM_HOST_DEVICE constexpr dynamic_subdomain(const Point<N, I>& offsets, const Dim<N, I>& sizes) noexcept
        : offsets_(offsets), sizes_(sizes) {}
    template<typename U, typename V>
    KMM_HOST_DEVICE constexpr dynamic_subdomain(const fixed_vector<U, N>& offsets, const fixed_vector<V, N>& sizes)
        : offsets_(Point<N, I>(offsets)), sizes_(Dim<N, I>(sizes)) {}
    template<typename U>
    KMM_HOST_DEVICE constexpr dynamic_subdomain(const Bounds<N, U>& bounds)
        : dynamic_subdomain(bounds.begin(), bounds.size()) {}
    template<typename E, std::enable_if_t<detail::is_domain_of<E, N, I, true>::value, int> = 0>
    KMM_HOST_DEVICE constexpr dynamic_subdomain(const E& that) noexcept : offsets_(), sizes_() {
        for (std::size_t i = 0; i + 1 <= N; i++) {
            offsets_[i] = static_cast<I>(that.offset(i));
            sizes_[i] = static_cast<I>(that.size(i));
        }
    }

    KMM_HOST_DEVICE constexpr I size(std::size_t axis) const noexcept { return axis + 1 <= N ? sizes_[axis] : I(1); }
    KMM_HOST_DEVICE constexpr I offset(std::size_t axis) const noexcept {
        return axis + 1 <= N ? offsets_[axis] : I(0);
    }

  private:
    fixed_vector<I, N> offsets_;
    fixed_vector<I, N> sizes_;
};

namespace detail {

// The number, among all axes, of axis i of those that remain without `dropped`.
KMM_HOST_DEVICE constexpr std::size_t skip_axis(std::size_t i, std::size_t dropped) noexcept {
    return i < dropped ? i : i + 1;
}

// `drop<A>`: the domain without axis A. `origin`: the same sizes from index 0.
template<std::size_t A, typename I, I... Sizes, std::size_t... Ks>
KMM_HOST_DEVICE constexpr auto drop_static(static_domain<I, Sizes...>, std::index_sequence<Ks...>) noexcept {
    return static_domain<I, static_domain<I, Sizes...>::size(skip_axis(Ks, A))...>{};
}
template<std::size_t A, typename I, I... Sizes>
KMM_HOST_DEVICE constexpr auto drop(const static_domain<I, Sizes...>& domain) noexcept {
    return drop_static<A>(domain, std::make_index_sequence<sizeof...(Sizes) - 1>{});
}
template<std::size_t A, std::size_t N, typename I>
KMM_HOST_DEVICE constexpr dynamic_domain<N - 1, I> drop(const dynamic_domain<N, I>& domain) noexcept {
    Dim<N - 1, I> sizes;
    for (std::size_t i = 0; i + 1 < N; i++) {
        sizes[i] = domain.size(skip_axis(i, A));
    }
    return sizes;
}
template<std::size_t A, typename D, std::enable_if_t<D::has_offset, int> = 0>
KMM_HOST_DEVICE constexpr auto drop(const D& domain) noexcept {
    constexpr std::size_t N = D::rank;
    Point<N - 1, typename D::index_type> offsets;
    Dim<N - 1, typename D::index_type> sizes;
    for (std::size_t i = 0; i + 1 < N; i++) {
        offsets[i] = domain.offset(skip_axis(i, A));
        sizes[i] = domain.size(skip_axis(i, A));
    }
    return dynamic_subdomain<N - 1, typename D::index_type>(offsets, sizes);
}

template<typename I, I... Sizes>
KMM_HOST_DEVICE constexpr static_domain<I, Sizes...> origin(const static_domain<I, Sizes...>& domain) noexcept {
    return domain;
}
template<std::size_t N, typename I>
KMM_HOST_DEVICE constexpr dynamic_domain<N, I> origin(const dynamic_domain<N, I>& domain) noexcept {
    return domain;
}
template<typename D, typename D::index_type... Offsets>
KMM_HOST_DEVICE constexpr D origin(const static_offset<D, Offsets...>& domain) noexcept {
    return domain;
}
template<std::size_t N, typename I>
KMM_HOST_DEVICE constexpr dynamic_domain<N, I> origin(const dynamic_subdomain<N, I>& domain) noexcept {
    Dim<N, I> sizes;
    for (std::size_t i = 0; i + 1 <= N; i++) {
        sizes[i] = domain.size(i);
    }
    return sizes;
}

template<typename D, typename = void>
struct is_domain : std::false_type {};
template<typename D>
struct is_domain<D, std::void_t<decltype(D::has_offset), decltype(D::is_static), typename D::index_type>>
    : std::true_type {};

// Domains of one rank, and whether a domain is compared with a number.
template<typename A, typename B>
using enable_domains_t = std::enable_if_t<is_domain<A>::value && is_domain<B>::value, bool>;
template<typename D, typename S>
using enable_length_t = std::enable_if_t<is_domain<D>::value && std::is_arithmetic<S>::value && (D::rank <= 1), bool>;

}  // namespace detail

/// Whether two domains have the same indices, whatever their kinds and index types.
template<typename A, typename B>
KMM_HOST_DEVICE constexpr detail::enable_domains_t<A, B> operator==(const A& a, const B& b) noexcept {
    for (std::size_t i = 0; i < (A::rank > B::rank ? A::rank : B::rank); i++) {
        if (!is_equal(a.offset(i), b.offset(i)) || !is_equal(a.size(i), b.size(i))) {
            return false;
        }
    }
    return A::rank == B::rank;
}
template<typename A, typename B>
KMM_HOST_DEVICE constexpr detail::enable_domains_t<A, B> operator!=(const A& a, const B& b) noexcept {
    return !(a == b);
}
/// Of rank 1 (or 0, which has one element): whether the indices are 0 ... length - 1.
template<typename D, typename S>
KMM_HOST_DEVICE constexpr detail::enable_length_t<D, S> operator==(const D& domain, const S& length) noexcept {
    return is_equal(domain.offset(0), 0) && is_equal(domain.size(0), length);
}
template<typename D, typename S>
KMM_HOST_DEVICE constexpr detail::enable_length_t<D, S> operator==(const S& length, const D& domain) noexcept {
    return domain == length;
}
template<typename D, typename S>
KMM_HOST_DEVICE constexpr detail::enable_length_t<D, S> operator!=(const D& domain, const S& length) noexcept {
    return !(domain == length);
}
template<typename D, typename S>
KMM_HOST_DEVICE constexpr detail::enable_length_t<D, S> operator!=(const S& length, const D& domain) noexcept {
    return !(domain == length);
}

}  // namespace kmm::views
