// Owns: the contracts of holes of addresses and of the plan of moves, against slow models. Single-threaded.
#include "rmm/heap/move_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <vector>

#include "rmm/heap/address_holes.hpp"

namespace {

using namespace rmm::heap;

constexpr std::size_t unit = std::size_t{2} << 20;
constexpr std::size_t largest = 16 * unit;
constexpr std::uintptr_t base = 1024 * unit;

TEST(AddressHoles, holes_that_touch_are_one) {
    address_holes holes;
    holes.add({base, unit});
    holes.add({base + 2 * unit, unit});
    EXPECT_EQ(holes.all().size(), 2u);
    holes.add({base + unit, unit});
    ASSERT_EQ(holes.all().size(), 1u);
    EXPECT_EQ(holes.all()[0], (range{base, 3 * unit}));
}

TEST(AddressHoles, the_roomiest_place_is_the_middle_of_the_largest_hole) {
    address_holes holes;
    holes.add({base, 4 * unit});
    holes.add({base + 10 * unit, 9 * unit});
    EXPECT_EQ(holes.roomiest(unit, unit), base + 14 * unit);
    EXPECT_EQ(holes.roomiest(9 * unit, unit), base + 10 * unit);
    EXPECT_EQ(holes.roomiest(10 * unit, unit), std::nullopt);
}

TEST(AddressHoles, agree_with_one_cell_per_unit) {
    constexpr std::size_t num_cells = 64;
    std::mt19937 random(3);
    address_holes holes;
    std::vector<bool> is_hole(num_cells, false);
    const auto address = [](std::size_t cell) { return base + cell * unit; };
    for (int step = 0; step < 20000; ++step) {
        const std::size_t first = random() % num_cells;
        const std::size_t n = 1 + random() % std::min<std::size_t>(9, num_cells - first);
        const auto begin = is_hole.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end = begin + static_cast<std::ptrdiff_t>(n);
        const bool all = std::all_of(begin, end, [](bool h) { return h; });
        const bool none = std::none_of(begin, end, [](bool h) { return h; });
        if (none) {
            holes.add({address(first), n * unit});
            std::fill(begin, end, true);
        } else {
            ASSERT_EQ(holes.take({address(first), n * unit}), all);
            if (all) std::fill(begin, end, false);
        }
        std::vector<range> expected;
        for (std::size_t i = 0; i < num_cells; ++i)
            if (is_hole[i]) append_merged(expected, {address(i), unit});
        ASSERT_EQ(holes.all(), expected);
        for (std::size_t i = 0; i <= num_cells; ++i) {
            std::size_t behind = 0, before = 0;
            for (const range& h : expected) {
                if (h.address <= address(i) && address(i) < h.end()) behind = h.end() - address(i);
                if (h.end() == address(i)) before = h.size_bytes;
            }
            ASSERT_EQ(holes.room_behind(address(i)), behind);
            ASSERT_EQ(holes.room_before(address(i)), before);
        }
    }
}

/// A small landscape of free extents with whole pieces inside, and partial pieces at their edges.
struct landscape {
    std::vector<free_extent> extents;
    std::vector<movable_piece> pieces;
    std::uintptr_t end = base;

    /// `edge_bytes` at either side belong to pieces that are partly in use.
    void add(std::size_t edge_bytes, std::vector<std::size_t> units, bool ready = true, std::size_t room_behind = 0,
             std::size_t room_before = 0) {
        free_extent e{{end, edge_bytes}, room_before, room_behind};
        for (const std::size_t u : units) {
            pieces.push_back({{e.where.end(), u * unit}, extents.size(), ready});
            e.where.size_bytes += u * unit;
        }
        e.where.size_bytes += edge_bytes;
        extents.push_back(e);
        end = e.where.end() + 100 * unit;
    }
    move_plan plan(std::size_t bytes, const supply& from = {}) const {
        return plan_moves(bytes, extents, pieces, from, unit, largest);
    }
};

TEST(MovePlan, keeps_the_largest_range_that_has_room_and_moves_the_rest_behind_it) {
    landscape l;
    l.add(0, {4, 4}, true, 1000 * unit);
    l.add(0, {4}, true, 1000 * unit);
    l.add(0, {16}, true, 0);
    const move_plan p = l.plan(20 * unit);
    ASSERT_TRUE(p.possible);
    EXPECT_EQ(p.where, side::behind);
    EXPECT_EQ(p.kept, l.extents[0].where);
    EXPECT_EQ(p.moved, std::vector<range>{l.extents[2].where}) << "one piece instead of three";
    EXPECT_EQ(p.new_bytes, 12 * unit);
    EXPECT_FALSE(p.waits);
}

TEST(MovePlan, a_range_with_room_before_it_is_extended_downwards) {
    landscape l;
    l.add(0, {8}, true, 0, 1000 * unit);
    l.add(0, {4}, true);
    const move_plan p = l.plan(12 * unit);
    ASSERT_TRUE(p.possible);
    EXPECT_EQ(p.where, side::before);
    EXPECT_EQ(p.kept, l.extents[0].where);
    EXPECT_EQ(p.num_moved, 1u);
}

TEST(MovePlan, the_free_edge_of_a_piece_that_is_in_use_counts_where_its_range_is_kept) {
    landscape l;
    l.add(unit / 2, {2}, true, 1000 * unit);
    l.add(0, {1}, true);
    EXPECT_TRUE(l.plan(4 * unit).possible) << "half, two, half and one";
    EXPECT_FALSE(l.plan(4 * unit + 1).possible);
}

TEST(MovePlan, what_is_ready_goes_before_what_must_be_waited_for) {
    landscape l;
    l.add(0, {8}, false);
    l.add(0, {4}, true);
    l.add(0, {4}, true);
    const move_plan p = l.plan(8 * unit);
    ASSERT_TRUE(p.possible);
    EXPECT_FALSE(p.waits);
    EXPECT_EQ(p.num_moved, 2u);
    EXPECT_TRUE(l.plan(9 * unit).waits);
}

TEST(MovePlan, a_kept_range_need_not_be_ready) {
    landscape l;
    l.add(0, {8}, false, 1000 * unit);
    l.add(0, {2}, true);
    const move_plan p = l.plan(10 * unit);
    ASSERT_TRUE(p.possible);
    EXPECT_EQ(p.kept, l.extents[0].where);
    EXPECT_FALSE(p.waits);
}

TEST(MovePlan, equal_pieces_come_out_of_the_smallest_range) {
    landscape l;
    l.add(0, {2, 2, 2, 2});
    l.add(0, {2, 2});
    const move_plan p = l.plan(4 * unit);
    ASSERT_TRUE(p.possible);
    EXPECT_EQ(p.moved, std::vector<range>{l.extents[1].where});
}

TEST(MovePlan, eager_fresh_memory_comes_first_and_other_fresh_memory_last) {
    landscape l;
    l.add(0, {4});
    const move_plan eager = l.plan(4 * unit, {.eager_fresh_bytes = 4 * unit, .fresh_bytes = 4 * unit});
    EXPECT_EQ(eager.num_moved, 0u);
    EXPECT_EQ(eager.fresh_bytes, 4 * unit);
    const move_plan late = l.plan(6 * unit, {.fresh_bytes = 4 * unit});
    EXPECT_EQ(late.num_moved, 1u);
    EXPECT_EQ(late.fresh_bytes, 2 * unit);
    const move_plan spare = l.plan(6 * unit, {.spare_bytes = 2 * unit, .fresh_bytes = 4 * unit});
    EXPECT_EQ(spare.num_moved, 1u);
    EXPECT_EQ(spare.fresh_bytes, 0u);
    EXPECT_FALSE(l.plan(9 * unit, {.fresh_bytes = 4 * unit}).possible);
}

TEST(MovePlan, growth_is_rounded_up_to_the_step_as_far_as_limit_and_room_allow) {
    landscape l;
    l.add(0, {4}, true, 3 * largest);
    const supply from{.eager_fresh_bytes = 6 * unit, .fresh_bytes = 6 * unit, .step_bytes = 8 * unit};
    const move_plan p = l.plan(5 * unit, from);
    ASSERT_TRUE(p.possible);
    EXPECT_EQ(p.kept, l.extents[0].where);
    EXPECT_EQ(p.new_bytes, 6 * unit);
    EXPECT_EQ(p.fresh_bytes, 6 * unit);
}

TEST(MovePlan, is_possible_exactly_when_some_choice_is_and_nearly_as_cheap_as_the_best) {
    std::mt19937 random(11);
    const piece_costs costs;
    int num_possible = 0, num_kept = 0;
    for (int round = 0; round < 4000; ++round) {
        landscape l;
        const std::size_t num_extents = 1 + random() % 4;
        for (std::size_t i = 0; i < num_extents; ++i) {
            std::vector<std::size_t> units(random() % 4);
            for (std::size_t& u : units) u = 1 + random() % 16;
            if (units.empty() && random() % 2 == 0) units.push_back(1);
            const std::size_t room = random() % 2 == 0 ? 0 : 500 * unit;
            l.add(random() % 2 * (unit / 4), units, true, room);
        }
        const supply from{.spare_bytes = random() % 3 * unit, .fresh_bytes = random() % 3 * unit};
        const std::size_t bytes = (1 + random() % 60) * unit - random() % 2 * (unit / 2);
        const move_plan p = l.plan(bytes, from);

        std::optional<std::uint64_t> best;
        for (std::size_t kept = 0; kept <= num_extents; ++kept) {
            const bool keeps = kept < num_extents;
            if (keeps && (l.extents[kept].room_behind == 0 || l.extents[kept].where.size_bytes >= bytes)) continue;
            const std::size_t missing = bytes - (keeps ? l.extents[kept].where.size_bytes : 0);
            const std::size_t need = (missing + unit - 1) / unit * unit;
            std::uint32_t usable = 0;
            for (std::size_t i = 0; i < l.pieces.size(); ++i)
                if (!keeps || l.pieces[i].extent != kept) usable |= 1u << i;
            for (std::uint32_t set = usable;; set = (set - 1) & usable) {
                std::size_t moved = 0;
                for (std::size_t i = 0; i < l.pieces.size(); ++i)
                    if (set >> i & 1) moved += l.pieces[i].where.size_bytes;
                const std::size_t spare = std::min(need, from.spare_bytes);
                const std::size_t short_of = need - spare - std::min(need - spare, moved);
                if (short_of == 0 || (set == usable && short_of <= from.fresh_bytes)) {
                    const std::uint64_t cost = static_cast<std::uint64_t>(std::popcount(set)) * costs.move_ns +
                                               num_pieces(short_of, largest) * costs.fresh_ns +
                                               num_pieces(spare, largest) * costs.spare_ns +
                                               ((need + moved) >> 20) * costs.mib_ns;
                    if (!best || cost < *best) best = cost;
                }
                if (set == 0) break;
            }
        }
        // A range that is large enough already is nobody's case for a plan, and what fits as it is may come out as
        // such.
        ASSERT_EQ(p.possible, best.has_value()) << round;
        if (!p.possible) continue;
        ++num_possible;
        if (p.kept.size_bytes != 0) ++num_kept;
        EXPECT_LE(p.cost_ns, *best + *best / 20) << round;

        std::size_t moved = 0, num_moved = 0;
        for (const range& m : p.moved) {
            moved += m.size_bytes;
            std::uintptr_t at = m.address;
            for (const movable_piece& piece : l.pieces)
                if (piece.where.address == at && at < m.end()) {
                    at = piece.where.end();
                    ++num_moved;
                    EXPECT_FALSE(p.kept.size_bytes != 0 && l.extents[piece.extent].where == p.kept);
                }
            ASSERT_EQ(at, m.end()) << "whole pieces only";
        }
        EXPECT_EQ(num_moved, p.num_moved);
        EXPECT_GE(moved + from.spare_bytes + p.fresh_bytes, p.new_bytes);
        EXPECT_GE(p.kept.size_bytes + p.new_bytes, bytes);
        EXPECT_LE(p.fresh_bytes, from.fresh_bytes);
    }
    EXPECT_GT(num_possible, 1000);
    EXPECT_GT(num_kept, 500);
}

TEST(MovePlan, the_largest_piece_follows_the_size_of_the_whole) {
    constexpr std::size_t mib = std::size_t{1} << 20, gib = std::size_t{1} << 30;
    EXPECT_EQ(best_largest_piece(40 * gib, 2 * mib), 64 * mib);
    EXPECT_EQ(best_largest_piece(141 * gib, 2 * mib), 256 * mib);
    EXPECT_EQ(best_largest_piece(gib, 2 * mib), 8 * mib);
    EXPECT_EQ(best_largest_piece(gib, 64 * mib), 64 * mib) << "never less than the granularity";
    EXPECT_EQ(small_request_limit(40 * gib, 2 * mib), 8 * mib);
    EXPECT_EQ(small_request_limit(gib, 2 * mib), 2 * mib);
    EXPECT_EQ(whole_granules_from(80 * gib, 2 * mib), 8 * mib);
    EXPECT_EQ(whole_granules_from(40 * gib, 2 * mib), 8 * mib);
    EXPECT_EQ(whole_granules_from(4 * gib, 2 * mib), 80 * mib) << "in a small source only what is large";
    EXPECT_TRUE(is_worth_cutting(8 * mib, 4 * mib));
    EXPECT_FALSE(is_worth_cutting(6 * mib, 4 * mib));
}

TEST(MovePlan, pieces_get_smaller_when_little_is_left) {
    constexpr std::size_t mib = std::size_t{1} << 20;
    const auto fitting = [](std::size_t used) { return fitting_piece(used, 1000 * mib, 256 * mib, 2 * mib); };
    EXPECT_EQ(fitting(0), 256 * mib);
    EXPECT_EQ(fitting(500 * mib), 256 * mib);
    EXPECT_EQ(fitting(750 * mib), 32 * mib);
    EXPECT_EQ(fitting(900 * mib), 8 * mib);
    EXPECT_EQ(fitting(2000 * mib), 8 * mib);
    EXPECT_EQ(fitting_piece(0, 0, 4 * mib, 2 * mib), 2 * mib);
}

TEST(MovePlan, growth_is_eager_up_to_a_share_of_the_peak) {
    EXPECT_EQ(eager_growth(800, 0), 1150u);
    EXPECT_EQ(eager_growth(800, 1130), 20u);
    EXPECT_EQ(eager_growth(800, 1151), 0u);
}

}  // namespace
