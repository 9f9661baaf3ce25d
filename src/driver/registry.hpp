// Which drivers exist, which of them can be used, and why the others were refused.
//
// Owns: the process default driver. Must not know: rmm, kmm. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace kmm::driver {

/// One line of `kmm info` and of `kmm::available_drivers()`.
struct Candidate {
    Kind kind = Kind::host;
    bool usable = false;
    std::string reason;  ///< why not, or what was found
    int num_devices = 0;
};

/// All three kinds, in the order in which `auto` tries them: cuda, hip, host. Probes each driver once a process.
std::vector<Candidate> candidates();

/// Devices of the host driver.
struct HostOptions {
    int num_devices = 1;
    std::size_t memory_bytes =
        0;                        ///< capacity of each virtual device; 0: a third of the machine's memory / num_devices
    int num_threads = 0;          ///< workers for kernels and copies; 0: usable CPUs
    std::size_t stack_bytes = 0;  ///< HostLaunchGeometry::stack_bytes of all launches
    bool device_events = true;    ///< see Capabilities::device_event; without them as drivers before CUDA 12.5
};

/// Bounds of HostOptions::stack_bytes: room for a few calls; far more than any device gives a thread.
inline constexpr std::size_t smallest_stack_bytes = std::size_t{16} << 10;
inline constexpr std::size_t largest_stack_bytes = std::size_t{1} << 30;

/// A new host driver, for a runtime with its own virtual devices and for tests. Throws std::bad_alloc, and LostInFork
/// (fork.hpp) in the child of a fork whose parent had used a driver.
std::shared_ptr<Driver> make_host_driver(const HostOptions&);
/// The options that KMM_VIRTUAL_DEVICES, KMM_VIRTUAL_DEVICE_MEM, KMM_FIBER_STACK and, for tests,
/// KMM_TEST_NO_DEVICE_EVENTS=1 ask for.
/// Throws std::invalid_argument with the variable and its text.
HostOptions host_options_from_environment();

/// The process's driver of this kind, or null with the reason in `*reason`.
std::shared_ptr<Driver> open(Kind kind, std::string* reason);
/// The process's host driver, or null if it was not opened yet.
std::shared_ptr<Driver> host_if_open() noexcept;
/// The driver of all free functions of rmm, and of runtimes that ask for no other: the one that KMM_DRIVER names, else
/// the first usable of cuda, hip, host. Chosen once. Throws std::runtime_error if KMM_DRIVER names one that cannot be
/// used, and LostInFork (fork.hpp) in the child of a fork whose parent had used a driver.
Driver& process_default();
std::shared_ptr<Driver> process_default_shared();

}  // namespace kmm::driver
