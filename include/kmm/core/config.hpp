// The settings of a runtime, and where they come from: the program or the environment. docs/configuration.md is the
// same as a table.
//
// Owns: nothing; plain values. Must not know: drivers, devices, the runtime that reads them. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kmm/core/identifiers.hpp"

struct CUstream_st;

namespace kmm {

/// How pinned host memory is obtained. Of either kind a runtime keeps what it has until `trim_memory` or its end.
enum struct HostMemoryKind : std::uint8_t {
    CachingPool,  ///< in large steps, by many threads
    NoPool,       ///< one driver call for each buffer that finds no room in what was freed
};

/// Where device memory comes from. Of every kind a runtime takes large steps, in which it places chunks itself, and
/// keeps them until `trim_memory` or its end. A kind that the driver does not have: NotAvailable.
enum struct DeviceMemoryKind : std::uint8_t {
    DefaultPool,  ///< the driver's default pool
    PrivatePool,  ///< a pool of the driver of our own
    CachingPool,  ///< the library's pool
    NoPool,       ///< one driver call for each buffer that finds no room in what was freed
    Vmm,          ///< the library's pool on virtual memory: re-maps instead of failing on fragmentation
    Resource,     ///< `RuntimeConfig::device_resource`
    Automatic,    ///< Vmm where the driver can, else CachingPool
};

/// Where a runtime with DeviceMemoryKind::Resource takes memory of one device from: made from any
/// `rmm::device_async_resource_ref`, or of two functions. The resource outlives the runtime. Both functions are called
/// from one thread of the runtime's, with the device current and a stream of its own; memory must be aligned to 256
/// bytes; `allocate` may throw or return null (the driver has no more), `deallocate` must not throw.
struct DeviceMemorySource {
    std::shared_ptr<void> resource;
    void* (*allocate)(void* resource, std::size_t bytes, std::size_t alignment, void* stream) = nullptr;
    void (*deallocate)(void* resource, void* memory, std::size_t bytes, std::size_t alignment, void* stream) = nullptr;

    DeviceMemorySource() = default;
    /// `ref` is a reference of rmm to a stream-ordered resource of device memory; needs <rmm/resource_ref.hpp>.
    template<typename Ref, typename = decltype(std::declval<const Ref&>().raw().operations->deallocate)>
    DeviceMemorySource(const Ref& ref)
        : resource(std::make_shared<Ref>(ref)),
          allocate([](void* r, std::size_t bytes, std::size_t alignment, void* stream) {
              return static_cast<Ref*>(r)->allocate_async(bytes, alignment, static_cast<CUstream_st*>(stream));
          }),
          deallocate([](void* r, void* memory, std::size_t bytes, std::size_t alignment, void* stream) {
              static_cast<Ref*>(r)->deallocate_async(memory, bytes, alignment, static_cast<CUstream_st*>(stream));
          }) {}
};

/// More threads than this in the pool of a runtime are a slip of the pen.
inline constexpr std::size_t MAX_HOST_THREADS = 4096;

inline constexpr std::size_t MIN_FIBER_STACK = std::size_t(16) << 10;
inline constexpr std::size_t MAX_FIBER_STACK = std::size_t(1) << 30;

/// Passing an object of your own ignores the environment; start from default_config_from_environment() to combine both.
/// All sizes in bytes. In brackets the variable that default_config_from_environment() reads into the field.
struct RuntimeConfig {
    /// [KMM_HOST_POOL]
    HostMemoryKind host_memory_kind = HostMemoryKind::CachingPool;
    /// [KMM_HOST_MEM, a size] Of the host tier, which also stays below `host_memory_fraction`.
    std::size_t host_memory_limit = std::numeric_limits<std::size_t>::max();
    /// [KMM_HOST_BLOCK] Take host memory in blocks of this size (a larger buffer in one of its own) and sub-allocate;
    /// 0: off.
    std::size_t host_memory_block_size = 0;
    /// [KMM_DEVICE_POOL]
    DeviceMemoryKind device_memory_kind = DeviceMemoryKind::Automatic;
    /// [KMM_DEVICE_MEM, a size] Of each device; includes pool slack and temporaries, not adopted memory. The limit in
    /// force is min(this, `device_memory_fraction` of the total - `device_memory_keep_free`).
    std::size_t device_memory_limit = std::numeric_limits<std::size_t>::max();
    /// [KMM_DEVICE_KEEP_FREE] Of each device, left to others.
    std::size_t device_memory_keep_free = 0;
    /// [KMM_DEVICE_BLOCK] As host_memory_block_size, of each device.
    std::size_t device_memory_block_size = 0;
    /// [KMM_DEVICE_STREAMS] Compute streams of each device, 1..64.
    std::size_t device_concurrent_streams = 32;
    /// [KMM_DEBUG] Tasks run one at a time in submission order; fresh and `overwrite` memory is filled with a pattern;
    /// regions that lie partly outside their array are logged.
    bool debug_mode = false;

    /// [KMM_DRIVER]
    DriverKind driver = DriverKind::Auto;
    /// [KMM_DEVICES] Native ordinals; the i-th becomes DeviceId(i); only these are touched. Empty: all.
    std::vector<int> devices{};
    /// [KMM_VIRTUAL_DEVICES] Devices of the host driver, 1..64.
    std::size_t virtual_devices = 1;
    /// [KMM_VIRTUAL_DEVICE_MEM] Of each device of the host driver; 0: a third of the host tier / N. What the devices
    /// may use comes out of the host tier; all together get at most three quarters of it.
    std::size_t virtual_device_memory = 0;
    /// [KMM_DEVICE_MEM, a percentage] Of the device's total.
    double device_memory_fraction = 0.95;
    /// [KMM_HOST_MEM, a percentage] Of physical memory or of the container limit, whichever is smaller.
    double host_memory_fraction = 0.75;
    /// [KMM_SPILL_DIR] Existing writable directory; empty: no disk tier. Not offered yet: anything else is
    /// NotAvailable.
    std::string spill_directory{};
    /// [KMM_SPILL_LIMIT, a size] Changes nothing yet.
    std::size_t spill_limit = std::numeric_limits<std::size_t>::max();
    /// [KMM_SPILL_LIMIT, a percentage] Of the space that is free when the runtime starts. Changes nothing yet.
    double spill_fraction = 0.9;
    /// [KMM_HOST_THREADS] Pool for host tasks and emulated kernels; 0: usable CPUs. At most MAX_HOST_THREADS; fewer,
    /// with a warning, where the system gives no more.
    std::size_t host_threads = 0;
    /// [KMM_MAX_PENDING] A submit beyond this many unfinished tasks waits, unless it is made inside a task; 0: no
    /// limit.
    std::size_t max_pending_tasks = 1'000'000;
    /// In GPU(f) tasks, work on the legacy default stream is ordered after the inputs and awaited.
    bool legacy_stream_capture = true;
    /// [KMM_MEMORY_WAIT] Seconds that a task waits, without a release, for device memory which only the program can
    /// release: that of its rmm resources, and of other runtimes. Then it fails. At least 0; infinite or above 10^9:
    /// never.
    double memory_wait = 10;
    /// [KMM_WATCHDOG] A wait of this many seconds without any progress logs, once, who waits for what. At least 0; 0,
    /// infinite or above 10^9: never. If the first task without its memory has waited for this time (never: 30 s), and
    /// a function of the program has run for as long, tasks that were held back to leave it memory are admitted: the
    /// function may wait for the program, and the program for such a task.
    double watchdog = 30;
    /// [KMM_TRACE] File for a trace in the trace-event format, which Perfetto and `kmm trace view` show; it ends when
    /// the runtime is closed or ends. `%p` stands for the number of the process, `%r` for that of the runtime. Empty:
    /// none.
    std::string trace{};
    /// [KMM_TRACE_DEVICE_TIMES] The trace has the times that kernels and copies took by the device's own clock, at the
    /// cost of two events for each; else those that the host has seen.
    bool trace_device_times = false;
    /// [KMM_RECORD] File for what is submitted and issued, as lines of text without times. `%p` and `%r` as in `trace`.
    std::string record{};
    /// [KMM_NVTX] NVTX ranges, for profilers: tasks by name while they are launched or run, copies by array and chunk.
    /// Nothing, with a warning, where the library was built without NVTX.
    bool nvtx = false;
    /// [KMM_RANGE_CHECK] Warns, once for each place, where a range looks like one of KMM 0.3, whose end belongs to it:
    /// range(_x - 1, _x + 1), range(4 * _x, 4 * _x + 3).
    bool range_check = false;
    /// [KMM_FIBER_STACK] Stack of a thread of a kernel with barriers on the host driver; MIN_FIBER_STACK to
    /// MAX_FIBER_STACK. A kernel that needs more fails. With DeviceMemoryKind::Resource only the variable counts.
    std::size_t fiber_stack = std::size_t(64) << 10;
    /// For DeviceMemoryKind::Resource: one for each device, made from `rmm::device_async_resource_ref`s. On the host
    /// driver the runtime then uses the process's virtual devices, for which resources are made.
    std::vector<DeviceMemorySource> device_resource{};
};

/// The defaults, with what the KMM_* variables say. An unset or empty variable changes nothing. A malformed one throws
/// InvalidArgument naming variable, value and accepted forms; an unknown one is reported once a process at warning
/// level.
RuntimeConfig default_config_from_environment();

/// "500MB", "4GiB", "1.5k", "1e9", "90%" (of `whole`) in bytes, rounded down. InvalidArgument for anything else.
std::size_t parse_byte_size(const std::string& text, std::size_t whole = 0);

/// trace, debug, info, warn|warning, err|error, critical, off, in lower or upper case. InvalidArgument for others. For
/// the whole process; KMM_LOG_LEVEL gives the level before the first call, "warn" if unset.
void set_global_log_level(const std::string& name);

/// Sends log messages to `handler` instead of stderr; null: stderr again. It is called from any thread, one call at a
/// time and with no lock held: it may log, ask for reports, and submit, but must not throw. `level` is 0 (trace) to 5
/// (critical). A handler that was replaced is not called any more once this returns.
void set_log_handler(void (*handler)(int level, const char* text, void* user), void* user);

}  // namespace kmm
