// Which chunk holds a region; gaps and overlaps.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "../boxes/cuts.hpp"
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
    EXPECT_EQ(layout.box(0).begin[1], 0);
    EXPECT_EQ(layout.box(1).begin[1], 3);
    EXPECT_EQ(layout.box(2).begin[0], 4);
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
    EXPECT_EQ(halves.box(0).end[0], middle);
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

TEST(Layout, a_grid_is_the_same_by_its_formula_as_by_the_list_of_its_chunks) {
    for (unsigned seed = 0; seed < 200; seed++) {
        kmm_test::CutRandom random(seed);
        const std::size_t rank = seed % 5;
        Box array;
        std::int64_t size[kmm::detail::max_rank];
        for (std::size_t k = 0; k < rank; k++) {
            array.end[k] = kmm_test::pick(random, 1, 9);
            size[k] = kmm_test::pick(random, 1, array.end[k]);
        }
        const std::vector<MemoryId> two{kmm::DeviceId(0), kmm::DeviceId(1)};
        const Layout formula(rank, array, size, kmm::plan::ChunkHomes::dealt(two, 2));
        const std::vector<ChunkGeometry> chunks = formula.list();
        const Layout list(rank, array, chunks);
        ASSERT_TRUE(list.is_grid());
        ASSERT_EQ(list.num_chunks(), formula.num_chunks());
        std::size_t elements = 0;
        for (std::size_t i = 0; i < chunks.size(); i++) {
            const Box b = formula.box(i);
            ASSERT_TRUE(kmm::boxes::equal(b, list.box(i)));
            ASSERT_EQ(formula.home(i), list.home(i));
            ASSERT_EQ(formula.home(i), two[i / 2 % 2]);
            ASSERT_EQ(formula.find(b), i);
            ASSERT_EQ(static_cast<std::int64_t>(formula.num_elements(i)), kmm::boxes::volume(b));
            elements += formula.num_elements(i);
            std::int64_t strides[kmm::detail::max_rank], step = 1;
            formula.set_strides(i, strides);
            for (std::size_t k = rank; k-- > 0; step *= b.end[k] - b.begin[k]) ASSERT_EQ(strides[k], step);
        }
        ASSERT_EQ(static_cast<std::int64_t>(elements), kmm::boxes::volume(array));
    }
}

TEST(Layout, a_region_is_met_at_its_offset_in_the_chunk_that_holds_it_in_a_grid_and_in_a_list) {
    const Layout grid(2, box(0, 6, 0, 5),
                      {chunk(box(0, 4, 0, 3)), chunk(box(0, 4, 3, 5)), chunk(box(4, 6, 0, 3)), chunk(box(4, 6, 3, 5))});
    const Layout list(2, box(0, 6, 0, 5), {chunk(box(0, 4, 3, 5)), chunk(box(0, 6, 0, 3)), chunk(box(4, 6, 3, 5))});
    for (const Layout* layout : {&grid, &list}) {
        const kmm::plan::Place part = layout->locate(box(5, 6, 4, 5));
        EXPECT_EQ(part.offset, 3u);
        EXPECT_FALSE(part.is_whole);
        const kmm::plan::Place whole = layout->locate(box(4, 6, 3, 5));
        EXPECT_EQ(whole.chunk, part.chunk);
        EXPECT_EQ(whole.offset, 0u);
        EXPECT_TRUE(whole.is_whole);
        EXPECT_EQ(layout->locate(box(3, 5, 3, 4)).chunk, Layout::none);
    }
}

std::vector<MemoryId> dealt(std::size_t count, std::size_t memories, std::size_t run) {
    std::vector<MemoryId> list;
    for (std::size_t i = 0; i < count; i++) list.push_back(kmm::DeviceId(i / run % memories));
    return list;
}

TEST(ChunkHomes, a_list_that_follows_a_rule_is_kept_as_the_rule) {
    using kmm::plan::ChunkHomes;
    std::vector<MemoryId> blocks;
    for (std::size_t i = 0; i < 1000; i++) blocks.push_back(kmm::DeviceId(i * 7 / 1000));
    for (const std::vector<MemoryId>& list : {dealt(1000, 1, 1), dealt(1000, 8, 1), dealt(1000, 3, 5), blocks}) {
        const ChunkHomes homes = ChunkHomes::of_list(list);
        EXPECT_LE(homes.memories().size(), 8u);
        for (std::size_t i = 0; i < list.size(); i++) ASSERT_EQ(homes.of(i), list[i]) << i;
    }
}

TEST(ChunkHomes, a_list_that_follows_none_is_kept) {
    using kmm::plan::ChunkHomes;
    std::vector<std::vector<MemoryId>> lists{{}, {kmm::DeviceId(3)}, dealt(60, 7, 1), dealt(5000, 8, 1)};
    lists.back()[4999] = MemoryId::host();
    kmm_test::CutRandom random(1);
    lists.emplace_back();
    for (int i = 0; i < 3000; i++) lists.back().push_back(kmm::DeviceId(kmm_test::pick(random, 0, 3)));
    for (const std::vector<MemoryId>& list : lists) {
        const ChunkHomes homes = ChunkHomes::of_list(list);
        for (std::size_t i = 0; i < list.size(); i++) ASSERT_EQ(homes.of(i), list[i]) << i;
    }
}

TEST(Layout, a_home_that_is_meant_is_found_where_a_chunk_has_it) {
    const std::int64_t size[] = {10};
    const std::vector<MemoryId> three{kmm::DeviceId(0), kmm::DeviceId(1), kmm::DeviceId(2)};
    const auto is_last = [&](MemoryId m) { return m == three[2]; };
    EXPECT_EQ(Layout(1, box(0, 30), size, kmm::plan::ChunkHomes::dealt(three)).find_home(is_last), 2u);
    EXPECT_EQ(Layout(1, box(0, 20), size, kmm::plan::ChunkHomes::dealt(three)).find_home(is_last), Layout::none);
    const Layout list(1, box(0, 10), {chunk(box(7, 10)), {three[2], box(0, 2)}, chunk(box(2, 7))});
    EXPECT_EQ(list.find_home(is_last), 1u);
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
            ASSERT_TRUE(kmm::boxes::overlaps(chunks[first].box, chunks[second].box));
            continue;
        }
        Box gap;
        ASSERT_EQ(Layout::find_gap(array, chunks, &gap), any_gap) << "seed " << seed;
        if (any_gap) {
            ASSERT_EQ(count[gap.begin[0]][gap.begin[1]], 0);
        }
    }
}

std::vector<ChunkGeometry> chunks_of(const std::vector<Box>& boxes) {
    std::vector<ChunkGeometry> chunks;
    for (const Box& b : boxes) chunks.push_back(chunk(b));
    return chunks;
}

/// A grid of random chunks and extents in shuffled order, the last chunks cut short.
kmm_test::Cut random_grid(std::size_t rank, unsigned seed) {
    kmm_test::CutRandom random(seed);
    kmm_test::Cut cut;
    cut.rank = rank;
    cut.boxes = {Box()};
    for (std::size_t k = 0; k < rank; k++) {
        const std::int64_t size = kmm_test::pick(random, 1, 4), end = kmm_test::pick(random, 1, rank == 1 ? 90 : 9);
        cut.array.end[k] = end;
        std::vector<Box> next;
        for (Box b : cut.boxes) {
            for (b.begin[k] = 0; b.begin[k] < end; b.begin[k] += size) {
                b.end[k] = std::min(b.begin[k] + size, end);
                next.push_back(b);
            }
        }
        cut.boxes = std::move(next);
    }
    std::shuffle(cut.boxes.begin(), cut.boxes.end(), random);
    return cut;
}

TEST(Layout, all_chunks_that_a_region_meets_come_in_the_order_of_their_numbers_as_in_a_look_at_all) {
    std::size_t num_grids = 0, num_many = 0;
    for (unsigned seed = 0; seed < 300; seed++) {
        kmm_test::CutRandom random(seed);
        const std::size_t rank = 1 + seed % 4;
        const kmm_test::Cut cut =
            seed % 2 == 0 ? random_grid(rank, seed) : kmm_test::random_halves(rank, 1 + 7 * seed, seed, 20);
        const Layout layout(rank, cut.array, chunks_of(cut.boxes));
        num_grids += layout.is_grid() && layout.num_chunks() > 1;
        for (int i = 0; i < 50; i++) {
            Box region;
            for (std::size_t k = 0; k < rank; k++) {
                region.begin[k] = kmm_test::pick(random, -2, cut.array.end[k] + 1);
                region.end[k] = kmm_test::pick(random, region.begin[k], cut.array.end[k] + 2);
            }
            std::vector<std::size_t> expected{77}, found{77};
            std::size_t holder = Layout::none;
            for (std::size_t c = 0; c < layout.num_chunks(); c++) {
                const Box b = layout.box(c);
                if (!kmm::boxes::is_empty(kmm::boxes::intersection(b, region))) expected.push_back(c);
                if (kmm::boxes::contains(b, region) && holder == Layout::none) holder = c;
            }
            layout.find_all(region, found);
            ASSERT_EQ(found, expected) << "seed " << seed << ", query " << i;
            num_many += found.size() > layout.num_chunks() / 16 + 17;
            if (!kmm::boxes::is_empty(region)) {
                ASSERT_EQ(layout.find(region), holder) << "seed " << seed;
            }
        }
    }
    EXPECT_GT(num_grids, 100u);
    EXPECT_GT(num_many, 100u);
}

TEST(Layout, a_hole_in_very_many_chunks_is_named_and_two_that_overlap_are_too) {
    const kmm_test::Cut cuts[] = {kmm_test::random_halves(1, 3000, 1, 1 << 20),
                                  kmm_test::rows_of_columns(3000),
                                  kmm_test::random_halves(3, 3000, 2, 1 << 10),
                                  kmm_test::few_huge_and_many_tiny(3000),
                                  kmm_test::pinwheels(3000),
                                  kmm_test::flat_and_upright(3000)};
    kmm_test::CutRandom random(1);
    for (const kmm_test::Cut& cut : cuts) {
        std::vector<ChunkGeometry> chunks = chunks_of(cut.boxes);
        Box gap;
        std::size_t first = 0, second = 0;
        ASSERT_FALSE(Layout::find_gap(cut.array, chunks, &gap));
        ASSERT_FALSE(Layout::find_overlap(chunks, &first, &second));
        for (int i = 0; i < 20; i++) {
            const auto victim = static_cast<std::size_t>(kmm_test::pick(random, 0, std::int64_t(chunks.size()) - 1));
            std::vector<ChunkGeometry> damaged = chunks;
            const Box lost = damaged[victim].box;
            damaged.erase(damaged.begin() + static_cast<std::ptrdiff_t>(victim));
            ASSERT_TRUE(Layout::find_gap(cut.array, damaged, &gap));
            ASSERT_TRUE(kmm::boxes::contains(lost, gap) && !kmm::boxes::is_empty(gap));
            // An element of it twice.
            Box corner = lost;
            for (std::size_t k = 0; k < cut.rank; k++) corner.begin[k] = corner.end[k] - 1;
            damaged = chunks;
            damaged.push_back(chunk(corner));
            ASSERT_TRUE(Layout::find_overlap(damaged, &first, &second));
            ASSERT_EQ(first, victim);
            ASSERT_EQ(second, chunks.size());
            const Layout layout(cut.rank, cut.array, damaged);
            ASSERT_TRUE(layout.find_overlap(&first, &second));
            ASSERT_EQ(first, victim);
        }
    }
}

TEST(Layout, a_large_grid_has_no_overlap_and_one_with_a_cell_twice_has) {
    std::vector<ChunkGeometry> chunks;
    for (std::int64_t y = 0; y < 70; y += 10)
        for (std::int64_t x = 0; x < 64; x += 9)
            chunks.push_back(chunk(box(y, std::min<std::int64_t>(y + 10, 67), x, std::min<std::int64_t>(x + 9, 64))));
    std::size_t first = 0, second = 0;
    EXPECT_FALSE(Layout::find_overlap(chunks, &first, &second));
    chunks.push_back(chunks[3]);
    ASSERT_TRUE(Layout::find_overlap(chunks, &first, &second));
    EXPECT_EQ(first, 3u);
    EXPECT_EQ(second, chunks.size() - 1);
    chunks.erase(chunks.begin() + 5);  // as many cells as before, but one missing
    EXPECT_TRUE(Layout::find_overlap(chunks, &first, &second));
}

}  // namespace
