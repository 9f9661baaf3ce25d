// A driver for tests of the layers above: memory and data are real (a host driver does the work), time is the test's.
//
// Nothing runs by itself. In automatic mode (the default) each call that enqueues work runs whatever can run, on the
// calling thread, before it returns; streams that the test holds stand still. In manual mode work runs only when the
// test says so (`step`, `run_all`) or when a call waits for it. Failures are injected by number or by name of the call;
// every call is logged.
//
// Owns: the queues, the log, the injected failures. Must not know: what is being tested. Any thread; calls that wait
// for held work block until another thread releases it (for a minute at most).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/driver.hpp"
#include "driver/registry.hpp"

namespace kmm::driver::testing {

enum class Direction : std::uint8_t { none, host_to_device, device_to_host, device_to_device, host_to_host };

/// One call, in the order in which calls were made.
struct LogEntry {
    std::string call;  ///< the name in driver.hpp, e.g. "copy"
    int device = -1;   ///< of the stream or the argument, where there is one
    StreamHandle stream;
    EventHandle event;  ///< that is recorded or waited for
    std::size_t bytes = 0;
    std::size_t num_pieces = 0;  ///< of "copy_batch"
    Direction direction = Direction::none;
    const void* destination = nullptr;
    const void* source = nullptr;
    Code result = Code::ok;
};

struct Traffic {
    std::size_t host_to_device_bytes = 0;
    std::size_t device_to_host_bytes = 0;
    std::size_t device_to_device_bytes = 0;
    std::size_t num_copies = 0;
};

struct ScriptedOptions {
    int num_devices = 1;
    std::size_t memory_bytes = 64u << 20;  ///< of each device
    bool automatic = true;
    Capabilities capabilities = all_but_capture();

    static Capabilities all_but_capture();
};

class ScriptedDriver final : public Driver {
  public:
    explicit ScriptedDriver(const ScriptedOptions& options = {});
    ~ScriptedDriver() override;

    // ---- time
    void set_automatic(bool automatic);
    /// Runs the oldest piece of work that can run. False if there is none.
    bool step();
    void run_all();
    /// Work of a held stream does not run, whatever waits for it. New streams can be held before they have work.
    void hold(StreamHandle stream);
    void release(StreamHandle stream);
    void release_all();
    std::size_t num_pending() const;  ///< pieces of work that have not run

    // ---- failures
    /// The n-th call from now (1: the next one) that is not exempt fails with `code` and has no effect.
    void fail_at(std::uint64_t n, Code code);
    /// The n-th call of this name from now fails.
    void fail_call(const std::string& name, std::uint64_t n, Code code);
    /// Calls of these names are neither counted by `fail_at` nor failed by it (e.g. "free": nothing could be done about
    /// it).
    void exempt(std::set<std::string> names);
    /// Every later call on the device fails with device_lost; its queued work never takes effect but counts as done.
    void lose_device(int device);
    /// Allocations of a device fail as soon as it would hold more than this, below its real size.
    void set_memory_cap(int device, std::size_t bytes);
    void clear_failures();
    std::uint64_t num_failures() const;  ///< injected so far

    // ---- what happened
    std::uint64_t num_calls() const;  ///< that `fail_at` counts
    std::vector<LogEntry> log() const;
    /// One line a call: "copy H2D 4096 stream 3".
    std::vector<std::string> log_lines() const;
    std::size_t count(const std::string& call) const;
    Traffic traffic() const;  ///< of the copies that were enqueued since `clear_log`
    void clear_log();

    // ---- driver.hpp
    Kind kind() const noexcept override { return Kind::host; }
    const char* name() const noexcept override { return "scripted"; }
    int version() const noexcept override { return 1; }
    Capabilities capabilities() const noexcept override { return options_.capabilities; }
    const char* error_name(Status) const noexcept override;
    const char* error_text(Status) const noexcept override;
    Status take_last_error() noexcept override;
    int device_count() const noexcept override { return options_.num_devices; }
    Status properties(int, DeviceProperties*) noexcept override;
    Status attribute(int, int, int*) noexcept override;
    Status current_device(int*) noexcept override;
    Status set_current_device(int) noexcept override;
    Status memory_info(int, std::size_t*, std::size_t*) noexcept override;
    Status can_access_peer(int, int, bool*) noexcept override;
    Status enable_peer(int, int) noexcept override;
    Status synchronize_device(int) noexcept override;
    Status allocate(int, std::size_t, void**) noexcept override;
    Status free(void*) noexcept override;
    Status allocate_managed(std::size_t, void**) noexcept override;
    Status prefetch(const void*, std::size_t, int, StreamHandle) noexcept override;
    Status prefer_location(const void*, std::size_t, int) noexcept override;
    Status allocate_pinned(std::size_t, void**) noexcept override;
    Status free_pinned(void*) noexcept override;
    Status register_host(void*, std::size_t) noexcept override;
    Status unregister_host(void*) noexcept override;
    Status pointer_info(const void*, PointerInfo*) noexcept override;
    Status default_pool(int, PoolHandle*) noexcept override;
    Status default_managed_pool(int, PoolHandle*) noexcept override;
    Status create_pool(int, const PoolOptions&, PoolHandle*) noexcept override;
    Status destroy_pool(PoolHandle) noexcept override;
    Status set_pool_release_threshold(PoolHandle, std::uint64_t) noexcept override;
    Status trim_pool(PoolHandle, std::size_t) noexcept override;
    Status allocate_async(PoolHandle, std::size_t, StreamHandle, void**) noexcept override;
    Status free_async(void*, StreamHandle) noexcept override;
    Status physical_support(int, PhysicalOptions*) noexcept override;
    Status granularity(int, const PhysicalOptions&, std::size_t*) noexcept override;
    Status reserve_addresses(std::size_t, void**) noexcept override;
    Status release_addresses(void*, std::size_t) noexcept override;
    Status create_physical(int, std::size_t, const PhysicalOptions&, PhysicalHandle*) noexcept override;
    Status release_physical(PhysicalHandle) noexcept override;
    Status map(void*, std::size_t, PhysicalHandle) noexcept override;
    Status unmap(void*, std::size_t) noexcept override;
    Status set_access(void*, std::size_t, const int*, std::size_t) noexcept override;
    Status create_stream(int, bool, int, StreamHandle*) noexcept override;
    Status destroy_stream(StreamHandle) noexcept override;
    Status synchronize_stream(StreamHandle) noexcept override;
    Status query_stream(StreamHandle) noexcept override;
    Status stream_id(StreamHandle, std::uint64_t*) noexcept override;
    Status stream_device(StreamHandle, int*) noexcept override;
    Status wait_event(StreamHandle, EventHandle) noexcept override;
    Status create_event(int, bool, bool, EventHandle*) noexcept override;
    Status destroy_event(EventHandle) noexcept override;
    Status record_event(EventHandle, StreamHandle) noexcept override;
    Status query_event(EventHandle) noexcept override;
    Status synchronize_event(EventHandle) noexcept override;
    Status elapsed_ms(EventHandle, EventHandle, float*) noexcept override;
    Status device_event_record(int, EventHandle) noexcept override;
    Status copy(void*, const void*, std::size_t, StreamHandle) noexcept override;
    Status copy_peer(void*, int, const void*, int, std::size_t, StreamHandle) noexcept override;
    Status copy_box(const BoxCopy&, StreamHandle) noexcept override;
    Status copy_batch(const CopyPiece*, std::size_t, StreamHandle) noexcept override;
    Status fill(void*, const void*, std::size_t, std::size_t, StreamHandle) noexcept override;
    Status host_callback(StreamHandle, HostCallback, void*) noexcept override;
    Status launch(const KernelLaunch&, StreamHandle) noexcept override;
    Status prepare_kernel(const void*, std::uint32_t) noexcept override;
    Status begin_capture(StreamHandle, CaptureMode) noexcept override;
    Status end_capture(StreamHandle, GraphHandle*) noexcept override;
    Status capture_status(StreamHandle, CaptureStatus*, std::uint64_t*) noexcept override;
    Status keep_with_capture(StreamHandle, HostCallback, void*) noexcept override;
    Status create_graph(GraphHandle*) noexcept override;
    Status destroy_graph(GraphHandle) noexcept override;
    Status add_empty_node(GraphHandle, const GraphNodeHandle*, std::size_t, GraphNodeHandle*) noexcept override;
    Status add_kernel_node(GraphHandle, const GraphNodeHandle*, std::size_t, const KernelLaunch&,
                           GraphNodeHandle*) noexcept override;
    Status add_copy_node(GraphHandle, const GraphNodeHandle*, std::size_t, const CopyPiece&,
                         GraphNodeHandle*) noexcept override;
    Status add_fill_node(GraphHandle, const GraphNodeHandle*, std::size_t, void*, std::uint32_t, std::size_t,
                         std::size_t, GraphNodeHandle*) noexcept override;
    Status add_host_node(GraphHandle, const GraphNodeHandle*, std::size_t, HostCallback, void*,
                         GraphNodeHandle*) noexcept override;
    Status instantiate(GraphHandle, GraphExecHandle*) noexcept override;
    Status destroy_exec(GraphExecHandle) noexcept override;
    Status update_kernel_node(GraphExecHandle, GraphNodeHandle, const KernelLaunch&) noexcept override;
    Status update_exec(GraphExecHandle, GraphHandle) noexcept override;
    Status launch_graph(GraphExecHandle, StreamHandle) noexcept override;

  private:
    /// A point in time that has been reached or not.
    struct Point {
        bool reached = false;
        std::uint64_t time = 0;
    };
    using PointRef = std::shared_ptr<Point>;
    struct Work {
        std::uint64_t number = 0;
        PointRef point;
        std::vector<PointRef> after;
        std::function<Status()> run;  ///< on the inner driver; null: only a point
    };
    struct Stream {
        std::uint64_t id = 0;
        int device = 0;
        bool blocking = true;
        bool legacy = false;
        bool held = false;
        bool running = false;
        bool destroyed = false;
        std::deque<Work> queue;
        PointRef last = std::make_shared<Point>(Point{true, 0});
        Status failure;
    };
    struct Event {
        int device = 0;
        bool timing = false;
        std::vector<PointRef> points;
        bool recorded = false;
    };
    struct Failure {
        std::string name;  ///< empty: any call that is not exempt
        std::uint64_t countdown = 0;
        Code code = Code::unknown;
    };
    using Lock = std::unique_lock<std::mutex>;

    /// Counts and logs a call and says how it must fail, if at all. With the lock.
    Status enter(LogEntry entry);
    Status finish(Status status);  ///< remembers failures for take_last_error and the log
    Stream* find(StreamHandle handle);
    Event* find(EventHandle handle);
    Status enqueue(const LogEntry& entry, StreamHandle handle, std::function<Status()> run, PointRef* point = nullptr);
    void append(Stream& stream, Work work);
    bool ready(const Stream& stream) const;
    bool run_one(Lock& lock);
    void run_ready(Lock& lock);
    bool wait_for(Lock& lock, const std::vector<PointRef>& points);
    Status wait_for_device(Lock& lock, int device);
    Direction direction_of(const void* destination, const void* source);
    bool memory_allows(int device, std::size_t bytes);
    static LogEntry entry_of(const char* call, int device = -1, std::size_t bytes = 0);
    template<typename Call> Status forward(LogEntry entry, Call&& call) {
        Lock lock(mutex_);
        if (const Status status = enter(std::move(entry)); !status.ok()) return status;
        return finish(call());
    }

    const ScriptedOptions options_;
    const std::shared_ptr<Driver> inner_;
    StreamHandle inner_stream_;  ///< everything runs here, one after the other
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool automatic_;
    std::map<void*, Stream> streams_;
    std::vector<Stream*> with_work_;  ///< those whose queue is not empty: tests have thousands that idle
    std::map<void*, Event> events_;
    std::uint64_t next_id_ = 1;
    std::uint64_t next_work_ = 1;
    std::uint64_t time_ = 0;
    std::vector<Failure> failures_;
    std::set<std::string> exempt_;
    std::set<int> lost_;
    std::map<int, std::size_t> caps_;
    std::uint64_t num_calls_ = 0;
    std::uint64_t num_failures_ = 0;
    std::vector<LogEntry> log_;
    std::map<std::string, std::size_t> counts_;  ///< of the log, by name: some tests ask after each call
    Status last_error_;
};

}  // namespace kmm::driver::testing
