// The pool of virtual memory: growth without a first guess, memory in pieces that is put together, memory that goes
// back.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "scripted_driver.hpp"
#include "stream_stress.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"
#include "uncovered_pieces.hpp"

namespace {

using namespace rmm;
using rmm_test::driver;
using rmm_test::foreign_stream;
using rmm_test::gate;
using rmm_test::non_blocking;
using kmm::driver::testing::ScriptedDriver;
using vmm = mr::vmm_memory_resource;

std::uint32_t first_word(const void* ptr, cuda_stream_view stream) {
    std::uint32_t word = 0;
    EXPECT_TRUE(driver().copy(&word, ptr, 4, {stream.value()}).ok());
    EXPECT_TRUE(driver().synchronize_stream({stream.value()}).ok());
    return word;
}

TEST(Vmm, takes_nothing_before_it_is_asked) {
    vmm mr;
    EXPECT_EQ(mr.pool_size(), 0u);
    EXPECT_EQ(mr.mappings().pieces_created, 0u);
    EXPECT_EQ(mr.allocate(0), nullptr);
    EXPECT_EQ(mr.pool_size(), 0u);
}

TEST(Vmm, refuses_a_maximum_of_nothing) { EXPECT_THROW(vmm{0}, rmm::logic_error); }

TEST(Vmm, holds_little_more_than_what_is_in_use) {
    vmm mr;
    cuda_stream stream = non_blocking();
    std::vector<void*> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(mr.allocate(5 * MiB, stream));
    EXPECT_LE(mr.pool_size(), 30 * 5 * MiB * 115 / 100);
    for (void* ptr : blocks) mr.deallocate(ptr, 5 * MiB, stream);
}

TEST(Vmm, blocks_of_a_stream_cross_its_granules) {
    vmm mr;
    cuda_stream stream = non_blocking();
    constexpr std::size_t bytes = 2 * MiB - 300 * 1024;
    std::vector<void*> blocks;
    for (int i = 0; i < 60; ++i) blocks.push_back(mr.allocate(bytes, stream));
    EXPECT_LE(mr.pool_size(), 60 * bytes * 115 / 100);
    for (void* ptr : blocks) mr.deallocate(ptr, bytes, stream);
    EXPECT_EQ(mr.statistics().in_use_bytes, 0u);
}

TEST(Vmm, a_stream_that_repeats_sizes_of_a_megabyte_looks_at_nothing_that_others_share) {
    mr::detail::virtual_source_options options;
    options.maximum_bytes = 200 * MiB;
    mr::detail::pool_engine pool(std::make_unique<mr::detail::virtual_source>(driver(), 0, options), {});
    cuda_stream stream = non_blocking();
    const cuda_stream_view view = stream;
    std::mt19937 random(2);
    std::vector<std::pair<void*, std::size_t>> live;
    const auto churn = [&](int count) {
        for (int i = 0; i < count; ++i) {
            const std::size_t bytes = 256 * (1 + random() % 8000);
            if (live.size() == 16) {
                std::swap(live[random() % 16], live.back());
                pool.free(live.back().first, live.back().second, {&view, 1});
                live.pop_back();
            }
            live.emplace_back(pool.allocate(bytes, view), bytes);
        }
    };
    churn(4000);
    const std::uint64_t before = pool.num_steps();
    churn(4000);
    EXPECT_LE(pool.num_steps() - before, 400u) << "the heap is asked when the stream needs more than ever before";
    for (const auto& [ptr, bytes] : live) pool.free(ptr, bytes, {&view, 1});
}

TEST(Vmm, a_request_is_made_of_what_is_free_and_what_others_leave_of_the_device_however_far_the_maximum_is) {
    ScriptedDriver scripted{{.num_devices = 1, .memory_bytes = 64 * MiB}};
    const rmm::detail::driver_scope on{scripted};
    mr::detail::pool_engine pool(std::make_unique<mr::detail::virtual_source>(scripted, 0), {});
    const foreign_stream stream(scripted);
    const cuda_stream_view view = stream.view();
    const auto free = [&](void* p, std::size_t bytes) { pool.free(p, bytes, {&view, 1}); };
    free(pool.allocate(60 * MiB, view), 60 * MiB);  // so much was in use: that may be taken before anything is moved
    (void)pool.trim(0);
    void* const first = pool.allocate(8 * MiB, view);
    void* const second = pool.allocate(8 * MiB, view);
    free(first, 8 * MiB);
    void* others = nullptr;
    ASSERT_TRUE(scripted.allocate(0, 37 * MiB + 1, &others).ok());
    void* const large = pool.allocate(18 * MiB, view);
    EXPECT_EQ(pool.held_bytes(), 26 * MiB) << "ten of eleven that are left are mapped";
    free(large, 18 * MiB);
    free(second, 8 * MiB);
    EXPECT_TRUE(scripted.free(others).ok());
}

/// Of 16 GiB of virtual memory.
struct large_pool {
    large_pool() {
        mr::detail::virtual_source_options options;
        options.maximum_bytes = maximum;
        mr::detail::pool_options limits;
        limits.maximum_bytes = maximum;
        limits.ordered_upstream = false;
        pool = std::make_unique<mr::detail::pool_engine>(
            std::make_unique<mr::detail::virtual_source>(scripted, 0, options), limits);
    }

    static constexpr std::size_t maximum = 16 * GiB;
    ScriptedDriver scripted{{.num_devices = 1, .memory_bytes = 20 * GiB}};
    const rmm::detail::driver_scope on{scripted};
    std::unique_ptr<mr::detail::pool_engine> pool;
};

TEST(Vmm, the_memory_of_a_stream_doubles_while_the_maximum_is_far) {
    large_pool large;
    const foreign_stream stream(large.scripted);
    for (int i = 0; i < 32 * 4; ++i) (void)large.pool->allocate(256 * KiB, stream.view());
    EXPECT_LE(large.pool->mappings().access_calls, 8u) << "and not one for each of 16 granules";
    EXPECT_LE(large.pool->held_bytes(), 64 * MiB);
}

TEST(Vmm, nothing_is_moved_for_a_small_request_while_there_is_room_for_what_it_needs) {
    large_pool large;
    mr::detail::pool_engine& pool = *large.pool;
    const foreign_stream small(large.scripted), other(large.scripted);
    const cuda_stream_view frees = other.view();
    // The stream's memory is full, and only a little fresh memory is left; large blocks are free.
    const auto fill = [&] {
        for (std::size_t held = pool.held_bytes(); pool.held_bytes() == held;)
            (void)pool.allocate(256 * KiB, small.view());
    };
    while (pool.held_bytes() < 16 * MiB) fill();
    std::vector<void*> blocks;
    while (pool.held_bytes() + 68 * MiB <= large_pool::maximum) blocks.push_back(pool.allocate(64 * MiB, other.view()));
    while (pool.held_bytes() + 12 * MiB <= large_pool::maximum) (void)pool.allocate(8 * MiB, other.view());
    for (int i = 2; i < 5; ++i) pool.free(blocks[i], 64 * MiB, {&frees, 1});
    ASSERT_LE(pool.held_bytes() + 2 * MiB, large_pool::maximum);
    const std::uint64_t moved = pool.mappings().moved_bytes;
    while (pool.held_bytes() + 2 * MiB <= large_pool::maximum) fill();
    EXPECT_EQ(pool.mappings().moved_bytes, moved);
}

TEST(Vmm, granules_of_streams_in_which_nothing_is_in_use_serve_large_requests) {
    vmm mr{64 * MiB};
    std::vector<cuda_stream> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(non_blocking());
    std::vector<std::vector<void*>> blocks(streams.size());
    for (std::size_t s = 0; s < streams.size(); ++s)
        for (int i = 0; i < 14; ++i) blocks[s].push_back(mr.allocate(MiB, streams[s]));
    // Of each stream the first stays, and keeps its granule.
    for (std::size_t s = 0; s < streams.size(); ++s)
        for (std::size_t i = 1; i < blocks[s].size(); ++i) mr.deallocate(blocks[s][i], MiB, streams[s]);
    void* const large = mr.allocate(52 * MiB, streams[0]);
    EXPECT_LE(mr.pool_size(), 64 * MiB);
    mr.deallocate(large, 52 * MiB, streams[0]);
    for (std::size_t s = 0; s < streams.size(); ++s) mr.deallocate(blocks[s][0], MiB, streams[s]);
    mr.trim();
    EXPECT_EQ(mr.pool_size(), 0u);
}

/// Requests of many streams that are large beside the share of each, while up to so much is in use.
struct crowded {
    int num_refused = 0;
    std::uint64_t num_moves = 0;
};
crowded crowd(std::size_t num_streams, std::size_t maximum_bytes, std::size_t most_live_bytes) {
    // Whose work is done at once, always.
    kmm::driver::testing::ScriptedDriver scripted({.memory_bytes = maximum_bytes + 64 * MiB});
    const rmm::detail::driver_scope on(scripted);
    vmm mr{maximum_bytes};
    std::vector<cuda_stream> streams;
    for (std::size_t i = 0; i < num_streams; ++i) streams.push_back(non_blocking());
    struct block {
        void* ptr;
        std::size_t bytes;
        std::size_t stream;
    };
    std::vector<block> live;
    std::size_t live_bytes = 0;
    const auto drop = [&](std::size_t i) {
        std::swap(live[i], live.back());
        mr.deallocate(live.back().ptr, live.back().bytes, streams[live.back().stream]);
        live_bytes -= live.back().bytes;
        live.pop_back();
    };
    std::mt19937 random(3);
    crowded result;
    for (int i = 0; i < 20000; ++i) {
        const std::size_t stream = random() % num_streams;
        const std::size_t bytes = (1 + random() % 19) * 100 * 1024;
        while (live_bytes + bytes > most_live_bytes) drop(random() % live.size());
        try {
            live.push_back({mr.allocate(bytes, streams[stream]), bytes, stream});
            live_bytes += bytes;
        } catch (const rmm::out_of_memory&) {
            ++result.num_refused;
        }
    }
    while (!live.empty()) drop(0);
    result.num_moves = mr.mappings().moves;
    return result;
}

TEST(Vmm, few_requests_are_refused_at_85_percent_where_they_are_large_beside_the_share_of_a_stream) {
    // Of 20 000; 596 and 1284 where each of the streams has to find room among its own blocks.
    for (const std::size_t num_streams : {std::size_t{16}, std::size_t{64}})
        EXPECT_LE(crowd(num_streams, 512 * MiB, 440 * MiB).num_refused, 100) << num_streams;
}

TEST(Vmm, next_to_nothing_is_moved_for_them_while_the_pool_may_grow) {
    for (const std::size_t num_streams : {std::size_t{16}, std::size_t{64}}) {
        const crowded result = crowd(num_streams, 512 * MiB, 300 * MiB);
        EXPECT_EQ(result.num_refused, 0) << num_streams;
        EXPECT_LE(result.num_moves, 20u) << num_streams;
    }
}

TEST(Vmm, blocks_of_many_streams_fill_the_maximum) {
    constexpr std::size_t limit = 200 * MiB, bytes = 1100 << 10;
    vmm mr{limit};
    std::vector<cuda_stream> streams;
    for (int i = 0; i < 8; ++i) streams.push_back(non_blocking());
    std::vector<void*> blocks;
    try {
        for (;;) blocks.push_back(mr.allocate(bytes, streams[blocks.size() % 8]));
    } catch (const rmm::out_of_memory&) {}
    // Each stream's granules touch, so that only its last one has a rest.
    EXPECT_GE(blocks.size() * bytes, limit * 93 / 100);
    for (std::size_t i = 0; i < blocks.size(); ++i) mr.deallocate(blocks[i], bytes, streams[i % 8]);
}

TEST(Vmm, streams_that_work_one_after_the_other_use_the_same_memory) {
    vmm mr{200 * MiB};
    std::vector<cuda_stream> streams;
    for (int i = 0; i < 6; ++i) streams.push_back(non_blocking());
    for (cuda_stream& s : streams) {
        std::vector<void*> blocks;
        for (int i = 0; i < 32; ++i) blocks.push_back(mr.allocate(MiB, s));
        for (void* ptr : blocks) mr.deallocate(ptr, MiB, s);
    }
    EXPECT_LE(mr.pool_size(), 60 * MiB) << "1.44 times 32 MiB, and a granule or two of each";
}

TEST(Vmm, a_large_free_gives_back_what_streams_keep_beyond_the_release_threshold) {
    vmm mr{200 * MiB};
    mr.set_release_threshold(16 * MiB);
    cuda_stream stream = non_blocking();
    for (const std::size_t bytes : {std::size_t{256} << 10, MiB, 2 * MiB}) {
        std::vector<void*> blocks;
        for (std::size_t i = 0; i < 160 * MiB / bytes; ++i) blocks.push_back(mr.allocate(bytes, stream));
        for (void* ptr : blocks) mr.deallocate(ptr, bytes, stream);
        mr.deallocate(mr.allocate(20 * MiB, stream), 20 * MiB, stream);
        EXPECT_LE(mr.pool_size(), 20 * MiB) << bytes;
    }
}

TEST(Vmm, arenas_of_many_streams_leave_addresses_for_large_requests) {
    vmm mr{240 * MiB};
    std::vector<foreign_stream> streams(100);
    std::vector<void*> blocks;
    for (const foreign_stream& s : streams) blocks.push_back(mr.allocate(64 << 10, s.view()));
    void* const large = mr.allocate(120 * MiB, streams[0].view());
    EXPECT_NE(large, nullptr);
    mr.deallocate(large, 120 * MiB, streams[0].view());
    for (std::size_t i = 0; i < streams.size(); ++i) mr.deallocate(blocks[i], 64 << 10, streams[i].view());
}

std::uintptr_t span_of(const void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr) / (2 * MiB); }

TEST(Vmm, each_stream_gets_a_span_of_its_own_with_its_first_small_request) {
    vmm mr{128 * MiB};
    foreign_stream a, b, c;
    // Leaves more of its span free than the small requests need.
    void* const large = mr.allocate(300 << 10, a.view());
    void* const first = mr.allocate(1024, b.view());
    mr.deallocate(first, 1024, b.view());
    void* const second = mr.allocate(1024, c.view());
    EXPECT_NE(span_of(first), span_of(large));
    EXPECT_NE(span_of(second), span_of(first));
    EXPECT_EQ(mr.allocate(1024, b.view()), first);
    EXPECT_EQ(mr.pool_size(), 6 * MiB);
    mr.deallocate(first, 1024, b.view());
    mr.deallocate(second, 1024, c.view());
    mr.deallocate(large, 300 << 10, a.view());
}

TEST(Vmm, spans_of_streams_leave_a_small_maximum_to_large_requests) {
    vmm mr{64 * MiB};
    std::vector<foreign_stream> streams(16);
    std::vector<void*> small;
    void* const first = mr.allocate(300 << 10, streams[0].view());
    for (const foreign_stream& s : streams) small.push_back(mr.allocate(1024, s.view()));
    void* const large = mr.allocate(48 * MiB, streams[0].view());
    EXPECT_NE(large, nullptr);
    mr.deallocate(large, 48 * MiB, streams[0].view());
    for (std::size_t i = 0; i < streams.size(); ++i) mr.deallocate(small[i], 1024, streams[i].view());
    mr.deallocate(first, 300 << 10, streams[0].view());
}

TEST(Vmm, puts_free_memory_together_that_is_in_pieces) {
    vmm mr{100 * MiB};
    cuda_stream stream = non_blocking();
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
        blocks.push_back(mr.allocate(10 * MiB, stream));
        const auto value = static_cast<std::uint32_t>(i);
        ASSERT_TRUE(driver().fill(blocks.back(), &value, 4, 10 * MiB / 4, {stream.value()}).ok());
    }
    for (std::size_t i = 0; i < 10; i += 2) mr.deallocate(blocks[i], 10 * MiB, stream);
    EXPECT_EQ(mr.statistics().free_bytes, 50 * MiB);
    void* const large = mr.allocate(40 * MiB, stream);
    EXPECT_GE(mr.mappings().moves, 1u);
    const std::uint32_t other = 99;
    ASSERT_TRUE(driver().fill(large, &other, 4, 40 * MiB / 4, {stream.value()}).ok());
    for (std::size_t i = 1; i < 10; i += 2) {
        EXPECT_EQ(first_word(blocks[i], stream), i);
        EXPECT_EQ(first_word(static_cast<char*>(blocks[i]) + 10 * MiB - 4, stream), i);
        mr.deallocate(blocks[i], 10 * MiB, stream);
    }
    EXPECT_EQ(first_word(static_cast<char*>(large) + 40 * MiB - 4, stream), 99u);
    mr.deallocate(large, 40 * MiB, stream);
    EXPECT_EQ(mr.statistics().in_use_bytes, 0u);
    EXPECT_LE(mr.pool_size(), 100 * MiB);
}

TEST(Vmm, waits_for_the_users_of_what_it_moves) {
    vmm mr{64 * MiB};
    cuda_stream a = non_blocking();
    cuda_stream b = non_blocking();
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(mr.allocate(16 * MiB, a));
    // Work on memory that will be moved, queued behind what opens only later.
    auto g = std::make_unique<gate>();
    g->close(a);
    const std::uint32_t value = 7;
    ASSERT_TRUE(driver().fill(blocks[0], &value, 4, 16 * MiB / 4, {a.value()}).ok());
    mr.deallocate(blocks[0], 16 * MiB, a);
    mr.deallocate(blocks[2], 16 * MiB, a);
    std::thread opener([&] { g->open(); });
    void* const large = mr.allocate(32 * MiB, b);
    EXPECT_NE(large, nullptr);
    opener.join();
    mr.deallocate(large, 32 * MiB, b);
    mr.deallocate(blocks[1], 16 * MiB, a);
    mr.deallocate(blocks[3], 16 * MiB, a);
}

TEST(Vmm, what_only_the_whole_device_covers_is_waited_for_where_nothing_else_is_left) {
    for (const bool device_events : {true, false}) {
        rmm_test::uncovered_pieces pieces(device_events, 64 * MiB);
        mr::detail::refusal why;
        void* const large = pieces.pool().try_allocate(24 * MiB, pieces.other(), &why);
        EXPECT_NE(large, nullptr) << why.reason;
        EXPECT_GE(pieces.num_waits(), 1);
        EXPECT_FALSE(pieces.is_busy()) << "memory was moved that is in use";
        const cuda_stream_view other = pieces.other();
        if (large != nullptr) pieces.pool().free(large, 24 * MiB, {&other, 1});
    }
}

TEST(Vmm, what_a_block_leaves_of_a_physical_piece_can_be_moved_when_memory_is_scarce) {
    vmm mr{64 * MiB};
    cuda_stream stream = non_blocking();
    void* const most = mr.allocate(52 * MiB, stream);
    void* const other = mr.allocate(4 * MiB, stream);
    void* const piece = mr.allocate(8 * MiB, stream);
    mr.deallocate(piece, 8 * MiB, stream);
    void* const part = mr.allocate(3 * MiB, stream);
    EXPECT_EQ(part, piece);
    mr.deallocate(other, 4 * MiB, stream);
    void* const both = mr.allocate(8 * MiB, stream);
    const std::uint32_t value = 7;
    ASSERT_TRUE(driver().fill(both, &value, 4, 8 * MiB / 4, {stream.value()}).ok());
    EXPECT_EQ(first_word(static_cast<char*>(both) + 8 * MiB - 4, stream), 7u);
    mr.deallocate(both, 8 * MiB, stream);
    mr.deallocate(part, 3 * MiB, stream);
    mr.deallocate(most, 52 * MiB, stream);
    EXPECT_EQ(mr.statistics().in_use_bytes, 0u);
    mr.trim();
    EXPECT_EQ(mr.pool_size(), 0u);
}

TEST(Vmm, a_program_that_repeats_what_it_does_maps_nothing) {
    vmm mr;
    cuda_stream stream = non_blocking();
    const auto round = [&] {
        std::vector<std::pair<void*, std::size_t>> blocks;
        for (std::size_t bytes : {3 * MiB, 20 * MiB, std::size_t{1000}, 7 * MiB, std::size_t{300000}})
            blocks.emplace_back(mr.allocate(bytes, stream), bytes);
        for (const auto& [ptr, bytes] : blocks) mr.deallocate(ptr, bytes, stream);
    };
    for (int i = 0; i < 3; ++i) round();
    const mr::mapping_counts before = mr.mappings();
    for (int i = 0; i < 100; ++i) round();
    EXPECT_EQ(mr.mappings().pieces_mapped, before.pieces_mapped);
    EXPECT_EQ(mr.mappings().pieces_unmapped, before.pieces_unmapped);
}

TEST(Vmm, a_program_that_repeats_what_it_does_where_memory_is_scarce_maps_nothing) {
    vmm mr{128 * MiB};
    cuda_stream stream = non_blocking();
    void* const rest = mr.allocate(80 * MiB, stream);
    std::mt19937 random(3);
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 7; ++i) sizes.push_back(3 * MiB + 256 * (random() % 12000));
    const auto round = [&] {
        std::vector<void*> blocks;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            blocks.push_back(mr.allocate(sizes[i], stream));
            if (i % 3 != 2) continue;
            mr.deallocate(blocks[i - 1], sizes[i - 1], stream);
            blocks[i - 1] = mr.allocate(sizes[i - 1] - 2 * MiB, stream);
        }
        for (std::size_t i = 0; i < sizes.size(); ++i)
            mr.deallocate(blocks[i], i % 3 == 1 ? sizes[i] - 2 * MiB : sizes[i], stream);
    };
    for (int i = 0; i < 10; ++i) round();
    const mr::mapping_counts before = mr.mappings();
    for (int i = 0; i < 100; ++i) round();
    EXPECT_EQ(mr.mappings().pieces_mapped, before.pieces_mapped);
    EXPECT_EQ(mr.mappings().pieces_unmapped, before.pieces_unmapped);
    mr.deallocate(rest, 80 * MiB, stream);
}

TEST(Vmm, gives_memory_back) {
    const std::size_t before = available_device_memory().first;
    vmm mr;
    cuda_stream stream = non_blocking();
    void* const small = mr.allocate(1000, stream);
    void* const large = mr.allocate(50 * MiB, stream);
    mr.deallocate(large, 50 * MiB, stream);
    EXPECT_GE(mr.trim(), 50 * MiB - 2 * MiB);
    EXPECT_GE(available_device_memory().first, before - 16 * MiB);
    mr.deallocate(small, 1000, stream);
    mr.trim();
    EXPECT_EQ(mr.pool_size(), 0u);
    EXPECT_EQ(available_device_memory().first, before);
    mr.set_release_threshold(8 * MiB);
    for (int i = 0; i < 3; ++i) {
        void* const again = mr.allocate(40 * MiB, stream);
        mr.deallocate(again, 40 * MiB, stream);
        EXPECT_LE(mr.pool_size(), 16 * MiB);
    }
}

TEST(Vmm, says_who_was_asked_for_what_when_it_is_exhausted) {
    vmm mr{32 * MiB};
    mr.set_name("frames");
    void* const half = mr.allocate(16 * MiB);
    try {
        (void)mr.allocate(20 * MiB);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("pool \"frames\""), std::string::npos) << text;
        EXPECT_NE(text.find("Not enough room to grow"), std::string::npos) << text;
        EXPECT_EQ(text.find("in pieces"), std::string::npos) << text;
    }
    EXPECT_THROW((void)mr.allocate(std::size_t{1} << 50), rmm::out_of_memory);
    mr.deallocate(half, 16 * MiB);
    void* const whole = mr.allocate(32 * MiB);
    mr.deallocate(whole, 32 * MiB);
}

TEST(Vmm, no_byte_is_ever_in_two_hands_while_threads_and_streams_come_and_go) {
    vmm mr{96 * MiB};
    EXPECT_EQ(rmm_test::count_wrong_words(mr, 4, 2000, 16384), 0);
    EXPECT_EQ(mr.statistics().in_use_bytes, 0u);
    mr.trim();
    EXPECT_EQ(mr.pool_size(), 0u);
}

TEST(Vmm, almost_all_of_its_maximum_can_be_in_use_after_a_long_churn) {
    constexpr std::size_t limit = 200 * MiB;
    vmm mr{limit};
    cuda_stream stream = non_blocking();
    std::mt19937 random(5);
    std::vector<std::pair<void*, std::size_t>> live;
    std::size_t in_use = 0;
    const auto size = [&] { return 256 * (1 + random() % (std::size_t{1} << (random() % 15))); };
    const auto drop = [&] {
        std::swap(live[random() % live.size()], live.back());
        mr.deallocate(live.back().first, live.back().second, stream);
        in_use -= live.back().second;
        live.pop_back();
    };
    for (int step = 0; step < 4000; ++step) {
        const std::size_t bytes = size();
        if (in_use + bytes < limit / 2) {
            live.emplace_back(mr.allocate(bytes, stream), bytes);
            in_use += bytes;
        } else {
            drop();
        }
    }
    try {
        for (;;) {
            if (random() % 5 < 2) {
                drop();
                continue;
            }
            const std::size_t bytes = size();
            live.emplace_back(mr.allocate(bytes, stream), bytes);
            in_use += bytes;
        }
    } catch (const rmm::out_of_memory&) {}
    // A piece is 2 MiB here and a request up to 4: what no piece fills is a larger share than in a pool of gigabytes.
    EXPECT_GE(in_use, limit * 80 / 100);
    while (!live.empty()) drop();
}

}  // namespace
