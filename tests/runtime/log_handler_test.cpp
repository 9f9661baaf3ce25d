// What the library calls while it schedules, and what it says afterwards: handlers, exceptions and pipes of the
// program's may do what they like, and the runtime goes on.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.hpp"
#include "kmm/base/log.hpp"

namespace {

constexpr std::int64_t n = 1 << 18;
constexpr std::size_t bytes = n * sizeof(float);

RuntimeConfig small_config() {
    RuntimeConfig config = config_with(1);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.device_memory_limit = 2 * bytes;
    config.host_memory_limit = 2 * config.device_memory_limit;
    return config;
}

/// More than both tiers hold: the last ones fail.
std::vector<EventId> fill_all(const RuntimeHandle& rt, std::vector<Array<float>>& arrays) {
    std::vector<EventId> events;
    for (int i = 0; i < 8; i++) {
        arrays.push_back(one_chunk<float>(rt, n));
        events.push_back(
            rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUViewMut<float>) {}), overwrite(arrays.back())));
    }
    return events;
}

int wait_for_all(const RuntimeHandle& rt, const std::vector<EventId>& events) {
    int failed = 0;
    for (const EventId e : events) {
        try {
            rt.wait(e);
        } catch (const kmm::TaskError& error) {
            failed++;
            EXPECT_TRUE(says(error, "found no memory on virtual GPU 0")) << error.what();
        }
    }
    return failed;
}

/// Something that has to do with nobody's memory.
void expect_usable(const RuntimeHandle& rt) {
    int value = 0;
    rt.wait(rt.submit(host(), Host([&value] { value = 7; })));
    EXPECT_EQ(value, 7);
}

struct Seen {
    RuntimeHandle rt;
    std::atomic<int> calls{0};
    std::atomic<int> answers{0};
    std::promise<void> called;
};

TEST(LogHandler, that_asks_for_reports_when_memory_is_short_gets_them) {
    const RuntimeHandle rt = kmm::make_runtime(small_config());
    Seen seen{rt, {}, {}, {}};
    kmm::set_log_handler(
        [](int, const char* text, void* user) {
            auto& s = *static_cast<Seen*>(user);
            if (std::string(text).find("found no memory") == std::string::npos) return;
            const bool right = s.rt.report().find("kmm runtime") == 0 && s.rt.stats().tasks_failed != 0 &&
                               kmm::report().find("kmm runtime") != std::string::npos;
            s.answers += right ? 1 : 0;
            if (++s.calls == 1) s.called.set_value();
        },
        &seen);
    std::vector<Array<float>> arrays;
    const int failed = wait_for_all(rt, fill_all(rt, arrays));
    ASSERT_EQ(seen.called.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_GE(failed, 3);
    EXPECT_GE(seen.calls.load(), 1);
    EXPECT_EQ(seen.answers.load(), seen.calls.load());
    expect_usable(rt);
}

TEST(LogHandler, that_submits_and_waits_does_not_wait_for_itself) {
    const RuntimeHandle rt = kmm::make_runtime(small_config());
    Seen seen{rt, {}, {}, {}};
    kmm::set_log_handler(
        [](int, const char* text, void* user) {
            auto& s = *static_cast<Seen*>(user);
            if (std::string(text).find("found no memory") == std::string::npos) return;
            expect_usable(s.rt);
            try {
                s.rt.wait(s.rt.barrier());
            } catch (const kmm::TaskError&) {}  // failures that the test has not asked for yet
            if (++s.calls == 1) s.called.set_value();
        },
        &seen);
    std::vector<Array<float>> arrays;
    EXPECT_GE(wait_for_all(rt, fill_all(rt, arrays)), 3);
    ASSERT_EQ(seen.called.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
    kmm::set_log_handler(nullptr, nullptr);
}

TEST(LogHandler, that_blocks_holds_no_task_up) {
    const RuntimeHandle rt = kmm::make_runtime(small_config());
    static Gate* gate;
    Gate closed;
    gate = &closed;
    kmm::set_log_handler([](int, const char*, void*) { gate->wait(); }, nullptr);
    {
        const OpenAtEnd open(closed);
        std::vector<Array<float>> arrays;
        EXPECT_GE(wait_for_all(rt, fill_all(rt, arrays)), 3);
        expect_usable(rt);
    }
    kmm::set_log_handler(nullptr, nullptr);
}

TEST(LogHandler, that_a_thread_of_the_parent_is_in_is_not_waited_for_in_the_child_of_a_fork) {
    static Gate gate, begun;
    const OpenAtEnd open(gate);
    kmm::set_log_handler(
        [](int, const char* text, void*) {
            if (std::string(text) != "first") return;
            begun.open();
            gate.wait();
        },
        nullptr);
    std::thread writer([] { kmm::log::write(kmm::log::warn, "first"); });
    begun.wait();
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);  // a hang ends the process with a signal
        kmm::log::write(kmm::log::warn, "of the child");
        kmm::set_log_handler(nullptr, nullptr);
        _exit(0);
    }
    gate.open();
    writer.join();
    kmm::set_log_handler(nullptr, nullptr);
    ASSERT_GE(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
}

TEST(LogHandler, that_is_replaced_has_returned_when_the_replacing_has) {
    struct Shared {
        Gate begins, may_return;
        std::atomic<bool> has_returned{false};
    } shared;
    kmm::set_log_handler(
        [](int, const char*, void* user) {
            auto& s = *static_cast<Shared*>(user);
            s.begins.open();
            s.may_return.wait();
            s.has_returned = true;
        },
        &shared);
    const OpenAtEnd open(shared.may_return);
    std::thread writer([] { kmm::log::write(kmm::log::warn, "a line"); });
    shared.begins.wait();
    std::promise<bool> replaced;
    std::future<bool> had_returned = replaced.get_future();
    std::thread replacer([&] {
        kmm::set_log_handler(nullptr, nullptr);
        replaced.set_value(shared.has_returned);
    });
    // Longer than what was written so far is waited for.
    EXPECT_EQ(had_returned.wait_for(std::chrono::milliseconds(1200)), std::future_status::timeout);
    shared.may_return.open();
    EXPECT_TRUE(had_returned.get()) << "who replaced it may let go of what it uses";
    replacer.join();
    writer.join();
}

TEST(LogHandler, that_replaces_itself_or_flushes_does_not_wait_for_itself) {
    static std::atomic<int> calls;
    calls = 0;
    kmm::set_log_handler(
        [](int, const char*, void*) {
            ++calls;
            kmm::log::write(kmm::log::warn, "inner");  // for the next handler, behind this call
            kmm::log::flush();
            kmm::set_log_handler([](int, const char*, void*) { calls += 10; }, nullptr);
        },
        nullptr);
    kmm::log::write(kmm::log::warn, "outer");
    EXPECT_EQ(calls.load(), 11);
    kmm::set_log_handler(nullptr, nullptr);
}

TEST(LogHandler, a_pipe_of_standard_error_that_nobody_reads_holds_no_task_up) {
    const RuntimeHandle rt = kmm::make_runtime(small_config());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    const std::vector<char> block(4096, '\n');
    while (write(ends[1], block.data(), block.size()) > 0) {}
    while (write(ends[1], block.data(), 1) > 0) {}
    ASSERT_EQ(fcntl(ends[1], F_SETFL, 0), 0);
    const int kept = dup(STDERR_FILENO);
    ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    std::vector<Array<float>> arrays;
    const int failed = wait_for_all(rt, fill_all(rt, arrays));
    int value = 0;
    rt.wait(rt.submit(host(), Host([&value] { value = 7; })));
    // Now somebody reads, so that whoever writes can go on.
    std::thread reader([&] {
        std::vector<char> into(4096);
        while (read(ends[0], into.data(), into.size()) > 0) {}
        close(ends[0]);
    });
    kmm::set_log_handler(nullptr, nullptr);  // everything is out
    ASSERT_EQ(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    reader.join();
    EXPECT_GE(failed, 3);
    EXPECT_EQ(value, 7);
}

/// An exception whose text is made when it is asked for.
struct Curious : std::exception {
    explicit Curious(const RuntimeHandle* handle) : rt(handle) {}
    const char* what() const noexcept override {
        text = "asked: " + std::to_string(rt->stats().tasks_submitted);
        return text.c_str();
    }
    const RuntimeHandle* rt;  // which keeps the failure, and so this
    mutable std::string text;
};

TEST(Failures, the_text_of_an_exception_may_ask_the_runtime) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        const EventId failed = rt.submit(host(), Host([&rt] { throw Curious(&rt); }));
        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(failed); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "asked: 1")) << error->what();
        expect_usable(rt);
    });
}

}  // namespace
