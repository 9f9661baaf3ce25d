// <rmm/device_scalar.hpp>.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "rmm/cuda_stream.hpp"
#include "rmm/device_scalar.hpp"

template class rmm::device_scalar<int>;

namespace {

using namespace rmm;

static_assert(!std::is_copy_constructible_v<device_scalar<int>> &&
              !std::is_default_constructible_v<device_scalar<int>>);
static_assert(std::is_nothrow_move_constructible_v<device_scalar<int>>);
// What names a stream is never taken for a value.
static_assert(!std::is_convertible_v<cudaStream_t, device_scalar<bool>>);

template<typename T>
class DeviceScalar : public testing::Test {
  protected:
    cuda_stream stream;
    T value = static_cast<T>(1);
};
using value_types = testing::Types<bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(DeviceScalar, value_types);

TYPED_TEST(DeviceScalar, holds_its_initial_value) {
    device_scalar<TypeParam> uninitialized{this->stream};
    EXPECT_NE(uninitialized.data(), nullptr);
    EXPECT_EQ(uninitialized.size(), 1u);
    device_scalar<TypeParam> scalar{this->value, this->stream};
    EXPECT_EQ(scalar.value(this->stream), this->value);
    const auto& constant = scalar;
    EXPECT_NE(constant.data(), nullptr);
    EXPECT_EQ(scalar.memory_resource(), mr::get_current_device_resource_ref());
}

TYPED_TEST(DeviceScalar, copies_and_moves) {
    device_scalar<TypeParam> scalar{this->value, this->stream};
    device_scalar<TypeParam> copy{scalar, this->stream};
    EXPECT_NE(copy.data(), scalar.data());
    EXPECT_EQ(copy.value(this->stream), this->value);
    auto* const data = scalar.data();
    device_scalar<TypeParam> moved{std::move(scalar)};
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(scalar.data(), nullptr);
}

TYPED_TEST(DeviceScalar, its_value_is_set) {
    device_scalar<TypeParam> scalar{this->stream};
    scalar.set_value_async(this->value, this->stream);
    EXPECT_EQ(scalar.value(this->stream), this->value);
    scalar.set_value_to_zero_async(this->stream);
    EXPECT_EQ(scalar.value(this->stream), static_cast<TypeParam>(0));
    scalar.set_value(1, this->stream);
    EXPECT_EQ(scalar.value(this->stream), static_cast<TypeParam>(1));
    scalar.set_stream(cuda_stream_default);
    EXPECT_EQ(scalar.stream(), cuda_stream_default);
}

TEST(DeviceScalarValues, a_temporary_may_be_the_initial_value) {
    cuda_stream stream;
    device_scalar<int> scalar{[] { return 42; }(), stream};
    EXPECT_EQ(scalar.value(stream), 42);
}

TEST(DeviceScalarValues, a_value_alone_uses_the_default_stream) {
    device_scalar<int> scalar{7};
    EXPECT_EQ(scalar.value(cuda_stream_default), 7);
    EXPECT_EQ(scalar.stream(), cuda_stream_default);
}

TEST(DeviceScalarValues, a_raw_stream_is_a_stream_for_every_type) {
    cuda_stream stream;
    device_scalar<bool> flag{stream.value()};
    EXPECT_EQ(flag.stream(), stream.view());
}

struct pair_of_values {
    int a;
    double b;
};

TEST(DeviceScalarValues, a_structure_can_be_set_to_zero) {
    cuda_stream stream;
    device_scalar<pair_of_values> scalar{pair_of_values{1, 2.0}, stream};
    EXPECT_EQ(scalar.value(stream).a, 1);
    scalar.set_value_to_zero_async(stream);
    EXPECT_EQ(scalar.value(stream).a, 0);
    EXPECT_EQ(scalar.value(stream).b, 0.0);
}

}  // namespace
