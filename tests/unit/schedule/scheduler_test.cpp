// From tasks to instructions: the scheduler with an outbox that only writes down, and a test that plays the devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>

#include "stage.hpp"

namespace {

using namespace kmm::schedule_test;

TEST(Scheduler, a_kernel_is_handed_out_behind_its_predecessor_without_waiting_for_it) {
    Stage s({64 * unit, 64 * unit});
    Array& a = s.make_array(1);
    Task& first = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
    Task& second = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, false}}, {first.number});
    s.dispatch();
    ASSERT_EQ(s.instructions.size(), 2u);
    EXPECT_EQ(s.instructions[1].task, second.number);
    EXPECT_EQ(s.instructions[1].lane, s.instructions[0].lane) << "a successor stays in its predecessor's lane";
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, a_device_function_is_launched_at_once_unless_it_touches_memory_by_itself) {
    for (const bool touches : {false, true}) {
        SchedulerOptions options;
        options.functions_touch_memory = touches;
        Stage s({64 * unit, 64 * unit}, options);
        Array& a = s.make_array(1);
        Task& first = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
        Task& second = s.submit(TaskKind::device_function, gpu, {{&a.chunks[0], true, false}}, {first.number});
        s.dispatch();
        EXPECT_EQ(s.launches.empty(), touches);
        s.scheduler->advance(s.instructions[0].lane, 1);
        s.dispatch();
        ASSERT_EQ(s.launches, std::vector<Task*>{&second});
        const LaneId launcher = s.scheduler->lanes().id(0, LaneRole::launcher);
        s.scheduler->launched(second, launcher, 1, nullptr);
        s.scheduler->advance(launcher, 1);
        s.dispatch();
        EXPECT_TRUE(s.scheduler->idle());
    }
}

TEST(Scheduler, a_device_function_that_left_nothing_on_its_lane_is_not_watched_and_the_next_is_launched_at_once) {
    SchedulerOptions options;
    options.functions_touch_memory = true;
    Stage s({64 * unit, 64 * unit}, options);
    Array& a = s.make_array(1);
    Task& first = s.submit(TaskKind::device_function, gpu, {{&a.chunks[0], true, true}});
    Task& second = s.submit(TaskKind::device_function, gpu, {{&a.chunks[0], true, false}}, {first.number});
    s.dispatch();
    ASSERT_EQ(s.launches, std::vector<Task*>{&first});
    const LaneId launcher = s.scheduler->lanes().id(0, LaneRole::launcher);
    s.scheduler->launched(first, launcher, 1, nullptr, true);
    s.dispatch();
    EXPECT_EQ(s.launches, (std::vector<Task*>{&first, &second}));
    s.scheduler->launched(second, launcher, 2, nullptr, true);
    s.dispatch();
    EXPECT_TRUE(s.instructions.empty());
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, a_device_function_that_waits_for_memory_that_is_lost_is_never_launched) {
    SchedulerOptions options;
    options.functions_touch_memory = true;
    Stage s({64 * unit, 64 * unit}, options);
    Array& a = s.make_array(1);
    Task& first = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
    Task& second = s.submit(TaskKind::device_function, gpu, {{&a.chunks[0], true, false}}, {first.number});
    Task& third = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, false}}, {second.number});
    s.dispatch();
    const auto error = std::make_exception_ptr(std::runtime_error("on purpose"));
    s.scheduler->task_failed(second.number, error);
    s.scheduler->lane_failed(s.instructions[0].lane, 1, error);
    s.scheduler->advance(s.instructions[0].lane, 1);
    s.dispatch();
    EXPECT_TRUE(s.launches.empty());
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.failures.count(third.number), 1u);
}

TEST(Scheduler, a_host_task_starts_when_everything_before_it_is_done_and_its_copy_has_arrived) {
    Stage s({64 * unit, 64 * unit});
    Array& a = s.make_array(1);
    Task& first = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
    s.submit(TaskKind::host, host, {{&a.chunks[0], false, false}}, {first.number});
    s.dispatch();
    EXPECT_TRUE(s.on_host.empty());
    ASSERT_EQ(s.instructions.size(), 1u);
    s.scheduler->advance(s.instructions[0].lane, s.instructions[0].position);
    s.dispatch();
    ASSERT_EQ(s.instructions.size(), 2u);
    EXPECT_TRUE(s.instructions[1].is_whole_chunk());
    EXPECT_TRUE(s.on_host.empty());
    s.scheduler->advance(s.instructions[1].lane, s.instructions[1].position);
    s.dispatch();
    ASSERT_EQ(s.on_host.size(), 1u);
    s.scheduler->host_done(*s.on_host[0], nullptr);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, passes_over_more_data_than_fits_run_chunk_by_chunk) {
    constexpr std::size_t chunks = 16, passes = 5;
    Stage s({64 * unit, 4 * unit});
    Array& a = s.make_array(chunks);
    std::vector<TaskNumber> last(chunks);
    for (std::size_t c = 0; c < chunks; c++)
        last[c] = s.submit(TaskKind::host, host, {{&a.chunks[c], true, true}}).number;
    Task& gate = s.make_task(TaskKind::host, host, {});
    for (std::size_t p = 0; p < passes; p++)
        for (std::size_t c = 0; c < chunks; c++)
            last[c] = s.submit(TaskKind::kernel, gpu, {{&a.chunks[c], true, false}}, {last[c], gate.number}).number;
    s.finish();
    ASSERT_TRUE(s.ran.size() == chunks) << "nothing may run before the gate";
    s.scheduler->submit(gate);
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.copies(host, gpu), chunks);
    EXPECT_LE(s.copies(gpu, host), chunks);
    EXPECT_EQ(s.scheduler->counters().succeeded, chunks + passes * chunks + 1);
}

TEST(Scheduler, a_failure_cancels_what_needs_its_result_and_nothing_else) {
    Stage s({64 * unit, 64 * unit});
    Array& a = s.make_array(3);
    Task& root = s.submit(TaskKind::host, host, {{&a.chunks[0], true, true}});
    Task& needs =
        s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], false, false}, {&a.chunks[1], true, true}}, {root.number});
    Task& other = s.submit(TaskKind::kernel, gpu, {{&a.chunks[2], true, true}});
    Task& order_only = s.make_task(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
    order_only.predecessors = {{root.number, false}, {needs.number, false}};
    s.scheduler->submit(order_only);
    s.dispatch();
    ASSERT_EQ(s.on_host.size(), 1u);
    s.on_host.clear();
    s.scheduler->host_done(root, std::make_exception_ptr(std::runtime_error("x")));
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.failures.count(root.number), 1u);
    EXPECT_EQ(s.failures.count(needs.number), 1u);
    EXPECT_EQ(s.failures.count(other.number), 0u);
    EXPECT_EQ(s.failures.count(order_only.number), 0u);
    EXPECT_EQ(s.failures[needs.number]->root->number, root.number);
    EXPECT_EQ(std::count(s.ran.begin(), s.ran.end(), needs.number), 0);
    EXPECT_EQ(s.scheduler->counters().failed, 1u);
    EXPECT_EQ(s.scheduler->counters().cancelled, 1u);
    // One that comes later finds the failure of a task that is gone.
    Task& later = s.submit(TaskKind::kernel, gpu, {{&a.chunks[1], true, false}}, {needs.number});
    s.finish();
    EXPECT_EQ(s.failures.count(later.number), 1u);
}

TEST(Scheduler, when_nothing_can_release_memory_one_task_fails_and_the_rest_go_on) {
    Stage s({unit, unit});
    Array& a = s.make_array(4);
    for (std::size_t c = 0; c < 4; c++) s.submit(TaskKind::kernel, gpu, {{&a.chunks[c], true, true}});
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.scheduler->counters().succeeded, 2u);
    EXPECT_EQ(s.scheduler->counters().failed, 2u);
    s.scheduler->release(a);
    ASSERT_EQ(s.scheduler->freed_owners().size(), 1u);
    Array& b = s.make_array(2);
    for (std::size_t c = 0; c < 2; c++) s.submit(TaskKind::kernel, gpu, {{&b.chunks[c], true, true}});
    s.finish();
    EXPECT_EQ(s.scheduler->counters().succeeded, 4u);
}

TEST(Scheduler, no_task_fails_for_memory_while_a_copy_is_on_its_way_that_frees_some_when_it_is_done) {
    constexpr std::size_t others = 14;
    Stage s({unit, (2 + others) * unit});
    Array& a = s.make_array(1);
    Array& b = s.make_array(1);
    Array& x = s.make_array(others);
    std::vector<Stage::Wanted> all_of_x;
    for (Chunk& chunk : x.chunks) all_of_x.push_back({&chunk, true, true});
    s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}});
    s.submit(TaskKind::kernel, gpu, {{&b.chunks[0], true, true}});
    s.submit(TaskKind::kernel, gpu, all_of_x);
    s.finish();
    Task& function = s.submit(TaskKind::device_function, gpu, all_of_x);
    s.dispatch();
    ASSERT_EQ(s.launches.size(), 1u);
    // Both of the others would have to leave; the host has room for one.
    Array& c = s.make_array(2);
    s.submit(TaskKind::kernel, gpu, {{&c.chunks[0], true, true}, {&c.chunks[1], true, true}});
    s.dispatch();
    ASSERT_EQ(s.copies(gpu, host), 1u);
    s.scheduler->release(a);
    ASSERT_TRUE(s.scheduler->freed_owners().empty()) << "its copy to the host is on its way";
    s.scheduler->launched(function, s.scheduler->lanes().id(0, LaneRole::launcher), 1, nullptr, true);
    s.dispatch();
    EXPECT_EQ(s.scheduler->counters().failed, 0u);
    s.finish();
    EXPECT_EQ(s.scheduler->counters().failed, 0u);
    EXPECT_EQ(s.scheduler->counters().succeeded, 5u);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, a_task_that_lacks_memory_of_others_keeps_nobody_waiting_and_is_served_first) {
    Stage s({100 * unit, 8 * unit});
    s.driver_has = 2 * unit;
    const TaskNumber large =
        s.submit(TaskKind::kernel, gpu, {{&s.make_array(1, 6 * unit).chunks[0], true, true}}).number;
    s.finish();
    ASSERT_EQ(s.waits.size(), 1u);
    EXPECT_EQ(s.waits[0], (std::pair<std::size_t, bool>{6 * unit, true}));
    Array& small = s.make_array(2);
    for (Chunk& c : small.chunks) s.submit(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    EXPECT_EQ(s.ran.size(), 2u);
    EXPECT_TRUE(s.scheduler->waits_for_memory(*s.table.find(large)));
    EXPECT_EQ(s.waits.size(), 1u) << "one wait at a time";
    s.scheduler->awaited(gpu, std::uintptr_t{9} << 40, 6 * unit, false);
    s.finish();
    EXPECT_EQ(s.ran.back(), large);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, a_wait_in_vain_fails_those_who_were_ready_before_it_and_the_others_have_a_wait_of_their_own) {
    Stage s({100 * unit, 8 * unit});
    s.driver_has = 0;
    Array& a = s.make_array(30, 6 * unit);
    for (std::size_t c = 0; c < 20; c++) s.submit(TaskKind::kernel, gpu, {{&a.chunks[c], true, true}});
    s.finish();
    ASSERT_EQ(s.waits.size(), 1u);
    const TaskNumber late = s.submit(TaskKind::kernel, gpu, {{&a.chunks[20], true, true}}).number;
    s.finish();
    std::size_t num_waits = 1;
    for (; s.failures.size() < 20; num_waits++) {
        ASSERT_EQ(s.waits.size(), num_waits);
        EXPECT_EQ(s.waits.back().second, num_waits == 1) << "they have waited long enough";
        s.scheduler->awaited(gpu, 0, 0, false);
        s.finish();
    }
    EXPECT_EQ(s.failures.count(late), 0u);
    ASSERT_EQ(s.waits.size(), num_waits);
    EXPECT_TRUE(s.waits.back().second);
    s.scheduler->awaited(gpu, 0, 0, false);
    s.finish();
    EXPECT_EQ(s.failures.count(late), 1u);
    EXPECT_TRUE(s.scheduler->idle());
}

TEST(Scheduler, a_wait_for_memory_begins_once_and_ends_with_the_grant_or_the_failure) {
    Stage s({unit, unit});
    Array& a = s.make_array(4);
    const TaskNumber first = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}}).number;
    s.scheduler->dispatch();
    ASSERT_EQ(s.waits_began, std::vector<TaskNumber>{first});  // for the memory service
    EXPECT_TRUE(s.scheduler->waits_for_memory(*s.table.find(first)));
    s.dispatch();
    EXPECT_EQ(s.waits_ended, std::vector<TaskNumber>{first});
    EXPECT_FALSE(s.scheduler->waits_for_memory(*s.table.find(first)));
    for (std::size_t c = 1; c < 4; c++) s.submit(TaskKind::kernel, gpu, {{&a.chunks[c], true, true}});
    s.finish();
    EXPECT_EQ(s.scheduler->counters().failed, 2u);
    std::sort(s.waits_began.begin(), s.waits_began.end());
    std::sort(s.waits_ended.begin(), s.waits_ended.end());
    EXPECT_EQ(s.waits_began, s.waits_ended);
    EXPECT_EQ(std::unique(s.waits_began.begin(), s.waits_began.end()), s.waits_began.end());
    EXPECT_EQ(s.scheduler->counters().tasks_waited, s.waits_ended.size());
}

TEST(Scheduler, chunks_of_a_released_array_that_no_task_needs_leave_while_other_chunks_are_used) {
    for (const bool is_tried_before : {false, true}) {
        Stage s({2 * unit, 4 * unit});
        Array& r = s.make_array(2);
        Chunk& x = s.make_array(1).chunks[0];
        for (Chunk& c : r.chunks) s.submit(TaskKind::host, host, {{&c, true, true}});
        s.finish();
        s.submit(TaskKind::host, host, {});  // on its way, so that nobody fails for memory yet
        s.dispatch();
        Task& a = s.make_task(TaskKind::host, host, {{&x, true, true}});
        Task& z = s.make_task(TaskKind::host, host, {{&x}, {&r.chunks[1]}}, {a.number});
        s.scheduler->submit(a);
        s.scheduler->submit(z);
        if (is_tried_before) s.dispatch();
        s.scheduler->release(r);
        s.dispatch();
        s.finish();
        EXPECT_TRUE(s.failures.empty()) << is_tried_before;
    }
}

TEST(Scheduler, what_a_task_misses_is_known_however_many_tasks_are_on_their_way) {
    for (const int others : {10, 40, 61, 62}) {  // with two more the most that may be on their way
        Stage s(PerMemory<std::size_t>(std::vector<std::size_t>{2 * unit}));
        Array& r = s.make_array(1);
        Chunk& x = s.make_array(1).chunks[0];
        Array& y = s.make_array(1);
        s.submit(TaskKind::host, host, {{&r.chunks[0], true, true}});
        s.finish();
        std::vector<Task*> all;
        Task& first = s.make_task(TaskKind::host, host, {});
        all.push_back(&first);
        for (int i = 0; i < others; ++i) all.push_back(&s.make_task(TaskKind::host, host, {}));
        all.push_back(&s.make_task(TaskKind::host, host, {{&y.chunks[0], true, true}}, {first.number}));
        all.push_back(&s.make_task(TaskKind::host, host, {{&x, true, false}}));
        all.push_back(&s.make_task(TaskKind::host, host, {{&x, true, false}, {&r.chunks[0]}}));
        for (Task* t : all) s.scheduler->submit(*t);
        s.scheduler->release(r);
        s.scheduler->release(y);
        s.finish();
        EXPECT_TRUE(s.failures.empty()) << others;
    }
}

TEST(Scheduler, a_barrier_is_done_when_everything_before_it_is_settled) {
    Stage s({64 * unit, 64 * unit});
    Array& a = s.make_array(2);
    s.submit(TaskKind::host, host, {{&a.chunks[0], true, true}});
    Task& barrier = s.make_task(TaskKind::join, host, {});
    barrier.is_barrier = true;
    s.scheduler->submit(barrier);
    Task& after = s.submit(TaskKind::kernel, gpu, {{&a.chunks[1], true, true}});
    s.dispatch();
    s.scheduler->advance(s.instructions.at(0).lane, s.instructions.at(0).position);
    EXPECT_EQ(s.table.find(after.number), nullptr);
    EXPECT_NE(s.table.find(barrier.number), nullptr);
    s.scheduler->host_done(*s.on_host.at(0), nullptr);
    s.dispatch();
    EXPECT_EQ(s.table.find(barrier.number), nullptr);
}

TEST(Scheduler, debug_runs_in_the_order_of_submission) {
    SchedulerOptions options;
    options.debug = true;
    Stage s({64 * unit, 64 * unit, 64 * unit}, options);
    Array& a = s.make_array(6);
    std::vector<TaskNumber> expected;
    std::size_t c = 0;
    for (int round = 0; round < 2; round++)
        for (const MemoryIndex m : kmm::memory::memories(2)) {
            const TaskKind kind = m.is_host() ? TaskKind::host : TaskKind::kernel;
            expected.push_back(s.submit(kind, m, {{&a.chunks[c++], true, true}}).number);
        }
    s.dispatch();
    EXPECT_EQ(s.on_host.size() + s.instructions.size(), 1u);
    s.finish();
    EXPECT_EQ(s.ran, expected);
}

TEST(Scheduler, a_fetch_that_fails_fails_all_tasks_that_were_handed_out_behind_it) {
    Stage s({64 * unit, 64 * unit});
    Array& a = s.make_array(3);
    Task& source = s.submit(TaskKind::host, host, {{&a.chunks[0], true, true}});
    s.finish();
    Task& first =
        s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], false, false}, {&a.chunks[1], true, true}}, {source.number});
    Task& second =
        s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], false, false}, {&a.chunks[2], true, true}}, {source.number});
    s.dispatch();
    ASSERT_EQ(s.copies(host, gpu), 1u);
    const auto error = std::make_exception_ptr(std::runtime_error("the link is gone"));
    s.scheduler->task_failed(first.number, error);
    s.scheduler->copy_failed(s.scheduler->lanes().id(0, LaneRole::up), 1, error);
    s.finish();
    EXPECT_EQ(s.failures.count(first.number), 1u);
    EXPECT_EQ(s.failures.count(second.number), 1u) << "it ran on what never arrived";
    // The host still has the content.
    Task& third = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], false, false}}, {source.number});
    s.finish();
    EXPECT_EQ(s.failures.count(third.number), 0u);
    EXPECT_EQ(s.copies(host, gpu), 2u);
}

// The host's memory is of two allocations that touch, the device's of one.
TEST(Scheduler, a_copy_extends_the_one_before_it_where_both_lie_side_by_side_in_one_allocation_each) {
    constexpr std::size_t chunks = 8, in_first = 3, last = 5;
    Stage s({chunks * unit, chunks * unit});
    Array& a = s.make_array(chunks);
    constexpr std::uintptr_t begin = 1 << 30, between = begin + in_first * unit;
    s.scheduler->given_again(host, begin, in_first * unit, true);
    s.scheduler->given_again(host, between, (chunks - in_first) * unit, true);
    s.scheduler->given_again(gpu, 2 * begin, chunks * unit, false);
    std::vector<TaskNumber> written;
    for (Chunk& c : a.chunks) written.push_back(s.submit(TaskKind::kernel, gpu, {{&c, true, true}}).number);
    s.finish();
    // One is fetched last, so that its neighbours are side by side on the host alone.
    for (std::size_t c = 0; c < chunks; ++c)
        if (c != last) s.submit(TaskKind::host, host, {{&a.chunks[c]}});
    s.submit(TaskKind::host, host, {{&a.chunks[last]}});
    const std::size_t first = s.instructions.size();
    s.finish();
    std::size_t num_extending = 0, num_at_border = 0;
    for (std::size_t i = first; i < s.instructions.size(); ++i) {
        const Instruction& copy = s.instructions[i];
        const Instruction& previous = s.instructions[i - 1];
        ASSERT_TRUE(copy.is_whole_chunk());
        const bool touch =
            i != first && copy.source == previous.source + unit && copy.destination == previous.destination + unit;
        const bool at_border = copy.destination == between;
        EXPECT_EQ(copy.extends_previous, touch && !at_border) << i - first;
        num_at_border += touch && at_border ? 1 : 0;
        num_extending += copy.extends_previous ? 1 : 0;
    }
    EXPECT_EQ(s.instructions.size() - first, chunks);
    EXPECT_EQ(num_at_border, 1u) << "side by side, and of two allocations";
    EXPECT_EQ(num_extending, chunks - 4) << "all but the first, the last, and those behind the gap and the border";
}

TEST(Scheduler, lanes_are_chosen_with_all_tasks_of_a_submit_in_view) {
    for (const bool foreseen : {false, true}) {
        Stage s({64 * unit, 64 * unit});
        Array& out = s.make_array(16);
        Array& in = s.make_array(2);
        // Two kernels on two lanes, and nothing can follow them at once.
        std::vector<TaskNumber> before;
        for (Chunk& c : in.chunks) before.push_back(s.submit(TaskKind::kernel, gpu, {{&c, true, true}}).number);
        for (int i = 0; i < 2; ++i) s.submit(TaskKind::kernel, gpu, {{&in.chunks[0], false}}, before);
        s.dispatch();
        std::vector<Task*> tasks;
        for (Chunk& c : out.chunks) tasks.push_back(&s.make_task(TaskKind::kernel, gpu, {{&c, true, true}}, before));
        for (std::size_t i = 1; i < tasks.size(); ++i) tasks[i - 1]->next_published = tasks[i];
        if (foreseen) s.scheduler->foresee(*tasks[0]);
        const std::size_t first = s.instructions.size();
        for (Task* const t : tasks) {
            s.scheduler->submit(*t);
            s.dispatch();
        }
        ASSERT_EQ(s.instructions.size(), first + tasks.size());
        std::size_t on_first_lane = 0;
        for (std::size_t i = 0; i < 8; ++i)
            on_first_lane += s.instructions[first + i].lane == s.scheduler->lanes().id(0, LaneRole::compute, 0) ? 1 : 0;
        if (foreseen)
            EXPECT_EQ(on_first_lane, 8u) << "the first half of the row";
        else
            EXPECT_LT(on_first_lane, 8u) << "the row was not known yet: what is tested here would not show";
    }
}

TEST(Scheduler, of_tasks_that_wait_for_others_memory_in_vain_only_the_front_fails_and_what_depends_on_it) {
    Stage s({100 * unit, 8 * unit});
    s.driver_has = 100 * unit;
    Array& a = s.make_array(3, 6 * unit);
    s.submit(TaskKind::host, host, {{&a.chunks[2], true, true}});
    s.finish();
    s.driver_has = 0;
    const TaskNumber front = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true, true}}).number;
    const TaskNumber behind = s.submit(TaskKind::kernel, gpu, {{&a.chunks[0], true}}, {front}).number;
    const TaskNumber other = s.submit(TaskKind::kernel, gpu, {{&a.chunks[2], true}}).number;
    s.finish();
    ASSERT_TRUE(s.scheduler->waits_for_memory(*s.table.find(other)));
    s.scheduler->awaited(gpu, 0, 0, false);
    s.driver_has = 100 * unit;
    s.finish();
    if (!s.scheduler->idle()) s.scheduler->awaited(gpu, std::uintptr_t{9} << 40, 6 * unit, false);
    s.finish();
    EXPECT_TRUE(s.scheduler->idle());
    EXPECT_EQ(s.failures.size(), 2u);
    EXPECT_TRUE(s.failures.count(front) == 1 && s.failures.count(behind) == 1);
    EXPECT_EQ(s.ran.back(), other) << "it was not the front when the wait ended";
}

}  // namespace
