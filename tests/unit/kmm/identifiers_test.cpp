// Names of devices, memories, resources, streams and events.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "kmm/core/identifiers.hpp"
#include "kmm/error.hpp"

namespace {

using kmm::DeviceId;
using kmm::DeviceStreamSet;
using kmm::EventId;
using kmm::MemoryId;
using kmm::ResourceId;

template<typename T>
std::string printed(const T& value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
}

TEST(Row015, a_device_memory_is_never_the_host_memory) {
    EXPECT_NE(MemoryId(DeviceId(0)), MemoryId::host());
    EXPECT_NE(MemoryId(DeviceId(0)), MemoryId::host(DeviceId(0)));
    EXPECT_EQ(MemoryId::host(), MemoryId::host(DeviceId(7))) << "affinity does not count";
    EXPECT_EQ(MemoryId::host(DeviceId(7)).device_affinity(), DeviceId(7));
    EXPECT_EQ(MemoryId(MemoryId::Type::Device, 3), MemoryId(DeviceId(3)));
}

TEST(Row015, the_order_over_host_and_all_devices_is_strict_and_total) {
    std::vector<MemoryId> all{MemoryId::host()};
    for (std::size_t i = 0; i < kmm::MAX_DEVICES; i++) all.push_back(MemoryId(DeviceId(i)));
    for (std::size_t a = 0; a < all.size(); a++) {
        for (std::size_t b = 0; b < all.size(); b++) {
            EXPECT_EQ(all[a] < all[b], a < b);
            EXPECT_EQ(all[a] <= all[b], a <= b);
            EXPECT_EQ(all[a] > all[b], a > b);
            EXPECT_EQ(all[a] >= all[b], a >= b);
            EXPECT_EQ(all[a] == all[b], a == b);
            EXPECT_EQ(all[a] != all[b], a != b);
        }
    }
}

TEST(Row015, equal_identifiers_hash_equally) {
    EXPECT_EQ(std::hash<MemoryId>()(MemoryId::host()), std::hash<MemoryId>()(MemoryId::host(DeviceId(9))));
    EXPECT_EQ(std::hash<ResourceId>()(ResourceId::host()), std::hash<ResourceId>()(ResourceId::host(DeviceId(2))));
    EXPECT_EQ(std::hash<ResourceId>()(ResourceId(DeviceId(1))),
              std::hash<ResourceId>()(ResourceId(DeviceId(1), DeviceStreamSet())));
    std::unordered_set<MemoryId> memories{MemoryId::host(), MemoryId::host(DeviceId(1)), MemoryId(DeviceId(1))};
    EXPECT_EQ(memories.size(), 2u);
    std::unordered_set<EventId> events{EventId(), EventId(0), EventId(1)};
    EXPECT_EQ(events.size(), 2u);
    std::unordered_set<DeviceId> devices{DeviceId(0), DeviceId(1), DeviceId(1)};
    EXPECT_EQ(devices.size(), 2u);
}

TEST(Row016, device_numbers_end_at_63) {
    EXPECT_EQ(DeviceId(63).get(), 63);
    EXPECT_EQ(static_cast<std::uint8_t>(DeviceId(std::size_t(5))), 5);
    EXPECT_THROW(DeviceId(64), kmm::InvalidArgument);
    EXPECT_THROW(DeviceId(-1), kmm::InvalidArgument);
    EXPECT_THROW(DeviceId(std::uint64_t(1) << 40), kmm::InvalidArgument);
    EXPECT_THROW(MemoryId(MemoryId::Type::Device, 200), kmm::InvalidArgument);
    try {
        DeviceId(64);
        FAIL();
    } catch (const kmm::InvalidArgument& e) {
        EXPECT_NE(std::string(e.what()).find("64"), std::string::npos);
        EXPECT_EQ(e.code(), kmm::ErrorCode::InvalidArgument);
    }
}

TEST(Row016, the_device_of_the_host_is_refused) {
    EXPECT_THROW(MemoryId::host().as_device(), kmm::InvalidArgument);
    EXPECT_THROW(ResourceId::host().as_device(), kmm::InvalidArgument);
    EXPECT_EQ(MemoryId(DeviceId(4)).as_device(), DeviceId(4));
    EXPECT_EQ(ResourceId(DeviceId(4)).as_device(), DeviceId(4));
}

TEST(Row016, a_resource_contains_what_asks_for_no_more_streams) {
    const ResourceId all(DeviceId(1));
    const ResourceId some(DeviceId(1), {0, 2});
    const ResourceId one(DeviceId(1), {2});
    EXPECT_TRUE(all.contains(some));
    EXPECT_TRUE(some.contains(one));
    EXPECT_TRUE(one.contains(one));
    EXPECT_FALSE(one.contains(some));
    EXPECT_FALSE(all.contains(ResourceId(DeviceId(2))));
    EXPECT_FALSE(all.contains(ResourceId::host()));
    EXPECT_FALSE(ResourceId::host().contains(all));
    EXPECT_TRUE(ResourceId::host().contains(ResourceId::host(DeviceId(3))));
    EXPECT_NE(all, some);
    EXPECT_EQ(some, ResourceId(DeviceId(1), {2, 0, 2}));
    EXPECT_EQ(ResourceId(DeviceId(1), DeviceStreamSet()), all) << "an empty set means all streams";
    EXPECT_EQ(ResourceId(), ResourceId::host(DeviceId(5)));
    EXPECT_NE(ResourceId(DeviceId(0)), ResourceId::host());
    EXPECT_EQ(all.as_memory(), MemoryId(DeviceId(1)));
    EXPECT_TRUE(ResourceId::host(DeviceId(5)).as_memory().is_host());
    EXPECT_EQ(some.stream_affinity(), DeviceStreamSet({0, 2}));
}

TEST(Row016, stream_sets_are_sets_of_64_numbers) {
    EXPECT_TRUE(DeviceStreamSet().is_empty());
    EXPECT_TRUE(DeviceStreamSet({64, 1000}).is_empty()) << "numbers from 64 on are ignored";
    const DeviceStreamSet middle = DeviceStreamSet::range(2, 5);
    EXPECT_FALSE(middle.contains(1));
    EXPECT_TRUE(middle.contains(2));
    EXPECT_TRUE(middle.contains(4));
    EXPECT_FALSE(middle.contains(5));
    EXPECT_EQ(DeviceStreamSet::range(60, 100), DeviceStreamSet({60, 61, 62, 63}));
    EXPECT_TRUE(DeviceStreamSet::range(5, 2).is_empty());
    EXPECT_TRUE(DeviceStreamSet::all().contains(63));
    EXPECT_FALSE(DeviceStreamSet::all().contains(64));
    EXPECT_EQ(middle & DeviceStreamSet({4, 9}), DeviceStreamSet({4}));
    EXPECT_EQ(middle | DeviceStreamSet({9}), DeviceStreamSet({2, 3, 4, 9}));
    DeviceStreamSet changed = middle;
    changed &= DeviceStreamSet({3});
    EXPECT_EQ(changed, DeviceStreamSet({3}));
    EXPECT_NE(changed, middle);
}

TEST(Row016, identifiers_are_literal_and_print_as_in_messages) {
    constexpr DeviceId device(3);
    constexpr MemoryId memory = device;
    constexpr ResourceId resource(device, DeviceStreamSet({0, 2}));
    static_assert(memory.is_device() && resource.is_device() && EventId().get() == 0);
    static_assert(EventId((std::uint64_t(7) << 48) | 5).runtime_number() == 7);
    EXPECT_EQ(printed(device), "GPU 3");
    EXPECT_EQ(printed(memory), "GPU 3");
    EXPECT_EQ(printed(MemoryId::host()), "host");
    EXPECT_EQ(printed(resource), "GPU 3 {0, 2}");
    EXPECT_EQ(printed(ResourceId(device)), "GPU 3");
    EXPECT_EQ(printed(ResourceId::host()), "host");
    EXPECT_EQ(printed(EventId(12)), "12");
    EXPECT_EQ(printed(kmm::EventList{EventId(1), EventId(2)}), "{1, 2}");
    EXPECT_EQ(printed(kmm::ExecutionSpace::Device), "Device");
    EXPECT_EQ(printed(kmm::AccessMode::Exclusive), "Exclusive");
    EXPECT_EQ(printed(kmm::BufferId(4)), "4");
    EXPECT_EQ(printed(kmm::NodeId(4)), "4");
}

}  // namespace
