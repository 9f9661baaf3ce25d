// Tasks that found no memory: until when they wait, and what is tried for them.
//
// Owns: these tasks, memory that was asked for, waits for memory of others in the process. Must not know: lanes, how a
// ready task is chosen. For want of memory only the front fails, the first task in the order of submission that has not
// been given its memory. Runs under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kmm/memory/residency.hpp"
#include "kmm/schedule/admission.hpp"
#include "kmm/schedule/outbox.hpp"
#include "kmm/schedule/ready_tasks.hpp"

namespace kmm::schedule {

class MemoryWaits {
  public:
    /// Who issues tasks, and ends those that never will be.
    class Issuer {
      public:
        /// The task, which is in no list, is given its memory, or waits again.
        virtual void try_issue(Task& task) = 0;
        virtual void fail_for_memory(Task& task) = 0;
        /// Ends what depends on the tasks that failed.
        virtual void end_dependents() = 0;

      protected:
        ~Issuer() = default;
    };

    MemoryWaits(Issuer& issuer, Outbox& outbox, memory::Residency& residency, Admission& admission, ReadyTasks& ready,
                const SchedulerOptions& options, SchedulerCounters& counters);

    // ---- tasks
    /// How many waits for memory of others have begun for this memory so far: Task::waits_at_ready.
    std::uint32_t num_begun(MemoryIndex memory) const noexcept { return memories_[memory].num_begun; }
    /// The task waits for a replica to be let go of, in a list of that: until `unblocked`.
    void wait_for_chunk(Task& task) noexcept;
    /// The task found no memory. `lacks`: others in the process may hold what it lacks.
    void wait(Task& task, bool lacks);
    /// The task is ready again.
    void unblocked(Task& task);
    /// The task was given its memory, or never will be.
    void end(Task& task);
    /// Memory may have become free: all that wait are ready again. O(these), once for each time that they were tried.
    void retry_all();
    /// A task was refused room there, and nothing has become free since: no task that misses bytes is tried.
    bool is_stalled(MemoryIndex memory) const noexcept { return memories_[memory].is_stalled; }
    /// Whether the task stands aside until memory becomes free. O(such tasks); for reports.
    bool waits(const Task& task) const;
    /// A task was issued or cancelled, or memory has come: what was tried in vain may succeed now.
    void may_fit_now() noexcept;

    // ---- memory that was asked for
    void grow(MemoryIndex memory, std::size_t bytes);
    bool exchange(MemoryIndex memory, std::size_t bytes);
    /// The answer to these.
    void grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed);
    /// Answers to Outbox::await_memory and ask_for_bounce: see Scheduler.
    void awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed);
    void bounce_came(std::uintptr_t address, std::size_t bytes);
    /// Answers to come that may add memory.
    std::uint64_t num_asked() const noexcept { return num_asked_; }

    /// Nothing runs that could release memory. A task that was blocked while copies were under way may fit now. Steps,
    /// until a task is issued: the front retries alone; after compaction; after one of its chunks has changed places
    /// with another, as long as there are such; all other tasks retry without the front, so that these do not evict
    /// each other's chunks by turns; the front fails. A swap brings a chunk of the front one memory nearer, and each
    /// other step only moves content out of the memory of the tasks that retry, so that this ends. False: no task
    /// waits, or memory of others in the process may still come.
    bool step_in_vain();
    /// Scheduler::interval_passed. `has_long_function`: one of the program has run for the whole interval.
    void interval_passed(bool has_long_function);

    /// Tasks that were looked at in all.
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    struct Memory {
        graph::TaskList blocked;  ///< tried again when memory may have become free
        /// Lack memory that others in the process may hold. They block no other task, and are retried with those of
        /// `blocked`.
        graph::TaskList lacking;
        bool is_stalled = false;
        // The memory service awaits such memory on their behalf, one wait at a time, numbered from 1.
        std::uint32_t num_begun = 0;
        bool is_awaited = false;  ///< the latest has not been answered
        bool is_patient = false;  ///< the latest tries until its timeout, and not only once
        /// Number of the latest patient wait that timed out; 0: memory has come since. The front fails if it became
        /// ready before that wait began. A task that became ready later gets a patient wait of its own.
        std::uint32_t timed_out = 0;
    };
    bool stand_aside(Task& task);
    bool compact();
    bool swap();
    bool ask_for_bounce(std::size_t bytes);
    bool try_front();
    bool fail_front();

    Issuer& issuer_;
    Outbox& outbox_;
    memory::Residency& residency_;
    Admission& admission_;
    ReadyTasks& ready_;
    const SchedulerOptions& options_;
    SchedulerCounters& counters_;
    memory::PerMemory<Memory> memories_;
    bool any_stalled_ = false;
    std::uint64_t num_blocked_ = 0;  ///< tasks, those that wait for a chunk too
    std::uint64_t num_asked_ = 0;
    // Since a task was issued: the latest step in vain, and what it took.
    enum class Tried : std::uint8_t { nothing, front, compaction, others } tried_ = Tried::nothing;
    std::uint32_t num_compactions_ = 0;
    bool bounce_refused_ = false;
    std::optional<TaskNumber> stuck_front_;  ///< at the latest `interval_passed`, if a task was held back
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
