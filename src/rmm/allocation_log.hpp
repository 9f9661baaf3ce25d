// The log behind logging_resource_adaptor: allocations and frees as lines of text, in order.
//
// A thread that allocates takes a place in a ring buffer and writes a record of 48 bytes there; no lock, no text, no
// system call. The holder of the pen (a mutex) formats the records in the order of their places: the thread of the log,
// at most a tenth of a second behind; a thread that finds the ring full; a thread that flushes, destroys the log or
// exits. The allocating thread takes the pen itself if the lines go into objects of the program (streams, callbacks),
// must leave at once, or in a child made by fork().
//
// Owns: the ring, the thread, the sinks' share. Must not know: resources. Any thread; `record` never throws and blocks
// only while the ring is full.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "driver/locks.hpp"
#include "rapids_logger/logger.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/process_events.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class allocation_log final : rmm::detail::process_observer {
  public:
    enum class action : std::uint8_t { allocate, allocate_failure, free };

    static constexpr std::string_view header = "Thread,Time,Action,Pointer,Size,Stream";

    /// Writes the header. Throws std::invalid_argument if a sink is null, and what a sink throws.
    allocation_log(std::vector<rapids_logger::sink_ptr> sinks, bool auto_flush);
    /// Everything recorded is written and flushed.
    ~allocation_log();

    void record(action what, void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;
    /// Returns when all that was recorded before the call has been written and flushed.
    void flush();

  private:
    // Places are counted through all laps of the ring. In lap n a slot is free at 2n, filled at 2n + 1, free again at
    // 2n + 2.
    struct alignas(64) slot {
        std::atomic<std::uint64_t> turn;
        std::int64_t time_ns;
        void* ptr;
        std::size_t bytes;
        cudaStream_t stream;
        int thread;
        action what;
    };
    // Covers the slowest write of a file system (some milliseconds) for the fastest programs (a record in 0.2 us).
    static constexpr std::uint64_t capacity = 16384;
    // A thread that finds fewer free places waits before it takes one; the reserve is for threads that looked at the
    // same time.
    static constexpr std::uint64_t reserve = 1024;
    // Places between two wake-ups of the thread of the log: early enough for it to keep up.
    static constexpr std::uint64_t wake_interval = 4096;

    void before_fork() noexcept override KMM_ACQUIRE(pen_, wake_mutex_);
    void after_fork(bool in_child) noexcept override KMM_RELEASE(pen_, wake_mutex_);
    void at_exit() noexcept override;

    slot& slot_of(std::uint64_t place) noexcept { return slots_[place % capacity]; }
    static std::uint64_t turn_of(std::uint64_t place) noexcept { return 2 * (place / capacity); }

    void wait_for_room() noexcept;
    void wait_for_turn(std::uint64_t place) noexcept;
    void write_until(std::uint64_t end, bool flushes) noexcept KMM_REQUIRES(pen_);
    void write_in_step(std::uint64_t place) noexcept;
    void append(const slot& record) noexcept KMM_REQUIRES(pen_);
    void hand_over() noexcept KMM_REQUIRES(pen_);
    void flush_sinks() noexcept KMM_REQUIRES(pen_);
    template<typename Work>
    void attempt(Work work) noexcept KMM_REQUIRES(pen_);
    void report(const char* what) noexcept KMM_REQUIRES(pen_);

    void wake_writer() noexcept;
    void start_writer() noexcept KMM_REQUIRES(wake_mutex_);
    static void* run_writer(void* log);
    void write_behind();

    struct unmapped {
        void operator()(slot* slots) const noexcept;
    };

    // Written by every record.
    alignas(64) std::atomic<std::uint64_t> next_place_{0};
    // Read by every record, rarely written.
    alignas(64) std::atomic<std::uint64_t> num_written_{0};
    std::atomic<bool> writer_sleeps_{true};
    std::atomic<bool> in_step_;
    std::unique_ptr<slot[], unmapped> slots_;
    const bool auto_flush_;

    // The pen. Its holder waits only for threads that are filling their slots.
    alignas(64) kmm::locks::Mutex pen_;
    const std::vector<rapids_logger::sink_ptr> sinks_;
    std::uint64_t written_ KMM_GUARDED_BY(pen_) = 0;  // num_written_, exactly
    std::int64_t clock_second_ KMM_GUARDED_BY(pen_) = -1;
    char clock_text_[8] KMM_GUARDED_BY(pen_) = {};  // "HH:MM:SS" of that second
    std::size_t text_size_ KMM_GUARDED_BY(pen_) = 0;
    char text_[32768] KMM_GUARDED_BY(pen_);  // lines on their way; large enough to amortise the system call
    bool reported_ KMM_GUARDED_BY(pen_) = false;

    kmm::locks::Mutex wake_mutex_;  // never taken by the holder of the pen, except for a fork
    kmm::locks::Condition wake_;
    bool woken_ KMM_GUARDED_BY(wake_mutex_) = false;
    bool stopping_ KMM_GUARDED_BY(wake_mutex_) = false;
    bool has_writer_ KMM_GUARDED_BY(wake_mutex_) = false;
    bool may_have_writer_ KMM_GUARDED_BY(wake_mutex_);
    pthread_t writer_ KMM_GUARDED_BY(wake_mutex_){};
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
