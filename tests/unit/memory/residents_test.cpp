// What lies where, without placement: blocks and records of replicas, who uses them, and the order of victims.
#include "kmm/memory/residents.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cut_array.hpp"

namespace {

using namespace kmm::memory;
using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Task;

const MemoryIndex host = MemoryIndex::host();
const MemoryIndex gpu = MemoryIndex::of_device(0);
const MemoryIndex gpu_1 = MemoryIndex::of_device(1);
constexpr std::size_t unit = 4096;
constexpr std::size_t limit = 16 * unit;

/// Residents alone request nothing but notifications.
class Told final : public Requests {
  public:
    Fence transfer(const kmm::memory::Transfer&, const FenceSet&) override { return unexpected(); }
    const Task* find(kmm::graph::TaskNumber) noexcept override { return nullptr; }
    void grow(MemoryIndex, std::size_t) override { unexpected(); }
    bool passed(Fence fence) const noexcept override { return fence.position <= completed; }
    bool linked(MemoryIndex from, MemoryIndex to) const noexcept override {
        return is_linked && from.is_device() && to.is_device();
    }
    void residency_changed(Task& task) override { changed.push_back(&task); }
    void unblocked(Task& task) override { woken.push_back(&task); }

    std::vector<Task*> changed;
    std::vector<Task*> woken;
    kmm::graph::Position completed = 0;
    bool is_linked = false;

  private:
    static Fence unexpected() {
        ADD_FAILURE() << "nothing is copied, and no memory is asked for";
        return {};
    }
};

class ResidentsTest : public ::testing::Test {
  protected:
    ResidentsTest()
        : residents(told, {limit, limit, limit}, kmm::trace::nobody_listens, EvictionPolicy::farthest_next_use) {
        for (const MemoryIndex m : residents.memories())
            residents.space(m).grown((std::uintptr_t{m.index()} + 1) << 32, limit);
        kmm_test::cut(array, 8, unit, 2);
    }
    ~ResidentsTest() override { residents.free_chunks(array); }
    Chunk& chunk(std::size_t i) { return array.chunks[i]; }
    /// In a block of its own; with content that is the chunk's if `version` is not 0.
    Replica& take(Chunk& c, MemoryIndex m, std::uint64_t version = 0) {
        residents.records(m).reserve(1);
        residents.take(c, m, residents.space(m).take_free(unit));
        Replica& r = c.replicas.at(m);
        if (version != 0) {
            c.version = version;
            residents.set_version(r, version);
        }
        residents.reindex_all(c);
        return r;
    }
    std::vector<std::uint32_t> victims(MemoryIndex m) {
        std::vector<Chunk*> found;
        residents.list_victims(m, 100, found);
        std::vector<std::uint32_t> indices;
        for (const Chunk* c : found) {
            EXPECT_TRUE(residents.is_victim_in_order(*c, m));
            indices.push_back(c->index);
        }
        return indices;
    }
    void use_next(std::size_t i, kmm::graph::TaskNumber task) {
        residents.add_next_use(chunk(i), {task, NextUses::Kind::needs});
    }

    Told told;
    Residents residents;
    Array array;
};

TEST_F(ResidentsTest, take_blocks_that_are_counted_and_come_back) {
    const Replica& r = take(chunk(0), gpu, 1);
    EXPECT_EQ(residents.num_resident(gpu), 1u);
    EXPECT_EQ(residents.space(gpu).counters.current_bytes, unit);
    EXPECT_EQ(residents.space(gpu).heap.free_bytes(), limit - unit);
    EXPECT_TRUE(is_valid(chunk(0), gpu));
    const std::uintptr_t block = r.block();
    residents.release(chunk(0).replicas.at(gpu));
    EXPECT_EQ(residents.num_resident(gpu), 0u);
    EXPECT_EQ(residents.space(gpu).counters.current_bytes, 0u);
    EXPECT_EQ(residents.space(gpu).take_free(unit).address, block);
}

TEST_F(ResidentsTest, free_a_block_behind_the_work_that_uses_it) {
    Replica& r = take(chunk(0), gpu, 1);
    constexpr auto lane = static_cast<LaneId>(2);
    residents.add_user(r, UserKind::task_read, {lane, 4});
    EXPECT_FALSE(residents.is_idle(r));
    const Fence last{static_cast<LaneId>(3), 9};
    residents.release(r, &last);
    const auto block = residents.space(gpu).take_free(limit);
    ASSERT_TRUE(block);
    EXPECT_EQ(block.fences.size(), 2u);
}

TEST_F(ResidentsTest, find_content_over_the_best_way) {
    Chunk& c = chunk(0);
    EXPECT_EQ(residents.source_for(c, gpu), gpu) << "there is none";
    take(c, host, 1);
    take(c, gpu_1, 1);
    EXPECT_EQ(residents.source_for(c, gpu), host);
    told.is_linked = true;
    EXPECT_EQ(residents.source_for(c, gpu), gpu_1);
    EXPECT_EQ(residents.read_from(c, gpu_1), gpu_1);
    c.replicas.at(gpu_1).writer_pins = 1;
    c.replicas.at(host).writer_pins = 1;
    EXPECT_EQ(residents.source_for(c, gpu), gpu_1) << "both must be waited for";
    c.replicas.at(gpu_1).writer_pins = c.replicas.at(host).writer_pins = 0;
}

TEST_F(ResidentsTest, would_leave_by_their_next_use_and_clean_ones_first) {
    for (std::size_t i = 0; i < 5; i++) take(chunk(i), gpu, 1);
    take(chunk(1), host, 1);  // clean
    use_next(2, 30);
    use_next(3, 10);
    use_next(4, 20);
    ASSERT_TRUE(residents.begin_order(gpu));
    EXPECT_TRUE(residents.has_evicted(gpu));
    EXPECT_EQ(victims(gpu), (std::vector<std::uint32_t>{1, 0, 2, 4, 3}));
    EXPECT_EQ(residents.records(gpu).idle_bytes, 2 * unit);
    EXPECT_EQ(residents.records(gpu).spare_bytes, unit);
    residents.remove_next_use(chunk(3), {10, NextUses::Kind::needs});
    EXPECT_EQ(victims(gpu), (std::vector<std::uint32_t>{1, 0, 3, 2, 4}));
    residents.add_next_use(chunk(4), {5, NextUses::Kind::replaces});
    EXPECT_EQ(victims(gpu).front(), 4u) << "what it holds is of no use to any task";
    Replica& pinned = chunk(0).replicas.at(gpu);
    pinned.reader_pins = 1;
    residents.count_pinned(chunk(0), gpu, true);
    residents.reindex(pinned);
    EXPECT_EQ(victims(gpu).size(), 4u);
    EXPECT_EQ(residents.evictable_bytes(gpu), 4 * unit);
    pinned.reader_pins = 0;
    residents.count_pinned(chunk(0), gpu, false);
}

TEST_F(ResidentsTest, tell_tasks_that_wait_for_a_replica_and_those_that_listen) {
    Task waiting, listening;
    waiting.memory = listening.memory = gpu;
    Replica& r = take(chunk(0), gpu, 1);
    residents.wait_for(r, waiting);
    ReadyUse use;
    use.task = &listening;
    use.chunk = &chunk(0);
    residents.listen(use);
    residents.notify(chunk(0), gpu_1);
    EXPECT_TRUE(told.changed.empty()) << "it runs elsewhere";
    residents.notify(chunk(0), gpu);
    EXPECT_EQ(told.changed, std::vector<Task*>{&listening});
    residents.wake(residents.take_waiting(r));
    EXPECT_EQ(told.woken, std::vector<Task*>{&waiting});
    EXPECT_TRUE(residents.take_waiting(r).empty()) << "once";
    residents.stop_listening(use);
    told.changed.clear();
    residents.notify(chunk(0), gpu);
    EXPECT_TRUE(told.changed.empty());
}

}  // namespace
