// <rmm/mr/debug_resource_adaptor.hpp>: every kind of error is found, with its place, in stream order; clean programs
// hear nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "debug_tools.hpp"
#include "fake_resource.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/debug/block_checker.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/device/debug_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "support/sizes.hpp"

template class rmm::mr::debug_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm::mr;
using rmm_test::contains;
using rmm_test::debug_variable;
using rmm_test::driver;
using rmm_test::findings;
using rmm_test::peek;
using rmm_test::poke;
using cuda = cuda_memory_resource;
using adaptor_over_cuda = debug_resource_adaptor<cuda>;

static_assert(!std::is_copy_constructible_v<adaptor_over_cuda>);
static_assert(!std::is_move_constructible_v<adaptor_over_cuda>);

debug_options with(bool fill, std::size_t quarantine_bytes) {
    debug_options o;
    o.fill = fill;
    o.quarantine_bytes = quarantine_bytes;
    return o;
}

// The free itself may find what the stream has done already: these tests count in the end.
TEST(DebugAdaptor, a_write_past_the_end_is_found_with_its_place) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    void* const ptr = mr.allocate(1000);
    poke(ptr, 1000, 0x2a);
    mr.deallocate(ptr, 1000);
    (void)mr.check();
    ASSERT_EQ(found.size(), 1u);
    const debug_finding f = found[0];
    EXPECT_EQ(f.error, debug_error::write_behind);
    EXPECT_EQ(f.block, ptr);
    EXPECT_EQ(f.block_bytes, 1000u);
    EXPECT_EQ(f.offset, 1000);
    EXPECT_EQ(f.expected, 0xfb);
    EXPECT_EQ(f.found, 0x2a);
    EXPECT_EQ(f.wrong_bytes, 1u);
    EXPECT_TRUE(contains(f.text, "a write past the end of a block of a debug_resource_adaptor")) << f.text;
    EXPECT_TRUE(contains(f.text, "of 1000 bytes, allocated on the default stream")) << f.text;
    EXPECT_TRUE(contains(f.text, "byte 1000 (the first byte behind it, address 0x")) << f.text;
    EXPECT_TRUE(contains(f.text, "is 0x2a and should be 0xfb; 1 byte is wrong")) << f.text;
    EXPECT_TRUE(contains(f.text, "try:")) << f.text;
    EXPECT_EQ(mr.counts().write_behind, 1u);
    EXPECT_EQ(mr.counts().total(), 1u);
}

TEST(DebugAdaptor, a_write_in_front_is_found_at_the_byte_next_to_the_block) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    void* const ptr = mr.allocate(64);
    poke(ptr, -200, 1);
    poke(ptr, -3, 2);
    mr.deallocate(ptr, 64);
    (void)mr.check();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].error, debug_error::write_before);
    EXPECT_EQ(found[0].offset, -3);
    EXPECT_EQ(found[0].found, 2);
    EXPECT_EQ(found[0].wrong_bytes, 2u);
    EXPECT_TRUE(contains(found[0].text, "byte -3 (3 bytes in front of it")) << found[0].text;
}

TEST(DebugAdaptor, every_byte_of_both_zones_counts) {
    cuda upstream;
    for (const std::ptrdiff_t offset : {-256, -1, 1000, 1255}) {
        findings found;
        adaptor_over_cuda mr{&upstream, found.options(with(false, 0))};
        void* const ptr = mr.allocate(1000);
        poke(ptr, offset, 7);
        mr.deallocate(ptr, 1000);
        (void)mr.check();
        ASSERT_EQ(mr.counts().total(), 1u) << offset;
        EXPECT_EQ(found[0].offset, offset);
    }
}

TEST(DebugAdaptor, check_looks_at_blocks_in_use_and_tells_each_defect_once) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    std::vector<void*> blocks;
    for (int i = 0; i < 3000; ++i) blocks.push_back(mr.allocate(100));
    EXPECT_EQ(mr.check(), 0u);
    poke(blocks[1234], 101, 1);
    EXPECT_EQ(mr.check(), 1u);
    EXPECT_EQ(mr.check(), 0u);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].block, blocks[1234]);
    EXPECT_TRUE(contains(found[0].text, "1 byte past its end")) << found[0].text;
    for (void* ptr : blocks) mr.deallocate(ptr, 100);
    EXPECT_EQ(mr.check(), 0u);
}

TEST(DebugAdaptor, a_write_after_free_is_found_when_the_block_leaves_the_quarantine) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options(with(true, 64 * KiB))};
    void* const ptr = mr.allocate(10 * KiB);
    mr.deallocate(ptr, 10 * KiB);
    EXPECT_GE(mr.quarantined_bytes(), 10 * KiB);
    poke(ptr, 5000, 0x11);
    poke(ptr, 5001, 0x12);
    rmm::cuda_stream_view{}.synchronize();
    EXPECT_EQ(mr.counts().total(), 0u);
    for (int i = 0; i < 20; ++i) {
        mr.deallocate(mr.allocate(10 * KiB), 10 * KiB);
        rmm::cuda_stream_view{}.synchronize();
    }
    EXPECT_LE(mr.quarantined_bytes(), 80 * KiB);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].error, debug_error::write_after_free);
    EXPECT_EQ(found[0].block, ptr);
    EXPECT_EQ(found[0].offset, 5000);
    EXPECT_EQ(found[0].expected, 0xd7);
    EXPECT_EQ(found[0].found, 0x11);
    EXPECT_EQ(found[0].wrong_bytes, 2u);
    EXPECT_TRUE(contains(found[0].text, "a write into a block after it was freed")) << found[0].text;
    EXPECT_TRUE(contains(found[0].text, "freed on the default stream")) << found[0].text;
}

TEST(DebugAdaptor, large_blocks_are_looked_at_to_their_last_byte) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    constexpr std::size_t bytes = 5 * MiB + 3;
    void* const ptr = mr.allocate(bytes);
    mr.deallocate(ptr, bytes);
    poke(ptr, bytes - 1, 0);
    EXPECT_EQ(mr.check(), 1u);
    EXPECT_EQ(mr.check(), 0u);
    EXPECT_EQ(found[0].offset, static_cast<std::ptrdiff_t>(bytes - 1));
}

TEST(DebugAdaptor, the_end_of_the_adaptor_looks_at_what_is_held_back) {
    cuda upstream;
    findings found;
    {
        adaptor_over_cuda mr{&upstream, found.options()};
        void* const ptr = mr.allocate(100);
        mr.deallocate(ptr, 100);
        poke(ptr, 0, 1);
    }
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].error, debug_error::write_after_free);
}

TEST(DebugAdaptor, new_and_freed_memory_have_patterns) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    void* const ptr = mr.allocate(1001);
    EXPECT_EQ(peek(ptr, 1001), std::vector<unsigned char>(1001, 0xc5));
    mr.deallocate(ptr, 1001);
    EXPECT_EQ(peek(ptr, 1001), std::vector<unsigned char>(1001, 0xd7));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 256, 0u);
}

TEST(DebugAdaptor, a_block_freed_twice_is_freed_once_whether_it_is_held_back_or_not) {
    for (const std::size_t quarantine : {std::size_t{0}, MiB}) {
        rmm_test::recording_resource upstream;
        findings found;
        {
            debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options(with(true, quarantine))};
            void* const ptr = mr.allocate(300);
            mr.deallocate(ptr, 300);
            mr.deallocate(ptr, 300);
            EXPECT_EQ(mr.counts().double_free, 1u);
            EXPECT_EQ(mr.check(), 0u);
        }
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].error, debug_error::double_free);
        EXPECT_EQ(found[0].block_bytes, 300u);
        EXPECT_TRUE(contains(found[0].text, "a block was freed twice: deallocate(0x")) << found[0].text;
        EXPECT_TRUE(contains(found[0].text, "freed before on the default stream")) << found[0].text;
        EXPECT_EQ(upstream.frees.size(), 1u);
    }
}

TEST(DebugAdaptor, a_wrong_size_is_reported_and_upstream_gets_the_right_one) {
    rmm_test::recording_resource upstream;
    findings found;
    {
        debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options(with(true, 0))};
        mr.deallocate(mr.allocate(300), 301);
        EXPECT_EQ(mr.counts().wrong_size, 1u);
    }
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].block_bytes, 300u);
    EXPECT_EQ(found[0].given_bytes, 301u);
    EXPECT_TRUE(contains(found[0].text, "freed with a wrong size: deallocate(0x")) << found[0].text;
    EXPECT_TRUE(contains(found[0].text, "301 bytes")) << found[0].text;
    ASSERT_EQ(upstream.frees.size(), 1u);
    EXPECT_EQ(upstream.frees[0].bytes, upstream.allocations[0].bytes);
    EXPECT_EQ(upstream.frees[0].bytes, 256 + 300 + 256u);
}

TEST(DebugAdaptor, an_unknown_pointer_is_not_freed) {
    rmm_test::recording_resource upstream;
    findings found;
    debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options()};
    void* const ptr = mr.allocate(1000);
    mr.deallocate(static_cast<char*>(ptr) + 256, 744);
    EXPECT_EQ(mr.counts().unknown_pointer, 1u);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(contains(found[0].text, "no block of this resource")) << found[0].text;
    EXPECT_TRUE(upstream.frees.empty());
    mr.deallocate(ptr, 1000);
    mr.deallocate(nullptr, 5);
    EXPECT_EQ(mr.counts().total(), 1u);
}

TEST(DebugAdaptor, leaks_are_listed_at_the_end_in_the_order_of_allocation) {
    rmm_test::recording_resource upstream;
    findings found;
    {
        debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options()};
        (void)mr.allocate(10);
        mr.deallocate(mr.allocate(20), 20);
        (void)mr.allocate(30);
    }
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].error, debug_error::leak);
    EXPECT_EQ(found[0].block_bytes, 10u);
    EXPECT_EQ(found[1].block_bytes, 30u);
    EXPECT_TRUE(contains(found[0].text, "still in use at the end of")) << found[0].text;
    debug_options silent;
    silent.report_leaks = false;
    {
        debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options(silent)};
        (void)mr.allocate(10);
    }
    EXPECT_EQ(found.size(), 2u);
}

TEST(DebugAdaptor, stacks_say_where_a_block_came_from) {
    cuda upstream;
    findings found;
    debug_options options;
    options.stacks = true;
    adaptor_over_cuda mr{&upstream, found.options(options)};
    void* const ptr = mr.allocate(100);
    mr.deallocate(ptr, 100);
    mr.deallocate(ptr, 100);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(contains(found[0].text, "allocated at\n#0")) << found[0].text;
    EXPECT_TRUE(contains(found[0].text, "freed at\n#0")) << found[0].text;
}

TEST(DebugAdaptor, findings_without_stacks_say_how_to_get_them) {
    cuda upstream;
    findings found;
    {
        adaptor_over_cuda mr{&upstream, found.options()};
        mr.deallocate(mr.allocate(100), 99);
    }
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(contains(found[0].text, "stacks were not taken: set debug_options::stacks to see")) << found[0].text;

    const auto text_with = [&](const char* variable) {
        const debug_variable set{variable};
        testing::internal::CaptureStderr();
        {
            adaptor_over_cuda mr{&upstream};
            mr.deallocate(mr.allocate(100), 99);
        }
        return testing::internal::GetCapturedStderr();
    };
    for (const char* const variable : {"", "0", "1", "redzones"}) {
        const std::string text = text_with(variable);
        EXPECT_TRUE(contains(text, "not taken: run with RMM_DEBUG=1,stacks in the environment to see")) << text;
    }
    const std::string text = text_with("1,stacks");
    EXPECT_TRUE(contains(text, "allocated at\n#0")) << text;
    EXPECT_FALSE(contains(text, "not taken")) << text;
}

TEST(DebugAdaptor, without_options_a_variable_that_is_malformed_is_refused) {
    const debug_variable variable{"stakcs"};
    cuda upstream;
    EXPECT_THROW(adaptor_over_cuda{&upstream}, rmm::logic_error);
    EXPECT_NO_THROW((adaptor_over_cuda{&upstream, debug_options{}}));
}

TEST(DebugAdaptor, without_a_report_function_the_text_goes_to_stderr) {
    cuda upstream;
    testing::internal::CaptureStderr();
    {
        adaptor_over_cuda mr{&upstream};
        mr.deallocate(mr.allocate(100), 99);
        for (int i = 0; i < 40; ++i) (void)mr.allocate(1);
    }
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(text, "rmm: debug: a block was freed with a wrong size")) << text;
    EXPECT_TRUE(contains(text, "rmm: debug: a block is still in use")) << text;
    std::size_t leaks = 0;
    for (std::size_t at = text.find("still in use at"); at != std::string::npos;
         at = text.find("still in use at", at + 1))
        ++leaks;
    EXPECT_EQ(leaks, 32u);
    EXPECT_TRUE(contains(text, "no more of them are listed")) << text;
}

TEST(DebugAdaptor, frees_do_not_wait_for_the_stream_and_look_behind_its_work) {
    cuda_async_memory_resource upstream;
    findings found;
    debug_resource_adaptor<cuda_async_memory_resource> mr{&upstream, found.options()};
    rmm::cuda_stream stream = rmm_test::non_blocking();
    void* const ptr = mr.allocate(100, stream);
    {
        rmm_test::gate gate;
        gate.close(stream);
        poke(ptr, 100, 1, stream);  // queued before the free, done after it
        mr.deallocate(ptr, 100, stream);
        mr.deallocate(mr.allocate(100, stream), 100, stream);
        EXPECT_EQ(mr.counts().total(), 0u);
    }
    stream.synchronize();
    mr.deallocate(mr.allocate(100, stream), 100, stream);
    EXPECT_EQ(mr.counts().write_behind, 1u);
}

TEST(DebugAdaptor, a_stream_that_is_late_keeps_no_more_than_twice_the_quarantine) {
    cuda_async_memory_resource upstream;
    findings found;
    debug_resource_adaptor<cuda_async_memory_resource> mr{&upstream, found.options(with(true, 100 * KiB))};
    rmm::cuda_stream stream = rmm_test::non_blocking();
    {
        rmm_test::gate gate;
        gate.close(stream);
        for (int i = 0; i < 50; ++i) {
            void* const ptr = mr.allocate(20 * KiB, stream);
            if (i == 0) poke(ptr, 20 * KiB, 1, stream);
            mr.deallocate(ptr, 20 * KiB, stream);
            EXPECT_LE(mr.quarantined_bytes(), 200 * KiB);
        }
    }
    EXPECT_EQ(mr.check(), 1u);
    EXPECT_EQ(mr.counts().write_behind, 1u);
}

TEST(DebugAdaptor, a_stream_may_be_destroyed_after_its_frees) {
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options(with(true, 100 * KiB))};
    for (int i = 0; i < 20; ++i) {
        rmm_test::foreign_stream stream;
        mr.deallocate(mr.allocate(20 * KiB, stream.view()), 20 * KiB, stream.view());
    }
    EXPECT_EQ(mr.check(), 0u);
}

TEST(DebugAdaptor, synchronous_frees_report_before_they_return) {
    cuda upstream;
    findings found;
    debug_options options;
    options.synchronous = true;
    adaptor_over_cuda mr{&upstream, found.options(options)};
    void* const ptr = mr.allocate(100);
    poke(ptr, 100, 1);
    mr.deallocate(ptr, 100);
    EXPECT_EQ(found.size(), 1u);
}

TEST(DebugAdaptor, where_upstream_has_nothing_left_the_quarantine_is_emptied) {
    cuda upstream;
    pool_memory_resource<cuda> pool{&upstream, MiB, MiB};
    findings found;
    debug_resource_adaptor<pool_memory_resource<cuda>> mr{&pool, found.options()};
    for (int i = 0; i < 10; ++i) {
        void* const ptr = mr.allocate(600 * KiB);
        mr.deallocate(ptr, 600 * KiB);
        EXPECT_GT(mr.quarantined_bytes(), 600 * KiB);
    }
    EXPECT_THROW(mr.allocate(2 * MiB), rmm::out_of_memory);
    EXPECT_EQ(mr.counts().total(), 0u);
}

TEST(DebugAdaptor, blocks_larger_than_the_quarantine_and_no_blocks_at_all_are_not_held_back) {
    rmm_test::recording_resource upstream;
    findings found;
    debug_options options = with(true, 10 * KiB);
    debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options(options)};
    mr.deallocate(mr.allocate(20 * KiB), 20 * KiB);
    EXPECT_EQ(mr.quarantined_bytes(), 0u);
    EXPECT_EQ(upstream.frees.size(), 1u);
    options.quarantine_blocks = 0;
    debug_resource_adaptor<rmm_test::recording_resource> none{&upstream, found.options(options)};
    none.deallocate(none.allocate(100), 100);
    EXPECT_EQ(none.quarantined_bytes(), 0u);
    EXPECT_EQ(none.allocate(0), nullptr);
}

TEST(DebugAdaptor, without_red_zones_memory_of_upstream_passes_unchanged) {
    rmm_test::recording_resource upstream;
    findings found;
    debug_options options = with(false, 0);
    options.red_zone_bytes = 0;
    debug_resource_adaptor<rmm_test::recording_resource> mr{&upstream, found.options(options)};
    void* const ptr = mr.allocate(1000);
    EXPECT_EQ(upstream.allocations[0].bytes, 1000u);
    mr.deallocate(ptr, 1000);
    mr.deallocate(ptr, 1000);
    EXPECT_EQ(mr.counts().double_free, 1u);
    EXPECT_EQ(mr.check(), 0u);
}

TEST(DebugAdaptor, wide_zones_catch_writes_far_away) {
    cuda upstream;
    findings found;
    debug_options options;
    options.red_zone_bytes = 100000;
    adaptor_over_cuda mr{&upstream, found.options(options)};
    void* const ptr = mr.allocate(100);
    poke(ptr, 100 + 99999, 1);
    poke(ptr, -100000, 1);
    EXPECT_EQ(mr.check(), 2u);
    mr.deallocate(ptr, 100);
    EXPECT_EQ(mr.check(), 0u);
}

TEST(DebugAdaptor, what_upstream_throws_comes_through_and_nothing_is_remembered) {
    rmm_test::fake_resource upstream;
    upstream.before_allocate = [] { throw rmm::out_of_memory("no"); };
    findings found;
    debug_resource_adaptor<rmm_test::fake_resource> mr{&upstream, found.options()};
    EXPECT_THROW(mr.allocate(1), rmm::out_of_memory);
    EXPECT_THROW(mr.allocate(~std::size_t{0} - 5), rmm::out_of_memory);
    EXPECT_THROW((debug_resource_adaptor<rmm_test::fake_resource>{nullptr}), rmm::logic_error);
}

TEST(DebugAdaptor, work_that_is_being_captured_gets_no_part_of_the_checks) {
    if (!driver().capabilities().stream_capture) GTEST_SKIP() << "the driver has no captures";
    cuda upstream;
    findings found;
    adaptor_over_cuda mr{&upstream, found.options()};
    rmm::cuda_stream stream = rmm_test::non_blocking();
    void* const before = mr.allocate(100, stream);
    stream.synchronize();
    ASSERT_TRUE(driver().begin_capture({stream.value()}, kmm::driver::CaptureMode::relaxed).ok());
    void* const during = mr.allocate(100, stream);
    mr.deallocate(before, 100, stream);
    kmm::driver::GraphHandle graph;
    ASSERT_TRUE(driver().end_capture({stream.value()}, &graph).ok());
    EXPECT_TRUE(driver().destroy_graph(graph).ok());
    poke(during, 100, 1, stream);
    mr.deallocate(during, 100, stream);
    EXPECT_EQ(mr.check(), 0u);
}

/// Threads that work with blocks of their own, and pass some on.
TEST(DebugAdaptor, threads_of_a_clean_program_hear_nothing) {
    cuda upstream;
    pool_memory_resource<cuda> pool{&upstream, 0};
    findings found;
    {
        debug_resource_adaptor<pool_memory_resource<cuda>> mr{&pool, found.options(with(true, 256 * KiB))};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 4; ++t) {
            threads.emplace_back([&mr, t] {
                std::mt19937 random{t};
                rmm::cuda_stream stream = rmm_test::non_blocking();
                std::vector<std::pair<void*, std::size_t>> blocks;
                for (int i = 0; i < 300; ++i) {
                    const std::size_t bytes = 1 + random() % 20000;
                    void* const ptr = mr.allocate(bytes, stream);
                    const unsigned char value = 3;
                    ASSERT_TRUE(driver().fill(ptr, &value, 1, bytes, {stream.value()}).ok());
                    blocks.emplace_back(ptr, bytes);
                    if (blocks.size() > 8) {
                        const std::size_t at = random() % blocks.size();
                        mr.deallocate(blocks[at].first, blocks[at].second, stream);
                        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
                    }
                    if (i % 100 == 99) mr.check();
                }
                for (const auto& [ptr, bytes] : blocks) mr.deallocate(ptr, bytes, stream);
            });
        }
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(mr.check(), 0u);
    }
    EXPECT_EQ(found.size(), 0u) << found[0].text;
}

}  // namespace
