// Owns: the complexity of the heap (heap.hpp), counted in elements of its trees that are looked at: with twice as many
// timelines and pieces a search may take a few steps more, never twice as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "rmm/heap/heap.hpp"

namespace {

using rmm::heap::block;
using rmm::heap::fence;
using rmm::heap::fence_set;
using rmm::heap::heap;

constexpr std::size_t unit = 256;
// A tree of 2n elements is about one step deeper than one of n, with some luck; what walks over all of them takes twice
// as many.
constexpr double may_grow = 1.6;

fence_set on(std::uint64_t timeline, std::uint64_t position) { return fence_set{fence{timeline, position}}; }

/// Free pieces of 1 to 64 units, each of another timeline, with a unit in use between two.
heap with_owners(std::size_t count) {
    heap h(unit, rmm::heap::merging::same_timelines);
    h.add_region(unit, unit * 66 * count);
    std::vector<block> pieces;
    for (std::size_t i = 0; i < count; ++i) {
        pieces.push_back(h.try_allocate(unit * (1 + i * 37 % 64)));
        EXPECT_TRUE(h.try_allocate(unit));
    }
    while (h.try_allocate(h.largest_free_bytes())) {}
    for (std::size_t i = 0; i < count; ++i) h.free(pieces[i].address, pieces[i].size_bytes, on(i + 1, 1));
    return h;
}

/// Of one call of `f`, as a mean of many.
template<typename F>
double steps_of(heap& h, F&& f) {
    constexpr int num_calls = 200;
    const std::size_t before = h.num_steps();
    for (int i = 0; i < num_calls; ++i) f(i);
    return static_cast<double>(h.num_steps() - before) / num_calls;
}

template<typename F>
void expect_logarithmic(F&& steps_with) {
    constexpr std::size_t count = 4000;
    const double at_n = steps_with(count);
    const double at_2n = steps_with(2 * count);
    EXPECT_LT(at_2n, may_grow * at_n) << "steps at n: " << at_n;
    EXPECT_LT(at_2n, 200);
}

TEST(HeapSteps, memory_of_other_timelines_is_found_in_as_many_steps_however_many_timelines_there_are) {
    expect_logarithmic([](std::size_t count) {
        heap h = with_owners(count);
        return steps_of(h, [&](int i) {
            const block b = h.try_allocate(unit * (1 + i % 64));
            ASSERT_TRUE(b);
            h.free(b.address, b.size_bytes, b.fences);
        });
    });
}

TEST(HeapSteps, avoiding_a_timeline_costs_what_that_timeline_has_free) {
    expect_logarithmic([](std::size_t count) {
        heap h = with_owners(count);
        return steps_of(h, [&](int i) {
            const std::uint64_t avoided[] = {static_cast<std::uint64_t>(i + 1), static_cast<std::uint64_t>(i + 2)};
            const block b = h.try_allocate(unit * (1 + i % 64), heap::no_timeline, avoided);
            ASSERT_TRUE(b);
            ASSERT_FALSE(b.fences.has_any_of(avoided));
            h.free(b.address, b.size_bytes, b.fences);
        });
    });
}

TEST(HeapSteps, a_row_of_pieces_is_found_in_as_many_steps_however_many_pieces_there_are) {
    expect_logarithmic([](std::size_t count) {
        heap h(unit, rmm::heap::merging::same_timelines);
        h.add_region(unit, unit * count);
        for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(h.try_allocate(unit));
        // Single pieces, and one row of four near the end.
        std::vector<std::size_t> freed;
        for (std::size_t i = 0; i < count; i += 2) freed.push_back(i);
        freed.push_back((count - count / 8) | 1u);
        for (std::size_t i : freed) h.free(unit * (1 + i), unit, on(i + 1, 1));
        return steps_of(h, [&](int) {
            const block b = h.try_allocate(3 * unit);
            ASSERT_TRUE(b);
            for (std::size_t i = 0; i < 3; ++i) {
                const std::uintptr_t address = b.address + i * unit;
                h.free(address, unit, on(address / unit, 1));
            }
            ASSERT_EQ(h.largest_free_bytes(), 3 * unit);
        });
    });
}

TEST(HeapSteps, the_lowest_address_is_found_in_as_many_steps_however_many_pieces_lie_below_it) {
    expect_logarithmic([](std::size_t count) {
        heap h(unit, rmm::heap::merging::same_timelines, rmm::heap::placement::small_from_below);
        h.add_region(unit, unit * (3 * count + 200));
        // Single units, every second one with a fence of a timeline of its own, and above them one row of 100.
        for (std::size_t i = 0; i < 2 * count; ++i) EXPECT_TRUE(h.try_allocate(unit));
        const block wide = h.try_allocate(100 * unit);
        EXPECT_TRUE(h.try_allocate(unit));
        h.free(wide.address, wide.size_bytes, {});
        for (std::size_t i = 0; i < 2 * count; i += 2)
            h.free(unit * (1 + i), unit, i % 4 == 0 ? on(i + 1, 1) : fence_set{});
        return steps_of(h, [&](int) {
            const block b = h.try_allocate(2 * unit);
            ASSERT_EQ(b.address, wide.address);
            h.free(b.address, b.size_bytes, b.fences);
        });
    });
}

TEST(HeapSteps, prune_looks_at_what_has_moved) {
    expect_logarithmic([](std::size_t count) {
        heap h = with_owners(count);
        return steps_of(h, [&](int i) {
            const std::uint64_t moved[] = {static_cast<std::uint64_t>(2 * i + 1)};
            std::size_t num_asked = 0;
            EXPECT_TRUE(h.prune(moved, [&](const fence& f) {
                ++num_asked;
                return f.timeline == moved[0];
            }));
            EXPECT_LE(num_asked, 2u);
        });
    });
}

/// All calls together that it takes to find, a few at a time, what has passed among the pieces of one timeline: of
/// `count` pieces the smaller half.
double steps_of_pruning(std::size_t count) {
    heap h(unit, rmm::heap::merging::same_timelines);
    h.add_region(unit, unit * (count * (count + 3) / 2));
    std::vector<block> pieces;
    for (std::size_t i = 0; i < count; ++i) {
        pieces.push_back(h.try_allocate(unit * (1 + i)));
        EXPECT_TRUE(h.try_allocate(unit));
    }
    for (std::size_t i = 0; i < count; ++i) h.free(pieces[i].address, pieces[i].size_bytes, on(1, 1 + i));
    const std::uint64_t moved[] = {1};
    heap::pruning so_far;
    const std::size_t before = h.num_steps();
    while (!h.prune(moved, [=](const fence& f) { return f.position <= count / 2; }, &so_far, 8)) {}
    EXPECT_EQ(h.try_allocate_ready(unit, heap::no_timeline).address, pieces[0].address);
    return static_cast<double>(h.num_steps() - before);
}

TEST(HeapSteps, clearing_a_few_pieces_at_a_time_looks_at_each_once) {
    const double at_n = steps_of_pruning(2000);
    const double at_2n = steps_of_pruning(4000);
    EXPECT_LT(at_2n, 2.5 * at_n) << at_n;
}

TEST(HeapSteps, a_call_of_prune_looks_at_few_pieces_that_have_not_passed) {
    heap h(unit, rmm::heap::merging::same_timelines);
    h.add_region(unit, unit * 40000);
    std::vector<block> pieces;
    for (std::size_t i = 0; i < 10000; ++i) {
        pieces.push_back(h.try_allocate(unit));
        ASSERT_TRUE(h.try_allocate(unit));
    }
    for (const block& b : pieces) h.free(b.address, b.size_bytes, on(1, b.address == pieces[0].address ? 1 : 2));
    const std::uint64_t moved[] = {1};
    heap::pruning so_far;
    std::size_t num_calls = 0;
    for (bool is_done = false; !is_done; ++num_calls) {
        const std::size_t before = h.num_steps();
        is_done = h.prune(moved, [](const fence& f) { return f.position == 1; }, &so_far, 16);
        EXPECT_LE(h.num_steps() - before, 16 * heap::looks_for_change + 100);
    }
    EXPECT_LE(num_calls, 10000 / (16 * heap::looks_for_change) + 2);
    EXPECT_EQ(h.try_allocate_ready(unit, heap::no_timeline).address, pieces[0].address)
        << "the last that was looked at";
}

TEST(HeapSteps, prune_leaves_pieces_of_several_timelines_alone_of_which_the_watched_has_not_moved) {
    constexpr std::size_t count = 1000;
    heap h(unit);
    h.add_region(unit, 2 * unit * count);
    for (std::size_t i = 0; i < 2 * count; ++i) ASSERT_TRUE(h.try_allocate(unit));
    for (std::size_t i = 0; i < count; ++i) {
        fence_set fences = on(1 + i, 1);
        fences.add({count + 1 + i, 1});
        h.free(unit * (1 + 2 * i), unit, fences);
    }
    std::vector<std::uint64_t> passed;
    std::size_t num_asked = 0;
    const auto has_passed = [&](const fence& f) {
        ++num_asked;
        return std::find(passed.begin(), passed.end(), f.timeline) != passed.end();
    };
    // Whichever of the two moves first, the piece is ready when both have.
    for (std::uint64_t timeline :
         {std::uint64_t{5}, std::uint64_t{count + 5}, std::uint64_t{count + 9}, std::uint64_t{9}}) {
        passed.push_back(timeline);
        EXPECT_TRUE(h.prune({&timeline, 1}, has_passed));
    }
    EXPECT_LE(num_asked, 16u);
    EXPECT_TRUE(h.try_allocate_ready(unit, heap::no_timeline));
    EXPECT_TRUE(h.try_allocate_ready(unit, heap::no_timeline));
    EXPECT_FALSE(h.try_allocate_ready(unit, heap::no_timeline));
}

}  // namespace
