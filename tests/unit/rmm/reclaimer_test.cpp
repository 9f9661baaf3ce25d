// <rmm/mr/reclaimer.hpp>: who is asked when memory is short, in which order, and by whom not.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/registry.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/memory_tag.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/device/reclaimer.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using cuda = mr::cuda_memory_resource;
using pool = mr::pool_memory_resource<cuda>;

const cuda_device_id device0{0};

class calling final : public mr::reclaimer {
  public:
    using function = std::function<std::size_t(std::size_t, cuda_stream_view)>;
    explicit calling(function f) : f_(std::move(f)) {}
    std::size_t reclaim(std::size_t bytes, cuda_stream_view stream) noexcept override {
        ++num_calls;
        return f_(bytes, stream);
    }
    std::atomic<int> num_calls{0};

  private:
    function f_;
};

/// Keeps blocks that nobody uses at the moment.
class cache final : public mr::reclaimer {
  public:
    explicit cache(mr::device_memory_resource& from) : from_(from) {}
    ~cache() override { (void)reclaim(~std::size_t{0}, cuda_stream_view{}); }
    void keep(std::size_t bytes, std::size_t count = 1) {
        for (std::size_t i = 0; i < count; ++i) {
            void* const ptr = from_.allocate(bytes);
            const std::lock_guard in(mutex_);
            blocks_.emplace_back(ptr, bytes);
        }
    }
    std::size_t reclaim(std::size_t bytes, cuda_stream_view stream) noexcept override {
        std::size_t freed = 0;
        const std::lock_guard in(mutex_);
        while (freed < bytes && !blocks_.empty()) {
            from_.deallocate(blocks_.back().first, blocks_.back().second, stream);
            freed += blocks_.back().second;
            blocks_.pop_back();
        }
        return freed;
    }

  private:
    mr::device_memory_resource& from_;
    std::mutex mutex_;
    std::vector<std::pair<void*, std::size_t>> blocks_;
};

// ---- pools for each other

TEST(PoolsOnOneDevice, one_gives_way_to_the_other) {
    cuda upstream;
    pool a{upstream, 0, 200 * MiB};
    pool b{upstream, 0, 200 * MiB};
    for (int round = 0; round < 3; ++round)
        for (pool* p : {&a, &b}) {
            void* const ptr = p->allocate(150 * MiB);
            p->deallocate(ptr, 150 * MiB);
        }
    EXPECT_EQ(a.pool_size(), 0u);
    pool c{upstream, 160 * MiB};  // a pool may also begin with what another has
    EXPECT_LE(b.pool_size(), 96 * MiB);
}

TEST(PoolsOnOneDevice, pools_of_every_kind_give_way) {
    cuda upstream;
    const auto needs_200_MiB = [&] { upstream.deallocate(upstream.allocate(200 * MiB), 200 * MiB); };
    const auto use_and_free = [](mr::device_memory_resource& r) { r.deallocate(r.allocate(100 * MiB), 100 * MiB); };
    {
        mr::vmm_memory_resource held;
        use_and_free(held);
        EXPECT_GE(held.pool_size(), 100 * MiB);
        needs_200_MiB();
        EXPECT_LE(held.pool_size(), 56 * MiB);
    }
    {
        mr::cuda_async_memory_resource held{100 * MiB};
        needs_200_MiB();
    }
    {
        pool held{upstream, 100 * MiB};
        mr::vmm_memory_resource asks;
        asks.deallocate(asks.allocate(200 * MiB), 200 * MiB);
        EXPECT_EQ(held.pool_size(), 0u);
    }
    {
        pool held{upstream, 100 * MiB};
        mr::cuda_async_memory_resource asks{0};
        void* const ptr = asks.allocate(200 * MiB, cuda_stream_view{});
        asks.deallocate(ptr, 200 * MiB, cuda_stream_view{});
    }
}

TEST(PoolsOnOneDevice, whole_blocks_are_taken_until_there_is_enough) {
    cuda upstream;
    void* const rest = upstream.allocate(160 * MiB);
    mr::fixed_size_memory_resource<cuda> held{&upstream, 8 * MiB, 4};
    std::vector<void*> blocks;
    for (int i = 0; i < 12; ++i) blocks.push_back(held.allocate(8 * MiB));
    for (void* ptr : blocks) held.deallocate(ptr, 8 * MiB);
    EXPECT_EQ(held.statistics().held_bytes, 96 * MiB);
    upstream.deallocate(upstream.allocate(60 * MiB), 60 * MiB);
    EXPECT_EQ(held.statistics().held_bytes, 32 * MiB);
    upstream.deallocate(rest, 160 * MiB);
}

TEST(PoolsOnOneDevice, a_pool_that_could_not_grow_again_keeps_what_it_has) {
    cuda upstream;
    mr::arena_memory_resource<cuda> arena{&upstream, 100 * MiB};
    EXPECT_THROW((void)upstream.allocate(200 * MiB), rmm::out_of_memory);
    arena.deallocate(arena.allocate(100 * MiB), 100 * MiB);
}

TEST(PoolsOnOneDevice, a_pool_at_its_own_maximum_asks_no_other_pool) {
    cuda upstream;
    pool held{upstream, 100 * MiB};
    pool small{upstream, 0, 10 * MiB};
    EXPECT_THROW((void)small.allocate(20 * MiB), rmm::out_of_memory);
    mr::limiting_resource_adaptor<cuda> limited{&upstream, 10 * MiB};
    mr::pool_memory_resource<mr::limiting_resource_adaptor<cuda>> over_limit{limited, 0};
    EXPECT_THROW((void)over_limit.allocate(20 * MiB), rmm::out_of_memory);
    EXPECT_EQ(held.pool_size(), 100 * MiB);
}

TEST(PoolsOnOneDevice, pools_of_other_devices_are_left_alone) {
    cuda upstream;
    pool held{upstream, 100 * MiB};
    const cuda_set_device_raii other{cuda_device_id{1}};
    EXPECT_THROW((void)upstream.allocate(300 * MiB), rmm::out_of_memory);
    EXPECT_EQ(held.pool_size(), 100 * MiB);
}

// ---- reclaimers

TEST(Reclaimer, cached_blocks_make_a_failing_allocation_succeed) {
    cuda upstream;
    pool p{upstream, 64 * MiB, 64 * MiB};
    cache cached{p};
    const mr::reclaimer_registration registered{device0, 0, cached};
    cached.keep(8 * MiB, 8);
    cuda_stream stream;
    void* const ptr = p.allocate(20 * MiB, stream);
    EXPECT_EQ(p.statistics().in_use_bytes, 60 * MiB);  // three of eight were enough
    p.deallocate(ptr, 20 * MiB, stream);
}

TEST(Reclaimer, every_resource_that_is_short_asks) {
    cuda upstream;
    mr::cuda_async_memory_resource async{0, 0};
    mr::vmm_memory_resource vmm{std::size_t{128} * MiB};
    mr::limiting_resource_adaptor<cuda> limited{&upstream, 128 * MiB};
    mr::arena_memory_resource<mr::limiting_resource_adaptor<cuda>> arena{&limited, 64 * MiB};
    const std::vector<std::pair<mr::device_memory_resource*, std::size_t>> all{
        {&upstream, 150 * MiB}, {&async, 100 * MiB}, {&vmm, 128 * MiB}, {&limited, 64 * MiB}, {&arena, 64 * MiB}};
    for (const auto& [resource, most] : all) {
        cache cached{*resource};
        const mr::reclaimer_registration registered{device0, 0, cached};
        cached.keep(most);
        void* const ptr = resource->allocate(most / 2 + MiB);
        resource->deallocate(ptr, most / 2 + MiB);
    }
}

TEST(Reclaimer, memory_that_a_reclaimer_frees_into_another_pool_reaches_the_one_that_is_short) {
    cuda upstream;
    pool a{upstream, 0};
    pool b{upstream, 0};
    cache cached{a};
    const mr::reclaimer_registration registered{device0, 0, cached};
    cached.keep(150 * MiB);
    void* const ptr = b.allocate(150 * MiB);
    EXPECT_EQ(a.pool_size(), 0u);
    b.deallocate(ptr, 150 * MiB);
}

TEST(Reclaimer, the_lowest_priority_is_asked_first_and_nobody_after_one_who_helped) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    std::string asked;
    const auto refusing = [&](char name) {
        return [&asked, name](auto, auto) { return asked += name, std::size_t{0}; };
    };
    calling a{refusing('a')};
    calling b{refusing('b')};
    calling c{refusing('c')};
    calling far{refusing('x')};
    const mr::reclaimer_registration third{device0, 10, c};
    const mr::reclaimer_registration first{device0, -5, a};
    const mr::reclaimer_registration second{device0, 10, b};
    const mr::reclaimer_registration elsewhere{cuda_device_id{1}, -99, far};
    EXPECT_THROW((void)p.allocate(20 * MiB), rmm::out_of_memory);
    EXPECT_EQ(asked, "acb");

    asked.clear();
    void* held = p.allocate(16 * MiB);
    calling helps{[&](std::size_t bytes, cuda_stream_view stream) {
        asked += 'h';
        EXPECT_EQ(bytes, 8 * MiB);
        p.deallocate(std::exchange(held, nullptr), 16 * MiB, stream);
        return 16 * MiB;
    }};
    {
        const mr::reclaimer_registration between{device0, 5, helps};
        p.deallocate(p.allocate(8 * MiB), 8 * MiB);
    }
    EXPECT_EQ(asked, "ah");
    // Registered no longer.
    EXPECT_THROW((void)p.allocate(20 * MiB), rmm::out_of_memory);
    EXPECT_EQ(helps.num_calls, 1);
}

TEST(Reclaimer, everybody_is_asked_again_as_long_as_somebody_frees_something) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    std::vector<void*> held;
    for (int i = 0; i < 16; ++i) held.push_back(p.allocate(MiB));
    calling one_at_a_time{[&](std::size_t, cuda_stream_view stream) -> std::size_t {
        if (held.empty()) return 0;
        p.deallocate(held.back(), MiB, stream);
        held.pop_back();
        return MiB;
    }};
    const mr::reclaimer_registration registered{device0, 0, one_at_a_time};
    void* const ptr = p.allocate(10 * MiB);
    EXPECT_EQ(held.size(), 6u);
    p.deallocate(ptr, 10 * MiB);
    // What can never fit frees everything once, and ends.
    EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    EXPECT_EQ(one_at_a_time.num_calls, 10 + 6 + 1);
}

TEST(Reclaimer, one_that_only_claims_to_free_does_not_hold_the_allocation_for_ever) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    calling boasting{[](std::size_t bytes, auto) { return bytes; }};
    const mr::reclaimer_registration registered{device0, 0, boasting};
    EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    EXPECT_LE(boasting.num_calls, 100);
}

TEST(Reclaimer, an_allocation_of_a_reclaimer_asks_nobody) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    calling allocating{[&](auto, auto) -> std::size_t {
        EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
        p.deallocate(p.allocate(MiB), MiB);
        return 0;
    }};
    const mr::reclaimer_registration registered{device0, 0, allocating};
    EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    EXPECT_EQ(allocating.num_calls, 1);
}

TEST(Reclaimer, what_a_reclaimer_allocates_is_not_put_down_to_the_one_who_asks) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    void* kept = nullptr;
    calling allocating{[&](auto, auto) -> std::size_t {
        kept = p.allocate(MiB);
        return 0;
    }};
    const mr::reclaimer_registration registered{device0, 0, allocating};
    const memory_tag tag{"who asks"};
    EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    EXPECT_EQ(p.in_use_bytes("who asks"), 0u);
    EXPECT_EQ(p.in_use_bytes(nullptr), MiB);
    p.deallocate(kept, MiB);
}

TEST(Reclaimer, threads_that_say_so_are_exempt) {
    cuda upstream;
    pool p{upstream, 16 * MiB, 16 * MiB};
    calling never{[](auto, auto) { return std::size_t{0}; }};
    const mr::reclaimer_registration registered{device0, 0, never};
    {
        const mr::no_reclaim_scope alone;
        { const mr::no_reclaim_scope nested; }
        EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    }
    EXPECT_EQ(never.num_calls, 0);
    EXPECT_THROW((void)p.allocate(17 * MiB), rmm::out_of_memory);
    EXPECT_EQ(never.num_calls, 1);
}

TEST(Reclaimer, try_allocate_of_a_pool_with_a_pool_below_asks_once_for_what_is_needed) {
    cuda upstream;
    pool below{upstream, 32 * MiB, 32 * MiB};
    mr::pool_memory_resource<pool> above{below, 16 * MiB};
    void* const first = above.allocate(16 * MiB);
    std::vector<std::size_t> asked;
    calling noting{[&](std::size_t bytes, auto) { return asked.push_back(bytes), std::size_t{0}; }};
    const mr::reclaimer_registration registered{device0, 0, noting};
    // `above` tries to double first; that it gets less is nobody's business.
    void* const second = above.allocate(10 * MiB);
    EXPECT_TRUE(asked.empty());
    EXPECT_THROW((void)above.allocate(30 * MiB), rmm::out_of_memory);
    EXPECT_EQ(asked, (std::vector<std::size_t>{30 * MiB}));
    above.deallocate(first, 16 * MiB);
    above.deallocate(second, 10 * MiB);
}

TEST(Reclaimer, the_end_of_a_registration_waits_for_calls_that_run) {
    cuda upstream;
    pool p{upstream, 2 * MiB, 2 * MiB};
    void* const half = p.allocate(MiB);
    std::mutex mutex;
    std::condition_variable changed;
    bool inside = false;
    bool let_go = false;
    bool left = false;
    calling slow{[&](auto, auto) {
        std::unique_lock in(mutex);
        inside = true;
        changed.notify_all();
        changed.wait(in, [&] { return let_go; });
        left = true;
        return std::size_t{0};
    }};
    std::optional<mr::reclaimer_registration> registered;
    registered.emplace(device0, 0, slow);
    std::thread asks([&] { EXPECT_THROW((void)p.allocate(2 * MiB), rmm::out_of_memory); });
    std::unique_lock in(mutex);
    changed.wait(in, [&] { return inside; });
    in.unlock();
    std::thread lets_go([&] {
        const std::lock_guard locked(mutex);
        let_go = true;
        changed.notify_all();
    });
    registered.reset();
    in.lock();
    EXPECT_TRUE(left);
    in.unlock();
    asks.join();
    lets_go.join();
    p.deallocate(half, MiB);
}

TEST(Reclaimer, may_end_its_own_registration) {
    cuda upstream;
    pool p{upstream, MiB, MiB};
    std::optional<mr::reclaimer_registration> registered;
    calling once{[&](auto, auto) { return registered.reset(), std::size_t{0}; }};
    calling next{[&](auto, auto) { return std::size_t{0}; }};
    registered.emplace(device0, 0, once);
    const mr::reclaimer_registration second{device0, 1, next};
    EXPECT_THROW((void)p.allocate(2 * MiB), rmm::out_of_memory);
    EXPECT_THROW((void)p.allocate(2 * MiB), rmm::out_of_memory);
    EXPECT_EQ(once.num_calls, 1);
    EXPECT_EQ(next.num_calls, 2);
}

// ---- threads

/// Threads that together want more than there is, of several pools, with a cache in each that reclaimers empty.
void work_at_the_limit(mr::device_memory_resource& a, mr::device_memory_resource& b, std::size_t largest) {
    cache cache_a{a};
    cache cache_b{b};
    const mr::reclaimer_registration one{device0, 1, cache_a};
    const mr::reclaimer_registration two{device0, 2, cache_b};
    std::atomic<int> succeeded{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            cuda_stream stream;
            mr::device_memory_resource& mine = t % 2 ? a : b;
            cache& kept = t % 2 ? cache_a : cache_b;
            for (int i = 0; i < 60; ++i) {
                const std::size_t bytes = (random() % (largest / MiB) + 1) * MiB;
                try {
                    void* const ptr = mine.allocate(bytes, stream);
                    ++succeeded;
                    if (random() % 3 == 0) kept.keep(MiB * (random() % 8 + 1));
                    mine.deallocate(ptr, bytes, stream);
                } catch (const rmm::out_of_memory&) {
                    continue;  // others were faster
                }
            }
        });
    std::thread registering([&] {
        for (int i = 0; i < 100; ++i) {
            calling idle{[](auto, auto) { return std::size_t{0}; }};
            const mr::reclaimer_registration short_lived{device0, i % 4, idle};
        }
    });
    for (std::thread& t : threads) t.join();
    registering.join();
    EXPECT_GT(succeeded, 60);
}

TEST(ReclaimThreads, two_pools_that_share_a_device_make_progress) {
    cuda upstream;
    pool a{upstream, 0};
    pool b{upstream, 0};
    work_at_the_limit(a, b, 60 * MiB);
}

TEST(ReclaimThreads, two_pools_of_virtual_memory_make_progress) {
    mr::vmm_memory_resource a;
    mr::vmm_memory_resource b;
    work_at_the_limit(a, b, 60 * MiB);
}

TEST(ReclaimThreads, two_pools_over_one_make_progress) {
    cuda upstream;
    pool below{upstream, 128 * MiB, 128 * MiB};
    mr::pool_memory_resource<pool> a{below, 0};
    mr::pool_memory_resource<pool> b{below, 0};
    work_at_the_limit(a, b, 40 * MiB);
}

TEST(ReclaimThreads, a_pool_with_a_release_threshold_beside_the_driver_makes_progress) {
    cuda upstream;
    pool a{upstream, 0};
    a.set_release_threshold(8 * MiB);
    work_at_the_limit(a, upstream, 60 * MiB);
}

TEST(ReclaimThreads, pools_that_come_and_go_can_be_asked) {
    cuda upstream;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 30; ++i) {
                try {
                    pool p{upstream, 100 * MiB};
                    p.deallocate(p.allocate(MiB), MiB);
                } catch (const rmm::out_of_memory&) {
                    continue;  // three have no room
                }
            }
        });
    for (std::thread& t : threads) t.join();
}

}  // namespace
