// Who comes after whom: the history of one chunk, alone and against a model that remembers every element.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "../boxes/boxes.hpp"
#include "blocks_freed.hpp"
#include "kmm/graph/history.hpp"

namespace {

using kmm::boxes::Box;
using kmm::graph::ChunkHistory;
using kmm::graph::Past;
using kmm::graph::Predecessor;
using kmm::graph::TaskNumber;
using kmm_test::box;
using kmm_test::line;

/// Hands out numbers and remembers what each join stands for.
class Joins final : public Past {
  public:
    explicit Joins(TaskNumber& next) : next_(next) {}
    TaskNumber join(const kmm::graph::TaskNumbers& tasks, bool) override {
        members[++next_].assign(tasks.begin(), tasks.end());
        return next_;
    }
    /// Tasks that a predecessor stands for.
    void expand(TaskNumber number, std::set<TaskNumber>& out) const {
        const auto it = members.find(number);
        if (it == members.end()) {
            out.insert(number);
            return;
        }
        for (const TaskNumber m : it->second) expand(m, out);
    }
    /// Tasks up to this number have settled.
    void forget(TaskNumber up_to) { forget_up_to(up_to, kmm::graph::first_helper); }
    std::map<TaskNumber, std::vector<TaskNumber>> members;

  private:
    TaskNumber& next_;
};

std::set<TaskNumber> numbers(const kmm::graph::Predecessors& list, const Joins& joins) {
    std::set<TaskNumber> out;
    for (const Predecessor& p : list) joins.expand(p.number, out);
    return out;
}

TEST(History, a_read_comes_after_the_writer_as_data_and_reads_do_not_wait_for_each_other) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(line(0, 10), 1, true, p, joins);
    EXPECT_TRUE(p.empty());
    h.read(line(2, 5), 2, p, joins);
    ASSERT_EQ(p.size(), 1u);
    EXPECT_EQ(p[0].number, 1u);
    EXPECT_TRUE(p[0].data);
    p.clear();
    h.read(line(2, 5), 3, p, joins);
    ASSERT_EQ(p.size(), 1u);
    EXPECT_EQ(p[0].number, 1u);
}

TEST(History, a_write_comes_after_readers_in_order_only_and_an_overwrite_after_the_writer_too) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(line(0, 10), 1, true, p, joins);
    h.read(line(0, 10), 2, p, joins);
    p.clear();
    h.write(line(0, 10), 3, true, p, joins);
    ASSERT_EQ(p.size(), 2u);
    for (const Predecessor& q : p) EXPECT_EQ(q.data, q.number == 1) << q.number;
    p.clear();
    h.write(line(0, 10), 4, false, p, joins);
    ASSERT_EQ(p.size(), 1u);
    EXPECT_EQ(p[0].number, 3u);
    EXPECT_FALSE(p[0].data);
}

TEST(History, disjoint_parts_do_not_order_each_other) {
    TaskNumber next = 100;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(box(0, 4, 0, 4), 1, true, p, joins);
    h.write(box(4, 8, 0, 4), 2, true, p, joins);
    EXPECT_TRUE(p.empty());
    Box missing;
    EXPECT_TRUE(h.covers(box(0, 8, 0, 4), &missing));
    EXPECT_FALSE(h.covers(box(0, 8, 0, 5), &missing));
    EXPECT_EQ(missing.begin[1], 4);
    EXPECT_EQ(missing.end[1], 5);
    h.write(box(2, 6, 1, 2), 3, true, p, joins);
    EXPECT_EQ(p.size(), 2u);
}

TEST(History, a_write_does_not_come_after_reads_of_other_parts) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    h.write(box(0, 10, 0, 10), ++next, true, p, joins);
    const TaskNumber writer = next;
    for (std::int64_t i = 0; i < 10; i++) {
        p.clear();
        h.read(box(i, i + 1, 0, 10), ++next, p, joins);
        EXPECT_EQ(numbers(p, joins), std::set<TaskNumber>{writer});
    }
    EXPECT_EQ(h.num_segments(), 1u) << "a read cuts nothing";
    p.clear();
    h.write(box(3, 5, 2, 4), ++next, true, p, joins);
    EXPECT_EQ(numbers(p, joins), (std::set<TaskNumber>{writer, writer + 4, writer + 5}));
    const TaskNumber inner = next;
    p.clear();
    h.write(box(3, 4, 0, 10), ++next, true, p, joins);
    EXPECT_EQ(numbers(p, joins), (std::set<TaskNumber>{writer, writer + 4, inner})) << "beside it, it is still read";
    p.clear();
    h.write(box(3, 4, 0, 10), ++next, true, p, joins);
    EXPECT_EQ(numbers(p, joins), std::set<TaskNumber>{next - 1});
    joins.forget(next);
    p.clear();
    h.write(box(0, 10, 0, 10), ++next, true, p, joins);
    EXPECT_TRUE(p.empty());
}

TEST(History, a_write_comes_after_all_that_read_parts_of_its_region_however_many) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(1);
    kmm::graph::Predecessors p;
    h.write(line(0, 1000), ++next, true, p, joins);
    std::set<TaskNumber> readers;
    for (std::int64_t i = 0; i < 1000; i++) {
        readers.insert(++next);
        h.read(line(i, i + 1), next, p, joins);
    }
    p.clear();
    h.write(line(0, 999), ++next, true, p, joins);
    EXPECT_LE(p.size(), 30u);
    std::set<TaskNumber> after = numbers(p, joins);
    EXPECT_TRUE(std::includes(after.begin(), after.end(), readers.begin(), std::prev(readers.end())));
    p.clear();
    h.write(line(999, 1000), ++next, true, p, joins);
    after = numbers(p, joins);
    EXPECT_TRUE(after.count(*readers.rbegin()) != 0);
}

TEST(History, after_twenty_thousand_reads_a_write_has_few_predecessors) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(line(0, 10), ++next, true, p, joins);
    std::set<TaskNumber> readers;
    for (int i = 0; i < 20'000; i++) {
        p.clear();
        const TaskNumber reader = ++next;
        readers.insert(reader);
        h.read(line(0, 10), reader, p, joins);
        ASSERT_LE(p.size(), 1u);
    }
    p.clear();
    h.write(line(0, 10), ++next, true, p, joins);
    EXPECT_LE(p.size(), 10u);
    std::set<TaskNumber> expected = readers;
    expected.insert(1);
    EXPECT_EQ(numbers(p, joins), expected);
}

/// A list of predecessors that counts the entries that are looked at.
struct CountedEdges : kmm::graph::Predecessors {
    struct Iterator {
        Predecessor* at;
        std::size_t* looked_at;
        Predecessor& operator*() const { return ++*looked_at, *at; }
        Iterator& operator++() { return ++at, *this; }
        bool operator!=(const Iterator& other) const { return at != other.at; }
    };
    Iterator begin() { return {data(), &looked_at}; }
    Iterator end() { return {data() + size(), &looked_at}; }
    std::size_t looked_at = 0;
};

TEST(History, what_was_never_written_among_very_many_parts_is_found) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    constexpr std::int64_t rows = 300, columns = 100;
    for (std::int64_t i = 0; i < rows; i++)
        for (std::int64_t j = 0; j < columns; j++)
            if ((i + j) % 2 == 0) h.write(box(2 * i, 2 * i + 2, 2 * j, 2 * j + 2), ++next, false, p, joins);
    const Box all = box(0, 2 * rows, 0, 2 * columns);
    Box missing, all_of_it;
    EXPECT_FALSE(h.covers(all, &missing));
    EXPECT_TRUE(kmm::boxes::contains(all, missing));
    EXPECT_FALSE(h.covers(missing, &all_of_it));
    EXPECT_TRUE(kmm::boxes::equal(missing, all_of_it)) << "nothing of it was written";
}

/// Edges, those of joins included, of n tasks that read what as many have written in parts, and then of as many that
/// write parts of it.
std::size_t edges_of_shared_reads(std::int64_t n, std::int64_t first_read) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    std::size_t edges = 0;
    const auto count = [&] {
        edges += p.size();
        p.clear();
    };
    for (std::int64_t i = 0; i < n; ++i) h.write(line(2 * i, 2 * i + 2), ++next, true, p, joins), count();
    std::set<TaskNumber> writers, readers;
    for (TaskNumber w = 1 + static_cast<TaskNumber>((first_read + 1) / 2); w <= static_cast<TaskNumber>(n); ++w)
        writers.insert(w);
    if (first_read % 2 == 1) writers.insert(static_cast<TaskNumber>(first_read / 2 + 1));
    for (std::int64_t i = 0; i < n; ++i) {
        const TaskNumber reader = ++next;
        readers.insert(reader);
        h.read(line(first_read, 2 * n), reader, p, joins);
        if (i < 3 || i == n - 1) {
            EXPECT_EQ(numbers(p, joins), writers);
        }
        for (const Predecessor& e : p) EXPECT_TRUE(e.data);
        count();
    }
    for (std::int64_t i = n - 1; i > first_read; i -= n / 20) {
        h.write(line(2 * i, 2 * i + 2), ++next, true, p, joins);
        std::set<TaskNumber> before = readers;
        before.insert(static_cast<TaskNumber>(i + 1));
        EXPECT_EQ(numbers(p, joins), before);
        count();
    }
    kmm::graph::Predecessors users;
    h.users(users, joins);
    const std::set<TaskNumber> all = numbers(users, joins);
    EXPECT_TRUE(std::includes(all.begin(), all.end(), readers.begin(), readers.end()));
    for (const auto& [join, members] : joins.members) edges += members.size();
    return edges;
}

TEST(History, tasks_that_read_what_very_many_wrote_come_after_one_join_of_these) {
    for (const std::int64_t first_read : {0, 3}) {
        const std::size_t once = edges_of_shared_reads(1000, first_read),
                          twice = edges_of_shared_reads(2000, first_read);
        EXPECT_GE(once, 1000u);
        EXPECT_LE(static_cast<double>(twice), 2.2 * static_cast<double>(once)) << once;
    }
}

TEST(History, of_many_predecessors_each_costs_the_same) {
    std::size_t looked_at[2];
    for (const std::size_t doubled : {0u, 1u}) {
        CountedEdges edges;
        for (TaskNumber n = 1; n <= 5'000u << doubled; ++n) kmm::graph::add_predecessor(edges, n, true);
        looked_at[doubled] = edges.looked_at;
        EXPECT_EQ(edges.size(), 5'000u << doubled);
    }
    EXPECT_GT(looked_at[0], 0u) << "few are compared";
    EXPECT_LE(looked_at[1], 2 * looked_at[0]);
}

TEST(History, of_many_predecessors_each_is_named_once_in_the_end_and_data_outranks_order) {
    kmm::graph::Predecessors edges;
    for (int twice = 0; twice < 2; ++twice)
        for (TaskNumber n = 100; n > 0; --n) kmm::graph::add_predecessor(edges, n, twice == 1 && n % 2 == 0);
    kmm::graph::drop_duplicates(edges);
    ASSERT_EQ(edges.size(), 100u);
    for (std::size_t i = 0; i < edges.size(); ++i) {
        EXPECT_EQ(edges[i].number, i + 1);
        EXPECT_EQ(edges[i].data, i % 2 == 1) << i;
    }
}

TEST(History, one_task_reading_twice_counts_once) {
    TaskNumber next = 100;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(line(0, 10), 1, true, p, joins);
    for (int i = 0; i < 50; i++) h.read(line(0, 10), 2, p, joins);
    EXPECT_TRUE(joins.members.empty());
    kmm::graph::Predecessors users;
    h.users(users, joins);
    ASSERT_EQ(users.size(), 2u);
    EXPECT_EQ(users[0].number, 1u);
    EXPECT_TRUE(users[0].data);
    EXPECT_EQ(users[1].number, 2u);
    EXPECT_FALSE(users[1].data) << "a reader's failure is not the chunk's";
}

/// Tiles of 4 x 4 of a square chunk, in an order of their own.
std::vector<Box> tiles(std::int64_t per_side, bool shuffled) {
    std::vector<Box> all;
    for (std::int64_t i = 0; i < per_side; i++)
        for (std::int64_t j = 0; j < per_side; j++) all.push_back(box(4 * i, 4 * i + 4, 4 * j, 4 * j + 4));
    std::mt19937 random(7);
    if (shuffled) std::shuffle(all.begin(), all.end(), random);
    return all;
}

/// Comparisons for two writes of each tile, a read of each with its border, and a read of the whole chunk.
std::uint64_t steps_of(std::int64_t per_side, bool shuffled) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    const std::vector<Box> all = tiles(per_side, shuffled);
    for (int round = 0; round < 2; round++) {
        for (const Box& tile : all) {
            p.clear();
            h.write(tile, ++next, false, p, joins);
            EXPECT_EQ(p.size(), static_cast<std::size_t>(round));
        }
    }
    for (Box tile : all) {
        for (std::size_t k = 0; k < 2; k++) {
            tile.begin[k] = std::max<std::int64_t>(0, tile.begin[k] - 1);
            tile.end[k] = std::min(4 * per_side, tile.end[k] + 1);
        }
        p.clear();
        h.read(tile, ++next, p, joins);
        EXPECT_GE(p.size(), 4u);
        EXPECT_LE(p.size(), 9u);
    }
    p.clear();
    h.read(box(0, 4 * per_side, 0, 4 * per_side), ++next, p, joins);
    EXPECT_EQ(numbers(p, joins).size(), all.size());
    EXPECT_EQ(h.num_segments(), all.size());
    return h.num_looked_at();
}

TEST(History, of_a_chunk_that_is_used_in_many_tiles_does_not_look_at_all_of_them) {
    for (const bool shuffled : {false, true}) {
        constexpr double n = 127 * 127;
        const auto one = static_cast<double>(steps_of(127, shuffled));
        const auto two = static_cast<double>(steps_of(180, shuffled));  // twice as many tiles
        EXPECT_LT(two / one, 1.1 * 2 * std::log(2 * n) / std::log(n)) << "shuffled " << shuffled;
        EXPECT_LT(one / n, 400) << "for two writes, a read and a share of the whole read";
    }
}

/// Comparisons for writes of the rows of a square, its columns, its rows again, and so on.
std::uint64_t steps_of_sweeps(std::int64_t side) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    for (int sweep = 0; sweep < 4; sweep++) {
        for (std::int64_t i = 0; i < side; i++) {
            p.clear();
            h.write(sweep % 2 == 0 ? box(i, i + 1, 0, side) : box(0, side, i, i + 1), ++next, true, p, joins);
            EXPECT_EQ(p.size(), static_cast<std::size_t>(sweep == 0 ? 0 : side));
        }
    }
    EXPECT_EQ(h.num_segments(), static_cast<std::size_t>(side));
    return h.num_looked_at();
}

TEST(History, of_rows_and_columns_written_in_turn_costs_what_each_comes_after) {
    constexpr double side = 300;
    const auto one = static_cast<double>(steps_of_sweeps(300));
    const auto two = static_cast<double>(steps_of_sweeps(600));  // four times as many edges
    EXPECT_LT(two / one, 4.4);
    EXPECT_LT(one / (3 * side * side), 8) << "for each edge";
}

TEST(History, what_has_settled_well_is_not_come_after_and_becomes_one_segment_when_it_is_read_together) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    const std::vector<Box> all = tiles(10, true);
    for (const Box& tile : all) h.write(tile, ++next, false, p, joins);
    EXPECT_TRUE(p.empty());
    joins.forget(next - 1);
    const Box whole = box(0, 40, 0, 40);
    h.read(whole, ++next, p, joins);
    ASSERT_EQ(p.size(), 1u) << "one has not settled";
    EXPECT_EQ(p[0].number, all.size());
    EXPECT_TRUE(p[0].data);
    EXPECT_EQ(h.num_segments(), all.size());
    p.clear();
    joins.forget(next - 1);
    h.read(whole, ++next, p, joins);
    EXPECT_TRUE(p.empty());
    EXPECT_EQ(h.num_segments(), all.size()) << "the read before is pending";
    joins.forget(next);
    h.read(whole, ++next, p, joins);
    EXPECT_TRUE(p.empty());
    EXPECT_EQ(h.num_segments(), 1u);
    const TaskNumber reader = next;
    h.write(box(1, 3, 1, 3), ++next, true, p, joins);
    ASSERT_EQ(p.size(), 1u);
    EXPECT_EQ(p[0].number, reader);
    Box missing;
    EXPECT_TRUE(h.covers(whole, &missing));
    EXPECT_FALSE(h.covers(box(0, 41, 0, 40), &missing));
}

TEST(History, many_segments_that_are_forgotten_cost_a_read_of_them_all_nothing) {
    for (const bool writes : {false, true}) {
        TaskNumber next = 0;
        Joins joins(next);
        ChunkHistory h(2);
        kmm::graph::Predecessors p;
        for (const Box& tile : tiles(50, true)) h.write(tile, ++next, false, p, joins);
        const TaskNumber last = next;
        h.read(box(0, 4, 0, 4), ++next, p, joins);
        const Box whole = box(0, 200, 0, 200);
        Box missing;
        const std::uint64_t looked_at = h.num_looked_at();
        EXPECT_TRUE(h.covers(whole, &missing));
        joins.forget(last);
        p.clear();
        h.read(whole, ++next, p, joins);
        EXPECT_TRUE(p.empty());
        EXPECT_GT(h.num_looked_at(), looked_at + 2500) << "a reader is on its way: each segment gets the new one";
        joins.forget(next);
        EXPECT_GT(h.num_segments(), 2000u);
        if (writes)
            h.write(whole, ++next, true, p, joins);
        else
            h.read(whole, ++next, p, joins);
        EXPECT_TRUE(p.empty());
        EXPECT_EQ(h.num_segments(), 1u);
        EXPECT_EQ(h.num_looked_at(), 0u) << "there is no tree any more, and nobody looked at it";
        h.write(box(3, 5, 3, 5), ++next, true, p, joins);
        ASSERT_EQ(p.size(), 1u);
        EXPECT_EQ(p[0].number, next - 1);
        EXPECT_EQ(p[0].data, writes);
        EXPECT_TRUE(h.covers(whole, &missing));
    }
}

TEST(History, readers_that_have_settled_are_forgotten_before_any_are_joined) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h;
    kmm::graph::Predecessors p;
    h.write(line(0, 10), ++next, true, p, joins);
    for (int i = 0; i < 1000; i++) {
        h.read(line(0, 10), ++next, p, joins);
        joins.forget(next - 4);  // a few are on their way
    }
    EXPECT_TRUE(joins.members.empty());
    p.clear();
    h.write(line(0, 10), ++next, true, p, joins);
    EXPECT_EQ(p.size(), 4u);
}

/// Blocks that a read of the whole chunk gives back when all uses of its tiles, which were read too, are forgotten.
int blocks_given_back(std::int64_t per_side) {
    TaskNumber next = 0;
    Joins joins(next);
    ChunkHistory h(2);
    kmm::graph::Predecessors p;
    const std::vector<Box> all = tiles(per_side, false);
    for (const Box& tile : all) h.write(tile, ++next, false, p, joins);
    for (int reads = 0; reads < 5; reads++)
        for (const Box& tile : all) {
            p.clear();
            h.read(tile, ++next, p, joins);
        }
    EXPECT_EQ(h.num_segments(), all.size());
    joins.forget(next);
    const int before = kmm_test::blocks_freed;
    h.read(box(0, 4 * per_side, 0, 4 * per_side), ++next, p, joins);
    EXPECT_EQ(h.num_segments(), 1u);
    return kmm_test::blocks_freed - before;
}

TEST(History, many_segments_end_in_few_steps) {
    const int few = blocks_given_back(20);
    EXPECT_LT(few, 12);
    EXPECT_LE(blocks_given_back(28), few + 1);  // twice as many
    EXPECT_LE(blocks_given_back(100), few + 1);
}

// The model keeps, for every element, the last writer and the readers since.
TEST(History, random_boxes_have_exactly_the_predecessors_of_their_elements) {
    std::size_t most_segments = 0, num_orders = 0, num_needless = 0;
    for (unsigned seed = 0; seed < 400; seed++) {
        const bool has_many = seed % 4 >= 2;  // small regions of a larger chunk, and at times all of it
        const std::int64_t rows = has_many ? 12 : 6, columns = has_many ? 13 : 7;
        std::mt19937 random(seed);
        const auto pick = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        TaskNumber next = 0;
        Joins joins(next);
        ChunkHistory h;
        struct Element {
            TaskNumber writer = 0;
            std::set<TaskNumber> readers;
        };
        std::vector<Element> model(static_cast<std::size_t>(rows * columns));
        TaskNumber forgotten = 0;
        std::map<TaskNumber, Box> regions_read;
        for (int step = 0; step < (has_many ? 250 : 60); step++) {
            if (seed % 2 == 1 && pick(0, has_many ? 20 : 3) == 0) {
                forgotten = std::max(forgotten, next - std::min<TaskNumber>(next, pick(0, 12)));
                joins.forget(forgotten);
            }
            const std::int64_t r = pick(0, rows - 1), c = pick(0, columns - 1);
            Box b = box(r, pick(r + 1, has_many ? std::min(rows, r + 2) : rows), c,
                        pick(c + 1, has_many ? std::min(columns, c + 2) : columns));
            if (has_many && pick(0, 30) == 0) b = box(0, rows, 0, columns);
            most_segments = std::max(most_segments, h.num_segments());
            bool covered = true;
            std::set<TaskNumber> writers, readers;
            const auto for_elements = [&](auto&& f) {
                for (std::int64_t i = b.begin[0]; i < b.end[0]; i++)
                    for (std::int64_t j = b.begin[1]; j < b.end[1]; j++)
                        f(model[static_cast<std::size_t>(i * columns + j)]);
            };
            for_elements([&](Element& e) {
                if (e.writer == 0)
                    covered = false;
                else if (e.writer > forgotten)
                    writers.insert(e.writer);
                readers.insert(e.readers.upper_bound(forgotten), e.readers.end());
            });
            Box missing;
            ASSERT_EQ(h.covers(b, &missing), covered) << "seed " << seed << " step " << step;
            kmm::graph::Predecessors p;
            if (pick(0, 1) == 0) {
                if (!covered) continue;
                const TaskNumber task = ++next;
                h.read(b, task, p, joins);
                regions_read[task] = b;
                std::set<TaskNumber> got = numbers(p, joins);
                got.erase(got.begin(), got.upper_bound(forgotten));  // a join may stand for some of these, too
                ASSERT_EQ(got, writers) << "seed " << seed << " step " << step;
                for_elements([&](Element& e) { e.readers.insert(task); });
            } else {
                const TaskNumber task = ++next;
                h.write(b, task, true, p, joins);
                std::set<TaskNumber> needed = writers;
                needed.insert(readers.begin(), readers.end());
                std::set<TaskNumber> got = numbers(p, joins);
                ASSERT_TRUE(std::includes(got.begin(), got.end(), needed.begin(), needed.end()))
                    << "seed " << seed << " step " << step;
                num_orders += got.size();
                num_needless += static_cast<std::size_t>(std::count_if(got.begin(), got.end(), [&](TaskNumber t) {
                    return needed.count(t) == 0 && !kmm::boxes::overlaps(regions_read[t], b);
                }));
                for (const Predecessor& q : p)
                    ASSERT_TRUE(!q.data || writers.count(q.number) != 0) << "seed " << seed << " step " << step;
                for_elements([&](Element& e) {
                    e.writer = task;
                    e.readers.clear();
                });
            }
        }
    }
    EXPECT_GT(most_segments, 50u);
    // Of very many readers of parts the older ones count as readers of segments, and a join stands for several.
    EXPECT_LT(num_needless, num_orders / 12) << "orders between a read and a write of different parts";
}

}  // namespace
