// Arrays: shapes, binding, copies to and from the program's memory.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm_test::contains;
using kmm_test::small_runtime;
using kmm_test::text_of;

namespace {

std::vector<int> numbers_up_to(std::size_t n) {
    std::vector<int> result(n);
    std::iota(result.begin(), result.end(), 0);
    return result;
}

}  // namespace

TEST(Arrays, shapes_and_types_are_known_without_a_runtime) {
    kmm::Array<float, 2> m{{3, 4}};
    EXPECT_EQ(m.size(), (kmm::Dim<2>{3, 4}));
    EXPECT_EQ(m.size(1), 4);
    EXPECT_EQ(m.size(5), 1);
    EXPECT_EQ(m.volume(), 12);
    EXPECT_EQ(m.rank(), 2U);
    EXPECT_TRUE(m.type_info() == typeid(float) && m.dtype() == kmm::DataType::of<float>());
    EXPECT_FALSE(m.has_instance());
    EXPECT_TRUE(kmm::Array<int>{0}.is_empty());
    EXPECT_EQ(kmm::Array<int>().volume(), 1);
    EXPECT_EQ(kmm::Scalar<int>().volume(), 1);
    EXPECT_TRUE(contains(text_of<kmm::InvalidArgument>([] { kmm::Array<int, 2>({4, -1}); }), "axis 1 is -1"));
}

TEST(Arrays, what_needs_a_binding_says_how_to_get_one) {
    kmm::Array<int> a{4};
    a.named("flux");
    EXPECT_EQ(a.name(), "flux");
    std::vector<int> v(4);
    for (const std::string& text :
         {text_of<kmm::InvalidArgument>([&] { a.distribution(); }),
          text_of<kmm::InvalidArgument>([&] { a.chunk_size(); }), text_of<kmm::InvalidArgument>([&] { a.instance(); }),
          text_of<kmm::InvalidArgument>([&] { a.fill(3); }), text_of<kmm::InvalidArgument>([&] { a.copy_from(v); })}) {
        EXPECT_TRUE(contains(text, "flux") && contains(text, "rt.allocate")) << text;
    }
    EXPECT_THROW(a.runtime(), kmm::InvalidArgument);
    EXPECT_THROW(a.copy_to(v), kmm::UninitializedRead);
    a.synchronize();
}

TEST(Arrays, copies_of_a_handle_share_later_data_and_reset_detaches_one) {
    auto rt = small_runtime();
    kmm::Array<int> a{4};
    kmm::Array<int> b = a;
    rt.parallel_submit(4, 2, kmm::GPU([](kmm::DeviceResource& d, auto v) { d.fill(v, 9); }), write(a[_x]));
    EXPECT_EQ(b.copy_to_vector(), (std::vector<int>{9, 9, 9, 9}));
    EXPECT_EQ(b.chunk_size(0), 2);
    a.reset();
    EXPECT_FALSE(a.has_instance());
    EXPECT_TRUE(b.has_instance());
}

TEST(Arrays, the_explicit_forms_have_the_distributions_that_they_name) {
    auto rt = small_runtime(2);
    auto blocks = rt.array<int, 2>({5, 3}).distribution();
    EXPECT_EQ(blocks.num_chunks(), 2U);
    EXPECT_EQ(blocks.chunk(0).size, (kmm::Dim<2>{3, 3}));
    EXPECT_EQ(blocks.chunk(1).owner_id, kmm::MemoryId(kmm::DeviceId(1)));
    EXPECT_EQ(rt.array<int>(1).distribution().num_chunks(), 1U);
    auto tiles = rt.array<int>(10, 4).distribution();
    EXPECT_EQ(tiles.num_chunks(), 3U);
    EXPECT_EQ(tiles.chunk(2).size, kmm::Dim<1>(2));
    EXPECT_EQ(tiles.chunk(2).owner_id, kmm::MemoryId(kmm::DeviceId(0)));
    auto irregular = kmm::Distribution<1>::from_chunks(10, {{kmm::MemoryId::host(), 7, 3}, {kmm::DeviceId(1), 0, 7}});
    auto A = rt.array<int>(10, irregular);
    EXPECT_EQ(A.distribution().chunk(0).size.volume() + A.distribution().chunk(1).size.volume(), 10);
    EXPECT_THROW((rt.array<int>(11, irregular)), kmm::InvalidArgument);
    EXPECT_EQ((rt.array<int, 0>({}).distribution().num_chunks()), 1U);
}

TEST(Arrays, an_instance_makes_another_handle_of_the_same_elements_and_type) {
    auto rt = small_runtime();
    auto a = rt.allocate({1, 2, 3});
    kmm::Array<int> b(a.instance());
    a.fill(5);
    EXPECT_EQ(b.copy_to_vector(), (std::vector<int>{5, 5, 5}));
    EXPECT_THROW(kmm::Array<float>(a.instance()), kmm::InvalidArgument);
    auto made = kmm::ArrayInstance<1>::create(
        rt.worker(), kmm::Distribution<1>(10, 5, {kmm::MemoryId::host(), kmm::DeviceId(1)}), kmm::DataType::of<int>());
    EXPECT_EQ(kmm::Array<int>(made).chunk_size(0), 5);
    EXPECT_EQ(&made->runtime(), &rt.worker());
}

TEST(Copies, every_rank_round_trips_over_chunks) {
    auto rt = small_runtime();
    std::vector<int> data = numbers_up_to(4 * 6 * 5);
    auto A = rt.array<int, 3>({4, 6, 5}, {2, 4, 2});
    A.copy_from(data);
    EXPECT_EQ(A.copy_to_vector(), data);
    auto B = rt.array<int, 8>({1, 2, 1, 2, 3, 1, 2, 5}, {1, 1, 1, 2, 2, 1, 1, 4});
    B.copy_from(data.data(), 120);
    std::vector<int> out(120, -1);
    B.copy_to(out.data(), 120U);
    EXPECT_EQ(out, data);
    kmm::Scalar<double> s = rt.array<double, 0>({});
    const double pi = 3.14;
    s.copy_from(&pi);
    EXPECT_EQ(s.get(), pi);
    B.copy_bytes_from(data.data(), 480);
    const kmm::ArrayBase& base = B;
    base.copy_bytes_to(out.data(), 480);
    EXPECT_EQ(out, data);
}

TEST(Copies, sub_regions_are_packed_both_ways) {
    auto rt = small_runtime();
    auto A = rt.array<int, 2>({6, 10}, {4, 3});
    A.copy_from(numbers_up_to(60));
    int out[6] = {};
    A.copy_to(out, kmm::Point<2>(3, 2), kmm::Dim<2>(2, 3));
    const int expected[6] = {32, 33, 34, 42, 43, 44};
    for (int i = 0; i < 6; i++) EXPECT_EQ(out[i], expected[i]);
    const int in[4] = {-1, -2, -3, -4};
    A.copy_from(in, kmm::Bounds<2>(kmm::Range<>(0, 2), kmm::Range<>(8, 10)));
    std::vector<int> all = A.copy_to_vector();
    EXPECT_TRUE(all[8] == -1 && all[9] == -2 && all[18] == -3 && all[19] == -4 && all[7] == 7 && all[20] == 20);
    A.copy_to(nullptr, kmm::Bounds<2>(kmm::Range<>(2, 2), kmm::Range<>(0, 10)));
}

TEST(Copies, views_of_any_layout_are_sources_and_destinations) {
    auto rt = small_runtime();
    const std::vector<int> data = numbers_up_to(60);
    const kmm::View<int, 2> whole(data.data(), kmm::views::dynamic_domain<2>(kmm::Dim<2>(6, 10)));
    auto packed = rt.allocate(whole);
    EXPECT_EQ(packed.copy_to_vector(), data);
    const auto part = kmm::Subview<int, 2>::from_region(
        data.data() + 12, kmm::Bounds<2>(kmm::Range<>(1, 5), kmm::Range<>(2, 6)), whole.strides());
    auto A = rt.allocate(part);
    EXPECT_EQ(A.size(), (kmm::Dim<2>{4, 4}));
    EXPECT_EQ(A.copy_to_vector()[5], 23);
    std::vector<int> transposed(24, 0);
    const long strides[2] = {1, 6};
    const auto columns =
        kmm::ViewStridedMut<int, 2>::from_region(transposed.data(), kmm::Bounds<2>(kmm::Dim<2>(4, 4)), strides);
    A.copy_to(columns);
    EXPECT_TRUE(transposed[0] == 12 && transposed[1] == 22 && transposed[6] == 13 && transposed[21] == 45 &&
                transposed[4] == 0);
    transposed[6] = 99;
    A.copy_from(columns);
    EXPECT_EQ(A.copy_to_vector()[1], 99);
    EXPECT_THROW(packed.copy_to(columns), kmm::InvalidArgument);
    EXPECT_THROW(packed.copy_from(part), kmm::InvalidArgument);
}

TEST(Copies, a_wrong_count_or_region_throws_and_touches_nothing) {
    auto rt = small_runtime();
    auto A = rt.allocate(numbers_up_to(10));
    std::vector<int> out(10, -1);
    const std::string text = text_of<kmm::InvalidArgument>([&] { A.copy_to(out.data(), 9); });
    EXPECT_TRUE(contains(text, "9 elements") && contains(text, "10 elements")) << text;
    EXPECT_THROW(A.copy_to(out.data(), -1), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_bytes_to(out.data(), 10), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_to(out.data(), kmm::Point<1>(8), kmm::Dim<1>(3)), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_to(out.data(), kmm::Bounds<1>(kmm::Range<>(-1, 2))), kmm::InvalidArgument);
    EXPECT_EQ(out, std::vector<int>(10, -1));
    EXPECT_THROW(A.copy_from(out.data(), 11U), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_from(std::vector<int>(9)), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_bytes_from(out.data(), 41), kmm::InvalidArgument);
    EXPECT_THROW(A.copy_from(out.data(), kmm::Bounds<1>(kmm::Range<>(5, 11))), kmm::InvalidArgument);
    EXPECT_EQ(A.copy_to_vector(), numbers_up_to(10));
}

TEST(Copies, a_vector_is_resized_and_zero_elements_are_fine) {
    auto rt = small_runtime();
    auto A = rt.allocate(numbers_up_to(10));
    std::vector<int> out(3);
    A.copy_to(out);
    EXPECT_EQ(out.size(), 10U);
    auto empty = rt.allocate(std::vector<int>());
    EXPECT_TRUE(empty.is_empty());
    empty.copy_from(std::vector<int>());
    EXPECT_TRUE(empty.copy_to_vector().empty());
    kmm::Array<int> unbound{0};
    EXPECT_TRUE(unbound.copy_to_vector().empty());
}

TEST(Copies, the_source_is_free_once_allocate_has_returned) {
    auto rt = small_runtime();
    std::vector<int> data = numbers_up_to(1000);
    auto A = rt.allocate(data.data(), kmm::Dim<1>(1000), kmm::MemoryId(kmm::DeviceId(1)));
    EXPECT_EQ(A.distribution().chunk(0).owner_id, kmm::MemoryId(kmm::DeviceId(1)));
    data.assign(1000, -1);
    data.shrink_to_fit();
    EXPECT_EQ(A.copy_to_vector(), numbers_up_to(1000));
}

TEST(Copies, fill_replaces_every_element_of_every_size) {
    auto rt = small_runtime();
    struct Odd {
        char bytes[5];
    };
    auto A = rt.array<Odd>(7, 3);
    rt.wait(A.fill(Odd{{1, 2, 3, 4, 5}}));
    for (const Odd& element : A.copy_to_vector()) EXPECT_EQ(element.bytes[4], 5);
    auto B = rt.array<double, 2>({3, 3});
    B.fill(0.5);
    EXPECT_EQ(B.copy_to_vector(), std::vector<double>(9, 0.5));
}
