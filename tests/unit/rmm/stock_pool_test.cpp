// Stocks of blocks of one size, with a heap and timelines and without a pool: from where a stream gets a block, and
// about which events it asks. The answers of the driver are the test's.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pool_streams.hpp"
#include "rmm/pool/stock_pool.hpp"

namespace {

using namespace rmm;
using mr::detail::arena;
using mr::detail::others_have;
using mr::detail::piece;
using mr::detail::stocked_block;
using mr::detail::timeline;
using rmm_test::pool_streams;

constexpr std::size_t block_bytes = 4096;
constexpr std::uintptr_t base = std::uintptr_t{1} << 30;

class StockPool : public testing::Test {
  protected:
    StockPool() : streams_(mr::detail::pool_options{.block_bytes = block_bytes}) {
        common_.kind = rmm::detail::stream_kind::unknown;
        common_.number = heap::heap::no_timeline;
    }
    void add_memory(std::size_t num_blocks) KMM_REQUIRES(mr::detail::in_engine) {
        stocks_.blocks().add_region(base, num_blocks * block_bytes);
        heap_[0].add_region(base, num_blocks * block_bytes, heap::border::sealed);
    }
    arena& add_stream(std::uint64_t number) {
        arena& a = *arenas_.emplace_back(std::make_unique<arena>());
        streams_.facts.arenas = arenas_.size();
        timeline& home = streams_.add(number);
        a.home = &home;
        a.number = number;
        a.handle = reinterpret_cast<cudaStream_t>(0x1000 * number);
        streams_.times.hold(home);
        const kmm::locks::Guard in(a.mutex);
        mr::detail::stock_sign& sign = signs_.add(a);
        a.stock.set_sign(sign);
        mr::detail::timelines::show(home, &sign.home);
        return a;
    }
    /// Out of the heap, as a request does that has the engine's lock.
    stocked_block* allocate(arena& a) KMM_REQUIRES(mr::detail::in_engine) {
        piece found = stocks_.find_ready(block_bytes, a);
        if (!found) return nullptr;
        stocked_block* const block = found.block;
        stocks_.hand_out(std::move(found), view(a));
        return block;
    }
    void free(arena& a, stocked_block* block) {
        ASSERT_EQ(stocks_.blocks().take_back(block->address), block);
        const kmm::locks::Guard in(a.mutex);
        stocks_.take_in(a, *block, pool_streams::free_on(*a.home).position);
    }
    /// All blocks go to the stock of the arena.
    void free_all_on(arena& a, std::size_t num_blocks) KMM_REQUIRES(mr::detail::in_engine) {
        std::vector<stocked_block*> taken;
        for (std::size_t i = 0; i < num_blocks; ++i) taken.push_back(allocate(a));
        for (stocked_block* block : taken) free(a, block);
    }
    /// Without the engine's lock. `answer`: of the driver.
    template<typename Answer>
    stocked_block* take(arena& a, Answer&& answer) {
        known_ = others_have::not_known;
        return stocks_.take(a, a.handle.load(), &known_, [&](std::span<const heap::fence> uses) {
            asked_.assign(uses.begin(), uses.end());
            ++num_questions_;
            return answer();
        });
    }
    stocked_block* take(arena& a) {
        return take(a, [] { return false; });
    }
    static cuda_stream_view view(const arena& a) { return cuda_stream_view{a.handle.load()}; }
    std::size_t stock_of(arena& a) {
        const kmm::locks::Guard in(a.mutex);
        return a.stock.size();
    }

    pool_streams streams_;
    mr::detail::pool_heap heap_{streams_.facts, streams_.times};
    arena common_;
    mr::detail::stock_signs signs_;
    mr::detail::stock_pool stocks_{streams_.facts, streams_.times, heap_, common_, signs_};
    std::vector<std::unique_ptr<arena>> arenas_;
    others_have known_ = others_have::not_known;
    std::vector<heap::fence> asked_;
    int num_questions_ = 0;
};

TEST_F(StockPool, gives_a_stream_the_block_again_that_it_freed_last) {
    mr::detail::expect_in_engine();
    add_memory(8);
    arena& a = add_stream(1);
    stocked_block* const first = allocate(a);
    stocked_block* const second = allocate(a);
    free(a, first);
    free(a, second);
    EXPECT_FALSE(stocks_.blocks().is_in_use(second->address));
    EXPECT_EQ(take(a), second);
    EXPECT_TRUE(stocks_.blocks().is_in_use(second->address));
    EXPECT_EQ(take(a), first);
}

TEST_F(StockPool, gives_nothing_where_the_arena_works_for_another_stream_by_now) {
    mr::detail::expect_in_engine();
    add_memory(8);
    arena& a = add_stream(1);
    free(a, allocate(a));
    EXPECT_EQ(stocks_.take(a, reinterpret_cast<cudaStream_t>(0x77), &known_, [](auto) { return true; }), nullptr);
    EXPECT_NE(take(a), nullptr);
}

TEST_F(StockPool, takes_a_share_of_the_heap_at_once_and_knows_when_that_is_dry) {
    mr::detail::expect_in_engine();
    add_memory(8);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    EXPECT_NE(allocate(a), nullptr);
    EXPECT_EQ(stock_of(a), 1u) << "a quarter of eight blocks, of which one is in use";
    EXPECT_EQ(heap_.free_bytes(), 6 * block_bytes);
    for (int i = 0; i < 7; ++i) ASSERT_NE(allocate(i == 0 ? a : b), nullptr) << i;
    EXPECT_FALSE(heap_.is_dry());
    EXPECT_EQ(allocate(b), nullptr);
    EXPECT_TRUE(heap_.is_dry());
}

TEST_F(StockPool, looks_into_other_stocks_only_where_the_heap_is_dry) {
    mr::detail::expect_in_engine();
    add_memory(4);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    free_all_on(a, 4);
    streams_.pass(*a.home);
    EXPECT_EQ(take(b), nullptr);
    heap_.note_dry(true);
    EXPECT_NE(take(b), nullptr);
    EXPECT_EQ(stock_of(a), 2u) << "half of them moved";
    EXPECT_EQ(stock_of(b), 1u);
    EXPECT_EQ(num_questions_, 0);
}

TEST_F(StockPool, takes_of_anothers_stock_only_what_has_passed) {
    mr::detail::expect_in_engine();
    add_memory(6);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    std::vector<stocked_block*> taken;
    for (int i = 0; i < 6; ++i) taken.push_back(allocate(a));
    free(a, taken.front());
    streams_.pass(*a.home);
    for (int i = 1; i < 6; ++i) free(a, taken[static_cast<std::size_t>(i)]);
    heap_.note_dry(true);
    EXPECT_EQ(take(b), taken.front());
    EXPECT_EQ(stock_of(a), 5u);
    EXPECT_EQ(take(b), nullptr);
}

TEST_F(StockPool, asks_about_the_event_behind_anothers_oldest_block_and_takes_it_if_that_has_passed) {
    mr::detail::expect_in_engine();
    add_memory(4);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    free_all_on(a, 4);
    heap_.note_dry(true);
    EXPECT_EQ(take(b), nullptr);
    EXPECT_EQ(num_questions_, 0) << "no event covers it";
    EXPECT_EQ(known_, others_have::nothing);
    streams_.record(*a.home);
    EXPECT_NE(take(b, [&] { return streams_.ask(), true; }), nullptr);
    ASSERT_EQ(asked_.size(), 1u);
    EXPECT_EQ(asked_.front().timeline, 1u);
}

TEST_F(StockPool, asks_ever_more_rarely_while_the_device_lags_behind) {
    mr::detail::expect_in_engine();
    add_memory(4);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    free_all_on(a, 4);
    heap_.note_dry(true);
    streams_.record(*a.home);
    for (int i = 0; i < 11; ++i) {
        EXPECT_EQ(take(b), nullptr);
        EXPECT_EQ(known_, others_have::recorded);
    }
    EXPECT_EQ(num_questions_, 3) << "with 1 and then 3 requests between";
}

TEST_F(StockPool, of_the_engine_puts_a_stock_first_that_has_passed_and_takes_of_it) {
    mr::detail::expect_in_engine();
    add_memory(8);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    arena& c = add_stream(3);
    stocked_block* const of_a = allocate(a);
    stocked_block* const of_b = allocate(b);
    free(a, of_a);
    free(b, of_b);
    heap::fence behind;
    EXPECT_FALSE(stocks_.put_best_first(c, &behind));
    EXPECT_EQ(behind.position, 0u);
    streams_.record(*b.home);
    EXPECT_FALSE(stocks_.put_best_first(c, &behind));
    EXPECT_EQ(behind.timeline, 2u);
    streams_.ask();
    EXPECT_TRUE(stocks_.put_best_first(c, &behind));
    const piece taken = stocks_.take_passed(c);
    EXPECT_EQ(taken.block, of_b);
    EXPECT_TRUE(taken.fences.empty());
    EXPECT_FALSE(stocks_.take_passed(c)) << "the other has not passed";
}

TEST_F(StockPool, rather_waits_for_a_block_behind_an_event_than_for_one_without) {
    mr::detail::expect_in_engine();
    add_memory(2);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    arena& c = add_stream(3);
    stocked_block* const of_a = allocate(a);
    stocked_block* const of_b = allocate(b);
    free(a, of_a);
    free(b, of_b);
    streams_.record(*b.home);
    heap::fence behind;
    stocks_.put_best_first(c, &behind);
    piece found = stocks_.find_fenced(block_bytes, c, {});
    EXPECT_EQ(found.block, of_b);
    EXPECT_EQ(found.fences, heap::fence_set(behind));
    const std::uint64_t avoided[] = {1};
    EXPECT_FALSE(stocks_.find_fenced(block_bytes, c, avoided));
    EXPECT_EQ(stocks_.find_fenced(block_bytes, c, {}).block, of_a);
}

TEST_F(StockPool, rather_waits_for_memory_of_the_heap_than_for_a_block_without_an_event) {
    mr::detail::expect_in_engine();
    add_memory(2);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    arena& c = add_stream(3);
    stocked_block* const of_a = allocate(a);
    const piece other = stocks_.find_ready(block_bytes, b);
    heap_.give(0, other.address, block_bytes, heap::fence_set(pool_streams::free_on(*b.home)));
    free(a, of_a);
    stocks_.collect(false);  // so that the stock is known
    EXPECT_EQ(stocks_.find_fenced(block_bytes, c, {}).address, other.address);
    EXPECT_EQ(stocks_.find_fenced(block_bytes, c, {}).block, of_a);
}

TEST_F(StockPool, puts_a_block_back_behind_its_last_users) {
    mr::detail::expect_in_engine();
    add_memory(1);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    free(a, allocate(a));
    piece found = stocks_.find_fenced(block_bytes, b, {});
    const heap::fence_set fences = found.fences;
    ASSERT_EQ(fences.size(), 1u);
    stocks_.put_back(std::move(found));
    EXPECT_FALSE(heap_.take_ready(block_bytes, 2));
    EXPECT_EQ(heap_.take(block_bytes, 2).fences, fences);
}

TEST_F(StockPool, gives_all_stocks_to_the_heap_where_blocks_that_touch_become_one) {
    mr::detail::expect_in_engine();
    add_memory(8);
    arena& a = add_stream(1);
    free_all_on(a, 8);
    EXPECT_EQ(stocks_.collect(false), 0u);
    EXPECT_EQ(stock_of(a), 8u);
    EXPECT_EQ(stocks_.collect(true), 8 * block_bytes);
    EXPECT_EQ(stock_of(a), 0u);
    const piece all = heap_.take(8 * block_bytes, 2);
    ASSERT_TRUE(all);
    EXPECT_EQ(all.fences.size(), 1u);
}

TEST_F(StockPool, counts_blocks_where_they_are_handed_out_and_freed) {
    mr::detail::expect_in_engine();
    add_memory(4);
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    stocked_block* const block = allocate(a);
    EXPECT_EQ(a.num_out, 1);
    free(b, block);
    EXPECT_EQ(a.num_out, 1);
    EXPECT_EQ(b.num_out, -1) << "the sum is what is in use";
    EXPECT_EQ(take(b), block);
    EXPECT_EQ(b.num_out, 0);
}

}  // namespace
