// Pieces of memory that are filled with one element: what they hold then, and in how many calls of the driver.
#include "kmm/api/fill_pieces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "counting_driver.hpp"
#include "driver/registry.hpp"

namespace {

using kmm::detail::fill_on_host;
using kmm::detail::FillPiece;
using kmm::detail::put_fill_on_stream;
using kmm::driver::testing::CountingDriver;

/// Memory of a device of the host driver, which the test reads by itself, and a stream there.
class FillPieces : public testing::Test {
  protected:
    FillPieces() : content_(bytes) {
        EXPECT_TRUE(inner_->create_stream(0, true, 0, &stream_).ok());
        EXPECT_TRUE(inner_->allocate(0, bytes, reinterpret_cast<void**>(&memory_)).ok());
    }
    ~FillPieces() override {
        (void)inner_->destroy_stream(stream_);
        (void)inner_->free(memory_);
    }
    void clear() {
        ASSERT_TRUE(inner_->fill(memory_, "\xff", 1, bytes, stream_).ok());
        ASSERT_TRUE(inner_->synchronize_stream(stream_).ok());
        std::ranges::fill(content_, std::byte{0xff});
    }
    /// As the test does it, element by element.
    void expect(const FillPiece& piece, const std::vector<std::byte>& element) {
        for (std::size_t i = 0; i < piece.count; ++i)
            std::ranges::copy(element, content_.data() + (piece.at - memory_) + i * element.size());
    }
    bool is_as_expected() { return std::equal(content_.begin(), content_.end(), memory_); }
    int fill(std::vector<FillPiece> pieces, const std::vector<std::byte>& element) {
        driver_.num_calls = 0;
        EXPECT_TRUE(put_fill_on_stream(pieces, element.data(), element.size(), driver_, stream_).ok());
        EXPECT_TRUE(inner_->synchronize_stream(stream_).ok());
        return driver_.num_calls;
    }

    static constexpr std::size_t bytes = std::size_t{8} << 20;
    const std::shared_ptr<kmm::driver::Driver> inner_ = kmm::driver::make_host_driver({1, 32u << 20, 2});
    CountingDriver driver_{*inner_};
    kmm::driver::StreamHandle stream_;
    std::byte* memory_ = nullptr;
    std::vector<std::byte> content_;
};

std::vector<std::byte> element_of(std::size_t bytes) {
    std::vector<std::byte> element(bytes);
    for (std::size_t i = 0; i < bytes; ++i) element[i] = static_cast<std::byte>(i + 1);
    return element;
}

TEST_F(FillPieces, hold_the_element_and_nothing_beside_them_changes) {
    std::mt19937 random(5);
    const auto pick = [&](std::size_t low, std::size_t high) {
        return std::uniform_int_distribution<std::size_t>(low, high)(random);
    };
    for (const std::size_t size : {1u, 2u, 3u, 4u, 8u, 12u, 16u, 40u, 64u, 65u, 200u, 5000u, 40'000u})
        for (const bool on_host : {false, true})
            for (int round = 0; round < 4; ++round) {
                clear();
                const std::vector<std::byte> element = element_of(size);
                std::vector<FillPiece> pieces;
                const std::size_t most = pick(0, 3) == 0 ? (std::size_t{3} << 20) / size : 50;
                for (std::size_t at = pick(0, 9); pieces.size() < 64;) {
                    const std::size_t count = pick(0, most);
                    if (at + count * size > bytes) break;
                    pieces.push_back({memory_ + at, count});
                    at += count * size + (pick(0, 1) == 0 ? 0 : pick(1, 100));
                }
                std::shuffle(pieces.begin(), pieces.end(), random);
                for (const FillPiece& p : pieces) expect(p, element);
                if (on_host)
                    for (const FillPiece& p : pieces) fill_on_host(p, element.data(), size);
                else
                    fill(pieces, element);
                ASSERT_TRUE(is_as_expected()) << size << " bytes, round " << round;
            }
}

TEST_F(FillPieces, take_two_calls_however_many_they_are) {
    const std::vector<std::byte> element = element_of(4);
    for (const std::size_t count : {1u, 2u, 33u, 64u}) {
        std::vector<FillPiece> pieces;
        for (std::size_t i = 0; i < count; ++i) pieces.push_back({memory_ + i * 8192, 1024});
        EXPECT_EQ(fill(pieces, element), count == 1 ? 1 : 2);
    }
    EXPECT_EQ(fill({}, element), 0);
    EXPECT_EQ(fill({{memory_, 0}}, element_of(200)), 0);
    EXPECT_EQ(fill({{memory_, 10}, {memory_ + 40, 0}}, element), 1) << "one has no elements";
}

// Two allocations of a driver may touch, and a call over both is refused.
TEST_F(FillPieces, that_touch_are_not_filled_by_one_call) {
    std::vector<FillPiece> pieces;
    for (std::size_t i = 0; i < 8; ++i) pieces.push_back({memory_ + i * 4096, 1024});
    fill(pieces, element_of(4));
    EXPECT_EQ(driver_.most_boxes, 7u);
    EXPECT_EQ(driver_.most_bytes, 4096u);
}

TEST_F(FillPieces, report_whichever_call_fails) {
    const std::vector<std::byte> element = element_of(200);
    const std::vector<FillPiece> pieces = {{memory_, 100}, {memory_ + 40'000, 50}};
    const int num_calls = fill(pieces, element);
    ASSERT_GT(num_calls, 4);
    for (int failing = 1; failing <= num_calls; ++failing) {
        driver_.num_calls = 0;
        driver_.fails_at = failing;
        EXPECT_FALSE(put_fill_on_stream(pieces, element.data(), element.size(), driver_, stream_).ok());
        EXPECT_EQ(driver_.num_calls, failing) << "nothing more is tried";
    }
    driver_.fails_at = 0;
    EXPECT_TRUE(inner_->synchronize_stream(stream_).ok());
}

}  // namespace
