// Owns: construction, threads' state, devices and memory calls of the host driver. Any thread.
#include "driver/host/host_driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "driver/host/limits.hpp"
#include "driver/machine.hpp"

namespace kmm::driver::host {
namespace {

std::atomic<std::uint32_t> next_driver_number{1};

}  // namespace

HostOptions effective_options(HostOptions options) {
    options.num_devices = std::clamp(options.num_devices, 1, max_devices);
    if (options.memory_bytes == 0)
        options.memory_bytes = machine_memory_bytes() / 3 / static_cast<std::size_t>(options.num_devices);
    // Two at least: with one worker no two streams would ever run at the same time.
    if (options.num_threads <= 0) options.num_threads = static_cast<int>(usable_processors());
    // More under the race detector; see race_annotations.hpp.
    options.num_threads = std::max(races::tracked ? 8 : 2, options.num_threads);
    return options;
}

/// The states of one thread, one for each driver that it used. Destroyed when the thread ends.
class HostDriver::ThreadStates {
  public:
    ~ThreadStates() {
        if (lost_in_fork()) return;
        for (ThreadState& state : states_)
            if (const auto driver = state.owner.lock())
                for (Stream* stream : state.own_streams)
                    if (stream != nullptr) driver->retire_stream(*stream);
    }

    ThreadState& of(HostDriver& driver) {
        if (last_ < states_.size() && states_[last_].driver == driver.number_) return states_[last_];
        for (last_ = 0; last_ < states_.size(); ++last_)
            if (states_[last_].driver == driver.number_) return states_[last_];
        states_.erase(
            std::remove_if(states_.begin(), states_.end(), [](const ThreadState& s) { return s.owner.expired(); }),
            states_.end());
        last_ = states_.size();
        ThreadState state;
        if (spare().driver == driver.number_) state = spare();
        state.driver = driver.number_;
        state.owner = driver.weak_from_this();
        state.own_streams.assign(static_cast<std::size_t>(driver.device_count()), nullptr);
        states_.push_back(std::move(state));
        spare().driver = 0;
        return states_.back();
    }
    /// What holds until there is memory for a state of its own: of the driver that the thread used last. Drivers count
    /// from 1.
    static ThreadState& spare() noexcept {
        static thread_local ThreadState state;
        return state;
    }

  private:
    std::vector<ThreadState> states_;
    std::size_t last_ = 0;
};

HostDriver::ThreadState& HostDriver::thread_state() noexcept {
    // Destructors of static objects run when the variables of the main thread are gone already, and still free memory:
    // they find a null pointer here and start anew.
    static thread_local ThreadStates* states = nullptr;
    struct Cleanup {
        ~Cleanup() { delete std::exchange(states, nullptr); }
    };
    static thread_local Cleanup cleanup;
    try {
        if (states == nullptr) {
            (void)cleanup;
            states = new ThreadStates;
        }
        return states->of(*this);
    } catch (const std::bad_alloc&) {
        ThreadState& spare = ThreadStates::spare();
        if (spare.driver != number_) spare.device = 0, spare.last_error = {};
        spare.driver = number_;
        return spare;
    }
}

Status HostDriver::fail(Code code) noexcept {
    const Status status{code};
    if (code != Code::ok && code != Code::not_ready) thread_state().last_error = status;
    return status;
}

Status HostDriver::take_last_error() noexcept { return std::exchange(thread_state().last_error, Status{}); }

HostDriver::HostDriver(const HostOptions& options)
    : number_(next_driver_number.fetch_add(1)),
      device_events_(options.device_events),
      memory_(effective_options(options).num_devices, effective_options(options).memory_bytes),
      pools_(memory_, number_),
      virtual_memory_(memory_),
      streams_(number_),
      events_(number_),
      graphs_(number_),
      execs_(number_),
      devices_(std::make_unique<Device[]>(static_cast<std::size_t>(memory_.num_devices()))),
      executor_(effective_options(options).num_threads, options.stack_bytes,
                [this](Stream& stream) { recycle_stream(stream); }) {
    for (int device = 0; device < memory_.num_devices(); ++device) {
        devices_[device].legacy = &take_stream(device, true, false);
        devices_[device].legacy->legacy = true;
        devices_[device].fence = &take_stream(device, false, false);
        devices_[device].pool = &pools_.create(device, 0, MemoryKind::device);
        devices_[device].managed_pool = &pools_.create(device, 0, MemoryKind::managed);
    }
}

HostDriver::~HostDriver() { wait_for_streams(-1); }

Stream& HostDriver::take_stream(int device, bool blocking, bool urgent) {
    Stream& stream = streams_.take();
    stream.device.store(device, std::memory_order_relaxed);
    stream.blocking.store(blocking, std::memory_order_relaxed);
    stream.id.store(next_stream_id_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
    stream.urgent = urgent;
    stream.legacy = false;
    Slots<Stream>::revive(stream);
    return stream;
}

void HostDriver::retire_stream(Stream& stream) noexcept {
    Slots<Stream>::retire(stream);
    bool idle = false;
    {
        const locks::Guard lock(stream.mutex);
        idle = stream.destroy();
    }
    if (idle) recycle_stream(stream);
}

void HostDriver::recycle_stream(Stream& stream) noexcept {
    {
        const locks::Guard lock(stream.mutex);
        if (stream.take_failure(stream.enqueued()))
            devices_[stream.device].failed.store(true, std::memory_order_release);
    }
    streams_.recycle(stream);
}

Stream* HostDriver::resolve(StreamHandle handle) {
    const auto value = reinterpret_cast<std::uintptr_t>(handle.native);
    if (value <= 1) return devices_[thread_state().device].legacy;
    if (value == 2) {
        ThreadState& state = thread_state();
        if (state.own_streams.empty()) state.own_streams.assign(static_cast<std::size_t>(device_count()), nullptr);
        Stream*& own = state.own_streams[static_cast<std::size_t>(state.device)];
        if (own == nullptr) own = &take_stream(state.device, true, false);
        return own;
    }
    return streams_.find(handle.native);
}

/// Waits for everything that is queued on a device, or on all (-1).
void HostDriver::wait_for_streams(int device) noexcept {
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
        Stream& stream = streams_[i];
        const int own = stream.device.load(std::memory_order_relaxed);
        if (own >= 0 && (device < 0 || own == device)) stream.wait_until(stream.enqueued(), executor_.spins());
    }
}

Status HostDriver::current_device(int* out) noexcept {
    *out = thread_state().device;
    return {};
}

Status HostDriver::set_current_device(int device) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    thread_state().device = device;
    return {};
}

Status HostDriver::memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    *free_bytes = memory_.free_bytes(device);
    *total_bytes = memory_.capacity_bytes();
    return {};
}

Status HostDriver::can_access_peer(int device, int peer, bool* out) noexcept {
    if (!valid_device(device) || !valid_device(peer)) return fail(Code::invalid_argument);
    *out = device != peer;
    return {};
}

Status HostDriver::enable_peer(int device, int peer) noexcept {
    return valid_device(device) && valid_device(peer) && device != peer ? Status{} : fail(Code::invalid_argument);
}

Status HostDriver::synchronize_device(int device) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (!valid_device(device)) return fail(Code::invalid_argument);
    bool failed = false;
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
        Stream& stream = streams_[i];
        if (stream.device.load(std::memory_order_relaxed) != device) continue;
        const std::uint64_t position = stream.enqueued();
        stream.wait_until(position, executor_.spins());
        if (!stream.may_have_failed.load(std::memory_order_acquire)) continue;
        const locks::Guard lock(stream.mutex);
        failed |= stream.take_failure(position);
    }
    failed |= devices_[device].failed.exchange(false, std::memory_order_acq_rel);
    pools_.after_synchronization();
    return failed ? fail(Code::launch_failed) : Status{};
}

Status HostDriver::allocate(int device, std::size_t bytes, void** out) noexcept {
    if (!valid_device(device) || bytes == 0) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        Code code = memory_.allocate(bytes, MemoryKind::device, Origin::plain, device, nullptr, out);
        // What pools keep is free memory that happens to be somewhere else.
        for (const bool wait : {false, true}) {
            if (code != Code::out_of_memory || bytes > memory_.capacity_bytes()) break;
            pools_.reclaim(device, wait, executor_.spins());
            code = memory_.allocate(bytes, MemoryKind::device, Origin::plain, device, nullptr, out);
        }
        return {code};
    });
}

Status HostDriver::free(void* pointer) noexcept {
    if (pointer == nullptr) return {};
    return guarded([&]() -> Status {
        const auto allocation = memory_.find(pointer);
        if (!allocation || allocation->address != reinterpret_cast<std::uintptr_t>(pointer))
            return {Code::invalid_argument};
        switch (allocation->origin) {
        case Origin::plain: wait_for_streams(allocation->device); break;
        case Origin::managed: wait_for_streams(-1); break;
        case Origin::pool:
            wait_for_streams(allocation->device);
            return {pools_.free(*allocation->pool, pointer, *devices_[allocation->device].legacy, 0)};
        default: return {Code::invalid_argument};
        }
        memory_.release(*allocation);
        return {};
    });
}

Status HostDriver::allocate_managed(std::size_t bytes, void** out) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (bytes == 0) return fail(Code::invalid_argument);
    return fail(memory_.allocate(bytes, MemoryKind::managed, Origin::managed, thread_state().device, nullptr, out));
}

Status HostDriver::prefetch(const void* pointer, std::size_t bytes, int device_or_host, StreamHandle handle) noexcept {
    return guarded([&]() -> Status {
        if (resolve(handle) == nullptr) return {Code::invalid_handle};
        const auto allocation = memory_.find(pointer);
        const bool valid = allocation && allocation->kind == MemoryKind::managed &&
                           allocation->contains(pointer, bytes) &&
                           (device_or_host == -1 || valid_device(device_or_host));
        return {valid ? Code::ok : Code::invalid_argument};  // all memory is near already
    });
}

Status HostDriver::prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    const auto allocation = memory_.find(pointer);
    const bool may_move =
        !allocation || (allocation->kind == MemoryKind::managed && allocation->contains(pointer, bytes));
    const bool valid = pointer != nullptr && may_move && (device_or_host == -1 || valid_device(device_or_host));
    return valid ? Status{} : fail(Code::invalid_argument);
}

Status HostDriver::allocate_pinned(std::size_t bytes, void** out) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (bytes == 0) return fail(Code::invalid_argument);
    return fail(memory_.allocate(bytes, MemoryKind::pinned, Origin::pinned, -1, nullptr, out));
}

Status HostDriver::free_pinned(void* pointer) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (pointer == nullptr) return {};
    const auto allocation = memory_.find_exactly(pointer, Origin::pinned);
    if (!allocation) return fail(Code::invalid_argument);
    wait_for_streams(-1);
    memory_.release(*allocation);
    return {};
}

Status HostDriver::register_host(void* pointer, std::size_t bytes) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (pointer == nullptr || bytes == 0 || address % page != 0 || bytes % page != 0 || address + bytes < address)
        return fail(Code::invalid_argument);
    return fail(memory_.enter({address, bytes, MemoryKind::pinned, Origin::registered, -1, nullptr}));
}

Status HostDriver::unregister_host(void* pointer) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (!memory_.find_exactly(pointer, Origin::registered)) return fail(Code::invalid_argument);
    wait_for_streams(-1);
    memory_.leave(reinterpret_cast<std::uintptr_t>(pointer));
    return {};
}

Status HostDriver::pointer_info(const void* pointer, PointerInfo* out) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    const auto allocation = memory_.find(pointer);
    *out = allocation ? PointerInfo{allocation->kind, allocation->device} : PointerInfo{};
    return {};
}

Status HostDriver::default_pool(int device, PoolHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    *out = {pools_.handle(*devices_[device].pool)};
    return {};
}

Status HostDriver::default_managed_pool(int device, PoolHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    *out = {pools_.handle(*devices_[device].managed_pool)};
    return {};
}

Status HostDriver::create_pool(int device, const PoolOptions& options, PoolHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    if (options.export_handle_types != 0 || options.decompression) return fail(Code::not_supported);
    return guarded([&]() -> Status {
        *out = {pools_.handle(pools_.create(device, options.maximum_bytes, MemoryKind::device))};
        return {};
    });
}

Status HostDriver::destroy_pool(PoolHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Pool* pool = pools_.find(handle.native);
    if (pool == nullptr) return fail(Code::invalid_handle);
    const int number = pools_.device_of(*pool);
    if (number < 0) return fail(Code::invalid_handle);
    const Device& device = devices_[number];
    if (pool == device.pool || pool == device.managed_pool) return fail(Code::invalid_argument);
    pools_.destroy(*pool);
    return {};
}

Status HostDriver::set_pool_release_threshold(PoolHandle handle, std::uint64_t bytes) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Pool* pool = pools_.find(handle.native);
    if (pool == nullptr) return fail(Code::invalid_handle);
    const locks::Guard lock(pool->mutex);
    pool->keep_bytes = bytes;
    return {};
}

Status HostDriver::trim_pool(PoolHandle handle, std::size_t keep_bytes) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Pool* pool = pools_.find(handle.native);
    if (pool == nullptr) return fail(Code::invalid_handle);
    pools_.trim(*pool, keep_bytes);
    return {};
}

Status HostDriver::allocate_async(PoolHandle handle, std::size_t bytes, StreamHandle stream_handle,
                                  void** out) noexcept {
    return guarded([&]() -> Status {
        if (bytes == 0) return {Code::invalid_argument};
        Pool* pool = pools_.find(handle.native);
        Stream* stream = resolve(stream_handle);
        if (pool == nullptr || stream == nullptr) return {Code::invalid_handle};
        if (const Status status = refuse_captured(*stream); !status.ok()) return status;
        const auto add_wait = [&](Stream& target, std::uint64_t position) {
            Queue queue(*this, *stream);
            stream->append_wait(target, position);
        };
        return {pools_.allocate(*pool, bytes, *stream, executor_.spins(), add_wait, out)};
    });
}

Status HostDriver::free_async(void* pointer, StreamHandle stream_handle) noexcept {
    if (pointer == nullptr) return {};
    // Needs no memory of the host: there may be none when a program gives up what it has.
    return guarded([&]() -> Status {
        const auto allocation = memory_.find_exactly(pointer, Origin::pool);
        Stream* stream = nullptr;
        try {
            stream = resolve(stream_handle);
        } catch (const std::bad_alloc&) {
            // The thread's own stream, not made yet: it has no work, and would wait for the legacy stream alone.
            if (!allocation) return {Code::invalid_argument};
            Stream& legacy = *devices_[thread_state().device].legacy;
            return {pools_.free(*allocation->pool, pointer, legacy, legacy.enqueued())};
        }
        if (stream == nullptr) return {Code::invalid_handle};
        if (const Status status = refuse_captured(*stream); !status.ok()) return status;
        if (!allocation) return {Code::invalid_argument};
        return {pools_.free(*allocation->pool, pointer, *stream, certain_tail_of(*stream))};
    });
}

Status HostDriver::physical_support(int device, PhysicalOptions* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    *out = {};
    return {};
}

Status HostDriver::granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    if (options != PhysicalOptions{}) return fail(Code::not_supported);
    *out = virtual_granularity;
    return {};
}

Status HostDriver::reserve_addresses(std::size_t bytes, void** out) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.reserve_addresses(bytes, out)}; });
}

Status HostDriver::release_addresses(void* address, std::size_t bytes) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.release_addresses(address, bytes)}; });
}

Status HostDriver::create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                                   PhysicalHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    if (options != PhysicalOptions{}) return fail(Code::not_supported);
    return guarded([&]() -> Status {
        Code code = virtual_memory_.create_physical(device, bytes, &out->native);
        for (const bool wait : {false, true}) {
            if (code != Code::out_of_memory || bytes > memory_.capacity_bytes()) break;
            pools_.reclaim(device, wait, executor_.spins());
            code = virtual_memory_.create_physical(device, bytes, &out->native);
        }
        return {code};
    });
}

Status HostDriver::release_physical(PhysicalHandle physical) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.release_physical(physical.native)}; });
}

Status HostDriver::map(void* address, std::size_t bytes, PhysicalHandle physical) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.map(address, bytes, physical.native)}; });
}

Status HostDriver::unmap(void* address, std::size_t bytes) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.unmap(address, bytes)}; });
}

Status HostDriver::set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) noexcept {
    return guarded([&]() -> Status { return {virtual_memory_.set_access(address, bytes, devices, num_devices)}; });
}

}  // namespace kmm::driver::host
