// Pools whose blocks all have one size: how many frees of a stream go without an event, and that streams which exchange
// blocks need none of the whole device for that.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/stock_signs.hpp"
#include "scripted_driver.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::Code;
using kmm::driver::testing::ScriptedDriver;
using mr::detail::pool_engine;
using rmm_test::foreign_stream;

constexpr std::size_t block_bytes = 4 * KiB;
constexpr std::size_t frees_per_event = 64;  // or fewer than so many are uncovered
constexpr std::size_t most_spacing = 16;     // that many times as many frees an event, at most

TEST(PoolStocksShown, blocks_from_the_first_that_no_event_covers_on_count_as_uncovered) {
    mr::detail::stocked_block blocks[6];
    mr::detail::shown_stock stock;
    const auto push = [&](std::size_t i, std::uint64_t position) {
        blocks[i].position = position;
        stock.push_back(blocks[i]);
    };
    push(0, 0);
    EXPECT_EQ(stock.num_uncovered(), 0u) << "anybody may use it";
    push(1, 7);
    push(2, 7);
    push(3, 0);
    EXPECT_EQ(stock.num_uncovered(), 3u) << "what lies behind one";
    stock.take_back();
    EXPECT_EQ(stock.num_uncovered(), 2u);
    stock.cover();
    push(3, 8);
    EXPECT_EQ(stock.num_uncovered(), 1u);
    stock.take_front();
    EXPECT_EQ(stock.num_uncovered(), 1u);
    stock.take_back();
    stock.take_back();
    EXPECT_EQ(stock.num_uncovered(), 0u);
    push(4, 9);
    push(5, 9);
    stock.take_front();
    EXPECT_EQ(stock.num_uncovered(), 2u);
    stock.take_front();
    EXPECT_EQ(stock.num_uncovered(), 1u) << "no more than there are";
    stock.take_front();
    stock.take_back();
    EXPECT_EQ(stock.num_uncovered(), 0u);
}

/// A pool on a driver of its own, whose streams are not ours.
class PoolStocksEvents : public ::testing::Test {
  protected:
    void make_pool(std::size_t num_blocks) {
        pool_ = std::make_unique<pool_engine>(cuda_, mr::detail::fixed_size_options(block_bytes, num_blocks));
    }
    void* allocate(const foreign_stream& on) { return pool_->allocate(block_bytes, on.view()); }
    void free(void* block, const foreign_stream& on) {
        const cuda_stream_view stream = on.view();
        pool_->free(block, block_bytes, {&stream, 1});
    }
    void pairs(std::size_t count, const foreign_stream& on) {
        for (std::size_t i = 0; i < count; ++i) free(allocate(on), on);
    }
    std::vector<void*> allocate(std::size_t count, const foreign_stream& on) {
        std::vector<void*> blocks;
        for (std::size_t i = 0; i < count; ++i) blocks.push_back(allocate(on));
        return blocks;
    }
    void free(const std::vector<void*>& blocks, const foreign_stream& on) {
        for (void* block : blocks) free(block, on);
    }
    std::size_t device_events() { return scripted_.count("device_event_record"); }
    std::size_t stream_events() { return scripted_.count("record_event"); }
    std::size_t waits() { return scripted_.count("wait_event"); }
    /// Device events of `count` steps, after as many others. Step i does f(i).
    std::size_t device_events_in(std::size_t count, const std::function<void(std::size_t)>& f) {
        for (std::size_t i = 0; i < count; ++i) f(i);
        scripted_.clear_log();
        for (std::size_t i = count; i < 2 * count; ++i) f(i);
        return device_events();
    }
    /// Until the events of the stream come as rarely as they ever do.
    void let_events_become_rare(const foreign_stream& on) {
        pairs(10 * most_spacing * frees_per_event, on);
        const std::size_t before = stream_events();
        pairs(2 * most_spacing * frees_per_event, on);
        ASSERT_EQ(stream_events() - before, 2u);
    }

    ScriptedDriver scripted_;
    const rmm::detail::driver_scope on_{scripted_};
    mr::cuda_memory_resource cuda_;
    std::unique_ptr<pool_engine> pool_;
    const foreign_stream a_{scripted_}, b_{scripted_};
};

TEST_F(PoolStocksEvents, a_stream_that_has_gone_quiet_leaves_fewer_blocks_uncovered_than_ask_for_an_event) {
    make_pool(1000);
    let_events_become_rare(a_);
    for (int round = 0; round < 20; ++round) free(allocate(1000, a_), a_);
    const std::vector<void*> taken = allocate(1000 - frees_per_event, b_);
    EXPECT_EQ(device_events(), 0u);
    EXPECT_EQ(pool_->held_bytes(), 1000 * block_bytes);
    free(taken, b_);
}

TEST_F(PoolStocksEvents, streams_of_which_one_allocates_and_the_other_frees_need_no_events_of_the_device) {
    make_pool(512);
    std::deque<void*> live;
    EXPECT_EQ(device_events_in(20'000,
                               [&](std::size_t) {
                                   live.push_back(allocate(b_));
                                   if (live.size() <= 32) return;
                                   free(live.front(), a_);
                                   live.pop_front();
                               }),
              0u);
    for (void* block : live) free(block, a_);
}

/// One stream allocates and frees `round` blocks in turn; every 50 frees another one, a new one each time if that is
/// asked for, takes a block.
class PoolStocksNowAndThen : public PoolStocksEvents {
  protected:
    std::size_t device_events_of_rounds(std::size_t round, bool is_new_each_time) {
        make_pool(round + 8);
        void* taken = nullptr;
        std::size_t num_freed = 0;
        const auto take = [&] {
            if (taken != nullptr) free(taken, a_);
            if (is_new_each_time) newcomers_.emplace_back(scripted_);
            taken = allocate(is_new_each_time ? newcomers_.back() : b_);
        };
        const std::size_t events = device_events_in(20'000 / round, [&](std::size_t) {
            for (void* block : allocate(round, a_)) {
                free(block, a_);
                if (++num_freed % 50 == 0) take();
            }
        });
        free(taken, a_);
        return events;
    }
    std::deque<foreign_stream> newcomers_;
};

TEST_F(PoolStocksNowAndThen, a_stream_that_takes_a_block_now_and_then_needs_no_events_of_the_device) {
    EXPECT_EQ(device_events_of_rounds(100, false), 0u);
    EXPECT_EQ(device_events_of_rounds(400, false), 0u);
}

TEST_F(PoolStocksNowAndThen, new_streams_that_take_a_block_now_and_then_need_no_events_of_the_device) {
    EXPECT_EQ(device_events_of_rounds(100, true), 0u);
    EXPECT_EQ(device_events_of_rounds(400, true), 0u);
}

TEST_F(PoolStocksEvents, blocks_that_two_streams_used_need_no_events_of_the_device) {
    make_pool(216);
    const cuda_stream_view both[2] = {a_.view(), b_.view()};
    std::deque<void*> live;
    EXPECT_EQ(device_events_in(20'000,
                               [&](std::size_t) {
                                   live.push_back(allocate(b_));
                                   if (live.size() <= 8) return;
                                   pool_->free(live.front(), block_bytes, both);
                                   live.pop_front();
                               }),
              0u);
    for (void* block : live) free(block, a_);
}

TEST_F(PoolStocksEvents, a_search_in_vain_of_a_stream_s_first_request_makes_events_come_again) {
    make_pool(16);
    const std::vector<void*> blocks = allocate(16, a_);
    free(blocks, a_);
    let_events_become_rare(a_);
    const std::vector<void*> kept = allocate(15, b_);  // all that has passed
    scripted_.hold({a_.view().value()});
    pairs(1, a_);
    const std::size_t num_waits = waits(), held = pool_->held_bytes();
    const foreign_stream newcomer(scripted_);
    void* const taken = allocate(newcomer);
    EXPECT_TRUE(waits() > num_waits || pool_->held_bytes() > held) << "not in vain";
    scripted_.release_all();
    const std::size_t events = stream_events();
    for (std::size_t i = 0; i < most_spacing * frees_per_event && stream_events() == events; ++i) pairs(1, a_);
    pairs(7 * frees_per_event, a_);
    EXPECT_EQ(stream_events() - events, 8u);
    free(taken, newcomer);
    free(kept, b_);
}

TEST_F(PoolStocksEvents, recordings_that_fail_do_not_make_the_next_ones_come_more_rarely) {
    for (const char* const failing : {"record_event", "create_event"}) {
        make_pool(16);
        const foreign_stream stream(scripted_);
        free(allocate(16, stream), stream);
        scripted_.clear_log();
        for (std::uint64_t n = 1; n <= 20; ++n) scripted_.fail_call(failing, n, Code::out_of_memory);
        pairs(20 * frees_per_event, stream);
        EXPECT_GE(scripted_.count(failing), 19u) << failing;
        scripted_.clear_failures();
        scripted_.clear_log();
        pairs(frees_per_event, stream);
        EXPECT_EQ(stream_events(), 1u) << failing;
    }
}

TEST_F(PoolStocksEvents, a_recording_that_fails_is_tried_again_after_as_many_frees_as_the_first) {
    make_pool(16);
    free(allocate(16, a_), a_);
    let_events_become_rare(a_);
    scripted_.fail_call("record_event", 1, Code::out_of_memory);
    pairs(most_spacing * frees_per_event, a_);
    ASSERT_EQ(scripted_.num_failures(), 1u);
    const std::size_t before = stream_events();
    pairs(frees_per_event, a_);
    EXPECT_EQ(stream_events() - before, 1u);
}

}  // namespace
