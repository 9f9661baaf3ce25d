// Which boxes hold or meet a region: against a look at all of them, and in boxes and subtrees that are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "boxes.hpp"
#include "cuts.hpp"
#include "kmm/boxes/box_index.hpp"

namespace {

using kmm::boxes::Box;
using kmm::boxes::BoxIndex;
using kmm_test::Cut;
using kmm_test::CutRandom;
using kmm_test::line;
using kmm_test::pick;

using Numbers = std::vector<std::size_t>;

BoxIndex index_of(std::size_t rank, const std::vector<Box>& boxes) {
    return {rank, boxes.size(), [&](std::size_t i) -> const Box& { return boxes[i]; }};
}

Numbers meeting(const BoxIndex& index, const Box& region) {
    Numbers numbers;
    index.each_that_meets(region, [&](std::size_t i) {
        numbers.push_back(i);
        return true;
    });
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

std::size_t scan_for_holder(const std::vector<Box>& boxes, const Box& region) {
    for (std::size_t i = 0; i < boxes.size(); i++)
        if (kmm::boxes::contains(boxes[i], region)) return i;
    return BoxIndex::none;
}

Numbers scan_for_meeting(const std::vector<Box>& boxes, const Box& region) {
    Numbers numbers;
    for (std::size_t i = 0; i < boxes.size(); i++)
        if (!kmm::boxes::is_empty(kmm::boxes::intersection(boxes[i], region))) numbers.push_back(i);
    return numbers;
}

/// Inside one of the boxes, or anywhere about the array, and now and then empty.
Box random_region(const Cut& cut, CutRandom& random) {
    const bool inside = pick(random, 0, 1) == 0;
    const Box& around = cut.boxes[static_cast<std::size_t>(pick(random, 0, std::int64_t(cut.boxes.size()) - 1))];
    Box region;
    for (std::size_t k = 0; k < cut.rank; k++) {
        const std::int64_t low = inside ? around.begin[k] : cut.array.begin[k] - 2;
        const std::int64_t high = inside ? around.end[k] : cut.array.end[k] + 2;
        region.begin[k] = pick(random, low, high);
        region.end[k] = pick(random, region.begin[k], high);
        if (region.end[k] == region.begin[k] && region.end[k] < high && pick(random, 0, 9) != 0) region.end[k]++;
    }
    return region;
}

TEST(BoxIndex, answers_as_a_look_at_all_boxes_does_for_every_rank) {
    std::size_t num_held = 0, num_crossing = 0, num_outside = 0, num_empty = 0;
    for (unsigned seed = 0; seed < 160; seed++) {
        CutRandom random(seed);
        const std::size_t rank = 1 + seed % 8;
        const auto count = static_cast<std::size_t>(pick(random, 1, 300));
        Cut cut = kmm_test::random_halves(rank, count, seed, rank == 1 ? 500 : rank == 2 ? 40 : 6);
        // With holes, too.
        if (seed % 3 == 0) cut.boxes.resize((cut.boxes.size() + 1) / 2);
        const BoxIndex index = index_of(rank, cut.boxes);
        ASSERT_EQ(index.size(), cut.boxes.size());
        std::size_t first = 0, second = 0;
        ASSERT_FALSE(index.find_overlap(&first, &second)) << "seed " << seed;
        for (int i = 0; i < 100; i++) {
            const Box region = random_region(cut, random);
            const Numbers expected = scan_for_meeting(cut.boxes, region);
            ASSERT_EQ(meeting(index, region), expected) << "seed " << seed << ", query " << i;
            ASSERT_EQ(index.find(region), scan_for_holder(cut.boxes, region)) << "seed " << seed << ", query " << i;
            num_empty += kmm::boxes::is_empty(region);
            num_outside += expected.empty() && !kmm::boxes::is_empty(region);
            num_crossing += expected.size() > 1;
            num_held += expected.size() == 1 && index.find(region) == expected.front();
        }
    }
    for (const std::size_t n : {num_held, num_crossing, num_outside, num_empty}) EXPECT_GT(n, 500u);
}

TEST(BoxIndex, finds_two_boxes_that_share_an_element_as_a_look_at_all_pairs_does) {
    std::size_t num_found = 0;
    for (unsigned seed = 0; seed < 400; seed++) {
        CutRandom random(seed);
        const std::size_t rank = 1 + seed % 8;
        Cut cut = kmm_test::random_halves(rank, static_cast<std::size_t>(pick(random, 2, 200)), seed, 8);
        // One of them grows, which it can only into others or out of the array.
        Box& grown = cut.boxes[static_cast<std::size_t>(pick(random, 0, std::int64_t(cut.boxes.size()) - 1))];
        grown.end[static_cast<std::size_t>(pick(random, 0, std::int64_t(rank) - 1))] += pick(random, 0, 2);
        bool expected = false;
        for (std::size_t i = 0; i < cut.boxes.size(); i++)
            for (std::size_t j = i + 1; j < cut.boxes.size(); j++)
                expected = expected || kmm::boxes::overlaps(cut.boxes[i], cut.boxes[j]);
        std::size_t first = 0, second = 0;
        ASSERT_EQ(index_of(rank, cut.boxes).find_overlap(&first, &second), expected) << "seed " << seed;
        if (!expected) continue;
        num_found++;
        ASSERT_LT(first, second);
        ASSERT_TRUE(kmm::boxes::overlaps(cut.boxes[first], cut.boxes[second])) << "seed " << seed;
    }
    EXPECT_GT(num_found, 100u);
}

TEST(BoxIndex, is_made_of_equal_boxes_of_none_and_of_those_that_end_where_numbers_end) {
    const BoxIndex none;
    EXPECT_EQ(none.find(line(0, 1)), BoxIndex::none);
    EXPECT_TRUE(meeting(none, line(0, 1)).empty());
    std::size_t first = 0, second = 0;
    EXPECT_FALSE(none.find_overlap(&first, &second));

    const std::vector<Box> equal(1000, line(3, 5));
    EXPECT_TRUE(index_of(1, equal).find_overlap(&first, &second));
    EXPECT_NE(first, second);
    EXPECT_EQ(meeting(index_of(1, equal), line(4, 9)).size(), 1000u);

    constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
    std::vector<Box> far;
    for (std::int64_t i = 0; i < 40; i++) far.push_back(line(i == 0 ? 0 : end - 40 + i, end - 39 + i));
    const BoxIndex index = index_of(1, far);
    EXPECT_FALSE(index.find_overlap(&first, &second));
    EXPECT_EQ(index.find(line(end - 1, end)), 39u);
    EXPECT_EQ(index.find(line(7, end - 50)), 0u);
    EXPECT_EQ(meeting(index, line(5, end - 37)), (Numbers{0, 1, 2}));
}

TEST(BoxIndex, a_visitor_that_has_enough_is_not_called_again) {
    const Cut cut = kmm_test::bricks(400);
    int calls = 0;
    index_of(2, cut.boxes).each_that_meets(cut.array, [&](std::size_t) { return ++calls < 3; });
    EXPECT_EQ(calls, 3);
}

/// Boxes and subtrees that are looked at, over queries for every box of a cut.
struct Steps {
    std::size_t find = 0;      ///< which box holds it, which its last element, which one element more on each side
    std::size_t meet = 0;      ///< what meets that
    std::size_t disjoint = 0;  ///< that no two boxes overlap, once
};

Steps steps_of(const Cut& cut) {
    const BoxIndex index = index_of(cut.rank, cut.boxes);
    Steps steps;
    for (std::size_t i = 0; i < cut.boxes.size(); i++) {
        Box element = cut.boxes[i], grown = cut.boxes[i];
        for (std::size_t k = 0; k < cut.rank; k++) {
            element.begin[k] = element.end[k] - 1;
            grown.begin[k]--;
            grown.end[k]++;
        }
        EXPECT_EQ(index.find(cut.boxes[i], &steps.find), i);
        EXPECT_EQ(index.find(element, &steps.find), i);
        EXPECT_EQ(index.find(grown, &steps.find), BoxIndex::none);
        std::size_t found = 0;
        index.each_that_meets(grown, [&](std::size_t) { return ++found > 0; }, &steps.meet);
        EXPECT_GT(found, 1u);
    }
    std::size_t first = 0, second = 0;
    EXPECT_FALSE(index.find_overlap(&first, &second, &steps.disjoint));
    return steps;
}

TEST(BoxIndexSteps, all_queries_for_twice_as_many_boxes_take_twice_the_steps_and_the_logarithm) {
    constexpr std::size_t count = 20'000;
    const auto halves = [](std::size_t rank, std::int64_t side) {
        return [=](std::size_t n) { return kmm_test::random_halves(rank, n, 7, side); };
    };
    const std::pair<const char*, std::function<Cut(std::size_t)>> cuts[] = {
        {"a line of pieces", halves(1, std::int64_t{1} << 30)},
        {"random halves of two axes", halves(2, std::int64_t{1} << 20)},
        {"random halves of three axes", halves(3, std::int64_t{1} << 20)},
        {"rows of columns", [](std::size_t n) { return kmm_test::rows_of_columns(n); }},
        {"few huge and many tiny", kmm_test::few_huge_and_many_tiny},
        {"bricks", kmm_test::bricks},
        {"pinwheels", kmm_test::pinwheels},
        {"flat and upright", kmm_test::flat_and_upright},
    };
    for (const auto& [name, cut] : cuts) {
        const Cut one = cut(count), two = cut(2 * count);
        const auto n = static_cast<double>(one.boxes.size()), n2 = static_cast<double>(two.boxes.size());
        const double limit = 1.1 * (n2 / n) * (std::log(n2) / std::log(n));
        const Steps at_n = steps_of(one), at_2n = steps_of(two);
        const auto expect = [&](const char* what, std::size_t a, std::size_t b, double most_of_each) {
            EXPECT_LE(static_cast<double>(b), limit * static_cast<double>(a)) << name << ", " << what;
            EXPECT_LE(static_cast<double>(b) / n2, most_of_each) << name << ", " << what;
        };
        expect("find", at_n.find, at_2n.find, 150);
        expect("each_that_meets", at_n.meet, at_2n.meet, 120);
        expect("find_overlap", at_n.disjoint, at_2n.disjoint, 12);
    }
}

}  // namespace
