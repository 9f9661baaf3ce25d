// The fences of a pool, with timelines and a heap and without a pool: when events are recorded, what is waited for, and
// what a poll finds.
#include "rmm/pool/pool_fences.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "forwarding_driver.hpp"
#include "pool_streams.hpp"

namespace {

using namespace rmm;
using mr::detail::arena;
using mr::detail::timeline;
using mr::detail::timelines;
using rmm_test::pool_streams;

constexpr std::uintptr_t base = std::uintptr_t{1} << 30;
constexpr std::size_t KiB = 1024;

/// Takes the pool's lock while an event is recorded, as another thread may, and keeps it.
class lock_taken_meanwhile final : public kmm::driver::testing::ForwardingDriver {
  public:
    lock_taken_meanwhile(Driver& inner, mr::detail::engine_mutex& mutex) : ForwardingDriver(inner), mutex_(mutex) {}
    bool is_to_take = false;

  protected:
    void called(const char* call) noexcept override KMM_UNCHECKED_LOCKS {
        if (is_to_take && std::string_view(call) == "record_event") mutex_.lock();
    }

  private:
    mr::detail::engine_mutex& mutex_;
};

class fences_of_a_pool {
  public:
    explicit fences_of_a_pool(const mr::detail::pool_options& options = {}, bool device_events = true)
        : streams(options, {}, scripted(device_events)) {
        mr::detail::expect_in_engine();
        facts.arenas = 1;
        heap[0].add_region(base, 64 * KiB, rmm::heap::border::sealed);
    }
    static kmm::driver::testing::ScriptedOptions scripted(bool device_events) {
        kmm::driver::testing::ScriptedOptions options;
        options.capabilities.device_event = device_events;
        return options;
    }
    /// Of a foreign stream, to whose handle the scripted stream belongs.
    std::unique_ptr<arena> arena_of(timeline& home) {
        auto a = std::make_unique<arena>();
        a->home = &home;
        a->number = home.number;
        a->handle = static_cast<cudaStream_t>(streams.handle().native);
        streams.times.hold(home);
        return a;
    }
    std::size_t num_events() { return streams.driver.count("record_event"); }
    static void free_some(arena& a, int n, std::size_t bytes = 256) {
        for (int i = 0; i < n; ++i) {
            a.home.load()->fence_now();
            a.count_free(bytes);
        }
    }

    pool_streams streams;
    lock_taken_meanwhile driver{streams.driver, streams.mutex};
    mr::detail::pool_facts facts{driver, 0, streams.facts.traits, streams.facts.options};
    mr::detail::pool_heap heap{facts, streams.times};
    mr::detail::pool_fences fences{facts, streams.mutex, streams.times, heap};
};

TEST(PoolFences, make_a_stream_wait_for_the_event_behind_a_free_and_record_none) {
    fences_of_a_pool p;
    timeline& a = p.streams.add(1);
    const heap::fence_set last_use(pool_streams::free_on(a));
    p.streams.record(a);
    const std::size_t before = p.num_events();
    mr::detail::engine_lock held(p.streams.mutex);
    bool out_of_reach = false;
    ASSERT_TRUE(
        p.fences.wait_for(held, last_use, cuda_stream_legacy, 2, timelines::reach::streams, &out_of_reach).ok());
    EXPECT_FALSE(out_of_reach);
    EXPECT_EQ(p.streams.driver.count("wait_event"), 1u);
    EXPECT_EQ(p.num_events(), before);
    EXPECT_EQ(p.streams.driver.count("device_event_record"), 0u);
}

TEST(PoolFences, need_nothing_on_the_stream_that_left_them) {
    fences_of_a_pool p;
    const heap::fence_set last_use(pool_streams::free_on(p.streams.add(1)));
    mr::detail::engine_lock held(p.streams.mutex);
    bool out_of_reach = false;
    ASSERT_TRUE(
        p.fences.wait_for(held, last_use, cuda_stream_legacy, 1, timelines::reach::streams, &out_of_reach).ok());
    EXPECT_FALSE(out_of_reach);
    EXPECT_EQ(p.streams.driver.count("wait_event"), 0u);
}

TEST(PoolFences, without_an_event_are_reached_by_one_of_the_device_or_name_the_stream_out_of_reach) {
    fences_of_a_pool p;
    const heap::fence_set last_use(pool_streams::free_on(p.streams.add(1)));
    mr::detail::engine_lock held(p.streams.mutex);
    bool out_of_reach = false;
    std::uint64_t unreachable = heap::heap::no_timeline;
    using reach = timelines::reach;
    ASSERT_TRUE(
        p.fences.wait_for(held, last_use, cuda_stream_legacy, 2, reach::streams, &out_of_reach, &unreachable).ok());
    EXPECT_TRUE(out_of_reach);
    EXPECT_EQ(unreachable, 1u);
    EXPECT_EQ(p.streams.driver.count("wait_event"), 0u);
    out_of_reach = false;
    ASSERT_TRUE(p.fences.wait_for(held, last_use, cuda_stream_legacy, 2, reach::device, &out_of_reach).ok());
    EXPECT_FALSE(out_of_reach);
    EXPECT_EQ(p.streams.driver.count("device_event_record"), 1u);
}

TEST(PoolFences, can_be_waited_for_by_the_host) {
    fences_of_a_pool p;
    timeline& a = p.streams.add(1);
    const heap::fence_set last_use(pool_streams::free_on(a));
    p.streams.record(a);
    mr::detail::engine_lock held(p.streams.mutex);
    bool out_of_reach = false;
    ASSERT_TRUE(p.fences.wait_on_host(held, last_use, timelines::reach::streams, &out_of_reach).ok());
    EXPECT_EQ(p.streams.driver.count("synchronize_event"), 1u);
}

TEST(PoolFences, of_free_memory_go_with_a_poll_once_their_event_has_passed) {
    fences_of_a_pool p;
    timeline& a = p.streams.add(1);
    mr::detail::engine_lock held(p.streams.mutex);
    const mr::detail::piece all = p.heap.take_ready(64 * KiB, 1);
    p.heap.give(0, all.address, all.size_bytes, heap::fence_set(pool_streams::free_on(a)));
    p.streams.hold();
    p.streams.record(a);
    p.fences.poll(held);
    EXPECT_FALSE(p.heap.take_ready(64 * KiB, 2)) << "the event has not passed";
    EXPECT_TRUE(p.fences.may_gain_by_poll());
    p.streams.go_on();
    p.fences.poll(held);
    EXPECT_TRUE(p.heap.take_ready(64 * KiB, 2));
    EXPECT_FALSE(p.fences.may_gain_by_poll());
}

TEST(PoolFences, are_asked_about_one_by_one_for_a_request_that_has_seen_them) {
    fences_of_a_pool p;
    timeline& a = p.streams.add(1);
    const heap::fence last_use = pool_streams::free_on(a);
    EXPECT_FALSE(p.fences.ask_about({&last_use, 1})) << "no event covers it";
    p.streams.record(a);
    EXPECT_TRUE(p.fences.ask_about({&last_use, 1}));
    EXPECT_TRUE(p.streams.times.has_passed(last_use));
    EXPECT_FALSE(p.fences.ask_about({&last_use, 1})) << "nothing is left to ask about";
}

TEST(PoolFences, get_an_event_after_many_frees_of_a_stream_and_the_count_begins_anew) {
    fences_of_a_pool p;
    timeline& home = p.streams.add(1);
    const auto a = p.arena_of(home);
    fences_of_a_pool::free_some(*a, 63);
    EXPECT_FALSE(p.fences.should_record(*a));
    fences_of_a_pool::free_some(*a, 1);
    EXPECT_TRUE(p.fences.should_record(*a));
    p.fences.record(*a, cuda_stream_view{a->handle.load()});
    EXPECT_EQ(p.num_events(), 1u);
    EXPECT_FALSE(p.fences.should_record(*a));
    EXPECT_TRUE(p.streams.times.is_recorded({1, home.last_used.load()}));
}

TEST(PoolFences, of_a_stock_are_covered_by_the_event_of_its_stream) {
    fences_of_a_pool p(mr::detail::pool_options{.block_bytes = 4096});
    const auto a = p.arena_of(p.streams.add(1));
    mr::detail::stocked_block block;
    block.position = a->home.load()->fence_now().position;
    {
        const kmm::locks::Guard in(a->mutex);
        a->stock.push_back(block);
    }
    EXPECT_EQ(a->num_uncovered(), 1u);
    p.fences.record(*a, cuda_stream_view{a->handle.load()});
    EXPECT_EQ(a->num_uncovered(), 0u);
}

TEST(PoolFences, get_an_event_for_a_large_share_of_the_pool) {
    fences_of_a_pool p;
    const auto a = p.arena_of(p.streams.add(1));
    p.facts.held = std::size_t{1} << 30;
    fences_of_a_pool::free_some(*a, 1, std::size_t{127} << 20);
    EXPECT_FALSE(p.fences.should_record(*a));
    fences_of_a_pool::free_some(*a, 1, std::size_t{1} << 20);
    EXPECT_TRUE(p.fences.should_record(*a));
}

TEST(PoolFences, of_foreign_streams_get_an_event_with_each_free_where_the_device_can_have_none) {
    fences_of_a_pool p({}, false);
    const auto a = p.arena_of(p.streams.add(1));
    fences_of_a_pool::free_some(*a, 1);
    EXPECT_TRUE(p.fences.should_record(*a));
    a->kind = rmm::detail::stream_kind::owned;
    EXPECT_FALSE(p.fences.should_record(*a));
    a->kind = rmm::detail::stream_kind::legacy;
    fences_of_a_pool::free_some(*a, 1000);
    EXPECT_FALSE(p.fences.should_record(*a)) << "it would hold up all blocking streams";
}

TEST(PoolFences, get_events_ever_more_rarely_until_a_search_fails) {
    fences_of_a_pool p(mr::detail::pool_options{.block_bytes = 4096});
    const auto a = p.arena_of(p.streams.add(1));
    const auto record_once = [&] {
        fences_of_a_pool::free_some(*a, 1);
        p.fences.record(*a, cuda_stream_view{a->handle.load()});
    };
    for (int i = 0; i < 8; ++i) record_once();
    EXPECT_EQ(p.fences.event_spacing(*a), 2u);
    for (int i = 0; i < 100; ++i) record_once();
    EXPECT_EQ(p.fences.event_spacing(*a), 16u);
    {
        mr::detail::engine_lock held(p.streams.mutex);
        p.fences.note_failed_search();
    }
    record_once();
    EXPECT_EQ(p.fences.event_spacing(*a), 1u);
}

TEST(PoolFences, know_of_an_event_whose_thread_did_not_wait_for_the_lock) {
    fences_of_a_pool p;
    timeline& home = p.streams.add(1);
    const auto a = p.arena_of(home);
    fences_of_a_pool::free_some(*a, 1);
    p.driver.is_to_take = true;
    p.fences.record(*a, cuda_stream_view{a->handle.load()});
    // This thread has the lock now.
    mr::detail::expect_in_engine();
    const heap::fence last_use{1, home.last_used.load()};
    EXPECT_FALSE(p.streams.times.is_recorded(last_use));
    p.fences.note_ended_recordings();
    EXPECT_TRUE(p.streams.times.is_recorded(last_use));
    [&]() KMM_UNCHECKED_LOCKS { p.streams.mutex.unlock(); }();
}

TEST(PoolFences, of_many_streams_that_free_seldom_are_covered_by_one_event_of_the_device) {
    fences_of_a_pool p;
    kmm::locks::ShortLock of_shared_arena;
    mr::detail::uncovered_frees uncovered(of_shared_arena);
    mr::detail::engine_lock held(p.streams.mutex);
    constexpr std::uint64_t num_streams = 130;
    for (std::uint64_t i = 1; i <= num_streams; ++i) {
        const heap::fence_set freed(pool_streams::free_on(p.streams.add(i)));
        if (i % 2 == 0)
            uncovered.note_large(freed);
        else
            uncovered.note_shared(freed);
    }
    p.fences.catch_up(held, uncovered);
    EXPECT_EQ(p.streams.driver.count("device_event_record"), 0u) << "few arenas record events themselves";
    p.facts.arenas = num_streams;
    p.fences.catch_up(held, uncovered);
    EXPECT_EQ(p.streams.driver.count("device_event_record"), 1u);
    EXPECT_EQ(uncovered.size(), 0u);
    for (std::uint64_t i = 1; i <= num_streams; ++i)
        EXPECT_TRUE(p.streams.times.is_device_recorded(p.streams.times.find(i)->last_used)) << i;
}

}  // namespace
