// What pools give and take without a wait and without a call of the driver, for callers that hold a lock of another
// library.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "debug_tools.hpp"
#include "forwarding_driver.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/status.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using cuda = mr::cuda_memory_resource;
using pool = mr::pool_memory_resource<cuda>;
using rmm_test::debug_variable;
using rmm_test::non_blocking;

class counting_driver final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    std::atomic<std::size_t> num_calls{0};

  protected:
    void called(const char*) noexcept override { ++num_calls; }
};

/// Where a tool watches pools (AddressSanitizer), it is told of each block: nothing is at hand.
#define SKIP_IF_WATCHED(p) \
    if ((p).debugging() != nullptr) GTEST_SKIP() << "a tool is told of each block"

/// From now on the stream's arena has memory.
void warm_up(mr::detail::pool& p, cuda_stream_view stream = {}) { p.deallocate(p.allocate(KiB, stream), KiB, stream); }

TEST(PoolAtHand, small_blocks_of_the_default_stream_need_no_call_of_the_driver) {
    counting_driver driver(rmm::detail::the_driver());
    const rmm::detail::driver_scope scope(driver);
    cuda upstream;
    pool of_upstream{&upstream, 64 * MiB};
    mr::vmm_memory_resource vmm{64 * MiB};
    for (mr::detail::pool* const p : {&of_upstream.implementation(), &vmm.implementation()}) {
        SKIP_IF_WATCHED(*p);
        warm_up(*p);
        const std::size_t before = driver.num_calls;
        std::vector<void*> blocks;
        // An event that is due is recorded by a free that may call the driver: it is not due yet.
        for (const cuda_stream_view stream : {cuda_stream_view{}, cuda_stream_legacy}) {
            void* const ptr = p->allocate_at_hand(1000, stream);
            ASSERT_NE(ptr, nullptr);
            EXPECT_EQ(std::count(blocks.begin(), blocks.end(), ptr), 0);
            blocks.push_back(ptr);
        }
        EXPECT_TRUE(p->deallocate_at_hand(blocks[0], 1000, cuda_stream_legacy));
        EXPECT_TRUE(p->deallocate_at_hand(blocks[1], 1000, cuda_stream_view{}));
        EXPECT_EQ(driver.num_calls, before);
        EXPECT_EQ(p->statistics().num_blocks, 0u);
    }
}

TEST(PoolAtHand, what_is_given_counts_and_goes_back_either_way) {
    cuda upstream;
    pool owner{&upstream, 64 * MiB};
    mr::detail::pool& p = owner.implementation();
    SKIP_IF_WATCHED(p);
    warm_up(p);
    void* const a = p.allocate_at_hand(1000, {});
    void* const b = p.allocate(1000, {});
    ASSERT_NE(a, nullptr);
    EXPECT_NE(a, b);
    EXPECT_EQ(p.statistics().num_blocks, 2u);
    EXPECT_EQ(p.statistics().in_use_bytes, 2 * KiB);
    p.deallocate(a, 1000, {});
    EXPECT_TRUE(p.deallocate_at_hand(b, 1000, {}));
    EXPECT_EQ(p.statistics().in_use_bytes, 0u);
}

TEST(PoolAtHand, whatever_needs_more_is_refused_with_nothing_done) {
    cuda upstream;
    pool owner{&upstream, 64 * MiB};
    mr::detail::pool& p = owner.implementation();
    EXPECT_EQ(p.allocate_at_hand(1000, {}), nullptr) << "no arena has memory yet";
    warm_up(p);
    const cuda_stream own = non_blocking();
    warm_up(p, own);
    for (const std::size_t bytes : {std::size_t{0}, 32 * MiB, 1024 * MiB, ~std::size_t{0}})
        EXPECT_EQ(p.allocate_at_hand(bytes, {}), nullptr) << bytes;
    EXPECT_EQ(p.allocate_at_hand(1000, own), nullptr);
    EXPECT_EQ(p.allocate_at_hand(1000, cuda_stream_per_thread), nullptr);
    EXPECT_EQ(p.statistics().num_blocks, 0u);

    void* const of_default = p.allocate(1000, {});
    void* const of_own = p.allocate(1000, own);
    void* const large = p.allocate(32 * MiB, {});
    testing::internal::CaptureStderr();
    EXPECT_FALSE(p.deallocate_at_hand(of_default, 1000, own));
    EXPECT_FALSE(p.deallocate_at_hand(of_own, 1000, {}));
    EXPECT_FALSE(p.deallocate_at_hand(large, 32 * MiB, {}));
    EXPECT_FALSE(p.deallocate_at_hand(nullptr, 1000, {}));
    int elsewhere = 0;
    EXPECT_FALSE(p.deallocate_at_hand(&elsewhere, 1000, {}));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(p.statistics().num_blocks, 3u);
    p.deallocate(of_default, 1000, {});
    p.deallocate(of_own, 1000, own);
    p.deallocate(large, 32 * MiB, {});
    EXPECT_EQ(p.statistics().num_blocks, 0u);
}

TEST(PoolAtHand, frees_in_a_row_let_events_be_recorded) {
    counting_driver driver(rmm::detail::the_driver());
    const rmm::detail::driver_scope scope(driver);
    cuda upstream;
    pool owner{&upstream, 64 * MiB};
    mr::detail::pool& p = owner.implementation();
    SKIP_IF_WATCHED(p);
    warm_up(p);
    int num_refused = 0;
    for (int i = 0; i < 10000; ++i) {
        void* const ptr = p.allocate(100, {});
        if (!p.deallocate_at_hand(ptr, 100, {})) {
            ++num_refused;
            p.deallocate(ptr, 100, {});
        }
    }
    EXPECT_LT(num_refused, 1000);
    EXPECT_EQ(p.statistics().num_blocks, 0u);
}

TEST(PoolAtHand, nothing_is_where_blocks_are_checked) {
    const debug_variable variable{"1"};
    cuda upstream;
    pool owner{&upstream, 64 * MiB};
    mr::detail::pool& p = owner.implementation();
    warm_up(p);
    EXPECT_EQ(p.allocate_at_hand(1000, {}), nullptr);
    void* const ptr = p.allocate(1000, {});
    EXPECT_FALSE(p.deallocate_at_hand(ptr, 1000, {}));
    p.deallocate(ptr, 1000, {});
}

TEST(PoolAtHand, threads_get_different_blocks) {
    cuda upstream;
    pool owner{&upstream, 64 * MiB};
    mr::detail::pool& p = owner.implementation();
    constexpr int num_threads = 4;
    std::atomic<int> num_wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t)
        threads.emplace_back([&, t] {
            std::vector<unsigned char*> mine;
            for (int i = 0; i < 5000; ++i) {
                void* ptr = i % 3 == 0 ? nullptr : p.allocate_at_hand(512, {});
                if (ptr == nullptr) ptr = p.allocate(512, {});
                mine.push_back(static_cast<unsigned char*>(ptr));
                std::memset(ptr, t + 1, 512);
                if (mine.size() < 8) continue;
                unsigned char* const oldest = mine.front();
                mine.erase(mine.begin());
                num_wrong += std::count(oldest, oldest + 512, t + 1) != 512;
                if (i % 5 == 0 || !p.deallocate_at_hand(oldest, 512, {})) p.deallocate(oldest, 512, {});
            }
            for (void* const ptr : mine) p.deallocate(ptr, 512, {});
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_wrong, 0);
    EXPECT_EQ(p.statistics().num_blocks, 0u);
}

}  // namespace
