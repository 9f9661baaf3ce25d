// <rmm/device_uvector.hpp>.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/error.hpp"

template class rmm::device_uvector<std::int32_t>;

namespace {

using namespace rmm;

static_assert(!std::is_copy_constructible_v<device_uvector<int>> &&
              !std::is_default_constructible_v<device_uvector<int>>);
static_assert(std::is_nothrow_move_constructible_v<device_uvector<int>>);

template<typename T>
class DeviceUvector : public testing::Test {
  protected:
    cuda_stream stream;
};
using element_types = testing::Types<std::int8_t, std::int32_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(DeviceUvector, element_types);

TYPED_TEST(DeviceUvector, counts_elements) {
    device_uvector<TypeParam> v(12345, this->stream);
    EXPECT_EQ(v.size(), 12345u);
    EXPECT_EQ(v.ssize(), 12345);
    EXPECT_EQ(v.capacity(), 12345u);
    EXPECT_NE(v.data(), nullptr);
    EXPECT_EQ(v.end() - v.begin(), 12345);
    EXPECT_EQ(v.element_ptr(0), v.data());
    EXPECT_EQ(v.element_ptr(12344), v.data() + 12344);
    EXPECT_EQ(v.memory_resource(), mr::get_current_device_resource_ref());
    device_uvector<TypeParam> empty(0, this->stream);
    EXPECT_TRUE(empty.is_empty());
    EXPECT_EQ(empty.begin(), empty.end());
}

TYPED_TEST(DeviceUvector, elements_are_set_and_read) {
    device_uvector<TypeParam> v(100, this->stream);
    for (std::size_t i = 0; i < 100; ++i) v.set_element(i, static_cast<TypeParam>(i), this->stream);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(v.element(i, this->stream), static_cast<TypeParam>(i));
    for (std::size_t i = 0; i < 100; ++i) {
        const auto value = static_cast<TypeParam>(i + 1);
        v.set_element_async(i, value, this->stream);
    }
    EXPECT_EQ(v.front_element(this->stream), static_cast<TypeParam>(1));
    EXPECT_EQ(v.back_element(this->stream), static_cast<TypeParam>(100));
    v.set_element_to_zero_async(50, this->stream);
    EXPECT_EQ(v.element(50, this->stream), TypeParam{0});
    EXPECT_EQ(v.element(49, this->stream), static_cast<TypeParam>(50));
    EXPECT_EQ(v.element(51, this->stream), static_cast<TypeParam>(52));
}

TYPED_TEST(DeviceUvector, an_index_beyond_the_end_throws) {
    device_uvector<TypeParam> v(5, this->stream);
    EXPECT_THROW(v.set_element(5, TypeParam{1}, this->stream), rmm::out_of_range);
    EXPECT_THROW((void)v.element(6, this->stream), rmm::out_of_range);
    EXPECT_THROW(v.set_element_to_zero_async(5, this->stream), rmm::out_of_range);
    device_uvector<TypeParam> empty(0, this->stream);
    EXPECT_THROW((void)empty.front_element(this->stream), rmm::out_of_range);
    try {
        (void)empty.back_element(this->stream);
        FAIL();
    } catch (const rmm::out_of_range& e) {
        const std::string text = e.what();
        const std::string end = "Attempt to access out of bounds element.";
        EXPECT_EQ(text.rfind(end), text.size() - end.size());
    }
}

TYPED_TEST(DeviceUvector, copies_have_their_own_storage) {
    device_uvector<TypeParam> v(10, this->stream);
    for (std::size_t i = 0; i < 10; ++i) v.set_element(i, static_cast<TypeParam>(i), this->stream);
    device_uvector<TypeParam> copy(v, this->stream);
    EXPECT_EQ(copy.size(), 10u);
    EXPECT_NE(copy.data(), v.data());
    EXPECT_EQ(copy.element(7, this->stream), static_cast<TypeParam>(7));
}

TYPED_TEST(DeviceUvector, resizing_reserving_and_shrinking_follow_the_buffer) {
    device_uvector<TypeParam> v(10, this->stream);
    v.set_element(0, TypeParam{9}, this->stream);
    auto* const data = v.data();
    v.resize(5, this->stream);
    EXPECT_EQ(v.data(), data);
    EXPECT_EQ(v.capacity(), 10u);
    v.reserve(3, this->stream);
    EXPECT_EQ(v.data(), data);
    v.shrink_to_fit(this->stream);
    EXPECT_EQ(v.capacity(), 5u);
    v.reserve(100, this->stream);
    EXPECT_EQ(v.capacity(), 100u);
    EXPECT_EQ(v.size(), 5u);
    EXPECT_EQ(v.element(0, this->stream), TypeParam{9});
    v.resize(0, this->stream);
    EXPECT_EQ(v.capacity(), 100u);
    v.shrink_to_fit(this->stream);
    EXPECT_EQ(v.capacity(), 0u);
}

TYPED_TEST(DeviceUvector, release_gives_the_storage_away) {
    device_uvector<TypeParam> v(10, this->stream);
    auto* const data = v.data();
    device_buffer storage = v.release();
    EXPECT_EQ(storage.data(), data);
    EXPECT_EQ(storage.size(), 10 * sizeof(TypeParam));
    EXPECT_TRUE(v.is_empty());
    EXPECT_EQ(v.capacity(), 0u);
}

TYPED_TEST(DeviceUvector, iterators_agree_with_the_data) {
    device_uvector<TypeParam> v(10, this->stream);
    const auto& constant = v;
    EXPECT_EQ(v.begin(), v.data());
    EXPECT_EQ(constant.begin(), v.cbegin());
    EXPECT_EQ(constant.end(), v.cend());
    EXPECT_EQ(v.rbegin().base(), v.end());
    EXPECT_EQ(v.crend().base(), v.cbegin());
    EXPECT_EQ(v.rend() - v.rbegin(), 10);
    v.set_stream(cuda_stream_default);
    EXPECT_EQ(v.stream(), cuda_stream_default);
}

TEST(DeviceUvectorValues, minus_zero_is_kept) {
    cuda_stream stream;
    device_uvector<double> v(1, stream);
    v.set_element(0, -0.0, stream);
    EXPECT_TRUE(std::signbit(v.element(0, stream)));
    device_uvector<float> f(1, stream);
    f.set_element(0, -0.0f, stream);
    EXPECT_TRUE(std::signbit(f.element(0, stream)));
}

TEST(DeviceUvectorValues, a_size_in_bytes_that_overflows_throws) {
    cuda_stream stream;
    rmm_test::recording_resource mr;
    EXPECT_THROW((device_uvector<double>((std::size_t{1} << 61) + 1, stream, mr)), rmm::bad_alloc);
    EXPECT_TRUE(mr.allocations.empty());
    device_uvector<double> v(1, stream, mr);
    EXPECT_THROW(v.resize((std::size_t{1} << 61) + 1, stream), rmm::bad_alloc);
    EXPECT_EQ(v.size(), 1u);
}

TEST(DeviceUvectorValues, the_exact_size_reaches_the_resource) {
    cuda_stream stream;
    rmm_test::recording_resource mr;
    device_uvector<char> chars(3, stream, mr);
    device_uvector<double> doubles(3, stream, mr);
    EXPECT_EQ(mr.allocations[0].bytes, 3u);
    EXPECT_EQ(mr.allocations[1].bytes, 24u);
}

struct large {
    explicit large(int v) : first(v) {}
    int first;
    int rest[63] = {};
};

TEST(DeviceUvectorValues, large_types_without_a_default_constructor_work) {
    static_assert(sizeof(large) > 64);
    cuda_stream stream;
    device_uvector<large> v(2, stream);
    const large value{42};
    v.set_element(1, value, stream);
    EXPECT_EQ(v.back_element(stream).first, 42);
    v.set_element_to_zero_async(1, stream);
    EXPECT_EQ(v.back_element(stream).first, 0);
}

}  // namespace
