// The table of kernel handles: a search is short however many kernels a program has, and nothing is lost by growing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kmm/detail/kernel_handle_table.hpp"

namespace {

thread_local int steps = 0;
thread_local void (*when_taken)() = nullptr;
struct CountedSteps {
    void operator()() const noexcept { ++steps; }
    static void is_taken() noexcept {
        if (auto* const f = std::exchange(when_taken, nullptr)) f();
    }
};
using Table = kmm::detail::KernelHandleTable<CountedSteps>;

/// Tables keep their segments for ever, and so are reachable for ever.
Table& new_table() {
    static auto& all = *new std::vector<std::unique_ptr<Table>>;
    return *all.emplace_back(std::make_unique<Table>());
}

/// Kernels of a program: `spacing` bytes of code each.
const void* kernel(std::size_t number, std::size_t spacing) {
    return reinterpret_cast<const void*>(std::uintptr_t{0x5500'0000'0000} + number * spacing);
}
const void* handle(std::size_t number) { return reinterpret_cast<const void*>(16 * number + 16); }

struct Most {
    int find = 0;
    int find_absent = 0;
    int insert = 0;
    double average_find = 0;
};

Most steps_of(Table& handles, std::size_t num_kernels, std::size_t spacing) {
    Most most;
    for (std::size_t i = 0; i < num_kernels; ++i) {
        steps = 0;
        EXPECT_EQ(handles.find(kernel(i, spacing), 0), nullptr);
        most.find_absent = std::max(most.find_absent, steps);
        steps = 0;
        EXPECT_TRUE(handles.insert(kernel(i, spacing), 0, handle(i)));
        most.insert = std::max(most.insert, steps);
    }
    for (std::size_t i = 0; i < num_kernels; ++i) {
        steps = 0;
        EXPECT_EQ(handles.find(kernel(i, spacing), 0), handle(i));
        most.find = std::max(most.find, steps);
        most.average_find += static_cast<double>(steps) / static_cast<double>(num_kernels);
    }
    return most;
}

TEST(KernelHandleTable, finds_what_lies_behind_a_place_that_another_thread_has_not_filled_yet) {
    static Table& handles = new_table();
    when_taken = [] {
        for (std::size_t i = 1; i < 3000; ++i) {
            EXPECT_EQ(handles.find(kernel(i, 16), 0), nullptr);
            EXPECT_TRUE(handles.insert(kernel(i, 16), 0, handle(i)));
            EXPECT_EQ(handles.find(kernel(i, 16), 0), handle(i)) << i;
        }
    };
    EXPECT_TRUE(handles.insert(kernel(0, 16), 0, handle(0)));
    for (std::size_t i = 0; i < 3000; ++i) EXPECT_EQ(handles.find(kernel(i, 16), 0), handle(i)) << i;
}

TEST(KernelHandleTable, takes_at_most_eight_steps_more_for_four_times_as_many_kernels) {
    for (const std::size_t spacing : {std::size_t{16}, std::size_t{48}, std::size_t{4096}}) {
        SCOPED_TRACE(spacing);
        int most = 8;
        for (const std::size_t n : {256u, 1024u, 4096u, 16384u}) {
            SCOPED_TRACE(n);
            const Most counted = steps_of(new_table(), n, spacing);
            EXPECT_LE(counted.find, most);
            EXPECT_LE(counted.find_absent, most);
            EXPECT_LE(counted.insert, most + 8);
            EXPECT_LE(counted.average_find, 0.75 * most);
            most += 8;
        }
    }
}

TEST(KernelHandleTable, finds_a_kernel_of_a_small_program_in_two_steps_on_average) {
    EXPECT_LE(steps_of(new_table(), 100, 48).average_find, 2);
}

TEST(KernelHandleTable, tells_the_variants_of_a_kernel_apart) {
    Table& handles = new_table();
    for (std::size_t i = 0; i < 500; ++i)
        for (std::size_t device = 0; device < 8; ++device)
            ASSERT_TRUE(handles.insert(kernel(i, 32), device, handle(8 * i + device)));
    for (std::size_t i = 0; i < 500; ++i)
        for (std::size_t device = 0; device < 8; ++device)
            EXPECT_EQ(handles.find(kernel(i, 32), device), handle(8 * i + device));
    EXPECT_EQ(handles.find(kernel(0, 32), 8), nullptr);
    EXPECT_EQ(handles.find(kernel(500, 32), 0), nullptr);
}

TEST(KernelHandleTable, loses_nothing_when_threads_fill_it_together) {
    Table& handles = new_table();
    constexpr std::size_t per_thread = 2000;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&handles, t] {
            for (std::size_t i = t * per_thread; i < (t + 1) * per_thread; ++i) {
                ASSERT_TRUE(handles.insert(kernel(i, 48), 0, handle(i)));
                const void* const other = handles.find(kernel(i / 2, 48), 0);
                ASSERT_TRUE(other == nullptr || other == handle(i / 2));
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < 4 * per_thread; ++i) ASSERT_EQ(handles.find(kernel(i, 48), 0), handle(i));
}

}  // namespace
