// What the tests of the runtime share: the configurations in which each test runs, latches without sleeps, checks of
// errors.
//
// Owns: nothing. Files compiled by nvcc run on the cuda driver; others on the driver that KMM_TEST_DRIVER names (host
// if unset), since their kernels are emulated. KMM_TEST_SHORT=1 asks for fewer repetitions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kmm/kmm.hpp"
#include "support/repeat.hpp"

namespace {

using namespace kmm::placeholders;
using kmm::Array;
using kmm::DeviceId;
using kmm::Dim;
using kmm::DomainChunk;
using kmm::Distribution;
using kmm::EventId;
using kmm::GPU;
using kmm::GPUKernel;
using kmm::Host;
using kmm::MemoryId;
using kmm::Point;
using kmm::ResourceId;
using kmm::RuntimeConfig;
using kmm::RuntimeHandle;
using kmm::Scalar;
using kmm::TileDomain;

inline kmm::DriverKind driver_under_test() {
#if KMM_USE_CUDA
    return kmm::DriverKind::CUDA;
#else
    const char* name = std::getenv("KMM_TEST_DRIVER");
    return name != nullptr && std::string(name) == "cuda" ? kmm::DriverKind::CUDA : kmm::DriverKind::Host;
#endif
}

/// Devices that the driver under test has; 0 if it cannot be used. The host driver makes as many as are asked for.
inline std::size_t devices_available() {
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        if (status.driver != driver_under_test()) continue;
        if (!status.usable) return 0;
        return status.driver == kmm::DriverKind::Host ? 4 : status.num_devices;
    }
    return 0;
}

inline RuntimeConfig config_with(std::size_t num_devices) {
    RuntimeConfig config;
    config.driver = driver_under_test();
    if (config.driver == kmm::DriverKind::Host) {
        config.virtual_devices = num_devices;
        config.virtual_device_memory = std::size_t{256} << 20;
    } else {
        for (std::size_t i = 0; i < num_devices; i++) config.devices.push_back(static_cast<int>(i));
    }
    config.host_threads = 4;
    config.watchdog = 20;  // tells who waits for what before the test's time is up
    return config;
}

/// Leaves `bytes` to the host. Virtual devices are taken out of the host's limit, so that theirs must be set before;
/// with fewer bytes than a third of that they would be made smaller.
inline void limit_host_memory(RuntimeConfig& config, std::size_t bytes) {
    config.host_memory_limit = bytes;
    if (config.driver == kmm::DriverKind::Host)
        config.host_memory_limit += config.virtual_devices * config.device_memory_limit;
}

/// Bytes that chunks of these sizes take together.
inline std::size_t working_set(std::initializer_list<std::size_t> chunk_bytes) {
    std::size_t sum = 0;
    for (const std::size_t bytes : chunk_bytes) sum += (bytes + 255) / 256 * 256;
    return sum;
}

/// Calls `f(runtime)` or `f(runtime, config)` with 1, 2 and 4 devices; then again with a device limit just above the
/// largest working set of the test, so that everything spills (0: without that). Skips where the driver has no device.
template<typename F>
void for_each_configuration(std::size_t largest_working_set, F&& f) {
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "the driver under test has no device here";
    for (const std::size_t num_devices : {1, 2, 4}) {
        if (num_devices > available) break;
        for (const bool tight : {false, true}) {
            if (tight && largest_working_set == 0) continue;
            RuntimeConfig config = config_with(num_devices);
            if (tight) config.device_memory_limit = largest_working_set + 256;
            SCOPED_TRACE(std::to_string(num_devices) + " devices" +
                         (tight ? ", limit just above the largest task" : ""));
            {
                const RuntimeHandle rt = kmm::make_runtime(config);
                if constexpr (std::is_invocable_v<F&, RuntimeHandle, const RuntimeConfig&>)
                    f(rt, config);
                else
                    f(rt);
                // Row 113, here so that every test asks it.
                for (const kmm::MemoryStats& m : rt.stats().memories)
                    EXPECT_LE(m.peak_bytes, m.limit_bytes) << "row 113";
            }
            if (::testing::Test::HasFatalFailure()) return;
        }
    }
}

/// One runtime with `num_devices`, or no runtime where there are fewer: the caller skips.
inline bool too_few_devices(std::size_t num_devices) { return devices_available() < num_devices; }
#define KMM_NEED_DEVICES(n) \
    if (too_few_devices(n)) GTEST_SKIP() << "needs " << (n) << " devices"

inline ResourceId device(std::size_t i) { return ResourceId(DeviceId(static_cast<std::uint8_t>(i))); }
inline ResourceId host() { return ResourceId::host(); }
inline std::size_t num_devices(const RuntimeHandle& rt) { return rt.info().num_devices(); }
/// An array of one chunk, at home on device 0, however many devices there are.
template<typename T>
Array<T> one_chunk(const RuntimeHandle& rt, std::int64_t size) {
    return rt.array<T>(Dim<1>(size), Dim<1>(std::max<std::int64_t>(size, 1)));
}
inline DomainChunk chunk_of(ResourceId owner, std::int64_t begin, std::int64_t size) {
    return DomainChunk{owner, kmm::DomainPoint(begin), kmm::DomainDim(size)};
}

/// Opens once; tasks wait for it. Copies share it, so that a task may outlive the scope that made it.
class Gate {
  public:
    void open() const {
        state_->open.store(true);
        state_->open.notify_all();
    }
    void wait() const { state_->open.wait(false); }
    bool is_open() const { return state_->open.load(); }

  private:
    struct State {
        std::atomic<bool> open{false};
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Opens the gate at the end of a scope, so that a failed assertion does not leave tasks waiting for ever.
class OpenAtEnd {
  public:
    explicit OpenAtEnd(Gate gate) : gate_(std::move(gate)) {}
    ~OpenAtEnd() { gate_.open(); }
    OpenAtEnd(const OpenAtEnd&) = delete;
    OpenAtEnd& operator=(const OpenAtEnd&) = delete;

  private:
    Gate gate_;
};

/// The exception of type E that `f` throws; fails the test (and returns null) if it throws none or another.
template<typename E, typename F>
std::shared_ptr<E> thrown_by(F&& f) {
    try {
        f();
    } catch (const E& e) {
        return std::make_shared<E>(e);
    } catch (const std::exception& e) {
        ADD_FAILURE() << "another exception was thrown: " << e.what();
        return nullptr;
    }
    ADD_FAILURE() << "nothing was thrown";
    return nullptr;
}

/// Whether the exception nested in `error` is an E with this text.
template<typename E>
bool nests(const std::exception& error, const std::string& text) {
    try {
        std::rethrow_if_nested(error);
    } catch (const E& e) {
        return std::string(e.what()).find(text) != std::string::npos;
    } catch (...) {
        return false;  // something else is nested
    }
    return false;
}

inline bool says(const std::exception& error, const std::string& text) {
    return std::string(error.what()).find(text) != std::string::npos;
}

template<typename T>
std::vector<T> counting(std::size_t n, T first = T(0)) {
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; i++) values[i] = static_cast<T>(first + static_cast<T>(i));
    return values;
}

}  // namespace
