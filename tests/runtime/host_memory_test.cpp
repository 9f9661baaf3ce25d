// A host without memory: whichever allocation fails, on whichever thread, a submit throws or a task fails, results are right or
// clearly missing, and the runtime goes on.
#include <cstdlib>
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

void* allocate(std::size_t bytes) {
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
    if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
    throw std::bad_alloc();
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

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

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

}  // namespace
