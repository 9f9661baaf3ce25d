// The replay of a log: what reaches the resource, in which order, on which stream, and what becomes of refusals.
#include "replay.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <rmm/cuda_device.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "rmm_resources.hpp"

namespace {

using kmm::bench::Action;
using kmm::bench::Event;
using kmm::bench::replay;
using kmm::bench::ReplayLog;
using kmm::bench::ReplayOrder;
using kmm::bench::ReplayStreams;

struct Call {
    Action act;
    void* pointer;
    std::size_t bytes;
    cudaStream_t stream;
};

/// Gives out addresses that nobody touches, writes down every call, and refuses what is larger than `limit`.
class WritesDown final : public rmm::mr::device_memory_resource {
  public:
    std::vector<Call> calls;
    std::map<void*, std::size_t> live;
    std::size_t limit = ~std::size_t{0};

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        const std::lock_guard lock(mutex_);
        if (bytes > limit) throw rmm::out_of_memory("more than the limit");
        void* const pointer = bytes == 0 ? nullptr : reinterpret_cast<void*>(next_);
        next_ += (bytes + 255) / 256 * 256;
        calls.push_back({Action::ALLOCATE, pointer, bytes, stream.value()});
        if (pointer != nullptr) live[pointer] = bytes;
        return pointer;
    }
    void do_deallocate(void* pointer, std::size_t bytes, rmm::cuda_stream_view stream) override {
        const std::lock_guard lock(mutex_);
        calls.push_back({Action::FREE, pointer, bytes, stream.value()});
        if (pointer != nullptr) {
            EXPECT_EQ(live[pointer], bytes);
            live.erase(pointer);
        }
    }

    std::mutex mutex_;
    std::size_t next_ = 0x100;
};

Event allocate(std::size_t thread, std::uintptr_t pointer, std::size_t bytes, std::uintptr_t stream = 0) {
    return {thread, Action::ALLOCATE, bytes, pointer, stream, 0};
}
Event free(std::size_t thread, std::uintptr_t pointer, std::size_t bytes, std::uintptr_t stream = 0) {
    return {thread, Action::FREE, bytes, pointer, stream, 0};
}

TEST(ReplayLogs, CountThePeakAndWhatIsNeverFreed) {
    const ReplayLog log({allocate(1, 0x100, 10), allocate(1, 0x200, 20), free(1, 0x100, 10), allocate(2, 0x100, 5)});
    EXPECT_EQ(log.peak_bytes(), 30u);
    EXPECT_EQ(log.num_leaked(), 2u);
    EXPECT_EQ(log.leaked_bytes(), 25u);
    EXPECT_EQ(log.threads().size(), 2u);
}

TEST(ReplayLogs, FindTheAllocationOfAFreeThroughAddressesThatComeAgain) {
    const ReplayLog log(
        {allocate(1, 0x100, 10), free(2, 0x100, 10), allocate(2, 0x100, 20), free(1, 0x100, 20), free(1, 0x100, 20)});
    EXPECT_EQ(log.allocated_by(1), 0u);
    EXPECT_EQ(log.allocated_by(3), 2u);
    EXPECT_EQ(log.allocated_by(4), ReplayLog::nothing);
}

std::string refusal(std::vector<Event> events) {
    for (std::size_t i = 0; i < events.size(); ++i) events[i].line = i + 2;
    try {
        const ReplayLog log(std::move(events));
    } catch (const rmm::logic_error& error) {
        return error.what();
    }
    return "none";
}

::testing::AssertionResult has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << text;
}

TEST(ReplayLogs, RefuseMoreThreadsThanAReplayCanMakeAndNameTheLine) {
    std::vector<Event> events;
    for (std::size_t i = 0; i < 1'000'000; ++i) events.push_back(allocate(i, 0x100 * (i + 1), 1));
    const std::string said = refusal(std::move(events));
    EXPECT_TRUE(has(said, "line " + std::to_string(ReplayLog::most_threads + 2) + ":"));
    EXPECT_TRUE(has(said, "thread " + std::to_string(ReplayLog::most_threads)));
}

TEST(ReplayLogs, RefuseMoreStreamsThanAReplayCanMakeWithoutLookingAtAllForEach) {
    std::vector<Event> events;
    for (std::size_t i = 0; i < 1'000'000; ++i) events.push_back(allocate(1, 0x100 * (i + 1), 1, 0x1000 + i));
    EXPECT_TRUE(has(refusal(std::move(events)), "line " + std::to_string(ReplayLog::most_streams + 2) + ":"));
}

TEST(ReplayLogs, RefuseLiveMemoryThatNoAddressSpaceHas) {
    const std::size_t half = std::size_t{1} << 63;
    EXPECT_TRUE(has(refusal({allocate(1, 0x100, half), allocate(1, 0x200, half)}), "line 3:"));
    EXPECT_EQ(refusal({allocate(1, 0x100, half), free(1, 0x100, half), allocate(1, 0x100, half)}), "none");
    EXPECT_TRUE(has(refusal({allocate(1, 0x100, ~std::size_t{0}), allocate(1, 0x100, 1)}), "line 3:"));
}

TEST(ReplayLogs, TellOddEventsWithTheirLinesAndCountThem) {
    std::vector<Event> events{free(1, 0xdead, 64), allocate(1, 0x100, 10), free(1, 0x100, 11), allocate(1, 0x200, 1),
                              allocate(1, 0x200, 2)};
    for (std::size_t i = 0; i < events.size(); ++i) events[i].line = i + 2;
    const ReplayLog log(std::move(events));
    EXPECT_EQ(log.num_odd(), 3u);
    ASSERT_EQ(log.odd().size(), 3u);
    EXPECT_TRUE(has(log.odd()[0], "line 2: 0xdead is freed, which nothing has allocated"));
    EXPECT_TRUE(has(log.odd()[1], "line 4: 0x100 is freed with 11 bytes, line 3 allocated 10"));
    EXPECT_TRUE(has(log.odd()[2], "line 6: 0x200 is allocated, which line 5 has and nothing freed"));
}

TEST(ReplayLogs, KeepFewWordsAboutManyOddEvents) {
    const ReplayLog log(std::vector<Event>(100'000, free(1, 0xdead, 64)));
    EXPECT_EQ(log.num_odd(), 100'000u);
    EXPECT_LE(log.odd().size(), 100u);
}

class Replays : public ::testing::TestWithParam<ReplayOrder> {};

TEST_P(Replays, ServeALogOfTwoThreadsAndFreeWhatItLeaks) {
    const ReplayLog log(rmm::detail::parse_csv(KMM_REPLAY_LOG));
    const ReplayStreams streams(log);
    WritesDown resource;
    const auto result = replay(log, resource, streams, GetParam());
    EXPECT_TRUE(result.failures.empty());
    EXPECT_GT(result.seconds, 0);
    EXPECT_TRUE(resource.live.empty());
    // 5 allocations, 6 frees (one of null, one of an address that was never allocated), and one block that the log
    // leaks.
    EXPECT_EQ(resource.calls.size(), 12u);
}

TEST_P(Replays, GiveEachLoggedStreamAStreamOfItsOwn) {
    const ReplayLog log({allocate(1, 0x100, 1, 0), allocate(1, 0x200, 2, 0xaaa0), allocate(1, 0x300, 3, 0xbbb0),
                         allocate(1, 0x400, 4, 0xaaa0), allocate(1, 0x500, 5, 1), allocate(1, 0x600, 6, 2)});
    const ReplayStreams streams(log);
    WritesDown resource;
    replay(log, resource, streams, GetParam());
    const auto stream_of = [&](std::size_t i) { return rmm::cuda_stream_view(resource.calls[i].stream); };
    EXPECT_EQ(stream_of(1), stream_of(3));
    EXPECT_NE(stream_of(1), stream_of(2));
    EXPECT_FALSE(stream_of(1).is_default());
    EXPECT_TRUE(stream_of(0).is_default());
    EXPECT_EQ(stream_of(4), rmm::cuda_stream_legacy);
    EXPECT_EQ(stream_of(5), rmm::cuda_stream_per_thread);
}

TEST_P(Replays, ReportWhatIsRefusedAndLeaveOutItsFree) {
    const ReplayLog log({allocate(1, 0x100, 10), allocate(2, 0x200, 5000), free(1, 0x200, 5000), free(1, 0x100, 10)});
    const ReplayStreams streams(log);
    WritesDown resource;
    resource.limit = 1000;
    const auto result = replay(log, resource, streams, GetParam());
    ASSERT_EQ(result.failures.size(), 1u);
    EXPECT_EQ(result.failures[0].event, 1u);
    EXPECT_NE(result.failures[0].reason.find("more than the limit"), std::string::npos);
    EXPECT_EQ(resource.calls.size(), 2u);
}

TEST_P(Replays, FreeWithTheSizeThatWasAllocatedWhereTheLogSaysAnother) {
    const ReplayLog log({allocate(1, 0x100, 1000), free(2, 0x100, 5), free(2, 0x300, 7)});
    const ReplayStreams streams(log);
    WritesDown resource;
    EXPECT_TRUE(replay(log, resource, streams, GetParam()).failures.empty());
    ASSERT_EQ(resource.calls.size(), 3u);
    EXPECT_TRUE(resource.live.empty());
}

TEST_P(Replays, TellWhatAResourceThrowsWhateverItIsAndEnd) {
    class Throws final : public rmm::mr::device_memory_resource {
        void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
            if (bytes == 1) throw 1;
            return reinterpret_cast<void*>(0x100 * bytes);
        }
        void do_deallocate(void*, std::size_t bytes, rmm::cuda_stream_view) override {
            if (bytes == 2) throw std::runtime_error("not this one");
        }
    } resource;
    const ReplayLog log({allocate(1, 0x100, 1), allocate(2, 0x200, 2), free(1, 0x200, 2), free(2, 0x100, 1),
                         allocate(1, 0x300, 3), allocate(3, 0x400, 2)});
    const ReplayStreams streams(log);
    const auto result = replay(log, resource, streams, GetParam());
    ASSERT_EQ(result.failures.size(), 3u);
    EXPECT_EQ(result.failures[0].event, 0u);
    EXPECT_EQ(result.failures[1].reason, "not this one");
    EXPECT_EQ(result.failures[2].event, 5u);
}

TEST_P(Replays, KeepTheWholeReasonOfTheFirstRefusalsAndOneLineOfAllOthers) {
    class Full final : public rmm::mr::device_memory_resource {
        void* do_allocate(std::size_t, rmm::cuda_stream_view) override {
            throw rmm::out_of_memory("full\n" + std::string(1000, 'x'));
        }
        void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    } resource;
    const ReplayLog log(std::vector<Event>(20'000, allocate(1, 0x100, 1)));
    const ReplayStreams streams(log);
    const auto result = replay(log, resource, streams, GetParam());
    ASSERT_EQ(result.failures.size(), 20'000u);
    EXPECT_GT(result.failures.front().reason.size(), 1000u);
    EXPECT_LT(result.failures.back().reason.size(), 100u);
}

TEST_P(Replays, LeaveOutRequestsThatFailedInTheLog) {
    const ReplayLog log({{1, Action::ALLOCATE_FAILURE, 1 << 20, 0, 0, 0}, allocate(1, 0, 0), free(1, 0, 0)});
    const ReplayStreams streams(log);
    WritesDown resource;
    EXPECT_TRUE(replay(log, resource, streams, GetParam()).failures.empty());
    EXPECT_EQ(resource.calls.size(), 2u);
}

TEST_P(Replays, LookAtTheResourceBeforeLeaksAreFreed) {
    const ReplayLog log({allocate(1, 0x100, 10)});
    const ReplayStreams streams(log);
    WritesDown resource;
    struct Seen {
        WritesDown& resource;
        std::size_t live;
    } seen{resource, 0};
    replay(
        log, resource, streams, GetParam(),
        [](void* user) { static_cast<Seen*>(user)->live = static_cast<Seen*>(user)->resource.live.size(); }, &seen);
    EXPECT_EQ(seen.live, 1u);
    EXPECT_TRUE(resource.live.empty());
}

TEST_P(Replays, KeepBlocksOfManyThreadsApartInAPool) {
    std::vector<Event> events;
    constexpr std::size_t num_threads = 4, rounds = 200;
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t thread = 0; thread < num_threads; ++thread)
            events.push_back(allocate(thread, 0x1000 * (thread + 1), 256 * (1 + round % 7), 0x10000 + 0x100 * thread));
        // Freed by the neighbour, on its stream.
        for (std::size_t thread = 0; thread < num_threads; ++thread) {
            const std::size_t other = (thread + 1) % num_threads;
            events.push_back(free(thread, 0x1000 * (other + 1), 256 * (1 + round % 7), 0x10000 + 0x100 * thread));
        }
    }
    const ReplayLog log(std::move(events));
    EXPECT_EQ(log.num_leaked(), 0u);
    const ReplayStreams streams(log);
    rmm::mr::cuda_memory_resource device;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool(&device, 1 << 20, 1 << 20);
    EXPECT_TRUE(replay(log, pool, streams, GetParam()).failures.empty());
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(InBothOrders, Replays, ::testing::Values(ReplayOrder::of_the_log, ReplayOrder::of_each_thread),
                         [](const auto& instance) {
                             return instance.param == ReplayOrder::of_the_log ? "OfTheLog" : "OfEachThread";
                         });

TEST(ReplaysInTheOrderOfTheLog, CallTheResourceExactlyAsLogged) {
    std::vector<Event> events;
    for (std::size_t i = 0; i < 300; ++i) events.push_back(allocate(i * i % 5, 0x100 * (i + 1), 1 + i));
    const ReplayLog log(std::move(events));
    const ReplayStreams streams(log);
    WritesDown resource;
    replay(log, resource, streams, ReplayOrder::of_the_log);
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(resource.calls[i].bytes, 1 + i);
}

TEST(NamedResources, EachServesALogAgainAndAgainAndNoneKeepsWhatItLeaks) {
    const ReplayLog log(rmm::detail::parse_csv(KMM_REPLAY_LOG));
    const ReplayStreams streams(log);
    std::set<std::string> names;
    for (const auto& named : kmm::bench::resources_named("")) {
        names.insert(named.name);
        const std::size_t free_before = rmm::available_device_memory().first;
        for (int iteration = 0; iteration < 3; ++iteration) {
            const auto resources = named.make({16 << 20, {}, nullptr});
            EXPECT_TRUE(replay(log, *resources.top(), streams, ReplayOrder::of_each_thread).failures.empty())
                << named.name;
        }
        EXPECT_EQ(rmm::available_device_memory().first, free_before) << named.name;
    }
    for (const char* name : {"pool", "arena", "binning", "cuda", "managed", "cuda_async", "vmm"})
        EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(NamedResources, AnArenaOfAGivenSizeWritesNoReportWhenItIsFull) {
    const std::filesystem::path report = "rmm_arena_memory_dump.log";
    std::filesystem::remove(report);
    const ReplayLog log({allocate(1, 0x100, 64 << 20)});
    const ReplayStreams streams(log);
    for (const auto& named : kmm::bench::resources_named("arena")) {
        const auto resources = named.make({8 << 20, 8 << 20, nullptr});
        EXPECT_EQ(replay(log, *resources.top(), streams, ReplayOrder::of_the_log).failures.size(), 1u);
    }
    EXPECT_FALSE(std::filesystem::exists(report));
}

TEST(ReplaysInTheOrderOfTheLog, OfAnEmptyLogDoNothing) {
    const ReplayLog log({});
    const ReplayStreams streams(log);
    WritesDown resource;
    replay(log, resource, streams, ReplayOrder::of_the_log);
    EXPECT_TRUE(resource.calls.empty());
}

}  // namespace
