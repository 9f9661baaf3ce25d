#include "kmm/schedule/lane_positions.hpp"

#include <algorithm>
#include <functional>

namespace kmm::schedule {

using graph::index_of;

LanePositions::LanePositions(std::uint32_t num_devices, std::uint32_t num_compute, std::uint32_t num_launchers)
    : num_compute_(num_compute),
      per_device_(num_compute + 3 + num_launchers),
      lanes_(std::size_t{num_devices} * per_device_),
      progress_(lanes_.size()) {
    for (std::uint32_t d = 0; d < num_devices; ++d) {
        for (std::uint32_t i = 0; i < num_compute; ++i)
            at(id(d, LaneRole::compute, i)).info = {d, LaneRole::compute, i};
        for (const LaneRole role : {LaneRole::up, LaneRole::down, LaneRole::peer}) at(id(d, role)).info = {d, role, 0};
        for (std::uint32_t i = 0; i < num_launchers; ++i)
            at(id(d, LaneRole::launcher, i)).info = {d, LaneRole::launcher, i};
    }
}

LaneId LanePositions::id(std::uint32_t device, LaneRole role, std::uint32_t index) const noexcept {
    std::uint32_t first = device * per_device_;
    switch (role) {
    case LaneRole::compute: break;
    case LaneRole::up: first += num_compute_; break;
    case LaneRole::down: first += num_compute_ + 1; break;
    case LaneRole::peer: first += num_compute_ + 2; break;
    case LaneRole::launcher: first += num_compute_ + 3; break;
    }
    return static_cast<LaneId>(first + index);
}

const FenceSet& LanePositions::waits_of(LaneId lane, const FenceSet& fences, Position* after_on_lane) {
    waits_.clear();
    for (const Fence& f : fences) {
        if (passed(f)) continue;
        if (f.lane != lane)
            waits_.add(f);
        else if (after_on_lane != nullptr)
            *after_on_lane = std::max<Position>(*after_on_lane, f.position);
    }
    return waits_;
}

void LanePositions::add(LaneId lane, const InFlight& work) {
    Lane& l = at(lane);
    l.in_flight.push_back(work);
    l.bytes_in_flight += work.bytes;
}

void LanePositions::watch(Fence fence, graph::Task& task) {
    if (passed(fence)) return;
    auto& watchers = at(fence.lane).watchers;
    watchers.push_back({fence.position, &task});
    std::push_heap(watchers.begin(), watchers.end(), std::greater<>());
    ++task.function.unpassed_fences;
}

bool LanePositions::advance(LaneId lane, Position completed) noexcept {
    LaneProgress& progress = progress_[index_of(lane)];
    if (completed <= progress.completed) return false;
    progress.completed = completed;
    return true;
}

std::optional<InFlight> LanePositions::take_done(LaneId lane) noexcept {
    Lane& l = at(lane);
    if (l.in_flight.empty() || l.in_flight.front().position > progress_[index_of(lane)].completed) return std::nullopt;
    const InFlight done = l.in_flight.front();
    l.in_flight.pop_front();
    l.bytes_in_flight -= done.bytes;
    return done;
}

graph::Task* LanePositions::take_watcher(LaneId lane) noexcept {
    auto& watchers = at(lane).watchers;
    if (watchers.empty() || watchers.front().position > progress_[index_of(lane)].completed) return nullptr;
    graph::Task* const task = watchers.front().task;
    std::pop_heap(watchers.begin(), watchers.end(), std::greater<>());
    watchers.pop_back();
    return task;
}

}  // namespace kmm::schedule
