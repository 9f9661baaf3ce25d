// The small history of a chunk: the same edges as those of the one that knows parts, and when that is made.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "../boxes/boxes.hpp"
#include "kmm/graph/compact_history.hpp"

namespace {

using kmm::boxes::Box;
using kmm::graph::ChunkHistory;
using kmm::graph::CompactHistory;
using kmm::graph::Predecessor;
using kmm::graph::Predecessors;
using kmm::graph::Task;
using kmm::graph::TaskNumber;
using kmm_test::line;

/// Joins have numbers of their own, and what each stands for is remembered.
class Joins final : public kmm::graph::Past {
  public:
    TaskNumber join(const kmm::graph::TaskNumbers& tasks, bool) override {
        members.emplace_back(tasks.begin(), tasks.end());
        return kmm::graph::first_helper + members.size();
    }
    void forget(TaskNumber up_to, std::size_t joins) { forget_up_to(up_to, kmm::graph::first_helper + joins); }
    std::vector<std::vector<TaskNumber>> members;
};

std::vector<std::pair<TaskNumber, bool>> plain(const Predecessors& list) {
    std::vector<std::pair<TaskNumber, bool>> out;
    for (const Predecessor& p : list) out.emplace_back(p.number, p.data);
    return out;
}

constexpr std::int64_t size = 24;
const auto whole = [] { return line(0, size); };

struct Script {
    TaskNumber last = 0;
    Joins joins;
    CompactHistory history{1};

    std::size_t write(const Box& region, bool is_whole) {
        Predecessors list;
        history.write(region, is_whole, whole, ++last, true, list, joins);
        return list.size();
    }
    std::size_t write_whole() { return write(whole(), true); }
    std::size_t read() {
        Predecessors list;
        history.read(whole(), true, whole, ++last, list, joins);
        return list.size();
    }
};

TEST(CompactHistory, of_a_chunk_that_is_used_as_a_whole_has_no_parts) {
    Script s;
    EXPECT_FALSE(s.history.any_content());
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ(s.write_whole(), round == 0 ? 0u : 5u);
        for (int i = 0; i < 4; i++) EXPECT_EQ(s.read(), 1u);
        EXPECT_FALSE(s.history.has_detail());
    }
    Box missing;
    EXPECT_TRUE(s.history.covers(line(3, 5), &missing));
}

TEST(CompactHistory, has_parts_where_there_are_more_readers_until_the_chunk_is_written_with_few) {
    Script s;
    s.write_whole();
    for (int i = 0; i < 7; i++) EXPECT_EQ(s.read(), 1u);
    EXPECT_TRUE(s.history.has_detail());
    EXPECT_EQ(s.write_whole(), 8u);
    EXPECT_TRUE(s.history.has_detail()) << "the next round has as many readers, most likely";
    s.read();
    EXPECT_EQ(s.write_whole(), 2u);
    EXPECT_FALSE(s.history.has_detail());
    EXPECT_EQ(s.read(), 1u);
}

TEST(CompactHistory, forgets_readers_that_have_settled_before_it_has_parts) {
    Script s;
    s.write_whole();
    for (int i = 0; i < 50; i++) {
        s.read();
        if (i % 4 == 3) s.joins.forget(s.last, 0);
    }
    EXPECT_FALSE(s.history.has_detail());
}

TEST(CompactHistory, of_a_chunk_of_which_others_read_parts_has_no_detail_for_long) {
    Script s;
    const auto read_part = [&](const Box& region) {
        Predecessors list;
        s.history.read(region, false, whole, ++s.last, list, s.joins);
        return list.size();
    };
    EXPECT_EQ(s.write(line(4, 8), false), 0u);
    EXPECT_TRUE(s.history.has_detail());
    for (int round = 0; round < 3; round++) {
        s.write_whole();
        EXPECT_EQ(read_part(line(0, 1)), 1u);
        EXPECT_EQ(read_part(line(7, 8)), 1u);
    }
    EXPECT_EQ(s.write_whole(), 3u);
    EXPECT_FALSE(s.history.has_detail());
    // However many come, as long as those before them have settled.
    for (int i = 0; i < 100; i++) {
        EXPECT_LE(read_part(line(0, 1)), 1u);
        if (i % 8 == 7) s.joins.forget(s.last, 0);
    }
    EXPECT_FALSE(s.history.has_detail());
}

TEST(CompactHistory, of_a_brick_with_26_neighbours_has_no_detail_and_its_writer_as_much_room_as_it_has_edges) {
    constexpr TaskNumber num_readers = 27;
    Joins joins;
    CompactHistory history(1);
    TaskNumber last = 0;
    for (int round = 0; round < 3; ++round) {
        Task writer;
        writer.make_room(2, true);
        history.write(whole(), true, whole, ++last, false, writer.predecessors, joins);
        EXPECT_EQ(writer.predecessors.size(), round == 0 ? 0u : num_readers + 1);
        EXPECT_EQ(writer.predecessors.capacity(), round == 0 ? 4u : num_readers + 3) << "and two for another use";
        for (TaskNumber i = 0; i < num_readers; ++i) {
            Predecessors list;
            const auto at = static_cast<std::int64_t>(i) % size;
            history.read(line(at, at + 1), false, whole, ++last, list, joins);
            EXPECT_EQ(list.size(), 1u);
        }
        EXPECT_FALSE(history.has_detail());
    }
    joins.forget(last, 0);
    Task writer;
    writer.make_room(2, true);
    history.write(whole(), true, whole, ++last, false, writer.predecessors, joins);
    EXPECT_EQ(writer.predecessors.capacity(), 4u) << "readers that have settled take no room";
}

TEST(CompactHistory, keeps_its_detail_over_writes_while_very_many_read_parts) {
    for (const std::int64_t num_readers : {33, 40, 54}) {
        Script s;
        for (int round = 0; round < 3; ++round) {
            s.write_whole();
            EXPECT_EQ(s.history.has_detail(), round != 0) << num_readers;
            for (std::int64_t i = 0; i < num_readers; ++i) {
                Predecessors list;
                s.history.read(line(i % size, i % size + 1), false, whole, ++s.last, list, s.joins);
            }
            EXPECT_TRUE(s.history.has_detail());
        }
        s.write_whole();
        s.write_whole();
        EXPECT_FALSE(s.history.has_detail()) << "nothing read parts since";
    }
}

TEST(CompactHistory, has_parts_once_a_part_is_written) {
    Script s;
    EXPECT_EQ(s.write(line(4, 8), false), 0u);
    EXPECT_TRUE(s.history.has_detail());
    Box missing;
    EXPECT_TRUE(s.history.covers(line(4, 8), &missing));
    EXPECT_FALSE(s.history.covers(whole(), &missing));
    EXPECT_EQ(s.write_whole(), 1u);
    EXPECT_EQ(s.write_whole(), 1u);
    EXPECT_FALSE(s.history.has_detail());
}

TEST(CompactHistory, has_the_edges_of_the_history_that_knows_parts) {
    std::size_t num_compact = 0, num_parts = 0, num_joins = 0;
    for (unsigned seed = 0; seed < 400; seed++) {
        std::mt19937 random(seed);
        const auto pick = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        Joins joins, compact_joins;
        ChunkHistory expected(1);
        CompactHistory compact(1);
        TaskNumber up_to = 0;
        std::size_t up_to_join = 0;
        const std::int64_t parts_in_ten = pick(0, 4), writes_in_ten = pick(1, 5);
        for (TaskNumber task = 1; task < 200; task++) {
            const bool is_whole = pick(0, 9) >= parts_in_ten;
            const std::int64_t begin = pick(0, size - 1);
            Box region = is_whole ? whole() : line(begin, pick(begin + 1, size));
            Box missing, other;
            ASSERT_EQ(compact.covers(region, &missing), expected.covers(region, &other));
            ASSERT_EQ(compact.any_content(), expected.any_content());
            Predecessors edges, compact_edges;
            if (pick(0, 9) < writes_in_ten || !expected.covers(region, &other)) {
                const bool keeps = pick(0, 1) == 0;
                expected.write(region, task, keeps, edges, joins);
                compact.write(region, kmm::boxes::equal(region, whole()), whole, task, keeps, compact_edges,
                              compact_joins);
            } else {
                expected.read(region, task, edges, joins);
                compact.read(region, kmm::boxes::equal(region, whole()), whole, task, compact_edges, compact_joins);
            }
            ASSERT_EQ(plain(compact_edges), plain(edges)) << "seed " << seed << ", task " << task;
            ASSERT_EQ(compact_joins.members, joins.members);
            edges.clear(), compact_edges.clear();
            expected.writers(region, edges, joins);
            compact.writers(region, compact_edges, compact_joins);
            ASSERT_EQ(plain(compact_edges), plain(edges));
            edges.clear(), compact_edges.clear();
            expected.users(edges, joins);
            compact.users(compact_edges, compact_joins);
            ASSERT_EQ(plain(compact_edges), plain(edges));
            (compact.has_detail() ? num_parts : num_compact)++;
            if (pick(0, 9) != 0) continue;
            up_to = static_cast<TaskNumber>(pick(static_cast<std::int64_t>(up_to), static_cast<std::int64_t>(task)));
            up_to_join = static_cast<std::size_t>(
                pick(static_cast<std::int64_t>(up_to_join), static_cast<std::int64_t>(joins.members.size())));
            joins.forget(up_to, up_to_join);
            compact_joins.forget(up_to, up_to_join);
        }
        num_joins += joins.members.size();
    }
    EXPECT_GT(num_compact, 10'000u);
    EXPECT_GT(num_parts, 10'000u);
    EXPECT_GT(num_joins, 20u);
}

}  // namespace
