#include "kmm/schedule/notes.hpp"

#include <new>

namespace kmm::schedule {

void note_task(trace::Sink& sink, trace::What what, const graph::Task& task) noexcept {
    sink.note({.what = what, .from = task.memory, .task = task.number, .bytes = task.missing_bytes});
}

void note_settled(trace::Sink& sink, const graph::Task& task) noexcept {
    const bool well = task.failure == nullptr;
    sink.note({.what = trace::What::settled,
               .flag = well,
               .from = task.memory,
               .task = task.number,
               .other = well ? 0 : task.failure->root->number});
}

void note_start(trace::Sink& sink, const graph::Task& task, const LanePositions& lanes) noexcept {
    FenceSet open;
    try {
        for (const Fence& f : task.fences)
            if (!lanes.passed(f)) open.add(f);
    } catch (const std::bad_alloc&) {
        // Those that found room are told.
    }
    sink.note({.what = trace::What::start, .from = task.memory, .task = task.number}, &open);
}

}  // namespace kmm::schedule
