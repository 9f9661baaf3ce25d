// Trace events of the schedule that take more than a line to make.
//
// Owns: nothing. Must not know: what the schedule decides.
#pragma once

#include "kmm/graph/task.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::schedule {

void note_task(trace::Sink& sink, trace::What what, const graph::Task& task) noexcept;
void note_settled(trace::Sink& sink, const graph::Task& task) noexcept;
/// A function begins to wait for its fences, if any are open.
void note_start(trace::Sink& sink, const graph::Task& task, const LanePositions& lanes) noexcept;

}  // namespace kmm::schedule
