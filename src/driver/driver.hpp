// The driver layer: the whole of what KMM asks of hardware.
//
// Owns: the abstract class `Driver` and the plain data that crosses it. Must not know: rmm, kmm, exceptions, any vendor
// header. Every call may come from any thread; a call never throws and returns a `Status`. Only `check` (check.hpp)
// turns a status into an exception. What a driver cannot do is a capability flag, never a null pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kmm/driver/host_kernel.hpp"

namespace kmm::driver {

enum class Kind : std::uint8_t { host, cuda, hip };

/// What happened, in words that mean the same for every driver.
enum class Code : std::uint8_t {
    ok,
    not_ready,         ///< a query of unfinished work; not a failure
    out_of_memory,     ///< the device, the host or the address space has no more to give
    invalid_argument,  ///< a size, pointer, device number or geometry that the driver refuses
    invalid_handle,    ///< a stream, event, graph or kernel that does not exist (any more)
    not_supported,     ///< see Capabilities
    capture_error,     ///< not permitted while a stream is captured, or the capture was invalidated
    launch_failed,     ///< a kernel could not be started, or threw (host driver)
    device_lost,       ///< sticky: every later call on this device fails too
    shut_down,         ///< the vendor's library has already been unloaded (process exit)
    no_device,         ///< no usable device or no vendor driver
    unknown,
};

/// Result of every driver call. `native` is the vendor's own number (0 where there is none), for messages only.
struct [[nodiscard]] Status {
    Code code = Code::ok;
    int native = 0;
    constexpr bool ok() const noexcept { return code == Code::ok; }
};

// Handles are plain values; null means "none" (for streams: the legacy default stream of the current device, as in
// CUDA).
struct StreamHandle {
    void* native = nullptr;
    friend bool operator==(const StreamHandle&, const StreamHandle&) = default;
};
struct EventHandle {
    void* native = nullptr;
    friend bool operator==(const EventHandle&, const EventHandle&) = default;
};
struct PoolHandle {
    void* native = nullptr;
    friend bool operator==(const PoolHandle&, const PoolHandle&) = default;
};
struct PhysicalHandle {
    std::uint64_t native = 0;
    friend bool operator==(const PhysicalHandle&, const PhysicalHandle&) = default;
};
struct GraphHandle {
    void* native = nullptr;
    friend bool operator==(const GraphHandle&, const GraphHandle&) = default;
};
struct GraphNodeHandle {
    void* native = nullptr;
    friend bool operator==(const GraphNodeHandle&, const GraphNodeHandle&) = default;
};
struct GraphExecHandle {
    void* native = nullptr;
    friend bool operator==(const GraphExecHandle&, const GraphExecHandle&) = default;
};

/// The two stream values that are not handles, as CUDA defines them; every driver accepts them.
inline StreamHandle legacy_stream() noexcept { return {reinterpret_cast<void*>(std::uintptr_t{1})}; }
inline StreamHandle per_thread_stream() noexcept { return {reinterpret_cast<void*>(std::uintptr_t{2})}; }

/// The priority of streams whose work shall not wait behind that of others for room on the device.
inline constexpr int most_urgent = -1000;

struct Capabilities {
    bool virtual_memory = false;
    bool memory_pools = false;  ///< stream-ordered pools of the driver
    bool managed_memory = false;
    bool managed_pools = false;           ///< `default_managed_pool`
    bool hardware_decompression = false;  ///< the driver knows pools that a decompression engine can read
    bool kernels_by_handle = false;
    bool graphs = false;
    bool stream_capture = false;
    bool host_callbacks = false;
    bool batch_copies = false;  ///< `copy_batch` is one driver call
    bool device_event = false;  ///< `device_event_record` (one event that fences a whole device)
    bool stream_ids = false;    ///< `stream_id` tells a destroyed stream from a new one with the same handle
    bool asynchronous_kernel_errors =
        false;  ///< a failing kernel reports through `KernelLaunch::failure` (host driver)
};

struct DeviceProperties {
    std::string name;
    std::size_t total_memory_bytes = 0;
    int compute_capability = 0;  ///< major * 10 + minor; 0 on the host driver
    int copy_engines = 0;
    int multiprocessors = 0;
    int numa_node = -1;  ///< -1: unknown
    int max_threads_per_block = 0;
    int max_block_dim[3] = {0, 0, 0};
    std::int64_t max_grid_dim[3] = {0, 0, 0};
    std::size_t max_shared_memory_per_block = 0;  ///< with opt-in
    std::string pci_bus_id;
    std::string uuid;
};

/// How a stream-ordered pool is made.
struct PoolOptions {
    std::size_t maximum_bytes = 0;          ///< 0: unlimited; the driver may round it up
    std::uint32_t export_handle_types = 0;  ///< bits of cudaMemAllocationHandleType: how other processes may open it
    bool decompression = false;             ///< see Capabilities::hardware_decompression
};

/// How physical memory is made.
struct PhysicalOptions {
    std::uint32_t export_handle_types = 0;  ///< bits of cudaMemAllocationHandleType: how other processes may open it
    bool rdma = false;                      ///< network cards and disks may read and write it (GPUDirect RDMA)
    bool multicast = false;                 ///< a multicast object over all devices can bind it
    friend bool operator==(const PhysicalOptions&, const PhysicalOptions&) = default;
};

enum class MemoryKind : std::uint8_t { pageable, pinned, device, managed };

struct PointerInfo {
    MemoryKind kind = MemoryKind::pageable;
    int device = -1;  ///< for device and managed memory
};

/// A strided copy of a box: `depth` planes of `height` rows of `width_bytes`. Pitches in bytes.
struct BoxCopy {
    void* destination = nullptr;
    const void* source = nullptr;
    std::size_t width_bytes = 0;
    std::size_t height = 1;
    std::size_t depth = 1;
    std::size_t destination_row_pitch = 0;
    std::size_t destination_plane_pitch = 0;
    std::size_t source_row_pitch = 0;
    std::size_t source_plane_pitch = 0;
};

/// One box of `move_boxes`: runs of `run_bytes` that are contiguous on both sides, repeated along `num_axes` axes,
/// slowest first. Steps in bytes between the beginnings of runs, not below what is nested in them (of an axis of one,
/// whatever). Any alignment.
struct BoxMove {
    static constexpr std::size_t max_axes = 8;
    void* destination = nullptr;
    const void* source = nullptr;
    std::size_t run_bytes = 0;
    std::uint32_t num_axes = 0;  ///< 0: one run
    std::int64_t counts[max_axes] = {};
    std::int64_t destination_steps[max_axes] = {};
    std::int64_t source_steps[max_axes] = {};
};

struct CopyPiece {
    void* destination = nullptr;
    const void* source = nullptr;
    std::size_t size_bytes = 0;
};

struct Dim3 {
    std::uint32_t x = 1, y = 1, z = 1;
};

/// Where the host driver reports a kernel that threw. The owner keeps it alive until the launch has completed; it is
/// written before the launch counts as completed. Other drivers never touch it.
struct KernelFailure {
    std::exception_ptr error;
};

/// What a driver with `asynchronous_kernel_errors` tells and asks about one kernel; others never look at it. Called on
/// the thread that runs the kernel; must neither throw nor call the driver.
struct KernelHooks {
    /// Where an exception of the kernel goes, before the launch counts as completed. Null: the stream fails.
    KernelFailure* failure = nullptr;
    /// The kernel's turn has come: true means that it is skipped (a task that it needs has failed meanwhile).
    bool (*skip)(void* user) = nullptr;
    /// The kernel has ended with an exception, and what comes after it on the device has not begun.
    void (*failed)(void* user) = nullptr;
    void* user = nullptr;
};

/// A kernel by handle: what `cudaGetFuncBySymbol` returned in the user's file, or a `HostKernel*` on the host driver.
/// Parameters are packed as the ABI wants them: in order, each at its natural alignment. They are copied by the call.
struct KernelLaunch {
    const void* function = nullptr;
    Dim3 grid;
    Dim3 block;
    std::uint32_t shared_bytes = 0;
    const void* parameters = nullptr;
    std::size_t parameter_bytes = 0;
    KernelHooks hooks;
};

using HostCallback = void (*)(void* user);  ///< must neither throw nor call the driver

enum class CaptureMode : std::uint8_t { global, thread_local_, relaxed };
enum class CaptureStatus : std::uint8_t { none, active, invalidated };

class Driver {
  public:
    virtual ~Driver() = default;
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    // ---- the driver itself; constant after construction
    virtual Kind kind() const noexcept = 0;
    virtual const char* name() const noexcept = 0;  ///< "host", "cuda", "hip"
    virtual int version() const noexcept = 0;       ///< native number, e.g. 13000
    virtual Capabilities capabilities() const noexcept = 0;
    /// Name and description of a native code, e.g. {"cudaErrorInvalidValue", "invalid argument"}. Static strings.
    virtual const char* error_name(Status) const noexcept = 0;
    virtual const char* error_text(Status) const noexcept = 0;
    /// Returns the pending native error of this thread and clears it.
    virtual Status take_last_error() noexcept = 0;

    // ---- devices
    virtual int device_count() const noexcept = 0;
    virtual Status properties(int device, DeviceProperties* out) noexcept = 0;
    /// Answers CUDA's attribute numbers; `invalid_argument` if unknown.
    virtual Status attribute(int device, int number, int* out) noexcept = 0;
    virtual Status current_device(int* out) noexcept = 0;
    virtual Status set_current_device(int device) noexcept = 0;
    virtual Status memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept = 0;
    /// Whether `device` can read memory of `peer` directly; `enable_peer` makes plain allocations reachable
    /// (idempotent).
    virtual Status can_access_peer(int device, int peer, bool* out) noexcept = 0;
    virtual Status enable_peer(int device, int peer) noexcept = 0;
    virtual Status synchronize_device(int device) noexcept = 0;

    // ---- memory (synchronous in effect; 256-byte aligned; `bytes` > 0)
    virtual Status allocate(int device, std::size_t bytes, void** out) noexcept = 0;
    virtual Status free(void* pointer) noexcept = 0;
    virtual Status allocate_managed(std::size_t bytes, void** out) noexcept = 0;  ///< freed by `free`
    virtual Status prefetch(const void* pointer, std::size_t bytes, int device_or_host,
                            StreamHandle) noexcept = 0;  ///< -1: host
    /// Where the pages of managed or (where the device reaches it) pageable memory should rather be; moves nothing.
    virtual Status prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept = 0;
    virtual Status allocate_pinned(std::size_t bytes, void** out) noexcept = 0;
    virtual Status free_pinned(void* pointer) noexcept = 0;
    /// Page-locks memory that the caller owns. `pointer` and `bytes` are multiples of the page size.
    virtual Status register_host(void* pointer, std::size_t bytes) noexcept = 0;
    virtual Status unregister_host(void* pointer) noexcept = 0;
    virtual Status pointer_info(const void* pointer, PointerInfo* out) noexcept = 0;

    // ---- stream-ordered memory pools
    virtual Status default_pool(int device, PoolHandle* out) noexcept = 0;
    /// The driver's own pool of managed memory near `device`.
    virtual Status default_managed_pool(int device, PoolHandle* out) noexcept = 0;
    virtual Status create_pool(int device, const PoolOptions&, PoolHandle* out) noexcept = 0;
    virtual Status destroy_pool(PoolHandle) noexcept = 0;
    virtual Status set_pool_release_threshold(PoolHandle, std::uint64_t bytes) noexcept = 0;
    virtual Status trim_pool(PoolHandle, std::size_t keep_bytes) noexcept = 0;
    virtual Status allocate_async(PoolHandle, std::size_t bytes, StreamHandle, void** out) noexcept = 0;
    virtual Status free_async(void* pointer, StreamHandle) noexcept = 0;

    // ---- virtual memory. Sizes and addresses are multiples of `granularity`.
    /// Which of the options the device has: all bits, or true.
    virtual Status physical_support(int device, PhysicalOptions* out) noexcept = 0;
    virtual Status granularity(int device, const PhysicalOptions&, std::size_t* out) noexcept = 0;
    virtual Status reserve_addresses(std::size_t bytes, void** out) noexcept = 0;
    virtual Status release_addresses(void* address, std::size_t bytes) noexcept = 0;
    virtual Status create_physical(int device, std::size_t bytes, const PhysicalOptions&,
                                   PhysicalHandle* out) noexcept = 0;
    virtual Status release_physical(PhysicalHandle) noexcept = 0;
    virtual Status map(void* address, std::size_t bytes, PhysicalHandle) noexcept = 0;
    virtual Status unmap(void* address, std::size_t bytes) noexcept = 0;
    /// Lets the given devices read and write a mapped range (its own device must be among them).
    virtual Status set_access(void* address, std::size_t bytes, const int* devices,
                              std::size_t num_devices) noexcept = 0;

    // ---- streams
    /// `non_blocking`: does not synchronise with the legacy default stream. Higher `priority` numbers are less urgent;
    /// what is beyond those that the device knows counts as the nearest of them.
    virtual Status create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept = 0;
    virtual Status destroy_stream(StreamHandle) noexcept = 0;  ///< returns at once; queued work still runs
    virtual Status synchronize_stream(StreamHandle) noexcept = 0;
    virtual Status query_stream(StreamHandle) noexcept = 0;  ///< ok or not_ready
    /// Of a stream that is not captured: asking would invalidate the capture (see `capture_status`).
    virtual Status stream_id(StreamHandle, std::uint64_t* out) noexcept = 0;
    virtual Status stream_device(StreamHandle, int* out) noexcept = 0;
    virtual Status wait_event(StreamHandle, EventHandle) noexcept = 0;  ///< waits for the event as recorded last, now

    // ---- events
    /// `blocking_sync`: `synchronize_event` sleeps instead of spinning. `timing`: `elapsed` works.
    virtual Status create_event(int device, bool timing, bool blocking_sync, EventHandle* out) noexcept = 0;
    virtual Status destroy_event(EventHandle) noexcept = 0;
    virtual Status record_event(EventHandle, StreamHandle) noexcept = 0;
    virtual Status query_event(EventHandle) noexcept = 0;  ///< ok or not_ready; never recorded: ok
    virtual Status synchronize_event(EventHandle) noexcept = 0;
    virtual Status elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept = 0;
    virtual Status device_event_record(int device, EventHandle) noexcept = 0;  ///< see Capabilities::device_event

    // ---- work on streams. Copies find out the direction from the addresses.
    virtual Status copy(void* destination, const void* source, std::size_t bytes, StreamHandle) noexcept = 0;
    virtual Status copy_peer(void* destination, int destination_device, const void* source, int source_device,
                             std::size_t bytes, StreamHandle) noexcept = 0;
    virtual Status copy_box(const BoxCopy&, StreamHandle) noexcept = 0;
    /// Many boxes, each in memory of one kind: fast where the stream's device can read and write it (its own, a peer's,
    /// page-locked), from and to everything else as `copy`. In the order of the stream; among themselves in none, so
    /// that no box may write what another one reads, or writes unless both write the same bytes. The list is read
    /// during the call. Of a stream that is captured the current device must be the stream's. Empty boxes move nothing;
    /// a box that does not keep the rules of `BoxMove` refuses the list with `invalid_argument`. Unless a driver has
    /// better, `copy_box` of each.
    virtual Status move_boxes(const BoxMove* boxes, std::size_t num_boxes, StreamHandle stream) noexcept;
    /// Many contiguous copies, in the order of the stream; among themselves in none, so that no piece may write what
    /// another one reads or writes. The list is read during the call. Pieces without bytes copy nothing. An error may
    /// come after some were copied.
    virtual Status copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle) noexcept = 0;
    /// Repeats a pattern of 1, 2 or 4 bytes natively, of any other size up to 64 by whatever is fastest.
    virtual Status fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                        StreamHandle) noexcept = 0;
    virtual Status host_callback(StreamHandle, HostCallback, void* user) noexcept = 0;
    virtual Status launch(const KernelLaunch&, StreamHandle) noexcept = 0;
    /// Resolves what the user's file knows about a kernel; allows dynamic shared memory of `shared_bytes` for it.
    virtual Status prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept = 0;
    /// Loads what `move_boxes` needs on a device. Else its first call does so, which may wait for all work that the
    /// device has: call this before work is enqueued.
    virtual Status prepare_boxes(int /*device*/) noexcept { return {}; }

    // ---- graphs
    virtual Status begin_capture(StreamHandle, CaptureMode) noexcept = 0;
    virtual Status end_capture(StreamHandle, GraphHandle* out) noexcept = 0;
    virtual Status capture_status(StreamHandle, CaptureStatus* out, std::uint64_t* id) noexcept = 0;
    /// Of a stream that is captured: `on_end(user)` is called once, on any thread, when neither the graph of the
    /// capture, nor an executable graph made of it, nor a launch of one is left; also when the capture fails. It must
    /// neither throw nor call the driver. Not called if this fails.
    virtual Status keep_with_capture(StreamHandle, HostCallback on_end, void* user) noexcept = 0;
    virtual Status create_graph(GraphHandle* out) noexcept = 0;
    virtual Status destroy_graph(GraphHandle) noexcept = 0;
    virtual Status add_empty_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after,
                                  GraphNodeHandle* out) noexcept = 0;
    virtual Status add_kernel_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after,
                                   const KernelLaunch&, GraphNodeHandle* out) noexcept = 0;
    virtual Status add_copy_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, const CopyPiece&,
                                 GraphNodeHandle* out) noexcept = 0;
    virtual Status add_fill_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, void* destination,
                                 std::uint32_t value, std::size_t value_bytes, std::size_t count,
                                 GraphNodeHandle* out) noexcept = 0;
    virtual Status add_host_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, HostCallback,
                                 void* user, GraphNodeHandle* out) noexcept = 0;
    virtual Status instantiate(GraphHandle, GraphExecHandle* out) noexcept = 0;
    virtual Status destroy_exec(GraphExecHandle) noexcept = 0;
    virtual Status update_kernel_node(GraphExecHandle, GraphNodeHandle, const KernelLaunch&) noexcept = 0;
    virtual Status update_exec(GraphExecHandle, GraphHandle) noexcept = 0;
    virtual Status launch_graph(GraphExecHandle, StreamHandle) noexcept = 0;

  protected:
    Driver() = default;
};

/// Makes `device` current for a scope and restores what was current before. Failures are ignored here: the next call
/// on the device reports them.
class DeviceGuard {
  public:
    DeviceGuard(Driver& driver, int device) noexcept : driver_(driver) {
        (void)driver_.current_device(&previous_);
        changed_ = previous_ != device && driver_.set_current_device(device).ok();
    }
    ~DeviceGuard() {
        if (changed_) (void)driver_.set_current_device(previous_);
    }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

  private:
    Driver& driver_;
    int previous_ = -1;
    bool changed_ = false;
};

}  // namespace kmm::driver
