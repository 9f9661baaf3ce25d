// Transfers of content on lanes: which lane, behind what, and what a failed one leaves behind.
//
// Owns: where the last copy of each lane ended, the number of transfers in flight. Must not know: why content is moved,
// which task is next. Runs under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "kmm/graph/task_table.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/schedule/outbox.hpp"

namespace kmm::schedule {

class Transfers {
  public:
    Transfers(Outbox& outbox, graph::TaskTable& table, LanePositions& lanes, memory::Residency& residency,
              const SchedulerOptions& options, SchedulerCounters& counters);

    /// Puts it on a copy lane of the device that it writes to, or else reads from, behind `waits`. Of the work of a
    /// task: the tasks whose failure skips it, and what is filled before it. O(boxes + waits).
    Fence put(const memory::Transfer& transfer, const FenceSet& waits, std::span<const TaskNumber> needed_tasks = {},
              std::span<const Fill> fills = {});
    /// Counts one that a thread of the host carries out.
    void count(const memory::Transfer& transfer) noexcept;
    /// One of no task is done.
    void ended() noexcept { --num_in_flight_; }
    /// Of no task.
    std::uint64_t num_in_flight() const noexcept { return num_in_flight_; }
    /// Whether the links of the memory's device may have more. A link is kept busy by the copy that runs and the one
    /// behind it; small ones come in larger numbers. O(1).
    bool may_fetch(MemoryIndex memory) const noexcept;

    /// What was put on the lane up to the position did not happen: tasks that were issued behind a transfer would take
    /// what never arrived for the content, and fail. O(what is in flight on the lane, and uses of unsettled tasks).
    void lane_failed(LaneId lane, Position position, const std::exception_ptr& error);
    /// Likewise, for the one that has exactly this position, unless it is the work of a task, which fails by itself.
    void failed(LaneId lane, Position position, const std::exception_ptr& error);

  private:
    /// Where the last copy of a chunk on a lane ended.
    struct CopyEnd {
        Position position = 0;
        MemoryIndex from{};
        MemoryIndex to{};
        std::uintptr_t source = 0;
        std::uintptr_t destination = 0;
    };
    bool extends(const CopyEnd& last, const Instruction& copy) const noexcept;
    void fail(std::span<InFlight> transfers, const std::exception_ptr& error);

    Outbox& outbox_;
    graph::TaskTable& table_;
    LanePositions& lanes_;
    memory::Residency& residency_;
    const SchedulerOptions& options_;
    SchedulerCounters& counters_;
    std::vector<CopyEnd> last_copies_;  ///< by lane
    std::uint64_t num_in_flight_ = 0;
};

}  // namespace kmm::schedule
