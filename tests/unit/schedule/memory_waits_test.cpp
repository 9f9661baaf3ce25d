// Tasks that found no memory, without a schedule: when they are tried again, and what is tried for them.
#include "kmm/schedule/memory_waits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parts.hpp"

namespace kmm::parts_test::waits_for_memory {
namespace {

using schedule::Admission;
using schedule::MemoryWaits;
using schedule::ReadyTasks;

constexpr std::size_t units = 4;
constexpr std::size_t limit = units * unit;  // of the device and of the host
constexpr std::uintptr_t bounce = std::uintptr_t{77} << 40;

/// A task that is tried is placed if it is among `fits`, and else waits again, as in the schedule.
class MemoryWaitsTest : public ::testing::Test, protected MemoryWaits::Issuer {
  protected:
    void try_issue(Task& t) override {
        tried.push_back(&t);
        if (fits.count(&t) != 0) {
            admission.placed(t);
            waits.end(t);
            return waits.may_fit_now();
        }
        const bool lacks = lacking.count(&t) != 0;
        if (admission.is_front(t) && t.is_unplaced && !lacks) admission.close_for(t);
        waits.wait(t, lacks);
    }
    void end_dependents() override { num_ends += 1; }
    void fail_for_memory(Task& t) override {
        failed.push_back(&t);
        admission.cancelled(t);
        waits.end(t);
        waits.may_fit_now();
    }

    /// It needs that much, which nothing holds yet.
    Task& make_task(std::size_t num_units = 1) {
        Task& t = ground.make_kernel({{&ground.make_array(1, num_units * unit).chunks[0], true, true}});
        admission.add(t);
        return t;
    }
    std::vector<Task*> make_tasks(std::size_t count) {
        std::vector<Task*> tasks;
        for (std::size_t i = 0; i < count; ++i) tasks.push_back(&make_task());
        return tasks;
    }
    std::vector<Task*> take_ready() {
        std::vector<Task*> taken;
        ready.refresh();
        while (Task* const t = ready.take(gpu, admission.closed_for(), [] { return true; })) taken.push_back(t);
        return taken;
    }
    /// As the schedule does between two steps. Returns those that were tried, in the step too.
    std::vector<Task*> try_ready() {
        for (Task* t : take_ready()) try_issue(*t);
        return std::exchange(tried, {});
    }
    /// The device's memory is in pieces, with two units free and a unit of content behind each; the host is empty.
    void fragment() {
        Chunk* chunks[units];
        for (Chunk*& c : chunks) c = &ground.make_content(gpu);
        ground.drop(*chunks[0], gpu);
        ground.drop(*chunks[2], gpu);
    }
    /// Copies within the device.
    std::ptrdiff_t num_moves() const {
        return std::ranges::count_if(ground.requests.transfers, [](const auto& t) { return t.from == t.to; });
    }

    Ground ground{{limit, limit}};
    Admission admission{ground.residency};
    ReadyTasks ready{ground.table, ground.residency, ground.options};
    MemoryWaits waits{*this, ground.outbox, ground.residency, admission, ready, ground.options, ground.counters};
    std::set<const Task*> fits, lacking;  ///< the latter: memory of others
    std::vector<Task*> tried, failed;
    std::size_t num_ends = 0;  ///< calls of `end_dependents`
};

TEST_F(MemoryWaitsTest, tasks_that_found_no_memory_are_ready_again_when_some_may_have_become_free) {
    const auto tasks = make_tasks(2);
    waits.retry_all();
    EXPECT_FALSE(waits.is_stalled(gpu));
    for (Task* t : tasks) waits.wait(*t, false);
    EXPECT_TRUE(waits.is_stalled(gpu));
    EXPECT_FALSE(waits.is_stalled(host)) << "none of its tasks waits";
    EXPECT_TRUE(waits.waits(*tasks[1]));
    EXPECT_TRUE(take_ready().empty());
    waits.retry_all();
    EXPECT_FALSE(waits.is_stalled(gpu));
    EXPECT_FALSE(waits.waits(*tasks[1]));
    EXPECT_FALSE(tasks[1]->blocked);
    EXPECT_EQ(take_ready(), tasks);
    waits.wait(*tasks[0], false);
    EXPECT_EQ(ground.counters.memory_waits, 3u);
    EXPECT_EQ(ground.counters.tasks_waited, 2u);
    EXPECT_EQ(ground.outbox.waits_began, tasks) << "once for each";
    waits.end(*tasks[0]);
    waits.end(*tasks[0]);
    EXPECT_EQ(ground.outbox.waits_ended, std::vector<Task*>{tasks[0]});
}

TEST_F(MemoryWaitsTest, a_task_that_waits_for_a_chunk_is_ready_when_that_is_let_go_of_and_no_sooner) {
    Task& task = make_task();
    waits.wait_for_chunk(task);
    EXPECT_FALSE(waits.is_stalled(gpu)) << "others may be given memory";
    waits.retry_all();
    EXPECT_TRUE(take_ready().empty());
    waits.unblocked(task);
    EXPECT_FALSE(task.blocked);
    EXPECT_EQ(take_ready(), std::vector<Task*>{&task});
    EXPECT_EQ(ground.counters.memory_waits, 0u);
    EXPECT_FALSE(waits.step_in_vain()) << "none waits any more";
}

TEST_F(MemoryWaitsTest, sixteen_tasks_stand_aside_for_memory_of_others_and_keep_none_waiting) {
    ground.outbox.has_others = true;
    const auto tasks = make_tasks(17);
    for (std::size_t i = 0; i < 16; ++i) waits.wait(*tasks[i], true);
    EXPECT_FALSE(waits.is_stalled(gpu));
    ASSERT_EQ(ground.outbox.awaits.size(), 1u) << "one wait serves all of them";
    EXPECT_TRUE(ground.outbox.awaits[0].is_patient);
    EXPECT_EQ(waits.num_begun(gpu), 1u);
    EXPECT_TRUE(admission.is_front(*tasks[16]));
    EXPECT_EQ(waits.num_asked(), 0u) << "others may never let go of any";
    waits.wait(*tasks[16], true);
    EXPECT_TRUE(waits.is_stalled(gpu));
    waits.retry_all();
    EXPECT_EQ(take_ready().size(), 17u) << "those aside are tried too";
}

TEST_F(MemoryWaitsTest, none_stands_aside_where_memory_of_others_cannot_be_awaited) {
    Task& task = make_task();
    waits.wait(task, true);
    EXPECT_TRUE(waits.is_stalled(gpu));
    EXPECT_EQ(waits.num_begun(gpu), 0u);
    EXPECT_TRUE(task.is_unplaced) << "those behind it wait for it";
}

TEST_F(MemoryWaitsTest, of_memory_of_others_the_oldest_task_gets_some_first) {
    ground.outbox.has_others = true;
    const auto tasks = make_tasks(3);
    for (Task* t : {tasks[2], tasks[0], tasks[1]}) waits.wait(*t, true);
    tasks[2]->made_for = tasks[0]->number;  // a helper is as old as what it is made for
    tasks[0]->made_for = tasks[2]->number;
    fits.insert(tasks[2]);
    const std::size_t before = ground.residency.space(gpu).counters.capacity_bytes;
    waits.awaited(gpu, Ground::base(gpu_1), unit, false);
    EXPECT_EQ(ground.residency.space(gpu).counters.capacity_bytes, before + unit);
    EXPECT_EQ(tried, std::vector<Task*>{tasks[2]});
    EXPECT_FALSE(tasks[2]->blocked);
    EXPECT_EQ(ground.outbox.waits_ended, std::vector<Task*>{tasks[2]});
    EXPECT_EQ(take_ready(), (std::vector<Task*>{tasks[0], tasks[1]}));
}

TEST_F(MemoryWaitsTest, a_timeout_fails_the_front_that_was_ready_before_the_wait_began_and_no_other) {
    ground.outbox.has_others = true;
    Task& early = make_task();
    Task& before_it = make_task();
    Task& behind = make_task();
    for (Task* t : {&early, &behind}) waits.wait(*t, true);
    waits.awaited(gpu, 0, 0, false);
    EXPECT_EQ(failed, std::vector<Task*>{&early});
    EXPECT_EQ(take_ready(), std::vector<Task*>{&behind}) << "an earlier task waits for its turn";
    EXPECT_TRUE(tried.empty());
    Task& late = make_task();
    late.waits_at_ready = waits.num_begun(gpu);
    admission.placed(before_it);
    waits.wait(behind, true);
    ASSERT_EQ(ground.outbox.awaits.size(), 2u);
    EXPECT_FALSE(ground.outbox.awaits[1].is_patient) << "it had its wait";
    waits.wait(late, true);
    waits.awaited(gpu, 0, 0, false);
    EXPECT_EQ(failed, (std::vector<Task*>{&early, &behind}));
    EXPECT_EQ(take_ready(), std::vector<Task*>{&late});
    waits.wait(late, true);
    ASSERT_EQ(ground.outbox.awaits.size(), 3u);
    EXPECT_TRUE(ground.outbox.awaits[2].is_patient) << "one of its own";
    waits.awaited(gpu, 0, 0, false);
    EXPECT_EQ(failed.back(), &late);
}

TEST_F(MemoryWaitsTest, a_task_that_had_its_wait_for_others_and_is_not_the_front_blocks_its_memory) {
    ground.outbox.has_others = true;
    make_task();
    Task& behind = make_task();
    waits.wait(behind, true);
    waits.awaited(gpu, 0, 0, false);
    ASSERT_EQ(take_ready(), std::vector<Task*>{&behind});
    waits.wait(behind, true);
    EXPECT_EQ(ground.outbox.awaits.size(), 1u);
    EXPECT_TRUE(waits.is_stalled(gpu));
}

TEST_F(MemoryWaitsTest, a_task_may_wait_patiently_again_when_memory_of_others_has_come) {
    ground.outbox.has_others = true;
    Task& before_it = make_task();
    Task& task = make_task();
    lacking.insert(&task);
    waits.wait(task, true);
    waits.awaited(gpu, 0, 0, false);
    admission.placed(before_it);
    waits.wait(task, true);
    waits.awaited(gpu, Ground::base(gpu_1), unit, false);
    EXPECT_EQ(tried, std::vector<Task*>{&task});
    std::vector<bool> patience;
    for (const auto& await : ground.outbox.awaits) patience.push_back(await.is_patient);
    EXPECT_EQ(patience, (std::vector<bool>{true, false, true}));
}

TEST_F(MemoryWaitsTest, each_request_for_memory_is_awaited_until_its_answer) {
    waits.grow(gpu, 100);
    EXPECT_FALSE(waits.exchange(gpu, 200)) << "not supported";
    EXPECT_EQ(waits.num_asked(), 1u);
    ground.outbox.has_exchange = true;
    EXPECT_TRUE(waits.exchange(gpu, 200));
    EXPECT_EQ(waits.num_asked(), 2u);
    using Asked = std::vector<std::pair<MemoryIndex, std::size_t>>;
    EXPECT_EQ(ground.outbox.growths, (Asked{{gpu, 100}}));
    EXPECT_EQ(ground.outbox.exchanges, (Asked{{gpu, 200}}));
    Task& task = make_task();
    waits.wait(task, false);
    waits.grown(gpu, 0, 0, false);
    EXPECT_EQ(waits.num_asked(), 1u);
    EXPECT_EQ(take_ready(), std::vector<Task*>{&task}) << "it evicts instead";
    waits.wait(task, false);
    waits.grown(gpu, Ground::base(gpu_1), unit, false);
    EXPECT_EQ(waits.num_asked(), 0u);
    EXPECT_EQ(take_ready(), std::vector<Task*>{&task});
}

TEST_F(MemoryWaitsTest,
       where_nothing_runs_the_front_is_tried_then_memory_is_compacted_then_the_others_are_tried_then_it_fails) {
    fragment();
    Task& front = make_task(2);
    Task& other = make_task();
    const std::vector<Task*> both{&front, &other}, front_alone{&front}, other_alone{&other};
    for (Task* t : both) try_issue(*t);
    ASSERT_EQ(admission.closed_for(), &front);
    tried.clear();
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_EQ(tried, front_alone);
    EXPECT_EQ(try_ready(), front_alone) << "the other one stands behind it";
    EXPECT_EQ(num_moves(), 0);
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_EQ(num_moves(), 2);
    EXPECT_EQ(try_ready(), front_alone);
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_EQ(try_ready(), other_alone) << "without the front";
    EXPECT_TRUE(front.blocked);
    EXPECT_TRUE(failed.empty());
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_EQ(failed, front_alone);
    fits = {&other};
    EXPECT_EQ(try_ready(), other_alone);
    EXPECT_FALSE(waits.step_in_vain());
}

TEST_F(MemoryWaitsTest, memory_that_came_begins_the_steps_anew_and_a_refusal_does_not) {
    fragment();
    Task& front = make_task(2);
    try_issue(front);
    ASSERT_TRUE(waits.step_in_vain());
    waits.grow(gpu, unit);
    waits.grown(gpu, Ground::base(gpu_1), unit, true);
    try_ready();
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_EQ(tried, std::vector<Task*>{&front}) << "the first step";
    waits.grow(gpu, unit);
    waits.grown(gpu, 0, 0, false);
    try_ready();
    EXPECT_TRUE(waits.step_in_vain());
    EXPECT_TRUE(tried.empty());
    EXPECT_EQ(num_moves(), 2) << "the second step";
}

/// Both memories are full, and the front reads a chunk of the host beside one of the device.
class SwapTest : public MemoryWaitsTest {
  protected:
    SwapTest() {
        for (std::size_t i = 0; i < units; ++i) {
            on_host.push_back(&ground.make_content(host));
            on_device.push_back(&ground.make_content(gpu));
        }
        EXPECT_TRUE(ground.residency.residents().begin_order(gpu));
        front = &ground.make_kernel({{on_host[0]}, {on_host[1]}, {on_device[0]}, {on_device[1]}});
        admission.add(*front);
        try_issue(*front);
    }
    void step() {
        EXPECT_TRUE(waits.step_in_vain());
        try_ready();
    }
    std::ptrdiff_t num_on_device() const {
        return std::ranges::count_if(front->uses, [](const Use& u) { return memory::is_valid(*u.chunk, gpu); });
    }

    std::vector<Chunk*> on_host, on_device;
    Task* front = nullptr;
};

TEST_F(SwapTest, chunks_of_the_front_change_places_with_others_one_by_one_over_the_bounce_buffer) {
    ground.outbox.has_bounce = true;
    step();
    step();
    EXPECT_EQ(ground.outbox.bounces, std::vector<std::size_t>{unit});
    EXPECT_EQ(waits.num_asked(), 1u);
    waits.bounce_came(bounce, unit);
    EXPECT_EQ(waits.num_asked(), 0u);
    EXPECT_EQ(num_on_device(), 2);
    try_ready();
    for (const std::ptrdiff_t expected : {3, 4}) {
        step();
        EXPECT_EQ(num_on_device(), expected);
        EXPECT_TRUE(memory::is_valid(*on_device[0], gpu)) << "the front uses it";
    }
    EXPECT_EQ(ground.outbox.bounces.size(), 1u) << "it is large enough";
}

TEST_F(SwapTest, without_a_bounce_buffer_the_front_fails_in_the_end) {
    ground.outbox.has_bounce = true;
    step();
    step();
    waits.bounce_came(0, 0);
    try_ready();
    step();
    EXPECT_TRUE(failed.empty());
    step();
    EXPECT_EQ(failed, std::vector<Task*>{front});
    EXPECT_EQ(ground.outbox.bounces.size(), 1u) << "a buffer that was refused is asked for once";
    EXPECT_EQ(num_on_device(), 2);
}

TEST_F(MemoryWaitsTest, no_task_fails_while_memory_of_others_may_come) {
    ground.outbox.has_others = true;
    Task& aside = make_task();
    Task& front = make_task();
    lacking.insert(&aside);
    for (Task* t : {&aside, &front}) try_issue(*t);
    for (int step = 0; step < 2; ++step) {
        EXPECT_TRUE(waits.step_in_vain());
        EXPECT_FALSE(try_ready().empty());
    }
    EXPECT_FALSE(waits.step_in_vain());
    EXPECT_TRUE(failed.empty());
    for (const Task* t : {&aside, &front}) EXPECT_TRUE(waits.waits(*t));
}

TEST_F(MemoryWaitsTest, the_front_is_tried_without_a_plan) {
    Chunk* chunks[units];
    for (Chunk*& c : chunks) c = &ground.make_content(host);
    ASSERT_TRUE(ground.residency.residents().begin_order(gpu)) << "something was evicted";
    ++ground.residency.space(gpu).counters.evictions;
    std::vector<Task*> tasks;
    for (std::size_t i = 0; i < 12; ++i)
        tasks.push_back(&ground.make_kernel({{chunks[i % units]}, {chunks[(i + 1) % units]}}));
    for (Task* t : tasks) ready.add(*t);
    Task* const planned = ready.take(gpu, nullptr, [] { return true; });
    ASSERT_EQ(planned->order_position, 1u);
    waits.wait(*planned, false);
    ASSERT_TRUE(waits.step_in_vain());
    for (const Task* t : tasks) EXPECT_EQ(t->order_position, 0u);
}

TEST_F(MemoryWaitsTest, a_front_that_stood_for_an_interval_beside_a_long_function_lets_others_pass) {
    Task& front = make_task(2 * units);
    Task& other = make_task();
    for (Task* t : {&front, &other}) try_issue(*t);
    waits.interval_passed(true);
    EXPECT_EQ(admission.closed_for(), &front) << "it may not have stood for the whole interval";
    waits.interval_passed(false);
    EXPECT_EQ(admission.closed_for(), &front) << "no function may wait for what stands behind it";
    EXPECT_TRUE(take_ready().empty());
    waits.interval_passed(true);
    EXPECT_EQ(admission.closed_for(), nullptr);
    EXPECT_EQ(take_ready().size(), 2u);
    waits.interval_passed(false);
    EXPECT_EQ(admission.closed_for(), &front) << "a function has ended";
}

TEST_F(MemoryWaitsTest, a_retry_costs_as_much_as_the_tasks_that_were_tried_since_the_last_one) {
    const auto steps = [&](std::size_t n) {
        const std::uint64_t before = waits.num_steps();
        for (Task* t : make_tasks(n)) waits.wait(*t, false);
        for (int i = 0; i < 100; ++i) waits.retry_all();
        EXPECT_EQ(take_ready().size(), n);
        return waits.num_steps() - before;
    };
    EXPECT_EQ(steps(1000), 1000u);
    EXPECT_EQ(steps(2000), 2000u);
}

}  // namespace
}  // namespace kmm::parts_test::waits_for_memory
