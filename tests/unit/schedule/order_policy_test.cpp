// Which ready task comes next, and how many become possible with one.
#include "stage.hpp"

#include "kmm/schedule/enabling.hpp"
#include "kmm/schedule/lookahead.hpp"
#include "kmm/schedule/order_policy.hpp"
#include "kmm/schedule/tasks_by_place.hpp"

namespace {

using namespace kmm::schedule_test;
using kmm::schedule::key_of;
using kmm::schedule::Lookahead;
using kmm::schedule::OrderPolicy;
using kmm::schedule::ReadyTask;

constexpr OrderPolicy ours = OrderPolicy::fewest_bytes_a_task;

TEST(OrderPolicy, takes_what_moves_nothing_as_it_became_ready_unless_it_needs_much_more_room) {
    const ReadyTask late{.missing_bytes = 65, .ready_at = 9, .place = 1};
    const ReadyTask early{.missing_bytes = 100, .ready_at = 8, .place = 2};
    const ReadyTask small{.missing_bytes = 4, .needs_room = false, .ready_at = 10, .place = 3};
    const ReadyTask moves{.missing_bytes = 1, .moved_bytes = 1, .ready_at = 1};
    EXPECT_LT(key_of(ours, early), key_of(ours, late));
    EXPECT_LT(key_of(ours, small), key_of(ours, early)) << "it pushes next to nothing out";
    EXPECT_LT(key_of(ours, late), key_of(ours, moves));
    const ReadyTask makes{.missing_bytes = 65, .makes = true, .ready_at = 1, .place = 7};
    const ReadyTask makes_first{.missing_bytes = 65, .makes = true, .ready_at = 2, .place = 6};
    const ReadyTask makes_little{.missing_bytes = 4, .needs_room = false, .makes = true, .ready_at = 1, .place = 8};
    EXPECT_LT(key_of(ours, late), key_of(ours, makes_first));
    EXPECT_LT(key_of(ours, makes_first), key_of(ours, makes));
    EXPECT_LT(key_of(ours, makes_little), key_of(ours, late));
    EXPECT_LT(key_of(ours, makes), key_of(ours, moves));
}

TEST(OrderPolicy, takes_what_moves_least_then_what_others_wait_for_then_what_was_submitted_first) {
    const ReadyTask cheap{.moved_bytes = 10, .place = 9};
    const ReadyTask enables{.moved_bytes = 20, .enables = true, .place = 8};
    const ReadyTask older{.moved_bytes = 20, .place = 6};
    const ReadyTask younger{.moved_bytes = 20, .place = 7};
    EXPECT_LT(key_of(ours, cheap), key_of(ours, enables));
    EXPECT_LT(key_of(ours, enables), key_of(ours, older));
    EXPECT_LT(key_of(ours, older), key_of(ours, younger));
    EXPECT_LT(key_of(OrderPolicy::as_submitted, older), key_of(OrderPolicy::as_submitted, cheap));
    EXPECT_FALSE(kmm::schedule::takes_what_is_there(OrderPolicy::as_submitted));
}

TEST(OrderPolicy, of_tasks_of_one_place_the_lowest_number_comes_first_wherever_their_records_lie) {
    kmm::graph::Task tasks[3];
    for (std::size_t i = 0; i < 3; i++) {
        tasks[i].number = 9 - i;
        tasks[i].comes_before = 4;
    }
    kmm::graph::Task later;
    later.number = 5;
    kmm::schedule::TasksByPlace all;
    for (kmm::graph::Task* t : {&later, &tasks[0], &tasks[2], &tasks[1]}) all.insert(kmm::schedule::PlacedTask(*t));
    std::vector<TaskNumber> numbers;
    for (const auto& placed : all) numbers.push_back(placed.number);
    EXPECT_EQ(numbers, (std::vector<TaskNumber>{7, 8, 9, 5}));
    EXPECT_EQ(all.lower_bound(kmm::schedule::PlacedTask(TaskNumber{4}))->task, &tasks[2]);
}

class LookaheadTest : public ::testing::Test {
  protected:
    /// No memory comes before `finish`, so that nothing is issued.
    LookaheadTest() : stage_({64 * unit, 64 * unit}) {}
    std::size_t enabled(const Task& t) {
        std::uint64_t steps = 0;
        const std::size_t count = lookahead_.count_enabled(t, &steps);
        EXPECT_LE(steps, 2 * kmm::schedule::enabling::most_steps);
        return count;
    }
    Stage stage_;
    Lookahead lookahead_;
};

TEST_F(LookaheadTest, counts_a_chain_on_chunks_that_come_with_its_first_task) {
    Array& x = stage_.make_array(2);
    Task& first = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0], true, true}, {&x.chunks[1], true, true}});
    Task& second = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0], true}}, {first.number});
    stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[1]}}, {second.number});
    EXPECT_TRUE(Lookahead::enables(first));
    EXPECT_EQ(enabled(first), 2u);
    EXPECT_EQ(enabled(second), 1u) << "what nobody has written need not be fetched";
}

TEST_F(LookaheadTest, counts_nobody_who_needs_what_is_not_there_or_waits_for_others) {
    Array& x = stage_.make_array(3);
    Task& fill = stage_.submit(TaskKind::host, host, {{&x.chunks[0], true, true}, {&x.chunks[1], true, true}});
    stage_.finish();
    ASSERT_EQ(fill.state.load(), kmm::graph::TaskState::settled);
    Task& first = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0]}, {&x.chunks[2], true, true}});
    Task& other = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0]}});
    stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[1]}, {&x.chunks[2]}}, {first.number});
    EXPECT_EQ(enabled(first), 0u) << "chunk 1 is on the host";
    stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[2]}}, {first.number, other.number});
    EXPECT_EQ(enabled(first), 0u) << "it waits for two";
    EXPECT_FALSE(Lookahead::enables(other));
    stage_.submit(TaskKind::host, host, {{&x.chunks[2]}}, {first.number});
    EXPECT_EQ(enabled(first), 0u) << "another memory";
    stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[2]}}, {first.number});
    EXPECT_EQ(enabled(first), 1u);
    stage_.finish();
}

TEST_F(LookaheadTest, looks_at_no_more_with_twice_as_many_successors) {
    Array& x = stage_.make_array(1);
    Task& first = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0], true, true}});
    Task& second = stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0], true}}, {first.number});
    for (int i = 0; i < 4000; i++)
        stage_.submit(TaskKind::kernel, gpu, {{&x.chunks[0]}}, {first.number, second.number});
    EXPECT_EQ(enabled(first), kmm::schedule::enabling::most_counted);
}

TEST(Scheduler, serves_a_task_that_later_ones_pass_over_before_the_memory_has_turned_over_many_times) {
    Stage stage({256 * unit, 4 * unit});
    Array& x = stage.make_array(64);
    for (Chunk& c : x.chunks) stage.submit(TaskKind::host, host, {{&c, true, true}});
    stage.finish();
    Task& dear = stage.submit(TaskKind::kernel, gpu, {{&x.chunks[0]}, {&x.chunks[1]}, {&x.chunks[2]}});
    std::size_t later = 0;
    const auto is_issued = [](const Task& t) { return t.state.load() >= kmm::graph::TaskState::issued; };
    // Somebody submits work for one chunk as soon as there is room for it.
    for (; later < 200 && !is_issued(dear); later++) {
        stage.submit(TaskKind::kernel, gpu, {{&x.chunks[3 + later % 60]}});
        stage.submit(TaskKind::kernel, gpu, {{&x.chunks[3 + (later + 1) % 60]}});
        stage.dispatch();
        stage.complete_one();
    }
    EXPECT_TRUE(is_issued(dear));
    EXPECT_GT(later, 4u) << "later ones pass it over for a while";
    EXPECT_LT(later, 64u);
    stage.finish();
}

}  // namespace
