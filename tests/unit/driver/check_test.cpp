// Owns: how a status becomes an exception.
#include "driver/check.hpp"

#include <gtest/gtest.h>

#include "driver/registry.hpp"

namespace {

using namespace kmm::driver;

TEST(Check, an_ok_status_passes) {
    const auto driver = make_host_driver({1, 1 << 20, 2});
    EXPECT_NO_THROW(check(*driver, Status{}, "do nothing"));
}

TEST(Check, a_failure_says_what_was_attempted_and_clears_the_pending_error) {
    const auto driver = make_host_driver({1, 1 << 20, 2});
    void* pointer = nullptr;
    try {
        check(*driver, driver->allocate(0, 1 << 30, &pointer), "allocate 1 GiB");
        FAIL() << "nothing was thrown";
    } catch (const DriverError& error) {
        EXPECT_EQ(error.code(), Code::out_of_memory);
        EXPECT_EQ(error.name(), "out_of_memory");
        EXPECT_EQ(error.native(), 0);
        EXPECT_NE(std::string(error.what()).find("allocate 1 GiB"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("host driver"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(driver->take_last_error().ok());
}

}  // namespace
