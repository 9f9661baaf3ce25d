// Drivers, lifetimes, debug mode: rows 6, 14, 17 to 19.
#include "harness.hpp"

#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

namespace {

constexpr std::int64_t n = 300;

Host<void (*)(kmm::ViewMut<std::int64_t>)> count_up() {
    return Host<void (*)(kmm::ViewMut<std::int64_t>)>([](kmm::ViewMut<std::int64_t> v) {
        for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = i;
    });
}

// In static storage, used by Row018 below: it must not disturb the end of the process.
Array<std::int64_t> global_array;
std::unique_ptr<RuntimeHandle> global_runtime;

TEST(Row006, auto_takes_a_usable_driver_and_an_unusable_explicit_choice_says_why) {
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        RuntimeConfig config;
        config.driver = status.driver;
        config.virtual_device_memory = std::size_t{16} << 20;
        config.host_threads = 1;
        if (status.usable) {
            EXPECT_EQ(kmm::make_runtime(config).info().driver(), status.driver);
            continue;
        }
        EXPECT_FALSE(status.reason.empty());
        const auto error = thrown_by<kmm::NotAvailable>([&] { kmm::make_runtime(config); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, status.reason)) << error->what();
    }
    RuntimeConfig config;
    config.virtual_device_memory = std::size_t{16} << 20;
    config.host_threads = 1;
    const kmm::DriverKind chosen = kmm::make_runtime(config).info().driver();
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        if (!status.usable) continue;
        EXPECT_EQ(chosen, status.driver);
        break;
    }
}

TEST(Row014, devices_are_renumbered_and_strangers_refused) {
    KMM_NEED_DEVICES(3);
    RuntimeConfig config = config_with(4);
    config.devices = {2, 0};
    const RuntimeHandle rt = kmm::make_runtime(config);
    ASSERT_EQ(num_devices(rt), 2u);
    EXPECT_EQ(rt.info().device(DeviceId(0)).device_ordinal(), 2);
    EXPECT_EQ(rt.info().device(DeviceId(1)).device_ordinal(), 0);
    auto seen = std::make_shared<std::array<std::atomic<int>, 2>>();
    for (std::size_t d = 0; d < 2; d++) {
        auto a =
            rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(static_cast<std::uint8_t>(d)))));
        rt.submit(device(d), GPU([seen, d](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) {
                      (*seen)[d] = device.device_ordinal();
                      device.fill(v, static_cast<std::int64_t>(d + 5));
                  }),
                  overwrite(a));
        EXPECT_EQ(a.copy_to_vector(), std::vector<std::int64_t>(n, static_cast<std::int64_t>(d + 5)));
    }
    EXPECT_EQ((*seen)[0].load(), 2);
    EXPECT_EQ((*seen)[1].load(), 0);
    config.devices = {9};
    EXPECT_THROW(kmm::make_runtime(config), kmm::InvalidArgument);
    config.devices = {0, 0};
    EXPECT_THROW(kmm::make_runtime(config), kmm::InvalidArgument);
}

TEST(Row014, debug_mode_gives_the_same_results_one_task_at_a_time_in_order) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(std::min<std::size_t>(2, devices_available()));
    config.debug_mode = true;
    const RuntimeHandle rt = kmm::make_runtime(config);
    struct Seen {
        std::mutex mutex;
        std::vector<int> order;
        std::atomic<int> running{0};
        std::atomic<int> most{0};
    };
    auto seen = std::make_shared<Seen>();
    std::vector<Array<std::int64_t>> arrays;
    for (int i = 0; i < 30; i++) {
        arrays.push_back(one_chunk<std::int64_t>(rt, n));
        const auto note = [seen, i] {
            const int now = ++seen->running;
            if (now > seen->most) seen->most = now;
            {
                std::lock_guard<std::mutex> guard(seen->mutex);
                seen->order.push_back(i);
            }
            --seen->running;
        };
        if (i % 2 == 0) {
            rt.parallel_submit(std::vector{chunk_of(host(), 0, n)}, Host([note, i](kmm::SubviewMut<std::int64_t> v) {
                                   note();
                                   for (std::int64_t k = v.begin(); k < v.end(); k++) v[k] = i;
                               }),
                               overwrite(arrays.back()[_x]));
        } else {
            rt.parallel_submit(std::vector{chunk_of(device(static_cast<std::size_t>(i) % num_devices(rt)), 0, n)},
                               GPU([note, i](kmm::DeviceResource& device, kmm::GPUSubviewMut<std::int64_t> v) {
                                   note();
                                   device.fill(v, i);
                               }),
                               overwrite(arrays.back()[_x]));
        }
    }
    rt.synchronize();
    std::vector<int> expected(30);
    for (int i = 0; i < 30; i++) expected[static_cast<std::size_t>(i)] = i;
    EXPECT_EQ(seen->order, expected);
    EXPECT_EQ(seen->most.load(), 1);
    for (int i = 0; i < 30; i++)
        EXPECT_EQ(arrays[static_cast<std::size_t>(i)].copy_to_vector(), std::vector<std::int64_t>(n, i));
}

TEST(Row017, an_array_outlives_every_handle_and_can_be_used_through_a_new_one) {
    KMM_NEED_DEVICES(1);
    Array<std::int64_t> a(n);
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        rt.submit(host(), count_up(), overwrite(a));
    }
    EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
    const RuntimeHandle again(a.runtime());
    again.submit(device(0),
                 GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) { device.fill(v, 8); }),
                 overwrite(a));
    EXPECT_EQ(a.copy_to_vector(), std::vector<std::int64_t>(n, 8));
}

TEST(Row018, the_last_array_and_handle_released_inside_a_task_do_not_deadlock) {
    KMM_NEED_DEVICES(1);
    for (int round = 0; round < repeat(20, 5); round++) {
        std::promise<void> ended;
        std::future<void> end = ended.get_future();
        Gate gate;
        {
            RuntimeHandle rt = kmm::make_runtime(config_with(1));
            Array<std::int64_t> a(n);
            rt.submit(host(), count_up(), overwrite(a));
            auto keep = std::make_shared<std::pair<RuntimeHandle, Array<std::int64_t>>>(rt, a);
            auto signal = std::make_shared<std::promise<void>>(std::move(ended));
            auto body = [gate, keep, signal]() mutable {
                gate.wait();
                keep.reset();  // nobody else holds the array or the runtime now
                signal->set_value();
            };
            if (round % 2 == 0)
                rt.submit(host(), Host(body));
            else
                rt.submit(device(0), GPU([body](kmm::DeviceResource&) mutable { body(); }));
        }
        gate.open();
        ASSERT_EQ(end.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    }
}

TEST(Row018, arrays_in_static_storage_are_allowed) {
    KMM_NEED_DEVICES(1);
    global_runtime = std::make_unique<RuntimeHandle>(kmm::make_runtime(config_with(1)));
    global_array = Array<std::int64_t>(n);
    global_runtime->submit(host(), count_up(), overwrite(global_array));
    global_runtime->submit(device(0),
                           GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) { device.fill(v, 8); }),
                           write(global_array));
    // The process ends with the array, the handle and perhaps the tasks alive; its exit status says whether that was
    // clean.
}

TEST(Row018, every_call_in_the_child_of_a_fork_is_refused) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Array<std::int64_t> a(n);
    const EventId event = rt.submit(host(), count_up(), overwrite(a));
    rt.synchronize();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int wrong = 0;
        const auto expect_closed = [&](const std::function<void()>& f) {
            try {
                f();
                wrong++;
            } catch (const kmm::Closed&) {
            } catch (...) {
                wrong++;
            }
        };
        expect_closed([&] { rt.submit(host(), Host([] {})); });
        expect_closed([&] { rt.synchronize(); });
        expect_closed([&] { rt.barrier(); });
        expect_closed([&] { a.copy_to_vector(); });
        expect_closed([&] { a.copy_from(counting<std::int64_t>(n)); });
        expect_closed([&] { one_chunk<std::int64_t>(rt, n); });
        expect_closed([&] { (void)rt.is_done(event); });
        expect_closed([&] { rt.wait(event); });
        expect_closed([&] { (void)rt.stats(); });
        expect_closed([&] { (void)rt.report(); });
        expect_closed([&] { (void)rt.plan_text(); });
        expect_closed([&] { rt.worker().trim_memory(); });
        expect_closed([&] { (void)rt.worker().is_idle(); });
        expect_closed([&] { rt.close(); });
        expect_closed([] { (void)kmm::report(); });
        expect_closed([&] { (void)kmm::make_runtime(config_with(1)); });
        expect_closed([] { (void)kmm::get_gpu_devices(); });
        for (const kmm::DriverStatus& d : kmm::available_drivers()) wrong += d.usable;
        _exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(rt.is_done(event));
    EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
}

TEST(Row018, the_child_of_a_fork_leaves_a_busy_runtime_without_waiting) {
    KMM_NEED_DEVICES(1);
    if (driver_under_test() != kmm::DriverKind::Host) GTEST_SKIP() << "a GPU's driver cannot be used in a child at all";
    auto rt = std::make_unique<RuntimeHandle>(kmm::make_runtime(config_with(1)));
    Gate gate, begun;
    const OpenAtEnd open(gate);
    rt->submit(device(0), GPU([=](kmm::DeviceResource&) {
                   begun.open();
                   gate.wait();
               }));
    begun.wait();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(30);  // a hang ends the process with a signal
        rt.reset();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
}

TEST(Row116, an_unbound_array_is_bound_by_one_of_two_runtimes_that_write_it_first) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle runtimes[] = {kmm::make_runtime(config_with(1)), kmm::make_runtime(config_with(1))};
    for (int round = 0; round < repeat(500, 50); round++) {
        Array<std::int64_t> a(10);
        std::atomic<int> ready{0}, accepted{0};
        const auto write_from = [&](const RuntimeHandle& rt, std::int64_t value) {
            ready++;
            while (ready < 2) std::this_thread::yield();
            try {
                rt.submit(host(), Host([value](kmm::ViewMut<std::int64_t> v) {
                              for (std::int64_t i = 0; i < 10; i++) v[i] = value;
                          }),
                          overwrite(a));
                accepted++;
            } catch (const kmm::InvalidArgument&) {
                // the other one was first
            }
        };
        std::thread other([&] { write_from(runtimes[0], 1); });
        write_from(runtimes[1], 2);
        other.join();
        ASSERT_EQ(accepted.load(), 1);
        const std::vector<std::int64_t> values = a.copy_to_vector();
        ASSERT_EQ(values, std::vector<std::int64_t>(10, values[0]));
    }
}

TEST(Row088, tasks_that_wait_for_another_runtime_leave_no_threads_behind) {
    const auto virtual_bytes = [] {
        std::ifstream status("/proc/self/statm");
        std::size_t pages = 0;
        status >> pages;
        return pages * 4096;
    };
    const RuntimeHandle first = kmm::make_runtime(config_with(1)), second = kmm::make_runtime(config_with(1));
    const auto wait_in_a_task = [&] {
        first.wait(first.submit(host(), Host([&] { second.wait(second.submit(host(), Host([] {}))); })));
    };
    for (int i = 0; i < 20; i++) wait_in_a_task();
    const std::size_t before = virtual_bytes();
    for (int i = 0; i < 200; i++) wait_in_a_task();
    // The stack of a thread that nobody joins is eight megabytes.
    EXPECT_LT(virtual_bytes(), before + (std::size_t{800} << 20));
}

TEST(Row019, close_waits_throws_what_nobody_was_told_and_refuses_further_submits) {
    KMM_NEED_DEVICES(1);
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        Gate gate;
        auto finished = std::make_shared<std::atomic<bool>>(false);
        Array<std::int64_t> a(n);
        rt.submit(host(), count_up(), overwrite(a));
        rt.submit(host(), Host([gate, finished] {
                      gate.wait();
                      *finished = true;
                  }));
        std::thread opener([gate] { gate.open(); });
        rt.close();
        EXPECT_TRUE(finished->load());
        opener.join();
        EXPECT_THROW(rt.submit(host(), Host([] {})), kmm::Closed);
        EXPECT_THROW(rt.synchronize(), kmm::Closed);
        EXPECT_THROW(a.copy_to_vector(), kmm::Closed);
        EXPECT_THROW(one_chunk<std::int64_t>(rt, n), kmm::Closed);
        rt.close();
    }
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        rt.submit(host(), Host([] { throw std::runtime_error("untold"); }));
        const auto error = thrown_by<kmm::TaskError>([&] { rt.close(); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "untold"));
    }
}

TEST(Row019, destructors_do_not_throw_after_failures_and_with_unfinished_tasks) {
    KMM_NEED_DEVICES(1);
    kmm::set_global_log_level("off");
    for (int round = 0; round < 5; round++) {
        Gate gate;
        std::thread opener;
        {
            const RuntimeHandle rt = kmm::make_runtime(config_with(1));
            Array<std::int64_t> a(n), b(n);
            rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t>) {
                          gate.wait();
                          throw std::runtime_error("late");
                      }),
                      overwrite(a));
            for (int i = 0; i < 10; i++)
                rt.submit(device(0),
                          GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) { device.fill(v, 1); }),
                          write(a));
            rt.submit(device(0),
                      GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) { device.fill(v, 1); }),
                      overwrite(b));
            opener = std::thread([gate] { gate.open(); });
        }
        opener.join();
    }
    kmm::set_global_log_level("warn");
}

}  // namespace
