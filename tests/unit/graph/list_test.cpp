// Lists of a record, and sets of fences: in the memory that comes with them, and beyond it.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "blocks_freed.hpp"
#include "kmm/graph/list.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/graph/task.hpp"

namespace {

using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::List;
using kmm::graph::RecordMemory;

struct Record {
    RecordMemory memory;
    List<std::uint64_t> numbers{memory};
    List<char> letters{memory};
    alignas(16) std::byte bytes[64];

    Record() { memory.adopt(bytes, sizeof bytes); }
    bool has(const void* p) const {
        const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(bytes);
        return at < sizeof bytes;
    }
};

TEST(List, keeps_what_was_added_wherever_it_grows) {
    for (const std::size_t count : {1u, 3u, 8u, 9u, 100u, 3000u, 70'001u}) {
        Record r;
        for (std::size_t i = 0; i < count; ++i) {
            r.numbers.push_back(i);
            if (i % 3 == 0) r.letters.emplace_back(static_cast<char>('a' + i % 26));
        }
        ASSERT_EQ(r.numbers.size(), count);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(r.numbers[i], i);
        for (std::size_t i = 0; i < r.letters.size(); ++i) ASSERT_EQ(r.letters[i], static_cast<char>('a' + 3 * i % 26));
    }
}

TEST(List, lies_in_the_record_as_far_as_there_is_room) {
    Record r;
    r.numbers.reserve(4);
    r.numbers = {1, 2, 3, 4};
    r.letters = {'x'};
    EXPECT_TRUE(r.has(r.numbers.begin()));
    EXPECT_TRUE(r.has(r.letters.begin()));
    r.numbers.push_back(5);
    EXPECT_FALSE(r.has(r.numbers.begin()));
    r.numbers.forget();
    r.letters.forget();
    r.memory.clear();
    r.numbers.push_back(6);
    EXPECT_TRUE(r.has(r.numbers.begin()));
}

TEST(List, has_room_for_whatever_is_reserved_and_at_most_a_thousandth_more) {
    Record r;
    for (std::size_t count = 1; count < (std::size_t{1} << 26); count = count * 9 / 8 + 1) {
        List<char>& list = r.letters;
        list.forget();
        r.memory.clear();
        list.reserve(count);
        EXPECT_GE(list.capacity(), count);
        EXPECT_LE(list.capacity(), count + count / 1024 + 1);
        list.resize(count);
        EXPECT_EQ(list.size(), count);
        EXPECT_EQ(list.back(), 0);
    }
}

TEST(List, appends_and_adds_an_element_of_its_own) {
    Record r;
    const std::vector<std::uint64_t> some{7, 8, 9};
    r.numbers.append(some.data(), some.size());
    r.numbers.append(some.data(), 0);
    for (int i = 0; i < 20; ++i) r.numbers.push_back(r.numbers.front());
    EXPECT_EQ(std::accumulate(r.numbers.begin(), r.numbers.end(), std::uint64_t{0}), 24 + 20 * 7);
}

// What a list leaves behind when it grows stays until the record is cleared.
TEST(List, grows_seldom_however_it_is_appended_to) {
    Record r;
    const std::vector<std::uint64_t> some{1, 2, 3};
    std::size_t times_moved = 0;
    const std::uint64_t* at = nullptr;
    for (int i = 0; i < 30'000; ++i) {
        r.numbers.append(some.data(), some.size());
        times_moved += r.numbers.data() != at ? 1 : 0;
        at = r.numbers.data();
    }
    EXPECT_EQ(r.numbers.size(), 90'000u);
    EXPECT_LE(times_moved, 20u);
}

TEST(List, gives_the_host_back_what_it_grew_out_of_if_that_was_the_latest_block) {
    Record r;
    const int before = kmm_test::blocks_freed;
    for (std::uint64_t i = 0; i < 1000; ++i) r.numbers.push_back(i);
    // Capacities are powers of two, of which the record has room for those up to 4.
    EXPECT_EQ(kmm_test::blocks_freed - before, 7);
    r.letters.reserve(1000);
    r.numbers.reserve(2000);
    EXPECT_EQ(kmm_test::blocks_freed - before, 7) << "the block of the letters is the latest";
    r.numbers.reserve(3000);
    EXPECT_EQ(kmm_test::blocks_freed - before, 8);
    for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(r.numbers[i], i);
    r.memory.clear();
    EXPECT_EQ(kmm_test::blocks_freed - before, 11);
}

TEST(List, keeps_a_block_that_it_shares_with_lists_that_were_made_together) {
    kmm::graph::Task task;
    const int before = kmm_test::blocks_freed;
    task.make_room(2, true);
    for (std::uint32_t i = 0; i < 2; ++i) {
        task.uses.emplace_back().content_at = i;
        task.views.emplace_back().use = i;
        task.predecessors.emplace_back(i, true);
    }
    task.uses.resize(3);
    EXPECT_EQ(kmm_test::blocks_freed, before);
    for (std::uint32_t i = 0; i < 2; ++i) {
        EXPECT_EQ(task.uses[i].content_at, i);
        EXPECT_EQ(task.views[i].use, i);
        EXPECT_EQ(task.predecessors[i].number, i);
    }
}

TEST(RecordMemory, gives_any_alignment) {
    Record r;
    for (const std::size_t alignment : {1u, 8u, 16u, 32u, 64u, 4096u})
        for (const std::size_t bytes : {1u, 15u, 40u, 5000u}) {
            auto* const p = static_cast<std::byte*>(r.memory.take(bytes, alignment, false));
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % alignment, 0u);
            std::fill_n(p, bytes, std::byte{1});
        }
    EXPECT_THROW((void)r.memory.take(~std::size_t{0} - 8, 16, false), std::bad_alloc);
}

// Against a map.
TEST(FenceSet, keeps_the_latest_position_of_each_lane) {
    std::mt19937 random(1);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    for (int round = 0; round < 300; ++round) {
        FenceSet set, other;
        std::map<std::uint16_t, std::uint64_t> model;
        const std::uint32_t lanes = 1 + below(9);
        for (int step = 0; step < 40; ++step) {
            const std::uint32_t what = below(10);
            if (what == 0) {
                const std::uint64_t limit = (std::uint64_t{1} << 40) + below(100);
                set.prune([&](const Fence& f) { return f.position <= limit; });
                std::erase_if(model, [&](const auto& entry) { return entry.second <= limit; });
            } else if (what == 1) {
                other = set;
                set.clear();
                set.add(other);
            } else if (what == 2) {
                other = std::move(set);
                set = FenceSet(other);
            } else {
                const auto lane = static_cast<std::uint16_t>(below(lanes));
                const std::uint64_t position = (std::uint64_t{1} << 40) + below(100);
                set.add({LaneId{lane}, position});
                std::uint64_t& kept = model[lane];
                kept = std::max(kept, position);
            }
            std::map<std::uint16_t, std::uint64_t> is;
            for (const Fence& f : set)
                ASSERT_TRUE(is.emplace(static_cast<std::uint16_t>(f.lane), std::uint64_t{f.position}).second);
            ASSERT_EQ(is, model);
            ASSERT_EQ(set.size(), model.size());
            ASSERT_EQ(set.view().size(), model.size());
        }
    }
}

}  // namespace
