// The parts of the pool that know no driver: the table of live blocks against std::map, and the lock.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "rmm/pool/live_blocks.hpp"
#include "rmm/pool/short_lock.hpp"

namespace {

using rmm::mr::detail::live_block;
using rmm::mr::detail::live_blocks;

TEST(LiveBlocks, gives_back_what_was_put_in_once) {
    live_blocks table;
    table.insert({256, 10, 512});
    EXPECT_EQ(table.size(), 1u);
    const live_block block = table.take(256);
    EXPECT_EQ(block.address, 256u);
    EXPECT_EQ(block.size_bytes, 10u);
    EXPECT_EQ(block.heap_address, 512u);
    EXPECT_EQ(table.take(256).address, 0u);
    EXPECT_EQ(table.take(12345).address, 0u);
    EXPECT_EQ(table.size(), 0u);
}

TEST(LiveBlocks, agrees_with_a_map_over_random_insertions_and_removals) {
    std::mt19937_64 random(1);
    live_blocks table;
    std::map<std::uintptr_t, std::size_t> model;
    for (int step = 0; step < 200000; ++step) {
        const std::uintptr_t address = 256 * (1 + random() % 5000);
        const auto known = model.find(address);
        if (known == model.end() && random() % 3 != 0) {
            table.insert({address, static_cast<std::size_t>(step), 0});
            model[address] = static_cast<std::size_t>(step);
        } else {
            const live_block block = table.take(address);
            ASSERT_EQ(block.address, known == model.end() ? 0 : address) << step;
            if (known != model.end()) {
                ASSERT_EQ(block.size_bytes, known->second);
                model.erase(known);
            }
        }
        ASSERT_EQ(table.size(), model.size());
    }
    for (const auto& [address, size] : model) EXPECT_EQ(table.take(address).size_bytes, size);
}

TEST(ShortLock, lets_one_thread_in_at_a_time) {
    rmm::detail::short_lock lock;
    long count = 0;
    constexpr int num_threads = 8;
    constexpr int num_rounds = 20000;
    std::vector<std::thread> threads;
    for (int i = 0; i < num_threads; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < num_rounds; ++k) {
                std::lock_guard held(lock);
                ++count;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(count, long{num_threads} * num_rounds);
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
}

TEST(ShortLock, a_waiter_that_sleeps_is_woken) {
    rmm::detail::short_lock lock;
    for (int round = 0; round < 200; ++round) {
        lock.lock();
        bool entered = false;
        std::thread waiter([&] {
            std::lock_guard held(lock);
            entered = true;
        });
        // Long enough, in yields, for the waiter to give up spinning on most rounds.
        for (int i = 0; i < 200; ++i) std::this_thread::yield();
        EXPECT_FALSE(entered);
        lock.unlock();
        waiter.join();
        EXPECT_TRUE(entered);
    }
}

}  // namespace
