// The texts of out-of-memory errors: what they say once, what they share, and that their bytes add up.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "harness.hpp"

namespace {

constexpr std::size_t mib = std::size_t(1) << 20;

RuntimeConfig small_config(std::size_t device_bytes, std::size_t host_bytes) {
    RuntimeConfig config = config_with(1);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.device_memory_limit = device_bytes;
    limit_host_memory(config, host_bytes);
    return config;
}

// ---- reading a text

/// Bytes, and how far the text may be from them, because it has two decimals.
struct Size {
    double bytes = 0;
    double rounding = 0;
};

Size operator+(const Size& a, const Size& b) { return {a.bytes + b.bytes, a.rounding + b.rounding}; }

Size parse_size(const std::string& number, const std::string& unit) {
    static const std::map<std::string, double> units{{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                                     {"TiB", 0x1p40}, {"PiB", 0x1p50}, {"bytes", 1}};
    const auto found = units.find(unit);
    EXPECT_NE(found, units.end()) << number << " " << unit;
    if (found == units.end()) return {};
    return {std::stod(number) * found->second, found->second == 1 ? 0 : 0.005 * found->second};
}

/// The size behind `label`; a failed test if there is none.
Size size_behind(const std::string& text, const std::string& label) {
    const std::size_t at = text.find(label + " ");
    if (at == std::string::npos) {
        ADD_FAILURE() << "no \"" << label << "\" in\n" << text;
        return {};
    }
    std::istringstream words(text.substr(at + label.size()));
    std::string number, unit;
    words >> number >> unit;
    while (!unit.empty() && std::isalpha(static_cast<unsigned char>(unit.back())) == 0) unit.pop_back();
    return parse_size(number, unit);
}

std::string line_of(const std::string& text, const std::string& label) {
    const std::size_t at = text.find("\n  " + label + ":");
    if (at == std::string::npos) return "";
    return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

/// The last size of each entry of a list: "a 1.00 MiB in 3 chunks | read b chunk 0 {0...4} 2.00 MiB".
Size sum_of_entries(const std::string& line) {
    Size sum;
    std::istringstream entries(line);
    for (std::string entry; std::getline(entries, entry, '|');) {
        std::istringstream words(entry);
        std::string before, word;
        Size last;
        while (words >> word) {
            while (!word.empty() && word.back() == ',') word.pop_back();
            if (word == "B" || word == "KiB" || word == "MiB" || word == "GiB") {
                last = parse_size(before, word);
                break;
            }
            before = word;
        }
        sum = sum + last;
    }
    return sum;
}

void expect_equal(const Size& a, const Size& b, const std::string& what, const std::string& text) {
    EXPECT_LE(std::abs(a.bytes - b.bytes), a.rounding + b.rounding + 0.5) << what << "\n" << text;
}

/// Every sum that a text of a shortage at run time has.
void expect_adds_up(const std::string& text) {
    const std::string memory = line_of(text, "memory");
    const Size not_taken = memory.find("not taken") != std::string::npos ? size_behind(memory, "not taken")
                                                                         : size_behind(memory, "refused by the driver");
    const Size in_use = size_behind(memory, "in use"), cached = size_behind(memory, "cached but free");
    expect_equal(size_behind(memory, "limit"), in_use + cached + not_taken, "limit", text);
    EXPECT_LE(size_behind(memory, "largest free piece").bytes, cached.bytes + cached.rounding) << text;
    expect_equal(size_behind(memory, "total"),
                 size_behind(memory, "this runtime") + size_behind(memory, "others (programs, runtimes, the driver)") +
                     size_behind(memory, "free now"),
                 "total", text);
    EXPECT_GE(size_behind(memory, "this runtime").bytes + size_behind(memory, "this runtime").rounding,
              in_use.bytes + cached.bytes - in_use.rounding - cached.rounding)
        << text;
    expect_equal(in_use, sum_of_entries(line_of(text, "arrays")), "arrays", text);
    expect_equal(size_behind(text, "needs"), sum_of_entries(line_of(text, "needs")), "needs", text);
}

/// Of the failed ones, in the order of the events.
std::vector<std::shared_ptr<kmm::TaskError>> failures_of(const RuntimeHandle& rt, const std::vector<EventId>& events) {
    std::vector<std::shared_ptr<kmm::TaskError>> failed;
    for (const EventId e : events) {
        try {
            rt.wait(e);
        } catch (const kmm::TaskError& error) {
            failed.push_back(std::make_shared<kmm::TaskError>(error));
        }
    }
    return failed;
}

std::shared_ptr<kmm::OutOfMemory> cause_of(const kmm::TaskError& error) {
    return thrown_by<kmm::OutOfMemory>([&] { std::rethrow_if_nested(error); });
}

bool has_report(const std::exception& error) { return says(error, "\n  memory: "); }

constexpr auto nothing_on_device = [](kmm::DeviceResource&, auto&&...) {};

/// One that has the report.
std::string report_of(const std::vector<std::shared_ptr<kmm::TaskError>>& failed) {
    EXPECT_FALSE(failed.empty());
    for (const auto& error : failed)
        if (has_report(*error)) return error->what();
    ADD_FAILURE() << "no error has the report";
    return "";
}

/// Fills both tiers with arrays that stay; the last ones fail.
struct Filled {
    RuntimeHandle rt;
    std::vector<Array<float>> arrays;
    std::vector<EventId> events;

    Filled(const RuntimeConfig& config, std::int64_t elements, int count, ResourceId where = device(0))
        : rt(kmm::make_runtime(config)) {
        for (int i = 0; i < count; i++) {
            arrays.push_back(rt.array<float>(elements).named("block " + std::to_string(i)));
            events.push_back(where.is_device()
                                 ? rt.submit(where, GPU(nothing_on_device).named("fill"), overwrite(arrays.back()))
                                 : rt.submit(where, Host([](auto&&...) {}).named("fill"), overwrite(arrays.back())));
        }
    }
};

}  // namespace

TEST(ShortageTexts, add_up_when_device_and_host_are_full) {
    Filled f(small_config(4 * mib, 4 * mib), mib / 4, 12);
    expect_adds_up(report_of(failures_of(f.rt, f.events)));
}

TEST(ShortageTexts, add_up_for_chunks_of_odd_sizes_and_more_arrays_than_are_listed) {
    Filled f(small_config(mib, mib), 10'001, 80);
    const std::string text = report_of(failures_of(f.rt, f.events));
    expect_adds_up(text);
    EXPECT_NE(line_of(text, "arrays").find(" more "), std::string::npos) << text;
}

TEST(ShortageTexts, add_up_for_a_task_on_the_host) {
    Filled f(small_config(mib, 4 * mib), mib / 4, 8, host());
    const std::string text = report_of(failures_of(f.rt, f.events));
    EXPECT_NE(text.find("found no memory on the host: needs"), std::string::npos) << text;
    expect_adds_up(text);
}

TEST(ShortageTexts, add_up_with_memory_that_is_kept_free_and_that_is_of_any_kind) {
    for (const auto kind : {kmm::DeviceMemoryKind::Vmm, kmm::DeviceMemoryKind::CachingPool,
                            kmm::DeviceMemoryKind::DefaultPool, kmm::DeviceMemoryKind::NoPool}) {
        RuntimeConfig config = small_config(6 * mib, 4 * mib);
        config.device_memory_kind = kind;
        config.device_memory_keep_free = mib;
        Filled f(config, mib / 4, 16);
        expect_adds_up(report_of(failures_of(f.rt, f.events)));
    }
}

template<std::size_t... I>
EventId overwrite_all(const RuntimeHandle& rt, std::vector<Array<float>>& arrays, std::index_sequence<I...>) {
    return rt.submit(device(0), GPU(nothing_on_device), overwrite(arrays[I])...);
}

TEST(ShortageTexts, add_up_for_a_task_of_many_arrays) {
    constexpr std::size_t count = 24;
    const RuntimeHandle rt = kmm::make_runtime(small_config(2 * mib, 2 * mib));
    std::vector<std::vector<Array<float>>> kept;
    std::vector<EventId> events;
    for (int i = 0; i < 8; i++) {
        auto& arrays = kept.emplace_back();
        for (std::size_t k = 0; k < count; k++) arrays.push_back(rt.array<float>(10'001));
        events.push_back(overwrite_all(rt, arrays, std::make_index_sequence<count>()));
    }
    const auto failed = failures_of(rt, events);
    const std::string text = report_of(failed);
    expect_adds_up(text);
    EXPECT_NE(line_of(text, "needs").find(" | 4 more "), std::string::npos) << text;
    // What a task got before it failed, and gave back, is no memory that was freed.
    EXPECT_EQ(std::count_if(failed.begin(), failed.end(), [](const auto& error) { return has_report(*error); }), 1);
}

TEST(ShortageTexts, at_submit_list_what_adds_up_to_the_need) {
    const RuntimeHandle rt = kmm::make_runtime(small_config(mib, 64 * mib));
    auto a = rt.array<float>(mib, 10'001);
    const auto error =
        thrown_by<kmm::OutOfMemory>([&] { rt.submit(device(0), GPU(nothing_on_device).named("whole"), overwrite(a)); });
    ASSERT_NE(error, nullptr);
    const std::string text = error->what();
    expect_equal(size_behind(text, "needs"), sum_of_entries(line_of(text, "needs")), "needs", text);
    EXPECT_NE(text.find("(" + std::to_string(error->requested()) + " bytes)"), std::string::npos) << text;
}

TEST(ShortageTexts, name_the_task_and_the_place_of_its_submit_once) {
    Filled f(small_config(4 * mib, 4 * mib), mib / 4, 12);
    const auto failed = failures_of(f.rt, f.events);
    ASSERT_FALSE(failed.empty());
    for (const auto& error : failed) {
        const std::string text = error->what();
        const std::string first = text.substr(0, text.find('\n'));
        EXPECT_EQ(first.find("task \"fill\""), 0U) << text;
        if (has_report(*error)) {
            EXPECT_EQ(first.rfind("task \"fill\""), 0U) << text;
        }
        EXPECT_EQ(text.find("submitted at"), text.rfind("submitted at")) << text;
        const std::string cause = cause_of(*error)->what();
        EXPECT_EQ(cause.find("task \"fill\" chunk 0 of 1 found no memory on virtual GPU 0: needs 1.00 MiB"), 0U)
            << cause;
        EXPECT_NE(cause.find("\n  submitted at shortage_texts_test.cpp:"), std::string::npos) << cause;
    }
}

TEST(ShortageTexts, failures_before_any_memory_was_freed_share_one_report) {
    Filled f(small_config(4 * mib, 4 * mib), mib / 4, 14);
    const auto failed = failures_of(f.rt, f.events);
    ASSERT_GE(failed.size(), 3U);
    const std::string report = cause_of(*failed.front())->report();
    EXPECT_NE(report.find("\n  memory: "), std::string::npos) << report;
    int with_report = 0;
    for (const auto& error : failed) {
        with_report += has_report(*error) ? 1 : 0;
        const auto cause = cause_of(*error);
        EXPECT_EQ(cause->report(), report);
        EXPECT_EQ(cause->requested(), mib);
        EXPECT_EQ(cause->memory(), MemoryId(DeviceId(0)));
        if (has_report(*error)) continue;
        EXPECT_TRUE(says(*error, "found no memory on virtual GPU 0: needs 1.00 MiB (1048576 bytes), and none was freed "
                                 "since task \"fill\" chunk 0 of 1 found none, whose report says more"))
            << error->what();
    }
    EXPECT_EQ(with_report, 1);
}

TEST(ShortageTexts, a_failure_after_memory_was_freed_has_a_report_of_its_own) {
    Filled f(small_config(4 * mib, 4 * mib), mib / 4, 12);
    const std::string first = report_of(failures_of(f.rt, f.events));
    EXPECT_NE(first.find("| block "), std::string::npos) << first;
    f.arrays.clear();
    f.events.clear();
    for (int i = 0; i < 12; i++) {
        f.arrays.push_back(f.rt.array<float>(mib / 4).named("new " + std::to_string(i)));
        f.events.push_back(f.rt.submit(device(0), GPU(nothing_on_device).named("again"), overwrite(f.arrays.back())));
    }
    const std::string second = report_of(failures_of(f.rt, f.events));
    EXPECT_NE(second.find("new "), std::string::npos) << second;
    EXPECT_EQ(second.find("block "), std::string::npos) << second;
    expect_adds_up(second);
}
