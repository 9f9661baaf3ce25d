// A host without memory, the reserve of the library included: the runtime is lost. Every call throws, a wait not before
// what the program may free is unused, and the process goes on. Memory of the runtime's may leak.
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>

#include "failing_new.hpp"
#include "kmm/base/log.hpp"

namespace {

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __lsan_disable();
extern "C" void __lsan_enable();
/// What the calling thread allocates meanwhile may leak.
struct LeaksAllowed {
    LeaksAllowed() { __lsan_disable(); }
    ~LeaksAllowed() { __lsan_enable(); }
};
#else
struct LeaksAllowed {
    LeaksAllowed() {}
    ~LeaksAllowed() {}
};
#endif

/// Whether the runtime refuses a question with OM: it is lost.
bool is_lost(const RuntimeHandle& rt) {
    try {
        (void)rt.is_done(EventId{});
    } catch (const kmm::OutOfMemory&) {
        return true;
    } catch (const std::bad_alloc&) {
        return true;
    }
    return false;
}

/// A task that writes the chunk when the gate opens, and has begun: without memory one that has not would fail alone,
/// what comes after it for that reason, and the runtime would not be lost.
void begin_to_write(const RuntimeHandle& rt, Array<std::int64_t>& x, const Gate& gate) {
    const Gate begins;
    rt.submit(host(), Host([begins, gate](kmm::ViewMut<std::int64_t> v) {
                  begins.open();
                  gate.wait();
                  v[0] = 1;
              }),
              overwrite(x));
    begins.wait();
}

TEST(LostRuntime, when_not_even_the_reserve_is_left_every_call_throws_and_no_thread_waits_for_ever) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    {
        const LeaksAllowed leaks;
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        auto x = one_chunk<std::int64_t>(rt, n);
        const EventId before = rt.submit(host(), Host([] {}));
        rt.wait(before);
        Gate gate;
        const OpenAtEnd open(gate);
        begin_to_write(rt, x, gate);
        std::vector<EventId> events;
        for (int i = 0; i < 200; i++)
            events.push_back(rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_one, dim3(64)),
                                                _x, write(x[_x])));
        const EventId last = events.back();
        fail_after(0, 1'000'000'000);
        {
            const TakesReserve takes;
            gate.open();
            bool failed = false;
            try {
                rt.wait(last);
            } catch (const kmm::OutOfMemory& e) {
                failed = true;
            } catch (const std::bad_alloc&) {
                failed = true;
            }
            EXPECT_TRUE(failed);
        }
        fail_no_more();
        for (const EventId event : {before, last}) {
            EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
            EXPECT_THROW((void)rt.is_done(event), kmm::OutOfMemory);
            EXPECT_THROW((void)rt.status(event), kmm::OutOfMemory);
            EXPECT_THROW((void)rt.join({before, event}), kmm::OutOfMemory);
        }
        try {
            rt.submit(host(), Host([] {}));
            ADD_FAILURE() << "a lost runtime takes nothing";
        } catch (const kmm::OutOfMemory& e) {
            EXPECT_EQ(e.memory(), kmm::MemoryId::host());
        }
        std::vector<std::int64_t> values(n);
        EXPECT_THROW(x.copy_to(values), kmm::OutOfMemory);
        EXPECT_THROW(x.copy_from(values), kmm::OutOfMemory);
        EXPECT_THROW(x.synchronize(), kmm::OutOfMemory);
        EXPECT_THROW((void)rt.report(), kmm::OutOfMemory);
        EXPECT_THROW((void)rt.plan_text(), kmm::OutOfMemory);
        EXPECT_THROW((void)rt.stats(), kmm::OutOfMemory);
        EXPECT_THROW(rt.trim_memory(), kmm::OutOfMemory);
        EXPECT_THROW(rt.synchronize(), kmm::OutOfMemory);
        EXPECT_THROW(rt.close(), kmm::OutOfMemory);
    }
    expect_usable(kmm::make_runtime(tight_config()));
}

TEST(LostRuntime, a_synchronize_that_waits_when_the_reserve_is_used_up_too_says_so) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const LeaksAllowed leaks;
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    auto x = one_chunk<std::int64_t>(rt, n);
    Gate gate;
    const OpenAtEnd open(gate);
    begin_to_write(rt, x, gate);
    for (int i = 0; i < 200; i++)
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_one, dim3(64)), _x, write(x[_x]));
    const EventId before = rt.barrier();
    enum class Said { nothing, out_of_memory, something_else };
    std::atomic<Said> said{Said::something_else};
    std::thread waiting([&] {
        try {
            rt.synchronize();
            said = Said::nothing;
        } catch (const kmm::OutOfMemory&) {
            said = Said::out_of_memory;
        } catch (const std::exception&) {}
    });
    for (bool submitted = false; !submitted; std::this_thread::yield()) {
        try {
            (void)rt.is_done(EventId(before.get() + 1));
            submitted = true;
        } catch (const kmm::InvalidArgument&) {}
    }
    fail_after(0, 1'000'000'000);
    {
        const TakesReserve takes;
        gate.open();
        waiting.join();
    }
    fail_no_more();
    EXPECT_EQ(said.load(), Said::out_of_memory);
    EXPECT_THROW(rt.submit(host(), Host([] {})), kmm::OutOfMemory);
}

/// Until the end of the scope the host has no memory, the reserve included.
struct NoMemory {
    NoMemory() { fail_after(0, 1'000'000'000); }
    ~NoMemory() { fail_no_more(); }
    NoMemory(const NoMemory&) = delete;
    NoMemory& operator=(const NoMemory&) = delete;
};
struct NoMemoryAtAll : NoMemory {
    TakesReserve takes;
};

void wait_whatever_is_thrown(const RuntimeHandle& rt, EventId event) {
    for (;;) {
        try {
            return rt.wait(event);
        } catch (const kmm::Error&) {
            return;
        } catch (const std::bad_alloc&) {
            std::this_thread::yield();  // where there is no memory to wait, or to say how it ended
        }
    }
}

/// A runtime that is lost when it is told to be: its scheduler needs memory then.
class Loses {
  public:
    explicit Loses(const RuntimeHandle& rt) : rt_(rt), x_(one_chunk<std::int64_t>(rt, n)) {
        begin_to_write(rt, x_, gate_);
        for (int i = 0; i < 200; i++)
            rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_one, dim3(64)), _x, write(x_[_x]));
    }
    ~Loses() { gate_.open(); }
    Loses(const Loses&) = delete;
    Loses& operator=(const Loses&) = delete;
    /// Returns when it is lost; what runs may go on.
    void now() {
        const NoMemoryAtAll none;
        gate_.open();
        while (!is_lost(rt_)) std::this_thread::yield();
    }

  private:
    const LeaksAllowed leaks_;
    RuntimeHandle rt_;
    Array<std::int64_t> x_;
    Gate gate_;
};

Gate* kernel_begins = nullptr;
Gate* kernel_goes_on = nullptr;

__global__ void wait_for_gate() {
    kernel_begins->open();
    kernel_goes_on->wait();
}

/// Each kind of work that something of the program may be used by.
enum class Work { host_function, device_function, kernel, kernel_of_a_function };
constexpr Work all_work[] = {Work::host_function, Work::device_function, Work::kernel, Work::kernel_of_a_function};

/// Begins work of this kind, which ends when the gate opens.
EventId begin_work(const RuntimeHandle& rt, Work work, Gate& ends) {
    Gate begins, returns;
    kernel_begins = &begins;
    kernel_goes_on = &ends;
    EventId event;
    switch (work) {
    case Work::host_function:
        event = rt.submit(host(), Host([begins, ends] {
                              begins.open();
                              ends.wait();
                          }));
        break;
    case Work::device_function:
        event = rt.submit(device(1), GPU([begins, ends](kmm::DeviceResource&) {
                              begins.open();
                              ends.wait();
                          }));
        break;
    case Work::kernel:
        event = rt.parallel_submit(std::vector{chunk_of(device(1), 0, 1)}, GPUKernel(wait_for_gate, dim3(1)));
        break;
    case Work::kernel_of_a_function:
        event = rt.submit(device(1), GPU([](kmm::DeviceResource& d) { d.launch(dim3(1), dim3(1), 0, wait_for_gate); }));
        break;
    }
    begins.wait();
    return event;
}

TEST(LostRuntime, a_wait_throws_when_nothing_of_what_ran_is_left_and_not_before) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    for (const Work work : all_work) {
        SCOPED_TRACE("work " + std::to_string(static_cast<int>(work)));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Gate ends;
        Loses loses(rt);
        const EventId event = begin_work(rt, work, ends);
        const OpenAtEnd open(ends);
        loses.now();
        EXPECT_FALSE(rt.wait_for(event, std::chrono::milliseconds(20))) << "who waits may free what it still uses";
        std::future<void> all = std::async(std::launch::async, [&rt] { rt.synchronize(); });
        EXPECT_EQ(all.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
        ends.open();
        EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
        EXPECT_THROW(all.get(), kmm::OutOfMemory);
    }
}

TEST(LostRuntime,
     a_function_that_launched_a_kernel_and_returns_when_the_runtime_is_lost_is_waited_for_until_the_kernel_ends) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    Gate kernel_runs, function_goes_on, kernel_ends;
    kernel_begins = &kernel_runs;
    kernel_goes_on = &kernel_ends;
    Loses loses(rt);
    const EventId event = rt.submit(device(1), GPU([function_goes_on](kmm::DeviceResource& d) {
                                        d.launch(dim3(1), dim3(1), 0, wait_for_gate);
                                        function_goes_on.wait();
                                    }));
    const OpenAtEnd open_kernel(kernel_ends), open_function(function_goes_on);
    kernel_runs.wait();
    loses.now();
    function_goes_on.open();
    EXPECT_FALSE(rt.wait_for(event, std::chrono::milliseconds(20)));
    kernel_ends.open();
    EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
}

TEST(LostRuntime, a_task_whose_end_cannot_be_told_for_want_of_memory_ends_all_the_same) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    for (const Work work : all_work) {
        SCOPED_TRACE("work " + std::to_string(static_cast<int>(work)));
        const LeaksAllowed leaks;
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Gate ends;
        const EventId event = begin_work(rt, work, ends);
        const OpenAtEnd open(ends);
        {
            const NoMemoryAtAll none;
            ends.open();
            wait_whatever_is_thrown(rt, event);
        }
        // What the launcher told left room for what the device tells.
        if (work == Work::kernel_of_a_function) continue;
        EXPECT_THROW(rt.wait(event), kmm::OutOfMemory) << "its end was told: the test shows nothing";
    }
}

std::atomic<bool> said_that_it_is_lost{false};

TEST(LostRuntime, that_a_runtime_is_lost_is_said_although_there_is_no_memory_for_the_words) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    said_that_it_is_lost = false;
    kmm::set_log_handler(
        [](int, const char* text, void*) {
            if (std::strstr(text, "no memory for the books of a kmm runtime") != nullptr) said_that_it_is_lost = true;
        },
        nullptr);
    {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Loses(rt).now();
    }
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_TRUE(said_that_it_is_lost.load());
}

struct Middle {
    RuntimeHandle rt;
    Gate gate;
    EventId pending;
    std::optional<TakesReserve> takes;
    bool was_there = false;
};
Middle* middle = nullptr;

/// The runtime is lost while its submit is on its way; no longer is waited, as the submit may hold what it needs for
/// that.
void lose_in_the_middle() {
    middle->was_there = true;
    fail_after(0, 1'000'000'000);
    middle->takes.emplace();
    is_spared = true;
    middle->gate.open();
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!is_lost(middle->rt) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    try {
        (void)middle->rt.wait_for(middle->pending, std::chrono::milliseconds(20));
    } catch (const std::exception&) {}  // the submit must not get it: this is an allocation of its
}

TEST(LostRuntime, a_runtime_that_is_lost_leaves_alone_what_a_submit_has_not_published_yet) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const long step = repeat(3, 29);
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 1000);
        SCOPED_TRACE("allocation " + std::to_string(at));
        bool over = false;
        {
            const LeaksAllowed leaks;
            Middle m{kmm::make_runtime(tight_config()), {}, {}, {}};
            middle = &m;
            auto x = one_chunk<std::int64_t>(m.rt, n);
            begin_to_write(m.rt, x, m.gate);
            const OpenAtEnd open(m.gate);
            for (int i = 0; i < 50; i++)
                m.pending = m.rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_one, dim3(64)),
                                                 _x, write(x[_x]));
            in_the_middle = lose_in_the_middle;
            calls_until = at;
            std::optional<EventId> submitted;
            try {
                // More readers of one chunk than are remembered: joins are made on the way.
                submitted = m.rt.parallel_submit(20, 1, Host([](kmm::View<std::int64_t>) {}), x);
            } catch (const kmm::OutOfMemory&) {
            } catch (const std::bad_alloc&) {}  // no memory for the words
            calls_until = -1;
            // g++ 12 forgets the value of an EventId that is assigned to where that throws.
            const EventId event = submitted.value_or(m.pending);
            m.gate.open();
            wait_whatever_is_thrown(m.rt, event);
            EXPECT_TRUE(!m.was_there || is_lost(m.rt));
            over = !m.was_there;
            is_spared = false;
            m.takes.reset();
            fail_no_more();
        }
        if (over || HasFailure()) return;
    }
}

/// In a process of its own: nothing was ever logged.
void lose_first_of_all() {
    {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Loses(rt).now();
    }
    std::exit(0);
}

TEST(LostRuntime, a_runtime_that_is_lost_before_anything_was_logged_says_so) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(lose_first_of_all(), testing::ExitedWithCode(0), "no memory for the books of a kmm runtime");
}

TEST(LostRuntime, a_flush_of_what_no_thread_could_be_made_for_is_not_held_up_by_a_handler_that_blocks) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    static Gate* gate;
    Gate closed;
    gate = &closed;
    kmm::set_log_handler([](int, const char*, void*) { gate->wait(); }, nullptr);
    const OpenAtEnd open(closed);
    std::promise<void> begins;
    std::future<void> flushed = std::async(std::launch::async, [&] {
        begins.get_future().wait();
        kmm::log::flush();
    });
    fail_after(0, 1'000'000);
    kmm::log::post(kmm::log::warn, "a line");
    fail_no_more();
    EXPECT_GT(failed_so_far, 0) << "a thread was made: the test shows nothing";
    begins.set_value();
    EXPECT_EQ(flushed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    closed.open();
    kmm::set_log_handler(nullptr, nullptr);
}

/// From the allocation after so many more on the host has no memory, and from then on none of the reserve either.
class NoMemoryFrom {
  public:
    explicit NoMemoryFrom(long allocations) {
        is_taken = false;
        at_first_failure = [] {
            taken.emplace();
            is_taken = true;
            is_taken.notify_all();
        };
        fail_after(allocations, 1'000'000'000);
    }
    /// The host has memory again. The reserve is taken to the end before, as that is when nothing is given.
    void ends() {
        if (at_first_failure.exchange(nullptr) == nullptr) is_taken.wait(false);
        fail_no_more();
        taken.reset();
    }

  private:
    static inline std::optional<TakesReserve> taken;
    static inline std::atomic<bool> is_taken{false};
};

TEST(LostRuntime, from_whichever_allocation_on_the_reserve_is_used_up_too_a_runtime_ends) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    from_whichever_allocation_on(repeat(1, 7), [](long at) {
        const LeaksAllowed leaks;
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        auto y = one_chunk<std::int64_t>(rt, n);
        std::vector<std::int64_t> values = counting<std::int64_t>(size);
        const auto attempt = [](auto&& f) {
            try {
                f();
            } catch (const kmm::Error&) {
            } catch (const std::bad_alloc&) {}
        };
        rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) { v[0] = 1; }), write(y));
        NoMemoryFrom none(at);
        // More readers of one chunk than are remembered: joins are made on the way.
        attempt([&] { rt.parallel_submit(20, 1, Host([](kmm::View<std::int64_t>) {}), y); });
        attempt([&] { x.copy_from(values); });
        for (int i = 0; i < 10; i++) attempt([&] { x.copy_to(values); });
        none.ends();
        attempt([&] { rt.synchronize(); });
    });
    expect_usable(kmm::make_runtime(tight_config()));
}

TEST(LostRuntime,
     from_whichever_allocation_on_the_reserve_is_used_up_too_devices_that_wait_for_each_other_come_to_an_end) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    from_whichever_allocation_on(repeat(1, 7), [](long at) {
        const LeaksAllowed leaks;
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        Gate gate;
        std::vector<DomainChunk> on_host;
        for (std::int64_t c = 0; c < chunks; c++) on_host.push_back(chunk_of(host(), c * n, n));
        rt.parallel_submit(on_host,
                           Host([gate](kmm::Range<std::int64_t>, kmm::SubviewMut<std::int64_t>) { gate.wait(); }), _x,
                           overwrite(x[_x]));
        EventId last;
        for (int i = 0; i < 12; i++) {
            // Each chunk goes from one device to the other and back: every lane comes after others.
            std::vector<DomainChunk> places;
            for (std::int64_t c = 0; c < chunks; c++)
                places.push_back(chunk_of(device(static_cast<std::size_t>((c + i) % 2)), c * n, n));
            if (i % 3 == 2)
                last = rt.parallel_submit(places, GPU([](kmm::DeviceResource& d, kmm::Range<std::int64_t> r, auto v) {
                                              d.launch(dim3(4), dim3(64), 0, add_one, r, v);
                                          }),
                                          _x, write(x[_x]));
            else
                last = rt.parallel_submit(places, GPUKernel(add_one, dim3(64)), _x, write(x[_x]));
        }
        NoMemoryFrom none(at);
        gate.open();
        wait_whatever_is_thrown(rt, last);
        none.ends();
    });
    expect_usable(kmm::make_runtime(tight_config()));
}

}  // namespace
