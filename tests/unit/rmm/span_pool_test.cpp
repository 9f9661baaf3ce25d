// The spans of arenas, with a heap and timelines and without a pool: which arena gets spans, what happens to blocks
// that other streams free, and what goes back to the heap. How much arenas get is the test's.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pool_streams.hpp"
#include "rmm/pool/span_pool.hpp"

namespace {

using namespace rmm;
using mr::detail::arena;
using mr::detail::piece;
using mr::detail::timeline;
using rmm_test::pool_streams;

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t granule = mr::detail::span_directory::granule;
constexpr std::uintptr_t base = std::uintptr_t{1} << 30;
constexpr std::size_t pool_bytes = 32 * MiB;
constexpr std::size_t small = 64 * 1024;

struct fixed_policy final : mr::detail::span_policy {
    std::size_t span_for(std::size_t, const arena&) const noexcept override { return span_bytes; }
    std::size_t small_limit() const noexcept override { return MiB; }
    std::size_t most_span_holders() const noexcept override { return most_holders; }
    void note_collected(std::size_t bytes) noexcept override { collected_bytes += bytes; }
    std::size_t span_bytes = granule;
    std::size_t most_holders = 8;
    std::size_t collected_bytes = 0;
};

class SpanPool : public testing::Test {
  protected:
    SpanPool() {
        mr::detail::expect_in_engine();
        common_.kind = rmm::detail::stream_kind::unknown;
        common_.number = heap::heap::no_timeline;
        heap_[0].add_region(base, pool_bytes, heap::border::sealed);
        spans_.follow(policy_);
    }
    arena& add_stream(std::uint64_t number) {
        arena& a = *arenas_.emplace_back(std::make_unique<arena>());
        a.home = &streams_.add(number);
        a.number = number;
        a.handle = reinterpret_cast<cudaStream_t>(0x1000 * number);
        streams_.times.hold(*a.home);
        return a;
    }
    piece allocate(arena& a, std::size_t size = small) KMM_REQUIRES(mr::detail::in_engine) {
        spans_.choose(a);
        return spans_.find_ready(size, a);
    }
    std::size_t free_at_home(arena& a, std::uintptr_t address) {
        const kmm::locks::Guard in(a.mutex);
        return spans_.free_at_home(a, address);
    }
    static std::size_t num_away(arena& a) {
        const kmm::locks::Guard in(a.mutex);
        return a.away.size();
    }
    /// On another stream. The fence that the block waits for.
    heap::fence free_elsewhere(arena& owner, const piece& block, arena& elsewhere) {
        const heap::fence now = pool_streams::free_on(*elsewhere.home);
        EXPECT_EQ(spans_.send_away(owner, block.address, heap::fence_set(now)), block.size_bytes);
        return now;
    }

    pool_streams streams_;
    mr::detail::pool_heap heap_{streams_.facts, streams_.times};
    arena common_;
    mr::detail::uncovered_frees uncovered_{common_.mutex};
    fixed_policy policy_;
    mr::detail::span_pool spans_{streams_.facts, streams_.times, heap_, common_, uncovered_};
    std::vector<std::unique_ptr<arena>> arenas_;
};

TEST_F(SpanPool, gives_a_stream_a_span_that_serves_its_next_requests) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    const piece first = allocate(a);
    EXPECT_EQ(first.from, &a);
    EXPECT_EQ(spans_.owner_of(first.address), &a);
    EXPECT_EQ(heap_.free_bytes(), pool_bytes - granule);
    const piece second = allocate(a);
    EXPECT_EQ(second.from, &a);
    EXPECT_NE(second.address, first.address);
    EXPECT_EQ(heap_.free_bytes(), pool_bytes - granule);
    EXPECT_EQ(spans_.num_holders(), 1u);
}

TEST_F(SpanPool, serves_large_requests_and_unknown_streams_from_the_heap) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    EXPECT_EQ(allocate(a, 2 * MiB).from, nullptr);
    a.kind = rmm::detail::stream_kind::unknown;
    EXPECT_EQ(allocate(a).from, nullptr);
    EXPECT_EQ(spans_.num_holders(), 0u);
}

TEST_F(SpanPool, has_a_block_again_at_once_that_its_own_stream_freed) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    const piece block = allocate(a);
    EXPECT_EQ(free_at_home(a, block.address), small);
    EXPECT_EQ(free_at_home(a, block.address), 0u) << "it is not in use";
    EXPECT_EQ(allocate(a).address, block.address);
}

TEST_F(SpanPool, has_a_block_that_another_stream_freed_only_when_that_has_passed) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    const piece block = allocate(a);
    free_elsewhere(a, block, b);
    EXPECT_NE(allocate(a).address, block.address);
    streams_.pass(*b.home);
    EXPECT_EQ(allocate(a).address, block.address);
}

TEST_F(SpanPool, takes_a_block_back_at_once_that_no_stream_uses) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    const piece block = allocate(a);
    EXPECT_EQ(spans_.send_away(a, block.address, {}), small);
    EXPECT_EQ(spans_.send_away(a, block.address, {}), 0u);
    EXPECT_EQ(allocate(a).address, block.address);
}

TEST_F(SpanPool, rather_waits_for_a_block_that_is_away_than_for_other_memory_and_takes_it_back) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    const piece block = allocate(a);
    const heap::fence last_use = free_elsewhere(a, block, b);
    const std::uint64_t avoided[] = {2};
    EXPECT_NE(spans_.find_fenced(small, a, avoided, false).address, block.address);
    piece waited_for = spans_.find_fenced(small / 2, a, {}, false);
    EXPECT_EQ(waited_for.address, block.address);
    EXPECT_EQ(waited_for.fences, heap::fence_set(last_use));
    EXPECT_EQ(waited_for.size_bytes, small / 2) << "the rest stays away";
    EXPECT_EQ(num_away(a), 1u);
    spans_.put_back(waited_for);
    EXPECT_EQ(num_away(a), 2u);
}

TEST_F(SpanPool, finds_free_memory_of_another_stream_behind_its_last_free) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    const piece kept = allocate(a);
    const piece block = allocate(a, MiB);
    free_at_home(a, block.address);
    while (heap_.free_bytes() > 0) ASSERT_TRUE(heap_.take_ready(heap_.largest_free_bytes(), 2));
    EXPECT_FALSE(spans_.find_ready(MiB, b));
    const piece found = spans_.find_fenced(MiB, b, {}, false);
    EXPECT_EQ(found.from, &a);
    ASSERT_EQ(found.fences.size(), 1u);
    EXPECT_EQ(found.fences.begin()->timeline, 1u);
    EXPECT_EQ(spans_.owner_of(kept.address), &a);
}

TEST_F(SpanPool, gives_a_span_back_when_nothing_in_it_is_in_use) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    const piece first = allocate(a);
    const piece second = allocate(a);
    free_at_home(a, first.address);
    spans_.collect(false);
    EXPECT_EQ(spans_.owner_of(first.address), &a) << "the other block is in use";
    free_at_home(a, second.address);
    spans_.collect(false);
    EXPECT_EQ(spans_.owner_of(first.address), nullptr);
    EXPECT_EQ(heap_.free_bytes(), pool_bytes);
    EXPECT_EQ(spans_.num_holders(), 0u);
    EXPECT_FALSE(heap_.take_ready(pool_bytes, 2)) << "its last user has not passed";
}

TEST_F(SpanPool, gives_granules_with_blocks_that_are_away_where_memory_is_short) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    const piece block = allocate(a);
    const heap::fence last_use = free_elsewhere(a, block, b);
    spans_.collect(false);
    EXPECT_EQ(heap_.free_bytes(), pool_bytes - granule);
    EXPECT_EQ(spans_.collect(true), granule);
    EXPECT_EQ(heap_.free_bytes(), pool_bytes);
    const piece all = heap_.take(pool_bytes, heap::heap::no_timeline);
    EXPECT_EQ(all.fences, heap::fence_set(last_use));
}

TEST_F(SpanPool, tells_its_policy_what_all_arenas_gave_to_a_request_that_found_nothing) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    const piece block = allocate(a);
    free_elsewhere(a, block, b);
    EXPECT_TRUE(spans_.find_fenced(pool_bytes, b, {}, true));
    EXPECT_EQ(policy_.collected_bytes, granule);
}

TEST_F(SpanPool, lets_further_streams_share_until_they_are_busy) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    policy_.most_holders = 1;
    allocate(a);
    EXPECT_EQ(allocate(b).from, &common_);
    EXPECT_EQ(&spans_.choose(a), &a);
    int num_shared = 1;
    while (&spans_.choose(b) == &common_ && num_shared < 1000) ++num_shared;
    EXPECT_EQ(num_shared, 63);
    EXPECT_EQ(spans_.find_ready(small, b).from, &b);
}

TEST_F(SpanPool, notes_frees_of_shared_blocks_that_no_event_may_cover) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    arena& b = add_stream(2);
    policy_.most_holders = 0;
    const piece shared = allocate(a);
    ASSERT_EQ(shared.from, &common_);
    const heap::fence last_use = free_elsewhere(common_, shared, a);
    EXPECT_EQ(uncovered_.take_all(), std::vector<heap::fence>{last_use});
    EXPECT_NE(allocate(a).address, shared.address) << "away for every stream";
    EXPECT_NE(allocate(b).address, shared.address);
}

TEST_F(SpanPool, seeks_no_fresh_memory_for_some_requests_after_a_refusal) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    EXPECT_FALSE(spans_.has_refused_fresh_spans());
    spans_.refuse_fresh_spans();
    int num_requests = 0;
    for (; spans_.has_refused_fresh_spans() && num_requests < 1000; ++num_requests) spans_.choose(a);
    EXPECT_EQ(num_requests, 256);
}

TEST_F(SpanPool, halves_the_span_where_the_heap_has_no_row_for_it) {
    mr::detail::expect_in_engine();
    arena& a = add_stream(1);
    policy_.span_bytes = 2 * pool_bytes;
    const piece block = allocate(a);
    EXPECT_EQ(block.from, &a);
    EXPECT_EQ(heap_.free_bytes(), 16 * MiB);
    policy_.span_bytes = 0;
    EXPECT_FALSE(spans_.add_span(small, a));
}

}  // namespace
