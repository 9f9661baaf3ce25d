// Runs the suite, or says why it cannot: the environment may ask for a driver that this machine has not.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "driver/registry.hpp"

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    try {
        (void)kmm::driver::process_default();
    } catch (const std::exception& e) {
        std::printf("skipped: %s\n", e.what());
        return 77;  // what ctest counts as skipped
    }
    return RUN_ALL_TESTS();
}
