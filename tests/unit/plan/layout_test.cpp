// Which chunk holds a region; gaps and overlaps.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kmm/plan/layout.hpp"

namespace {

using kmm::MemoryId;
using kmm::detail::Box;
using kmm::detail::ChunkGeometry;
using kmm::plan::Layout;

Box box(std::int64_t r0, std::int64_t r1, std::int64_t c0 = 0, std::int64_t c1 = 1) {
    Box b;
    b.begin[0] = r0;
    b.end[0] = r1;
    b.begin[1] = c0;
    b.end[1] = c1;
    return b;
}
ChunkGeometry chunk(const Box& b) { return {MemoryId::host(), b}; }

TEST(Layout, a_regular_grid_in_any_order_is_renumbered_row_major_and_finds_regions) {
    std::vector<ChunkGeometry> chunks{chunk(box(4, 6, 3, 5)), chunk(box(0, 4, 0, 3)), chunk(box(0, 4, 3, 5)),
                                      chunk(box(4, 6, 0, 3))};
    const Layout layout(2, box(0, 6, 0, 5), chunks);
    EXPECT_EQ(layout.chunks()[0].box.begin[1], 0);
    EXPECT_EQ(layout.chunks()[1].box.begin[1], 3);
    EXPECT_EQ(layout.chunks()[2].box.begin[0], 4);
    EXPECT_EQ(layout.find(box(0, 4, 3, 5)), 1u);
    EXPECT_EQ(layout.find(box(5, 6, 4, 5)), 3u);
    EXPECT_EQ(layout.find(box(3, 5, 0, 1)), Layout::none);
    EXPECT_EQ(layout.find(box(0, 1, 2, 4)), Layout::none);
    EXPECT_EQ(layout.find(box(0, 7, 0, 1)), Layout::none);
    EXPECT_EQ(layout.find(box(-1, 1, 0, 1)), Layout::none);
}

TEST(Layout, a_grid_that_ends_where_numbers_end_is_found_like_any_other) {
    const std::int64_t end = std::numeric_limits<std::int64_t>::max(), middle = end / 2 + 1;
    const Layout halves(1, box(0, end), {chunk(box(middle, end)), chunk(box(0, middle))});
    EXPECT_EQ(halves.chunks()[0].box.end[0], middle);
    EXPECT_EQ(halves.find(box(end - 1, end)), 1u);
    EXPECT_EQ(halves.find(box(middle - 1, end)), Layout::none);
    EXPECT_EQ(halves.chunks_text(), "chunks of {4611686018427387904}");
    const Layout most(1, box(0, end), {chunk(box(0, end - 1)), chunk(box(end - 1, end))});
    EXPECT_EQ(most.find(box(end - 1, end)), 1u);
    EXPECT_EQ(most.find(box(0, end - 1)), 0u);
    EXPECT_EQ(most.find(box(end - 2, end)), Layout::none);
    // More cells than any list of chunks has: their number does not fit, and is not taken for that of the chunks.
    Box tall = box(0, end, 0, 4);
    const Layout cells(2, tall, {chunk(box(0, 1, 0, 2)), chunk(box(0, 1, 2, 4))});
    EXPECT_EQ(cells.chunks_text(), "2 chunks");
}

TEST(Layout, an_irregular_cover_keeps_its_order) {
    std::vector<ChunkGeometry> chunks{chunk(box(7, 10)), chunk(box(0, 2)), chunk(box(2, 7))};
    const Layout layout(1, box(0, 10), chunks);
    EXPECT_EQ(layout.find(box(8, 9)), 0u);
    EXPECT_EQ(layout.find(box(0, 2)), 1u);
    EXPECT_EQ(layout.find(box(3, 7)), 2u);
    EXPECT_EQ(layout.find(box(1, 3)), Layout::none);
}

TEST(Layout, chunks_are_told_by_their_size_in_a_grid_and_by_their_number_else) {
    EXPECT_EQ(Layout(1, box(0, 100), {chunk(box(0, 30)), chunk(box(30, 60)), chunk(box(60, 90)), chunk(box(90, 100))})
                  .chunks_text(),
              "chunks of {30}");
    EXPECT_EQ(Layout(2, box(0, 4, 0, 6), {chunk(box(0, 4, 0, 3)), chunk(box(0, 4, 3, 6))}).chunks_text(),
              "chunks of {4, 3}");
    EXPECT_EQ(Layout(1, box(0, 10), {chunk(box(0, 2)), chunk(box(2, 10))}).chunks_text(), "2 chunks");
}

TEST(Layout, gaps_and_overlaps_are_found_by_brute_force_too) {
    for (unsigned seed = 0; seed < 500; seed++) {
        std::mt19937 random(seed);
        const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
        const Box array = box(0, 6, 0, 6);
        std::vector<ChunkGeometry> chunks;
        int count[6][6] = {};
        const int n = pick(1, 12);
        for (int i = 0; i < n; i++) {
            const int r = pick(0, 5), c = pick(0, 5);
            const Box b = box(r, pick(r + 1, 6), c, pick(c + 1, 6));
            bool overlaps = false;
            for (std::int64_t y = b.begin[0]; y < b.end[0]; y++)
                for (std::int64_t x = b.begin[1]; x < b.end[1]; x++) overlaps = overlaps || count[y][x] != 0;
            if (overlaps && pick(0, 3) != 0) continue;
            chunks.push_back(chunk(b));
            for (std::int64_t y = b.begin[0]; y < b.end[0]; y++)
                for (std::int64_t x = b.begin[1]; x < b.end[1]; x++) count[y][x]++;
        }
        bool any_overlap = false, any_gap = false;
        for (auto& row : count)
            for (const int k : row) {
                any_overlap = any_overlap || k > 1;
                any_gap = any_gap || k == 0;
            }
        std::size_t first = 0, second = 0;
        ASSERT_EQ(Layout::find_overlap(chunks, &first, &second), any_overlap) << "seed " << seed;
        if (any_overlap) {
            ASSERT_LT(first, second);
            ASSERT_TRUE(kmm::graph::overlaps(chunks[first].box, chunks[second].box));
            continue;
        }
        Box gap;
        ASSERT_EQ(Layout::find_gap(array, chunks, &gap), any_gap) << "seed " << seed;
        if (any_gap) {
            ASSERT_EQ(count[gap.begin[0]][gap.begin[1]], 0);
        }
    }
}

}  // namespace
