// Owns: what a pool's virtual memory does when the host has no memory for its books: it throws, and nothing has
// changed.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "driver/registry.hpp"
#include "host_allocations.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/status.hpp"

namespace {

using rmm::heap::free_range;
using rmm::heap::range;
using rmm::mr::detail::virtual_source;
using rmm_test::allocations_left;
using rmm_test::has_failed;

constexpr std::size_t unit = std::size_t{2} << 20;

struct VirtualSourceHostMemory : ::testing::Test {
    std::size_t device_free() {
        std::size_t free = 0, total = 0;
        EXPECT_TRUE(driver->memory_info(0, &free, &total).ok());
        return free;
    }
    /// Makes every allocation of `call` fail in turn; `call` returns what the driver said. `unchanged` is asked after
    /// each failure.
    template<typename Make, typename Call, typename Unchanged>
    void for_every_allocation(Make&& make, Call&& call, Unchanged&& unchanged) {
        int num_thrown = 0;
        for (int n = 0;; ++n) {
            ASSERT_LT(n, 1000);
            virtual_source source(*driver, 0, {.largest_piece_bytes = 2 * unit});
            make(source);
            bool thrown = false;
            bool ok = false;
            has_failed = false;
            allocations_left = n;
            try {
                ok = call(source);
            } catch (const std::bad_alloc&) {
                thrown = true;
            }
            allocations_left = -1;
            if (!has_failed) {
                EXPECT_TRUE(ok);
                break;
            }
            num_thrown += thrown;
            // Where the driver's own allocation failed and it could go on, the call did.
            if (!ok) unchanged(source);
        }
        EXPECT_GT(num_thrown, 2);
    }
    std::shared_ptr<kmm::driver::Driver> driver = kmm::driver::make_host_driver({1, 64 * unit, 1});
};

TEST_F(VirtualSourceHostMemory, a_growth_without_memory_for_its_books_changes_nothing) {
    const std::size_t before = device_free();
    for_every_allocation([](virtual_source& s) { ASSERT_TRUE(s.grow(3 * unit).status.ok()); },
                         [](virtual_source& s) { return s.grow(7 * unit).status.ok(); },
                         [&](virtual_source& s) {
                             EXPECT_EQ(s.held_bytes(), 3 * unit);
                             EXPECT_EQ(s.mapped_bytes(), 3 * unit);
                             EXPECT_EQ(before - device_free(), 3 * unit);
                             EXPECT_TRUE(s.grow(7 * unit).status.ok());
                         });
    EXPECT_EQ(device_free(), before);
}

TEST_F(VirtualSourceHostMemory, a_remap_without_memory_for_its_books_changes_nothing) {
    rmm::heap::move_plan plan;
    range all;
    const auto free_of = [&] {
        return std::vector<free_range>{{{all.address, 4 * unit}}, {{all.end() - 2 * unit, 2 * unit}}};
    };
    for (const std::size_t num_units : {9, 5})  // of five one is too much, and a piece is melted
        for_every_allocation(
            [&](virtual_source& s) {
                all = s.grow(8 * unit).made;
                plan = s.plan(num_units * unit, free_of(), 0, {});
                ASSERT_TRUE(plan.possible);
                plan.fitting_bytes = unit;
            },
            [&](virtual_source& s) { return s.remap(plan).status.ok(); },
            [&](virtual_source& s) {
                EXPECT_EQ(s.held_bytes(), s.mapped_bytes() + s.spare_bytes());
                // The driver could not go back, or not take again what was melted.
                if (s.spare_bytes() != 0 || s.mapped_bytes() < 8 * unit) return;
                EXPECT_EQ(s.mapped_bytes(), 8 * unit);
                EXPECT_EQ(s.removable(all), all);
                EXPECT_TRUE(s.remap(plan).status.ok());
            });
}

TEST_F(VirtualSourceHostMemory, a_cut_without_memory_for_its_books_changes_nothing) {
    range all;
    for_every_allocation([&](virtual_source& s) { all = s.grow(4 * unit).made; },
                         [&](virtual_source& s) { return s.cut(all.address + unit).status.ok(); },
                         [&](virtual_source& s) {
                             EXPECT_EQ(s.held_bytes(), s.mapped_bytes() + s.spare_bytes());
                             if (s.mapped_bytes() < 4 * unit) return;  // the driver's own
                             EXPECT_EQ(s.removable(all), all);
                             EXPECT_TRUE(s.cut(all.address + unit).status.ok());
                         });
}

TEST_F(VirtualSourceHostMemory, a_trim_without_memory_for_its_books_changes_nothing) {
    range all;
    for (int n = 0; n < 4; ++n) {
        virtual_source source(*driver, 0, {.largest_piece_bytes = 2 * unit});
        all = source.grow(8 * unit).made;
        allocations_left = n;
        try {
            (void)source.trim({all.address + 2 * unit, 4 * unit});
        } catch (const std::bad_alloc&) {
            EXPECT_EQ(source.removable(all), all);
        }
        allocations_left = -1;
        EXPECT_EQ(source.held_bytes(), source.mapped_bytes() + source.spare_bytes());
    }
}

/// The pool on such memory: whichever allocation of the host fails, all of it can be had afterwards. (But where putting
/// a free block back into the heap is what fails: that is reported, and the block is lost until the pool's end.)
TEST_F(VirtualSourceHostMemory, a_pool_without_memory_for_its_books_loses_none_of_its_own) {
    constexpr std::size_t all = 16 * unit;
    const rmm::detail::driver_scope on(*driver);
    const rmm::cuda_stream stream{rmm::cuda_stream::flags::non_blocking};
    const rmm::cuda_stream_view view = stream;
    // A large request, for which memory must be moved; a small one, which gets a span; and what is given back.
    for (const std::size_t wanted : {8 * unit, std::size_t{1024}, std::size_t{0}}) {
        int num_thrown = 0, num_lost = 0;
        for (int n = 0;; ++n) {
            ASSERT_LT(n, 1000);
            rmm::mr::detail::pool_options options;
            options.maximum_bytes = all;
            rmm::mr::detail::pool_engine pool(
                std::make_unique<virtual_source>(*driver, 0,
                                                 rmm::mr::detail::virtual_source_options{.maximum_bytes = all}),
                options);
            rmm::mr::detail::refusal why;
            std::vector<void*> blocks;
            for (int i = 0; i < 4; ++i) blocks.push_back(pool.try_allocate(3 * unit, view, &why));
            pool.free(blocks[0], 3 * unit, {&view, 1});
            pool.free(blocks[2], 3 * unit, {&view, 1});
            void* ptr = nullptr;
            has_failed = false;
            allocations_left = n;
            try {
                if (wanted == 0)
                    pool.trim(0);
                else
                    ptr = pool.try_allocate(wanted, view, &why);
            } catch (const std::bad_alloc&) {
                ++num_thrown;
            }
            allocations_left = -1;
            const bool failed = has_failed;
            if (ptr != nullptr) pool.free(ptr, wanted, {&view, 1});
            pool.free(blocks[1], 3 * unit, {&view, 1});
            pool.free(blocks[3], 3 * unit, {&view, 1});
            EXPECT_EQ(pool.statistics().in_use_bytes, 0u) << "allocation " << n;
            void* const whole = pool.try_allocate(all, view, &why);
            num_lost += whole == nullptr;
            if (whole != nullptr) pool.free(whole, all, {&view, 1});
            if (!failed) break;
        }
        EXPECT_GT(num_thrown, 2);
        EXPECT_LE(num_lost, 2) << "of a request of " << wanted;
    }
}

}  // namespace
