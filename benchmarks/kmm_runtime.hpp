// What the programs that measure the runtime share: on which driver and devices they run, and figures that are no
// times.
//
// Owns: nothing. Must not know: what is measured. Files compiled by nvcc run on the cuda driver; compiled as C++ their
// kernels are emulated and run on the host driver, where sizes are small and figures of GPUs have no value to reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "common.hpp"
#include "kmm/kmm.hpp"
#include "raw_cuda.hpp"

namespace kmm::bench {

#if KMM_USE_CUDA
inline constexpr bool on_gpu = true;
inline constexpr DriverKind bench_driver = DriverKind::CUDA;
#else
inline constexpr bool on_gpu = false;
inline constexpr DriverKind bench_driver = DriverKind::Host;
#endif

/// Why `num_devices` of them cannot be had here; empty: they can.
inline std::string why_not(std::size_t num_devices) {
    for (const DriverStatus& status : available_drivers()) {
        if (status.driver != bench_driver) continue;
        if (!status.usable) return "not available: " + status.reason;
        if (on_gpu && status.num_devices < num_devices) {
            return "not available: needs " + std::to_string(num_devices) + " devices, and there are " +
                   std::to_string(status.num_devices);
        }
        return "";
    }
    return "not available: this build has no such driver";
}

/// The first devices; those of the host driver have `virtual_bytes` of memory each.
inline RuntimeConfig config_for(std::size_t num_devices, std::size_t virtual_bytes) {
    RuntimeConfig config = kmm::default_config_from_environment();  // KMM_TRACE: what a trace costs
    config.driver = bench_driver;
    config.devices.clear();
    config.virtual_devices = num_devices;
    config.virtual_device_memory = virtual_bytes;
    if (on_gpu) {
        for (std::size_t i = 0; i < num_devices; ++i) config.devices.push_back(static_cast<int>(i));
    }
    return config;
}

inline ResourceId device(std::size_t number) { return ResourceId(DeviceId(static_cast<std::uint8_t>(number))); }

/// The usual size on a GPU, small with --quick, and another one where kernels are emulated.
template<typename Number>
Number sized(const Report& report, Number usual, Number quick, Number emulated) {
    return on_gpu ? report.size(usual, quick) : emulated;
}

inline std::string note_of(const std::string& text) { return on_gpu ? text : text + "; kernels emulated, small sizes"; }

/// A value to reach that holds for GPUs at the usual sizes alone.
inline std::optional<double> must_on_gpu(const Report& report, double value) {
    return on_gpu && !report.quick() ? std::optional<double>(value) : std::nullopt;
}

inline std::optional<Samples> samples_of(const raw::Measured& measured) {
    return measured.ok() && !measured.seconds.empty() ? std::optional<Samples>(measured.seconds) : std::nullopt;
}

/// Adds why there is no raw figure, if there is none and one was to be had.
inline std::string with_raw_error(std::string note, const raw::Measured& measured) {
    return on_gpu && !measured.ok() ? note + "; raw: " + measured.error : note;
}

inline Unit decimal_gigabytes() { return {"GB", Better::lower, 1e-9}; }
inline Unit plain_count() { return {"", Better::lower, 1}; }

/// Runs a program's body; an exception becomes a message and a failed exit.
template<typename Body>
int run_program(int argc, char** argv, Body body) {
    try {
        Report report(argc, argv);
        body(report);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

}  // namespace kmm::bench
