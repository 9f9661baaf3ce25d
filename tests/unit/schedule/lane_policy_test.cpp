// Which compute lane a kernel goes to: kmm/schedule/lane_policy.hpp and kernel_times.hpp, without a scheduler.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "kmm/schedule/kernel_times.hpp"
#include "kmm/schedule/lane_policy.hpp"

namespace {

using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::schedule::KernelTimes;
using kmm::schedule::LanePolicy;
using kmm::schedule::LaneProgress;
using kmm::schedule::LaneWish;

constexpr std::uint64_t threads_at_once = 100;
constexpr std::uint64_t whole_device = 1000;  // threads
constexpr std::uint32_t first_lane = 13;      // those before it are another device's

/// The compute lanes of one device, on which the policy puts kernels.
class Device {
  public:
    explicit Device(std::uint32_t lanes = 8) : policy_(LaneId{first_lane}, lanes, threads_at_once), lanes_(lanes) {}

    Fence put(const LaneWish& wish, std::vector<Fence> after = {}) {
        const std::uint32_t lane = policy_.choose(wish, set_of(after), lanes_);
        EXPECT_LT(lane, lanes_.size());
        policy_.put(lane, ++lanes_[lane].issued, wish.is_short);
        return {LaneId{static_cast<std::uint16_t>(first_lane + lane)}, lanes_[lane].issued};
    }
    bool will_leave(Fence of, const LaneWish& wish, bool is_first, std::vector<Fence> after = {}) const {
        return policy_.will_leave(lane_of(of), wish, set_of(after), is_first, lanes_);
    }
    void complete(Fence f) { lanes_[lane_of(f)].completed = f.position; }
    void complete_all() {
        for (LaneProgress& l : lanes_) l.completed = l.issued;
    }
    static std::uint32_t lane_of(Fence f) {
        return static_cast<std::uint32_t>(kmm::graph::index_of(f.lane)) - first_lane;
    }

  private:
    static FenceSet set_of(const std::vector<Fence>& fences) {
        FenceSet set;
        for (const Fence& f : fences) set.add(f);
        return set;
    }
    LanePolicy policy_;
    std::vector<LaneProgress> lanes_;
};

LaneWish long_kernel(std::uint32_t chunk, std::uint32_t num_chunks, std::uint64_t threads = whole_device) {
    return {chunk, {0, num_chunks - 1}, threads, false};
}
LaneWish short_kernel(std::uint32_t chunk = 0, std::uint32_t num_chunks = 1) {
    return {chunk, {0, num_chunks - 1}, 1, true};
}

/// The lanes of an array's chunks, each of which waits for a kernel that nothing can follow at once.
std::vector<std::uint32_t> homes(Device& device, std::uint32_t num_chunks, std::uint64_t threads) {
    const Fence before = device.put(long_kernel(0, 1));
    (void)device.put(long_kernel(0, 1), {before});
    std::vector<std::uint32_t> lanes;
    for (std::uint32_t c = 0; c < num_chunks; ++c)
        lanes.push_back(Device::lane_of(device.put(long_kernel(c, num_chunks, threads), {before})));
    return lanes;
}

TEST(LanePolicy, neighbouring_chunks_share_a_lane_and_kernels_that_fill_the_device_take_two) {
    Device device;
    EXPECT_EQ(homes(device, 8, whole_device), (std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(LanePolicy, chunks_of_small_kernels_are_spread_over_as_many_lanes_as_fill_the_device) {
    for (const auto& [threads, lanes] : std::vector<std::pair<std::uint64_t, std::size_t>>{
             {1, 8}, {25, 8}, {50, 4}, {70, 3}, {100, 2}, {0, 8}, {std::uint64_t{1} << 40, 2}}) {
        Device device;
        const std::vector<std::uint32_t> all = homes(device, 24, threads);
        EXPECT_TRUE(std::is_sorted(all.begin(), all.end())) << threads;
        EXPECT_EQ(std::set<std::uint32_t>(all.begin(), all.end()).size(), lanes) << threads;
    }
}

/// The lanes of the chunks of an array that are used on this device, each of which waits for a kernel that nothing can
/// follow at once.
std::vector<std::uint32_t> homes_of(const std::vector<std::uint32_t>& chunks) {
    Device device(4);
    kmm::memory::ChunkRange used;
    for (const std::uint32_t c : chunks) used.add(c);
    const Fence before = device.put(long_kernel(0, 1));
    (void)device.put(long_kernel(0, 1), {before});
    std::vector<std::uint32_t> lanes;
    for (const std::uint32_t c : chunks)
        lanes.push_back(Device::lane_of(device.put(LaneWish{c, used, 50, false}, {before})));
    return lanes;
}

TEST(LanePolicy, the_chunks_that_a_device_works_on_are_spread_over_all_its_lanes_however_they_are_dealt) {
    const std::vector<std::uint32_t> expected{0, 0, 1, 1, 2, 2, 3, 3};
    EXPECT_EQ(homes_of({8, 9, 10, 11, 12, 13, 14, 15}), expected) << "the second half";
    EXPECT_EQ(homes_of({0, 2, 4, 6, 8, 10, 12, 14}), expected) << "in turn, two devices";
    EXPECT_EQ(homes_of({3, 7, 11, 15, 19, 23, 27, 31}), expected) << "in turn, four devices";
    EXPECT_EQ(homes_of({500, 501, 502, 503, 504, 505, 506, 507}), expected) << "a few of many";
}

TEST(LanePolicy, one_lane_is_enough_for_a_program_that_asks_for_one) {
    Device device(1);
    for (std::uint32_t c = 0; c < 8; ++c) {
        EXPECT_EQ(Device::lane_of(device.put(long_kernel(c, 8))), 0u);
        EXPECT_EQ(Device::lane_of(device.put(short_kernel())), 0u);
    }
}

TEST(LanePolicy, a_long_kernel_that_waits_for_nothing_takes_the_lane_with_least_on_it) {
    Device device;
    EXPECT_EQ(Device::lane_of(device.put(long_kernel(0, 8))), 0u);
    EXPECT_EQ(Device::lane_of(device.put(long_kernel(1, 8))), 1u);
    EXPECT_EQ(Device::lane_of(device.put(long_kernel(2, 8))), 0u) << "as much on both: the chunk's own";
    EXPECT_EQ(Device::lane_of(device.put(long_kernel(3, 8))), 1u);
}

TEST(LanePolicy, a_chain_stays_on_its_lane_and_kernels_of_other_arrays_go_elsewhere) {
    Device device;
    Fence a = device.put(long_kernel(0, 1));
    Fence b = device.put(long_kernel(0, 1));
    EXPECT_NE(a.lane, b.lane);
    for (int i = 0; i < 4; ++i) {
        const Fence next_a = device.put(long_kernel(0, 1), {a});
        const Fence next_b = device.put(long_kernel(0, 1), {b});
        EXPECT_EQ(next_a.lane, a.lane);
        EXPECT_EQ(next_b.lane, b.lane);
        a = next_a, b = next_b;
    }
}

TEST(LanePolicy, of_many_kernels_behind_one_the_first_stays_and_the_others_spread) {
    Device device(4);
    const Fence before = device.put(long_kernel(0, 1, 10));
    std::set<std::uint32_t> lanes;
    for (int i = 0; i < 4; ++i) lanes.insert(Device::lane_of(device.put(long_kernel(0, 1, 10), {before})));
    EXPECT_EQ(lanes.size(), 4u);
}

TEST(LanePolicy, chains_of_more_arrays_than_lanes_stay_where_they_are) {
    for (const std::uint32_t num_chunks :
         {1u, 1000u}) {  // of one array the first chunks alone, as if others had been used
        Device device(4);
        std::vector<Fence> latest;
        for (std::uint32_t c = 0; c < 12; ++c) latest.push_back(device.put(long_kernel(c, num_chunks, 10)));
        std::vector<int> chains(4);
        for (const Fence& f : latest) ++chains[Device::lane_of(f)];
        EXPECT_EQ(chains, (std::vector<int>{3, 3, 3, 3}));
        for (int step = 0; step < 5; ++step) {
            for (std::uint32_t c = 0; c < latest.size(); ++c) {
                const Fence next = device.put(long_kernel(c, num_chunks, 10), {latest[c]});
                EXPECT_EQ(next.lane, latest[c].lane) << "step " << step << ", chain " << c;
                latest[c] = next;
            }
        }
    }
}

TEST(LanePolicy, a_few_chunks_of_many_do_not_all_wait_on_their_lane) {
    Device device(4);
    std::vector<Fence> latest;
    for (std::uint32_t c = 0; c < 12; ++c) latest.push_back(device.put(long_kernel(c, 1000, 10)));
    std::vector<int> kernels(4);
    for (int step = 0; step < 50; ++step) {
        std::vector<Fence> next;
        for (std::uint32_t c = 0; c < latest.size(); ++c) {
            next.push_back(device.put(long_kernel(c, 1000, 10), {latest[c], latest[(c + 1) % latest.size()]}));
            ++kernels[Device::lane_of(next.back())];
        }
        latest = next;
    }
    EXPECT_LE(*std::max_element(kernels.begin(), kernels.end()), 600 / 2);
}

TEST(LanePolicy, what_has_passed_and_lanes_of_others_do_not_count) {
    Device device;
    const Fence a = device.put(long_kernel(0, 1));
    device.complete(a);
    const Fence b = device.put(long_kernel(7, 8), {a, {LaneId{first_lane - 1}, 5}, {LaneId{first_lane + 8}, 5}});
    EXPECT_EQ(Device::lane_of(b), 1u) << "its chunk's lane, which is idle";
}

TEST(LanePolicy, short_kernels_share_a_lane_and_stay_where_what_they_wait_for_is) {
    Device device;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Device::lane_of(device.put(short_kernel())), 0u);
    const Fence other = device.put(long_kernel(7, 8));
    EXPECT_EQ(Device::lane_of(other), 1u);
    EXPECT_EQ(Device::lane_of(device.put(short_kernel(0, 8), {other})), 1u);
}

TEST(LanePolicy, short_kernels_do_not_wait_for_long_ones_that_they_do_not_need) {
    Device device;
    const Fence a = device.put(long_kernel(0, 8));
    EXPECT_EQ(Device::lane_of(a), 0u);
    const Fence b = device.put(short_kernel());
    EXPECT_NE(b.lane, a.lane);
    device.complete(a);
    EXPECT_EQ(device.put(short_kernel()).lane, b.lane) << "they stay together";
}

TEST(LanePolicy, a_stencil_of_short_kernels_that_was_spread_comes_together_on_one_lane) {
    constexpr std::uint32_t chunks = 16;
    Device device;
    std::vector<Fence> latest;
    for (std::uint32_t c = 0; c < chunks; ++c) latest.push_back(device.put(long_kernel(c, chunks, 1)));
    for (std::uint32_t step = 0; step < chunks; ++step) {
        std::vector<Fence> next;
        for (std::uint32_t c = 0; c < chunks; ++c)
            next.push_back(device.put(short_kernel(c, chunks),
                                      {latest[(c + chunks - 1) % chunks], latest[c], latest[(c + 1) % chunks]}));
        latest = next;
    }
    for (const Fence& f : latest) EXPECT_EQ(f.lane, latest[0].lane);
}

TEST(LanePolicy, chains_of_short_kernels_that_were_spread_come_together_on_one_lane) {
    constexpr int chains = 64;
    Device device;
    std::vector<Fence> latest;
    for (int i = 0; i < chains; ++i) latest.push_back(device.put(long_kernel(0, 1, 1)));
    std::set<LaneId> lanes;
    for (const Fence& f : latest) lanes.insert(f.lane);
    EXPECT_EQ(lanes.size(), 8u);
    // Each link is done before the next but one is there, as in a program that is ahead of its device.
    std::vector<Fence> before = latest;
    for (int step = 0; step < 4; ++step) {
        for (int i = 0; i < chains; ++i) {
            const Fence next = device.put(short_kernel(), {latest[i]});
            device.complete(before[i]);
            before[i] = std::exchange(latest[i], next);
        }
    }
    for (const Fence& f : latest) EXPECT_EQ(f.lane, latest[0].lane);
}

TEST(LanePolicy, a_chain_of_short_kernels_does_not_move) {
    Device device;
    (void)device.put(long_kernel(0, 8));
    const Fence first = device.put(long_kernel(7, 8));
    device.complete_all();
    Fence latest = first;
    (void)device.put(short_kernel());  // the shared lane has one kernel, this one more
    latest = device.put(short_kernel(0, 8), {device.put(short_kernel(0, 8), {device.put(long_kernel(7, 8))})});
    EXPECT_EQ(latest.lane, first.lane);
    for (int i = 0; i < 5; ++i) latest = device.put(short_kernel(0, 8), {latest});
    EXPECT_EQ(latest.lane, first.lane);
}

TEST(LanePolicy, what_goes_to_another_lane_is_foreseen) {
    Device device;
    const Fence left = device.put(long_kernel(3, 8), {});
    EXPECT_EQ(Device::lane_of(left), 0u);
    EXPECT_FALSE(device.will_leave(left, long_kernel(2, 8), true));
    EXPECT_TRUE(device.will_leave(left, long_kernel(4, 8), false));
    EXPECT_FALSE(device.will_leave(left, long_kernel(0, 1), true));
    EXPECT_TRUE(device.will_leave(left, long_kernel(0, 1), false)) << "the first took the place behind it";
    EXPECT_FALSE(device.will_leave(left, short_kernel(), false));
    const Fence right = device.put(long_kernel(4, 8), {});
    EXPECT_EQ(Device::lane_of(right), 1u);
    EXPECT_TRUE(device.will_leave(right, short_kernel(), true, {left}));
    EXPECT_FALSE(device.will_leave(left, short_kernel(), true, {right}));
    device.complete_all();
    EXPECT_FALSE(device.will_leave(right, short_kernel(), true, {left})) << "that has passed";
}

kmm::graph::Kernel kernel_of(const void* function, std::uint32_t x, std::uint32_t y = 1) {
    kmm::graph::Kernel kernel;
    kernel.function = function;
    kernel.grid[0] = x;
    kernel.grid[1] = y;
    return kernel;
}

TEST(LanePolicy, a_kernel_of_named_streams_takes_one_of_them_and_stays_behind_what_it_waits_for) {
    Device device;
    LaneWish wish = long_kernel(0, 1);
    wish.allowed = 0b0110;
    std::set<std::uint32_t> used;
    Fence last{};
    for (int i = 0; i < 6; i++) used.insert(Device::lane_of(last = device.put(wish)));
    EXPECT_EQ(used, (std::set<std::uint32_t>{1, 2}));
    EXPECT_EQ(Device::lane_of(device.put(wish, {last})), Device::lane_of(last));
    wish.is_short = true;
    wish.allowed = 0b1000;
    EXPECT_EQ(Device::lane_of(device.put(wish, {last})), 3u) << "what it waits for is elsewhere";
    EXPECT_TRUE(device.will_leave(last, wish, true, {last}));
    wish.allowed = ~std::uint64_t{0};
    EXPECT_EQ(Device::lane_of(device.put(wish, {last})), Device::lane_of(last));
}

TEST(KernelTimes, a_kernel_is_told_from_others_by_its_function_and_the_size_of_its_grid) {
    const int f = 0, g = 0;
    KernelTimes times;
    const KernelTimes::Id id = times.find(kernel_of(&f, 100));
    EXPECT_EQ(times.find(kernel_of(&f, 120)), id);
    EXPECT_EQ(times.find(kernel_of(&f, 10, 10)), id);
    EXPECT_NE(times.find(kernel_of(&f, 400)), id);
    EXPECT_NE(times.find(kernel_of(&g, 100)), id);
    EXPECT_EQ(times.find(kernel_of(&f, 100)), id);
}

TEST(KernelTimes, a_kernel_is_long_until_it_was_measured_and_short_below_ten_microseconds) {
    const int f = 0;
    KernelTimes times;
    const KernelTimes::Id id = times.find(kernel_of(&f, 1));
    EXPECT_FALSE(times.is_short(id));
    times.measured(id, 9'999);
    EXPECT_TRUE(times.is_short(id));
    times.measured(id, 10'000);
    EXPECT_FALSE(times.is_short(id)) << "of two the longer";
}

TEST(KernelTimes, no_single_launch_makes_a_kernel_long_or_short) {
    constexpr std::int64_t is_short = 100, is_long = 20'000;
    const int f = 0;
    KernelTimes times;
    const KernelTimes::Id id = times.find(kernel_of(&f, 1));
    const auto measure = [&](std::int64_t ns) {
        times.measured(id, ns);
        return times.is_short(id);
    };
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(measure(is_short));
    EXPECT_TRUE(measure(is_long)) << "the launching thread may have been interrupted";
    EXPECT_TRUE(measure(is_short));
    EXPECT_TRUE(measure(is_short));
    EXPECT_TRUE(measure(is_long));
    EXPECT_FALSE(measure(is_long));
    EXPECT_FALSE(measure(is_short)) << "it may have had nothing to do";
    EXPECT_FALSE(measure(is_long));
    EXPECT_TRUE(measure(is_short));
}

TEST(KernelTimes, few_launches_are_measured_and_never_none_for_long) {
    const int f = 0;
    KernelTimes times;
    const KernelTimes::Id id = times.find(kernel_of(&f, 1));
    EXPECT_TRUE(times.count_launch(id)) << "the first";
    int early = 1, later = 0;
    for (int i = 1; i < 256; ++i) early += times.count_launch(id) ? 1 : 0;
    for (int i = 0; i < 10 * 256; ++i) later += times.count_launch(id) ? 1 : 0;
    EXPECT_EQ(early, 9);
    EXPECT_EQ(later, 10);
}

}  // namespace
