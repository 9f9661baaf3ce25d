// Owns: what only the host driver promises: streams that really run at the same time, checked handles, exceptions of
// kernels.
#include "driver/host/host_driver.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <thread>

namespace {

using namespace kmm::driver;

/// Where several pieces of work meet: each waits until all have come. Gives up after a minute.
class Meeting {
  public:
    explicit Meeting(int expected) : missing_(expected) {}
    bool arrive() {
        std::unique_lock lock(mutex_);
        --missing_;
        changed_.notify_all();
        return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return missing_ <= 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int missing_;
};

/// A kernel that calls a function of the test; its one parameter is a pointer to a std::function.
using Body = std::function<void(std::uint64_t first, std::uint64_t last)>;
const HostKernel& calling_kernel() {
    static const HostKernel kernel{[](const HostKernel&, const HostLaunchGeometry&, const void* parameters,
                                      std::uint64_t first, std::uint64_t last) {
                                       const Body* body = nullptr;
                                       std::memcpy(&body, parameters, sizeof(body));
                                       (*body)(first, last);
                                   },
                                   nullptr, "calling"};
    return kernel;
}

class HostDriver : public ::testing::Test {
  protected:
    HostDriver() : driver_(make_host_driver({2, 64u << 20, 2})) {}

    Driver& driver() { return *driver_; }
    StreamHandle new_stream(bool non_blocking = true, int device = 0) {
        StreamHandle s;
        EXPECT_TRUE(driver().create_stream(device, non_blocking, 0, &s).ok());
        return s;
    }
    EventHandle new_event() {
        EventHandle e;
        EXPECT_TRUE(driver().create_event(0, false, false, &e).ok());
        return e;
    }
    Status run(const Body& body, StreamHandle s, Dim3 grid = {}, KernelFailure* failure = nullptr, Dim3 block = {}) {
        const Body* pointer = &body;
        KernelLaunch launch;
        launch.function = &calling_kernel();
        launch.grid = grid;
        launch.block = block;
        launch.parameters = &pointer;
        launch.parameter_bytes = sizeof(pointer);
        launch.hooks.failure = failure;
        return driver().launch(launch, s);
    }

    std::shared_ptr<Driver> driver_;
};

TEST_F(HostDriver, kernels_of_two_streams_really_run_at_the_same_time) {
    Meeting meeting(2);
    std::atomic<int> met{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { met += meeting.arrive() ? 1 : 0; };
    const StreamHandle a = new_stream(), b = new_stream();
    ASSERT_TRUE(run(body, a).ok());
    ASSERT_TRUE(run(body, b).ok());
    EXPECT_TRUE(driver().synchronize_stream(a).ok());
    EXPECT_TRUE(driver().synchronize_stream(b).ok());
    EXPECT_EQ(met, 2);
}

TEST_F(HostDriver, more_kernels_than_workers_that_wait_for_each_other_all_run) {
    constexpr int num_streams = 12;
    Meeting meeting(num_streams);
    std::atomic<int> met{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { met += meeting.arrive() ? 1 : 0; };
    for (int i = 0; i < num_streams; ++i) ASSERT_TRUE(run(body, new_stream()).ok());
    EXPECT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_EQ(met, num_streams);
}

TEST_F(HostDriver, blocks_of_one_launch_are_shared_by_the_workers) {
    // Each range of blocks waits until another worker has one too, which only a shared launch can satisfy.
    Meeting meeting(2);
    std::atomic<bool> first{true};
    std::atomic<int> threads{0};
    static thread_local int seen_launch = 0;
    const Body body = [&](std::uint64_t, std::uint64_t) {
        if (seen_launch == 1) return;
        seen_launch = 1;
        if (threads.fetch_add(1) < 2) (void)meeting.arrive();
    };
    ASSERT_TRUE(run(body, new_stream(), {64, 1, 1}, nullptr, {256, 1, 1}).ok());
    EXPECT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_GE(threads, 2);
}

TEST_F(HostDriver, every_block_of_a_shared_launch_runs_once) {
    std::vector<std::atomic<int>> runs(10007);
    const Body body = [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t i = first; i < last; ++i) ++runs[i];
    };
    const StreamHandle s = new_stream();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(run(body, s, {10007, 1, 1}, nullptr, {32, 1, 1}).ok());
    ASSERT_TRUE(driver().synchronize_stream(s).ok());
    for (const auto& r : runs) ASSERT_EQ(r, 5);
}

TEST_F(HostDriver, stale_and_foreign_handles_are_refused) {
    const StreamHandle s = new_stream();
    const EventHandle e = new_event();
    GraphHandle graph;
    GraphExecHandle exec;
    PoolHandle pool;
    ASSERT_TRUE(driver().create_graph(&graph).ok());
    ASSERT_TRUE(driver().instantiate(graph, &exec).ok());
    ASSERT_TRUE(driver().create_pool(0, {}, &pool).ok());
    ASSERT_TRUE(driver().destroy_stream(s).ok());
    ASSERT_TRUE(driver().destroy_event(e).ok());
    ASSERT_TRUE(driver().destroy_exec(exec).ok());
    ASSERT_TRUE(driver().destroy_graph(graph).ok());
    ASSERT_TRUE(driver().destroy_pool(pool).ok());
    const StreamHandle reused = new_stream();  // may live in the same place
    const EventHandle reused_event = new_event();
    int junk = 0;
    const StreamHandle foreign{&junk};
    int value = 0;
    std::uint64_t id = 0;
    void* pointer = nullptr;
    for (const StreamHandle& bad : {s, foreign}) {
        EXPECT_EQ(driver().synchronize_stream(bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().query_stream(bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().destroy_stream(bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().stream_id(bad, &id).code, Code::invalid_handle);
        EXPECT_EQ(driver().stream_device(bad, &value).code, Code::invalid_handle);
        EXPECT_EQ(driver().record_event(reused_event, bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().wait_event(bad, reused_event).code, Code::invalid_handle);
        EXPECT_EQ(driver().copy(&junk, &junk, 4, bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().fill(&junk, "x", 1, 4, bad).code, Code::invalid_handle);
        EXPECT_EQ(driver().begin_capture(bad, CaptureMode::relaxed).code, Code::invalid_handle);
    }
    EXPECT_EQ(driver().query_event(e).code, Code::invalid_handle);
    EXPECT_EQ(driver().synchronize_event(e).code, Code::invalid_handle);
    EXPECT_EQ(driver().record_event(e, reused).code, Code::invalid_handle);
    EXPECT_EQ(driver().wait_event(reused, e).code, Code::invalid_handle);
    EXPECT_EQ(driver().destroy_event(e).code, Code::invalid_handle);
    EXPECT_EQ(driver().instantiate(graph, &exec).code, Code::invalid_handle);
    EXPECT_EQ(driver().launch_graph(exec, reused).code, Code::invalid_handle);
    EXPECT_EQ(driver().allocate_async(pool, 256, reused, &pointer).code, Code::invalid_handle);
}

TEST_F(HostDriver, an_exception_of_a_kernel_goes_where_the_launch_says) {
    const StreamHandle s = new_stream();
    KernelFailure failure;
    const Body bad = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("kernel 17"); };
    for (const Dim3 block : {Dim3{1, 1, 1}, Dim3{256, 1, 1}}) {
        failure.error = nullptr;
        ASSERT_TRUE(run(bad, s, {100, 1, 1}, &failure, block).ok());
        EXPECT_TRUE(driver().synchronize_stream(s).ok());
        ASSERT_NE(failure.error, nullptr);
        EXPECT_THROW(std::rethrow_exception(failure.error), std::runtime_error);
    }
}

TEST_F(HostDriver, an_exception_that_nobody_asked_for_is_told_once_by_the_next_synchronisation) {
    const StreamHandle s = new_stream();
    const EventHandle before = new_event(), after = new_event();
    const Body bad = [](std::uint64_t, std::uint64_t) { throw 1; };
    ASSERT_TRUE(driver().record_event(before, s).ok());
    ASSERT_TRUE(run(bad, s).ok());
    ASSERT_TRUE(driver().record_event(after, s).ok());
    EXPECT_TRUE(driver().synchronize_event(before).ok()) << "it was recorded before the failure";
    EXPECT_EQ(driver().synchronize_event(after).code, Code::launch_failed);
    EXPECT_EQ(driver().take_last_error().code, Code::launch_failed);
    EXPECT_TRUE(driver().synchronize_stream(s).ok());
    ASSERT_TRUE(run(bad, s).ok());
    EXPECT_EQ(driver().synchronize_stream(s).code, Code::launch_failed);
    EXPECT_TRUE(driver().synchronize_stream(s).ok());
    ASSERT_TRUE(run(bad, s).ok());
    ASSERT_TRUE(driver().destroy_stream(s).ok());
    EXPECT_EQ(driver().synchronize_device(0).code, Code::launch_failed) << "the stream is gone, the failure is not";
    EXPECT_TRUE(driver().synchronize_device(0).ok());
}

TEST_F(HostDriver, a_kernel_that_its_launch_skips_when_its_turn_comes_does_not_run) {
    const StreamHandle s = new_stream();
    std::atomic<int> runs{0};
    bool failed = false;
    // What an earlier kernel of the stream does decides: the question is asked in the order of the stream.
    const Body fails = [&](std::uint64_t, std::uint64_t) { failed = true; };
    const Body counts = [&](std::uint64_t, std::uint64_t) { ++runs; };
    const auto launch = [&](const Body* body) {
        KernelLaunch kernel;
        kernel.function = &calling_kernel();
        kernel.grid = {100, 1, 1};
        kernel.block = {64, 1, 1};
        kernel.parameters = &body;
        kernel.parameter_bytes = sizeof(body);
        kernel.hooks.skip = [](void* user) { return *static_cast<bool*>(user); };
        kernel.hooks.user = &failed;
        return driver().launch(kernel, s);
    };
    ASSERT_TRUE(launch(&counts).ok());
    ASSERT_TRUE(driver().synchronize_stream(s).ok());
    const int before = runs;
    EXPECT_GT(before, 0);
    ASSERT_TRUE(run(fails, s).ok());
    ASSERT_TRUE(launch(&counts).ok());
    ASSERT_TRUE(driver().synchronize_stream(s).ok());
    EXPECT_EQ(runs, before);
}

TEST_F(HostDriver, a_failing_node_of_a_graph_is_told_by_the_stream_of_the_launch) {
    const StreamHandle s = new_stream();
    const Body bad = [](std::uint64_t, std::uint64_t) { throw 1; };
    const Body good = [](std::uint64_t, std::uint64_t) {};
    GraphHandle graph;
    GraphExecHandle exec;
    ASSERT_TRUE(driver().create_graph(&graph).ok());
    for (const Body* body : {&good, &bad}) {
        KernelLaunch launch;
        launch.function = &calling_kernel();
        launch.parameters = &body;
        launch.parameter_bytes = sizeof(body);
        ASSERT_TRUE(driver().add_kernel_node(graph, nullptr, 0, launch, nullptr).ok());
    }
    ASSERT_TRUE(driver().instantiate(graph, &exec).ok());
    ASSERT_TRUE(driver().launch_graph(exec, s).ok());
    EXPECT_EQ(driver().synchronize_stream(s).code, Code::launch_failed);
    EXPECT_TRUE(driver().synchronize_stream(s).ok());
}

TEST_F(HostDriver, large_parameters_arrive_whole) {
    struct Large {
        const Body* body;
        unsigned char bytes[4000];
    };
    static std::atomic<int> right;
    right = 0;
    const HostKernel kernel{
        [](const HostKernel&, const HostLaunchGeometry&, const void* parameters, std::uint64_t, std::uint64_t) {
            const auto* p = static_cast<const Large*>(parameters);
            bool same = true;
            for (int i = 0; i < 4000; ++i) same = same && p->bytes[i] == static_cast<unsigned char>(i * 3);
            right += same && reinterpret_cast<std::uintptr_t>(p) % alignof(Large) == 0 ? 1 : 0;
        },
        nullptr, "large"};
    const StreamHandle s = new_stream();
    for (int i = 0; i < 100; ++i) {
        Large large{nullptr, {}};
        for (int k = 0; k < 4000; ++k) large.bytes[k] = static_cast<unsigned char>(k * 3);
        KernelLaunch launch;
        launch.function = &kernel;
        launch.parameters = &large;
        launch.parameter_bytes = sizeof(large);
        ASSERT_TRUE(driver().launch(launch, s).ok());
    }
    ASSERT_TRUE(driver().synchronize_stream(s).ok());
    EXPECT_EQ(right, 100);
}

TEST_F(HostDriver, streams_of_both_devices_and_their_legacy_streams_are_separate) {
    Meeting meeting(2);
    std::atomic<int> met{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { met += meeting.arrive() ? 1 : 0; };
    ASSERT_TRUE(run(body, StreamHandle{}).ok());
    ASSERT_TRUE(driver().set_current_device(1).ok());
    ASSERT_TRUE(run(body, StreamHandle{}).ok());
    EXPECT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_TRUE(driver().synchronize_device(1).ok());
    EXPECT_EQ(met, 2);
}

TEST_F(HostDriver, two_drivers_do_not_know_each_other) {
    const auto other = make_host_driver({1, 1 << 20, 2});
    const StreamHandle s = new_stream();
    EXPECT_EQ(other->synchronize_stream(s).code, Code::invalid_handle);
    ASSERT_TRUE(driver().set_current_device(1).ok());
    int device = -1;
    ASSERT_TRUE(other->current_device(&device).ok());
    EXPECT_EQ(device, 0);
}

TEST_F(HostDriver, destruction_waits_for_queued_work_of_destroyed_streams_too) {
    std::atomic<int> runs{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { ++runs; };
    const StreamHandle s = new_stream();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(run(body, s).ok());
    ASSERT_TRUE(driver().destroy_stream(s).ok());
    driver_.reset();
    EXPECT_EQ(runs, 1000);
}

TEST_F(HostDriver, an_idle_driver_uses_no_cpu_time) {
    const StreamHandle s = new_stream();
    const Body body = [](std::uint64_t, std::uint64_t) {};
    ASSERT_TRUE(run(body, s).ok());
    ASSERT_TRUE(driver().synchronize_stream(s).ok());
    const auto cpu_seconds = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    };
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    const double before = cpu_seconds();
    never.wait_for(lock, std::chrono::seconds(1), [] { return false; });
    EXPECT_LT(cpu_seconds() - before, 0.05);
}

TEST_F(HostDriver, threads_that_end_take_their_per_thread_stream_with_them) {
    std::atomic<int> runs{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { ++runs; };
    for (int i = 0; i < 50; ++i) std::thread([&] { EXPECT_TRUE(run(body, per_thread_stream()).ok()); }).join();
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_EQ(runs, 50);
}

TEST_F(HostDriver, a_long_chain_over_streams_and_events_keeps_its_order) {
    constexpr int length = 3000;
    const StreamHandle streams[] = {new_stream(), new_stream(), new_stream(true, 1)};
    const EventHandle event = new_event();
    int value = 0;  // ThreadSanitizer sees whether the events order this
    const Body body = [&](std::uint64_t, std::uint64_t) { value = value * 3 % 1000003 + 1; };
    int expected = 0;
    for (int i = 0; i < length; ++i) {
        if (i > 0) {
            ASSERT_TRUE(driver().wait_event(streams[i % 3], event).ok());
        }
        ASSERT_TRUE(run(body, streams[i % 3]).ok());
        ASSERT_TRUE(driver().record_event(event, streams[i % 3]).ok());
        expected = expected * 3 % 1000003 + 1;
    }
    ASSERT_TRUE(driver().synchronize_event(event).ok());
    EXPECT_EQ(value, expected);
}

TEST_F(HostDriver, streams_can_be_made_and_destroyed_by_many_threads) {
    std::atomic<int> runs{0};
    const Body body = [&](std::uint64_t, std::uint64_t) { ++runs; };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                const StreamHandle s = new_stream(i % 2 == 0, i % 2);
                const EventHandle e = new_event();
                EXPECT_TRUE(run(body, s).ok());
                EXPECT_TRUE(driver().record_event(e, s).ok());
                EXPECT_TRUE(driver().destroy_stream(s).ok());
                if (i % 3 == 0) {
                    EXPECT_TRUE(driver().synchronize_event(e).ok());
                }
                EXPECT_TRUE(driver().destroy_event(e).ok());
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_TRUE(driver().synchronize_device(1).ok());
    EXPECT_EQ(runs, 800);
}

}  // namespace
