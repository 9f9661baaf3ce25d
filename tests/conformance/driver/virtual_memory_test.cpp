// Owns: reserving addresses and mapping physical memory into them.
#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverVirtualMemory : public DriverTest {
  protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        if (!driver().capabilities().virtual_memory) GTEST_SKIP() << "no virtual memory";
        KMM_OK(driver().granularity(0, {}, &granule_));
    }

    char* reserve(std::size_t granules) {
        void* p = nullptr;
        EXPECT_TRUE(driver().reserve_addresses(granules * granule_, &p).ok());
        return static_cast<char*>(p);
    }
    PhysicalHandle physical(std::size_t granules = 1) {
        PhysicalHandle result;
        EXPECT_TRUE(driver().create_physical(0, granules * granule_, {}, &result).ok());
        return result;
    }
    Status access(char* at, std::size_t granules) {
        const int own = 0;
        return driver().set_access(at, granules * granule_, &own, 1);
    }
    std::size_t free_bytes() {
        std::size_t free = 0, total = 0;
        EXPECT_TRUE(driver().memory_info(0, &free, &total).ok());
        return free;
    }
    int* ints(char* at) { return reinterpret_cast<int*>(at); }
    std::size_t ints_per_granule() const { return granule_ / sizeof(int); }
    std::size_t granule_ = 0;
};

TEST_P(DriverVirtualMemory, mapped_memory_with_access_can_be_used) {
    char* at = reserve(2);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % granule_, 0u);
    const PhysicalHandle a = physical(2);
    KMM_OK(driver().map(at, 2 * granule_, a));
    KMM_OK(access(at, 2));
    KMM_OK(fill_ints(ints(at), 7, 2 * ints_per_granule(), stream()));
    EXPECT_EQ(read(ints(at), 2 * ints_per_granule()), std::vector<int>(2 * ints_per_granule(), 7));
    PointerInfo info;
    KMM_OK(driver().pointer_info(at + granule_ + 5, &info));
    EXPECT_EQ(info.kind, MemoryKind::device);
    KMM_OK(driver().unmap(at, 2 * granule_));
    KMM_OK(driver().release_physical(a));
    KMM_OK(driver().release_addresses(at, 2 * granule_));
}

TEST_P(DriverVirtualMemory, two_mappings_side_by_side_are_one_range) {
    char* at = reserve(2);
    const PhysicalHandle a = physical();
    const PhysicalHandle b = physical();
    KMM_OK(driver().map(at, granule_, a));
    KMM_OK(driver().map(at + granule_, granule_, b));
    KMM_OK(access(at, 2));
    int* across = ints(at + granule_) - 500;
    KMM_OK(fill_ints(across, 3, 1000, stream()));
    KMM_OK(add(across, 1000, 1, stream()));
    int* plain = device_memory<int>(1000);
    KMM_OK(driver().copy(plain, across, 4000, stream()));
    EXPECT_EQ(read(plain, 1000), std::vector<int>(1000, 4));
    KMM_OK(driver().unmap(at, granule_));
    KMM_OK(driver().unmap(at + granule_, granule_));
    KMM_OK(driver().release_physical(a));
    KMM_OK(driver().release_physical(b));
    KMM_OK(driver().release_addresses(at, 2 * granule_));
}

TEST_P(DriverVirtualMemory, remapped_memory_keeps_its_bytes) {
    char* first = reserve(1);
    char* second = reserve(1);
    const PhysicalHandle a = physical();
    KMM_OK(driver().map(first, granule_, a));
    KMM_OK(access(first, 1));
    KMM_OK(fill_ints(ints(first), 11, 1000, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(driver().unmap(first, granule_));
    KMM_OK(driver().map(second, granule_, a));
    KMM_OK(access(second, 1));
    EXPECT_EQ(read(ints(second), 1000), std::vector<int>(1000, 11));
    KMM_OK(driver().unmap(second, granule_));
    KMM_OK(driver().release_physical(a));
    KMM_OK(driver().release_addresses(first, granule_));
    KMM_OK(driver().release_addresses(second, granule_));
}

TEST_P(DriverVirtualMemory, memory_mapped_twice_is_the_same_memory) {
    char* first = reserve(1);
    char* second = reserve(1);
    const PhysicalHandle a = physical();
    for (char* at : {first, second}) {
        KMM_OK(driver().map(at, granule_, a));
        KMM_OK(access(at, 1));
    }
    KMM_OK(fill_ints(ints(first), 21, 1000, stream()));
    EXPECT_EQ(read(ints(second), 1000), std::vector<int>(1000, 21));
    KMM_OK(driver().unmap(first, granule_));
    EXPECT_EQ(read(ints(second), 1000), std::vector<int>(1000, 21));
    KMM_OK(driver().unmap(second, granule_));
    KMM_OK(driver().release_physical(a));
    KMM_OK(driver().release_addresses(first, granule_));
    KMM_OK(driver().release_addresses(second, granule_));
}

TEST_P(DriverVirtualMemory, released_memory_lives_until_it_is_unmapped) {
    const std::size_t before = free_bytes();
    char* at = reserve(1);
    const PhysicalHandle a = physical();
    KMM_OK(driver().map(at, granule_, a));
    KMM_OK(access(at, 1));
    KMM_OK(driver().release_physical(a));
    KMM_OK(fill_ints(ints(at), 5, 100, stream()));
    EXPECT_EQ(read(ints(at), 100), std::vector<int>(100, 5));
    KMM_OK(driver().unmap(at, granule_));
    KMM_OK(driver().release_addresses(at, granule_));
    if (on_host()) {
        EXPECT_EQ(free_bytes(), before);
    }
}

TEST_P(DriverVirtualMemory, more_physical_memory_than_there_is_is_out_of_memory) {
    DeviceProperties properties;
    KMM_OK(driver().properties(0, &properties));
    PhysicalHandle a;
    const std::size_t too_much = (properties.total_memory_bytes / granule_ + 1) * granule_;
    KMM_FAILS(driver().create_physical(0, too_much, {}, &a), Code::out_of_memory);
    KMM_OK(driver().create_physical(0, granule_, {}, &a));
    KMM_OK(driver().release_physical(a));
}

TEST_P(DriverVirtualMemory, mistakes_are_refused) {
    char* at = reserve(2);
    const PhysicalHandle a = physical();
    const PhysicalHandle b = physical();
    void* pointer = nullptr;
    PhysicalHandle c;
    EXPECT_FALSE(driver().reserve_addresses(granule_ + 1, &pointer).ok());
    EXPECT_FALSE(driver().create_physical(0, granule_ + 1, {}, &c).ok());
    EXPECT_FALSE(driver().map(at + 4096, granule_, a).ok()) << "not aligned";
    KMM_OK(driver().map(at, granule_, a));
    EXPECT_FALSE(driver().map(at, granule_, b).ok()) << "something is mapped there";
    if (on_host()) {  // CUDA accepts it
        EXPECT_FALSE(driver().unmap(at + granule_, granule_).ok()) << "nothing is mapped there";
    }
    EXPECT_FALSE(driver().release_addresses(at, 2 * granule_).ok()) << "something is mapped there";
    (void)driver().take_last_error();
    KMM_OK(driver().unmap(at, granule_));
    KMM_OK(driver().release_physical(a));
    KMM_OK(driver().release_physical(b));
    KMM_OK(driver().release_addresses(at, 2 * granule_));
}

KMM_ON_EVERY_DRIVER(DriverVirtualMemory);

}  // namespace
}  // namespace driver_test
