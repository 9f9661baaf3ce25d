// RMM_DEBUG: its words, and that every pool behaves as it says.
#include <gtest/gtest.h>

#include <string>

#include "debug_tools.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/debug/pool_debugging.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm::mr;
using detail::parse_debug_environment;
using rmm_test::contains;
using rmm_test::debug_variable;
using rmm_test::peek;
using rmm_test::poke;
using cuda = cuda_memory_resource;

// AddressSanitizer watches pools itself, and would end this process at the defects that are planted here.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool watched = true;
#else
constexpr bool watched = false;
#endif

template<typename Pool>
detail::block_checker& checker_of(Pool& pool) {
    return *pool.implementation().debugging()->checker();
}

/// What goes to stderr while the function runs.
template<typename F>
std::string stderr_of(F&& f) {
    testing::internal::CaptureStderr();
    f();
    return testing::internal::GetCapturedStderr();
}

TEST(DebugVariable, zero_and_nothing_are_off_and_one_is_the_usual) {
    EXPECT_FALSE(parse_debug_environment("").enabled);
    EXPECT_FALSE(parse_debug_environment("0").enabled);
    const detail::debug_environment usual = parse_debug_environment("1");
    EXPECT_TRUE(usual.enabled);
    EXPECT_FALSE(usual.nvtx);
    EXPECT_EQ(usual.options.red_zone_bytes, 256u);
    EXPECT_TRUE(usual.options.fill);
    EXPECT_EQ(usual.options.quarantine_bytes, 64 * MiB);
    EXPECT_TRUE(usual.options.report_leaks);
    EXPECT_FALSE(usual.options.stacks);
    EXPECT_FALSE(usual.options.synchronous);
}

TEST(DebugVariable, a_list_turns_on_what_it_names) {
    const detail::debug_environment some = parse_debug_environment("redzones=4KiB,stacks,quarantine=1MB,sync");
    EXPECT_EQ(some.options.red_zone_bytes, 4 * KiB);
    EXPECT_EQ(some.options.quarantine_bytes, 1000000u);
    EXPECT_TRUE(some.options.stacks);
    EXPECT_TRUE(some.options.synchronous);
    EXPECT_FALSE(some.options.fill);
    EXPECT_FALSE(some.options.report_leaks);
    const detail::debug_environment more = parse_debug_environment("quarantine=1MiB,1,stacks");
    EXPECT_EQ(more.options.quarantine_bytes, MiB);
    EXPECT_TRUE(more.options.fill && more.options.report_leaks && more.options.stacks);
    const detail::debug_environment tool = parse_debug_environment("nvtx");
    EXPECT_TRUE(tool.nvtx);
    EXPECT_EQ(tool.options.red_zone_bytes, 256u);
    EXPECT_FALSE(tool.options.fill);
}

TEST(DebugVariable, unknown_words_are_refused_with_those_that_are_known) {
    for (const char* wrong :
         {"red", "1,,", "fill=3", "quarantine=", "quarantine=x", "redzones=50%", "redzones=2MiB", "yes"}) {
        try {
            parse_debug_environment(wrong);
            FAIL() << wrong;
        } catch (const rmm::logic_error& e) {
            const std::string text = e.what();
            EXPECT_TRUE(contains(text, std::string("RMM_DEBUG is \"") + wrong + "\"")) << text;
            for (const char* word : {"redzones", "fill", "quarantine=SIZE", "leaks", "stacks", "sync", "nvtx"})
                EXPECT_TRUE(contains(text, word)) << text;
        }
    }
    const debug_variable variable{"yes"};
    cuda upstream;
    EXPECT_THROW((pool_memory_resource<cuda>{&upstream, MiB}), rmm::logic_error);
    EXPECT_THROW(vmm_memory_resource{}, rmm::logic_error);
}

TEST(DebugPools, nothing_stands_in_a_pool_where_the_variable_is_off) {
    const debug_variable variable{"0"};
    cuda upstream;
    pool_memory_resource<cuda> pool{&upstream, MiB};
    EXPECT_EQ(pool.implementation().debugging() != nullptr, watched);
    void* const ptr = pool.allocate(1000);
    EXPECT_EQ(pool.statistics().in_use_bytes, 1024u);
    pool.deallocate(ptr, 1000);
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
}

TEST(DebugPools, a_pool_finds_a_write_past_the_end) {
    if (watched) GTEST_SKIP() << "AddressSanitizer ends the process at such a write";
    const debug_variable variable{"1"};
    cuda upstream;
    pool_memory_resource<cuda> pool{&upstream, MiB};
    const std::string text = stderr_of([&] {
        void* const ptr = pool.allocate(1000);
        EXPECT_EQ(peek(ptr, 8), std::vector<unsigned char>(8, 0xc5));
        poke(ptr, 1003, 9);
        pool.deallocate(ptr, 1000);
        checker_of(pool).check();
    });
    EXPECT_TRUE(contains(text, "rmm: debug: a write past the end of a block of a pool_memory_resource")) << text;
    EXPECT_TRUE(contains(text, "byte 1003 (3 bytes past its end")) << text;
    EXPECT_TRUE(contains(text, "is 0x9 and should be 0xfb")) << text;
    EXPECT_EQ(checker_of(pool).counts().total(), 1u);
}

TEST(DebugPools, a_pool_finds_writes_after_free_double_frees_wrong_sizes_and_leaks) {
    if (watched) GTEST_SKIP() << "AddressSanitizer ends the process at such a write";
    const debug_variable variable{"1"};
    cuda upstream;
    const std::string text = stderr_of([&] {
        pool_memory_resource<cuda> pool{&upstream, MiB};
        void* const ptr = pool.allocate(1000);
        pool.deallocate(ptr, 1001);
        pool.deallocate(ptr, 1000);
        poke(ptr, 0, 1);
        (void)pool.allocate(77);
    });
    EXPECT_TRUE(contains(text, "a block was freed with a wrong size")) << text;
    EXPECT_TRUE(contains(text, "a block was freed twice")) << text;
    EXPECT_TRUE(contains(text, "a write into a block after it was freed")) << text;
    EXPECT_TRUE(contains(text, "a block is still in use at the end of a pool_memory_resource")) << text;
    EXPECT_TRUE(contains(text, "of 77 bytes")) << text;
}

TEST(DebugPools, every_kind_of_pool_does_so) {
    if (watched) GTEST_SKIP() << "AddressSanitizer ends the process at such a write";
    const debug_variable variable{"redzones"};
    cuda upstream;
    const auto text_of = [](device_memory_resource& mr) {
        void* const ptr = mr.allocate(500);
        poke(ptr, 500, 1);
        mr.deallocate(ptr, 500);
    };
    const auto expect_found = [](const std::string& text, const char* name) {
        EXPECT_TRUE(contains(text, std::string("a write past the end of a block of a ") + name)) << text;
    };
    expect_found(stderr_of([&] {
                     arena_memory_resource<cuda> arena{&upstream, 2 * MiB};
                     text_of(arena);
                 }),
                 "arena_memory_resource");
    expect_found(stderr_of([&] {
                     fixed_size_memory_resource<cuda> fixed{&upstream, 512, 4};
                     text_of(fixed);
                 }),
                 "fixed_size_memory_resource");
    expect_found(stderr_of([&] {
                     binning_memory_resource<cuda> bins{&upstream, 8, 10};
                     text_of(bins);
                 }),
                 "fixed_size_memory_resource");
    expect_found(stderr_of([&] {
                     vmm_memory_resource vmm;
                     text_of(vmm);
                 }),
                 "vmm_memory_resource");
}

TEST(DebugPools, blocks_of_one_size_keep_their_size_for_users) {
    const debug_variable variable{"1"};
    cuda upstream;
    fixed_size_memory_resource<cuda> fixed{&upstream, 4 * KiB, 4};
    EXPECT_EQ(fixed.get_block_size(), 4 * KiB);
    void* const ptr = fixed.allocate(4 * KiB);
    EXPECT_THROW(fixed.allocate(4 * KiB + 1), rmm::out_of_memory);
    fixed.deallocate(ptr, 4 * KiB);
}

TEST(DebugPools, a_full_pool_takes_back_what_the_quarantine_holds) {
    const debug_variable variable{"1"};
    cuda upstream;
    pool_memory_resource<cuda> pool{&upstream, MiB, MiB};
    for (int i = 0; i < 20; ++i) {
        rmm::cuda_stream stream = rmm_test::non_blocking();
        rmm::device_buffer buffer{800 * KiB, stream, &pool};
    }
    EXPECT_EQ(checker_of(pool).check(), 0u);
}

}  // namespace
