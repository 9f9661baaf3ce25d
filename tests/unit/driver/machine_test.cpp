// driver/machine.hpp: this machine's own figures, against what the system says by other ways.
#include "driver/machine.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

using namespace kmm::driver;

namespace {

TEST(Machine, has_memory_of_which_some_is_available) {
    const auto physical =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    EXPECT_GT(machine_memory_bytes(), 0u);
    EXPECT_LE(machine_memory_bytes(), physical);
    EXPECT_GT(available_memory_bytes(), 0u);
    EXPECT_LE(available_memory_bytes(), machine_memory_bytes());
}

TEST(Machine, has_processors_of_which_a_thread_may_be_bound_to_one) {
    EXPECT_GE(usable_processors(), 1u);
    EXPECT_LE(usable_processors(), static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_CONF)));
    std::thread([] {
        cpu_set_t set;
        ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
        int first = 0;
        while (!CPU_ISSET(first, &set)) ++first;
        CPU_ZERO(&set);
        CPU_SET(first, &set);
        ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
        EXPECT_EQ(usable_processors(), 1u);
    }).join();
}

}  // namespace
