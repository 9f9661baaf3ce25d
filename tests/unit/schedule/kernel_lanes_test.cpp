// Lanes of kernels: which are foreseen, and which kernels something waits for, without a schedule.
#include "kmm/schedule/kernel_lanes.hpp"

#include <gtest/gtest.h>

#include <set>

#include "parts.hpp"

namespace kmm::parts_test::lanes_of_kernels {
namespace {

using schedule::KernelLanes;

constexpr std::uint32_t num_lanes = 4;
constexpr std::uint32_t num_threads = 512;

SchedulerOptions options_of_test() {
    SchedulerOptions options;
    options.num_devices = 2;
    options.compute_lanes = num_lanes;
    options.threads_at_once = num_lanes * num_threads / 2;  // one array is spread over all lanes
    return options;
}

class KernelLanesTest : public ::testing::Test {
  protected:
    Task& make_kernel(Chunk* written, MemoryIndex memory = gpu) {
        Task& t =
            written != nullptr ? ground.make_kernel({{written, true, true}}, memory) : ground.make_kernel({}, memory);
        t.kernel.block[0] = num_threads;
        return t;
    }
    /// As the schedule does it.
    Fence issue(Task& t) {
        const Fence fence = kernel_lanes.take(t);
        t.lane = fence.lane;
        t.position = fence.position;
        t.fences = set_of({fence});
        return fence;
    }
    std::uint32_t index_of(Fence fence) const { return lanes.info(fence.lane).index; }
    /// One kernel on each lane of the device; what comes after all of them stays with none.
    FenceSet fill_lanes() {
        FenceSet fences;
        for (std::uint32_t i = 0; i < num_lanes; ++i) {
            Task& t = make_kernel(nullptr);
            kernel_lanes.foresee(t);
            fences.add(issue(t));
        }
        EXPECT_EQ(fences.size(), num_lanes);
        return fences;
    }
    void succeed(Task& before, Task& after) {
        ground.add_edge(before, after);
        ground.link(after);
    }

    Ground ground{{64 * unit, 64 * unit, 64 * unit}};
    const SchedulerOptions options = options_of_test();
    LanePositions lanes{2, num_lanes, 1};
    KernelLanes kernel_lanes{lanes, options};
};

TEST_F(KernelLanesTest, chunks_that_were_foreseen_are_spread_with_neighbours_on_one_lane) {
    const FenceSet all = fill_lanes();
    Array& a = ground.make_array(8);
    std::vector<Task*> kernels;
    for (Chunk& c : a.chunks) kernels.push_back(&make_kernel(&c));
    for (Task* t : kernels) kernel_lanes.foresee(*t);
    std::vector<std::uint32_t> chosen;
    for (Task* t : kernels) {
        kernel_lanes.foresee(*t);  // again, when it is submitted
        t->fences = all;
        chosen.push_back(index_of(issue(*t)));
    }
    EXPECT_EQ(chosen, (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST_F(KernelLanesTest, chunks_are_spread_by_those_that_kernels_of_the_same_device_write) {
    Array& a = ground.make_array(8);
    for (std::size_t i = 0; i < 8; ++i) {
        Task& t = make_kernel(&a.chunks[i], i < 4 ? gpu_1 : gpu);
        kernel_lanes.foresee(t);
    }
    const FenceSet all = fill_lanes();
    std::vector<std::uint32_t> chosen;
    for (std::size_t i = 4; i < 8; ++i) {
        Task& t = make_kernel(&a.chunks[i]);
        kernel_lanes.foresee(t);
        t.fences = all;
        chosen.push_back(index_of(issue(t)));
    }
    EXPECT_EQ(chosen, (std::vector<std::uint32_t>{0, 1, 2, 3}));
}

TEST_F(KernelLanesTest, each_device_has_lanes_of_its_own) {
    for (const MemoryIndex m : {gpu, gpu_1}) {
        Task& first = make_kernel(nullptr, m);
        kernel_lanes.foresee(first);
        const Fence fence = issue(first);
        EXPECT_EQ(lanes.info(fence.lane).device, m.device());
        EXPECT_EQ(lanes.info(fence.lane).role, LaneRole::compute);
        EXPECT_EQ(fence.position, 1u);
        Task& second = make_kernel(nullptr, m);
        second.fences = set_of({fence});
        kernel_lanes.foresee(second);
        EXPECT_TRUE(is_same(issue(second), {fence.lane, 2})) << "a chain stays on its lane";
    }
}

TEST_F(KernelLanesTest, kernels_that_were_measured_to_be_short_share_a_lane_without_long_ones) {
    const auto lanes_of_eight = [&] {
        std::set<std::uint32_t> chosen;
        for (int i = 0; i < 8; ++i) {
            Task& t = make_kernel(nullptr);
            kernel_lanes.foresee(t);
            chosen.insert(index_of(issue(t)));
        }
        return chosen;
    };
    EXPECT_EQ(lanes_of_eight().size(), num_lanes);
    lanes.advance(lanes.id(0, LaneRole::compute, 2), 2);
    Task& t = make_kernel(nullptr);
    kernel_lanes.foresee(t);
    ASSERT_TRUE(kernel_lanes.count_launch(t)) << "the first launch is measured";
    kernel_lanes.measured(t.kernel_times, 1000);
    EXPECT_EQ(lanes_of_eight(), std::set<std::uint32_t>{2}) << "the only lane whose long kernels have ended";
}

TEST_F(KernelLanesTest, a_kernel_stays_on_the_streams_that_the_program_named) {
    Array& a = ground.make_array(8);
    for (Chunk& c : a.chunks) {
        Task& t = make_kernel(&c);
        t.where = ResourceId(DeviceId(0), DeviceStreamSet{1, 3});
        kernel_lanes.foresee(t);
        EXPECT_EQ(index_of(issue(t)) % 2, 1u);
    }
}

TEST_F(KernelLanesTest, a_kernel_is_awaited_elsewhere_by_the_host_by_transfers_and_by_other_devices) {
    for (const TaskKind kind : {TaskKind::host, TaskKind::transfer, TaskKind::device_function, TaskKind::kernel}) {
        Task& kernel = make_kernel(nullptr);
        kernel_lanes.foresee(kernel);
        issue(kernel);
        EXPECT_FALSE(kernel_lanes.is_awaited_elsewhere(kernel)) << "nothing comes after it";
        Task& after = ground.make_task(kind,
                                       kind == TaskKind::host     ? host
                                       : kind == TaskKind::kernel ? gpu_1
                                                                  : gpu,
                                       {});
        if (kind == TaskKind::kernel) kernel_lanes.foresee(after);
        succeed(kernel, after);
        EXPECT_TRUE(kernel_lanes.is_awaited_elsewhere(kernel)) << static_cast<int>(kind);
    }
}

TEST_F(KernelLanesTest, joins_do_not_await_a_kernel_elsewhere) {
    Task& kernel = make_kernel(nullptr);
    kernel_lanes.foresee(kernel);
    issue(kernel);
    for (int i = 0; i < 3; ++i) succeed(kernel, ground.make_task(TaskKind::join, gpu, {}));
    EXPECT_FALSE(kernel_lanes.is_awaited_elsewhere(kernel));
    succeed(kernel, ground.make_task(TaskKind::host, host, {}));
    EXPECT_TRUE(kernel_lanes.is_awaited_elsewhere(kernel)) << "a successor behind the joins";
}

TEST_F(KernelLanesTest, of_the_kernels_behind_one_the_first_stays_with_it_and_a_second_leaves) {
    Task& kernel = make_kernel(nullptr);
    kernel_lanes.foresee(kernel);
    issue(kernel);
    for (const bool is_awaited : {false, true}) {
        Task& next = make_kernel(nullptr);
        kernel_lanes.foresee(next);
        succeed(kernel, next);
        EXPECT_EQ(kernel_lanes.is_awaited_elsewhere(kernel), is_awaited);
    }
}

TEST_F(KernelLanesTest, a_kernel_is_awaited_by_one_whose_chunk_has_another_lane) {
    const FenceSet all = fill_lanes();
    Array& a = ground.make_array(8);
    for (Chunk& c : a.chunks) {
        Task& t = make_kernel(&c);
        kernel_lanes.foresee(t);
    }
    for (const std::size_t after : {1u, 7u}) {
        Task& kernel = make_kernel(&a.chunks[0]);
        kernel_lanes.foresee(kernel);
        kernel.fences = all;
        issue(kernel);
        Task& next = make_kernel(&a.chunks[after]);
        kernel_lanes.foresee(next);
        succeed(kernel, next);
        EXPECT_EQ(kernel_lanes.is_awaited_elsewhere(kernel), after == 7);
    }
}

}  // namespace
}  // namespace kmm::parts_test::lanes_of_kernels
