// Programs that fit in the order of submission, played: none runs out of memory, and they move about as little as in
// that order.
//
// KMM_TEST_PROGRAMS sets how many (default 300; 3000 with KMM_TEST_LONG=1), KMM_TEST_SEED the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "simulate/fitting_plays.hpp"
#include "simulate/generators.hpp"

namespace {

using namespace kmm::simulate;
namespace trace = kmm::trace;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr && *text != 0 ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(FittingPlays, never_fail_and_move_about_as_little_as_in_the_order_of_submission) {
    const bool is_long = number_from("KMM_TEST_LONG", 0) != 0, is_short = number_from("KMM_TEST_SHORT", 0) != 0;
    const std::uint64_t count = number_from("KMM_TEST_PROGRAMS", is_short ? 30 : is_long ? 3000 : 300);
    const std::uint64_t first = number_from("KMM_TEST_SEED", 1);
    FittingSums sums;
    for (std::uint64_t seed = first; seed < first + count; ++seed) sums.add(play_fitting(seed));
    std::printf(
        "%llu of %llu programs fit, %zu failed (%llu in order); of %llu compared: bytes %.3f of those in order, "
        "%zu move many, worst %.2f (seed %llu)\n",
        static_cast<unsigned long long>(sums.num_fit()), static_cast<unsigned long long>(sums.num_programs()),
        sums.failed_seeds().size(), static_cast<unsigned long long>(sums.num_failed_in_order()),
        static_cast<unsigned long long>(sums.num_compared()), sums.ratio(), sums.seeds_with_many_bytes().size(),
        sums.worst_ratio(), static_cast<unsigned long long>(sums.worst_seed()));
    EXPECT_TRUE(sums.failed_seeds().empty()) << "the first: seed " << sums.failed_seeds().front();
    if (count < 30) return;  // too few for a sum
    EXPECT_LE(sums.ratio(), 1.0);
    EXPECT_LE(static_cast<double>(sums.seeds_with_many_bytes().size()), 0.01 * static_cast<double>(count))
        << "the first: seed " << sums.seeds_with_many_bytes().front();
}

constexpr std::size_t chunk = std::size_t{64} << 20;

TEST(FittingPlays, of_a_pipeline_move_nothing) {
    const Outcome outcome =
        play(pipeline(machine_with(8 * chunk, 4 * chunk), 400, chunk), all_policies().front(), {}, nullptr, 1000);
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.failed_tasks, 0u);
    EXPECT_LE(outcome.bytes_moved(), chunk) << "the sum comes from the host";
}

TEST(FittingPlays, of_temporaries_move_the_result_alone) {
    const Outcome outcome = play(temporaries(machine_with(20 * chunk, 8 * chunk), 4, 100, chunk),
                                 all_policies().front(), {}, nullptr, 1000);
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.failed_tasks, 0u);
    EXPECT_LE(outcome.bytes_moved(), 4 * chunk);
}

TEST(FittingPlays, in_order_use_memory_of_dropped_arrays_again) {
    Policies in_order;
    in_order.order_policy = kmm::schedule::OrderPolicy::as_submitted;
    const Program program = pipeline(machine_with(8 * chunk, 4 * chunk), 400, chunk);
    EXPECT_EQ(program.drops.size(), 800u);
    const Outcome outcome = play(program, in_order, {}, nullptr, 1000);
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.failed_tasks, 0u);
    EXPECT_LE(outcome.bytes_moved(), chunk);
}

TEST(FittingPlays, with_gathers_on_the_host_end_under_every_order) {
    Program program = fitting_program(fitting::make_program(13), 1);
    const auto is_gather = [](const trace::Task& t) { return t.kind == trace::TaskKind::transfer; };
    ASSERT_TRUE(std::any_of(program.tasks.begin(), program.tasks.end(), is_gather));
    constexpr std::size_t plenty = std::size_t{1} << 30;
    program.machine = machine_with(plenty, plenty, 2);
    for (const Policies& policies : all_policies()) {
        const Outcome outcome = play(program, policies, {}, nullptr, 1000);
        EXPECT_TRUE(outcome.ended) << policies.order;
        EXPECT_EQ(outcome.failed_tasks, 0u) << policies.order;
    }
}

TEST(FittingPlays, in_another_order_drop_each_array_behind_its_last_task) {
    const Program program = fitting_program(fitting::make_program(3), 1);
    const Program other = reordered(program, order_by_depth(program), nullptr);
    ASSERT_EQ(other.tasks.size(), program.tasks.size());
    ASSERT_EQ(other.drops.size(), program.drops.size());
    ASSERT_FALSE(program.drops.empty());
    std::set<trace::Number> dropped;
    std::size_t next = 0;
    for (std::size_t i = 0; i < other.tasks.size(); ++i) {
        for (; next < other.drops.size() && other.drops[next].first <= i; ++next)
            dropped.insert(other.drops[next].second);
        for (const trace::Use& u : other.tasks[i].uses) EXPECT_EQ(dropped.count(u.array), 0u) << "task " << i;
    }
}

}  // namespace
