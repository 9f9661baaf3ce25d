// The device on which allocators are measured, through the driver layer: the same program for a GPU and for the host
// driver.
//
// Owns: nothing. Must not know: what is measured. Device 0; one thread.
#pragma once

#include <cstddef>

#include "allocator_workloads.hpp"
#include "common.hpp"
#include "driver/check.hpp"
#include "driver/registry.hpp"
#include "raw_cuda.hpp"

namespace kmm::bench {

class DriverMachine : public Machine {
  public:
    explicit DriverMachine(driver::Driver& driver) : driver_(driver) {}
    RawStream create_stream() override {
        driver::StreamHandle stream;
        driver::check(driver_, driver_.create_stream(0, true, 0, &stream), "create a stream");
        return stream.native;
    }
    void destroy_stream(RawStream stream) override {
        driver::check(driver_, driver_.destroy_stream({stream}), "destroy a stream");
    }
    void synchronize() override { driver::check(driver_, driver_.synchronize_device(0), "wait for the device"); }
    bool spin(RawStream stream, double microseconds) override {
        if (driver_.kind() == driver::Kind::cuda) return raw::keep_busy(stream, microseconds);
        seconds_ = microseconds * 1e-6;
        const auto busy = [](void* user) {
            const auto begin = Clock::now();
            while (seconds_since(begin) < *static_cast<double*>(user)) {}
        };
        return driver_.host_callback({stream}, busy, &seconds_).ok();
    }
    std::size_t free_bytes() override {
        std::size_t free = 0, total = 0;
        driver::check(driver_, driver_.memory_info(0, &free, &total), "ask for free memory");
        return free;
    }

  private:
    driver::Driver& driver_;
    double seconds_ = 0;
};

}  // namespace kmm::bench
