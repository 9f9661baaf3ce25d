// How allocators of the process get memory from a runtime: kmm/supply/device_share.hpp on the host driver. The test is
// in the runtime's place.
#include "kmm/supply/device_share.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver/registry.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/status.hpp"

namespace kmm::supply_test {
namespace {

using supply::DeviceShare;
using supply::ShareFigures;
using supply::ShareSource;
using Clock = std::chrono::steady_clock;

constexpr std::size_t mib = std::size_t{1} << 20;

/// Holds blocks of the device, and gives back one when it is asked.
class HeldBlocks final : public ShareSource {
  public:
    explicit HeldBlocks(driver::Driver& driver) : driver_(driver) {}
    ~HeldBlocks() { give_all_back(); }
    void hold(std::size_t bytes) {
        void* block = nullptr;
        ASSERT_TRUE(driver_.allocate(1, bytes, &block).ok());
        blocks_.push_back({block, bytes});
    }
    void give_all_back() {
        while (!blocks_.empty()) (void)give_one();
    }

    struct Asked {
        std::uint32_t device;
        std::size_t bytes;
        std::thread::id thread;
        bool has_time;
    };
    std::vector<Asked> asked;
    ShareFigures figures;
    const void* sample = nullptr;

    ShareFigures share_of(std::uint32_t) override { return figures; }
    std::size_t reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                   Clock::time_point deadline) noexcept override {
        asked.push_back({device, bytes, std::this_thread::get_id(), deadline > Clock::now()});
        return blocks_.empty() ? 0 : give_one();
    }
    const void* some_memory_of(std::uint32_t) const noexcept override { return sample; }

  private:
    struct Block {
        void* address;
        std::size_t size_bytes;
    };
    std::size_t give_one() {
        const Block block = blocks_.back();
        blocks_.pop_back();
        EXPECT_TRUE(driver_.free(block.address).ok());
        return block.size_bytes;
    }
    driver::Driver& driver_;
    std::vector<Block> blocks_;
};

/// The runtime has one device, which is the driver's second: there the allocators are.
class DeviceShareTest : public ::testing::Test {
  protected:
    DeviceShareTest() { EXPECT_TRUE(devices->set_current_device(1).ok()); }
    void share(bool only_for_device) { share_.emplace(source, *devices, 0, 1, "kmm runtime 7", only_for_device); }
    void end_share() { share_.reset(); }

    std::shared_ptr<driver::Driver> devices = driver::make_host_driver({2, 256 * mib, 1});
    rmm::detail::driver_scope scope{*devices};
    HeldBlocks source{*devices};
    rmm::mr::cuda_memory_resource upstream;

  private:
    std::optional<DeviceShare> share_;
};

TEST_F(DeviceShareTest, an_allocation_that_finds_the_device_full_gets_what_the_runtime_gives_back) {
    share(true);
    source.hold(100 * mib);
    source.hold(100 * mib);
    void* const first = upstream.allocate(50 * mib);
    EXPECT_TRUE(source.asked.empty()) << "there was enough";
    void* const second = upstream.allocate(150 * mib);
    ASSERT_EQ(source.asked.size(), 2u) << "until it was enough";
    EXPECT_EQ(source.asked[0].device, 0u) << "as the runtime counts its devices";
    EXPECT_EQ(source.asked[0].bytes, 150 * mib);
    EXPECT_EQ(source.asked[0].thread, std::this_thread::get_id());
    EXPECT_TRUE(source.asked[0].has_time);
    upstream.deallocate(first, 50 * mib);
    upstream.deallocate(second, 150 * mib);
}

TEST_F(DeviceShareTest, a_shortage_of_another_device_is_not_the_runtimes) {
    share(true);
    source.hold(100 * mib);
    EXPECT_TRUE(devices->set_current_device(0).ok());
    void* const all = upstream.allocate(200 * mib);
    EXPECT_THROW((void)upstream.allocate(100 * mib), rmm::out_of_memory);
    EXPECT_TRUE(source.asked.empty());
    upstream.deallocate(all, 200 * mib);
}

TEST_F(DeviceShareTest, a_pool_at_its_own_limit_asks_if_the_runtimes_memory_is_from_it) {
    share(false);
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{upstream, 0, 64 * mib};
    void* const block = pool.allocate(48 * mib);
    void* const elsewhere = upstream.allocate(mib);
    for (const void* sample : {static_cast<const void*>(nullptr), static_cast<const void*>(elsewhere)}) {
        source.sample = sample;
        EXPECT_THROW((void)pool.allocate(32 * mib), rmm::out_of_memory);
        EXPECT_TRUE(source.asked.empty());
    }
    source.sample = block;
    EXPECT_THROW((void)pool.allocate(32 * mib), rmm::out_of_memory);
    EXPECT_FALSE(source.asked.empty());
    pool.deallocate(block, 48 * mib);
    upstream.deallocate(elsewhere, mib);
}

TEST_F(DeviceShareTest, a_pool_at_its_own_limit_does_not_ask_a_runtime_that_frees_to_the_driver) {
    share(true);
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{upstream, 0, 64 * mib};
    void* const block = pool.allocate(48 * mib);
    source.sample = block;
    EXPECT_THROW((void)pool.allocate(32 * mib), rmm::out_of_memory);
    EXPECT_TRUE(source.asked.empty());
    pool.deallocate(block, 48 * mib);
}

TEST_F(DeviceShareTest, the_error_of_an_allocation_says_what_the_runtime_holds) {
    share(true);
    source.figures.held_bytes = 200 * mib;
    source.figures.in_use_bytes = 150 * mib;
    source.figures.evictable_bytes = 120 * mib;
    void* const all = upstream.allocate(200 * mib);
    try {
        (void)upstream.allocate(100 * mib);
        ADD_FAILURE() << "there is no such memory";
    } catch (const rmm::out_of_memory& e) {
        const std::string line = "kmm runtime 7 holds 200.00 MiB, of it evictable 120.00 MiB (running tasks 30.00 MiB)";
        EXPECT_NE(std::string(e.what()).find(line), std::string::npos) << e.what();
    }
    upstream.deallocate(all, 200 * mib);
}

TEST_F(DeviceShareTest, the_ledger_has_the_runtime_while_the_share_lives) {
    source.figures.held_bytes = 200 * mib;
    source.figures.num_chunks = 3;
    const auto figures = [&] {
        std::vector<rmm::detail::holder_figures> found;
        rmm::detail::for_each_holder(1, [&](rmm::detail::memory_holder& h) {
            if (const auto f = h.figures(); f.kind == "kmm runtime") found.push_back(f);
        });
        return found;
    };
    EXPECT_TRUE(figures().empty());
    share(true);
    ASSERT_EQ(figures().size(), 1u);
    EXPECT_EQ(figures()[0].name, "kmm runtime 7");
    EXPECT_EQ(figures()[0].held_bytes, 200 * mib);
    EXPECT_EQ(figures()[0].num_blocks, 3u);
    EXPECT_FALSE(figures()[0].takes_from_driver) << "the resource below counts it";
    end_share();
    EXPECT_TRUE(figures().empty());
    source.hold(200 * mib);
    EXPECT_THROW((void)upstream.allocate(100 * mib), rmm::out_of_memory);
    EXPECT_TRUE(source.asked.empty());
}

}  // namespace
}  // namespace kmm::supply_test
