// aligned_resource_adaptor: what reaches upstream, and which address comes back.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "fake_resource.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"

namespace {

using namespace rmm::mr;
using rmm_test::at;
using rmm_test::fake_resource;

using aligned = aligned_resource_adaptor<fake_resource>;

TEST(AlignedAdaptor, refuses_alignments_that_are_no_power_of_two) {
    fake_resource upstream;
    EXPECT_THROW((aligned{&upstream, 255}), rmm::logic_error);
    EXPECT_THROW((aligned{&upstream, 768}), rmm::logic_error);
    EXPECT_THROW((aligned{&upstream, 0}), rmm::logic_error);
    EXPECT_NO_THROW((aligned{&upstream, 256}));
}

TEST(AlignedAdaptor, is_made_from_an_object_too) {
    fake_resource upstream;
    aligned adaptor{upstream, 4096};
    EXPECT_EQ(adaptor.get_upstream_resource(), rmm::device_async_resource_ref{upstream});
    EXPECT_EQ(aligned::default_alignment_threshold, 0u);
}

TEST(AlignedAdaptor, passes_everything_through_by_default) {
    fake_resource upstream;
    upstream.answers = {123 * 256};
    aligned adaptor{&upstream};
    rmm::cuda_stream_view const stream = rmm::cuda_stream_per_thread;
    EXPECT_EQ(adaptor.allocate(5, stream), at(123 * 256));
    adaptor.deallocate(at(123 * 256), 5, stream);
    EXPECT_EQ(upstream.allocations[0].bytes, 5u);
    EXPECT_EQ(upstream.frees[0].bytes, 5u);
    EXPECT_EQ(upstream.frees[0].ptr, at(123 * 256));
    EXPECT_EQ(upstream.frees[0].stream, stream);
}

TEST(AlignedAdaptor, passes_what_is_below_the_threshold_through) {
    fake_resource upstream;
    upstream.answers = {256, 512};
    aligned adaptor{&upstream, 4096, 65536};
    EXPECT_EQ(adaptor.allocate(3), at(256));
    EXPECT_EQ(adaptor.allocate(65528), at(512));
    adaptor.deallocate(at(256), 3);
    adaptor.deallocate(at(512), 65528);
    EXPECT_EQ(upstream.allocations[0].bytes, 3u);
    EXPECT_EQ(upstream.allocations[1].bytes, 65528u);
    EXPECT_EQ(upstream.frees[1].bytes, 65528u);
}

TEST(AlignedAdaptor, asks_for_enough_to_find_an_aligned_address) {
    fake_resource upstream;
    aligned adaptor{&upstream, 4096};
    const std::size_t sizes[][2] = {{1000, 7936}, {65536, 69376}, {73728, 77568}, {77800, 81664}};
    for (const auto& [asked, expected] : sizes) {
        void* const ptr = adaptor.allocate(asked);
        EXPECT_NE(ptr, nullptr);
        EXPECT_EQ(upstream.allocations.back().bytes, expected) << asked;
        adaptor.deallocate(ptr, asked);
        EXPECT_EQ(upstream.frees.back().bytes, expected) << asked;
    }
}

TEST(AlignedAdaptor, passes_zero_bytes_on_so_that_no_block_has_their_address) {
    fake_resource upstream;
    upstream.answers = {256, 4096 + 256};
    aligned adaptor{&upstream, 4096};
    void* const nothing = adaptor.allocate(0);
    EXPECT_EQ(nothing, at(256));
    EXPECT_EQ(upstream.allocations.back().bytes, 0u);
    adaptor.deallocate(nothing, 0);
    EXPECT_EQ(upstream.frees.back().ptr, at(256));
    EXPECT_EQ(upstream.frees.back().bytes, 0u);
}

TEST(AlignedAdaptor, a_request_of_zero_bytes_never_has_the_address_of_a_block) {
    cuda_memory_resource cuda;
    pool_memory_resource<cuda_memory_resource> pool{&cuda, 16 << 20, 16 << 20};
    aligned_resource_adaptor<pool_memory_resource<cuda_memory_resource>> adaptor{&pool, 4096};
    std::vector<std::pair<void*, std::size_t>> live;
    std::mt19937 random(1);
    for (int i = 0; i < 500; ++i) {
        const std::size_t bytes = random() % 2 == 0 ? 0 : 1 + random() % 8000;
        live.emplace_back(adaptor.allocate(bytes), bytes);
        std::swap(live[random() % live.size()], live.back());
        if (random() % 3 != 0) continue;
        adaptor.deallocate(live.back().first, live.back().second);
        live.pop_back();
    }
    std::set<void*> with_bytes;
    for (auto [ptr, bytes] : live) {
        if (bytes != 0) {
            EXPECT_TRUE(with_bytes.insert(ptr).second);
        }
    }
    for (auto [ptr, bytes] : live) {
        if (bytes == 0) {
            EXPECT_EQ(with_bytes.count(ptr), 0u);
        }
    }
    for (auto [ptr, bytes] : live) adaptor.deallocate(ptr, bytes);
    EXPECT_EQ(pool.statistics().num_blocks, 0u);
}

TEST(AlignedAdaptor, gives_the_first_aligned_address_and_returns_what_upstream_gave) {
    fake_resource upstream;
    upstream.answers = {4096, 256, 131584, 263168};
    aligned adaptor{&upstream, 4096, 65536};
    EXPECT_EQ(adaptor.allocate(65536), at(4096));
    adaptor.deallocate(at(4096), 65536);
    EXPECT_EQ(upstream.frees.back().ptr, at(4096));
    EXPECT_EQ(upstream.frees.back().bytes, 69376u);

    EXPECT_EQ(adaptor.allocate(65536), at(4096));
    EXPECT_EQ(adaptor.allocate(73728), at(135168));
    EXPECT_EQ(adaptor.allocate(77800), at(266240));
    adaptor.deallocate(at(266240), 77800);
    EXPECT_EQ(upstream.frees.back().ptr, at(263168));
    EXPECT_EQ(upstream.frees.back().bytes, 81664u);
    adaptor.deallocate(at(4096), 65536);
    EXPECT_EQ(upstream.frees.back().ptr, at(256));
    adaptor.deallocate(at(135168), 73728);
    EXPECT_EQ(upstream.frees.back().ptr, at(131584));
    EXPECT_EQ(upstream.frees.back().bytes, 77568u);
}

TEST(AlignedAdaptor, aligns_real_memory) {
    cuda_memory_resource cuda;
    aligned_resource_adaptor adaptor{&cuda, 4096};
    std::vector<void*> blocks;
    for (int i = 0; i < 20; ++i) {
        blocks.push_back(adaptor.allocate(65536));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % 4096, 0u);
    }
    for (void* block : blocks) adaptor.deallocate(block, 65536);
}

TEST(AlignedAdaptor, small_alignments_still_give_256) {
    cuda_memory_resource cuda;
    for (std::size_t alignment : {1u, 32u, 64u, 128u}) {
        aligned_resource_adaptor adaptor{&cuda, alignment};
        void* const ptr = adaptor.allocate(100);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 256, 0u);
        adaptor.deallocate(ptr, 100);
    }
}

TEST(AlignedAdaptor, sizes_beyond_the_address_space_are_out_of_memory) {
    fake_resource upstream;
    aligned adaptor{&upstream, 4096};
    EXPECT_THROW(adaptor.allocate(~std::size_t{0} - 100), rmm::out_of_memory);
    EXPECT_TRUE(upstream.allocations.empty());
    (void)adaptor.allocate(~std::size_t{0} - 4095);
    EXPECT_EQ(upstream.allocations.back().bytes, ~std::size_t{0} - 255);
}

TEST(AlignedAdaptor, is_equal_only_with_the_same_effective_parameters) {
    fake_resource upstream;
    EXPECT_TRUE((aligned{&upstream, 64}.is_equal(aligned{&upstream, 256})));  // both mean 256
    EXPECT_FALSE((aligned{&upstream, 512}.is_equal(aligned{&upstream, 256})));
    EXPECT_TRUE((aligned{&upstream, 512, 10}.is_equal(aligned{&upstream, 512, 10})));
    EXPECT_FALSE((aligned{&upstream, 512, 10}.is_equal(aligned{&upstream, 512, 20})));
}

/// The address of a freed block is another thread's at once: the record of the old one must be gone by then.
TEST(AlignedAdaptor, threads_that_get_one_anothers_addresses_do_not_mix_them_up) {
    cuda_memory_resource cuda;
    aligned_resource_adaptor adaptor{&cuda, 1 << 16};
    std::vector<std::thread> threads;
    std::atomic<int> num_wrong{0};
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 500; ++i) {
                void* const ptr = adaptor.allocate(100);
                if (reinterpret_cast<std::uintptr_t>(ptr) % (1 << 16) != 0) ++num_wrong;
                adaptor.deallocate(ptr, 100);
            }
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(num_wrong, 0);
}

}  // namespace
