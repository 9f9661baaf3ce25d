// Trace events of the schedule that take more than a line to make.
#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

void Scheduler::note_task(trace::Sink& sink, trace::What what, const Task& task) const {
    sink.note({.what = what, .from = task.memory, .task = task.number, .bytes = task.missing_bytes});
}

void Scheduler::note_settled(trace::Sink& sink, const Task& task) const {
    const bool well = task.failure == nullptr;
    sink.note({.what = trace::What::settled,
               .flag = well,
               .from = task.memory,
               .task = task.number,
               .other = well ? 0 : task.failure->root->number});
}

void Scheduler::note_start(trace::Sink& sink, const Task& task) const {
    FenceSet open;
    try {
        for (const Fence& f : task.fences)
            if (!passed(f)) open.add(f);
    } catch (const std::bad_alloc&) {
        // Those that found room are told.
    }
    sink.note({.what = trace::What::start, .from = task.memory, .task = task.number}, &open);
}

}  // namespace kmm::schedule
