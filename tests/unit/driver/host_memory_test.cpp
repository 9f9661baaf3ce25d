// Owns: the limits of virtual devices, and what only the host driver promises about memory.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "driver/host/host_driver.hpp"

namespace {

using namespace kmm::driver;

constexpr std::size_t mebibyte = 1 << 20;

class HostMemory : public ::testing::Test {
  protected:
    HostMemory() : driver_(make_host_driver({2, 16 * mebibyte, 2})) {
        EXPECT_TRUE(driver().create_stream(0, true, 0, &a_).ok());
        EXPECT_TRUE(driver().create_stream(0, true, 0, &b_).ok());
    }
    Driver& driver() { return *driver_; }
    std::size_t free_bytes(int device = 0) {
        std::size_t free = 0, total = 0;
        EXPECT_TRUE(driver().memory_info(device, &free, &total).ok());
        return free;
    }

    std::shared_ptr<Driver> driver_;
    StreamHandle a_, b_;
};

TEST_F(HostMemory, each_device_has_its_own_limit) {
    void* p = nullptr;
    void* q = nullptr;
    void* r = nullptr;
    ASSERT_TRUE(driver().allocate(0, 12 * mebibyte, &p).ok());
    EXPECT_EQ(driver().allocate(0, 8 * mebibyte, &q).code, Code::out_of_memory);
    ASSERT_TRUE(driver().allocate(1, 8 * mebibyte, &q).ok());
    ASSERT_TRUE(driver().allocate(0, 4 * mebibyte, &r).ok()) << "exactly what is left";
    EXPECT_EQ(free_bytes(0), 0u);
    EXPECT_EQ(free_bytes(1), 8 * mebibyte);
    for (void* pointer : {p, q, r}) EXPECT_TRUE(driver().free(pointer).ok());
    EXPECT_EQ(free_bytes(0), 16 * mebibyte);
}

TEST_F(HostMemory, freeing_twice_or_inside_is_refused) {
    void* p = nullptr;
    ASSERT_TRUE(driver().allocate(0, 4096, &p).ok());
    EXPECT_EQ(driver().free(static_cast<char*>(p) + 256).code, Code::invalid_argument);
    EXPECT_EQ(driver().free_pinned(p).code, Code::invalid_argument);
    EXPECT_TRUE(driver().free(p).ok());
    EXPECT_EQ(driver().free(p).code, Code::invalid_argument);
    EXPECT_EQ(driver().take_last_error().code, Code::invalid_argument);
}

TEST_F(HostMemory, copies_that_leave_their_memory_are_refused) {
    void* p = nullptr;
    void* q = nullptr;
    ASSERT_TRUE(driver().allocate(0, 1000, &p).ok());
    ASSERT_TRUE(driver().allocate(0, 2000, &q).ok());
    EXPECT_EQ(driver().copy(p, q, 1001, a_).code, Code::invalid_argument);
    EXPECT_EQ(driver().copy(q, static_cast<char*>(p) + 1, 1000, a_).code, Code::invalid_argument);
    EXPECT_TRUE(driver().copy(q, p, 1000, a_).ok());
    EXPECT_TRUE(driver().free(p).ok());
    EXPECT_TRUE(driver().free(q).ok());
}

// As CUDA refuses it, so that what reaches over two allocations is found without a GPU.
TEST_F(HostMemory, fills_that_leave_their_memory_are_refused) {
    void* p = nullptr;
    ASSERT_TRUE(driver().allocate(0, 1000, &p).ok());
    auto* const bytes = static_cast<char*>(p);
    EXPECT_TRUE(driver().fill(bytes + 990, "abcd", 2, 5, a_).ok());
    EXPECT_EQ(driver().fill(bytes + 990, "abcd", 2, 6, a_).code, Code::invalid_argument);
    EXPECT_EQ(driver().fill(bytes, "a", 1, 1001, a_).code, Code::invalid_argument);
    EXPECT_TRUE(driver().synchronize_stream(a_).ok());
    EXPECT_TRUE(driver().free(p).ok());
    char local[8];
    EXPECT_TRUE(driver().fill(local, "a", 1, sizeof local, a_).ok()) << "memory that it does not know";
    EXPECT_TRUE(driver().synchronize_stream(a_).ok());
    EXPECT_EQ(local[7], 'a');
}

TEST_F(HostMemory, pools_share_the_limit_with_plain_memory_and_give_way) {
    PoolHandle pool;
    ASSERT_TRUE(driver().default_pool(0, &pool).ok());
    ASSERT_TRUE(driver().set_pool_release_threshold(pool, ~std::uint64_t{0}).ok());
    void* p = nullptr;
    ASSERT_TRUE(driver().allocate_async(pool, 12 * mebibyte, a_, &p).ok());
    void* q = nullptr;
    EXPECT_EQ(driver().allocate(0, 8 * mebibyte, &q).code, Code::out_of_memory);
    ASSERT_TRUE(driver().free_async(p, a_).ok());
    ASSERT_TRUE(driver().synchronize_stream(a_).ok());
    EXPECT_EQ(free_bytes(), 4 * mebibyte) << "the pool keeps it, as it was told";
    ASSERT_TRUE(driver().allocate(0, 8 * mebibyte, &q).ok()) << "but not when somebody needs it";
    EXPECT_TRUE(driver().free(q).ok());
}

TEST_F(HostMemory, pools_without_a_threshold_give_their_memory_back_at_a_synchronisation) {
    PoolHandle pool;
    ASSERT_TRUE(driver().default_pool(0, &pool).ok());
    void* p = nullptr;
    ASSERT_TRUE(driver().allocate_async(pool, mebibyte, a_, &p).ok());
    EXPECT_EQ(free_bytes(), 15 * mebibyte);
    ASSERT_TRUE(driver().free_async(p, a_).ok());
    ASSERT_TRUE(driver().synchronize_stream(a_).ok());
    EXPECT_EQ(free_bytes(), 16 * mebibyte);
}

TEST_F(HostMemory, one_stream_uses_its_freed_block_again_at_once_and_another_waits_for_it_when_memory_is_short) {
    struct Gate {
        std::mutex mutex;
        std::condition_variable changed;
        bool open = false;
    } gate;
    const auto wait = [](void* user) {
        auto& g = *static_cast<Gate*>(user);
        std::unique_lock lock(g.mutex);
        g.changed.wait_for(lock, std::chrono::minutes(1), [&] { return g.open; });
    };
    PoolHandle pool;
    ASSERT_TRUE(driver().create_pool(0, {.maximum_bytes = 8 * mebibyte}, &pool).ok());
    void* p = nullptr;
    void* again = nullptr;
    void* other = nullptr;
    ASSERT_TRUE(driver().host_callback(a_, wait, &gate).ok());
    ASSERT_TRUE(driver().allocate_async(pool, 8 * mebibyte, a_, &p).ok());
    ASSERT_TRUE(driver().fill(p, "a", 1, 1000, a_).ok());
    ASSERT_TRUE(driver().free_async(p, a_).ok());
    ASSERT_TRUE(driver().allocate_async(pool, 8 * mebibyte, a_, &again).ok());
    EXPECT_EQ(again, p);
    ASSERT_TRUE(driver().fill(again, "b", 1, 1000, a_).ok());
    ASSERT_TRUE(driver().free_async(again, a_).ok());
    ASSERT_TRUE(driver().allocate_async(pool, 8 * mebibyte, b_, &other).ok());
    EXPECT_EQ(other, p);
    ASSERT_TRUE(driver().fill(other, "c", 1, 1000, b_).ok());
    EXPECT_EQ(driver().query_stream(b_).code, Code::not_ready) << "it waits for the free on the other stream";
    {
        std::lock_guard lock(gate.mutex);
        gate.open = true;
        gate.changed.notify_all();
    }
    char result[1000];
    ASSERT_TRUE(driver().copy(result, other, 1000, b_).ok());
    EXPECT_EQ(std::string(result, 1000), std::string(1000, 'c'));
    ASSERT_TRUE(driver().free_async(other, b_).ok());
    EXPECT_EQ(driver().free_async(other, b_).code, Code::invalid_argument) << "it was freed already";
    ASSERT_TRUE(driver().synchronize_stream(b_).ok());
    ASSERT_TRUE(driver().destroy_pool(pool).ok());
    EXPECT_EQ(free_bytes(), 16 * mebibyte);
}

TEST_F(HostMemory, a_destroyed_pool_goes_with_its_last_block) {
    PoolHandle pool;
    ASSERT_TRUE(driver().create_pool(0, {}, &pool).ok());
    void* p = nullptr;
    ASSERT_TRUE(driver().allocate_async(pool, mebibyte, a_, &p).ok());
    ASSERT_TRUE(driver().destroy_pool(pool).ok());
    ASSERT_TRUE(driver().fill(p, "x", 1, mebibyte, a_).ok());
    EXPECT_EQ(free_bytes(), 15 * mebibyte);
    ASSERT_TRUE(driver().free_async(p, a_).ok());
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_EQ(free_bytes(), 16 * mebibyte);
    ASSERT_TRUE(driver().default_pool(0, &pool).ok());
    EXPECT_EQ(driver().destroy_pool(pool).code, Code::invalid_argument) << "the default pool stays";
}

using HostMemoryDeathTest = HostMemory;

TEST_F(HostMemoryDeathTest, addresses_without_memory_or_access_fault) {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    std::size_t granule = 0;
    void* at = nullptr;
    PhysicalHandle physical;
    ASSERT_TRUE(driver().granularity(0, {}, &granule).ok());
    EXPECT_EQ(granule, 2 * mebibyte);
    ASSERT_TRUE(driver().reserve_addresses(granule, &at).ok());
    auto* byte = static_cast<volatile char*>(at);
    EXPECT_DEATH(*byte = 1, "");
    ASSERT_TRUE(driver().create_physical(0, granule, {}, &physical).ok());
    ASSERT_TRUE(driver().map(at, granule, physical).ok());
    EXPECT_DEATH(*byte = 1, "") << "nobody has access yet";
    const int other = 1;
    EXPECT_EQ(driver().set_access(at, granule, &other, 1).code, Code::invalid_argument)
        << "the own device must be among them";
    const int both[] = {0, 1};
    ASSERT_TRUE(driver().set_access(at, granule, both, 2).ok());
    *byte = 1;
    EXPECT_EQ(*byte, 1);
    ASSERT_TRUE(driver().unmap(at, granule).ok());
    EXPECT_DEATH(*byte = 1, "");
    ASSERT_TRUE(driver().release_physical(physical).ok());
    EXPECT_EQ(driver().release_physical(physical).code, Code::invalid_handle);
    ASSERT_TRUE(driver().release_addresses(at, granule).ok());
}

TEST_F(HostMemory, released_physical_memory_comes_back_as_zeros) {
    std::size_t granule = 2 * mebibyte;
    const int own = 0;
    for (int round = 0; round < 20; ++round) {
        void* at = nullptr;
        PhysicalHandle physical;
        ASSERT_TRUE(driver().reserve_addresses(granule, &at).ok());
        ASSERT_TRUE(driver().create_physical(0, granule, {}, &physical).ok());
        EXPECT_EQ(free_bytes(), 14 * mebibyte);
        ASSERT_TRUE(driver().map(at, granule, physical).ok());
        ASSERT_TRUE(driver().set_access(at, granule, &own, 1).ok());
        auto* bytes = static_cast<unsigned char*>(at);
        for (std::size_t i = 0; i < granule; i += 4096) ASSERT_EQ(bytes[i], 0);
        std::memset(at, 255, granule);
        ASSERT_TRUE(driver().unmap(at, granule).ok());
        ASSERT_TRUE(driver().release_physical(physical).ok());
        ASSERT_TRUE(driver().release_addresses(at, granule).ok());
        EXPECT_EQ(free_bytes(), 16 * mebibyte);
    }
}

}  // namespace
