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

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    return order;
}

/// A chunk of each size, each in an array of its own.
std::vector<Chunk*> make_chunks(Stage& s, const std::vector<std::size_t>& sizes) {
    std::vector<Chunk*> chunks;
    for (const std::size_t size : sizes) chunks.push_back(&s.make_array(1, size).chunks[0]);
    return chunks;
}

std::vector<std::size_t> mixed_sizes(std::size_t count, std::uint64_t seed = 0) {
    std::mt19937_64 random(count + seed);
    std::vector<std::size_t> sizes(count);
    for (std::size_t& size : sizes) size = 256 * (1 + random() % 64);
    return sizes;
}

/// `n` tasks of a device that each use a chunk of their own, and all the same one behind its first write.
void run_users_of_one_chunk(Stage& s, std::size_t shared_bytes, std::size_t n, bool write_it) {
    Chunk& shared = s.make_array(1, shared_bytes).chunks[0];
    const std::vector<Chunk*> own = make_chunks(s, mixed_sizes(n));
    const Task& first = s.submit(TaskKind::host, host, {{&shared, true, true}});
    for (Chunk* c : own) s.submit(TaskKind::kernel, gpu, {{&shared, write_it}, {c, true, true}}, {first.number});
    s.finish();
    EXPECT_EQ(s.ran.size(), n + 1);
}

TEST(ManyTasks, that_are_ready_and_read_one_chunk_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 40});
        run_users_of_one_chunk(s, unit, n, false);
        return s.scheduler->num_steps();
    });
}

TEST(ManyTasks, that_are_ready_and_read_one_chunk_on_a_small_device_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 20});
        run_users_of_one_chunk(s, 64 << 10, n, false);
        return s.scheduler->num_steps();
    });
}

TEST(ManyTasks, that_are_ready_and_write_parts_of_one_chunk_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({std::size_t{1} << 40, std::size_t{1} << 40});
        run_users_of_one_chunk(s, unit, n, true);
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
        const LaneId lane = s.scheduler->lanes().id(0, LaneRole::launcher);
        for (Task* t : s.launches) {
            s.scheduler->launched(*t, lane, ++position, nullptr, true);
            s.dispatch();
        }
        s.finish();
        EXPECT_EQ(s.ran.size(), ran + n);
        return s.scheduler->num_steps();
    });
}

/// Every array once in the order of its number, then twice in random orders, over four times what a device holds.
std::size_t steps_out_of_core(std::size_t n, std::size_t host_bytes, std::uint64_t seed) {
    const std::vector<std::size_t> sizes = mixed_sizes(n, seed);
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    Stage s({host_bytes != 0 ? host_bytes : sum / 100 * 85, sum / 4});
    const std::vector<Chunk*> chunks = make_chunks(s, sizes);
    for (Chunk* c : chunks) s.submit(TaskKind::kernel, gpu, {{c, true, true}});
    s.finish();
    for (const std::uint64_t pass : {1u, 2u})
        for (const std::size_t i : shuffled(n, pass + seed)) {
            const TaskNumber before = s.table.last() + 1 - n;
            s.submit(TaskKind::kernel, gpu, {{chunks[i], true, false}},
                     pass == 1 ? std::vector<TaskNumber>{} : std::vector{before});
        }
    s.finish();
    EXPECT_GE(s.scheduler->residency().space(gpu).counters.evictions, n);
    return s.scheduler->num_steps();
}

/// How often searches for a place of one size go on differs by a tenth from one set of sizes to the next.
std::size_t sum_out_of_core(std::size_t n, std::size_t host_bytes) {
    std::size_t sum = 0;
    for (const std::uint64_t seed : {0u, 1000u, 2000u, 3000u}) sum += steps_out_of_core(n, host_bytes, seed);
    return sum;
}

TEST(ManyTasks, that_use_arrays_of_mixed_sizes_out_of_core_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) { return sum_out_of_core(n, std::size_t{1} << 40); });
}

TEST(ManyTasks, that_use_arrays_of_mixed_sizes_out_of_core_with_little_room_on_the_host_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) { return sum_out_of_core(n, 0); });
}

/// A device and a host that are full of what can neither leave nor be saved. Of the chunks on the device the older ones
/// are larger.
struct FullTiers {
    explicit FullTiers(std::size_t n) : s({n * unit, total_bytes(n)}), on_host(s.make_array(1, n * unit).chunks[0]) {
        s.submit(TaskKind::host, host, {{&on_host, true, true}});
        for (std::size_t i = n; i > 0; --i) {
            s.submit(TaskKind::kernel, gpu, {{&chunk_of(i), true, true}});
            s.finish();
        }
        EXPECT_TRUE(s.failures.empty());
    }
    static std::size_t total_bytes(std::size_t n) { return 256 * n * (n + 1) / 2; }
    Chunk& chunk_of(std::size_t pieces) { return s.make_array(1, 256 * pieces).chunks[0]; }

    Stage s;
    Chunk& on_host;
};

TEST(ManyTasks, that_find_no_memory_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        FullTiers full(n);
        const std::uint64_t before = full.s.scheduler->num_steps();
        for (std::size_t i = 0; i < n; ++i) {
            full.s.submit(TaskKind::kernel, gpu, {{&full.chunk_of(n), true, true}});
            full.s.submit(TaskKind::host, host, {{&full.on_host}});  // afterwards there might be room on the host
            full.s.finish();
        }
        EXPECT_EQ(full.s.failures.size(), n);
        return full.s.scheduler->num_steps() - before;
    });
}

TEST(ManyTasks, that_end_while_one_waits_for_memory_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        FullTiers full(n);
        const std::uint64_t before = full.s.scheduler->num_steps();
        const Task& slow = full.s.submit(TaskKind::host, host, {{&full.on_host}});
        const Task& waiting = full.s.submit(TaskKind::kernel, gpu, {{&full.chunk_of(n), true, true}});
        full.s.dispatch();
        for (std::size_t i = 0; i < n; ++i) {
            Task& quick = full.s.submit(TaskKind::host, host, {});
            full.s.dispatch();
            EXPECT_EQ(full.s.on_host.back(), &quick);
            full.s.on_host.pop_back();
            full.s.scheduler->host_done(quick, nullptr);
            full.s.dispatch();
        }
        EXPECT_EQ(full.s.waits_began.back(), waiting.number);
        EXPECT_EQ(full.s.on_host, std::vector{const_cast<Task*>(&slow)});
        const std::uint64_t steps = full.s.scheduler->num_steps() - before;
        full.s.finish();
        EXPECT_EQ(full.s.failures.count(waiting.number), 1u);
        return steps;
    });
}

// Every second chunk of the device is given back, so that all that is free are pieces of one unit.
TEST(ManyTasks, that_find_no_memory_in_one_piece_cost_in_proportion) {
    expect_in_proportion([](std::size_t n) {
        Stage s({256, 2 * n * unit});
        std::vector<Array*> arrays;
        for (std::size_t i = 0; i < 2 * n; ++i) arrays.push_back(&s.make_array(1));
        for (Array* a : arrays) s.submit(TaskKind::kernel, gpu, {{&a->chunks[0], true, true}});
        s.finish();
        for (std::size_t i = 0; i < 2 * n; i += 2) s.scheduler->release(*arrays[i]);
        const std::uint64_t before = s.scheduler->num_steps();
        for (std::size_t i = 0; i < n; ++i) {
            s.submit(TaskKind::kernel, gpu,
                     {{&s.make_array(1).chunks[0], true, true}, {&s.make_array(1, 2 * unit).chunks[0], true, true}});
            s.finish();
        }
        EXPECT_EQ(s.failures.size(), n - n / 3) << "what is free is moved together, once";
        return s.scheduler->num_steps() - before;
    });
}

}  // namespace
