// fixed_size, binning and arena: what tells them from a pool. What they share is in pool_*_test.cpp and the conformance
// suite.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fake_resource.hpp"
#include "recording_resource.hpp"
#include "rmm/aligned.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"
#include "temporary_folder.hpp"

template class rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::binning_memory_resource<rmm::mr::cuda_memory_resource>;
template class rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm;
using cuda = mr::cuda_memory_resource;
using fixed = mr::fixed_size_memory_resource<mr::device_memory_resource>;
using bins = mr::binning_memory_resource<mr::device_memory_resource>;
using arena = mr::arena_memory_resource<mr::device_memory_resource>;
using rmm_test::recording_resource;

template<typename F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

TEST(FixedSize, refusals_say_how_large_a_block_is) {
    recording_resource upstream;
    upstream.limit = 8 * KiB;
    fixed mr{&upstream, 4 * KiB, 2};
    const std::string too_large = message_of([&] { (void)mr.allocate(5 * KiB); });
    EXPECT_NE(too_large.find("was asked for 5.00 KiB (5120 bytes), and its blocks have 4.00 KiB (4096 bytes)"),
              std::string::npos)
        << too_large;
    EXPECT_NE(too_large.find("a larger block size, or a binning_memory_resource"), std::string::npos) << too_large;
    void* const both[] = {mr.allocate(100), mr.allocate(100)};
    const std::string full = message_of([&] { (void)mr.allocate(100, cuda_stream_legacy); });
    EXPECT_NE(full.find("was asked for 100 bytes, which takes a block of 4.00 KiB (4096 bytes), on the default stream"),
              std::string::npos)
        << full;
    for (void* const ptr : both) mr.deallocate(ptr, 100);
}

TEST(FixedSize, refuses_bad_arguments) {
    cuda upstream;
    EXPECT_THROW((mr::fixed_size_memory_resource<cuda>{static_cast<cuda*>(nullptr)}), rmm::logic_error);
    EXPECT_THROW((fixed{&upstream, 256, 0}), rmm::logic_error);
    EXPECT_THROW((fixed{&upstream, 0, 4}), rmm::logic_error);
    EXPECT_THROW((fixed{&upstream, std::size_t{1} << 62, 4}), rmm::logic_error);
    constexpr std::size_t most = ~std::size_t{0};
    EXPECT_THROW((fixed{&upstream, 1, most / 256}), rmm::logic_error) << "blocks of one byte take 256";
    EXPECT_THROW((fixed{&upstream, 1, most / 2}), rmm::logic_error);
    EXPECT_THROW((fixed{&upstream, most, 1}), rmm::logic_error);
}

TEST(FixedSize, every_request_takes_one_block_of_the_rounded_size) {
    recording_resource upstream;
    fixed pool{&upstream, 1000, 4};
    EXPECT_EQ(pool.get_block_size(), 1024u);
    EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{4096}));
    std::vector<void*> blocks;
    for (std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{1024}, std::size_t{2}})
        blocks.push_back(pool.allocate(bytes));
    EXPECT_EQ(upstream.asked().size(), 1u);
    blocks.push_back(pool.allocate(5));
    EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{4096, 4096}));
    EXPECT_THROW((void)pool.allocate(1025), rmm::out_of_memory);
    EXPECT_EQ(pool.allocate(0), nullptr);
    const std::size_t sizes[] = {1, 1000, 1024, 2, 5};
    for (std::size_t i = 0; i < blocks.size(); ++i) pool.deallocate(blocks[i], sizes[i]);
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
    EXPECT_EQ(pool.get_upstream(), &upstream);
    EXPECT_EQ(pool.get_upstream_resource(), device_async_resource_ref{upstream});
    EXPECT_TRUE(pool.supports_streams());
}

TEST(FixedSize, an_upstream_that_refuses_growth_leaves_it_usable) {
    recording_resource upstream;
    upstream.limit = 5000;
    fixed pool{&upstream, 1024, 4};
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool.allocate(1024));
    EXPECT_THROW((void)pool.allocate(1024), rmm::out_of_memory);
    pool.deallocate(blocks.back(), 1024);
    blocks.back() = pool.allocate(1024);
    EXPECT_NE(blocks.back(), nullptr);
    for (void* ptr : blocks) pool.deallocate(ptr, 1024);
}

TEST(FixedSize, large_blocks_fill_what_was_preallocated) {
    for (std::size_t block : {std::size_t{256}, 4 * KiB, 96 * KiB, 1 * MiB, 3 * MiB}) {
        recording_resource upstream;
        fixed pool{&upstream, block, 16};
        std::vector<void*> blocks;
        for (int i = 0; i < 16; ++i) blocks.push_back(pool.allocate(block));
        EXPECT_EQ(upstream.asked().size(), 1u) << block;
        for (void* ptr : blocks) pool.deallocate(ptr, block);
    }
}

TEST(Binning, refuses_bad_arguments) {
    cuda upstream;
    EXPECT_THROW((mr::binning_memory_resource<cuda>{static_cast<cuda*>(nullptr)}), rmm::logic_error);
    EXPECT_THROW((bins{&upstream, 4, 63}), rmm::logic_error);
    EXPECT_THROW((bins{&upstream, -1, 4}), rmm::logic_error);
    EXPECT_THROW((bins{&upstream, 9, 8}), rmm::logic_error);
    bins mr{&upstream};
    cuda of_the_program;
    EXPECT_THROW(mr.add_bin(~std::size_t{0}, &of_the_program), rmm::logic_error);
    EXPECT_THROW(mr.add_bin(~std::size_t{0} - 254), rmm::logic_error);
}

TEST(Binning, exponents_make_a_bin_for_each_power_of_two) {
    recording_resource upstream;
    bins mr{&upstream, 10, 12};
    EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{128 * KiB, 256 * KiB, 512 * KiB}));
    void* const a = mr.allocate(1000);
    void* const b = mr.allocate(4096);
    EXPECT_EQ(upstream.asked().size(), 3u);
    void* const c = mr.allocate(4097);
    EXPECT_EQ(upstream.allocations.back().bytes, 4097u);
    EXPECT_EQ(mr.allocate(0), nullptr);
    mr.deallocate(a, 1000);
    mr.deallocate(b, 4096);
    mr.deallocate(c, 4097);
    EXPECT_EQ(upstream.num_live(), 3u);
    EXPECT_EQ(mr.get_upstream(), &upstream);
}

TEST(Binning, bins_may_be_larger_than_an_int_can_say) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "AddressSanitizer cannot watch addresses that no process has";
#endif
    rmm_test::fake_resource upstream;
    constexpr std::size_t size = std::size_t{1} << 40;
    upstream.answers = {std::uintptr_t{1} << 20};
    {
        bins mr{&upstream, 40, 40};
        ASSERT_EQ(upstream.allocations.size(), 1u);
        EXPECT_EQ(upstream.allocations[0].bytes, 128 * size);
        void* const a = mr.allocate(size);
        void* const b = mr.allocate(size - 1);
        EXPECT_EQ(upstream.allocations.size(), 1u);
        EXPECT_NE(a, b);
        mr.deallocate(a, size);
        mr.deallocate(b, size - 1);
    }
    EXPECT_EQ(upstream.frees.size(), 1u);
    EXPECT_THROW((bins{&upstream, 62, 62}), std::exception);  // no address space holds a hundred of them
}

TEST(Binning, a_bin_of_the_callers_serves_its_size) {
    cuda upstream;
    recording_resource special;
    bins mr{&upstream};
    mr.add_bin(1000, &special);
    mr.add_bin(1024, &upstream);  // has one already
    void* const ptr = mr.allocate(512);
    EXPECT_EQ(special.asked(), (std::vector<std::size_t>{512}));
    mr.deallocate(ptr, 512);
    EXPECT_EQ(special.num_live(), 0u);
}

TEST(Binning, blocks_from_before_a_bin_was_added_go_back_where_they_came_from) {
    recording_resource upstream;
    bins mr{&upstream};
    void* const early = mr.allocate(512);
    recording_resource special;
    mr.add_bin(1024, &special);
    void* const late = mr.allocate(512);
    EXPECT_EQ(special.num_live(), 1u);
    mr.deallocate(early, 512);
    EXPECT_EQ(upstream.num_live(), 0u);
    EXPECT_EQ(special.num_live(), 1u);
    mr.deallocate(late, 512);
    EXPECT_EQ(special.num_live(), 0u);
}

TEST(Arena, refuses_bad_arguments) {
    cuda upstream;
    EXPECT_THROW((mr::arena_memory_resource<cuda>{static_cast<cuda*>(nullptr)}), rmm::logic_error);
    EXPECT_THROW((arena{&upstream, 256}), rmm::logic_error);
}

TEST(Arena, takes_one_block_and_never_grows) {
    recording_resource upstream;
    arena mr{&upstream, 4 * MiB + 100};
    EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{4 * MiB}));
    void* const all = mr.allocate(4 * MiB);
    const std::string text = message_of([&] { (void)mr.allocate(1); });
    EXPECT_NE(text.find("Maximum pool size exceeded"), std::string::npos) << text;
    EXPECT_NE(text.find("No room in arena."), std::string::npos) << text;
    EXPECT_EQ(upstream.asked().size(), 1u);
    mr.deallocate(all, 4 * MiB);
}

TEST(Arena, by_default_takes_half_of_the_free_memory) {
    recording_resource upstream;
    const std::size_t free_bytes = available_device_memory().first;
    const arena mr{&upstream};
    EXPECT_EQ(upstream.allocations.front().bytes, align_down(free_bytes / 2, 256));
}

TEST(Arena, may_have_ninety_percent_of_the_free_memory) {
    cuda upstream;
    const std::size_t most = percent_of_free_device_memory(90);
    arena mr{&upstream, most};
    mr.deallocate(mr.allocate(most), most);
}

TEST(Arena, holds_small_and_large_blocks_together) {
    cuda upstream;
    arena mr{&upstream};
    void* const small = mr.allocate(256);
    void* const large = mr.allocate(64 * MiB);
    const std::size_t third = available_device_memory().first / 3;
    void* const rest = mr.allocate(third);
    for (void* ptr : {small, large, rest}) EXPECT_TRUE(is_pointer_aligned(ptr));
    mr.deallocate(small, 256);
    mr.deallocate(large, 64 * MiB);
    mr.deallocate(rest, third);
    EXPECT_EQ(mr.statistics().in_use_bytes, 0u);
}

TEST(Arena, the_free_of_a_large_block_waits_for_nothing) {
    cuda upstream;
    arena mr{&upstream, 8 * MiB};
    const cuda_stream stream = rmm_test::non_blocking();
    rmm_test::gate g;
    void* const ptr = mr.allocate(4 * MiB, stream);
    g.close(stream);
    mr.deallocate(ptr, 4 * MiB, stream);  // would not return if it waited
    EXPECT_FALSE(rmm_test::is_idle(stream));
    g.open();
    stream.synchronize();
    mr.deallocate(mr.allocate(8 * MiB, stream), 8 * MiB, stream);
}

TEST(Arena, is_whole_again_after_frees_of_many_threads_and_streams) {
    cuda upstream;
    arena mr{&upstream, 4 * MiB};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            cuda_stream stream;
            void* const ptr = mr.allocate(32 * KiB, stream);
            mr.deallocate(ptr, 32 * KiB, stream);
        });
    }
    for (std::thread& t : threads) t.join();
    void* const all = mr.allocate(4 * MiB);
    EXPECT_NE(all, nullptr);
    mr.deallocate(all, 4 * MiB);
}

TEST(Arena, a_block_outlives_what_became_of_the_memory_around_it) {
    cuda upstream;
    arena mr{&upstream, 2 * MiB};
    void* const kept = mr.allocate(32 * KiB, cuda_stream_per_thread);
    EXPECT_THROW((void)mr.allocate(2 * MiB, cuda_stream_per_thread), rmm::out_of_memory);
    std::thread([&] {
        cuda_stream stream;
        void* const ptr = mr.allocate(1 * MiB, stream);
        mr.deallocate(ptr, 1 * MiB, stream);
    }).join();
    mr.deallocate(kept, 32 * KiB, cuda_stream_per_thread);
    void* const all = mr.allocate(2 * MiB, cuda_stream_per_thread);
    mr.deallocate(all, 2 * MiB, cuda_stream_per_thread);
}

TEST(Arena, reports_into_a_file_when_it_was_asked_to) {
    const rmm_test::temporary_folder folder;
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder / "");
    const char* file = "rmm_arena_memory_dump.log";
    {
        cuda upstream;
        const arena silent{&upstream, 1 * MiB};
        EXPECT_FALSE(std::filesystem::exists(file));
        arena mr{&upstream, 1 * MiB, true};
        EXPECT_TRUE(std::filesystem::exists(file));
        EXPECT_THROW((void)mr.allocate(8 * MiB), rmm::out_of_memory);
    }
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line, std::string(50, '*'));
    std::getline(in, line);
    EXPECT_EQ(line, "Ran out of memory trying to allocate 8.000000 MiB.");
    std::filesystem::current_path(before);
}

TEST(Pool, gives_memory_back_above_a_release_threshold) {
    recording_resource upstream;
    mr::pool_memory_resource<mr::device_memory_resource> pool{&upstream, 0};
    pool.set_release_threshold(1 * MiB);
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(1 * MiB));
    const std::size_t most = pool.pool_size();
    EXPECT_GE(most, 8 * MiB);
    for (void* ptr : blocks) pool.deallocate(ptr, 1 * MiB);
    EXPECT_LE(pool.pool_size(), most / 2);
}

}  // namespace
