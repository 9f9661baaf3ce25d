// What the threads tell the scheduler.
//
// Owns: messages between `push` and `take`. Must not know: the scheduler, drivers, what a message leads to. Any thread
// posts; the one that holds the scheduler's baton takes.
#pragma once

#include <exception>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/base/log.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/memory/placement.hpp"

namespace kmm::engine {

struct Message {
    enum class What : std::uint8_t {
        submit,           ///< task and those that follow it (Task::next_published): published
        advance,          ///< lane, position: done up to there; error: none of it can be trusted
        launched,         ///< task, lane, position, error, finished
        host_done,        ///< task, error
        task_failed,      ///< task_number, error; before the lane advances past it
        kernel_threw,     ///< task_number, error; likewise
        copy_failed,      ///< lane, position, error; likewise
        grown,            ///< memory, address, bytes, sealed
        given_again,      ///< memory, address, bytes, sealed
        awaited,          ///< memory, address, bytes, sealed
        bounce_came,      ///< address, bytes
        interval_passed,  ///< nothing; sent at the watchdog's interval while tasks are unfinished
        measured,         ///< kernel_times, duration_ns: of one launch of that kernel
        release,          ///< array: no handle is left
        look,             ///< nothing; the scheduler looks again
    };
    What what = What::look;
    graph::LaneId lane = graph::LaneId::none;
    memory::MemoryIndex to{};
    graph::Task* task = nullptr;
    graph::TaskNumber task_number = 0;
    void* object = nullptr;  ///< an array
    graph::Position position = 0;
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::uint32_t kernel_times = 0;  ///< schedule::KernelTimes::Id
    std::int64_t duration_ns = 0;
    bool sealed = false;    ///< see memory::Space::grown
    bool finished = false;  ///< the lane is done up to `position`
    std::exception_ptr error;
};

/// Messages in the order in which they came. Any thread; a spin lock for the time of one append.
class MessageQueue {
  public:
    void push(Message&& message) {
        const locks::Guard guard(lock_);
        messages_.push_back(std::move(message));
        filled_.store(true, std::memory_order_seq_cst);
    }
    /// The task and those that follow it (Task::next_published): one message however many, so that a submit of very
    /// many needs no more memory here than one of few.
    void push(graph::Task& first) {
        const locks::Guard guard(lock_);
        Message& m = messages_.emplace_back();
        m.what = Message::What::submit;
        m.task = &first;
        filled_.store(true, std::memory_order_seq_cst);
    }
    bool empty() const noexcept { return !filled_.load(std::memory_order_seq_cst); }
    /// Swaps everything into `out` (which must be empty; its memory is reused).
    void take(graph::Vector<Message>& out) {
        const locks::Guard guard(lock_);
        messages_.swap(out);
        filled_.store(false, std::memory_order_seq_cst);
    }

  private:
    locks::TinyLock lock_;
    graph::Vector<Message> messages_ KMM_GUARDED_BY(lock_);
    std::atomic<bool> filled_{false};
};

/// Marks the calling thread as one of a runtime's own, which must not end the runtime.
class RuntimeThread {
  public:
    explicit RuntimeThread(const void* runtime) noexcept {
        current() = runtime;
        log::of_library_thread() = true;
    }
    ~RuntimeThread() {
        current() = nullptr;
        log::of_library_thread() = false;
    }
    RuntimeThread(const RuntimeThread&) = delete;
    RuntimeThread& operator=(const RuntimeThread&) = delete;
    static bool of(const void* runtime) noexcept { return current() == runtime; }

  private:
    static const void*& current() noexcept {
        thread_local const void* runtime = nullptr;
        return runtime;
    }
};

/// Where threads of the runtime report, and how they help. `post` wakes no thread: call `help`, `help_once` or
/// `leave_turn` after it, once after several.
class Mailbox {
  public:
    virtual void post(Message&& message) = 0;
    /// The calling thread has no memory for what it should report, the reserve included: the runtime is lost.
    virtual void lost() noexcept = 0;
    /// Runs the scheduler on this thread while messages are pending and no other thread has the baton.
    virtual void help() noexcept = 0;
    /// At most one turn. True: it was taken, and messages came meanwhile; a thread with other work then calls
    /// `leave_turn`.
    virtual bool help_once() noexcept = 0;
    /// As `help`, on the scheduler's own thread, for a thread that has something else to do. Wakes it if it sleeps.
    virtual void leave_turn() noexcept = 0;
    /// memory::Compaction::take_bounce.
    virtual graph::FenceSet take_back_bounce() { return {}; }
    /// Takes memory that was reported as grown back from the scheduler, if all of it is free; `*users` is what on a
    /// device still uses it. Waits for a turn of the scheduler.
    virtual bool take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes,
                           graph::FenceSet* users) = 0;
    /// memory::Blocks::reclaim, in a turn of the scheduler.
    virtual memory::Reclaimed reclaim(memory::MemoryIndex memory, const std::vector<memory::AddressRange>& regions,
                                      std::size_t wanted_bytes, bool at_once) = 0;
    /// A record whose payload has just been destroyed.
    virtual void discard(graph::Task& task) noexcept = 0;

  protected:
    ~Mailbox() = default;
};

}  // namespace kmm::engine
