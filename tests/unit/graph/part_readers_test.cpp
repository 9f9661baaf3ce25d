// Readers of parts, against a plain list: also where boxes or numbers lie far from each other; and what they take.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kmm/graph/part_readers.hpp"

namespace {

using kmm::boxes::Box;
using kmm::boxes::contains;
using kmm::boxes::equal;
using kmm::boxes::overlaps;
using kmm::graph::PartReaders;
using kmm::boxes::subtract;
using kmm::graph::TaskNumber;

struct Reader {
    TaskNumber task;
    Box box;
};

void expect_same(const PartReaders& readers, const std::vector<Reader>& expected, std::size_t rank) {
    ASSERT_EQ(readers.size(), expected.size());
    std::size_t i = 0;
    readers.each([&](TaskNumber task, const Box& box) {
        EXPECT_EQ(task, expected[i].task);
        EXPECT_TRUE(equal(box, expected[i].box, rank));
        ++i;
    });
}

struct Spread {
    std::int64_t of_boxes;
    TaskNumber of_numbers;
};

TEST(PartReaders, are_those_of_a_plain_list_near_and_far) {
    const std::int64_t narrow = std::int64_t{1} << 15, wide = std::int64_t{1} << 31;
    for (const auto& [spread, numbers] :
         {Spread{10, 0}, Spread{narrow, 0}, Spread{wide, 0}, Spread{wide << 30, 0}, Spread{10, TaskNumber{1} << 31},
          Spread{10, kmm::graph::first_helper}, Spread{wide, kmm::graph::first_helper}})
        for (std::uint64_t seed = 1; seed <= 40; ++seed) {
            std::mt19937_64 random(seed);
            const std::size_t rank = 1 + seed % 4;
            const auto any_box = [&] {
                Box box;
                for (std::size_t k = 0; k < rank; ++k) {
                    const bool is_far = random() % 8 == 0;
                    box.begin[k] = static_cast<std::int64_t>(random() % 8) + (is_far ? spread : 0);
                    box.end[k] = box.begin[k] + 1 + static_cast<std::int64_t>(random() % 6);
                }
                return box;
            };
            PartReaders readers(rank);
            std::vector<Reader> expected;
            for (TaskNumber step = 1; step <= 200; ++step) {
                const TaskNumber reader = step + (random() % 16 == 0 ? numbers : 0);
                const Box box = any_box();
                switch (random() % 8) {
                case 0: {
                    std::vector<TaskNumber> met;
                    std::vector<Reader> left;
                    for (Reader& r : expected) {
                        if (!overlaps(r.box, box, rank)) {
                            left.push_back(r);
                            continue;
                        }
                        met.push_back(r.task);
                        if (contains(box, r.box, rank)) continue;
                        std::vector<Box> pieces;
                        subtract(r.box, box, [&](const Box& piece) { pieces.push_back(piece); });
                        left.push_back({r.task, pieces.size() == 1 ? pieces.front() : r.box});
                    }
                    expected = left;
                    std::size_t i = 0;
                    readers.cut(box, [&](TaskNumber task) { EXPECT_EQ(task, met.at(i++)); });
                    EXPECT_EQ(i, met.size());
                    break;
                }
                case 1: {
                    const auto is_old = [&](TaskNumber task) { return task % 3 == step % 3; };
                    std::erase_if(expected, [&](const Reader& r) { return is_old(r.task); });
                    readers.drop_if(is_old);
                    break;
                }
                case 2: {
                    std::size_t i = 0;
                    const std::size_t most = random() % 12;
                    readers.shorten(most, [&](TaskNumber task, const Box&) { EXPECT_EQ(task, expected.at(i++).task); });
                    expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(i));
                    EXPECT_LE(expected.size(), most);
                    break;
                }
                default:
                    readers.add(box, reader);
                    expected.push_back({reader, box});
                    EXPECT_TRUE(readers.was_read_last_by(box, reader));
                }
                expect_same(readers, expected, rank);
                std::size_t i = 0;
                readers.each_task([&](TaskNumber task) { EXPECT_EQ(task, expected.at(i++).task); });
                EXPECT_EQ(i, expected.size());
                if (HasFatalFailure()) return;
            }
        }
}

/// The tasks that gather a brick and a border of 1, of the bricks around the one whose readers these are.
void add_neighbours(PartReaders& readers, TaskNumber first, std::int64_t side) {
    for (std::int64_t n = 0; n < 27; ++n) {
        Box box;
        for (std::int64_t k = 0, left = n; k < 3; ++k, left /= 3) {
            box.begin[k] = side * (left % 3 == 2 ? 2 : 1) - (left % 3 == 2 ? 1 : 0);
            box.end[k] = left % 3 == 0 ? side + 1 : 2 * side;
        }
        readers.add(box, first + 2 * static_cast<TaskNumber>(n));
    }
}

TEST(PartReaders, of_a_brick_with_26_neighbours_take_16_bytes_each) {
    for (const TaskNumber first : {TaskNumber{1}, kmm::graph::first_helper + (TaskNumber{1} << 40)}) {
        PartReaders readers(3);
        add_neighbours(readers, first, 10'000);
        constexpr std::size_t head_bytes = 32;
        EXPECT_LE(readers.capacity_bytes(), head_bytes + 27 * 16);
        readers.clear();
        add_neighbours(readers, first + 1000, 10'000);
        EXPECT_LE(readers.capacity_bytes(), head_bytes + 27 * 16) << "the next round finds the room of this one";
    }
}

}  // namespace
