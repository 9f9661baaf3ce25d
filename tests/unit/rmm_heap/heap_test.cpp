// Owns: the heap's contract (heap.hpp), sentence by sentence. Single-threaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "rmm/heap/heap.hpp"

namespace {

using rmm::heap::block;
using rmm::heap::fence;
using rmm::heap::fence_set;
using rmm::heap::heap;

constexpr std::uintptr_t base = 1 << 20;
constexpr std::size_t unit = 256;

fence_set on(std::uint64_t timeline, std::uint64_t position) { return fence_set{fence{timeline, position}}; }

heap with_region(std::size_t size_bytes) {
    heap h(256);
    h.add_region(base, size_bytes);
    return h;
}

TEST(FenceSet, keeps_the_latest_position_of_each_timeline_in_order) {
    fence_set set;
    set.add({7, 3});
    set.add({2, 9});
    set.add({7, 5});
    set.add({7, 4});
    ASSERT_EQ(set.size(), 2u);
    EXPECT_EQ(set.begin()[0], (fence{2, 9}));
    EXPECT_EQ(set.begin()[1], (fence{7, 5}));
}

TEST(FenceSet, adding_a_set_is_adding_each_of_its_fences) {
    fence_set a = on(1, 1);
    a.add({3, 3});
    fence_set b = on(2, 2);
    b.add({3, 8});
    a.add(b);
    fence_set expected = on(1, 1);
    expected.add({2, 2});
    expected.add({3, 8});
    EXPECT_EQ(a, expected);
    a.add(a);
    EXPECT_EQ(a, expected);
}

TEST(FenceSet, prune_drops_what_has_passed) {
    fence_set set = on(1, 1);
    set.add({2, 2});
    set.prune([](const fence& f) { return f.timeline == 1; });
    EXPECT_EQ(set, on(2, 2));
}

TEST(Heap, sizes_round_up_and_addresses_are_aligned) {
    heap h = with_region(4096);
    const block a = h.try_allocate(1);
    const block b = h.try_allocate(257);
    EXPECT_EQ(a.address, base);
    EXPECT_EQ(a.size_bytes, 256u);
    EXPECT_EQ(b.address, base + 256);
    EXPECT_EQ(b.size_bytes, 512u);
    EXPECT_EQ(h.free_bytes(), 4096u - 768u);
}

TEST(Heap, an_unaligned_region_offers_its_aligned_part) {
    heap h(256);
    h.add_region(base + 1, 1024);
    EXPECT_EQ(h.capacity_bytes(), 768u);
    EXPECT_EQ(h.try_allocate(768).address, base + 256);
}

TEST(Heap, nothing_fits_gives_an_empty_block_and_changes_nothing) {
    heap h = with_region(1024);
    EXPECT_FALSE(h.try_allocate(1025));
    EXPECT_FALSE(h.try_allocate(std::numeric_limits<std::size_t>::max()));
    EXPECT_FALSE(h.try_allocate(0));
    EXPECT_EQ(h.free_bytes(), 1024u);
    EXPECT_TRUE(h.try_allocate(1024));
}

TEST(Heap, the_smallest_fitting_piece_is_taken_and_of_equals_the_lowest) {
    heap h = with_region(8192);
    const block large = h.try_allocate(2048);
    (void)h.try_allocate(256);
    const block small = h.try_allocate(512);
    (void)h.try_allocate(256);
    const block same = h.try_allocate(512);
    const block rest = h.try_allocate(8192 - 2048 - 256 - 512 - 256 - 512);
    ASSERT_TRUE(rest);
    h.free(same.address, 512, {});
    h.free(large.address, 2048, {});
    // `same` touches nothing free; `small` and `same` are equal in size.
    h.free(small.address, 512, {});
    EXPECT_EQ(h.try_allocate(512).address, small.address);
    EXPECT_EQ(h.try_allocate(300).address, same.address);
    EXPECT_EQ(h.try_allocate(300).address, large.address);
}

TEST(Heap, a_request_that_is_small_beside_the_others_goes_to_the_lowest_address_where_that_was_asked_for) {
    for (const bool from_below : {false, true}) {
        heap h(unit, rmm::heap::merging::equal_fences,
               from_below ? rmm::heap::placement::small_from_below : rmm::heap::placement::best_fit);
        h.add_region(base, 200 * unit);
        // Free again: 50 units at the bottom and 2 above, a unit in use behind each.
        const block wide = h.try_allocate(50 * unit);
        ASSERT_TRUE(h.try_allocate(unit));
        const block tight = h.try_allocate(2 * unit);
        ASSERT_TRUE(h.try_allocate(unit));
        h.free(wide.address, wide.size_bytes, {});
        h.free(tight.address, tight.size_bytes, {});
        EXPECT_EQ(h.try_allocate(2 * unit).address, from_below ? wide.address : tight.address);
        // A large one goes to the tightest as ever.
        EXPECT_EQ(h.try_allocate(48 * unit).address, from_below ? wide.address + 2 * unit : wide.address);
    }
}

TEST(Heap, small_is_below_an_eighth_of_the_largest_request_lately) {
    heap h(unit, rmm::heap::merging::equal_fences, rmm::heap::placement::small_from_below);
    h.add_region(base, 4000 * unit);
    EXPECT_EQ(h.small_below_bytes(), 0u);
    EXPECT_FALSE(h.try_allocate(8000 * unit));
    EXPECT_EQ(h.small_below_bytes(), 0u) << "what was refused is no measure";
    const auto ask = [&](std::size_t size) {
        const block b = h.try_allocate(size);
        ASSERT_TRUE(b);
        h.free(b.address, b.size_bytes, {});
    };
    ask(1000 * unit);
    EXPECT_EQ(h.small_below_bytes(), 125 * unit);
    for (int i = 0; i < 512; ++i) ask(20 * unit);
    EXPECT_GT(h.small_below_bytes(), 60 * unit);
    for (int i = 0; i < 10'000; ++i) ask(20 * unit);
    EXPECT_EQ(h.small_below_bytes(), 20 * unit / 8) << "what was large long ago is forgotten";
}

TEST(Heap, the_lowest_address_is_one_without_fences_or_of_the_asker) {
    heap h(unit, rmm::heap::merging::equal_fences, rmm::heap::placement::small_from_below);
    h.add_region(base, 100 * unit);
    std::vector<block> blocks;
    for (int i = 0; i < 5; ++i) {
        blocks.push_back(h.try_allocate(3 * unit));
        ASSERT_TRUE(h.try_allocate(unit));
    }
    const block large = h.try_allocate(40 * unit);
    h.free(large.address, large.size_bytes, {});
    h.free(blocks[0].address, 3 * unit, on(1, 1));
    h.free(blocks[1].address, 3 * unit, on(2, 1));
    h.free(blocks[2].address, 3 * unit, {});
    h.free(blocks[3].address, 3 * unit, on(2, 1));
    EXPECT_EQ(h.try_allocate(unit, 2).address, blocks[1].address);
    EXPECT_EQ(h.try_allocate(unit, 3).address, blocks[2].address);
    EXPECT_EQ(h.try_allocate(unit).address, blocks[2].address + unit);
    EXPECT_TRUE(h.prune(std::vector<std::uint64_t>{1}, [](const fence&) { return true; }));
    EXPECT_EQ(h.try_allocate(unit).address, blocks[0].address) << "what has become ready is found";
}

TEST(Heap, memory_without_fences_is_preferred_to_a_tighter_fenced_piece) {
    heap h = with_region(4096);
    const block a = h.try_allocate(512);
    (void)h.try_allocate(256);
    h.free(a.address, 512, on(1, 1));
    const block b = h.try_allocate(512);
    EXPECT_NE(b.address, a.address);
    EXPECT_TRUE(b.fences.empty());
}

TEST(Heap, a_fenced_block_carries_its_fences_to_the_next_user_and_so_does_the_rest_of_it) {
    heap h = with_region(1024);
    const block a = h.try_allocate(1024);
    h.free(a.address, 1024, on(3, 9));
    EXPECT_EQ(h.try_allocate(256).fences, on(3, 9));
    EXPECT_EQ(h.try_allocate(768).fences, on(3, 9));
}

TEST(Heap, neighbours_with_equal_fences_merge_at_once) {
    heap h = with_region(1024);
    const block a = h.try_allocate(512);
    const block b = h.try_allocate(512);
    h.free(b.address, 512, on(1, 4));
    h.free(a.address, 512, on(1, 4));
    const block all = h.try_allocate(1024);
    ASSERT_TRUE(all);
    EXPECT_EQ(all.fences, on(1, 4));
}

TEST(Heap, neighbours_with_other_fences_merge_only_when_nothing_else_fits) {
    heap h = with_region(1024);
    const block a = h.try_allocate(512);
    const block b = h.try_allocate(512);
    h.free(a.address, 512, on(1, 4));
    h.free(b.address, 512, on(2, 5));
    const block tight = h.try_allocate(512);
    EXPECT_EQ(tight.fences, on(1, 4));
    h.free(tight.address, 512, tight.fences);
    const block both = h.try_allocate(768);
    ASSERT_TRUE(both);
    fence_set expected = on(1, 4);
    expected.add({2, 5});
    EXPECT_EQ(both.fences, expected);
    // What is left of the second piece waits for its own fence only.
    EXPECT_EQ(h.try_allocate(256).fences, on(2, 5));
}

TEST(Heap, lazy_merging_takes_the_lowest_row_of_pieces_that_is_large_enough) {
    heap h = with_region(256 * 10);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(h.try_allocate(256));
    auto release = [&](int i, std::uint64_t timeline) { h.free(base + 256u * i, 256, on(timeline, 1)); };
    release(0, 1);
    for (int i : {2, 3, 4}) release(i, 1 + i);  // a row of three ...
    for (int i : {6, 7}) release(i, 11 + i);    // ... and a row of two
    EXPECT_EQ(h.largest_free_bytes(), 768u);
    const block found = h.try_allocate(512);
    ASSERT_TRUE(found);
    EXPECT_EQ(found.address, base + 512);
    EXPECT_EQ(found.fences.size(), 2u);
    EXPECT_EQ(h.try_allocate(512).address, base + 256u * 6);
    EXPECT_FALSE(h.try_allocate(512));
}

TEST(Heap, regions_that_touch_are_one) {
    heap h(256);
    h.add_region(base + 1024, 1024);
    h.add_region(base, 1024);
    EXPECT_EQ(h.capacity_bytes(), 2048u);
    EXPECT_EQ(h.largest_free_bytes(), 2048u);
    EXPECT_EQ(h.try_allocate(2048).address, base);
}

TEST(Heap, regions_that_do_not_touch_never_merge) {
    heap h(256);
    h.add_region(base, 1024);
    h.add_region(base + 2048, 1024);
    EXPECT_EQ(h.largest_free_bytes(), 1024u);
    EXPECT_FALSE(h.try_allocate(1280));
}

TEST(Heap, overlapping_regions_are_refused) {
    heap h = with_region(1024);
    EXPECT_THROW(h.add_region(base + 512, 1024), std::invalid_argument);
    EXPECT_THROW(h.add_region(base - 512, 1024), std::invalid_argument);
    EXPECT_THROW(h.add_region(base - 512, 4096), std::invalid_argument);
    EXPECT_THROW(h.add_region(std::numeric_limits<std::uintptr_t>::max() - 100, 4096), std::invalid_argument);
    EXPECT_EQ(h.capacity_bytes(), 1024u);
}

TEST(Heap, a_region_can_be_removed_only_when_it_is_wholly_free) {
    heap h = with_region(1024);
    const block a = h.try_allocate(256);
    EXPECT_FALSE(h.remove_region(base, 1024));
    EXPECT_TRUE(h.remove_region(base + 512, 512)) << "the free tail";
    EXPECT_EQ(h.capacity_bytes(), 512u);
    EXPECT_EQ(h.free_bytes(), 256u);
    EXPECT_FALSE(h.remove_region(base + 512, 512)) << "it is gone already";
    h.free(a.address, 256, {});
    EXPECT_TRUE(h.remove_region(base, 512));
    EXPECT_EQ(h.capacity_bytes(), 0u);
    EXPECT_FALSE(h.try_allocate(1));
}

TEST(Heap, removing_the_middle_of_a_region_leaves_two) {
    heap h = with_region(1024);
    EXPECT_TRUE(h.remove_region(base + 256, 512));
    EXPECT_EQ(h.capacity_bytes(), 512u);
    EXPECT_EQ(h.largest_free_bytes(), 256u);
    h.add_region(base + 256, 512);
    EXPECT_EQ(h.try_allocate(1024).address, base);
}

TEST(Heap, removing_fenced_memory_hands_over_the_fences) {
    heap h = with_region(1024);
    const block a = h.try_allocate(512);
    h.free(a.address, 512, on(1, 8));
    EXPECT_FALSE(h.remove_region(base, 1024));
    fence_set left;
    EXPECT_TRUE(h.remove_region(base, 1024, &left));
    EXPECT_EQ(left, on(1, 8));
}

TEST(Heap, prune_makes_passed_memory_ready_and_merges_it) {
    heap h = with_region(1024);
    const block a = h.try_allocate(512);
    const block b = h.try_allocate(512);
    h.free(a.address, 512, on(1, 1));
    h.free(b.address, 512, on(2, 1));
    h.prune([](const fence& f) { return f.timeline == 2; });
    EXPECT_EQ(h.try_allocate(512).address, b.address) << "it has no fence any more";
    h.free(b.address, 512, {});
    h.prune([](const fence&) { return true; });
    const block all = h.try_allocate(1024);
    ASSERT_TRUE(all);
    EXPECT_TRUE(all.fences.empty());
}

TEST(Heap, prune_leaves_timelines_alone_that_have_not_moved) {
    heap h = with_region(1024);
    const block a = h.try_allocate(256);
    const block b = h.try_allocate(256);
    const block c = h.try_allocate(512);
    h.free(a.address, 256, on(1, 1));
    h.free(b.address, 256, on(2, 1));
    fence_set both = on(1, 1);
    both.add({2, 1});
    h.free(c.address, 512, both);
    const std::uint64_t second[] = {2};
    EXPECT_TRUE(h.prune(second, [](const fence& f) { return f.timeline == 2; }));
    EXPECT_FALSE(h.try_allocate_ready(512, heap::no_timeline)) << "one of its timelines has not moved";
    const block ready = h.try_allocate_ready(256, heap::no_timeline);
    EXPECT_EQ(ready.address, b.address);
    EXPECT_TRUE(ready.fences.empty());
    const std::uint64_t first[] = {1};
    EXPECT_TRUE(h.prune(first, [](const fence&) { return true; }));
    EXPECT_EQ(h.try_allocate_ready(512, heap::no_timeline).address, c.address);
    EXPECT_EQ(h.try_allocate_ready(256, heap::no_timeline).address, a.address);
}

TEST(Heap, prune_changes_at_most_so_many_pieces_and_says_whether_that_was_all) {
    // Pieces of 1 to 4 units, each behind one in use.
    heap h = with_region(256 * 14);
    for (std::size_t size = 1; size <= 4; ++size) {
        const block piece = h.try_allocate(256 * size);
        ASSERT_TRUE(h.try_allocate(256));
        h.free(piece.address, 256 * size, on(size % 2, 1));
    }
    const std::uint64_t both[] = {0, 1};
    const auto ready_sizes = [&h] {
        std::vector<block> taken;
        std::vector<std::size_t> sizes;
        for (std::size_t size = 4; size > 0; --size)
            while (block b = h.try_allocate_ready(256 * size, heap::no_timeline)) {
                sizes.push_back(size);
                taken.push_back(std::move(b));
            }
        for (const block& b : taken) h.free(b.address, b.size_bytes, {});
        return sizes;
    };
    const auto passed = [](const fence&) { return true; };
    heap::pruning so_far;
    EXPECT_FALSE(h.prune(both, passed, &so_far, 3));
    EXPECT_EQ(ready_sizes(), (std::vector<std::size_t>{4, 3, 1})) << "of each timeline the largest first";
    EXPECT_TRUE(h.prune(both, passed, &so_far, 3));
    EXPECT_EQ(ready_sizes(), (std::vector<std::size_t>{4, 3, 2, 1}));
}

TEST(Heap, a_prune_in_many_calls_finds_all_that_had_passed_when_it_began_whatever_is_taken_and_freed_between) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        constexpr std::uint64_t num_timelines = 4;
        heap h(256, seed % 2 == 0 ? rmm::heap::merging::same_timelines : rmm::heap::merging::equal_fences);
        h.add_region(256, 256 * 4000);
        std::uint64_t now = 1;
        std::vector<std::uint64_t> passed(num_timelines, 0), at_begin = passed;
        const auto has_passed = [&](const fence& f) { return f.position <= passed[f.timeline]; };
        std::vector<std::uint64_t> all(num_timelines);
        std::iota(all.begin(), all.end(), std::uint64_t{0});
        std::vector<block> live;
        std::optional<heap::pruning> so_far;
        int num_rounds = 0;
        for (int step = 0; step < 6000; ++step) {
            const auto timeline = random() % num_timelines;
            if (random() % 2 == 0) {
                if (block b = h.try_allocate(256 * (1 + random() % 40), timeline)) live.push_back(std::move(b));
            } else if (!live.empty()) {
                std::swap(live[random() % live.size()], live.back());
                fence_set fences = on(timeline, ++now);
                if (random() % 4 == 0) fences.add({random() % num_timelines, now});
                fences.prune(has_passed);
                h.free(live.back().address, live.back().size_bytes, fences);
                live.pop_back();
            }
            if (random() % 50 == 0)
                passed[timeline] = std::max(passed[timeline], now - std::min<std::uint64_t>(now, random() % 20));
            if (random() % 400 == 0) h.merge_all();
            if (!so_far) {
                so_far.emplace();
                at_begin = passed;
            }
            if (!h.prune(all, has_passed, &*so_far, random() % 3)) continue;
            so_far.reset();
            ++num_rounds;
            h.for_each_free([&](std::uintptr_t, std::size_t, const fence_set& fences) {
                for (const fence& f : fences) ASSERT_GT(f.position, at_begin[f.timeline]) << seed << ' ' << step;
            });
        }
        EXPECT_GT(num_rounds, 10);
    }
}

TEST(Heap, memory_of_timelines_that_are_avoided_stays_where_it_is) {
    heap h = with_region(256 * 7);
    const block a = h.try_allocate(512);
    const block b = h.try_allocate(256);
    const block c = h.try_allocate(512);
    const block d = h.try_allocate(512);
    fence_set both = on(1, 1);
    both.add({2, 1});
    h.free(a.address, 512, on(1, 1));
    h.free(b.address, 256, both);
    h.free(c.address, 512, on(2, 1));
    h.free(d.address, 512, on(3, 1));
    const std::uint64_t first[] = {1};
    const std::uint64_t second[] = {2, 3};
    EXPECT_EQ(h.try_allocate(1024, heap::no_timeline, first).address, c.address) << "two that touch";
    h.free(c.address, 512, on(2, 1));
    h.free(d.address, 512, on(3, 1));
    EXPECT_FALSE(h.try_allocate(768, heap::no_timeline, second));
    EXPECT_EQ(h.try_allocate(256, heap::no_timeline, second).address, a.address);
    EXPECT_EQ(h.try_allocate(256, heap::no_timeline, first).address, c.address);
}

TEST(Heap, extent_if_freed_counts_the_free_space_on_both_sides) {
    heap h = with_region(256 * 5);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(h.try_allocate(256));
    EXPECT_EQ(h.extent_if_freed(base + 512, 256), 256u);
    h.free(base + 256, 256, on(1, 1));
    h.free(base + 768, 256, on(2, 1));
    h.free(base + 1024, 256, {});
    EXPECT_EQ(h.extent_if_freed(base + 512, 256), 256u * 4);
    EXPECT_EQ(h.extent_if_freed(base, 256), 512u);
}

TEST(Heap, freeing_twice_or_foreign_memory_is_an_error_and_changes_nothing) {
    heap h = with_region(2048);
    const block a = h.try_allocate(512);
    h.free(a.address, 512, {});
    EXPECT_THROW(h.free(a.address, 512, {}), std::logic_error);
    EXPECT_THROW(h.free(base + 4096, 256, {}), std::logic_error);
    EXPECT_THROW(h.free(base - 256, 256, {}), std::logic_error);
    const block b = h.try_allocate(512);
    EXPECT_THROW(h.free(b.address, 4096, {}), std::logic_error);
    EXPECT_THROW(h.free(b.address + 1, 256, {}), std::logic_error);
    EXPECT_THROW(h.free(b.address, std::numeric_limits<std::size_t>::max(), {}), std::logic_error);
    EXPECT_EQ(h.free_bytes(), 1536u);
    h.free(b.address, 512, {});
    EXPECT_EQ(h.try_allocate(2048).address, base);
}

TEST(Heap, what_was_taken_may_leave_the_heap_for_good) {
    heap h;
    h.add_region(0, 8 * unit);
    const block middle = h.take(2 * unit, 3 * unit);
    h.remove_taken(middle.address, middle.size_bytes);
    EXPECT_EQ(h.capacity_bytes(), 5 * unit);
    EXPECT_EQ(h.free_bytes(), 5 * unit);
    EXPECT_THROW(h.free(2 * unit, unit, {}), std::logic_error);
    h.add_region(2 * unit, 3 * unit);
    EXPECT_EQ(h.try_allocate(8 * unit).address, 0u);
}

TEST(Heap, an_alignment_that_is_no_power_of_two_is_refused) {
    EXPECT_THROW(heap(0), std::invalid_argument);
    EXPECT_THROW(heap(384), std::invalid_argument);
}

TEST(Heap, memory_of_the_asker_is_as_good_as_memory_without_fences) {
    heap h;
    h.add_region(0, 16 * unit);
    const block a = h.try_allocate(2 * unit);
    const block gap = h.try_allocate(unit);
    const block b = h.try_allocate(4 * unit);
    const block rest = h.try_allocate(9 * unit);
    ASSERT_TRUE(rest);
    h.free(a.address, 2 * unit, on(7, 1));
    h.free(b.address, 4 * unit, on(8, 1));
    EXPECT_FALSE(h.try_allocate_ready(2 * unit, 9));
    EXPECT_FALSE(h.try_allocate_ready(4 * unit, 7));
    EXPECT_EQ(h.try_allocate_ready(2 * unit, 8).address, b.address);
    EXPECT_EQ(h.try_allocate(unit, 8).address, b.address + 2 * unit);
    EXPECT_EQ(h.try_allocate(unit, 9).address, b.address + 3 * unit);  // the tightest of the others
    (void)gap;
}

TEST(Heap, neighbours_of_one_timeline_merge_with_the_later_position_where_that_was_asked_for) {
    heap h(unit, rmm::heap::merging::same_timelines);
    h.add_region(0, 8 * unit);
    const block a = h.try_allocate(4 * unit);
    const block b = h.try_allocate(4 * unit);
    h.free(a.address, 4 * unit, on(7, 5));
    h.free(b.address, 4 * unit, on(7, 3));
    const block whole = h.try_allocate_ready(8 * unit, 7);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole.fences, on(7, 5));
}

TEST(Heap, nothing_crosses_a_sealed_border) {
    heap h;
    h.add_region(4 * unit, 4 * unit, rmm::heap::border::sealed);
    h.add_region(0, 4 * unit, rmm::heap::border::sealed);
    EXPECT_FALSE(h.try_allocate(5 * unit));
    EXPECT_EQ(h.largest_free_bytes(), 4 * unit);
    EXPECT_TRUE(h.begins_region(0) && h.begins_region(4 * unit));
    EXPECT_FALSE(h.begins_region(5 * unit) || h.begins_region(8 * unit));
    const block a = h.try_allocate(4 * unit);
    const block b = h.try_allocate(4 * unit);
    h.free(a.address, 4 * unit, {});
    EXPECT_EQ(h.extent_if_freed(b.address, 4 * unit), 4 * unit);
    h.free(b.address, 4 * unit, {});
    h.merge_all();
    EXPECT_FALSE(h.try_allocate(5 * unit));
    EXPECT_THROW(h.free(0, 8 * unit, {}), std::logic_error);
    EXPECT_TRUE(h.remove_region(0, 4 * unit));
    EXPECT_TRUE(h.remove_region(4 * unit, 4 * unit));
    EXPECT_EQ(h.capacity_bytes(), 0u);
}

TEST(Heap, a_sealed_border_stays_where_an_open_region_comes_to_touch_it) {
    heap h;
    h.add_region(4 * unit, 4 * unit, rmm::heap::border::sealed);
    h.add_region(0, 4 * unit, rmm::heap::border::open);
    h.add_region(8 * unit, 4 * unit, rmm::heap::border::open);
    EXPECT_TRUE(h.begins_region(4 * unit) && h.begins_region(8 * unit));
    EXPECT_EQ(h.largest_free_bytes(), 4 * unit);
    EXPECT_FALSE(h.try_allocate(5 * unit));
    EXPECT_TRUE(h.remove_region(5 * unit, unit));
    h.add_region(5 * unit, unit, rmm::heap::border::open);
    EXPECT_TRUE(h.begins_region(5 * unit) && h.begins_region(6 * unit)) << "nor where a part of it was";
    h.merge_all();
    EXPECT_FALSE(h.try_allocate(5 * unit));
}

TEST(Heap, an_open_border_is_no_beginning_of_a_region) {
    heap h;
    h.add_region(0, 4 * unit);
    h.add_region(4 * unit, 4 * unit);
    EXPECT_FALSE(h.begins_region(4 * unit));
    EXPECT_TRUE(h.remove_region(2 * unit, unit));
    EXPECT_TRUE(h.begins_region(3 * unit));
}

TEST(Heap, a_range_that_is_free_can_be_taken_where_it_is) {
    heap h;
    h.add_region(0, 8 * unit, rmm::heap::border::open, on(3, 4));
    const block middle = h.take(2 * unit, 3 * unit);
    EXPECT_EQ(middle.address, 2 * unit);
    EXPECT_EQ(middle.fences, on(3, 4));
    EXPECT_FALSE(h.take(4 * unit, 2 * unit));
    EXPECT_FALSE(h.take(8 * unit, unit));
    EXPECT_EQ(h.free_bytes(), 5 * unit);
    EXPECT_TRUE(h.take(0, 2 * unit));
}

TEST(Heap, that_keeps_ready_what_few_frees_need_gives_and_takes_back_what_any_other_does) {
    constexpr std::size_t n = 3000;
    heap few = with_region(n * unit);
    few.expect_frees_at_most(4);
    heap all = with_region(n * unit);
    std::mt19937_64 random(9);
    std::vector<std::uintptr_t> used;
    for (int round = 0; round < 4; round++) {
        while (const block b = few.try_allocate(unit)) {
            ASSERT_EQ(all.try_allocate(unit).address, b.address);
            used.push_back(b.address);
        }
        ASSERT_EQ(used.size(), n);
        std::shuffle(used.begin(), used.end(), random);
        for (; used.size() > n / 4; used.pop_back()) {
            const fence_set fences = on(random() % 3, used.size());
            few.free(used.back(), unit, fences);
            all.free(used.back(), unit, fences);
            ASSERT_EQ(few.num_free_pieces(), all.num_free_pieces());
        }
    }
    EXPECT_EQ(few.free_bytes(), (n - n / 4) * unit);
}

}  // namespace
