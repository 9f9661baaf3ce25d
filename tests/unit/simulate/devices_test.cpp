// The simulated devices: order on a lane, waits between lanes, shared rates, and when what is over is seen.
#include <gtest/gtest.h>

#include <vector>

#include "simulate/generators.hpp"
#include "simulate/timed_devices.hpp"

namespace {

using namespace kmm::simulate;
using kmm::graph::Fence;
using kmm::graph::LaneId;
using kmm::memory::MemoryIndex;
using kmm::schedule::Instruction;

constexpr MemoryIndex host = MemoryIndex::host();
constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
// As `machine_with` numbers them.
constexpr auto compute = static_cast<LaneId>(0);
constexpr auto compute_1 = static_cast<LaneId>(1);
constexpr auto up = static_cast<LaneId>(8);
constexpr auto down = static_cast<LaneId>(9);

class DevicesTest : public ::testing::Test {
  protected:
    DevicesTest() {
        rates_.up = rates_.down = 10;
        rates_.both = 16;
        rates_.copy_ns = 0;
        rates_.launch_ns = 0;
        rates_.seen_ns = 0;
        rates_.kernel_ns = 1000;
    }
    void start() { devices_ = std::make_unique<TimedDevices>(machine_with(1, 1), rates_, nullptr); }
    void put(Instruction::Op op, LaneId lane, std::vector<Fence> after = {}, std::size_t bytes = 0) {
        Instruction i;
        i.op = op;
        i.lane = lane;
        i.position = ++positions_[static_cast<std::size_t>(lane)];
        i.task = 1;
        i.waits = after;
        i.bytes = bytes;
        i.from = lane == up ? host : gpu;
        i.to = lane == up ? gpu : host;
        devices_->instruct(i);
    }
    /// When each is seen to be done, lane by lane.
    std::vector<std::pair<LaneId, std::int64_t>> run() {
        std::vector<std::pair<LaneId, std::int64_t>> seen;
        for (Done done; devices_->next(done, Devices::never);) seen.emplace_back(done.lane, devices_->now_ns());
        return seen;
    }
    using Seen = std::vector<std::pair<LaneId, std::int64_t>>;

    Rates rates_;
    std::unique_ptr<TimedDevices> devices_;
    std::uint64_t positions_[16] = {};
};

TEST_F(DevicesTest, do_the_work_of_a_lane_in_order_and_see_it_a_little_later) {
    rates_.seen_ns = 5;
    rates_.launch_ns = 10;
    start();
    put(Instruction::Op::kernel, compute);
    put(Instruction::Op::kernel, compute);
    EXPECT_EQ(run(), (Seen{{compute, 1015}, {compute, 2015}}));
    EXPECT_EQ(devices_->busy_ns(0), 2000);
}

TEST_F(DevicesTest, wait_for_the_positions_of_other_lanes) {
    start();
    put(Instruction::Op::transfer, up, {}, 5000);
    put(Instruction::Op::kernel, compute, {{up, 1}});
    put(Instruction::Op::transfer, down, {{compute, 1}}, 2000);
    EXPECT_EQ(run(), (Seen{{up, 500}, {compute, 1500}, {down, 1700}}));
}

TEST_F(DevicesTest, share_themselves_between_kernels_and_a_link_between_directions) {
    start();
    put(Instruction::Op::kernel, compute);
    put(Instruction::Op::kernel, compute_1);
    EXPECT_EQ(run(), (Seen{{compute, 2000}, {compute_1, 2000}}));
    start();
    put(Instruction::Op::transfer, up, {}, 8000);
    put(Instruction::Op::transfer, down, {}, 16000);
    // Eight bytes a nanosecond each for 1000 of them; then the other one has ten.
    EXPECT_EQ(run(), (Seen{{up, 1000}, {down, 1800}}));
}

TEST_F(DevicesTest, have_a_clock_that_stops_where_it_is_told_to) {
    start();
    put(Instruction::Op::kernel, compute);
    Done done;
    EXPECT_FALSE(devices_->next(done, 400));
    EXPECT_EQ(devices_->now_ns(), 400);
    put(Instruction::Op::kernel, compute_1);
    EXPECT_TRUE(devices_->next(done, Devices::never));
    EXPECT_EQ(done.lane, compute);
    EXPECT_EQ(devices_->now_ns(), 1600) << "600 of its own, shared";
    EXPECT_TRUE(devices_->next(done, Devices::never));
    EXPECT_EQ(devices_->now_ns(), 2000);
    EXPECT_FALSE(devices_->next(done, Devices::never));
}

}  // namespace
