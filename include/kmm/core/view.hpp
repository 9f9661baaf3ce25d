// Views: typed access to the elements of a box of indices, in host or device memory. A view owns nothing; it is a plain
// value that may be passed to kernels. Host and device.
#pragma once

#include "kmm/detail/device_access.hpp"
#include "kmm/detail/standard.hpp"
#include "kmm/detail/view_domain.hpp"
#include "kmm/detail/view_layout.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

#if !KMM_IS_RTC
namespace detail {

/// std::runtime_error: device memory is touched by host code.
[[noreturn]] void throw_device_view_on_host();
/// InvalidArgument with index and bounds; `numbers` holds index, begin and end of each axis.
[[noreturn]] void throw_view_index(std::size_t rank, const long long* numbers);

}  // namespace detail
#endif

namespace views {

/// Memory that the host may touch.
struct host_accessor {
    template<typename T>
    KMM_HOST_DEVICE constexpr T& access(T* address) const noexcept {
        return *address;
    }
};

/// Memory that only a device may touch. Element access on the host throws std::runtime_error, except inside emulated
/// kernels and inside tasks on the host driver.
struct device_accessor {
    template<typename T>
    KMM_HOST_DEVICE constexpr T& access(T* address) const {
#if !KMM_IS_DEVICE
        if (KMM_UNLIKELY(!kmm::detail::device_access_allowed())) {
            kmm::detail::throw_device_view_on_host();
        }
#endif
        return *address;
    }
};

}  // namespace views

/// The elements with the indices of the domain `D`, laid out by `L`. Indices are those of the domain, so a view of a
/// part of an array is indexed as the array is. Checked only if KMM_BOUNDS_CHECK is 1: then an index outside throws
/// InvalidArgument on the host and fails the kernel on a device. Valid as long as the memory behind it.
template<typename T, typename D, typename L = views::default_layout, typename A = views::host_accessor>
class AbstractView {
  public:
    static constexpr std::size_t rank = D::rank;

    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using pointer = T*;
    using reference = T&;
    using domain_type = D;
    using layout_type = L;
    using mapping_type = typename L::template mapping_type<D::rank>;
    using accessor_type = A;
    using index_type = typename D::index_type;
    using stride_type = typename mapping_type::stride_type;
    using size_type = std::size_t;
    using ndindex_type = Point<rank, index_type>;
    using ndsize_type = Dim<rank, index_type>;
    using ndstride_type = fixed_vector<stride_type, rank>;
    static_assert(mapping_type::rank == rank, "layout and domain have different ranks");

    /// Empty, unless the sizes are static.
    KMM_HOST_DEVICE constexpr AbstractView() noexcept
        : data_(nullptr), domain_(), mapping_(mapping_type::from_domain(domain_)) {}
    /// Packed elements of `domain` that begin at `first`. On the host InvalidArgument if their bytes do not fit 63
    /// bits, or their strides the stride type.
    KMM_HOST_DEVICE constexpr AbstractView(T* first, const D& domain)
        : data_(first), domain_(domain), mapping_(mapping_type::from_domain(domain)) {
#if !KMM_IS_DEVICE || KMM_BOUNDS_CHECK
        views::detail::check_packed<L, stride_type>(domain, sizeof(T));
#endif
    }
    KMM_HOST_DEVICE constexpr AbstractView(T* first, const D& domain, const mapping_type& mapping) noexcept
        : data_(first), domain_(domain), mapping_(mapping) {}
    /// Of a view that knows no less: T to const T, static to dynamic, without to with offsets, contiguous to strided.
    template<typename U, typename E, typename M,
             typename =
                 std::enable_if_t<std::is_convertible<U (*)[], T (*)[]>::value && std::is_convertible<E, D>::value &&
                                  (D::has_offset || !E::has_offset) &&
                                  std::is_convertible<typename M::template mapping_type<E::rank>, mapping_type>::value>>
    KMM_HOST_DEVICE constexpr AbstractView(const AbstractView<U, E, M, A>& that) noexcept
        : data_(that.data()), domain_(that.domain()), mapping_(that.mapping()) {}

    /// The one element at `first`, or the elements of a static domain.
    template<typename P, std::enable_if_t<views::detail::is_address_v<P, T> && (D::is_static || D::rank == 0), int> = 0>
    KMM_HOST_DEVICE constexpr AbstractView(P first) : AbstractView(static_cast<T*>(first), D()) {}
    /// Sizes that are not static are 0: an address, and no elements.
    template<typename P, std::enable_if_t<views::detail::is_address_v<P, T> && !D::is_static && (D::rank > 0), int> = 0>
    KMM_HOST_DEVICE explicit constexpr AbstractView(P first) : AbstractView(static_cast<T*>(first), D()) {}

    /// The region `bounds`, whose first element is at `first`; `strides[i]` in elements for each axis (a contiguous
    /// axis counts as 1). For domains without offsets only the sizes of `bounds` count.
    template<typename U, typename P>
    KMM_HOST_DEVICE static constexpr AbstractView from_region(T* first, const Bounds<rank, U>& bounds,
                                                              const P& strides) {
        if constexpr (D::has_offset) {
            return AbstractView(first, D(bounds), mapping_type::from_strides(strides));
        } else {
            return AbstractView(first, D(bounds.size()), mapping_type::from_strides(strides));
        }
    }
    /// Where in the bytes of any view the address of the first element stands (sizeof(void*) bytes), so that it can be
    /// set in packed kernel parameters.
    KMM_HOST_DEVICE static constexpr std::size_t data_member_offset() noexcept { return 0; }
    /// Likewise the stride of an axis, sizeof(stride_type) bytes, of a view that stores strides; of the last axis of a
    /// row-major view none is stored.
    static constexpr std::size_t num_stored_strides = mapping_type::num_stored;
#if !KMM_IS_RTC
    static constexpr std::size_t stride_offset(std::size_t axis) noexcept {
        return offsetof(AbstractView, mapping_) + mapping_type::stored_at(axis) * sizeof(stride_type);
    }
#endif

    // ---- elements
    /// An element of a view of rank 1; of a higher rank the view of one rank less at `index` of axis 0.
    template<typename I, std::size_t R = rank,
             typename = std::enable_if_t<(R > 0) && std::is_convertible<I, index_type>::value>>
    KMM_HOST_DEVICE constexpr decltype(auto) operator[](const I& index) const {
        if constexpr (R == 1) {
            return access(to_index(index));
        } else {
            return drop_axis<0>(static_cast<index_type>(index));
        }
    }
    template<typename... Is,
             typename = std::enable_if_t<sizeof...(Is) == rank && (std::is_convertible<Is, index_type>::value && ...)>>
    KMM_HOST_DEVICE constexpr T& operator()(const Is&... indices) const {
        return access(to_index(indices...));
    }
    template<std::size_t R = rank, typename = std::enable_if_t<R == 0>>
    KMM_HOST_DEVICE constexpr T& operator*() const {
        return access(ndindex_type());
    }
    KMM_HOST_DEVICE constexpr T& access(const ndindex_type& index) const {
#if KMM_BOUNDS_CHECK
        check_index(index);
#endif
        return accessor().access(data_at(index));
    }

    // ---- addresses
    /// The first element of the region; unspecified if it is empty.
    KMM_HOST_DEVICE constexpr T* data() const noexcept { return data_; }
    KMM_HOST_DEVICE constexpr operator T*() const noexcept { return data_; }
    KMM_HOST_DEVICE constexpr T* data_at(const ndindex_type& index) const noexcept {
        return data_ + linearize_index(index);
    }
    template<typename... Is, typename = std::enable_if_t<(sizeof...(Is) > 0) && sizeof...(Is) == rank &&
                                                         (std::is_convertible<Is, index_type>::value && ...)>>
    KMM_HOST_DEVICE constexpr T* data_at(const Is&... indices) const noexcept {
        return data_at(to_index(indices...));
    }

    // ---- extents; an axis beyond the rank has size 1 and offset 0
    // Of what has explicit strides there may be more than a number can count: then the largest number.
    KMM_HOST_DEVICE constexpr index_type size() const noexcept {
        return views::detail::as_count<index_type>(num_elements());
    }
    KMM_HOST_DEVICE constexpr index_type size(std::size_t axis) const noexcept { return domain_.size(axis); }
    KMM_HOST_DEVICE constexpr ndsize_type sizes() const noexcept {
        ndsize_type result;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result[i] = domain_.size(i);
        }
        return result;
    }
    KMM_HOST_DEVICE constexpr size_type size_in_bytes() const noexcept {
        return views::detail::counted_product(num_elements(), sizeof(T));
    }
    KMM_HOST_DEVICE constexpr bool is_empty() const noexcept {
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            if (domain_.size(i) <= 0) {
                return true;
            }
        }
        return false;
    }
    KMM_HOST_DEVICE constexpr index_type offset(std::size_t axis = 0) const noexcept { return domain_.offset(axis); }
    KMM_HOST_DEVICE constexpr ndindex_type offsets() const noexcept {
        ndindex_type result;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result[i] = domain_.offset(i);
        }
        return result;
    }
    KMM_HOST_DEVICE constexpr index_type begin(std::size_t axis = 0) const noexcept { return domain_.offset(axis); }
    KMM_HOST_DEVICE constexpr index_type end(std::size_t axis = 0) const noexcept {
        return static_cast<index_type>(domain_.offset(axis) + domain_.size(axis));
    }
    KMM_HOST_DEVICE constexpr Bounds<rank, index_type> bounds() const noexcept {
        Bounds<rank, index_type> result;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result[i].begin = begin(i);
            result[i].end = end(i);
        }
        return result;
    }
    KMM_HOST_DEVICE constexpr bool in_bounds(const ndindex_type& index) const noexcept {
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            if (index[i] < begin(i) || index[i] >= end(i)) {
                return false;
            }
        }
        return true;
    }
    template<typename... Is, typename = std::enable_if_t<(sizeof...(Is) > 0) && sizeof...(Is) == rank &&
                                                         (std::is_convertible<Is, index_type>::value && ...)>>
    KMM_HOST_DEVICE constexpr bool in_bounds(const Is&... indices) const noexcept {
        return in_bounds(to_index(indices...));
    }

    // ---- layout, in elements
    KMM_HOST_DEVICE constexpr stride_type stride(std::size_t axis = 0) const noexcept { return mapping_.stride(axis); }
    KMM_HOST_DEVICE constexpr ndstride_type strides() const noexcept {
        ndstride_type result;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result[i] = mapping_.stride(i);
        }
        return result;
    }
    /// Whether the elements lie one behind the other: the last axis fastest, the first one for a column-major layout.
    KMM_HOST_DEVICE constexpr bool is_contiguous() const noexcept {
        stride_type expected = 1;
        for (std::size_t k = 0; k + 1 <= rank; k++) {
            std::size_t axis = L::is_left_to_right ? k : rank - 1 - k;
            if (size(axis) > 1 && stride(axis) != expected) {
                return is_empty();
            }
            expected = views::detail::wrapping_product<stride_type>(expected, size(axis));
        }
        return true;
    }
    /// How many elements `index` lies behind `base`.
    KMM_HOST_DEVICE constexpr std::ptrdiff_t linearize_index(const ndindex_type& index,
                                                             const ndindex_type& base) const noexcept {
        std::ptrdiff_t result = 0;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result += static_cast<stride_type>(index[i] - base[i]) * mapping_.stride(i);
        }
        return result;
    }
    /// How many elements `index` lies behind `data()`.
    KMM_HOST_DEVICE constexpr std::ptrdiff_t linearize_index(const ndindex_type& index) const noexcept {
        std::ptrdiff_t result = 0;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result += static_cast<stride_type>(index[i] - domain_.offset(i)) * mapping_.stride(i);
        }
        return result;
    }

    /// The address of `index`, if that of the first element of the region is `first`.
    template<typename U>
    KMM_HOST_DEVICE constexpr U* linearize_index(const ndindex_type& index, U* first) const noexcept {
        return first + linearize_index(index);
    }

    // ---- other views of the same memory
    /// Without axis `Axis`, at its index `index` (the first by default). Dropping axis 0 of row-major keeps the layout.
    template<std::size_t Axis = 0>
    KMM_HOST_DEVICE constexpr auto drop_axis(index_type index) const {
        static_assert(Axis < rank, "the view has no such axis");
#if KMM_BOUNDS_CHECK
        ndindex_type checked = offsets();
        checked[Axis] = index;
        check_index(checked, Axis);
#endif
        using Layout = typename views::detail::drop_layout<L, rank, Axis>::type;
        auto domain = views::detail::drop<Axis>(domain_);
        using Result = AbstractView<T, decltype(domain), Layout, A>;
        T* first = data_ + static_cast<std::ptrdiff_t>(static_cast<stride_type>(index - begin(Axis)) * stride(Axis));
        return Result(first, domain, views::detail::drop_mapping<Axis, typename Result::mapping_type>(mapping_));
    }
    template<std::size_t Axis = 0>
    KMM_HOST_DEVICE constexpr auto drop_axis() const noexcept {
        static_assert(Axis < rank, "the view has no such axis");
        using Layout = typename views::detail::drop_layout<L, rank, Axis>::type;
        auto domain = views::detail::drop<Axis>(domain_);
        using Result = AbstractView<T, decltype(domain), Layout, A>;
        return Result(data_, domain, views::detail::drop_mapping<Axis, typename Result::mapping_type>(mapping_));
    }

    using origin_type = AbstractView<T, decltype(views::detail::origin(std::declval<const D&>())), L, A>;
    using shifted_type = AbstractView<T, views::dynamic_subdomain<rank, index_type>, L, A>;

    KMM_HOST_DEVICE constexpr origin_type shift_to_origin() const noexcept {
        return origin_type(data_, views::detail::origin(domain_), mapping_);
    }
    KMM_HOST_DEVICE constexpr shifted_type shift_to(const ndindex_type& new_offsets) const noexcept {
        return shifted_type(data_, views::dynamic_subdomain<rank, index_type>(new_offsets, sizes()), mapping_);
    }
    KMM_HOST_DEVICE constexpr shifted_type shift_by(const ndindex_type& distances) const noexcept {
        ndindex_type moved = offsets();
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            moved[i] = static_cast<index_type>(moved[i] + distances[i]);
        }
        return shift_to(moved);
    }
    template<std::size_t Axis>
    KMM_HOST_DEVICE constexpr shifted_type shift_axis_to(index_type new_offset) const noexcept {
        static_assert(Axis < rank, "the view has no such axis");
        ndindex_type moved = offsets();
        moved[Axis] = new_offset;
        return shift_to(moved);
    }
    template<std::size_t Axis>
    KMM_HOST_DEVICE constexpr shifted_type shift_axis_by(index_type distance) const noexcept {
        return shift_axis_to<Axis>(static_cast<index_type>(offset(Axis) + distance));
    }

    KMM_HOST_DEVICE constexpr const D& domain() const noexcept { return domain_; }
    KMM_HOST_DEVICE constexpr const mapping_type& mapping() const noexcept { return mapping_; }
    KMM_HOST_DEVICE constexpr A accessor() const noexcept { return A(); }

  private:
    KMM_HOST_DEVICE constexpr size_type num_elements() const noexcept {
        if (is_empty()) {
            return 0;
        }
        size_type result = 1;
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            result = views::detail::counted_product(result, static_cast<size_type>(domain_.size(i)));
        }
        return result;
    }

    template<typename... Is>
    KMM_HOST_DEVICE static constexpr ndindex_type to_index(const Is&... indices) noexcept {
        return ndindex_type(typename ndindex_type::storage_type{static_cast<index_type>(indices)...});
    }

    // Checks one axis, or all of them.
    KMM_HOST_DEVICE constexpr void check_index(const ndindex_type& index, std::size_t only_axis = rank) const {
        for (std::size_t i = 0; i + 1 <= rank; i++) {
            if ((only_axis == rank || only_axis == i) && (index[i] < begin(i) || index[i] >= end(i))) {
#if KMM_IS_DEVICE
                kmm::detail::panic("view index out of bounds", __FILE__, __LINE__);
#else
                long long numbers[3 * rank + 1] = {};
                for (std::size_t k = 0; k + 1 <= rank; k++) {
                    numbers[3 * k] = static_cast<long long>(index[k]);
                    numbers[3 * k + 1] = static_cast<long long>(begin(k));
                    numbers[3 * k + 2] = static_cast<long long>(end(k));
                }
                kmm::detail::throw_view_index(rank, numbers);
#endif
            }
        }
    }

    T* data_;  // first in every view: see data_member_offset()
    D domain_;
    mapping_type mapping_;
};

// Views begin at index 0, Subviews at the offset of their region. The Mut forms give write access; the GPU forms are
// for device memory; the Strided forms take any strides.
#define KMM_DETAIL_DEFINE_VIEWS(PREFIX, ACCESSOR)                                                                  \
    template<typename T, std::size_t N = 1, typename L = views::default_layout, typename A = ACCESSOR>             \
    using PREFIX##View = AbstractView<const T, views::dynamic_domain<N>, L, A>;                                    \
    template<typename T, std::size_t N = 1, typename L = views::default_layout, typename A = ACCESSOR>             \
    using PREFIX##ViewMut = AbstractView<T, views::dynamic_domain<N>, L, A>;                                       \
    template<typename T, std::size_t N = 1, typename L = views::default_layout, typename A = ACCESSOR>             \
    using PREFIX##Subview = AbstractView<const T, views::dynamic_subdomain<N>, L, A>;                              \
    template<typename T, std::size_t N = 1, typename L = views::default_layout, typename A = ACCESSOR>             \
    using PREFIX##SubviewMut = AbstractView<T, views::dynamic_subdomain<N>, L, A>;                                 \
    template<typename T, std::size_t N = 1, typename A = ACCESSOR>                                                 \
    using PREFIX##ViewStrided = AbstractView<const T, views::dynamic_domain<N>, views::strided_layout<>, A>;       \
    template<typename T, std::size_t N = 1, typename A = ACCESSOR>                                                 \
    using PREFIX##ViewStridedMut = AbstractView<T, views::dynamic_domain<N>, views::strided_layout<>, A>;          \
    template<typename T, std::size_t N = 1, typename A = ACCESSOR>                                                 \
    using PREFIX##SubviewStrided = AbstractView<const T, views::dynamic_subdomain<N>, views::strided_layout<>, A>; \
    template<typename T, std::size_t N = 1, typename A = ACCESSOR>                                                 \
    using PREFIX##SubviewStridedMut = AbstractView<T, views::dynamic_subdomain<N>, views::strided_layout<>, A>;

KMM_DETAIL_DEFINE_VIEWS(, views::host_accessor)
KMM_DETAIL_DEFINE_VIEWS(GPU, views::device_accessor)
#undef KMM_DETAIL_DEFINE_VIEWS

}  // namespace kmm
