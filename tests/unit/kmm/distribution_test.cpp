// Distributions: exact covers, their numbering, and finding chunks.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../boxes/cuts.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/error.hpp"
#include "support/repeat.hpp"

namespace {

using kmm::ArrayChunk;
using kmm::Bounds;
using kmm::DeviceId;
using kmm::Dim;
using kmm::Distribution;
using kmm::MemoryId;
using kmm::Point;
using kmm::Range;
using namespace kmm::placeholders;

kmm::SystemInfo system_of(std::size_t num_devices) {
    kmm::SystemDescription system;
    for (std::size_t i = 0; i < num_devices; i++) {
        kmm::DeviceDescription device;
        device.device_id = DeviceId(i);
        system.devices.push_back(kmm::DeviceInfo(device));
    }
    return kmm::SystemInfo(system);
}

template<std::size_t N>
Bounds<N> box(const ArrayChunk<N>& chunk) {
    return Bounds<N>::from_offset_size(chunk.offset, chunk.size);
}

std::string refusal(const Dim<2>& size, const std::vector<ArrayChunk<2>>& chunks) {
    try {
        Distribution<2>::from_chunks(size, chunks);
        return "accepted";
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
}

TEST(Row125_Distribution, a_regular_grid_is_numbered_row_major_with_short_last_chunks) {
    std::vector<MemoryId> memories;
    for (std::size_t i = 0; i < 6; i++) memories.push_back(DeviceId(i));
    const Distribution<2> d({5, 8}, {2, 5}, memories);
    EXPECT_TRUE(d.is_regular());
    EXPECT_EQ(d.num_chunks(), 6u);
    EXPECT_EQ(d.array_size(), Dim<2>(5, 8));
    EXPECT_EQ(d.chunk_size(), Dim<2>(2, 5));
    EXPECT_EQ(d.chunk(1).offset, Point<2>(0, 5));
    EXPECT_EQ(d.chunk(1).size, Dim<2>(2, 3));
    EXPECT_EQ(d.chunk(4).offset, Point<2>(4, 0));
    EXPECT_EQ(d.chunk(4).size, Dim<2>(1, 5));
    EXPECT_EQ(d.chunk(4).owner_id, MemoryId(DeviceId(4)));
    EXPECT_THROW(d.chunk(6), kmm::InvalidArgument);
    EXPECT_THROW(Distribution<2>({5, 8}, {2, 5}, {MemoryId::host()}), kmm::InvalidArgument);
    EXPECT_THROW(Distribution<2>({5, 8}, {2, 0}, {}), kmm::InvalidArgument);
    EXPECT_THROW(Distribution<2>({-5, 8}, {2, 5}, {}), kmm::InvalidArgument);
}

TEST(Row125_Distribution, the_default_is_empty_or_one_chunk_of_rank_zero) {
    EXPECT_EQ(Distribution<2>().num_chunks(), 0u);
    EXPECT_EQ(Distribution<2>().chunk_size(), Dim<2>(0, 0));
    EXPECT_TRUE(Distribution<2>().chunks_in(Bounds<2>(Dim<2>(1, 1))).empty());
    ASSERT_EQ(Distribution<0>().num_chunks(), 1u);
    EXPECT_TRUE(Distribution<0>().chunk(0).owner_id.is_host());
    EXPECT_EQ(Distribution<0>().region_to_chunk_index(Bounds<0>()), 0u);
}

TEST(Row125_Distribution, a_shuffled_regular_cover_is_renumbered_row_major) {
    std::vector<ArrayChunk<2>> chunks;
    for (long y : {0, 3, 6}) {
        for (long x : {0, 4}) {
            chunks.push_back({DeviceId(y / 3), {y, x}, {std::min(3l, 8 - y), 4}});
        }
    }
    std::shuffle(chunks.begin(), chunks.end(), std::mt19937(3));
    const auto d = Distribution<2>::from_chunks({8, 8}, chunks);
    EXPECT_TRUE(d.is_regular());
    ASSERT_EQ(d.num_chunks(), 6u);
    for (std::size_t i = 0; i < 6; i++) {
        EXPECT_EQ(d.chunk(i).offset, Point<2>(3 * (i / 2), 4 * (i % 2)));
        EXPECT_EQ(d.chunk(i).owner_id, MemoryId(DeviceId(i / 2)));
    }
}

TEST(Row125_Distribution, an_irregular_cover_keeps_the_order_of_its_list) {
    const std::vector<ArrayChunk<2>> chunks{
        {DeviceId(1), {0, 3}, {5, 2}}, {DeviceId(0), {0, 0}, {2, 3}}, {MemoryId::host(), {2, 0}, {3, 3}}};
    const auto d = Distribution<2>::from_chunks({5, 5}, chunks);
    EXPECT_FALSE(d.is_regular());
    ASSERT_EQ(d.num_chunks(), 3u);
    for (std::size_t i = 0; i < 3; i++) EXPECT_EQ(d.chunk(i), chunks[i]);
    EXPECT_EQ(d.chunk_size(), Dim<2>(2, 3));
    EXPECT_EQ(d.chunks_in(Bounds<2>(Range<>(1, 3), Range<>(2, 4))), (std::vector<std::size_t>{0, 1, 2}));
    EXPECT_EQ(d.region_to_chunk_index(Bounds<2>(Range<>(3, 5), Range<>(0, 3))), 2u);
    EXPECT_THROW(d.region_to_chunk_index(Bounds<2>(Range<>(1, 3), Range<>(0, 3))), kmm::InvalidArgument);
}

TEST(Row125_Distribution, gaps_overlaps_and_strays_are_refused_with_their_region) {
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {0, 0}, {4, 2}}, {DeviceId(0), {0, 3}, {4, 1}}}).find("{0...4, 2...3}"),
              std::string::npos);
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {0, 0}, {4, 3}}, {DeviceId(0), {0, 2}, {4, 2}}}).find("{0...4, 2...3}"),
              std::string::npos);
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {0, 0}, {4, 5}}}).find("{0...4, 0...5}"), std::string::npos);
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {-1, 0}, {5, 4}}}).find("{-1...4, 0...4}"), std::string::npos);
    EXPECT_NE(refusal({4, 4}, {}).find("{0...4, 0...4}"), std::string::npos);
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {0, 0}, {4, -4}}}).find("-4"), std::string::npos);
    const ArrayChunk<2> whole{DeviceId(0), {0, 0}, {4, 4}};
    EXPECT_NE(refusal({4, 4}, {whole, whole}).find("overlap"), std::string::npos);
    EXPECT_EQ(refusal({4, 4}, {whole}), "accepted");
}

TEST(Row125_Distribution, a_stray_is_refused_where_it_would_be_a_cell_of_the_grid_before_the_array) {
    using Chunks = std::vector<kmm::ArrayChunk<1>>;
    for (const Chunks& chunks : {Chunks{{MemoryId::host(), {0}, {5}}, {MemoryId::host(), {-5}, {5}}},
                                 Chunks{{MemoryId::host(), {0}, {5}}, {MemoryId::host(), {10}, {5}}}})
        EXPECT_THROW(Distribution<1>::from_chunks(10, chunks), kmm::InvalidArgument);
}

// Swept along the first axis, which none of them cuts, or in their own order, this would take minutes.
TEST(Row125_Distribution, a_cover_of_very_many_columns_is_checked) {
    std::vector<kmm::ArrayChunk<2>> columns;
    kmm::default_index_type at = 0;
    const int num_columns = repeat(300'000, 30'000);
    for (int i = 0; i < num_columns; ++i) {
        columns.push_back({MemoryId::host(), {0, at}, {4, 1 + i % 3}});
        at += 1 + i % 3;
    }
    EXPECT_EQ(Distribution<2>::from_chunks({4, at}, columns).num_chunks(), columns.size());
    std::shuffle(columns.begin(), columns.end(), std::mt19937(1));
    const kmm::ArrayChunk<2> last = columns.back();
    columns.pop_back();
    EXPECT_THROW(Distribution<2>::from_chunks({4, at}, columns), kmm::InvalidArgument);
    columns.push_back(last);
    columns.back().size[1] += 1;
    EXPECT_THROW(Distribution<2>::from_chunks({4, at}, columns), kmm::InvalidArgument);
}

TEST(Row125_Distribution, sizes_and_ends_that_no_number_counts_are_refused_with_them) {
    const std::int64_t half = std::int64_t(1) << 32, largest = std::numeric_limits<std::int64_t>::max();
    const Dim<2> square(half, half);
    const auto expect_refused = [](const auto& make, const std::string& part) {
        try {
            make();
            ADD_FAILURE() << "accepted; expected: " << part;
        } catch (const kmm::InvalidArgument& e) {
            EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
        }
    };
    const std::string shape = "{4294967296, 4294967296}";
    expect_refused([&] { Distribution<2>::single(square); }, shape);
    expect_refused([&] { Distribution<2>::blocks(square, system_of(2)); }, shape);
    expect_refused([&] { Distribution<2>::tiles(square, {1, 1}, system_of(2)); }, shape);
    expect_refused([&] { Distribution<2>(square, square, {MemoryId::host()}); }, shape);
    EXPECT_NE(refusal(square, {{DeviceId(0), {0, 0}, square}}).find(shape), std::string::npos);
    EXPECT_NE(refusal({4, 4}, {{DeviceId(0), {0, largest}, {4, 5}}}).find("{0, 9223372036854775807} and size {4, 5}"),
              std::string::npos);
    expect_refused([&] { Distribution<1>::tiles(half, 1, system_of(1)); }, "4294967296 chunks");
    EXPECT_EQ((Distribution<3>::single({half, half, 0}).num_chunks()), 0u);
    EXPECT_EQ(Distribution<1>::tiles(largest, std::int64_t(1) << 62, system_of(1)).num_chunks(), 2u);
}

TEST(Row125_Distribution, identical_chunks_merge_on_request_and_disagreeing_homes_become_the_host) {
    const std::vector<ArrayChunk<1>> chunks{
        {DeviceId(0), 0, 5}, {DeviceId(1), 5, 5}, {DeviceId(0), 0, 5}, {DeviceId(0), 5, 5}};
    EXPECT_THROW(Distribution<1>::from_chunks(10, chunks), kmm::InvalidArgument);
    const auto d = Distribution<1>::from_chunks(10, chunks, true);
    ASSERT_EQ(d.num_chunks(), 2u);
    EXPECT_EQ(d.chunk(0).owner_id, MemoryId(DeviceId(0)));
    EXPECT_TRUE(d.chunk(1).owner_id.is_host());
    const ArrayChunk<0> scalar{DeviceId(2), {}, {}};
    EXPECT_EQ(Distribution<0>::from_chunks({}, {scalar, scalar}, true).chunk(0).owner_id, MemoryId(DeviceId(2)));
    EXPECT_THROW(Distribution<0>::from_chunks({}, {scalar, scalar}), kmm::InvalidArgument);
}

TEST(Row125_Distribution, factories_deal_tiles_blocks_and_runs) {
    const auto info = system_of(3);
    const auto tiles = Distribution<1>::tiles(10, 3, info);
    ASSERT_EQ(tiles.num_chunks(), 4u);
    for (std::size_t i = 0; i < 4; i++) EXPECT_EQ(tiles.chunk(i).owner_id, MemoryId(DeviceId(i % 3)));
    const auto runs = Distribution<1>::cyclic(10, 1, 2, info);
    for (std::size_t i = 0; i < 10; i++) EXPECT_EQ(runs.chunk(i).owner_id, MemoryId(DeviceId(i / 2 % 3)));
    const auto blocks = Distribution<2>::blocks({4, 10}, info, 1);
    ASSERT_EQ(blocks.num_chunks(), 3u);
    EXPECT_EQ(blocks.chunk(0).size, Dim<2>(4, 4));
    EXPECT_EQ(blocks.chunk(2).size, Dim<2>(4, 3));
    EXPECT_EQ(Distribution<2>::blocks({2, 10}, info).num_chunks(), 2u) << "at most as many as the axis is long";
    EXPECT_TRUE(Distribution<1>::tiles(10, 3, system_of(0)).chunk(3).owner_id.is_host());
    EXPECT_EQ(Distribution<0>::blocks({}, info).num_chunks(), 1u);
    EXPECT_EQ(Distribution<3>::single({2, 3, 4}, DeviceId(1)).chunk(0).size, Dim<3>(2, 3, 4));
    EXPECT_EQ(Distribution<3>::single({2, 0, 4}).num_chunks(), 0u);
    EXPECT_THROW(Distribution<1>::blocks(10, info, 1), kmm::InvalidArgument);
    EXPECT_THROW(Distribution<1>::cyclic(10, 1, 0, info), kmm::InvalidArgument);
}

TEST(Row125_Distribution, chunks_are_found_by_region_as_by_a_scan_over_all) {
    std::mt19937 random(11);
    const auto number = [&](long low, long high) { return std::uniform_int_distribution<long>(low, high)(random); };
    for (int round = 0; round < 500; round++) {
        const Dim<3> size(number(1, 9), number(1, 9), number(1, 9));
        const auto d = Distribution<3>::tiles(size, {number(1, 10), number(1, 4), number(1, 10)}, system_of(2));
        const Bounds<3> region(Range<>(number(-2, 9), number(0, 12)), Range<>(number(-2, 9), number(0, 12)),
                               Range<>(number(-2, 9), number(0, 12)));
        std::vector<std::size_t> expected;
        std::vector<std::size_t> containing;
        for (std::size_t i = 0; i < d.num_chunks(); i++) {
            if (box(d.chunk(i)).overlaps(region)) expected.push_back(i);
            if (!region.is_empty() && box(d.chunk(i)).contains(region)) containing.push_back(i);
        }
        ASSERT_EQ(d.chunks_in(region), expected);
        if (!containing.empty()) {
            ASSERT_EQ(d.region_to_chunk_index(region), containing[0]);
        } else if (!region.is_empty()) {
            ASSERT_THROW(d.region_to_chunk_index(region), kmm::InvalidArgument);
        }
    }
}

TEST(Row125_Distribution, irregular_chunks_are_found_by_region_as_by_a_scan_over_all_in_order) {
    std::size_t num_holding = 0, num_several = 0;
    for (unsigned seed = 0; seed < 60; seed++) {
        kmm_test::CutRandom random(seed);
        const auto number = [&](long low, long high) { return kmm_test::pick(random, low, high); };
        const kmm_test::Cut cut = kmm_test::random_halves(2, static_cast<std::size_t>(number(2, 200)), seed, 30);
        std::vector<ArrayChunk<2>> chunks;
        for (const kmm::detail::Box& b : cut.boxes)
            chunks.push_back({DeviceId(0), {b.begin[0], b.begin[1]}, {b.end[0] - b.begin[0], b.end[1] - b.begin[1]}});
        const auto d = Distribution<2>::from_chunks({30, 30}, chunks);
        for (int i = 0; i < 50; i++) {
            const long y = number(-2, 31), x = number(-2, 31);
            const Bounds<2> region(Range<>(y, y + number(0, 8)), Range<>(x, x + number(0, 8)));
            std::vector<std::size_t> expected;
            std::optional<std::size_t> containing;
            for (std::size_t c = 0; c < d.num_chunks(); c++) {
                if (box(d.chunk(c)).overlaps(region)) expected.push_back(c);
                if (!region.is_empty() && box(d.chunk(c)).contains(region)) containing = c;
            }
            ASSERT_EQ(d.chunks_in(region), expected) << "seed " << seed;
            num_several += expected.size() > 1;
            if (containing) {
                num_holding++;
                ASSERT_EQ(d.region_to_chunk_index(region), *containing) << "seed " << seed;
            } else if (!region.is_empty()) {
                ASSERT_THROW(d.region_to_chunk_index(region), kmm::InvalidArgument) << "seed " << seed;
            }
        }
    }
    EXPECT_GT(num_holding, 100u);
    EXPECT_GT(num_several, 500u);
}

TEST(Row125_Distribution, random_irregular_covers_are_accepted_and_damaged_ones_refused) {
    std::mt19937 random(5);
    const auto number = [&](long low, long high) { return std::uniform_int_distribution<long>(low, high)(random); };
    for (int round = 0; round < 200; round++) {
        const Dim<2> size(number(1, 40), number(1, 40));
        // Cuts boxes in two again and again.
        std::vector<Bounds<2>> boxes{Bounds<2>(size)};
        for (int cut = 0; cut < 15; cut++) {
            const auto which = static_cast<std::size_t>(number(0, static_cast<long>(boxes.size()) - 1));
            const auto axis = static_cast<std::size_t>(number(0, 1));
            if (boxes[which].size(axis) < 2) continue;
            const long at = number(boxes[which].begin(axis) + 1, boxes[which].end(axis) - 1);
            const Bounds<2> tail = boxes[which].split_tail_along(axis, at);
            boxes.push_back(tail);
        }
        std::vector<ArrayChunk<2>> chunks;
        for (const Bounds<2>& b : boxes) chunks.push_back({DeviceId(0), b.begin(), b.size()});
        ASSERT_EQ(Distribution<2>::from_chunks(size, chunks).num_chunks(), chunks.size());
        const auto victim = static_cast<std::size_t>(number(0, static_cast<long>(chunks.size()) - 1));
        auto with_gap = chunks;
        with_gap.erase(with_gap.begin() + static_cast<std::ptrdiff_t>(victim));
        ASSERT_THROW(Distribution<2>::from_chunks(size, with_gap), kmm::InvalidArgument);
        auto with_overlap = chunks;
        with_overlap.push_back({DeviceId(0), chunks[victim].offset, {1, 1}});
        ASSERT_THROW(Distribution<2>::from_chunks(size, with_overlap), kmm::InvalidArgument);
    }
}

TEST(Row125_Distribution, a_domain_and_a_mapping_make_a_distribution_of_clipped_regions) {
    const kmm::Domain domain = kmm::IntoDomain<kmm::TileDomain>::call(kmm::TileDomain({10, 6}, {5, 3}), system_of(2),
                                                                      kmm::ExecutionSpace::Device);
    const auto d = kmm::map_domain_to_distribution(Dim<2>(6, 9), domain, bounds(_y, _x));
    ASSERT_EQ(d.num_chunks(), 4u);
    EXPECT_EQ(d.chunk(1).offset, Point<2>(0, 5));
    EXPECT_EQ(d.chunk(1).size, Dim<2>(3, 4));
    EXPECT_EQ(d.chunk(1).owner_id, MemoryId(DeviceId(1)));
    EXPECT_THROW(kmm::map_domain_to_distribution(Dim<2>(6, 11), domain, bounds(_y, _x)), kmm::InvalidArgument);
    EXPECT_THROW(kmm::map_domain_to_distribution(Dim<1>(10), domain, _x), kmm::InvalidArgument);
    const auto merged = kmm::map_domain_to_distribution(Dim<1>(10), domain, _x, true);
    ASSERT_EQ(merged.num_chunks(), 2u);
    EXPECT_EQ(merged.chunk(0).owner_id, MemoryId(DeviceId(0)));
}

TEST(Row125_Distribution, all_ranks_work) {
    EXPECT_EQ(Distribution<8>::single({1, 2, 1, 2, 1, 2, 1, 2}).num_chunks(), 1u);
    const auto d = Distribution<5>::tiles({2, 2, 2, 2, 2}, {1, 1, 1, 1, 1}, system_of(1));
    EXPECT_EQ(d.num_chunks(), 32u);
    EXPECT_EQ(d.region_to_chunk_index(box(d.chunk(17))), 17u);
}

}  // namespace
