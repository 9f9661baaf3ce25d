// Owns: handles that can be checked.
#include "driver/host/slots.hpp"

#include <gtest/gtest.h>

#include <set>

namespace {

using kmm::driver::host::Slots;

struct Thing {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;
};

TEST(Slots, a_handle_finds_its_object_until_it_is_retired) {
    Slots<Thing> slots(1);
    Thing& thing = slots.take();
    Slots<Thing>::revive(thing);
    void* handle = slots.handle(thing);
    EXPECT_EQ(slots.find(handle), &thing);
    Slots<Thing>::retire(thing);
    EXPECT_EQ(slots.find(handle), nullptr);
    slots.recycle(thing);
    Thing& again = slots.take();
    Slots<Thing>::revive(again);
    EXPECT_EQ(&again, &thing);
    EXPECT_EQ(slots.find(handle), nullptr) << "an old handle does not find the new object in the same place";
    EXPECT_EQ(slots.find(slots.handle(again)), &again);
}

TEST(Slots, handles_are_unique_and_never_small_or_an_address_of_an_object) {
    Slots<Thing> slots(3);
    std::set<void*> handles;
    for (int i = 0; i < 1000; ++i) {
        Thing& thing = slots.take();
        Slots<Thing>::revive(thing);
        void* handle = slots.handle(thing);
        EXPECT_TRUE(handles.insert(handle).second);
        EXPECT_GT(reinterpret_cast<std::uintptr_t>(handle), 2u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(handle) % 2, 1u);
    }
}

TEST(Slots, values_that_are_no_handles_find_nothing) {
    Slots<Thing> slots(5);
    Slots<Thing> others(6);
    Thing& thing = others.take();
    Slots<Thing>::revive(thing);
    Thing& own = slots.take();
    Slots<Thing>::revive(own);
    EXPECT_EQ(slots.find(others.handle(thing)), nullptr) << "another driver's handle";
    for (const std::uintptr_t value :
         {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{2}, ~std::uintptr_t{0}, std::uintptr_t{0x7fff12345678}})
        EXPECT_EQ(slots.find(reinterpret_cast<void*>(value)), nullptr);
    EXPECT_EQ(slots.find(&own), nullptr);
}

}  // namespace
