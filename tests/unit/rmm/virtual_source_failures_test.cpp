// Owns: what is left of a pool's virtual memory when calls of the driver fail: nothing is lost, and nothing is told
// wrong.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "rmm/pool/virtual_source.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::testing::ScriptedDriver;
using rmm::heap::free_range;
using rmm::heap::range;
using rmm::mr::detail::virtual_source;

constexpr std::size_t unit = std::size_t{2} << 20;
constexpr std::size_t device_bytes = 32 * unit;

std::size_t device_free(ScriptedDriver& driver) {
    std::size_t free = 0, total = 0;
    EXPECT_TRUE(driver.memory_info(0, &free, &total).ok());
    return free;
}

void touch(range r) {
    for (std::uintptr_t at = r.address; at < r.end(); at += unit) *reinterpret_cast<int*>(at) = 1;
}

/// Pieces of four units: A free, B used, C free, D used, E free.
struct Striped {
    explicit Striped(ScriptedDriver& d) : driver(d), source(d, 0, {.largest_piece_bytes = 4 * unit}) {
        all = source.grow(20 * unit).made;
        for (std::size_t i : {0u, 2u, 4u}) free.push_back({{all.address + i * 4 * unit, 4 * unit}});
        used = {{all.address + 4 * unit, 4 * unit}, {all.address + 12 * unit, 4 * unit}};
    }
    /// Moves two of the free ranges behind or before the third (or all three elsewhere), and takes two fresh units. Of
    /// ten units one is melted, as two of its units are too much.
    virtual_source::remapping remap(std::size_t num_units = 14) {
        plan = source.plan(num_units * unit, free, 0, {});
        EXPECT_TRUE(plan.possible);
        plan.fitting_bytes = unit;
        return source.remap(plan);
    }
    /// What the pool believes to be mapped.
    void check(const std::vector<range>& made) {
        std::vector<range> known = made;
        for (const free_range& f : free) {
            bool moved = false;
            for (const range& m : plan.moved) moved |= m.address <= f.where.address && f.where.end() <= m.end();
            if (!moved) known.push_back(f.where);
        }
        known.insert(known.end(), used.begin(), used.end());
        std::size_t sum = 0;
        for (const range& r : known) {
            touch(r);
            sum += r.size_bytes;
        }
        EXPECT_EQ(source.mapped_bytes(), sum) << "every mapped byte is known";
        EXPECT_EQ(source.held_bytes(), source.mapped_bytes() + source.spare_bytes());
        EXPECT_EQ(device_bytes - device_free(driver), source.held_bytes()) << "every byte that is held is counted";
    }

    ScriptedDriver& driver;
    virtual_source source;
    range all;
    std::vector<free_range> free;
    std::vector<range> used;
    rmm::heap::move_plan plan;
};

struct VirtualSourceFailures : ::testing::Test {
    VirtualSourceFailures() : driver({.num_devices = 2, .memory_bytes = device_bytes}) {
        driver.exempt({"current_device", "set_current_device", "memory_info"});
    }
    ~VirtualSourceFailures() override {
        EXPECT_EQ(device_free(driver), device_bytes) << "the source has given everything back";
    }
    ScriptedDriver driver;
};

TEST_F(VirtualSourceFailures, a_growth_that_fails_at_any_call_changes_nothing) {
    for (std::uint64_t n = 1;; ++n) {
        virtual_source source(driver, 0, {.largest_piece_bytes = 4 * unit});
        const range first = source.grow(4 * unit).made;
        driver.fail_at(n, Code::out_of_memory);
        const auto failures = driver.num_failures();
        const auto g = source.grow(9 * unit);
        if (driver.num_failures() == failures) {
            driver.clear_failures();
            EXPECT_EQ(n, 8u) << "three pieces are created and mapped, and one call sets access";
            break;
        }
        EXPECT_EQ(g.status.code, Code::out_of_memory);
        EXPECT_EQ(g.made.size_bytes, 0u);
        EXPECT_EQ(source.held_bytes(), 4 * unit);
        EXPECT_EQ(device_bytes - device_free(driver), 4 * unit);
        touch(first);
        EXPECT_EQ(source.grow(9 * unit).made.address, first.end()) << "and it can be tried again at the same place";
    }
}

TEST_F(VirtualSourceFailures, a_remap_that_fails_at_any_call_leaves_every_range_where_it_was) {
    for (std::uint64_t n = 1;; ++n) {
        Striped s(driver);
        driver.fail_at(n, Code::unknown);
        const auto failures = driver.num_failures();
        const auto done = s.remap();
        if (driver.num_failures() == failures) {
            driver.clear_failures();
            EXPECT_EQ(n, 8u) << "one piece is created, two are unmapped, three mapped, and one call sets access";
            EXPECT_TRUE(done.status.ok());
            s.check(done.ranges);
            break;
        }
        EXPECT_EQ(done.status.code, Code::unknown) << n;
        EXPECT_EQ(done.ranges, s.plan.moved) << n;
        EXPECT_EQ(s.source.spare_bytes(), 0u) << n;
        s.check(done.ranges);
        EXPECT_EQ(s.source.counts().remaps, 0u);
        const auto again = s.remap();
        EXPECT_TRUE(again.status.ok()) << n;
        s.check(again.ranges);
    }
}

TEST_F(VirtualSourceFailures, when_mapping_back_fails_too_the_memory_is_spare_and_used_by_the_next_growth) {
    // The m-th further call of each kind fails besides: whatever the way back needs is hit in turn.
    for (const std::string call : {"map", "set_access", "unmap"})
        for (std::uint64_t m = 1; m <= 6; ++m) {
            Striped s(driver);
            driver.fail_call("set_access", 1, Code::unknown);
            driver.fail_call(call, (call == "set_access" ? 1 : call == "map" ? 3 : 2) + m, Code::unknown);
            const auto done = s.remap();
            EXPECT_FALSE(done.status.ok());
            driver.clear_failures();
            s.check(done.ranges);
            const std::size_t spare = s.source.spare_bytes();
            const std::size_t free = device_free(driver);
            EXPECT_LE(spare, 12 * unit);
            if (spare == 0) continue;
            const auto g = s.source.grow(spare);
            ASSERT_TRUE(g.status.ok()) << call << m;
            EXPECT_EQ(g.made.size_bytes, spare);
            touch(g.made);
            EXPECT_EQ(s.source.spare_bytes(), 0u);
            EXPECT_EQ(device_free(driver), free) << "nothing fresh";
        }
}

TEST_F(VirtualSourceFailures, a_remap_that_melts_a_piece_and_fails_at_any_call_loses_nothing) {
    for (std::uint64_t n = 1;; ++n) {
        Striped s(driver);
        driver.fail_at(n, Code::out_of_memory);
        const auto failures = driver.num_failures();
        const auto done = s.remap(10);
        const bool failed = driver.num_failures() != failures;
        driver.clear_failures();
        s.check(done.ranges);
        if (!failed) {
            EXPECT_TRUE(done.status.ok());
            EXPECT_EQ(n, 8u) << "two are unmapped, one released and created, two mapped, and one call sets access";
            EXPECT_EQ(s.source.counts().release_calls, 1u);
            EXPECT_EQ(s.source.counts().create_calls, 5u + 1u);
            EXPECT_EQ(s.source.held_bytes(), 18 * unit);
            break;
        }
        EXPECT_FALSE(done.status.ok());
        EXPECT_EQ(s.source.held_bytes(), (n <= 3 ? 20 : n == 4 ? 16 : 18) * unit) << n;
        EXPECT_EQ(s.source.spare_bytes(), (n <= 4 ? 0 : 2) * unit) << n;
        const auto again = s.source.grow(4 * unit);
        EXPECT_TRUE(again.status.ok()) << "what was melted can be had again";
        touch(again.made);
    }
}

TEST_F(VirtualSourceFailures, memory_that_somebody_else_takes_while_a_piece_is_melted_is_told_as_gone) {
    Striped s(driver);
    driver.fail_call("create_physical", 1, Code::out_of_memory);
    const auto done = s.remap(10);
    driver.clear_failures();
    EXPECT_EQ(done.status.code, Code::out_of_memory);
    EXPECT_EQ(s.source.held_bytes(), 16 * unit);
    s.check(done.ranges);
}

/// A piece of eight units is cut where the third ends.
TEST_F(VirtualSourceFailures, a_cut_that_fails_at_any_calls_tells_what_is_left) {
    int whole = 0, gone = 0;
    for (std::uint64_t first = 1; first <= 8; ++first)
        for (std::uint64_t second = first; second <= first + 8; ++second) {
            virtual_source source(driver, 0, {.largest_piece_bytes = 8 * unit});
            const range all = source.grow(16 * unit).made;
            driver.fail_at(first, Code::out_of_memory);
            driver.fail_at(second, Code::out_of_memory);
            const auto failures = driver.num_failures();
            const auto done = source.cut(all.address + 3 * unit);
            const bool failed = driver.num_failures() != failures;
            driver.clear_failures();
            EXPECT_EQ(done.status.ok(), !failed) << first << ' ' << second;
            EXPECT_EQ(source.held_bytes(), source.mapped_bytes() + source.spare_bytes());
            EXPECT_EQ(device_bytes - device_free(driver), source.held_bytes()) << "every byte that is held is counted";
            touch({all.address + 8 * unit, 8 * unit});
            if (done.mapped.size_bytes != 0) {
                EXPECT_EQ(done.mapped, (range{all.address, 8 * unit}));
                EXPECT_EQ(source.mapped_bytes(), 16 * unit);
                touch(done.mapped);
                whole += failed;
            } else {
                EXPECT_EQ(source.mapped_bytes(), 8 * unit);
                ++gone;
            }
            const auto again = source.grow(8 * unit);
            EXPECT_TRUE(again.status.ok()) << "whatever is gone can be had again";
            touch(again.made);
            EXPECT_LE(source.held_bytes(), 24 * unit);
        }
    EXPECT_GT(whole, 20) << "until something new is mapped there is a way back";
    EXPECT_GT(gone, 5);
}

TEST_F(VirtualSourceFailures, two_failures_anywhere_in_a_remap_lose_nothing) {
    int with_spare = 0;
    for (std::uint64_t first = 1; first <= 16; ++first)
        for (std::uint64_t second = first + 1; second <= first + 16; ++second) {
            Striped s(driver);
            driver.fail_at(first, Code::unknown);
            driver.fail_at(second, Code::unknown);
            const auto done = s.remap(second % 2 == 0 ? 14 : 10);
            driver.clear_failures();
            s.check(done.ranges);
            const std::size_t spare = s.source.spare_bytes();
            if (spare != 0) ++with_spare;
            const auto released = s.source.release_spare();
            EXPECT_TRUE(released.status.ok());
            EXPECT_EQ(released.released_bytes, spare);
            s.check(done.ranges);
        }
    EXPECT_GT(with_spare, 5);
}

TEST_F(VirtualSourceFailures, spare_memory_serves_a_remap_before_fresh_memory_does) {
    Striped s(driver);
    driver.fail_call("set_access", 1, Code::unknown);
    driver.fail_call("map", 4, Code::unknown);  // the first that would map a piece back
    const auto failed = s.remap();
    driver.clear_failures();
    ASSERT_FALSE(failed.status.ok());
    ASSERT_EQ(s.source.spare_bytes(), 4 * unit);
    s.check(failed.ranges);

    const std::size_t held = s.source.held_bytes();
    const auto plan = s.source.plan(4 * unit, {}, 0, {.fresh_bytes = 0});
    ASSERT_TRUE(plan.possible);
    EXPECT_EQ(plan.cost_ns != 0, true);
    const auto done = s.source.remap(plan);
    ASSERT_TRUE(done.status.ok());
    ASSERT_EQ(done.ranges.size(), 1u);
    touch(done.ranges[0]);
    EXPECT_EQ(s.source.held_bytes(), held);
    EXPECT_EQ(s.source.spare_bytes(), 0u);
}

TEST_F(VirtualSourceFailures, a_trim_that_fails_says_what_is_left) {
    for (std::uint64_t n = 1; n <= 6; ++n) {
        virtual_source source(driver, 0, {.largest_piece_bytes = 4 * unit});
        const range all = source.grow(12 * unit).made;
        driver.fail_at(n, Code::unknown);
        const auto t = source.trim(all);
        driver.clear_failures();
        EXPECT_FALSE(t.status.ok());
        EXPECT_EQ(t.left.size_bytes, source.mapped_bytes());
        EXPECT_EQ(t.released_bytes, 12 * unit - source.held_bytes());
        EXPECT_EQ(t.left.size_bytes % (4 * unit), 0u);
        if (t.left.size_bytes != 0) {
            EXPECT_EQ(t.left.address, all.address);
            touch(t.left);
        }
        EXPECT_TRUE(source.release_spare().status.ok());
        EXPECT_EQ(device_bytes - device_free(driver), t.left.size_bytes);
    }
}

TEST_F(VirtualSourceFailures, the_driver_may_have_less_than_the_maximum) {
    driver.set_memory_cap(0, 10 * unit);
    virtual_source source(driver, 0, {.largest_piece_bytes = 4 * unit});
    const range all = source.grow(8 * unit).made;
    EXPECT_EQ(source.grow(4 * unit).status.code, Code::out_of_memory);
    const std::vector<free_range> free{{all}};
    const auto plan = source.plan(12 * unit, free, 0, {});
    ASSERT_TRUE(plan.possible) << "the source cannot know";
    const auto done = source.remap(plan);
    EXPECT_EQ(done.status.code, Code::out_of_memory);
    EXPECT_EQ(source.held_bytes(), 8 * unit);
    driver.clear_failures();
}

TEST_F(VirtualSourceFailures, a_lost_device_ends_in_statuses) {
    ScriptedDriver lost({.num_devices = 1, .memory_bytes = device_bytes});
    {
        Striped s(lost);
        lost.lose_device(0);
        EXPECT_FALSE(s.source.grow(4 * unit).status.ok());
        EXPECT_EQ(s.source.mapped_bytes(), 20 * unit);
    }
}

}  // namespace
