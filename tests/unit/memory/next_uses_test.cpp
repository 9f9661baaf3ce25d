// The list of the tasks that will use a chunk: its order, what it gives back, and how many entries it looks at.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kmm/memory/next_uses.hpp"

namespace {

using kmm::memory::NextUses;
using Kind = NextUses::Kind;

std::vector<std::uint64_t> numbers(const NextUses& uses) {
    std::vector<std::uint64_t> out;
    for (const NextUses::Use& use : uses.open()) out.push_back(use.task);
    return out;
}

TEST(NextUses, that_end_out_of_order_leave_the_others_in_order) {
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    constexpr std::uint64_t most = 5000;
    for (std::uint64_t n = 1; n <= most; n++) EXPECT_EQ(uses.add({n}, pool, &steps), n == 1);
    EXPECT_FALSE(uses.remove({3}, pool, &steps));
    EXPECT_FALSE(uses.remove({3}, pool, &steps)) << "it is not there any more";
    EXPECT_FALSE(uses.remove({most + 1}, pool, &steps));
    EXPECT_EQ(uses.first().task, 1u);
    EXPECT_TRUE(uses.remove({1}, pool, &steps));
    EXPECT_TRUE(uses.remove({2}, pool, &steps));
    EXPECT_EQ(uses.first().task, 4u);
    for (std::uint64_t n = 4; n + 1 < most; n += 2) {
        EXPECT_FALSE(uses.remove({n + 1}, pool, &steps));
        EXPECT_TRUE(uses.remove({n}, pool, &steps));
    }
    EXPECT_EQ(numbers(uses), std::vector<std::uint64_t>{most});
    EXPECT_LT(uses.num_entries(), most / 2) << "what is over is given back";
    EXPECT_TRUE(uses.remove({most}, pool, &steps));
    EXPECT_TRUE(uses.empty());
    EXPECT_EQ(uses.num_entries(), 0u);
}

TEST(NextUses, that_arrive_a_little_out_of_order_are_sorted_and_keep_what_they_are_for) {
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    EXPECT_TRUE(uses.add({5}, pool, &steps));
    EXPECT_FALSE(uses.add({9, Kind::replaces}, pool, &steps));
    EXPECT_FALSE(uses.add({7}, pool, &steps));
    EXPECT_TRUE(uses.add({3, Kind::replaces}, pool, &steps));
    EXPECT_EQ(numbers(uses), (std::vector<std::uint64_t>{3, 5, 7, 9}));
    EXPECT_TRUE(uses.first().replaces());
    EXPECT_TRUE(uses.remove({3, Kind::replaces}, pool, &steps));
    EXPECT_FALSE(uses.first().replaces());
    EXPECT_TRUE(uses.add({4}, pool, &steps)) << "in front of what is left";
    EXPECT_EQ(uses.first().task, 4u);
}

TEST(NextUses, of_one_task_and_its_transfers_come_first_where_the_content_is_needed) {
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    EXPECT_TRUE(uses.add({5, Kind::replaces}, pool, &steps));
    EXPECT_TRUE(uses.add({5}, pool, &steps)) << "a transfer reads what the task replaces";
    EXPECT_FALSE(uses.add({5}, pool, &steps));
    EXPECT_FALSE(uses.add({6, Kind::replaces}, pool, &steps));
    EXPECT_FALSE(uses.first().replaces());
    EXPECT_FALSE(uses.remove({5, Kind::replaces}, pool, &steps)) << "another one is first";
    EXPECT_FALSE(uses.remove({5, Kind::replaces}, pool, &steps)) << "it is over";
    EXPECT_TRUE(uses.remove({5}, pool, &steps));
    EXPECT_EQ(uses.first(), (NextUses::Use{5}));
    EXPECT_TRUE(uses.remove({5}, pool, &steps));
    EXPECT_EQ(uses.first(), (NextUses::Use{6, Kind::replaces}));
}

/// Every second one replaces the content.
NextUses::Use use_of(std::uint64_t task) { return {task, task % 2 == 1 ? Kind::replaces : Kind::needs}; }

TEST(NextUses, agree_with_a_sorted_set_in_any_order_of_calls) {
    std::mt19937_64 random(7);
    NextUses::Pool pool;
    NextUses uses;
    std::set<std::uint64_t> expected;
    std::uint64_t steps = 0;
    std::uint64_t last = 0;
    for (int i = 0; i < 20'000; i++) {
        const std::uint64_t r = random();
        if (r % 5 < (i < 12'000 ? 3u : 2u)) {
            last += 1 + r / 16 % 3;
            const std::uint64_t task = r / 64 % 4 == 0 && last > 4 ? last - 3 : last;
            if (!expected.insert(task).second) continue;
            EXPECT_EQ(uses.add(use_of(task), pool, &steps), *expected.begin() == task);
        } else if (!expected.empty()) {
            auto at = expected.lower_bound(r / 8 % (last + 1));
            if (at == expected.end()) at = expected.begin();
            EXPECT_EQ(uses.remove(use_of(*at), pool, &steps), at == expected.begin());
            expected.erase(at);
        }
        ASSERT_EQ(uses.empty(), expected.empty());
        if (expected.empty()) continue;
        ASSERT_EQ(uses.first(), use_of(*expected.begin()));
    }
    EXPECT_EQ(numbers(uses), std::vector<std::uint64_t>(expected.begin(), expected.end()));
}

/// Entries looked at by n uses that end in any order but for the first, which ends at last.
std::uint64_t steps_of(std::uint64_t n) {
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 2; i <= n; i++) order.push_back(i);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(n));
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    for (std::uint64_t i = 1; i <= n; i++) uses.add({i}, pool, &steps);
    for (const std::uint64_t i : order) uses.remove({i}, pool, &steps);
    EXPECT_EQ(uses.first().task, 1u);
    return steps;
}

TEST(NextUses, twice_as_many_cost_little_more_than_twice_as_much) {
    EXPECT_LE(static_cast<double>(steps_of(16'000)), 2.2 * static_cast<double>(steps_of(8'000)));
}

TEST(NextUses, of_very_many_transfers_at_one_place_each_costs_little) {
    const auto steps_of = [](std::uint64_t count) {
        NextUses::Pool pool;
        NextUses uses;
        std::uint64_t steps = 0;
        for (std::uint64_t i = 0; i < 10; i++) uses.add({1 + i}, pool, &steps);
        for (std::uint64_t i = 0; i < count; i++) uses.add({100}, pool, &steps);
        uses.add({101}, pool, &steps);
        for (std::uint64_t i = 0; i < count; i++) {
            EXPECT_FALSE(uses.remove({100}, pool, &steps)) << "others stand before it";
            EXPECT_EQ(numbers(uses).size(), 10 + count - i);
        }
        EXPECT_FALSE(uses.remove({100}, pool, &steps)) << "none is left";
        EXPECT_EQ(uses.first().task, 1u);
        return static_cast<double>(steps);
    };
    EXPECT_LT(steps_of(4000), 2.3 * steps_of(2000));
}

TEST(NextUses, are_parts_alone_only_where_all_before_the_first_that_replaces_are) {
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    EXPECT_EQ(uses.num_parts_until_replaced(), 0u);
    uses.add({3, Kind::part}, pool, &steps);
    uses.add({4, Kind::part}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 0u) << "nobody replaces it";
    uses.add({7, Kind::replaces}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 2u);
    uses.add({8}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 2u) << "what comes behind reads what it wrote";
    uses.remove({3, Kind::part}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 1u);
    uses.add({5}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 0u) << "one needs all of it";
    uses.remove({5}, pool, &steps);
    std::vector<std::uint64_t> first;
    uses.for_each_first(uses.num_parts_until_replaced(), [&](const NextUses::Use& use) { first.push_back(use.task); });
    EXPECT_EQ(first, std::vector<std::uint64_t>{4});
    uses.remove({7, Kind::replaces}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 0u);
    for (std::uint64_t n = 10; n < 40; n++) uses.add({n, Kind::part}, pool, &steps);
    uses.add({40, Kind::replaces}, pool, &steps);
    EXPECT_EQ(uses.num_parts_until_replaced(), 0u) << "no more than a few are looked at";
}

TEST(NextUses, know_the_first_that_needs_more_than_a_small_part) {
    NextUses::Pool pool;
    NextUses uses;
    std::uint64_t steps = 0;
    EXPECT_FALSE(uses.begins_with_part());
    uses.add({3, Kind::part}, pool, &steps);
    EXPECT_TRUE(uses.begins_with_part());
    EXPECT_EQ(uses.first_whole().task, 3u) << "no other is known";
    uses.add({8}, pool, &steps);
    uses.add({4, Kind::part}, pool, &steps);
    EXPECT_EQ(uses.first_whole().task, 8u);
    uses.add({6}, pool, &steps);
    EXPECT_EQ(uses.first_whole().task, 6u);
    uses.remove({6}, pool, &steps);
    EXPECT_EQ(uses.first_whole().task, 8u);
    uses.add({2}, pool, &steps);
    EXPECT_FALSE(uses.begins_with_part());
    EXPECT_EQ(uses.first_whole().task, 2u);
    uses.remove({2}, pool, &steps);
    uses.remove({8}, pool, &steps);
    for (std::uint64_t n = 10; n < 40; n++) uses.add({n, Kind::part}, pool, &steps);
    uses.add({40}, pool, &steps);
    EXPECT_EQ(uses.first_whole().task, 3u) << "no more than a few are looked at";
}

}  // namespace
