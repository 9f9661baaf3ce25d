// The scheduler's interface to the threads that execute, its options and its counters.
//
// Owns: nothing, an interface and plain types. Must not know: how anything is executed, how the scheduler decides. The
// outbox is called under the scheduler's baton; options and counters are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "kmm/graph/task.hpp"
#include "kmm/memory/eviction_policy.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/memory/tiers.hpp"
#include "kmm/schedule/instruction.hpp"
#include "kmm/schedule/order_policy.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::schedule {

using graph::Task;
using graph::TaskNumber;
using memory::MemoryIndex;

/// Receives the scheduler's instructions and requests. Called under the scheduler's baton; must not block.
class Outbox {
  public:
    /// Copies the instruction. If it throws, nothing was handed out.
    virtual void instruct(std::uint32_t device, const Instruction& instruction) = 0;
    virtual void launch(std::uint32_t device, Task& task) = 0;     ///< device function; answer: `launched`
    virtual void run_on_host(Task& task) = 0;                      ///< answer: `host_done`
    virtual void grow(MemoryIndex memory, std::size_t bytes) = 0;  ///< answer: `grown`
    /// Asks for a bounce buffer, by way of which content changes its place: page-locked host memory outside the budget.
    /// Replaces the one before. Answer: `bounce_came`. False: not supported.
    virtual bool ask_for_bounce(std::size_t) { return false; }
    /// memory::Requests::move_on_host.
    virtual void move_on_host(std::uintptr_t, std::uintptr_t, std::size_t) {}
    /// memory::Requests::exchange; answer: `grown`. False: not supported.
    virtual bool exchange(MemoryIndex, std::size_t) { return false; }
    /// The driver refused memory without which a task cannot run. `patient`: retries until a timeout, because the
    /// program may free some; else tries once. Answer: `awaited`. One at a time for each memory. False: not supported.
    virtual bool await_memory(MemoryIndex, const memory::Lacking&, bool patient) { return (void)patient, false; }
    virtual bool may_ask_again(MemoryIndex) noexcept { return false; }
    virtual bool linked(MemoryIndex from, MemoryIndex to) const noexcept = 0;
    /// The task is finished; `task.failure` says how. It must leave the table now.
    virtual void settled(Task& task) noexcept = 0;
    /// Nothing refers to the record any more.
    virtual void recycle(Task& task) noexcept = 0;
    /// Makes the failure of a task that failed by itself, or of one that `root` cancelled (`thrown` is null then).
    virtual std::shared_ptr<graph::Failure> make_failure(Task& task, std::exception_ptr thrown,
                                                         const std::shared_ptr<graph::RootFailure>& root) = 0;
    /// The failure of a task that is settled already, or null.
    virtual std::shared_ptr<graph::Failure> find_failure(TaskNumber number) = 0;
    /// The task found no memory, and never will: stores the error in it (Task::thrown or Task::unworded).
    virtual void out_of_memory(Task& task) = 0;
    /// The error of a task for whose records the host has no memory. Does not allocate.
    virtual std::exception_ptr no_host_memory() noexcept { return std::make_exception_ptr(std::bad_alloc()); }
    /// A ready task finds no memory; later it is placed, or fails. In pairs, so that the wait can be measured. The
    /// former throws std::bad_alloc.
    virtual void memory_wait_begins(Task& task) = 0;
    virtual void memory_wait_ends(Task& task) noexcept = 0;
    /// What an emulated kernel threw becomes the task's own failure, if it has none yet.
    virtual void kernel_failed(Task& task, std::exception_ptr thrown) = 0;

  protected:
    ~Outbox() = default;
};

struct SchedulerOptions {
    std::uint32_t num_devices = 1;
    std::uint32_t compute_lanes = 8;
    std::uint32_t launcher_lanes = 2;
    std::uint32_t host_threads = 1;
    std::uint64_t threads_at_once = 1;  ///< that a device runs, the least of all
    bool debug = false;                 ///< one task at a time, in the order of submission; Task::unset is filled in
    /// Device functions touch memory of the device by themselves: one is launched when what it waits for has passed.
    bool functions_touch_memory = false;
    // Two or three milliseconds of a link at 50 GB/s, and two copies however large: enough to keep it busy, little
    // enough that what is submitted a moment later can still change the order.
    std::size_t link_bytes_in_flight = 160u << 20;
    // Tiny kernels take 3 us each, so that this is about three milliseconds of them.
    std::uint32_t tasks_in_flight = 1024;
    OrderPolicy order = OrderPolicy::fewest_bytes_a_task;
    bool plans = true;  ///< where that is worth it; else nothing is planned, for comparison
    memory::EvictionPolicy eviction = memory::EvictionPolicy::farthest_next_use;
    const trace::Emitter* trace = &trace::nobody_listens;  ///< outlives the schedule
};

struct SchedulerCounters {
    std::uint64_t submitted = 0, succeeded = 0, failed = 0, cancelled = 0, kernels = 0;
    std::uint64_t gathered_bytes = 0, snapshot_bytes = 0;
    std::uint64_t memory_waits = 0;  ///< placements that had to wait
    std::uint64_t tasks_waited = 0;  ///< tasks with such a placement
    memory::LinkCounts transfers;
    std::vector<memory::LinkCounts> by_device;
};

}  // namespace kmm::schedule
