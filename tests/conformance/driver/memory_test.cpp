// Owns: plain, pinned and managed memory of a driver.
#include <cstdlib>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverMemory : public DriverTest {
  protected:
    std::size_t free_bytes(int device = 0) {
        std::size_t free = 0, total = 0;
        EXPECT_TRUE(driver().memory_info(device, &free, &total).ok());
        return free;
    }
    PointerInfo info(const void* pointer) {
        PointerInfo result;
        EXPECT_TRUE(driver().pointer_info(pointer, &result).ok());
        return result;
    }
};

TEST_P(DriverMemory, allocations_are_aligned_and_disjoint) {
    std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
    for (const std::size_t bytes : {1u, 7u, 255u, 256u, 257u, 4096u, 100000u, 5u << 20}) {
        auto address = reinterpret_cast<std::uintptr_t>(device_memory(bytes));
        EXPECT_EQ(address % 256, 0u);
        for (const auto& [other, other_bytes] : blocks)
            EXPECT_TRUE(address + bytes <= other || other + other_bytes <= address);
        blocks.emplace_back(address, bytes);
    }
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned_memory(100)) % 256, 0u);
}

TEST_P(DriverMemory, memory_info_follows_allocations) {
    const std::size_t before = free_bytes();
    constexpr std::size_t bytes = 32 << 20;
    void* p = nullptr;
    KMM_OK(driver().allocate(0, bytes, &p));
    EXPECT_LE(free_bytes(), before - bytes);
    KMM_OK(driver().free(p));
    if (on_host()) {
        EXPECT_EQ(free_bytes(), before);
    }
}

TEST_P(DriverMemory, too_much_is_out_of_memory_and_less_still_works) {
    DeviceProperties properties;
    KMM_OK(driver().properties(0, &properties));
    void* p = nullptr;
    KMM_FAILS(driver().allocate(0, properties.total_memory_bytes + 1, &p), Code::out_of_memory);
    KMM_FAILS(driver().allocate(0, ~std::size_t{0} - 4096, &p), Code::out_of_memory);
    int* q = device_memory<int>(1000);
    KMM_OK(fill_ints(q, 3, 1000, stream()));
    EXPECT_EQ(read(q, 1000), std::vector<int>(1000, 3));
}

TEST_P(DriverMemory, zero_bytes_and_foreign_pointers_are_refused) {
    void* p = nullptr;
    int on_stack = 0;
    EXPECT_FALSE(driver().allocate(0, 0, &p).ok());
    KMM_FAILS(driver().free(&on_stack), Code::invalid_argument);
    KMM_OK(driver().free(nullptr));
}

TEST_P(DriverMemory, pointer_info_knows_every_kind_also_inside) {
    unsigned char* device = device_memory(1000);
    EXPECT_EQ(info(device).kind, MemoryKind::device);
    EXPECT_EQ(info(device + 999).kind, MemoryKind::device);
    EXPECT_EQ(info(device).device, 0);
    unsigned char* pinned = pinned_memory(1000);
    EXPECT_EQ(info(pinned + 500).kind, MemoryKind::pinned);
    int on_stack = 0;
    EXPECT_EQ(info(&on_stack).kind, MemoryKind::pageable);
    if (driver().device_count() > 1) {
        EXPECT_EQ(info(device_memory(100, 1)).device, 1);
    }
}

TEST_P(DriverMemory, registered_host_memory_is_pinned_until_it_is_unregistered) {
    constexpr std::size_t bytes = 1 << 16;
    void* memory = std::aligned_alloc(4096, bytes);
    ASSERT_NE(memory, nullptr);
    KMM_OK(driver().register_host(memory, bytes));
    EXPECT_EQ(info(static_cast<char*>(memory) + 5000).kind, MemoryKind::pinned);
    EXPECT_FALSE(driver().register_host(memory, bytes).ok()) << "it is registered already";
    KMM_OK(driver().unregister_host(memory));
    EXPECT_EQ(info(memory).kind, MemoryKind::pageable);
    EXPECT_FALSE(driver().unregister_host(memory).ok());
    (void)driver().take_last_error();
    std::free(memory);
}

TEST_P(DriverMemory, managed_memory_is_seen_by_host_and_device) {
    if (!driver().capabilities().managed_memory) GTEST_SKIP() << "no managed memory";
    void* p = nullptr;
    KMM_OK(driver().allocate_managed(400, &p));
    on_cleanup([this, p] { EXPECT_TRUE(driver().free(p).ok()); });
    EXPECT_EQ(info(p).kind, MemoryKind::managed);
    int* data = static_cast<int*>(p);
    for (int i = 0; i < 100; ++i) data[i] = i;
    KMM_OK(driver().prefetch(p, 400, 0, stream()));
    KMM_OK(add(data, 100, 5, stream()));
    KMM_OK(driver().prefetch(p, 400, -1, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(data[i], i + 5);
}

TEST_P(DriverMemory, a_preferred_location_changes_no_contents) {
    if (!driver().capabilities().managed_memory) GTEST_SKIP() << "no managed memory";
    void* p = nullptr;
    KMM_OK(driver().allocate_managed(400, &p));
    on_cleanup([this, p] { EXPECT_TRUE(driver().free(p).ok()); });
    int* data = static_cast<int*>(p);
    for (int i = 0; i < 100; ++i) data[i] = i;
    KMM_OK(driver().prefer_location(p, 400, -1));
    KMM_OK(driver().prefer_location(p, 400, 0));
    KMM_OK(add(data, 100, 5, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(data[i], i + 5);
    EXPECT_FALSE(driver().prefer_location(p, 400, 99).ok());
    EXPECT_FALSE(driver().prefer_location(device_memory(400), 400, 0).ok()) << "device memory cannot move";
    (void)driver().take_last_error();
}

TEST_P(DriverMemory, free_waits_for_work_that_uses_the_memory) {
    void* p = nullptr;
    KMM_OK(driver().allocate(0, 1 << 20, &p));
    for (int i = 0; i < 20; ++i) KMM_OK(fill_ints(static_cast<int*>(p), i, (1 << 20) / sizeof(int), stream()));
    KMM_OK(driver().free(p));
    KMM_OK(driver().query_stream(stream()));
}

TEST_P(DriverMemory, device_memory_keeps_what_is_written_until_it_is_freed) {
    std::vector<int*> blocks;
    for (int i = 0; i < 20; ++i) {
        blocks.push_back(device_memory<int>(1000 + 37 * static_cast<std::size_t>(i)));
        KMM_OK(fill_ints(blocks.back(), i, 1000 + 37 * static_cast<std::size_t>(i), stream()));
    }
    for (int i = 0; i < 20; ++i) {
        const std::size_t n = 1000 + 37 * static_cast<std::size_t>(i);
        EXPECT_EQ(read(blocks[static_cast<std::size_t>(i)], n), std::vector<int>(n, i));
    }
}

KMM_ON_EVERY_DRIVER(DriverMemory);

}  // namespace
}  // namespace driver_test
