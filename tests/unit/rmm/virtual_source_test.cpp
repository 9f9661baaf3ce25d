// Owns: the contract of a pool's virtual memory (virtual_source.hpp) while the driver does what it is asked. One
// thread.
#include "rmm/pool/virtual_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "driver/registry.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::Driver;
using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;
using rmm::heap::free_range;
using rmm::heap::range;
using rmm::heap::side;
using rmm::mr::detail::virtual_source;
using rmm::mr::detail::virtual_source_options;

constexpr std::size_t unit = std::size_t{2} << 20;

std::size_t device_free(Driver& driver) {
    std::size_t free = 0, total = 0;
    EXPECT_TRUE(driver.memory_info(0, &free, &total).ok());
    return free;
}

/// One word at the start of each unit, which is enough to see whether the memory is there and stays.
std::uint64_t& word(std::uintptr_t address) { return *reinterpret_cast<std::uint64_t*>(address); }
void write(range r, std::uint64_t value) {
    for (std::uintptr_t at = r.address; at < r.end(); at += unit) word(at) = value + (at - r.address);
}
bool reads(range r, std::uint64_t value) {
    for (std::uintptr_t at = r.address; at < r.end(); at += unit)
        if (word(at) != value + (at - r.address)) return false;
    return true;
}

struct VirtualSource : ::testing::Test {
    std::shared_ptr<Driver> driver = kmm::driver::make_host_driver({2, 256 * unit, 1});
    static virtual_source_options pieces_of(std::size_t units) { return {.largest_piece_bytes = units * unit}; }
    range grown(virtual_source& source, std::size_t units) {
        const auto g = source.grow(units * unit);
        EXPECT_TRUE(g.status.ok());
        return g.made;
    }
};

TEST_F(VirtualSource, grown_memory_can_be_used_and_growth_goes_on_where_it_ended) {
    virtual_source source(*driver, 0, pieces_of(4));
    ASSERT_TRUE(source.status().ok());
    const std::size_t before = device_free(*driver);
    const range a = grown(source, 9);
    const auto b = source.grow(unit / 2);
    ASSERT_TRUE(b.status.ok());
    EXPECT_EQ(a.size_bytes, 9 * unit);
    EXPECT_EQ(b.made, (range{a.end(), unit})) << "rounded up, and right behind";
    write(a, 1);
    write(b.made, 2);
    EXPECT_TRUE(reads(a, 1));
    EXPECT_TRUE(reads(b.made, 2));
    EXPECT_EQ(source.mapped_bytes(), 10 * unit);
    EXPECT_EQ(source.held_bytes(), 10 * unit);
    EXPECT_EQ(before - device_free(*driver), 10 * unit);
    EXPECT_EQ(source.counts().create_calls, 4u) << "4, 4, 1 and 1 units";
    EXPECT_EQ(source.counts().access_calls, 2u) << "one for each range";
    EXPECT_TRUE(source.contains(a.address));
    EXPECT_TRUE(source.contains(b.made.end()));
    EXPECT_FALSE(source.contains(source.reserved_bytes()));
}

TEST_F(VirtualSource, growths_go_on_where_their_callers_ask_for_it) {
    virtual_source source(*driver, 0, pieces_of(4));
    std::uintptr_t first = source.window(3, 16), second = source.window(5, 16);
    const std::uintptr_t begins = first;
    EXPECT_EQ(source.grow(2 * unit, 1, &first).made, (range{begins, 2 * unit}));
    EXPECT_EQ(source.grow(unit, 1, &second).made.address, source.window(5, 16));
    EXPECT_EQ(source.grow(3 * unit, 1, &first).made, (range{begins + 2 * unit, 3 * unit}));
    std::uintptr_t taken = begins + unit;
    const auto elsewhere = source.grow(unit, 1, &taken);
    ASSERT_TRUE(elsewhere.status.ok());
    EXPECT_EQ(taken, elsewhere.made.end());
}

TEST_F(VirtualSource, everything_goes_back_when_the_source_ends) {
    const std::size_t before = device_free(*driver);
    {
        virtual_source source(*driver, 0);
        grown(source, 20);
        EXPECT_LT(device_free(*driver), before);
    }
    EXPECT_EQ(device_free(*driver), before);
}

TEST_F(VirtualSource, the_maximum_is_kept_and_a_refused_growth_changes_nothing) {
    auto options = pieces_of(4);
    options.maximum_bytes = 10 * unit + unit / 2;
    virtual_source source(*driver, 0, options);
    EXPECT_EQ(source.maximum_bytes(), 10 * unit);
    grown(source, 7);
    EXPECT_EQ(source.grow(4 * unit).status.code, Code::out_of_memory);
    EXPECT_EQ(source.grow(~std::size_t{0}).status.code, Code::out_of_memory);
    EXPECT_EQ(source.grow(0).status.code, Code::invalid_argument);
    EXPECT_EQ(source.held_bytes(), 7 * unit);
    grown(source, 3);
    EXPECT_FALSE(source.plan(11 * unit, {}, 0, {}).possible);
}

TEST_F(VirtualSource, the_devices_limit_is_a_status_too) {
    virtual_source source(*driver, 0, pieces_of(16));
    grown(source, 200);
    EXPECT_EQ(source.grow(57 * unit).status.code, Code::out_of_memory);
    EXPECT_EQ(source.held_bytes(), 200 * unit);
    EXPECT_EQ(source.spare_bytes(), 0u);
    grown(source, 56);
}

TEST_F(VirtualSource, only_whole_pieces_are_removable) {
    virtual_source source(*driver, 0, pieces_of(4));
    const range a = grown(source, 10);  // pieces of 4, 4, 2
    EXPECT_EQ(source.removable(a), a);
    EXPECT_EQ(source.removable({a.address + unit, 9 * unit}), (range{a.address + 4 * unit, 6 * unit}));
    EXPECT_EQ(source.removable({a.address, 9 * unit}), (range{a.address, 8 * unit}));
    EXPECT_EQ(source.removable({a.address + 256, 8 * unit}), (range{a.address + 4 * unit, 4 * unit}));
    EXPECT_EQ(source.removable({a.address + unit, 3 * unit}).size_bytes, 0u + 0u);
    EXPECT_EQ(source.removable({a.end(), 0}), range{});
}

TEST_F(VirtualSource, a_plan_extends_a_free_range_in_place_and_remap_does_it) {
    virtual_source source(*driver, 0, pieces_of(4));
    const range all = grown(source, 20);
    // Free: units 4..8, and the last 6; the others are in use.
    const range hole{all.address + 4 * unit, 4 * unit}, tail{all.end() - 6 * unit, 6 * unit};
    const range low{all.address, 4 * unit}, middle{hole.end(), 6 * unit};
    write(low, 7);
    write(middle, 8);
    const std::vector<free_range> free{{hole}, {tail}};
    const auto plan = source.plan(10 * unit, free, 0, {.fresh_bytes = 0});
    ASSERT_TRUE(plan.possible);
    EXPECT_EQ(plan.where, side::behind);
    EXPECT_EQ(plan.kept, tail);
    EXPECT_EQ(plan.moved, std::vector<range>{hole});
    const auto maps = source.counts().map_calls;
    const auto done = source.remap(plan);
    ASSERT_TRUE(done.status.ok());
    EXPECT_EQ(done.ranges, (std::vector<range>{{tail.end(), 4 * unit}}));
    write({tail.address, 10 * unit}, 9);
    EXPECT_TRUE(reads({tail.address, 10 * unit}, 9));
    EXPECT_TRUE(reads(low, 7) && reads(middle, 8));
    EXPECT_EQ(source.counts().map_calls - maps, 1u);
    EXPECT_EQ(source.counts().remaps, 1u);
    EXPECT_EQ(source.counts().moved_bytes, 4 * unit);
    EXPECT_EQ(source.mapped_bytes(), 20 * unit);
}

TEST_F(VirtualSource, an_area_keeps_its_own_ranges_and_takes_pieces_of_others) {
    virtual_source source(*driver, 0, pieces_of(4));
    const range all = grown(source, 12);
    const range used{all.address + 4 * unit, 4 * unit};
    write(used, 3);
    const std::vector<free_range> free{{{all.address, 4 * unit}, true, 0}, {{used.end(), 4 * unit}, true, 1}};
    const auto plan = source.plan(8 * unit, free, 0, {.fresh_bytes = 0});
    ASSERT_TRUE(plan.possible);
    EXPECT_EQ(plan.kept, free[0].where);
    EXPECT_EQ(plan.where, side::before) << "behind it is what is in use";
    EXPECT_EQ(plan.moved, std::vector<range>{free[1].where});
    ASSERT_TRUE(source.remap(plan).status.ok());
    EXPECT_TRUE(reads(used, 3));
}

TEST_F(VirtualSource, touching_ranges_with_other_fences_are_one_range_that_is_ready_only_where_all_are) {
    virtual_source source(*driver, 0, pieces_of(4));
    const range all = grown(source, 12);
    // The first piece is half ready, the second not, the third is. They are another area's, so that none is kept.
    const std::vector<free_range> free{{{all.address, 2 * unit}, true, 1},
                                       {{all.address + 2 * unit, 6 * unit}, false, 1},
                                       {{all.address + 8 * unit, 4 * unit}, true, 1}};
    const auto few = source.plan(4 * unit, free, 0, {.fresh_bytes = 0});
    ASSERT_TRUE(few.possible);
    EXPECT_EQ(few.moved, std::vector<range>{free[2].where});
    EXPECT_FALSE(few.waits);
    EXPECT_TRUE(source.plan(8 * unit, free, 0, {.fresh_bytes = 0}).waits);
}

TEST_F(VirtualSource, what_is_too_much_of_a_piece_that_moves_goes_back_when_little_is_left) {
    auto options = pieces_of(16);
    options.maximum_bytes = 48 * unit;
    virtual_source source(*driver, 0, options);
    const range all = grown(source, 48);
    const std::vector<free_range> free{{{all.address, 16 * unit}, true, 1}};
    const auto plan = source.plan(6 * unit, free, 0, {});
    ASSERT_TRUE(plan.possible);
    EXPECT_EQ(plan.fitting_bytes, unit);
    const auto done = source.remap(plan);
    ASSERT_TRUE(done.status.ok());
    EXPECT_EQ(done.ranges.at(0).size_bytes, 6 * unit);
    EXPECT_EQ(source.counts().create_calls, 3u + 1u);
    EXPECT_EQ(source.counts().release_calls, 1u);
    EXPECT_EQ(source.held_bytes(), 38 * unit);
    write(done.ranges.at(0), 4);
    EXPECT_EQ(grown(source, 10).size_bytes, 10 * unit) << "and can be had again";
}

TEST_F(VirtualSource, small_pieces_that_move_become_one) {
    virtual_source source(*driver, 0, pieces_of(16));
    range all = grown(source, 1);
    for (int i = 0; i < 4; ++i) all.size_bytes += grown(source, 1).size_bytes;
    const std::vector<free_range> free{{all, true, 1}};
    const auto plan = source.plan(8 * unit, free, 0, {.fresh_bytes = 3 * unit});
    ASSERT_TRUE(plan.possible);
    EXPECT_EQ(plan.num_moved, 5u);
    const auto done = source.remap(plan);
    ASSERT_TRUE(done.status.ok());
    EXPECT_EQ(source.counts().create_calls, 5u + 2u) << "what is fresh, and what was melted";
    EXPECT_EQ(source.counts().release_calls, 5u);
    EXPECT_EQ(source.held_bytes(), 8 * unit);
    write(done.ranges.at(0), 5);
    EXPECT_EQ(source.piece_across(done.ranges[0].address + unit), (range{done.ranges[0].address, 5 * unit}));
}

TEST_F(VirtualSource, a_piece_is_cut_in_two_where_it_is) {
    virtual_source source(*driver, 0, pieces_of(16));
    const range all = grown(source, 32);
    write({all.address + 16 * unit, 16 * unit}, 7);
    const range first{all.address, 16 * unit};
    EXPECT_EQ(source.piece_across(all.address).size_bytes, 0u);
    EXPECT_EQ(source.piece_across(first.end()).size_bytes, 0u);
    EXPECT_EQ(source.piece_across(all.end()).size_bytes, 0u);
    EXPECT_EQ(source.piece_across(first.end() - 1), first);
    const auto done = source.cut(all.address + 5 * unit);
    ASSERT_TRUE(done.status.ok());
    EXPECT_EQ(done.mapped, first);
    write(first, 8);
    EXPECT_TRUE(reads({all.address + 16 * unit, 16 * unit}, 7)) << "the piece behind is untouched";
    EXPECT_EQ(source.removable({all.address + 5 * unit, 11 * unit}).size_bytes, 11 * unit);
    EXPECT_EQ(source.held_bytes(), 32 * unit);
    EXPECT_EQ(source.mapped_bytes(), 32 * unit);
    EXPECT_EQ(source.cut(first.end()).status.code, Code::invalid_argument) << "no piece is across it";
    EXPECT_EQ(source.cut(all.address + unit / 2).status.code, Code::invalid_argument);
}

TEST_F(VirtualSource, trimmed_pieces_go_back_to_the_driver_and_their_addresses_are_used_again) {
    virtual_source source(*driver, 0, pieces_of(4));
    const std::size_t before = device_free(*driver);
    const range all = grown(source, 12);
    const auto t = source.trim({all.address + 4 * unit, 8 * unit});
    EXPECT_TRUE(t.status.ok());
    EXPECT_EQ(t.released_bytes, 8 * unit);
    EXPECT_EQ(t.left.size_bytes, 0u);
    EXPECT_EQ(source.held_bytes(), 4 * unit);
    EXPECT_EQ(before - device_free(*driver), 4 * unit);
    EXPECT_EQ(grown(source, 8).address, all.address + 4 * unit) << "growth goes on where it ended";
    EXPECT_EQ(source.trim({all.address + unit, 4 * unit}).status.code, Code::invalid_argument);
    EXPECT_EQ(source.trim({all.address, 5 * unit}).status.code, Code::invalid_argument);
    EXPECT_EQ(source.mapped_bytes(), 12 * unit);
}

TEST_F(VirtualSource, a_plan_that_is_out_of_date_is_refused_and_changes_nothing) {
    virtual_source source(*driver, 0, pieces_of(4));
    const range all = grown(source, 8);
    const std::vector<free_range> free{{all}};
    auto plan = source.plan(9 * unit, free, 0, {});
    ASSERT_TRUE(plan.possible);
    grown(source, 1);  // takes the addresses that the plan wanted
    ASSERT_EQ(plan.where, side::behind);
    EXPECT_FALSE(source.remap(plan).status.ok());
    plan.moved = {{all.address + unit, unit}};
    const auto refused = source.remap(plan);
    EXPECT_EQ(refused.status.code, Code::invalid_argument);
    EXPECT_EQ(refused.ranges, plan.moved) << "still there";
    EXPECT_EQ(source.held_bytes(), 9 * unit);
}

TEST(VirtualSourceDriver, without_virtual_memory_every_call_says_so) {
    ScriptedOptions options;
    options.capabilities.virtual_memory = false;
    ScriptedDriver driver(options);
    virtual_source source(driver, 0);
    EXPECT_EQ(source.status().code, Code::not_supported);
    EXPECT_EQ(source.grow(unit).status.code, Code::not_supported);
    EXPECT_EQ(source.remap({}).status.code, Code::not_supported);
    EXPECT_EQ(source.trim({0, unit}).status.code, Code::not_supported);
    EXPECT_FALSE(source.plan(unit, {}, 0, {}).possible);
    EXPECT_FALSE(source.contains(0));
}

TEST(VirtualSourceDriver, addresses_are_halved_until_the_driver_gives_them) {
    ScriptedDriver driver;
    driver.fail_call("reserve_addresses", 1, Code::out_of_memory);
    driver.fail_call("reserve_addresses", 2, Code::out_of_memory);
    virtual_source source(driver, 0, {.address_factor = 16});
    EXPECT_TRUE(source.status().ok());
    EXPECT_EQ(source.reserved_bytes(), std::size_t{4} * (64 << 20));
    driver.fail_call("reserve_addresses", 1, Code::device_lost);
    EXPECT_EQ(virtual_source(driver, 0).status().code, Code::device_lost);
}

TEST(VirtualSourceDriver, peers_are_asked_once_and_a_peer_that_cannot_answer_is_left_out) {
    ScriptedOptions options;
    options.num_devices = 3;
    ScriptedDriver driver(options);
    driver.fail_call("can_access_peer", 1, Code::unknown);
    virtual_source source(driver, 1);
    EXPECT_EQ(driver.count("can_access_peer"), 2u);
    EXPECT_TRUE(source.grow(4 * unit).status.ok());
    EXPECT_EQ(driver.count("can_access_peer"), 2u);
}

/// Blocks of whole units in free ranges of a source, the way a pool uses it; every live block is marked and checked.
class Churn {
  public:
    Churn(Driver& driver, const virtual_source_options& options, unsigned seed)
        : driver_(driver), source(driver, 0, options), before_(device_free(driver)), random_(seed) {}

    bool allocate(std::size_t units, std::size_t eager_bytes) {
        auto fit = fitting(units);
        if (fit == free_.end()) {
            std::vector<free_range> free;
            for (const auto& [address, size] : free_) free.push_back({{address, size}, random_() % 4 != 0});
            const auto plan = source.plan(units * unit, free, 0, {.eager_fresh_bytes = eager_bytes});
            if (!plan.possible) return false;
            for (const range& m : plan.moved) remove(m);
            const auto done = source.remap(plan);
            EXPECT_TRUE(done.status.ok());
            EXPECT_EQ(done.ranges.size(), 1u);
            for (const range& r : done.ranges) add(r);
            fit = fitting(units);
            EXPECT_NE(fit, free_.end()) << "what was planned fits";
            if (fit == free_.end()) return false;
        }
        const range block{fit->first, units * unit};
        remove(block);
        live.emplace_back(block, random_());
        write(block, live.back().second);
        return true;
    }
    void free_one() {
        if (live.empty()) return;
        const std::size_t i = random_() % live.size();
        EXPECT_TRUE(reads(live[i].first, live[i].second)) << "nobody moves what is in use";
        add(live[i].first);
        live[i] = live.back();
        live.pop_back();
    }
    void trim_one() {
        if (free_.empty()) return;
        auto at = std::next(free_.begin(), static_cast<std::ptrdiff_t>(random_() % free_.size()));
        const range part = source.removable({at->first, at->second});
        if (part.size_bytes == 0) return;
        remove(part);
        EXPECT_TRUE(source.trim(part).status.ok());
    }
    void check() {
        std::size_t mapped = 0;
        for (const auto& [address, size] : free_) mapped += size;
        for (const auto& [block, value] : live) mapped += block.size_bytes;
        ASSERT_EQ(source.mapped_bytes(), mapped);
        ASSERT_EQ(source.held_bytes(), mapped) << "nothing is spare unless something failed";
        ASSERT_LE(source.held_bytes(), source.maximum_bytes());
        ASSERT_EQ(before_ - device_free(driver_), source.held_bytes());
    }
    std::size_t live_bytes() const {
        std::size_t sum = 0;
        for (const auto& [block, value] : live) sum += block.size_bytes;
        return sum;
    }
    unsigned long next() { return random_(); }

  private:
    std::map<std::uintptr_t, std::size_t>::iterator fitting(std::size_t units) {
        auto best = free_.end();
        for (auto at = free_.begin(); at != free_.end(); ++at)
            if (at->second >= units * unit && (best == free_.end() || at->second < best->second)) best = at;
        return best;
    }
    void add(range r) {
        auto at = free_.emplace(r.address, r.size_bytes).first;
        if (auto next = std::next(at); next != free_.end() && next->first == r.end()) {
            at->second += next->second;
            free_.erase(next);
        }
        if (at == free_.begin()) return;
        auto previous = std::prev(at);
        if (previous->first + previous->second != at->first) return;
        previous->second += at->second;
        free_.erase(at);
    }
    void remove(range r) {
        auto at = std::prev(free_.upper_bound(r.address));
        const range whole{at->first, at->second};
        ASSERT_LE(r.end(), whole.end());
        free_.erase(at);
        if (whole.address < r.address) free_.emplace(whole.address, r.address - whole.address);
        if (r.end() < whole.end()) free_.emplace(r.end(), whole.end() - r.end());
    }

    Driver& driver_;

  public:
    virtual_source source;
    std::vector<std::pair<range, std::uint64_t>> live;

  private:
    std::size_t before_;
    std::mt19937 random_;
    std::map<std::uintptr_t, std::size_t> free_;
};

TEST_F(VirtualSource, live_memory_stays_as_it_is_through_random_growth_moves_and_trims) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
        auto options = pieces_of(8);
        options.maximum_bytes = 128 * unit;
        Churn churn(*driver, options, seed);
        for (int step = 0; step < 1500; ++step) {
            const std::size_t units = std::size_t{1} << churn.next() % 6;
            const auto dice = churn.next() % 100;
            if (dice < 55)
                churn.allocate(units, dice < 20 ? 8 * unit : 0);
            else if (dice < 97)
                churn.free_one();
            else
                churn.trim_one();
            ASSERT_NO_FATAL_FAILURE(churn.check()) << "seed " << seed << " step " << step;
        }
        EXPECT_GT(churn.source.counts().remaps, 10u);
    }
}

TEST_F(VirtualSource, blocks_of_whole_pieces_can_always_use_all_memory) {
    auto options = pieces_of(1);
    options.maximum_bytes = 64 * unit;
    Churn churn(*driver, options, 5);
    for (int round = 0; round < 300; ++round) {
        const std::size_t units = 1 + churn.next() % 16;
        while (churn.live_bytes() + units * unit > 64 * unit) churn.free_one();
        ASSERT_TRUE(churn.allocate(units, 0)) << "enough is free, and every piece of it can be moved";
    }
    ASSERT_NO_FATAL_FAILURE(churn.check());
}

TEST_F(VirtualSource, addresses_do_not_run_out_in_a_long_churn) {
    auto options = pieces_of(4);
    options.maximum_bytes = 32 * unit;
    options.address_factor = 4;
    Churn churn(*driver, options, 9);
    for (int round = 0; round < 20000; ++round) {
        const std::size_t units = 1 + churn.next() % 12;
        while (churn.live_bytes() + units * unit > 20 * unit) churn.free_one();
        (void)churn.allocate(units, 0);  // may find too little that can be moved, never too few addresses (see check)
        if (round % 1000 == 0) {
            ASSERT_NO_FATAL_FAILURE(churn.check());
        }
    }
    EXPECT_GT(churn.source.counts().remaps, 500u);
}

TEST_F(VirtualSource, a_steady_sweep_maps_nothing) {
    auto options = pieces_of(16);
    options.maximum_bytes = 64 * unit;
    Churn churn(*driver, options, 2);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(churn.allocate(6, 0));
    const auto maps = churn.source.counts().map_calls;
    for (int i = 0; i < 500; ++i) {
        churn.free_one();
        ASSERT_TRUE(churn.allocate(6, 0));
    }
    EXPECT_EQ(churn.source.counts().map_calls, maps);
}

}  // namespace
