// What the schedule and the memory do for a task must not grow with the number of tasks: entries of lists and trees
// that were looked at, for n and for 2n of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stage.hpp"

namespace {

using namespace kmm::schedule_test;

constexpr std::size_t many = 3000;

/// `steps_for(n)` and twice as many: 2.2 leaves room for a logarithm.
template<typename StepsFor>
void expect_in_proportion(StepsFor steps_for) {
    const auto once = static_cast<double>(steps_for(many));
    const auto twice = static_cast<double>(steps_for(2 * many));
    EXPECT_GE(once, static_cast<double>(many)) << "nothing was counted";
    EXPECT_LE(twice, 2.2 * once) << twice / (2.0 * many) << " a task, " << once / many << " of half as many";
}

SchedulerOptions unbounded() {
    SchedulerOptions options;
    options.tasks_in_flight = ~0u;
    return options;
}

/// A chunk of each size, each in an array of its own.
std::vector<Chunk*> make_chunks(Stage& s, const std::vector<std::size_t>& sizes) {
    std::vector<Chunk*> chunks;
    for (const std::size_t size : sizes) chunks.push_back(&s.make_array(1, size).chunks[0]);
    return chunks;
}

std::vector<std::size_t> mixed_sizes(std::size_t count) {
    std::mt19937_64 random(count);
    std::vector<std::size_t> sizes(count);
    for (std::size_t& size : sizes) size = 256 * (1 + random() % 64);
    return sizes;
}

TEST(ManyTasks, that_are_ready_and_read_one_chunk_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 40});
        Chunk& shared = s.make_array(1).chunks[0];
        const std::vector<Chunk*> own = make_chunks(s, mixed_sizes(n));
        const Task& first = s.submit(TaskKind::host, host, {{&shared, true, true}});
        for (Chunk* c : own) s.submit(TaskKind::kernel, gpu, {{&shared}, {c, true, true}}, {first.number});
        s.finish();
        EXPECT_EQ(s.ran.size(), n + 1);
        return s.scheduler->num_steps();
    });
}

TEST(ManyTasks, that_are_ready_and_read_one_chunk_on_a_small_device_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 20});
        Chunk& shared = s.make_array(1, 64 << 10).chunks[0];
        const std::vector<Chunk*> own = make_chunks(s, mixed_sizes(n));
        const Task& first = s.submit(TaskKind::host, host, {{&shared, true, true}});
        for (Chunk* c : own) s.submit(TaskKind::kernel, gpu, {{&shared}, {c, true, true}}, {first.number});
        s.finish();
        EXPECT_EQ(s.ran.size(), n + 1);
        return s.scheduler->num_steps();
    });
}

TEST(ManyTasks, that_are_ready_and_write_parts_of_one_chunk_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 40});
        Chunk& shared = s.make_array(1).chunks[0];
        const std::vector<Chunk*> own = make_chunks(s, mixed_sizes(n));
        const Task& first = s.submit(TaskKind::host, host, {{&shared, true, true}});
        for (Chunk* c : own) s.submit(TaskKind::kernel, gpu, {{&shared, true}, {c, true, true}}, {first.number});
        s.finish();
        EXPECT_EQ(s.ran.size(), n + 1);
        EXPECT_EQ(s.copies(host, gpu), 1u);
        return s.scheduler->num_steps();
    });
}

// Device functions read the old content of a chunk, which nothing may be copied over before the last of them returns.
TEST(ManyTasks, that_wait_for_the_last_of_many_readers_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 40}, unbounded());
        Chunk& shared = s.make_array(1).chunks[0];
        s.submit(TaskKind::host, host, {{&shared, true, true}});
        s.finish();
        for (std::size_t i = 0; i < n; ++i) s.submit(TaskKind::device_function, gpu, {{&shared}});
        s.finish();
        EXPECT_EQ(s.launches.size(), n);
        s.submit(TaskKind::host, host, {{&shared, true, false}});  // another part of it
        s.finish();
        for (std::size_t i = 0; i < n; ++i) s.submit(TaskKind::kernel, gpu, {{&shared}});
        const std::size_t ran = s.ran.size();
        s.finish();
        EXPECT_EQ(s.ran.size(), ran) << "content was copied over what is being read";
        kmm::graph::Position position = 0;
        const LaneId lane = s.scheduler->lane(0, LaneRole::launcher);
        for (Task* t : s.launches) {
            s.scheduler->launched(*t, lane, ++position, nullptr, true);
            s.dispatch();
        }
        s.finish();
        EXPECT_EQ(s.ran.size(), ran + n);
        return s.scheduler->num_steps();
    });
}

}  // namespace
