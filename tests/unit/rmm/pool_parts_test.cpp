// The part of the pool that knows no driver: the table of addresses against std::map.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "rmm/heap/address_map.hpp"

namespace {

using rmm::heap::address_map;

TEST(AddressMap, gives_back_what_was_put_in_once) {
    address_map<int> table;
    table.insert(256, 10);
    EXPECT_EQ(table.size(), 1u);
    ASSERT_NE(table.find(256), nullptr);
    EXPECT_EQ(*table.find(256), 10);
    EXPECT_EQ(table.take(256), 10);
    EXPECT_EQ(table.take(256), std::nullopt);
    EXPECT_EQ(table.take(12345), std::nullopt);
    EXPECT_EQ(table.take(0), std::nullopt);
    EXPECT_EQ(table.size(), 0u);
}

TEST(AddressMap, agrees_with_a_map_over_random_insertions_and_removals) {
    std::mt19937_64 random(1);
    address_map<int> table;
    std::map<std::uintptr_t, int> model;
    for (int step = 0; step < 200000; ++step) {
        const std::uintptr_t address = 256 * (1 + random() % 5000);
        const auto known = model.find(address);
        if (known == model.end() && random() % 3 != 0) {
            table.insert(address, step);
            model[address] = step;
        } else if (known == model.end()) {
            ASSERT_EQ(table.take(address), std::nullopt) << step;
        } else {
            ASSERT_EQ(*table.find(address), known->second);
            ASSERT_EQ(table.take(address), known->second) << step;
            model.erase(known);
        }
        ASSERT_EQ(table.size(), model.size());
    }
    std::size_t seen = 0;
    table.for_each([&](std::uintptr_t address, int value) {
        ++seen;
        EXPECT_EQ(model.at(address), value);
    });
    EXPECT_EQ(seen, model.size());
}

}  // namespace
