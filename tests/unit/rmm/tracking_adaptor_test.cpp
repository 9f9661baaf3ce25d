// <rmm/mr/tracking_resource_adaptor.hpp>.
#include "rmm/mr/device/tracking_resource_adaptor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <locale>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fake_resource.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/logger.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "support/sizes.hpp"

template class rmm::mr::tracking_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace rmm_test {

__attribute__((noinline)) void* allocating_function(rmm::mr::device_memory_resource& mr, std::size_t bytes) {
    void* const ptr = mr.allocate(bytes);
    asm volatile("" ::: "memory");  // the call is not the last thing that it does
    return ptr;
}

}  // namespace rmm_test

namespace {

using rmm::mr::cuda_memory_resource;
using rmm_test::at;
using rmm_test::fake_resource;
using tracking = rmm::mr::tracking_resource_adaptor<fake_resource>;

static_assert(!std::is_move_constructible_v<tracking> && !std::is_copy_constructible_v<tracking>);
static_assert(std::is_final_v<tracking> && !std::is_default_constructible_v<tracking>);
static_assert(std::is_same_v<decltype(std::declval<const tracking&>().get_outstanding_allocations()),
                             const std::map<void*, tracking::allocation_info>&>);
static_assert(!std::is_default_constructible_v<tracking::allocation_info>);

/// What the default logger says while it lives, from level debug on.
class captured_log {
  public:
    captured_log() : level_(rmm::default_logger(), rapids_logger::level_enum::debug) {
        testing::internal::CaptureStderr();
        rmm::default_logger().set_pattern("[%-6l] %v");
        rmm::default_logger().sinks().push_back(std::make_shared<rapids_logger::ostream_sink_mt>(out_));
    }
    ~captured_log() {
        rmm::default_logger().sinks().pop_back();
        rmm::default_logger().set_pattern(rmm::default_pattern());
        (void)testing::internal::GetCapturedStderr();
    }
    /// Since the last call.
    std::string take() {
        std::string text = out_.str();
        out_.str("");
        return text;
    }

  private:
    std::ostringstream out_;
    rapids_logger::log_level_setter level_;
};

TEST(TrackingAdaptor, starts_with_nothing) {
    fake_resource upstream;
    tracking mr{&upstream};
    EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
    EXPECT_EQ(mr.get_allocated_bytes(), 0u);
    EXPECT_EQ(mr.get_outstanding_allocations_str(), "");
    EXPECT_THROW(tracking{nullptr}, rmm::logic_error);
}

TEST(TrackingAdaptor, nothing_remains_when_all_is_freed) {
    fake_resource upstream;
    auto mr = rmm::mr::make_tracking_adaptor(&upstream);
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(mr.allocate(10 * MiB));
    EXPECT_EQ(mr.get_allocated_bytes(), 100 * MiB);
    for (void* ptr : blocks) mr.deallocate(ptr, 10 * MiB);
    EXPECT_EQ(mr.get_allocated_bytes(), 0u);
    EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
}

TEST(TrackingAdaptor, knows_blocks_sizes_and_stacks) {
    for (const bool stacks : {false, true}) {
        fake_resource upstream;
        tracking mr{&upstream, stacks};
        std::vector<void*> blocks;
        for (int i = 0; i < 10; ++i) blocks.push_back(mr.allocate(10 * MiB));
        for (std::size_t i = 0; i < 10; i += 2) mr.deallocate(blocks[i], 10 * MiB);
        const auto& outstanding = mr.get_outstanding_allocations();
        EXPECT_EQ(outstanding.size(), 5u);
        EXPECT_EQ(mr.get_allocated_bytes(), 50 * MiB);
        for (std::size_t i = 1; i < 10; i += 2) {
            const auto found = outstanding.find(blocks[i]);
            ASSERT_NE(found, outstanding.end());
            EXPECT_EQ(found->second.allocation_size, 10 * MiB);
            EXPECT_EQ(found->second.strace != nullptr, stacks);
        }
    }
}

TEST(TrackingAdaptor, the_map_stays_true_without_asking_again) {
    for (const bool stacks : {false, true}) {
        fake_resource upstream;
        tracking mr{&upstream, stacks};
        void* const before = mr.allocate(1);
        const auto& outstanding = mr.get_outstanding_allocations();
        void* const after = mr.allocate(2);
        EXPECT_EQ(outstanding.size(), 2u);
        EXPECT_EQ(outstanding.at(after).allocation_size, 2u);
        EXPECT_EQ(outstanding.at(after).strace != nullptr, stacks);
        EXPECT_EQ(&mr.get_outstanding_allocations(), &outstanding);
        EXPECT_EQ(mr.get_allocated_bytes(), 3u);
        mr.deallocate(before, 1);
        EXPECT_EQ(outstanding.size(), 1u);
        EXPECT_NE(mr.get_outstanding_allocations_str().find("2 B"), std::string::npos);
        mr.deallocate(after, 2);
        EXPECT_TRUE(outstanding.empty());
        EXPECT_EQ(mr.get_allocated_bytes(), 0u);
    }
}

TEST(TrackingAdaptor, lists_blocks_by_address) {
    fake_resource upstream;
    upstream.answers = {0x300, 0x100, 0x200};
    tracking mr{&upstream};
    for (std::size_t bytes : {3, 1, 2}) (void)mr.allocate(bytes);
    EXPECT_EQ(mr.get_outstanding_allocations_str(), "0x100: 1 B\n0x200: 2 B\n0x300: 3 B\n");
    (void)mr.get_outstanding_allocations();
    EXPECT_EQ(mr.get_outstanding_allocations_str(), "0x100: 1 B\n0x200: 2 B\n0x300: 3 B\n");
}

TEST(TrackingAdaptor, writes_numbers_alike_whatever_the_locale_of_the_program) {
    struct with_dots : std::numpunct<char> {
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\3"; }
    };
    fake_resource upstream;
    upstream.answers = {0x100};
    tracking mr{&upstream};
    (void)mr.allocate(1234567);
    const std::locale before = std::locale::global(std::locale(std::locale::classic(), new with_dots));
    const std::string text = mr.get_outstanding_allocations_str();
    std::locale::global(before);
    EXPECT_EQ(text, "0x100: 1234567 B\n");
}

TEST(TrackingAdaptor, names_the_functions_that_asked) {
    fake_resource upstream;
    tracking mr{&upstream, true};
    void* const ptr = rmm_test::allocating_function(mr, 5);
    const std::string text = mr.get_outstanding_allocations_str();
    EXPECT_EQ(text.find("0x100000: 5 B : callstack:\n#0 in "), 0u) << text;
    EXPECT_NE(text.find("in rmm_test::allocating_function("), std::string::npos) << text;
    mr.deallocate(ptr, 5);
}

TEST(TrackingAdaptor, two_levels_track_each_for_itself) {
    cuda_memory_resource cuda;
    rmm::mr::tracking_resource_adaptor first{&cuda, true};
    const auto original = rmm::mr::set_current_device_resource_ref(first);
    {
        std::vector<rmm::device_buffer> buffers;
        for (int i = 0; i < 10; ++i) buffers.emplace_back(MiB, rmm::cuda_stream_default);
        rmm::mr::tracking_resource_adaptor<rmm::mr::device_memory_resource> second{
            rmm::mr::get_current_device_resource()};
        rmm::mr::set_current_device_resource_ref(second);
        for (int i = 0; i < 5; ++i) buffers.emplace_back(MiB, rmm::cuda_stream_default);
        EXPECT_EQ(first.get_outstanding_allocations().size(), 15u);
        EXPECT_EQ(second.get_outstanding_allocations().size(), 5u);
        EXPECT_EQ(first.get_allocated_bytes(), 15 * MiB);
        EXPECT_EQ(second.get_allocated_bytes(), 5 * MiB);
        EXPECT_NE(second.get_outstanding_allocations_str(), "");
        buffers.clear();
        EXPECT_EQ(first.get_outstanding_allocations().size(), 0u);
        EXPECT_EQ(second.get_outstanding_allocations().size(), 0u);
        rmm::mr::set_current_device_resource_ref(original);
    }
    EXPECT_EQ(first.get_allocated_bytes(), 0u);
}

TEST(TrackingAdaptor, memory_of_another_is_freed_and_told_and_not_subtracted) {
    fake_resource upstream;
    tracking outer{&upstream};
    rmm::mr::tracking_resource_adaptor<tracking> inner{&outer};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(outer.allocate(10 * MiB));
    for (int i = 0; i < 5; ++i) blocks.push_back(inner.allocate(10 * MiB));
    {
        captured_log log;
        for (void* ptr : blocks) inner.deallocate(ptr, 10 * MiB);
        const std::string errors = log.take();
        EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 10);
        EXPECT_EQ(errors.find("[error ] Deallocating a pointer that was not tracked. Ptr: "), 0u);
    }
    EXPECT_EQ(outer.get_outstanding_allocations().size(), 0u);
    EXPECT_EQ(inner.get_outstanding_allocations().size(), 0u);
    EXPECT_EQ(inner.get_allocated_bytes(), 0u);
    EXPECT_EQ(upstream.frees.size(), 15u);
}

TEST(TrackingAdaptor, tells_of_misuse_as_rmm_does) {
    fake_resource upstream;
    tracking mr{&upstream};
    void* const ptr = mr.allocate(100);
    captured_log log;
    mr.deallocate(at(0xabc00), 64);
    EXPECT_EQ(
        log.take(),
        "[error ] Deallocating a pointer that was not tracked. Ptr: 0xabc00 [64B], Current Num. Allocations: 1\n");
    mr.deallocate(ptr, 50);
    EXPECT_EQ(log.take(), "[error ] Alloc bytes (100) and Dealloc bytes (50) do not match\n");
    EXPECT_EQ(mr.get_allocated_bytes(), 0u);
    EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
    EXPECT_EQ(upstream.frees.size(), 2u);
}

TEST(TrackingAdaptor, null_is_neither_tracked_nor_misuse) {
    cuda_memory_resource cuda;
    rmm::mr::tracking_resource_adaptor mr{&cuda};
    captured_log log;
    EXPECT_EQ(mr.allocate(0), nullptr);
    EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
    mr.deallocate(nullptr, 0);
    mr.deallocate(nullptr, 100);
    EXPECT_EQ(log.take(), "");
}

TEST(TrackingAdaptor, blocks_of_zero_bytes_that_share_an_address_are_neither_tracked_nor_misuse) {
    for (const bool as_map : {false, true}) {
        fake_resource upstream;
        upstream.answers = {256, 256, 256, 512};
        tracking mr{&upstream, true};
        if (as_map) (void)mr.get_outstanding_allocations();
        captured_log log;
        void* const some[] = {mr.allocate(0), mr.allocate(0), mr.allocate(0)};
        void* const block = mr.allocate(100);
        for (void* ptr : some) mr.deallocate(ptr, 0);
        EXPECT_EQ(log.take(), "");
        EXPECT_EQ(upstream.frees.size(), 3u);
        EXPECT_EQ(mr.get_allocated_bytes(), 100u);
        mr.deallocate(block, 0);
        EXPECT_EQ(log.take(), "[error ] Alloc bytes (100) and Dealloc bytes (0) do not match\n");
        EXPECT_TRUE(mr.get_outstanding_allocations().empty());
    }
}

TEST(TrackingAdaptor, an_address_that_was_freed_behind_its_back_is_tracked_anew) {
    for (const bool as_map : {false, true}) {
        fake_resource upstream;
        upstream.answers = {256, 256};
        tracking mr{&upstream, true};
        (void)mr.allocate(100);
        if (as_map) (void)mr.get_outstanding_allocations();
        (void)mr.allocate(30);
        EXPECT_EQ(mr.get_allocated_bytes(), 30u);
        EXPECT_EQ(mr.get_outstanding_allocations().size(), 1u);
        mr.deallocate(at(256), 30);
        EXPECT_EQ(mr.get_allocated_bytes(), 0u);
    }
}

TEST(TrackingAdaptor, a_block_is_forgotten_before_upstream_has_it) {
    fake_resource upstream;
    tracking mr{&upstream};
    upstream.before_free = [&] { EXPECT_EQ(mr.get_allocated_bytes(), 0u); };
    mr.deallocate(mr.allocate(5), 5);
    EXPECT_EQ(upstream.frees.size(), 1u);
}

TEST(TrackingAdaptor, a_failed_request_leaves_nothing) {
    fake_resource upstream;
    upstream.before_allocate = [] { throw rmm::bad_alloc("no"); };
    tracking mr{&upstream};
    EXPECT_THROW((void)mr.allocate(5), rmm::bad_alloc);
    EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
}

TEST(TrackingAdaptor, logs_what_is_outstanding_at_level_debug) {
    fake_resource upstream;
    upstream.answers = {0x100};
    tracking mr{&upstream};
    (void)mr.allocate(7);
    {
        captured_log log;
        mr.log_outstanding_allocations();
        EXPECT_EQ(log.take(), "[debug ] Outstanding Allocations: 0x100: 7 B\n\n");
    }
    captured_log log;
    rmm::default_logger().set_level(rapids_logger::level_enum::info);
    mr.log_outstanding_allocations();
    EXPECT_EQ(log.take(), "");
}

TEST(TrackingAdaptor, threads_lose_no_block) {
    for (const bool as_map : {false, true}) {
        cuda_memory_resource cuda;
        rmm::mr::pool_memory_resource<cuda_memory_resource> pool{&cuda, 8 * MiB, 8 * MiB};
        rmm::mr::tracking_resource_adaptor<rmm::mr::device_memory_resource> mr{&pool, true};
        captured_log log;
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 4; ++t)
            threads.emplace_back([&mr, t] {
                std::mt19937 random(t);
                std::vector<std::pair<void*, std::size_t>> blocks;
                for (int i = 0; i < 500; ++i) {
                    if (blocks.size() < 10) {
                        const std::size_t bytes = 1 + random() % 4096;
                        blocks.emplace_back(mr.allocate(bytes), bytes);
                    } else {
                        std::swap(blocks[random() % blocks.size()], blocks.back());
                        mr.deallocate(blocks.back().first, blocks.back().second);
                        blocks.pop_back();
                    }
                }
                for (auto [ptr, bytes] : blocks) mr.deallocate(ptr, bytes);
            });
        // Looked at meanwhile.
        for (int i = 0; i < 20; ++i) {
            (void)mr.get_allocated_bytes();
            (void)mr.get_outstanding_allocations_str();
            if (as_map && i == 10) (void)mr.get_outstanding_allocations();
        }
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(mr.get_allocated_bytes(), 0u);
        EXPECT_EQ(mr.get_outstanding_allocations().size(), 0u);
        EXPECT_EQ(log.take(), "");
    }
}

}  // namespace
