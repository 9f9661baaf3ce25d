// Failures and events: rows 37 and 95 to 104.
#include "harness.hpp"

#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "kmm/utils/panic.hpp"

namespace {

__global__ void double_elements(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] *= 2;
}

#if !KMM_USE_CUDA
__global__ void throws_something(kmm::GPUSubviewMut<std::int64_t> x) {
    if (threadIdx.x == 3) throw std::domain_error("no such cell");
    x[threadIdx.x] = 1;
}
__global__ void asserts(kmm::GPUSubviewMut<std::int64_t> x) { KMM_ASSERT(x[0] == 12345); }
#endif

struct Recorded {
    std::mutex mutex;
    std::condition_variable added;
    std::vector<std::string> texts;
    /// The first text with `part`; waits for it.
    std::string wait_for(const std::string& part) {
        std::unique_lock<std::mutex> lock(mutex);
        std::string found;
        added.wait(lock, [&] {
            for (const std::string& t : texts)
                if (t.find(part) != std::string::npos) found = t;
            return !found.empty();
        });
        return found;
    }
    bool any_with(const std::string& text) {
        std::lock_guard<std::mutex> guard(mutex);
        return std::any_of(texts.begin(), texts.end(),
                           [&](const std::string& t) { return t.find(text) != std::string::npos; });
    }
};

/// Collects log messages for a scope.
class LogCapture {
  public:
    LogCapture() {
        kmm::set_log_handler(
            [](int level, const char* text, void* user) {
                auto& recorded = *static_cast<Recorded*>(user);
                std::lock_guard<std::mutex> guard(recorded.mutex);
                recorded.texts.push_back(std::to_string(level) + " " + text);
                recorded.added.notify_all();
            },
            &recorded_);
    }
    ~LogCapture() { kmm::set_log_handler(nullptr, nullptr); }
    LogCapture(const LogCapture&) = delete;
    LogCapture& operator=(const LogCapture&) = delete;
    bool any_with(const std::string& text) { return recorded_.any_with(text); }
    std::string wait_for(const std::string& text) { return recorded_.wait_for(text); }

  private:
    Recorded recorded_;
};

constexpr std::int64_t n = 100;

/// Chunk 1 of 3 of the host task "axpy" fails; it overwrites [40, 70) of `a`.
EventId fail_in_the_middle(const RuntimeHandle& rt, Array<std::int64_t>& a, int* line) {
    const std::vector chunks{chunk_of(host(), 0, 40), chunk_of(host(), 40, 30), chunk_of(host(), 70, 30)};
    *line = __LINE__ + 1;
    return rt.parallel_submit(chunks, Host([](kmm::Range<std::int64_t> r, kmm::SubviewMut<std::int64_t> v) {
                                          if (r.begin == 40) throw std::range_error("bad value 42");
                                          for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = -i;
                                      }).named("axpy"),
                              _x, overwrite(a[_x]));
}

void expect_axpy_failed(const kmm::TaskError& e, int line) {
    EXPECT_EQ(e.task_name(), "axpy");
    EXPECT_EQ(e.chunk_index(), 1u);
    EXPECT_EQ(e.num_chunks(), 3u);
    EXPECT_EQ(e.chunk().offset[0], 40);
    EXPECT_EQ(e.chunk().size[0], 30);
    EXPECT_EQ(e.resource(), ResourceId::host());
    // Compilers take any line of an expression of several lines.
    EXPECT_GE(e.where().line(), line);
    EXPECT_LE(e.where().line(), line + 4);
    EXPECT_TRUE(says(e, "axpy")) << e.what();
    EXPECT_TRUE(says(e, "chunk 1 of 3")) << e.what();
    EXPECT_TRUE(says(e, "failures_test")) << e.what();
    EXPECT_TRUE(says(e, "bad value 42")) << e.what();
    EXPECT_TRUE(nests<std::range_error>(e, "bad value 42"));
}

// ---------------------------------------------------------------------------------------------------- rows 95, 96

TEST(Row095, an_exception_of_a_host_task_reaches_wait_synchronize_and_copy_to) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        int line = 0;
        {
            auto a = rt.allocate(counting<std::int64_t>(n));
            const EventId event = fail_in_the_middle(rt, a, &line);
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            expect_axpy_failed(*error, line);
        }
        {
            auto a = rt.allocate(counting<std::int64_t>(n));
            fail_in_the_middle(rt, a, &line);
            const auto error = thrown_by<kmm::TaskError>([&] { rt.synchronize(); });
            ASSERT_NE(error, nullptr);
            expect_axpy_failed(*error, line);
        }
        {
            auto a = rt.allocate(counting<std::int64_t>(n));
            fail_in_the_middle(rt, a, &line);
            const auto error = thrown_by<kmm::TaskError>([&] { a.copy_to_vector(); });
            ASSERT_NE(error, nullptr);
            expect_axpy_failed(*error, line);
            const auto again = thrown_by<kmm::TaskError>([&] { a.synchronize(); });
            ASSERT_NE(again, nullptr);
            expect_axpy_failed(*again, line);
        }
        rt.synchronize();
    });
}

TEST(Row096, an_exception_of_a_device_function_is_nested_in_a_task_error) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            auto a = rt.allocate(counting<std::int64_t>(n));
            const EventId event =
                rt.submit(device(d), GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) {
                                         device.fill(v, 3);
                                         throw std::length_error("library refused");
                                     }).named("refused"),
                          write(a));
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            EXPECT_EQ(error->task_name(), "refused");
            EXPECT_EQ(error->resource().as_device().get(), d);
            EXPECT_TRUE(nests<std::length_error>(*error, "library refused"));
            EXPECT_THROW(a.copy_to_vector(), kmm::TaskError);
            // The device goes on.
            auto b = rt.allocate(counting<std::int64_t>(n));
            rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, GPUKernel(double_elements, dim3(32)), _x,
                               write(b[_x]));
            EXPECT_EQ(b.copy_to_vector().at(50), 100);
        }
    });
}

#if KMM_USE_CUDA
__global__ void faults_after(long long nanoseconds) {
    for (long long t = 0; t < nanoseconds; t += 1000) __nanosleep(1000);
    *reinterpret_cast<volatile int*>(8) = 1;
}

/// In a process of its own: the fault ends CUDA in the whole process.
[[noreturn]] void wait_for_a_kernel_that_faults(long long nanoseconds) {
    alarm(60);  // a hang ends the process with a signal
    int wrong = 0;
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto other = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId::host()));
    other.fill(4);
    const EventId event =
        rt.submit(device(0), GPUKernel(faults_after, dim3(1)).grid(dim3(1)).named("wild"), nanoseconds);
    try {
        rt.wait(event);
        wrong |= 1;
    } catch (const kmm::TaskError& error) {
        if (error.task_name() != "wild") wrong |= 2;
    }
    try {
        rt.synchronize();  // a hang or another kind of error would be wrong
    } catch (const kmm::TaskError&) {
        // what failed may be told to the one who asks for everything too
    } catch (...) {
        wrong |= 4;
    }
    // What is on the host is still there.
    for (const std::int64_t v : other.copy_to_vector())
        if (v != 4) wrong |= 8;
    _exit(wrong);
}

TEST(Row096, a_kernel_that_faults_fails_its_task_and_nobody_waits_for_ever) {
    KMM_NEED_DEVICES(1);
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(wait_for_a_kernel_that_faults(0), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(wait_for_a_kernel_that_faults(100'000'000), testing::ExitedWithCode(0), "");
}
#else
std::atomic<int> runs_behind_a_failure{0};
__global__ void throws_in_the_end(Gate* gate, kmm::GPUSubviewMut<std::int64_t>) {
    gate->wait();
    throw std::domain_error("first");
}
__global__ void counts_runs(kmm::GPUSubviewMut<std::int64_t>) { runs_behind_a_failure++; }

TEST(Row097, what_depends_on_a_kernel_that_throws_does_not_run_even_if_it_was_launched_before) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        runs_behind_a_failure = 0;
        auto a = rt.allocate(counting<std::int64_t>(n));
        Gate gate;
        const OpenAtEnd open(gate);
        rt.submit(device(0), GPUKernel(throws_in_the_end, dim3(1)).grid(dim3(1)), &gate, write(a[_]));
        rt.submit(device(0), GPUKernel(counts_runs, dim3(1)).grid(dim3(1)), write(a[_]));
        const EventId last =
            rt.submit(device(0), GPU([](kmm::DeviceResource& device, kmm::GPUSubviewMut<std::int64_t> v) {
                          device.launch(dim3(1), dim3(1), 0, counts_runs, v);
                      }),
                      write(a[_]));
        gate.open();
        EXPECT_THROW(rt.wait(last), kmm::TaskError);
        EXPECT_EQ(runs_behind_a_failure.load(), 0);
    });
}

__global__ void waits_at(Gate* gate, kmm::GPUSubviewMut<std::int64_t>) { gate->wait(); }
__global__ void counts_runs_on_two(kmm::GPUSubviewMut<std::int64_t>, kmm::GPUSubview<std::int64_t>) {
    runs_behind_a_failure++;
}

TEST(Row097, what_depends_on_a_cancelled_task_does_not_run_though_that_one_has_not_settled) {
    for_each_configuration(working_set({n * 8, n * 8}), [](RuntimeHandle rt) {
        runs_behind_a_failure = 0;
        auto bad = rt.allocate(counting<std::int64_t>(n));
        auto a = rt.allocate(counting<std::int64_t>(n));
        auto b = rt.allocate(counting<std::int64_t>(n));
        const GPUKernel run = GPUKernel(counts_runs_on_two, dim3(1)).grid(dim3(1));
        const EventId root = rt.submit(
            host(), Host([](kmm::ViewMut<std::int64_t>) { throw std::runtime_error("the root"); }), write(bad));
        EXPECT_THROW(rt.wait(root), kmm::TaskError);
        Gate gate;
        const OpenAtEnd open(gate);
        rt.submit(device(0), GPUKernel(waits_at, dim3(1)).grid(dim3(1)), &gate, write(a[_]));
        // Cancelled for what it reads, and open for what it overwrites.
        const EventId cancelled = rt.submit(device(0), run, overwrite(a[_]), bad[_]);
        const EventId early = rt.submit(device(0), run, overwrite(b[_]), a[_]);
        rt.wait(rt.submit(host(), Host([] {})));  // the schedule has read what was submitted
        const EventId late = rt.submit(device(0), run, write(b[_]), a[_]);
        const EventId function = rt.submit(
            device(0), GPU([](kmm::DeviceResource&, kmm::GPUSubview<std::int64_t>) { runs_behind_a_failure++; }), a[_]);
        rt.wait(rt.submit(host(), Host([] {})));
        gate.open();
        for (const EventId event : {cancelled, early, late, function}) {
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(says(*error, "the root")) << error->what();
        }
        EXPECT_EQ(runs_behind_a_failure.load(), 0);
    });
}
#endif

#if !KMM_USE_CUDA
TEST(Row096, a_copy_into_an_array_that_fails_inside_a_task_fails_that_task_and_nothing_else) {
    RuntimeConfig config = config_with(1);
    config.virtual_device_memory = std::size_t{64} << 10;
    const RuntimeHandle rt = kmm::make_runtime(config);
    constexpr std::int64_t many = 1'000'000;
    auto large = rt.array<std::int64_t>(many, Distribution<1>::single(many, MemoryId::host()));
    large.fill(6);
    const EventId event = rt.submit(device(0), GPU([large](kmm::DeviceResource&, kmm::GPUViewMut<std::int64_t> small) {
                                        large.copy_from(small.data());  // the device has not that much memory
                                    }),
                                    overwrite(Array<std::int64_t>(10)));
    EXPECT_THROW(rt.wait(event), kmm::TaskError);
    EXPECT_NO_THROW(rt.wait(rt.submit(host(), Host([] {}))));
    EXPECT_EQ(large.copy_to_vector(), std::vector<std::int64_t>(many, 6));
    rt.wait(rt.barrier());
}
#endif

__global__ void narrow(kmm::Range<int> range, kmm::GPUSubviewMut<std::int64_t> v) {
    if (threadIdx.x == 0) v[range.begin] = 1;
}

TEST(Row050, a_range_that_does_not_fit_its_parameter_fails_the_task_on_the_host_and_on_devices) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        constexpr std::int64_t far = std::int64_t{1} << 40;
        const auto check = [&](EventId event, const Array<std::int64_t>& a, const char* name) {
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            EXPECT_EQ(error->task_name(), name);
            EXPECT_TRUE(nests<std::overflow_error>(*error, ""));
            EXPECT_THROW(a.copy_to_vector(), kmm::TaskError);
        };
        auto a = rt.allocate(counting<std::int64_t>(n));
        check(rt.parallel_submit(std::vector{chunk_of(host(), 0, 4)},
                                 Host([](kmm::Range<int>, kmm::SubviewMut<std::int64_t>) {}).named("on host"), _x + far,
                                 write(a[_x])),
              a, "on host");
        auto b = rt.allocate(counting<std::int64_t>(n));
        check(rt.parallel_submit(std::vector{chunk_of(device(0), 0, 4)}, GPUKernel(narrow, dim3(32)).named("in kernel"),
                                 _x + far, write(b[_x])),
              b, "in kernel");
        auto c = rt.allocate(counting<std::int64_t>(n));
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, 4)}, GPUKernel(narrow, dim3(32)), _x, write(c[_x]));
        EXPECT_EQ(c.copy_to_vector().at(0), 1);
    });
}

#if !KMM_USE_CUDA
TEST(Row096, an_exception_and_a_failed_assertion_of_an_emulated_kernel_fail_the_task_and_nothing_else) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        for (std::size_t d = 0; d < num_devices(rt); d++) {
            auto a = rt.allocate(counting<std::int64_t>(n));
            const EventId first =
                rt.submit(device(d), GPUKernel(throws_something, dim3(32)).named("thrower"), write(a[_]));
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(first); });
            ASSERT_NE(error, nullptr);
            EXPECT_EQ(error->task_name(), "thrower");
            EXPECT_TRUE(says(*error, "no such cell")) << error->what();
            EXPECT_TRUE(nests<kmm::DeviceError>(*error, "no such cell"));
            try {
                std::rethrow_if_nested(*error);
            } catch (const std::exception& cause) {
                EXPECT_TRUE(nests<std::domain_error>(cause, "no such cell"));
            }
            auto b = rt.allocate(counting<std::int64_t>(n));
            const EventId second = rt.submit(device(d), GPUKernel(asserts, dim3(32)), write(b[_]));
            const auto assertion = thrown_by<kmm::TaskError>([&] { rt.wait(second); });
            ASSERT_NE(assertion, nullptr);
            EXPECT_TRUE(nests<kmm::DeviceError>(*assertion, "12345")) << assertion->what();
            auto c = rt.allocate(counting<std::int64_t>(n));
            rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, GPUKernel(double_elements, dim3(32)), _x,
                               write(c[_x]));
            EXPECT_EQ(c.copy_to_vector().at(50), 100);
        }
    });
}
#endif

// ---------------------------------------------------------------------------------------------------- rows 37, 97, 98

TEST(Row037, copying_poisoned_data_leaves_every_byte_of_the_destination_as_it_was) {
    for_each_configuration(working_set({25 * 8}), [](RuntimeHandle rt) {
        Gate gate;
        const OpenAtEnd open(gate);
        auto a = rt.array<std::int64_t>(n, Dim<1>(25));
        a.copy_from(counting<std::int64_t>(n));
        rt.parallel_submit(std::vector{chunk_of(host(), 75, 25)}, Host([gate](kmm::SubviewMut<std::int64_t>) {
                               gate.wait();
                               throw std::runtime_error("late failure");
                           }),
                           write(a[_x]));
        std::vector<std::int64_t> destination(n, 77);
        std::thread opener([gate] { gate.open(); });
        EXPECT_THROW(a.copy_to(destination.data()), kmm::TaskError);
        opener.join();
        EXPECT_EQ(destination, std::vector<std::int64_t>(n, 77));
        a.copy_to(destination.data(), Point<1>(10), Dim<1>(50));
        EXPECT_EQ(destination[0], 10);
        EXPECT_EQ(destination[49], 59);
        EXPECT_EQ(destination[50], 77);
    });
}

TEST(Row097, dependants_are_cancelled_and_name_the_root_and_themselves_and_others_go_on) {
    for_each_configuration(working_set({n * 8, n * 8}), [](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        auto b = rt.allocate(counting<std::int64_t>(n));
        auto other = rt.allocate(counting<std::int64_t>(n));
        auto ran = std::make_shared<std::atomic<int>>(0);
        Gate gate;
        const OpenAtEnd open(gate);
        const EventId root = rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t>) {
                                                   gate.wait();
                                                   throw std::runtime_error("the root cause");
                                               }).named("root"),
                                       write(a));
        const EventId first = rt.submit(
            host(), Host([ran](kmm::View<std::int64_t>, kmm::ViewMut<std::int64_t>) { (*ran)++; }).named("sum"), a,
            write(b));
        const EventId second =
            rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)},
                               GPUKernel(double_elements, dim3(32)).named("scale"), _x, write(b[_x]));
        const EventId independent = rt.parallel_submit(std::vector{chunk_of(device(num_devices(rt) - 1), 0, n)},
                                                       GPUKernel(double_elements, dim3(32)), _x, write(other[_x]));
        rt.wait(independent);
        EXPECT_FALSE(rt.is_done(second));
        gate.open();
        for (const auto& [event, name] : {std::pair{first, "sum"}, std::pair{second, "scale"}}) {
            const auto error = thrown_by<kmm::TaskError>([&, e = event] { rt.wait(e); });
            ASSERT_NE(error, nullptr);
            EXPECT_EQ(error->task_name(), "root");
            EXPECT_TRUE(says(*error, "the root cause")) << error->what();
            EXPECT_TRUE(says(*error, std::string("needed by task \"") + name + "\"")) << error->what();
            EXPECT_TRUE(nests<std::runtime_error>(*error, "the root cause"));
        }
        EXPECT_EQ(ran->load(), 0);
        EXPECT_EQ(rt.status(root), kmm::EventStatus::Failed);
        EXPECT_EQ(other.copy_to_vector().at(50), 100);
        EXPECT_THROW(b.copy_to_vector(), kmm::TaskError);
        rt.synchronize();
        const kmm::RuntimeStats s = rt.stats();
        EXPECT_EQ(s.tasks_failed, 1u);
        EXPECT_GE(s.tasks_cancelled, 2u);
    });
}

TEST(Row098, wait_throws_every_time_and_synchronize_once_with_the_rest_in_also_failed) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Gate gate;
    const OpenAtEnd open(gate);
    std::vector<EventId> events;
    for (int i = 0; i < 3; i++)
        events.push_back(rt.submit(host(), Host([gate, i] {
                                       gate.wait();
                                       throw std::runtime_error("failure " + std::to_string(i));
                                   })));
    gate.open();
    const auto error = thrown_by<kmm::TaskError>([&] { rt.synchronize(); });
    ASSERT_NE(error, nullptr);
    EXPECT_TRUE(says(*error, "failure 0")) << error->what();
    ASSERT_EQ(error->also_failed().size(), 2u);
    for (std::size_t i = 0; i < 2; i++) {
        try {
            std::rethrow_exception(error->also_failed()[i]);
        } catch (const kmm::TaskError& e) {
            EXPECT_TRUE(says(e, "failure " + std::to_string(i + 1))) << e.what();
        }
    }
    rt.synchronize();
    rt.wait(rt.barrier());
    for (int times = 0; times < 3; times++)
        for (const EventId e : events) EXPECT_THROW(rt.wait(e), kmm::TaskError);
    EXPECT_NE(rt.error(events[1]), nullptr);
    const EventId joined = rt.join(events[2], events[1]);
    const auto first = thrown_by<kmm::TaskError>([&] { rt.wait(joined); });
    ASSERT_NE(first, nullptr);
    EXPECT_TRUE(says(*first, "failure 1")) << first->what();
    // A failure that wait has thrown is not thrown again by synchronize; a barrier throws what nobody was told.
    const EventId told = rt.submit(host(), Host([] { throw std::runtime_error("told"); }));
    EXPECT_THROW(rt.wait(told), kmm::TaskError);
    rt.synchronize();
    rt.submit(host(), Host([] { throw std::runtime_error("untold"); }));
    EXPECT_THROW(rt.wait(rt.barrier()), kmm::TaskError);
    rt.synchronize();
}

TEST(Row099, an_undelivered_failure_is_logged_when_the_runtime_ends_and_a_delivered_one_is_not) {
    LogCapture log;
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        rt.submit(host(), Host([] { throw std::runtime_error("nobody asks for this"); }));
        const EventId event = rt.submit(host(), Host([] { throw std::runtime_error("somebody asks for this"); }));
        EXPECT_THROW(rt.wait(event), kmm::TaskError);
    }
    EXPECT_TRUE(log.any_with("nobody asks for this"));
    EXPECT_FALSE(log.any_with("somebody asks for this"));
}

// ---------------------------------------------------------------------------------------------------- row 100

TEST(Row100, overwrite_copy_from_fill_and_reset_clear_poison_and_write_does_not) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        const auto poisoned = [&] {
            auto a = rt.allocate(counting<std::int64_t>(n));
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t>) { throw std::runtime_error("poison"); }), write(a));
            EXPECT_THROW(a.synchronize(), kmm::TaskError);
            return a;
        };
        {
            auto a = poisoned();
            const EventId e = rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)},
                                                 GPUKernel(double_elements, dim3(32)).named("scale"), _x, write(a[_x]));
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(e); });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(says(*error, "overwrite")) << error->what();
            EXPECT_TRUE(says(*error, "reset")) << error->what();
            // A part that is replaced is good, the rest stays poisoned.
            rt.parallel_submit(std::vector{chunk_of(host(), 20, 30)}, Host([](kmm::SubviewMut<std::int64_t> v) {
                                   for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = 5 * i;
                               }),
                               overwrite(a[_x]));
            std::vector<std::int64_t> part(30);
            a.copy_to(part.data(), Point<1>(20), Dim<1>(30));
            EXPECT_EQ(part[29], 245);
            EXPECT_THROW(a.copy_to_vector(), kmm::TaskError);
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) {
                          for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = i;
                      }),
                      overwrite(a));
            EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
        }
        {
            auto a = poisoned();
            a.copy_from(counting<std::int64_t>(n, 3));
            EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n, 3));
        }
        {
            auto a = poisoned();
            a.fill(9);
            EXPECT_EQ(a.copy_to_vector(), std::vector<std::int64_t>(n, 9));
        }
        {
            auto a = poisoned();
            a.reset();
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) {
                          for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = 2 * i;
                      }),
                      write(a));
            EXPECT_EQ(a.copy_to_vector().at(99), 198);
        }
    });
}

// ---------------------------------------------------------------------------------------------------- row 101

TEST(Row101, waits_inside_a_task_of_the_same_runtime_are_refused_at_once) {
    for_each_configuration(working_set({8, 8}), [](RuntimeHandle rt) {
        Array<std::int64_t> a = rt.allocate(std::vector<std::int64_t>{1});
        Scalar<std::int64_t> s;
        rt.submit(host(), Host([](kmm::ViewMut<std::int64_t, 0> v) { *v = 4; }), overwrite(s));
        const EventId finished = rt.submit(host(), Host([] {}));
        rt.synchronize();
        Gate gate;
        const OpenAtEnd open(gate);
        Array<std::int64_t> held(1);
        const EventId pending = rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> v) {
                                              gate.wait();
                                              v[0] = 1;
                                          }),
                                          overwrite(held));
        auto refused = std::make_shared<std::vector<std::string>>();
        const auto try_all = [rt, a, s, held, finished, pending, refused] {
            const auto expect_refused = [&](const char* what, const std::function<void()>& f) {
                try {
                    f();
                    refused->push_back(std::string(what) + " was not refused");
                } catch (const kmm::DeadlockError&) {
                } catch (const std::exception& e) {
                    refused->push_back(std::string(what) + ": " + e.what());
                }
            };
            expect_refused("wait", [&] { rt.wait(pending); });
            expect_refused("wait_for", [&] { rt.wait_for(pending, std::chrono::hours(1)); });
            expect_refused("synchronize", [&] { rt.synchronize(); });
            expect_refused("copy_to", [&] { a.copy_to_vector(); });
            expect_refused("get", [&] { s.get(); });
            expect_refused("Array::synchronize", [&] {
                Array<std::int64_t> busy(1);
                rt.submit(host(), Host([](kmm::View<std::int64_t>, kmm::ViewMut<std::int64_t> v) { v[0] = 1; }), held,
                          write(busy));
                busy.synchronize();
            });
            expect_refused("close", [&] { rt.close(); });
            try {
                rt.wait(finished);
                rt.wait(EventId());
            } catch (const std::exception& e) {
                refused->push_back(std::string("a finished event: ") + e.what());
            }
        };
        rt.wait(rt.submit(host(), Host(try_all)));
        rt.wait(rt.submit(device(0), GPU([try_all](kmm::DeviceResource&) { try_all(); })));
        for (const std::string& text : *refused) ADD_FAILURE() << text;
        gate.open();
        rt.synchronize();
    });
}

TEST(Row101, a_task_may_wait_for_another_runtime) {
    RuntimeConfig config = config_with(1);
    config.host_threads = 1;
    const RuntimeHandle outer = kmm::make_runtime(config);
    const RuntimeHandle inner = kmm::make_runtime(config);
    auto sum = std::make_shared<std::atomic<int>>(0);
    Gate gate;
    const OpenAtEnd open(gate);
    const EventId slow = inner.submit(host(), Host([gate] { gate.wait(); }));
    // One pool thread, which waits: the task that opens the gate still finds a thread.
    const EventId waiting = outer.submit(host(), Host([inner, slow, sum] {
                                             inner.wait(slow);
                                             (*sum)++;
                                         }));
    outer.submit(host(), Host([gate] { gate.open(); }));
    outer.wait(waiting);
    EXPECT_EQ(sum->load(), 1);
}

// ---------------------------------------------------------------------------------------------------- rows 102 to 104

TEST(Row102, unknown_and_foreign_events_are_refused_and_the_default_event_is_done) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const RuntimeHandle other = kmm::make_runtime(config_with(1));
    const EventId event = rt.submit(host(), Host([] {}));
    rt.wait(event);
    const EventId unknown(event.get() + 100);
    for (const EventId bad : {unknown, other.submit(host(), Host([] {}))}) {
        EXPECT_THROW(rt.wait(bad), kmm::InvalidArgument);
        EXPECT_THROW(rt.is_done(bad), kmm::InvalidArgument);
        EXPECT_THROW(rt.status(bad), kmm::InvalidArgument);
        EXPECT_THROW(rt.error(bad), kmm::InvalidArgument);
        EXPECT_THROW(rt.wait_for(bad, std::chrono::seconds(1)), kmm::InvalidArgument);
        EXPECT_THROW(rt.join(event, bad), kmm::InvalidArgument);
    }
    const auto nobodys = thrown_by<kmm::InvalidArgument>([&] { rt.wait(EventId(12345)); });
    ASSERT_NE(nobodys, nullptr);
    EXPECT_TRUE(says(*nobodys, "no runtime issued event 12345")) << nobodys->what();
    EXPECT_TRUE(rt.is_done(EventId()));
    EXPECT_EQ(rt.status(EventId()), kmm::EventStatus::Succeeded);
    EXPECT_EQ(rt.error(EventId()), nullptr);
    rt.wait(EventId());
    const auto error = thrown_by<kmm::InvalidArgument>([&] { rt.wait(other.submit(host(), Host([] {}))); });
    ASSERT_NE(error, nullptr);
    EXPECT_TRUE(says(*error, std::to_string(rt.info().runtime_number()))) << error->what();
    EXPECT_TRUE(says(*error, std::to_string(other.info().runtime_number()))) << error->what();
}

TEST(Row103, joins_and_barriers_are_done_when_their_members_are) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        Gate first, second;
        const OpenAtEnd open_first(first), open_second(second);
        const EventId a = rt.submit(host(), Host([first] { first.wait(); }));
        const EventId b = rt.submit(host(), Host([second] { second.wait(); }));
        const EventId both = rt.join(a, b);
        const EventId listed = rt.join({a, b});
        const EventId single = rt.join(a);
        const EventId barrier = rt.barrier();
        const EventId after = rt.submit(host(), Host([] {}));
        EXPECT_TRUE(rt.is_done(rt.join()));
        rt.wait(after);
        for (const EventId e : {a, b, both, listed, single, barrier}) {
            EXPECT_FALSE(rt.is_done(e));
            EXPECT_EQ(rt.status(e), kmm::EventStatus::Pending);
            EXPECT_EQ(rt.error(e), nullptr);
        }
        first.open();
        rt.wait(single);
        EXPECT_FALSE(rt.is_done(both));
        EXPECT_FALSE(rt.is_done(barrier));
        second.open();
        for (const EventId e : {both, listed, barrier, b}) {
            rt.wait(e);
            EXPECT_TRUE(rt.is_done(e));
            EXPECT_EQ(rt.status(e), kmm::EventStatus::Succeeded);
        }
    });
}

TEST(Row104, bounded_waits_take_any_clock_and_duration_and_many_wait_for_one_event) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Gate gate;
    const OpenAtEnd open(gate);
    const EventId event = rt.submit(host(), Host([gate] { gate.wait(); }));
    EXPECT_FALSE(rt.wait_for(event, std::chrono::seconds(0)));
    EXPECT_FALSE(rt.wait_for(event, std::chrono::milliseconds(1)));
    EXPECT_FALSE(rt.wait_for(event, std::chrono::duration<double>(0.001)));
    EXPECT_FALSE(rt.wait_for(event, std::chrono::seconds(-5)));
    EXPECT_FALSE(rt.wait_until(event, std::chrono::steady_clock::now() + std::chrono::milliseconds(1)));
    EXPECT_FALSE(rt.wait_until(event, std::chrono::system_clock::now() + std::chrono::milliseconds(1)));
    EXPECT_FALSE(rt.wait_until(event, std::chrono::system_clock::time_point::min()));
    std::vector<std::thread> waiters;
    std::atomic<int> woken{0};
    for (int i = 0; i < 16; i++)
        waiters.emplace_back([&, i] {
            bool done = true;
            if (i % 4 == 0) rt.wait(event);
            if (i % 4 == 1) done = rt.wait_for(event, std::chrono::hours::max());
            if (i % 4 == 2) done = rt.wait_for(event, std::chrono::nanoseconds::max());
            if (i % 4 == 3) done = rt.wait_until(event, std::chrono::system_clock::time_point::max());
            if (done && rt.is_done(event)) woken++;
        });
    gate.open();
    for (std::thread& t : waiters) t.join();
    EXPECT_EQ(woken.load(), 16);
    EXPECT_TRUE(rt.wait_for(event, std::chrono::seconds(0)));
    EXPECT_TRUE(rt.wait_until(event, std::chrono::steady_clock::time_point::max()));
    const EventId failed = rt.submit(host(), Host([] { throw std::runtime_error("no"); }));
    EXPECT_THROW(rt.wait_for(failed, std::chrono::hours(1)), kmm::TaskError);
}

// ---------------------------------------------------------------------------------------------------- the watchdog

TEST(Watchdog, a_wait_without_progress_is_logged_with_who_waits_for_what) {
    KMM_NEED_DEVICES(1);
    LogCapture log;
    RuntimeConfig config = config_with(1);
    config.watchdog = 0.05;
    config.device_memory_limit = working_set({n * sizeof(std::int64_t)});
    const RuntimeHandle rt = kmm::make_runtime(config);
    Gate gate;
    auto a = one_chunk<std::int64_t>(rt, n), b = one_chunk<std::int64_t>(rt, n);
    std::future<void> waiter;
    const OpenAtEnd open(gate);
    // It holds the only place of the device, so that another task waits for memory.
    rt.submit(device(0),
              GPU([gate](kmm::DeviceResource&, kmm::GPUViewMut<std::int64_t>) { gate.wait(); }).named("holder"),
              overwrite(a));
    rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUViewMut<std::int64_t>) {}).named("starved"),
              overwrite(b));
    const int line = __LINE__ + 1;
    const EventId last = rt.submit(host(), Host([](kmm::View<std::int64_t>) {}).named("last"), a);
    waiter = std::async(std::launch::async, [&] { rt.wait(last); });
    const std::string text = log.wait_for("has finished for");
    gate.open();
    waiter.get();
    const std::string place = driver_under_test() == kmm::DriverKind::Host ? "virtual GPU 0" : "GPU 0";
    for (const std::string& part :
         {std::string("has finished for 50 ms; a thread waits for task \"last\" chunk 0 of 1 on the host"),
          "submitted at failures_test.cu:" + std::to_string(line),
          std::string("which waits for 1 unfinished task before it: task \"holder\" chunk 0 of 1 on " + place),
          "task \"holder\" chunk 0 of 1 on " + place + ": its device function is running",
          "task \"starved\" chunk 0 of 1 on " + place + ": waits for memory: misses 800 B of the 1.00 KiB",
          std::string("3 tasks are unfinished")})
        EXPECT_NE(text.find(part), std::string::npos) << "without \"" << part << "\":\n" << text;
    rt.synchronize();
}

TEST(Watchdog, a_join_of_the_library_is_named_by_what_it_stands_for) {
    LogCapture log;
    RuntimeConfig config = config_with(1);
    config.watchdog = 0.05;
    const RuntimeHandle rt = kmm::make_runtime(config);
    Gate gate;
    auto a = one_chunk<std::int64_t>(rt, n);
    std::future<void> waiter;
    const OpenAtEnd open(gate);
    rt.submit(host(), Host([](kmm::ViewMut<std::int64_t>) {}), overwrite(a));
    for (int i = 0; i < 9; i++) rt.submit(host(), Host([gate](kmm::View<std::int64_t>) { gate.wait(); }), a);
    const EventId last = rt.submit(host(), Host([](kmm::ViewMut<std::int64_t>) {}), write(a));
    waiter = std::async(std::launch::async, [&] { rt.wait(last); });
    const std::string text = log.wait_for("has finished for");
    gate.open();
    waiter.get();
    EXPECT_NE(text.find("a join of 8 tasks"), std::string::npos) << text;
    EXPECT_EQ(text.find("4611686018427387"), std::string::npos) << text;
    rt.synchronize();
}

TEST(Row096, a_failure_names_its_place_as_every_other_text_does) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const EventId event =
        rt.submit(device(0), GPU([](kmm::DeviceResource&) { throw std::runtime_error("no"); }).named("axpy"));
    const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
    ASSERT_NE(error, nullptr);
    const std::string place = driver_under_test() == kmm::DriverKind::Host ? "virtual GPU 0" : "GPU 0";
    EXPECT_TRUE(says(*error, " on " + place + " failed")) << error->what();
}

}  // namespace
