// Disjoint boxes that come and go, against a list of them: kmm/graph/box_tree.hpp.
#include "kmm/graph/box_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace {

using kmm::boxes::Box;
using kmm::graph::BoxTree;

/// A tree and the list that it must agree with.
class Model {
  public:
    Model(std::size_t rank, std::uint64_t seed) : rank_(rank), tree_(rank), random_(seed) {}

    /// The region is cut out of what is there, and put in.
    void cut(const Box& region) {
        std::vector<BoxTree<int>::Entry> taken;
        std::set<int> expected, found;
        for (const auto& [value, box] : boxes_)
            if (kmm::boxes::overlaps(box, region)) expected.insert(value);
        tree_.cut(
            region,
            [&](const BoxTree<int>::Entry& e) {
                found.insert(e.value);
                EXPECT_TRUE(kmm::boxes::equal(e.box, boxes_.at(e.value)));
                return e.value % 3 != 0;
            },
            [&](BoxTree<int>::Entry&& e) { taken.push_back(std::move(e)); });
        EXPECT_EQ(found, expected);
        std::vector<Box> left;
        for (const int value : expected) {
            std::vector<Box> pieces;
            kmm::boxes::subtract(boxes_.at(value), region, [&](const Box& piece) { pieces.push_back(piece); });
            const bool is_taken =
                std::any_of(taken.begin(), taken.end(), [&](const auto& e) { return e.value == value; });
            EXPECT_EQ(is_taken, pieces.size() != 1 || value % 3 == 0);
            if (!is_taken) {
                boxes_[value] = pieces.front();
                continue;
            }
            boxes_.erase(value);
            left.insert(left.end(), pieces.begin(), pieces.end());
        }
        for (const Box& piece : left) add(piece);
        add(region);
    }
    /// What meets the region is taken out, and what is left of it comes back; then the region itself.
    void put(const Box& region) {
        std::vector<BoxTree<int>::Entry> taken;
        tree_.take(region, [&](BoxTree<int>::Entry&& e) { taken.push_back(std::move(e)); });
        std::set<int> expected;
        for (const auto& [value, box] : boxes_)
            if (kmm::boxes::overlaps(box, region)) expected.insert(value);
        std::set<int> found;
        for (const auto& e : taken) {
            found.insert(e.value);
            EXPECT_TRUE(kmm::boxes::equal(e.box, boxes_.at(e.value)));
            boxes_.erase(e.value);
        }
        EXPECT_EQ(found, expected);
        for (const auto& e : taken) kmm::boxes::subtract(e.box, region, [&](const Box& piece) { add(piece); });
        add(region);
    }
    void remove(const Box& region) {
        std::size_t count = 0;
        tree_.take(region, [&](BoxTree<int>::Entry&& e) { count += boxes_.erase(e.value); });
        for (const auto& [value, box] : boxes_) EXPECT_FALSE(kmm::boxes::overlaps(box, region)) << value;
        EXPECT_EQ(tree_.size(), boxes_.size()) << count << " were taken out";
    }
    void expect_agreement(const Box& region) const {
        std::set<int> found, expected;
        tree_.each_that_meets(region, [&](const BoxTree<int>::Entry& e) {
            EXPECT_TRUE(found.insert(e.value).second) << "once";
            EXPECT_TRUE(kmm::boxes::equal(e.box, boxes_.at(e.value)));
        });
        for (const auto& [value, box] : boxes_)
            if (kmm::boxes::overlaps(box, region)) expected.insert(value);
        EXPECT_EQ(found, expected);
        std::size_t count = 0;
        tree_.each([&](const BoxTree<int>::Entry&) { ++count; });
        EXPECT_EQ(count, boxes_.size());
        EXPECT_EQ(tree_.size(), boxes_.size());
    }
    Box random_region(std::int64_t extent, std::int64_t longest) {
        Box b;
        for (std::size_t k = 0; k < rank_; ++k) {
            b.begin[k] = pick(0, extent - 1);
            b.end[k] = std::min(extent, b.begin[k] + pick(1, longest));
        }
        return b;
    }
    std::int64_t pick(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    std::size_t size() const { return boxes_.size(); }

  private:
    void add(const Box& box) {
        tree_.insert(box, next_);
        boxes_[next_++] = box;
    }
    const std::size_t rank_;
    BoxTree<int> tree_;
    std::map<int, Box> boxes_;
    int next_ = 1;
    std::mt19937_64 random_;
};

TEST(BoxTree, of_random_boxes_finds_and_takes_out_exactly_those_that_meet_a_region) {
    std::size_t most = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const std::size_t rank = 1 + seed % kmm::detail::max_rank;
        Model model(rank, seed);
        const std::int64_t extent = rank == 1 ? 5000 : rank == 2 ? 80 : rank == 3 ? 24 : 6;
        for (int step = 0; step < 300; ++step) {
            const Box region = model.random_region(extent, std::max<std::int64_t>(1, extent / 8));
            if (seed % 2 == 0)
                model.put(region);
            else
                model.cut(region);
            model.expect_agreement(model.random_region(extent, extent));
            if (model.pick(0, 49) == 0) model.remove(model.random_region(extent, extent));
            if (testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << step;
        }
        most = std::max(most, model.size());
    }
    EXPECT_GT(most, 200u) << "several levels of nodes";
}

TEST(BoxTree, is_empty_again_after_everything_was_taken_out_and_goes_on) {
    for (int round = 0; round < 3; ++round) {
        Model model(2, 1);
        Box all;
        all.end[0] = all.end[1] = 1000;
        model.expect_agreement(all);
        for (int i = 0; i < 500; ++i) model.put(model.random_region(1000, 20));
        model.remove(all);
        EXPECT_EQ(model.size(), 0u);
        model.expect_agreement(all);
        for (int i = 0; i < 500; ++i) model.put(model.random_region(1000, 20));
        model.expect_agreement(all);
    }
}

}  // namespace
