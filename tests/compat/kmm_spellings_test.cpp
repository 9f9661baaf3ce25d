// Spellings that programs written for KMM 0.3 have: each compiles, and means what it meant there. Kernel parameters of
// the program's own types have a test of their own among those of the runtime. C++17.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kmm/kmm.hpp"

namespace {

using kmm::Bounds;
using kmm::DeviceId;
using kmm::DeviceStreamSet;
using kmm::Dim;
using kmm::fixed_vector;
using kmm::MemoryId;
using kmm::Point;
using kmm::Range;
using kmm::small_vector;

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

kmm::RuntimeHandle small_runtime() {
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_device_memory = std::size_t{64} << 20;
    config.host_memory_limit = std::size_t{256} << 20;
    return kmm::make_runtime(config);
}

// ---- Dim<1> and Point<1> are numbers

TEST(SizesOfOneAxis, are_numbers) {
    const kmm::Array<float> a{10};
    const long n = a.size();
    EXPECT_EQ(n, 10);
    const std::vector<float> v(a.size());
    EXPECT_EQ(v.size(), 10u);
    const std::vector<float> filled(a.size(), 2.0F);
    EXPECT_EQ(filled.back(), 2.0F);
    int below = 0;
    for (int i = 0; i < a.size(); i++) below++;
    EXPECT_EQ(below, 10);
    EXPECT_EQ(a.size() / 3, 3);
    EXPECT_EQ(2 * a.size() + 1, 21);
    EXPECT_TRUE(a.size() == 10 && 10 == a.size() && a.size() != 11 && a.size() > 9 && a.size() <= 10L);
    EXPECT_EQ(static_cast<int>(a.size()), 10);
    const std::size_t bytes = static_cast<std::size_t>(a.size()) * sizeof(float);
    EXPECT_EQ(bytes, 40u);
}

TEST(SizesOfOneAxis, hold_for_points_and_other_element_types) {
    const Point<1> p = 4;
    EXPECT_TRUE(p == 4 && 4 == p && p != 5 && p < 5 && p == 4U);
    const Point<1, int> small(7);
    const int i = small;
    EXPECT_EQ(i, 7);
    const float values[] = {0, 1, 2, 3, 4};
    EXPECT_EQ(values[p], 4.0F);
    static_assert(std::is_convertible_v<Dim<1>, long> && std::is_convertible_v<Dim<1, int>, int>);
    static_assert(!std::is_convertible_v<Dim<2>, long> && !std::is_convertible_v<Dim<0>, long>,
                  "only one axis is a number");
    static_assert(!std::is_convertible_v<fixed_vector<long, 1>, long>, "a vector is no number");
    static_assert(Dim<1>(5) + 1 == 6, "usable in constant expressions");
}

TEST(SizesOfOneAxis, are_sizes_of_other_things) {
    const kmm::Array<float> a{10};
    const kmm::Array<float> same{a.size()};
    const kmm::Array<float> round(a.size());
    const kmm::Array<float, 2> square{{a.size(), a.size()}};
    EXPECT_EQ(same.size(), a.size());
    EXPECT_EQ(round.size(), 10);
    EXPECT_EQ(square.size(), Dim<2>(10, 10));
    EXPECT_EQ(Dim<2>(a.size(), 3), Dim<2>(10, 3));
    EXPECT_EQ((Dim<1, int>(a.size())), 10);
    EXPECT_EQ(Bounds<1>(a.size()), Bounds<1>(10));
    EXPECT_EQ(Range<>(2, a.size()), Range<>(2, 10));
    EXPECT_EQ(kmm::DomainDim(a.size()), kmm::DomainDim(10));
    EXPECT_EQ(kmm::DomainDim(a.size(), 4), kmm::DomainDim(10, 4));
    EXPECT_EQ(kmm::TileDomain(a.size(), 4).size, kmm::DomainDim(10));
}

TEST(SizesOfOneAxis, are_converted_with_a_check) {
    const Dim<1> large(300);
    EXPECT_THROW((Dim<1, std::int8_t>(large)), std::overflow_error);
    EXPECT_THROW((Dim<2, std::int8_t>(large, 1)), std::overflow_error);
    EXPECT_THROW((Range<std::int8_t>(0, large)), std::overflow_error);
    EXPECT_THROW((kmm::views::dynamic_domain<1, std::int8_t>(large)), std::overflow_error);
}

TEST(SizesOfOneAxis, print_as_before) {
    std::ostringstream text;
    text << Dim<1>(3) << Point<1>(4);
    EXPECT_EQ(text.str(), "{3}{4}");
}

// ---- identifiers

TEST(Identifiers, memories_are_compared_with_devices) {
    const MemoryId on_gpu = DeviceId(1);
    EXPECT_TRUE(on_gpu == DeviceId(1) && DeviceId(1) == on_gpu);
    EXPECT_TRUE(on_gpu != DeviceId(0) && DeviceId(0) != on_gpu);
    EXPECT_FALSE(MemoryId::host(DeviceId(1)) == DeviceId(1));
    EXPECT_TRUE(DeviceId(1) == DeviceId(1) && MemoryId::host() == MemoryId::host(DeviceId(1)));
}

TEST(Identifiers, stream_sets_are_masks) {
    static_assert(DeviceStreamSet::MAX_SIZE == 64);
    const DeviceStreamSet set(0b101);
    EXPECT_EQ(set, (DeviceStreamSet{0, 2}));
    EXPECT_EQ(DeviceStreamSet(std::uint64_t{1} << 63), DeviceStreamSet{63});
    EXPECT_EQ(DeviceStreamSet(0U), DeviceStreamSet());
    EXPECT_EQ(DeviceStreamSet{5}, DeviceStreamSet(0b100000)) << "braces list the streams";
    EXPECT_TRUE(set.contains(2) && !set.contains(1));
    EXPECT_TRUE(set.contains(DeviceStreamSet{2}) && set.contains(set) && set.contains(DeviceStreamSet()));
    EXPECT_FALSE(set.contains(DeviceStreamSet{0, 1}));
    EXPECT_TRUE(DeviceStreamSet::all().contains(set) && !set.contains(DeviceStreamSet::all()));
}

// ---- arrays

TEST(ArrayInstances, are_references) {
    const auto rt = small_runtime();
    kmm::Array<float, 2> a = rt.array<float, 2>({6, 4}, {3, 4});
    static_assert(std::is_lvalue_reference_v<decltype(a.instance())>);
    const kmm::ArrayInstance<2>& instance = a.instance();
    EXPECT_EQ(&instance, &a.instance());
    EXPECT_EQ(instance.distribution().num_chunks(), 2u);
    EXPECT_EQ(&instance.runtime(), &rt.worker());
    EXPECT_EQ(instance.size(), a.size());
    EXPECT_TRUE(instance.data_type() == kmm::DataType::of<float>());
    instance.synchronize();

    const std::vector<float> values(24, 3.0F);
    a.copy_from(values);
    const kmm::Array<float, 2> same(a.instance());
    EXPECT_EQ(same.copy_to_vector(), values) << "one state";
    EXPECT_THROW((kmm::Array<int, 2>(a.instance())), kmm::InvalidArgument);
    EXPECT_THROW(static_cast<void>((kmm::Array<float>{3}.instance())), kmm::InvalidArgument) << "unbound";
}

TEST(ArrayInstances, outlive_what_they_were_copied_from) {
    const auto rt = small_runtime();
    std::shared_ptr<kmm::ArrayInstance<1>> kept;
    {
        const kmm::Array<int> a = rt.allocate({1, 2, 3});
        kept = std::make_shared<kmm::ArrayInstance<1>>(a.instance());
    }
    EXPECT_EQ(kmm::Array<int>(kept).copy_to_vector(), (std::vector<int>{1, 2, 3}));
    const auto made = kmm::ArrayInstance<1>::create(rt.worker(), kmm::Distribution<1>::single(3), kept->data_type());
    EXPECT_FALSE(&kmm::Array<int>(made).instance() == made.get());
    EXPECT_EQ(kmm::Array<int>(made).size(), 3);
}

// ---- views

TEST(Views, are_made_of_a_pointer_and_braces) {
    float values[6] = {0, 1, 2, 3, 4, 5};
    const long n = 6;
    const kmm::View<float> v{values, {{n}}};
    EXPECT_EQ(v.size(), 6u);
    EXPECT_EQ(v[5], 5.0F);
    const kmm::ViewMut<float, 2> m{values, {{2, 3}}};
    EXPECT_EQ(m[1][2], 5.0F);
    const kmm::Subview<float> s{values, {{100}, {6}}};
    EXPECT_EQ(s[103], 3.0F);
    EXPECT_EQ(s.begin(), 100);
    EXPECT_EQ(s.end(), 106);
    const kmm::SubviewMut<float, 2> t{values, {{10, 20}, {2, 3}}};
    EXPECT_EQ(t[11][22], 5.0F);
    const kmm::GPUView<float, 2> g = {values, {{2, 3}}};
    EXPECT_EQ(g.sizes(), Dim<2>(2, 3));
    const kmm::GPUSubviewStrided<float, 2> q{values, {{10, 20}, {2, 3}}};
    EXPECT_EQ(q.stride(0), 3);
}

TEST(Views, are_made_of_a_pointer_alone) {
    double value = 7;
    const kmm::View<double, 0> v{&value};
    EXPECT_EQ(*v, 7.0);
    const kmm::ViewMut<double, 0> w = {&value};
    *w = 8;
    EXPECT_EQ(value, 8.0);
    using Fixed = kmm::AbstractView<double, kmm::views::static_domain<long, 1>>;
    EXPECT_EQ(Fixed{&value}[0], 8.0);
    EXPECT_TRUE(kmm::View<double>{&value}.is_empty()) << "the sizes are the domain's default";
    EXPECT_EQ(kmm::View<double>{&value}.data(), &value);
    static_assert(!std::is_convertible_v<double*, kmm::View<double>>, "a pointer does not become an empty view");
}

TEST(Views, domains_are_compared) {
    const kmm::View<float, 0> none{};
    const kmm::View<float> ten{nullptr, {{10}}};
    const kmm::Subview<float> shifted{nullptr, {{5}, {10}}};
    EXPECT_TRUE(none.domain() == 1 && 1 == none.domain() && none.domain() != 2);
    EXPECT_TRUE(ten.domain() == 10 && 10U == ten.domain() && ten.domain() != 9);
    EXPECT_TRUE(shifted.domain() != 10) << "begins at 5";
    EXPECT_TRUE(shifted.shift_to_origin().domain() == 10);
    EXPECT_TRUE((kmm::views::static_domain<long, 1>() == 1));
    EXPECT_TRUE(ten.domain() == shifted.shift_to_origin().domain());
    EXPECT_TRUE(ten.domain() != shifted.domain());
    EXPECT_TRUE((ten.domain() == kmm::views::static_domain<int, 10>()));
}

// ---- boxes

TEST(Boxes, contain_points_of_every_rank_and_type) {
    const Bounds<2> b(Range<>(1, 3), Range<>(0, 9));
    EXPECT_TRUE(b.contains(1, 0) && b.contains(2, 8) && b.contains(2U, std::int8_t(8)));
    EXPECT_FALSE(b.contains(0, 0) || b.contains(1, 9) || b.contains(1, -1));
    EXPECT_TRUE(b.contains(1)) << "a missing index is 0";
    EXPECT_TRUE(b.contains(1, 0, 0)) << "a missing axis is 0...1";
    EXPECT_FALSE(b.contains(1, 0, 1));
    EXPECT_TRUE(b.contains(Point<1>(2)) && b.contains(Point<3, int>(2, 3, 0)) && !b.contains(Point<3>(2, 3, 1)));
    EXPECT_TRUE(b.contains(Bounds<3, int>(Range<int>(1, 2), 4, 1)));
    EXPECT_FALSE(b.contains(Bounds<3>(Range<>(1, 2), 4, 2)));
    EXPECT_FALSE(b.contains(Bounds<1>(Range<>(0, 1))));
    EXPECT_TRUE(b.contains(Bounds<1>(Range<>(1, 3))));
    EXPECT_TRUE((Bounds<1, int>(5).contains(std::uint64_t(4)) && !Bounds<1, int>(5).contains(int64_max)));
    EXPECT_TRUE(Bounds<0>().contains() && Bounds<0>().contains(0) && !Bounds<0>().contains(1));
    EXPECT_TRUE(Range<int>(3, 7).contains(Range<>(4, 7)) && !Range<int>(3, 7).contains(Range<>(4, int64_max)));
    EXPECT_TRUE(Dim<2>(2, 3).contains(Point<3>(1, 2, 0)) && !Dim<2>(2, 3).contains(Point<3>(1, 2, 1)));
    EXPECT_TRUE(Dim<2>(2, 3).contains(Point<1>(1)) && !Dim<2>(2, 0).contains(Point<1>(1)));
    EXPECT_TRUE(Dim<2>(2, 3).contains(1, 2) && !Dim<2>(2, 3).contains(1, 3));
}

TEST(Boxes, are_compared_across_ranks_and_types) {
    EXPECT_EQ((Bounds<2, int>(3, 1)), Bounds<1>(3));
    EXPECT_NE((Bounds<2, int>(3, 2)), Bounds<1>(3));
    EXPECT_EQ((Bounds<1, int>(3)), Bounds<3>(3, 1, 1));
    EXPECT_EQ((Point<1, int>(3)), Point<3>(3, 0, 0));
    EXPECT_EQ((Dim<1, int>(3)), Dim<3>(3, 1, 1));
    EXPECT_NE((Bounds<1, std::uint64_t>(std::numeric_limits<std::uint64_t>::max())),
              (Bounds<1, int>(Range<int>(0, -1))));
    EXPECT_NE((fixed_vector<int, 2>(1, 0)), (fixed_vector<long, 1>(1))) << "a vector has no default";
    EXPECT_EQ((fixed_vector<int, 2>(1, 0)), (fixed_vector<double, 2>(1, 0)));
    EXPECT_EQ((small_vector<int, 1>{1, 2}), (small_vector<long, 4>{1, 2}));
    EXPECT_NE((small_vector<int, 1>{-1}), (small_vector<unsigned, 4>{~0U}));
}

TEST(Boxes, give_a_default_beyond_their_axes) {
    EXPECT_EQ(Point<2>(1, 2).get_or_default(1, 9), 2);
    EXPECT_EQ(Point<2>(1, 2).get_or_default(2, 9), 9);
    EXPECT_EQ(Dim<2>(1, 2).get_or_default(2, 9), 9);
    EXPECT_EQ(Dim<0>().get_or_default(0, 9), 9);
    EXPECT_EQ(Bounds<1>(4).get_or_default(1, Range<>(2, 3)), Range<>(2, 3));
    EXPECT_EQ(Bounds<1>(4).get_or_default(0, Range<>(2, 3)), Range<>(0, 4));
}

TEST(Boxes, say_what_they_convert_to) {
    EXPECT_TRUE(Point<2>(1, 127).is_convertible_to<std::int8_t>());
    EXPECT_FALSE(Point<2>(1, 128).is_convertible_to<std::int8_t>());
    EXPECT_FALSE(Dim<2>(1, -1).is_convertible_to<unsigned>());
    EXPECT_TRUE(Dim<0>().is_convertible_to<bool>());
    EXPECT_TRUE(Bounds<2>(Range<>(-128, 127), 3).is_convertible_to<std::int8_t>());
    EXPECT_FALSE(Bounds<2>(3, Range<>(-129, 127)).is_convertible_to<std::int8_t>());
    EXPECT_FALSE((fixed_vector<double, 2>(1, 0.5).is_convertible_to<int>()));
}

TEST(Boxes, are_cut_beyond_their_end_without_a_loss) {
    const Bounds<2> whole(Range<>(1, 3), Range<>(4, 9));
    Bounds<2> head = whole;
    EXPECT_TRUE(head.split_tail_along(1, 9).is_empty());
    EXPECT_EQ(head, whole);
    EXPECT_TRUE(head.split_tail_along(0, int64_max).is_empty());
    EXPECT_EQ(head, whole);
    EXPECT_TRUE(head.split_tail_along(2, 1).is_empty()) << "an axis beyond the rank is 0...1";
    EXPECT_EQ(head, whole);
    EXPECT_EQ(head.split_tail_along(5, 0), whole) << "and lies behind 0";
    EXPECT_TRUE(head.is_empty());
}

TEST(Boxes, that_are_empty_are_neutral) {
    const Bounds<2> b(Range<>(1, 3), Range<>(4, 9));
    const Bounds<2> upside_down(Range<>(5, 2), Range<>(4, 9));
    for (const Bounds<2>& nothing : {Bounds<2>::empty(), upside_down, Bounds<2>(Range<>(2, 2), Range<>(0, 100))}) {
        EXPECT_TRUE(b.intersection(nothing).is_empty());
        EXPECT_TRUE(nothing.intersection(b).is_empty());
        EXPECT_TRUE(nothing.intersection(nothing).is_empty());
        EXPECT_EQ(b.unite(nothing), b);
        EXPECT_EQ(nothing.unite(b), b);
        EXPECT_TRUE(nothing.unite(nothing).is_empty());
        EXPECT_FALSE(nothing.overlaps(nothing) || b.overlaps(nothing) || nothing.overlaps(b));
    }
    EXPECT_TRUE(upside_down.unite(Bounds<2>::empty()).is_empty());
    EXPECT_TRUE(Range<>(5, 2).intersection(Range<>(0, 10)).is_empty());
    EXPECT_TRUE(Range<>(0, 3).intersection(Range<>(7, 9)).is_empty());
}

// ---- vectors and hashes

TEST(Vectors, are_joined) {
    const fixed_vector<int, 3> joined = concat(fixed_vector<int, 1>(1), fixed_vector<int, 2>(2, 3));
    EXPECT_EQ(joined, (fixed_vector<int, 3>(1, 2, 3)));
    EXPECT_EQ(concat(fixed_vector<int, 0>(), fixed_vector<int, 1>(5)), (fixed_vector<int, 1>(5)));
    static_assert(std::is_same_v<decltype(concat(Dim<1>(), Dim<1>())), Dim<2>>);
    static_assert(std::is_same_v<decltype(concat(Point<1>(), Point<1>())), Point<2>>);
}

TEST(Vectors, small_ones_say_where_they_are_and_convert) {
    small_vector<int, 2> v{1, 2};
    EXPECT_FALSE(v.is_heap_allocated());
    v.push_back(3);
    EXPECT_TRUE(v.is_heap_allocated());
    const small_vector<long, 8> wide = v;
    EXPECT_FALSE(wide.is_heap_allocated());
    EXPECT_EQ(wide, (small_vector<long, 8>{1, 2, 3}));
    small_vector<int, 1> narrow;
    narrow = small_vector<int, 4>{7, 8};
    EXPECT_EQ(narrow, (small_vector<int, 1>{7, 8}));
    narrow = small_vector<std::int8_t, 2>{4};
    EXPECT_EQ(narrow, (small_vector<int, 1>{4}));
    narrow = {1, 2, 3};
    EXPECT_EQ(narrow.size(), 3u);
    static_assert(!std::is_convertible_v<small_vector<std::string>, small_vector<int>>);
}

TEST(Vectors, hashes_of_ranges_go_on) {
    const std::vector<int> v{1, 2, 3};
    std::size_t one_by_one = 5;
    for (const int x : v) kmm::hash_combine(one_by_one, x);
    std::size_t together = 5;
    kmm::hash_combine_range(together, v.begin(), v.end());
    EXPECT_EQ(together, one_by_one);
}

// ---- numbers

TEST(Numbers, integers_and_fractions_are_compared_exactly) {
    const std::int64_t odd = (std::int64_t{1} << 53) + 1;
    const double even = 9007199254740992.0;  // 2^53; `odd` as a double
    EXPECT_FALSE(kmm::is_equal(odd, even) || kmm::is_equal(even, odd));
    EXPECT_TRUE(kmm::is_less(even, odd) && !kmm::is_less(odd, even));
    EXPECT_TRUE(kmm::is_less(int64_max, 9223372036854775808.0) && !kmm::is_equal(int64_max, 9223372036854775808.0));
    EXPECT_TRUE(kmm::is_less(-1.5, -1) && kmm::is_less(-2, -1.5) && kmm::is_less(1, 1.5) && kmm::is_less(1.5, 2));
    EXPECT_FALSE(kmm::is_less(-1, -1.5) || kmm::is_less(1.5, 1) || kmm::is_less(2, 2.0) || kmm::is_less(2.0, 2));
    EXPECT_TRUE(kmm::is_less(-0.5, 0U) && !kmm::is_less(0U, -0.5) && kmm::is_equal(0U, -0.0) && kmm::is_equal(3.0F, 3));
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(kmm::is_less(int64_max, infinity) && kmm::is_less(-infinity, std::uint64_t(0)));
    EXPECT_FALSE(kmm::is_equal(0, nan) || kmm::is_less(0, nan) || kmm::is_less(nan, 0) || kmm::is_equal(nan, 0));
    EXPECT_TRUE(kmm::is_equal(true, 1.0) && kmm::is_less(true, 1.5));
    static_assert(kmm::is_less(1, 1.5) && kmm::is_equal(2.0, 2), "usable in constant expressions");
}

TEST(Numbers, convert_only_to_what_is_the_same_number) {
    EXPECT_TRUE(kmm::is_convertible<float>(0.5) && !kmm::is_convertible<float>(0.1));
    EXPECT_TRUE(kmm::is_convertible<double>(0.1F));
    EXPECT_TRUE(kmm::is_convertible<float>(std::numeric_limits<double>::infinity()));
    EXPECT_TRUE(kmm::is_convertible<float>(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_FALSE(kmm::is_convertible<float>((1 << 24) + 1) || kmm::is_convertible<int>(0.5));
    EXPECT_EQ(kmm::checked_cast<float>(0.1), 0.1F) << "a rounded value is no overflow";
    EXPECT_THROW(kmm::checked_cast<float>(1e300), std::overflow_error);
    EXPECT_EQ(kmm::checked_convert<int>(5L), 5);
    EXPECT_THROW(kmm::checked_convert<int>(int64_max), std::overflow_error);
    int result = 1;
    EXPECT_TRUE(kmm::checked_convert(5L, &result) && result == 5);
    EXPECT_FALSE(kmm::checked_convert(int64_max, &result) || result != 5);
}

TEST(Numbers, lie_in_a_length) {
    EXPECT_TRUE(kmm::in_range(0, 10) && kmm::in_range(9U, 10L) && kmm::in_range(9, std::size_t{10}));
    EXPECT_FALSE(kmm::in_range(10, 10) || kmm::in_range(-1, std::size_t{10}) || kmm::in_range(0, 0) ||
                 kmm::in_range(0, -5));
    EXPECT_TRUE(kmm::in_range<std::int8_t>(127) && !kmm::in_range<std::int8_t>(128));
}

TEST(Numbers, are_rounded_to_multiples_of_either_sign) {
    EXPECT_EQ(kmm::round_up_to_multiple(-7, -4), -4);
    EXPECT_EQ(kmm::round_up_to_multiple(7, -4), 8);
    EXPECT_EQ(kmm::round_up_to_multiple(-7, 4), -4);
    EXPECT_EQ(kmm::round_up_to_multiple(-8, -4), -8);
    EXPECT_EQ(kmm::round_up_to_multiple(8, -4), 8);
    EXPECT_EQ(kmm::round_up_to_multiple(0, -4), 0);
}

// ---- checks of native calls in plain files

enum vendor_status { vendor_success = 0, vendor_failed = 7 };
enum class scoped_status { success = 0, failed = 9 };

TEST(GpuChecks, compile_in_plain_files) {
    KMM_GPU_CHECK(vendor_success);
    KMM_GPU_CHECK(0);
    KMM_GPU_CHECK(scoped_status::success);
    try {
        KMM_GPU_CHECK(vendor_failed);
        FAIL() << "a failed call was let through";
    } catch (const kmm::GPURuntimeException& error) {
        EXPECT_EQ(error.status, 7);
        EXPECT_NE(std::string(error.what()).find("vendor_failed"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("kmm_spellings_test.cpp"), std::string::npos) << error.what();
    }
    EXPECT_THROW(KMM_GPU_CHECK(scoped_status::failed), kmm::DeviceError);
    const kmm::GPUresult_t failed = 3;
    EXPECT_THROW(KMM_GPU_CHECK(failed), kmm::GPUException);
}

}  // namespace
