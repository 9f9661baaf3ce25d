// Identifies streams, and registers those made by rmm::cuda_stream.
//
// A handle does not identify a stream: the driver soon reuses it, and recording an event on a destroyed stream ends the
// process. Registered streams can be fenced at any time, also after their end. The handle of any other stream may be
// used only during the call that brought it.
//
// Owns: the table, and the end events of our destroyed streams. Must not know: resources. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "driver/driver.hpp"
#include "driver/locks.hpp"
#include "rmm/cuda_stream_view.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// A stream that rmm::cuda_stream owns; reference-counted.
class owned_stream {
  public:
    /// Creates and registers a stream of the current device. Throws rmm::cuda_error. One reference, the caller's.
    static owned_stream* create(bool non_blocking);
    /// Destroys the stream; afterwards `fence` gives the point at which it ended. Drops the owner's reference.
    void close() noexcept;

    void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    /// May call the driver; where that must not be, `gone_streams`.
    void release() noexcept;

    std::uint64_t id() const noexcept { return id_; }
    cudaStream_t handle() const noexcept { return handle_; }
    /// The stream may be fenced after its end: `close` must record an event.
    void observe() noexcept { observed_.store(true, std::memory_order_relaxed); }
    /// False before the driver may use the handle for another stream.
    bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

    /// Records everything queued so far in `spare`, or, if the stream has ended, names the event of its end. `*point`
    /// is the event to wait for; null if there is nothing to wait for. The event of the end lives as long as this
    /// object. A stream that is being captured is left alone: Code::capture_error.
    kmm::driver::Status fence(kmm::driver::EventHandle spare, kmm::driver::EventHandle* point) noexcept;
    /// Whether the stream is gone; then `*end` is as `fence` would give it. Never waits.
    bool has_closed(kmm::driver::EventHandle* end) noexcept;

  private:
    friend class gone_streams;
    owned_stream() = default;
    ~owned_stream();
    /// True for the last reference: the caller destroys the object.
    bool drop_reference() noexcept { return references_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    enum class state : std::uint8_t { open, closing, closed };

    std::uint64_t id_ = 0;
    cudaStream_t handle_ = nullptr;
    int device_ = -1;
    std::atomic<std::uint32_t> references_{1};
    std::atomic<bool> observed_{false};
    std::atomic<bool> open_{true};

    kmm::locks::Mutex mutex_;
    kmm::locks::Condition changed_;
    state state_ KMM_GUARDED_BY(mutex_) = state::open;
    int num_recording_ KMM_GUARDED_BY(mutex_) = 0;  // calls of `fence` that are using the handle
    kmm::driver::EventHandle end_ KMM_GUARDED_BY(mutex_);
    owned_stream* next_gone_ = nullptr;
};

/// Streams whose last reference was dropped under a lock. To destroy one calls the driver, which is done without the
/// lock. Needs no memory of the host. Not thread-safe.
class gone_streams {
  public:
    gone_streams() = default;
    gone_streams(gone_streams&& other) noexcept : first_(std::exchange(other.first_, nullptr)) {}
    gone_streams& operator=(gone_streams&&) = delete;
    /// Calls the driver.
    ~gone_streams() {
        while (first_ != nullptr) delete std::exchange(first_, first_->next_gone_);
    }
    bool empty() const noexcept { return first_ == nullptr; }
    /// Drops the caller's reference. Null is ignored.
    void release(owned_stream* stream) noexcept {
        if (stream == nullptr || !stream->drop_reference()) return;
        stream->next_gone_ = std::exchange(first_, stream);
    }

  private:
    owned_stream* first_ = nullptr;
};

enum class stream_kind : std::uint8_t {
    legacy,      ///< the legacy default stream of the current device: never destroyed
    per_thread,  ///< the calling thread's default stream: only this thread can name it
    owned,       ///< made by rmm::cuda_stream
    foreign,     ///< somebody else's handle: touched in this call only
    unknown,     ///< cannot be told from others: no stream at all, or the driver has no stream ids
};

/// Who a stream is. Equal numbers mean one stream for as long as the process lives.
struct stream_identity {
    stream_kind kind = stream_kind::legacy;
    std::uint64_t number = 0;
    owned_stream* owned = nullptr;  ///< for `owned`; valid while the caller's stream is
};

/// Of the legacy default stream.
inline constexpr std::uint64_t legacy_number = 0;
/// What all unknown streams share.
inline constexpr std::uint64_t unknown_number = 2;

/// The number that a foreign stream's identity has when the driver calls it `id`.
constexpr std::uint64_t foreign_number(std::uint64_t id) noexcept { return id << 2 | 3; }

/// Must be called with a live stream that is not captured (asking for the id of one invalidates the capture).
stream_identity identify(kmm::driver::Driver& driver, cuda_stream_view stream) noexcept;

/// Whether the number of this thread's default stream is no longer valid: objects of the thread are being destroyed.
bool this_thread_is_ending() noexcept;

/// Whether the thread whose default stream got this number in `identify` has ended. O(1), takes a lock.
bool thread_has_ended(std::uint64_t number) noexcept;

/// Whether a stream of ours had the handle, was destroyed, and no other one is known to have the handle since: the
/// handle must not be touched. O(1), takes a lock.
bool is_handle_of_ended_stream(cudaStream_t handle) noexcept;
/// A call has named the stream for work that is to come, so that it is there.
void note_living_stream(cudaStream_t handle) noexcept;

/// Changes whenever a stream of ours is made or destroyed: while it does not, a handle of ours names the same stream.
std::uint64_t owned_streams_generation() noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
