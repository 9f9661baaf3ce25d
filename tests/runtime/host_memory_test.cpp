// A host without memory: whichever allocation fails, on whichever thread, a submit throws or a task fails, results are
// right or clearly missing, and the runtime goes on.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "failing_new.hpp"

namespace {

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
    EXPECT_GT(n_of_whole, 0) << "what the scheduler needs is kept back";
}

/// Each tile lies across two chunks, and the submit reads all that it writes: gathers, a snapshot and write-backs.
void add_the_sum_of_all(const RuntimeHandle& rt, kmm::Array<std::int64_t>& x) {
    rt.parallel_submit(
        TileDomain(Dim<1>(size), Dim<1>(n / 2 + n)),
        Host([](kmm::Range<std::int64_t> r, kmm::View<std::int64_t> all, kmm::SubviewMut<std::int64_t> to) {
            for (std::int64_t i = r.begin; i < r.end; i++) to[i] += all.data()[size - 1];
        }),
        _x, x, write(x[_x]));
}

TEST(HostMemory, whichever_allocation_of_a_submit_across_chunks_fails_it_is_refused_as_a_whole_or_all_of_it_is_done) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    RuntimeConfig config = tight_config();
    config.device_memory_limit = std::size_t{32} << 20;
    long num_refused = 0;
    from_whichever_allocation_on(repeat(1, 5), [&](long at) {
        const RuntimeHandle rt = kmm::make_runtime(config);
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        x.fill(1);
        rt.synchronize();
        std::int64_t expected = 2;
        fail_after(at, 1);
        try {
            add_the_sum_of_all(rt, x);
        } catch (const std::exception&) {
            expected = 1;
            ++num_refused;
        }
        fail_no_more();
        try {
            rt.synchronize();
        } catch (const kmm::Error&) {
            return;  // a task found no memory
        }
        EXPECT_EQ(x.copy_to_vector(), std::vector<std::int64_t>(size, expected));
        add_the_sum_of_all(rt, x);
        EXPECT_EQ(x.copy_to_vector(), std::vector<std::int64_t>(size, 2 * expected)) << "and the runtime goes on";
    });
    EXPECT_GT(num_refused, 10 / repeat(1, 5));
}

TEST(HostMemory, that_runs_out_for_long_fails_submits_and_nothing_else) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    from_whichever_allocation_on(repeat(7, 97), [](long at) {
        const RuntimeHandle rt = kmm::make_runtime(tight_config());
        fail_after(at, 1'000'000);
        (void)run_program(rt);
        fail_no_more();
        expect_usable(rt);
    });
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
        try {
            rt.synchronize();
        } catch (const kmm::TaskError& e) {  // a function may begin while there is no memory
            EXPECT_TRUE(says(e, "the host has no memory for the books of the runtime")) << e.what();
        }
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

TEST(HostMemory, a_record_counts_what_it_had_no_memory_for) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("kmm_lossy_record_" + std::to_string(::getpid()) + ".txt");
    int num_lossy = 0;
    for (long at = 0;; at++) {
        ASSERT_LT(at, 1000);
        SCOPED_TRACE("allocation " + std::to_string(at));
        int submitted = 1;
        {
            RuntimeConfig config = tight_config();
            config.record = path.string();
            const RuntimeHandle rt = kmm::make_runtime(config);
            const auto launch = GPUKernel(add_one, dim3(1)).grid(dim3(1));
            auto x = rt.array<std::int64_t>(Dim<1>(n), Dim<1>(n));
            x.fill(1);
            fail_after(at, 1);
            try {
                rt.submit(device(0), launch, kmm::Range<std::int64_t>(0, n), write(x[_]));
                ++submitted;
            } catch (const std::bad_alloc&) {}
            fail_no_more();
            rt.submit(device(0), launch, kmm::Range<std::int64_t>(0, n), write(x[_]));
            try {
                rt.synchronize();
            } catch (const kmm::TaskError&) {
                // A task may have had no memory when it began.
            }
        }
        std::ifstream file(path);
        int kernels = 0, arrays = 0;
        std::string line, last;
        for (; std::getline(file, line); last = line) {
            kernels += line.rfind("kernel ", 0) == 0;
            arrays += line.rfind("array ", 0) == 0;
        }
        const bool is_whole = kernels == submitted && arrays == 1;
        num_lossy += !is_whole;
        EXPECT_TRUE(is_whole || (last.rfind("end lost=", 0) == 0 && last != "end lost=0")) << kernels << " " << last;
        if (failed_so_far == 0 || HasFailure()) break;
    }
    EXPECT_GT(num_lossy, 0) << "records need memory";
    std::filesystem::remove(path);
}

/// In a process of its own: no driver was ever asked for by its name.
void copy_first_of_all() {
    const RuntimeHandle rt = kmm::make_runtime(tight_config());
    auto x = one_chunk<std::int64_t>(rt, n);
    const auto values = counting<std::int64_t>(n);
    for (long at = 0;; at++) {
        fail_after(at, 1);
        try {
            x.copy_from(values);
        } catch (const std::bad_alloc&) {
        } catch (const kmm::Error&) {}
        fail_no_more();
        if (failed_so_far == 0) std::exit(x.copy_to_vector() == values ? 0 : 1);
    }
}

TEST(HostMemory, whichever_allocation_of_the_first_copy_of_a_process_fails_the_process_goes_on) {
    SKIP_WHERE_RACES_ARE_TRACKED();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(copy_first_of_all(), testing::ExitedWithCode(0), "");
}

}  // namespace
