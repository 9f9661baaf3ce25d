// kmm/device.hpp as the only header of kernels: emulated, by nvcc, and (without the tests below) by NVRTC, where
// tests/python/nvrtc_test.py compiles this file.
#include "kmm/device.hpp"

namespace device_header {

// ---- what the library's headers take from the standard library, which has stand-ins under NVRTC
template<std::size_t... values>
KMM_HOST_DEVICE constexpr std::size_t sum_of(std::index_sequence<values...>) {
    return (values + ... + 0);
}
struct FromInt {
    KMM_HOST_DEVICE FromInt(int) {}
};

static_assert(sizeof(std::int64_t) == 8 && sizeof(int64_t) == 8 && sizeof(std::uint8_t) == 1 && sizeof(size_t) == 8);
static_assert(std::is_same<std::common_type_t<int, long>, long>::value);
static_assert(std::is_same<std::common_type_t<const int&, short, unsigned>, unsigned>::value);
static_assert(std::is_same<std::common_type_t<float, long long>, float>::value);
static_assert(std::is_same<std::decay_t<const int&>, int>::value);
static_assert(std::is_same<std::decay_t<int (&)[3]>, int*>::value);
static_assert(std::is_same<std::decay_t<volatile double>, double>::value);
static_assert(std::is_same<std::remove_cv_t<const volatile int>, int>::value);
static_assert(std::is_same<std::make_unsigned_t<signed char>, unsigned char>::value);
static_assert(std::is_same<std::make_unsigned_t<long>, unsigned long>::value);
static_assert(std::is_same<std::conditional_t<false, int, float>, float>::value);
static_assert(std::is_same<decltype(std::declval<int>()), int&&>::value);
static_assert(std::is_same<decltype(std::declval<int&>()), int&>::value);
static_assert(std::is_integral<const bool>::value && std::is_integral<unsigned long long>::value);
static_assert(!std::is_integral<float>::value && !std::is_integral<int*>::value && !std::is_integral<FromInt>::value);
static_assert(std::is_floating_point<const double>::value && !std::is_floating_point<int>::value);
static_assert(std::is_signed<int>::value && std::is_signed<float>::value && !std::is_signed<unsigned short>::value);
static_assert(!std::is_signed<FromInt>::value && !std::is_arithmetic<int&>::value);
static_assert(std::is_convertible<int, FromInt>::value && !std::is_convertible<FromInt, int>::value);
static_assert(std::is_convertible<int (*)[], const int (*)[]>::value);
static_assert(sum_of(std::make_index_sequence<5>()) == 10 && sum_of(std::make_index_sequence<0>()) == 0);
static_assert(std::numeric_limits<int>::max() == 0x7fffffff && std::numeric_limits<int>::min() == -0x7fffffff - 1);
static_assert(std::numeric_limits<unsigned long long>::max() == 0xffffffffffffffff);
static_assert(std::numeric_limits<signed char>::min() == -128 && std::numeric_limits<bool>::max());
static_assert(std::numeric_limits<long>::digits == 63 && std::numeric_limits<unsigned short>::digits == 16);
static_assert(std::numeric_limits<float>::digits == 24 && std::numeric_limits<double>::digits == 53);
static_assert(std::numeric_limits<double>::max() > 1.7976931348623157e308 * (1 - 1e-15));
static_assert(std::numeric_limits<double>::infinity() > std::numeric_limits<double>::max());
static_assert(std::numeric_limits<float>::infinity() > std::numeric_limits<float>::max());
static_assert(std::numeric_limits<float>::max() == 3.40282347e38F && std::numeric_limits<float>::min() < 1.18e-38F);

// ---- the library's own types, whole
static_assert(kmm::Range<int64_t>(2, 9).intersection(kmm::Range<int64_t>(5, 20)) == kmm::Range<int64_t>(5, 9));
static_assert(kmm::Dim<3>(2, 3, 4).volume() == 24 && kmm::Bounds<2>(3, 4).contains(2, 3));
static_assert(kmm::div_floor(-7, 2) == -4 && kmm::round_up_to_multiple(-7, -4) == -4);
static_assert(kmm::is_less(-1, 1U) && kmm::is_convertible<float>(0.5) && !kmm::is_convertible<float>(0.1));
static_assert(kmm::checked_add(1, 2L) == 3 && kmm::in_range<signed char>(-128) && !kmm::in_range<bool>(2));

}  // namespace device_header

template struct kmm::Range<int>;
template struct kmm::Point<3, int>;
template struct kmm::Dim<2, long>;
template struct kmm::Bounds<2, int>;
template struct kmm::fixed_vector<float, 5>;
template class kmm::AbstractView<float, kmm::views::dynamic_subdomain<2>, kmm::views::right_to_left_layout<>,
                                 kmm::views::device_accessor>;
template class kmm::AbstractView<const double, kmm::views::dynamic_domain<1>, kmm::views::strided_layout<>,
                                 kmm::views::device_accessor>;
template class kmm::AbstractView<int, kmm::views::static_domain<int, 4, 8>, kmm::views::left_to_right_layout<>,
                                 kmm::views::device_accessor>;

__global__ void add_vectors(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> c, kmm::GPUSubview<float> a,
                            kmm::GPUSubview<float> b) {
    const int64_t i = range.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) c[i] = a[i] + b[i];
}

__global__ void sum_neighbours(kmm::Bounds<2> box, kmm::GPUSubviewMut<double, 2> out,
                               kmm::GPUSubviewStrided<double, 2> in) {
    const auto i = box.x.begin + blockIdx.y * blockDim.y + threadIdx.y;
    const auto j = box.y.begin + blockIdx.x * blockDim.x + threadIdx.x;
    if (!box.contains(i, j)) return;
    KMM_ASSERT(out.in_bounds(i, j));
    out[i][j] = in(i - 1, j) + in(i + 1, j) + in[i][j - 1] + in.drop_axis<1>(j + 1)[i];
}

__global__ void find_smallest(kmm::GPUViewMut<float> values, int64_t* place) {
    KMM_DYNAMIC_SHARED(kmm::KeyValue<float>, best);
    const unsigned t = threadIdx.x;
    best[t] = kmm::KeyValue<float>(int64_t(t), values[t]);
    __syncthreads();
    for (unsigned half = kmm::round_up_to_power_of_two(blockDim.x) / 2; half > 0; half /= 2) {
        if (t < half && t + half < blockDim.x && best[t + half] < best[t]) best[t] = best[t + half];
        __syncthreads();
    }
    if (t == 0) *place = best[0].key;
}

#if !KMM_IS_RTC

#include <gtest/gtest.h>

#include "launch.hpp"

namespace {

using kmm_test::Data;
using kmm_test::launch;

TEST(DeviceHeader, is_all_that_a_kernel_needs) {
    KMM_NEED_DEVICE();
    Data<float> a(100), b(100), c(100);
    for (std::size_t i = 0; i < 100; ++i) a[i] = static_cast<float>(i), b[i] = 0.5F;
    const kmm::Range<int64_t> range(20, 80);
    const auto region = [&](auto view, float* data) {
        return decltype(view)(data + 20, kmm::views::dynamic_subdomain<1>(kmm::Bounds<1>(range)));
    };
    launch(add_vectors, 2, 32, 0, range, region(kmm::GPUSubviewMut<float>(), c.get()),
           region(kmm::GPUSubview<float>(), a.get()), region(kmm::GPUSubview<float>(), b.get()));
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(c[i], i < 20 || i >= 80 ? 0.0F : a[i] + 0.5F) << i;
}

TEST(DeviceHeader, views_of_two_axes_have_neighbours_and_strides) {
    KMM_NEED_DEVICE();
    Data<double> in(10 * 16), out(8 * 8, -1.0);
    for (std::size_t i = 0; i < 160; ++i) in[i] = static_cast<double>(i * i);
    // Indices 4 to 11 of either axis, and one more to either side; the rows of `in` lie 16 apart.
    const kmm::Bounds<2> box(kmm::Range<long>(4, 12), kmm::Range<long>(4, 12));
    const kmm::Bounds<2> around(kmm::Range<long>(3, 13), kmm::Range<long>(3, 13));
    const long strides[2] = {16, 1};
    launch(sum_neighbours, dim3(3, 3), dim3(3, 3), 0, box,
           kmm::GPUSubviewMut<double, 2>(out.get(), kmm::views::dynamic_subdomain<2>(box)),
           kmm::GPUSubviewStrided<double, 2>::from_region(in.get(), around, strides));
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t j = 0; j < 8; ++j) {
            const std::size_t at = (i + 1) * 16 + j + 1;
            EXPECT_EQ(out[i * 8 + j], in[at - 16] + in[at + 16] + in[at - 1] + in[at + 1]) << i << ' ' << j;
        }
}

TEST(DeviceHeader, values_with_their_places_are_compared_in_shared_memory) {
    KMM_NEED_DEVICE();
    Data<float> values(37);
    Data<int64_t> place(1, -1);
    for (std::size_t i = 0; i < 37; ++i) values[i] = static_cast<float>((i * 23 + 11) % 37);
    launch(find_smallest, 1, 37, 37 * sizeof(kmm::KeyValue<float>),
           kmm::GPUViewMut<float>(values.get(), kmm::views::dynamic_domain<1>(37)), place.get());
    EXPECT_EQ(values[static_cast<std::size_t>(place[0])], 0.0F);
}

}  // namespace

#endif
