// Lists that share their memory, against vectors.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kmm/graph/number_lists.hpp"

namespace {

using kmm::graph::NumberLists;
using kmm::graph::TaskNumber;

std::vector<TaskNumber> numbers_of(const NumberLists& lists, const NumberLists::List& list) {
    std::vector<TaskNumber> numbers;
    lists.each(list, [&](TaskNumber n) { numbers.push_back(n); });
    return numbers;
}

TEST(NumberLists, keep_what_each_was_given_in_its_order) {
    std::mt19937 random(1);
    NumberLists lists;
    std::vector<NumberLists::List> all(40);
    std::vector<std::vector<TaskNumber>> model(all.size());
    for (TaskNumber step = 1; step < 50'000; ++step) {
        const std::size_t i = random() % all.size();
        if (random() % 12 == 0) {
            lists.clear(all[i]);
            model[i].clear();
        } else {
            lists.push(all[i], step);
            model[i].push_back(step);
            ASSERT_EQ(all[i].latest, step);
        }
        ASSERT_EQ(all[i].size, model[i].size());
        ASSERT_EQ(numbers_of(lists, all[i]), model[i]);
    }
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(numbers_of(lists, all[i]), model[i]);
}

TEST(NumberLists, use_again_what_was_given_back) {
    NumberLists lists;
    std::size_t most = 0;
    for (int round = 0; round < 3; ++round) {
        std::vector<NumberLists::List> all(100);
        for (TaskNumber n = 1; n <= 20; ++n)
            for (NumberLists::List& list : all) lists.push(list, n);
        if (round == 0) most = lists.num_nodes();
        EXPECT_EQ(lists.num_nodes(), most);
        for (NumberLists::List& list : all) lists.clear(list);
    }
}

// A copy of one list into another of the same object.
TEST(NumberLists, can_be_read_while_others_grow) {
    NumberLists lists;
    NumberLists::List from, to;
    for (TaskNumber n = 1; n <= 1000; ++n) lists.push(from, n);
    lists.each(from, [&](TaskNumber n) { lists.push(to, n); });
    EXPECT_EQ(numbers_of(lists, to), numbers_of(lists, from));
    EXPECT_EQ(to.size, 1000u);
}

TEST(NumberLists, of_one_number_take_nothing) {
    NumberLists lists;
    std::vector<NumberLists::List> all(100);
    for (NumberLists::List& list : all) lists.push(list, 5);
    EXPECT_EQ(lists.num_nodes(), 0u);
}

}  // namespace
