// What tests of stream order need: a gate that holds a stream up, and streams that are not ours.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"

namespace rmm_test {

inline kmm::driver::Driver& driver() { return kmm::driver::process_default(); }

/// Holds a stream up until it is opened; its end opens it, and waits until no stream is in it.
class gate {
  public:
    gate() = default;
    ~gate() {
        open();
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return num_closed_ == 0; });
    }
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;

    void close(rmm::cuda_stream_view stream) {
        {
            std::lock_guard lock(mutex_);
            ++num_closed_;
        }
        ASSERT_TRUE(
            driver().host_callback({stream.value()}, [](void* self) { static_cast<gate*>(self)->pass(); }, this).ok());
    }
    void open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

  private:
    void pass() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return open_; });
        --num_closed_;
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
    int num_closed_ = 0;
};

inline bool is_idle(rmm::cuda_stream_view stream) { return driver().query_stream({stream.value()}).ok(); }

/// A stream as a program makes it, which the library knows nothing of.
class foreign_stream {
  public:
    explicit foreign_stream(kmm::driver::Driver& of = driver()) : driver_(of) {
        EXPECT_TRUE(driver_.create_stream(0, true, 0, &handle_).ok());
    }
    ~foreign_stream() { destroy(); }
    foreign_stream(const foreign_stream&) = delete;
    foreign_stream& operator=(const foreign_stream&) = delete;
    void destroy() {
        if (handle_.native != nullptr) {
            EXPECT_TRUE(driver_.destroy_stream(handle_).ok());
        }
        handle_ = {};
    }
    rmm::cuda_stream_view view() const { return rmm::cuda_stream_view{static_cast<cudaStream_t>(handle_.native)}; }

  private:
    kmm::driver::Driver& driver_;
    kmm::driver::StreamHandle handle_;
};

inline rmm::cuda_stream non_blocking() { return rmm::cuda_stream{rmm::cuda_stream::flags::non_blocking}; }

}  // namespace rmm_test
