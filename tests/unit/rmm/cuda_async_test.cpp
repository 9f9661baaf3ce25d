// <rmm/mr/cuda_async_memory_resource.hpp> and its view, beyond the conformance suite.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <type_traits>

#include "driver/registry.hpp"
#include "forwarding_driver.hpp"
#include "rmm/driver_pool.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/device/cuda_async_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_view_memory_resource.hpp"
#include "rmm/status.hpp"

namespace {

using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_async_view_memory_resource;

static_assert(!std::is_copy_constructible_v<cuda_async_memory_resource> &&
              !std::is_move_constructible_v<cuda_async_memory_resource>);
static_assert(std::is_copy_assignable_v<cuda_async_view_memory_resource>);

TEST(CudaAsync, sizes_may_be_given_as_plain_integers) {
    cuda_async_memory_resource first{100};
    cuda_async_memory_resource second{100, 1000};
    EXPECT_NE(first, second);
    EXPECT_NE(first.pool_handle(), second.pool_handle());
    for (cuda_async_memory_resource* mr : {&first, &second}) {
        void* const ptr = mr->allocate(100);
        EXPECT_NE(ptr, nullptr);
        mr->deallocate(ptr, 100);
        EXPECT_TRUE(kmm::driver::process_default().synchronize_device(0).ok());
    }
}

TEST(CudaAsync, a_maximum_is_kept) {
    cuda_async_memory_resource mr{std::size_t{1} << 20, {}, {}, std::size_t{4} << 20};
    EXPECT_THROW((void)mr.allocate(std::size_t{8} << 20), rmm::bad_alloc);
    void* const ptr = mr.allocate(std::size_t{1} << 20);
    EXPECT_NE(ptr, nullptr);
    mr.deallocate(ptr, std::size_t{1} << 20);
}

TEST(CudaAsync, a_handle_type_that_is_not_supported_is_refused) {
    using type = cuda_async_memory_resource::allocation_handle_type;
    EXPECT_NO_THROW((cuda_async_memory_resource{0, 0, type::none}));
    try {
        cuda_async_memory_resource mr{0, 0, type::fabric};
        FAIL();
    } catch (const rmm::logic_error& e) {
        EXPECT_NE(std::string(e.what()).find("Requested IPC memory handle type not supported"), std::string::npos);
    }
}

TEST(CudaAsync, a_failed_constructor_leaves_no_memory_behind) {
    auto& driver = kmm::driver::process_default();
    std::size_t free_before = 0;
    std::size_t free_after = 0;
    std::size_t total = 0;
    ASSERT_TRUE(driver.memory_info(0, &free_before, &total).ok());
    EXPECT_THROW(cuda_async_memory_resource{std::size_t{1} << 50}, rmm::out_of_memory);
    ASSERT_TRUE(driver.memory_info(0, &free_after, &total).ok());
    EXPECT_EQ(free_after, free_before);
}

TEST(CudaAsyncView, a_null_handle_is_refused) {
    EXPECT_THROW(cuda_async_view_memory_resource{cudaMemPool_t{nullptr}}, rmm::logic_error);
    cuda_async_view_memory_resource empty;
    EXPECT_EQ(empty.pool_handle(), nullptr);
    EXPECT_THROW((void)empty.allocate(100), rmm::logic_error);
    empty.deallocate(nullptr, 100);
}

TEST(CudaAsyncView, views_are_equal_where_their_pools_are) {
    cuda_async_memory_resource a{0};
    cuda_async_memory_resource b{0};
    EXPECT_EQ(cuda_async_view_memory_resource{a.pool_handle()}, cuda_async_view_memory_resource{a.pool_handle()});
    EXPECT_NE(cuda_async_view_memory_resource{a.pool_handle()}, cuda_async_view_memory_resource{b.pool_handle()});
}

TEST(CudaAsyncView, does_not_own_the_pool) {
    auto& driver = kmm::driver::process_default();
    kmm::driver::PoolHandle pool;
    ASSERT_TRUE(driver.create_pool(0, {}, &pool).ok());
    { cuda_async_view_memory_resource view{static_cast<cudaMemPool_t>(pool.native)}; }
    EXPECT_TRUE(driver.destroy_pool(pool).ok());
}

/// Looks a known record up, on another thread, while whoever makes a new one asks for the device.
class asks_meanwhile final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    cudaMemPool_t known = nullptr;
    rmm::detail::driver_pool* found = nullptr;

  protected:
    void called(const char* call) noexcept override {
        if (known == nullptr || std::string(call) != "current_device") return;
        std::thread([this] { found = &rmm::detail::record_of_pool(known); }).join();
    }
};

// Waits for ever where the lock is held.
TEST(CudaAsync, records_of_pools_are_found_while_a_new_one_asks_the_driver) {
    // Records of foreign pools stay, and name their driver.
    static auto& driver = *new asks_meanwhile(kmm::driver::process_default());
    const rmm::detail::driver_scope scope(driver);
    static int handles[2];
    const auto known = reinterpret_cast<cudaMemPool_t>(&handles[0]);
    rmm::detail::driver_pool& record = rmm::detail::record_of_pool(known);
    driver.known = known;
    (void)rmm::detail::record_of_pool(reinterpret_cast<cudaMemPool_t>(&handles[1]));
    EXPECT_EQ(driver.found, &record);
}

}  // namespace
