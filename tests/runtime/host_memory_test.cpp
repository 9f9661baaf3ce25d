// A host without memory: whichever allocation fails, on whichever thread, a submit throws or a task fails, results are right or
// clearly missing, and the runtime goes on.
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "harness.hpp"
#include "kmm/graph/host_reserve.hpp"

namespace {

/// The allocation after so many more of the process fails, and as many behind it as `failures_left` says.
std::atomic<long> allocations_left{-1};
std::atomic<long> failures_left{0};
std::atomic<long> failed_so_far{0};
std::atomic<void (*)()> at_first_failure{nullptr};

/// Likewise of those that not even the whole reserve could serve.
std::atomic<long> large_left{-1};
std::atomic<long> large_failed{0};

/// Blocks of a megabyte and more, but for those of the reserve, which is the process's.
std::atomic<long> large_blocks{0};
void* count(void* p, long change) noexcept {
    const std::size_t bytes = malloc_usable_size(p);
    if (bytes >= std::size_t{1} << 20 && bytes < kmm::graph::HostReserve::size_bytes) large_blocks += change;
    return p;
}

/// 0: as malloc aligns.
void* allocate(std::size_t bytes, std::size_t alignment = 0) {
    if (bytes > kmm::graph::HostReserve::size_bytes && large_left.load(std::memory_order_relaxed) >= 0) {
        long left = large_left.load();
        while (left > 0 && !large_left.compare_exchange_weak(left, left - 1)) {}
        if (left == 0) {
            ++large_failed;
            throw std::bad_alloc();
        }
    }
    if (allocations_left.load(std::memory_order_relaxed) >= 0) {
        long left = allocations_left.load();
        while (left > 0 && !allocations_left.compare_exchange_weak(left, left - 1)) {}
        if (left == 0 && failures_left.fetch_sub(1) > 0) {
            ++failed_so_far;
            if (const auto f = at_first_failure.exchange(nullptr)) f();
            throw std::bad_alloc();
        }
    }
    if (bytes == 0) bytes = 1;
    void* const p = alignment == 0 ? std::malloc(bytes)
                                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p != nullptr) return count(p, 1);
    throw std::bad_alloc();
}

void* allocate_or_null(std::size_t bytes, std::size_t alignment = 0) noexcept {
    try {
        return allocate(bytes, alignment);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void release(void* p) noexcept {
    if (p != nullptr) std::free(count(p, -1));
}

void fail_after(long allocations, long failures) {
    failed_so_far = 0;
    failures_left = failures;
    allocations_left = allocations;
}

void fail_no_more() { allocations_left = -1; }

void fail_large_after(long allocations) {
    large_failed = 0;
    large_left = allocations;
}

}  // namespace

// Every form, so that none of the library's allocations is left out.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate_or_null(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate_or_null(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }

namespace {

constexpr std::int64_t n = 256;
constexpr std::int64_t chunks = 4;
constexpr std::int64_t size = n * chunks;

__global__ void add_one(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] += 1;
}

__global__ void store_index(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = i;
}

RuntimeConfig tight_config() {
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = 2;
    config.virtual_device_memory = std::size_t{64} << 20;
    config.device_memory_limit = 2 * n * sizeof(std::int64_t) + 256;  // two chunks: the others are written down
    config.host_threads = 2;
    config.device_concurrent_streams = 2;
    config.watchdog = 20;
    return config;
}

struct Outcome {
    bool whole = true;  ///< nothing was thrown
    std::vector<std::int64_t> values;
};

/// Submits of every kind, dependencies, evictions, copies, an array that goes while it is used. Whatever is thrown must be
/// one of the library's errors, or std::bad_alloc.
#if defined(__SANITIZE_THREAD__)
// The host driver's fibers, which show ThreadSanitizer what runs beside what, are memory that no driver without it needs.
#define SKIP_WHERE_RACES_ARE_TRACKED() GTEST_SKIP() << "the tracking of races allocates too"
#else
#define SKIP_WHERE_RACES_ARE_TRACKED() static_cast<void>(0)
#endif

Outcome run_program(const RuntimeHandle& rt) {
    Outcome outcome;
    const auto attempt = [&](auto&& f) {
        try {
            f();
        } catch (const kmm::Error&) {
            outcome.whole = false;
        } catch (const std::bad_alloc&) {
            outcome.whole = false;
        }
    };
    attempt([&] {
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        auto y = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        const auto tiles = [] { return TileDomain(Dim<1>(size), Dim<1>(n)); };
        attempt([&] {
            rt.parallel_submit(tiles(), GPU([](kmm::DeviceResource& device, kmm::Range<std::int64_t> r, auto v) {
                                   device.launch(dim3(4), dim3(64), 0, store_index, r, v);
                               }),
                               _x, overwrite(x[_x]));
        });
        attempt([&] { rt.parallel_submit(tiles(), GPUKernel(add_one, dim3(64)), _x, write(x[_x])); });
        attempt([&] {
            rt.parallel_submit(
                tiles(),
                Host([](kmm::Range<std::int64_t> r, kmm::Subview<std::int64_t> from, kmm::SubviewMut<std::int64_t> to) {
                    for (std::int64_t i = r.begin; i < r.end; i++) to[i] = 2 * from[i];
                }).named("double"),
                _x, x[_x], overwrite(y[_x]));
        });
        attempt([&] { rt.parallel_submit(tiles(), GPUKernel(add_one, dim3(64)), _x, write(y[_x])); });
        attempt([&] {
            auto gone = rt.allocate(counting<std::int64_t>(n));
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) { v[0] = 1; }), write(gone));
        });
        attempt([&] { rt.synchronize(); });
        attempt([&] { outcome.values = y.copy_to_vector(); });
    });
    return outcome;
}

/// Nothing of what was before stands in the way. What failed and was not asked for is told once.
void expect_usable(const RuntimeHandle& rt) {
    try {
        rt.synchronize();
    } catch (const kmm::Error&) {}
    const Outcome again = run_program(rt);
    EXPECT_TRUE(again.whole);
    ASSERT_EQ(again.values.size(), static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; i++) ASSERT_EQ(again.values[static_cast<std::size_t>(i)], 2 * (i + 1) + 1);
}

TEST(HostMemory, whichever_allocation_fails_once_the_program_gets_results_or_an_error_and_the_runtime_goes_on) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const long step = repeat(1, 23);
    long n_of_whole = 0;
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 20000);
        SCOPED_TRACE("allocation " + std::to_string(at));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        fail_after(at, 1);
        const Outcome outcome = run_program(rt);
        fail_no_more();
        if (failed_so_far == 0) break;
        if (outcome.whole) {
            n_of_whole++;
            ASSERT_EQ(outcome.values.size(), static_cast<std::size_t>(size));
            for (std::int64_t i = 0; i < size; i++)
                ASSERT_EQ(outcome.values[static_cast<std::size_t>(i)], 2 * (i + 1) + 1);
        }
        expect_usable(rt);
        if (HasFailure()) return;
    }
    EXPECT_GT(n_of_whole, 0) << "what the planner needs is kept back";
}

TEST(HostMemory, that_runs_out_for_long_fails_submits_and_nothing_else) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const long step = repeat(7, 97);
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 20000);
        SCOPED_TRACE("from allocation " + std::to_string(at));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        fail_after(at, 1'000'000);
        (void)run_program(rt);
        fail_no_more();
        const bool over = failed_so_far == 0;
        expect_usable(rt);
        if (over || HasFailure()) return;
    }
}

TEST(HostMemory, a_reserve_that_was_drawn_on_is_whole_again_when_what_it_was_for_is_gone) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        Gate gate;
        const OpenAtEnd open(gate);
        rt.submit(host(), Host([gate] { gate.wait(); }));
        rt.parallel_submit(TileDomain(Dim<1>(size), Dim<1>(n)), GPU([](kmm::DeviceResource&, auto) {}),
                           overwrite(x[_x]));
        fail_after(0, 1'000'000);
        gate.open();
        EXPECT_THROW(rt.submit(host(), Host([] {})), std::bad_alloc);
        fail_no_more();
        rt.synchronize();
    }
    EXPECT_EQ(kmm::graph::HostReserve::used_bytes(), 0u);
}

TEST(HostMemory, a_failure_that_a_synchronize_has_no_memory_to_tell_is_told_by_the_next) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    for (long at = 0;; at++) {
        ASSERT_LT(at, 1000);
        SCOPED_TRACE("allocation " + std::to_string(at));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        const EventId failed = rt.submit(host(), Host([] { throw std::runtime_error("its own"); }));
        const EventId other = rt.submit(host(), Host([] { throw std::runtime_error("another"); }));
        while (!rt.is_done(failed) || !rt.is_done(other)) std::this_thread::yield();
        bool told = false;
        fail_after(at, 1);
        try {
            rt.synchronize();
        } catch (const kmm::TaskError&) {
            told = true;
        } catch (const std::bad_alloc&) {}
        fail_no_more();
        if (!told) {
            EXPECT_THROW(rt.synchronize(), kmm::TaskError);
        }
        EXPECT_NO_THROW(rt.synchronize());
        if (failed_so_far == 0 || HasFailure()) return;
    }
}

constexpr std::int64_t many = 300'000;  // a list of so many predecessors is larger than the reserve

RuntimeConfig config_for_many() {
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = 1;
    config.virtual_device_memory = std::size_t{64} << 20;
    config.host_threads = 2;
    return config;
}

TEST(HostMemory, whichever_large_allocation_of_a_copy_fails_the_copy_throws_or_is_whole_and_the_runtime_goes_on) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const RuntimeHandle rt = kmm::make_runtime(config_for_many());
    auto x = rt.array<char>(Dim<1>(many), Dim<1>(1));
    const std::vector<char> ones(many, 1);
    for (long at = 0;; at++) {
        ASSERT_LT(at, 100);
        SCOPED_TRACE("large allocation " + std::to_string(at));
        bool threw = false;
        fail_large_after(at);
        try {
            x.copy_from(ones);
        } catch (const std::bad_alloc&) {
            threw = true;
        }
        large_left = -1;
        const bool over = large_failed == 0;
        ASSERT_TRUE(rt.wait_for(rt.barrier(), std::chrono::minutes(1)));
        if (threw) continue;
        EXPECT_EQ(x.copy_to_vector(), ones);
        if (over || HasFailure()) return;
    }
}

TEST(HostMemory, whichever_large_allocation_of_a_submit_fails_it_throws_or_is_whole_and_the_runtime_goes_on) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    constexpr std::int64_t most = 524'280;  // their joins go beyond a list of 2^19
    const RuntimeHandle rt = kmm::make_runtime(config_for_many());
    auto x = rt.allocate(std::vector<char>(16, 1));
    for (long at = 0;; at++) {
        ASSERT_LT(at, 100);
        SCOPED_TRACE("large allocation " + std::to_string(at));
        std::atomic<std::int64_t> run{0};
        bool threw = false;
        fail_large_after(at);
        try {
            rt.parallel_submit(most, 1, Host([&run](kmm::View<char>) { run++; }), x);
        } catch (const std::bad_alloc&) {
            threw = true;
        }
        const EventId all = rt.barrier();
        ASSERT_TRUE(rt.wait_for(all, std::chrono::minutes(1)));
        large_left = -1;
        EXPECT_EQ(rt.status(all), kmm::EventStatus::Succeeded);
        EXPECT_EQ(run.load(), threw ? 0 : most);
        if (large_failed == 0 || HasFailure()) return;
    }
}

/// All of the reserve, for a scope in which the system gives nothing either.
class TakesReserve {
  public:
    TakesReserve() {
        for (std::size_t bytes = kmm::graph::HostReserve::size_bytes; bytes >= 32; bytes /= 2) {
            for (;;) {
                try {
                    blocks_[num_blocks_] = {kmm::graph::HostReserve::allocate(bytes), bytes};
                } catch (const std::bad_alloc&) {
                    break;
                }
                ++num_blocks_;
            }
        }
    }
    ~TakesReserve() {
        while (num_blocks_ > 0) {
            --num_blocks_;
            kmm::graph::HostReserve::release(blocks_[num_blocks_].first, blocks_[num_blocks_].second);
        }
    }

  private:
    std::pair<void*, std::size_t> blocks_[1024];
    std::size_t num_blocks_ = 0;
};

TEST(HostMemory, when_not_even_the_reserve_is_left_every_unfinished_task_fails_and_nobody_waits_for_ever) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        auto x = one_chunk<std::int64_t>(rt, n);
        const EventId before = rt.submit(host(), Host([] {}));
        rt.wait(before);
        Gate gate;
        const OpenAtEnd open(gate);
        rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> v) {
                      gate.wait();
                      v[0] = 1;
                  }),
                  overwrite(x));
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
        EXPECT_NO_THROW(rt.wait(before));
        EXPECT_EQ(rt.status(last), kmm::EventStatus::Failed);
        EXPECT_THROW(rt.submit(host(), Host([] {})), kmm::OutOfMemory);
        EXPECT_FALSE(rt.report().empty());
    }
    expect_usable(kmm::make_runtime(tight_config()));
}

TEST(HostMemory, a_synchronize_that_waits_when_the_reserve_is_used_up_too_says_so) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    auto x = one_chunk<std::int64_t>(rt, n);
    Gate gate;
    const OpenAtEnd open(gate);
    rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> v) {
                  gate.wait();
                  v[0] = 1;
              }),
              overwrite(x));
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
    while (!rt.is_done(event)) {
        try {
            rt.wait(event);
        } catch (const std::exception&) {
            std::this_thread::yield();  // where there is no memory to say how it ended
        }
    }
}

/// A runtime that gives up when it is told to: its planner needs memory then.
class GivesUp {
  public:
    explicit GivesUp(const RuntimeHandle& rt) : rt_(rt), x_(one_chunk<std::int64_t>(rt, n)) {
        rt.submit(host(), Host([gate = gate_](kmm::ViewMut<std::int64_t> v) {
                      gate.wait();
                      v[0] = 1;
                  }),
                  overwrite(x_));
        for (int i = 0; i < 200; i++)
            last_ = rt.parallel_submit(std::vector{chunk_of(device(0), 0, n)}, GPUKernel(add_one, dim3(64)), _x,
                                       write(x_[_x]));
    }
    ~GivesUp() { gate_.open(); }
    GivesUp(const GivesUp&) = delete;
    GivesUp& operator=(const GivesUp&) = delete;
    /// Returns when it has.
    void now() {
        const NoMemoryAtAll none;
        gate_.open();
        wait_whatever_is_thrown(rt_, last_);
    }

  private:
    RuntimeHandle rt_;
    Array<std::int64_t> x_;
    Gate gate_;
    EventId last_;
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

TEST(HostMemory, a_task_whose_work_has_not_ended_when_the_runtime_gives_up_is_settled_when_it_has) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    for (const Work work : all_work) {
        SCOPED_TRACE("work " + std::to_string(static_cast<int>(work)));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Gate ends;
        GivesUp gives_up(rt);
        const EventId event = begin_work(rt, work, ends);
        const OpenAtEnd open(ends);
        gives_up.now();
        EXPECT_FALSE(rt.is_done(event)) << "who waits may free what the work still uses";
        EXPECT_EQ(rt.status(event), kmm::EventStatus::Pending);
        ends.open();
        EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
        EXPECT_EQ(rt.status(event), kmm::EventStatus::Failed);
    }
}

TEST(HostMemory,
     a_function_that_launched_a_kernel_and_returns_when_the_runtime_has_given_up_is_settled_after_the_kernel) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    Gate kernel_runs, function_goes_on, kernel_ends;
    kernel_begins = &kernel_runs;
    kernel_goes_on = &kernel_ends;
    GivesUp gives_up(rt);
    const EventId event = rt.submit(device(1), GPU([function_goes_on](kmm::DeviceResource& d) {
                                        d.launch(dim3(1), dim3(1), 0, wait_for_gate);
                                        function_goes_on.wait();
                                    }));
    const OpenAtEnd open_kernel(kernel_ends), open_function(function_goes_on);
    kernel_runs.wait();
    gives_up.now();
    function_goes_on.open();
    // Its launcher runs nothing else before it has told of this one.
    EXPECT_FALSE(rt.wait_for(event, std::chrono::milliseconds(20)));
    kernel_ends.open();
    EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
}

TEST(HostMemory, when_the_runtime_gives_up_nothing_is_settled_before_what_it_comes_after) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    auto x = one_chunk<std::int64_t>(rt, n);
    Gate begins, ends;
    GivesUp gives_up(rt);
    const EventId both = rt.parallel_submit(2, 1, Host([begins, ends](kmm::Range<std::int64_t> r) {
                                                if (r.begin != 0) return;
                                                begins.open();
                                                ends.wait();
                                            }),
                                            _x);
    const OpenAtEnd open(ends);
    const EventId after = rt.join({both});
    const EventId other = rt.submit(host(), Host([](kmm::ViewMut<std::int64_t>) {}), overwrite(x));
    const EventId barrier = rt.barrier();
    begins.wait();
    gives_up.now();
    wait_whatever_is_thrown(rt, other);
    EXPECT_FALSE(rt.is_done(both)) << "one of its tasks runs";
    EXPECT_FALSE(rt.is_done(after));
    EXPECT_FALSE(rt.is_done(barrier));
    ends.open();
    EXPECT_THROW(rt.wait(both), kmm::OutOfMemory);
    EXPECT_THROW(rt.wait(after), kmm::OutOfMemory);
    EXPECT_THROW(rt.wait(barrier), kmm::OutOfMemory);
}

TEST(HostMemory, a_task_whose_end_cannot_be_told_for_want_of_memory_is_settled_all_the_same) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    for (const Work work : all_work) {
        SCOPED_TRACE("work " + std::to_string(static_cast<int>(work)));
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        Gate ends;
        const EventId event = begin_work(rt, work, ends);
        const OpenAtEnd open(ends);
        {
            const NoMemoryAtAll none;
            ends.open();
            wait_whatever_is_thrown(rt, event);
        }
        EXPECT_EQ(rt.status(event), kmm::EventStatus::Failed) << "its end was told: the test shows nothing";
        EXPECT_THROW(rt.wait(event), kmm::OutOfMemory);
    }
}

std::atomic<bool> said_that_it_gives_up{false};

TEST(HostMemory, that_a_runtime_gives_up_is_said_although_there_is_no_memory_for_the_words) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    said_that_it_gives_up = false;
    kmm::set_log_handler(
        [](int, const char* text, void*) {
            if (std::strstr(text, "no memory for the books of a kmm runtime") != nullptr) said_that_it_gives_up = true;
        },
        nullptr);
    {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        GivesUp(rt).now();
    }
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_TRUE(said_that_it_gives_up.load());
}

TEST(HostMemory, arrays_that_go_while_a_runtime_gives_up_go_with_it) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    constexpr std::int64_t num_chunks = 20'000;  // what an array keeps of them is one large block
    for (const bool before : {true, false}) {
        SCOPED_TRACE(before ? "let go of before" : "let go of after");
        const long blocks = large_blocks;
        {
            const RuntimeHandle rt = kmm::make_runtime(tight_config());
            std::optional<Array<char>> gone = rt.array<char>(Dim<1>(num_chunks), Dim<1>(1));
            Gate begins, ends;
            GivesUp gives_up(rt);
            const OpenAtEnd open(ends);
            rt.parallel_submit(std::vector{chunk_of(host(), 0, 1)}, Host([begins, ends](kmm::SubviewMut<char>) {
                                   begins.open();
                                   ends.wait();
                               }),
                               write((*gone)[_x]));
            begins.wait();
            EXPECT_GT(large_blocks, blocks) << "the test shows nothing";
            if (before) {
                gone.reset();
                rt.wait(rt.submit(device(0), GPU([](kmm::DeviceResource&) {})));
            }
            gives_up.now();
        }
        EXPECT_EQ(large_blocks, blocks);
    }
}

std::optional<TakesReserve> taken_at_first_failure;
std::atomic<bool> is_taken{false};

TEST(HostMemory, from_whichever_allocation_on_the_reserve_is_used_up_too_a_runtime_ends) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const long step = repeat(1, 7);
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 20000);
        SCOPED_TRACE("from allocation " + std::to_string(at));
        {
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
            is_taken = false;
            at_first_failure = [] {
                taken_at_first_failure.emplace();
                is_taken = true;
                is_taken.notify_all();
            };
            fail_after(at, 1'000'000'000);
            // More readers of one chunk than are remembered: joins are made on the way.
            attempt([&] { rt.parallel_submit(20, 1, Host([](kmm::View<std::int64_t>) {}), y); });
            attempt([&] { x.copy_from(values); });
            for (int i = 0; i < 10; i++) attempt([&] { x.copy_to(values); });
            if (at_first_failure.exchange(nullptr) == nullptr) is_taken.wait(false);
            fail_no_more();
            taken_at_first_failure.reset();
            attempt([&] { rt.synchronize(); });
        }
        if (failed_so_far == 0 || HasFailure()) break;
    }
    expect_usable(kmm::make_runtime(tight_config()));
}

TEST(HostMemory,
     from_whichever_allocation_on_the_reserve_is_used_up_too_devices_that_wait_for_each_other_come_to_an_end) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const long step = repeat(1, 7);
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 20000);
        SCOPED_TRACE("from allocation " + std::to_string(at));
        {
            const RuntimeHandle rt = kmm::make_runtime(tight_config());
            auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
            Gate gate;
            std::vector<DomainChunk> on_host;
            for (std::int64_t c = 0; c < chunks; c++) on_host.push_back(chunk_of(host(), c * n, n));
            rt.parallel_submit(on_host,
                               Host([gate](kmm::Range<std::int64_t>, kmm::SubviewMut<std::int64_t>) { gate.wait(); }),
                               _x, overwrite(x[_x]));
            EventId last;
            for (int i = 0; i < 12; i++) {
                // Each chunk goes from one device to the other and back: every lane comes after others.
                std::vector<DomainChunk> places;
                for (std::int64_t c = 0; c < chunks; c++)
                    places.push_back(chunk_of(device(static_cast<std::size_t>((c + i) % 2)), c * n, n));
                if (i % 3 == 2)
                    last =
                        rt.parallel_submit(places, GPU([](kmm::DeviceResource& d, kmm::Range<std::int64_t> r, auto v) {
                                               d.launch(dim3(4), dim3(64), 0, add_one, r, v);
                                           }),
                                           _x, write(x[_x]));
                else
                    last = rt.parallel_submit(places, GPUKernel(add_one, dim3(64)), _x, write(x[_x]));
            }
            at_first_failure = [] { taken_at_first_failure.emplace(); };
            fail_after(at, 1'000'000'000);
            gate.open();
            wait_whatever_is_thrown(rt, last);
            fail_no_more();
            // A thread that is about to take the reserve has failed already, and ends that before the runtime does.
            at_first_failure = nullptr;
        }
        taken_at_first_failure.reset();
        if (failed_so_far == 0 || HasFailure()) break;
    }
    expect_usable(kmm::make_runtime(tight_config()));
}

}  // namespace
