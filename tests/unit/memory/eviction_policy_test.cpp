// Which replica leaves first, by what is known of its future.
#include <gtest/gtest.h>

#include "kmm/memory/eviction_policy.hpp"

namespace {

using kmm::memory::EvictionPolicy;
using kmm::memory::Prospect;
using kmm::memory::eviction::rank_of;
using Need = Prospect::Need;

constexpr Prospect used(std::uint64_t next_use, bool clean) { return {Need::whole, clean, next_use}; }

TEST(EvictionPolicy, lets_what_nobody_needs_go_before_anything_that_is_needed_the_cheapest_first) {
    for (const EvictionPolicy policy :
         {EvictionPolicy::farthest_next_use, EvictionPolicy::least_recently_used, EvictionPolicy::clean_first}) {
        const std::uint64_t ranks[] = {rank_of(policy, {Need::none, false}), rank_of(policy, {Need::no_task, true}),
                                       rank_of(policy, {Need::in_parts, false}),
                                       rank_of(policy, {Need::no_task, false}), rank_of(policy, used(1, true))};
        for (std::size_t i = 1; i < std::size(ranks); i++) EXPECT_LT(ranks[i - 1], ranks[i]) << i;
    }
}

TEST(EvictionPolicy, lets_the_farthest_next_use_go_first_and_of_equals_the_clean_one) {
    constexpr auto ours = EvictionPolicy::farthest_next_use;
    EXPECT_LT(rank_of(ours, used(9, false)), rank_of(ours, used(8, true)));
    EXPECT_LT(rank_of(ours, used(9, true)), rank_of(ours, used(9, false)));
}

TEST(EvictionPolicy, that_does_not_know_the_future_leaves_the_choice_to_the_latest_use) {
    constexpr auto lru = EvictionPolicy::least_recently_used;
    EXPECT_EQ(rank_of(lru, used(9, false)), rank_of(lru, used(8, true)));
    constexpr auto clean = EvictionPolicy::clean_first;
    EXPECT_EQ(rank_of(clean, used(9, true)), rank_of(clean, used(8, true)));
    EXPECT_LT(rank_of(clean, used(1, true)), rank_of(clean, used(9, false)));
}

}  // namespace
