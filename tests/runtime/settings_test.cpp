// Settings at the border of what makes sense: what a runtime does with them.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <mutex>

#include "harness.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // their shadow memory is larger than any limit
#else
constexpr bool sanitized = false;
#endif

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The log's messages while it lives.
class Log {
  public:
    Log() { kmm::set_log_handler(note, this); }
    ~Log() { kmm::set_log_handler(nullptr, nullptr); }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    std::vector<std::string> lines() {
        std::lock_guard<std::mutex> guard(mutex_);
        return lines_;
    }

  private:
    static void note(int, const char* text, void* user) {
        auto& log = *static_cast<Log*>(user);
        std::lock_guard<std::mutex> guard(log.mutex_);
        log.lines_.emplace_back(text);
    }
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

TEST(Settings, seconds_below_zero_and_nan_are_refused_with_name_and_value) {
    KMM_NEED_DEVICES(1);
    const std::pair<double, const char*> bad[] = {
        {-1, "-1"}, {-infinity, "-inf"}, {std::numeric_limits<double>::quiet_NaN(), "nan"}, {-1e-300, "-0"}};
    for (const auto& [value, text] : bad) {
        for (const bool watchdog : {true, false}) {
            RuntimeConfig config = config_with(1);
            (watchdog ? config.watchdog : config.memory_wait) = value;
            const auto error = thrown_by<kmm::InvalidArgument>([&] { kmm::make_runtime(config); });
            ASSERT_NE(error, nullptr) << value;
            EXPECT_TRUE(says(*error, std::string(watchdog ? "watchdog" : "memory_wait") + " is " + text))
                << error->what();
        }
    }
}

TEST(Settings, a_watchdog_of_more_seconds_than_a_clock_can_count_never_barks) {
    KMM_NEED_DEVICES(1);
    for (const double seconds : {1e9, 1e10, 1e300, infinity}) {
        Log log;
        RuntimeConfig config = config_with(1);
        config.watchdog = seconds;
        config.memory_wait = seconds;
        const RuntimeHandle rt = kmm::make_runtime(config);
        const Gate gate;
        const OpenAtEnd open_at_end(gate);
        const EventId event = rt.submit(host(), Host([=] { gate.wait(); }));
        EXPECT_FALSE(rt.wait_for(event, std::chrono::milliseconds(20)));
        gate.open();
        rt.wait(event);
        EXPECT_TRUE(log.lines().empty()) << seconds << ": " << log.lines().front();
    }
}

TEST(Settings, more_host_threads_than_4096_are_refused) {
    KMM_NEED_DEVICES(1);
    for (const std::size_t threads : {std::size_t{4097}, std::size_t{40000}, std::numeric_limits<std::size_t>::max()}) {
        RuntimeConfig config = config_with(1);
        config.host_threads = threads;
        const auto error = thrown_by<kmm::InvalidArgument>([&] { kmm::make_runtime(config); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "host_threads is " + std::to_string(threads))) << error->what();
        EXPECT_TRUE(says(*error, "4096")) << error->what();
    }
}

/// Address space in use now.
rlim_t address_space() {
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// Ends the process: 0 if all was right.
[[noreturn]] void run_where_threads_are_scarce() {
    RuntimeConfig config = config_with(1);
    config.host_threads = kmm::MAX_HOST_THREADS;
    { const RuntimeHandle before = kmm::make_runtime(config_with(1)); }
    Log log;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    const rlim_t unlimited = limit.rlim_cur;
    limit.rlim_cur = address_space() + (rlim_t{2} << 30);  // room for stacks of some hundred threads
    setrlimit(RLIMIT_AS, &limit);
    const RuntimeHandle rt = kmm::make_runtime(config);
    limit.rlim_cur = unlimited;
    setrlimit(RLIMIT_AS, &limit);
    if (log.lines().size() != 1) std::exit(2);
    if (log.lines()[0].find("threads instead of 4096 (KMM_HOST_THREADS)") == std::string::npos) std::exit(3);
    const std::uint64_t threads = rt.stats().threads_started;
    if (threads < 4 || threads >= kmm::MAX_HOST_THREADS) std::exit(4);
    std::atomic<int> sum{0};
    for (int i = 0; i < 1000; i++) rt.submit(host(), Host([&] { sum++; }));
    rt.synchronize();
    std::exit(sum == 1000 ? 0 : 5);
}

// In a process of its own: the limit is the process's.
TEST(Settings, a_system_that_gives_fewer_threads_makes_the_pool_smaller_with_a_warning) {
    if (sanitized || driver_under_test() != kmm::DriverKind::Host)
        GTEST_SKIP() << "limits the address space, of which sanitizers and the vendor's driver take much more";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(run_where_threads_are_scarce(), testing::ExitedWithCode(0), "");
}

}  // namespace
