// What a turn of the scheduler asks of the threads that execute, and of the memory service.
//
// Owns: nothing, an interface. Must not know: which threads there are, what the scheduler decides. Called under the
// scheduler's baton, unless stated otherwise; must not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kmm/engine/lanes.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/schedule/instruction.hpp"

namespace kmm::detail {

class Engine {
  public:
    /// Launcher threads of each device: device functions may block in a library, and two of them rarely do at once.
    static constexpr std::uint32_t launchers_per_device = 2;

    /// Appends instructions to the device's queue and empties the list: all of them, or none if it throws.
    virtual void push(std::uint32_t device, schedule::InstructionList& instructions) = 0;
    virtual void launch(std::uint32_t device, graph::Task& task) = 0;
    /// Tasks to run, or settled ones whose payloads are to be destroyed: all of them, or none if it throws.
    virtual void push_to_host(std::span<graph::Task* const> tasks) = 0;

    // As in supply::MemoryService.
    virtual void grow(memory::MemoryIndex memory, std::size_t at_least_bytes) = 0;
    virtual void exchange(memory::MemoryIndex memory, std::size_t at_least_bytes) = 0;
    virtual void give_bounce(std::size_t bytes) = 0;
    virtual void await(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient) = 0;
    virtual void device_advanced() = 0;
    virtual std::size_t taken_bytes(std::uint32_t device) const = 0;

    /// Constant. Any thread.
    virtual engine::FailedTasks& failed_tasks() noexcept = 0;
    /// The runtime is lost: nothing more is handed to a device, and functions that have not begun are skipped. Returns
    /// at once; the scheduler hands nothing over afterwards.
    virtual void stop() noexcept = 0;
    /// After `stop`, without the baton: blocks until no function runs and the devices are done with what they were
    /// given. Not for a thread of the engine.
    virtual void wait_until_stopped() noexcept = 0;

  protected:
    ~Engine() = default;
};

}  // namespace kmm::detail
