// <rapids_logger/logger.hpp>, <rmm/logger.hpp> and the macros, compiled with every level.
#define RMM_LOG_ACTIVE_LEVEL RAPIDS_LOGGER_LOG_LEVEL_TRACE
#include "rmm/logger.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "asleep.hpp"
#include "forked.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace rapids_logger;
using rmm_test::lines_of;
using rmm_test::temporary_folder;

static_assert(std::is_nothrow_move_constructible_v<logger> && std::is_nothrow_move_assignable_v<logger>);
static_assert(!std::is_copy_constructible_v<logger> && !std::is_default_constructible_v<logger>);
static_assert(static_cast<int>(level_enum::trace) == 0 && static_cast<int>(level_enum::n_levels) == 7);
static_assert(level_enum::info < level_enum::warn && level_enum::off >= level_enum::critical);
static_assert(RMM_LOG_LEVEL_WARN == RAPIDS_LOGGER_LOG_LEVEL_WARN && RMM_LOG_LEVEL_OFF == 6);

TEST(Logger, starts_at_info_and_flushes_only_when_asked) {
    std::ostringstream out;
    logger log("test", out);
    EXPECT_EQ(log.level(), level_enum::info);
    EXPECT_EQ(log.flush_level(), level_enum::off);
    EXPECT_FALSE(log.should_log(level_enum::debug));
    EXPECT_TRUE(log.should_log(level_enum::info));
    EXPECT_FALSE(log.should_log(level_enum::off));
}

TEST(Logger, a_message_without_arguments_is_not_interpreted) {
    std::ostringstream out;
    logger log("test", out);
    log.set_pattern("%v");
    log.log(level_enum::info, std::string("100%s %d %n"));
    log.log(level_enum::info, "50%s");
    log.info("25%s");
    log.info(std::string("12%s"));
    EXPECT_EQ(out.str(), "100%s %d %n\n50%s\n25%s\n12%s\n");
}

TEST(Logger, formats_as_printf_and_takes_strings) {
    std::ostringstream out;
    logger log("test", out);
    log.set_pattern("%v");
    const std::string name = "pool";
    const char buffer[] = "text";
    log.log(level_enum::info, std::string("%s %zu %5.1f %s %c"), name, std::size_t{7}, 2.25, "literal", 'c');
    log.warn("%s %p", buffer, static_cast<void*>(nullptr));
    log.error("%s", std::string(1000, 'x'));
    EXPECT_EQ(out.str(), "pool 7   2.2 literal c\ntext (nil)\n" + std::string(1000, 'x') + "\n");
}

TEST(Logger, a_pattern_says_what_a_line_looks_like) {
    std::ostringstream out;
    logger log("name", out);
    log.set_level(level_enum::trace);
    log.set_pattern("[%-6l][%9l][%=8l]%n %% %q %v%");
    log.trace("a");
    log.warn("b");
    EXPECT_EQ(out.str(), "[trace ][    trace][ trace  ]name % %q a%\n[warning][  warning][warning ]name % %q b%\n");
    out.str("");
    log.set_pattern("%t %P %Y-%m-%d %H:%M:%S.%f");
    log.critical("");
    long thread = 0;
    long process = 0;
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, micros = 0;
    ASSERT_EQ(std::sscanf(out.str().c_str(), "%ld %ld %4d-%2d-%2d %2d:%2d:%2d.%6d\n", &thread, &process, &year, &month,
                          &day, &hour, &minute, &second, &micros),
              9);
    EXPECT_EQ(thread, gettid());
    EXPECT_EQ(process, getpid());
    EXPECT_GE(year, 2024);
}

TEST(Logger, levels_have_the_names_of_the_original) {
    std::ostringstream out;
    logger log("test", out);
    log.set_level(level_enum::trace);
    log.set_pattern("%l");
    log.trace("");
    log.debug("");
    log.info("");
    log.warn("");
    log.error("");
    log.critical("");
    log.log(level_enum::off, "");
    EXPECT_EQ(out.str(), "trace\ndebug\ninfo\nwarning\nerror\ncritical\n");
}

TEST(Logger, what_is_below_its_level_is_not_logged) {
    std::ostringstream out;
    logger log("test", out);
    log.set_pattern("%v");
    log.debug("no");
    {
        log_level_setter quieter(log, level_enum::error);
        log.warn("no");
        log.error("1");
    }
    log.set_level(level_enum::debug);
    log.debug("2");
    log.set_level(level_enum::off);
    log.critical("no");
    EXPECT_EQ(out.str(), "1\n2\n");
}

enum old_level { old_debug = 1, old_off = 6 };

TEST(Logger, takes_the_levels_of_older_programs) {
    std::ostringstream out;
    logger log("test", out);
    log.set_level(old_debug);
    EXPECT_EQ(log.level(), level_enum::debug);
    log.set_level(old_off);
    EXPECT_EQ(log.level(), level_enum::off);
}

TEST(Logger, its_sinks_stay_attached_when_it_moves) {
    std::ostringstream first;
    std::ostringstream second;
    logger original("test", first);
    original.set_pattern("%v");
    logger::sink_vector& sinks = original.sinks();
    logger moved(std::move(original));
    sinks.push_back(std::make_shared<ostream_sink_mt>(second));
    EXPECT_EQ(&moved.sinks(), &sinks);
    moved.info("both");
    moved.sinks().pop_back();
    moved.info("one");
    logger assigned("other", std::vector<sink_ptr>{});
    assigned = std::move(moved);
    EXPECT_EQ(assigned.sinks().end() - assigned.sinks().begin(), 1);
    assigned.sinks().clear();
    assigned.info("none");
    EXPECT_EQ(first.str(), "both\none\n");
    EXPECT_EQ(second.str(), "both\n");
}

TEST(Logger, refuses_a_null_sink) {
    EXPECT_THROW(logger("test", std::vector<sink_ptr>{nullptr}), std::invalid_argument);
    std::ostringstream out;
    logger log("test", out);
    EXPECT_THROW(log.sinks().push_back(nullptr), std::invalid_argument);
}

TEST(Logger, a_file_is_emptied_and_its_folders_are_made) {
    temporary_folder folder;
    const std::string name = folder / "a/b/log.txt";
    for (const char* text : {"first", "second"}) {
        logger log("test", name);
        log.set_pattern("%v");
        log.info(text);
    }
    EXPECT_EQ(lines_of(name), (std::vector<std::string>{"second"}));
    {
        logger log("test", {std::make_shared<basic_file_sink_mt>(name), std::make_shared<null_sink_mt>()});
        log.set_pattern("%v");
        log.info("third");
    }
    EXPECT_EQ(lines_of(name), (std::vector<std::string>{"second", "third"}));
}

TEST(Logger, a_file_that_cannot_be_opened_is_an_exception_with_its_name) {
    try {
        logger log("test", std::string("/proc/no/such/file"));
        FAIL() << "it was opened";
    } catch (const std::exception& e) {
        EXPECT_NE(std::string(e.what()).find("/proc/no/such/file"), std::string::npos) << e.what();
    }
}

TEST(Logger, a_file_holds_lines_back_until_they_are_flushed) {
    temporary_folder folder;
    const std::string name = folder / "log.txt";
    logger log("test", name);
    log.set_pattern("%v");
    log.info("one");
    EXPECT_EQ(lines_of(name).size(), 0u);
    log.flush();
    EXPECT_EQ(lines_of(name).size(), 1u);
    log.flush_on(level_enum::warn);
    log.info("two");
    EXPECT_EQ(lines_of(name).size(), 1u);
    log.warn("three");
    EXPECT_EQ(lines_of(name).size(), 3u);
}

std::vector<std::string> logged_lines;
int num_flushes = 0;

logger* logger_of_callback = nullptr;

TEST(Logger, a_callback_may_log_through_the_logger_that_calls_it) {
    logged_lines.clear();
    const auto sink = std::make_shared<callback_sink_mt>(
        [](int, const char* line) {
            logged_lines.push_back(line);
            if (logged_lines.size() == 1) logger_of_callback->info("inner");
            logged_lines.push_back("end");
        },
        [] { logged_lines.push_back("flush"); });
    logger with("test", {sink});
    logger_of_callback = &with;
    with.set_pattern("%v");
    with.info("outer");
    with.flush();
    EXPECT_EQ(logged_lines, (std::vector<std::string>{"outer\n", "end", "inner\n", "end", "flush"}));
}

TEST(Logger, a_callback_that_throws_throws_to_whoever_logged_and_the_next_line_comes) {
    logged_lines.clear();
    const auto sink = std::make_shared<callback_sink_mt>([](int, const char* line) {
        logged_lines.push_back(line);
        if (logged_lines.size() == 1) throw std::runtime_error("no");
    });
    logger with("test", {sink});
    with.set_pattern("%v");
    EXPECT_THROW(with.info("first"), std::runtime_error);
    with.info("second");
    EXPECT_EQ(logged_lines, (std::vector<std::string>{"first\n", "second\n"}));
}

TEST(Logger, a_callback_gets_level_and_line) {
    logged_lines.clear();
    const auto sink = std::make_shared<callback_sink_mt>(
        [](int level, const char* line) { logged_lines.push_back(std::to_string(level) + " " + line); },
        [] { ++num_flushes; });
    logger log("test", std::vector<sink_ptr>{sink});
    log.set_pattern("%l: %v");
    log.error("message");
    log.flush();
    EXPECT_EQ(logged_lines, (std::vector<std::string>{"4 error: message\n"}));
    EXPECT_EQ(num_flushes, 1);
    logger without("test", {std::make_shared<callback_sink_mt>(nullptr)});
    without.error("nobody listens");
    without.flush();
}

TEST(Logger, threads_write_whole_lines) {
    std::ostringstream out;
    logger log("test", out);
    log.set_pattern("%v");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&log, t] {
            for (int i = 0; i < 500; ++i) log.info("thread %d line %d", t, i);
        });
    for (int i = 0; i < 100; ++i) {
        log.sinks().push_back(std::make_shared<null_sink_mt>());
        log.sinks().pop_back();
    }
    for (std::thread& t : threads) t.join();
    std::istringstream in(out.str());
    std::string word;
    int num_lines = 0;
    int thread = 0;
    int line = 0;
    while (in >> word >> thread >> word >> line) ++num_lines;
    EXPECT_EQ(num_lines, 2000);
}

TEST(Logger, a_forked_child_repeats_nothing_and_can_log) {
    temporary_folder folder;
    const std::string name = folder / "log.txt";
    logger log("test", name);
    log.set_pattern("%v");
    log.info("parent");
    const pid_t child = fork();
    if (child == 0) {
        log.info("child");
        log.flush();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    log.info("parent again");
    log.flush();
    EXPECT_EQ(lines_of(name), (std::vector<std::string>{"parent", "child", "parent again"}));
}

#if !defined(__SANITIZE_THREAD__)  // it has no threads in the child of a process with threads
std::atomic<int> num_calls{0};
std::atomic<bool> is_open{false};

/// A thread is in a callback, and another waits for its turn there.
template<typename Meanwhile>
void log_beside_a_callback_that_blocks(const sink_ptr& callback, Meanwhile meanwhile) {
    is_open = false;
    num_calls = 0;
    std::thread first([&callback] { callback->write(level_enum::info, "first\n"); });
    num_calls.wait(0);
    kmm::test::Sleepyhead sleepyhead;
    std::thread second([&] {
        sleepyhead.here();
        callback->write(level_enum::info, "second\n");
    });
    sleepyhead.wait_until_asleep();
    meanwhile();
    is_open = true;
    is_open.notify_all();
    first.join();
    second.join();
}

TEST(CallbackSink, gives_turns_in_the_child_of_a_fork_though_somebody_waited_for_one_in_the_parent) {
    const sink_ptr callback = std::make_shared<callback_sink_mt>([](int, const char*) {
        ++num_calls;
        num_calls.notify_all();
        is_open.wait(false);
    });
    std::string wrong = "no fork";
    log_beside_a_callback_that_blocks(callback, [&] {
        wrong = kmm::test::in_child([&] {
            for (int i = 0; i < 4; ++i) log_beside_a_callback_that_blocks(callback, [] {});
            return "";
        });
    });
    EXPECT_EQ(wrong, "");
}
#endif

TEST(DefaultLogger, is_as_documented) {
    EXPECT_EQ(rmm::default_pattern(), "[%6t][%H:%M:%S:%f][%-6l] %v");
    EXPECT_EQ(&rmm::logger(), &rmm::default_logger());
    EXPECT_EQ(rmm::default_logger().level(), level_enum::info);
    EXPECT_EQ(rmm::default_logger().flush_level(), level_enum::off);
    EXPECT_EQ(rmm::default_sink(), *rmm::default_logger().sinks().begin());
    testing::internal::CaptureStderr();
    RMM_LOG_ERROR("%s %d", std::string("answer"), 42);
    RMM_LOG_DEBUG("not at this level");
    const std::string line = testing::internal::GetCapturedStderr();
    char expected[64];
    std::snprintf(expected, sizeof expected, "[%6d][", gettid());
    EXPECT_EQ(line.find(expected), 0u) << line;
    EXPECT_EQ(line.substr(line.rfind('[')), "[error ] answer 42\n");
}

TEST(DefaultLogger, macros_log_at_their_levels) {
    std::ostringstream out;
    logger log("test", out);
    log.set_level(level_enum::trace);
    log.set_pattern("%l %v");
    RMM_LOGGER_CALL(log, level_enum::warn, "%d", 1);
    EXPECT_EQ(out.str(), "warning 1\n");

    out.str("");
    const log_level_setter all(rmm::default_logger(), level_enum::trace);
    rmm::default_logger().sinks().push_back(std::make_shared<ostream_sink_mt>(out));
    testing::internal::CaptureStderr();
    if (out.str().empty())
        RMM_LOG_TRACE("a");
    else
        RMM_LOG_DEBUG("never");
    RMM_LOG_DEBUG("b");
    RMM_LOG_INFO("c");
    RMM_LOG_WARN("d");
    RMM_LOG_ERROR("e");
    RMM_LOG_CRITICAL("f");
    (void)testing::internal::GetCapturedStderr();
    rmm::default_logger().sinks().pop_back();
    std::string messages;
    std::istringstream in(out.str());
    for (std::string line; std::getline(in, line);) messages += line.back();
    EXPECT_EQ(messages, "abcdef");
}

TEST(DefaultLoggerDeathTest, writes_into_the_file_of_the_environment) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process, which has not decided yet
    const char* given = std::getenv("RMM_TEST_LOG_FILE");  // by the process that waits for us
    std::optional<temporary_folder> folder;
    if (given == nullptr) folder.emplace();
    const std::string name = given != nullptr ? given : *folder / "log.txt";
    setenv("RMM_TEST_LOG_FILE", name.c_str(), 1);
    EXPECT_EXIT(
        {
            std::ofstream(name) << "old\n";
            setenv("RMM_DEBUG_LOG_FILE", name.c_str(), 1);
            RMM_LOG_INFO("into the file");
            RMM_LOG_DEBUG("not at this level");
            unsetenv("RMM_DEBUG_LOG_FILE");
            RMM_LOG_WARN("too");
            std::exit(0);  // lines that are held back leave now
        },
        testing::ExitedWithCode(0), "");
    unsetenv("RMM_TEST_LOG_FILE");
    const auto lines = lines_of(name);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].substr(lines[0].rfind('[')), "[info  ] into the file");
    EXPECT_EQ(lines[1].substr(lines[1].rfind('[')), "[warning] too");
}

}  // namespace
