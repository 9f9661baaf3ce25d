// A runtime on the host driver for tests of the API: two virtual devices of 64 MiB.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kmm/kmm.hpp"

namespace kmm_test {

inline kmm::RuntimeHandle small_runtime(std::size_t num_devices = 2) {
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = num_devices;
    config.virtual_device_memory = std::size_t(64) << 20;
    config.host_threads = 2;
    return kmm::make_runtime(config);
}

/// The text of the `E` that `f` throws; "" and a failed test if it throws none.
template<typename E, typename F>
std::string text_of(const F& f) {
    try {
        f();
    } catch (const E& error) {
        return error.what();
    }
    ADD_FAILURE() << "no exception of the expected type";
    return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace kmm_test
