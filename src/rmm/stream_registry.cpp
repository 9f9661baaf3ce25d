// Implements stream_registry.hpp.
#include "rmm/stream_registry.hpp"

#include <array>
#include <memory>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "driver/locks.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

// Numbers of identities; the two lowest bits say where the rest comes from, so that no two sources collide.
std::uint64_t tagged(std::uint64_t value, std::uint64_t tag) noexcept { return value << 2 | tag; }

std::atomic<std::uint64_t> next_number{1};      // of owned streams and of threads
static_assert(unknown_number == (0 << 2 | 2));  // which no thread has, as their numbers begin with 1

struct registry {
    kmm::locks::SharedMutex mutex;
    // Null: the stream was destroyed. The driver uses few handles again and again, so that these are few.
    std::unordered_map<cudaStream_t, owned_stream*> streams KMM_GUARDED_BY(mutex);
    // Changes with every entry made or removed, so that a thread can keep what it looked up last.
    std::atomic<std::uint64_t> generation{1};
};

/// Never destroyed, and made without memory of the host: who looks for a stream may be unable to fail.
template<typename T>
T& in_static_memory() noexcept {
    alignas(T) static std::byte memory[sizeof(T)];
    static T& instance = *new (memory) T;
    return instance;
}

// Streams in static objects may outlive any order of destruction.
registry& all() noexcept { return in_static_memory<registry>(); }

struct remembered {
    cudaStream_t handle = nullptr;
    std::uint64_t generation = 0;
    owned_stream* owned = nullptr;
};
/// The number of a thread's default stream; known as long as the thread lives.
struct threads {
    kmm::locks::Mutex mutex;
    std::unordered_set<std::uint64_t> living KMM_GUARDED_BY(mutex);
};
// Threads may end after any static object.
threads& all_threads() noexcept { return in_static_memory<threads>(); }
thread_local bool thread_is_ending = false;  // trivial, so that it can be read after everything else is gone
struct this_thread {
    std::uint64_t number = tagged(next_number.fetch_add(1, std::memory_order_relaxed), 2);
    this_thread() {
        const kmm::locks::Guard lock(all_threads().mutex);
        all_threads().living.insert(number);
    }
    ~this_thread() {
        thread_is_ending = true;
        if (lost_in_fork()) return;
        const kmm::locks::Guard lock(all_threads().mutex);
        all_threads().living.erase(number);
    }
    this_thread(const this_thread&) = delete;
    this_thread& operator=(const this_thread&) = delete;
};

constexpr std::size_t num_remembered = 8;  // a thread uses few streams at a time

owned_stream* find_owned(cudaStream_t handle) noexcept {
    thread_local std::array<remembered, num_remembered> recent;
    registry& r = all();
    remembered& slot = recent[(reinterpret_cast<std::uintptr_t>(handle) >> 4) % num_remembered];
    const std::uint64_t generation = r.generation.load(std::memory_order_acquire);
    if (slot.handle == handle && slot.generation == generation) return slot.owned;
    const kmm::locks::SharedGuard lock(r.mutex);
    const auto at = r.streams.find(handle);
    slot = {handle, r.generation.load(std::memory_order_relaxed), at == r.streams.end() ? nullptr : at->second};
    return slot.owned;
}

}  // namespace

owned_stream* owned_stream::create(bool non_blocking) {
    struct release_it {
        void operator()(owned_stream* s) const noexcept { s->release(); }
    };
    std::unique_ptr<owned_stream, release_it> record(new owned_stream);
    driver::Driver& d = the_driver();
    check(d.current_device(&record->device_));
    driver::StreamHandle handle;
    check(d.create_stream(record->device_, non_blocking, 0, &handle));
    record->handle_ = static_cast<cudaStream_t>(handle.native);
    record->id_ = tagged(next_number.fetch_add(1, std::memory_order_relaxed), 1);
    registry& r = all();
    try {
        const kmm::locks::Guard lock(r.mutex);
        r.streams[record->handle_] = record.get();
        r.generation.fetch_add(1, std::memory_order_release);
    } catch (...) {
        report_failure(d.destroy_stream(handle), "destroy a stream");
        throw;
    }
    return record.release();
}

owned_stream::~owned_stream() {
    if (end_.native != nullptr && !lost_in_fork()) report_failure(the_driver().destroy_event(end_), "destroy an event");
}

void owned_stream::release() noexcept {
    if (drop_reference()) delete this;
}

void owned_stream::close() noexcept {
    if (lost_in_fork()) return;  // a recording thread of the parent never finishes here
    driver::Driver& d = the_driver();
    registry& r = all();
    open_.store(false, std::memory_order_release);
    {
        const kmm::locks::Guard lock(r.mutex);
        // A handle that was destroyed behind our back may belong to another stream of ours by now.
        if (const auto at = r.streams.find(handle_); at != r.streams.end() && at->second == this) at->second = nullptr;
        r.generation.fetch_add(1, std::memory_order_release);
    }
    {
        kmm::locks::Lock lock(mutex_);
        state_ = state::closing;
        changed_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return num_recording_ == 0; });
    }
    const driver::StreamHandle handle{handle_};
    driver::EventHandle end;
    if (observed_.load(std::memory_order_relaxed)) {
        driver::Status status = d.create_event(device_, false, false, &end);
        if (status.ok()) status = d.record_event(end, handle);
        // What cannot be fenced is waited for: memory freed on this stream may be handed out next.
        if (!status.ok()) {
            (void)d.take_last_error();
            report_failure(d.synchronize_stream(handle), "wait for a stream that is destroyed");
            if (end.native != nullptr) (void)d.destroy_event(end);
            end = {};
        }
    }
    report_failure(d.destroy_stream(handle), "destroy a stream");
    {
        const kmm::locks::Guard lock(mutex_);
        end_ = end;
        state_ = state::closed;
        changed_.notify_all();
    }
    release();
}

driver::Status owned_stream::fence(driver::EventHandle spare, driver::EventHandle* point) noexcept {
    kmm::locks::Lock lock(mutex_);
    changed_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return state_ != state::closing; });
    if (state_ == state::closed) {
        *point = end_;
        return {};
    }
    ++num_recording_;
    lock.unlock();
    driver::Driver& d = the_driver();
    driver::CaptureStatus captured = driver::CaptureStatus::none;
    driver::Status status = d.capture_status(driver::StreamHandle{handle_}, &captured, nullptr);
    if (status.code == driver::Code::capture_error || captured != driver::CaptureStatus::none)
        status = {driver::Code::capture_error, 0};
    else
        status = d.record_event(spare, driver::StreamHandle{handle_});
    lock.lock();
    if (--num_recording_ == 0) changed_.notify_all();
    *point = spare;
    return status;
}

bool owned_stream::has_closed(driver::EventHandle* end) noexcept {
    const kmm::locks::Guard lock(mutex_);
    if (state_ == state::closed) *end = end_;
    return state_ == state::closed;
}

stream_identity identify(driver::Driver& d, cuda_stream_view stream) noexcept {
    const cudaStream_t handle = stream.value();
    if (handle == nullptr || handle == legacy_stream_handle()) return {stream_kind::legacy, legacy_number, nullptr};
    if (handle == per_thread_stream_handle()) {
        if (thread_is_ending) return {stream_kind::unknown, unknown_number, nullptr};
        try {
            thread_local const this_thread thread;
            return {stream_kind::per_thread, thread.number, nullptr};
        } catch (const std::bad_alloc&) {
            // The host has no memory to note the thread: a fence of the whole device covers its stream too.
            return {stream_kind::unknown, unknown_number, nullptr};
        }
    }
    if (owned_stream* owned = find_owned(handle)) return {stream_kind::owned, owned->id(), owned};
    std::uint64_t id = 0;
    if (d.capabilities().stream_ids) {
        if (d.stream_id(driver::StreamHandle{handle}, &id).ok())
            return {stream_kind::foreign, foreign_number(id), nullptr};
        (void)d.take_last_error();
    }
    return {stream_kind::unknown, unknown_number, nullptr};
}

bool this_thread_is_ending() noexcept { return thread_is_ending; }

bool thread_has_ended(std::uint64_t number) noexcept {
    threads& all = all_threads();
    const kmm::locks::Guard lock(all.mutex);
    return all.living.count(number) == 0;
}

bool is_handle_of_ended_stream(cudaStream_t handle) noexcept {
    registry& r = all();
    const kmm::locks::SharedGuard lock(r.mutex);
    const auto at = r.streams.find(handle);
    return at != r.streams.end() && at->second == nullptr;
}

void note_living_stream(cudaStream_t handle) noexcept {
    if (!is_handle_of_ended_stream(handle)) return;
    registry& r = all();
    const kmm::locks::Guard lock(r.mutex);
    if (const auto at = r.streams.find(handle); at != r.streams.end() && at->second == nullptr) r.streams.erase(at);
}

std::uint64_t owned_streams_generation() noexcept { return all().generation.load(std::memory_order_acquire); }

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
