// Owns: which driver a process gets. What is chosen once a process is tested in a child process each.
#include "driver/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace {

using namespace kmm::driver;

/// Sets a variable for one test.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Variable() { unsetenv(name_); }

  private:
    const char* name_;
};

std::string error_of_options() {
    try {
        (void)host_options_from_environment();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST(Registry, the_candidates_are_cuda_hip_host_and_each_says_why) {
    const auto all = candidates();
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].kind, Kind::cuda);
    EXPECT_EQ(all[1].kind, Kind::hip);
    EXPECT_EQ(all[2].kind, Kind::host);
    for (const Candidate& c : all) EXPECT_FALSE(c.reason.empty());
    EXPECT_FALSE(all[1].usable);
    EXPECT_EQ(all[1].reason, "not built into this library");
    EXPECT_TRUE(all[2].usable);
    EXPECT_GE(all[2].num_devices, 1);
}

TEST(Registry, a_driver_that_cannot_be_used_is_null_with_the_reason) {
    std::string reason;
    EXPECT_EQ(open(Kind::hip, &reason), nullptr);
    EXPECT_EQ(reason, "not built into this library");
    const auto all = candidates();
    reason.clear();
    EXPECT_EQ(open(Kind::cuda, &reason) != nullptr, all[0].usable);
    if (!all[0].usable) {
        EXPECT_EQ(reason, all[0].reason);
    }
}

TEST(Registry, one_host_driver_serves_the_process) {
    const auto a = open(Kind::host, nullptr);
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a, open(Kind::host, nullptr));
    EXPECT_NE(a, make_host_driver({}));
}

TEST(Registry, options_of_the_host_driver_come_from_the_environment) {
    EXPECT_EQ(host_options_from_environment().num_devices, 1);
    EXPECT_EQ(host_options_from_environment().memory_bytes, 0u);
    const Variable devices("KMM_VIRTUAL_DEVICES", "4");
    const Variable memory("KMM_VIRTUAL_DEVICE_MEM", "64MiB");
    const Variable stack("KMM_FIBER_STACK", "1MiB");
    const HostOptions options = host_options_from_environment();
    EXPECT_EQ(options.stack_bytes, std::size_t{1} << 20);
    EXPECT_EQ(options.num_devices, 4);
    EXPECT_EQ(options.memory_bytes, std::size_t{64} << 20);
    const auto driver = make_host_driver(options);
    EXPECT_EQ(driver->device_count(), 4);
    std::size_t free = 0, total = 0;
    EXPECT_TRUE(driver->memory_info(3, &free, &total).ok());
    EXPECT_EQ(total, std::size_t{64} << 20);
    EXPECT_EQ(free, total);
}

TEST(Registry, a_host_driver_can_be_made_that_has_no_events_of_a_device) {
    EXPECT_TRUE(make_host_driver(host_options_from_environment())->capabilities().device_event);
    const Variable none("KMM_TEST_NO_DEVICE_EVENTS", "1");
    const auto driver = make_host_driver(host_options_from_environment());
    EXPECT_FALSE(driver->capabilities().device_event);
    EventHandle event;
    ASSERT_TRUE(driver->create_event(0, false, false, &event).ok());
    EXPECT_EQ(driver->device_event_record(0, event).code, Code::not_supported);
    EXPECT_TRUE(driver->destroy_event(event).ok());
}

TEST(Registry, malformed_options_name_the_variable_and_its_text) {
    for (const char* text : {"0", "-1", "65", "two", "4x", "1.5"}) {
        const Variable devices("KMM_VIRTUAL_DEVICES", text);
        EXPECT_NE(error_of_options().find("KMM_VIRTUAL_DEVICES is '" + std::string(text) + "'"), std::string::npos)
            << text;
    }
    for (const char* text : {"MB", "1KiB", "2GiB", "50%"}) {
        const Variable stack("KMM_FIBER_STACK", text);
        EXPECT_NE(error_of_options().find("KMM_FIBER_STACK"), std::string::npos) << text;
        EXPECT_NE(error_of_options().find("'" + std::string(text) + "'"), std::string::npos) << text;
    }
    for (const char* text : {"MB", "0", "-1", "101%"}) {
        const Variable memory("KMM_VIRTUAL_DEVICE_MEM", text);
        EXPECT_NE(error_of_options().find("KMM_VIRTUAL_DEVICE_MEM"), std::string::npos) << text;
        EXPECT_NE(error_of_options().find("'" + std::string(text) + "'"), std::string::npos) << text;
    }
}

TEST(Registry, empty_variables_change_nothing) {
    const Variable devices("KMM_VIRTUAL_DEVICES", "");
    const Variable memory("KMM_VIRTUAL_DEVICE_MEM", "");
    EXPECT_EQ(host_options_from_environment().num_devices, 1);
    EXPECT_EQ(host_options_from_environment().memory_bytes, 0u);
}

/// Exit code 0 if `what` holds in a fresh process with KMM_DRIVER set.
template<typename What>
[[noreturn]] void in_child(const char* driver, What&& what) {
    setenv("KMM_DRIVER", driver, 1);
    std::exit(what() ? 0 : 1);
}

std::string error_of_default() {
    try {
        (void)process_default();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

class RegistryDefault : public ::testing::Test {
  protected:
    // A child is started anew instead of forked: threads of other tests are not carried over.
    RegistryDefault() { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(RegistryDefault, KMM_DRIVER_host_gives_the_host_driver_of_the_process) {
    EXPECT_EXIT(in_child("host",
                         [] {
                             return process_default().kind() == Kind::host &&
                                    &process_default() == open(Kind::host, nullptr).get() &&
                                    process_default_shared().get() == &process_default();
                         }),
                ::testing::ExitedWithCode(0), "");
}

TEST_F(RegistryDefault, auto_and_an_empty_variable_give_the_first_that_can_be_used) {
    const auto first = [] {
        const auto all = candidates();
        const auto usable = std::find_if(all.begin(), all.end(), [](const Candidate& c) { return c.usable; });
        return process_default().kind() == usable->kind;
    };
    EXPECT_EXIT(in_child("auto", first), ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(in_child("AUTO", first), ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(in_child("", first), ::testing::ExitedWithCode(0), "");
}

TEST_F(RegistryDefault, a_driver_that_is_asked_for_and_cannot_be_used_is_an_error_with_the_reason) {
    EXPECT_EXIT(
        in_child("hip", [] { return error_of_default().find("not built into this library") != std::string::npos; }),
        ::testing::ExitedWithCode(0), "");
}

TEST_F(RegistryDefault, an_unknown_name_is_an_error_with_the_accepted_names) {
    EXPECT_EXIT(in_child("metal",
                         [] {
                             return error_of_default().find("'metal'") != std::string::npos &&
                                    error_of_default().find("auto, cuda, hip or host") != std::string::npos;
                         }),
                ::testing::ExitedWithCode(0), "");
}

struct FreesAtTheEnd {
    void* memory = nullptr;
    ~FreesAtTheEnd() {
        int device = -1;
        if (!process_default().set_current_device(0).ok() || !process_default().current_device(&device).ok())
            std::_Exit(2);
        if (!process_default().free(memory).ok()) std::_Exit(2);
        if (process_default().free(memory).ok()) std::_Exit(2);  // an error is remembered for the thread
    }
};

TEST_F(RegistryDefault, static_objects_may_free_their_memory_when_the_process_ends) {
    EXPECT_EXIT(in_child("host",
                         [] {
                             static FreesAtTheEnd last;
                             return process_default().allocate(0, 1000, &last.memory).ok();
                         }),
                ::testing::ExitedWithCode(0), "");
}

}  // namespace
