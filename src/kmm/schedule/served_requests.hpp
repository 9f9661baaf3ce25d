// Passes each request of residency on to the part of the schedule that serves it.
//
// Owns: nothing. Must not know: why something is requested.
#pragma once

#include "kmm/graph/task_table.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/schedule/memory_waits.hpp"
#include "kmm/schedule/transfers.hpp"

namespace kmm::schedule {

/// The parts may be made later than this.
class ServedRequests final : public memory::Requests {
  public:
    ServedRequests(Outbox& outbox, graph::TaskTable& table, const LanePositions& lanes, Transfers& transfers,
                   ReadyTasks& ready, MemoryWaits& waits) noexcept
        : outbox_(outbox), table_(table), lanes_(lanes), transfers_(transfers), ready_(ready), waits_(waits) {}

    Fence transfer(const memory::Transfer& transfer, const FenceSet& waits) override {
        return transfers_.put(transfer, waits);
    }
    const Task* find(TaskNumber number) noexcept override { return table_.find(number); }
    void move_on_host(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes) override {
        outbox_.move_on_host(destination, source, bytes);
    }
    void grow(MemoryIndex memory, std::size_t bytes) override { waits_.grow(memory, bytes); }
    bool exchange(MemoryIndex memory, std::size_t bytes) override { return waits_.exchange(memory, bytes); }
    bool may_ask_again(MemoryIndex memory) noexcept override { return outbox_.may_ask_again(memory); }
    bool passed(Fence fence) const noexcept override { return lanes_.passed(fence); }
    bool linked(MemoryIndex from, MemoryIndex to) const noexcept override { return outbox_.linked(from, to); }
    void residency_changed(Task& task) override { ready_.changed(task); }
    void unblocked(Task& task) override { waits_.unblocked(task); }

  private:
    Outbox& outbox_;
    graph::TaskTable& table_;
    const LanePositions& lanes_;
    Transfers& transfers_;
    ReadyTasks& ready_;
    MemoryWaits& waits_;
};

}  // namespace kmm::schedule
