// Views and utility types inside kernels: emulated where a C++ compiler takes this file, real where nvcc does.
#include <gtest/gtest.h>

#include <string>

#include "../../device/launch.hpp"
#include "kmm/core/view.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/integer_fun.hpp"
#include "kmm/utils/key_value.hpp"
#include "kmm/utils/panic.hpp"
#include "kmm/utils/small_vector.hpp"

using kmm_test::Data;
using kmm_test::launch;

__global__ void transpose(kmm::Range<int> columns, kmm::Bounds<2> region, kmm::GPUSubviewMut<float, 2> output,
                          kmm::GPUSubview<float, 2> input, kmm::GPUView<float, 0> factor) {
    const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) + columns.begin;
    if (!columns.contains(j)) return;
    for (long i = region.x.begin; i < region.x.end; i++) {
        KMM_ASSERT(output.in_bounds({j, i}));
        const auto row = input.drop_axis(i);
        const long nothing = kmm::div_ceil(kmm::checked_mul(i, 2L), 2L) - kmm::checked_cast<int>(i);
        output[j][i] = *factor * row[j] + static_cast<float>(nothing);
    }
    KMM_DEBUG_ASSERT(input.shift_to_origin().size() == output.size());
}

__global__ void smallest(kmm::GPUView<double> values, kmm::GPUViewMut<kmm::KeyValue<double>> result) {
    kmm::KeyValue<double> best{0, values[0]};
    for (long i = 0; i < values.size(0); i++) {
        const kmm::KeyValue<double> other{i, values[i]};
        if (other < best) best = other;
    }
    result[0] = best;
}

TEST(Row123, views_in_kernels_use_the_indices_of_the_array) {
    KMM_NEED_DEVICE();
    Data<float> input(100);
    Data<float> output(100, -1.0f);
    Data<float> factor(1, 2.0f);
    for (std::size_t i = 0; i < 100; i++) input[i] = static_cast<float>(i);
    const kmm::Bounds<2> region(kmm::Range<>(2, 5), kmm::Range<>(4, 9));
    const long strides[2] = {10, 1};
    const auto in = kmm::GPUSubview<float, 2>::from_region(input.get() + 24, region, strides);
    const kmm::Bounds<2> turned(region.y, region.x);
    const auto out = kmm::GPUSubviewMut<float, 2>::from_region(output.get() + 42, turned, strides);
    launch(transpose, dim3(2), dim3(4), 0, kmm::Range<int>(region.y), region, out, in,
           kmm::GPUView<float, 0>(factor.get(), {}));
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 10; j++) {
            const bool inside = region.contains(kmm::Point<2>(j, i));
            EXPECT_EQ(output[static_cast<std::size_t>(10 * i + j)],
                      inside ? 2.0f * static_cast<float>(10 * j + i) : -1.0f);
        }
    }
}

TEST(Row125_KeyValue, finds_the_first_smallest_element_in_a_kernel) {
    KMM_NEED_DEVICE();
    Data<double> values(50, 3.0);
    values[17] = values[31] = -1.0;
    Data<kmm::KeyValue<double>> result(1);
    launch(smallest, dim3(1), dim3(1), 0, kmm::GPUView<double>(values.get(), 50),
           kmm::GPUViewMut<kmm::KeyValue<double>>(result.get(), 1));
    EXPECT_EQ(result[0].key, 17);
    EXPECT_EQ(result[0].value, -1.0);
}

// What programs for KMM 0.3 write into kernels: each line that holds counts.
__global__ void count_what_holds(kmm::Dim<1> n, kmm::GPUSubview<float, 2> cells, kmm::GPUViewMut<int> result) {
    const kmm::Point<1> p(4);
    int holds = 0;
    for (long i = 0; i < n; i++) holds++;
    holds += p == 4;
    holds += cells.bounds().contains(2, 5) && !cells.bounds().contains(0, 5) &&
             cells.bounds().contains(kmm::Point<1>(2)) == false;
    holds += cells.sizes().contains(2, 4) && kmm::Dim<2>(2, 3).contains(kmm::Point<3>(1, 2, 0));
    holds += kmm::Range<int>(3, 7).contains(kmm::Range<>(4, 7));
    holds += kmm::is_less(1, 1.5) && kmm::is_equal(2.0, 2) && !kmm::is_equal((1L << 53) + 1, 9007199254740992.0);
    holds += kmm::in_range(1u, 2) && !kmm::in_range(-1, 2);
    holds += kmm::is_convertible<float>(0.5) && !kmm::is_convertible<float>(0.1);
    int converted = 0;
    holds += kmm::checked_convert(5L, &converted) && converted == 5 && kmm::checked_convert<int>(7L) == 7;
    holds += kmm::round_up_to_multiple(-7, -4) == -4;
    holds += concat(kmm::fixed_vector<int, 1>(1), kmm::fixed_vector<int, 1>(2)) == kmm::fixed_vector<int, 2>(1, 2);
    holds += p.get_or_default(3, 9) == 9 && kmm::Bounds<1>(4).get_or_default(1, kmm::Range<>(2, 3)).begin == 2;
    holds += kmm::Bounds<1>(4).is_convertible_to<signed char>();
    holds += kmm::GPUView<float>{cells.data(), {{n}}}.domain() == 5 && cells.domain() == cells.domain();
    result[0] = holds;
}

TEST(Row125_Spellings, hold_in_kernels) {
    KMM_NEED_DEVICE();
    Data<float> cells(100);
    Data<int> result(1);
    const long strides[2] = {10, 1};
    const kmm::Bounds<2> region(kmm::Range<>(2, 5), kmm::Range<>(4, 9));
    launch(count_what_holds, dim3(1), dim3(1), 0, kmm::Dim<1>(5),
           kmm::GPUSubview<float, 2>::from_region(cells.get() + 24, region, strides),
           kmm::GPUViewMut<int>(result.get(), 1));
    EXPECT_EQ(result[0], 5 + 13);
}

// A failed assertion ends a CUDA context, and with it the tests that follow: only emulated here.
#if !KMM_DETAIL_HAS_DEVICE_CODE

#include "kmm/error.hpp"

__global__ void fail_in_one_thread(kmm::GPUViewMut<int> data) {
    data[threadIdx.x] = 1;
    KMM_ASSERT(threadIdx.x != 3);
}

__global__ void index_out_of_range(kmm::GPUViewMut<long> data) {
    const kmm::Point<2> point(1, 2);
    data[threadIdx.x] = point[threadIdx.x];
}

TEST(Row124, a_failed_assertion_in_an_emulated_kernel_is_an_exception_of_the_launch) {
    Data<int> data(8);
    try {
        launch(fail_in_one_thread, dim3(1), dim3(8), 0, kmm::GPUViewMut<int>(data.get(), 8));
        FAIL();
    } catch (const kmm::DeviceError& error) {
        const std::string text = error.what();
        for (const char* part : {"threadIdx.x != 3", "kernel_test", "thread (3, 0, 0)"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
        }
    }
    EXPECT_EQ(data[2], 1);
}

TEST(Row125_Vectors, an_index_out_of_range_in_an_emulated_kernel_fails_the_launch) {
    Data<long> data(3);
    EXPECT_THROW(launch(index_out_of_range, dim3(1), dim3(3), 0, kmm::GPUViewMut<long>(data.get(), 3)),
                 std::out_of_range);
}

#endif
