// Views: which element an index names, what conversions and derived views keep, and who may touch device memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "kmm/core/view.hpp"
#include "kmm/error.hpp"

// All members, whether used or not, of views that store no stride, some, and all.
template class kmm::AbstractView<float, kmm::views::dynamic_domain<0>>;
template class kmm::AbstractView<float, kmm::views::dynamic_subdomain<1>, kmm::views::default_layout,
                                 kmm::views::device_accessor>;
template class kmm::AbstractView<float, kmm::views::dynamic_domain<2>>;
template class kmm::AbstractView<float, kmm::views::dynamic_domain<2>, kmm::views::strided_layout<>>;
template class kmm::AbstractView<float, kmm::views::static_domain<long, 3, 4>, kmm::views::static_layout<long, 4, 1>>;

namespace {

using kmm::AbstractView;
using kmm::Bounds;
using kmm::Dim;
using kmm::Point;
using kmm::Range;
using namespace kmm::views;

std::vector<int> counted(std::size_t n) {
    std::vector<int> values(n);
    std::iota(values.begin(), values.end(), 0);
    return values;
}

TEST(Row122, strides_and_addresses_are_64_bit) {
    const kmm::View<char, 3> v(nullptr, Dim<3>(4, 60000, 60000));
    EXPECT_EQ(v.stride(0), 3'600'000'000);
    EXPECT_EQ(v.stride(1), 60000);
    EXPECT_EQ(v.stride(2), 1);
    EXPECT_EQ(v.size(), 14'400'000'000u);
    EXPECT_EQ(v.linearize_index({3, 59999, 59999}), 14'399'999'999);
    static_assert(std::is_same_v<default_stride_type, signed long>);
    static_assert(std::is_same_v<default_index_type, signed long>);
    // An address beyond 2^31 elements, without the memory for it.
    alignas(8) char base[8] = {};
    const kmm::SubviewMut<char, 2> far = kmm::SubviewMut<char, 2>::from_region(
        base, Bounds<2>(Range<>(70000, 70002), Range<>(0, 3)), std::vector<long>{4, 1});
    EXPECT_EQ(far.data_at(70001, 2), base + 6);
    const kmm::View<char, 2> big(base, Dim<2>(100000, 100000));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(big.data_at(99999, 99999)) - reinterpret_cast<std::uintptr_t>(base),
              std::uintptr_t(9'999'999'999));
}

TEST(Row122, narrow_strides_can_still_be_named) {
    using Narrow = AbstractView<int, dynamic_domain<2>, right_to_left_layout<int>>;
    static_assert(std::is_same_v<Narrow::stride_type, int>);
    auto values = counted(6);
    const Narrow narrow(values.data(), {2, 3});
    EXPECT_EQ(narrow[1][2], 5);
    const kmm::View<int, 2> wide = narrow;
    EXPECT_EQ(wide[1][2], 5);
    static_assert(!std::is_convertible_v<kmm::ViewMut<int, 2>, Narrow>);
}

/// What the constructor of a view of this shape throws; "" if nothing.
template<typename V, typename... Sizes>
std::string refusal_of_view(Sizes... sizes) {
    try {
        static_cast<void>(V(nullptr, Dim<sizeof...(Sizes)>(sizes...)));
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
    return "";
}

TEST(Row122, a_packed_view_whose_bytes_or_strides_no_number_counts_is_refused_with_shape_and_element_size) {
    const std::int64_t half = std::int64_t(1) << 32, far = std::int64_t(1) << 60;
    const std::string text = refusal_of_view<kmm::View<double, 2>>(half, half);
    EXPECT_NE(text.find("{4294967296, 4294967296}"), std::string::npos) << text;
    EXPECT_NE(text.find("8 bytes"), std::string::npos) << text;
    EXPECT_EQ(refusal_of_view<kmm::View<double>>(far - 1), "");
    EXPECT_NE(refusal_of_view<kmm::View<double>>(far), "");
    EXPECT_NE((refusal_of_view<kmm::GPUViewMut<char, 2>>(far, 8)), "");
    EXPECT_EQ((refusal_of_view<kmm::View<double, 3>>(0, half, half)), "");
    EXPECT_EQ((refusal_of_view<kmm::View<double, 3>>(half, half, 0)), "");
    using Narrow = AbstractView<char, dynamic_domain<2>, right_to_left_layout<int>>;
    using NarrowColumns = AbstractView<char, dynamic_domain<2>, kmm::views::left_to_right_layout<int>>;
    EXPECT_EQ((refusal_of_view<Narrow>(half, 5)), "");
    EXPECT_NE((refusal_of_view<Narrow>(5, half)), "");
    EXPECT_EQ((refusal_of_view<NarrowColumns>(5, half)), "");
    EXPECT_NE((refusal_of_view<NarrowColumns>(half, 5)), "");
}

TEST(Row122, a_view_with_strides_of_its_own_may_have_more_elements_than_a_number_counts) {
    const std::int64_t half = std::int64_t(1) << 32;
    const int one = 1;
    const kmm::ViewStrided<int, 2> v(&one, Dim<2>(half, half), kmm::fixed_vector<long, 2>(0, 0));
    EXPECT_FALSE(v.is_empty());
    EXPECT_EQ(v.size(), std::numeric_limits<long>::max());
    EXPECT_EQ(v.size_in_bytes(), std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(v(half - 1, half - 1), 1);
}

TEST(Row123, every_form_of_access_names_the_same_element) {
    auto values = counted(24);
    const kmm::ViewMut<int, 3> v(values.data(), {2, 3, 4});
    for (int i = 0; i < 2; i++) {
        for (unsigned j = 0; j < 3; j++) {
            for (std::size_t k = 0; k < 4; k++) {
                const int expected = static_cast<int>(12 * static_cast<std::size_t>(i) + 4 * j + k);
                EXPECT_EQ(v[i][j][k], expected);
                EXPECT_EQ(v(i, j, k), expected);
                EXPECT_EQ(*v.data_at(i, j, k), expected);
                EXPECT_EQ(v.access({i, static_cast<long>(j), static_cast<long>(k)}), expected);
                EXPECT_EQ(v.data_at({i, static_cast<long>(j), static_cast<long>(k)}), values.data() + expected);
            }
        }
    }
    v[1][2][3] = -1;
    EXPECT_EQ(values[23], -1);
    const int* pointer = v;
    EXPECT_EQ(pointer, values.data());
    EXPECT_EQ(v.size(), 24u);
    EXPECT_EQ(v.size_in_bytes(), 24 * sizeof(int));
    EXPECT_EQ(v.sizes(), Dim<3>(2, 3, 4));
    EXPECT_EQ(v.size(1), 3);
    EXPECT_EQ(v.size(7), 1) << "beyond the rank";
    EXPECT_EQ(v.offset(7), 0);
}

TEST(Row123, a_view_of_a_region_is_indexed_as_the_array_is) {
    auto values = counted(100);  // an array of 10 x 10
    const Bounds<2> region(Range<>(3, 6), Range<>(4, 8));
    const auto v = kmm::Subview<int, 2>::from_region(values.data() + 34, region, std::vector<long>{10, 1});
    for (long i = 3; i < 6; i++) {
        for (long j = 4; j < 8; j++) EXPECT_EQ(v[i][j], 10 * i + j);
    }
    EXPECT_EQ(v.data(), values.data() + 34);
    EXPECT_EQ(v.bounds(), region);
    EXPECT_EQ(v.begin(), 3);
    EXPECT_EQ(v.end(), 6);
    EXPECT_EQ(v.begin(1), 4);
    EXPECT_EQ(v.end(1), 8);
    EXPECT_EQ(v.offsets(), Point<2>(3, 4));
    EXPECT_EQ(v.stride(0), 10);
    EXPECT_EQ(v.strides(), (kmm::fixed_vector<long, 2>(10, 1)));
    EXPECT_TRUE(v.in_bounds(3, 4));
    EXPECT_TRUE(v.in_bounds({5, 7}));
    EXPECT_FALSE(v.in_bounds(2, 4));
    EXPECT_FALSE(v.in_bounds(6, 4));
    EXPECT_FALSE(v.in_bounds(3, 8));
    EXPECT_EQ(v.linearize_index({5, 7}), 23);
    EXPECT_EQ(v.linearize_index({5, 7}, {4, 4}), 13);
}

TEST(Row123, only_packed_regions_are_contiguous) {
    auto values = counted(100);
    const auto part = [&](Range<> rows, Range<> columns) {
        return kmm::Subview<int, 2>::from_region(values.data(), Bounds<2>(rows, columns), std::vector<long>{10, 1});
    };
    EXPECT_TRUE(part({3, 6}, {0, 10}).is_contiguous());
    EXPECT_FALSE(part({3, 6}, {0, 9}).is_contiguous());
    EXPECT_TRUE(part({3, 4}, {2, 9}).is_contiguous()) << "one row";
    EXPECT_FALSE(part({3, 5}, {2, 3}).is_contiguous()) << "one column";
    EXPECT_TRUE(part({3, 3}, {2, 9}).is_contiguous()) << "no elements";
    const AbstractView<int, dynamic_domain<2>, left_to_right_layout<>> columns(values.data(), {4, 5});
    EXPECT_TRUE(columns.is_contiguous());
    EXPECT_EQ(columns(1, 2), 9);
    EXPECT_EQ(columns[3][4], 19);
    EXPECT_FALSE((kmm::ViewStrided<int, 2>(columns).is_contiguous())) << "row-major is what counts for any strides";
}

TEST(Row123, rank_zero_views_have_one_element) {
    int value = 7;
    const kmm::ViewMut<int, 0> v(&value, {});
    EXPECT_EQ(*v, 7);
    EXPECT_EQ(v(), 7);
    v() = 8;
    EXPECT_EQ(value, 8);
    EXPECT_EQ(v.size(), 1u);
    EXPECT_TRUE(v.is_contiguous());
    EXPECT_TRUE(v.in_bounds({}));
    const kmm::Subview<int, 0> s = v;
    EXPECT_EQ(*s, 8);
    EXPECT_EQ(s.bounds().volume(), 1);
}

TEST(Row123, empty_views_have_no_elements) {
    EXPECT_TRUE(kmm::View<int>().is_empty());
    EXPECT_EQ(kmm::View<int>().data(), nullptr);
    EXPECT_EQ((kmm::Subview<int, 3>().size()), 0u);
    int value = 0;
    const auto v =
        kmm::Subview<int, 2>::from_region(&value, Bounds<2>(Range<>(10, 10), Range<>(0, 4)), std::vector<long>{4, 1});
    EXPECT_TRUE(v.is_empty());
    EXPECT_EQ(v.begin(), 10);
    EXPECT_EQ(v.end(), 10);
    EXPECT_FALSE(v.in_bounds(10, 0));
}

TEST(Row123, dropping_an_axis_keeps_the_others) {
    auto values = counted(24);
    const kmm::ViewMut<int, 3> v(values.data(), {2, 3, 4});
    const auto plane = v.drop_axis(1);
    static_assert(std::is_same_v<decltype(plane), const kmm::ViewMut<int, 2>>,
                  "row-major stays row-major without axis 0");
    EXPECT_EQ(plane[2][3], 23);
    EXPECT_EQ(v.drop_axis()[2][3], 11) << "at the first index";
    const auto column = v.drop_axis<1>(2);
    EXPECT_EQ(column[1][3], 23);
    EXPECT_EQ(column.strides(), (kmm::fixed_vector<long, 2>(12, 1)));
    EXPECT_EQ(v.drop_axis<2>(1)[1][2], 21);
    const auto moved = v.shift_to({5, 6, 7});
    EXPECT_EQ(moved.drop_axis<1>(8)[6][10], 23);
    EXPECT_EQ(moved.drop_axis<1>()[5][7], 0);
    EXPECT_EQ(moved.drop_axis<1>(7).offsets(), Point<2>(5, 7));
    EXPECT_EQ(moved[6][8][10], 23);
}

TEST(Row123, shifts_change_indices_and_not_memory) {
    auto values = counted(6);
    const kmm::ViewMut<int, 2> v(values.data(), {2, 3});
    const auto moved = v.shift_to({10, -5});
    static_assert(std::is_same_v<decltype(moved), const kmm::SubviewMut<int, 2>>);
    EXPECT_EQ(moved[11][-3], 5);
    EXPECT_EQ(moved.data(), v.data());
    EXPECT_EQ(moved.shift_by({1, 1})[12][-2], 5);
    EXPECT_EQ(moved.shift_axis_to<1>(0)[11][2], 5);
    EXPECT_EQ(moved.shift_axis_by<0>(-10)[1][-3], 5);
    const auto origin = moved.shift_to_origin();
    static_assert(std::is_same_v<decltype(origin), const kmm::ViewMut<int, 2>>);
    EXPECT_EQ(origin[1][2], 5);
}

TEST(Row123, views_convert_to_those_that_promise_less) {
    using kmm::GPUSubview;
    using kmm::GPUView;
    using kmm::GPUViewMut;
    using kmm::Subview;
    using kmm::SubviewMut;
    using kmm::SubviewStrided;
    using kmm::View;
    using kmm::ViewMut;
    static_assert(std::is_convertible_v<ViewMut<int, 2>, View<int, 2>>);
    static_assert(!std::is_convertible_v<View<int, 2>, ViewMut<int, 2>>);
    static_assert(std::is_convertible_v<View<int, 2>, Subview<int, 2>>);
    static_assert(!std::is_convertible_v<Subview<int, 2>, View<int, 2>>);
    static_assert(std::is_convertible_v<SubviewMut<int, 2>, SubviewStrided<int, 2>>);
    static_assert(!std::is_convertible_v<SubviewStrided<int, 2>, Subview<int, 2>>);
    static_assert(std::is_convertible_v<GPUViewMut<int>, GPUSubview<int>>);
    static_assert(!std::is_convertible_v<GPUView<int>, View<int>>);
    static_assert(!std::is_convertible_v<View<int>, GPUView<int>>);
    static_assert(!std::is_convertible_v<View<int, 1>, View<int, 2>>);
    static_assert(!std::is_convertible_v<View<int>, View<long>>);
    using Static = AbstractView<int, static_domain<int, 2, 3>>;
    using Offset = AbstractView<int, static_offset<static_domain<int, 2, 3>, 5, 6>>;
    static_assert(std::is_convertible_v<Static, View<int, 2>>);
    static_assert(std::is_convertible_v<Offset, Subview<int, 2>>);
    static_assert(!std::is_convertible_v<Offset, View<int, 2>>);
    auto values = counted(6);
    const Static fixed(values.data(), {});
    EXPECT_EQ(fixed[1][2], 5);
    EXPECT_EQ(fixed.size(), 6u);
    EXPECT_EQ((kmm::ViewStrided<int, 2>(fixed)[1][2]), 5);
    const Offset moved(values.data(), static_domain<int, 2, 3>());
    EXPECT_EQ(moved[6][8], 5);
    EXPECT_EQ(moved.shift_to_origin()[1][2], 5);
    EXPECT_EQ((Subview<int, 2>(moved)[6][8]), 5);
    const AbstractView<int, static_domain<int, 2, 2>, static_layout<long, 3, 1>> inner(values.data(), {});
    EXPECT_EQ(inner[1][1], 4);
}

TEST(Row123, views_are_plain_bytes_that_begin_with_their_address) {
    const auto check = [](auto view) {
        using V = decltype(view);
        static_assert(std::is_trivially_copyable_v<V> && std::is_standard_layout_v<V>);
        typename V::element_type* expected = reinterpret_cast<typename V::element_type*>(std::uintptr_t(0x1234560));
        std::memcpy(reinterpret_cast<unsigned char*>(&view) + V::data_member_offset(), &expected, sizeof(expected));
        EXPECT_EQ(view.data(), expected);
    };
    check(kmm::View<int, 0>());
    check(kmm::ViewMut<double>());
    check(kmm::Subview<float, 3>());
    check(kmm::GPUSubviewMut<float, 8>());
    check(kmm::GPUSubviewStrided<float, 2>());
    check(AbstractView<int, static_domain<int, 2, 3>>());
}

TEST(Row124, the_host_must_not_touch_device_memory_unless_a_task_of_the_host_driver_does) {
    int value = 5;
    const kmm::GPUViewMut<int> v(&value, 1);
    EXPECT_THROW(v[0] = 6, std::runtime_error);
    EXPECT_THROW(v(0), std::runtime_error);
    EXPECT_EQ(value, 5);
    EXPECT_EQ(v.data(), &value) << "addresses are not elements";
    {
        const kmm::detail::DeviceAccessScope scope;
        v[0] = 7;
    }
    EXPECT_EQ(value, 7);
    EXPECT_THROW(v[0] = 8, std::runtime_error);
}

}  // namespace
