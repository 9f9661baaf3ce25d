// What many tasks, and many accesses of one, cost a plan: pairs that are compared and entries of lists, for n of them
// and for 2n.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "planned_arrays.hpp"

namespace kmm::plan_test {
namespace {

TEST(Planner, of_very_many_halos_each_costs_the_same) {
    std::size_t compared[2];
    for (const std::uint32_t doubled : {0u, 1u}) {
        const std::uint32_t count = 5'000 << doubled;
        TestArray array(10 * count, 10);
        array.all_written();
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < count; i++) {
            const std::int64_t at = 10 * std::int64_t{i};
            requests.push_back(request(
                array, read, line(std::max<std::int64_t>(0, at - 1), std::min(at + 11, 10 * std::int64_t{count})), i));
            requests.push_back(request(array, write, line(at, at + 10), i));
        }
        Planner plan;
        ASSERT_TRUE(plan.make(requests));
        EXPECT_EQ(plan.temporaries().size(), count);
        compared[doubled] = plan.num_compared();
    }
    EXPECT_LT(static_cast<double>(compared[1]), 2.2 * static_cast<double>(compared[0]) + 1);
}

TEST(Planner, of_tasks_with_many_accesses_owes_nothing_to_those_before) {
    constexpr std::size_t accesses = 24;
    Planner plan;  // threads keep one for all their submits
    for (int submit = 0; submit < 1000; submit++) {
        std::vector<std::unique_ptr<TestArray>> arrays;
        std::vector<Request> requests;
        for (std::size_t i = 0; i < accesses; i++) {
            arrays.push_back(std::make_unique<TestArray>(16, 16));
            requests.push_back(request(*arrays.back(), write, line(0, 16), 0));
        }
        ASSERT_TRUE(plan.make(requests));
        for (std::size_t i = 0; i < accesses; i++)
            ASSERT_TRUE(plan.needs()[i].first_of_chunk) << i << " in submit " << submit;
    }
}

/// `make` for n tasks that each name a region of an array of n chunks, and for twice as many. Counts pairs that are
/// compared, and entries of lists.
template<typename RegionOf>
void expect_cost_in_proportion(AccessKind kind, bool is_written, Reason reason, RegionOf region_of) {
    std::size_t cost[2];
    for (const std::uint32_t doubled : {0u, 1u}) {
        const std::uint32_t count = 1'000 << doubled;
        TestArray array(10 * count, 10);
        if (is_written) array.all_written();
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < count; i++)
            requests.push_back(request(array, kind, region_of(i, 10 * std::int64_t{count}), i));
        Planner plan;
        EXPECT_EQ(plan.make(requests), reason == Reason::none);
        EXPECT_EQ(plan.refusal().reason, reason);
        cost[doubled] = plan.num_compared() + plan.num_listed();
    }
    EXPECT_GE(cost[0], 1'000u) << "nothing was counted";
    EXPECT_LE(static_cast<double>(cost[1]), 2.2 * static_cast<double>(cost[0])) << cost[0];
}

const auto the_whole = [](std::uint32_t, std::int64_t size) { return line(0, size); };
const auto as_far_as_itself = [](std::uint32_t i, std::int64_t) { return line(0, 10 * std::int64_t{i} + 10); };

TEST(Planner, a_region_that_many_tasks_read_has_its_pieces_once) {
    expect_cost_in_proportion(read, true, Reason::none, the_whole);
    TestArray array(100, 10);
    array.all_written();
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 30; i++)
        requests.push_back(request(array, read, line(0, 100), i, i % 3 == 2 ? gpu : host));
    Planner plan;
    ASSERT_TRUE(plan.make(requests));
    ASSERT_EQ(plan.temporaries().size(), 2u) << "one in each memory";
    for (std::uint32_t i = 0; i < 30; i++) EXPECT_EQ(plan.needs()[i].temporary, i % 3 == 2 ? 1u : 0u);
    EXPECT_EQ(plan.temporaries()[1].request, 2u);
    EXPECT_EQ(plan.num_listed(), 2u * 10 + 2);
}

TEST(Planner, that_many_tasks_write_a_region_of_many_chunks_is_refused_without_a_list_of_them) {
    for (const AccessKind kind : {write, overwrite}) {
        expect_cost_in_proportion(kind, true, Reason::conflict, the_whole);
        expect_cost_in_proportion(kind, true, Reason::conflict, as_far_as_itself);
    }
}

TEST(Planner, that_many_tasks_read_what_was_never_written_is_refused_without_a_list_of_it) {
    expect_cost_in_proportion(read, false, Reason::unwritten, the_whole);
    expect_cost_in_proportion(read, false, Reason::unwritten, as_far_as_itself);
}

TEST(Planner, the_first_of_many_requests_that_reads_what_was_never_written_is_named) {
    constexpr std::uint32_t count = 40;
    TestArray array(10 * count, 10);
    for (std::uint32_t chunk = 0; chunk < count; chunk++)
        if (chunk != 3) array.written(line(10 * chunk, 10 * chunk + 10));
    const auto make = [&](std::uint32_t first_whole, std::uint32_t reads_in_place) {
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < count; i++)
            requests.push_back(request(array, read,
                                       i == reads_in_place ? line(32, 35)
                                       : i >= first_whole  ? line(0, 10 * count)
                                                           : line(50, 70),
                                       i));
        Planner plan;
        EXPECT_FALSE(plan.make(requests));
        return plan;
    };
    expect_refused(make(5, count), Reason::unwritten, 5);
    expect_region(make(5, count), 30, 40);
    expect_refused(make(5, 2), Reason::unwritten, 2);
    expect_region(make(5, 2), 32, 35);
    expect_refused(make(5, 7), Reason::unwritten, 5);
}

TEST(Planner, of_very_many_accesses_of_one_task_each_that_is_first_of_its_chunk_is_found) {
    constexpr std::uint32_t count = 3'000;
    TestArray array(10 * count, 10), other(10, 10);
    array.all_written();
    other.all_written();
    std::mt19937 random(5);
    std::vector<Request> requests;
    std::vector<std::int64_t> regions;  // by request: its begin
    for (std::uint32_t task = 0; task < 3; task++) {
        requests.push_back(request(other, read, line(0, 10), task));
        regions.push_back(-1);
        for (std::uint32_t i = 0; i < count; i++) {
            const std::int64_t at = 5 * static_cast<std::int64_t>(random() % (2 * count - 2));
            requests.push_back(request(array, read, line(at, at + 10), task));
            regions.push_back(at);
        }
    }
    Planner plan;
    ASSERT_TRUE(plan.make(requests));
    std::size_t num_first = 0;
    for (std::size_t begin = 0; begin < requests.size(); begin += count + 1) {
        std::set<std::int64_t> seen;
        for (std::size_t i = begin; i <= begin + count; i++) {
            const bool is_first = seen.insert(regions[i]).second;
            ASSERT_EQ(plan.needs()[i].first_of_chunk, is_first) << i;
            num_first += is_first ? 1 : 0;
        }
    }
    EXPECT_GT(num_first, count) << "many chunks and temporaries";
    EXPECT_LT(num_first, requests.size() - 1000) << "many are used again";
}

TEST(Planner, of_a_task_that_reads_very_many_regions_across_chunks_none_is_chosen_late) {
    for (const std::uint32_t count : {16u, 17u}) {
        TestArray array(10 * (count + 1), 10);
        array.all_written();
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < count; i++)
            requests.push_back(request(array, read, line(10 * i + 5, 10 * i + 15), 0, gpu));
        Planner plan;
        ASSERT_TRUE(plan.make(requests));
        for (const Temporary& t : plan.temporaries()) EXPECT_EQ(t.chosen_late, count == 16u);
    }
}

TEST(Planner, naming_a_conflict_of_the_last_of_many_costs_in_proportion) {
    expect_cost_in_proportion(overwrite, false, Reason::conflict, [](std::uint32_t i, std::int64_t size) {
        const std::int64_t at = 10 * std::int64_t{i};
        return at + 20 == size ? line(at + 5, at + 15) : line(at, at + 10);
    });
}

}  // namespace
}  // namespace kmm::plan_test
