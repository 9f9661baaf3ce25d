// Copies of boxes with strides of the program's: what arrives, and in how many calls of the driver.
#include "kmm/api/strided_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "counting_driver.hpp"
#include "driver/registry.hpp"
#include "repeat.hpp"

namespace {

using kmm::detail::innermost_box;
using kmm::detail::put_on_stream;
using kmm::detail::StridedCopy;
using kmm::driver::BoxMove;
using kmm::driver::testing::CountingDriver;
constexpr std::size_t max_rank = kmm::detail::max_rank;

/// Memory of a device of the host driver, and a stream there.
class StridedCopies : public testing::Test {
  protected:
    StridedCopies() {
        EXPECT_TRUE(inner_->create_stream(0, true, 0, &stream_).ok());
        EXPECT_TRUE(inner_->allocate(0, bytes, reinterpret_cast<void**>(&to_)).ok());
        EXPECT_TRUE(inner_->allocate(0, bytes, reinterpret_cast<void**>(&from_)).ok());
    }
    ~StridedCopies() override {
        (void)inner_->destroy_stream(stream_);
        (void)inner_->free(to_);
        (void)inner_->free(from_);
    }
    /// Elements of four bytes. Number of calls of the driver.
    int copy(std::int32_t* to, const std::int64_t* to_strides, const std::int32_t* from,
             const std::int64_t* from_strides, const std::int64_t* sizes) {
        driver_.num_calls = 0;
        const StridedCopy all{reinterpret_cast<std::byte*>(to), to_strides, reinterpret_cast<const std::byte*>(from),
                              from_strides, sizes};
        EXPECT_TRUE(put_on_stream(all, sizeof(std::int32_t), driver_, stream_).ok());
        EXPECT_TRUE(inner_->synchronize_stream(stream_).ok());
        return driver_.num_calls;
    }

    static constexpr std::size_t bytes = std::size_t{8} << 20;
    const std::shared_ptr<kmm::driver::Driver> inner_ = kmm::driver::make_host_driver({1, 32u << 20, 2});
    CountingDriver driver_{*inner_};
    kmm::driver::StreamHandle stream_;
    std::int32_t* to_ = nullptr;
    std::int32_t* from_ = nullptr;
};

/// Strides of a box whose axes lie in any order, with gaps.
void pick_strides(std::mt19937& random, const std::int64_t* sizes, std::int64_t* strides) {
    std::size_t order[max_rank];
    std::iota(order, order + max_rank, 0);
    if (random() % 2 == 0) std::shuffle(order, order + max_rank, random);
    std::int64_t step = 1 + static_cast<std::int64_t>(random() % 3 == 0);
    for (std::size_t i = max_rank; i-- > 0;) {
        strides[order[i]] = step;
        step = step * sizes[order[i]] + static_cast<std::int64_t>(random() % 3 == 0);
    }
}

/// The place of an element, and that of the element with the lowest address where strides are negative.
std::int64_t place(const std::int64_t* index, const std::int64_t* strides) {
    return std::inner_product(index, index + max_rank, strides, std::int64_t{0});
}

std::int64_t lowest(const std::int64_t* sizes, const std::int64_t* strides) {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < max_rank; ++k) at += std::min<std::int64_t>(0, (sizes[k] - 1) * strides[k]);
    return at;
}

TEST_F(StridedCopies, bring_each_element_to_its_place_and_touch_no_other) {
    for (unsigned seed = 0; seed < static_cast<unsigned>(repeat(400, 20)); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed);
        std::int64_t sizes[max_rank], to_strides[max_rank], from_strides[max_rank];
        for (std::int64_t& size : sizes) size = random() % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 4);
        pick_strides(random, sizes, to_strides);
        pick_strides(random, sizes, from_strides);
        for (std::size_t k = 0; k < max_rank; ++k) {
            if (random() % 6 == 0) to_strides[k] = -to_strides[k];
            if (random() % 6 == 0) from_strides[k] = random() % 2 == 0 ? 0 : -from_strides[k];
        }
        constexpr std::size_t count = bytes / sizeof(std::int32_t);
        std::vector<std::int32_t> expected(count, -1);
        std::fill_n(to_, count, -1);
        std::iota(from_, from_ + count, 1);
        std::int32_t* const to = to_ - lowest(sizes, to_strides);
        const std::int32_t* const from = from_ - lowest(sizes, from_strides);
        std::int64_t index[max_rank] = {};
        for (std::size_t k = 0;;) {
            expected[static_cast<std::size_t>(to + place(index, to_strides) - to_)] = from[place(index, from_strides)];
            for (k = max_rank; k-- > 0;) {
                if (++index[k] < sizes[k]) break;
                index[k] = 0;
            }
            if (k == ~std::size_t{0}) break;
        }
        copy(to, to_strides, from, from_strides, sizes);
        ASSERT_EQ(std::memcmp(to_, expected.data(), bytes), 0);
    }
}

TEST_F(StridedCopies, of_rows_with_gaps_on_both_sides_are_one_call_however_many_rows) {
    for (const std::int64_t rows : {10'000, 20'000}) {
        const std::int64_t sizes[max_rank] = {1, 1, 1, 1, 1, 1, rows, 64};
        const std::int64_t wide[max_rank] = {0, 0, 0, 0, 0, 0, 96, 1}, wider[max_rank] = {0, 0, 0, 0, 0, 0, 100, 1};
        EXPECT_EQ(copy(to_, wide, from_, wider, sizes), 1);
    }
    const std::int64_t planes[max_rank] = {1, 1, 1, 1, 4, 5, 6, 7};
    const std::int64_t some[max_rank] = {0, 0, 0, 0, 1000, 100, 10, 1}, other[max_rank] = {0, 0, 0, 0, 600, 100, 8, 1};
    EXPECT_EQ(copy(to_, some, from_, other, planes), 1);
}

TEST_F(StridedCopies, that_turn_axes_are_a_call_for_64_rows) {
    const std::int64_t sizes[max_rank] = {1, 1, 1, 1, 1, 1, 1000, 500};
    const std::int64_t rows[max_rank] = {0, 0, 0, 0, 0, 0, 500, 1}, columns[max_rank] = {0, 0, 0, 0, 0, 0, 1, 1000};
    EXPECT_EQ(copy(to_, rows, from_, columns, sizes), 16);
    EXPECT_EQ(driver_.most_boxes, 64u);
}

TEST(InnermostBox, is_one_run_where_both_sides_have_no_gaps) {
    const std::int64_t sizes[max_rank] = {1, 1, 1, 1, 1, 3, 1, 5}, steps[max_rank] = {0, 0, 0, 0, 0, 40, 99, 8};
    BoxMove box;
    EXPECT_EQ(innermost_box(sizes, steps, steps, 8, &box), 0u);
    EXPECT_EQ(box.num_axes, 0u);
    EXPECT_EQ(box.run_bytes, 120u);
}

}  // namespace
