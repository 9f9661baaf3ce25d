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
    static_assert(std::is_convertible_v<fixed_vector<long, 1>, long> &&
                      !std::is_convertible_v<fixed_vector<long, 2>, long>,
                  "of one element");
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

TEST(Identifiers, a_number_is_a_stream_and_a_mask_says_so) {
    static_assert(DeviceStreamSet::MAX_SIZE == 64);
    const DeviceStreamSet set = DeviceStreamSet::from_mask(0b101);
    EXPECT_EQ(set, (DeviceStreamSet{0, 2}));
    EXPECT_EQ(DeviceStreamSet(3), DeviceStreamSet{3});
    const DeviceStreamSet three = 3;
    EXPECT_EQ(three.bits(), 0b1000u);
    EXPECT_TRUE(DeviceStreamSet(64).is_empty() && DeviceStreamSet(-1).is_empty());
    EXPECT_EQ(kmm::ResourceId(DeviceId(1), 3).stream_affinity(), three);
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
    static_assert(!std::is_constructible_v<kmm::View<double, 2>, kmm::Subview<double, 2>> &&
                      !std::is_constructible_v<kmm::View<double>, kmm::GPUView<double>> &&
                      !std::is_constructible_v<kmm::View<double>, kmm::ViewMut<double, 2>>,
                  "a view that does not convert does not become an empty one");
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

// ---- as KMM's tests and its users write it

TEST(Boxes, of_other_ranks_are_taken_where_nothing_is_lost) {
    const Dim<3> size = Dim<2>{2, 3};
    const Point<3> point = Point<2>{2, 3};
    const Bounds<3> box = Bounds<2>{2, 3};
    EXPECT_EQ(size, Dim<3>(2, 3, 1));
    EXPECT_EQ(point, Point<3>(2, 3, 0));
    EXPECT_EQ(box, Bounds<3>(2, 3, 1));
    EXPECT_THROW((Dim<1>(Dim<2>{2, 3})), std::overflow_error);
    const auto volume = [](Dim<3> d) { return d.volume(); };
    EXPECT_EQ(volume(Dim<2>{2, 3}), 6);
    EXPECT_TRUE((Dim<2>{2, 1}.is_convertible_to<1, int>()) && !(Dim<2>{2, 3}.is_convertible_to<1, int>()));
    EXPECT_TRUE((Point<2>{2, 0}.is_convertible_to<1, int>()) && !(Point<2>{2, 1}.is_convertible_to<1>()));
    EXPECT_FALSE((Point<2>{int64_max, 0}.is_convertible_to<3, int>()));
    EXPECT_TRUE((Bounds<2>{7, 1}.is_convertible_to<1, int>()) && !(Bounds<2>{7, 2}.is_convertible_to<1, int>()));
    const kmm::DomainBounds domain(Dim<2>{2, 3});
    EXPECT_EQ(domain, Bounds<3>(2, 3, 1));
}

TEST(Boxes, are_compared_with_sizes) {
    const Bounds<2> b{Range<>(1, 3), Range<>(2, 5)};
    EXPECT_TRUE(b.overlaps(Dim<2>{2, 3}) && !b.contains(Dim<2>{2, 3}));
    EXPECT_TRUE(Bounds<2>(3, 4).contains(Dim<2>{3, 4}) && !Bounds<2>(3, 4).contains(Dim<2>{3, 5}));
}

TEST(Vectors, of_one_element_are_numbers) {
    fixed_vector<int, 1> v;
    v = 5;
    const int x = v;
    EXPECT_EQ(x, 5);
    EXPECT_EQ(v, (fixed_vector<int, 1>(5)));
}

TEST(Vectors, try_to_grow) {
    small_vector<int, 2> v{1, 2};
    EXPECT_TRUE(v.try_push_back(4) && v.try_grow_capacity(10));
    EXPECT_GE(v.capacity(), 10u);
    EXPECT_FALSE(v.try_grow_capacity(static_cast<std::size_t>(-1) / 2)) << "more than there is";
    EXPECT_EQ(v, (small_vector<int, 2>{1, 2, 4}));
    kmm::byte_buffer bytes;
    bytes.push_back(1);
    EXPECT_EQ(bytes.size(), 1u);
}

TEST(Numbers, have_all_comparisons) {
    EXPECT_TRUE(kmm::is_less_equal(-1, 0U) && kmm::is_less_equal(3, 3.0) && !kmm::is_less_equal(4, 3.5));
    EXPECT_TRUE(kmm::is_greater(0U, -1) && !kmm::is_greater(3, 3U) && kmm::is_greater_equal(3, 3U));
    EXPECT_TRUE(kmm::is_not_equal(-1, static_cast<unsigned>(-1)));
    const double none = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(kmm::is_less_equal(none, 1) || kmm::is_greater_equal(none, 1) || kmm::is_greater(none, 1));
    EXPECT_TRUE(kmm::is_not_equal(none, none));
}

TEST(Numbers, ranges_have_the_type_of_their_bounds) {
    static_assert(std::is_same_v<decltype(Range(5)), Range<int>> &&
                  std::is_same_v<decltype(Range(1, 5L)), Range<long>>);
    const kmm::index_t i = 3;
    const kmm::default_index_type j = 4;
    EXPECT_EQ(Range(i, j).size(), 1);
    EXPECT_EQ(Range(-2'000'000'000, 2'000'000'000).size(), 4'000'000'000);
    EXPECT_EQ(Range(short{-20'000}, short{20'000}).size(), 40'000);
    const std::vector<int> five(5);
    EXPECT_EQ(Range(i - 4, five.size()).begin, -1);
}

TEST(Numbers, are_made_of_identifiers) {
    EXPECT_EQ(static_cast<std::uint64_t>(kmm::EventId(7)), 7u);
    EXPECT_EQ(static_cast<std::uint64_t>(kmm::BufferId(8)), 8u);
    EXPECT_EQ(static_cast<std::uint8_t>(kmm::NodeId(9)), 9u);
    EXPECT_EQ(static_cast<std::size_t>(kmm::Axis(2)), 2u);
    EXPECT_EQ(kmm::Hasher<int>()(3), kmm::Hasher<>()(3));
    const kmm::KeyValue<float> kv(3, 1.5F);
    EXPECT_TRUE(kv.key == 3 && kv.value == 1.5F);
}

struct Movable {
    KMM_NOT_COPYABLE(Movable)
  public:
    Movable() = default;
};
struct Fixed {
    KMM_NOT_COPYABLE_OR_MOVABLE(Fixed)
  public:
    Fixed() = default;
};
static_assert(std::is_move_constructible_v<Movable> && std::is_move_assignable_v<Movable>);
static_assert(!std::is_copy_constructible_v<Movable> && !std::is_copy_assignable_v<Movable>);
static_assert(!std::is_move_constructible_v<Fixed> && !std::is_copy_assignable_v<Fixed>);

TEST(Mappings, are_called_and_taken_apart) {
    using namespace kmm::placeholders;
    const kmm::DomainChunk chunk{kmm::ResourceId::host(), {2}, {3}};
    EXPECT_EQ(_x(chunk), Range<>(2, 5));
    EXPECT_EQ(_x(chunk, Bounds<1>(4)), Bounds<1>(Range<>(2, 4)));
    EXPECT_EQ((_x + 1)(chunk, Bounds<1>(4)), Bounds<1>(Range<>(3, 4)));
    EXPECT_EQ((kmm::IdentityMap()(chunk, Bounds<2>(4, 9))), Bounds<2>(Range<>(2, 4), Range<>(0, 1)));
    EXPECT_EQ(kmm::IdentityMap()(chunk), Bounds<3>(Range<>(2, 5), 1, 1));
    EXPECT_EQ(kmm::all(chunk, Bounds<2>(4, 9)), Bounds<2>(4, 9));
    const auto map = bounds(_y, _x + 1);
    EXPECT_EQ(map.axes[1](chunk), Range<>(3, 6));
}

TEST(Mappings, print_as_they_could_be_written) {
    using namespace kmm::placeholders;
    const auto printed = [](const auto& map) {
        std::ostringstream stream;
        stream << map;
        return stream.str();
    };
    EXPECT_EQ(printed(_x), "_x");
    EXPECT_EQ(printed(_), "_");
    EXPECT_EQ(printed(kmm::one_to_one), "one_to_one");
    EXPECT_EQ(printed(2 * _y - 1), "2 * _y - 1");
    EXPECT_EQ(printed((_x + 3) / 2), "(_x + 3) / 2");
    EXPECT_EQ(printed((_x / 2) * 2), "2 * (_x / 2)");
    EXPECT_EQ(printed(9 - _z), "-_z + 9");
    EXPECT_EQ(printed(range(_x - 1, _x + 2)), "range(_x - 1, _x + 2)");
    EXPECT_EQ(printed(kmm::range(3, 7)), "range(3, 7)");
    EXPECT_EQ(printed(kmm::IndexMap::constant(4)), "4");
    EXPECT_EQ(printed(kmm::Axis(5)), "Axis(5)");
    EXPECT_EQ(printed(bounds(_y, range(0, _x))), "bounds(_y, range(0, _x))");
}

TEST(Views, say_how_large_they_are_by_signed_numbers) {
    float x[6] = {};
    const kmm::View<float> v(x, {{4}});
    static_assert(std::is_signed_v<decltype(v.size())> && std::is_signed_v<decltype(v.size(0))>);
    int i = -1, count = 0;
    EXPECT_TRUE(i < v.size());
    for (auto k = v.size() - 1; k >= 0; k--) count++;
    EXPECT_EQ(count, 4);
    const kmm::Subview<float, 2> sizes_alone = {x, {{2, 3}}};
    EXPECT_EQ(sizes_alone.bounds(), Bounds<2>(2, 3));
    const kmm::Subview<float> one = {x, {{6}}};
    EXPECT_EQ(one.size(), 6);
    const kmm::View<float, 2> c(x, {{2, 3}});
    EXPECT_EQ(c.linearize_index({1, 2}), 5);
    EXPECT_EQ(c.linearize_index({1, 2}, c.data()), x + 5);
    static_assert(
        std::is_same_v<kmm::ViewStrided<float, 2, kmm::views::device_accessor>, kmm::GPUViewStrided<float, 2>>);
    static_assert(std::is_same_v<kmm::View<float, 2, kmm::views::default_layout, kmm::views::device_accessor>,
                                 kmm::GPUView<float, 2>>);
}

TEST(Views, with_static_offsets_do_not_become_views_without) {
    using Moved = kmm::AbstractView<float, kmm::views::static_offset<kmm::views::dynamic_domain<1>, 5>>;
    static_assert(!std::is_convertible_v<Moved, kmm::View<float>> && std::is_convertible_v<Moved, kmm::Subview<float>>);
}

TEST(Views, static_offsets_and_sizes_become_dynamic_ones_with_all_elements) {
    using namespace kmm;
    using Static = views::static_offset<views::static_domain<views::default_index_type, 10, 20>, 3, 7>;
    std::vector<int> memory(200);
    const AbstractView<int, Static> s{memory.data()};
    const AbstractView<int, views::static_offset<views::dynamic_domain<2>, 3, 7>> d(s);
    EXPECT_EQ(d.size(), 200);
    EXPECT_EQ(d.begin(1), 7);
    EXPECT_EQ(&d(12, 26), &memory[199]);
}

TEST(Domains, are_made_by_calls_and_by_conversions) {
    const auto rt = small_runtime();
    const kmm::Domain tiles = kmm::TileDomain(10, 3)(rt.info(), kmm::ExecutionSpace::Host);
    EXPECT_EQ(tiles.chunks.size(), 4u);
    struct Halves {
        operator kmm::Domain() const {
            return {{{kmm::ResourceId::host(), {0}, {5}}, {kmm::ResourceId::host(), {5}, {5}}}};
        }
    };
    using namespace kmm::placeholders;
    kmm::Array<float> a{10};
    rt.parallel_submit(Halves(), kmm::Host([](kmm::SubviewMut<float> v) {
                           for (auto i = v.begin(); i < v.end(); i++) v[i] = float(i);
                       }),
                       write(a[_x]));
    EXPECT_EQ(a.distribution().num_chunks(), 2u);
    EXPECT_EQ(a.copy_to_vector()[9], 9.0F);
}

TEST(Runtimes, are_shared_by_pointers) {
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_device_memory = std::size_t{64} << 20;
    const std::shared_ptr<kmm::Runtime> worker = kmm::make_worker(config);
    const kmm::RuntimeHandle rt(worker);
    EXPECT_EQ(&rt.worker(), worker.get());
    EXPECT_EQ(rt.worker().shared_from_this(), worker);
    const kmm::Array<float> a = rt.allocate({1.0F, 2.0F});
    const auto instance = a.instance().shared_from_this();
    float values[2] = {};
    instance->copy_bytes_into(values);
    EXPECT_EQ(values[1], 2.0F);
}

TEST(Arrays, are_allocated_with_a_shape_in_braces) {
    const auto rt = small_runtime();
    const float d[6] = {1, 2, 3, 4, 5, 6};
    const auto line = rt.allocate(d, {6});
    const auto grid = rt.allocate<2>(d, {2, 3});
    const auto there = rt.allocate<2>(d, {2, 3}, MemoryId(DeviceId(0)));
    EXPECT_TRUE(line.rank() == 1 && line.size() == 6 && grid.rank() == 2);
    EXPECT_EQ(there.copy_to_vector(), grid.copy_to_vector());
    EXPECT_EQ(rt.allocate(d, {6}, MemoryId::host()).copy_to_vector(), line.copy_to_vector());
}

struct Field : kmm::Array<float> {
    explicit Field(long n) : kmm::Array<float>(Dim<1>(n)) {}
    int tag = 3;
};

struct HasSizes {
    operator kmm::Dim<2>() const { return {3, 4}; }
};
struct HasConstant {
    const int constant = 1;
    HasConstant() = default;
    KMM_NOT_COPYABLE(HasConstant)
};

TEST(Arrays, are_made_of_everything_that_is_a_shape) {
    const auto rt = small_runtime();
    const kmm::Dim<2> shape(3, 4);
    EXPECT_EQ((rt.array<float, 2>(kmm::Dim<2, int>(3, 4)).size()), shape);
    EXPECT_EQ((rt.array<float, 2>(kmm::fixed_vector<long, 2>{3, 4}).size()), shape);
    EXPECT_EQ((rt.array<float, 2>(HasSizes()).size()), shape);
    static_assert(std::is_move_constructible_v<HasConstant>);
}

TEST(Arrays, of_a_derived_class_are_used_as_arrays) {
    using namespace kmm::placeholders;
    const auto rt = small_runtime();
    Field a(100), b(100);
    rt.parallel_submit(100, 30, kmm::Host([](kmm::Range<std::int64_t> r, kmm::SubviewMut<float> v) {
                           for (auto i = r.begin; i < r.end; i++) v[i] = float(i);
                       }),
                       _x, write(a[_x]));
    rt.submit(kmm::ResourceId::host(), kmm::Host([](kmm::View<float> x, kmm::View<float> same, kmm::ViewMut<float> y) {
                  for (long i = 0; i < x.size(); i++) y[i] = x[i] + 2 * same[i];
              }),
              a, read(a), write(b));
    EXPECT_EQ(b.copy_to_vector()[99], 297.0F);
}

}  // namespace
