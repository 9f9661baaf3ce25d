// What every test of a driver starts from: a driver, its kernels, and memory and streams that go away by themselves.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "driver/registry.hpp"
#include "kernels.hpp"

namespace driver_test {

using namespace kmm::driver;

/// One driver that the suite runs on. `open` may return null, with the reason why the tests are skipped.
struct Subject {
    std::string name;
    std::function<std::shared_ptr<Driver>(std::string*)> open;
    std::function<Kernels()> kernels;
    friend std::ostream& operator<<(std::ostream& out, const Subject& s) { return out << s.name; }
};

/// Those that this executable was built for; see subjects.cpp.
std::vector<Subject> subjects();

#define KMM_ON_EVERY_DRIVER(suite)                                                           \
    INSTANTIATE_TEST_SUITE_P(Drivers, suite, ::testing::ValuesIn(::driver_test::subjects()), \
                             [](const auto& info) { return info.param.name; })

#define KMM_OK(call)                                                                       \
    do {                                                                                   \
        const ::kmm::driver::Status status_ = (call);                                      \
        ASSERT_TRUE(status_.ok()) << #call << ": " << driver().error_name(status_) << " (" \
                                  << driver().error_text(status_) << ")";                  \
    } while (false)

#define KMM_FAILS(call, expected)                                             \
    do {                                                                      \
        const ::kmm::driver::Status status_ = (call);                         \
        EXPECT_EQ(static_cast<int>(status_.code), static_cast<int>(expected)) \
            << #call << ": " << driver().error_name(status_);                 \
        (void)driver().take_last_error();                                     \
    } while (false)

/// Blocks a stream until it is opened; opens by itself after a minute, so that a failing test ends.
class Gate {
  public:
    Gate() : state_(new_state()) {}
    ~Gate() { open(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    void open() {
        std::lock_guard lock(state_.mutex);
        state_.open = true;
        state_.changed.notify_all();
    }
    Status close(Driver& driver, StreamHandle stream) { return driver.host_callback(stream, &wait, &state_); }

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool open = false;
    };
    /// Lives as long as the process: the stream of a failed test may still be at the gate when the test has ended.
    static State& new_state() {
        static std::mutex mutex;
        static std::list<State>& states = *new std::list<State>;
        std::lock_guard lock(mutex);
        return states.emplace_back();
    }
    static void wait(void* user) {
        State& state = *static_cast<State*>(user);
        std::unique_lock lock(state.mutex);
        state.changed.wait_for(lock, std::chrono::minutes(1), [&] { return state.open; });
    }

    State& state_;
};

/// Packs parameters as the ABI wants them.
class Parameters {
  public:
    template<typename... T> explicit Parameters(const T&... values) { (add(values), ...); }
    const void* data() const { return bytes_; }
    std::size_t size() const { return size_; }

  private:
    template<typename T> void add(const T& value) {
        size_ = (size_ + alignof(T) - 1) / alignof(T) * alignof(T);
        std::memcpy(bytes_ + size_, &value, sizeof(T));
        size_ += sizeof(T);
    }
    alignas(16) unsigned char bytes_[256] = {};
    std::size_t size_ = 0;
};

class DriverTest : public ::testing::TestWithParam<Subject> {
  protected:
    void SetUp() override {
        std::string reason;
        driver_ = GetParam().open(&reason);
        if (driver_ == nullptr) GTEST_SKIP() << reason;
        kernels_ = GetParam().kernels();
        // A kernel may be loaded when it is first needed, which waits for the device: never behind a gate.
        for (int device = driver().device_count() - 1; device >= 0; --device) {
            KMM_OK(driver().set_current_device(device));
            for (const void* kernel : {kernels_.add, kernels_.number, kernels_.affine, kernels_.shared})
                KMM_OK(driver().prepare_kernel(kernel, 0));
        }
        stream_ = new_stream();
    }
    void TearDown() override {
        if (driver_ == nullptr) return;
        for (int device = 0; device < driver().device_count(); ++device)
            EXPECT_TRUE(driver().synchronize_device(device).ok());
        for (auto undo = cleanups_.rbegin(); undo != cleanups_.rend(); ++undo) (*undo)();
        (void)driver().take_last_error();
        EXPECT_TRUE(driver().set_current_device(0).ok());
    }

    Driver& driver() { return *driver_; }
    const Kernels& kernels() { return kernels_; }
    StreamHandle stream() { return stream_; }
    bool on_host() { return driver().kind() == Kind::host; }

    StreamHandle new_stream(bool non_blocking = true, int device = 0) {
        StreamHandle s;
        EXPECT_TRUE(driver().create_stream(device, non_blocking, 0, &s).ok());
        cleanups_.push_back([this, s] { EXPECT_TRUE(driver().destroy_stream(s).ok()); });
        return s;
    }
    EventHandle new_event(bool timing = false, int device = 0) {
        EventHandle e;
        EXPECT_TRUE(driver().create_event(device, timing, true, &e).ok());
        cleanups_.push_back([this, e] { EXPECT_TRUE(driver().destroy_event(e).ok()); });
        return e;
    }
    template<typename T = unsigned char> T* device_memory(std::size_t count, int device = 0) {
        void* p = nullptr;
        EXPECT_TRUE(driver().allocate(device, count * sizeof(T), &p).ok());
        cleanups_.push_back([this, p] { EXPECT_TRUE(driver().free(p).ok()); });
        return static_cast<T*>(p);
    }
    template<typename T = unsigned char> T* pinned_memory(std::size_t count) {
        void* p = nullptr;
        EXPECT_TRUE(driver().allocate_pinned(count * sizeof(T), &p).ok());
        cleanups_.push_back([this, p] { EXPECT_TRUE(driver().free_pinned(p).ok()); });
        std::memset(p, 0, count * sizeof(T));
        return static_cast<T*>(p);
    }
    void on_cleanup(std::function<void()> undo) { cleanups_.push_back(std::move(undo)); }

    /// Reads device memory after everything on the device has finished.
    template<typename T> std::vector<T> read(const T* from, std::size_t count, int device = 0) {
        std::vector<T> result(count);
        EXPECT_TRUE(driver().synchronize_device(device).ok());
        EXPECT_TRUE(driver().copy(result.data(), from, count * sizeof(T), stream_).ok());
        EXPECT_TRUE(driver().synchronize_stream(stream_).ok());
        return result;
    }
    template<typename T> void write(T* to, const std::vector<T>& values) {
        EXPECT_TRUE(driver().copy(to, values.data(), values.size() * sizeof(T), stream_).ok());
        EXPECT_TRUE(driver().synchronize_stream(stream_).ok());
    }
    Status fill_ints(int* to, int value, std::size_t count, StreamHandle s) {
        return driver().fill(to, &value, sizeof(value), count, s);
    }
    Status close(Gate& gate, StreamHandle s) { return gate.close(driver(), s); }

    static KernelLaunch launch_of(const void* kernel, const Parameters& parameters, Dim3 grid = {}, Dim3 block = {}) {
        KernelLaunch launch;
        launch.function = kernel;
        launch.grid = grid;
        launch.block = block;
        launch.parameters = parameters.data();
        launch.parameter_bytes = parameters.size();
        return launch;
    }
    Status add(int* data, unsigned n, int value, StreamHandle s) {
        const Parameters p(data, n, value);
        return driver().launch(launch_of(kernels_.add, p, {(n + 127) / 128, 1, 1}, {128, 1, 1}), s);
    }

  private:
    std::shared_ptr<Driver> driver_;
    Kernels kernels_;
    StreamHandle stream_;
    std::vector<std::function<void()>> cleanups_;
};

}  // namespace driver_test
