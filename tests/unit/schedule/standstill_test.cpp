// Functions of the program that may wait for a task that the scheduler holds back: it goes.
#include <gtest/gtest.h>

#include "dropping_program.hpp"

namespace {

using namespace kmm::schedule_test;

TEST(Standstill, what_makes_content_goes_ahead_of_what_does_not_fit_where_nothing_moves) {
    Program s({4 * unit, 6 * unit});
    Array& flag = s.make_array(1);
    Array& a = s.make_array(6);
    const TaskNumber gate = s.run(TaskKind::host, host, {{&flag.chunks[0], true, true}}).number;
    for (std::size_t c = 0; c < 4; ++c) s.run(TaskKind::kernel, gpu, {{&a.chunks[c], true, true}});
    // It holds 5 units and needs 5; with a margin of one in each memory that is too much.
    s.run(TaskKind::kernel, gpu,
          {{&flag.chunks[0], false, false},
           {&a.chunks[0], false, false},
           {&a.chunks[1], false, false},
           {&a.chunks[2], false, false},
           {&a.chunks[3], false, false}},
          {gate});
    s.run(TaskKind::kernel, gpu, {{&a.chunks[4], true, true}});
    s.dispatch();
    while (s.num_finished() != s.instructions.size()) s.complete_one();
    EXPECT_EQ(s.num_kernels(), 4u);
    s.pass_interval();
    s.dispatch();
    EXPECT_EQ(s.num_kernels(), 5u) << "the host function may wait for it";
    s.finish();
    EXPECT_TRUE(s.failures.empty());
}

/// A function that runs, a task that waits for it and is the front, and behind that a task that makes content. Returns
/// whether it runs before the function has ended.
bool goes_before_the_function_ends(Program& s, TaskKind kind, MemoryIndex memory, std::size_t units) {
    const TaskNumber gate = s.run(kind, memory, {}).number;
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    const TaskNumber behind =
        s.run(TaskKind::kernel, gpu, {{&s.make_array(1, units * unit).chunks[0], true, true}}).number;
    s.dispatch();
    if (kind == TaskKind::device_function) {
        EXPECT_FALSE(s.is_handed_out(behind)) << "the device is busy";
        s.pass_interval();
        s.dispatch();
    }
    return s.is_handed_out(behind);
}

TEST(Standstill, what_makes_content_goes_although_a_function_of_the_host_or_of_its_device_does_not_end) {
    for (const TaskKind kind : {TaskKind::host, TaskKind::device_function}) {
        Program s({64 * unit, 16 * unit});
        const MemoryIndex memory = kind == TaskKind::host ? host : gpu;
        EXPECT_TRUE(goes_before_the_function_ends(s, kind, memory, 8));
    }
}

TEST(Standstill, what_makes_content_goes_where_others_end_and_the_front_waits_for_a_function) {
    Program s({64 * unit, 16 * unit});
    const TaskNumber gate = s.run(TaskKind::device_function, gpu, {}).number;
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    const TaskNumber behind = s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}}).number;
    const auto one_more = [&] {
        const TaskNumber number = s.run(TaskKind::kernel, gpu, {}).number;
        s.dispatch();
        EXPECT_TRUE(s.is_handed_out(number));
        s.complete_one();
    };
    one_more();
    EXPECT_FALSE(s.is_handed_out(behind)) << "the device is busy";
    s.scheduler->interval_passed();
    one_more();
    s.scheduler->interval_passed();
    s.dispatch();
    EXPECT_TRUE(s.is_handed_out(behind)) << "the function may wait for it";
}

TEST(Standstill, what_makes_content_goes_where_others_run_at_each_look_and_the_front_waits_for_a_function) {
    for (const TaskKind others : {TaskKind::kernel, TaskKind::device_function}) {
        Program s({64 * unit, 16 * unit});
        const TaskNumber gate = s.run(TaskKind::host, host, {}).number;
        s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
        s.run(others, gpu, {});
        const auto make_behind = [&] {
            return s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 4 * unit).chunks[0], true, true}}).number;
        };
        const TaskNumber large =
            s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}}).number;
        kmm::graph::Position launched = 0;
        std::size_t num_ended = 0;
        const auto one_begins_before_another_ends = [&] {
            s.run(others, gpu, {});
            s.dispatch();
            if (others == TaskKind::kernel) return s.complete_one();
            ASSERT_LT(num_ended, s.launches.size());
            Task& function = *s.launches[num_ended++];
            s.scheduler->launched(function, s.scheduler->lanes().id(0, LaneRole::launcher), ++launched, nullptr, true);
            s.dispatch();
        };
        one_begins_before_another_ends();
        EXPECT_FALSE(s.is_handed_out(large)) << "others run";
        s.scheduler->interval_passed();
        one_begins_before_another_ends();
        EXPECT_FALSE(s.is_handed_out(large));
        s.scheduler->interval_passed();
        one_begins_before_another_ends();
        EXPECT_TRUE(s.is_handed_out(large)) << "the function may wait for it";
        const TaskNumber later = make_behind();
        one_begins_before_another_ends();
        EXPECT_TRUE(s.is_handed_out(later)) << "the function still runs";
        Task* const function = s.on_host.front();
        s.on_host.clear();
        s.scheduler->host_done(*function, nullptr);
        s.dispatch();
        EXPECT_TRUE(s.failures.empty());
    }
}

TEST(Standstill, a_front_that_needs_a_whole_memory_gets_it_at_a_standstill_although_others_want_it_at_all_times) {
    Program s({64 * unit, 4 * unit});
    Array& there = s.make_array(12);
    for (Chunk& c : there.chunks) s.run(TaskKind::kernel, gpu, {{&c, true, true}});
    s.finish();
    s.run(TaskKind::host, host, {});
    std::size_t next = 0;
    const auto one_begins_before_another_ends = [&] {
        s.run(TaskKind::kernel, gpu, {{&there.chunks[next++ % 12], true, false}});
        s.dispatch();
        s.complete_one();
    };
    for (int i = 0; i < 8; ++i) s.run(TaskKind::kernel, gpu, {{&there.chunks[next++ % 12], true, false}});
    s.dispatch();
    const TaskNumber front = s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 4 * unit).chunks[0], true, true}}).number;
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(front));
    s.pass_interval();
    s.scheduler->interval_passed();
    s.dispatch();
    for (int n = 0; n < 100 && !s.is_handed_out(front); ++n) {
        one_begins_before_another_ends();
        if (n % 20 == 19) s.scheduler->interval_passed();
    }
    EXPECT_TRUE(s.is_handed_out(front)) << "the function may wait for it";
}

/// A front that needs all of a device's memory, and a function that pins a chunk there.
struct ClosedDevice {
    Program s{{64 * unit, 4 * unit, 4 * unit}};
    Array& there = s.make_array(1);
    Array& on_other = s.make_array(1);
    TaskNumber front = 0;

    ClosedDevice() {
        s.run(TaskKind::kernel, gpu, {{&there.chunks[0], true, true}});
        s.run(TaskKind::kernel, gpu_1, {{&on_other.chunks[0], true, true}});
        s.finish();
        function(gpu);
        front = s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 4 * unit).chunks[0], true, true}}).number;
        s.dispatch();
    }
    Task& function(MemoryIndex m) {
        Task& t =
            s.run(TaskKind::device_function, m, {{m == gpu ? &there.chunks[0] : &on_other.chunks[0], false, false}});
        s.dispatch();
        return t;
    }
    void end_all() {
        kmm::graph::Position position = 0;
        for (std::size_t i = 0; i < s.launches.size(); ++i) {
            Task& t = *s.launches[i];
            s.scheduler->launched(t, s.scheduler->lanes().id(t.memory.device(), LaneRole::launcher), ++position,
                                  nullptr, true);
            s.dispatch();
            s.finish();
        }
    }
    bool has_begun(const Task& t) const {
        return std::find(s.launches.begin(), s.launches.end(), &t) != s.launches.end();
    }
};

TEST(Standstill, behind_a_front_that_found_no_room_64_functions_that_pin_its_memory_begin_and_the_others_after_it) {
    ClosedDevice closed;
    std::vector<Task*> all;
    for (int i = 0; i < 70; ++i) all.push_back(&closed.function(gpu));
    Task& elsewhere = closed.function(gpu_1);
    EXPECT_EQ(std::count_if(all.begin(), all.end(), [&](Task* t) { return closed.has_begun(*t); }), 64);
    EXPECT_TRUE(closed.has_begun(elsewhere)) << "what it pins the front does not need";
    EXPECT_FALSE(closed.s.is_handed_out(closed.front));
    closed.end_all();
    EXPECT_TRUE(closed.s.is_handed_out(closed.front));
    for (Task* t : all) EXPECT_EQ(t->state.load(), kmm::graph::TaskState::settled);
    EXPECT_TRUE(closed.s.failures.empty());
}

TEST(Standstill, each_of_two_held_back_tasks_of_one_place_is_tried) {
    Program s({20 * unit, 20 * unit});
    Array& there = s.make_array(1, 8 * unit);
    s.run(TaskKind::kernel, gpu, {{&there.chunks[0], true, true}});
    s.finish();
    const TaskNumber gate = s.run(TaskKind::device_function, gpu, {}).number;
    Task& front = s.make_task(TaskKind::kernel, gpu,
                              {{&s.make_array(1).chunks[0], true, true}, {&there.chunks[0], false, false}}, {gate});
    front.held_bytes = 12 * unit;
    s.scheduler->submit(front);
    Task& large = s.make_task(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}});
    Task& small = s.make_task(TaskKind::kernel, gpu, {{&s.make_array(1, 2 * unit).chunks[0], true, true}});
    large.comes_before = small.comes_before = large.number;  // as that of a helper
    s.scheduler->submit(large);
    s.scheduler->submit(small);
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(small.number));
    s.pass_interval();
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(large.number)) << "the front would not fit beside it";
    EXPECT_TRUE(s.is_handed_out(small.number));
}

TEST(Standstill, a_front_that_needs_a_whole_memory_gets_it_although_functions_that_overlap_pin_a_chunk_of_it) {
    for (const TaskKind others : {TaskKind::device_function, TaskKind::host}) {
        const bool on_host = others == TaskKind::host;
        Program s({on_host ? 4 * unit : 64 * unit, 4 * unit});
        const MemoryIndex memory = on_host ? host : gpu;
        Array& there = s.make_array(1);
        s.run(TaskKind::kernel, gpu, {{&there.chunks[0], true, true}});
        if (on_host) s.run(TaskKind::host, host, {{&there.chunks[0], false, false}});
        s.finish();
        kmm::graph::Position launched = 0;
        std::size_t num_ended = 0;
        const auto end_one = [&] {
            if (on_host) {
                ASSERT_FALSE(s.on_host.empty());
                Task* const function = s.on_host.front();
                s.on_host.erase(s.on_host.begin());
                s.scheduler->host_done(*function, nullptr);
            } else {
                ASSERT_LT(num_ended, s.launches.size());
                Task& function = *s.launches[num_ended++];
                s.scheduler->launched(function, s.scheduler->lanes().id(0, LaneRole::launcher), ++launched, nullptr,
                                      true);
            }
            s.dispatch();
        };
        const auto begin_one = [&] {
            s.run(others, memory, {{&there.chunks[0], false, false}});
            s.dispatch();
        };
        begin_one();
        const TaskNumber front = s.run(on_host ? TaskKind::host : TaskKind::kernel, memory,
                                       {{&s.make_array(1, 4 * unit).chunks[0], true, true}})
                                     .number;
        s.dispatch();
        const auto has_begun = [&] {
            return on_host
                       ? std::any_of(s.on_host.begin(), s.on_host.end(), [&](Task* t) { return t->number == front; })
                       : s.is_handed_out(front);
        };
        for (int n = 0; n < 200 && !has_begun(); ++n) {
            begin_one();
            end_one();
        }
        EXPECT_TRUE(has_begun());
        EXPECT_TRUE(s.failures.empty());
    }
}

/// Steps for each kernel that others run while `num_tasks` are held back behind a front that waits for a function.
std::size_t steps_at_a_standstill(std::size_t num_tasks) {
    Program s({64 * unit, 16 * unit});
    const TaskNumber gate = s.run(TaskKind::host, host, {}).number;
    s.held_bytes = 60 * unit;  // what makes content does not fit beside the front
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    for (std::size_t i = 0; i < num_tasks; ++i)
        s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}});
    const auto one_more = [&] {
        s.run(TaskKind::kernel, gpu, {});
        s.dispatch();
        s.complete_one();
    };
    one_more();
    s.pass_interval();
    s.dispatch();
    constexpr std::size_t count = 50;
    const std::uint64_t before = s.scheduler->num_steps();
    for (std::size_t i = 0; i < count; ++i) one_more();
    EXPECT_LT(s.num_kernels(), 2 * count) << "nearly all are held back";
    return (s.scheduler->num_steps() - before) / count;
}

TEST(Standstill, costs_as_much_for_each_kernel_of_others_however_many_tasks_are_held_back) {
    const std::size_t steps = steps_at_a_standstill(1000), steps_of_twice = steps_at_a_standstill(2000);
    EXPECT_LE(steps, 200u);
    EXPECT_LE(steps_of_twice, steps + 10);
}

TEST(Standstill, the_end_of_a_function_that_ran_at_a_standstill_ends_it) {
    Program s({64 * unit, 16 * unit});
    const TaskNumber gate = s.run(TaskKind::device_function, gpu, {}).number;
    s.run(TaskKind::host, host, {});
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    const auto make = [&](std::size_t units) {
        return s.run(TaskKind::kernel, gpu, {{&s.make_array(1, units * unit).chunks[0], true, true}}).number;
    };
    const TaskNumber first = make(8);
    s.dispatch();
    s.pass_interval();
    s.dispatch();
    EXPECT_TRUE(s.is_handed_out(first));
    Task* const other = s.on_host.front();
    s.on_host.clear();
    s.scheduler->host_done(*other, nullptr);
    const TaskNumber second = make(4);
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(second));
}

TEST(Standstill, a_front_that_moves_on_is_no_standstill) {
    Program s({64 * unit, 16 * unit});
    const TaskNumber gate = s.run(TaskKind::device_function, gpu, {}).number;
    const TaskNumber first = s.run(TaskKind::host, host, {}).number;
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {first});
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    const TaskNumber behind = s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}}).number;
    s.dispatch();
    s.scheduler->interval_passed();
    Task* const t = s.on_host.front();
    s.on_host.clear();
    s.scheduler->host_done(*t, nullptr);
    s.dispatch();
    s.complete_one();
    s.scheduler->interval_passed();
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(behind)) << "the device is busy, and the front has moved since";
}

TEST(Standstill, of_those_held_back_any_that_can_goes_where_nothing_moves) {
    Program s({64 * unit, 16 * unit});
    const TaskNumber gate = s.run(TaskKind::host, host, {}).number;
    s.held_bytes = 60 * unit;
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}, {gate});
    s.held_bytes = 0;
    // The front needs 61 units of 78, less the largest in each memory.
    s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 8 * unit).chunks[0], true, true}});
    const TaskNumber small = s.run(TaskKind::kernel, gpu, {{&s.make_array(1).chunks[0], true, true}}).number;
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(small));
    s.pass_interval();
    s.dispatch();
    EXPECT_TRUE(s.is_handed_out(small));
    s.finish();
    EXPECT_TRUE(s.failures.empty());
}

TEST(Standstill, a_front_that_waits_for_pins_holds_up_nobody_where_nothing_moves) {
    Program s({64 * unit, 2 * unit, 4 * unit});
    Array& pinned = s.make_array(1);
    s.run(TaskKind::kernel, gpu, {{&pinned.chunks[0], true, true}});
    s.finish();
    s.run(TaskKind::device_function, gpu, {{&pinned.chunks[0], true, false}});
    const TaskNumber front = s.run(TaskKind::kernel, gpu, {{&s.make_array(1, 2 * unit).chunks[0], true, true}}).number;
    s.dispatch();
    const TaskNumber other = s.run(TaskKind::kernel, gpu_1, {{&s.make_array(1).chunks[0], true, true}}).number;
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(front));
    EXPECT_FALSE(s.is_handed_out(other));
    s.pass_interval();
    s.dispatch();
    EXPECT_FALSE(s.is_handed_out(front));
    EXPECT_TRUE(s.is_handed_out(other)) << "the function may wait for it";
}

}  // namespace
