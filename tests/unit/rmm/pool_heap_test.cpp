// The heap of a pool, with timelines and without a pool: what is ready for which stream, and when fences go.
#include "rmm/pool/pool_heap.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "pool_streams.hpp"

namespace {

using namespace rmm;
using mr::detail::piece;
using mr::detail::timeline;
using rmm_test::pool_streams;

constexpr std::size_t KiB = 1024;
constexpr std::uintptr_t base = std::uintptr_t{1} << 30;

class PoolHeap : public testing::Test {
  protected:
    PoolHeap() {
        mr::detail::expect_in_engine();
        heap_[0].add_region(base, 64 * KiB, heap::border::sealed);
    }
    pool_streams streams_;
    mr::detail::pool_heap heap_{streams_.facts, streams_.times};
};

TEST_F(PoolHeap, gives_what_one_stream_freed_to_that_stream_alone_until_it_has_passed) {
    mr::detail::expect_in_engine();
    timeline& a = streams_.add(1);
    const piece all = heap_.take_ready(64 * KiB, 1);
    ASSERT_TRUE(all);
    heap_.give(0, all.address, all.size_bytes, heap::fence_set{pool_streams::free_on(a)});
    EXPECT_FALSE(heap_.take_ready(64 * KiB, 2));
    piece own = heap_.take_ready(64 * KiB, 1);
    ASSERT_TRUE(own);
    heap_.give(0, own.address, own.size_bytes, heap::fence_set{pool_streams::free_on(a)});
    const piece waited_for = heap_.take(64 * KiB, 2);
    ASSERT_EQ(waited_for.fences.size(), 1u);
    heap_.give(0, waited_for.address, waited_for.size_bytes, waited_for.fences);
    streams_.pass(a);
    heap_.clear_passed();
    EXPECT_TRUE(heap_.take_ready(64 * KiB, 2));
}

TEST_F(PoolHeap, leaves_out_memory_of_streams_that_are_avoided) {
    mr::detail::expect_in_engine();
    timeline& a = streams_.add(1);
    const piece all = heap_.take_ready(64 * KiB, 1);
    heap_.give(0, all.address, all.size_bytes, heap::fence_set{pool_streams::free_on(a)});
    const std::uint64_t avoided[] = {1};
    EXPECT_FALSE(heap_.take(64 * KiB, 2, avoided));
    EXPECT_TRUE(heap_.take(64 * KiB, 2));
}

TEST_F(PoolHeap, drops_fences_that_have_passed_when_memory_comes_back) {
    mr::detail::expect_in_engine();
    timeline& a = streams_.add(1);
    const piece all = heap_.take_ready(64 * KiB, 1);
    const heap::fence last_use = pool_streams::free_on(a);
    streams_.pass(a);
    heap_.give(0, all.address, all.size_bytes, heap::fence_set{last_use});
    EXPECT_TRUE(heap_.take_ready(64 * KiB, 2));
}

TEST_F(PoolHeap, clears_a_bounded_number_of_pieces_at_once_and_knows_of_more) {
    mr::detail::expect_in_engine();
    constexpr std::size_t num_pieces = 200;
    constexpr std::uintptr_t far = 2 * base;
    timeline& a = streams_.add(1);
    heap_[0].add_region(far, 2 * num_pieces * KiB, heap::border::sealed);
    std::vector<piece> taken;
    for (std::size_t i = 0; i < 2 * num_pieces; ++i) taken.push_back(heap_.take_ready(KiB, 1));
    for (std::size_t i = 0; i < taken.size(); i += 2)  // they do not touch, so that none merge
        heap_.give(0, taken[i].address, taken[i].size_bytes, heap::fence_set{pool_streams::free_on(a)});
    streams_.pass(a);
    heap_.clear_passed();
    EXPECT_TRUE(heap_.has_more_to_clear());
    int rounds = 0;
    for (; heap_.has_more_to_clear() && rounds < 100; ++rounds) heap_.clear_passed();
    EXPECT_GE(rounds, 1);
    EXPECT_FALSE(heap_.has_more_to_clear());
    EXPECT_EQ(streams_.times.find(1), nullptr) << "nothing is left of the stream";
}

TEST_F(PoolHeap, is_dry_until_memory_comes_back) {
    mr::detail::expect_in_engine();
    const piece all = heap_.take_ready(64 * KiB, 1);
    heap_.note_dry(true);
    EXPECT_TRUE(heap_.is_dry());
    heap_.give(0, all.address, all.size_bytes, {});
    EXPECT_FALSE(heap_.is_dry());
}

TEST_F(PoolHeap, reports_memory_that_it_never_gave_and_goes_on) {
    mr::detail::expect_in_engine();
    testing::internal::CaptureStderr();
    heap_.give_or_lose(0, 3 * base, KiB, {});
    EXPECT_NE(testing::internal::GetCapturedStderr().find("lost until the pool is destroyed"), std::string::npos);
    EXPECT_EQ(heap_.free_bytes(), 64 * KiB);
}

TEST(PoolHeapOfVirtualMemory, has_an_area_for_small_requests) {
    mr::detail::expect_in_engine();
    pool_streams streams({}, {.is_virtual = true, .small_area_limit = 4 * KiB});
    mr::detail::pool_heap heap(streams.facts, streams.times);
    heap[0].add_region(base, 64 * KiB, heap::border::open);
    EXPECT_FALSE(heap.take_ready(4 * KiB, 1));
    EXPECT_TRUE(heap.take_ready(8 * KiB, 1));
    heap[1].add_region(2 * base, 64 * KiB, heap::border::open);
    const piece small = heap.take_ready(4 * KiB, 1);
    EXPECT_TRUE(small);
    EXPECT_EQ(small.area, 1);
}

}  // namespace
