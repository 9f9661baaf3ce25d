// Pools that are large enough for arenas: what a stream keeps at hand, what comes back from other streams, and what
// becomes of it all when streams and threads come and go.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "stream_stress.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using rmm_test::driver;
using rmm_test::foreign_stream;
using rmm_test::gate;
using rmm_test::is_idle;
using rmm_test::non_blocking;
using cuda_pool = mr::pool_memory_resource<mr::cuda_memory_resource>;

class PoolArenas : public testing::Test {
  protected:
    mr::cuda_memory_resource cuda_;
    cuda_pool pool_{cuda_, 128 * MiB, 128 * MiB};
};

TEST_F(PoolArenas, streams_take_small_blocks_from_different_spans) {
    cuda_stream a = non_blocking();
    cuda_stream b = non_blocking();
    void* const on_a = pool_.allocate(1 * KiB, a);
    void* const on_b = pool_.allocate(1 * KiB, b);
    const auto distance = reinterpret_cast<std::intptr_t>(on_a) - reinterpret_cast<std::intptr_t>(on_b);
    EXPECT_GE(static_cast<std::size_t>(std::abs(distance)), MiB);
    pool_.deallocate(on_a, 1 * KiB, a);
    pool_.deallocate(on_b, 1 * KiB, b);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, the_largest_requests_that_arenas_serve_take_no_span_more) {
    cuda_stream a = non_blocking();
    cuda_stream b = non_blocking();
    // Spans of this pool have 2 MiB, and serve requests of up to an eighth of that.
    const auto on_a = reinterpret_cast<std::uintptr_t>(pool_.allocate(200 * KiB, a));
    const auto on_b = reinterpret_cast<std::uintptr_t>(pool_.allocate(200 * KiB, b));
    EXPECT_EQ(on_b, on_a + 200 * KiB) << "a span for each stream would lie between them";
    void* const small = pool_.allocate(100 * KiB, a);
    const auto in_span = reinterpret_cast<std::uintptr_t>(pool_.allocate(200 * KiB, a));
    EXPECT_EQ(in_span, reinterpret_cast<std::uintptr_t>(small) + 100 * KiB) << "the span there is has room";
    for (const std::uintptr_t block : {on_a, in_span}) pool_.deallocate(reinterpret_cast<void*>(block), 200 * KiB, a);
    pool_.deallocate(reinterpret_cast<void*>(on_b), 200 * KiB, b);
    pool_.deallocate(small, 100 * KiB, a);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, requests_that_are_small_beside_the_others_leave_what_lies_above_whole) {
    cuda_stream s = non_blocking();
    void* const wide = pool_.allocate(40 * MiB, s);
    void* const first = pool_.allocate(1 * MiB, s);
    void* const tight = pool_.allocate(2 * MiB, s);
    void* const second = pool_.allocate(1 * MiB, s);
    pool_.deallocate(wide, 40 * MiB, s);
    pool_.deallocate(tight, 2 * MiB, s);
    s.synchronize();
    // What nothing fits asks what has passed.
    EXPECT_THROW((void)pool_.allocate(127 * MiB, s), out_of_memory);
    void* const small = pool_.allocate(2 * MiB, s);
    EXPECT_EQ(small, wide) << "the lowest address";
    void* const large = pool_.allocate(30 * MiB, s);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large), reinterpret_cast<std::uintptr_t>(wide) + 2 * MiB)
        << "the tightest";
    pool_.deallocate(large, 30 * MiB, s);
    for (void* const block : {first, second}) pool_.deallocate(block, 1 * MiB, s);
    pool_.deallocate(small, 2 * MiB, s);
}

TEST_F(PoolArenas, a_block_freed_on_its_stream_is_used_again_there_without_a_wait) {
    foreign_stream f;
    gate g;
    void* const first = pool_.allocate(100 * KiB, f.view());
    g.close(f.view());
    pool_.deallocate(first, 100 * KiB, f.view());
    EXPECT_EQ(pool_.allocate(100 * KiB, f.view()), first);
    pool_.deallocate(first, 100 * KiB, f.view());
}

TEST_F(PoolArenas, a_block_freed_on_another_stream_is_not_used_before_that_stream_has_come_there) {
    cuda_stream a = non_blocking();
    foreign_stream f;
    gate g;
    void* const block = pool_.allocate(1 * KiB, a);
    g.close(f.view());
    pool_.deallocate(block, 1 * KiB, f.view());
    // There is other memory: it comes first, and costs no wait.
    std::vector<void*> others;
    for (int i = 0; i < 100; ++i) {
        others.push_back(pool_.allocate(1 * KiB, a));
        EXPECT_NE(others.back(), block);
    }
    EXPECT_TRUE(is_idle(a));
    g.open();
    for (void* ptr : others) pool_.deallocate(ptr, 1 * KiB, a);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, all_memory_is_found_again_whichever_streams_freed_it) {
    cuda_stream a = non_blocking();
    foreign_stream f;
    foreign_stream g;
    std::vector<void*> blocks;
    const std::size_t size = 200 * KiB;
    for (int i = 0; i < 500; ++i) blocks.push_back(pool_.allocate(size, i % 2 ? a.view() : f.view()));
    for (std::size_t i = 0; i < blocks.size(); ++i)
        pool_.deallocate(blocks[i], size, i % 3 == 0 ? a.view() : i % 3 == 1 ? f.view() : g.view());
    cuda_stream b = non_blocking();
    void* const all = pool_.allocate(128 * MiB, b);
    EXPECT_NE(all, nullptr);
    pool_.deallocate(all, 128 * MiB, b);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 128 * MiB);
}

TEST_F(PoolArenas, a_full_pool_takes_from_the_arenas_of_other_streams) {
    cuda_stream a = non_blocking();
    foreign_stream f;
    gate g;
    // One block in each granule keeps every span of `a` where it is.
    std::vector<void*> kept;
    std::vector<void*> freed;
    try {
        for (;;) {
            kept.push_back(pool_.allocate(4 * KiB, a));
            freed.push_back(pool_.allocate(60 * KiB, a));
        }
    } catch (const rmm::out_of_memory&) {}
    g.close(a);
    for (void* ptr : freed) pool_.deallocate(ptr, 60 * KiB, a);
    void* const stolen = pool_.allocate(60 * KiB, f.view());
    EXPECT_NE(std::find(freed.begin(), freed.end(), stolen), freed.end());
    EXPECT_FALSE(is_idle(f.view()));
    g.open();
    pool_.deallocate(stolen, 60 * KiB, f.view());
    for (void* ptr : kept) pool_.deallocate(ptr, 4 * KiB, a);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 128 * MiB);
}

TEST_F(PoolArenas, a_large_request_gets_what_lies_free_in_the_spans_of_streams) {
    std::vector<cuda_stream> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(non_blocking());
    // All of the pool goes to blocks of arenas; a few of them stay, far apart.
    std::vector<std::pair<void*, std::size_t>> blocks;
    try {
        for (std::size_t i = 0;; ++i) blocks.emplace_back(pool_.allocate(128 * KiB, streams[i % 4]), i % 4);
    } catch (const rmm::out_of_memory&) {}
    std::sort(blocks.begin(), blocks.end());
    std::vector<std::pair<void*, std::size_t>> kept;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i % 200 == 100)
            kept.push_back(blocks[i]);
        else
            pool_.deallocate(blocks[i].first, 128 * KiB, streams[blocks[i].second]);
    }
    void* const large = pool_.allocate(20 * MiB, streams[0]);
    pool_.deallocate(large, 20 * MiB, streams[0]);
    for (const auto& [ptr, s] : kept) pool_.deallocate(ptr, 128 * KiB, streams[s]);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, a_new_stream_with_an_old_handle_comes_after_what_the_old_one_left) {
    // Long enough on one stream that not every free has an event of its own.
    for (int round = 0; round < 20; ++round) {
        foreign_stream old;
        void* block = nullptr;
        for (int i = 0; i < 200; ++i) {
            block = pool_.allocate(64 * KiB, old.view());
            if (i + 1 < 200) pool_.deallocate(block, 64 * KiB, old.view());
        }
        gate g;
        g.close(old.view());
        pool_.deallocate(block, 64 * KiB, old.view());
        old.destroy();
        foreign_stream young;
        std::vector<void*> blocks;
        // Everything there is: what the old stream left among it.
        try {
            for (;;) blocks.push_back(pool_.allocate(64 * KiB, young.view()));
        } catch (const rmm::out_of_memory&) {}
        ASSERT_GE(blocks.size(), 128 * MiB / (64 * KiB) - 64);
        EXPECT_NE(std::find(blocks.begin(), blocks.end(), block), blocks.end());
        EXPECT_FALSE(is_idle(young.view()));
        g.open();
        for (void* ptr : blocks) pool_.deallocate(ptr, 64 * KiB, young.view());
    }
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, streams_that_come_and_go_leave_nothing_behind) {
    mr::cuda_memory_resource cuda;
    cuda_pool growing{cuda, 64 * MiB};
    for (int round = 0; round < 500; ++round) {
        foreign_stream f;
        std::vector<void*> blocks;
        for (int i = 0; i < 100; ++i) blocks.push_back(growing.allocate(32 * KiB, f.view()));
        for (void* ptr : blocks) growing.deallocate(ptr, 32 * KiB, f.view());
    }
    EXPECT_EQ(growing.pool_size(), 64 * MiB);
    EXPECT_EQ(growing.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, threads_that_come_and_go_leave_nothing_behind) {
    for (int round = 0; round < 100; ++round) {
        std::thread([&] {
            std::vector<void*> blocks;
            for (int i = 0; i < 100; ++i) blocks.push_back(pool_.allocate(32 * KiB, cuda_stream_per_thread));
            for (void* ptr : blocks) pool_.deallocate(ptr, 32 * KiB, cuda_stream_per_thread);
        }).join();
    }
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 128 * MiB);
}

TEST_F(PoolArenas, a_thread_that_comes_waits_for_what_a_thread_that_ended_has_left) {
    // The second thread goes over to the first one's arena; its span was large memory that the first one freed late.
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 64 * MiB, 64 * MiB};
    gate g;
    void* kept = nullptr;
    std::thread([&] {
        const cuda_stream_view s = cuda_stream_per_thread;
        void* const all = pool.allocate(64 * MiB, s);
        g.close(s);
        pool.deallocate(all, 64 * MiB, s);
        kept = pool.allocate(1 * KiB, s);
    }).join();
    std::thread([&] {
        const cuda_stream_view s = cuda_stream_per_thread;
        void* const small = pool.allocate(1 * KiB, s);
        EXPECT_FALSE(is_idle(s));
        pool.deallocate(small, 1 * KiB, s);
    }).join();
    g.open();
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    pool.deallocate(kept, 1 * KiB, cuda_stream_view{});
}

TEST_F(PoolArenas, a_free_on_a_stream_of_another_device_waits_for_it) {
    kmm::driver::StreamHandle there;
    ASSERT_TRUE(driver().create_stream(1, true, 0, &there).ok());
    const cuda_stream_view elsewhere{static_cast<cudaStream_t>(there.native)};
    cuda_stream here = non_blocking();
    void* const block = pool_.allocate(1 * KiB, here);
    gate g;
    g.close(elsewhere);
    std::thread opener([&] { g.open(); });
    pool_.deallocate(block, 1 * KiB, elsewhere);
    EXPECT_TRUE(is_idle(elsewhere));
    opener.join();
    ASSERT_TRUE(driver().destroy_stream(there).ok());
}

TEST_F(PoolArenas, wrong_frees_are_reported_and_harmless) {
    cuda_stream a = non_blocking();
    void* const block = pool_.allocate(1 * KiB, a);
    testing::internal::CaptureStderr();
    pool_.deallocate(static_cast<char*>(block) + 256, 256, a);
    pool_.deallocate(block, 2 * KiB, a);
    pool_.deallocate(block, 1 * KiB, a);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("not a block in use"), std::string::npos) << text;
    EXPECT_NE(text.find("the block has 1024"), std::string::npos) << text;
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, trim_gives_back_what_arenas_do_not_use) {
    mr::cuda_memory_resource cuda;
    cuda_pool growing{cuda, 64 * MiB};
    foreign_stream f;
    cuda_stream a = non_blocking();
    void* const block = growing.allocate(1 * KiB, f.view());
    EXPECT_EQ(growing.trim(), 0u);
    growing.deallocate(block, 1 * KiB, a);
    EXPECT_EQ(growing.trim(), 64 * MiB);
    EXPECT_EQ(growing.pool_size(), 0u);
}

TEST_F(PoolArenas, a_block_can_be_freed_behind_several_streams_or_none) {
    mr::cuda_memory_resource cuda;
    mr::detail::pool_engine engine{cuda,
                                   {.initial_bytes = 64 * MiB, .maximum_bytes = 64 * MiB, .ordered_upstream = false}};
    cuda_stream a = non_blocking();
    foreign_stream f;
    gate g;
    void* const block = engine.allocate(1 * KiB, a);
    g.close(f.view());
    const cuda_stream_view users[] = {a, f.view()};
    engine.free(block, 1 * KiB, users);
    std::vector<void*> all;
    mr::detail::refusal why;
    while (void* const ptr = engine.try_allocate(1 * KiB, a, &why)) {
        all.push_back(ptr);
        if (ptr == block) break;
    }
    EXPECT_EQ(all.back(), block);
    EXPECT_FALSE(is_idle(a));
    g.open();
    for (void* ptr : all) engine.free(ptr, 1 * KiB, {});
    EXPECT_EQ(engine.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, a_block_for_which_its_stream_need_not_wait_is_free_at_once) {
    mr::cuda_memory_resource cuda;
    mr::detail::pool_engine engine{cuda,
                                   {.initial_bytes = 64 * MiB, .maximum_bytes = 64 * MiB, .ordered_upstream = false}};
    cuda_stream a = non_blocking();
    gate g;
    void* const block = engine.allocate(100 * KiB, a);
    engine.free(block, 100 * KiB, {});
    EXPECT_EQ(engine.allocate(100 * KiB, a), block);
    // Behind nobody but the arena's own stream.
    g.close(a);
    const cuda_stream_view users[] = {a, a};
    engine.free(block, 100 * KiB, users);
    EXPECT_EQ(engine.allocate(100 * KiB, a), block);
    engine.free(block, 100 * KiB, {});
    EXPECT_EQ(engine.statistics().in_use_bytes, 0u);
}

TEST_F(PoolArenas, no_byte_is_ever_in_two_hands_while_threads_and_streams_come_and_go) {
    EXPECT_EQ(rmm_test::count_wrong_words(pool_, 4, 3000), 0);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 128 * MiB);
}

}  // namespace
