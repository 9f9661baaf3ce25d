// Allocating and freeing while a stream is captured: what the graph uses stays the graph's, whatever goes on beside it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lock_taker.hpp"
#include "lock_watch.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"
#include "uncovered_pieces.hpp"

namespace {

using namespace rmm;
using namespace kmm::driver;
using rmm_test::foreign_stream;
using rmm_test::non_blocking;
using cuda_pool = mr::pool_memory_resource<mr::cuda_memory_resource>;

Driver& driver() { return rmm_test::driver(); }
StreamHandle handle(cuda_stream_view stream) { return {stream.value()}; }

void fill(void* ptr, std::uint32_t value, std::size_t bytes, cuda_stream_view stream) {
    ASSERT_TRUE(driver().fill(ptr, &value, 4, bytes / 4, handle(stream)).ok());
}

/// One word of page-locked memory.
class pinned_word {
  public:
    pinned_word() { EXPECT_TRUE(driver().allocate_pinned(4, reinterpret_cast<void**>(&word_)).ok()); }
    ~pinned_word() { EXPECT_TRUE(driver().free_pinned(word_).ok()); }
    pinned_word(const pinned_word&) = delete;
    pinned_word& operator=(const pinned_word&) = delete;
    volatile std::uint32_t& operator*() { return *word_; }
    void* address() { return word_; }

  private:
    std::uint32_t* word_ = nullptr;
};

class captured_graph {
  public:
    template<typename F>
    captured_graph(cuda_stream_view stream, F&& body, CaptureMode mode = CaptureMode::global) {
        EXPECT_TRUE(driver().begin_capture(handle(stream), mode).ok());
        body();
        const Status ended = driver().end_capture(handle(stream), &graph_);
        EXPECT_TRUE(ended.ok()) << "the capture was spoiled: " << static_cast<int>(ended.code);
        if (ended.ok()) {
            EXPECT_TRUE(driver().instantiate(graph_, &exec_).ok());
        }
    }
    ~captured_graph() {
        if (exec_.native != nullptr) {
            EXPECT_TRUE(driver().destroy_exec(exec_).ok());
        }
        if (graph_.native != nullptr) {
            EXPECT_TRUE(driver().destroy_graph(graph_).ok());
        }
    }
    captured_graph(const captured_graph&) = delete;
    captured_graph& operator=(const captured_graph&) = delete;
    void launch(cuda_stream_view stream) { ASSERT_TRUE(driver().launch_graph(exec_, handle(stream)).ok()); }

  private:
    GraphHandle graph_;
    GraphExecHandle exec_;
};

/// Until the driver has told of the end of a graph, which may come from a thread of its own.
void wait_until_released(cuda_pool& pool) {
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    while (pool.statistics().captured_bytes != 0) std::this_thread::yield();
}

class PoolCapture : public ::testing::Test {
  protected:
    /// Until no more of the stream's first frees have an event each.
    void free_with_events(cuda_stream_view stream) {
        for (int i = 0; i < 64; ++i) pool_.deallocate(pool_.allocate(MiB, stream), MiB, stream);
    }
    mr::cuda_memory_resource cuda_;
    cuda_pool pool_{cuda_, 64 * MiB, 64 * MiB};
};

TEST_F(PoolCapture, memory_of_a_graph_is_nobody_elses_while_the_graph_lives) {
    foreign_stream s;
    pinned_word out;
    {
        void* temporary = nullptr;
        captured_graph graph(s.view(), [&] {
            temporary = pool_.allocate(1 * MiB, s.view());
            fill(temporary, 42, 1 * MiB, s.view());
            ASSERT_TRUE(
                driver().copy(out.address(), static_cast<char*>(temporary) + 1 * MiB - 4, 4, handle(s.view())).ok());
            pool_.deallocate(temporary, 1 * MiB, s.view());
        });
        // Everything else that the pool has, written over and over.
        std::vector<void*> others;
        cuda_stream t = non_blocking();
        try {
            for (;;) others.push_back(pool_.allocate(256 * KiB, t));
        } catch (const rmm::out_of_memory&) {}
        EXPECT_GT(others.size(), 200u);
        pinned_word first;
        for (std::uint32_t round = 0; round < 20; ++round) {
            *out = 0;
            for (void* ptr : others) fill(ptr, round, 256 * KiB, t);
            graph.launch(s.view());
            ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
            ASSERT_EQ(*out, 42u);
            for (std::size_t i = 0; i < others.size(); i += 17) {
                ASSERT_TRUE(driver().copy(first.address(), others[i], 4, handle(t)).ok());
                ASSERT_TRUE(driver().synchronize_stream(handle(t)).ok());
                ASSERT_EQ(*first, round);
            }
        }
        for (void* ptr : others) pool_.deallocate(ptr, 256 * KiB, t);
    }
    wait_until_released(pool_);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 0u);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 64 * MiB);
}

TEST_F(PoolCapture, memory_behind_that_of_a_capture_is_still_in_blocks_where_all_have_one_size) {
    for (const std::size_t block : {512 * std::size_t{3}, 96 * KiB}) {
        mr::detail::pool_options options = mr::detail::fixed_size_options(block, 8 * MiB / block);
        options.ordered_upstream = false;
        mr::detail::pool_engine pool(cuda_, options);
        const foreign_stream captured, s;
        const cuda_stream_view stream = s.view();
        pool.free(pool.allocate(block, stream), block, {&stream, 1});
        ASSERT_TRUE(driver().synchronize_device(0).ok());
        void* of_graph = nullptr;
        captured_graph graph(captured.view(), [&] { of_graph = pool.allocate(block, captured.view()); });
        std::vector<void*> live;
        for (std::size_t i = 0; i < 4 * MiB / block; ++i) live.push_back(pool.allocate(block, stream));
        for (void* ptr : live)
            EXPECT_EQ((static_cast<char*>(ptr) - static_cast<char*>(of_graph)) % static_cast<std::ptrdiff_t>(block), 0);
        EXPECT_EQ(pool.held_bytes(), 8 * MiB / block * block) << block;
        for (void* ptr : live) pool.free(ptr, block, {&stream, 1});
        const std::uint64_t before = pool.num_steps();
        for (int i = 0; i < 100; ++i) pool.free(pool.allocate(block, stream), block, {&stream, 1});
        // Smaller blocks have no stocks.
        if (block > 4 * KiB) {
            EXPECT_EQ(pool.num_steps(), before);
        }
        const cuda_stream_view c = captured.view();
        pool.free(of_graph, block, {&c, 1});
    }
}

TEST_F(PoolCapture, a_block_freed_in_the_capture_is_used_again_in_it) {
    foreign_stream s;
    captured_graph graph(s.view(), [&] {
        void* const first = pool_.allocate(100 * KiB, s.view());
        pool_.deallocate(first, 100 * KiB, s.view());
        for (int i = 0; i < 1000; ++i) {
            void* const again = pool_.allocate(100 * KiB, s.view());
            EXPECT_EQ(again, first);
            pool_.deallocate(again, 100 * KiB, s.view());
        }
    });
    EXPECT_LE(pool_.statistics().captured_bytes, 4 * MiB);
}

TEST_F(PoolCapture, a_block_may_outlive_the_graph_and_is_freed_in_order_then) {
    foreign_stream s;
    void* kept = nullptr;
    {
        captured_graph graph(s.view(), [&] {
            kept = pool_.allocate(1 * MiB, s.view());
            fill(kept, 7, 1 * MiB, s.view());
        });
        graph.launch(s.view());
        ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
    }
    wait_until_released(pool_);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 1 * MiB);
    pinned_word word;
    ASSERT_TRUE(driver().copy(word.address(), kept, 4, handle(s.view())).ok());
    ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
    EXPECT_EQ(*word, 7u);
    pool_.deallocate(kept, 1 * MiB, s.view());
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 64 * MiB);
}

TEST_F(PoolCapture, a_block_freed_after_the_capture_stays_with_the_graph) {
    foreign_stream s;
    {
        void* block = nullptr;
        captured_graph graph(s.view(), [&] {
            block = pool_.allocate(1 * MiB, s.view());
            fill(block, 7, 1 * MiB, s.view());
        });
        pool_.deallocate(block, 1 * MiB, s.view());
        std::vector<void*> others;
        try {
            for (;;) others.push_back(pool_.allocate(1 * MiB, s.view()));
        } catch (const rmm::out_of_memory&) {}
        for (void* ptr : others) {
            EXPECT_NE(ptr, block);
            pool_.deallocate(ptr, 1 * MiB, s.view());
        }
    }
    wait_until_released(pool_);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 64 * MiB);
}

TEST_F(PoolCapture, what_a_graph_keeps_is_not_counted_as_free_wherever_it_was_freed) {
    foreign_stream s;
    void* block = nullptr;
    const captured_graph graph(s.view(), [&] { block = pool_.allocate(12 * MiB, s.view()); });
    const std::size_t free_before = pool_.statistics().free_bytes;
    const cuda_stream outside;
    pool_.deallocate(block, 12 * MiB, outside);
    const mr::pool_statistics after = pool_.statistics();
    EXPECT_EQ(after.in_use_bytes, 0u);
    EXPECT_EQ(after.free_bytes, free_before);
    EXPECT_EQ(after.free_bytes + after.captured_bytes, after.held_bytes);
}

TEST_F(PoolCapture, a_capture_over_two_streams_gives_each_its_own_memory) {
    foreign_stream s;
    foreign_stream t;
    EventHandle forked, joined;
    ASSERT_TRUE(driver().create_event(0, false, false, &forked).ok());
    ASSERT_TRUE(driver().create_event(0, false, false, &joined).ok());
    pinned_word from_s, from_t;
    {
        captured_graph graph(s.view(), [&] {
            void* const a = pool_.allocate(1 * MiB, s.view());
            pool_.deallocate(a, 1 * MiB, s.view());
            ASSERT_TRUE(driver().record_event(forked, handle(s.view())).ok());
            ASSERT_TRUE(driver().wait_event(handle(t.view()), forked).ok());
            void* const on_t = pool_.allocate(1 * MiB, t.view());
            void* const on_s = pool_.allocate(1 * MiB, s.view());
            EXPECT_EQ(on_s, a);
            EXPECT_NE(on_t, on_s);
            fill(on_t, 1, 1 * MiB, t.view());
            fill(on_s, 2, 1 * MiB, s.view());
            ASSERT_TRUE(driver().copy(from_t.address(), on_t, 4, handle(t.view())).ok());
            ASSERT_TRUE(driver().copy(from_s.address(), on_s, 4, handle(s.view())).ok());
            pool_.deallocate(on_t, 1 * MiB, t.view());
            ASSERT_TRUE(driver().record_event(joined, handle(t.view())).ok());
            ASSERT_TRUE(driver().wait_event(handle(s.view()), joined).ok());
            pool_.deallocate(on_s, 1 * MiB, s.view());
        });
        for (int i = 0; i < 10; ++i) {
            *from_s = 0;
            *from_t = 0;
            graph.launch(s.view());
            ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
            EXPECT_EQ(*from_s, 2u);
            EXPECT_EQ(*from_t, 1u);
        }
    }
    wait_until_released(pool_);
    ASSERT_TRUE(driver().destroy_event(forked).ok());
    ASSERT_TRUE(driver().destroy_event(joined).ok());
}

TEST_F(PoolCapture, a_capture_that_was_given_up_gives_its_memory_back) {
    foreign_stream s;
    ASSERT_TRUE(driver().begin_capture(handle(s.view()), CaptureMode::relaxed).ok());
    void* const block = pool_.allocate(1 * MiB, s.view());
    EXPECT_FALSE(driver().synchronize_stream(handle(s.view())).ok());  // spoils it
    GraphHandle graph;
    EXPECT_FALSE(driver().end_capture(handle(s.view()), &graph).ok());
    (void)driver().take_last_error();
    pool_.deallocate(block, 1 * MiB, s.view());
    wait_until_released(pool_);
    EXPECT_EQ(pool_.statistics().largest_free_bytes, 64 * MiB);
}

TEST_F(PoolCapture, other_threads_allocate_and_free_meanwhile) {
    foreign_stream s;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            foreign_stream mine;
            foreign_stream other;
            while (!stop) {
                void* const a = pool_.allocate(64 * KiB, mine.view());
                void* const b = pool_.allocate(3 * MiB, mine.view());
                fill(a, 5, 64 * KiB, mine.view());
                // A block is freed on a stream that comes after its last use. A wait on the stream would let the host
                // run ahead, and the pool out of memory.
                ASSERT_TRUE(driver().synchronize_stream(handle(mine.view())).ok());
                pool_.deallocate(a, 64 * KiB, other.view());
                pool_.deallocate(b, 3 * MiB, mine.view());
            }
        });
    }
    pinned_word out;
    for (int round = 0; round < 20; ++round) {
        captured_graph graph(
            s.view(),
            [&] {
                for (std::uint32_t i = 0; i < 20; ++i) {
                    void* const block = pool_.allocate(10 * KiB * (1 + i % 3), s.view());
                    fill(block, i, 10 * KiB, s.view());
                    ASSERT_TRUE(driver().copy(out.address(), block, 4, handle(s.view())).ok());
                    pool_.deallocate(block, 10 * KiB * (1 + i % 3), s.view());
                }
            },
            CaptureMode::thread_local_);
        for (int i = 0; i < 5; ++i) {
            *out = 99;
            graph.launch(s.view());
            ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
            EXPECT_EQ(*out, 19u);
        }
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    wait_until_released(pool_);
}

TEST_F(PoolCapture, a_stream_of_ours_that_is_captured_is_not_fenced) {
    cuda_stream captured = non_blocking();
    void* const kept = pool_.allocate(40 * MiB, captured);
    free_with_events(captured);
    pool_.deallocate(pool_.allocate(24 * MiB, captured), 24 * MiB, captured);  // too little for an event
    const captured_graph graph(
        captured,
        [&] {
            std::thread([&] {
                cuda_stream other = non_blocking();
                // What the captured stream freed cannot be had now.
                EXPECT_THROW((void)pool_.allocate(24 * MiB, other), rmm::bad_alloc);
                CaptureStatus status = CaptureStatus::active;
                ASSERT_TRUE(driver().capture_status(handle(other), &status, nullptr).ok());
                EXPECT_EQ(status, CaptureStatus::none);
            }).join();
        },
        CaptureMode::thread_local_);
    cuda_stream other = non_blocking();
    void* const again = pool_.allocate(24 * MiB, other);
    pool_.deallocate(again, 24 * MiB, other);
    pool_.deallocate(kept, 40 * MiB, captured);
}

TEST_F(PoolCapture, other_memory_is_had_where_that_of_a_captured_stream_of_ours_would_fit_better) {
    cuda_stream captured = non_blocking();
    cuda_stream second = non_blocking();
    void* const smaller = pool_.allocate(24 * MiB, captured);
    void* const between = pool_.allocate(14 * MiB, captured);
    void* const larger = pool_.allocate(25 * MiB, second);
    free_with_events(captured);
    pool_.deallocate(smaller, 24 * MiB, captured);
    pool_.deallocate(larger, 25 * MiB, second);
    const captured_graph graph(
        captured,
        [&] {
            std::thread([&] {
                cuda_stream other = non_blocking();
                for (const std::size_t bytes : {24 * MiB, MiB}) {
                    void* block = nullptr;
                    EXPECT_NO_THROW(block = pool_.allocate(bytes, other));
                    EXPECT_LT(static_cast<std::size_t>(static_cast<char*>(block) - static_cast<char*>(larger)),
                              25 * MiB);
                    if (block != nullptr) pool_.deallocate(block, bytes, other);
                }
            }).join();
        },
        CaptureMode::thread_local_);
    pool_.deallocate(between, 14 * MiB, captured);
}

TEST_F(PoolCapture, a_stream_of_ours_that_is_done_with_its_memory_may_be_captured) {
    {
        cuda_stream first = non_blocking();
        const captured_graph seen(first, [&] { pool_.deallocate(pool_.allocate(MiB, first), MiB, first); });
    }
    wait_until_released(pool_);
    cuda_stream captured = non_blocking();
    void* const small = pool_.allocate(24 * MiB, captured);
    for (int i = 0; i < 2; ++i) pool_.deallocate(pool_.allocate(40 * MiB, captured), 40 * MiB, captured);
    pool_.deallocate(small, 24 * MiB, captured);  // merges with what has an event for its size
    captured.synchronize();
    const captured_graph graph(captured, [&] {
        void* block = nullptr;
        EXPECT_NO_THROW(block = pool_.allocate(MiB, captured));
        if (block != nullptr) pool_.deallocate(block, MiB, captured);
    });
}

TEST_F(PoolCapture, what_a_stream_of_ours_freed_with_an_event_can_be_had_while_it_is_captured) {
    cuda_stream captured = non_blocking();
    pool_.deallocate(pool_.allocate(48 * MiB, captured), 48 * MiB, captured);
    const captured_graph graph(
        captured,
        [&] {
            std::thread([&] {
                cuda_stream other = non_blocking();
                void* block = nullptr;
                EXPECT_NO_THROW(block = pool_.allocate(48 * MiB, other));
                pool_.deallocate(block, 48 * MiB, other);
            }).join();
        },
        CaptureMode::thread_local_);
}

TEST_F(PoolCapture, memory_of_the_legacy_stream_does_not_spoil_the_capture_of_a_blocking_stream) {
    void* const freed = pool_.allocate(48 * MiB, cuda_stream_view{});
    pool_.deallocate(freed, 48 * MiB, cuda_stream_view{});
    cuda_stream blocking;
    const captured_graph graph(
        blocking, [&] { EXPECT_THROW((void)pool_.allocate(48 * MiB, blocking), rmm::bad_alloc); },
        CaptureMode::relaxed);
    void* const again = pool_.allocate(48 * MiB, blocking);
    pool_.deallocate(again, 48 * MiB, blocking);
}

TEST_F(PoolCapture, giving_memory_back_waits_until_no_capture_would_be_spoilt) {
    cuda_pool growing{cuda_, 0};
    cuda_stream other = non_blocking();
    cuda_stream blocking;
    void* const block = growing.allocate(48 * MiB, other);
    growing.set_release_threshold(0);
    const captured_graph graph(
        blocking,
        [&] {
            std::thread([&] { growing.deallocate(block, 48 * MiB, other); }).join();
            EXPECT_EQ(growing.trim(), 0u);
        },
        CaptureMode::thread_local_);
    EXPECT_EQ(growing.trim(), 48 * MiB);
}

TEST_F(PoolCapture, virtual_memory_of_small_captures_goes_back) {
    mr::vmm_memory_resource vmm;
    for (int round = 0; round < 3; ++round) {
        foreign_stream s;
        const captured_graph graph(s.view(), [&] {
            void* const block = vmm.allocate(1 * KiB, s.view());
            fill(block, 1, 1 * KiB, s.view());
            vmm.deallocate(block, 1 * KiB, s.view());
        });
    }
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    while (vmm.statistics().captured_bytes != 0) std::this_thread::yield();
    vmm.trim();
    EXPECT_EQ(vmm.pool_size(), 0u);
}

TEST_F(PoolCapture, what_lies_free_in_arenas_of_virtual_memory_serves_captures) {
    mr::vmm_memory_resource vmm{64 * MiB};
    const foreign_stream s;
    std::vector<void*> blocks;
    for (int i = 0; i < 63; ++i) blocks.push_back(vmm.allocate(MiB, s.view()));
    for (std::size_t i = 1; i < blocks.size(); ++i) vmm.deallocate(blocks[i], MiB, s.view());
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    {
        const captured_graph graph(s.view(), [&] {
            void* const block = vmm.allocate(32 * MiB, s.view());
            EXPECT_NE(block, nullptr);
            vmm.deallocate(block, 32 * MiB, s.view());
        });
    }
    vmm.deallocate(blocks[0], MiB, s.view());
}

TEST_F(PoolCapture, the_error_of_virtual_memory_has_figures_where_all_that_is_free_is_of_a_captured_stream) {
    mr::vmm_memory_resource vmm{28 * MiB};
    cuda_stream captured = non_blocking();
    // Until no more of the stream's first frees have an event each; too little for an event at the end.
    for (int i = 0; i < 65; ++i) vmm.deallocate(vmm.allocate(20 * MiB, captured), 20 * MiB, captured);
    const captured_graph graph(
        captured,
        [&] {
            std::thread([&] {
                cuda_stream other = non_blocking();
                void* const kept = vmm.allocate(8 * MiB, other);
                try {
                    (void)vmm.allocate(2 * MiB, other);
                    ADD_FAILURE() << "what the captured stream freed cannot be had now";
                } catch (const rmm::out_of_memory& e) {
                    EXPECT_EQ(e.shortage().pool_bytes, 28 * MiB) << e.what();
                    EXPECT_EQ(e.shortage().pool_free_bytes, 20 * MiB) << e.what();
                    EXPECT_NE(std::string(e.what()).find("while a stream is captured"), std::string::npos) << e.what();
                }
                vmm.deallocate(kept, 8 * MiB, other);
            }).join();
        },
        CaptureMode::thread_local_);
}

// An event of the device, or a wait for it, would spoil a capture that goes on elsewhere.
TEST_F(PoolCapture, virtual_memory_grows_where_only_the_whole_device_covers_what_could_be_moved) {
    {
        const foreign_stream s;
        const captured_graph any(s.view(), [&] { pool_.deallocate(pool_.allocate(KiB, s.view()), KiB, s.view()); });
    }
    for (const bool device_events : {true, false}) {
        rmm_test::uncovered_pieces pieces(device_events, 128 * MiB);
        mr::detail::refusal why;
        void* const large = pieces.pool().try_allocate(32 * MiB, pieces.other(), &why);
        EXPECT_NE(large, nullptr) << why.reason;
        EXPECT_EQ(pieces.num_waits(), 0);
        EXPECT_TRUE(pieces.is_busy());
        EXPECT_EQ(pieces.pool().held_bytes(), 96 * MiB);
        const cuda_stream_view other = pieces.other();
        if (large != nullptr) pieces.pool().free(large, 32 * MiB, {&other, 1});
    }
}

TEST(PoolCaptureLocks, none_is_held_over_a_call_of_the_driver) {
    rmm_test::lock_watch watched(driver());
    const rmm::detail::driver_scope scope(watched);
    mr::cuda_memory_resource cuda;
    mr::detail::pool_options options;
    options.initial_bytes = 16 * MiB;
    mr::detail::pool_engine pool(cuda, options);
    const rmm_test::watching here(watched, pool);
    for (int i = 0; i < 20; ++i) {
        const cuda_stream stream = non_blocking();
        const cuda_stream_view s = stream.view();
        void* const before = pool.allocate(1 * MiB, s);
        pool.free(before, 1 * MiB, {&s, 1});
        void* kept = nullptr;
        const captured_graph graph(s, [&] {
            void* const ptr = pool.allocate(4 * MiB, s);
            pool.free(ptr, 4 * MiB, {&s, 1});
            kept = pool.allocate(std::size_t{i % 2 == 0 ? 1u : 20u} * MiB, s);  // what is there, and what it grows by
        });
        pool.free(kept, std::size_t{i % 2 == 0 ? 1u : 20u} * MiB, {&s, 1});
        pool.trim(0);
    }
    EXPECT_EQ(watched.under_lock(), "");
    EXPECT_GE(watched.num_calls("keep_with_capture"), 20u);
}

TEST(PoolCaptureGrowth, a_pool_may_grow_in_a_capture) {
    mr::cuda_memory_resource cuda;
    mr::cuda_async_memory_resource async{0};
    cuda_pool plain{cuda, 0};
    mr::pool_memory_resource<mr::cuda_async_memory_resource> ordered{async, 0};
    mr::vmm_memory_resource vmm;
    for (mr::device_memory_resource* pool : std::vector<mr::device_memory_resource*>{&plain, &ordered, &vmm}) {
        foreign_stream s;
        pinned_word out;
        captured_graph graph(s.view(), [&] {
            device_buffer buffer{5 * MiB, s.view(), *pool};
            fill(buffer.data(), 3, 5 * MiB, s.view());
            ASSERT_TRUE(driver()
                            .copy(out.address(), static_cast<char*>(buffer.data()) + 5 * MiB - 4, 4, handle(s.view()))
                            .ok());
        });
        *out = 0;
        graph.launch(s.view());
        ASSERT_TRUE(driver().synchronize_stream(handle(s.view())).ok());
        EXPECT_EQ(*out, 3u);
    }
}

/// Frees of a whole pool whose thread found the lock taken, now and then. The device is idle then.
template<typename Use>
void expect_no_loss_of_events(Use&& use) {
    mr::cuda_memory_resource cuda;
    mr::detail::pool_options options;
    options.initial_bytes = options.maximum_bytes = 32 * MiB;
    for (int i = 0; i < 200; ++i) {
        mr::detail::pool_engine pool(cuda, options);
        const foreign_stream stream;
        void* const all = pool.allocate(32 * MiB, stream.view());
        {
            const rmm_test::lock_taker others(pool);
            const cuda_stream_view frees = stream.view();
            pool.free(all, 32 * MiB, {&frees, 1});
        }
        ASSERT_TRUE(driver().synchronize_device(0).ok());
        use(pool);
    }
}

TEST(PoolCaptureLocks, what_a_thread_freed_without_waiting_for_the_lock_serves_captured_streams) {
    expect_no_loss_of_events([](mr::detail::pool_engine& pool) {
        const foreign_stream captured;
        const captured_graph graph(
            captured.view(),
            [&] {
                void* const block = pool.allocate(16 * MiB, captured.view());
                const cuda_stream_view frees = captured.view();
                pool.free(block, 16 * MiB, {&frees, 1});
            },
            CaptureMode::relaxed);
    });
}

TEST(PoolCaptureLocks, what_a_thread_freed_without_waiting_for_the_lock_goes_back_where_captures_were_seen) {
    mr::cuda_memory_resource cuda;
    cuda_pool other{&cuda, 1 * MiB};
    const foreign_stream captured;
    const captured_graph graph(
        captured.view(), [&] { other.deallocate(other.allocate(256, captured.view()), 256, captured.view()); },
        CaptureMode::relaxed);
    expect_no_loss_of_events([](mr::detail::pool_engine& pool) { EXPECT_EQ(pool.trim(0), 32 * MiB); });
}

/// In a process of its own, whose first capture this is: a stream has allocated and freed all `num_blocks` of a pool
/// many times, and the device is idle. Ends with 0 where a capture, of that stream or another one, gets half of them.
void capture_first_of_all(std::size_t num_blocks, std::size_t block_bytes, bool of_same_stream) {
    mr::cuda_memory_resource cuda;
    mr::limiting_resource_adaptor<mr::device_memory_resource> limited{&cuda, num_blocks * block_bytes};
    mr::fixed_size_memory_resource<mr::device_memory_resource> pool{&limited, block_bytes, num_blocks};
    const foreign_stream first, second;
    std::vector<void*> blocks;
    const auto free_all = [&](cuda_stream_view stream) {
        for (void* ptr : blocks) pool.deallocate(ptr, block_bytes, stream);
        blocks.clear();
    };
    for (int round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < num_blocks; ++i) blocks.push_back(pool.allocate(block_bytes, first.view()));
        free_all(first.view());
    }
    bool is_well = driver().synchronize_device(0).ok();
    const cuda_stream_view captured = of_same_stream ? first.view() : second.view();
    {
        const captured_graph graph(
            captured,
            [&] {
                try {
                    while (blocks.size() < num_blocks / 2) blocks.push_back(pool.allocate(block_bytes, captured));
                } catch (const rmm::out_of_memory&) {
                    std::fprintf(stderr, "%zu of %zu\n", blocks.size(), num_blocks / 2);
                    is_well = false;
                }
                free_all(captured);
            },
            CaptureMode::relaxed);
    }
    std::_Exit(is_well && !::testing::Test::HasFailure() ? 0 : 1);
}

TEST(PoolFirstCapture, gets_half_of_the_blocks_of_one_size_that_a_stream_has_left_idle) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const bool of_same_stream : {false, true})
        for (const auto& [num_blocks, block_bytes] :
             {std::pair{std::size_t{100}, 64 * KiB}, {500, 64 * KiB}, {1000, 64 * KiB}, {60, 4 * MiB}})
            EXPECT_EXIT(capture_first_of_all(num_blocks, block_bytes, of_same_stream), ::testing::ExitedWithCode(0), "")
                << num_blocks << " blocks" << (of_same_stream ? ", same stream" : "");
}

/// Likewise; ends with 0 where another stream gets nine tenths of what is idle behind a capture, and the pool does not
/// grow.
void use_what_is_idle_behind_the_first_capture() {
    constexpr std::size_t num_blocks = 1000;
    mr::cuda_memory_resource cuda;
    mr::detail::pool_engine pool(cuda, mr::detail::fixed_size_options(4 * KiB, num_blocks));
    const foreign_stream first, captured, taker;
    std::vector<void*> blocks;
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < num_blocks; ++i) blocks.push_back(pool.allocate(4 * KiB, first.view()));
        const cuda_stream_view frees = first.view();
        for (void* ptr : blocks) pool.free(ptr, 4 * KiB, {&frees, 1});
        blocks.clear();
    }
    const bool is_idle = driver().synchronize_device(0).ok();
    {
        cuda_pool other{&cuda, 1 * MiB};
        const captured_graph graph(
            captured.view(), [&] { other.deallocate(other.allocate(256, captured.view()), 256, captured.view()); });
    }
    const std::size_t held = pool.held_bytes();
    while (blocks.size() < num_blocks * 9 / 10) blocks.push_back(pool.allocate(4 * KiB, taker.view()));
    const bool has_grown = pool.held_bytes() != held;
    std::_Exit(is_idle && !has_grown && !::testing::Test::HasFailure() ? 0 : 1);
}

TEST(PoolFirstCapture, a_pool_goes_on_to_use_what_a_stream_has_left_idle_rather_than_grow) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(use_what_is_idle_behind_the_first_capture(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
