// A stream: work that runs in order, on whichever worker is free.
//
// Owns: the queue of one stream, how far it has come, and who waits for that. Must not know: the driver's API, memory.
// Any thread appends (under `mutex`); one worker at a time runs, and hands the stream over through the executor's lock.
//
// Every piece of work has a position: 1 for the first that ever ran here, and so on without end, also when the slot is
// used again for another stream. So "stream and position" names a point in time for ever, and waiting for an event
// needs no object of its own: a waiter stands in the list of the stream that it waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "driver/host/race_annotations.hpp"
#include "driver/host/work.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

class Executor;
class Capture;

/// A record in a stream's queue.
struct Op {
    Op* next = nullptr;
    std::uint64_t position = 0;
    Stream* stream = nullptr;
    Work work;

    // A kernel whose blocks are run by several workers; see Executor::run_launch.
    std::atomic<std::uint64_t> next_block{0};
    std::atomic<std::uint32_t> participants{0};
    std::atomic<std::uint64_t> blocks_per_turn{0};
    Op* next_launch = nullptr;
    bool listed = false;

    // What a failing kernel of a graph is reported to, if not to the stream that runs it.
    Stream* blamed = nullptr;
    std::uint64_t blamed_position = 0;
    std::atomic<bool> failed{false};
    std::atomic<bool> skipped{false};
    std::exception_ptr error;
    races::Clock enqueue_clock, begin_clock, end_clock;
};

/// A waiter for a position: a stream (`blocked`), or a thread in `Stream::wait_until`.
struct Waiter {
    std::uint64_t position = 0;
    Stream* blocked = nullptr;
    Waiter* next = nullptr;
    bool linked = false;
};

class Stream {
  public:
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // ---- identity; written while the slot is not in use
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;
    std::atomic<int> device{-1};        ///< -1: never used
    std::atomic<bool> blocking{false};  ///< synchronises with the legacy stream of its device
    std::atomic<std::uint64_t> id{0};   ///< never used twice
    bool urgent = false;
    bool legacy = false;

    // ---- the queue; with `mutex` held
    locks::Mutex mutex;
    /// A free record. Throws std::bad_alloc.
    Op* new_op() KMM_REQUIRES(mutex);
    void unused(Op* op) noexcept KMM_REQUIRES(mutex);
    std::uint64_t append(Op* op) noexcept KMM_REQUIRES(mutex);
    /// Appends a wait unless it is known to be over or implied by an earlier one. Throws std::bad_alloc.
    void append_wait(Stream& target, std::uint64_t position) KMM_REQUIRES(mutex);
    /// The next `num_ops` calls of the three above throw nothing, if all targets have slots below `num_slots`.
    void reserve(std::size_t num_ops, std::uint32_t num_slots) KMM_REQUIRES(mutex);
    /// True if the stream has work and was not active: the caller must submit it to the executor.
    bool activate() noexcept KMM_REQUIRES(mutex);
    /// True if nothing is queued or running: the slot can be recycled. Otherwise the worker that finishes the last work
    /// recycles it.
    bool destroy() noexcept KMM_REQUIRES(mutex);
    void set_failed(std::uint64_t position) noexcept KMM_REQUIRES(mutex);
    /// Whether work up to `position` failed; tells it once.
    bool take_failure(std::uint64_t position) noexcept KMM_REQUIRES(mutex);

    // ---- progress; any thread, no lock
    std::uint64_t enqueued() const noexcept { return enqueued_.load(std::memory_order_acquire); }
    bool reached(std::uint64_t position) const noexcept {
        if (completed_.load(std::memory_order_acquire) < position) return false;
        races::acquire(&clock_);
        return true;
    }
    std::atomic<bool> may_have_failed{false};
    /// Blocks the thread; spins for a moment first if `spin`.
    void wait_until(std::uint64_t position, bool spin);

    // ---- for the worker that runs this stream
    /// The next work, or null: then the stream is idle, another worker may run it, and it must not be touched any more.
    /// `*recycle`: it was destroyed and the caller must recycle its slot.
    Op* front(bool* recycle) noexcept;
    /// The first work is done. Streams that this unblocks are given to `unblock(Stream&)`.
    template<typename F> void finish_front(F&& unblock) noexcept {
        Op* op = run_head_;
        run_head_ = op->next;
        op->next = done_;
        done_ = op;
        completed_.store(op->position, std::memory_order_seq_cst);
        if (first_waiter_.load(std::memory_order_seq_cst) > op->position) return;
        Waiter* woken = take_waiters();
        while (woken != nullptr) {
            Waiter* next = woken->next;  // the stream may run, and wait anew, as soon as it is unblocked
            unblock(*woken->blocked);
            woken = next;
        }
    }
    /// Whether there is nothing left after the work that has just been finished, as far as is known now.
    bool drained() const noexcept {
        return run_head_ == nullptr && enqueued() == completed_.load(std::memory_order_relaxed);
    }
    /// True if `target` has reached the position. Otherwise this stream is now blocked and belongs to `target`.
    bool pass(Stream& target, std::uint64_t position) noexcept;
    /// What ThreadSanitizer takes for the thread of this stream.
    races::Fiber& fiber() noexcept { return fiber_; }
    void released() noexcept { races::release(&clock_); }

    // ---- capture; see graph.hpp
    std::atomic<Capture*> capture{nullptr};

    Stream* next_ready = nullptr;  ///< the executor's list

  private:
    static constexpr std::uint64_t nobody = std::numeric_limits<std::uint64_t>::max();

    void add_slab() KMM_REQUIRES(mutex);
    void link(Waiter& waiter) noexcept KMM_REQUIRES(mutex);
    void unlink(Waiter& waiter) noexcept KMM_REQUIRES(mutex);
    void update_first_waiter() noexcept KMM_REQUIRES(mutex);
    Waiter* take_waiters() noexcept;

    locks::Condition progress_;
    Op* pending_head_ KMM_GUARDED_BY(mutex) = nullptr;
    Op* pending_tail_ KMM_GUARDED_BY(mutex) = nullptr;
    Op* free_ KMM_GUARDED_BY(mutex) = nullptr;
    std::size_t num_free_ KMM_GUARDED_BY(mutex) = 0;
    std::vector<std::unique_ptr<Op[]>> slabs_ KMM_GUARDED_BY(mutex);
    /// By slot of the target: the furthest position that was waited for.
    std::vector<std::uint64_t> waited_ KMM_GUARDED_BY(mutex);
    bool active_ KMM_GUARDED_BY(mutex) = false;  ///< running, submitted to run, or blocked
    bool destroyed_ KMM_GUARDED_BY(mutex) = false;
    std::uint64_t failed_at_ KMM_GUARDED_BY(mutex) = nobody;
    Waiter* waiters_ KMM_GUARDED_BY(mutex) = nullptr;  ///< by position

    std::atomic<std::uint64_t> enqueued_{0};
    std::atomic<std::uint64_t> completed_{0};
    std::atomic<std::uint64_t> first_waiter_{nobody};

    // The running worker's own.
    Op* run_head_ = nullptr;
    Op* done_ = nullptr;
    Waiter block_;
    races::Fiber fiber_;
    races::Clock clock_;
};

}  // namespace kmm::driver::host
