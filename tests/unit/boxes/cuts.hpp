// Boxes cut into disjoint boxes in ways that form no grid, for tests of graph and plan. Owns: nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kmm/boxes/box.hpp"

namespace kmm_test {

/// Boxes that cover `array` exactly, in shuffled order.
struct Cut {
    std::size_t rank = 0;
    kmm::boxes::Box array;
    std::vector<kmm::boxes::Box> boxes;
};

using CutRandom = std::mt19937;

inline std::int64_t pick(CutRandom& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline std::size_t longest_axis(const kmm::boxes::Box& b) {
    std::size_t longest = 0;
    for (std::size_t k = 1; k < kmm::boxes::max_rank; k++)
        if (b.end[k] - b.begin[k] > b.end[longest] - b.begin[longest]) longest = k;
    return longest;
}

inline Cut shuffled(Cut cut, unsigned seed) {
    CutRandom random(seed);
    std::shuffle(cut.boxes.begin(), cut.boxes.end(), random);
    return cut;
}

/// Cut in two along the longest side, again and again, each time at some place in the middle half; fewer than `count`
/// boxes if there are no more elements.
inline Cut random_halves(std::size_t rank, std::size_t count, unsigned seed, std::int64_t side) {
    CutRandom random(seed);
    Cut cut;
    cut.rank = rank;
    for (std::size_t k = 0; k < rank; k++) cut.array.end[k] = side;
    cut.boxes = {cut.array};
    bool any = true;
    while (any && cut.boxes.size() < count) {
        any = false;
        for (std::size_t i = 0, end = cut.boxes.size(); i < end && cut.boxes.size() < count; i++) {
            const kmm::boxes::Box whole = cut.boxes[i];
            const std::size_t axis = longest_axis(whole);
            const std::int64_t length = whole.end[axis] - whole.begin[axis];
            if (length < 2) continue;
            const std::int64_t low = std::max<std::int64_t>(1, length / 4);
            const std::int64_t at = whole.begin[axis] + pick(random, low, length - low);
            cut.boxes.push_back(whole);
            cut.boxes[i].end[axis] = cut.boxes.back().begin[axis] = at;
            any = true;
        }
    }
    std::shuffle(cut.boxes.begin(), cut.boxes.end(), random);
    return cut;
}

/// Rows of different heights, each cut into columns at other places, from `origin` on.
inline Cut rows_of_columns(std::size_t count, std::int64_t origin = 0) {
    CutRandom random(static_cast<unsigned>(count));
    Cut cut;
    cut.rank = 2;
    std::int64_t columns = 1;
    while (static_cast<std::size_t>(columns * columns) < count) columns++;
    const std::int64_t right = origin + 8 * columns;
    std::int64_t y = origin;
    while (cut.boxes.size() < count) {
        const std::int64_t height = pick(random, 1, 9);
        for (std::int64_t x = origin; x < right;) {
            const std::int64_t end = std::min(x + pick(random, 1, 15), right);
            kmm::boxes::Box b;
            b.begin[0] = y, b.end[0] = y + height;
            b.begin[1] = x, b.end[1] = end;
            cut.boxes.push_back(b);
            x = end;
        }
        y += height;
    }
    cut.array.begin[0] = cut.array.begin[1] = origin;
    cut.array.end[0] = y;
    cut.array.end[1] = right;
    std::shuffle(cut.boxes.begin(), cut.boxes.end(), random);
    return cut;
}

/// Four huge boxes around a corner of very many small ones.
inline Cut few_huge_and_many_tiny(std::size_t count) {
    Cut cut = rows_of_columns(count, 1'000'000);
    cut.array = kmm::boxes::Box();
    const kmm::boxes::Box tiny = cut.boxes.front();
    std::int64_t bottom = 0, right = 0;
    for (const kmm::boxes::Box& b : cut.boxes) bottom = std::max(bottom, b.end[0]), right = std::max(right, b.end[1]);
    cut.array.end[0] = bottom;
    cut.array.end[1] = right;
    const auto add = [&](std::int64_t y0, std::int64_t y1, std::int64_t x0, std::int64_t x1) {
        kmm::boxes::Box b = tiny;
        b.begin[0] = y0, b.end[0] = y1, b.begin[1] = x0, b.end[1] = x1;
        cut.boxes.push_back(b);
    };
    add(0, 500'000, 0, right);
    add(500'000, 1'000'000, 0, 300'000);
    add(500'000, 1'000'000, 300'000, right);
    add(1'000'000, bottom, 0, 1'000'000);
    return cut;
}

/// Bricks of 2 by 8 in rows that are shifted by half a brick.
inline Cut bricks(std::size_t count) {
    Cut cut;
    cut.rank = 2;
    std::int64_t side = 1;
    while (static_cast<std::size_t>(side * side) < count) side++;
    cut.array.end[0] = 2 * side;
    cut.array.end[1] = 8 * side;
    for (std::int64_t row = 0; row < side; row++) {
        for (std::int64_t x = row % 2 == 0 ? 0 : -4; x < 8 * side; x += 8) {
            kmm::boxes::Box b;
            b.begin[0] = 2 * row, b.end[0] = 2 * row + 2;
            b.begin[1] = std::max<std::int64_t>(x, 0), b.end[1] = std::min(x + 8, 8 * side);
            cut.boxes.push_back(b);
        }
    }
    return shuffled(std::move(cut), 3);
}

/// A square in five, four of them around the fifth so that no straight line parts them; each of the four again, until
/// there are `count`.
inline Cut pinwheels(std::size_t count) {
    Cut cut;
    cut.rank = 2;
    cut.array.end[0] = cut.array.end[1] = std::int64_t{1} << 30;
    cut.boxes = {cut.array};
    for (std::size_t i = 0; cut.boxes.size() < count; i++) {
        const kmm::boxes::Box b = cut.boxes[i];
        const std::int64_t y0 = b.begin[0], y3 = b.end[0], x0 = b.begin[1], x3 = b.end[1];
        const std::int64_t y1 = y0 + (y3 - y0) / 3, y2 = y3 - (y3 - y0) / 3;
        const std::int64_t x1 = x0 + (x3 - x0) / 3, x2 = x3 - (x3 - x0) / 3;
        const auto part = [&](std::int64_t top, std::int64_t bottom, std::int64_t left, std::int64_t right) {
            kmm::boxes::Box p = b;
            p.begin[0] = top, p.end[0] = bottom, p.begin[1] = left, p.end[1] = right;
            return p;
        };
        cut.boxes[i] = part(y1, y2, x1, x2);
        cut.boxes.push_back(part(y0, y1, x0, x2));
        cut.boxes.push_back(part(y0, y2, x2, x3));
        cut.boxes.push_back(part(y2, y3, x1, x3));
        cut.boxes.push_back(part(y1, y3, x0, x1));
    }
    return shuffled(std::move(cut), 4);
}

/// Half of the boxes are flat and lie on each other, half are upright and stand side by side.
inline Cut flat_and_upright(std::size_t count) {
    Cut cut;
    cut.rank = 2;
    const auto half = static_cast<std::int64_t>(count / 2);
    cut.array.end[0] = half;
    cut.array.end[1] = 2 * half;
    for (std::int64_t i = 0; i < half; i++) {
        kmm::boxes::Box flat = cut.array, upright = cut.array;
        flat.begin[0] = i, flat.end[0] = i + 1, flat.end[1] = half;
        upright.begin[1] = half + i, upright.end[1] = half + i + 1;
        cut.boxes.push_back(flat);
        cut.boxes.push_back(upright);
    }
    return shuffled(std::move(cut), 5);
}

}  // namespace kmm_test
