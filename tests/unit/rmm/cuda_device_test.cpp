// <rmm/cuda_device.hpp> and <rmm/detail/runtime_capabilities.hpp>, on two devices.
#include <gtest/gtest.h>

#include <string>

#include "driver/registry.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/detail/cuda_util.hpp"
#include "rmm/detail/dynamic_load_runtime.hpp"
#include "rmm/detail/runtime_async_alloc.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"

namespace {

TEST(CudaDevice, numbers_compare_and_default_to_the_current_device) {
    EXPECT_EQ(rmm::cuda_device_id{}, rmm::get_current_cuda_device());
    EXPECT_EQ(rmm::cuda_device_id{3}, rmm::cuda_device_id{3});
    EXPECT_NE(rmm::cuda_device_id{3}, rmm::cuda_device_id{4});
    EXPECT_EQ(rmm::get_num_cuda_devices(), 2);
}

TEST(CudaDevice, a_scope_makes_a_device_current_and_restores_the_old_one) {
    const rmm::cuda_device_id before = rmm::get_current_cuda_device();
    {
        rmm::cuda_set_device_raii scope{rmm::cuda_device_id{1}};
        EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
        rmm::cuda_set_device_raii same{rmm::cuda_device_id{1}};
        rmm::cuda_set_device_raii negative{rmm::cuda_device_id{-1}};
        EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
    }
    EXPECT_EQ(rmm::get_current_cuda_device(), before);
}

TEST(CudaDevice, a_device_that_does_not_exist_is_refused) {
    try {
        rmm::cuda_set_device_raii{rmm::cuda_device_id{77}};
        ADD_FAILURE() << "accepted";
    } catch (const rmm::cuda_error& error) {
        EXPECT_NE(std::string(error.what()).find("77"), std::string::npos) << error.what();
    }
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
}

TEST(CudaDevice, memory_information_belongs_to_the_current_device) {
    const auto [free_before, total] = rmm::available_device_memory();
    EXPECT_EQ(total, std::size_t{256} << 20);
    rmm::mr::cuda_memory_resource mr;
    void* const ptr = mr.allocate(std::size_t{32} << 20);
    EXPECT_LE(rmm::available_device_memory().first + (std::size_t{32} << 20), free_before);
    {
        rmm::cuda_set_device_raii other{rmm::cuda_device_id{1}};
        EXPECT_EQ(rmm::detail::available_device_memory().first, total);
    }
    mr.deallocate(ptr, std::size_t{32} << 20);
    EXPECT_EQ(rmm::percent_of_free_device_memory(50) % 256, 0u);
    EXPECT_NEAR(static_cast<double>(rmm::percent_of_free_device_memory(50)), static_cast<double>(free_before) / 2, 256);
}

TEST(Capabilities, are_those_of_the_driver_and_leave_no_error_behind) {
    auto& driver = kmm::driver::process_default();
    EXPECT_EQ(rmm::detail::runtime_async_alloc::is_supported(), driver.capabilities().memory_pools);
    EXPECT_EQ(rmm::detail::async_alloc::is_supported(), driver.capabilities().memory_pools);
    EXPECT_TRUE(rmm::detail::export_handle_type::is_supported(0));
    EXPECT_FALSE(rmm::detail::runtime_async_alloc::is_export_handle_type_supported(8));
    EXPECT_FALSE(rmm::detail::hwdecompress::is_supported());
    EXPECT_TRUE(rmm::detail::concurrent_managed_access::is_supported());
    rmm::cuda_set_device_raii other{rmm::cuda_device_id{1}};
    EXPECT_EQ(rmm::detail::runtime_async_alloc::is_supported(), driver.capabilities().memory_pools);
    EXPECT_TRUE(driver.take_last_error().ok());
}

}  // namespace
