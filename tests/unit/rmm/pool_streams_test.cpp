// The pool and streams: when a stream waits for another, what is left of destroyed streams and ended threads, and what
// happens when the driver refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "scripted_driver.hpp"
#include "stream_tools.hpp"

namespace {

using namespace rmm;
using cuda_pool = mr::pool_memory_resource<mr::cuda_memory_resource>;

using kmm::driver::testing::ScriptedDriver;
using rmm_test::driver;
using rmm_test::foreign_stream;
using rmm_test::gate;
using rmm_test::is_idle;
using rmm_test::non_blocking;

TEST(PoolStreams, a_block_is_reused_on_its_own_stream_without_a_wait) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 1024, 1024};
    cuda_stream stream = non_blocking();
    gate g;
    void* const ptr = pool.allocate(1024, stream);
    g.close(stream);
    pool.deallocate(ptr, 1024, stream);
    EXPECT_EQ(pool.allocate(1024, stream), ptr);
    pool.deallocate(ptr, 1024, stream);
    g.open();
    stream.synchronize();
}

TEST(PoolStreams, another_stream_waits_for_the_point_of_the_free) {
    mr::cuda_memory_resource cuda;
    cuda_stream a = non_blocking();
    foreign_stream f;
    cuda_stream b = non_blocking();
    for (cuda_stream_view first : {a.view(), f.view(), cuda_stream_view{}, cuda_stream_view{cuda_stream_per_thread}}) {
        cuda_pool pool{cuda, 1024, 1024};
        gate g;
        void* const ptr = pool.allocate(1024, first);
        g.close(first);
        pool.deallocate(ptr, 1024, first);
        EXPECT_EQ(pool.allocate(1024, b), ptr);
        EXPECT_FALSE(is_idle(b));
        g.open();
        b.synchronize();
        EXPECT_TRUE(is_idle(first));
        pool.deallocate(ptr, 1024, b);
    }
}

TEST(PoolStreams, a_stream_waits_only_for_what_it_takes) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 4096, 4096};
    cuda_stream a = non_blocking();
    cuda_stream b = non_blocking();
    gate g;
    void* const ptr = pool.allocate(1024, a);
    g.close(a);
    pool.deallocate(ptr, 1024, a);
    void* const other = pool.allocate(1024, b);
    EXPECT_NE(other, ptr);
    b.synchronize();
    g.open();
    pool.deallocate(other, 1024, b);
}

TEST(PoolStreams, what_many_streams_freed_is_whole_for_another_when_they_are_done_with_it_whatever_they_do_since) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    mr::cuda_memory_resource cuda;
    const cuda_stream ours[2] = {non_blocking(), non_blocking()};
    foreign_stream others[2];
    cuda_stream taker = non_blocking();
    for (const auto& [a, b] :
         {std::pair{ours[0].view(), ours[1].view()}, std::pair{others[0].view(), others[1].view()}}) {
        cuda_pool pool{cuda, 64 * MiB, 64 * MiB};
        std::vector<void*> blocks;
        for (int i = 0; i < 64; ++i) blocks.push_back(pool.allocate(MiB, i % 2 == 0 ? a : b));
        const cuda_stream one_more;  // what is known of handles must be found out anew
        for (std::size_t i = 0; i < 64; ++i) pool.deallocate(blocks[i], MiB, i % 2 == 0 ? a : b);
        a.synchronize();
        b.synchronize();
        gate g;
        gate h;
        g.close(a);
        h.close(b);
        void* const half = pool.allocate(32 * MiB, taker);
        EXPECT_TRUE(is_idle(taker));
        pool.deallocate(half, 32 * MiB, taker);
        g.open();
        h.open();
        a.synchronize();
        b.synchronize();
    }
}

TEST(PoolStreams, a_large_request_fits_into_what_another_stream_is_done_with_rather_than_cut_what_is_whole) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 128 * MiB, 128 * MiB};
    foreign_stream a;
    cuda_stream b = non_blocking();
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(8 * MiB, a.view()));
    for (const std::size_t i : {0, 2, 4, 6}) pool.deallocate(blocks[i], 8 * MiB, a.view());
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    void* const taken = pool.allocate(8 * MiB, b);
    EXPECT_NE(std::find(blocks.begin(), blocks.end(), taken), blocks.end());
    EXPECT_EQ(pool.statistics().largest_free_bytes, 64 * MiB);
    pool.deallocate(taken, 8 * MiB, b);
    for (const std::size_t i : {1, 3, 5, 7}) pool.deallocate(blocks[i], 8 * MiB, a.view());
}

TEST(PoolStreams, a_destroyed_stream_still_holds_its_memory_back) {
    mr::cuda_memory_resource cuda;
    cuda_stream b = non_blocking();
    for (bool ours : {true, false}) {
        cuda_pool pool{cuda, 1024, 1024};
        gate g;
        void* ptr = nullptr;
        const auto use = [&](cuda_stream_view stream) {
            ptr = pool.allocate(1024, stream);
            g.close(stream);
            pool.deallocate(ptr, 1024, stream);
        };
        if (ours) {
            cuda_stream stream = non_blocking();
            use(stream);
        } else {
            foreign_stream stream;
            use(stream.view());
        }
        EXPECT_EQ(pool.allocate(1024, b), ptr);
        EXPECT_FALSE(is_idle(b)) << (ours ? "ours" : "foreign");
        g.open();
        b.synchronize();
        pool.deallocate(ptr, 1024, b);
    }
}

TEST(PoolStreams, a_new_stream_with_an_old_handle_inherits_nothing) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 1024, 1024};
    gate g;
    void* ptr = nullptr;
    {
        foreign_stream first;
        ptr = pool.allocate(1024, first.view());
        g.close(first.view());
        pool.deallocate(ptr, 1024, first.view());
    }
    foreign_stream second;  // often with the handle of the first
    EXPECT_EQ(pool.allocate(1024, second.view()), ptr);
    EXPECT_FALSE(is_idle(second.view()));
    g.open();
    second.view().synchronize();
    pool.deallocate(ptr, 1024, second.view());
}

TEST(PoolStreams, a_buffer_outlives_neither_its_stream_nor_the_pool) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 0};
    {
        cuda_stream stream;
        device_buffer buffer{10000, stream, pool};
    }
    EXPECT_NO_THROW(pool.deallocate(pool.allocate(10000), 10000));
}

TEST(PoolStreams, a_thread_may_end_while_its_stream_is_busy) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 1024, 1024};
    gate g;
    void* ptr = nullptr;
    std::thread([&] {
        ptr = pool.allocate(1024, cuda_stream_per_thread);
        g.close(cuda_stream_per_thread);
        pool.deallocate(ptr, 1024, cuda_stream_per_thread);
    }).join();
    cuda_stream b = non_blocking();
    EXPECT_EQ(pool.allocate(1024, b), ptr);
    EXPECT_FALSE(is_idle(b));
    g.open();
    b.synchronize();
    pool.deallocate(ptr, 1024, b);
}

TEST(PoolStreams, a_block_can_be_freed_behind_several_streams) {
    mr::cuda_memory_resource cuda;
    mr::detail::pool_engine engine{cuda, {.initial_bytes = 1024, .maximum_bytes = 1024, .ordered_upstream = false}};
    cuda_stream a = non_blocking();
    foreign_stream f;
    cuda_stream b = non_blocking();
    gate on_a;
    gate on_f;
    void* const ptr = engine.allocate(1024, a);
    on_a.close(a);
    on_f.close(f.view());
    const cuda_stream_view users[] = {a, f.view()};
    engine.free(ptr, 1024, users);
    EXPECT_EQ(engine.allocate(1024, b), ptr);
    on_a.open();
    a.synchronize();
    EXPECT_FALSE(is_idle(b));
    on_f.open();
    b.synchronize();
    engine.free(ptr, 1024, {});
    cuda_stream c = non_blocking();
    EXPECT_EQ(engine.allocate(1024, c), ptr);
    EXPECT_TRUE(is_idle(c));
    engine.free(ptr, 1024, {});
}

TEST(PoolStreams, memory_of_an_ordered_upstream_is_fenced_for_other_streams) {
    // The upstream's memory is ready on the stream that asked for it: another stream must come after it.
    mr::cuda_async_memory_resource upstream{0};
    mr::pool_memory_resource<mr::cuda_async_memory_resource> pool{upstream, 0, 8192};
    cuda_stream a = non_blocking();
    cuda_stream b = non_blocking();
    gate g;
    g.close(a);
    void* const first = pool.allocate(256, a);
    void* const second = pool.allocate(256, b);
    EXPECT_FALSE(is_idle(b));
    g.open();
    b.synchronize();
    pool.deallocate(first, 256, a);
    pool.deallocate(second, 256, b);
}

TEST(PoolStreams, a_wait_that_the_driver_refuses_loses_no_block) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 1024, 1024};
    cuda_stream a = non_blocking();
    void* const ptr = pool.allocate(1024, a);
    pool.deallocate(ptr, 1024, a);
    const cuda_stream_view bogus{reinterpret_cast<cudaStream_t>(0x12345670)};
    for (int i = 0; i < 3; ++i) EXPECT_THROW((void)pool.allocate(1024, bogus), rmm::bad_alloc);
    EXPECT_TRUE(driver().take_last_error().ok());
    EXPECT_EQ(pool.statistics().free_bytes, 1024u);
    cuda_stream b = non_blocking();
    EXPECT_EQ(pool.allocate(1024, b), ptr);
    pool.deallocate(ptr, 1024, b);
}

TEST(PoolStreams, a_free_on_what_is_no_stream_is_fenced_by_the_whole_device) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 1024, 1024};
    cuda_stream a = non_blocking();
    void* const ptr = pool.allocate(1024, a);
    pool.deallocate(ptr, 1024, cuda_stream_view{reinterpret_cast<cudaStream_t>(0x12345670)});
    EXPECT_EQ(pool.allocate(1024, a), ptr);
    pool.deallocate(ptr, 1024, a);
}

TEST(PoolStreams, trim_and_destruction_come_after_the_last_users) {
    mr::cuda_async_memory_resource upstream{0};
    cuda_stream a = non_blocking();
    std::uint32_t* word = nullptr;
    ASSERT_TRUE(driver().allocate_pinned(4, reinterpret_cast<void**>(&word)).ok());
    for (int round = 0; round < 10; ++round) {
        constexpr std::size_t bytes = 1 << 20;
        *word = 0;
        {
            mr::pool_memory_resource<mr::cuda_async_memory_resource> pool{upstream, 0};
            gate g;
            g.close(a);
            void* const ptr = pool.allocate(bytes, a);
            const auto value = static_cast<std::uint32_t>(round + 1);
            ASSERT_TRUE(driver().fill(ptr, &value, 4, bytes / 4, {a.value()}).ok());
            ASSERT_TRUE(driver().copy(word, static_cast<char*>(ptr) + bytes - 4, 4, {a.value()}).ok());
            pool.deallocate(ptr, bytes, a);
            if (round % 2) {
                EXPECT_EQ(pool.trim(), bytes);
            }
            g.open();
        }
        // What the upstream gives next is written over at once.
        void* const next = upstream.allocate(bytes, cuda_stream_view{});
        const std::uint32_t other = 99;
        ASSERT_TRUE(driver().fill(next, &other, 4, bytes / 4, {}).ok());
        upstream.deallocate(next, bytes, cuda_stream_view{});
        a.synchronize();
        EXPECT_EQ(*word, static_cast<std::uint32_t>(round + 1));
    }
    EXPECT_TRUE(driver().synchronize_device(0).ok());
    EXPECT_TRUE(driver().free_pinned(word).ok());
}

TEST(PoolStreams, many_streams_and_frees_use_few_events) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, std::size_t{1} << 20, std::size_t{1} << 20};
    for (int round = 0; round < 300; ++round) {
        foreign_stream f;
        cuda_stream a = non_blocking();
        for (cuda_stream_view s : {f.view(), a.view()}) {
            void* const large = pool.allocate(std::size_t{1} << 20, s);
            pool.deallocate(large, std::size_t{1} << 20, s);
            void* const small = pool.allocate(256, s);
            pool.deallocate(small, 256, s);
        }
    }
    EXPECT_EQ(pool.statistics().free_bytes, std::size_t{1} << 20);
    EXPECT_EQ(pool.statistics().largest_free_bytes, std::size_t{1} << 20);
}

TEST(PoolStreams, all_that_a_stream_is_done_with_serves_others_before_what_is_whole_is_cut_however_much_it_is) {
    constexpr std::size_t KiB = 1024;
    constexpr std::size_t MiB = std::size_t{1} << 20;
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 32 * MiB, 32 * MiB};
    const cuda_stream a = non_blocking();
    const cuda_stream taker = non_blocking();
    std::vector<void*> blocks;
    for (int i = 0; i < 4096; ++i) blocks.push_back(pool.allocate(4 * KiB, a));
    for (std::size_t i = 0; i < blocks.size(); i += 2) pool.deallocate(blocks[i], 4 * KiB, a);
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    for (std::size_t i = 0; i < 1500; ++i) blocks.push_back(pool.allocate(4 * KiB, taker));
    EXPECT_EQ(pool.statistics().largest_free_bytes, 16 * MiB);
    for (std::size_t i = 1; i < 4096; i += 2) pool.deallocate(blocks[i], 4 * KiB, a);
    for (std::size_t i = 4096; i < blocks.size(); ++i) pool.deallocate(blocks[i], 4 * KiB, taker);
}

TEST(PoolStreams, questions_become_rare_while_a_stream_lags_behind_and_frequent_when_it_moves) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    ScriptedDriver scripted({.memory_bytes = 128 * MiB});
    const rmm::detail::driver_scope on(scripted);
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 64 * MiB, 64 * MiB};
    const cuda_stream stream = non_blocking();
    const auto num_questions = [&](int num_frees) {
        const std::size_t before = scripted.count("query_event");
        for (int i = 0; i < num_frees; ++i) pool.deallocate(pool.allocate(32 * MiB, stream), 32 * MiB, stream);
        return scripted.count("query_event") - before;
    };
    scripted.hold({stream.value()});
    (void)num_questions(512);
    const std::size_t behind = num_questions(512);
    EXPECT_LE(behind, 2 * 2 * 512 / 64u);
    scripted.release_all();
    (void)num_questions(64);
    EXPECT_GE(num_questions(512), 512 / 4u / 2);
}

// Drivers before CUDA 12.5 have no event of the whole device.
class PoolWithoutDeviceEvents : public testing::Test {
  protected:
    static kmm::driver::testing::ScriptedOptions options() {
        kmm::driver::testing::ScriptedOptions options{.memory_bytes = std::size_t{128} << 20};
        options.capabilities.device_event = false;
        return options;
    }
    kmm::driver::StreamHandle make_stream() {
        kmm::driver::StreamHandle stream;
        EXPECT_TRUE(scripted_.create_stream(0, true, 0, &stream).ok());
        return stream;
    }
    static cuda_stream_view view(kmm::driver::StreamHandle s) {
        return cuda_stream_view{static_cast<cudaStream_t>(s.native)};
    }
    ScriptedDriver scripted_{options()};
    const rmm::detail::driver_scope on_{scripted_};
    mr::cuda_memory_resource cuda_;
};

TEST_F(PoolWithoutDeviceEvents, what_a_foreign_stream_freed_serves_another) {
    cuda_pool pool{cuda_, 1024, 1024};
    for (const int num_frees : {1, 63, 64, 65, 1000}) {
        const auto foreign = make_stream();
        for (int i = 0; i < num_frees; ++i) pool.deallocate(pool.allocate(1024, view(foreign)), 1024, view(foreign));
        const cuda_stream other = non_blocking();
        void* ptr = nullptr;
        ASSERT_NO_THROW(ptr = pool.allocate(1024, other)) << num_frees;
        pool.deallocate(ptr, 1024, other);
        EXPECT_TRUE(scripted_.destroy_stream(foreign).ok());
    }
    EXPECT_EQ(scripted_.count("device_event_record"), 0u);
}

TEST_F(PoolWithoutDeviceEvents, another_stream_comes_after_what_a_foreign_stream_freed) {
    cuda_pool pool{cuda_, 1024, 1024};
    const auto foreign = make_stream();
    void* const first = pool.allocate(1024, view(foreign));
    scripted_.hold(foreign);
    const std::uint32_t value = 1;
    ASSERT_TRUE(scripted_.fill(first, &value, 4, 256, foreign).ok());
    pool.deallocate(first, 1024, view(foreign));
    const auto other = make_stream();
    void* const second = pool.allocate(1024, view(other));
    EXPECT_EQ(second, first);
    ASSERT_TRUE(scripted_.fill(second, &value, 4, 256, other).ok());
    EXPECT_FALSE(scripted_.query_stream(other).ok());
    EXPECT_EQ(scripted_.count("synchronize_device"), 0u);
    scripted_.release(foreign);
    EXPECT_TRUE(scripted_.query_stream(other).ok());
    pool.deallocate(second, 1024, view(other));
}

TEST_F(PoolWithoutDeviceEvents, the_host_waits_where_no_event_can_be_recorded_but_not_while_the_pool_can_grow) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    cuda_pool pool{cuda_, MiB, 2 * MiB};
    const cuda_stream_view no_stream{reinterpret_cast<cudaStream_t>(0x12345670)};
    const auto stream = make_stream();
    pool.deallocate(pool.allocate(MiB, view(stream)), MiB, no_stream);
    void* const half = pool.allocate(MiB, view(stream));
    EXPECT_EQ(scripted_.count("synchronize_device"), 0u);
    void* half_more = nullptr;
    ASSERT_NO_THROW(half_more = pool.allocate(MiB, view(stream)));
    EXPECT_EQ(scripted_.count("synchronize_device"), 1u);
    pool.deallocate(half, MiB, view(stream));
    pool.deallocate(half_more, MiB, view(stream));
}

TEST_F(PoolWithoutDeviceEvents, streams_that_take_turns_never_hold_the_host_up) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    cuda_pool pool{cuda_, 16 * MiB, 16 * MiB};
    const auto foreign = make_stream();
    const auto other = make_stream();
    for (int i = 0; i < 200; ++i) {
        pool.deallocate(pool.allocate(16 * MiB, view(foreign)), 16 * MiB, view(foreign));
        pool.deallocate(pool.allocate(16 * MiB, view(other)), 16 * MiB, view(other));
    }
    EXPECT_EQ(scripted_.count("synchronize_device"), 0u);
}

TEST_F(PoolWithoutDeviceEvents, a_pool_of_virtual_memory_moves_what_foreign_streams_freed) {
    constexpr std::size_t MiB = std::size_t{1} << 20;
    mr::vmm_memory_resource pool{64 * MiB};
    const auto foreign = make_stream();
    std::vector<void*> blocks;
    for (int i = 0; i < 14; ++i) blocks.push_back(pool.allocate(4 * MiB, view(foreign)));
    for (int i = 0; i < 100; ++i) pool.deallocate(pool.allocate(256, view(foreign)), 256, view(foreign));
    for (std::size_t i = 0; i < 14; i += 2) pool.deallocate(blocks[i], 4 * MiB, view(foreign));
    EXPECT_TRUE(scripted_.destroy_stream(foreign).ok());
    const auto other = make_stream();
    void* moved = nullptr;
    ASSERT_NO_THROW(moved = pool.allocate(24 * MiB, view(other)));
    pool.deallocate(moved, 24 * MiB, view(other));
    for (std::size_t i = 1; i < 14; i += 2) pool.deallocate(blocks[i], 4 * MiB, view(other));
}

TEST(PoolStreams, threads_that_miss_at_once_grow_the_pool_once_each_at_most) {
    mr::cuda_memory_resource cuda;
    cuda_pool pool{cuda, 0, std::size_t{64} << 20};
    std::atomic<int> num_failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            cuda_stream stream;
            std::vector<void*> blocks;
            try {
                for (int k = 0; k < 32; ++k) blocks.push_back(pool.allocate(std::size_t{64} << 10, stream));
            } catch (const std::bad_alloc&) {
                ++num_failed;
            }
            for (void* ptr : blocks) pool.deallocate(ptr, std::size_t{64} << 10, stream);
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_failed, 0);
    EXPECT_LE(pool.pool_size(), std::size_t{64} << 20);
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
}

}  // namespace
