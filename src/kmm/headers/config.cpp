// The environment as a RuntimeConfig. Owns the list of known variables. Any thread.
#include "kmm/core/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "kmm/base/log.hpp"
#include "kmm/error.hpp"

namespace kmm {

std::size_t parse_byte_size(const std::string& text, std::size_t whole) {
    std::string why;
    if (std::optional<std::size_t> bytes = driver::parse_byte_size(text, whole, &why)) return *bytes;
    throw InvalidArgument("parse_byte_size: " + why);
}

namespace {

constexpr const char* known_variables[] = {
    "KMM_HOST_POOL",
    "KMM_HOST_MEM",
    "KMM_HOST_BLOCK",
    "KMM_DEVICE_POOL",
    "KMM_DEVICE_MEM",
    "KMM_DEVICE_KEEP_FREE",
    "KMM_DEVICE_BLOCK",
    "KMM_DEVICE_STREAMS",
    "KMM_DEBUG",
    "KMM_DRIVER",
    "KMM_DEVICES",
    "KMM_VIRTUAL_DEVICES",
    "KMM_VIRTUAL_DEVICE_MEM",
    "KMM_SPILL_DIR",
    "KMM_SPILL_LIMIT",
    "KMM_HOST_THREADS",
    "KMM_MAX_PENDING",
    "KMM_MEMORY_WAIT",
    "KMM_WATCHDOG",
    "KMM_LOG_LEVEL",
    "KMM_TRACE",
    "KMM_TRACE_DEVICE_TIMES",
    "KMM_RECORD",
    "KMM_NVTX",
    "KMM_RANGE_CHECK",
    "KMM_FIBER_STACK",
};

// Of the build and the tests: nothing that a program sets to change its runtime.
constexpr const char* variables_of_others[] = {"KMM_JOBS", "KMM_CUDA_ARCHITECTURES"};
constexpr std::string_view prefix_of_tests = "KMM_TEST_";

std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return result;
}

[[noreturn]] void refuse(const char* variable, const std::string& text, const std::string& accepted) {
    throw InvalidArgument(driver::format("{}={} is not understood: {}", variable, text, accepted));
}

// The text of a variable; nothing if it is unset or empty.
std::optional<std::string> read(const char* variable) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == '\0') return std::nullopt;
    return std::string(text);
}

template<typename T>
void read_choice(const char* variable, std::initializer_list<std::pair<const char*, T>> choices, T& out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    const std::string wanted = lower_case(*text);
    std::string names;
    for (const auto& [name, value] : choices) {
        if (wanted == name) {
            out = value;
            return;
        }
        names += (names.empty() ? "use " : ", ") + std::string(name);
    }
    refuse(variable, *text, names);
}

void read_bytes(const char* variable, std::size_t& out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    std::string why;
    const std::optional<std::size_t> bytes = driver::parse_byte_size(*text, 0, &why);
    if (!bytes) refuse(variable, *text, why);
    out = *bytes;
}

// A size, or a percentage as a fraction.
void read_bytes_or_fraction(const char* variable, std::size_t& bytes_out, double& fraction_out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    // A whole of 10^12 keeps ten digits of the percentage.
    constexpr std::size_t whole = 1'000'000'000'000;
    std::string why;
    const std::optional<std::size_t> parsed = driver::parse_byte_size(*text, whole, &why);
    if (!parsed) refuse(variable, *text, why);
    if (text->back() == '%') {
        fraction_out = static_cast<double>(*parsed) / static_cast<double>(whole);
    } else {
        bytes_out = *parsed;
    }
}

std::optional<std::size_t> whole_number(std::string_view text) {
    std::size_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

void read_count(const char* variable, std::size_t smallest, std::size_t largest, std::size_t& out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    const std::optional<std::size_t> value = whole_number(*text);
    if (!value || *value < smallest || *value > largest) {
        std::string accepted = driver::format("use a whole number from {}", smallest);
        if (largest != std::numeric_limits<std::size_t>::max()) accepted += driver::format(" to {}", largest);
        refuse(variable, *text, accepted);
    }
    out = *value;
}

void read_seconds(const char* variable, double& out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    double value = 0;
    const char* last = text->data() + text->size();
    const auto [end, code] = std::from_chars(text->data(), last, value, std::chars_format::general);
    if (code != std::errc() || end != last || !(value >= 0)) {
        refuse(variable, *text, "use a number of seconds, such as 10 or 0.5, or inf for never");
    }
    out = value;
}

void read_devices(const char* variable, std::vector<int>& out) {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    out.clear();
    if (lower_case(*text) == "all") return;
    constexpr const char* accepted = "use \"all\" or the numbers of different devices, such as 0,2";
    std::string_view rest = *text;
    while (true) {
        const std::size_t comma = rest.find(',');
        const std::optional<std::size_t> number = whole_number(rest.substr(0, comma));
        if (!number || *number > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
            refuse(variable, *text, accepted);
        }
        const int ordinal = static_cast<int>(*number);
        if (std::find(out.begin(), out.end(), ordinal) != out.end()) refuse(variable, *text, accepted);
        out.push_back(ordinal);
        if (comma == std::string_view::npos) break;
        rest.remove_prefix(comma + 1);
    }
    if (out.size() > MAX_DEVICES) {
        refuse(variable, *text, driver::format("use at most {} devices", MAX_DEVICES));
    }
}

std::string fiber_stack_range() {
    return driver::format("use {} to {}", driver::byte_size_text(MIN_FIBER_STACK),
                          driver::byte_size_text(MAX_FIBER_STACK));
}

void warn_about_unknown_variables() {
    std::string unknown;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        std::string_view name = *entry;
        name = name.substr(0, name.find('='));
        if (name.substr(0, 4) != "KMM_") continue;
        const auto same = [&](const char* that) { return name == that; };
        const bool known = std::any_of(std::begin(known_variables), std::end(known_variables), same) ||
                           std::any_of(std::begin(variables_of_others), std::end(variables_of_others), same) ||
                           name.substr(0, prefix_of_tests.size()) == prefix_of_tests;
        if (!known) unknown += (unknown.empty() ? "" : ", ") + std::string(name);
    }
    if (unknown.empty()) return;
    std::string names;
    for (const char* name : known_variables) names += (names.empty() ? "" : ", ") + std::string(name);
    log::write(log::warn, driver::format("unknown environment variables: {}; known are {}", unknown, names));
}

}  // namespace

RuntimeConfig default_config_from_environment() {
    RuntimeConfig config;
    read_choice("KMM_HOST_POOL", {{"caching", HostMemoryKind::CachingPool}, {"none", HostMemoryKind::NoPool}},
                config.host_memory_kind);
    read_bytes_or_fraction("KMM_HOST_MEM", config.host_memory_limit, config.host_memory_fraction);
    read_bytes("KMM_HOST_BLOCK", config.host_memory_block_size);
    read_choice("KMM_DEVICE_POOL",
                {{"default", DeviceMemoryKind::DefaultPool},
                 {"private", DeviceMemoryKind::PrivatePool},
                 {"caching", DeviceMemoryKind::CachingPool},
                 {"none", DeviceMemoryKind::NoPool},
                 {"vmm", DeviceMemoryKind::Vmm}},
                config.device_memory_kind);
    read_bytes_or_fraction("KMM_DEVICE_MEM", config.device_memory_limit, config.device_memory_fraction);
    read_bytes("KMM_DEVICE_KEEP_FREE", config.device_memory_keep_free);
    read_bytes("KMM_DEVICE_BLOCK", config.device_memory_block_size);
    read_count("KMM_DEVICE_STREAMS", 1, DeviceStreamSet::MAX_STREAMS, config.device_concurrent_streams);
    read_choice("KMM_DEBUG", {{"1", true}, {"true", true}, {"0", false}, {"false", false}}, config.debug_mode);
    read_choice(
        "KMM_DRIVER",
        {{"auto", DriverKind::Auto}, {"cuda", DriverKind::CUDA}, {"hip", DriverKind::HIP}, {"host", DriverKind::Host}},
        config.driver);
    read_devices("KMM_DEVICES", config.devices);
    read_count("KMM_VIRTUAL_DEVICES", 1, MAX_DEVICES, config.virtual_devices);
    read_bytes("KMM_VIRTUAL_DEVICE_MEM", config.virtual_device_memory);
    if (std::optional<std::string> directory = read("KMM_SPILL_DIR")) config.spill_directory = *directory;
    read_bytes_or_fraction("KMM_SPILL_LIMIT", config.spill_limit, config.spill_fraction);
    read_count("KMM_HOST_THREADS", 0, MAX_HOST_THREADS, config.host_threads);
    read_count("KMM_MAX_PENDING", 0, std::numeric_limits<std::size_t>::max(), config.max_pending_tasks);
    read_seconds("KMM_MEMORY_WAIT", config.memory_wait);
    read_seconds("KMM_WATCHDOG", config.watchdog);
    if (std::optional<std::string> file = read("KMM_TRACE")) config.trace = *file;
    if (std::optional<std::string> file = read("KMM_RECORD")) config.record = *file;
    read_choice("KMM_NVTX", {{"1", true}, {"true", true}, {"0", false}, {"false", false}}, config.nvtx);
    read_choice("KMM_RANGE_CHECK", {{"1", true}, {"true", true}, {"0", false}, {"false", false}}, config.range_check);
    read_bytes("KMM_FIBER_STACK", config.fiber_stack);
    if (config.fiber_stack < MIN_FIBER_STACK || config.fiber_stack > MAX_FIBER_STACK)
        refuse("KMM_FIBER_STACK", *read("KMM_FIBER_STACK"), fiber_stack_range());
    read_choice("KMM_TRACE_DEVICE_TIMES", {{"1", true}, {"true", true}, {"0", false}, {"false", false}},
                config.trace_device_times);
    // The log reads it by itself, at the first message; here it is only checked, so that a slip is known at the start.
    if (const auto level = read("KMM_LOG_LEVEL"); level && !log::level_named(*level))
        refuse("KMM_LOG_LEVEL", *level, std::string("use ") + log::accepted_level_names);
    static std::once_flag warned;
    std::call_once(warned, warn_about_unknown_variables);
    return config;
}

}  // namespace kmm
