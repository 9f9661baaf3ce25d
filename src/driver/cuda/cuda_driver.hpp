// The driver over a vendor's GPU runtime: CUDA here; a plug-in for HIP is to compile the same files.
//
// Owns: the class and its entry point. Must not know: rmm, kmm, exceptions; includes no vendor header, so that the
// registry can include it. Any thread.
//
// Rules of this driver beyond driver.hpp:
// - It works in the primary context of each device, which every library of the process shares, keeps it for the life of
//   the process and never resets it.
// - Calls that name a device (create_stream, create_event, allocate, ...) make it current for their own duration. Work
//   on a stream runs on that stream's device whatever device is current; the legacy and the per-thread stream (and
//   null) are those of the current device.
// - A failing call leaves no error pending in the vendor's runtime.
// - Calls that a capture in another thread would forbid (allocating, freeing, registering, queries, waits of the host)
//   are made in relaxed capture interaction, so that they never invalidate the captures of others.
// - The handle of a kernel is what `cudaGetFuncBySymbol` returned, and then belongs to the device that was current
//   there, or what `cudaGetKernel` returned, which serves every device. A launch runs on the device of its stream,
//   whatever device is current; `prepare_kernel` and graph nodes with a handle of the second kind mean the current
//   device.
// - A kernel is loaded when it is prepared, or else launched, for the first time on a device, and that can wait for all
//   work which the device has. If that work includes a wait that the host must end, a later kernel has to be prepared
//   before the wait is enqueued.
//   The kernel that moves boxes is loaded by the first `move_boxes` on a device that is not empty.
// - Host callbacks of all streams of a device run one after the other on one thread: one that blocks holds up the
//   others.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "driver/driver.hpp"

namespace kmm::driver {

/// The cuda driver, or null with the reason in `*reason`; where there is one, `*reason` says what was found and
/// `*num_devices` how many devices. Makes no context and can be called on a machine without any driver. Either argument
/// may be null. May throw std::bad_alloc.
std::shared_ptr<Driver> make_cuda_driver(std::string* reason, int* num_devices);

namespace boxes {
class BoxList;
enum class Place : std::uint8_t;
}  // namespace boxes

namespace vendor {

/// What `make_cuda_driver` and its hip twin call.
std::shared_ptr<Driver> make_driver(Kind kind, std::string* reason, int* num_devices);

class VendorDriver final : public Driver {
  public:
    VendorDriver(Kind kind, int num_devices, int version, Capabilities capabilities) noexcept
        : kind_(kind), num_devices_(num_devices), version_(version), capabilities_(capabilities) {}

    Kind kind() const noexcept override { return kind_; }
    const char* name() const noexcept override;
    int version() const noexcept override { return version_; }
    Capabilities capabilities() const noexcept override { return capabilities_; }
    const char* error_name(Status) const noexcept override;
    const char* error_text(Status) const noexcept override;
    Status take_last_error() noexcept override;

    int device_count() const noexcept override { return num_devices_; }
    Status properties(int device, DeviceProperties* out) noexcept override;
    Status attribute(int device, int number, int* out) noexcept override;
    Status current_device(int* out) noexcept override;
    Status set_current_device(int device) noexcept override;
    Status memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept override;
    Status can_access_peer(int device, int peer, bool* out) noexcept override;
    /// Covers plain allocations, the default pool of `peer`, and pools of `peer` that are made later.
    Status enable_peer(int device, int peer) noexcept override;
    Status synchronize_device(int device) noexcept override;

    Status allocate(int device, std::size_t bytes, void** out) noexcept override;
    Status free(void* pointer) noexcept override;
    Status allocate_managed(std::size_t bytes, void** out) noexcept override;
    Status prefetch(const void* pointer, std::size_t bytes, int device_or_host, StreamHandle) noexcept override;
    Status prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept override;
    Status allocate_pinned(std::size_t bytes, void** out) noexcept override;
    Status free_pinned(void* pointer) noexcept override;
    Status register_host(void* pointer, std::size_t bytes) noexcept override;
    Status unregister_host(void* pointer) noexcept override;
    Status pointer_info(const void* pointer, PointerInfo* out) noexcept override;

    Status default_pool(int device, PoolHandle* out) noexcept override;
    Status default_managed_pool(int device, PoolHandle* out) noexcept override;
    Status create_pool(int device, const PoolOptions& options, PoolHandle* out) noexcept override;
    Status destroy_pool(PoolHandle) noexcept override;
    Status set_pool_release_threshold(PoolHandle, std::uint64_t bytes) noexcept override;
    Status trim_pool(PoolHandle, std::size_t keep_bytes) noexcept override;
    Status allocate_async(PoolHandle, std::size_t bytes, StreamHandle, void** out) noexcept override;
    Status free_async(void* pointer, StreamHandle) noexcept override;

    Status physical_support(int device, PhysicalOptions* out) noexcept override;
    Status granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept override;
    Status reserve_addresses(std::size_t bytes, void** out) noexcept override;
    Status release_addresses(void* address, std::size_t bytes) noexcept override;
    Status create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                           PhysicalHandle* out) noexcept override;
    Status release_physical(PhysicalHandle) noexcept override;
    Status map(void* address, std::size_t bytes, PhysicalHandle) noexcept override;
    Status unmap(void* address, std::size_t bytes) noexcept override;
    Status set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) noexcept override;

    Status create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept override;
    Status destroy_stream(StreamHandle) noexcept override;
    Status synchronize_stream(StreamHandle) noexcept override;
    Status query_stream(StreamHandle) noexcept override;
    Status stream_id(StreamHandle, std::uint64_t* out) noexcept override;
    Status stream_device(StreamHandle, int* out) noexcept override;
    Status wait_event(StreamHandle, EventHandle) noexcept override;

    Status create_event(int device, bool timing, bool blocking_sync, EventHandle* out) noexcept override;
    Status destroy_event(EventHandle) noexcept override;
    Status record_event(EventHandle, StreamHandle) noexcept override;
    Status query_event(EventHandle) noexcept override;
    Status synchronize_event(EventHandle) noexcept override;
    Status elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept override;
    /// Invalidates captures that are in progress on streams of the device.
    Status device_event_record(int device, EventHandle) noexcept override;

    Status copy(void* destination, const void* source, std::size_t bytes, StreamHandle) noexcept override;
    Status copy_peer(void* destination, int destination_device, const void* source, int source_device,
                     std::size_t bytes, StreamHandle) noexcept override;
    Status copy_box(const BoxCopy&, StreamHandle) noexcept override;
    /// A kernel moves what the stream's device reaches, tens of boxes in a launch. Runs from 1 MiB on, long rows over
    /// the link to the host, and what it does not reach (pageable memory, peers without access), are left to
    /// `copy_box`.
    Status move_boxes(const BoxMove* boxes, std::size_t num_boxes, StreamHandle) noexcept override;
    /// One driver call for up to 256 pieces; piece by piece on the legacy stream and during a capture.
    Status copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle) noexcept override;
    /// Patterns of 1, 2 and 4 bytes, and longer ones that repeat those, are one call. Any other pattern is written word
    /// by word at a stride (one call a word) into the first elements, which are then copied in doubling steps.
    Status fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                StreamHandle) noexcept override;
    Status host_callback(StreamHandle, HostCallback, void* user) noexcept override;
    Status launch(const KernelLaunch&, StreamHandle) noexcept override;
    Status prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept override;
    Status prepare_boxes(int device) noexcept override;

    Status begin_capture(StreamHandle, CaptureMode) noexcept override;
    Status end_capture(StreamHandle, GraphHandle* out) noexcept override;
    Status capture_status(StreamHandle, CaptureStatus* out, std::uint64_t* id) noexcept override;
    Status keep_with_capture(StreamHandle, HostCallback on_end, void* user) noexcept override;
    Status create_graph(GraphHandle* out) noexcept override;
    Status destroy_graph(GraphHandle) noexcept override;
    Status add_empty_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after,
                          GraphNodeHandle* out) noexcept override;
    Status add_kernel_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, const KernelLaunch&,
                           GraphNodeHandle* out) noexcept override;
    Status add_copy_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, const CopyPiece&,
                         GraphNodeHandle* out) noexcept override;
    Status add_fill_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, void* destination,
                         std::uint32_t value, std::size_t value_bytes, std::size_t count,
                         GraphNodeHandle* out) noexcept override;
    Status add_host_node(GraphHandle, const GraphNodeHandle* after, std::size_t num_after, HostCallback, void* user,
                         GraphNodeHandle* out) noexcept override;
    Status instantiate(GraphHandle, GraphExecHandle* out) noexcept override;
    Status destroy_exec(GraphExecHandle) noexcept override;
    Status update_kernel_node(GraphExecHandle, GraphNodeHandle, const KernelLaunch&) noexcept override;
    Status update_exec(GraphExecHandle, GraphHandle) noexcept override;
    Status launch_graph(GraphExecHandle, StreamHandle) noexcept override;

  private:
    /// Contexts and peer bits are kept in arrays of this size; a machine with more devices uses the first 64.
    static constexpr int max_devices = 64;
    friend std::shared_ptr<Driver> make_driver(Kind, std::string*, int*);

    bool is_device(int device) const noexcept { return device >= 0 && device < num_devices_; }
    /// The primary context of a device, made on first use.
    Status context_of(int device, void** out) noexcept;
    /// Where work on the stream runs.
    Status device_of(StreamHandle stream, int* out) noexcept;
    /// 0: the current device, which `device` must be, cannot run the kernel that moves boxes. Else it is loaded.
    int multiprocessors_for_boxes(int device) noexcept;
    /// Into the list, which is launched whenever it is full.
    Status put_box(boxes::BoxList& list, const BoxMove& box, boxes::Place to, boxes::Place from, int multiprocessors,
                   StreamHandle) noexcept;
    /// Launches what the list has and clears it.
    Status launch_boxes(boxes::BoxList& list, int multiprocessors, StreamHandle) noexcept;

    const Kind kind_;
    const int num_devices_;
    const int version_;
    const Capabilities capabilities_;
    std::array<std::atomic<void*>, max_devices> contexts_{};
    /// Bit d of element p: device d reads memory of device p.
    std::array<std::atomic<std::uint64_t>, max_devices> readers_of_{};
    /// 0: not asked yet; below: it has no kernel for boxes.
    std::array<std::atomic<int>, max_devices> multiprocessors_for_boxes_{};
};

}  // namespace vendor
}  // namespace kmm::driver
