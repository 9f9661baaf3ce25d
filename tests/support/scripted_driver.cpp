// Owns: the scripted driver (scripted_driver.hpp): queues, failures, log. Work runs on whichever thread drives time.
#include "scripted_driver.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kmm::driver::testing {
namespace {

// Bounds every wait, so that a test that never releases what it holds fails instead of hanging.
constexpr std::chrono::minutes longest_wait{1};

constexpr std::uintptr_t stream_base = 0x10000;
constexpr std::uintptr_t event_base = 0x20000000;
constexpr std::uintptr_t handle_step = 16;

const char* direction_name(Direction direction) {
    switch (direction) {
    case Direction::none: return "";
    case Direction::host_to_device: return " H2D";
    case Direction::device_to_host: return " D2H";
    case Direction::device_to_device: return " D2D";
    case Direction::host_to_host: return " H2H";
    }
    return "";
}

LogEntry copy_entry(const char* call, std::size_t bytes, Direction direction, const void* destination,
                    const void* source) {
    LogEntry entry;
    entry.call = call;
    entry.bytes = bytes;
    entry.direction = direction;
    entry.destination = destination;
    entry.source = source;
    return entry;
}

}  // namespace

Capabilities ScriptedOptions::all_but_capture() {
    Capabilities can;
    can.virtual_memory = can.memory_pools = can.managed_memory = can.managed_pools = true;
    can.kernels_by_handle = can.graphs = true;
    can.host_callbacks = can.batch_copies = can.device_event = can.stream_ids = can.asynchronous_kernel_errors = true;
    return can;
}

ScriptedDriver::ScriptedDriver(const ScriptedOptions& options)
    : options_(options),
      inner_(make_host_driver({options.num_devices, options.memory_bytes, 2})),
      automatic_(options.automatic) {
    (void)inner_->create_stream(0, true, 0, &inner_stream_);
    for (int device = 0; device < options.num_devices; ++device) {
        // Legacy streams of the devices have negative numbers: users name them by 0 and 1.
        Stream& legacy = streams_[reinterpret_cast<void*>(~std::uintptr_t(device))];
        legacy.device = device;
        legacy.legacy = true;
        legacy.id = next_id_++;
    }
}

ScriptedDriver::~ScriptedDriver() {
    release_all();
    run_all();
}

// ---- time

void ScriptedDriver::set_automatic(bool automatic) {
    Lock lock(mutex_);
    automatic_ = automatic;
    if (automatic_) run_ready(lock);
}

bool ScriptedDriver::step() {
    Lock lock(mutex_);
    return run_one(lock);
}

void ScriptedDriver::run_all() {
    Lock lock(mutex_);
    run_ready(lock);
}

void ScriptedDriver::hold(StreamHandle handle) {
    Lock lock(mutex_);
    if (Stream* stream = find(handle)) stream->held = true;
}

void ScriptedDriver::release(StreamHandle handle) {
    Lock lock(mutex_);
    if (Stream* stream = find(handle)) stream->held = false;
    changed_.notify_all();
    if (automatic_) run_ready(lock);
}

void ScriptedDriver::release_all() {
    Lock lock(mutex_);
    for (auto& [handle, stream] : streams_) stream.held = false;
    changed_.notify_all();
    if (automatic_) run_ready(lock);
}

std::size_t ScriptedDriver::num_pending() const {
    Lock lock(mutex_);
    std::size_t result = 0;
    for (const auto& [handle, stream] : streams_) result += stream.queue.size();
    return result;
}

bool ScriptedDriver::ready(const Stream& stream) const {
    if (stream.held || stream.running || stream.queue.empty()) return false;
    const Work& work = stream.queue.front();
    return std::all_of(work.after.begin(), work.after.end(), [](const PointRef& p) { return p->reached; });
}

bool ScriptedDriver::run_one(Lock& lock) {
    Stream* next = nullptr;
    for (Stream* const stream : with_work_)
        if (ready(*stream) && (next == nullptr || stream->queue.front().number < next->queue.front().number))
            next = stream;
    if (next == nullptr) return false;
    // The work stays in the queue while it runs, and the stream in the map: it is not gone before its work is.
    next->running = true;
    const std::function<Status()> run = std::move(next->queue.front().run);
    const bool lost = lost_.count(next->device) != 0;
    Status status;
    if (run && !lost) {
        lock.unlock();
        status = run();
        lock.lock();
    }
    if (!status.ok()) next->failure = status;
    Point& point = *next->queue.front().point;
    point.reached = true;
    point.time = ++time_;
    next->queue.pop_front();
    next->running = false;
    if (next->queue.empty()) {
        std::erase(with_work_, next);
        if (next->destroyed) std::erase_if(streams_, [&](const auto& item) { return &item.second == next; });
    }
    changed_.notify_all();
    return true;
}

void ScriptedDriver::run_ready(Lock& lock) {
    while (run_one(lock)) {}
}

bool ScriptedDriver::wait_for(Lock& lock, const std::vector<PointRef>& points) {
    const auto all_reached = [&] {
        return std::all_of(points.begin(), points.end(), [](const PointRef& p) { return p->reached; });
    };
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    while (!all_reached()) {
        if (run_one(lock)) continue;
        if (changed_.wait_until(lock, end) == std::cv_status::timeout) return all_reached();
    }
    return true;
}

// ---- failures and log

void ScriptedDriver::fail_at(std::uint64_t n, Code code) {
    Lock lock(mutex_);
    failures_.push_back({"", n, code});
}

void ScriptedDriver::fail_call(const std::string& name, std::uint64_t n, Code code) {
    Lock lock(mutex_);
    failures_.push_back({name, n, code});
}

void ScriptedDriver::exempt(std::set<std::string> names) {
    Lock lock(mutex_);
    exempt_ = std::move(names);
}

void ScriptedDriver::lose_device(int device) {
    Lock lock(mutex_);
    lost_.insert(device);
    if (automatic_) run_ready(lock);
}

void ScriptedDriver::set_memory_cap(int device, std::size_t bytes) {
    Lock lock(mutex_);
    caps_[device] = bytes;
}

void ScriptedDriver::clear_failures() {
    Lock lock(mutex_);
    failures_.clear();
    lost_.clear();
    caps_.clear();
}

std::uint64_t ScriptedDriver::num_failures() const {
    Lock lock(mutex_);
    return num_failures_;
}

std::uint64_t ScriptedDriver::num_calls() const {
    Lock lock(mutex_);
    return num_calls_;
}

std::vector<LogEntry> ScriptedDriver::log() const {
    Lock lock(mutex_);
    return log_;
}

std::vector<std::string> ScriptedDriver::log_lines() const {
    Lock lock(mutex_);
    std::vector<std::string> lines;
    for (const LogEntry& entry : log_) {
        std::string line = entry.call + direction_name(entry.direction);
        if (entry.bytes != 0) line += " " + std::to_string(entry.bytes);
        if (entry.stream.native != nullptr) {
            const auto at = streams_.find(entry.stream.native);
            line += " stream " + (at != streams_.end() ? std::to_string(at->second.id) : std::string("?"));
        } else if (entry.device >= 0) {
            line += " device " + std::to_string(entry.device);
        }
        if (entry.result != Code::ok) line += " failed";
        lines.push_back(std::move(line));
    }
    return lines;
}

std::size_t ScriptedDriver::count(const std::string& call) const {
    Lock lock(mutex_);
    const auto at = counts_.find(call);
    return at == counts_.end() ? 0 : at->second;
}

Traffic ScriptedDriver::traffic() const {
    Lock lock(mutex_);
    Traffic sum;
    for (const LogEntry& entry : log_) {
        if (entry.direction == Direction::none || entry.result != Code::ok) continue;
        ++sum.num_copies;
        if (entry.direction == Direction::host_to_device) sum.host_to_device_bytes += entry.bytes;
        if (entry.direction == Direction::device_to_host) sum.device_to_host_bytes += entry.bytes;
        if (entry.direction == Direction::device_to_device) sum.device_to_device_bytes += entry.bytes;
    }
    return sum;
}

void ScriptedDriver::clear_log() {
    Lock lock(mutex_);
    log_.clear();
    counts_.clear();
}

Status ScriptedDriver::enter(LogEntry entry) {
    const bool counted = exempt_.count(entry.call) == 0;
    if (counted) ++num_calls_;
    Status status;
    if (entry.device >= 0 && lost_.count(entry.device) != 0) status = {Code::device_lost};
    for (Failure& failure : failures_) {
        const bool meant = failure.name.empty() ? counted : failure.name == entry.call;
        if (!meant || failure.countdown == 0 || --failure.countdown != 0) continue;
        status = {failure.code};
        ++num_failures_;
    }
    entry.result = status.code;
    ++counts_[entry.call];
    log_.push_back(std::move(entry));
    return finish(status);
}

Status ScriptedDriver::finish(Status status) {
    if (status.ok() || status.code == Code::not_ready) return status;
    last_error_ = status;
    if (!log_.empty()) log_.back().result = status.code;
    return status;
}

LogEntry ScriptedDriver::entry_of(const char* call, int device, std::size_t bytes) {
    LogEntry entry;
    entry.call = call;
    entry.device = device;
    entry.bytes = bytes;
    return entry;
}

const char* ScriptedDriver::error_name(Status status) const noexcept { return inner_->error_name(status); }
const char* ScriptedDriver::error_text(Status status) const noexcept { return inner_->error_text(status); }

Status ScriptedDriver::take_last_error() noexcept {
    Lock lock(mutex_);
    return std::exchange(last_error_, Status{});
}

// ---- devices and memory

Status ScriptedDriver::properties(int device, DeviceProperties* out) noexcept {
    return forward(entry_of("properties", device), [&] { return inner_->properties(device, out); });
}
Status ScriptedDriver::attribute(int device, int number, int* out) noexcept {
    return forward(entry_of("attribute", device), [&] { return inner_->attribute(device, number, out); });
}
// The inner driver keeps the current device of each thread.
Status ScriptedDriver::current_device(int* out) noexcept { return inner_->current_device(out); }
Status ScriptedDriver::set_current_device(int device) noexcept { return inner_->set_current_device(device); }

Status ScriptedDriver::memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept {
    return forward(entry_of("memory_info", device), [&] {
        const Status status = inner_->memory_info(device, free_bytes, total_bytes);
        if (const auto cap = caps_.find(device); status.ok() && cap != caps_.end()) {
            const std::size_t used = *total_bytes - *free_bytes;
            *free_bytes = std::min(*free_bytes, cap->second > used ? cap->second - used : 0);
        }
        return status;
    });
}
Status ScriptedDriver::can_access_peer(int device, int peer, bool* out) noexcept {
    return forward(entry_of("can_access_peer", device), [&] { return inner_->can_access_peer(device, peer, out); });
}
Status ScriptedDriver::enable_peer(int device, int peer) noexcept {
    return forward(entry_of("enable_peer", device), [&] { return inner_->enable_peer(device, peer); });
}

Status ScriptedDriver::wait_for_device(Lock& lock, int device) {
    std::vector<PointRef> points;
    Status failure;
    for (auto& [handle, stream] : streams_)
        if (stream.device == device) points.push_back(stream.last);
    if (!wait_for(lock, points)) return {Code::not_ready};
    for (auto& [handle, stream] : streams_)
        if (stream.device == device && !stream.failure.ok()) failure = std::exchange(stream.failure, Status{});
    return failure;
}

Status ScriptedDriver::synchronize_device(int device) noexcept {
    Lock lock(mutex_);
    if (const Status status = enter(entry_of("synchronize_device", device)); !status.ok()) return status;
    if (device < 0 || device >= options_.num_devices) return finish({Code::invalid_argument});
    return finish(wait_for_device(lock, device));
}

bool ScriptedDriver::memory_allows(int device, std::size_t bytes) {
    const auto cap = caps_.find(device);
    std::size_t free_bytes = 0, total_bytes = 0;
    if (cap == caps_.end() || !inner_->memory_info(device, &free_bytes, &total_bytes).ok()) return true;
    return total_bytes - free_bytes + bytes <= cap->second;
}

Status ScriptedDriver::allocate(int device, std::size_t bytes, void** out) noexcept {
    return forward(entry_of("allocate", device, bytes), [&]() -> Status {
        if (!memory_allows(device, bytes)) return {Code::out_of_memory};
        return inner_->allocate(device, bytes, out);
    });
}

Status ScriptedDriver::free(void* pointer) noexcept {
    Lock lock(mutex_);
    PointerInfo info;
    (void)inner_->pointer_info(pointer, &info);
    if (const Status status = enter(entry_of("free", info.device)); !status.ok()) return status;
    if (pointer != nullptr && info.device >= 0)
        if (const Status status = wait_for_device(lock, info.device); status.code == Code::not_ready) return status;
    return finish(inner_->free(pointer));
}

Status ScriptedDriver::allocate_managed(std::size_t bytes, void** out) noexcept {
    return forward(entry_of("allocate_managed", -1, bytes), [&] { return inner_->allocate_managed(bytes, out); });
}
Status ScriptedDriver::prefetch(const void* pointer, std::size_t bytes, int to, StreamHandle) noexcept {
    return forward(entry_of("prefetch", -1, bytes),
                   [&] { return inner_->prefetch(pointer, bytes, to, inner_stream_); });
}
Status ScriptedDriver::prefer_location(const void* pointer, std::size_t bytes, int to) noexcept {
    return forward(entry_of("prefer_location", to, bytes), [&] { return inner_->prefer_location(pointer, bytes, to); });
}
Status ScriptedDriver::allocate_pinned(std::size_t bytes, void** out) noexcept {
    return forward(entry_of("allocate_pinned", -1, bytes), [&] { return inner_->allocate_pinned(bytes, out); });
}

Status ScriptedDriver::free_pinned(void* pointer) noexcept {
    Lock lock(mutex_);
    if (const Status status = enter(entry_of("free_pinned")); !status.ok()) return status;
    for (int device = 0; device < options_.num_devices; ++device)
        if (const Status status = wait_for_device(lock, device); status.code == Code::not_ready) return status;
    return finish(inner_->free_pinned(pointer));
}

Status ScriptedDriver::register_host(void* pointer, std::size_t bytes) noexcept {
    return forward(entry_of("register_host", -1, bytes), [&] { return inner_->register_host(pointer, bytes); });
}
Status ScriptedDriver::unregister_host(void* pointer) noexcept {
    return forward(entry_of("unregister_host"), [&] { return inner_->unregister_host(pointer); });
}
Status ScriptedDriver::pointer_info(const void* pointer, PointerInfo* out) noexcept {
    return forward(entry_of("pointer_info"), [&] { return inner_->pointer_info(pointer, out); });
}

Status ScriptedDriver::default_pool(int device, PoolHandle* out) noexcept {
    return forward(entry_of("default_pool", device), [&] { return inner_->default_pool(device, out); });
}
Status ScriptedDriver::default_managed_pool(int device, PoolHandle* out) noexcept {
    return forward(entry_of("default_managed_pool", device), [&] { return inner_->default_managed_pool(device, out); });
}
Status ScriptedDriver::create_pool(int device, const PoolOptions& options, PoolHandle* out) noexcept {
    return forward(entry_of("create_pool", device), [&] { return inner_->create_pool(device, options, out); });
}
Status ScriptedDriver::destroy_pool(PoolHandle pool) noexcept {
    return forward(entry_of("destroy_pool"), [&] { return inner_->destroy_pool(pool); });
}
Status ScriptedDriver::set_pool_release_threshold(PoolHandle pool, std::uint64_t bytes) noexcept {
    return forward(entry_of("set_pool_release_threshold"),
                   [&] { return inner_->set_pool_release_threshold(pool, bytes); });
}
Status ScriptedDriver::trim_pool(PoolHandle pool, std::size_t keep_bytes) noexcept {
    return forward(entry_of("trim_pool"), [&] { return inner_->trim_pool(pool, keep_bytes); });
}

Status ScriptedDriver::allocate_async(PoolHandle pool, std::size_t bytes, StreamHandle handle, void** out) noexcept {
    Lock lock(mutex_);
    Stream* stream = find(handle);
    const int device = stream != nullptr ? stream->device : -1;
    if (const Status status = enter(entry_of("allocate_async", device, bytes)); !status.ok()) return status;
    if (stream == nullptr) return finish({Code::invalid_handle});
    if (!memory_allows(device, bytes)) return finish({Code::out_of_memory});
    return finish(inner_->allocate_async(pool, bytes, inner_stream_, out));
}

Status ScriptedDriver::free_async(void* pointer, StreamHandle handle) noexcept {
    // Only when the stream has come this far may the inner pool give the memory to somebody else.
    return enqueue(entry_of("free_async"), handle,
                   [this, pointer] { return inner_->free_async(pointer, inner_stream_); });
}

Status ScriptedDriver::physical_support(int device, PhysicalOptions* out) noexcept {
    return forward(entry_of("physical_support", device), [&] { return inner_->physical_support(device, out); });
}
Status ScriptedDriver::granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept {
    return forward(entry_of("granularity", device), [&] { return inner_->granularity(device, options, out); });
}
Status ScriptedDriver::reserve_addresses(std::size_t bytes, void** out) noexcept {
    return forward(entry_of("reserve_addresses", -1, bytes), [&] { return inner_->reserve_addresses(bytes, out); });
}
Status ScriptedDriver::release_addresses(void* address, std::size_t bytes) noexcept {
    return forward(entry_of("release_addresses", -1, bytes), [&] { return inner_->release_addresses(address, bytes); });
}
Status ScriptedDriver::create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                                       PhysicalHandle* out) noexcept {
    return forward(entry_of("create_physical", device, bytes), [&]() -> Status {
        if (!memory_allows(device, bytes)) return {Code::out_of_memory};
        return inner_->create_physical(device, bytes, options, out);
    });
}
Status ScriptedDriver::release_physical(PhysicalHandle physical) noexcept {
    return forward(entry_of("release_physical"), [&] { return inner_->release_physical(physical); });
}
Status ScriptedDriver::map(void* address, std::size_t bytes, PhysicalHandle physical) noexcept {
    return forward(entry_of("map", -1, bytes), [&] { return inner_->map(address, bytes, physical); });
}
Status ScriptedDriver::unmap(void* address, std::size_t bytes) noexcept {
    return forward(entry_of("unmap", -1, bytes), [&] { return inner_->unmap(address, bytes); });
}
Status ScriptedDriver::set_access(void* address, std::size_t bytes, const int* devices,
                                  std::size_t num_devices) noexcept {
    return forward(entry_of("set_access", -1, bytes),
                   [&] { return inner_->set_access(address, bytes, devices, num_devices); });
}

// ---- streams and events

ScriptedDriver::Stream* ScriptedDriver::find(StreamHandle handle) {
    if (reinterpret_cast<std::uintptr_t>(handle.native) <= 2) {
        // The per-thread stream is taken for the legacy stream: it may order more than it must.
        int device = 0;
        (void)inner_->current_device(&device);
        handle.native = reinterpret_cast<void*>(~std::uintptr_t(device));
    }
    const auto at = streams_.find(handle.native);
    return at == streams_.end() || at->second.destroyed ? nullptr : &at->second;
}

ScriptedDriver::Event* ScriptedDriver::find(EventHandle handle) {
    const auto at = events_.find(handle.native);
    return at == events_.end() ? nullptr : &at->second;
}

void ScriptedDriver::append(Stream& stream, Work work) {
    work.number = next_work_++;
    if (work.point == nullptr) work.point = std::make_shared<Point>();
    if (stream.legacy || stream.blocking)
        for (auto& [handle, other] : streams_) {
            const bool implied =
                &other != &stream && other.device == stream.device && other.blocking && (stream.legacy || other.legacy);
            if (implied && !other.last->reached) work.after.push_back(other.last);
        }
    stream.last = work.point;
    if (stream.queue.empty()) with_work_.push_back(&stream);
    stream.queue.push_back(std::move(work));
}

Status ScriptedDriver::enqueue(const LogEntry& call, StreamHandle handle, std::function<Status()> run,
                               PointRef* point) {
    Lock lock(mutex_);
    Stream* stream = find(handle);
    LogEntry entry = call;
    entry.stream = handle;
    if (stream != nullptr) entry.device = stream->device;
    if (const Status status = enter(std::move(entry)); !status.ok()) return status;
    if (stream == nullptr) return finish({Code::invalid_handle});
    Work work;
    work.run = std::move(run);
    append(*stream, std::move(work));
    if (point != nullptr) *point = stream->last;
    if (automatic_) run_ready(lock);
    return {};
}

Status ScriptedDriver::create_stream(int device, bool non_blocking, int, StreamHandle* out) noexcept {
    return forward(entry_of("create_stream", device), [&]() -> Status {
        if (device < 0 || device >= options_.num_devices) return {Code::invalid_argument};
        const std::uint64_t id = next_id_++;
        out->native = reinterpret_cast<void*>(stream_base + id * handle_step);
        Stream& stream = streams_[out->native];
        stream.id = id;
        stream.device = device;
        stream.blocking = !non_blocking;
        return {};
    });
}

Status ScriptedDriver::destroy_stream(StreamHandle handle) noexcept {
    return forward(entry_of("destroy_stream"), [&]() -> Status {
        Stream* stream = find(handle);
        if (stream == nullptr || stream->legacy) return {Code::invalid_handle};
        stream->destroyed = true;
        if (stream->queue.empty()) streams_.erase(handle.native);
        return {};
    });
}

Status ScriptedDriver::synchronize_stream(StreamHandle handle) noexcept {
    Lock lock(mutex_);
    Stream* stream = find(handle);
    LogEntry entry = entry_of("synchronize_stream", stream != nullptr ? stream->device : -1);
    entry.stream = handle;
    if (const Status status = enter(std::move(entry)); !status.ok()) return status;
    if (stream == nullptr) return finish({Code::invalid_handle});
    if (stream->legacy) append(*stream, {});
    if (!wait_for(lock, {stream->last})) return {Code::not_ready};
    stream = find(handle);
    return finish(stream == nullptr ? Status{} : std::exchange(stream->failure, Status{}));
}

Status ScriptedDriver::query_stream(StreamHandle handle) noexcept {
    return forward(entry_of("query_stream"), [&]() -> Status {
        Stream* stream = find(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        if (!stream->last->reached) return {Code::not_ready};
        return std::exchange(stream->failure, Status{});
    });
}

Status ScriptedDriver::stream_id(StreamHandle handle, std::uint64_t* out) noexcept {
    return forward(entry_of("stream_id"), [&]() -> Status {
        const Stream* stream = find(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        *out = stream->id;
        return {};
    });
}

Status ScriptedDriver::stream_device(StreamHandle handle, int* out) noexcept {
    return forward(entry_of("stream_device"), [&]() -> Status {
        const Stream* stream = find(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        *out = stream->device;
        return {};
    });
}

Status ScriptedDriver::wait_event(StreamHandle handle, EventHandle event_handle) noexcept {
    Lock lock(mutex_);
    Stream* stream = find(handle);
    const Event* event = find(event_handle);
    LogEntry entry = entry_of("wait_event", stream != nullptr ? stream->device : -1);
    entry.stream = handle;
    entry.event = event_handle;
    if (const Status status = enter(std::move(entry)); !status.ok()) return status;
    if (stream == nullptr || event == nullptr) return finish({Code::invalid_handle});
    Work work;
    for (const PointRef& point : event->points)
        if (!point->reached) work.after.push_back(point);
    if (!work.after.empty()) append(*stream, std::move(work));
    return {};
}

Status ScriptedDriver::create_event(int device, bool timing, bool, EventHandle* out) noexcept {
    return forward(entry_of("create_event", device), [&]() -> Status {
        if (device < 0 || device >= options_.num_devices) return {Code::invalid_argument};
        out->native = reinterpret_cast<void*>(event_base + next_id_++ * handle_step);
        events_[out->native] = {device, timing, {}, false};
        return {};
    });
}

Status ScriptedDriver::destroy_event(EventHandle handle) noexcept {
    return forward(entry_of("destroy_event"),
                   [&]() -> Status { return {events_.erase(handle.native) != 0 ? Code::ok : Code::invalid_handle}; });
}

Status ScriptedDriver::record_event(EventHandle handle, StreamHandle stream_handle) noexcept {
    Lock lock(mutex_);
    Stream* stream = find(stream_handle);
    Event* event = find(handle);
    LogEntry entry = entry_of("record_event", stream != nullptr ? stream->device : -1);
    entry.stream = stream_handle;
    entry.event = handle;
    if (const Status status = enter(std::move(entry)); !status.ok()) return status;
    if (stream == nullptr || event == nullptr) return finish({Code::invalid_handle});
    append(*stream, {});
    event->points = {stream->last};
    event->recorded = true;
    if (automatic_) run_ready(lock);
    return {};
}

Status ScriptedDriver::query_event(EventHandle handle) noexcept {
    return forward(entry_of("query_event"), [&]() -> Status {
        const Event* event = find(handle);
        if (event == nullptr) return {Code::invalid_handle};
        const bool over =
            std::all_of(event->points.begin(), event->points.end(), [](const PointRef& p) { return p->reached; });
        return {over ? Code::ok : Code::not_ready};
    });
}

Status ScriptedDriver::synchronize_event(EventHandle handle) noexcept {
    Lock lock(mutex_);
    const Event* event = find(handle);
    if (const Status status = enter(entry_of("synchronize_event", event != nullptr ? event->device : -1)); !status.ok())
        return status;
    if (event == nullptr) return finish({Code::invalid_handle});
    return wait_for(lock, event->points) ? Status{} : Status{Code::not_ready};
}

Status ScriptedDriver::elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept {
    return forward(entry_of("elapsed_ms"), [&]() -> Status {
        const Event* events[] = {find(begin), find(end)};
        for (const Event* event : events) {
            if (event == nullptr || !event->timing || !event->recorded) return {Code::invalid_handle};
            if (!event->points.front()->reached) return {Code::not_ready};
        }
        // Each piece of work takes a millisecond here.
        *out = static_cast<float>(events[1]->points.front()->time - events[0]->points.front()->time);
        return {};
    });
}

Status ScriptedDriver::device_event_record(int device, EventHandle handle) noexcept {
    return forward(entry_of("device_event_record", device), [&]() -> Status {
        Event* event = find(handle);
        if (event == nullptr) return {Code::invalid_handle};
        if (!options_.capabilities.device_event) return {Code::not_supported};
        event->points.clear();
        for (const auto& [key, stream] : streams_)
            if (stream.device == device && !stream.last->reached) event->points.push_back(stream.last);
        if (event->points.empty()) event->points.push_back(std::make_shared<Point>(Point{true, time_}));
        event->recorded = true;
        return {};
    });
}

// ---- work

Direction ScriptedDriver::direction_of(const void* destination, const void* source) {
    PointerInfo to, from;
    (void)inner_->pointer_info(destination, &to);
    (void)inner_->pointer_info(source, &from);
    if (to.kind == MemoryKind::device)
        return from.kind == MemoryKind::device ? Direction::device_to_device : Direction::host_to_device;
    return from.kind == MemoryKind::device ? Direction::device_to_host : Direction::host_to_host;
}

Status ScriptedDriver::copy(void* destination, const void* source, std::size_t bytes, StreamHandle stream) noexcept {
    const LogEntry entry = copy_entry("copy", bytes, direction_of(destination, source), destination, source);
    PointerInfo info;
    (void)inner_->pointer_info(source, &info);
    std::vector<std::byte> staged;
    if (info.kind == MemoryKind::pageable && entry.direction == Direction::host_to_device && bytes != 0)
        staged.assign(static_cast<const std::byte*>(source), static_cast<const std::byte*>(source) + bytes);
    return enqueue(entry, stream, [this, destination, source, bytes, staged] {
        const Status status = inner_->copy(destination, staged.empty() ? source : staged.data(), bytes, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::copy_peer(void* destination, int destination_device, const void* source, int source_device,
                                 std::size_t bytes, StreamHandle stream) noexcept {
    if (std::max(destination_device, source_device) >= options_.num_devices ||
        std::min(destination_device, source_device) < 0)
        return {Code::invalid_argument};
    const LogEntry entry = copy_entry("copy_peer", bytes, Direction::device_to_device, destination, source);
    return enqueue(entry, stream, [this, destination, source, bytes] {
        const Status status = inner_->copy(destination, source, bytes, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::copy_box(const BoxCopy& box, StreamHandle stream) noexcept {
    const LogEntry entry = copy_entry("copy_box", box.width_bytes * box.height * box.depth,
                                      direction_of(box.destination, box.source), box.destination, box.source);
    return enqueue(entry, stream, [this, box] {
        const Status status = inner_->copy_box(box, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle stream) noexcept {
    // From the last to the first: they are in no order.
    const std::vector<CopyPiece> copies(std::reverse_iterator(pieces + num_pieces), std::reverse_iterator(pieces));
    std::size_t bytes = 0;
    for (const CopyPiece& piece : copies) bytes += piece.size_bytes;
    LogEntry entry = copy_entry("copy_batch", bytes, Direction::none, nullptr, nullptr);
    entry.num_pieces = num_pieces;
    if (num_pieces != 0) {
        entry.direction = direction_of(pieces[0].destination, pieces[0].source);
        entry.destination = pieces[0].destination;
        entry.source = pieces[0].source;
    }
    return enqueue(entry, stream, [this, copies] {
        const Status status = inner_->copy_batch(copies.data(), copies.size(), inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                            StreamHandle stream) noexcept {
    if (pattern == nullptr || pattern_bytes == 0 || pattern_bytes > 64) return {Code::invalid_argument};
    LogEntry entry = entry_of("fill", -1, pattern_bytes * count);
    entry.destination = destination;
    const std::string bytes(static_cast<const char*>(pattern), pattern_bytes);
    return enqueue(entry, stream, [this, destination, bytes, count] {
        const Status status = inner_->fill(destination, bytes.data(), bytes.size(), count, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::host_callback(StreamHandle stream, HostCallback function, void* user) noexcept {
    if (function == nullptr) return {Code::invalid_argument};
    return enqueue(entry_of("host_callback"), stream, [function, user]() -> Status {
        function(user);
        return {};
    });
}

Status ScriptedDriver::launch(const KernelLaunch& launch, StreamHandle stream) noexcept {
    // Refused at once, as by every driver.
    if (const Status status = inner_->prepare_kernel(launch.function, launch.shared_bytes); !status.ok()) return status;
    const auto* bytes = static_cast<const std::byte*>(launch.parameters);
    const std::vector<std::byte> parameters(bytes, bytes + launch.parameter_bytes);
    return enqueue(entry_of("launch"), stream, [this, launch, parameters] {
        KernelLaunch copy = launch;
        copy.parameters = parameters.data();
        const Status status = inner_->launch(copy, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

Status ScriptedDriver::prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept {
    return forward(entry_of("prepare_kernel"), [&] { return inner_->prepare_kernel(function, shared_bytes); });
}

}  // namespace kmm::driver::testing
