// Memories of a runtime by name, and lists with an entry for each.
#include "kmm/base/memory_index.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

namespace {

using kmm::memory::MemoryIndex;
using kmm::memory::MemoryRange;
using kmm::memory::PerMemory;

static_assert(std::is_trivially_copyable_v<MemoryIndex> && sizeof(MemoryIndex) == sizeof(std::uint16_t));
static_assert(!std::is_convertible_v<int, MemoryIndex> && !std::is_constructible_v<MemoryIndex, std::uint32_t>,
              "a number says nothing about whether it counts devices or memories");
static_assert(!std::is_convertible_v<MemoryIndex, std::uint32_t>);

std::vector<std::uint32_t> indices(MemoryRange range) {
    std::vector<std::uint32_t> result;
    for (const MemoryIndex m : range) result.push_back(m.index());
    return result;
}

TEST(MemoryIndex, is_the_host_unless_it_is_said_to_be_a_device) {
    EXPECT_EQ(MemoryIndex(), MemoryIndex::host());
    EXPECT_TRUE(MemoryIndex::host().is_host());
    EXPECT_FALSE(MemoryIndex::host().is_device());
    for (std::uint32_t d = 0; d < 3; d++) {
        const MemoryIndex m = MemoryIndex::of_device(d);
        EXPECT_TRUE(m.is_device());
        EXPECT_FALSE(m.is_host());
        EXPECT_EQ(m.device(), d);
        EXPECT_EQ(m.id().as_device().get(), d);
        EXPECT_LT(MemoryIndex::host(), m);
        EXPECT_LT(m, MemoryIndex::of_device(d + 1));
    }
    EXPECT_TRUE(MemoryIndex::host().id().is_host());
}

TEST(MemoryIndex, memories_are_gone_through_host_first_and_devices_in_order) {
    EXPECT_EQ(indices(kmm::memory::memories(2)), (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_EQ(indices(kmm::memory::memories(0)), (std::vector<std::uint32_t>{0}));
}

TEST(PerMemory, has_a_value_for_the_host_and_for_each_device) {
    PerMemory<std::string> names{"host", "first", "second"};
    EXPECT_EQ(names.num_devices(), 2u);
    EXPECT_EQ(names[MemoryIndex::host()], "host");
    EXPECT_EQ(names[MemoryIndex::of_device(1)], "second");
    EXPECT_EQ(indices(names.memories()), (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_EQ(indices(names.device_memories()), (std::vector<std::uint32_t>{1, 2}));
    EXPECT_TRUE(indices(PerMemory<int>{7}.device_memories()).empty());
    names.resize_for_devices(3);
    EXPECT_EQ(names[MemoryIndex::of_device(2)], "");
    EXPECT_EQ(PerMemory<int>::of_devices(4).num_devices(), 4u);
}

TEST(PerMemory, without_values_has_no_memories) {
    EXPECT_TRUE(indices(PerMemory<int>().memories()).empty());
    EXPECT_TRUE(indices(PerMemory<int>().device_memories()).empty());
}

}  // namespace
