// What comes of rules and orders on a copy of what is there.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "kmm/schedule/rollout.hpp"

namespace {

using kmm::schedule::Rollout;
using Index = Rollout::Index;
using Rule = Rollout::Rule;

constexpr std::size_t size = 1 << 20;

class RolloutTest : public ::testing::Test, protected Rollout::Source {
  protected:
    void begin(std::size_t num_free) { rollout_.clear(num_free * size, 64 * size, 1000); }
    /// `used_at`: places in the order of submission.
    Index chunk(const std::vector<std::uint64_t>& used_at, bool is_here = false, bool is_dirty = false) {
        Rollout::Chunk c;
        c.bytes = size;
        c.is_here = is_here;
        c.is_dirty = is_dirty;
        c.last_use = ++clock_;
        for (const std::uint64_t place : used_at) c.next_uses[c.num_next_uses++].place = place;
        return rollout_.add_chunk(c);
    }
    struct Uses {
        std::vector<Index> reads, writes;
    };
    Index task(std::uint64_t place, const Uses& uses, const std::vector<Index>& after = {}, bool is_join = false) {
        Rollout::Task t;
        t.place = t.ready_at = place;
        t.open_predecessors = static_cast<std::uint32_t>(after.size());
        t.is_join = is_join;
        for (const Index c : uses.reads) t.uses[t.num_uses++] = {c, true, false};
        for (const Index c : uses.writes) t.uses[t.num_uses++] = {c, true, true};
        const Index index = rollout_.add_task(t);
        for (const Index before : after) successors_[before].push_back(index);
        return index;
    }
    void add_successors(Index task) override {
        for (const Index after : successors_[task]) rollout_.add_edge(after);
    }
    std::vector<Index> play(Rule rule, const std::vector<Index>& first = {}, std::size_t most = 100) {
        const auto order = rollout_.play(rule, first, most, *this);
        return {order.begin(), order.end()};
    }
    double chunks_a_task(const std::vector<Index>& order) {
        return rollout_.bytes_a_task(order, *this) / static_cast<double>(size);
    }

    Rollout rollout_;
    std::map<Index, std::vector<Index>> successors_;
    std::uint64_t clock_ = 0;
};

TEST_F(RolloutTest, plays_what_misses_nothing_first_and_then_what_moves_least) {
    begin(4);
    const Index a = chunk({1}), b = chunk({1, 2}), c = chunk({3}, true);
    const Index two = task(1, {{a, b}, {}});
    const Index one = task(2, {{b}, {}});
    const Index none = task(3, {{c}, {}});
    EXPECT_EQ(play(Rule::fewest_bytes), (std::vector<Index>{none, one, two}));
    EXPECT_EQ(play(Rule::fewest_bytes, {}, 2), (std::vector<Index>{none, one})) << "no more than it is told";
}

TEST_F(RolloutTest, plays_what_comes_after_a_task_and_ends_joins_at_once) {
    begin(4);
    const Index a = chunk({1, 2, 3});
    const Index first = task(1, {{a}, {}}), second = task(2, {{a}, {}});
    const Index join = task(0, {}, {first, second}, true);
    const Index last = task(3, {{}, {a}}, {join});
    EXPECT_EQ(play(Rule::fewest_bytes), (std::vector<Index>{first, second, last}));
    EXPECT_EQ(play(Rule::affinity), (std::vector<Index>{first, second, last}));
}

TEST_F(RolloutTest, follows_an_order_up_to_a_task_that_is_not_ready) {
    begin(4);
    const Index a = chunk({1, 4}), b = chunk({2}), c = chunk({3});
    const Index first = task(1, {{a}, {}}), second = task(2, {{b}, {}}), third = task(3, {{c}, {}});
    const Index behind = task(4, {{a}, {}}, {first});
    EXPECT_EQ(play(Rule::fewest_bytes, {third, behind, second}), (std::vector<Index>{third, first, behind, second}));
    EXPECT_EQ(play(Rule::fewest_bytes, {third, second}), (std::vector<Index>{third, second, first, behind}));
}

TEST_F(RolloutTest, by_affinity_fetches_what_most_tasks_can_share_whose_other_chunks_are_there) {
    begin(8);
    const Index here = chunk({1, 2, 3}, true), other = chunk({4}, true);
    const Index shared = chunk({2, 3}), alone = chunk({1}), with_missing = chunk({4, 5}), missing = chunk({5});
    const Index lonely = task(1, {{here, alone}, {}});
    const Index left = task(2, {{here, shared}, {}}), right = task(3, {{here, shared}, {}});
    const Index near = task(4, {{other, with_missing}, {}}), far = task(5, {{missing, with_missing}, {}});
    EXPECT_EQ(play(Rule::fewest_bytes), (std::vector<Index>{lonely, left, right, near, far}));
    EXPECT_EQ(play(Rule::affinity), (std::vector<Index>{left, right, lonely, near, far}));
}

TEST_F(RolloutTest, counts_an_order_with_victims_by_next_use_in_it) {
    begin(2);
    const Index a = chunk({1, 4}), b = chunk({2, 5}), c = chunk({3});
    const Index reads_a = task(1, {{a}, {}}), reads_b = task(2, {{b}, {}}), reads_c = task(3, {{c}, {}});
    const Index again_a = task(4, {{a}, {}}), again_b = task(5, {{b}, {}});
    EXPECT_EQ(chunks_a_task({reads_a, reads_b, reads_c, again_a}), 3.0 / 4) << "b leaves, not a";
    EXPECT_EQ(chunks_a_task({reads_a, reads_b, reads_c, again_b}), 3.0 / 4) << "a leaves, not b";
    EXPECT_EQ(chunks_a_task({reads_a, reads_b, reads_c, again_b, again_a}), 4.0 / 5);
}

TEST_F(RolloutTest, counts_what_is_saved_and_half_of_what_has_still_to_be) {
    begin(1);
    const Index a = chunk({1, 3}), b = chunk({2});
    const Index writes_a = task(1, {{}, {a}}), reads_b = task(2, {{b}, {}}), again_a = task(3, {{a}, {}}, {writes_a});
    EXPECT_EQ(chunks_a_task({writes_a}), 1.5);
    EXPECT_EQ(chunks_a_task({writes_a, reads_b}), 3.0 / 2);
    EXPECT_EQ(chunks_a_task({writes_a, again_a, reads_b}), 3.0 / 3);
}

TEST_F(RolloutTest, saves_nothing_of_a_released_array_behind_its_last_use) {
    const auto bytes_of_two = [&](bool is_released) {
        begin(1);
        successors_.clear();
        Rollout::Chunk made;
        made.bytes = size;
        made.is_released = is_released;
        made.num_next_uses = 2;
        made.next_uses[0] = {1, false, Rollout::none};
        made.next_uses[1] = {2, false, Rollout::none};
        const Index a = rollout_.add_chunk(made), b = chunk({3});
        const Index makes = task(1, {{}, {a}}), uses = task(2, {{a}, {}}, {makes}), other = task(3, {{b}, {}});
        EXPECT_EQ(chunks_a_task({makes}), 1.5) << "the other use comes";
        EXPECT_EQ(chunks_a_task({makes, uses}), (is_released ? 1.0 : 1.5) / 2) << "nothing has still to be saved";
        return chunks_a_task({makes, uses, other});
    };
    EXPECT_EQ(bytes_of_two(false), 3.0 / 3);
    EXPECT_EQ(bytes_of_two(true), 2.0 / 3) << "it is dropped";
}

TEST_F(RolloutTest, pushes_out_first_what_nobody_needs_and_ends_where_nothing_can_leave) {
    begin(0);
    const Index useless = chunk({}, true), needed = chunk({3}, true), a = chunk({1}), b = chunk({2}), c = chunk({2});
    const Index small = task(1, {{a}, {}}), large = task(2, {{a, b, c, needed}, {}});
    task(3, {{needed}, {}}, {large});
    EXPECT_EQ(play(Rule::fewest_bytes), (std::vector<Index>{small})) << "there is room for two";
    EXPECT_EQ(chunks_a_task({small}), 1.0) << "chunk " << useless << " is dropped";
}

TEST_F(RolloutTest, drops_what_is_replaced_next_although_the_order_uses_it) {
    begin(0);
    Rollout::Chunk replaced;
    replaced.bytes = size;
    replaced.is_here = replaced.is_dirty = true;
    replaced.num_next_uses = 1;
    replaced.next_uses[0] = {3, true, Rollout::none};
    const Index d = rollout_.add_chunk(replaced);
    const Index e = chunk({2}, true), x = chunk({1});
    const Index reads_x = task(1, {{x}, {}}), reads_e = task(2, {{e}, {}});
    Rollout::Task overwrites;
    overwrites.place = overwrites.ready_at = 3;
    overwrites.num_uses = 1;
    overwrites.uses[0] = {d, false, true};
    const Index replaces_d = rollout_.add_task(overwrites);
    EXPECT_EQ(chunks_a_task({reads_x, reads_e, replaces_d}), 1.5 / 3) << "x, and half of d, which is new";
}

TEST_F(RolloutTest, ends_in_time_however_many_tasks_become_ready) {
    begin(16);
    constexpr std::uint64_t num_ready = 128, num_successors = 7;
    std::uint64_t place = 0;
    const auto uses = [&] {
        Uses u;
        for (std::size_t i = 0; i < Rollout::most_uses; ++i) u.reads.push_back(chunk({place + 1}));
        return u;
    };
    for (std::uint64_t i = 0; i < num_ready; ++i) {
        const Uses of_first = uses();
        const Index first = task(++place, of_first);
        for (std::uint64_t k = 0; k < num_successors; ++k) {
            const Uses of_next = uses();
            task(++place, of_next, {first});
        }
    }
    for (const Rule rule : {Rule::fewest_bytes, Rule::affinity}) {
        const std::uint64_t before = rollout_.num_steps();
        const std::vector<Index> order = play(rule, {}, 1000);
        EXPECT_FALSE(order.empty());
        EXPECT_LE(rollout_.num_steps() - before, Rollout::most_steps + Rollout::most_steps / 5);
        const std::uint64_t played = rollout_.num_steps();
        EXPECT_GT(chunks_a_task(order), 0);
        EXPECT_LE(rollout_.num_steps() - played, Rollout::most_steps + Rollout::most_steps / 5);
    }
}

TEST_F(RolloutTest, takes_a_number_of_steps_for_each_task_that_the_number_of_tasks_does_not_change) {
    const auto steps_for = [&](std::uint64_t n) {
        const std::uint64_t before = rollout_.num_steps();
        successors_.clear();
        begin(16);
        std::vector<Index> chains;
        for (std::uint64_t i = 0; i < 8; ++i) {
            const Index own = chunk({});
            Index last = Rollout::none;
            for (std::uint64_t k = 0; k < n / 8; ++k) {
                const Index read = chunk({i + 8 * k});
                const std::vector<Index> after = k == 0 ? std::vector<Index>{} : std::vector<Index>{last};
                last = task(i + 8 * k, {{read}, {own}}, after);
            }
        }
        const std::vector<Index> order = play(Rule::affinity, {}, n);
        EXPECT_EQ(order.size(), n);
        chunks_a_task(order);
        EXPECT_EQ(play(Rule::fewest_bytes, {}, n).size(), n);
        return rollout_.num_steps() - before;
    };
    EXPECT_LE(steps_for(1024), 2.2 * static_cast<double>(steps_for(512)));
}

}  // namespace
