// The settings of a runtime, and where they come from: the program or the environment. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kmm/core/identifiers.hpp"

namespace kmm {

/// How pinned host memory is obtained.
enum struct HostMemoryKind : std::uint8_t {
    CachingPool,  ///< freed memory is kept for reuse
    NoPool,       ///< one driver call for each buffer
};

/// How device memory is obtained.
enum struct DeviceMemoryKind : std::uint8_t {
    DefaultPool,  ///< the driver's default pool
    PrivatePool,  ///< a pool of the driver of our own
    CachingPool,  ///< the library's pool
    NoPool,       ///< one driver call for each buffer
    Vmm,          ///< the library's pool on virtual memory: re-maps instead of failing on fragmentation
    Resource,     ///< `RuntimeConfig::device_resource`
    Automatic,    ///< Vmm where the driver can, else CachingPool
};

/// Where a runtime with DeviceMemoryKind::Resource takes device memory from: a reference to a memory resource that
/// outlives the runtime. rmm/interop with kmm makes one from any `rmm::device_async_resource_ref`. Both functions are
/// called from any thread, with the device current; `allocate` may throw.
struct DeviceMemorySource {
    std::shared_ptr<void> resource;
    void* (*allocate)(void* resource, std::size_t bytes, std::size_t alignment, void* stream) = nullptr;
    void (*deallocate)(void* resource, void* memory, std::size_t bytes, std::size_t alignment, void* stream) = nullptr;
};

/// Passing an object of your own ignores the environment; start from default_config_from_environment() to combine both.
/// All sizes in bytes.
struct RuntimeConfig {
    HostMemoryKind host_memory_kind = HostMemoryKind::CachingPool;
    std::size_t host_memory_limit = std::numeric_limits<std::size_t>::max();
    /// Take host memory in blocks of this size and sub-allocate; 0: off.
    std::size_t host_memory_block_size = 0;
    DeviceMemoryKind device_memory_kind = DeviceMemoryKind::Automatic;
    /// Of each device; includes pool slack and temporaries, not adopted memory.
    std::size_t device_memory_limit = std::numeric_limits<std::size_t>::max();
    /// Of each device, left to others.
    std::size_t device_memory_keep_free = 0;
    std::size_t device_memory_block_size = 0;
    /// Compute streams of each device, 1..64.
    std::size_t device_concurrent_streams = 8;
    /// Tasks run one at a time in submission order; fresh memory is filled with a pattern.
    bool debug_mode = false;

    DriverKind driver = DriverKind::Auto;
    /// Native ordinals; the i-th becomes DeviceId(i); only these are touched. Empty: all.
    std::vector<int> devices{};
    /// Devices of the host driver.
    std::size_t virtual_devices = 1;
    /// Of each device of the host driver, taken out of the host tier's limit; 0: a third of the host tier / N.
    std::size_t virtual_device_memory = 0;
    /// Of the device's total.
    double device_memory_fraction = 0.95;
    /// Of physical memory or of the container limit, whichever is smaller.
    double host_memory_fraction = 0.75;
    /// Existing writable directory; empty: no disk tier.
    std::string spill_directory{};
    std::size_t spill_limit = std::numeric_limits<std::size_t>::max();
    /// Of the space that is free when the runtime starts.
    double spill_fraction = 0.9;
    /// Pool for host tasks and emulated kernels; 0: usable CPUs.
    std::size_t host_threads = 0;
    /// A submit beyond this many unfinished tasks waits; 0: no limit.
    std::size_t max_pending_tasks = 1'000'000;
    /// In GPU(f) tasks, work on the legacy default stream is ordered after the inputs and awaited.
    bool legacy_stream_capture = true;
    /// Seconds that a task waits for memory which only the program can release.
    double memory_wait = 10;
    /// A wait of this many seconds without any progress logs, once, who waits for what; 0: off.
    double watchdog = 30;
    /// For DeviceMemoryKind::Resource: one for each device.
    std::vector<DeviceMemorySource> device_resource{};
};

/// The defaults, with what the KMM_* variables say. An unset or empty variable changes nothing. A malformed one throws
/// InvalidArgument naming variable, value and accepted forms; an unknown one is reported once a process at warning level.
RuntimeConfig default_config_from_environment();

/// "500MB", "4GiB", "1.5k", "1e9", "90%" (of `whole`) in bytes, rounded down. InvalidArgument for anything else.
std::size_t parse_byte_size(const std::string& text, std::size_t whole = 0);

/// trace, debug, info, warn|warning, err|error, critical, off, in lower or upper case. InvalidArgument for others. For the
/// whole process; KMM_LOG_LEVEL gives the level before the first call, "warn" if unset.
void set_global_log_level(const std::string& name);

/// Sends log messages to `handler` instead of stderr; null: stderr again. It is called from any thread, one call at a time,
/// and must neither throw nor call the library. `level` is 0 (trace) to 5 (critical). A handler that was replaced is not
/// called any more once this returns.
void set_log_handler(void (*handler)(int level, const char* text, void* user), void* user);

}  // namespace kmm
