// Which tasks wait for their memory, and what was made ahead of them.
#include "kmm/schedule/ahead.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

using kmm::schedule::Ahead;
using Place = Ahead::Place;

TEST(Ahead, the_front_is_the_first_place_with_a_task_that_is_not_placed) {
    Ahead ahead;
    for (const Place p : {3, 4, 5, 9}) ahead.add(p, 1);
    EXPECT_TRUE(ahead.is_front(3));
    EXPECT_FALSE(ahead.is_front(4));
    ahead.placed(4, 0);
    ahead.placed(5, 0);
    EXPECT_FALSE(ahead.is_front(9)) << "the third is not placed";
    ahead.placed(3, 0);
    EXPECT_TRUE(ahead.is_front(9)) << "placed places and places without a task are passed";
    EXPECT_EQ(ahead.size(), 1u);
    ahead.placed(9, 0);
    EXPECT_EQ(ahead.size(), 0u);
}

TEST(Ahead, a_place_is_passed_when_all_tasks_there_are_placed) {
    Ahead ahead;
    for (const Place p : {1, 1, 1, 2}) ahead.add(p, 1);
    ahead.placed(1, 0);
    ahead.placed(1, 0);
    EXPECT_FALSE(ahead.is_front(2));
    ahead.placed(1, 0);
    EXPECT_TRUE(ahead.is_front(2));
}

TEST(Ahead, a_helper_that_comes_when_its_place_has_passed_counts_at_the_front) {
    Ahead ahead;
    for (Place p = 1; p <= 10; ++p) ahead.add(p, 1);
    for (Place p = 1; p <= 6; ++p) ahead.placed(p, 0);
    ahead.add(2, 90);
    EXPECT_TRUE(ahead.is_front(2));
    EXPECT_TRUE(ahead.is_front(7));
    EXPECT_FALSE(ahead.may_make(9, 11, 100)) << "it must still fit";
    EXPECT_TRUE(ahead.may_make(9, 10, 100));
    ahead.placed(7, 0);
    EXPECT_FALSE(ahead.is_front(8)) << "the helper is not placed";
    ahead.placed(2, 50);
    EXPECT_TRUE(ahead.is_front(8));
    EXPECT_EQ(ahead.made_bytes(), 0u) << "what the front makes is not ahead of its turn";
}

TEST(Ahead, content_may_be_made_beside_the_largest_claim_of_the_earlier_tasks_that_are_not_placed) {
    Ahead ahead;
    const std::size_t claims[] = {10, 60, 30, 99};
    for (Place p = 0; p < 4; ++p) ahead.add(1 + p, claims[p]);
    EXPECT_TRUE(ahead.may_make(1, 100, 100)) << "nobody is before the front";
    EXPECT_TRUE(ahead.may_make(2, 90, 100)) << "only the first is before it";
    EXPECT_FALSE(ahead.may_make(2, 91, 100));
    EXPECT_TRUE(ahead.may_make(4, 40, 100)) << "not its own claim";
    EXPECT_FALSE(ahead.may_make(4, 41, 100));
    EXPECT_FALSE(ahead.may_make(4, 0, 59)) << "who is before it does not fit";
    EXPECT_FALSE(ahead.may_make(4, ~std::size_t{0}, 100)) << "no sum overflows";
}

TEST(Ahead, what_was_made_ahead_leaves_less_for_others_until_it_has_gone) {
    Ahead ahead;
    for (Place p = 1; p <= 4; ++p) ahead.add(p, 50);
    ahead.placed(2, 30);
    EXPECT_EQ(ahead.made_bytes(), 30u);
    EXPECT_TRUE(ahead.may_make(3, 20, 100));
    EXPECT_FALSE(ahead.may_make(3, 21, 100));
    ahead.gone(2, 10);
    EXPECT_EQ(ahead.made_bytes(), 20u);
    EXPECT_TRUE(ahead.may_make(3, 30, 100));
    EXPECT_FALSE(ahead.may_make(3, 31, 100));
    ahead.gone(2, 99);
    EXPECT_EQ(ahead.made_bytes(), 0u) << "no more goes than was made";
    ahead.gone(3, 99);
    EXPECT_EQ(ahead.made_bytes(), 0u) << "it made nothing";
    EXPECT_TRUE(ahead.may_make(3, 50, 100));
}

TEST(Ahead, what_was_made_ahead_is_forgotten_when_the_front_passes_who_made_it) {
    Ahead ahead;
    for (Place p = 1; p <= 5; ++p) ahead.add(p, 50);
    ahead.placed(2, 7);
    ahead.placed(4, 20);
    EXPECT_EQ(ahead.made_bytes(), 27u);
    ahead.placed(1, 0);
    EXPECT_EQ(ahead.made_bytes(), 20u) << "the front has passed the second, and waits for the third";
    ahead.gone(2, 7);
    EXPECT_EQ(ahead.made_bytes(), 20u) << "of the second nothing is counted any more";
    ahead.placed(3, 0);
    EXPECT_EQ(ahead.made_bytes(), 0u);
    EXPECT_TRUE(ahead.is_front(5));
}

TEST(Ahead, late_helpers_do_not_carry_the_front_past_tasks_that_are_still_to_come) {
    Ahead ahead;
    ahead.add(4, 1);
    ahead.placed(4, 0);
    for (int i = 0; i < 3; ++i) {
        ahead.add(2, 1);
        ahead.placed(2, 0);
    }
    for (const Place p : {5, 6, 7}) ahead.add(p, 1);
    EXPECT_TRUE(ahead.is_front(5));
    EXPECT_FALSE(ahead.is_front(6));
    EXPECT_FALSE(ahead.is_front(7));
}

/// All tasks in one list, and sums over it.
struct Naive {
    struct Entry {
        Place place, counted_at;
        std::size_t claim_bytes, made_bytes = 0;
        bool is_placed = false;
    };
    std::vector<Entry> entries;
    Place last = 0;

    Place front() const {
        Place first = last + 1;
        for (const Entry& e : entries)
            if (!e.is_placed) first = std::min(first, e.counted_at);
        return first;
    }
    void add(Place place, std::size_t claim_bytes) {
        entries.push_back({place, std::max(place, front()), claim_bytes});
        last = std::max(last, place);
    }
    std::size_t made_bytes() const {
        std::size_t bytes = 0;
        for (const Entry& e : entries)
            if (e.place >= front()) bytes += e.made_bytes;
        return bytes;
    }
    /// `all`: also those that are placed.
    std::size_t largest_claim_before(Place place, bool all) const {
        std::size_t largest = 0;
        for (const Entry& e : entries)
            if (e.counted_at >= front() && e.counted_at < place && (all || !e.is_placed))
                largest = std::max(largest, e.claim_bytes);
        return largest;
    }
    bool fits(Place place, std::size_t bytes, std::size_t capacity_bytes, bool all) const {
        return largest_claim_before(place, all) + made_bytes() + bytes <= capacity_bytes;
    }
};

TEST(Ahead, a_random_course_is_as_in_a_list_of_all_tasks) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        std::mt19937_64 random(seed);
        const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
        Ahead ahead;
        Naive naive;
        std::size_t asked = 0, allowed = 0;
        for (int step = 0; step < 600; ++step) {
            std::vector<std::size_t> open;
            for (std::size_t i = 0; i < naive.entries.size(); ++i)
                if (!naive.entries[i].is_placed) open.push_back(i);
            const std::size_t what = below(8);
            if (open.empty() || (what < 3 && open.size() < 12)) {
                // The next, one that leaves a gap, another at the same place, or a helper that comes late.
                const std::size_t kind = below(10);
                Place place = naive.last + 1 + (kind == 0 ? below(5) : 0);
                if (kind == 1 && naive.last >= naive.front()) place = naive.last;
                if (kind == 2 && !open.empty()) place = 1 + below(naive.front());
                const std::size_t claim_bytes = below(100);
                ahead.add(place, claim_bytes);
                naive.add(place, claim_bytes);
            } else if (what < 6) {
                Naive::Entry& e = naive.entries[open[below(std::min<std::size_t>(open.size(), 1 + below(8)))]];
                const std::size_t bytes = below(3) == 0 ? 0 : below(20);
                const bool is_front = e.place <= naive.front();
                ahead.placed(e.place, bytes);
                e.is_placed = true;
                e.made_bytes = is_front ? 0 : bytes;
            } else if (what == 6) {
                Naive::Entry& e = naive.entries[below(naive.entries.size())];
                // Content of a place goes: of several tasks there it does not matter whose.
                const bool is_alone =
                    std::count_if(naive.entries.begin(), naive.entries.end(),
                                  [&](const Naive::Entry& other) { return other.place == e.place; }) == 1;
                if (!is_alone) continue;
                const std::size_t bytes = below(20);
                ahead.gone(e.place, bytes);
                e.made_bytes -= std::min(bytes, e.made_bytes);
            } else {
                // From the front on, as the tasks of a line ask.
                const std::size_t bytes = below(50), capacity_bytes = 100 + below(100);
                for (const std::size_t i : open) {
                    const Place place = naive.entries[i].place;
                    const bool may = ahead.may_make(place, bytes, capacity_bytes);
                    EXPECT_TRUE(!may || naive.fits(place, bytes, capacity_bytes, false)) << seed << ": " << step;
                    ++asked;
                    allowed += may ? 1 : 0;
                }
            }
            ASSERT_EQ(ahead.made_bytes(), naive.made_bytes()) << seed << ": " << step;
            for (const Naive::Entry& e : naive.entries) {
                if (e.is_placed) continue;
                ASSERT_EQ(ahead.is_front(e.place), e.place <= naive.front()) << seed << ": " << step;
            }
        }
        EXPECT_GT(allowed, 0u);
        EXPECT_LT(allowed, asked);
    }
}

/// `steps_for(n)` and twice as many.
template<typename StepsFor>
void expect_steps_in_proportion(StepsFor steps_for) {
    constexpr Place many = 4000;
    const auto once = static_cast<double>(steps_for(many));
    const auto twice = static_cast<double>(steps_for(2 * many));
    EXPECT_GE(once, static_cast<double>(many)) << "nothing was counted";
    EXPECT_LE(twice, 2.2 * once);
}

TEST(Ahead, all_that_wait_may_ask_after_each_that_is_placed_at_a_cost_in_proportion) {
    expect_steps_in_proportion([](Place count) {
        Ahead ahead;
        for (Place p = 1; p <= count; ++p) ahead.add(p, p % 17);
        for (Place p = 1; p <= count; ++p) {
            EXPECT_TRUE(ahead.may_make(count, 1, 1000));
            EXPECT_TRUE(ahead.may_make(p / 2 + count / 2, 1, 1000));
            ahead.placed(p, 0);
        }
        return ahead.num_steps();
    });
}

TEST(Ahead, content_is_made_from_behind_at_a_cost_in_proportion) {
    expect_steps_in_proportion([](Place count) {
        Ahead ahead;
        for (Place p = 1; p <= count; ++p) ahead.add(p, 1);
        for (Place p = count; p >= 1; --p) {
            EXPECT_TRUE(ahead.may_make(p, 1, 2 * count));
            ahead.placed(p, 1);
        }
        EXPECT_EQ(ahead.made_bytes(), 0u);
        return ahead.num_steps();
    });
}

TEST(Ahead, helpers_that_come_late_cost_in_proportion) {
    expect_steps_in_proportion([](Place count) {
        Ahead ahead;
        for (Place p = 1; p <= count; ++p) ahead.add(p, 1);
        ahead.placed(1, 0);
        for (Place p = 1; p <= count; ++p) {
            EXPECT_TRUE(ahead.may_make(count, 1, 1000));
            ahead.add(1, 1);
            ahead.placed(1, 0);
        }
        return ahead.num_steps();
    });
}

}  // namespace
