// Owns: what a driver says about itself and its devices.
#include <thread>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverDevices : public DriverTest {};

TEST_P(DriverDevices, there_is_at_least_one_and_each_has_properties) {
    ASSERT_GE(driver().device_count(), 1);
    for (int device = 0; device < driver().device_count(); ++device) {
        DeviceProperties properties;
        KMM_OK(driver().properties(device, &properties));
        EXPECT_FALSE(properties.name.empty());
        EXPECT_FALSE(properties.uuid.empty());
        EXPECT_FALSE(properties.pci_bus_id.empty());
        EXPECT_GT(properties.total_memory_bytes, 0u);
        EXPECT_GE(properties.copy_engines, 1);
        EXPECT_GE(properties.multiprocessors, 1);
        EXPECT_EQ(properties.max_threads_per_block, 1024);
        EXPECT_EQ(properties.max_grid_dim[0], 2147483647);
        EXPECT_EQ(properties.max_grid_dim[1], 65535);
        EXPECT_EQ(properties.max_grid_dim[2], 65535);
        EXPECT_GE(properties.max_shared_memory_per_block, 48u << 10);
        EXPECT_EQ(properties.compute_capability == 0, on_host());
    }
}

TEST_P(DriverDevices, devices_that_do_not_exist_are_refused) {
    for (const int device : {-1, driver().device_count()}) {
        DeviceProperties properties;
        std::size_t bytes = 0;
        int value = 0;
        void* pointer = nullptr;
        StreamHandle s;
        EventHandle e;
        PoolHandle pool;
        EXPECT_FALSE(driver().properties(device, &properties).ok());
        EXPECT_FALSE(driver().attribute(device, 1, &value).ok());
        EXPECT_FALSE(driver().memory_info(device, &bytes, &bytes).ok());
        EXPECT_FALSE(driver().set_current_device(device).ok());
        EXPECT_FALSE(driver().allocate(device, 256, &pointer).ok());
        EXPECT_FALSE(driver().create_stream(device, true, 0, &s).ok());
        EXPECT_FALSE(driver().create_event(device, false, false, &e).ok());
        EXPECT_FALSE(driver().default_pool(device, &pool).ok());
        EXPECT_FALSE(driver().synchronize_device(device).ok());
    }
    (void)driver().take_last_error();
}

TEST_P(DriverDevices, attributes_have_the_numbers_of_cuda) {
    const auto attribute = [&](int number) {
        int value = -1;
        EXPECT_TRUE(driver().attribute(0, number, &value).ok()) << number;
        return value;
    };
    EXPECT_EQ(attribute(1), 1024);        // threads per block
    EXPECT_EQ(attribute(2), 1024);        // block x
    EXPECT_EQ(attribute(5), 2147483647);  // grid x
    EXPECT_EQ(attribute(6), 65535);       // grid y
    EXPECT_EQ(attribute(10), 32);         // warp size
    EXPECT_GE(attribute(16), 1);          // multiprocessors
    DeviceProperties properties;
    KMM_OK(driver().properties(0, &properties));
    EXPECT_EQ(attribute(75) * 10 + attribute(76), properties.compute_capability);
    EXPECT_EQ(static_cast<std::size_t>(attribute(97)), properties.max_shared_memory_per_block);
    int value = 0;
    KMM_FAILS(driver().attribute(0, 1000000, &value), Code::invalid_argument);
}

TEST_P(DriverDevices, the_current_device_belongs_to_the_thread) {
    const int last = driver().device_count() - 1;
    KMM_OK(driver().set_current_device(last));
    int here = -1;
    int there = -1;
    std::thread([&] { (void)driver().current_device(&there); }).join();
    KMM_OK(driver().current_device(&here));
    EXPECT_EQ(here, last);
    EXPECT_EQ(there, 0);
    {
        DeviceGuard guard(driver(), 0);
        KMM_OK(driver().current_device(&here));
        EXPECT_EQ(here, 0);
    }
    KMM_OK(driver().current_device(&here));
    EXPECT_EQ(here, last);
}

TEST_P(DriverDevices, errors_have_names_and_texts_and_are_taken_once) {
    void* pointer = nullptr;
    const Status failed = driver().allocate(driver().device_count(), 256, &pointer);
    ASSERT_FALSE(failed.ok());
    EXPECT_STRNE(driver().error_name(failed), "");
    EXPECT_STRNE(driver().error_text(failed), "");
    (void)driver().take_last_error();
    EXPECT_TRUE(driver().take_last_error().ok());
}

TEST_P(DriverDevices, peers_can_be_enabled_twice) {
    for (int a = 0; a < driver().device_count(); ++a)
        for (int b = 0; b < driver().device_count(); ++b) {
            if (a == b) continue;
            bool can = false;
            KMM_OK(driver().can_access_peer(a, b, &can));
            if (on_host()) {
                EXPECT_TRUE(can);
            }
            if (!can) continue;
            KMM_OK(driver().enable_peer(a, b));
            KMM_OK(driver().enable_peer(a, b));
        }
}

KMM_ON_EVERY_DRIVER(DriverDevices);

}  // namespace
}  // namespace driver_test
