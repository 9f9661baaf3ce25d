// Programs played under policies: that all of it runs, in an order that may be, and how many chunks move.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "simulate/generators.hpp"
#include "simulate/plays.hpp"

namespace {

using namespace kmm::simulate;
namespace trace = kmm::trace;

constexpr std::size_t chunk = std::size_t{64} << 20;

trace::Machine room_for(std::size_t chunks) { return machine_with(chunks * chunk, std::size_t{1} << 44); }

Outcome play_ours(const Program& program) { return play(program, all_policies().front(), {}, nullptr, 1000); }

double chunks_moved(const Outcome& outcome) {
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.failed_tasks, 0u);
    return static_cast<double>(outcome.bytes_moved()) / static_cast<double>(chunk);
}

TEST(Plays, of_what_fits_move_each_chunk_once) {
    const Outcome outcome = play_ours(axpy(room_for(20), 8, 5, chunk));
    EXPECT_EQ(chunks_moved(outcome), 16);
    EXPECT_EQ(outcome.bytes_down, 0u);
    EXPECT_EQ(outcome.evictions, 0u);
}

TEST(Plays, of_passes_over_more_than_fits_bring_each_chunk_once_and_save_what_was_written) {
    const Outcome outcome = play_ours(axpy(room_for(16), 64, 10, chunk));
    EXPECT_EQ(static_cast<double>(outcome.bytes_up) / chunk, 128);
    EXPECT_LE(static_cast<double>(outcome.bytes_down) / chunk, 64);
}

// The figures of docs/adr/0016: what a change of order or eviction makes worse shows here.
TEST(Plays, move_few_chunks_for_a_product_that_is_submitted_in_the_worst_order) {
    EXPECT_LE(chunks_moved(play_ours(product(room_for(30), 10, chunk))), 900);
}

TEST(Plays, move_few_chunks_for_a_factorisation) {
    EXPECT_LE(chunks_moved(play_ours(cholesky(room_for(50), 20, chunk))), 760);
}

/// The same tasks, for each tile of C all of k.
Program product_with_k_innermost(std::size_t room, std::size_t size) {
    const Program program = product(room_for(room), size, chunk);
    std::vector<trace::Number> order;
    for (std::size_t tile = 0; tile < size * size; ++tile)
        for (std::size_t k = 0; k < size; ++k) order.push_back(3 * size * size + k * size * size + tile + 1);
    return reordered(program, order, nullptr);
}

// The bounds: what moved before there were plans.
TEST(Plays, of_plans_move_no_more_at_other_sizes_and_rooms_and_in_other_orders) {
    const std::pair<std::size_t, double> of_products[] = {{15, 1570}, {20, 1392}, {50, 1010}, {100, 504}};
    for (const auto& [room, most] : of_products)
        EXPECT_LE(chunks_moved(play_ours(product(room_for(room), 10, chunk))), most) << room;
    EXPECT_LE(chunks_moved(play_ours(product_with_k_innermost(30, 10))), 1038);
    EXPECT_LE(chunks_moved(play_ours(product_with_k_innermost(15, 10))), 1180);
    EXPECT_LE(chunks_moved(play_ours(cholesky(room_for(30), 20, chunk))), 1238);
    EXPECT_LE(chunks_moved(play_ours(cholesky(room_for(80), 20, chunk))), 575);
    EXPECT_LE(chunks_moved(play_ours(cholesky(room_for(60), 24, chunk))), 1370);
    const std::pair<std::uint64_t, double> of_random_tasks[] = {{1, 1117}, {2, 1157}, {3, 1166}};
    for (const auto& [seed, most] : of_random_tasks)
        EXPECT_LE(chunks_moved(play_ours(random_tasks(room_for(30), 100, 1000, chunk, seed))), 0.97 * most) << seed;
}

TEST(Plays, move_few_chunks_for_a_stencil_as_a_wave_over_its_chunks) {
    EXPECT_LE(chunks_moved(play_ours(stencil(room_for(8), {16384, 16384}, 16, 1, 100))), 480);
    EXPECT_LE(chunks_moved(play_ours(stencil(room_for(8), {65536, 16384}, 64, 1, 100))), 4 * 630);
}

TEST(Plays, move_few_chunks_for_a_stencil_that_begins_with_what_is_left_on_the_device) {
    Runs runs;
    runs.count = 2;
    runs.are_waited_for = runs.are_made_on_device = true;
    for (const std::int64_t submit_ns : {500, 3000, 10'000}) {
        const Program program = stencil(room_for(8), {16384, 16384}, 16, 1, 100, runs);
        const Outcome outcome = play(program, all_policies().front(), {}, nullptr, submit_ns);
        EXPECT_LE(chunks_moved(outcome), 2 * 510) << submit_ns;
    }
}

TEST(Plays, count_what_is_moved_from_the_first_run_on_and_wait_for_each) {
    Runs runs;
    const double once = chunks_moved(play_ours(product(room_for(200), 3, chunk, runs)));
    EXPECT_EQ(once, 27);
    runs.are_waited_for = runs.are_made_on_device = true;
    EXPECT_EQ(chunks_moved(play_ours(product(room_for(200), 3, chunk, runs))), 0) << "all of it is there";
    runs.count = 3;
    const Program program = product(room_for(200), 3, chunk, runs);
    EXPECT_EQ(program.waited_for_all, (std::set<trace::Number>{28, 55, 82}));
    Rates rates;
    rates.kernel_ns = 1'000'000;
    const Outcome outcome = play(program, all_policies().front(), rates, nullptr, 0);
    EXPECT_EQ(chunks_moved(outcome), 0);
    EXPECT_NEAR(outcome.seconds, 3 * 27e-3, 1e-3) << "the program does not wait longer than it must";
    std::vector<trace::Number> numbers;
    const Program other = reordered(program, order_by_depth(program), &numbers);
    EXPECT_EQ(other.waited_for_all.size(), 3u);
}

TEST(Plays, read_what_was_made_before_it_leaves_and_with_few_bytes_of_the_host) {
    const Outcome outcome = play_ours(map_reduce(room_for(8), 64, chunk));
    EXPECT_LE(chunks_moved(outcome), 64) << "each is saved once, and none comes back";
    EXPECT_LT(static_cast<double>(outcome.bytes_up) / chunk, 1);
}

TEST(Plays, end_and_agree_with_themselves_under_every_policy) {
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
        const Program program = random_tasks(room_for(6), 24, 300, chunk, seed);
        for (const Policies& policies : all_policies()) {
            const Outcome first = play(program, policies, {}, nullptr, 1000);
            const Outcome second = play(program, policies, {}, nullptr, 1000);
            EXPECT_TRUE(first.ended) << policies.order << ", " << policies.eviction;
            EXPECT_EQ(first.failed_tasks, 0u);
            EXPECT_EQ(first.bytes_moved(), second.bytes_moved());
            EXPECT_EQ(first.seconds, second.seconds);
            EXPECT_EQ(first.issue_order.size(), program.tasks.size());
        }
    }
}

TEST(Plays, as_submitted_issue_in_the_order_of_submission) {
    const Program program = random_tasks(room_for(6), 24, 200, chunk, 7);
    for (const Policies& policies : all_policies()) {
        if (policies.order != "as submitted") continue;
        std::vector<trace::Number> kernels;
        for (const trace::Number n : play(program, policies, {}, nullptr, 0).issue_order)
            if (program.tasks[n - 1].kind == trace::TaskKind::kernel) kernels.push_back(n);
        EXPECT_TRUE(std::is_sorted(kernels.begin(), kernels.end())) << policies.eviction;
    }
}

TEST(Plays, of_other_orders_keep_what_each_task_comes_after) {
    const Program program = random_tasks(room_for(10), 20, 100, chunk, 5);
    std::vector<trace::Number> numbers;
    const Program other = reordered(program, order_by_depth(program), &numbers);
    ASSERT_EQ(other.tasks.size(), program.tasks.size());
    bool any_moved = false;
    for (const trace::Task& t : other.tasks) {
        const trace::Task& was = program.tasks[numbers[t.number - 1] - 1];
        EXPECT_EQ(t.name, was.name);
        any_moved |= t.number != was.number;
        ASSERT_EQ(t.predecessors.size(), was.predecessors.size());
        for (std::size_t i = 0; i < t.predecessors.size(); ++i) {
            EXPECT_LT(t.predecessors[i].task, t.number);
            EXPECT_EQ(numbers[t.predecessors[i].task - 1], was.predecessors[i].task);
        }
    }
    EXPECT_TRUE(any_moved);
}

TEST(Plays, say_how_long_links_and_kernels_take) {
    Rates rates;
    rates.up = rates.down = 50;
    rates.kernel_ns = 1000;
    const Outcome bound_by_link = play(axpy(room_for(200), 64, 1, chunk), all_policies().front(), rates, nullptr, 0);
    const double link_seconds = 128 * static_cast<double>(chunk) / 50e9;
    EXPECT_GT(bound_by_link.seconds, link_seconds);
    EXPECT_LT(bound_by_link.seconds, link_seconds * 1.05);
    rates.kernel_ns = 10'000'000;
    const Outcome bound_by_kernels = play(axpy(room_for(200), 64, 1, chunk), all_policies().front(), rates, nullptr, 0);
    EXPECT_GT(bound_by_kernels.seconds, 0.64);
    EXPECT_LT(bound_by_kernels.seconds, 0.64 * 1.05);
    EXPECT_NEAR(bound_by_kernels.busy_seconds, 0.64, 1e-6);
}

}  // namespace
