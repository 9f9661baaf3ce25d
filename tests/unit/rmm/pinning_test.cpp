// Page-locked memory of many threads' making, the resources that use it, and the pool that is usable while it grows.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "rmm/detail/error.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/pinning.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"
#include "support/sizes.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::MemoryKind;
using kmm::driver::testing::ScriptedDriver;
using namespace rmm::mr;
using rmm::detail::driver_scope;
using rmm::detail::pin;
using rmm::detail::pin_from_bytes;
using rmm::detail::pinned_block;
using rmm::detail::pinning_unit;
using rmm::detail::unpin;

MemoryKind kind_of(kmm::driver::Driver& driver, const void* ptr) {
    kmm::driver::PointerInfo info;
    EXPECT_TRUE(driver.pointer_info(ptr, &info).ok());
    return info.kind;
}

TEST(Pinning, blocks_are_whole_huge_pages_that_touch_no_other_block) {
    ScriptedDriver driver;
    std::vector<pinned_block> blocks(8);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const std::size_t bytes = i * pinning_unit + 1;
        ASSERT_TRUE(pin(driver, bytes, &blocks[i]).ok());
        EXPECT_EQ(blocks[i].size_bytes, (i + 1) * pinning_unit);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[i].address) % pinning_unit, 0u);
        EXPECT_EQ(kind_of(driver, static_cast<char*>(blocks[i].address) + bytes - 1), MemoryKind::pinned);
        std::memset(blocks[i].address, 7, bytes);
    }
    for (const pinned_block& a : blocks)
        for (const pinned_block& b : blocks)
            EXPECT_NE(static_cast<char*>(a.address) + a.size_bytes, static_cast<char*>(b.address));
    for (const pinned_block& b : blocks) unpin(driver, b);
    EXPECT_EQ(driver.count("register_host"), driver.count("unregister_host"));
    EXPECT_EQ(driver.count("allocate_pinned"), 0u);
}

TEST(Pinning, where_registration_is_refused_the_driver_allocates) {
    ScriptedDriver driver;
    driver.fail_call("register_host", 1, Code::not_supported);
    pinned_block b;
    ASSERT_TRUE(pin(driver, 3 * MiB, &b).ok());
    EXPECT_EQ(b.reservation, nullptr);
    EXPECT_EQ(b.size_bytes, 3 * MiB);
    EXPECT_EQ(kind_of(driver, b.address), MemoryKind::pinned);
    unpin(driver, b);
    EXPECT_EQ(driver.count("free_pinned"), 1u);
    EXPECT_EQ(driver.count("unregister_host"), 0u);
}

TEST(Pinning, what_both_refuse_is_a_status_and_leaves_nothing_behind) {
    ScriptedDriver driver;
    driver.fail_call("register_host", 1, Code::out_of_memory);
    driver.fail_call("allocate_pinned", 1, Code::out_of_memory);
    pinned_block b;
    EXPECT_EQ(pin(driver, 64 * MiB, &b).code, Code::out_of_memory);
    EXPECT_EQ(b.address, nullptr);
    // More than an address space has.
    EXPECT_FALSE(pin(driver, std::size_t{1} << 62, &b).ok());
    EXPECT_EQ(b.address, nullptr);
}

TEST(PinnedResources, large_requests_are_registered_and_small_ones_are_the_drivers) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    pinned_host_memory_resource host;
    pinned_memory_resource typed;
    void* const small = host.allocate(pin_from_bytes - 1);
    EXPECT_EQ(driver.count("allocate_pinned"), 1u);
    void* const large = host.allocate(pin_from_bytes);
    void* const other = typed.allocate(pin_from_bytes + 1);
    EXPECT_EQ(driver.count("allocate_pinned"), 1u);
    EXPECT_EQ(driver.count("register_host"), 2u);
    for (void* const p : {small, large, other}) EXPECT_EQ(kind_of(driver, p), MemoryKind::pinned);
    // With a wrong size too: who made a block is known by its address.
    host.deallocate(large, 1);
    host.deallocate(small, 64 * MiB);
    typed.deallocate(other, pin_from_bytes + 1);
    EXPECT_EQ(driver.count("unregister_host"), 2u);
    EXPECT_EQ(driver.count("free_pinned"), 1u);
}

TEST(PinnedResources, a_large_block_is_given_back_after_the_work_of_its_stream) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    pinned_host_memory_resource host;
    device_memory_resource& resource = host;
    rmm::cuda_stream_view stream{};
    auto* const words = static_cast<std::uint32_t*>(resource.allocate(pin_from_bytes, stream));
    const std::uint32_t pattern = 17;
    ASSERT_TRUE(driver.fill(words, &pattern, sizeof pattern, pin_from_bytes / sizeof pattern, {}).ok());
    resource.deallocate(words, pin_from_bytes, stream);
    EXPECT_EQ(driver.num_pending(), 0u);
}

TEST(PinnedResources, refusals_are_exceptions) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    driver.fail_call("register_host", 1, Code::out_of_memory);
    driver.fail_call("allocate_pinned", 1, Code::out_of_memory);
    EXPECT_THROW((void)pinned_host_memory_resource::allocate(64 * MiB), rmm::out_of_memory);
    EXPECT_THROW((void)pinned_host_memory_resource::allocate(std::size_t{1} << 62), rmm::out_of_memory);
    void* const p = pinned_host_memory_resource::allocate(64 * MiB);
    pinned_host_memory_resource::deallocate(p, 64 * MiB);
}

// ---- pools that grow ahead of their users

/// Memory that comes when the test says so.
class gated_resource final : public device_memory_resource {
  public:
    void open(int times) {
        allowed_.fetch_add(times);
        allowed_.notify_all();
    }
    void wait_for_asked(int count) const {
        for (int now = asked_.load(); now < count; now = asked_.load()) asked_.wait(now);
    }
    std::vector<std::size_t> sizes() const {
        const std::lock_guard in(mutex_);
        return sizes_;
    }

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
        const int turn = asked_.fetch_add(1) + 1;
        asked_.notify_all();
        for (int now = allowed_.load(); now < turn; now = allowed_.load()) allowed_.wait(now);
        const std::lock_guard in(mutex_);
        sizes_.push_back(bytes);
        return ::operator new(bytes, std::align_val_t{256});
    }
    void do_deallocate(void* ptr, std::size_t, rmm::cuda_stream_view) override {
        ::operator delete(ptr, std::align_val_t{256});
    }

    std::atomic<int> allowed_{0};
    std::atomic<int> asked_{0};
    mutable std::mutex mutex_;
    std::vector<std::size_t> sizes_;
};

struct growing {
    explicit growing(std::size_t step, std::size_t target, std::size_t maximum = ~std::size_t{0}) {
        detail::pool_options options;
        options.maximum_bytes = maximum;
        options.growth_bytes = step;
        options.ordered_upstream = false;
        pool = std::make_unique<detail::pool>(rmm::device_async_resource_ref{upstream}, options);
        thread = std::thread([this, step, target] {
            while (pool->engine().grow_ahead(step, target)) {}
        });
    }
    ~growing() {
        upstream.open(1000);
        thread.join();
    }
    gated_resource upstream;
    std::unique_ptr<detail::pool> pool;
    std::thread thread;
};

TEST(GrowingAhead, requests_are_served_from_what_is_there_while_more_is_on_its_way) {
    growing g(MiB, 4 * MiB);
    g.upstream.open(1);
    g.upstream.wait_for_asked(2);  // the second segment is on its way, and stays there
    void* const a = g.pool->allocate(MiB / 2, {});
    void* const b = g.pool->allocate(MiB / 4, {});
    EXPECT_EQ(g.pool->held_bytes(), MiB);
    // What needs the second waits for it, and for no more.
    std::atomic<bool> served{false};
    std::thread waits([&] {
        void* const c = g.pool->allocate(MiB, {});
        served.store(true);
        g.pool->deallocate(c, MiB, {});
    });
    EXPECT_FALSE(served.load());
    g.upstream.open(1);
    waits.join();
    EXPECT_TRUE(served.load());
    EXPECT_LE(g.pool->held_bytes(), 2 * MiB);
    g.pool->deallocate(a, MiB / 2, {});
    g.pool->deallocate(b, MiB / 4, {});
}

TEST(GrowingAhead, a_request_larger_than_a_segment_gets_the_next_one_in_its_size) {
    growing g(MiB, 16 * MiB);
    g.upstream.wait_for_asked(1);
    std::thread waits([&] { g.pool->deallocate(g.pool->allocate(5 * MiB, {}), 5 * MiB, {}); });
    // It is known to wait once it has missed; until then every segment is of the usual size.
    for (int i = 2; g.upstream.sizes().empty() || g.upstream.sizes().back() < 5 * MiB; ++i) {
        g.upstream.open(1);
        if (i < 12) g.upstream.wait_for_asked(i);
        if (i > 40) break;
    }
    g.upstream.open(100);
    waits.join();
    EXPECT_LE(g.pool->held_bytes(), 21 * MiB);
}

TEST(GrowingAhead, growth_on_demand_stays_below_the_maximum) {
    growing g(MiB, 2 * MiB, 3 * MiB + 256);
    g.upstream.open(100);
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(g.pool->allocate(MiB, {}));
    EXPECT_THROW((void)g.pool->allocate(MiB, {}), rmm::out_of_memory);
    blocks.push_back(g.pool->allocate(256, {}));
    EXPECT_EQ(g.pool->held_bytes(), 3 * MiB + 256);
    for (std::size_t i = 0; i < 3; ++i) g.pool->deallocate(blocks[i], MiB, {});
    g.pool->deallocate(blocks[3], 256, {});
}

TEST(PinnedPool, is_filled_to_its_initial_size_and_serves_meanwhile) {
    pinned_pool_memory_resource pool{320 * MiB, 512 * MiB};
    auto* const bytes = static_cast<char*>(pool.allocate(48 * MiB));
    std::memset(bytes, 1, 48 * MiB);
    EXPECT_EQ(kind_of(kmm::driver::process_default(), bytes), MemoryKind::pinned);
    EXPECT_EQ(pool.wait_until_grown(), 320 * MiB);
    EXPECT_EQ(pool.statistics().in_use_bytes, 48 * MiB);
    EXPECT_EQ(pool.statistics().maximum_bytes, 512 * MiB);
    pool.deallocate(bytes, 48 * MiB);
    EXPECT_EQ(pool.trim(), 320 * MiB);
    EXPECT_EQ(pool.pool_size(), 0u);
    pool.deallocate(pool.allocate(MiB), MiB);
    EXPECT_EQ(pool.pool_size(), 256 * MiB);
}

TEST(PinnedPool, many_threads_use_it_while_it_grows) {
    pinned_pool_memory_resource pool{256 * MiB};
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                const std::size_t size = (static_cast<std::size_t>(i * 7 + t) % 20 + 1) * MiB / 2;
                auto* const p = static_cast<unsigned char*>(pool.allocate(size));
                p[0] = static_cast<unsigned char>(t);
                p[size - 1] = static_cast<unsigned char>(i);
                if (p[0] != t || p[size - 1] != i) wrong.fetch_add(1);
                pool.deallocate(p, size);
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(pool.wait_until_grown() % MiB, 0u);
    EXPECT_EQ(pool.statistics().num_blocks, 0u);
}

TEST(PinnedPool, may_end_while_it_grows) {
    for (int i = 0; i < 10; ++i) pinned_pool_memory_resource{1024 * MiB};
}

TEST(PinnedPool, goes_on_with_what_it_has_where_no_more_can_be_pinned) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    driver.fail_call("register_host", 2, Code::out_of_memory);
    for (std::uint64_t i = 3; i < 8; ++i) driver.fail_call("register_host", i, Code::out_of_memory);
    for (std::uint64_t i = 1; i < 8; ++i) driver.fail_call("allocate_pinned", i, Code::out_of_memory);
    pinned_pool_memory_resource pool{256 * MiB};
    EXPECT_EQ(pool.wait_until_grown(), 64 * MiB);
    pool.deallocate(pool.allocate(64 * MiB), 64 * MiB);
}

TEST(PinnedPool, sizes_are_checked) {
    EXPECT_THROW(pinned_pool_memory_resource{1000}, rmm::logic_error);
    EXPECT_THROW((pinned_pool_memory_resource{0, 1000}), rmm::logic_error);
    EXPECT_THROW((pinned_pool_memory_resource{512, 256}), rmm::logic_error);
    pinned_pool_memory_resource pool{0, 1024};
    void* const p = pool.allocate(1024);
    EXPECT_THROW((void)pool.allocate(1), rmm::out_of_memory);
    pool.deallocate(p, 1024);
    rmm::host_device_async_resource_ref both{pool};
    both.deallocate(both.allocate(256), 256);
}

TEST(PinnedPool, of_sixteen_gigabytes_in_one_block_is_one_registration) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    pinned_host_memory_resource upstream;
    // Nothing is touched on a driver that pins nothing: addresses alone.
    pool_memory_resource<pinned_host_memory_resource> pool{&upstream, std::size_t{16} << 30};
    EXPECT_EQ(driver.count("register_host"), 1u);
    pool.deallocate(pool.allocate(std::size_t{16} << 30), std::size_t{16} << 30);
}

}  // namespace
