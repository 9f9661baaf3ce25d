// The heap of spans: its contract, and random operations against a map of address ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "rmm/heap/span_heap.hpp"

namespace {

using rmm::heap::span_heap;

constexpr std::size_t unit = 256;
constexpr std::uintptr_t base = std::uintptr_t{1} << 30;

span_heap::span remove_empty(span_heap& heap) {
    std::size_t from = 0;
    return heap.remove_empty_span(&from);
}

TEST(SpanHeap, gives_nothing_before_it_has_a_span) {
    span_heap heap;
    EXPECT_FALSE(heap.try_allocate(unit));
    EXPECT_EQ(heap.free(base, 1), 0u);
    EXPECT_FALSE(remove_empty(heap));
    EXPECT_EQ(heap.largest_free_bytes(), 0u);
}

TEST(SpanHeap, blocks_are_cut_from_the_front_and_merge_when_they_come_back) {
    span_heap heap;
    heap.add_span(base, 16 * unit, 3);
    const auto a = heap.try_allocate(4 * unit);
    const auto b = heap.try_allocate(4 * unit);
    EXPECT_EQ(a.address, base);
    EXPECT_EQ(b.address, base + 4 * unit);
    EXPECT_EQ(heap.live_bytes(), 8 * unit);
    EXPECT_EQ(heap.largest_free_bytes(), 8 * unit);
    EXPECT_EQ(heap.free(a.address, 4), 4 * unit);
    EXPECT_FALSE(heap.try_allocate(9 * unit));
    EXPECT_EQ(heap.free(b.address, 5), 4 * unit);
    EXPECT_EQ(heap.try_allocate(16 * unit).address, base);
    EXPECT_EQ(heap.free_bytes(), 0u);
}

TEST(SpanHeap, a_block_carries_the_latest_position_of_its_parts) {
    span_heap heap;
    heap.add_span(base, 4 * unit, 1);
    const auto a = heap.try_allocate(unit);
    const auto b = heap.try_allocate(unit);
    EXPECT_EQ(b.position, 1u);
    heap.free(b.address, 9);
    heap.free(a.address, 5);
    EXPECT_EQ(heap.try_allocate(unit).position, 9u);
}

TEST(SpanHeap, blocks_never_cross_from_one_span_into_another) {
    span_heap heap;
    heap.add_span(base, 4 * unit, 0);
    heap.add_span(base + 4 * unit, 4 * unit, 0);
    EXPECT_FALSE(heap.try_allocate(5 * unit));
    EXPECT_TRUE(heap.try_allocate(4 * unit));
    EXPECT_TRUE(heap.try_allocate(4 * unit));
    EXPECT_FALSE(heap.try_allocate(unit));
}

TEST(SpanHeap, only_spans_with_nothing_in_use_can_be_removed) {
    span_heap heap;
    heap.add_span(base, 4 * unit, 1);
    heap.add_span(base + 8 * unit, 8 * unit, 2);
    const auto block = heap.try_allocate(8 * unit);
    ASSERT_TRUE(block);
    const auto first = remove_empty(heap);
    EXPECT_EQ(first.address, base);
    EXPECT_EQ(first.size_bytes, 4 * unit);
    EXPECT_EQ(first.position, 1u);
    EXPECT_FALSE(remove_empty(heap));
    heap.free(block.address, 7);
    EXPECT_EQ(remove_empty(heap).position, 7u);
    EXPECT_EQ(heap.span_bytes(), 0u);
}

TEST(SpanHeap, one_pass_over_the_spans_removes_all_that_are_empty) {
    span_heap heap;
    for (std::uintptr_t i = 0; i < 4; ++i) heap.add_span(base + i * 8 * unit, 4 * unit, i);
    std::vector<std::uintptr_t> blocks;
    while (const auto block = heap.try_allocate(4 * unit)) blocks.push_back(block.address);
    ASSERT_EQ(blocks.size(), 4u);
    for (const std::uintptr_t b : {blocks[0], blocks[1], blocks[3]}) heap.free(b, 9);
    std::size_t from = 0;
    std::vector<std::uintptr_t> removed;
    while (const auto s = heap.remove_empty_span(&from)) removed.push_back(s.address);
    EXPECT_EQ(removed.size(), 3u);
    EXPECT_EQ(heap.span_bytes(), 4 * unit);
    EXPECT_FALSE(heap.remove_empty_span(&from));
    heap.free(blocks[2], 9);
    EXPECT_EQ(remove_empty(heap).address, blocks[2]);
}

TEST(SpanHeap, blocks_cross_from_one_span_into_another_that_joins_it) {
    span_heap heap;
    heap.add_span(base, 4 * unit, 1, true);
    const auto low = heap.try_allocate(2 * unit);
    heap.add_span(base + 8 * unit, 4 * unit, 2, true);
    EXPECT_EQ(heap.num_spans(), 2u);
    heap.add_span(base + 4 * unit, 4 * unit, 3, true);
    EXPECT_EQ(heap.num_spans(), 1u);
    const auto across = heap.try_allocate(10 * unit);
    EXPECT_EQ(across.address, base + 2 * unit);
    EXPECT_EQ(across.position, 3u);
    heap.free(low.address, 4);
    EXPECT_EQ(heap.num_unused_spans(), 0u);
    heap.free(across.address, 5);
    EXPECT_EQ(heap.num_unused_spans(), 1u);
    EXPECT_EQ(remove_empty(heap).size_bytes, 12 * unit);
}

/// What leaves in whole granules, as rows of (address, size).
std::vector<std::pair<std::uintptr_t, std::size_t>> remove_granules(span_heap& heap, std::size_t granule) {
    std::vector<std::pair<std::uintptr_t, std::size_t>> rows;
    heap.remove_granules(
        granule, {}, [](auto...) {},
        [&](std::uintptr_t address, std::size_t size) { rows.emplace_back(address, size); });
    return rows;
}

TEST(SpanHeap, whole_granules_in_which_nothing_is_in_use_leave_and_the_rest_stays) {
    span_heap heap;
    constexpr std::size_t granule = 8 * unit;
    heap.add_span(base, 5 * granule, 1);
    const auto first = heap.try_allocate(unit);
    const auto gap = heap.try_allocate(2 * granule + 3 * unit);
    const auto second = heap.try_allocate(unit);
    heap.free(gap.address, 2);
    // From the second granule on up to where the second block is; then from behind that.
    using rows = std::vector<std::pair<std::uintptr_t, std::size_t>>;
    EXPECT_EQ(remove_granules(heap, granule), (rows{{base + granule, granule}, {base + 3 * granule, 2 * granule}}));
    EXPECT_EQ(heap.num_spans(), 2u);
    EXPECT_EQ(heap.span_bytes(), 2 * granule);
    EXPECT_EQ(heap.free_bytes(), 2 * granule - 2 * unit);
    EXPECT_TRUE(remove_granules(heap, granule).empty());
    heap.free(first.address, 3);
    EXPECT_EQ(heap.num_unused_spans(), 1u);
    EXPECT_EQ(remove_granules(heap, granule), (rows{{base, granule}}));
    EXPECT_EQ(heap.free(second.address, 4), unit);
    EXPECT_EQ(remove_granules(heap, granule), (rows{{base + 2 * granule, granule}}));
    EXPECT_EQ(heap.num_spans(), 0u);
}

TEST(SpanHeap, a_detached_block_leaves_with_its_granules_or_not_at_all) {
    span_heap heap;
    constexpr std::size_t granule = 8 * unit;
    heap.add_span(base, 3 * granule, 1);
    const auto low = heap.try_allocate(granule + unit);  // reaches into the second granule
    const auto high = heap.try_allocate(2 * unit);
    const auto in_use = heap.try_allocate(unit);
    std::size_t size = 0;
    const auto reaches = heap.detach(low.address, &size);
    const auto inside = heap.detach(high.address, &size);
    std::vector<span_heap::detached> gone;
    std::vector<std::uintptr_t> taken;
    const auto note = [&](std::uintptr_t, std::size_t, std::uint64_t, span_heap::detached block) {
        if (block != span_heap::whole) gone.push_back(block);
    };
    const auto take = [&](std::uintptr_t address, std::size_t) { taken.push_back(address); };
    heap.remove_granules(granule, {reaches, inside}, note, take);
    EXPECT_EQ(taken, std::vector<std::uintptr_t>{base + 2 * granule});
    EXPECT_TRUE(gone.empty());
    heap.free_detached(reaches, 2);
    heap.remove_granules(granule, {inside}, note, take);
    EXPECT_EQ(taken.back(), base);
    EXPECT_TRUE(gone.empty());
    heap.free(in_use.address, 3);
    heap.remove_granules(granule, {inside}, note, take);
    EXPECT_EQ(taken.back(), base + granule);
    EXPECT_EQ(gone, std::vector<span_heap::detached>{inside});
    EXPECT_EQ(heap.span_bytes(), 0u);
}

TEST(SpanHeap, what_refuses_a_row_of_granules_finds_it_where_it_was) {
    span_heap heap;
    constexpr std::size_t granule = 8 * unit;
    heap.add_span(base, 2 * granule, 1);
    EXPECT_THROW(heap.remove_granules(
                     granule, {}, [](auto...) { throw std::bad_alloc(); }, [](auto...) { FAIL(); }),
                 std::bad_alloc);
    EXPECT_EQ(heap.try_allocate(2 * granule).address, base);
}

/// Steps of one pass over a span of so many granules, every second one of which can leave.
std::size_t pieces_looked_at(std::size_t num_granules) {
    span_heap heap;
    constexpr std::size_t granule = 8 * unit;
    heap.add_span(base, num_granules * granule, 1);
    std::vector<std::uintptr_t> blocks;
    for (std::size_t i = 0; i < num_granules; ++i) blocks.push_back(heap.try_allocate(granule).address);
    for (std::size_t i = 0; i < num_granules; i += 2) heap.free(blocks[i], 2);
    const std::uint64_t before = heap.num_steps();
    EXPECT_EQ(remove_granules(heap, granule).size(), num_granules / 2);
    return heap.num_steps() - before;
}

TEST(SpanHeap, granules_leave_in_steps_that_grow_as_the_pieces_do) {
    EXPECT_LE(pieces_looked_at(2000), 2 * pieces_looked_at(1000) + 100);
}

/// Steps of one pass over a span in which so many blocks are detached side by side; one in use keeps it whole.
std::size_t detached_looked_at(std::size_t num_blocks) {
    span_heap heap;
    heap.add_span(base, (num_blocks + 1) * unit, 1);
    std::vector<span_heap::detached> detached;
    std::size_t size = 0;
    for (std::size_t i = 0; i < num_blocks; ++i)
        detached.push_back(heap.detach(heap.try_allocate(unit).address, &size));
    EXPECT_TRUE(heap.try_allocate(unit));
    const std::uint64_t before = heap.num_steps();
    heap.remove_granules(base, detached, [](auto...) { FAIL(); }, [](auto...) { FAIL(); });
    return heap.num_steps() - before;
}

TEST(SpanHeap, a_row_of_detached_blocks_is_looked_at_once) {
    EXPECT_LE(detached_looked_at(2000), 2 * detached_looked_at(1000) + 100);
}

TEST(SpanHeap, a_detached_block_is_neither_in_use_nor_free) {
    span_heap heap;
    heap.add_span(base, 4 * unit, 1);
    const auto block = heap.try_allocate(4 * unit);
    std::size_t size = 0;
    const auto away = heap.detach(block.address, &size);
    EXPECT_EQ(size, 4 * unit);
    EXPECT_EQ(heap.num_live(), 0u);
    EXPECT_EQ(heap.free_bytes(), 0u);
    EXPECT_EQ(heap.free(block.address, 2), 0u);
    EXPECT_FALSE(remove_empty(heap));
    const auto rest = heap.split_detached(away, unit);
    EXPECT_EQ(heap.size_of(away), unit);
    EXPECT_EQ(heap.size_of(rest), 3 * unit);
    heap.free_detached(rest, 3);
    EXPECT_EQ(heap.largest_free_bytes(), 3 * unit);
    EXPECT_EQ(heap.take_detached(away).address, base);
    EXPECT_EQ(heap.live_bytes(), unit);
    heap.free(base, 4);
    EXPECT_EQ(heap.largest_free_bytes(), 4 * unit);
}

TEST(SpanHeap, freeing_twice_or_in_the_middle_of_a_block_does_nothing) {
    span_heap heap;
    heap.add_span(base, 8 * unit, 1);
    const auto block = heap.try_allocate(4 * unit);
    EXPECT_EQ(heap.free(block.address + unit, 2), 0u);
    EXPECT_EQ(heap.free(block.address, 2), 4 * unit);
    EXPECT_EQ(heap.free(block.address, 2), 0u);
    std::size_t size = 1;
    (void)heap.detach(block.address, &size);
    EXPECT_EQ(size, 0u);
}

TEST(SpanHeap, a_request_is_met_whenever_a_piece_of_its_size_class_above_it_is_free) {
    // Every piece of twice the size fits, whatever the classes; smaller ones may be missed, but never the last resort.
    std::mt19937 random(3);
    for (int round = 0; round < 2000; ++round) {
        span_heap heap;
        const std::size_t units = 1 + random() % 5000;
        heap.add_span(base, units * unit, 0);
        EXPECT_TRUE(heap.try_allocate(units * unit)) << units;
    }
}

class SpanHeapModel : public testing::TestWithParam<unsigned> {};

TEST_P(SpanHeapModel, random_operations_never_hand_out_a_byte_twice) {
    std::mt19937 random(GetParam());
    const bool joins = GetParam() % 2 == 0;
    constexpr std::size_t granule = 64 * unit;
    span_heap heap;
    std::map<std::uintptr_t, std::size_t> spans;
    std::map<std::uintptr_t, std::size_t> live;
    std::map<std::uintptr_t, std::pair<span_heap::detached, std::size_t>> detached;
    std::uintptr_t next_span = base;
    std::size_t total = 0;
    std::uint64_t position = 1;
    const auto pick = [&](auto& map) { return std::next(map.begin(), static_cast<long>(random() % map.size())); };
    const auto overlaps = [](const auto& map, std::uintptr_t address, std::size_t size, auto size_of) {
        auto at = map.upper_bound(address);
        if (at != map.end() && at->first < address + size) return true;
        return at != map.begin() && std::prev(at)->first + size_of(*std::prev(at)) > address;
    };
    const auto enter = [&](const span_heap::taken& t, std::size_t size) {
        ASSERT_EQ(t.size_bytes, size);
        ASSERT_LE(t.position, position);
        ASSERT_FALSE(overlaps(live, t.address, size, [](const auto& e) { return e.second; }));
        ASSERT_FALSE(overlaps(detached, t.address, size, [](const auto& e) { return e.second.second; }));
        const auto span = std::prev(spans.upper_bound(t.address));
        ASSERT_LE(t.address + size, span->first + span->second);
        live[t.address] = size;
    };
    for (int step = 0; step < 20000; ++step) {
        ++position;
        const auto what = random() % 100;
        if (what < 2 && spans.size() < 8) {
            const std::size_t size = unit * (1 + random() % 2000);
            heap.add_span(next_span, size, position, joins);
            const auto before = spans.empty() ? spans.end() : std::prev(spans.end());
            if (joins && before != spans.end() && before->first + before->second == next_span)
                before->second += size;
            else
                spans[next_span] = size;
            total += size;
            next_span += size + (random() % 2) * unit;
        } else if (what < 50) {
            const std::size_t size = unit * (std::size_t{1} << random() % 9) + unit * (random() % 7);
            if (const auto t = heap.try_allocate(size))
                enter(t, size);
            else
                EXPECT_LT(heap.largest_free_bytes(), 2 * size);
        } else if (what < 80 && !live.empty()) {
            const auto at = pick(live);
            ASSERT_EQ(heap.free(at->first, position), at->second);
            live.erase(at);
        } else if (what < 87 && !live.empty()) {
            const auto at = pick(live);
            std::size_t size = 0;
            const auto block = heap.detach(at->first, &size);
            ASSERT_EQ(size, at->second);
            detached[at->first] = {block, size};
            live.erase(at);
        } else if (what < 90 && !detached.empty()) {
            const auto at = pick(detached);
            const std::size_t size = at->second.second;
            if (size > unit) {
                const std::size_t first = unit * (1 + random() % (size / unit - 1));
                const auto rest = heap.split_detached(at->second.first, first);
                at->second.second = first;
                detached[at->first + first] = {rest, size - first};
            }
        } else if (what < 93 && !detached.empty()) {
            const auto at = pick(detached);
            const std::size_t size = at->second.second;
            const auto block = at->second.first;
            detached.erase(at);
            enter(heap.take_detached(block), size);
        } else if (what < 98 && !detached.empty()) {
            const auto at = pick(detached);
            heap.free_detached(at->second.first, position);
            detached.erase(at);
        } else if (what < 99 && random() % 4 == 0) {
            std::vector<std::uintptr_t> gone;
            const auto note = [&](std::uintptr_t address, std::size_t size, std::uint64_t, span_heap::detached block) {
                if (block == span_heap::whole) return;
                ASSERT_EQ(detached.at(address).first, block);
                ASSERT_EQ(detached.at(address).second, size);
                gone.push_back(address);
            };
            const auto take = [&](std::uintptr_t address, std::size_t size) {
                ASSERT_EQ(address % granule, 0u);
                ASSERT_EQ(size % granule, 0u);
                for (const std::uintptr_t a : gone) detached.erase(a);
                gone.clear();
                ASSERT_FALSE(overlaps(live, address, size, [](const auto& e) { return e.second; }));
                ASSERT_FALSE(overlaps(detached, address, size, [](const auto& e) { return e.second.second; }));
                const auto span = std::prev(spans.upper_bound(address));
                const std::uintptr_t end = span->first + span->second;
                ASSERT_LE(address + size, end);
                if (address + size < end) spans[address + size] = end - address - size;
                span->second = address - span->first;
                if (span->second == 0) spans.erase(span);
                total -= size;
            };
            std::vector<span_heap::detached> away;
            for (const auto& [address, d] : detached) away.push_back(d.first);
            heap.remove_granules(granule, away, note, take);
        } else if (what < 99) {
            if (const auto s = remove_empty(heap)) {
                ASSERT_EQ(spans.at(s.address), s.size_bytes);
                ASSERT_FALSE(overlaps(live, s.address, s.size_bytes, [](const auto& e) { return e.second; }));
                spans.erase(s.address);
                total -= s.size_bytes;
            }
        }
        std::size_t in_use = 0;
        std::size_t away = 0;
        for (const auto& [address, size] : live) in_use += size;
        for (const auto& [address, d] : detached) away += d.second;
        ASSERT_EQ(heap.live_bytes(), in_use);
        ASSERT_EQ(heap.num_live(), live.size());
        ASSERT_EQ(heap.span_bytes(), total);
        ASSERT_EQ(heap.num_spans(), spans.size());
        ASSERT_EQ(heap.free_bytes(), total - in_use - away);
    }
    // All of it comes back together.
    for (const auto& [address, size] : live) heap.free(address, position);
    for (const auto& [address, d] : detached) heap.free_detached(d.first, position);
    for (std::size_t i = spans.size(); i > 0; --i) EXPECT_TRUE(remove_empty(heap));
    EXPECT_EQ(heap.span_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SpanHeapModel, testing::Range(1u, 9u));

}  // namespace
