// What was put on each lane, and how far it has come.
//
// Owns: the numbers of lanes, their positions, what is in flight on them, and functions that wait for a position. Must
// not know: why work is put on a lane, residency. Runs under the scheduler's baton. All calls are O(1), but where they
// say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/schedule/lane_policy.hpp"

namespace kmm::schedule {

using graph::Fence;
using graph::FenceSet;
using graph::LaneId;
using graph::LaneInfo;
using graph::LaneRole;
using graph::Position;

/// Work on a lane: of a task, or a transfer into a replica of `chunk`.
struct InFlight {
    Position position = 0;
    graph::Task* task = nullptr;     ///< null: a transfer
    memory::Chunk* chunk = nullptr;  ///< of a transfer
    std::size_t bytes = 0;           ///< that leave their memory
    std::uint64_t copied_at = 0;     ///< of a transfer: Chunk::copied_at
    memory::MemoryIndex to{};        ///< of a transfer
    bool is_ghost = false;           ///< of a transfer: Transfer::What::ghost
};

/// Lanes are numbered device by device: compute, up, down, peer, launchers.
class LanePositions {
  public:
    LanePositions(std::uint32_t num_devices, std::uint32_t num_compute, std::uint32_t num_launchers);

    std::uint32_t per_device() const noexcept { return per_device_; }
    std::size_t size() const noexcept { return lanes_.size(); }
    LaneId id(std::uint32_t device, LaneRole role, std::uint32_t index = 0) const noexcept;
    LaneInfo info(LaneId lane) const noexcept { return at(lane).info; }
    std::span<const LaneProgress> compute_lanes(std::uint32_t device) const noexcept {
        return {progress_.data() + std::size_t{device} * per_device_, num_compute_};
    }
    bool passed(Fence fence) const noexcept { return fence.position <= progress_[index_of(fence.lane)].completed; }
    /// Of `fences` those on other lanes that have not passed. `after_on_lane`: the latest on this lane that has not.
    /// Valid until the next call. O(fences).
    const FenceSet& waits_of(LaneId lane, const FenceSet& fences, Position* after_on_lane = nullptr);

    /// The next position on the lane.
    Fence take(LaneId lane) noexcept { return {lane, ++progress_[index_of(lane)].issued}; }
    /// A thread has put work on the lane by itself, up to this position.
    void was_filled(LaneId lane, Position position) noexcept { progress_[index_of(lane)].issued = position; }
    /// In the order of positions.
    void add(LaneId lane, const InFlight& work);
    /// The task waits for one fence more (`Function::unpassed_fences`), unless that has passed. O(log such tasks).
    void watch(Fence fence, graph::Task& task);

    /// All up to `completed` is done. False: the lane was that far already.
    bool advance(LaneId lane, Position completed) noexcept;
    /// The next work that is done, which is in flight no longer; none: that was all.
    std::optional<InFlight> take_done(LaneId lane) noexcept;
    /// The next task that waited for a position which has passed; null: that was all. O(log such tasks).
    graph::Task* take_watcher(LaneId lane) noexcept;

    std::size_t num_in_flight(LaneId lane) const noexcept { return at(lane).in_flight.size(); }
    std::size_t bytes_in_flight(LaneId lane) const noexcept { return at(lane).bytes_in_flight; }
    /// Calls `f(work)` for what is in flight on the lane up to the position. O(these).
    template<typename F> void each_in_flight(LaneId lane, Position position, F&& f) const {
        for (const InFlight& work : at(lane).in_flight) {
            if (work.position > position) break;
            f(work);
        }
    }

  private:
    struct Watcher {
        Position position;
        graph::Task* task;
        friend bool operator>(const Watcher& a, const Watcher& b) { return a.position > b.position; }
    };
    struct Lane {
        LaneInfo info;
        std::size_t bytes_in_flight = 0;
        graph::Deque<InFlight> in_flight;
        graph::Vector<Watcher> watchers;  ///< a heap
    };
    Lane& at(LaneId lane) noexcept { return lanes_[index_of(lane)]; }
    const Lane& at(LaneId lane) const noexcept { return lanes_[index_of(lane)]; }

    std::uint32_t num_compute_;
    std::uint32_t per_device_;
    std::vector<Lane> lanes_;
    std::vector<LaneProgress> progress_;  ///< by lane
    FenceSet waits_;                      ///< keeps its memory
};

}  // namespace kmm::schedule
