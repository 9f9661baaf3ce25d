// What fits in the order of submission runs, whatever the order in which tasks become ready; what does not fit fails
// alone, and all of it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "dropping_program.hpp"

namespace {

using namespace kmm::schedule_test;
using kmm::schedule::OrderPolicy;

/// Each step drops what it loaded and what it computed. All loads are ready at once; a step's computation waits for the
/// host as well, which comes when nothing else is left to do.
void run_pipeline(Program& s, std::size_t steps, std::size_t chunks, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Array& sum = s.make_array(chunks);
    std::vector<TaskNumber> last(chunks);
    for (std::size_t c = 0; c < chunks; ++c)
        last[c] = s.run(TaskKind::kernel, gpu, {{&sum.chunks[c], true, true}}).number;
    for (std::size_t step = 0; step < steps; ++step) {
        Array& loaded = s.make_array(chunks);
        Array& computed = s.make_array(chunks);
        std::vector<TaskNumber> before(chunks);
        for (std::size_t c = 0; c < chunks; ++c)
            before[c] = s.run(TaskKind::kernel, gpu, {{&loaded.chunks[c], true, true}}).number;
        for (std::size_t c = 0; c < chunks; ++c) {
            std::vector<TaskNumber> after{before[c]};
            if (seed % 2 != 0) after.push_back(s.run(TaskKind::host, host, {}).number);
            before[c] = s.run(TaskKind::kernel, gpu,
                              {{&loaded.chunks[c], false, false}, {&computed.chunks[c], true, true}}, after)
                            .number;
        }
        for (std::size_t c = 0; c < chunks; ++c)
            last[c] = s.run(TaskKind::kernel, gpu, {{&computed.chunks[c], false, false}, {&sum.chunks[c], true, false}},
                            {before[c], last[c]})
                          .number;
        s.drop(loaded);
        s.drop(computed);
        if (seed < 2 || random() % 4 != 0) continue;
        s.dispatch();
        for (std::size_t i = random() % 8; i != 0; --i) s.complete_one();
    }
    s.finish();
}

TEST(Admission, a_pipeline_over_arrays_that_are_dropped_pushes_nothing_out_in_whatever_order_its_tasks_become_ready) {
    constexpr std::size_t steps = 60, chunks = 4;
    for (const OrderPolicy order :
         {OrderPolicy::fewest_bytes_a_task, OrderPolicy::fewest_bytes, OrderPolicy::as_submitted}) {
        for (std::uint64_t seed = 0; seed < 8; ++seed) {
            SchedulerOptions options;
            options.order = order;
            Program s({4 * unit, 32 * unit}, options);
            run_pipeline(s, steps, chunks, seed);
            EXPECT_TRUE(s.scheduler->idle());
            EXPECT_EQ(s.num_copies(), 0u) << seed;
            EXPECT_EQ(s.scheduler->residency().space(gpu).counters.evicted_bytes, 0u);
            EXPECT_TRUE(s.failures.empty());
            EXPECT_EQ(s.scheduler->counters().kernels, chunks * (1 + 3 * steps));
        }
    }
}

TEST(Admission, who_makes_content_ahead_of_its_turn_leaves_more_than_half_of_the_memory_until_the_front_has_passed) {
    Program s({64 * unit, 8 * unit});
    Task& gate = s.run(TaskKind::host, host, {});
    Array& of_front = s.make_array(1);
    Array& made = s.make_array(7);
    Task& front = s.run(TaskKind::kernel, gpu, {{&of_front.chunks[0], true, true}}, {gate.number});
    for (Chunk& c : made.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(front.number));
    EXPECT_EQ(s.num_kernels(), 3u);
    s.finish();
    EXPECT_EQ(s.num_kernels(), 8u);
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_TRUE(s.failures.empty());
    EXPECT_EQ(s.num_copies(), 0u);
}

TEST(Admission, no_more_is_made_ahead_than_leaves_room_for_those_who_come_before_until_it_has_gone) {
    Program s({unit / 2, 4 * unit, 16 * unit});
    Task& gate = s.run(TaskKind::host, host, {});
    // But for one chunk in each memory 18 units can be had. The front needs one, and the program says that it holds 15.
    s.held_bytes = 15 * unit;
    Task& front = s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate.number});
    s.held_bytes = 0;
    std::vector<Array*> made;
    for (int i = 0; i < 6; ++i) {
        made.push_back(&s.make_array(1));
        s.run(TaskKind::kernel, gpu_1, {{&made.back()->chunks[0], true, true}});
    }
    s.dispatch();
    EXPECT_EQ(s.num_kernels(), 2u);
    for (int i = 0; i < 2; ++i) {
        s.complete_one();
        s.drop(*made[static_cast<std::size_t>(i)]);
    }
    s.dispatch();
    EXPECT_EQ(s.num_kernels(), 4u);
    EXPECT_FALSE(s.is_handed_out(front.number));
    s.finish();
    EXPECT_EQ(s.num_kernels(), 7u);
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, only_the_front_fails_for_memory_with_nothing_in_flight_and_those_behind_it_that_fit_go_on) {
    Program s({unit, 4 * unit});
    Array& used = s.make_array(1);
    Array& large = s.make_array(1, 6 * unit);
    Array& small = s.make_array(2);
    Task& function = s.run(TaskKind::device_function, gpu, {{&used.chunks[0], true, true}});
    s.dispatch();
    ASSERT_EQ(s.launches.size(), 1u);
    const TaskNumber front = s.run(TaskKind::kernel, gpu, {{&large.chunks[0], true, true}}).number;
    for (Chunk& c : small.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.dispatch();
    EXPECT_TRUE(s.failures.empty()) << "the function may let go of memory";
    s.scheduler->launched(function, s.scheduler->lanes().id(0, LaneRole::launcher), 1, nullptr, true);
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.failures.size(), 1u);
    EXPECT_EQ(s.failures.count(front), 1u);
    EXPECT_EQ(s.ran.size(), 2u);
    EXPECT_EQ(s.scheduler->counters().succeeded, 3u);
}

TEST(Admission, of_those_that_do_not_fit_the_first_in_the_order_of_submission_fails_first) {
    for (const bool makes : {false, true}) {
        Program s({64 * unit, 2 * unit});
        Array& content = s.make_array(6, 3 * unit);
        if (!makes)
            for (Chunk& c : content.chunks) s.run(TaskKind::host, host, {{&c, true, true}});
        s.finish();
        s.waits_ended.clear();
        std::vector<TaskNumber> order;
        for (Chunk& c : content.chunks) order.push_back(s.run(TaskKind::kernel, gpu, {{&c, makes, makes}}).number);
        s.finish();
        EXPECT_EQ(s.failures.size(), content.chunks.size());
        EXPECT_EQ(s.waits_ended, order);
        EXPECT_TRUE(s.scheduler->idle());
    }
}

TEST(Admission, the_front_fails_only_when_those_behind_it_have_tried_whose_end_may_leave_room_for_it) {
    Program s({unit, 4 * unit});
    Array& large = s.make_array(1, 3 * unit);
    Array& small = s.make_array(1);
    const TaskNumber maker = s.run(TaskKind::kernel, gpu, {{&large.chunks[0], true, true}}).number;
    const TaskNumber on_host = s.run(TaskKind::host, host, {{&small.chunks[0], true, true}}).number;
    s.finish();
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 2 * unit).chunks[0], true, true}});
    s.run(TaskKind::kernel, gpu, {{&large.chunks[0], false, false}, {&small.chunks[0], false, false}},
          {maker, on_host});
    s.drop(large);
    s.drop(small);
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, the_front_pushes_content_from_a_full_host_up_to_another_device_that_has_room) {
    Program s({2 * unit, 2 * unit, 4 * unit});
    Array& on_host = s.make_array(2);
    Array& on_gpu = s.make_array(2);
    Array& more = s.make_array(1);
    for (Chunk& c : on_host.chunks) s.run(TaskKind::host, host, {{&c, true, true}});
    s.finish();
    for (Chunk& c : on_gpu.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    s.run(TaskKind::kernel, gpu, {{&more.chunks[0], true, true}});
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_EQ(s.copies(host, gpu_1), 1u);
    EXPECT_EQ(s.copies(gpu, host), 1u);
    EXPECT_EQ(s.num_copies(), 2u);
    // All of it is there.
    for (Array* const a : {&on_host, &on_gpu, &more})
        for (Chunk& c : a->chunks) s.run(TaskKind::kernel, gpu_1, {{&c, false, false}});
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, the_front_pushes_content_from_one_device_to_another_where_the_host_can_take_none) {
    Program s({unit / 2, 2 * unit, 4 * unit});
    Array& a = s.make_array(6);
    for (Chunk& c : a.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_EQ(s.copies(gpu, gpu_1), 4u);
    EXPECT_EQ(s.num_copies(), 4u);
    // One more does not fit anywhere.
    const TaskNumber last = s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}).number;
    s.finish();
    EXPECT_EQ(s.failures.size(), 1u);
    EXPECT_EQ(s.failures.count(last), 1u);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, a_device_and_a_host_that_are_full_to_the_last_byte_exchange_chunks) {
    for (const bool has_bounce : {false, true}) {
        Program s({4 * unit, 2 * unit, 2 * unit});
        s.has_bounce = has_bounce;
        Array& a = s.make_array(8);
        for (std::size_t c = 0; c < 8; ++c) {
            const MemoryIndex m = c < 4 ? host : c < 6 ? gpu : gpu_1;
            s.run(m.is_host() ? TaskKind::host : TaskKind::kernel, m, {{&a.chunks[c], true, true}});
            s.finish();
        }
        for (const MemoryIndex m : {gpu, host, gpu_1})
            for (std::size_t c = 0; c < 8; c += 2)
                s.run(m.is_host() ? TaskKind::host : TaskKind::kernel, m,
                      {{&a.chunks[c], true, false}, {&a.chunks[c + 1], false, false}});
        s.finish();
        EXPECT_EQ(s.failures.empty(), has_bounce) << "without the bounce buffer there is no way";
        EXPECT_TRUE(s.scheduler->idle());
    }
}

// A chunk of six units is on the device, and no task that waits names it: it has to find a place of its size on the
// host when the front needs most of the device.
TEST(Admission, the_largest_chunk_that_is_live_needs_a_place_in_each_memory) {
    Program s({20 * unit, 20 * unit});
    Array& large = s.make_array(1, 6 * unit);
    s.run(TaskKind::kernel, gpu, {{&large.chunks[0], true, true}});
    s.finish();
    const TaskNumber gate = s.run(TaskKind::host, host, {}).number;
    Array& wide = s.make_array(15);
    std::vector<Stage::Wanted> uses;
    for (Chunk& c : wide.chunks) uses.push_back({&c, true, true});
    const TaskNumber front = s.run(TaskKind::kernel, gpu, uses, {gate}).number;
    s.dispatch();
    for (int i = 0; i < 20; ++i) {
        Array& block = s.make_array(1);
        const TaskNumber made = s.run(TaskKind::host, host, {{&block.chunks[0], true, true}}).number;
        s.run(TaskKind::host, host, {{&block.chunks[0], false, false}}, {made, front});
        s.drop(block);
    }
    // The function ends last: what may go ahead of the front has gone by then.
    s.dispatch();
    Task* const function = s.on_host.front();
    for (s.on_host.erase(s.on_host.begin()); !s.on_host.empty(); s.dispatch()) {
        Task* const t = s.on_host.front();
        s.on_host.erase(s.on_host.begin());
        s.scheduler->host_done(*t, nullptr);
    }
    s.on_host.push_back(function);
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, what_reads_as_much_as_it_makes_leaves_no_headroom) {
    Program s({64 * unit, 4 * unit});
    Array& there = s.make_array(2);
    Array& goes = s.make_array(2);
    for (Array* const a : {&there, &goes})
        for (Chunk& c : a->chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    s.drop(goes);
    const TaskNumber gate = s.run(TaskKind::device_function, gpu, {}).number;
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    const TaskNumber makes = s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}).number;
    const TaskNumber reads =
        s.run(TaskKind::kernel, gpu, {{&there.chunks[0], false, false}, {&s.make_array(1).chunks[0], true, true}})
            .number;
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(makes));
    EXPECT_TRUE(s.is_handed_out(reads));
}

TEST(Admission, one_that_goes_in_a_hurry_and_finds_no_room_holds_up_nobody) {
    Program s({9 * unit, 5 * unit});
    Array& on_host = s.make_array(6);
    Array& on_gpu = s.make_array(5);
    for (Chunk& c : on_host.chunks) s.run(TaskKind::host, host, {{&c, true, true}});
    s.finish();
    for (Chunk& c : on_gpu.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    const TaskNumber gate = s.run(TaskKind::host, host, {}).number;
    s.run(TaskKind::host, host, {}, {gate});
    // It needs five blocks, and the host has room for three.
    std::vector<Stage::Wanted> uses{{&s.make_array(1).chunks[0], true, true}};
    for (std::size_t c = 0; c < 4; ++c) uses.push_back({&on_host.chunks[c], false, false});
    s.run(TaskKind::kernel, gpu, uses);
    s.dispatch();
    const TaskNumber last = s.run(TaskKind::kernel, gpu, {{&on_host.chunks[5], false, false}}).number;
    s.dispatch();
    while (s.num_finished() != s.instructions.size()) s.complete_one();
    EXPECT_TRUE(s.is_handed_out(last)) << "the host function may wait for it";
    s.finish();
    EXPECT_EQ(s.failures.count(last), 0u);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, what_makes_content_takes_the_headroom_where_only_functions_of_the_program_run) {
    Program s({8 * unit, 2 * unit});
    Array& flag = s.make_array(1);
    Array& a = s.make_array(3);
    const TaskNumber gate = s.run(TaskKind::host, host, {{&flag.chunks[0], true, true}}).number;
    const TaskNumber first =
        s.run(TaskKind::host, host, {{&flag.chunks[0], false, false}, {&a.chunks[0], true, true}}, {gate}).number;
    s.run(TaskKind::kernel, gpu, {{&a.chunks[1], true, true}});
    s.run(TaskKind::kernel, gpu, {{&a.chunks[2], true, true}});
    s.dispatch();
    s.complete_one();
    EXPECT_EQ(s.num_kernels(), 2u) << "the host function may wait for them";
    s.finish();
    EXPECT_EQ(s.ran.back(), first);
    EXPECT_TRUE(s.failures.empty());
}

TEST(Admission, each_front_is_tried_before_one_behind_it_fails_that_is_refused_room_meanwhile) {
    Program s({unit, 3 * unit, 16 * unit});
    Array& on_host = s.make_array(1);
    Array& on_gpu = s.make_array(3);
    Array& beside = s.make_array(2, 2 * unit);
    s.run(TaskKind::host, host, {{&on_host.chunks[0], true, true}});
    for (Chunk& c : on_gpu.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    for (Chunk& c : beside.chunks) s.run(TaskKind::kernel, gpu_1, {{&c, true, true}});
    // There is room beside the device that nobody has to ask a driver for.
    Array& dropped = s.make_array(1, 8 * unit);
    s.run(TaskKind::kernel, gpu_1, {{&dropped.chunks[0], true, true}});
    s.finish();
    s.drop(dropped);
    // Two tasks that push something out, and behind them one that needs less and is tried first, each time in vain.
    for (Chunk& c : beside.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, false}});
    s.run(TaskKind::kernel, gpu, {{&on_host.chunks[0], false, false}});
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, for_the_front_copies_of_its_own_chunks_that_are_out_of_date_leave_other_memories) {
    Program s({4 * unit, 5 * unit, 4 * unit});
    Array& x = s.make_array(4);
    for (Chunk& c : x.chunks) s.run(TaskKind::host, host, {{&c, true, true}});
    s.finish();
    for (Chunk& c : x.chunks) s.run(TaskKind::kernel, gpu_1, {{&c, true, false}});
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}});
    s.finish();
    // It holds 5 units and needs 5, and 13 units, but for one in each memory, are there.
    std::vector<Stage::Wanted> uses{{&s.make_array(1).chunks[0], true, true}};
    for (Chunk& c : x.chunks) uses.push_back({&c, false, false});
    s.run(TaskKind::kernel, gpu, uses);
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, while_the_front_is_refused_room_no_other_task_is_given_any) {
    Program s({64 * unit, 4 * unit});
    Array& on_host = s.make_array(1);
    Array& used = s.make_array(1, 2 * unit);
    Array& large = s.make_array(1, 3 * unit);
    s.run(TaskKind::host, host, {{&on_host.chunks[0], true, true}});
    s.finish();
    Task& function = s.run(TaskKind::device_function, gpu, {{&used.chunks[0], true, true}});
    s.dispatch();
    ASSERT_EQ(s.launches.size(), 1u);
    const TaskNumber front = s.run(TaskKind::kernel, gpu, {{&large.chunks[0], true, true}}).number;
    s.dispatch();
    EXPECT_TRUE(s.scheduler->waits_for_memory(*s.table.find(front)));
    const TaskNumber fits = s.run(TaskKind::kernel, gpu, {{&on_host.chunks[0], false, false}}).number;
    s.dispatch();
    EXPECT_TRUE(s.instructions.empty()) << "there is room, which the front needs";
    s.scheduler->launched(function, s.scheduler->lanes().id(0, LaneRole::launcher), 1, nullptr, true);
    s.finish();
    EXPECT_EQ(s.ran.size(), 3u);
    EXPECT_TRUE(s.is_handed_out(front));
    EXPECT_TRUE(s.is_handed_out(fits));
    const auto place = [&](TaskNumber n) { return std::find(s.ran.begin(), s.ran.end(), n) - s.ran.begin(); };
    EXPECT_LT(place(front), place(fits));
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Admission, the_working_set_of_the_front_is_moved_together_where_it_lies_in_pieces) {
    Program s({unit / 2, 6 * unit});
    std::vector<Array*> single;
    for (int i = 0; i < 6; ++i) single.push_back(&s.make_array(1));
    for (Array* const b : single) s.run(TaskKind::kernel, gpu, {{&b->chunks[0], true, true}});
    s.finish();
    for (const int i : {0, 2, 4}) s.drop(*single[static_cast<std::size_t>(i)]);
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 3 * unit).chunks[0], true, true}});
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    EXPECT_EQ(s.copies(gpu, gpu), 3u);
    EXPECT_TRUE(s.scheduler->idle());
}

/// Two devices and a host that are full of content, and tasks that each need more than any memory has left, by turns.
std::uint64_t steps_in_vain(std::size_t num_tasks) {
    Program s({2 * unit, 4 * unit, 4 * unit});
    Array& content = s.make_array(10);
    std::vector<TaskNumber> made;
    for (std::size_t c = 0; c < 10; ++c) {
        const MemoryIndex m = c < 4 ? gpu : c < 8 ? gpu_1 : host;
        const TaskKind kind = m.is_host() ? TaskKind::host : TaskKind::kernel;
        made.push_back(s.run(kind, m, {{&content.chunks[c], true, true}}).number);
    }
    s.finish();
    EXPECT_TRUE(s.failures.empty());
    Array& more = s.make_array(num_tasks);
    for (std::size_t i = 0; i < num_tasks; ++i) {
        // Half of them only read what does not fit beside the rest.
        std::vector<Stage::Wanted> uses{{&content.chunks[i % 10], false, false},
                                        {&content.chunks[(i + 5) % 10], false, false}};
        if (i % 2 == 0) uses.push_back({&more.chunks[i], true, true});
        s.run(TaskKind::kernel, i % 3 == 0 ? gpu : gpu_1, uses);
    }
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_GE(s.failures.size(), num_tasks / 2);
    EXPECT_LE(s.num_copies(), 8 * num_tasks);
    return s.scheduler->num_steps();
}

TEST(Admission, tasks_that_wait_in_vain_end_after_steps_in_proportion_to_their_number) {
    const auto once = static_cast<double>(steps_in_vain(500));
    const auto twice = static_cast<double>(steps_in_vain(1000));
    EXPECT_LE(twice, 2.3 * once);
}

/// Programs of chunks of one size on a host and two devices, of which arrays are dropped at random.
struct RandomProgram {
    std::size_t num_submitted = 0, num_failed = 0, num_copies = 0;
    std::uint64_t num_steps = 0;
};

RandomProgram run_random(std::uint64_t seed, std::size_t num_tasks, bool fits_in_order) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t limits[] = {1 + below(6), 2 + below(6), 2 + below(6)};
    SchedulerOptions options;
    options.order = static_cast<OrderPolicy>(below(3));
    Program s({limits[0] * unit, limits[1] * unit, limits[2] * unit}, options);
    // Of one size, so that nothing is lost in pieces; in each memory one is left to move things by way of.
    std::size_t capacity = 0;
    for (const std::size_t l : limits) capacity += l - 1;
    struct Live {
        Array* array;
        TaskNumber last_write = 0;
        std::vector<TaskNumber> readers;
    };
    std::vector<Live> live;
    RandomProgram result;
    for (std::size_t i = 0; i < num_tasks; ++i) {
        while (!live.empty() && (below(4) == 0 || live.size() > 12)) {
            const std::size_t dropped = below(live.size());
            s.drop(*live[dropped].array);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(dropped));
        }
        const MemoryIndex m = below(5) == 0 ? host : MemoryIndex::of_device(static_cast<std::uint32_t>(below(2)));
        const std::size_t needed = 1 + below(limits[m.index()]);
        // It fits where all that is held, and the whole of what it needs, fit.
        while (fits_in_order && !live.empty() && s.held_bytes + needed * unit > capacity * unit) {
            s.drop(*live.back().array);
            live.pop_back();
        }
        if (fits_in_order && s.held_bytes + needed * unit > capacity * unit) continue;
        std::vector<Stage::Wanted> uses;
        std::vector<TaskNumber> after;
        std::vector<std::size_t> used;
        std::vector<bool> writes;
        for (std::size_t k = 0; k < needed; ++k) {
            std::size_t index = below(live.size() + 2);
            if (index >= live.size()) {
                live.push_back({&s.make_array(1), 0, {}});
                index = live.size() - 1;
            }
            if (std::find(used.begin(), used.end(), index) != used.end()) continue;
            Live& a = live[index];
            const bool is_new = a.last_write == 0;
            const bool does_write = is_new || below(2) == 0;
            uses.push_back({&a.array->chunks[0], does_write, is_new || (does_write && below(2) == 0)});
            used.push_back(index);
            writes.push_back(does_write);
            if (!is_new) after.push_back(a.last_write);
            if (does_write) after.insert(after.end(), a.readers.begin(), a.readers.end());
        }
        std::sort(after.begin(), after.end());
        after.erase(std::unique(after.begin(), after.end()), after.end());
        const TaskNumber number = s.run(m.is_host() ? TaskKind::host : TaskKind::kernel, m, uses, after).number;
        for (std::size_t k = 0; k < used.size(); ++k) {
            Live& a = live[used[k]];
            if (writes[k]) {
                a.last_write = number;
                a.readers.clear();
            } else {
                a.readers.push_back(number);
            }
        }
        ++result.num_submitted;
        if (below(6) == 0) {
            s.dispatch();
            for (std::size_t n = below(6); n != 0; --n) s.complete_one();
        }
    }
    s.finish();
    EXPECT_TRUE(s.scheduler->idle()) << seed;
    const auto& counters = s.scheduler->counters();
    EXPECT_EQ(counters.succeeded + counters.failed + counters.cancelled, result.num_submitted) << seed;
    result.num_failed = counters.failed;
    result.num_copies = s.num_copies();
    result.num_steps = s.scheduler->num_steps();
    return result;
}

TEST(Admission, programs_whose_every_task_fits_beside_what_the_program_holds_never_fail) {
    std::size_t copies = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        const RandomProgram result = run_random(seed, 120, true);
        EXPECT_EQ(result.num_failed, 0u) << seed;
        copies += result.num_copies;
    }
    EXPECT_GT(copies, 0u);
}

TEST(Admission, programs_that_do_not_fit_end_after_few_copies_for_each_task) {
    std::size_t failed = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        constexpr std::size_t num_tasks = 120;
        const RandomProgram result = run_random(seed, num_tasks, false);
        failed += result.num_failed;
        EXPECT_LE(result.num_copies, 4 * num_tasks) << seed;
        EXPECT_LE(result.num_steps, 200 * num_tasks) << seed;
    }
    EXPECT_GT(failed, 0u);
}

}  // namespace
