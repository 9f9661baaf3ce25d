// The log's handler is the program's code: it is called with no lock held, by one thread at a time, and nobody waits
// for it.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "kmm/base/log.hpp"
#include "kmm/core/config.hpp"

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

TEST(Log, what_was_written_before_is_for_the_handler_that_is_replaced) {
    Blocking b;
    b.go_on.set_value();
    kmm::set_log_handler(block_first, &b);
    for (int i = 0; i < 100; ++i) kmm::log::post(kmm::log::error, "line");
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_EQ(b.lines.size(), 100u);
}

}  // namespace
