// Owns: stream-ordered pools.
#include <random>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverPools : public DriverTest {
  protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        if (!driver().capabilities().memory_pools) GTEST_SKIP() << "no memory pools";
    }
};

TEST_P(DriverPools, memory_can_be_used_in_the_order_of_the_stream) {
    PoolHandle pool;
    KMM_OK(driver().default_pool(0, &pool));
    void* p = nullptr;
    KMM_OK(driver().allocate_async(pool, 4000, stream(), &p));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 256, 0u);
    int* data = static_cast<int*>(p);
    KMM_OK(fill_ints(data, 4, 1000, stream()));
    KMM_OK(add(data, 1000, 1, stream()));
    int* down = pinned_memory<int>(1000);
    KMM_OK(driver().copy(down, data, 4000, stream()));
    KMM_OK(driver().free_async(p, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(down[i], 5);
}

TEST_P(DriverPools, the_address_is_known_as_device_memory) {
    PoolHandle pool;
    KMM_OK(driver().create_pool(0, {}, &pool));
    void* p = nullptr;
    KMM_OK(driver().allocate_async(pool, 1000, stream(), &p));
    KMM_OK(driver().synchronize_stream(stream()));
    PointerInfo info;
    KMM_OK(driver().pointer_info(static_cast<char*>(p) + 999, &info));
    EXPECT_EQ(info.kind, MemoryKind::device);
    EXPECT_EQ(info.device, 0);
    KMM_OK(driver().free_async(p, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(driver().destroy_pool(pool));
}

TEST_P(DriverPools, the_managed_pool_gives_memory_that_host_and_device_see) {
    if (!driver().capabilities().managed_pools) GTEST_SKIP() << "no pools of managed memory";
    PoolHandle pool;
    KMM_OK(driver().default_managed_pool(0, &pool));
    void* p = nullptr;
    KMM_OK(driver().allocate_async(pool, 4000, stream(), &p));
    int* data = static_cast<int*>(p);
    KMM_OK(fill_ints(data, 4, 1000, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    PointerInfo info;
    KMM_OK(driver().pointer_info(p, &info));
    EXPECT_EQ(info.kind, MemoryKind::managed);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(data[i], 4);
    KMM_OK(driver().free_async(p, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    if (on_host()) {
        EXPECT_FALSE(driver().destroy_pool(pool).ok()) << "it is the driver's";
        (void)driver().take_last_error();
    }
}

TEST_P(DriverPools, what_a_pool_cannot_be_is_refused) {
    PoolHandle pool;
    constexpr std::uint32_t no_such_handle = 1u << 20;
    EXPECT_FALSE(driver().create_pool(0, {.export_handle_types = no_such_handle}, &pool).ok());
    (void)driver().take_last_error();
    if (!driver().capabilities().hardware_decompression) {
        KMM_FAILS(driver().create_pool(0, {.decompression = true}, &pool), Code::not_supported);
    } else {
        if (!driver().create_pool(0, {.decompression = true}, &pool).ok()) {
            (void)driver().take_last_error();
            GTEST_SKIP() << "the driver knows such pools, the device does not";
        }
        void* p = nullptr;
        KMM_OK(driver().allocate_async(pool, 4000, stream(), &p));
        KMM_OK(driver().free_async(p, stream()));
        KMM_OK(driver().destroy_pool(pool));
    }
}

TEST_P(DriverPools, memory_that_is_still_in_use_on_one_stream_is_not_written_by_another) {
    PoolHandle pool;
    KMM_OK(driver().create_pool(0, {}, &pool));
    const StreamHandle second = new_stream();
    int* seen = pinned_memory<int>(1000);
    int* other = pinned_memory<int>(1000);
    for (int round = 0; round < 20; ++round) {
        Gate gate;
        void* a = nullptr;
        void* b = nullptr;
        KMM_OK(driver().allocate_async(pool, 4000, stream(), &a));
        KMM_OK(fill_ints(static_cast<int*>(a), round, 1000, stream()));
        if (round % 4 == 0) KMM_OK(close(gate, stream()));
        KMM_OK(driver().copy(seen, a, 4000, stream()));
        KMM_OK(driver().free_async(a, stream()));
        KMM_OK(driver().allocate_async(pool, 4000, second, &b));
        KMM_OK(fill_ints(static_cast<int*>(b), -round, 1000, second));
        gate.open();
        KMM_OK(driver().copy(other, b, 4000, second));
        KMM_OK(driver().free_async(b, second));
        KMM_OK(driver().synchronize_stream(stream()));
        KMM_OK(driver().synchronize_stream(second));
        for (int i = 0; i < 1000; ++i) {
            ASSERT_EQ(seen[i], round);
            ASSERT_EQ(other[i], -round);
        }
    }
    KMM_OK(driver().destroy_pool(pool));
}

TEST_P(DriverPools, a_pool_over_its_maximum_is_out_of_memory_and_recovers) {
    PoolHandle pool;
    constexpr std::size_t maximum = 64 << 20;
    KMM_OK(driver().create_pool(0, {.maximum_bytes = maximum}, &pool));
    void* a = nullptr;
    void* b = nullptr;
    KMM_FAILS(driver().allocate_async(pool, 2 * maximum, stream(), &a), Code::out_of_memory);
    KMM_OK(driver().allocate_async(pool, maximum, stream(), &a));
    KMM_FAILS(driver().allocate_async(pool, maximum, stream(), &b), Code::out_of_memory);
    KMM_OK(driver().free_async(a, stream()));
    KMM_OK(driver().allocate_async(pool, maximum, stream(), &b));
    KMM_OK(driver().free_async(b, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(driver().trim_pool(pool, 0));
    KMM_OK(driver().destroy_pool(pool));
}

TEST_P(DriverPools, random_allocations_never_overlap) {
    PoolHandle pool;
    KMM_OK(driver().create_pool(0, {}, &pool));
    KMM_OK(driver().set_pool_release_threshold(pool, ~std::uint64_t{0}));
    std::mt19937 random(11);
    struct Block {
        int* data;
        std::size_t n;
        int value;
        StreamHandle stream;
    };
    std::vector<StreamHandle> streams = {stream(), new_stream(), new_stream()};
    int* result = pinned_memory<int>(2000);
    std::vector<Block> blocks;
    for (int step = 0; step < 400; ++step) {
        if (blocks.size() < 12 && random() % 3 != 0) {
            Block b{nullptr, 1 + random() % 2000, step, streams[random() % streams.size()]};
            void* p = nullptr;
            KMM_OK(driver().allocate_async(pool, b.n * 4, b.stream, &p));
            b.data = static_cast<int*>(p);
            KMM_OK(fill_ints(b.data, b.value, b.n, b.stream));
            blocks.push_back(b);
        } else if (!blocks.empty()) {
            const std::size_t which = random() % blocks.size();
            const Block b = blocks[which];
            blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
            KMM_OK(driver().copy(result, b.data, b.n * 4, b.stream));
            KMM_OK(driver().free_async(b.data, b.stream));
            KMM_OK(driver().synchronize_stream(b.stream));
            for (std::size_t i = 0; i < b.n; ++i) ASSERT_EQ(result[i], b.value) << "step " << step;
        }
    }
    for (const Block& b : blocks) KMM_OK(driver().free_async(b.data, b.stream));
    for (const StreamHandle s : streams) KMM_OK(driver().synchronize_stream(s));
    KMM_OK(driver().destroy_pool(pool));
}

KMM_ON_EVERY_DRIVER(DriverPools);

}  // namespace
}  // namespace driver_test
