// <rmm/mr/logging_resource_adaptor.hpp>: what the log says, in which order, and when it is written.
#include "rmm/mr/device/logging_resource_adaptor.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/utilities/log_parser.hpp"
#include "fake_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "temporary_folder.hpp"

template class rmm::mr::logging_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using rmm::detail::action;
using rmm::detail::event;
using rmm::detail::parse_csv;
using rmm::mr::cuda_memory_resource;
using rmm_test::at;
using rmm_test::fake_resource;
using rmm_test::lines_of;
using rmm_test::temporary_folder;
using logging = rmm::mr::logging_resource_adaptor<cuda_memory_resource>;
using logging_fake = rmm::mr::logging_resource_adaptor<fake_resource>;

static_assert(std::is_nothrow_move_constructible_v<logging> && std::is_nothrow_move_assignable_v<logging>);
static_assert(!std::is_copy_constructible_v<logging> && !std::is_default_constructible_v<logging>);
static_assert(std::is_final_v<logging>);

TEST(LoggingAdaptor, writes_exactly_the_format_of_rmm) {
    temporary_folder folder;
    fake_resource upstream;
    upstream.answers = {0x19b29300, 0xabcdef00};
    const rmm::cuda_stream_view stream{reinterpret_cast<cudaStream_t>(0x7f00aa)};
    {
        logging_fake mr{&upstream, folder / "log.csv"};
        EXPECT_EQ(mr.header(), "Thread,Time,Action,Pointer,Size,Stream");
        void* const a = mr.allocate(100);
        void* const b = mr.allocate(1, stream);
        mr.deallocate(b, 1, rmm::cuda_stream_legacy);
        mr.deallocate(a, 100, rmm::cuda_stream_per_thread);
        mr.deallocate(nullptr, 7);
    }
    std::vector<std::string> lines = lines_of(folder / "log.csv");
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
    const std::string thread = std::to_string(gettid());
    const std::array<std::string, 5> events = {",allocate,0x19b29300,100,0", ",allocate,0xabcdef00,1,0x7f00aa",
                                               ",free,0xabcdef00,1,0x1", ",free,0x19b29300,100,0x2", ",free,(nil),7,0"};
    for (std::size_t i = 0; i < events.size(); ++i)
        EXPECT_TRUE(
            std::regex_match(lines[i + 1], std::regex(thread + ",[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}" +
                                                      std::regex_replace(events[i], std::regex("[()]"), "\\$&"))))
            << lines[i + 1];
}

TEST(LoggingAdaptor, the_time_is_local_and_of_the_event) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    const auto second_of_day = [] {
        const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
        const std::tm local = *std::localtime(&now);
        return 3600 * local.tm_hour + 60 * local.tm_min + local.tm_sec;
    };
    const int before = second_of_day();
    {
        logging mr{&cuda, folder / "log.csv"};
        mr.deallocate(mr.allocate(1), 1);
    }
    const int after = second_of_day();
    const auto lines = lines_of(folder / "log.csv");
    ASSERT_EQ(lines.size(), 3u);
    for (const std::string& line : {lines[1], lines[2]}) {
        int hour = 0, minute = 0, second = 0;
        ASSERT_EQ(std::sscanf(line.c_str(), "%*d,%2d:%2d:%2d.", &hour, &minute, &second), 3);
        const int logged = 3600 * hour + 60 * minute + second;
        if (before <= after) {  // else it is midnight
            EXPECT_GE(logged, before);
            EXPECT_LE(logged, after);
        }
    }
}

void use(rmm::mr::device_memory_resource& mr) {
    void* const a = mr.allocate(100);
    void* const b = mr.allocate(42);
    mr.deallocate(a, 100);
    mr.deallocate(b, 42);
}

void expect_use(const std::string& filename) {
    const auto events = parse_csv(filename);
    ASSERT_EQ(events.size(), 4u);
    const std::uintptr_t a = events[0].pointer;
    const std::uintptr_t b = events[1].pointer;
    EXPECT_EQ(events[0], (event{action::ALLOCATE, 100, a}));
    EXPECT_EQ(events[1], (event{action::ALLOCATE, 42, b}));
    EXPECT_EQ(events[2], (event{action::FREE, 100, a}));
    EXPECT_EQ(events[3], (event{action::FREE, 42, b}));
    EXPECT_NE(a, b);
}

TEST(LoggingAdaptor, logs_into_a_file_that_it_empties_and_folders_that_it_makes) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    for (int i = 0; i < 2; ++i) {
        rmm::mr::logging_resource_adaptor mr{&cuda, folder / "a/b/log.csv"};
        use(mr);
        mr.flush();
        expect_use(folder / "a/b/log.csv");
    }
    EXPECT_THROW((logging{&cuda, "/proc/no/such/file"}), std::runtime_error);
}

TEST(LoggingAdaptor, logs_into_every_sink) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    {
        logging mr{&cuda,
                   {std::make_shared<rapids_logger::basic_file_sink_mt>(folder / "1.csv"),
                    std::make_shared<rapids_logger::basic_file_sink_mt>(folder / "2.csv")}};
        use(mr);
    }
    expect_use(folder / "1.csv");
    EXPECT_EQ(lines_of(folder / "1.csv"), lines_of(folder / "2.csv"));
    EXPECT_THROW((logging{&cuda, {rapids_logger::sink_ptr{}}}), std::invalid_argument);
}

std::vector<std::string> callback_lines;

TEST(LoggingAdaptor, a_callback_gets_a_line_at_a_time_from_the_thread_that_allocates) {
    fake_resource upstream;
    callback_lines.clear();
    logging_fake mr{&upstream, {std::make_shared<rapids_logger::callback_sink_mt>([](int level, const char* line) {
                        EXPECT_EQ(level, RAPIDS_LOGGER_LOG_LEVEL_INFO);
                        callback_lines.emplace_back(line);
                    })}};
    mr.deallocate(mr.allocate(5), 5);
    ASSERT_EQ(callback_lines.size(), 3u);
    EXPECT_EQ(callback_lines[0], mr.header() + "\n");
    EXPECT_EQ(callback_lines[2].substr(callback_lines[2].find(",free")), ",free,0x100000,5,0\n");
}

TEST(LoggingAdaptor, a_stream_of_the_program_has_each_line_when_the_call_returns) {
    fake_resource upstream;
    std::ostringstream out;
    logging_fake mr{&upstream, out};
    EXPECT_EQ(out.str(), mr.header() + "\n");
    void* const ptr = mr.allocate(5);
    EXPECT_NE(out.str().find(",allocate,0x100000,5,0\n"), std::string::npos);
    mr.deallocate(ptr, 5);
    EXPECT_NE(out.str().find(",free,0x100000,5,0\n"), std::string::npos);
}

TEST(LoggingAdaptor, writes_its_header_first_on_stdout_and_stderr) {
    cuda_memory_resource cuda;
    const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
    testing::internal::CaptureStdout();
    {
        logging mr{&cuda, std::cout, true};
        use(mr);
        EXPECT_EQ(first_line(testing::internal::GetCapturedStdout()), mr.header());
    }
    testing::internal::CaptureStderr();
    logging mr{&cuda, std::cerr, true};
    use(mr);
    EXPECT_EQ(first_line(testing::internal::GetCapturedStderr()), mr.header());
}

TEST(LoggingAdaptor, takes_its_file_from_the_environment) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    unsetenv("RMM_LOG_FILE");
    EXPECT_THROW((logging{&cuda}), rmm::logic_error);
    EXPECT_THROW((void)logging::get_default_filename(), rmm::logic_error);
    EXPECT_THROW((void)rmm::mr::make_logging_adaptor(&cuda), rmm::logic_error);
    setenv("RMM_LOG_FILE", (folder / "log.csv").c_str(), 1);
    {
        logging mr{&cuda};
        use(mr);
    }
    expect_use(folder / "log.csv");
    {
        auto mr = rmm::mr::make_logging_adaptor(&cuda);
        use(mr);
    }
    expect_use(folder / "log.csv");
    unsetenv("RMM_LOG_FILE");
}

TEST(LoggingAdaptor, a_failure_is_a_row_and_passes_through) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    constexpr std::size_t TiB = std::size_t{1} << 40;
    std::uintptr_t address = 0;
    {
        logging mr{&cuda, folder / "log.csv"};
        void* const ptr = mr.allocate(99);
        address = reinterpret_cast<std::uintptr_t>(ptr);
        mr.deallocate(ptr, 99);
        EXPECT_THROW((void)mr.allocate(TiB), rmm::out_of_memory);
    }
    const auto events = parse_csv(folder / "log.csv");
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0], (event{action::ALLOCATE, 99, address}));
    EXPECT_EQ(events[1], (event{action::FREE, 99, address}));
    EXPECT_EQ(events[2], (event{action::ALLOCATE_FAILURE, TiB, nullptr}));
}

TEST(LoggingAdaptor, any_exception_of_upstream_is_a_failure) {
    fake_resource upstream;
    upstream.before_allocate = [] { throw 5; };
    std::ostringstream out;
    logging_fake mr{&upstream, out};
    EXPECT_THROW((void)mr.allocate(8), int);
    EXPECT_NE(out.str().find(",allocate failure,(nil),8,0\n"), std::string::npos) << out.str();
}

TEST(LoggingAdaptor, a_free_is_logged_before_upstream_has_the_memory) {
    fake_resource upstream;
    std::ostringstream out;
    logging_fake mr{&upstream, out};
    upstream.before_free = [&] { EXPECT_NE(out.str().find(",free,"), std::string::npos); };
    upstream.before_allocate = [&] { EXPECT_EQ(out.str().find(",allocate,"), std::string::npos); };
    mr.deallocate(mr.allocate(8), 8);
    EXPECT_EQ(upstream.frees.size(), 1u);
}

TEST(LoggingAdaptor, with_auto_flush_each_line_is_in_the_file_when_the_call_returns) {
    temporary_folder folder;
    fake_resource upstream;
    logging_fake mr{&upstream, folder / "log.csv", true};
    EXPECT_EQ(lines_of(folder / "log.csv").size(), 1u);
    void* const ptr = mr.allocate(8);
    EXPECT_EQ(lines_of(folder / "log.csv").size(), 2u);
    mr.deallocate(ptr, 8);
    EXPECT_EQ(lines_of(folder / "log.csv").size(), 3u);
}

TEST(LoggingAdaptor, flush_writes_everything_so_far) {
    temporary_folder folder;
    fake_resource upstream;
    logging_fake mr{&upstream, folder / "log.csv"};
    for (std::size_t n = 1; n < 300; n += 7) {
        for (std::size_t i = 0; i < n; ++i) (void)mr.allocate(i);
        mr.flush();
        EXPECT_EQ(lines_of(folder / "log.csv").size(), 1 + upstream.allocations.size());
    }
}

TEST(LoggingAdaptor, a_file_falls_behind_for_a_moment_only) {
    temporary_folder folder;
    fake_resource upstream;
    logging_fake mr{&upstream, folder / "log.csv"};
    for (int round = 0; round < 2; ++round) {  // the second finds a writer that sleeps
        (void)mr.allocate(8);
        while (lines_of(folder / "log.csv").size() < 1 + upstream.allocations.size()) std::this_thread::yield();
    }
}

TEST(LoggingAdaptor, nothing_is_lost_when_the_program_is_faster_than_the_file) {
    constexpr std::size_t num_requests = 100000;  // several times what the log holds back
    temporary_folder folder;
    {
        fake_resource upstream;
        logging_fake mr{&upstream, folder / "log.csv"};
        for (std::size_t i = 0; i < num_requests; ++i) mr.deallocate(at(256), i);
    }
    const auto events = parse_csv(folder / "log.csv");
    ASSERT_EQ(events.size(), num_requests);
    for (std::size_t i = 0; i < num_requests; ++i) ASSERT_EQ(events[i], (event{action::FREE, i, at(256)}));
}

TEST(LoggingAdaptor, lines_of_many_threads_are_in_an_order_that_can_have_happened) {
    constexpr std::size_t num_threads = 8;
    constexpr std::size_t num_rounds = 4000;
    temporary_folder folder;
    {
        cuda_memory_resource cuda;
        rmm::mr::pool_memory_resource<cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 20};
        rmm::mr::logging_resource_adaptor<rmm::mr::pool_memory_resource<cuda_memory_resource>> mr{&pool,
                                                                                                  folder / "log.csv"};
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < num_threads; ++t)
            threads.emplace_back([&mr, t] {
                for (std::size_t i = 0; i < num_rounds; ++i) {
                    void* const ptr = mr.allocate(256 * (1 + t));
                    if (i % 1000 == 0) mr.flush();
                    mr.deallocate(ptr, 256 * (1 + t));
                }
            });
        for (std::thread& t : threads) t.join();
    }
    const auto events = parse_csv(folder / "log.csv");
    ASSERT_EQ(events.size(), 2 * num_threads * num_rounds);
    std::map<std::uintptr_t, std::size_t> live;
    std::map<std::size_t, std::size_t> events_of_thread;
    for (const event& e : events) {
        ++events_of_thread[e.thread_id];
        if (e.act == action::ALLOCATE) {
            // A recycled address appears after its free.
            ASSERT_TRUE(live.emplace(e.pointer, e.size).second) << e;
        } else {
            ASSERT_EQ(live.count(e.pointer), 1u) << e;
            ASSERT_EQ(live[e.pointer], e.size);
            live.erase(e.pointer);
        }
    }
    EXPECT_TRUE(live.empty());
    EXPECT_EQ(events_of_thread.size(), num_threads);
    for (const auto& [thread, count] : events_of_thread) EXPECT_EQ(count, 2 * num_rounds);
}

TEST(LoggingAdaptor, threads_may_share_a_stream_of_the_program) {
    std::ostringstream out;
    {
        cuda_memory_resource cuda;
        logging mr{&cuda, out};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&mr] {
                for (int i = 0; i < 200; ++i) mr.deallocate(mr.allocate(8), 8);
            });
        for (std::thread& t : threads) t.join();
    }
    const std::string text = out.str();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 4 * 400);
}

TEST(LoggingAdaptor, moves_with_its_log) {
    temporary_folder folder;
    cuda_memory_resource cuda;
    {
        logging first{&cuda, folder / "1.csv"};
        void* const a = first.allocate(100);
        logging second{std::move(first)};
        void* const b = second.allocate(42);
        logging third{&cuda, folder / "2.csv"};
        third = std::move(second);
        EXPECT_EQ(third.get_upstream(), &cuda);
        third.deallocate(a, 100);
        third.deallocate(b, 42);
    }
    expect_use(folder / "1.csv");
    EXPECT_EQ(lines_of(folder / "2.csv").size(), 1u);
}

TEST(LoggingAdaptor, a_sink_that_throws_is_reported_once_and_does_not_disturb) {
    struct throwing_sink final : rapids_logger::sink {
        void do_write(rapids_logger::level_enum, std::string_view lines) override {
            if (lines.find("Thread,") != 0) throw std::runtime_error("the disk is full");
        }
        void do_flush() override { throw 5; }
    };
    fake_resource upstream;
    testing::internal::CaptureStderr();
    {
        logging_fake mr{&upstream, {std::make_shared<throwing_sink>()}};
        mr.deallocate(mr.allocate(8), 8);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "rmm: a sink of a logging adaptor failed: the disk is full\n");
    EXPECT_EQ(upstream.frees.size(), 1u);
}

TEST(LoggingAdaptor, a_file_that_cannot_be_written_is_reported_once) {
    if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
    fake_resource upstream;
    testing::internal::CaptureStderr();
    {
        logging_fake mr{&upstream, "/dev/full", true};
        mr.deallocate(mr.allocate(8), 8);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "rmm: could not write to the log file '/dev/full': No space left on device\n");
}

// ---- processes that fork or end

/// Takes every address from every thread.
class careless_resource final : public rmm::mr::device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return at(256); }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};

/// From then on the thread of the log is there, and sleeps or writes.
void wait_for_a_line(const std::string& filename) {
    const std::size_t header_bytes = lines_of(filename).at(0).size() + 1;
    while (std::filesystem::file_size(filename) <= header_bytes) std::this_thread::yield();
}

void expect_success(pid_t child) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(LoggingAdaptorProcess, a_forked_child_goes_on_and_repeats_nothing) {
    constexpr std::size_t num_requests = 20000;  // more than the log holds back
    temporary_folder folder;
    std::size_t num_of_others = 0;
    {
        careless_resource upstream;
        rmm::mr::logging_resource_adaptor mr{&upstream, folder / "log.csv"};
        for (std::size_t i = 0; i < 10; ++i) mr.deallocate(at(256), i);
        wait_for_a_line(folder / "log.csv");
        std::atomic<bool> stop{false};
        std::thread other([&] {  // has its places in the ring when the process forks
            for (; !stop; ++num_of_others) mr.deallocate(at(512), 1);
        });
        for (std::size_t i = 10; i < 100; ++i) mr.deallocate(at(256), i);
        const pid_t child = fork();
        if (child == 0) {
            for (std::size_t i = 0; i < num_requests; ++i) mr.deallocate(at(1024), i);
            mr.flush();
            _exit(0);
        }
        for (std::size_t i = 100; i < 200; ++i) mr.deallocate(at(256), i);
        expect_success(child);
        stop = true;
        other.join();
    }
    std::map<std::uintptr_t, std::vector<std::size_t>> sizes;
    std::map<std::uintptr_t, std::size_t> thread_of;
    for (const event& e : parse_csv(folder / "log.csv")) {
        sizes[e.pointer].push_back(e.size);
        thread_of[e.pointer] = e.thread_id;
    }
    EXPECT_EQ(sizes[512].size(), num_of_others);
    ASSERT_EQ(sizes[256].size(), 200u);
    for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(sizes[256][i], i);
    ASSERT_EQ(sizes[1024].size(), num_requests);
    for (std::size_t i = 0; i < num_requests; ++i) ASSERT_EQ(sizes[1024][i], i);
    EXPECT_NE(thread_of[1024], thread_of[256]);
}

TEST(LoggingAdaptorProcess, a_child_may_destroy_its_copy) {
    temporary_folder folder;
    careless_resource upstream;
    using logging_careless = rmm::mr::logging_resource_adaptor<careless_resource>;
    auto mr = std::make_optional<logging_careless>(&upstream, folder / "log.csv");
    (void)mr->allocate(1);
    wait_for_a_line(folder / "log.csv");
    (void)mr->allocate(2);
    const pid_t child = fork();
    if (child == 0) {
        (void)mr->allocate(3);
        mr.reset();
        _exit(0);
    }
    expect_success(child);
    mr.reset();
    std::vector<std::size_t> sizes;
    for (const event& e : parse_csv(folder / "log.csv")) sizes.push_back(e.size);
    std::sort(sizes.begin(), sizes.end());
    EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 2, 3}));
}

TEST(LoggingAdaptorProcess, exit_writes_what_a_log_that_is_never_destroyed_holds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "at exit a sanitizer looks for the threads of the parent, which a child of fork does not have";
#endif
    temporary_folder folder;
    const pid_t child = fork();
    if (child == 0) {
        static auto* const upstream = new fake_resource;
        static auto* const mr = new logging_fake(upstream, folder / "log.csv");
        struct at_the_end {
            ~at_the_end() { (void)mr->allocate(3); }
        };
        (void)mr->allocate(1);
        (void)std::atexit([] { (void)mr->allocate(2); });
        static const at_the_end last;
        std::exit(0);
    }
    expect_success(child);
    EXPECT_EQ(parse_csv(folder / "log.csv").size(), 3u);
}

TEST(LoggingAdaptorProcess, exit_does_not_touch_a_stream_that_is_gone) {
    const pid_t child = fork();
    if (child == 0) {
        struct flagged_stream : std::ostringstream {
            struct buffer : std::stringbuf {
                bool gone = false;
                int sync() override {
                    if (gone) _exit(1);
                    return 0;
                }
            } flagged;
            flagged_stream() { static_cast<std::ios&>(*this).rdbuf(&flagged); }
        };
        static auto* const stream = new flagged_stream;
        static auto* const upstream = new careless_resource;
        static auto* const mr = new rmm::mr::logging_resource_adaptor<careless_resource>(upstream, *stream);
        (void)mr->allocate(1);
        (void)std::atexit([] { stream->flagged.gone = true; });  // before the handlers of the library
        std::exit(0);
    }
    expect_success(child);
}

}  // namespace
