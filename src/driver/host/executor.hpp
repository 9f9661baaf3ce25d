// The worker threads of a host driver.
//
// Owns: the threads, the list of streams that have work, and the list of kernels whose blocks are being shared out.
// Must not know: the driver's API, memory. `submit` may be called from any thread; the rest runs on the workers.
//
// A stream that has work is in exactly one place: in the list, with the worker that runs it, or blocked (then it stands
// in the list of waiters of the stream that it waits for). Nothing polls: idle workers sleep. Workers that are all
// stuck in work that waits for other work (kernels that wait for each other, blocking callbacks) are joined by extra
// ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "driver/host/stream.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

class Executor {
  public:
    /// `recycle` is called on a worker with each destroyed stream that has finished its work. Starts no thread yet.
    Executor(int num_threads, std::size_t stack_bytes, std::function<void(Stream&)> recycle);
    /// Every stream must have finished its work.
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// Starts the threads if they are not running. False if the system refuses to make any.
    bool start() noexcept;
    /// The stream has work, and `Stream::activate` told the caller to submit it.
    void submit(Stream& stream) noexcept;
    int num_threads() const noexcept { return num_threads_; }
    /// Whether looking for a moment before sleeping is worth while on this machine.
    bool spins() const noexcept { return spins_; }

  private:
    void work(int number) noexcept;
    void look_for_work() noexcept;
    void supervise() noexcept;
    void add_extra_workers() noexcept KMM_REQUIRES(mutex_);
    void run(Stream& stream, bool front_is_done) noexcept;
    Stream* run_turn(Stream& stream, bool front_is_done) noexcept;
    bool execute(Stream& stream, Op& op) noexcept;
    bool run_launch(Stream& stream, Op& op) noexcept;
    bool take_part(Op& op, races::Fiber& fiber) noexcept;
    void help(Op& op) noexcept;
    void end_launch(Op& op) noexcept;
    void share(Op& op) noexcept;
    void wake(std::uint64_t most) noexcept KMM_REQUIRES(mutex_);
    void rouse() noexcept KMM_REQUIRES(mutex_);
    Stream* pop_ready(int worker) noexcept KMM_REQUIRES(mutex_);

    const int num_threads_;
    const std::size_t stack_bytes_;  ///< for kernels
    const bool spins_;
    const std::function<void(Stream&)> recycle_;

    std::atomic<bool> started_{false};
    std::atomic<int> num_offers_{0};  ///< entries of all lists, for a look without the lock

    locks::Mutex mutex_;
    locks::Condition wake_;
    locks::Condition alarm_;
    bool stopping_ KMM_GUARDED_BY(mutex_) = false;
    Stream* ready_head_[2] KMM_GUARDED_BY(mutex_) = {nullptr, nullptr};  ///< urgent streams, then all others
    Stream* ready_tail_[2] KMM_GUARDED_BY(mutex_) = {nullptr, nullptr};
    int num_ready_ KMM_GUARDED_BY(mutex_) = 0;
    Op* launches_ KMM_GUARDED_BY(mutex_) = nullptr;
    int sleeping_ KMM_GUARDED_BY(mutex_) = 0;
    int searching_ KMM_GUARDED_BY(mutex_) = 0;
    bool watched_ KMM_GUARDED_BY(mutex_) = false;  ///< the supervisor watches whether the list moves
    std::uint64_t pops_ KMM_GUARDED_BY(mutex_) = 0;
    int num_extra_ KMM_GUARDED_BY(mutex_) = 0;
    std::vector<std::thread> threads_;
    std::list<std::thread> extras_ KMM_GUARDED_BY(mutex_);
    std::list<std::thread> gone_ KMM_GUARDED_BY(mutex_);
    std::thread supervisor_;
};

}  // namespace kmm::driver::host
