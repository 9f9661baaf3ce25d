// A pool of virtual memory, every other piece of which was freed where only an event of the whole device covers it,
// while the device is busy.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "forwarding_driver.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"

namespace rmm_test {

/// Streams of the scripted driver that are held go on when the host waits.
class goes_on_when_waited_for final : public kmm::driver::testing::ForwardingDriver {
  public:
    explicit goes_on_when_waited_for(kmm::driver::testing::ScriptedDriver& scripted)
        : ForwardingDriver(scripted), scripted_(scripted) {}
    int num_waits = 0;

  protected:
    void called(const char* call) noexcept override {
        const std::string_view name = call;
        if (name != "synchronize_event" && name != "synchronize_device") return;
        ++num_waits;
        scripted_.release_all();
    }

  private:
    kmm::driver::testing::ScriptedDriver& scripted_;
};

class uncovered_pieces {
  public:
    static constexpr std::size_t piece_bytes = std::size_t{4} << 20;
    static constexpr std::size_t num_pieces = 16;

    uncovered_pieces(bool device_events, std::size_t maximum_bytes) : scripted_(options(device_events)) {
        rmm::mr::detail::pool_options as_pool;
        as_pool.maximum_bytes = maximum_bytes;
        as_pool.ordered_upstream = false;
        pool_ = std::make_unique<rmm::mr::detail::pool_engine>(
            std::make_unique<rmm::mr::detail::virtual_source>(
                driver_, 0, rmm::mr::detail::virtual_source_options{.maximum_bytes = maximum_bytes}),
            as_pool);
        EXPECT_TRUE(driver_.create_stream(0, true, 0, &busy_).ok());
        EXPECT_TRUE(driver_.create_stream(0, true, 0, &other_).ok());
        for (std::size_t i = 0; i < num_pieces; ++i) blocks_.push_back(pool_->allocate(piece_bytes, view(busy_)));
        scripted_.hold(busy_);
        EXPECT_TRUE(driver_.host_callback(busy_, [](void*) {}, nullptr).ok());
        const rmm::cuda_stream_view no_stream{reinterpret_cast<cudaStream_t>(0x12345670)};
        for (std::size_t i = 0; i < num_pieces; i += 2) pool_->free(blocks_[i], piece_bytes, {&no_stream, 1});
    }
    ~uncovered_pieces() {
        scripted_.release_all();
        const rmm::cuda_stream_view last = view(other_);
        for (std::size_t i = 1; i < num_pieces; i += 2) pool_->free(blocks_[i], piece_bytes, {&last, 1});
        pool_.reset();
    }
    uncovered_pieces(const uncovered_pieces&) = delete;
    uncovered_pieces& operator=(const uncovered_pieces&) = delete;

    rmm::mr::detail::pool_engine& pool() { return *pool_; }
    rmm::cuda_stream_view other() const { return view(other_); }
    int num_waits() const { return driver_.num_waits; }
    bool is_busy() { return !driver_.query_stream(busy_).ok(); }

  private:
    static rmm::cuda_stream_view view(kmm::driver::StreamHandle s) {
        return rmm::cuda_stream_view{static_cast<cudaStream_t>(s.native)};
    }
    static kmm::driver::testing::ScriptedOptions options(bool device_events) {
        kmm::driver::testing::ScriptedOptions options{.memory_bytes = std::size_t{128} << 20};
        options.capabilities.device_event = device_events;
        return options;
    }

    kmm::driver::testing::ScriptedDriver scripted_;
    goes_on_when_waited_for driver_{scripted_};
    const rmm::detail::driver_scope on_{driver_};
    std::unique_ptr<rmm::mr::detail::pool_engine> pool_;
    kmm::driver::StreamHandle busy_;
    kmm::driver::StreamHandle other_;
    std::vector<void*> blocks_;
};

}  // namespace rmm_test
