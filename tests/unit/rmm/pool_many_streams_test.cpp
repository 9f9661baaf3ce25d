// Pools that very many streams use, side by side or one after the other: that what each costs does not grow with their
// number, and that no block changes streams without a fence where streams share memory and arenas change hands.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"
#include "stream_stress.hpp"
#include "stream_tools.hpp"
#include "support/repeat.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::testing::ScriptedDriver;
using mr::detail::pool_engine;
using rmm_test::driver;
using rmm_test::foreign_stream;
using rmm_test::gate;
using rmm_test::is_idle;
using rmm_test::non_blocking;

std::unique_ptr<pool_engine> make_pool(mr::cuda_memory_resource& cuda) {
    mr::detail::pool_options options;
    options.initial_bytes = 128 * MiB;
    options.maximum_bytes = 128 * MiB;
    options.ordered_upstream = false;
    return std::make_unique<pool_engine>(cuda, options);
}

std::unique_ptr<pool_engine> make_virtual_pool(kmm::driver::Driver& on = driver()) {
    mr::detail::virtual_source_options options;
    options.maximum_bytes = 128 * MiB;
    mr::detail::pool_options as_pool;
    as_pool.maximum_bytes = 128 * MiB;
    as_pool.ordered_upstream = false;
    return std::make_unique<pool_engine>(std::make_unique<mr::detail::virtual_source>(on, 0, options), as_pool);
}

void use_twice(pool_engine& pool, cuda_stream_view stream) {
    void* const a = pool.allocate(1 * KiB, stream);
    void* const b = pool.allocate(3 * KiB, stream);
    pool.free(a, 1 * KiB, {&stream, 1});
    pool.free(b, 3 * KiB, {&stream, 1});
}

/// `use` brings a stream that did not exist before and is gone afterwards.
void expect_nothing_stays(pool_engine& pool, const std::function<void(pool_engine&)>& use, int n) {
    const auto steps_of = [&](int count) {
        const std::uint64_t before = pool.num_steps();
        for (int i = 0; i < count; ++i) {
            use(pool);
            // How far the device lags behind is not what is counted.
            EXPECT_TRUE(driver().synchronize_device(0).ok());
        }
        return pool.num_steps() - before;
    };
    (void)steps_of(n / 2);
    const std::uint64_t at_n = steps_of(n / 2);
    (void)steps_of(n / 2);
    const std::uint64_t at_2n = steps_of(n / 2);
    EXPECT_LE(at_2n, at_n + at_n / 4);
    // Those of the last hundred or so, whose ends were not looked at yet.
    EXPECT_LE(pool.num_remembered(), 300u);
}

TEST(PoolManyStreams, one_that_comes_and_goes_costs_as_much_after_many_as_after_few_and_leaves_nothing) {
    mr::cuda_memory_resource cuda;
    const std::function<void(pool_engine&)> uses[] = {
        [](pool_engine& pool) { use_twice(pool, non_blocking()); },
        [](pool_engine& pool) { use_twice(pool, foreign_stream().view()); },
        [](pool_engine& pool) { std::thread([&] { use_twice(pool, cuda_stream_per_thread); }).join(); },
    };
    for (const auto& use : uses) {
        expect_nothing_stays(*make_pool(cuda), use, 1000);
        expect_nothing_stays(*make_virtual_pool(), use, 1000);
    }
}

TEST(PoolManyStreams, one_that_frees_large_blocks_and_goes_leaves_nothing) {
    mr::cuda_memory_resource cuda;
    const auto pool = make_pool(cuda);
    expect_nothing_stays(
        *pool,
        [](pool_engine& p) {
            const cuda_stream stream = non_blocking();
            const foreign_stream foreign;
            for (const cuda_stream_view s : {stream.view(), foreign.view()}) {
                void* const ptr = p.allocate(5 * MiB, s);
                p.free(ptr, 5 * MiB, {&s, 1});
            }
        },
        500);
}

TEST(PoolManyStreams, one_that_only_frees_and_goes_leaves_nothing) {
    mr::cuda_memory_resource cuda;
    const auto pool = make_pool(cuda);
    const cuda_stream home = non_blocking();
    expect_nothing_stays(
        *pool,
        [&](pool_engine& p) {
            const foreign_stream foreign;
            const cuda_stream_view s = foreign.view();
            void* const ptr = p.allocate(1 * KiB, home);
            p.free(ptr, 1 * KiB, {&s, 1});
        },
        1000);
}

/// Steps of a free and an allocation, with 200 blocks in use on `num_streams` streams.
double steps_of_a_pair(pool_engine& pool, std::size_t num_streams, std::size_t mean_bytes, unsigned seed) {
    std::vector<cuda_stream> streams;
    for (std::size_t i = 0; i < num_streams; ++i) streams.push_back(non_blocking());
    std::mt19937_64 random(seed);
    struct block {
        void* ptr;
        std::size_t bytes;
        std::size_t stream;
    };
    const auto make = [&]() -> block {
        const std::size_t bytes = mean_bytes / 2 + random() % mean_bytes;
        const std::size_t stream = random() % num_streams;
        return {pool.allocate(bytes, streams[stream]), bytes, stream};
    };
    const auto free = [&](const block& b) {
        const cuda_stream_view s = streams[b.stream];
        pool.free(b.ptr, b.bytes, {&s, 1});
    };
    std::vector<block> live;
    for (int i = 0; i < 200; ++i) live.push_back(make());
    const auto pairs = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            block& b = live[random() % live.size()];
            free(b);
            b = make();
        }
    };
    pairs(8 * num_streams);
    const std::uint64_t before = pool.num_steps();
    pairs(4000);
    const auto steps = static_cast<double>(pool.num_steps() - before);
    for (const block& b : live) free(b);
    return steps / 4000;
}

TEST(PoolManyStreams, a_pair_costs_as_many_steps_with_twice_the_streams) {
    ScriptedDriver scripted(
        {.num_devices = 1,
         .memory_bytes = 256 * MiB});  // every event passes at once: the steps do not depend on the machine
    const rmm::detail::driver_scope on(scripted);
    mr::cuda_memory_resource cuda;
    // How many pieces one search looks at depends on which blocks happen to be free: the mean of several runs does not.
    const auto mean_steps = [](auto&& make, std::size_t num_streams, std::size_t mean_bytes) {
        double sum = 0;
        const int num_runs = repeat(4, 2);
        for (int seed = 1; seed <= num_runs; ++seed)
            sum += steps_of_a_pair(*make(), num_streams, mean_bytes, static_cast<unsigned>(seed));
        return sum / num_runs;
    };
    for (const std::size_t mean_bytes : {4 * KiB, 300 * KiB}) {
        const auto of_blocks = [&] { return make_pool(cuda); };
        const auto of_virtual_memory = [&] { return make_virtual_pool(scripted); };
        const double few = mean_steps(of_blocks, 400, mean_bytes);
        EXPECT_LE(mean_steps(of_blocks, 800, mean_bytes), 1.3 * few + 1) << mean_bytes;
        const double few_virtual = mean_steps(of_virtual_memory, 400, mean_bytes);
        EXPECT_LE(mean_steps(of_virtual_memory, 800, mean_bytes), 1.3 * few_virtual + 1) << mean_bytes;
    }
}

TEST(PoolManyStreams, what_one_freed_of_the_memory_that_they_share_is_another_s_only_behind_it) {
    mr::cuda_memory_resource cuda;
    for (const bool ours : {true, false}) {
        const auto pool = make_pool(cuda);
        std::vector<std::unique_ptr<cuda_stream>> own;
        std::vector<std::unique_ptr<foreign_stream>> foreign;
        std::vector<cuda_stream_view> streams;
        for (int i = 0; i < 100; ++i) {
            if (ours) {
                own.push_back(std::make_unique<cuda_stream>(cuda_stream::flags::non_blocking));
                streams.push_back(own.back()->view());
            } else {
                foreign.push_back(std::make_unique<foreign_stream>());
                streams.push_back(foreign.back()->view());
            }
        }
        // The first ones have spans of their own; the later ones share.
        std::vector<void*> first;
        for (const cuda_stream_view s : streams) first.push_back(pool->allocate(4 * KiB, s));
        const cuda_stream_view busy = streams[90];
        const cuda_stream_view taker = streams[91];
        void* const block = first[90];
        gate g;
        g.close(busy);
        pool->free(block, 4 * KiB, {&busy, 1});
        std::vector<void*> taken;
        mr::detail::refusal why;
        bool found = false;
        while (void* const ptr = pool->try_allocate(4 * KiB, taker, &why)) {
            taken.push_back(ptr);
            found = ptr == block;
            if (found) break;
            ASSERT_TRUE(is_idle(taker));
        }
        EXPECT_TRUE(found);
        EXPECT_FALSE(is_idle(taker));
        g.open();
        for (void* const ptr : taken) pool->free(ptr, 4 * KiB, {&taker, 1});
        for (std::size_t i = 0; i < streams.size(); ++i)
            if (i != 90) pool->free(first[i], 4 * KiB, {&streams[i], 1});
        EXPECT_EQ(pool->statistics().in_use_bytes, 0u);
        EXPECT_EQ(pool->statistics().largest_free_bytes, 128 * MiB);
    }
}

TEST(PoolManyStreams, a_refusal_names_the_memory_that_they_share) {
    mr::cuda_memory_resource cuda;
    const auto pool = make_pool(cuda);
    std::vector<cuda_stream> streams;
    for (int i = 0; i < 100; ++i) {
        streams.push_back(non_blocking());
        // Most in the last one, so that it is among those that are named.
        for (int n = i == 99 ? 100 : 1; n > 0; --n) (void)pool->allocate(4 * KiB, streams.back());
    }
    const cuda_stream_view last = streams.back();
    std::string text;
    try {
        (void)pool->allocate(128 * MiB, last);
    } catch (const rmm::out_of_memory& e) {
        text = e.what();
    }
    EXPECT_NE(text.find("(streams that share memory)"), std::string::npos) << text;
    EXPECT_EQ(text.find("(ended)"), std::string::npos) << text;
}

TEST(PoolManyStreams, a_stream_that_was_not_seen_for_long_loses_its_arena_and_no_block) {
    // That a foreign stream is gone nobody says: its arena goes to others, although it may be alive.
    mr::cuda_memory_resource cuda;
    const auto pool = make_pool(cuda);
    foreign_stream old;
    const cuda_stream_view s = old.view();
    void* const kept = pool->allocate(4 * KiB, s);
    void* const freed = pool->allocate(4 * KiB, s);
    gate g;
    g.close(s);
    pool->free(freed, 4 * KiB, {&s, 1});
    for (int i = 0; i < 1000; ++i) {
        foreign_stream other;
        const cuda_stream_view o = other.view();
        void* const ptr = pool->allocate(4 * KiB, o);
        if (ptr == freed) {
            EXPECT_FALSE(is_idle(o));
        }
        pool->free(ptr, 4 * KiB, {&o, 1});
    }
    // It comes back, and what it frees now is behind it as before.
    void* const again = pool->allocate(4 * KiB, s);
    EXPECT_NE(again, kept);
    pool->free(kept, 4 * KiB, {&s, 1});
    pool->free(again, 4 * KiB, {&s, 1});
    cuda_stream taker = non_blocking();
    std::vector<void*> all;
    mr::detail::refusal why;
    while (void* const ptr = pool->try_allocate(64 * KiB, taker, &why)) all.push_back(ptr);
    EXPECT_FALSE(is_idle(taker));
    g.open();
    const cuda_stream_view t = taker;
    for (void* const ptr : all) pool->free(ptr, 64 * KiB, {&t, 1});
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_EQ(pool->statistics().largest_free_bytes, 128 * MiB);
}

TEST(PoolManyStreams, a_busy_stream_has_memory_of_its_own_however_many_there_are) {
    mr::cuda_memory_resource cuda;
    const auto pool = make_pool(cuda);
    std::vector<cuda_stream> streams;
    std::vector<void*> first;
    for (int i = 0; i < 40; ++i) {
        streams.push_back(non_blocking());
        first.push_back(pool->allocate(4 * KiB, streams.back()));
    }
    const cuda_stream_view busy = streams.back();
    const auto pair = [&] {
        void* const ptr = pool->allocate(4 * KiB, busy);
        pool->free(ptr, 4 * KiB, {&busy, 1});
        return ptr;
    };
    for (int i = 0; i < 200; ++i) (void)pair();
    // Its own memory is free for it at once.
    gate g;
    g.close(busy);
    void* const ptr = pair();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(pair(), ptr);
    g.open();
    for (std::size_t i = 0; i < streams.size(); ++i) {
        const cuda_stream_view s = streams[i];
        pool->free(first[i], 4 * KiB, {&s, 1});
    }
}

TEST(PoolManyStreams, no_byte_is_ever_in_two_hands_while_they_share_and_come_and_go) {
    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{cuda, 128 * MiB, 128 * MiB};
    EXPECT_EQ(rmm_test::count_wrong_words(pool, 4, 3000, 256, 40), 0);
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
    EXPECT_EQ(pool.statistics().largest_free_bytes, 128 * MiB);
    mr::vmm_memory_resource vmm{128 * MiB};
    EXPECT_EQ(rmm_test::count_wrong_words(vmm, 4, 3000, 256, 40), 0);
    EXPECT_EQ(vmm.statistics().in_use_bytes, 0u);
}

}  // namespace
