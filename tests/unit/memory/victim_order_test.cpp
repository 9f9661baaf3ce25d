// The order of victims against a sorted list, and how many replicas a search looks at.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kmm/memory/victim_order.hpp"

namespace {

using kmm::memory::Victim;
using kmm::memory::VictimKey;
using kmm::memory::VictimOrder;

constexpr VictimKey before_all{0, 0, nullptr};
constexpr std::size_t any = ~std::size_t{0};

/// The key of the first one behind `after` that fits; tick 0 if there is none.
VictimKey expected(const std::vector<const Victim*>& in_order, const VictimKey& after, std::size_t below) {
    VictimKey best = before_all;
    for (const Victim* r : in_order) {
        const VictimKey key = VictimOrder::key_of(*r);
        if (key > after && r->place_bytes < below && (best.tick == 0 || key < best)) best = key;
    }
    return best;
}

TEST(VictimOrder, finds_the_first_that_fits_behind_any_other) {
    std::mt19937_64 random(3);
    std::vector<Victim> victims(300);
    std::vector<const Victim*> in_order;
    VictimOrder order;
    std::uint64_t steps = 0;
    std::uint64_t tick = 0;
    for (int i = 0; i < 20'000; i++) {
        Victim& r = victims[random() % victims.size()];
        if (r.indexed) {
            order.erase(r);
            std::erase(in_order, &r);
        } else {
            r.rank = random() % 5;
            r.tick = ++tick;
            r.place_bytes = random() % 3 == 0 ? 0 : 1 + random() % 100;
            order.insert(r);
            in_order.push_back(&r);
        }
        r.indexed = !r.indexed;
        const std::size_t below = random() % 4 == 0 ? any : random() % 101;
        const VictimKey after = random() % 4 == 0 || in_order.empty()
                                    ? before_all
                                    : VictimOrder::key_of(*in_order[random() % in_order.size()]);
        const Victim* const found = order.next(after, below, &steps);
        const VictimKey key = expected(in_order, after, below);
        ASSERT_EQ(found == nullptr, key.tick == 0);
        if (found != nullptr) {
            ASSERT_EQ(VictimOrder::key_of(*found), key);
        }
    }
    EXPECT_GT(in_order.size(), 50u);
}

/// The only one that fits is the last, behind n that need places of as many sizes.
std::uint64_t steps_behind(std::size_t n) {
    std::vector<Victim> victims(n + 1);
    VictimOrder order;
    for (std::size_t i = 0; i <= n; i++) {
        victims[i].tick = i + 1;
        victims[i].place_bytes = i < n ? 2 * n - i : 1;
        order.insert(victims[i]);
    }
    std::uint64_t steps = 0;
    EXPECT_EQ(order.next(before_all, n / 2, &steps), &victims[n]);
    EXPECT_EQ(order.next(VictimOrder::key_of(victims[n / 3]), 2, &steps), &victims[n]);
    EXPECT_EQ(order.next(before_all, 1, &steps), nullptr);
    return steps;
}

TEST(VictimOrder, passes_over_what_does_not_fit_however_many_sizes_there_are) {
    const std::uint64_t some = steps_behind(4'000);
    EXPECT_LE(some, 200u);
    EXPECT_LE(steps_behind(8'000), some * 11 / 10 + 30) << "a logarithm";
}

}  // namespace
