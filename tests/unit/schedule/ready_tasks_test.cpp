// Which ready task is next, and planned orders, without a schedule.
#include "kmm/schedule/ready_tasks.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "kmm/schedule/planned_orders.hpp"
#include "parts.hpp"

namespace kmm::parts_test::ready {
namespace {

using schedule::Admission;
using schedule::PlannedOrders;
using schedule::ReadyTasks;

constexpr std::size_t large = std::size_t{1} << 30;  // to look ahead is not worth it for a few units

class ReadyTasksTest : public ::testing::Test {
  protected:
    void start(std::size_t device_bytes = large, bool debug = false) {
        ground.emplace(PerMemory<std::size_t>{large, device_bytes, device_bytes});
        ground->options.debug = debug;
        ready.emplace(ground->table, ground->residency, ground->options);
    }
    /// Reads a chunk of that size, which the host has.
    Task& make_reader(std::size_t units, MemoryIndex m = gpu) {
        return ground->make_reader(ground->make_content(host, units), m);
    }
    static Chunk& chunk_of(Task& t) { return *t.uses[0].chunk; }
    /// The chunk comes to the memory, and residency says so.
    void bring(Task& t) {
        ground->put(chunk_of(t), t.memory);
        tell();
    }
    void tell() {
        for (Task* t : ground->requests.changed) ready->changed(*t);
        ground->requests.changed.clear();
    }
    Task* take(MemoryIndex m = gpu, Task* front = nullptr, bool may_fetch = true) {
        ready->refresh();
        return ready->take(m, front, [&] { return may_fetch; });
    }
    std::vector<Task*> take_all() {
        std::vector<Task*> taken;
        while (Task* const t = take()) taken.push_back(t);
        return taken;
    }

    std::optional<Ground> ground;
    std::optional<ReadyTasks> ready;
};

TEST_F(ReadyTasksTest, those_that_miss_nothing_come_first_in_the_order_in_which_they_became_ready) {
    start();
    Task& misses = make_reader(1);
    Task& first = make_reader(1);
    Task& second = make_reader(1);
    bring(first);
    bring(second);
    for (Task* t : {&misses, &second, &first}) ready->add(*t);
    EXPECT_EQ(take(gpu_1), nullptr) << "another memory";
    EXPECT_EQ(take_all(), (std::vector<Task*>{&second, &first, &misses}));
}

TEST_F(ReadyTasksTest, of_those_that_miss_something_what_moves_least_comes_first) {
    start();
    Task& three = make_reader(3);
    Task& one = make_reader(1);
    Task& two = make_reader(2);
    Task& also_one = make_reader(1);
    for (Task* t : {&three, &also_one, &two, &one}) ready->add(*t);
    EXPECT_EQ(take_all(), (std::vector<Task*>{&one, &also_one, &two, &three}));
}

TEST_F(ReadyTasksTest, what_misses_something_waits_until_more_may_be_fetched) {
    start();
    Task& misses = make_reader(1);
    Task& resident = make_reader(1);
    bring(resident);
    for (Task* t : {&misses, &resident}) ready->add(*t);
    EXPECT_EQ(take(gpu, nullptr, false), &resident);
    EXPECT_EQ(take(gpu, nullptr, false), nullptr);
    EXPECT_EQ(take(), &misses);
}

TEST_F(ReadyTasksTest, of_those_that_miss_something_only_the_front_is_taken_if_there_is_one) {
    start();
    Task& best = make_reader(1);
    Task& front = make_reader(4);
    Task& resident = make_reader(1);
    Task& elsewhere = make_reader(1, gpu_1);
    bring(resident);
    for (Task* t : {&best, &front, &resident, &elsewhere}) ready->add(*t);
    EXPECT_EQ(take(gpu_1, &front), nullptr);
    EXPECT_EQ(take(gpu, &front), &resident);
    EXPECT_EQ(take(gpu, &front, false), nullptr);
    EXPECT_EQ(take(gpu, &front), &front);
    EXPECT_EQ(take(gpu, &front), nullptr) << "it is here no longer";
    EXPECT_EQ(take(), &best);
}

TEST_F(ReadyTasksTest, a_task_whose_missing_bytes_change_is_ordered_again) {
    start();
    Array& a = ground->make_array(4, 2 * unit);
    for (Chunk& c : a.chunks) ground->put(c, host);
    Task& two_chunks = ground->make_kernel({{&a.chunks[0]}, {&a.chunks[1]}});
    Task& three_units = make_reader(3);
    for (Task* t : {&two_chunks, &three_units}) ready->add(*t);
    ground->put(a.chunks[0], gpu);
    EXPECT_EQ(ground->requests.changed, std::vector<Task*>{&two_chunks});
    tell();
    EXPECT_EQ(take(), &two_chunks) << "it moves two units now";
    ready->add(two_chunks);
    ground->put(a.chunks[1], gpu);
    tell();
    EXPECT_EQ(take(gpu, nullptr, false), &two_chunks) << "it misses nothing now";
    ground->put(chunk_of(three_units), gpu);
    tell();
    EXPECT_EQ(take(gpu, nullptr, false), &three_units);
    ground->drop(a.chunks[0], gpu);
    EXPECT_TRUE(ground->requests.changed.empty()) << "no task listens that was taken";
}

TEST_F(ReadyTasksTest, the_first_that_missed_nothing_stands_among_those_that_do_when_its_chunk_was_evicted) {
    start();
    EXPECT_FALSE(ready->first_was_evicted(gpu));
    Task& evicted = make_reader(1);
    Task& resident = make_reader(1);
    for (Task* t : {&evicted, &resident}) {
        bring(*t);
        ready->add(*t);
    }
    EXPECT_FALSE(ready->first_was_evicted(gpu));
    ground->drop(chunk_of(evicted), gpu);
    EXPECT_TRUE(ready->first_was_evicted(gpu));
    EXPECT_FALSE(ready->first_was_evicted(gpu)) << "the next one misses nothing";
    EXPECT_EQ(take(gpu, nullptr, false), &resident);
    EXPECT_EQ(take(gpu, nullptr, false), nullptr);
    EXPECT_EQ(take(), &evicted);
}

TEST_F(ReadyTasksTest, later_tasks_pass_over_an_older_one_while_the_memory_turns_over_four_times) {
    constexpr std::size_t units = 8;
    start(units * unit);
    Task& dear = make_reader(4);
    ready->add(dear);
    std::size_t passed = 0;
    for (; passed < 100; ++passed) {
        ready->add(make_reader(1));
        Task* const t = take();
        ASSERT_NE(t, nullptr);
        if (t == &dear) break;
        ready->issued(gpu, t->number);
    }
    EXPECT_EQ(passed, 4 * units + 1);
}

TEST_F(ReadyTasksTest,
       tasks_that_were_submitted_before_an_older_one_became_ready_or_were_not_issued_pass_it_over_freely) {
    for (const bool earlier : {false, true}) {
        start(8 * unit);
        std::vector<Task*> others;
        Task& dear = make_reader(4);
        for (int i = 0; earlier && i < 100; ++i) others.push_back(&make_reader(1));
        ready->add(dear);
        for (int i = 0; !earlier && i < 100; ++i) others.push_back(&make_reader(1));
        for (Task* other : others) {
            ready->add(*other);
            Task* const t = take();
            ASSERT_EQ(t, other);
            if (earlier) ready->issued(gpu, t->number);
        }
        EXPECT_EQ(take(), &dear);
    }
}

TEST_F(ReadyTasksTest, the_task_that_makes_most_others_possible_for_its_bytes_comes_first_where_that_is_worth_it) {
    for (const std::size_t device_bytes : {64 * unit, large}) {
        start(device_bytes);
        Task& plain = make_reader(2);
        Task& enabling = make_reader(3);
        for (int i = 0; i < 3; ++i) {
            Task& after = ground->make_reader(chunk_of(enabling));
            ground->add_edge(enabling, after);
            ground->link(after);
        }
        for (Task* t : {&plain, &enabling}) ready->add(*t);
        EXPECT_EQ(take(), device_bytes == large ? &plain : &enabling);
    }
}

TEST_F(ReadyTasksTest, of_equals_that_comes_first_for_which_alone_another_task_waits) {
    start();
    Task& first = make_reader(1);
    Task& second = make_reader(1);
    Task& other = make_reader(8);
    Task& after = ground->make_reader(chunk_of(second));
    ground->add_edge(second, after);
    ground->add_edge(other, after);
    ground->link(after);
    for (Task* t : {&first, &second}) ready->add(*t);
    after.unissued_predecessors = 1;  // the other one was issued
    ready->notice_last_predecessor(after);
    EXPECT_EQ(take_all(), (std::vector<Task*>{&second, &first}));
}

TEST_F(ReadyTasksTest, a_plan_is_followed_where_memory_is_short_but_for_the_task_after_doing_without) {
    start(4 * unit);
    std::vector<Task*> tasks;
    for (int i = 0; i < 12; ++i) tasks.push_back(&make_reader(1));
    bring(*tasks[0]);
    ASSERT_TRUE(ground->residency.residents().begin_order(gpu)) << "something was evicted";
    ++ground->residency.space(gpu).counters.evictions;
    ground->drop(chunk_of(*tasks[0]), gpu);
    for (Task* t : tasks) ready->add(*t);
    ready->do_without_orders();
    for (const std::uint32_t order_position : {0u, 1u, 2u}) {
        Task* const t = take();
        ASSERT_NE(t, nullptr);
        EXPECT_EQ(t->order_position, order_position);
        ready->issued(gpu, t->number);
    }
}

TEST_F(ReadyTasksTest, the_front_is_taken_alone_if_it_misses_something) {
    start();
    Admission admission(ground->residency);
    std::vector<Task*> tasks;
    for (int i = 0; i < 3; ++i) tasks.push_back(&make_reader(static_cast<std::size_t>(3 - i)));
    for (Task* t : tasks) admission.add(*t);
    EXPECT_EQ(ready->take_front(admission), nullptr);
    ready->add(*tasks[2]);
    ready->add(*tasks[1]);
    EXPECT_EQ(ready->take_front(admission), nullptr) << "it is not ready";
    ready->add(*tasks[0]);
    EXPECT_EQ(ready->take_front(admission), tasks[0]);
    EXPECT_EQ(ready->take_front(admission), nullptr);
    admission.placed(*tasks[0]);
    EXPECT_EQ(ready->take_front(admission), tasks[1]);
    EXPECT_EQ(take(), tasks[2]);
}

TEST_F(ReadyTasksTest, debug_takes_the_first_in_the_order_of_submission_if_it_is_ready) {
    start(large, true);
    Task& first = make_reader(8);
    Task& second = make_reader(1);
    Task& helper = ground->make_helper(TaskKind::host, host, second.number);
    for (Task* t : {&second, &helper}) {
        t->state.store(TaskState::ready);
        ready->add(*t);
    }
    EXPECT_EQ(ready->take_in_order(), nullptr) << "the first one is not ready";
    first.state.store(TaskState::ready);
    ready->add(first);
    first.blocked = true;
    EXPECT_EQ(ready->take_in_order(), nullptr);
    first.blocked = false;
    EXPECT_EQ(ready->take_in_order(), &first);
    ground->table.remove(first.number);
    EXPECT_EQ(ready->take_in_order(), &helper) << "it stands before the second";
    EXPECT_EQ(ready->take_in_order(), &second);
}

TEST_F(ReadyTasksTest, tasks_are_added_ordered_again_and_taken_in_steps_in_proportion) {
    const auto steps = [&](std::size_t n) {
        start(64 * unit);
        std::vector<Task*> tasks;
        for (std::size_t i = 0; i < n; ++i) {
            Task& t = make_reader(1 + i % 4);
            Task& after = ground->make_reader(chunk_of(t));
            ground->add_edge(t, after);
            ground->link(after);
            tasks.push_back(&t);
            ready->add(t);
            ready->notice_last_predecessor(after);
        }
        for (Task* t : tasks) ready->changed(*t);
        EXPECT_EQ(take_all().size(), n);
        return ready->num_steps();
    };
    const std::uint64_t once = steps(500), twice = steps(1000);
    EXPECT_GE(once, 500u);
    EXPECT_LE(twice, 2 * once + once / 10);
}

class PlannedOrdersTest : public ::testing::Test {
  protected:
    static constexpr std::size_t num_tasks = 16;

    /// Tasks that read two of 8 chunks, where 4 fit. They are ready, by their numbers.
    PlannedOrdersTest() : array(ground.make_array(8)), orders(ground.table, ground.residency) {
        for (Chunk& c : array.chunks) ground.put(c, host);
        for (std::size_t i = 0; i < num_tasks; ++i) {
            Task& t = ground.make_kernel({{&array.chunks[i % 8]}, {&array.chunks[(3 * i + 1) % 8]}});
            t.in_fetch_queue = true;
            ready.insert({{.first = t.number}, &t});
            for (const Use& u : t.uses) ground.residency.residents().add_next_use(*u.chunk, memory::next_use_of(t, u));
        }
    }
    void evict_one() {
        Chunk& c = array.chunks[7];
        ground.put(c, gpu);
        ASSERT_TRUE(ground.residency.residents().begin_order(gpu));
        ground.drop(c, gpu);
        ++ground.residency.space(gpu).counters.evictions;
    }
    std::size_t num_planned() const {
        return static_cast<std::size_t>(
            std::count_if(ready.begin(), ready.end(), [](const auto& t) { return t.task->order_position != 0; }));
    }
    void issue(Task& t) {
        t.in_fetch_queue = false;
        ready.erase({{.first = t.number}, nullptr});
        ground.residency.residents().unplan(t);
        orders.issued(gpu);
    }

    Ground ground{{large, 4 * unit}};
    Array& array;
    PlannedOrders orders;
    schedule::TasksByKey ready;
};

TEST_F(PlannedOrdersTest, there_is_none_where_nothing_was_evicted) {
    EXPECT_EQ(orders.next(gpu, ready), nullptr);
    EXPECT_EQ(num_planned(), 0u);
    EXPECT_FALSE(orders.is_over(gpu)) << "another search is tried after some tasks";
    evict_one();
    EXPECT_EQ(orders.next(gpu, ready), nullptr);
    for (int i = 0; i < 16; ++i) orders.issued(gpu);
    EXPECT_TRUE(orders.is_over(gpu));
    EXPECT_NE(orders.next(gpu, ready), nullptr);
}

TEST_F(PlannedOrdersTest, one_is_followed_task_by_task_for_half_of_its_length) {
    evict_one();
    std::size_t count = 0;
    Task* const first = orders.next(gpu, ready);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(num_planned(), num_tasks);
    EXPECT_EQ(orders.next(gpu, ready), first) << "until it was issued";
    for (std::uint16_t at = 1; !orders.is_over(gpu); ++at, ++count) {
        Task* const t = orders.next(gpu, ready);
        ASSERT_NE(t, nullptr);
        EXPECT_EQ(t->order_position, at);
        issue(*t);
    }
    EXPECT_EQ(count, num_tasks / 2);
}

TEST_F(PlannedOrdersTest, eight_tasks_that_are_not_ready_are_passed_over_and_no_more) {
    evict_one();
    ASSERT_NE(orders.next(gpu, ready), nullptr);
    std::vector<Task*> order(num_tasks + 1);
    for (const auto& entry : ready) order[entry.task->order_position] = entry.task;
    for (std::size_t at = 1; at <= 7; ++at) order[at]->in_fetch_queue = false;
    EXPECT_EQ(orders.next(gpu, ready), order[8]);
    order[8]->in_fetch_queue = false;
    EXPECT_EQ(orders.next(gpu, ready), nullptr);
    order[3]->in_fetch_queue = true;
    EXPECT_EQ(orders.next(gpu, ready), order[3]);
}

TEST_F(PlannedOrdersTest, no_task_is_planned_when_its_order_was_dropped) {
    evict_one();
    ASSERT_NE(orders.next(gpu, ready), nullptr);
    orders.drop(gpu);
    EXPECT_EQ(num_planned(), 0u);
    EXPECT_EQ(orders.next(gpu, ready), nullptr);
}

TEST_F(PlannedOrdersTest, none_is_followed_or_made_until_a_task_was_issued) {
    evict_one();
    ASSERT_NE(orders.next(gpu, ready), nullptr);
    orders.do_without();
    EXPECT_EQ(num_planned(), 0u);
    evict_one();
    EXPECT_EQ(orders.next(gpu, ready), nullptr);
    orders.issued(gpu);
    EXPECT_NE(orders.next(gpu, ready), nullptr);
}

}  // namespace
}  // namespace kmm::parts_test::ready
