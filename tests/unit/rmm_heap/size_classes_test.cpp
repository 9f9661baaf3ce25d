// Owns: size classes beside a sorted set of the same elements, and how much of them is looked at.
#include "rmm/heap/size_classes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace {

struct element {
    std::size_t size_bytes = 0;
    std::uintptr_t address = 0;
    rmm::heap::tree_links<element> links;
    std::uint32_t priority = 0;
};
struct by_size {
    static bool less(const element& a, const element& b) noexcept {
        return std::tie(a.size_bytes, a.address) < std::tie(b.size_bytes, b.address);
    }
};
struct sorted {
    bool operator()(const element* a, const element* b) const noexcept { return by_size::less(*a, *b); }
};
using classes = rmm::heap::size_classes<element, &element::links, by_size>;

/// The same number of each power of two, so that all classes have some.
std::size_t any_size(std::mt19937_64& engine) { return engine() >> (engine() % 64) | 1u; }

TEST(SizeClasses, the_smallest_that_fits_is_that_of_a_sorted_set_for_sizes_from_1_to_the_largest) {
    std::mt19937_64 engine(1);
    std::vector<element> elements(300);
    classes found;
    std::set<const element*, sorted> expected;
    std::size_t steps = 0;
    const auto expect_equal = [&](std::size_t size) {
        const element asked{size, 0, {}, 0};
        const auto first = expected.lower_bound(&asked);
        EXPECT_EQ(found.first_from(size, &steps), first == expected.end() ? nullptr : *first) << size;
    };
    for (int step = 0; step < 20000; ++step) {
        element& e = elements[engine() % elements.size()];
        if (e.size_bytes != 0) {
            found.erase(&e);
            expected.erase(&e);
            e.size_bytes = 0;
        } else {
            e.size_bytes = step % 4 == 0 ? 4096 : any_size(engine);
            e.address = engine();
            e.priority = static_cast<std::uint32_t>(engine());
            found.insert(&e);
            expected.insert(&e);
        }
        expect_equal(any_size(engine));
        expect_equal(4096);
        expect_equal(~std::size_t{0});
        if (HasFailure()) FAIL() << "at step " << step;
    }
}

/// Elements that a search of any size looks at, among `count` of any size.
double steps_of_a_search(std::size_t count) {
    std::mt19937_64 engine(1);
    std::vector<element> elements(count);
    classes all;
    for (element& e : elements) {
        e.size_bytes = any_size(engine);
        e.address = engine();
        e.priority = static_cast<std::uint32_t>(engine());
        all.insert(&e);
    }
    constexpr int num_searches = 10'000;
    std::size_t steps = 0;
    for (int i = 0; i < num_searches; ++i) all.first_from(any_size(engine), &steps);
    return static_cast<double>(steps) / num_searches;
}

TEST(SizeClasses, where_sizes_vary_a_search_looks_at_few_elements_and_one_or_two_more_among_twice_as_many) {
    const double at_n = steps_of_a_search(2000);
    EXPECT_LT(at_n, 6);
    EXPECT_LT(steps_of_a_search(4000), at_n + 1.5) << "a level more than " << at_n;
}

}  // namespace
