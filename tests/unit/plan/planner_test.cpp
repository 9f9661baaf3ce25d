// What a submit needs of its arrays' chunks, and why one is refused; alone and against a model that looks at every
// element.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <utility>

#include "planned_arrays.hpp"

namespace kmm::plan_test {
namespace {

// ---------------------------------------------------------------------------------------------------- one access

TEST(Planner, a_region_is_met_in_place_in_its_chunk_at_its_offset) {
    TestArray a(2, box(0, 6, 0, 10), {box(0, 3, 0, 5), box(0, 3, 5, 10), box(3, 6, 0, 5), box(3, 6, 5, 10)});
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, box(4, 6, 7, 9)), request(a, read, box(0, 3, 5, 10))}));
    ASSERT_EQ(plan.needs().size(), 2u);
    const Need& part = plan.needs()[0];
    EXPECT_EQ(part.form, Form::in_place);
    EXPECT_EQ(part.chunk, 3u);
    EXPECT_EQ(part.offset, 1u * 5 + 2);
    EXPECT_FALSE(part.whole_chunk);
    const Need& whole = plan.needs()[1];
    EXPECT_EQ(whole.chunk, 1u);
    EXPECT_EQ(whole.offset, 0u);
    EXPECT_TRUE(whole.whole_chunk);
}

TEST(Planner, a_scalar_is_one_whole_chunk) {
    TestArray a(0, Box(), {Box()});
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, overwrite, Box())}));
    EXPECT_EQ(plan.needs()[0].form, Form::in_place);
    EXPECT_TRUE(plan.needs()[0].whole_chunk);
    EXPECT_EQ(plan.needs()[0].offset, 0u);
}

TEST(Planner, an_empty_region_needs_nothing_wherever_it_lies) {
    TestArray a(30, 10);
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, line(25, 25)), request(a, write, line(15, 5))}));
    for (const Need& need : plan.needs()) {
        EXPECT_EQ(need.form, Form::nothing);
        EXPECT_FALSE(need.first_of_chunk || need.needs_content || need.writes || need.replaces);
    }
}

TEST(Planner, content_is_needed_by_reads_by_writes_of_what_was_written_and_by_writes_of_parts) {
    TestArray fresh(10, 10), old(10, 10);
    old.all_written();
    struct Case {
        TestArray& array;
        AccessKind kind;
        Box region;
        bool needs_content, writes, replaces;
    };
    const Case cases[] = {
        {old, read, line(0, 10), true, false, false},       {old, read, line(2, 3), true, false, false},
        {old, write, line(0, 10), true, true, true},        {old, write, line(2, 3), true, true, false},
        {old, overwrite, line(0, 10), false, true, true},   {old, overwrite, line(2, 3), true, true, false},
        {fresh, write, line(0, 10), false, true, true},     {fresh, write, line(2, 3), true, true, false},
        {fresh, overwrite, line(0, 10), false, true, true}, {fresh, overwrite, line(2, 3), true, true, false},
    };
    Planner plan;
    for (const Case& c : cases) {
        ASSERT_TRUE(plan.make({request(c.array, c.kind, c.region)}));
        const Need& need = plan.needs()[0];
        const std::size_t i = static_cast<std::size_t>(&c - cases);
        EXPECT_TRUE(need.first_of_chunk) << i;
        EXPECT_EQ(need.needs_content, c.needs_content) << i;
        EXPECT_EQ(need.writes, c.writes) << i;
        EXPECT_EQ(need.replaces, c.replaces) << i;
    }
}

// ---------------------------------------------------------------------------------------------------- several accesses

TEST(Planner, accesses_of_one_task_to_one_chunk_are_told_by_the_first_of_them) {
    TestArray a(20, 10), b(20, 10);
    a.all_written();
    b.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, overwrite, line(0, 4)), request(b, overwrite, line(0, 10)),
                           request(a, overwrite, line(4, 10)), request(a, read, line(10, 20)),
                           request(a, read, line(11, 12)), request(a, overwrite, line(0, 0))}));
    const std::vector<Need>& n = plan.needs();
    EXPECT_TRUE(n[0].first_of_chunk && n[0].needs_content && n[0].writes);
    EXPECT_FALSE(n[0].replaces) << "no single access replaces the chunk";
    EXPECT_TRUE(n[1].first_of_chunk && n[1].writes && n[1].replaces) << "another array";
    EXPECT_FALSE(n[1].needs_content);
    EXPECT_FALSE(n[2].first_of_chunk || n[2].needs_content || n[2].writes);
    EXPECT_EQ(n[2].offset, 4u);
    EXPECT_TRUE(n[3].first_of_chunk && n[3].needs_content);
    EXPECT_FALSE(n[3].writes);
    EXPECT_FALSE(n[4].first_of_chunk);
    EXPECT_EQ(n[4].offset, 1u);
    EXPECT_EQ(n[5].form, Form::nothing);
}

TEST(Planner, each_task_has_a_first_access_of_its_own) {
    TestArray a(20, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, line(0, 10), 0), request(a, read, line(0, 5), 0),
                           request(a, read, line(0, 10), 1), request(a, read, line(3, 5), 1)}));
    EXPECT_TRUE(plan.needs()[0].first_of_chunk);
    EXPECT_FALSE(plan.needs()[1].first_of_chunk);
    EXPECT_TRUE(plan.needs()[2].first_of_chunk);
    EXPECT_FALSE(plan.needs()[3].first_of_chunk);
}

TEST(Planner, a_plan_that_was_refused_can_be_made_again) {
    TestArray a(20, 10);
    Planner plan;
    EXPECT_FALSE(plan.make({request(a, read, line(0, 10)), request(a, overwrite, line(10, 20))}));
    ASSERT_TRUE(plan.make({request(a, overwrite, line(10, 20))}));
    ASSERT_EQ(plan.needs().size(), 1u);
    EXPECT_EQ(plan.needs()[0].chunk, 1u);
    EXPECT_FALSE(plan.needs()[0].needs_content);
    ASSERT_TRUE(plan.make({}));
    EXPECT_TRUE(plan.needs().empty());
}

// ---------------------------------------------------------------------------------------------------- refusals

TEST(Planner, two_writes_of_one_element_are_a_conflict_within_and_between_tasks) {
    TestArray a(30, 10);
    a.all_written();
    Planner plan;
    for (const std::uint32_t task : {0u, 1u}) {
        ASSERT_FALSE(plan.make(
            {request(a, read, line(20, 30)), request(a, write, line(0, 6)), request(a, overwrite, line(4, 10), task)}));
        expect_refused(plan, Reason::conflict, 1, 2);
        expect_region(plan, 4, 6);
    }
}

TEST(Planner, two_writes_that_cross_chunks_may_share_no_element_either) {
    TestArray a(30, 10);
    a.all_written();
    Planner plan;
    ASSERT_FALSE(plan.make(
        {request(a, overwrite, line(5, 15)), request(a, read, line(0, 30)), request(a, overwrite, line(12, 18), 1)}));
    expect_refused(plan, Reason::conflict, 0, 2);
    expect_region(plan, 12, 15);
    EXPECT_TRUE(plan.make({request(a, overwrite, line(5, 12)), request(a, overwrite, line(12, 18), 1)}));
}

TEST(Planner, a_read_of_what_nothing_wrote_is_refused_with_the_part_that_is_missing) {
    TestArray a(20, 10);
    a.written(line(0, 7));
    Planner plan;
    EXPECT_TRUE(plan.make({request(a, read, line(2, 7))}));
    ASSERT_FALSE(plan.make({request(a, read, line(0, 3)), request(a, read, line(5, 9))}));
    expect_refused(plan, Reason::unwritten, 1);
    expect_region(plan, 7, 9);
}

TEST(Planner, a_read_across_chunks_of_which_a_part_was_never_written_is_refused_with_that_part) {
    TestArray a(20, 10);
    a.written(line(0, 10));
    a.written(line(10, 14));
    Planner plan;
    EXPECT_TRUE(plan.make({request(a, read, line(2, 14))}));
    EXPECT_TRUE(plan.make({request(a, write, line(2, 20))})) << "what a write finds may be anything";
    ASSERT_FALSE(plan.make({request(a, read, line(2, 14)), request(a, read, line(5, 16))}));
    expect_refused(plan, Reason::unwritten, 1);
    expect_region(plan, 14, 16);
}

TEST(Planner, of_several_conflicts_the_first_is_told_however_many_accesses_there_are) {
    constexpr std::uint32_t many = 40;
    std::deque<TestArray> arrays;
    for (int i = 0; i < 3; i++) arrays.emplace_back(400, 10);
    Planner plan;
    for (unsigned seed = 0; seed < 100; seed++) {
        std::mt19937 random(seed);
        std::vector<Request> requests;
        for (std::uint32_t task = 0; task < many; task++)
            requests.push_back(request(arrays[random() % 3], overwrite, line(task * 10, task * 10 + 10), task));
        std::optional<std::pair<std::uint32_t, std::uint32_t>> first;
        for (int i = 0; i < 3; i++) {
            auto a = static_cast<std::uint32_t>(random() % many), b = static_cast<std::uint32_t>(random() % many);
            if (a == b) continue;
            requests[a].of = requests[b].of;
            requests[a].region = requests[b].region;
        }
        for (std::uint32_t a = 0; a < many && !first; a++)
            for (std::uint32_t b = a + 1; b < many && !first; b++)
                if (requests[a].of == requests[b].of && kmm::boxes::overlaps(requests[a].region, requests[b].region))
                    first = {a, b};
        ASSERT_EQ(plan.make(requests), !first) << "seed " << seed;
        if (first) expect_refused(plan, Reason::conflict, first->first, first->second);
    }
}

/// Tiles of one line that is one chunk, each written from what is on the right in the other half, in random order.
std::vector<Request> tiles_of(TestArray& array, std::uint32_t count, unsigned seed) {
    std::vector<std::uint32_t> order(count);
    for (std::uint32_t i = 0; i < count; i++) order[i] = i;
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Request> requests;
    for (std::uint32_t task = 0; task < count; task++) {
        const std::int64_t at = 2 * std::int64_t{order[task]};
        requests.push_back(request(array, write, line(at, at + 2), task));
        requests.push_back(request(array, read, line(2 * count + at, 2 * count + at + 4), task));
    }
    return requests;
}

TEST(Planner, very_many_tiles_of_one_chunk_are_not_compared_with_each_other) {
    std::size_t compared[2];
    for (const std::uint32_t doubled : {0u, 1u}) {
        const std::uint32_t count = 10'000 << doubled;
        TestArray array(4 * count + 2, 4 * count + 2);
        array.all_written();
        Planner plan;
        ASSERT_TRUE(plan.make(tiles_of(array, count, 1)));
        compared[doubled] = plan.num_compared();
    }
    EXPECT_LT(static_cast<double>(compared[1]), 2.2 * static_cast<double>(compared[0]));
    EXPECT_LT(compared[1], 20'000u * 100);
}

TEST(Planner, of_many_tiles_of_one_chunk_the_first_pair_that_is_refused_is_found) {
    constexpr std::uint32_t count = 50;
    TestArray array(4 * count + 2, 4 * count + 2);
    array.all_written();
    Planner plan;
    std::size_t refused = 0;
    for (unsigned seed = 0; seed < 200; seed++) {
        std::mt19937 random(seed);
        std::vector<Request> requests = tiles_of(array, count, seed);
        for (unsigned changes = seed % 3; changes > 0; changes--) {
            Request& r = requests[random() % requests.size()];
            r.region = line(static_cast<std::int64_t>(random() % (4 * count)), 4 * count + 2);
        }
        Reason expected = Reason::none;
        std::uint32_t first = 0, second = 0;
        std::vector<bool> keeps_snapshot(requests.size(), false);
        for (std::uint32_t a = 0; a < requests.size() && expected == Reason::none; a++)
            for (std::uint32_t b = a + 1; b < requests.size() && expected == Reason::none; b++) {
                const bool a_writes = requests[a].kind == write, b_writes = requests[b].kind == write;
                if (!kmm::boxes::overlaps(requests[a].region, requests[b].region)) continue;
                if (a_writes && b_writes) {
                    expected = Reason::conflict;
                    first = a, second = b;
                } else if (a_writes || b_writes) {
                    keeps_snapshot[a_writes ? b : a] = true;
                }
            }
        ASSERT_EQ(plan.make(requests), expected == Reason::none) << "seed " << seed;
        if (expected == Reason::none) {
            for (std::size_t i = 0; i < requests.size(); i++)
                ASSERT_EQ(plan.needs()[i].form, keeps_snapshot[i] ? Form::temporary : Form::in_place)
                    << "seed " << seed << " request " << i;
            continue;
        }
        refused++;
        expect_refused(plan, expected, first, second);
    }
    EXPECT_GT(refused, 50u);
}

// ---------------------------------------------------------------------------------------------------- temporaries

TEST(Planner, a_read_that_crosses_chunks_is_gathered_from_its_parts) {
    TestArray a(30, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, line(0, 10)), request(a, read, line(8, 21), 0, gpu)}));
    EXPECT_EQ(plan.needs()[0].form, Form::in_place);
    const Need& need = plan.needs()[1];
    ASSERT_EQ(need.form, Form::temporary);
    EXPECT_TRUE(need.first_of_chunk && need.needs_content);
    EXPECT_FALSE(need.writes || need.replaces);
    ASSERT_EQ(plan.temporaries().size(), 1u);
    const Temporary& t = plan.temporaries()[0];
    EXPECT_EQ(t.request, 1u);
    EXPECT_TRUE(t.is_filled);
    EXPECT_FALSE(t.is_written || t.is_snapshot);
    ASSERT_EQ(t.num_pieces, 3u);
    const auto pieces = plan.pieces(t);
    for (std::uint32_t i = 0; i < 3; i++) EXPECT_EQ(pieces[i].chunk, i);
    EXPECT_TRUE(kmm::boxes::equal(pieces[0].box, line(8, 10)));
    EXPECT_TRUE(kmm::boxes::equal(pieces[1].box, line(10, 20)));
    EXPECT_TRUE(kmm::boxes::equal(pieces[2].box, line(20, 21)));
}

TEST(Planner, a_region_across_rows_of_chunks_may_be_read_in_place_if_it_leaves_little_of_them_out) {
    TestArray rows(2, box(0, 20, 0, 64), {box(0, 10, 0, 64), box(10, 20, 0, 64)});
    TestArray tiles(2, box(0, 10, 0, 64), {box(0, 10, 0, 32), box(0, 10, 32, 64)});
    rows.all_written();
    tiles.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(rows, read, box(5, 15, 1, 63), 0, gpu)}));
    EXPECT_TRUE(plan.temporaries()[0].may_be_in_place);
    ASSERT_TRUE(plan.make({request(rows, read, box(5, 15, 1, 33), 0, gpu)}));
    EXPECT_TRUE(plan.temporaries()[0].chosen_late);
    EXPECT_FALSE(plan.temporaries()[0].may_be_in_place) << "half of each row";
    ASSERT_TRUE(plan.make({request(tiles, read, box(5, 9, 0, 64), 0, gpu)}));
    EXPECT_TRUE(plan.temporaries()[0].chosen_late);
    EXPECT_FALSE(plan.temporaries()[0].may_be_in_place) << "chunks side by side along the fastest axis";
    ASSERT_TRUE(plan.make({request(rows, read, box(5, 15, 0, 64), 0, host)}));
    EXPECT_FALSE(plan.temporaries()[0].chosen_late) << "on the host a transfer fills it";
}

TEST(Planner, what_several_tasks_read_in_one_memory_is_gathered_once) {
    TestArray a(30, 10), b(30, 10);
    a.all_written();
    b.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, line(0, 30), 0, gpu), request(a, read, line(0, 30), 0, gpu),
                           request(a, read, line(0, 30), 1, gpu), request(a, read, line(0, 30), 2, gpu_1),
                           request(b, read, line(0, 30), 2, gpu_1), request(a, read, line(0, 29), 3, gpu)}));
    EXPECT_EQ(plan.temporaries().size(), 4u);
    const std::uint32_t expected[] = {0, 0, 0, 1, 2, 3};
    const bool is_first[] = {true, false, true, true, true, true};
    for (std::size_t i = 0; i < 6; i++) {
        EXPECT_EQ(plan.needs()[i].temporary, expected[i]) << i;
        EXPECT_EQ(plan.needs()[i].first_of_chunk, is_first[i]) << i;
    }
}

TEST(Planner, a_write_that_crosses_chunks_works_beside_them_and_is_written_back) {
    TestArray a(30, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, overwrite, line(5, 15)), request(a, write, line(15, 25), 1, gpu)}));
    ASSERT_EQ(plan.temporaries().size(), 2u);
    EXPECT_TRUE(plan.temporaries()[0].is_written && plan.temporaries()[1].is_written);
    EXPECT_FALSE(plan.temporaries()[0].is_filled) << "overwrite moves nothing that was there";
    EXPECT_TRUE(plan.temporaries()[1].is_filled);
    EXPECT_FALSE(plan.needs()[0].needs_content);
    EXPECT_TRUE(plan.needs()[1].needs_content);
    for (const Need& need : plan.needs()) EXPECT_TRUE(need.first_of_chunk && need.writes && need.replaces);
    const auto second = plan.pieces(plan.temporaries()[1]);
    EXPECT_EQ(second[0].memory, host) << "the first request that writes chunk 1 writes it on the host";
    EXPECT_EQ(second[1].memory, gpu);
}

TEST(Planner, a_read_of_what_the_same_submit_writes_keeps_a_snapshot_in_either_order) {
    TestArray a(30, 10);
    a.all_written();
    Planner plan;
    for (const bool writes_first : {false, true}) {
        const Request reads = request(a, read, line(0, 6), writes_first), writes = request(a, write, line(4, 10));
        ASSERT_TRUE(plan.make(writes_first ? std::vector{writes, reads} : std::vector{reads, writes}));
        ASSERT_EQ(plan.temporaries().size(), 1u);
        const Temporary& t = plan.temporaries()[0];
        EXPECT_TRUE(t.is_snapshot && t.is_filled);
        EXPECT_FALSE(t.is_written);
        ASSERT_EQ(t.num_pieces, 1u);
        EXPECT_TRUE(kmm::boxes::equal(plan.pieces(t)[0].box, line(0, 6)));
        EXPECT_EQ(plan.needs()[writes_first ? 0 : 1].form, Form::in_place);
    }
    ASSERT_TRUE(plan.make({request(a, overwrite, line(4, 10)), request(a, read, line(0, 4))}));
    EXPECT_TRUE(plan.temporaries().empty()) << "nothing in common";
    ASSERT_TRUE(plan.make({request(a, overwrite, line(4, 15)), request(a, read, line(0, 6), 1)}));
    EXPECT_EQ(plan.needs()[1].form, Form::in_place) << "what is written back comes after what is read in place";
}

TEST(Planner, of_the_parts_of_a_chunk_those_of_one_memory_are_written_in_place) {
    TestArray a(20, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, overwrite, line(0, 3), 0, gpu), request(a, overwrite, line(3, 6), 1, gpu_1),
                           request(a, overwrite, line(6, 10), 2, gpu), request(a, overwrite, line(10, 20), 3, gpu_1)}));
    EXPECT_EQ(plan.needs()[0].form, Form::in_place);
    EXPECT_EQ(plan.needs()[1].form, Form::temporary);
    EXPECT_EQ(plan.needs()[2].form, Form::in_place);
    EXPECT_EQ(plan.needs()[3].form, Form::in_place) << "another chunk";
    ASSERT_EQ(plan.temporaries().size(), 1u);
    const Temporary& t = plan.temporaries()[0];
    EXPECT_TRUE(t.is_written);
    EXPECT_FALSE(t.is_filled);
    ASSERT_EQ(t.num_pieces, 1u);
    EXPECT_EQ(plan.pieces(t)[0].memory, gpu);
    ASSERT_TRUE(plan.make({request(a, overwrite, line(0, 5), 0, gpu), request(a, read, line(5, 10), 1, gpu_1)}));
    EXPECT_TRUE(plan.temporaries().empty());
}

// ---------------------------------------------------------------------------------------------------- the first write

/// In place, across chunks, read while written, written in two memories, and an empty region.
std::vector<Request> of_all_forms(TestArray& a, TestArray& b) {
    return {request(a, write, line(0, 10), 0, gpu),      request(b, read, line(5, 25), 0, gpu),
            request(a, read, line(2, 4), 1, gpu_1),      request(b, write, line(30, 35), 1, gpu_1),
            request(b, overwrite, line(35, 40), 2, gpu), request(a, read, line(20, 20), 2, gpu)};
}

TEST(Planner, makes_a_value_of_numbers_alone_so_that_the_same_submit_of_other_arrays_has_an_equal_plan) {
    TestArray a(40, 10), b(40, 10), c(40, 10), d(40, 10);
    for (TestArray* const array : {&a, &b, &c, &d}) array->all_written();
    Planner planner;
    ASSERT_TRUE(planner.make(of_all_forms(a, b)));
    const plan::SubmitPlan first = planner.plan();
    ASSERT_TRUE(planner.make(of_all_forms(d, c)));
    EXPECT_TRUE(first == planner.plan());
    std::vector<Request> others = of_all_forms(d, c);
    others[1].region = line(5, 26);
    ASSERT_TRUE(planner.make(others));
    EXPECT_FALSE(first == planner.plan()) << "another region";
    others = of_all_forms(d, c);
    others[4].memory = gpu_1;
    ASSERT_TRUE(planner.make(others));
    EXPECT_FALSE(first == planner.plan()) << "another memory";
}

TEST(Planner, lists_gathers_before_write_backs_of_one_piece_each) {
    TestArray a(40, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, write, line(5, 15)), request(a, overwrite, line(20, 25), 1, gpu),
                           request(a, read, line(22, 24), 2, gpu_1), request(a, overwrite, line(25, 35), 2, gpu_1)}));
    using enum plan::Transfer::What;
    const std::vector<plan::Transfer> expected{{gather, host, 0, 0, 0, 2},     {gather, gpu_1, 1, 2, 4, 1},
                                               {write_back, host, 0, 0, 0, 1}, {write_back, host, 0, 0, 1, 1},
                                               {write_back, gpu, 2, 2, 2, 1},  {write_back, gpu_1, 2, 2, 3, 1}};
    EXPECT_EQ(plan.plan().transfers, expected);
    ASSERT_TRUE(plan.make({request(a, read, line(5, 15), 0, gpu)}));
    EXPECT_TRUE(plan.plan().transfers.empty()) << "the task itself gathers when it is placed";
    ASSERT_TRUE(plan.make({request(a, read, line(0, 10), 0, gpu)}));
    EXPECT_TRUE(plan.plan().transfers.empty()) << "of the submit before there is none left";
}

TEST(Planner, writes_a_chunk_back_where_it_fits) {
    TestArray a(200, 100);  // chunks of 400 bytes
    a.all_written();
    Planner plan;
    const auto memory_with = [&](std::size_t host_bytes, std::size_t gpu_bytes, std::size_t gpu_1_bytes) {
        plan.limits = {host_bytes, gpu_bytes, gpu_1_bytes};
        EXPECT_TRUE(plan.make({request(a, overwrite, line(90, 110), 0, gpu)}));
        return plan.plan().transfers.front().memory;
    };
    EXPECT_EQ(memory_with(512, 512, 512), gpu) << "where its writer is";
    EXPECT_EQ(memory_with(512, 256, 512), host);
    EXPECT_EQ(memory_with(256, 256, 512), gpu_1);
    EXPECT_EQ(memory_with(256, 256, 256), gpu) << "nowhere: it fails when it is placed";
}

TEST(Planner, refuses_a_task_that_needs_more_than_its_memory_has) {
    TestArray a(300, 100), b(100, 100);  // chunks of 400 bytes, which take 512
    Planner plan;
    plan.limits = {2048, 1024, 1024};
    const auto uses = [&](std::uint32_t task, std::int64_t chunks, MemoryIndex memory) {
        std::vector<Request> requests{request(b, read, line(0, 100), task, memory)};
        for (std::int64_t c = 0; c < chunks; c++)
            requests.push_back(request(a, read, line(100 * c, 100 * c + 100), task, memory));
        return requests;
    };
    a.all_written(), b.all_written();
    EXPECT_TRUE(plan.make(uses(0, 3, host)));
    EXPECT_TRUE(plan.make(uses(0, 1, gpu)));
    std::vector<Request> requests = uses(0, 1, gpu);
    for (const Request& r : uses(1, 2, gpu_1)) requests.push_back(r);
    requests.push_back(request(b, read, line(0, 100), 1, gpu_1));  // once more
    ASSERT_FALSE(plan.make(requests));
    expect_refused(plan, Reason::too_large, 2);
    EXPECT_EQ(plan.refusal().bytes, 3u * 512);
    requests.push_back(request(a, read, line(50, 250), 2, gpu));
    plan.limits[gpu_1] = 2048;
    EXPECT_TRUE(plan.make(requests)) << "a temporary of 800 bytes takes 1024";
    plan.limits[gpu] = 1023;
    ASSERT_FALSE(plan.make(requests));
    expect_refused(plan, Reason::too_large, 0);
    TestArray unwritten(100, 100);
    requests.push_back(request(unwritten, read, line(0, 1), 3));
    ASSERT_FALSE(plan.make(requests));
    expect_refused(plan, Reason::unwritten, 7);
}

TEST(Planner, lets_no_region_be_read_in_place_of_an_array_whose_blocks_leave_gaps) {
    TestArray a(40, 10);
    a.all_written();
    Planner plan;
    ASSERT_TRUE(plan.make({request(a, read, line(5, 15), 0, gpu)}));
    EXPECT_TRUE(plan.temporaries()[0].chosen_late && plan.temporaries()[0].may_be_in_place);
    a.planned.is_stack = false;
    ASSERT_TRUE(plan.make({request(a, read, line(5, 15), 0, gpu)}));
    EXPECT_TRUE(plan.temporaries()[0].chosen_late);
    EXPECT_FALSE(plan.temporaries()[0].may_be_in_place);
}

std::vector<std::uint32_t> all_of(const std::vector<Request>& requests) {
    std::vector<std::uint32_t> positions;
    for (std::uint32_t i = 0; i < requests.size(); i++) positions.push_back(i);
    return positions;
}
Request unbound(AccessKind kind, const Box& region, std::uint32_t task, MemoryIndex memory = host) {
    Request r;
    r.region = region;
    r.kind = kind;
    r.empty = kmm::boxes::is_empty(region);
    r.task = task;
    r.memory = memory;
    return r;
}

TEST(FirstWrite, gives_a_chunk_for_each_region_at_home_where_it_is_written) {
    const std::vector<Request> requests{unbound(overwrite, line(20, 30), 0, gpu_1), unbound(write, line(0, 5), 1, host),
                                        unbound(overwrite, line(9, 9), 2, gpu),
                                        unbound(overwrite, line(5, 20), 3, gpu)};
    Planner plan;
    std::vector<ChunkGeometry> chunks;
    ASSERT_TRUE(plan.first_write(line(0, 30), requests, all_of(requests), chunks));
    ASSERT_EQ(chunks.size(), 3u);
    EXPECT_EQ(chunks[0].home, MemoryId(DeviceId(1)));
    EXPECT_EQ(chunks[0].box.begin[0], 20);
    EXPECT_EQ(chunks[1].home, MemoryId::host());
    EXPECT_EQ(chunks[2].home, MemoryId(DeviceId(0)));
    EXPECT_EQ(chunks[2].box.end[0], 20);
}

TEST(FirstWrite, looks_only_at_the_accesses_to_its_array) {
    const std::vector<Request> requests{unbound(read, line(0, 10), 0), unbound(overwrite, line(0, 10), 0),
                                        unbound(overwrite, line(0, 10), 1), unbound(overwrite, line(10, 20), 1)};
    Planner plan;
    std::vector<ChunkGeometry> chunks;
    ASSERT_TRUE(plan.first_write(line(0, 20), requests, {1, 3}, chunks));
    EXPECT_EQ(chunks.size(), 2u);
    ASSERT_FALSE(plan.first_write(line(0, 20), requests, {2, 1, 3}, chunks));
    expect_refused(plan, Reason::conflict, 2, 1);
    expect_region(plan, 0, 10);
}

TEST(FirstWrite, is_refused_with_a_gap_an_overlap_or_a_read) {
    Planner plan;
    std::vector<ChunkGeometry> chunks;
    std::vector<Request> requests{unbound(overwrite, line(0, 0), 0), unbound(overwrite, line(0, 8), 1),
                                  unbound(overwrite, line(10, 20), 2)};
    ASSERT_FALSE(plan.first_write(line(0, 20), requests, all_of(requests), chunks));
    expect_refused(plan, Reason::gap, 0);
    expect_region(plan, 8, 10);

    requests = {unbound(overwrite, line(0, 0), 0), unbound(overwrite, line(0, 12), 1),
                unbound(overwrite, line(10, 20), 2)};
    ASSERT_FALSE(plan.first_write(line(0, 20), requests, all_of(requests), chunks));
    expect_refused(plan, Reason::conflict, 1, 2);
    expect_region(plan, 10, 12);

    requests = {unbound(overwrite, line(0, 20), 0), unbound(read, line(5, 6), 0)};
    ASSERT_FALSE(plan.first_write(line(0, 20), requests, all_of(requests), chunks));
    expect_refused(plan, Reason::unwritten, 1);
    expect_region(plan, 5, 6);

    requests = {unbound(read, line(5, 5), 0)};
    ASSERT_FALSE(plan.first_write(line(0, 20), requests, all_of(requests), chunks));
    expect_refused(plan, Reason::unwritten, 0);
    expect_region(plan, 0, 20);
}

TEST(FirstWrite, of_an_array_without_elements_makes_no_chunk) {
    const std::vector<Request> requests{unbound(overwrite, line(0, 0), 0)};
    Planner plan;
    std::vector<ChunkGeometry> chunks;
    ASSERT_TRUE(plan.first_write(line(0, 0), requests, all_of(requests), chunks));
    EXPECT_TRUE(chunks.empty());
}

// ---------------------------------------------------------------------------------------------------- a model

// Elements instead of boxes: what is refused, and each first access's flags.
TEST(Planner, random_submits_are_decided_as_their_elements_say) {
    constexpr std::int64_t rows = 4, columns = 6;
    int refused = 0, planned = 0;
    Planner plan;
    for (unsigned seed = 0; seed < 4000; seed++) {
        std::mt19937 random(seed);
        const auto pick = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        // One array in a grid, one cut irregularly.
        TestArray grid(2, box(0, rows, 0, columns),
                       {box(0, 2, 0, 3), box(0, 2, 3, 6), box(2, 4, 0, 3), box(2, 4, 3, 6)});
        TestArray other(2, box(0, rows, 0, columns), {box(0, 4, 0, 1), box(0, 1, 1, 6), box(1, 4, 1, 6)});
        TestArray* const arrays[] = {&grid, &other};
        std::vector<std::vector<bool>> written(2, std::vector<bool>(rows * columns, false));
        const auto elements = [&](const Box& b, auto&& f) {
            for (std::int64_t r = b.begin[0]; r < b.end[0]; r++)
                for (std::int64_t c = b.begin[1]; c < b.end[1]; c++) f(static_cast<std::size_t>(r * columns + c));
        };
        const auto part_of = [&](const Box& chunk) {
            if (pick(0, 1) == 0) return chunk;
            const std::int64_t r = pick(chunk.begin[0], chunk.end[0] - 1), c = pick(chunk.begin[1], chunk.end[1] - 1);
            return box(r, pick(r + 1, chunk.end[0]), c, pick(c + 1, chunk.end[1]));
        };
        for (std::size_t a = 0; a < 2; a++)
            for (const ChunkGeometry& chunk : arrays[a]->layout.list()) {
                if (pick(0, 4) == 0) continue;
                const Box b = pick(0, 4) == 0 ? part_of(chunk.box) : chunk.box;
                arrays[a]->written(b);
                elements(b, [&](std::size_t i) { written[a][i] = true; });
            }

        std::vector<Request> requests;
        std::vector<std::size_t> array_of;
        const std::int64_t tasks = pick(1, pick(0, 5) == 0 ? 12 : 3);
        for (std::int64_t task = 0; task < tasks; task++) {
            const MemoryIndex memory = pick(0, 1) == 0 ? host : gpu;
            for (std::int64_t i = pick(1, 3); i > 0; i--) {
                const auto a = static_cast<std::size_t>(pick(0, 1));
                const auto chunks = arrays[a]->layout.list();
                Box b = part_of(chunks[static_cast<std::size_t>(pick(0, std::int64_t(chunks.size()) - 1))].box);
                if (pick(0, 5) == 0) b = part_of(arrays[a]->layout.array());
                if (pick(0, 15) == 0) b.end[0] = b.begin[0];
                const AccessKind kind = pick(0, 3) != 0 ? read : pick(0, 1) == 0 ? write : overwrite;
                requests.push_back(request(*arrays[a], kind, b, static_cast<std::uint32_t>(task), memory));
                array_of.push_back(a);
            }
        }

        // The model.
        const auto chunk_of = [&](std::size_t i) -> std::optional<std::size_t> {
            const auto chunks = requests[i].of->layout.list();
            for (std::size_t c = 0; c < chunks.size(); c++) {
                bool inside = true;
                elements(requests[i].region, [&](std::size_t e) {
                    bool found = false;
                    elements(chunks[c].box, [&](std::size_t f) { found = found || e == f; });
                    inside = inside && found;
                });
                if (inside) return c;
            }
            return std::nullopt;
        };
        const auto share = [&](std::size_t i, std::size_t j) {
            bool any = false;
            elements(requests[i].region,
                     [&](std::size_t e) { elements(requests[j].region, [&](std::size_t f) { any = any || e == f; }); });
            return any;
        };
        Reason expected = Reason::none;
        std::size_t first = 0, second = 0;
        const auto refuse = [&](Reason reason, std::size_t i, std::size_t j = 0) {
            if (expected != Reason::none) return;
            expected = reason;
            first = i;
            second = j;
        };
        for (std::size_t i = 0; i < requests.size() && expected == Reason::none; i++)
            for (std::size_t j = i + 1; j < requests.size(); j++) {
                if (requests[i].empty || requests[j].empty || array_of[i] != array_of[j]) continue;
                const bool i_writes = requests[i].kind != read, j_writes = requests[j].kind != read;
                if (i_writes && j_writes && share(i, j)) refuse(Reason::conflict, i, j);
            }
        // Which chunks are met, where each is written, and which requests get a temporary.
        const auto meets = [&](std::size_t i, std::size_t c) {
            bool any = false;
            elements(requests[i].region, [&](std::size_t e) {
                elements(requests[i].of->layout.box(c), [&](std::size_t f) { any = any || e == f; });
            });
            return any;
        };
        const auto written_in = [&](std::size_t i, std::size_t c) {
            for (std::size_t j = 0;; j++)
                if (array_of[j] == array_of[i] && requests[j].kind != read && !requests[j].empty && meets(j, c))
                    return requests[j].memory;
        };
        std::vector<bool> beside(requests.size(), false), snapshot(requests.size(), false);
        for (std::size_t i = 0; i < requests.size(); i++) {
            if (requests[i].empty) continue;
            const auto c = chunk_of(i);
            beside[i] = !c || (requests[i].kind != read && written_in(i, *c) != requests[i].memory);
        }
        for (std::size_t i = 0; i < requests.size(); i++) {
            if (requests[i].kind != read || requests[i].empty || beside[i]) continue;
            for (std::size_t j = 0; j < requests.size(); j++)
                snapshot[i] = snapshot[i] ||
                              (requests[j].kind != read && array_of[j] == array_of[i] && !beside[j] && share(i, j));
            beside[i] = snapshot[i];
        }
        for (std::size_t i = 0; i < requests.size() && expected == Reason::none; i++) {
            if (requests[i].kind != read) continue;
            elements(requests[i].region, [&](std::size_t e) {
                if (!written[array_of[i]][e]) refuse(Reason::unwritten, i);
            });
        }

        ASSERT_EQ(plan.make(requests), expected == Reason::none) << "seed " << seed;
        if (expected != Reason::none) {
            refused++;
            ASSERT_EQ(plan.refusal().reason, expected) << "seed " << seed;
            ASSERT_EQ(plan.refusal().first, first) << "seed " << seed;
            ASSERT_EQ(plan.refusal().second, second) << "seed " << seed;
            continue;
        }
        planned++;
        const auto check_temporary = [&](std::size_t i) {
            const Need& need = plan.needs()[i];
            const Temporary& t = plan.temporaries()[need.temporary];
            const Request& r = requests[i];
            ASSERT_EQ(t.is_written, r.kind != read);
            ASSERT_EQ(t.is_filled, r.kind != overwrite);
            ASSERT_EQ(t.is_snapshot, snapshot[i]);
            bool is_late = r.kind == read && r.memory.is_device() && !snapshot[i];
            for (std::size_t j = 0; j < requests.size(); j++)
                is_late =
                    is_late && (requests[j].kind == read || array_of[j] != array_of[i] || beside[j] || !share(i, j));
            ASSERT_EQ(t.chosen_late, is_late) << "what is written in place meanwhile is kept from before";
            ASSERT_TRUE(is_late || !t.may_be_in_place);
            // Reads of the same are shared, and nothing else.
            std::size_t first_user = requests.size(), first_of_task = requests.size();
            for (std::size_t j = requests.size(); j-- > 0;) {
                const bool same = beside[j] && array_of[j] == array_of[i] && requests[j].memory == r.memory &&
                                  kmm::boxes::equal(requests[j].region, r.region) &&
                                  (j == i || (r.kind == read && requests[j].kind == read));
                ASSERT_EQ(same, beside[j] && plan.needs()[j].temporary == need.temporary);
                if (same) first_user = j;
                if (same && requests[j].task == r.task) first_of_task = j;
            }
            ASSERT_EQ(t.request, first_user);
            ASSERT_EQ(need.first_of_chunk, first_of_task == i);
            if (need.first_of_chunk) {
                ASSERT_EQ(need.needs_content, t.is_filled);
                ASSERT_EQ(need.writes, t.is_written);
                ASSERT_EQ(need.replaces, t.is_written);
            }
            std::vector<int> covered(rows * columns, 0);
            for (const Piece& p : plan.pieces(t)) {
                ASSERT_TRUE(meets(i, p.chunk));
                ASSERT_TRUE(kmm::boxes::contains(r.of->layout.box(p.chunk), p.box));
                ASSERT_EQ(p.whole_chunk, kmm::boxes::equal(r.of->layout.box(p.chunk), p.box));
                elements(p.box, [&](std::size_t e) { covered[e]++; });
                if (t.is_written) {
                    ASSERT_EQ(p.memory, written_in(i, p.chunk));
                }
            }
            elements(r.region, [&](std::size_t e) { covered[e]--; });
            for (const int c : covered) ASSERT_EQ(c, 0) << "the pieces are the region";
        };
        for (std::size_t i = 0; i < requests.size(); i++) {
            const Need& need = plan.needs()[i];
            ASSERT_EQ(need.form, requests[i].empty ? Form::nothing
                                 : beside[i]       ? Form::temporary
                                                   : Form::in_place)
                << "seed " << seed;
            if (requests[i].empty) continue;
            if (beside[i]) {
                ASSERT_NO_FATAL_FAILURE(check_temporary(i)) << "seed " << seed;
                continue;
            }
            ASSERT_EQ(need.chunk, chunk_of(i).value()) << "seed " << seed;
            const Box chunk = requests[i].of->layout.box(need.chunk);
            const auto first_element = static_cast<std::size_t>(requests[i].region.begin[0] * columns) +
                                       static_cast<std::size_t>(requests[i].region.begin[1]);
            std::size_t offset = 0, at = 0;
            elements(chunk, [&](std::size_t e) {
                if (e == first_element) offset = at;
                at++;
            });
            ASSERT_EQ(need.offset, offset) << "seed " << seed;

            const auto same = [&](std::size_t j) {
                return requests[j].task == requests[i].task && array_of[j] == array_of[i] && !requests[j].empty &&
                       !beside[j] && chunk_of(j) == chunk_of(i);
            };
            bool is_first = true, needs_content = false, writes = false, replaces = false, any_content = false;
            elements(chunk, [&](std::size_t e) { any_content = any_content || written[array_of[i]][e]; });
            for (std::size_t j = 0; j < requests.size(); j++) {
                if (!same(j)) continue;
                is_first = is_first && j >= i;
                std::size_t size = 0;
                elements(requests[j].region, [&](std::size_t) { size++; });
                const bool all = size == at;
                writes = writes || requests[j].kind != read;
                replaces = replaces || (requests[j].kind != read && all);
                needs_content =
                    needs_content || requests[j].kind == read || !all || (requests[j].kind == write && any_content);
            }
            ASSERT_EQ(need.first_of_chunk, is_first) << "seed " << seed;
            ASSERT_EQ(need.needs_content, is_first && needs_content) << "seed " << seed;
            ASSERT_EQ(need.writes, is_first && writes) << "seed " << seed;
            ASSERT_EQ(need.replaces, is_first && replaces) << "seed " << seed;
        }
    }
    EXPECT_GT(refused, 500);
    EXPECT_GT(planned, 500);
}

}  // namespace
}  // namespace kmm::plan_test
