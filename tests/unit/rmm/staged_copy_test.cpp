// Copies through page-locked memory: right for every number of pieces, by several threads at once; left to the driver
// where that is as good.
#include "rmm/staged_copy.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"

namespace {

using rmm::detail::copy_staged_to_device;
using rmm::detail::copy_staged_to_host;

constexpr std::size_t piece = std::size_t{256} << 10;

std::vector<std::uint8_t> noise(std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> made(bytes);
    for (std::uint8_t& b : made) b = static_cast<std::uint8_t>(random());
    return made;
}

void expect_round_trip(std::size_t bytes, unsigned seed) {
    const std::vector<std::uint8_t> sent = noise(bytes, seed);
    std::vector<std::uint8_t> received(bytes);
    rmm::mr::cuda_memory_resource memory;
    rmm::device_buffer there(bytes, rmm::cuda_stream_default, memory);
    ASSERT_TRUE(copy_staged_to_device(there.data(), sent.data(), bytes));
    ASSERT_TRUE(copy_staged_to_host(received.data(), there.data(), bytes));
    EXPECT_TRUE(received == sent) << bytes << " bytes";
}

TEST(StagedCopy, brings_every_byte_whatever_the_number_of_pieces) {
    for (const std::size_t bytes :
         {piece / 4, piece - 1, piece, piece + 1, 4 * piece - 1, 4 * piece, 4 * piece + 1, 9 * piece + 7})
        expect_round_trip(bytes, static_cast<unsigned>(bytes));
}

TEST(StagedCopy, may_be_done_by_several_threads_at_once) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
        threads.emplace_back([t] {
            for (unsigned i = 0; i < 8; ++i) expect_round_trip((i % 4 + 1) * piece + t, 100 * t + i);
        });
    for (std::thread& t : threads) t.join();
}

TEST(StagedCopy, is_left_to_the_driver_for_few_bytes_and_for_page_locked_memory) {
    rmm::mr::cuda_memory_resource memory;
    rmm::device_buffer there(2 * piece, rmm::cuda_stream_default, memory);
    std::vector<std::uint8_t> few(1000);
    EXPECT_FALSE(copy_staged_to_device(there.data(), few.data(), few.size()));
    EXPECT_FALSE(copy_staged_to_host(few.data(), there.data(), few.size()));
    rmm::mr::pinned_host_memory_resource pinned;
    rmm::device_buffer locked(2 * piece, rmm::cuda_stream_default, pinned);
    EXPECT_FALSE(copy_staged_to_device(there.data(), locked.data(), locked.size()));
    EXPECT_FALSE(copy_staged_to_host(locked.data(), there.data(), locked.size()));
}

}  // namespace
