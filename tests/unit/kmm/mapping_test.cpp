// Mapping expressions against the tables of their specification and against evaluation by hand over all indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kmm/api/access.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/error.hpp"

namespace kmm {

// Like arrays it lives in the library's namespace, where the calls are found.
struct FakeArray {
    template<typename I>
    auto operator[](const I& index) const {
        return kmm::detail::index_access<2>(*this, index);
    }
    template<typename I>
    auto operator[](const I& index) {
        return kmm::detail::index_access<2>(*this, index);
    }
};

}  // namespace kmm

namespace {

using kmm::FakeArray;
using namespace kmm::placeholders;
using kmm::Bounds;
using kmm::Dim;
using kmm::DomainChunk;
using kmm::IndexMap;
using kmm::Range;

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

DomainChunk chunk_x(std::int64_t begin, std::int64_t end) { return {kmm::ResourceId(), begin, end - begin}; }

const DomainChunk chunks[3] = {chunk_x(0, 4), chunk_x(4, 8), chunk_x(8, 10)};

struct Row {
    const char* text;
    IndexMap map;
    Range<> raw[3];
    Range<> clipped[3];
};

TEST(Row045, every_row_of_the_mapping_table_gives_the_stated_regions) {
    const Row rows[] = {
        {"_x", _x, {{0, 4}, {4, 8}, {8, 10}}, {{0, 4}, {4, 8}, {8, 10}}},
        {"_x + 1", _x + 1, {{1, 5}, {5, 9}, {9, 11}}, {{1, 5}, {5, 9}, {9, 10}}},
        {"_x - 5", _x - 5, {{-5, -1}, {-1, 3}, {3, 5}}, {{0, 0}, {0, 3}, {3, 5}}},
        {"halo", range(_x - 1, _x + 2), {{-1, 5}, {3, 9}, {7, 11}}, {{0, 5}, {3, 9}, {7, 10}}},
        {"2 * _x", 2 * _x, {{0, 7}, {8, 15}, {16, 19}}, {{0, 7}, {8, 10}, {10, 10}}},
        {"pairs", range(2 * _x, 2 * _x + 2), {{0, 8}, {8, 16}, {16, 20}}, {{0, 8}, {8, 10}, {10, 10}}},
        {"_x / 2", _x / 2, {{0, 2}, {2, 4}, {4, 5}}, {{0, 2}, {2, 4}, {4, 5}}},
        {"(_x - 5) / 2", (_x - 5) / 2, {{-3, 0}, {-1, 2}, {1, 3}}, {{0, 0}, {0, 2}, {1, 3}}},
        {"(_x / 2) * 2", (_x / 2) * 2, {{0, 3}, {4, 7}, {8, 9}}, {{0, 3}, {4, 7}, {8, 9}}},
        {"mirror", 9 - _x, {{6, 10}, {2, 6}, {0, 2}}, {{6, 10}, {2, 6}, {0, 2}}},
        {"prefix", range(0, _x + 1), {{0, 4}, {0, 8}, {0, 10}}, {{0, 4}, {0, 8}, {0, 10}}},
        {"suffix", range(_x, 10), {{0, 10}, {4, 10}, {8, 10}}, {{0, 10}, {4, 10}, {8, 10}}},
        {"coarse halo", range(_x / 2 - 1, _x / 2 + 2), {{-1, 3}, {1, 5}, {3, 6}}, {{0, 3}, {1, 5}, {3, 6}}},
        {"3", kmm::into_index_map(3), {{3, 4}, {3, 4}, {3, 4}}, {{3, 4}, {3, 4}, {3, 4}}},
        {"range(3, 7)", kmm::range(3, 7), {{3, 7}, {3, 7}, {3, 7}}, {{3, 7}, {3, 7}, {3, 7}}},
        {"_", _, {{0, int64_max}, {0, int64_max}, {0, int64_max}}, {{0, 10}, {0, 10}, {0, 10}}},
    };
    for (const Row& row : rows) {
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(row.map.apply(chunks[i]), row.raw[i]) << row.text << " in chunk " << i;
            EXPECT_EQ(row.map.apply(chunks[i], Range<>(0, 10)), row.clipped[i]) << row.text << " in chunk " << i;
            EXPECT_EQ(kmm::detail::evaluate_plain(row.map, chunks[i]), row.raw[i]) << row.text;
            EXPECT_EQ(kmm::detail::evaluate_access<1>(row.map, chunks[i], Bounds<1>(10)), Bounds<1>(row.clipped[i]))
                << row.text;
        }
    }
}

TEST(Row045, two_dimensional_examples_select_rows_columns_and_blocks) {
    const DomainChunk chunk{kmm::ResourceId(), {5, 0}, {5, 3}};
    const auto region = [&](const auto& map, Dim<2> array) {
        return kmm::detail::evaluate_access<2>(map, chunk, Bounds<2>(array));
    };
    const Dim<2> a(6, 10);
    EXPECT_EQ(region(bounds(_y, _x), a), Bounds<2>(Range<>(0, 3), Range<>(5, 10)));
    EXPECT_EQ(region(bounds(range(_y - 1, _y + 2), range(_x - 1, _x + 2)), a),
              Bounds<2>(Range<>(0, 4), Range<>(4, 10)));
    EXPECT_EQ(region(bounds(_y, _), a), Bounds<2>(Range<>(0, 3), Range<>(0, 10)));
    EXPECT_EQ(region(bounds(_, _x), a), Bounds<2>(Range<>(0, 6), Range<>(5, 10)));
    EXPECT_EQ(region(bounds(_x, _y), Dim<2>(10, 6)), Bounds<2>(Range<>(5, 10), Range<>(0, 3)));
    EXPECT_EQ(region(_xy, Dim<2>(10, 6)), Bounds<2>(Range<>(5, 10), Range<>(0, 3)));
    EXPECT_EQ(region(one_to_one, Dim<2>(10, 6)), Bounds<2>(Range<>(5, 10), Range<>(0, 3)));
    EXPECT_EQ(region(bounds(_y / 3, _x / 5), Dim<2>(2, 2)), Bounds<2>(Range<>(0, 1), Range<>(1, 2)));
    EXPECT_EQ(region(all, a), Bounds<2>(a));
    EXPECT_EQ(region(bounds(_, _), a), Bounds<2>(a));
    EXPECT_EQ(kmm::detail::evaluate_access<1>(_y, chunk, Bounds<1>(6)), Bounds<1>(Range<>(0, 3)));
    const DomainChunk single{kmm::ResourceId(), {1, 0}, {1, 1}};
    const auto blocks = bounds(range(3 * _y, 3 * _y + 3), range(5 * _x, 5 * _x + 5));
    EXPECT_EQ(kmm::detail::evaluate_access<2>(blocks, single, Bounds<2>(a)), Bounds<2>(Range<>(0, 3), Range<>(5, 10)));
    EXPECT_EQ(kmm::detail::evaluate_plain(one_to_one, chunk), Bounds<3>(Range<>(5, 10), Range<>(0, 3), Range<>(0, 1)));
    EXPECT_EQ(kmm::detail::evaluate_plain(_xyz, chunk), Bounds<3>(Range<>(5, 10), Range<>(0, 3), Range<>(0, 1)));
}

TEST(Row045, tile_gives_each_index_its_own_stretch) {
    const Range<> expected[3] = {{0, 4}, {4, 8}, {8, 10}};
    for (std::int64_t i = 0; i < 3; i++) {
        EXPECT_EQ(kmm::detail::evaluate_access<1>(kmm::tile(4), chunk_x(i, i + 1), Bounds<1>(10)),
                  Bounds<1>(expected[i]));
    }
    const DomainChunk chunk{kmm::ResourceId(), {1, 2}, {1, 1}};
    EXPECT_EQ(kmm::detail::evaluate_plain(kmm::tile(4, 5), chunk), Bounds<2>(Range<>(4, 8), Range<>(10, 15)));
    EXPECT_THROW(kmm::tile(0), kmm::InvalidArgument);
}

TEST(Row045, an_axis_beyond_the_domain_has_the_single_index_zero) {
    EXPECT_EQ(IndexMap(kmm::Axis(7)).apply(chunk_x(4, 8)), Range<>(0, 1));
    EXPECT_EQ(IndexMap(_z).apply(chunk_x(4, 8)), Range<>(0, 1));
    EXPECT_EQ((kmm::Axis(3) + 5).apply(chunk_x(4, 8)), Range<>(5, 6));
}

// Ranges of numbers are not evaluated; under an operation they are what the same range along an axis is.
TEST(Row045, a_range_of_numbers_gives_under_every_operation_what_it_gives_along_an_axis_that_is_not_looked_at) {
    const DomainChunk chunk = chunk_x(3, 7);
    for (const std::int64_t begin : {-7, -1, 0, 5}) {
        for (const std::int64_t length : {1, 2, 9}) {
            const IndexMap fixed = kmm::range(begin, begin + length);
            const IndexMap along = range(_x * 0 + begin, _x * 0 + (begin + length));
            EXPECT_EQ(fixed.apply(chunk), Range<>(begin, begin + length));
            EXPECT_EQ((fixed + 3).apply(chunk), (along + 3).apply(chunk));
            EXPECT_EQ((fixed * -2).apply(chunk), (along * -2).apply(chunk));
            EXPECT_EQ((fixed / 3).apply(chunk), (along / 3).apply(chunk));
            EXPECT_EQ((-fixed).apply(chunk), (-along).apply(chunk));
            EXPECT_EQ(((fixed - 1) / -2 + 4).apply(chunk), ((along - 1) / -2 + 4).apply(chunk));
            EXPECT_EQ(range(fixed, 40).apply(chunk), range(along, 40).apply(chunk));
            EXPECT_EQ(range(-40, -fixed).apply(chunk), range(-40, -along).apply(chunk));
            EXPECT_EQ(closed_range(-40, fixed).apply(chunk), closed_range(-40, along).apply(chunk));
            EXPECT_EQ(range(fixed, _x + 40).apply(chunk), range(along, _x + 40).apply(chunk));
        }
    }
}

TEST(Row045, an_empty_range_of_numbers_stays_at_its_begin) {
    const DomainChunk chunk = chunk_x(3, 7);
    for (const std::int64_t end : {5, 2, -8}) {
        EXPECT_EQ(kmm::range(5, end).apply(chunk), Range<>(5, 5));
        EXPECT_EQ((kmm::range(5, end) + 2).apply(chunk), Range<>(7, 7));
        EXPECT_EQ((kmm::range(5, end) * -1).apply(chunk), Range<>(-5, -5));
    }
    EXPECT_EQ(kmm::range(0, int64_max).apply(chunk), Range<>(0, int64_max));
    EXPECT_EQ(kmm::range(int64_max, int64_max).apply(chunk), Range<>(int64_max, int64_max));
    EXPECT_THROW(IndexMap::constant(int64_max).apply(chunk), std::overflow_error);
    EXPECT_THROW((kmm::range(0, int64_max) + 1).apply(chunk), std::overflow_error);
}

TEST(Row045, the_long_form_denotes_the_same_as_operators) {
    const IndexMap map(_x, 3, -4, 5, 2);
    for (const DomainChunk& chunk : chunks) {
        EXPECT_EQ(map.apply(chunk), (range(3 * _x - 4, 3 * _x + 1) / 2).apply(chunk));
    }
    EXPECT_EQ(IndexMap(_x, 2).apply(chunks[1]), (2 * _x).apply(chunks[1]));
    EXPECT_EQ(IndexMap::range(_x, IndexMap::constant(9)).apply(chunks[1]), Range<>(4, 9));
    EXPECT_THROW(IndexMap(_x, 1, 0, 0), kmm::InvalidArgument);
    EXPECT_THROW(IndexMap(_x, 1, 0, 1, 0), kmm::InvalidArgument);
}

TEST(Row046, division_floors_for_every_sign) {
    for (std::int64_t divisor : {-7, -3, -2, -1, 1, 2, 3, 7}) {
        for (std::int64_t i = -20; i <= 20; i++) {
            const auto expected =
                static_cast<std::int64_t>(std::floor(static_cast<double>(i) / static_cast<double>(divisor)));
            EXPECT_EQ((_x / divisor).apply(chunk_x(i, i + 1)), Range<>(expected, expected + 1))
                << i << " / " << divisor;
        }
    }
    EXPECT_THROW(_x / 0, kmm::InvalidArgument);
}

TEST(Row046, division_then_multiplication_is_not_simplified) {
    const std::int64_t expected[] = {-4, -4, -2, -2, 0, 0, 2, 2};
    for (std::int64_t i = -4; i < 4; i++) {
        const std::int64_t value = expected[i + 4];
        EXPECT_EQ(((_x / 2) * 2).apply(chunk_x(i, i + 1)), Range<>(value, value + 1));
    }
}

TEST(Row046, division_of_an_interval_acts_on_every_index) {
    EXPECT_EQ((range(_x, _x + 5) / 2).apply(chunk_x(3, 4)), Range<>(1, 4));
    EXPECT_EQ((range(_x, _x + 5) / -2).apply(chunk_x(3, 4)), Range<>(-4, -1));
}

TEST(Row047, shifts_at_both_borders_are_clipped) {
    const auto clipped = [](const IndexMap& map, std::int64_t begin, std::int64_t end) {
        return map.apply(chunk_x(begin, end), Range<>(0, 10));
    };
    EXPECT_EQ(clipped(_x - 1, 0, 4), Range<>(0, 3));
    EXPECT_EQ(clipped(_x + 1, 8, 10), Range<>(9, 10));
    EXPECT_EQ(clipped(_x - 1, 0, 1), Range<>(0, 0));
    EXPECT_EQ(clipped(_x + 1, 9, 10), Range<>(10, 10));
    EXPECT_EQ(clipped(_x - 100, 0, 4), Range<>(0, 0));
    EXPECT_EQ(clipped(_x + 100, 0, 4), Range<>(10, 10));
    EXPECT_EQ(clipped(kmm::into_index_map(-3), 0, 4), Range<>(0, 0));
    EXPECT_EQ(clipped(kmm::range(12, 3), 0, 4), Range<>(10, 10));
    EXPECT_EQ(_x.get(), 0u);
    EXPECT_EQ((_x + 1).apply(chunk_x(0, 4), Range<>(0, 0)), Range<>(0, 0)) << "an array without elements";
}

TEST(Row048, ranges_that_were_meant_to_be_closed_look_so) {
    for (const IndexMap& map : {range(_x - 1, _x + 1), range(_y - 3, _y + 3), range(4 * _x, 4 * _x + 3),
                                range(2 * _z - 1, 2 * _z), range(_x * 8 + 8, _x * 8 + 15)})
        EXPECT_TRUE(map.looks_closed()) << map.text();
    for (const IndexMap& map :
         {range(_x - 1, _x + 2), closed_range(_x - 1, _x + 1), closed_range(_x - 1, _x),
          closed_range(4 * _x, 4 * _x + 2), closed_range(_x - 1, _x) + 0, range(_x, _x + 1), range(4 * _x, 4 * _x + 4),
          closed_range(4 * _x, 4 * _x + 3), range(_x, 9), kmm::range(-1, 1), range(_x - 1, _x), IndexMap(_x),
          IndexMap(kmm::All()), kmm::tile(4).axis(0), range(_x / 2 - 1, _x / 2 + 1), range(2 * _x, 3 * _x + 1),
          range(int64_max * _x + 1, int64_max * _x + int64_max)})
        EXPECT_FALSE(map.looks_closed()) << map.text();
}

TEST(Row048, ranges_are_half_open_and_closed_ranges_are_not) {
    EXPECT_EQ(range(_x - 1, _x + 1).apply(chunk_x(4, 5)), Range<>(3, 5));
    EXPECT_EQ(closed_range(_x - 1, _x + 1).apply(chunk_x(4, 5)), Range<>(3, 6));
    EXPECT_EQ(closed_range(_x, _x).apply(chunk_x(4, 8)), Range<>(4, 8));
    EXPECT_EQ(kmm::closed_range(3, 7).apply(chunk_x(4, 8)), Range<>(3, 8));
    EXPECT_EQ(closed_range(_x, 9).apply(chunk_x(4, 8)), Range<>(4, 10));
    EXPECT_EQ(kmm::range(7).apply(chunk_x(4, 8)), Range<>(0, 7));
}

TEST(Row048, a_range_that_is_empty_for_every_index_is_refused_with_a_hint) {
    EXPECT_THROW(range(_x, _x), kmm::InvalidArgument);
    EXPECT_THROW(range(_x + 1, _x - 1), kmm::InvalidArgument);
    EXPECT_THROW(range(_x / 2, _x / 2), kmm::InvalidArgument);
    EXPECT_THROW(range((_x / 2) * 2 + 1, _x), kmm::InvalidArgument);
    try {
        range(_x, _x);
        FAIL();
    } catch (const kmm::InvalidArgument& e) {
        EXPECT_NE(std::string(e.what()).find("closed_range"), std::string::npos);
    }
    EXPECT_NO_THROW(kmm::range(5, 5));
    EXPECT_NO_THROW(range(_x, 0));
    EXPECT_NO_THROW(range((_x / 2) * 2, _x));
}

TEST(Row048, both_ends_of_a_range_use_the_same_axis) {
    EXPECT_THROW(range(_x, _y), kmm::InvalidArgument);
    EXPECT_THROW(closed_range(_x + 1, 2 * _y), kmm::InvalidArgument);
    EXPECT_THROW(range(_x, _), kmm::InvalidArgument);
    EXPECT_NO_THROW(range(_x, 100));
    EXPECT_NO_THROW(range(-100, _y));
}

TEST(Row048, prefix_and_suffix_ranges_may_be_empty_at_one_end) {
    EXPECT_EQ(range(0, _x).apply(chunk_x(0, 4)), Range<>(0, 3));
    EXPECT_TRUE(range(0, _x).apply(chunk_x(0, 1)).is_empty());
    EXPECT_EQ(range(_x, 6).apply(chunk_x(4, 8)), Range<>(4, 6));
    EXPECT_TRUE(range(_x, 6).apply(chunk_x(7, 9)).is_empty());
}

TEST(Row048, arithmetic_on_ranges_moves_and_mirrors_them) {
    EXPECT_EQ((range(_x, _x + 3) + 1).apply(chunk_x(4, 5)), Range<>(5, 8));
    EXPECT_EQ((10 - range(_x, _x + 3)).apply(chunk_x(4, 5)), Range<>(4, 7));
    EXPECT_EQ((-range(_x, _x + 3)).apply(chunk_x(4, 5)), Range<>(-6, -3));
    EXPECT_EQ((range(_x, _x + 3) * 2).apply(chunk_x(4, 5)), Range<>(8, 13));
    EXPECT_EQ((+range(_x, _x + 3)).apply(chunk_x(4, 5)), Range<>(4, 7));
    EXPECT_EQ(range(-range(_x, _x + 3), 0).apply(chunk_x(4, 5)), Range<>(-6, 0))
        << "the first index of a mirrored range";
}

TEST(Row048, an_interval_that_is_empty_at_both_ends_of_a_chunk_may_not_be_empty_inside) {
    const IndexMap map = range(_x / 2, (_x + 1) / 2);  // empty for even indices, one index for odd ones
    EXPECT_TRUE(map.apply(chunk_x(0, 1)).is_empty());
    EXPECT_EQ(map.apply(chunk_x(0, 3)), Range<>(0, 1));
    EXPECT_EQ(map.apply(chunk_x(4, 1001)), Range<>(2, 500));
}

// ---- random expressions

using Wide = __int128;

// What an expression means at one index: an interval, by hand.
struct Interval {
    Wide begin = 0;
    Wide end = 0;
};

Wide floor_quotient(Wide a, Wide b) {
    const Wide q = a / b;
    return (a % b != 0 && ((a % b < 0) != (b < 0))) ? q - 1 : q;
}

struct Expression {
    IndexMap map;
    std::function<Interval(Wide)> meaning;
};

class Generator {
  public:
    explicit Generator(unsigned seed) : random_(seed) {}

    std::int64_t number(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }

    Expression expression() {
        for (;;) {
            try {
                Expression result =
                    number(0, 2) == 0 ? interval() : Expression{_x, [](Wide i) { return Interval{i, i + 1}; }};
                return apply_operations(result, number(0, 8));
            } catch (const kmm::InvalidArgument&) {
                continue;  // a range that is always empty
            }
        }
    }

  private:
    Expression apply_operations(Expression e, std::int64_t count) {
        for (std::int64_t k = 0; k < count; k++) {
            const auto inner = e.meaning;
            const std::int64_t c = number(-5, 5);
            switch (number(0, 4)) {
            case 0: e = {e.map + c, [=](Wide i) { return Interval{inner(i).begin + c, inner(i).end + c}; }}; break;
            case 1:
                e = {c - e.map, [=](Wide i) { return Interval{c - inner(i).end + 1, c - inner(i).begin + 1}; }};
                break;
            case 2:
                if (c == 0) break;
                e = {e.map * c, mapped(inner, [=](Wide v) { return v * c; })};
                break;
            case 3:
                if (c == 0) break;
                e = {e.map / c, mapped(inner, [=](Wide v) { return floor_quotient(v, c); })};
                break;
            default: e = {-e.map, [=](Wide i) { return Interval{-inner(i).end + 1, -inner(i).begin + 1}; }}; break;
            }
        }
        return e;
    }

    // Every index of the interval is mapped; the result is the hull.
    static std::function<Interval(Wide)> mapped(std::function<Interval(Wide)> inner, std::function<Wide(Wide)> f) {
        return [=](Wide i) {
            const Interval in = inner(i);
            if (in.end <= in.begin) return Interval{0, 0};
            const Wide a = f(in.begin);
            const Wide b = f(in.end - 1);
            return Interval{std::min(a, b), std::max(a, b) + 1};
        };
    }

    Expression interval() {
        const Expression begin = apply_operations({_x, [](Wide i) { return Interval{i, i + 1}; }}, number(0, 3));
        const Expression end = apply_operations({_x, [](Wide i) { return Interval{i, i + 1}; }}, number(0, 3));
        const auto b = begin.meaning;
        const auto e = end.meaning;
        return {range(begin.map, end.map), [=](Wide i) { return Interval{b(i).begin, e(i).begin}; }};
    }

    std::mt19937 random_;
};

TEST(Row049, random_expressions_agree_with_evaluation_over_all_indices) {
    Generator generator(20240501);
    int num_empty = 0;
    for (int round = 0; round < 20000; round++) {
        const Expression e = generator.expression();
        const std::int64_t first = generator.number(-30, 30);
        const std::int64_t last = first + generator.number(0, 25);
        const Range<> region = e.map.apply(chunk_x(first, last + 1));
        bool any = false;
        bool every = true;
        Interval hull{int64_max, std::numeric_limits<std::int64_t>::min()};
        for (std::int64_t i = first; i <= last; i++) {
            const Interval in = e.meaning(i);
            if (in.end <= in.begin) {
                every = false;
                continue;
            }
            any = true;
            hull = {std::min(hull.begin, in.begin), std::max(hull.end, in.end)};
        }
        ASSERT_EQ(any, !region.is_empty()) << "round " << round;
        num_empty += any ? 0 : 1;
        if (!any) continue;
        ASSERT_LE(region.begin, static_cast<std::int64_t>(hull.begin)) << "round " << round;
        ASSERT_GE(region.end, static_cast<std::int64_t>(hull.end)) << "round " << round;
        if (every) {
            ASSERT_EQ(region, Range<>(static_cast<std::int64_t>(hull.begin), static_cast<std::int64_t>(hull.end)))
                << "round " << round;
        }
    }
    EXPECT_GT(num_empty, 100) << "the generator must reach empty regions";
}

TEST(Row049, eight_nested_operations_are_accepted_and_endless_ones_refused) {
    IndexMap map = _x;
    for (int i = 0; i < 4; i++) map = map / 2 * 2;
    EXPECT_EQ(map.apply(chunk_x(5, 6)), Range<>(4, 5));
    const auto nest = [] {
        IndexMap deep = _x;
        for (int i = 0; i < 50; i++) deep = deep / 2 * 3;
    };
    EXPECT_THROW(nest(), kmm::InvalidArgument);
    IndexMap long_sum = _x;
    for (int i = 0; i < 1000; i++) long_sum = long_sum + 1;
    EXPECT_EQ(long_sum.apply(chunk_x(0, 1)), Range<>(1000, 1001));
}

TEST(Row050, overflow_in_an_expression_is_an_overflow_error) {
    EXPECT_THROW((_x + int64_max).apply(chunk_x(1, 2)), std::overflow_error);
    EXPECT_THROW((_x * int64_max).apply(chunk_x(2, 3)), std::overflow_error);
    EXPECT_THROW((_x - int64_max - 5).apply(chunk_x(0, 1)), std::overflow_error);
    EXPECT_THROW((_x + int64_max).apply(chunk_x(0, 1)), std::overflow_error) << "the end of the interval";
    EXPECT_THROW(_x + std::numeric_limits<std::uint64_t>::max(), std::overflow_error);
    EXPECT_THROW(
        (-_x).apply(chunk_x(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::min() + 1)),
        std::overflow_error);
    EXPECT_EQ((_x * int64_max).apply(chunk_x(0, 1)), Range<>(0, 1)) << "only results count";
    EXPECT_EQ((_x / 4 + (std::int64_t(1) << 62)).apply(chunk_x(8, 9)),
              Range<>((std::int64_t(1) << 62) + 2, (std::int64_t(1) << 62) + 3));
}

TEST(Row050, a_range_that_does_not_fit_its_type_is_an_overflow_error) {
    const Range<> wide(0, std::int64_t(1) << 40);
    EXPECT_THROW((Range<int>(wide)), std::overflow_error);
    EXPECT_EQ((Range<int>(Range<>(3, 7))), Range<int>(3, 7));
}

struct Rows {
    Bounds<2> operator()(DomainChunk chunk, Bounds<2> array) const {
        return {Range<>(chunk.offset.x - 1, chunk.offset.x + chunk.size.x + 1), array.y};
    }
    Bounds<1> operator()(DomainChunk chunk) const { return Range<>(chunk.offset.x, chunk.offset.x + 2); }
};

TEST(Row051, user_functors_are_clipped_for_accesses_and_not_for_private_copies) {
    EXPECT_EQ(kmm::detail::evaluate_access<2>(Rows(), chunk_x(8, 10), Bounds<2>(Dim<2>(10, 3))),
              Bounds<2>(Range<>(7, 10), Range<>(0, 3)));
    EXPECT_EQ(kmm::detail::evaluate_access<2>(Rows(), chunk_x(-5, -3), Bounds<2>(Dim<2>(10, 3))),
              Bounds<2>(Range<>(0, 0), Range<>(0, 3)));
    EXPECT_EQ(kmm::detail::evaluate_private(Rows(), chunk_x(8, 10)), Bounds<1>(Range<>(8, 10)));
    EXPECT_EQ(kmm::detail::evaluate_private(privatize(_x, kmm::range(0, 4)).private_mapper, chunk_x(8, 10)),
              Bounds<2>(Range<>(8, 10), Range<>(0, 4)));
}

TEST(Row051, a_functor_of_the_wrong_rank_is_not_accepted) {
    static_assert(kmm::is_dimensionality_accepted_by_mapper<Rows, 2>);
    static_assert(!kmm::is_dimensionality_accepted_by_mapper<Rows, 1>);
    static_assert(!kmm::is_dimensionality_accepted_by_mapper<kmm::MultiIndexMap<2>, 3>);
    static_assert(!kmm::is_dimensionality_accepted_by_mapper<kmm::Axis, 2>);
    static_assert(kmm::is_dimensionality_accepted_by_mapper<kmm::All, 5>);
    static_assert(kmm::mapper_dimensionality<Rows> == 1);
    static_assert(kmm::mapper_dimensionality<kmm::MultiIndexMap<3>> == 3);
    static_assert(kmm::detail::IsPlainMapper<Rows>::value);
    static_assert(!kmm::detail::IsPlainMapper<int>::value);
    SUCCEED();
}

template<typename A, typename B, typename = void>
struct CanMultiply : std::false_type {};
template<typename A, typename B>
struct CanMultiply<A, B, std::void_t<decltype(std::declval<A>() * std::declval<B>())>> : std::true_type {};
template<typename A, typename = void>
struct CanTakeRemainder : std::false_type {};
template<typename A>
struct CanTakeRemainder<A, std::void_t<decltype(std::declval<A>() % 2)>> : std::true_type {};

TEST(Row048, products_of_axes_and_remainders_do_not_compile) {
    static_assert(CanMultiply<kmm::Axis, int>::value);
    static_assert(!CanMultiply<kmm::Axis, kmm::Axis>::value);
    static_assert(!CanMultiply<kmm::All, int>::value);
    static_assert(!CanTakeRemainder<kmm::Axis>::value);
    SUCCEED();
}

// ---- access modes: what the calls give

TEST(AccessModes, each_call_keeps_the_argument_and_its_mapping) {
    FakeArray a;
    const FakeArray c;
    auto read_part = read(a[_y][_]);
    static_assert(std::is_same_v<decltype(read_part), kmm::Read<const FakeArray, kmm::MultiIndexMap<2>>>);
    EXPECT_EQ(&read_part.argument, &a);
    EXPECT_EQ(read_part.access_mapper(chunks[1], Bounds<2>(Dim<2>(5, 6))), Bounds<2>(Range<>(0, 1), Range<>(0, 6)));
    static_assert(std::is_same_v<decltype(read(c)), kmm::Read<const FakeArray, kmm::All>>);
    static_assert(std::is_same_v<decltype(read(c, _x)), kmm::Read<const FakeArray, kmm::Axis>>);
    static_assert(std::is_same_v<decltype(write(a)), kmm::Write<FakeArray, kmm::All>>);
    static_assert(std::is_same_v<decltype(write(a, _xy)), kmm::Write<FakeArray, kmm::MultiIndexMap<2>>>);
    static_assert(std::is_same_v<decltype(overwrite(a[_x][_y])), kmm::Overwrite<FakeArray, kmm::MultiIndexMap<2>>>);
    auto sum = reduce(kmm::Reduction::Sum, privatize(_x), a[_y][_]);
    static_assert(std::is_same_v<decltype(sum), kmm::Reduce<FakeArray, kmm::MultiIndexMap<2>, kmm::MultiIndexMap<1>>>);
    EXPECT_EQ(sum.op, kmm::Reduction::Sum);
    EXPECT_EQ(&sum.argument, &a);
    auto most = accumulate(kmm::Reduction::Max, a, _xy);
    static_assert(std::is_same_v<decltype(most), kmm::Accumulate<FakeArray, kmm::MultiIndexMap<2>>>);
    EXPECT_EQ(most.op, kmm::Reduction::Max);
    auto custom = reduce(kmm::reduction_op(1, [](int x, int y) { return x * y; }), a);
    EXPECT_EQ(custom.op.function(3, 4), 12);
    EXPECT_EQ(custom.op.identity, 1);
}

}  // namespace
