// Sizes, variables and the log.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kmm/base/log.hpp"
#include "kmm/core/config.hpp"
#include "kmm/error.hpp"

extern char** environ;

namespace {

using kmm::parse_byte_size;

/// Sets variables for one test and takes all KMM_ variables away before and after.
class Environment {
  public:
    Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
        clear();
        for (const auto& [name, value] : variables) setenv(name, value, 1);
    }
    ~Environment() { clear(); }

  private:
    static void clear() {
        std::vector<std::string> names;
        for (char** entry = environ; *entry != nullptr; ++entry) {
            const std::string text = *entry;
            if (text.rfind("KMM_", 0) == 0) names.push_back(text.substr(0, text.find('=')));
        }
        for (const std::string& name : names) unsetenv(name.c_str());
    }
};

TEST(Row009, sizes_are_numbers_with_decimal_and_binary_units) {
    EXPECT_EQ(parse_byte_size("500MB"), 500'000'000u);
    EXPECT_EQ(parse_byte_size("1m"), 1'000'000u);
    EXPECT_EQ(parse_byte_size("4GiB"), std::size_t(1) << 32);
    EXPECT_EQ(parse_byte_size("1.5k"), 1500u);
    EXPECT_EQ(parse_byte_size("1e9"), 1'000'000'000u);
    EXPECT_EQ(parse_byte_size("90%", 1000), 900u);
    EXPECT_EQ(parse_byte_size("100%", 1000), 1000u);
    EXPECT_EQ(parse_byte_size("0"), 0u);
    EXPECT_EQ(parse_byte_size("7b"), 7u);
    EXPECT_EQ(parse_byte_size("2ki"), 2048u);
    EXPECT_EQ(parse_byte_size("1TiB"), std::size_t(1) << 40);
    EXPECT_EQ(parse_byte_size("3t"), 3'000'000'000'000u);
    EXPECT_EQ(parse_byte_size("1.9"), 1u) << "rounded down";
    EXPECT_EQ(parse_byte_size("18446744073709551615"), std::numeric_limits<std::size_t>::max());
}

TEST(Row009, units_take_any_letter_case_and_a_blank_before_them) {
    for (const char* text : {"4gib", "4GIB", "4GiB", "4 GiB", "4gI", "4 gi"}) {
        EXPECT_EQ(parse_byte_size(text), std::size_t(1) << 32) << text;
    }
}

TEST(Row010, malformed_sizes_are_refused_with_their_text) {
    for (const char* text :
         {"MB", "-1", "12X", "1e30", "nan", "0x10", "0%", "101%", "5%", "", " ", "inf", "+1", "1..2", "1 2", "1GBs"}) {
        try {
            parse_byte_size(text);
            ADD_FAILURE() << "accepted: " << text;
        } catch (const kmm::InvalidArgument& e) {
            EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
        }
    }
    EXPECT_THROW(parse_byte_size("0%", 1000), kmm::InvalidArgument);
    EXPECT_THROW(parse_byte_size("101%", 1000), kmm::InvalidArgument);
    EXPECT_THROW(parse_byte_size("18446744073709551616"), kmm::InvalidArgument);
}

TEST(Row010, malformed_variables_are_refused_with_name_value_and_accepted_forms) {
    const std::pair<const char*, const char*> bad[] = {
        {"KMM_HOST_POOL", "vmm"},       {"KMM_HOST_MEM", "MB"},          {"KMM_HOST_BLOCK", "5%"},
        {"KMM_DEVICE_POOL", "cuda"},    {"KMM_DEVICE_MEM", "101%"},      {"KMM_DEVICE_KEEP_FREE", "-1"},
        {"KMM_DEVICE_BLOCK", "0x10"},   {"KMM_DEVICE_STREAMS", "0"},     {"KMM_DEVICE_STREAMS", "65"},
        {"KMM_DEBUG", "yes"},           {"KMM_DRIVER", "opencl"},        {"KMM_DEVICES", "0,"},
        {"KMM_DEVICES", "1,1"},         {"KMM_DEVICES", "-1"},           {"KMM_VIRTUAL_DEVICES", "0"},
        {"KMM_VIRTUAL_DEVICES", "1.5"}, {"KMM_VIRTUAL_DEVICE_MEM", "x"}, {"KMM_SPILL_LIMIT", "1e30"},
        {"KMM_HOST_THREADS", "40000"},  {"KMM_WATCHDOG", "nan"},         {"KMM_WATCHDOG", "-inf"},
        {"KMM_MEMORY_WAIT", "1e10s"},   {"KMM_MEMORY_WAIT", "-0.5"},     {"KMM_HOST_THREADS", "4097"},
        {"KMM_HOST_THREADS", "many"},   {"KMM_MAX_PENDING", "-5"},       {"KMM_MEMORY_WAIT", "nan"},
        {"KMM_WATCHDOG", "-1"},         {"KMM_LOG_LEVEL", "verbose"},    {"KMM_FIBER_STACK", "large"},
        {"KMM_FIBER_STACK", "1KiB"},    {"KMM_FIBER_STACK", "2TiB"},     {"KMM_FIBER_STACK", "5%"},
    };
    for (const auto& [name, value] : bad) {
        const Environment environment{{name, value}};
        try {
            kmm::default_config_from_environment();
            ADD_FAILURE() << "accepted: " << name << "=" << value;
        } catch (const kmm::InvalidArgument& e) {
            const std::string text = e.what();
            EXPECT_NE(text.find(name), std::string::npos) << text;
            EXPECT_NE(text.find(value), std::string::npos) << text;
            EXPECT_GT(text.size(), std::string(name).size() + std::string(value).size() + 30)
                << "says what is accepted: " << text;
        }
    }
}

TEST(Row010, empty_variables_change_nothing) {
    const Environment environment{
        {"KMM_HOST_MEM", ""}, {"KMM_DEVICE_STREAMS", ""}, {"KMM_DEBUG", ""}, {"KMM_DEVICES", ""}};
    const kmm::RuntimeConfig config = kmm::default_config_from_environment();
    const kmm::RuntimeConfig defaults{};
    EXPECT_EQ(config.host_memory_limit, defaults.host_memory_limit);
    EXPECT_EQ(config.device_concurrent_streams, defaults.device_concurrent_streams);
    EXPECT_EQ(config.debug_mode, defaults.debug_mode);
    EXPECT_TRUE(config.devices.empty());
}

TEST(Row010, every_variable_reaches_its_field) {
    const Environment environment{
        {"KMM_HOST_POOL", "None"},        {"KMM_HOST_MEM", "50%"},      {"KMM_HOST_BLOCK", "1MiB"},
        {"KMM_DEVICE_POOL", "vmm"},       {"KMM_DEVICE_MEM", "2GiB"},   {"KMM_DEVICE_KEEP_FREE", "1k"},
        {"KMM_DEVICE_BLOCK", "2k"},       {"KMM_DEVICE_STREAMS", "64"}, {"KMM_DEBUG", "true"},
        {"KMM_DRIVER", "Host"},           {"KMM_DEVICES", "0,2"},       {"KMM_VIRTUAL_DEVICES", "4"},
        {"KMM_VIRTUAL_DEVICE_MEM", "1G"}, {"KMM_SPILL_DIR", "/tmp"},    {"KMM_SPILL_LIMIT", "12.5%"},
        {"KMM_HOST_THREADS", "3"},        {"KMM_MAX_PENDING", "0"},     {"KMM_MEMORY_WAIT", "0.5"},
        {"KMM_FIBER_STACK", "256KiB"},    {"KMM_WATCHDOG", "0"}};
    const kmm::RuntimeConfig config = kmm::default_config_from_environment();
    EXPECT_EQ(config.host_memory_kind, kmm::HostMemoryKind::NoPool);
    EXPECT_DOUBLE_EQ(config.host_memory_fraction, 0.5);
    EXPECT_EQ(config.host_memory_limit, std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(config.host_memory_block_size, std::size_t(1) << 20);
    EXPECT_EQ(config.device_memory_kind, kmm::DeviceMemoryKind::Vmm);
    EXPECT_EQ(config.device_memory_limit, std::size_t(2) << 30);
    EXPECT_DOUBLE_EQ(config.device_memory_fraction, 0.95);
    EXPECT_EQ(config.device_memory_keep_free, 1000u);
    EXPECT_EQ(config.device_memory_block_size, 2000u);
    EXPECT_EQ(config.device_concurrent_streams, 64u);
    EXPECT_TRUE(config.debug_mode);
    EXPECT_EQ(config.driver, kmm::DriverKind::Host);
    EXPECT_EQ(config.devices, (std::vector<int>{0, 2}));
    EXPECT_EQ(config.virtual_devices, 4u);
    EXPECT_EQ(config.virtual_device_memory, 1'000'000'000u);
    EXPECT_EQ(config.spill_directory, "/tmp");
    EXPECT_DOUBLE_EQ(config.spill_fraction, 0.125);
    EXPECT_EQ(config.host_threads, 3u);
    EXPECT_EQ(config.max_pending_tasks, 0u);
    EXPECT_EQ(config.fiber_stack, std::size_t(256) << 10);
    EXPECT_DOUBLE_EQ(config.memory_wait, 0.5);
    EXPECT_DOUBLE_EQ(config.watchdog, 0.0);
}

TEST(Row010, seconds_may_be_infinite) {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::pair<const char*, double> good[] = {{"inf", infinity}, {"infinity", infinity}, {"INF", infinity},
                                                   {"1e10", 1e10},    {"10000000000", 1e10},  {"2.5", 2.5}};
    for (const auto& [text, seconds] : good) {
        const Environment environment{{"KMM_WATCHDOG", text}, {"KMM_MEMORY_WAIT", text}, {"KMM_HOST_THREADS", "4096"}};
        const kmm::RuntimeConfig config = kmm::default_config_from_environment();
        EXPECT_EQ(config.watchdog, seconds) << text;
        EXPECT_EQ(config.memory_wait, seconds) << text;
        EXPECT_EQ(config.host_threads, 4096u);
    }
}

TEST(Row011, an_own_config_ignores_the_environment_and_lists_the_old_fields_first) {
    const Environment environment{{"KMM_DEVICE_MEM", "1MiB"}, {"KMM_DEBUG", "1"}};
    const kmm::RuntimeConfig own{};
    EXPECT_EQ(own.device_memory_limit, std::numeric_limits<std::size_t>::max());
    EXPECT_FALSE(own.debug_mode);
    const kmm::RuntimeConfig listed{kmm::HostMemoryKind::NoPool, 1, 2, kmm::DeviceMemoryKind::NoPool, 3, 4, 5, 6, true};
    EXPECT_EQ(listed.host_memory_limit, 1u);
    EXPECT_EQ(listed.host_memory_block_size, 2u);
    EXPECT_EQ(listed.device_memory_limit, 3u);
    EXPECT_EQ(listed.device_memory_keep_free, 4u);
    EXPECT_EQ(listed.device_memory_block_size, 5u);
    EXPECT_EQ(listed.device_concurrent_streams, 6u);
    EXPECT_TRUE(listed.debug_mode);
    EXPECT_DOUBLE_EQ(listed.host_memory_fraction, 0.75);
}

struct Captured {
    std::vector<std::pair<int, std::string>> lines;
};

void capture(int level, const char* text, void* user) { static_cast<Captured*>(user)->lines.emplace_back(level, text); }

[[noreturn]] void read_twice_with_an_unknown_variable() {
    const Environment environment{
        {"KMM_DEVICE_MEMORY", "1GB"}, {"KMM_DEBUG", "0"}, {"KMM_TEST_SEED", "1"}, {"KMM_JOBS", "2"}};
    Captured captured;
    kmm::set_log_handler(capture, &captured);
    kmm::default_config_from_environment();
    kmm::default_config_from_environment();
    const bool right = captured.lines.size() == 1 && captured.lines[0].first == 3 &&
                       captured.lines[0].second.find(": KMM_DEVICE_MEMORY;") != std::string::npos &&
                       captured.lines[0].second.find("KMM_DEVICE_KEEP_FREE") != std::string::npos &&
                       captured.lines[0].second.find("KMM_DEBUG,") != std::string::npos;
    std::exit(right ? 0 : 1);
}

// In a process of its own, from its start on: the warning comes once a process.
TEST(Row011, an_unknown_variable_is_warned_about_once_with_the_known_names) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(read_twice_with_an_unknown_variable(), testing::ExitedWithCode(0), "");
}

TEST(Log, messages_below_the_level_are_dropped_and_the_others_reach_the_handler) {
    Captured captured;
    kmm::set_log_handler(capture, &captured);
    kmm::set_global_log_level("WARNING");
    kmm::log::write(kmm::log::info, "not wanted");
    kmm::log::write(kmm::log::error, "wanted");
    kmm::set_global_log_level("trace");
    kmm::log::write(kmm::log::trace, std::string("also wanted"));
    kmm::set_global_log_level("off");
    kmm::log::write(kmm::log::critical, "nothing is wanted");
    kmm::set_global_log_level("warn");
    kmm::set_log_handler(nullptr, nullptr);
    testing::internal::CaptureStderr();
    kmm::log::write(kmm::log::critical, "to stderr");
    EXPECT_NE(testing::internal::GetCapturedStderr().find("to stderr"), std::string::npos);
    ASSERT_EQ(captured.lines.size(), 2u);
    EXPECT_EQ(captured.lines[0], (std::pair<int, std::string>(4, "wanted")));
    EXPECT_EQ(captured.lines[1], (std::pair<int, std::string>(0, "also wanted")));
}

TEST(Log, unknown_level_names_are_refused) {
    EXPECT_THROW(kmm::set_global_log_level("loud"), kmm::InvalidArgument);
    EXPECT_THROW(kmm::set_global_log_level(""), kmm::InvalidArgument);
}

}  // namespace
