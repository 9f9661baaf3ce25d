#include "kmm/runtime/listeners.hpp"

#include "driver/format.hpp"

#include <unistd.h>

#include <utility>

#include "kmm/base/text.hpp"
#include "kmm/memory/moved_boxes.hpp"
#include "kmm/plan/submit_plan.hpp"
#include "kmm/trace/record_file.hpp"
#include "kmm/trace/trace_file.hpp"

namespace kmm::detail {

namespace {

trace::TaskKind kind_of(const graph::Task& task) noexcept {
    switch (task.kind) {
    case graph::TaskKind::join: return task.is_barrier ? trace::TaskKind::barrier : trace::TaskKind::join;
    case graph::TaskKind::host: return trace::TaskKind::host;
    case graph::TaskKind::device_function: return trace::TaskKind::function;
    case graph::TaskKind::transfer: return trace::TaskKind::transfer;
    case graph::TaskKind::kernel: break;
    }
    return trace::TaskKind::kernel;
}

/// Axes up to the last one that says something.
void add_space(trace::Task& told, const DomainChunk& chunk) {
    std::size_t rank = DOMAIN_DIMS;
    while (rank > 0 && chunk.offset[rank - 1] == 0 && chunk.size[rank - 1] == 1) --rank;
    for (std::size_t k = 0; k < rank; ++k) {
        told.offset.push_back(chunk.offset[k]);
        told.size.push_back(chunk.size[k]);
    }
}

/// What the program calls the submit, or else where it stands.
std::string name_of(const graph::SubmitInfo& info) {
    if (!info.name.empty() || !info.location.is_known()) return info.name;
    return to_string(info.location);
}

/// Of the chunk; not what the task needs of it.
trace::Use told_of(const graph::Use& use, graph::AccessKind kind, const detail::Box& region) {
    trace::Use told;
    told.kind = kind;
    told.array = use.chunk->owner->number;
    told.chunk = use.chunk->index;
    told.rank = static_cast<std::uint32_t>(use.chunk->owner->rank);
    told.region = region;
    return told;
}

/// What the task needs of the chunk.
void tell_needs(trace::Use& told, const graph::Use& use) noexcept {
    told.first_of_chunk = true;
    told.needs_content = use.needs_content;
    told.writes_chunk = use.writes;
    told.replaces_chunk = use.replaces;
    told.anywhere = use.role == graph::Use::Role::source;
    told.gathers = use.role == graph::Use::Role::region;
}

/// Views, the first of a use with what that needs; then the parts of each region across chunks. A transfer has no
/// views: its uses are told.
void add_uses(trace::Task& told, const graph::Task& task, const plan::Request* requests) {
    std::vector<bool> is_told(task.uses.size());
    for (std::size_t i = 0; i < task.views.size(); ++i) {
        const graph::View& view = task.views[i];
        if (view.is_empty()) {
            told.uses.emplace_back().kind = view.kind;
            told.uses.back().empty = true;
            continue;
        }
        const graph::Use& use = task.uses[view.use];
        told.uses.push_back(told_of(use, view.kind, requests != nullptr ? requests[i].region : use.chunk->box()));
        if (is_told[view.use]) continue;
        is_told[view.use] = true;
        tell_needs(told.uses.back(), use);
    }
    for (const graph::Across& across : task.across())
        for (const std::uint32_t part : task.parts_of(across)) {
            const graph::Use& use = task.uses[part];
            told.uses.push_back(told_of(use, graph::AccessKind::read, memory::part_of(across, *use.chunk)));
            told.uses.back().first_of_chunk = told.uses.back().needs_content = told.uses.back().is_piece = true;
        }
    if (task.kind != graph::TaskKind::transfer) return;
    for (const graph::Use& use : task.uses) {
        const auto kind = use.writes ? graph::AccessKind::overwrite : graph::AccessKind::read;
        told.uses.push_back(told_of(use, kind, use.chunk->box()));
        tell_needs(told.uses.back(), use);
    }
    // Of a gather each box is the part of one source, of a write-back that of the destination as well.
    const memory::MovedBoxes boxes(task);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const graph::BoxTransfer box = boxes[i];
        told.uses[box.source].region = box.box;
        if (boxes.size() == 1) told.uses[box.destination].region = box.box;
    }
}

trace::Task told_of(const graph::Task& task, const plan::Request* requests) {
    trace::Task told;
    told.number = task.number;
    told.kind = kind_of(task);
    for (const graph::Predecessor& p : task.predecessors) told.predecessors.push_back({p.number, p.data});
    if (task.kind == graph::TaskKind::join) return told;
    told.memory = task.memory;
    if (task.info) {
        told.name = name_of(*task.info);
        told.num_chunks = task.info->num_chunks;
    }
    told.chunk_index = task.chunk_index;
    add_space(told, task.chunk);
    if (task.kind == graph::TaskKind::kernel) {
        std::copy_n(task.kernel.grid, 3, told.grid);
        std::copy_n(task.kernel.block, 3, told.block);
        told.shared_bytes = task.kernel.shared_bytes;
    }
    add_uses(told, task, requests);
    return told;
}

/// "%p" is the number of the process, "%r" that of the runtime.
std::string file_name(const std::string& pattern, std::uint16_t runtime) {
    std::string name;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        if (next == 'p')
            name += std::to_string(getpid()), ++i;
        else if (next == 'r')
            name += std::to_string(runtime), ++i;
        else
            name += pattern[i];
    }
    return name;
}

/// "trace.json" becomes "trace.2.json" for runtime 2 where another runtime of the process writes it.
trace::FilePath path_of_config(const std::string& pattern, std::uint16_t runtime) {
    const std::string name = file_name(pattern, runtime);
    const std::size_t begin = name.find_last_of('/') + 1;
    const std::size_t dot = name.find_last_of('.');
    const std::size_t end = dot == name.npos || dot <= begin ? name.size() : dot;
    return {name, driver::format("{}.{}{}", name.substr(0, end), runtime, name.substr(end))};
}

}  // namespace

void Listeners::tell_submitted(const graph::TaskList& ahead, const graph::TaskList& tasks,
                               const graph::TaskList& helpers, const plan::Request* requests,
                               std::int64_t begin_ns) noexcept {
    trace::Sink* const sink = emitter_.sink();
    if (sink == nullptr) return;
    std::uint64_t num_untold = ahead.size() + tasks.size() + helpers.size();
    const auto tell = [&](const graph::Task* t, const plan::Request* of_task) {
        sink->submitted(told_of(*t, of_task));
        --num_untold;
    };
    try {
        for (const graph::Task* t : ahead) tell(t, nullptr);
        for (const graph::Task* t : tasks) {
            tell(t, requests);
            if (requests != nullptr) requests += t->views.size();
        }
        for (const graph::Task* t : helpers) tell(t, nullptr);
        const auto is_join = [](const graph::Task* t) { return t->kind == graph::TaskKind::join; };
        const auto num_joins = std::count_if(tasks.begin(), tasks.end(), is_join);
        if (begin_ns != 0)
            sink->note({.what = trace::What::submit,
                        .task = tasks.front()->number,
                        .other = tasks.size() - static_cast<std::size_t>(num_joins),
                        .begin_ns = begin_ns,
                        .end_ns = trace::clock_ns()});
    } catch (const std::bad_alloc&) {
        sink->lost(num_untold);  // they are called by their numbers
    }
}

void Listeners::tell_bound(const memory::Owner& data, const Box& box, bool is_named) noexcept {
    trace::Sink* const sink = emitter_.sink();
    if (sink == nullptr || driver::lost_in_fork()) [[likely]]
        return;
    try {
        trace::Array told;
        told.number = data.number;
        told.name = data.name();
        told.is_named = is_named;
        told.rank = static_cast<std::uint32_t>(data.rank);
        told.element_bytes = data.element_bytes;
        told.box = box;
        // A record lists them all; that takes O(chunks), and only where somebody listens.
        for (std::size_t i = 0; i < data.num_chunks(); ++i) told.chunks.push_back(data.box(i));
        told.num_pieces = data.num_pieces;
        sink->bound(told);
    } catch (const std::bad_alloc&) {
        sink->lost(1);  // it is called by its number
    }
}

void Listeners::tell_named(const memory::Array& data, const std::string& name) noexcept {
    trace::Sink* const sink = emitter_.sink();
    if (sink != nullptr && !driver::lost_in_fork()) sink->named(data.number, name);
}

void Listeners::tell_dropped(const memory::Array& data) noexcept {
    trace::Sink* const sink = emitter_.sink();
    if (sink != nullptr) sink->note({.what = trace::What::dropped, .array = data.number});
}

trace::Machine Listeners::machine(const schedule::LanePositions& lanes) const {
    trace::Machine m;
    m.driver = platform_.driver_name();
    m.runtime = platform_.number();
    m.memories.resize_for_devices(platform_.num_devices());
    for (const memory::MemoryIndex memory : m.memories.memories()) m.memories[memory] = text_of(memory.id());
    for (const memory::MemoryIndex memory : m.memories.device_memories())
        m.memories[memory] += driver::format(": {}", platform_.info().device(DeviceId(memory.device())).name());
    m.limits_bytes = platform_.limits_bytes();
    for (std::size_t i = 0; i < lanes.size(); ++i) m.lanes.push_back(lanes.info(static_cast<graph::LaneId>(i)));
    return m;
}

trace::Collector& Listeners::collector() {
    if (collector_ == nullptr) collector_ = std::make_unique<trace::Collector>(emitter_);
    return *collector_;
}

void Listeners::trace(const std::string& path, SchedulerTurns& turns) {
    const locks::Guard guard(mutex_);
    if (writer_ != nullptr) {
        collector_->remove(writer_);
        writer_ = nullptr;
    }
    if (path.empty()) return;
    begin_trace(file_name(path, platform_.number()), "the path of the trace", machine(turns.lanes()));
    turns.with_baton(
        [](schedule::Scheduler& scheduler, Outgoing&) { scheduler.residency().residents().tell_memory(); });
}

void Listeners::begin_trace(const trace::FilePath& path, const char* what_for, trace::Machine machine) {
    auto writer = std::make_unique<trace::TraceWriter>(path, what_for, std::move(machine), trace::clock_ns(),
                                                       platform_.config().trace_device_times);
    const trace::Consumer* const consumer = writer.get();
    collector().add(std::move(writer));
    writer_ = consumer;
}

void Listeners::begin_files_of_config(const schedule::LanePositions& lanes) {
    const locks::Guard guard(mutex_);
    const RuntimeConfig& config = platform_.config();
    if (!config.record.empty())
        collector().add(std::make_unique<trace::RecordWriter>(path_of_config(config.record, platform_.number()),
                                                              "record (KMM_RECORD)", machine(lanes)));
    if (!config.trace.empty())
        begin_trace(path_of_config(config.trace, platform_.number()), "trace (KMM_TRACE)", machine(lanes));
}

}  // namespace kmm::detail
