// What pools do when the host has no memory for their books: they throw, and whoever had memory before has it
// afterwards.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/registry.hpp"
#include "forwarding_driver.hpp"
#include "host_allocations.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/timeline.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/status.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::StreamHandle;
using mr::detail::pool_engine;
using mr::detail::timelines;
using rmm_test::allocations_left;
using rmm_test::has_failed;
using rmm_test::non_blocking;

/// Calls `f` with the numbers of allocations that may succeed, until there are as many as it needs. It returns whether
/// one failed.
template<typename F>
int for_every_allocation(F&& f) {
    int n = 0;
    while (f(n)) {
        if (++n == 1000) {
            ADD_FAILURE() << "there is no end of allocations";
            break;
        }
    }
    return n;
}

/// True if an allocation failed in `f`, which may throw for it.
template<typename F>
bool fails_at(int n, F&& f) {
    has_failed = false;
    allocations_left = n;
    try {
        f();
    } catch (const std::bad_alloc&) {
        EXPECT_TRUE(has_failed);
    }
    allocations_left = -1;
    return has_failed;
}

mr::detail::pool_options options_of(std::size_t bytes) {
    mr::detail::pool_options options;
    options.initial_bytes = bytes;
    options.maximum_bytes = bytes;
    options.ordered_upstream = false;
    return options;
}

class counting_driver final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    std::size_t num_created = 0;
    std::size_t num_destroyed = 0;

  protected:
    void called(const char* call) noexcept override {
        num_created += std::string_view(call) == "create_event";
        num_destroyed += std::string_view(call) == "destroy_event";
    }
};

TEST(PoolHostMemory, a_block_that_is_away_behind_several_streams_stays_there_where_it_cannot_be_handed_out) {
    mr::cuda_memory_resource cuda;
    const int num_failed = for_every_allocation([&](int n) {
        pool_engine pool(cuda, options_of(64 * MiB));
        const cuda_stream home = non_blocking();
        const cuda_stream first = non_blocking();
        const cuda_stream second = non_blocking();
        std::vector<void*> blocks;
        mr::detail::refusal why;
        while (void* const ptr = pool.try_allocate(64 * KiB, home, &why)) blocks.push_back(ptr);
        // What is left beside them.
        std::vector<void*> small_blocks;
        while (void* const ptr = pool.try_allocate(16 * KiB, home, &why)) small_blocks.push_back(ptr);
        rmm_test::gate gate;
        gate.close(first);
        gate.close(second);
        const cuda_stream_view users[] = {first, second};
        // The first lies in a span of the stream's arena, the last may not.
        void* const away = blocks.front();
        blocks.erase(blocks.begin());
        pool.free(away, 64 * KiB, users);
        const std::size_t in_use = blocks.size() * 64 * KiB + small_blocks.size() * 16 * KiB;
        void* again = nullptr;
        // A part of it, so that the rest stays away.
        const bool failed = fails_at(n, [&] { again = pool.try_allocate(16 * KiB, home, &why); });
        EXPECT_EQ(pool.statistics().in_use_bytes, in_use + (again != nullptr ? 16 * KiB : 0)) << "allocation " << n;
        if (!failed) {
            EXPECT_EQ(again, away);
        }
        if (again != nullptr) pool.free(again, 16 * KiB, {});
        for (void* const ptr : blocks) pool.free(ptr, 64 * KiB, {});
        for (void* const ptr : small_blocks) pool.free(ptr, 16 * KiB, {});
        gate.open();
        home.synchronize();
        first.synchronize();
        second.synchronize();
        EXPECT_EQ(pool.try_allocate(64 * MiB, home, &why) != nullptr, true) << "allocation " << n;
        return failed;
    });
    EXPECT_GE(num_failed, 3);
}

TEST(PoolHostMemory, granules_that_leave_an_arena_with_blocks_behind_several_streams_are_nobodys_twice) {
    const int num_failed = for_every_allocation([&](int n) {
        mr::detail::virtual_source_options options;
        options.maximum_bytes = 64 * MiB;
        pool_engine pool(std::make_unique<mr::detail::virtual_source>(rmm_test::driver(), 0, options), {});
        const cuda_stream home = non_blocking();
        const cuda_stream first = non_blocking();
        const cuda_stream second = non_blocking();
        const cuda_stream_view users[] = {first, second};
        mr::detail::refusal why;
        constexpr std::size_t sizes[] = {512 * KiB, 300 * KiB, MiB, 2 * MiB, 700 * KiB};
        std::vector<std::pair<void*, std::size_t>> blocks;
        while (void* const ptr = pool.try_allocate(sizes[blocks.size() % 5], home, &why))
            blocks.emplace_back(ptr, sizes[blocks.size() % 5]);
        rmm_test::gate gate;
        gate.close(first);
        gate.close(second);
        // Some stay; the rest is free, or away behind two streams.
        std::map<std::uintptr_t, std::size_t> live;
        std::size_t in_use = 0;
        const auto enter = [&](void* ptr, std::size_t bytes) {
            const auto address = reinterpret_cast<std::uintptr_t>(ptr);
            const auto behind = live.lower_bound(address);
            const bool is_free =
                (behind == live.end() || address + bytes <= behind->first) &&
                (behind == live.begin() || std::prev(behind)->first + std::prev(behind)->second <= address);
            EXPECT_TRUE(is_free) << "allocation " << n;
            live[address] = bytes;
            in_use += bytes;
            return is_free;
        };
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const auto [ptr, bytes] = blocks[i];
            if (i % 9 == 0)
                enter(ptr, bytes);
            else if (i % 2 == 0)
                pool.free(ptr, bytes, {users, 1});
            else
                pool.free(ptr, bytes, users);
        }
        const bool failed = fails_at(n, [&] { (void)pool.statistics(); });
        gate.open();
        for (const cuda_stream* s : {&home, &first, &second}) s->synchronize();
        for (const std::size_t bytes : {256 * KiB, 64 * KiB, 4 * KiB})
            while (void* const ptr = pool.try_allocate(bytes, home, &why))
                if (!enter(ptr, bytes)) return false;
        EXPECT_GE(in_use, 64 * MiB - 64 * KiB) << "allocation " << n;
        for (const auto& [address, bytes] : live) pool.free(reinterpret_cast<void*>(address), bytes, {});
        EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
        return failed;
    });
    EXPECT_GE(num_failed, 20);
}

/// Something was freed on a stream that has ended; its end is what others wait for.
void leave_end_of_stream(timelines& t, counting_driver& driver) {
    heap::fence_set fences;
    {
        const cuda_stream stream = non_blocking();
        fences.add(t.at(rmm::detail::identify(driver, stream)).fence_now());
    }
    std::vector<mr::detail::pending_wait> waits;
    std::size_t missing = 0;
    ASSERT_EQ(t.prepare_waits(fences, heap::heap::no_timeline, timelines::reach::streams, &waits, &missing),
              timelines::readiness::ready);
    ASSERT_TRUE(t.carry_out_on_host(waits).ok());
    t.finish(waits);
}

TEST(PoolHostMemory, questions_that_cannot_all_be_noted_let_go_of_the_streams_that_they_name) {
    const auto host = kmm::driver::make_host_driver({1, 64 * MiB, 1});
    counting_driver driver(*host);
    const rmm::detail::driver_scope scope(driver);
    const int num_failed = for_every_allocation([&](int n) {
        bool failed = false;
        {
            rmm::detail::gone_streams gone;
            timelines t(driver, 0, gone);
            std::vector<kmm::driver::EventHandle> events;
            t.spare().expect(64);
            EXPECT_TRUE(t.spare().create(64, &events).ok());
            for (const kmm::driver::EventHandle e : events) t.spare().give(e);
            // As many of the device as there can be; the first covers nothing.
            for (int i = 0; i < 9; ++i) {
                mr::detail::recording now;
                EXPECT_TRUE(t.begin_device_recording(&now));
                t.end_device_recording(now, t.record_device(now).ok());
            }
            for (int i = 0; i < 16; ++i) leave_end_of_stream(t, driver);
            EXPECT_EQ(t.num_recorded(), 24u);
            std::vector<timelines::question> questions;
            failed = fails_at(n, [&] { questions = t.questions(~std::size_t{0}); });
            EXPECT_EQ(questions.size(), failed ? 0u : 24u);
            t.answer(questions);
        }
        EXPECT_EQ(driver.num_created, driver.num_destroyed) << "allocation " << n;
        return failed;
    });
    EXPECT_GE(num_failed, 1);
}

TEST(PoolHostMemory, frees_of_many_streams_that_cannot_be_covered_leave_none_of_the_streams_behind) {
    const auto host = kmm::driver::make_host_driver({1, 128 * MiB, 1});
    counting_driver driver(*host);
    const rmm::detail::driver_scope scope(driver);
    mr::cuda_memory_resource cuda;
    constexpr std::size_t num_frees = 128;  // as many are covered together
    const int num_failed = for_every_allocation([&](int n) {
        bool failed = false;
        {
            pool_engine pool(cuda, options_of(64 * MiB));
            std::vector<cuda_stream> streams;
            for (int i = 0; i < 80; ++i) streams.push_back(non_blocking());
            std::vector<void*> blocks;
            for (std::size_t i = 0; i < num_frees; ++i)
                blocks.push_back(pool.allocate(400 * KiB, streams[i % streams.size()]));
            for (std::size_t i = 0; i < num_frees; ++i) {
                const cuda_stream_view stream = streams[i % streams.size()];
                pool.free(blocks[i], 400 * KiB, {&stream, 1});
            }
            mr::detail::refusal why;
            void* ptr = nullptr;
            failed = fails_at(n, [&] { ptr = pool.try_allocate(400 * KiB, streams.front(), &why); });
            const cuda_stream_view stream = streams.front();
            if (ptr != nullptr) pool.free(ptr, 400 * KiB, {&stream, 1});
        }
        EXPECT_EQ(driver.num_created, driver.num_destroyed) << "allocation " << n;
        return failed;
    });
    EXPECT_GE(num_failed, 5);
}

// Pools behave otherwise once a stream was captured in the process: this one is the last.
TEST(PoolHostMemoryOfCaptures, what_cannot_be_given_to_a_capture_stays_the_pool_s) {
    const auto host = kmm::driver::make_host_driver({1, 256 * MiB, 1});
    const rmm::detail::driver_scope scope(*host);
    mr::cuda_memory_resource cuda;
    for (const bool of_virtual_memory : {false, true}) {
        const int num_failed = for_every_allocation([&](int n) {
            std::optional<pool_engine> pool;
            if (of_virtual_memory)
                pool.emplace(std::make_unique<mr::detail::virtual_source>(
                                 *host, 0, mr::detail::virtual_source_options{.maximum_bytes = 64 * MiB}),
                             options_of(64 * MiB));
            else
                pool.emplace(cuda, options_of(64 * MiB));
            StreamHandle raw;
            EXPECT_TRUE(host->create_stream(0, true, 0, &raw).ok());
            const cuda_stream_view stream{static_cast<cudaStream_t>(raw.native)};
            // So that there is free memory that the capture may have.
            void* const before = pool->allocate(64 * MiB, stream);
            pool->free(before, 64 * MiB, {&stream, 1});
            EXPECT_TRUE(host->synchronize_device(0).ok());
            ::testing::internal::CaptureStderr();
            EXPECT_TRUE(host->begin_capture(raw, kmm::driver::CaptureMode::relaxed).ok());
            // Each takes a piece of its own from the pool.
            std::vector<void*> blocks(16);
            allocations_left = n;
            has_failed = false;
            for (void*& block : blocks) {
                mr::detail::refusal why;
                try {
                    block = pool->try_allocate(2 * MiB, stream, &why);
                } catch (const std::bad_alloc&) {
                    EXPECT_TRUE(has_failed);
                }
            }
            allocations_left = -1;
            const bool failed = has_failed;
            std::set<void*> different;
            for (void* const block : blocks)
                if (block != nullptr) different.insert(block);
            EXPECT_GE(different.size(), failed ? 14u : 16u);
            EXPECT_EQ(pool->statistics().in_use_bytes, different.size() * 2 * MiB) << "allocation " << n;
            for (void* const block : different) pool->free(block, 2 * MiB, {&stream, 1});
            kmm::driver::GraphHandle graph;
            EXPECT_TRUE(host->end_capture(raw, &graph).ok());
            EXPECT_TRUE(host->destroy_graph(graph).ok());
            EXPECT_TRUE(host->synchronize_device(0).ok());
            EXPECT_EQ(pool->statistics().captured_bytes, 0u) << "allocation " << n;
            mr::detail::refusal why;
            void* const whole = pool->try_allocate(64 * MiB, stream, &why);
            EXPECT_NE(whole, nullptr) << "a part is lost or in two hands, allocation " << n;
            if (whole != nullptr) pool->free(whole, 64 * MiB, {&stream, 1});
            pool.reset();
            const std::string reports = ::testing::internal::GetCapturedStderr();
            EXPECT_EQ(reports.find("a pool"), std::string::npos) << reports << "allocation " << n;
            EXPECT_EQ(reports.find("a capture"), std::string::npos) << reports << "allocation " << n;
            EXPECT_TRUE(host->destroy_stream(raw).ok());
            return failed;
        });
        EXPECT_GE(num_failed, 5);
    }
}

}  // namespace
