// Small copies for a task that needs many go as one instruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

#include "stage.hpp"

namespace {

using namespace kmm::schedule_test;

std::vector<Stage::Use> all_of(Array& a, std::size_t first = 0, std::size_t count = ~std::size_t{0}) {
    std::vector<Stage::Use> uses;
    for (std::size_t i = first; i < a.chunks.size() && i - first < count; ++i) uses.push_back({&a.chunks[i]});
    return uses;
}

std::vector<const Instruction*> moves_of(const Stage& s) {
    std::vector<const Instruction*> found;
    for (const Instruction& i : s.instructions)
        if (i.op == Instruction::Op::move) found.push_back(&i);
    return found;
}

/// An array whose chunks were made on the host.
Array& made_on_host(Stage& s, std::size_t chunks, std::size_t bytes, std::vector<TaskNumber>& makers) {
    Array& a = s.make_array(chunks, bytes);
    for (auto& c : a.chunks) makers.push_back(s.submit(TaskKind::host, host, {{&c, true, true}}).number);
    s.finish();
    return a;
}

TEST(CopyGroup, of_many_small_chunks_is_one_instruction_and_the_task_waits_for_its_position) {
    for (const std::size_t count : {20u, 40u}) {
        Stage s({4096 * unit, 4096 * unit});
        std::vector<TaskNumber> makers;
        Array& a = made_on_host(s, count, unit, makers);
        Task& reader = s.submit(TaskKind::kernel, gpu, all_of(a), makers);
        s.dispatch();
        const auto moves = moves_of(s);
        ASSERT_EQ(moves.size(), 1u);
        EXPECT_EQ(s.copies(host, gpu), 0u);
        const Instruction& group = *moves.front();
        EXPECT_EQ(group.moves.size(), count);
        EXPECT_EQ(group.bytes, count * unit);
        EXPECT_EQ(group.chunk, &a.chunks[0]);
        for (std::size_t i = 0; i < count; ++i) {
            EXPECT_EQ(group.moves[i].run_bytes, unit);
            EXPECT_EQ(group.moves[i].source, reinterpret_cast<const void*>(a.chunks[i].replicas[host].address));
            EXPECT_EQ(group.moves[i].destination, reinterpret_cast<void*>(a.chunks[i].replicas[gpu].address));
        }
        const Instruction& kernel = s.instructions.back();
        ASSERT_EQ(kernel.task, reader.number);
        ASSERT_EQ(kernel.waits.size(), 1u);
        EXPECT_EQ(kernel.waits.front().lane, group.lane);
        EXPECT_EQ(kernel.waits.front().position, group.position);
        s.finish();
        EXPECT_TRUE(s.scheduler->idle());
        EXPECT_EQ(s.scheduler->counters().transfers.bytes[0] + s.scheduler->counters().transfers.bytes[1],
                  count * unit);
    }
}

TEST(CopyGroup, holds_64_copies_at_most_and_no_large_ones_and_few_are_copied_one_by_one) {
    Stage s({4096 * unit, 4096 * unit});
    std::vector<TaskNumber> makers;
    Array& many = made_on_host(s, 100, unit, makers);
    Array& large = made_on_host(s, 10, 17 * unit, makers);
    Array& few = made_on_host(s, 7, unit, makers);
    s.submit(TaskKind::kernel, gpu, all_of(many), makers);
    s.dispatch();
    ASSERT_EQ(moves_of(s).size(), 2u);
    EXPECT_EQ(moves_of(s)[0]->moves.size(), 64u);
    EXPECT_EQ(moves_of(s)[1]->moves.size(), 36u);
    s.submit(TaskKind::kernel, gpu, all_of(large), makers);
    s.dispatch();
    EXPECT_EQ(s.copies(host, gpu), 10u);
    s.submit(TaskKind::kernel, gpu, all_of(few), makers);
    s.dispatch();
    EXPECT_EQ(s.copies(host, gpu), 17u);
    EXPECT_EQ(moves_of(s).size(), 2u);
    s.finish();
    EXPECT_TRUE(s.failures.empty());
}

TEST(CopyGroup, waits_for_whatever_one_of_its_copies_waits_for) {
    Stage s({4096 * unit, 4096 * unit, 4096 * unit});
    Array& a = s.make_array(24);
    // The first half was made by kernels that are done, the second by some that are not.
    std::vector<TaskNumber> makers;
    for (std::size_t i = 0; i < 24; ++i) {
        if (i == 12) s.finish();
        makers.push_back(s.submit(TaskKind::kernel, gpu, {{&a.chunks[i], true, true}}).number);
    }
    s.dispatch();
    const std::vector<Instruction> kernels(s.instructions.end() - 12, s.instructions.end());
    s.submit(TaskKind::kernel, MemoryIndex::of_device(1), all_of(a), makers);
    s.dispatch();
    const auto moves = moves_of(s);
    ASSERT_EQ(moves.size(), 1u);
    EXPECT_EQ(moves[0]->moves.size(), 24u);
    for (const Instruction& kernel : kernels)
        EXPECT_TRUE(std::any_of(moves[0]->waits.begin(), moves[0]->waits.end(), [&](const Fence& f) {
            return f.lane == kernel.lane && f.position >= kernel.position;
        }));
    s.finish();
    EXPECT_EQ(s.ran.size(), 25u);
}

TEST(CopyGroup, has_no_copy_that_reads_or_overwrites_what_another_one_writes) {
    // Two regions of a task that lie in common chunks, which are laid side by side one after the other, so that chunks
    // move twice.
    for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
        std::mt19937 random(seed);
        Stage s({4096 * unit, 40 * unit});
        std::vector<TaskNumber> makers;
        Array& a = made_on_host(s, 60, unit, makers);
        for (int i = 0; i < 60; ++i) {
            std::vector<Stage::Use> uses;
            const std::size_t first = random() % 50, count = 8 + random() % 12;
            for (std::size_t k = first; k < std::min<std::size_t>(first + count, 60); ++k)
                uses.push_back({&a.chunks[k], random() % 8 == 0});
            makers.push_back(s.submit(TaskKind::kernel, gpu, uses, makers).number);
            if (random() % 3 == 0) s.finish();
        }
        s.finish();
        EXPECT_TRUE(s.scheduler->idle());
        EXPECT_TRUE(s.failures.empty());
        std::size_t num_groups = 0;
        for (const Instruction* group : moves_of(s)) {
            ++num_groups;
            std::vector<const void*> touched;
            for (const auto& move : group->moves) {
                touched.push_back(move.destination);
                touched.push_back(move.source);
            }
            std::sort(touched.begin(), touched.end());
            EXPECT_EQ(std::adjacent_find(touched.begin(), touched.end()), touched.end());
        }
        EXPECT_GT(num_groups, 5u);
    }
}

TEST(CopyGroup, that_fails_fails_whoever_reads_one_of_its_chunks) {
    Stage s({4096 * unit, 4096 * unit});
    std::vector<TaskNumber> makers;
    Array& a = made_on_host(s, 12, unit, makers);
    Task& all = s.submit(TaskKind::kernel, gpu, all_of(a), makers);
    s.dispatch();
    Task& last = s.submit(TaskKind::kernel, gpu, all_of(a, 11), makers);
    s.dispatch();
    ASSERT_EQ(moves_of(s).size(), 1u);
    const Instruction& group = *moves_of(s).front();
    s.scheduler->copies_failed(group.lane, group.position,
                               std::make_exception_ptr(std::runtime_error("the link is gone")));
    s.finish();
    EXPECT_EQ(s.failures.count(all.number), 1u);
    EXPECT_EQ(s.failures.count(last.number), 1u) << "it ran on what never arrived";
    // The host still has the content.
    Task& again = s.submit(TaskKind::kernel, gpu, all_of(a), makers);
    s.finish();
    EXPECT_EQ(s.failures.count(again.number), 0u);
    EXPECT_EQ(moves_of(s).size(), 2u);
}

}  // namespace
