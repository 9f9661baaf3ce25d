// The utility types: every member, edge values included.
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "kmm/core/data_type.hpp"
#include "kmm/core/reduction.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/integer_fun.hpp"
#include "kmm/utils/key_value.hpp"
#include "kmm/utils/panic.hpp"
#include "kmm/utils/small_vector.hpp"
#include "kmm/version.hpp"

struct Dual {
    float value;
    float derivative;
};
KMM_DEFINE_SCALAR_TYPE(Complex32, Dual)

namespace {

using kmm::Bounds;
using kmm::DataType;
using kmm::Dim;
using kmm::fixed_vector;
using kmm::Point;
using kmm::Range;
using kmm::ScalarType;
using kmm::small_vector;

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();

template<typename T>
std::string printed(const T& value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
}

TEST(Row125_Range, says_what_it_contains) {
    const Range<> r(3, 7);
    EXPECT_EQ(r.begin, 3);
    EXPECT_EQ(r.end, 7);
    EXPECT_EQ(Range<>(5), Range<>(0, 5));
    EXPECT_EQ(r.size(), 4);
    EXPECT_FALSE(r.is_empty());
    EXPECT_TRUE(Range<>().is_empty());
    EXPECT_TRUE(Range<>(5, 3).is_empty());
    EXPECT_EQ(Range<>(5, 3).size(), 0);
    EXPECT_TRUE(r.contains(3));
    EXPECT_FALSE(r.contains(7));
    EXPECT_FALSE(r.contains(std::numeric_limits<std::uint64_t>::max()));
    EXPECT_TRUE(r.contains(Range<>(4, 7)));
    EXPECT_TRUE(r.contains(Range<>(50, 40))) << "an empty range";
    EXPECT_FALSE(r.contains(Range<>(4, 8)));
    EXPECT_TRUE(r.overlaps(Range<>(6, 100)));
    EXPECT_FALSE(r.overlaps(Range<>(7, 100)));
    EXPECT_FALSE(r.overlaps(Range<>(5, 5)));
    EXPECT_EQ(r.intersection(Range<>(5, 100)), Range<>(5, 7));
    EXPECT_TRUE(r.intersection(Range<>(8, 100)).is_empty());
    EXPECT_EQ(r.shift_by(-5), Range<>(-2, 2));
    EXPECT_THROW(r.shift_by(int64_max), std::overflow_error);
    EXPECT_EQ(printed(r), "3...7");
    static_assert(std::is_same_v<decltype(Range(3, 7)), Range<>>);
    static_assert(Range<>(1, 2).size() == 1, "usable in constant expressions");
}

TEST(Row125_Range, is_cut_and_converted) {
    Range<> r(3, 7);
    EXPECT_EQ(r.split_tail(5), Range<>(5, 7));
    EXPECT_EQ(r, Range<>(3, 5));
    EXPECT_EQ(r.split_tail(100), Range<>(5, 5));
    EXPECT_EQ(r, Range<>(3, 5));
    EXPECT_EQ(r.split_tail(-100), Range<>(3, 5));
    EXPECT_TRUE(r.is_empty());
    EXPECT_TRUE(Range<>(0, 127).is_convertible_to<std::int8_t>());
    EXPECT_FALSE(Range<>(0, 128).is_convertible_to<std::int8_t>());
    EXPECT_EQ((Range<std::int8_t>::from(Range<>(-128, 127))), Range<>(-128, 127));
    EXPECT_THROW((Range<std::int8_t>(Range<>(0, 128))), std::overflow_error);
    EXPECT_THROW((Range<unsigned>(Range<>(-1, 3))), std::overflow_error);
    EXPECT_THROW((Range<int>(int64_max)), std::overflow_error);
}

TEST(Row125_Point, has_names_defaults_and_checked_conversions) {
    EXPECT_EQ(Point<3>(), Point<3>(0, 0, 0));
    EXPECT_EQ(Dim<3>(), Dim<3>(1, 1, 1));
    const Point<4> p(1, 2, 3, 4);
    EXPECT_EQ(p.x + 10 * p.y + 100 * p.z + 1000 * p.w, 4321);
    for (std::size_t i = 0; i < 4; i++) EXPECT_EQ(p[i], static_cast<long>(i) + 1);
    EXPECT_THROW(p[4], std::out_of_range);
    EXPECT_EQ(Point<6>(1, 2, 3, 4, 5, 6)[5], 6);
    EXPECT_THROW((Point<6>()[6]), std::out_of_range);
    EXPECT_EQ(p.get_or_default(9), 0);
    EXPECT_EQ(Dim<1>(5).get_or_default(9), 1);
    EXPECT_EQ(Point<2>::fill(7), Point<2>(7, 7));
    EXPECT_EQ(Point<2>::one(), Point<2>(1, 1));
    EXPECT_EQ(Dim<2>::zero(), Dim<2>(0, 0));
    EXPECT_EQ((Point<3>::from(Point<2, int>(1, 2))), Point<3>(1, 2, 0));
    EXPECT_EQ(Point<2>(Point<3>(1, 2, 0)), Point<2>(1, 2));
    EXPECT_THROW((Point<2>(Point<3>(1, 2, 3))), std::overflow_error);
    EXPECT_EQ(Dim<2>(Dim<3>(4, 5, 1)), Dim<2>(4, 5));
    EXPECT_THROW((Dim<2>(Dim<3>(4, 5, 0))), std::overflow_error);
    EXPECT_THROW((Point<1, std::int8_t>(Point<1>(200))), std::overflow_error);
    EXPECT_THROW((Dim<1>(std::numeric_limits<std::uint64_t>::max())), std::overflow_error);
    EXPECT_EQ(Point<2>(1, 2), Point<3>(1, 2, 0)) << "missing axes count as the default";
    EXPECT_NE(Point<2>(1, 2), Point<3>(1, 2, 1));
    EXPECT_EQ(Dim<2>(1, 2), Dim<3>(1, 2, 1));
    EXPECT_EQ(concat(Point<1>(1), Point<2>(2, 3)), Point<3>(1, 2, 3));
    EXPECT_EQ(concat(Dim<0>(), Dim<2>(2, 3)), Dim<2>(2, 3));
    EXPECT_EQ(printed(Point<2>(1, -2)), "{1, -2}");
    EXPECT_EQ(printed(Dim<0>()), "{}");
    long sum = 0;
    for (long v : p) sum += v;
    EXPECT_EQ(sum, 10);
    static_assert(std::is_same_v<kmm::Size<2>, Dim<2>>);
    static_assert(std::is_convertible_v<int, Dim<1>> && !std::is_convertible_v<double, Dim<1>>);
    static_assert(std::is_convertible_v<Dim<3>, Dim<2>> && !std::is_convertible_v<Dim<3>, Point<2>>);
}

TEST(Row125_Dim, counts_elements) {
    EXPECT_EQ(Dim<3>(2, 3, 4).volume(), 24);
    EXPECT_EQ(Dim<0>().volume(), 1);
    EXPECT_FALSE(Dim<0>().is_empty());
    EXPECT_TRUE(Dim<2>(0, 3).is_empty());
    EXPECT_TRUE(Dim<2>(3, -1).is_empty());
    EXPECT_EQ(Dim<2>(int64_max, 0).volume(), 0);
    EXPECT_THROW(Dim<2>(int64_max, 2).volume(), std::overflow_error);
    EXPECT_TRUE((Dim<2>(2, 3).contains(Point<2>(1, 2))));
    EXPECT_FALSE((Dim<2>(2, 3).contains(Point<2>(1, 3))));
    EXPECT_FALSE((Dim<2>(2, 3).contains(Point<2>(-1, 0))));
}

TEST(Row125_Bounds, describes_boxes) {
    const Bounds<2> b(Range<>(1, 3), Range<>(4, 9));
    EXPECT_EQ(b.x, Range<>(1, 3));
    EXPECT_EQ(b[1], Range<>(4, 9));
    EXPECT_THROW(b[2], std::out_of_range);
    EXPECT_EQ(b.begin(), Point<2>(1, 4));
    EXPECT_EQ(b.end(), Point<2>(3, 9));
    EXPECT_EQ(b.size(), Dim<2>(2, 5));
    EXPECT_EQ(b.size(1), 5);
    EXPECT_EQ(b.begin(7), 0);
    EXPECT_EQ(b.end(7), 1);
    EXPECT_EQ(b.volume(), 10);
    EXPECT_EQ(Bounds<2>::from_bounds({1, 4}, {3, 9}), b);
    EXPECT_EQ(Bounds<2>::from_offset_size({1, 4}, {2, 5}), b);
    EXPECT_THROW(Bounds<1>::from_offset_size(int64_max, 2), std::overflow_error);
    EXPECT_EQ(Bounds<2>(Dim<2>(2, 3)), Bounds<2>(Range<>(0, 2), Range<>(0, 3)));
    EXPECT_EQ(Bounds<2>(2, 3), Bounds<2>(Dim<2>(2, 3)));
    EXPECT_TRUE(Bounds<2>::empty().is_empty());
    EXPECT_EQ(Bounds<2>::one().volume(), 1);
    EXPECT_EQ(Bounds<0>().volume(), 1);
    EXPECT_EQ((Bounds<3>::from(b)), (Bounds<3>(Range<>(1, 3), Range<>(4, 9), Range<>(0, 1))));
    EXPECT_EQ((Bounds<3>::from(b)), b) << "missing axes count as 0...1";
    EXPECT_THROW((Bounds<1>(b)), std::overflow_error);
    EXPECT_THROW((Bounds<1, std::int8_t>(Bounds<1>(Range<>(0, 300)))), std::overflow_error);
    EXPECT_EQ(b.get_or_default(5), Range<>(0, 1));
    EXPECT_EQ(concat(Bounds<1>(3), b), Bounds<3>(Range<>(0, 3), Range<>(1, 3), Range<>(4, 9)));
    EXPECT_EQ(printed(b), "{1...3, 4...9}");
    std::unordered_set<Bounds<2>> set{b, b, Bounds<2>::one()};
    EXPECT_EQ(set.size(), 2u);
}

TEST(Row125_Bounds, compares_and_cuts_boxes) {
    const Bounds<2> b(Range<>(1, 3), Range<>(4, 9));
    const Bounds<2> far(Range<>(10, 12), Range<>(4, 9));
    EXPECT_EQ(b.intersection(Bounds<2>(Range<>(2, 9), Range<>(0, 5))), Bounds<2>(Range<>(2, 3), Range<>(4, 5)));
    EXPECT_TRUE(b.intersection(far).is_empty());
    EXPECT_EQ(b.unite(far), Bounds<2>(Range<>(1, 12), Range<>(4, 9)));
    EXPECT_EQ(b.unite(Bounds<2>::empty()), b);
    EXPECT_EQ(Bounds<2>::empty().unite(b), b);
    EXPECT_TRUE(b.overlaps(b));
    EXPECT_FALSE(b.overlaps(far));
    EXPECT_FALSE(b.overlaps(Bounds<2>(Range<>(2, 2), Range<>(4, 9))));
    EXPECT_TRUE(b.contains(Bounds<2>(Range<>(1, 2), Range<>(4, 9))));
    EXPECT_FALSE(b.contains(far));
    EXPECT_TRUE(b.contains(Bounds<2>::empty()));
    EXPECT_TRUE(b.contains(Point<2>(2, 8)));
    EXPECT_FALSE(b.contains(Point<2>(3, 8)));
    EXPECT_EQ(b.shift_by({-1, 1}), Bounds<2>(Range<>(0, 2), Range<>(5, 10)));
    Bounds<2> head = b;
    EXPECT_EQ(head.split_tail_along(1, 6), Bounds<2>(Range<>(1, 3), Range<>(6, 9)));
    EXPECT_EQ(head, Bounds<2>(Range<>(1, 3), Range<>(4, 6)));
}

TEST(Row125_Vectors, fixed_vectors_check_their_index) {
    fixed_vector<int, 3> v(1, 2, 3);
    v[2] = 5;
    EXPECT_EQ(v.z, 5);
    EXPECT_THROW(v[3], std::out_of_range);
    EXPECT_THROW((fixed_vector<int, 0>()[0]), std::out_of_range);
    EXPECT_EQ(std::vector<int>(v.begin(), v.end()), (std::vector<int>{1, 2, 5}));
    EXPECT_EQ((fixed_vector<int, 2>::fill(4)), (fixed_vector<int, 2>(4, 4)));
    EXPECT_EQ(printed(v), "{1, 2, 5}");
    EXPECT_EQ(std::hash<Point<2>>()(Point<2>(1, 2)), std::hash<Point<2>>()(Point<2>(1, 2)));
}

TEST(Row125_Vectors, small_vectors_own_their_elements_inside_and_outside) {
    small_vector<std::shared_ptr<int>, 2> v;
    const auto tracked = std::make_shared<int>(1);
    for (int i = 0; i < 5; i++) v.push_back(tracked);
    EXPECT_EQ(tracked.use_count(), 6);
    small_vector<std::shared_ptr<int>, 2> copy = v;
    EXPECT_EQ(tracked.use_count(), 11);
    small_vector<std::shared_ptr<int>, 2> moved = std::move(copy);
    EXPECT_EQ(tracked.use_count(), 11);
    EXPECT_TRUE(copy.is_empty());  // NOLINT: a moved vector is empty
    moved.resize(1);
    EXPECT_EQ(tracked.use_count(), 7);
    v = moved;
    EXPECT_EQ(tracked.use_count(), 3);
    small_vector<std::shared_ptr<int>, 2> local{tracked};
    v = std::move(local);
    EXPECT_EQ(v.size(), 1u);
    v.pop_back();
    moved.clear();
    EXPECT_EQ(tracked.use_count(), 1);
    EXPECT_THROW(v[0], std::out_of_range);
    EXPECT_THROW(v.back(), std::out_of_range);
    EXPECT_THROW(v.pop_back(), std::out_of_range);
}

struct CountsMoves {
    static inline std::size_t moves = 0;
    CountsMoves() = default;
    CountsMoves(const CountsMoves&) = default;
    CountsMoves(CountsMoves&&) noexcept { moves++; }
};

TEST(Row125_Vectors, small_vectors_that_grow_one_by_one_move_their_elements_in_proportion) {
    const auto moves_of = [](std::size_t n) {
        CountsMoves::moves = 0;
        small_vector<CountsMoves, 2> v;
        for (std::size_t i = 0; i < n; i++) v.resize(v.size() + 1);
        return CountsMoves::moves;
    };
    EXPECT_LE(moves_of(1000), 2000u);
    EXPECT_LE(moves_of(2000), 4000u);
}

TEST(Row125_Vectors, small_vectors_behave_like_sequences) {
    small_vector<int, 2> v{1, 2};
    EXPECT_EQ(v.capacity(), 2u);
    v.insert_all(std::vector<int>{3, 4, 5});
    EXPECT_EQ(v, (small_vector<int, 8>{1, 2, 3, 4, 5}));
    EXPECT_NE(v, (small_vector<int, 2>{1}));
    EXPECT_EQ(v.front() + v.back(), 6);
    v.push_back(v[0]);
    EXPECT_EQ(v.back(), 1);
    v.resize(8, 9);
    EXPECT_EQ(v[7], 9);
    v.truncate(2);
    v.reserve(100);
    EXPECT_GE(v.capacity(), 100u);
    EXPECT_EQ(printed(v), "{1, 2}");
    small_vector<int, 0> none;
    none.push_back(3);
    EXPECT_EQ(none[0], 3);
    small_vector<int, 2>& self = v;
    v = self;
    EXPECT_EQ(v.size(), 2u);
    EXPECT_EQ((std::hash<small_vector<int, 2>>()(v)), (std::hash<small_vector<int, 4>>()(small_vector<int, 4>{1, 2})));
}

TEST(Row125_KeyValue, is_ordered_by_value_then_key) {
    using KV = kmm::KeyValue<double>;
    EXPECT_LT((KV{5, 1.0}), (KV{0, 2.0}));
    EXPECT_LT((KV{4, 1.0}), (KV{5, 1.0}));
    EXPECT_FALSE((KV{5, 1.0}) < (KV{5, 1.0}));
    EXPECT_GE((KV{5, 1.0}), (KV{5, 1.0}));
    EXPECT_EQ((KV{5, 1.0}), (KV{5, 1.0}));
    EXPECT_NE((KV{5, 1.0}), (KV{6, 1.0}));
    EXPECT_EQ(printed(kmm::KeyValue<int>{3, 4}), "{3: 4}");
}

TEST(Row125_Math, comparisons_are_right_for_mixed_signs) {
    EXPECT_TRUE(kmm::is_less(-1, 1u));
    EXPECT_FALSE(kmm::is_less(1u, -1));
    EXPECT_FALSE(kmm::is_equal(-1, std::numeric_limits<std::uint32_t>::max()));
    EXPECT_TRUE(kmm::is_equal(7, std::uint64_t(7)));
    EXPECT_TRUE(kmm::in_range<std::int8_t>(-128));
    EXPECT_FALSE(kmm::in_range<std::int8_t>(128u));
    EXPECT_FALSE(kmm::in_range<std::uint64_t>(-1));
    EXPECT_TRUE(kmm::is_convertible<int>(3.0));
    EXPECT_FALSE(kmm::is_convertible<int>(3.5));
    EXPECT_FALSE(kmm::is_convertible<int>(1e10));
    EXPECT_FALSE(kmm::is_convertible<int>(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_FALSE(kmm::is_convertible<std::int64_t>(9223372036854775808.0));
    EXPECT_TRUE(kmm::is_convertible<float>(1 << 24));
    EXPECT_FALSE(kmm::is_convertible<float>((1 << 24) + 1));
    EXPECT_FALSE(kmm::is_convertible<double>(int64_max));
    EXPECT_FALSE(kmm::is_convertible<float>(0.1)) << "the nearest float is another number";
    EXPECT_FALSE(kmm::is_convertible<float>(1e300));
    EXPECT_TRUE(kmm::is_convertible<bool>(1));
    EXPECT_FALSE(kmm::is_convertible<bool>(2));
}

TEST(Row125_Math, checked_arithmetic_throws_where_a_result_does_not_fit) {
    EXPECT_EQ(kmm::checked_cast<int>(5L), 5);
    EXPECT_THROW(kmm::checked_cast<int>(int64_max), std::overflow_error);
    EXPECT_THROW(kmm::checked_cast<unsigned>(-1), std::overflow_error);
    EXPECT_EQ(kmm::checked_add(1, 2L), 3L);
    EXPECT_THROW(kmm::checked_add(int64_max, std::int64_t(1)), std::overflow_error);
    EXPECT_THROW(kmm::checked_sub(0u, 1u), std::overflow_error);
    EXPECT_THROW(kmm::checked_sub(int64_min, std::int64_t(1)), std::overflow_error);
    EXPECT_THROW(kmm::checked_mul(int64_max, std::int64_t(2)), std::overflow_error);
    EXPECT_THROW(kmm::checked_mul(int64_min, std::int64_t(-1)), std::overflow_error);
    EXPECT_EQ(kmm::checked_neg(5), -5);
    EXPECT_THROW(kmm::checked_neg(int64_min), std::overflow_error);
    EXPECT_THROW(kmm::checked_add(std::int8_t(127), std::int8_t(1)), std::overflow_error);
    const std::vector<std::int64_t> v{2, 3, 4};
    EXPECT_EQ(kmm::checked_sum(v.begin(), v.end()), 9);
    EXPECT_EQ(kmm::checked_product(v.begin(), v.end()), 24);
    const std::vector<std::int64_t> large{int64_max, 2};
    EXPECT_THROW(kmm::checked_sum(large.begin(), large.end()), std::overflow_error);
    EXPECT_THROW(kmm::checked_product(large.begin(), large.end()), std::overflow_error);
}

TEST(Row125_Math, integers_are_rounded_as_said) {
    EXPECT_EQ(kmm::div_floor(-7, 2), -4);
    EXPECT_EQ(kmm::div_floor(7, -2), -4);
    EXPECT_EQ(kmm::div_floor(-8, 2), -4);
    EXPECT_EQ(kmm::div_floor(7u, 2u), 3u);
    EXPECT_EQ(kmm::div_ceil(7, 2), 4);
    EXPECT_EQ(kmm::div_ceil(-7, 2), -3);
    EXPECT_EQ(kmm::div_ceil(int64_max, std::int64_t(2)), int64_max / 2 + 1);
    EXPECT_EQ(kmm::round_up_to_multiple(13, 5), 15);
    EXPECT_EQ(kmm::round_up_to_multiple(15, 5), 15);
    EXPECT_THROW(kmm::round_up_to_multiple(int64_max, std::int64_t(1000)), std::overflow_error);
    EXPECT_EQ(kmm::round_up_to_power_of_two(17), 32);
    EXPECT_EQ(kmm::round_up_to_power_of_two(32), 32);
    EXPECT_EQ(kmm::round_up_to_power_of_two(0), 1);
    EXPECT_THROW(kmm::round_up_to_power_of_two(int64_max), std::overflow_error);
    EXPECT_TRUE(kmm::is_power_of_two(64));
    EXPECT_FALSE(kmm::is_power_of_two(0));
    EXPECT_FALSE(kmm::is_power_of_two(-4));
    EXPECT_FALSE(kmm::is_power_of_two(6));
}

TEST(Row125_Hash, combinations_depend_on_values_and_order) {
    EXPECT_EQ(kmm::hash_fields(1, 2), kmm::hash_fields(1, 2));
    EXPECT_NE(kmm::hash_fields(1, 2), kmm::hash_fields(2, 1));
    const std::vector<int> v{1, 2, 3};
    EXPECT_EQ(kmm::hash_range(v.begin(), v.end()), kmm::hash_range(v.begin(), v.end()));
    std::unordered_set<std::size_t> hashes;
    for (int x = 0; x < 100; x++) {
        for (int y = 0; y < 100; y++) hashes.insert(kmm::hash_fields(x, y));
    }
    EXPECT_EQ(hashes.size(), 10000u);
}

TEST(Row125_Macros, are_always_defined) {
    static_assert(KMM_IS_DEVICE == 0 && KMM_IS_RTC == 0 && KMM_BOUNDS_CHECK == 0);
    static_assert(KMM_VERSION == KMM_VERSION_MAJOR * 10000 + KMM_VERSION_MINOR * 100 + KMM_VERSION_PATCH);
    const int KMM_CONCAT(na, me) = 3;
    KMM_ASSUME(name == 3);
    EXPECT_TRUE(KMM_LIKELY(name == 3) && !KMM_UNLIKELY(name == 4));
    struct Fixed {
        KMM_NOT_COPYABLE_OR_MOVABLE(Fixed)
      public:
        Fixed() = default;
    };
    static_assert(!std::is_copy_constructible_v<Fixed> && !std::is_move_constructible_v<Fixed>);
}

TEST(Row125_DataType, names_and_sizes_of_scalars) {
    EXPECT_EQ(printed(ScalarType::Complex16), "Complex16");
    EXPECT_EQ(printed(ScalarType::Float32), "Float32");
    EXPECT_EQ(printed(ScalarType::Invalid), "Invalid");
    EXPECT_EQ(DataType::of<float>().as_scalar(), ScalarType::Float32);
    EXPECT_EQ(DataType::of<const float>(), DataType::of(ScalarType::Float32));
    EXPECT_EQ(DataType::of<long long>(), DataType::of<long>());
    EXPECT_EQ(DataType::of<std::uint16_t>().name(), "Uint16");
    EXPECT_EQ(DataType::of<std::uint16_t>().c_name(), "uint16_t");
    EXPECT_EQ(DataType::of<std::complex<double>>().as_scalar(), ScalarType::Complex64);
    EXPECT_EQ(DataType::of<std::complex<double>>().size_in_bytes(), 16u);
    EXPECT_EQ(DataType::of<Dual>().as_scalar(), ScalarType::Complex32) << "declared";
    EXPECT_EQ(DataType::of(ScalarType::Float16).size_in_bytes(), 2u);
    EXPECT_EQ(DataType::of(ScalarType::Float64).alignment(), alignof(double));
    EXPECT_EQ(DataType::of<kmm::KeyValue<double>>().as_scalar(), ScalarType::KeyAndFloat64);
    EXPECT_EQ(DataType::of<kmm::KeyValue<float>>().key_value_scalar(), ScalarType::Float32);
    EXPECT_EQ(DataType::of<float>().key_value_scalar(), ScalarType::Invalid);
    EXPECT_EQ(DataType::of<bool>().as_scalar(), ScalarType::Invalid);
    EXPECT_EQ(DataType::of<float>().type_info(), typeid(float));
}

struct Particle {
    double position[3];
};

TEST(Row125_DataType, other_types_are_told_apart_by_their_names) {
    EXPECT_EQ(DataType::of<Particle>().as_scalar(), ScalarType::Invalid);
    EXPECT_EQ(DataType::of<Particle>().size_in_bytes(), sizeof(Particle));
    EXPECT_NE(DataType::of<Particle>().name().find("Particle"), std::string::npos);
    EXPECT_EQ(DataType::of<Particle>(), DataType::of<const Particle>());
    EXPECT_NE(DataType::of<Particle>(), DataType::of<double>());
    EXPECT_NE(DataType::of<Particle>(), DataType());
    EXPECT_EQ(DataType().size_in_bytes(), 0u);
    EXPECT_EQ(DataType().name(), "Invalid");
    EXPECT_EQ(printed(kmm::Reduction::BitOr), "BitOr");
}

}  // namespace
