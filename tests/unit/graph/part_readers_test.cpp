// Readers of parts, against a plain list: also where boxes lie far from each other.
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

TEST(PartReaders, are_those_of_a_plain_list_near_and_far) {
    for (const std::int64_t spread : {std::int64_t{10}, std::int64_t{1} << 31, std::int64_t{1} << 61})
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
                    readers.add(box, step);
                    expected.push_back({step, box});
                    EXPECT_TRUE(readers.was_read_last_by(box, step));
                }
                expect_same(readers, expected, rank);
                if (HasFatalFailure()) return;
            }
        }
}

}  // namespace
