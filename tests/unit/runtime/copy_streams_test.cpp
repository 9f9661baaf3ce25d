// Streams of copies that the next copy takes again.
#include "kmm/runtime/copy_streams.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "driver/registry.hpp"
#include "forwarding_driver.hpp"

namespace {

using kmm::detail::CopyStreams;

class StreamCounter final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    std::atomic<int> num_made{0};
    std::atomic<int> num_ended{0};
    bool refuses = false;
    kmm::driver::Status create_stream(int device, bool non_blocking, int priority,
                                      kmm::driver::StreamHandle* out) noexcept override {
        if (refuses) return {kmm::driver::Code::out_of_memory};
        return ForwardingDriver::create_stream(device, non_blocking, priority, out);
    }
    void called(const char* call) noexcept override {
        num_made += std::strcmp(call, "create_stream") == 0 ? 1 : 0;
        num_ended += std::strcmp(call, "destroy_stream") == 0 ? 1 : 0;
    }
};

struct CopyStreamsTest : ::testing::Test {
    const std::shared_ptr<kmm::driver::Driver> inner = kmm::driver::make_host_driver({2, 1u << 20, 2});
    StreamCounter driver{*inner};
};

TEST_F(CopyStreamsTest, the_next_copy_on_a_device_takes_the_stream_of_the_last_one) {
    CopyStreams streams(driver);
    for (int i = 0; i < 5; ++i) const CopyStreams::Lease lease(streams, 0);
    EXPECT_EQ(driver.num_made, 1);
    for (int i = 0; i < 5; ++i) const CopyStreams::Lease lease(streams, 1);
    EXPECT_EQ(driver.num_made, 2);
    streams.trim();
    EXPECT_EQ(driver.num_ended, 2);
    const CopyStreams::Lease lease(streams, 0);
    EXPECT_EQ(driver.num_made, 3);
}

TEST_F(CopyStreamsTest, copies_at_the_same_time_have_streams_of_their_own_of_which_16_are_kept) {
    {
        CopyStreams streams(driver);
        {
            std::vector<std::unique_ptr<CopyStreams::Lease>> leases;
            for (int i = 0; i < 20; ++i) {
                leases.push_back(std::make_unique<CopyStreams::Lease>(streams, 0));
                for (int k = 0; k < i; ++k)
                    EXPECT_NE(leases[static_cast<std::size_t>(k)]->handle().native, leases.back()->handle().native);
            }
        }
        EXPECT_EQ(driver.num_made, 20);
        EXPECT_EQ(driver.num_ended, 4);
    }
    EXPECT_EQ(driver.num_ended, 20);
}

TEST_F(CopyStreamsTest, one_that_still_has_work_is_not_kept) {
    std::atomic<bool> is_open{false};
    CopyStreams streams(driver);
    {
        const CopyStreams::Lease lease(streams, 0);
        const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
        ASSERT_TRUE(driver.host_callback(lease.handle(), wait, &is_open).ok());
    }
    EXPECT_EQ(driver.num_ended, 1);
    const CopyStreams::Lease lease(streams, 0);
    EXPECT_EQ(driver.num_made, 2);
    EXPECT_TRUE(driver.synchronize_stream(lease.handle()).ok());
    is_open.store(true);
    is_open.notify_all();
    EXPECT_TRUE(driver.synchronize_device(0).ok());
}

TEST_F(CopyStreamsTest, a_stream_that_cannot_be_made_is_an_error_and_kept_ones_go_on) {
    CopyStreams streams(driver);
    { const CopyStreams::Lease lease(streams, 0); }
    driver.refuses = true;
    const CopyStreams::Lease kept(streams, 0);
    EXPECT_ANY_THROW(CopyStreams::Lease(streams, 0));
    EXPECT_ANY_THROW(CopyStreams::Lease(streams, 1));
    EXPECT_EQ(driver.num_made, 1);
}

TEST_F(CopyStreamsTest, many_threads_take_them_while_one_ends_those_that_are_free) {
    {
        CopyStreams streams(driver);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&, device = t % 2] {
                for (int i = 0; i < 200; ++i) {
                    const CopyStreams::Lease lease(streams, device);
                    EXPECT_TRUE(driver.query_stream(lease.handle()).ok());
                }
            });
        for (int i = 0; i < 50; ++i) streams.trim();
        for (std::thread& t : threads) t.join();
    }
    EXPECT_EQ(driver.num_made, driver.num_ended);
}

}  // namespace
