// Transfers on lanes, without a schedule: the lane of each, what is counted, and what a failed one leaves behind.
#include "kmm/schedule/transfers.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <tuple>

#include "parts.hpp"

namespace kmm::parts_test::transfers {
namespace {

using memory::BoxMove;
using memory::Link;
using schedule::Transfers;

constexpr std::size_t limit = 64 * unit;

class TransfersTest : public ::testing::Test {
  protected:
    static constexpr auto no_error = nullptr;

    LaneId lane(std::uint32_t device, LaneRole role) const { return ground.lanes.id(device, role); }
    /// Of the whole chunk, between addresses that nothing looks at.
    static Transfer copy_of(Chunk& c, MemoryIndex from, MemoryIndex to) {
        return memory::chunk_transfer(c, from, to, Ground::base(from), Ground::base(to));
    }
    Fence put(const Transfer& t) { return transfers.put(t, {}); }
    /// A copy of that many bytes of a chunk of its own.
    void put_bytes(MemoryIndex from, MemoryIndex to, std::size_t bytes) {
        put(copy_of(ground.make_array(1, bytes).chunks[0], from, to));
    }
    /// All that was put on the lane is done.
    void finish(LaneId on) {
        ground.lanes.advance(on, ground.lanes.take(on).position);
        while (const auto done = ground.lanes.take_done(on))
            if (done->chunk != nullptr) transfers.ended();
    }
    /// The chunk goes from the host to the device, where it has a block from now on.
    Fence fetch(Chunk& c) {
        ground.put(c, host);
        Replica& r = ground.put(c, gpu);
        r.content_at = c.copied_at = ground.residency.residents().next_tick();
        return put(copy_of(c, host, gpu));
    }
    /// A task that was placed when the chunk's latest copy had been requested.
    Task& make_placed(Chunk& c, TaskState state, const Ground::Wanted& how = {}) {
        Task& t = ground.make_kernel({{&c, how.writes, how.replaces}});
        t.state.store(state);
        t.uses[0].memory = gpu;
        t.uses[0].content_at = c.replicas[gpu].content_at;
        t.uses[0].replaced_at = c.replaced_at;
        return t;
    }

    Ground ground{{limit, limit, limit}};
    Transfers transfers{ground.outbox, ground.table, ground.lanes, ground.residency, ground.options, ground.counters};
    const std::exception_ptr error = std::make_exception_ptr(std::runtime_error("on purpose"));
};

TEST_F(TransfersTest, a_transfer_goes_over_the_lane_of_its_link_and_is_counted_there) {
    struct Way {
        MemoryIndex from, to;
        std::uint32_t device;
        LaneRole role;
    };
    const Way ways[] = {{host, gpu_1, 1, LaneRole::up},
                        {gpu_1, host, 1, LaneRole::down},
                        {gpu, gpu_1, 1, LaneRole::peer},
                        {gpu, gpu, 0, LaneRole::peer}};
    for (const Way& w : ways) {
        Chunk& c = ground.make_array(1).chunks[0];
        const memory::LinkCounts before = ground.counters.transfers;
        const Fence fence = put(copy_of(c, w.from, w.to));
        const auto& given = ground.outbox.given.back();
        EXPECT_TRUE(is_same(fence, {lane(w.device, w.role), 1}));
        EXPECT_EQ(given.device, w.device);
        EXPECT_EQ(given.instruction.lane, fence.lane);
        EXPECT_EQ(given.instruction.position, 1u);
        EXPECT_EQ(given.instruction.chunk, &c);
        EXPECT_TRUE(given.instruction.is_whole_chunk());
        EXPECT_EQ(given.instruction.bytes, unit);
        const auto link = static_cast<std::size_t>(memory::Tiers::link(w.from, w.to));
        const std::uint64_t over_link = w.from == w.to ? 0 : 1;
        EXPECT_EQ(ground.counters.transfers.copies[link] - before.copies[link], over_link);
        EXPECT_EQ(ground.lanes.bytes_in_flight(fence.lane), over_link * unit);
    }
    const auto& by_device = ground.counters.by_device;
    EXPECT_EQ(by_device[0].copies[static_cast<std::size_t>(Link::device_to_device)], 0u) << "within a device";
    for (std::size_t link = 0; link < memory::num_links; ++link) {
        EXPECT_EQ(by_device[1].copies[link], 1u);
        EXPECT_EQ(by_device[1].bytes[link], unit);
        EXPECT_EQ(ground.counters.transfers.bytes[link], unit);
    }
    EXPECT_EQ(ground.counters.gathered_bytes, unit) << "the one that lies beside others";
}

TEST_F(TransfersTest, an_instruction_says_what_is_still_to_be_waited_for) {
    const LaneId up = lane(0, LaneRole::up);
    const LaneId compute = lane(0, LaneRole::compute);
    const LaneId down = lane(0, LaneRole::down);
    Chunk& c = ground.make_array(1).chunks[0];
    put_bytes(host, gpu, unit);
    ASSERT_TRUE(ground.lanes.advance(down, 2));
    const Transfer t = copy_of(c, host, gpu);
    transfers.put(t, set_of({{up, 1}, {down, 2}, {compute, 5}}));
    const auto& given = ground.outbox.given.back();
    ASSERT_EQ(given.waits.size(), 1u);
    EXPECT_TRUE(is_same(given.waits[0], {compute, 5}));
    EXPECT_EQ(given.instruction.after_on_lane, 1u);
    EXPECT_EQ(given.instruction.task, 0u) << "it is for none";
}

TEST_F(TransfersTest, the_work_of_a_task_is_told_with_its_boxes_and_the_tasks_that_it_needs) {
    Array& a = ground.make_array(2);
    Task& task = ground.make_task(TaskKind::transfer, gpu, {{&a.chunks[0], true}, {&a.chunks[1]}});
    const BoxMove boxes[2] = {};
    const TaskNumber needed[] = {7, 9};
    Transfer t{.what = Transfer::What::task, .from = host, .to = gpu, .task = &task, .boxes = boxes, .bytes = 100};
    t.over_links.add(host, gpu, 60);
    transfers.put(t, {}, needed);
    const auto& given = ground.outbox.given.back();
    EXPECT_EQ(given.instruction.task, task.number);
    EXPECT_EQ(given.instruction.what, Transfer::What::task);
    EXPECT_EQ(given.instruction.chunk, nullptr);
    EXPECT_EQ(given.boxes.size(), 2u);
    EXPECT_EQ(given.needed_tasks, (std::vector<TaskNumber>{7, 9}));
    EXPECT_EQ(transfers.num_in_flight(), 0u) << "the task itself is in flight";
    EXPECT_EQ(a.users, 0u);
    EXPECT_EQ(ground.lanes.bytes_in_flight(lane(0, LaneRole::up)), 60u) << "those that leave their memory";
    ground.lanes.advance(lane(0, LaneRole::up), 1);
    EXPECT_EQ(ground.lanes.take_done(lane(0, LaneRole::up))->task, &task);
}

TEST_F(TransfersTest, a_transfer_of_no_task_uses_the_array_and_is_in_flight_until_it_has_ended) {
    Array& a = ground.make_array(2);
    put(copy_of(a.chunks[0], host, gpu));
    put(copy_of(a.chunks[1], gpu, host));
    EXPECT_EQ(a.users, 2u);
    EXPECT_EQ(transfers.num_in_flight(), 2u);
    finish(lane(0, LaneRole::up));
    EXPECT_EQ(transfers.num_in_flight(), 1u);
}

TEST_F(TransfersTest, bytes_are_counted_by_what_they_are_moved_for) {
    Array& a = ground.make_array(1);
    memory::Temporary temporary({}, 1, 1, memory::heap_alignment, 1);
    for (const bool is_snapshot : {true, false}) {
        Task& fill = ground.make_task(TaskKind::transfer, host, {{&temporary.chunk, true}, {&a.chunks[0]}});
        fill.for_snapshot = is_snapshot;
        transfers.count({.what = Transfer::What::task, .task = &fill, .bytes = is_snapshot ? 10u : 20u});
    }
    EXPECT_EQ(ground.counters.snapshot_bytes, 10u);
    EXPECT_EQ(ground.counters.gathered_bytes, 20u);
    Task& back = ground.make_task(TaskKind::transfer, host, {{&a.chunks[0], true}, {&temporary.chunk}});
    transfers.count({.what = Transfer::What::task, .task = &back, .bytes = 40});
    transfers.count(copy_of(a.chunks[0], gpu, host));
    transfers.count({.what = Transfer::What::ghost, .from = gpu, .to = gpu_1, .chunk = &a.chunks[0], .bytes = 80});
    EXPECT_EQ(ground.counters.gathered_bytes, 20u) << "these fill what is there anyway";
    transfers.count({.what = Transfer::What::gather, .chunk = &temporary.chunk, .task = &back, .bytes = 160});
    EXPECT_EQ(ground.counters.gathered_bytes, 180u);
    EXPECT_EQ(ground.counters.snapshot_bytes, 10u);
}

TEST_F(TransfersTest, a_copy_extends_the_one_right_before_it_only_where_both_its_ends_touch_that) {
    Array& a = ground.make_array(2);
    const std::uintptr_t below = Ground::base(host), above = Ground::base(gpu);
    const auto copy_to = [&](std::uintptr_t source, std::uintptr_t destination, MemoryIndex to = gpu) {
        put(memory::chunk_transfer(a.chunks[0], host, to, source, destination));
        return ground.outbox.given.back().instruction.extends_previous;
    };
    EXPECT_FALSE(copy_to(below, above));
    EXPECT_TRUE(copy_to(below + unit, above + unit));
    EXPECT_TRUE(copy_to(below + 2 * unit, above + 2 * unit));
    EXPECT_FALSE(copy_to(below + 3 * unit, above + 4 * unit)) << "a gap on the device";
    EXPECT_FALSE(copy_to(below + 5 * unit, above + 5 * unit)) << "a gap on the host";
    EXPECT_FALSE(copy_to(below + 6 * unit, above + 6 * unit, gpu_1)) << "another lane";
    EXPECT_TRUE(copy_to(below + 6 * unit, above + 6 * unit)) << "the last one on this lane";
    Task& task = ground.make_reader(a.chunks[1]);
    put({.what = Transfer::What::ghost, .from = host, .to = gpu, .chunk = &a.chunks[1], .task = &task, .bytes = 8});
    EXPECT_FALSE(copy_to(below + 7 * unit, above + 7 * unit)) << "boxes lie between";
}

TEST_F(TransfersTest, no_more_than_a_quarter_of_a_small_memory_is_on_its_way) {
    ASSERT_LT(limit / 4, ground.options.link_bytes_in_flight);
    EXPECT_TRUE(transfers.may_fetch(gpu));
    put_bytes(host, gpu, limit / 8);
    put_bytes(gpu_1, gpu, limit / 8 - unit);
    EXPECT_TRUE(transfers.may_fetch(gpu));
    EXPECT_TRUE(transfers.may_fetch(gpu_1));
    put_bytes(gpu_1, gpu, unit);
    EXPECT_FALSE(transfers.may_fetch(gpu)) << "both links bring a quarter together";
    EXPECT_TRUE(transfers.may_fetch(gpu_1));
    EXPECT_TRUE(transfers.may_fetch(host));
    finish(lane(0, LaneRole::peer));
    EXPECT_TRUE(transfers.may_fetch(gpu));
    put_bytes(gpu, host, limit / 4 - unit);
    EXPECT_TRUE(transfers.may_fetch(gpu)) << "what leaves does not count for what comes";
    put_bytes(gpu, host, unit);
    EXPECT_FALSE(transfers.may_fetch(gpu)) << "a quarter leaves";
}

TEST_F(TransfersTest, a_link_has_two_copies_however_large_or_more_of_few_bytes) {
    ground.options.link_bytes_in_flight = 1000;
    for (const auto& [from, to, role] :
         {std::tuple(host, gpu, LaneRole::up), {gpu, host, LaneRole::down}, {gpu_1, gpu, LaneRole::peer}}) {
        put_bytes(from, to, 2000);
        EXPECT_TRUE(transfers.may_fetch(gpu)) << "another one behind it";
        put_bytes(from, to, 2000);
        EXPECT_FALSE(transfers.may_fetch(gpu));
        finish(lane(0, role));
        for (int i = 0; i < 9; ++i) put_bytes(from, to, 100);
        EXPECT_TRUE(transfers.may_fetch(gpu));
        put_bytes(from, to, 100);
        EXPECT_FALSE(transfers.may_fetch(gpu));
        finish(lane(0, role));
    }
}

TEST_F(TransfersTest, a_failed_copy_fails_the_tasks_that_were_issued_and_may_have_taken_its_content) {
    Array& a = ground.make_array(2);
    Chunk& c = a.chunks[0];
    ground.put(c, gpu);
    Task& before = make_placed(c, TaskState::issued);
    ground.drop(c, gpu);
    const Fence other = fetch(a.chunks[1]);
    const Fence fence = fetch(c);
    Task& issued = make_placed(c, TaskState::issued);
    Task& launching = make_placed(c, TaskState::launching);
    Task& writing = make_placed(c, TaskState::issued, {nullptr, true, false});
    Task& waiting = make_placed(c, TaskState::waiting);
    Task& ready = make_placed(c, TaskState::ready);
    Task& executed = make_placed(c, TaskState::executed);
    Task& replacing = make_placed(c, TaskState::issued, {nullptr, true, true});
    Task& of_other = make_placed(a.chunks[1], TaskState::issued);
    Task& after_replacement = make_placed(c, TaskState::issued);
    after_replacement.uses[0].replaced_at = c.copied_at + 1;
    transfers.failed(fence.lane, fence.position, error);
    for (const Task* t : {&issued, &launching, &writing}) EXPECT_EQ(t->thrown, error) << t->number;
    for (const Task* t : {&before, &waiting, &ready, &executed, &replacing, &of_other, &after_replacement})
        EXPECT_EQ(t->thrown, no_error) << t->number;
    EXPECT_EQ(c.lost, nullptr) << "the host still has it";
    EXPECT_FALSE(memory::is_valid(c, gpu));
    EXPECT_TRUE(memory::is_valid(a.chunks[1], gpu));
    transfers.failed(other.lane, other.position, error);
    EXPECT_EQ(of_other.thrown, error);
}

TEST_F(TransfersTest, content_that_was_in_a_failed_copy_alone_is_lost_without_a_report_of_its_own) {
    Chunk& c = ground.make_array(1).chunks[0];
    ground.make_reader(c);
    ground.put(c, gpu);
    ground.drop(c, gpu);
    ground.put(c, host).content_at = c.copied_at = ground.residency.residents().next_tick();
    const Fence fence = put(copy_of(c, gpu, host));
    transfers.failed(fence.lane, fence.position, error);
    ASSERT_NE(c.lost, nullptr);
    EXPECT_EQ(c.lost->cause, error);
    EXPECT_EQ(c.lost->number, ground.table.last());
    EXPECT_TRUE(c.lost->delivered) << "by the tasks that need the chunk";
}

TEST_F(TransfersTest, a_failed_part_fails_the_tasks_that_read_it_in_that_memory_and_loses_nothing) {
    Chunk& c = ground.make_array(1).chunks[0];
    ground.put(c, host);
    ground.put(c, gpu);
    Task& whole = make_placed(c, TaskState::issued);
    ground.residency.residents().set_version(c.replicas.at(gpu), 0);
    ground.residency.residents().make_ghosts(c.replicas.at(gpu));
    c.replicas.at(gpu).content_at = c.copied_at = ground.residency.residents().next_tick();
    Task& reader = make_placed(c, TaskState::issued);
    Task& elsewhere = make_placed(c, TaskState::issued);
    Task& later = make_placed(c, TaskState::ready);
    for (Task* t : {&reader, &elsewhere, &later}) t->uses[0].place = Use::Place::ghost;
    elsewhere.uses[0].memory = gpu_1;
    whole.uses[0].content_at = c.copied_at;
    ground.put(c, gpu_1);
    const BoxMove boxes[1] = {};
    const Fence fence = put({.what = Transfer::What::ghost,
                             .from = host,
                             .to = gpu,
                             .chunk = &c,
                             .task = &reader,
                             .boxes = boxes,
                             .bytes = 8});
    c.replicas.at(gpu_1).content_at = ground.residency.residents().next_tick();
    transfers.failed(fence.lane, fence.position, error);
    EXPECT_EQ(reader.thrown, error);
    for (const Task* t : {&whole, &elsewhere, &later}) EXPECT_EQ(t->thrown, no_error) << t->number;
    EXPECT_EQ(c.lost, nullptr);
    for (const MemoryIndex m : {host, gpu_1}) EXPECT_TRUE(memory::is_valid(c, m)) << "no content comes from a ghost";
}

TEST_F(TransfersTest, a_lane_fails_with_all_its_work_up_to_the_position) {
    Array& a = ground.make_array(3);
    const Fence first = fetch(a.chunks[0]);
    Task& work = ground.make_task(TaskKind::transfer, gpu, {{&a.chunks[2], true}, {&a.chunks[1]}});
    const Fence second = put({.what = Transfer::What::task, .from = host, .to = gpu, .task = &work, .bytes = 8});
    const Fence third = fetch(a.chunks[1]);
    Task& late_work = ground.make_task(TaskKind::transfer, gpu, {{&a.chunks[2], true}, {&a.chunks[1]}});
    put({.what = Transfer::What::task, .from = host, .to = gpu, .task = &late_work, .bytes = 8});
    const Fence last = fetch(a.chunks[2]);
    ASSERT_EQ(last.position, first.position + 4);
    std::vector<Task*> readers;
    for (Chunk& c : a.chunks) readers.push_back(&make_placed(c, TaskState::issued));
    transfers.failed(second.lane, second.position, error);
    EXPECT_EQ(work.thrown, no_error) << "it is told by itself";
    transfers.lane_failed(first.lane, third.position, error);
    for (const Task* t : {readers[0], readers[1], &work}) EXPECT_EQ(t->thrown, error);
    for (const Task* t : {readers[2], &late_work}) EXPECT_EQ(t->thrown, no_error);
    EXPECT_EQ(transfers.num_in_flight(), 3u) << "until the lane has advanced";
}

TEST_F(TransfersTest, a_task_keeps_what_it_ended_with_before_a_copy_failed) {
    Chunk& c = ground.make_array(1).chunks[0];
    const Fence fence = fetch(c);
    Task& task = make_placed(c, TaskState::issued);
    task.thrown = std::make_exception_ptr(std::logic_error("its own"));
    const std::exception_ptr own = task.thrown;
    transfers.failed(fence.lane, fence.position, error);
    EXPECT_EQ(task.thrown, own);
}

}  // namespace
}  // namespace kmm::parts_test::transfers
