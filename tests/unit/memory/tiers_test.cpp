// What lies below a memory, and by which lane of which device content goes from one memory to another.
#include "kmm/memory/tiers.hpp"

#include <gtest/gtest.h>

namespace {

using kmm::graph::LaneRole;
using kmm::memory::Link;
using kmm::memory::MemoryIndex;
using kmm::memory::Tiers;

constexpr MemoryIndex host = MemoryIndex::host();
constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);

TEST(Tiers, what_leaves_a_device_is_saved_on_the_host_and_what_leaves_the_host_nowhere) {
    EXPECT_EQ(Tiers::below(gpu), host);
    EXPECT_EQ(Tiers::below(gpu_1), host);
    EXPECT_EQ(Tiers::below(host), std::nullopt);
    EXPECT_TRUE(Tiers::is_last(host) && !Tiers::is_first(host));
    EXPECT_TRUE(Tiers::is_first(gpu_1) && !Tiers::is_last(gpu_1));
}

TEST(Tiers, content_goes_between_devices_by_way_of_what_is_below) {
    EXPECT_EQ(Tiers::next_on_way(gpu, gpu_1), host);
    EXPECT_EQ(Tiers::next_on_way(host, gpu_1), gpu_1);
    EXPECT_EQ(Tiers::next_on_way(gpu_1, host), host);
}

TEST(Tiers, lanes_work_in_a_device_and_threads_on_the_host) {
    EXPECT_TRUE(Tiers::has_lanes(gpu_1));
    EXPECT_FALSE(Tiers::has_lanes(host));
}

TEST(Tiers, a_copy_goes_up_down_or_to_a_peer) {
    EXPECT_EQ(Tiers::link(host, gpu_1), Link::host_to_device);
    EXPECT_EQ(Tiers::link(gpu_1, host), Link::device_to_host);
    EXPECT_EQ(Tiers::link(gpu, gpu_1), Link::device_to_device);
    EXPECT_EQ(Tiers::link(gpu, gpu), Link::device_to_device);
    EXPECT_EQ(Tiers::lane_role(Link::host_to_device), LaneRole::up);
    EXPECT_EQ(Tiers::lane_role(Link::device_to_host), LaneRole::down);
    EXPECT_EQ(Tiers::lane_role(Link::device_to_device), LaneRole::peer);
}

TEST(Tiers, the_device_that_gets_the_content_copies_it_unless_it_goes_down) {
    EXPECT_EQ(Tiers::device_of_link(host, gpu_1), 1u);
    EXPECT_EQ(Tiers::device_of_link(gpu_1, host), 1u);
    EXPECT_EQ(Tiers::device_of_link(gpu_1, gpu), 0u);
    EXPECT_EQ(Tiers::device_of_link(gpu, gpu_1), 1u);
}

}  // namespace
