// The log's handler is the program's code: it is called with no lock held, by one thread at a time, and nobody waits
// for it.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "forked.hpp"
#include "kmm/base/log.hpp"
#include "kmm/core/config.hpp"
#include "rapids_logger/logger.hpp"

namespace {

using Handler = void (*)(int, const char*, void*);

/// Sets a handler for a scope.
struct Handles {
    Handles(Handler handler, void* user) { kmm::set_log_handler(handler, user); }
    ~Handles() { kmm::set_log_handler(nullptr, nullptr); }
};

TEST(Log, a_handler_may_log_itself_and_gets_that_afterwards) {
    std::vector<std::string> lines;
    const Handles handles(
        [](int, const char* text, void* user) {
            auto& all = *static_cast<std::vector<std::string>*>(user);
            all.push_back(text);
            if (all.size() == 1) kmm::log::write(kmm::log::error, "inner");
            all.push_back(std::string(text) + " done");
        },
        &lines);
    kmm::log::write(kmm::log::error, "outer");
    EXPECT_EQ(lines, (std::vector<std::string>{"outer", "outer done", "inner", "inner done"}));
}

TEST(Log, the_text_of_an_exception_may_be_null) {
    std::vector<std::string> lines;
    const Handles handles(
        [](int, const char* text, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(text); },
        &lines);
    kmm::log::write(kmm::log::error, "a resource threw: ", nullptr);
    EXPECT_EQ(lines, std::vector<std::string>{"a resource threw: an exception without a text"});
}

TEST(Log, a_handler_may_replace_itself) {
    static int others;
    others = 0;
    const Handles handles(
        [](int, const char*, void*) { kmm::set_log_handler([](int, const char*, void*) { ++others; }, nullptr); },
        nullptr);
    kmm::log::write(kmm::log::error, "first");
    kmm::log::write(kmm::log::error, "second");
    EXPECT_EQ(others, 1);
}

struct Blocking {
    std::atomic<int> calls{0};
    std::promise<void> inside;
    std::promise<void> go_on;
    std::shared_future<void> may_go_on{go_on.get_future()};
    std::vector<std::string> lines;
    std::thread::id first_thread;
};

void block_first(int, const char* text, void* user) {
    auto& b = *static_cast<Blocking*>(user);
    b.lines.push_back(text);
    if (b.calls++ != 0) return;
    b.first_thread = std::this_thread::get_id();
    b.inside.set_value();
    b.may_go_on.wait();
}

TEST(Log, nobody_waits_for_a_handler_that_blocks_and_what_was_written_meanwhile_comes_in_order) {
    Blocking b;
    const Handles handles(block_first, &b);
    std::thread first([] { kmm::log::write(kmm::log::error, "first"); });
    b.inside.get_future().wait();
    kmm::log::write(kmm::log::error, "second");
    kmm::log::post(kmm::log::error, "third");
    EXPECT_EQ(b.calls.load(), 1);
    b.go_on.set_value();
    first.join();
    kmm::log::flush();
    EXPECT_EQ(b.lines, (std::vector<std::string>{"first", "second", "third"}));
}

TEST(Log, a_thread_of_the_library_never_runs_the_handler) {
    Blocking b;
    const Handles handles(block_first, &b);
    std::thread library([] {
        kmm::log::of_library_thread() = true;
        kmm::log::write(kmm::log::error, "first");
    });
    const std::thread::id its_id = library.get_id();
    library.join();  // although the handler blocks
    b.inside.get_future().wait();
    b.go_on.set_value();
    kmm::log::flush();
    EXPECT_NE(b.first_thread, its_id);
    EXPECT_NE(b.first_thread, std::this_thread::get_id());
}

TEST(Log, what_a_handler_is_too_slow_for_is_counted) {
    Blocking b;
    {
        const Handles handles(block_first, &b);
        kmm::log::post(kmm::log::error, "first");
        b.inside.get_future().wait();
        for (int i = 0; i < 3000; ++i) kmm::log::write(kmm::log::error, "more");
        b.go_on.set_value();
    }
    ASSERT_EQ(b.lines.size(), 1026u);
    EXPECT_EQ(b.lines.back().rfind("1976 messages more were dropped", 0), 0u) << b.lines.back();
}

TEST(Log, last_words_are_said_where_no_line_has_room_and_nothing_is_lost_but_the_others) {
    Blocking b;
    {
        const Handles handles(block_first, &b);
        kmm::log::post(kmm::log::error, "first");
        b.inside.get_future().wait();
        for (int i = 0; i < 1024; ++i) kmm::log::write(kmm::log::error, "more");
        kmm::log::last_words(kmm::log::critical, "the end");
        kmm::log::last_words(kmm::log::critical, "the end of another");
        b.go_on.set_value();
    }
    ASSERT_EQ(b.lines.size(), 1027u);
    EXPECT_EQ(b.lines[1025], "the end");
    EXPECT_EQ(b.lines[1026].rfind("1 messages more were dropped", 0), 0u) << b.lines.back();
}

#if !defined(__SANITIZE_THREAD__)  // it has no threads in the child of a process with threads
/// What a handler waits for, again and again.
std::atomic<int> num_calls{0};
std::atomic<bool> is_open{false};

/// A thread is in the handler, and another waits in flush() until the first comes out.
template<typename Meanwhile>
void flush_beside_a_handler_that_blocks(Meanwhile meanwhile) {
    is_open = false;
    num_calls = 0;
    std::thread writes([] { kmm::log::write(kmm::log::error, "line"); });
    num_calls.wait(0);
    kmm::test::Sleepyhead sleepyhead;
    std::thread flushes([&sleepyhead] {
        sleepyhead.here();
        kmm::log::flush();
    });
    sleepyhead.wait_until_asleep();
    meanwhile();
    is_open = true;
    is_open.notify_all();
    writes.join();
    flushes.join();
}

TEST(Log, wakes_who_waits_in_the_child_of_a_fork_though_somebody_waited_in_the_parent) {
    const Handles handles(
        [](int, const char*, void*) {
            ++num_calls;
            num_calls.notify_all();
            is_open.wait(false);
        },
        nullptr);
    std::string wrong = "no fork";
    flush_beside_a_handler_that_blocks([&wrong] {
        wrong = kmm::test::in_child([] {
            for (int i = 0; i < 3; ++i) flush_beside_a_handler_that_blocks([] {});
            return "";
        });
    });
    EXPECT_EQ(wrong, "");
}
#endif

TEST(Log, names_a_level_as_a_logger_of_rmm_does_and_takes_that_name_for_it) {
    static std::string of_logger;
    rapids_logger::logger logger("test",
                                 std::vector<rapids_logger::sink_ptr>{std::make_shared<rapids_logger::callback_sink_mt>(
                                     [](int, const char* line) { of_logger = line; })});
    logger.set_pattern("[kmm] [%l] %v");
    logger.set_level(rapids_logger::level_enum::trace);
    kmm::set_global_log_level("trace");
    for (int level = kmm::log::trace; level < kmm::log::off; ++level) {
        SCOPED_TRACE(level);
        logger.log(static_cast<rapids_logger::level_enum>(level), "text");
        testing::internal::CaptureStderr();
        kmm::log::write(static_cast<kmm::log::Level>(level), "text");
        EXPECT_EQ(testing::internal::GetCapturedStderr(), of_logger);
        const std::string name = kmm::log::name_of(static_cast<kmm::log::Level>(level));
        EXPECT_EQ(kmm::log::level_named(name), level) << name;
    }
    kmm::set_global_log_level("warn");
}

TEST(Log, takes_names_of_levels_in_one_case_and_nothing_else) {
    using kmm::log::level_named;
    EXPECT_EQ(level_named("warn"), kmm::log::warn);
    EXPECT_EQ(level_named("WARNING"), kmm::log::warn);
    EXPECT_EQ(level_named("ERR"), kmm::log::error);
    EXPECT_EQ(level_named("off"), kmm::log::off);
    for (const char* name : {"", "Warn", "warnin", "warnings", "tracE", "3", " info", "o&&"}) {
        EXPECT_FALSE(level_named(name)) << name;
    }
}

TEST(Log, what_was_written_before_is_for_the_handler_that_is_replaced) {
    Blocking b;
    b.go_on.set_value();
    kmm::set_log_handler(block_first, &b);
    for (int i = 0; i < 100; ++i) kmm::log::post(kmm::log::error, "line");
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_EQ(b.lines.size(), 100u);
}

}  // namespace
