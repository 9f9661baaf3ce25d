// Whose turn it is to grow a pool, and who waits for its end.
#include "rmm/pool/growth_turn.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace {

using namespace rmm;

TEST(GrowthTurn, is_of_one_thread_until_its_outermost_mark_ends) {
    mr::detail::engine_mutex mutex;
    mr::detail::growth_turn turn(0);
    mr::detail::engine_lock held(mutex);
    {
        const mr::detail::growth_mark outer(turn);
        { const mr::detail::growth_mark inner(turn); }
        EXPECT_TRUE(turn.is_taken());
        EXPECT_FALSE(turn.is_of_another_thread());
        bool is_of_another = false;
        std::thread([&] {
            mr::detail::expect_in_engine();
            is_of_another = turn.is_of_another_thread();
        }).join();
        EXPECT_TRUE(is_of_another);
    }
    EXPECT_FALSE(turn.is_taken());
}

TEST(GrowthTurn, wakes_a_request_that_waits_and_remembers_the_largest) {
    mr::detail::engine_mutex mutex;
    mr::detail::growth_turn turn(0);
    std::promise<void> has_the_lock;
    std::atomic<bool> has_returned{false};
    std::thread waits;
    {
        mr::detail::engine_lock held(mutex);
        const mr::detail::growth_mark growing(turn);
        waits = std::thread([&] {
            mr::detail::engine_lock own(mutex);
            has_the_lock.set_value();
            turn.wait_for_end(own, 4096);
            has_returned = true;
        });
        {
            const mr::detail::unlocked without(held);
            has_the_lock.get_future().wait();
        }
        // The lock is free again because the other thread waits, or has returned.
        EXPECT_FALSE(has_returned);
        EXPECT_EQ(turn.take_largest_missed(), 4096u);
        EXPECT_EQ(turn.take_largest_missed(), 0u);
    }
    waits.join();
    EXPECT_TRUE(has_returned);
}

}  // namespace
