// The host driver: virtual devices on the CPU that behave as GPUs do.
//
// Owns: one set of virtual devices with their memory, streams, events and graphs, and the worker threads. Must not
// know: rmm, kmm. Every call may come from any thread, as driver.hpp says.
//
// Copies follow CUDA's rules for pageable memory: a small source is read before the call returns, any other pageable
// source or destination makes the call return when the copy is done. Pinned and device memory are copied in stream
// order. As with the cuda driver, captures forbid nothing to calls that involve no captured stream (allocations, waits,
// ...).
#pragma once

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "driver/driver.hpp"
#include "driver/fork.hpp"
#include "driver/host/event.hpp"
#include "driver/host/executor.hpp"
#include "driver/host/graph.hpp"
#include "driver/host/memory.hpp"
#include "driver/host/pool.hpp"
#include "driver/host/slots.hpp"
#include "driver/host/stream.hpp"
#include "driver/host/virtual_memory.hpp"
#include "driver/locks.hpp"
#include "driver/registry.hpp"

namespace kmm::driver::host {

class HostDriver final : public Driver, public std::enable_shared_from_this<HostDriver> {
  public:
    explicit HostDriver(const HostOptions& options);
    /// Waits for all queued work.
    ~HostDriver() override;

    int num_threads() const noexcept { return executor_.num_threads(); }

    Kind kind() const noexcept override { return Kind::host; }
    const char* name() const noexcept override { return "host"; }
    int version() const noexcept override;
    Capabilities capabilities() const noexcept override;
    const char* error_name(Status) const noexcept override;
    const char* error_text(Status) const noexcept override;
    Status take_last_error() noexcept override;

    int device_count() const noexcept override { return memory_.num_devices(); }
    Status properties(int device, DeviceProperties* out) noexcept override;
    Status attribute(int device, int number, int* out) noexcept override;
    Status current_device(int* out) noexcept override;
    Status set_current_device(int device) noexcept override;
    Status memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept override;
    Status can_access_peer(int device, int peer, bool* out) noexcept override;
    Status enable_peer(int device, int peer) noexcept override;
    Status synchronize_device(int device) noexcept override;

    Status allocate(int device, std::size_t bytes, void** out) noexcept override;
    Status free(void* pointer) noexcept override;
    Status allocate_managed(std::size_t bytes, void** out) noexcept override;
    Status prefetch(const void* pointer, std::size_t bytes, int device_or_host, StreamHandle stream) noexcept override;
    Status prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept override;
    Status allocate_pinned(std::size_t bytes, void** out) noexcept override;
    Status free_pinned(void* pointer) noexcept override;
    Status register_host(void* pointer, std::size_t bytes) noexcept override;
    Status unregister_host(void* pointer) noexcept override;
    Status pointer_info(const void* pointer, PointerInfo* out) noexcept override;

    Status default_pool(int device, PoolHandle* out) noexcept override;
    Status default_managed_pool(int device, PoolHandle* out) noexcept override;
    Status create_pool(int device, const PoolOptions& options, PoolHandle* out) noexcept override;
    Status destroy_pool(PoolHandle pool) noexcept override;
    Status set_pool_release_threshold(PoolHandle pool, std::uint64_t bytes) noexcept override;
    Status trim_pool(PoolHandle pool, std::size_t keep_bytes) noexcept override;
    Status allocate_async(PoolHandle pool, std::size_t bytes, StreamHandle stream, void** out) noexcept override;
    Status free_async(void* pointer, StreamHandle stream) noexcept override;

    Status physical_support(int device, PhysicalOptions* out) noexcept override;
    Status granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept override;
    Status reserve_addresses(std::size_t bytes, void** out) noexcept override;
    Status release_addresses(void* address, std::size_t bytes) noexcept override;
    Status create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                           PhysicalHandle* out) noexcept override;
    Status release_physical(PhysicalHandle physical) noexcept override;
    Status map(void* address, std::size_t bytes, PhysicalHandle physical) noexcept override;
    Status unmap(void* address, std::size_t bytes) noexcept override;
    Status set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) noexcept override;

    Status create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept override;
    Status destroy_stream(StreamHandle stream) noexcept override;
    Status synchronize_stream(StreamHandle stream) noexcept override;
    Status query_stream(StreamHandle stream) noexcept override;
    Status stream_id(StreamHandle stream, std::uint64_t* out) noexcept override;
    Status stream_device(StreamHandle stream, int* out) noexcept override;
    Status wait_event(StreamHandle stream, EventHandle event) noexcept override;

    Status create_event(int device, bool timing, bool blocking_sync, EventHandle* out) noexcept override;
    Status destroy_event(EventHandle event) noexcept override;
    Status record_event(EventHandle event, StreamHandle stream) noexcept override;
    Status query_event(EventHandle event) noexcept override;
    Status synchronize_event(EventHandle event) noexcept override;
    Status elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept override;
    Status device_event_record(int device, EventHandle event) noexcept override;

    Status copy(void* destination, const void* source, std::size_t bytes, StreamHandle stream) noexcept override;
    Status copy_peer(void* destination, int destination_device, const void* source, int source_device,
                     std::size_t bytes, StreamHandle stream) noexcept override;
    Status copy_box(const BoxCopy& box, StreamHandle stream) noexcept override;
    Status copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle stream) noexcept override;
    Status fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                StreamHandle stream) noexcept override;
    Status host_callback(StreamHandle stream, HostCallback function, void* user) noexcept override;
    Status launch(const KernelLaunch& launch, StreamHandle stream) noexcept override;
    Status prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept override;

    Status begin_capture(StreamHandle stream, CaptureMode mode) noexcept override;
    Status end_capture(StreamHandle stream, GraphHandle* out) noexcept override;
    Status capture_status(StreamHandle stream, CaptureStatus* out, std::uint64_t* id) noexcept override;
    Status keep_with_capture(StreamHandle, HostCallback on_end, void* user) noexcept override;
    Status create_graph(GraphHandle* out) noexcept override;
    Status destroy_graph(GraphHandle graph) noexcept override;
    Status add_empty_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                          GraphNodeHandle* out) noexcept override;
    Status add_kernel_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                           const KernelLaunch& launch, GraphNodeHandle* out) noexcept override;
    Status add_copy_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after, const CopyPiece& piece,
                         GraphNodeHandle* out) noexcept override;
    Status add_fill_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after, void* destination,
                         std::uint32_t value, std::size_t value_bytes, std::size_t count,
                         GraphNodeHandle* out) noexcept override;
    Status add_host_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after, HostCallback function,
                         void* user, GraphNodeHandle* out) noexcept override;
    Status instantiate(GraphHandle graph, GraphExecHandle* out) noexcept override;
    Status destroy_exec(GraphExecHandle exec) noexcept override;
    Status update_kernel_node(GraphExecHandle exec, GraphNodeHandle node, const KernelLaunch& launch) noexcept override;
    Status update_exec(GraphExecHandle exec, GraphHandle graph) noexcept override;
    Status launch_graph(GraphExecHandle exec, StreamHandle stream) noexcept override;

  private:
    /// What one thread knows about one driver.
    struct ThreadState {
        std::uint32_t driver = 0;
        int device = 0;
        Status last_error;
        std::weak_ptr<HostDriver> owner;
        std::vector<Stream*> own_streams;  ///< by device: the per-thread default streams
    };
    class ThreadStates;
    struct Device {
        Stream* legacy = nullptr;
        Stream* fence = nullptr;  ///< carries the waits of device events
        Pool* pool = nullptr;
        Pool* managed_pool = nullptr;
        std::atomic<bool> failed{false};  ///< a stream was destroyed before its failure was told
    };
    /// Holds a stream's lock while work is appended, and submits the stream to the executor.
    class Queue;

    ThreadState& thread_state() noexcept;
    Status fail(Code code) noexcept;
    bool valid_device(int device) const noexcept { return device >= 0 && device < memory_.num_devices(); }
    /// The stream, legacy and per-thread values included; null if there is none. Throws std::bad_alloc.
    Stream* resolve(StreamHandle handle);
    Stream& take_stream(int device, bool blocking, bool urgent);
    void retire_stream(Stream& stream) noexcept;
    void recycle_stream(Stream& stream) noexcept;

    /// Runs `body`, which may throw std::bad_alloc, and returns its status. In the child of a fork no lock is taken and
    /// nothing waited for, here as in all other calls.
    template<typename Body> Status guarded(Body&& body) noexcept;
    /// `set(work)` fills one piece of work that is appended to the stream, or to its capture.
    template<typename Set> Status enqueue(StreamHandle handle, Set&& set, bool wait = false) noexcept;
    template<typename Set> Status capture_work(Stream& stream, Set&& set);
    template<typename Set> Status add_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                           Set&& set, GraphNodeHandle* out) noexcept;
    void wait_for_streams(int device) noexcept;
    Status finish_synchronization(Stream& stream, std::uint64_t position) noexcept;
    std::uint64_t tail_of(Stream& stream);
    std::uint64_t certain_tail_of(Stream& stream) noexcept;
    bool captured(StreamHandle handle);
    void record(Event& event, Queue& queue, Stream& stream);

    Status refuse_implicit(Stream& legacy);
    Status refuse_captured(Stream& stream);
    Capture* find_capture(std::uint64_t id) noexcept KMM_REQUIRES(captures_mutex_);
    Status wait_event_in_capture(Stream& stream, Event& event);

    const std::uint32_t number_;  ///< never used again by another driver of this process
    const bool device_events_;
    Memory memory_;
    Pools pools_;
    VirtualMemory virtual_memory_;
    Slots<Stream> streams_;
    Slots<Event> events_;
    Slots<Graph> graphs_;
    Slots<Exec> execs_;
    std::unique_ptr<Device[]> devices_;
    std::atomic<std::uint64_t> next_stream_id_{1};

    locks::Mutex captures_mutex_;
    std::atomic<int> num_captures_{0};
    std::uint64_t next_capture_id_ KMM_GUARDED_BY(captures_mutex_) = 1;
    std::list<Capture> captures_ KMM_GUARDED_BY(captures_mutex_);

    Executor executor_;  ///< last: its threads end before what they use
};

/// The options with what 0 stands for filled in.
HostOptions effective_options(HostOptions options);

class KMM_SCOPED_CAPABILITY HostDriver::Queue {
  public:
    Queue(HostDriver& driver, Stream& stream) KMM_ACQUIRE(stream.mutex)
        : driver_(driver), stream_(stream), lock_(stream.mutex) {
        if (!driver.executor_.start()) throw std::bad_alloc();
        try {
            append_implicit_waits();
        } catch (...) {
            finish();  // some waits may be queued already
            throw;
        }
    }
    ~Queue() KMM_RELEASE() { finish(); }
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    template<typename Set> void append(Set&& set) {
        expect_held();
        Op* op = stream_.new_op();
        try {
            set(op->work);
        } catch (...) {
            stream_.unused(op);
            throw;
        }
        stream_.append(op);
    }
    std::uint64_t tail() const noexcept { return stream_.enqueued(); }

  private:
    /// Tells clang: a queue is the scope that holds the lock.
    void expect_held() const noexcept KMM_ASSERT_HELD(stream_.mutex) {}
    void append_implicit_waits();
    void finish() noexcept KMM_UNCHECKED_LOCKS {  // for constructor and destructor, which are not checked either
        const bool start = stream_.activate();
        lock_.unlock();
        if (start) driver_.executor_.submit(stream_);
    }

    HostDriver& driver_;
    Stream& stream_;
    locks::Lock<locks::Mutex> lock_;
};

template<typename Body>
Status HostDriver::guarded(Body&& body) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    try {
        const Status status = body();
        return status.ok() || status.code == Code::not_ready ? status : fail(status.code);
    } catch (...) {
        return fail(Code::out_of_memory);  // nothing here throws anything but std::bad_alloc
    }
}

template<typename Set>
Status HostDriver::capture_work(Stream& stream, Set&& set) {
    const locks::Guard lock(captures_mutex_);
    Capture* capture = stream.capture.load(std::memory_order_acquire);
    if (capture == nullptr || capture->invalidated()) return {Code::capture_error};
    set(capture->add(stream).work);
    return {};
}

template<typename Set>
Status HostDriver::enqueue(StreamHandle handle, Set&& set, bool wait) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        if (stream->capture.load(std::memory_order_acquire) != nullptr) return capture_work(*stream, set);
        if (stream->legacy)
            if (const Status status = refuse_implicit(*stream); !status.ok()) return status;
        std::uint64_t position = 0;
        {
            Queue queue(*this, *stream);
            queue.append(set);
            position = queue.tail();
        }
        if (wait) stream->wait_until(position, executor_.spins());
        return {};
    });
}

}  // namespace kmm::driver::host
