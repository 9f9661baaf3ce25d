#include "kmm/trace/trace_file.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/version.hpp"

namespace kmm::trace {

namespace {

// Rows of the picture: processes of the format. Memory m is process 2 + m.
constexpr std::uint64_t program_process = 1;
constexpr std::uint64_t host_process = 2;
constexpr std::uint64_t scheduler_thread = 1;
// Threads of the program and of the host have the numbers of the collector, behind those that are fixed.
constexpr std::uint64_t first_thread = 10;

// Of each lane. What waits for a position before these has waited for something later, too.
constexpr std::size_t most_ends = 4096;

constexpr std::uint64_t process_of_memory(Memory memory) noexcept { return host_process + memory.index(); }

std::string_view role_name(LaneRole role) noexcept {
    switch (role) {
    case LaneRole::compute: return "compute ";
    case LaneRole::up: return "up";
    case LaneRole::down: return "down";
    case LaneRole::peer: return "peer";
    case LaneRole::launcher: break;
    }
    return "launcher ";
}

std::string row_name(const LaneInfo& lane) {
    std::string name(role_name(lane.role));
    if (name.back() == ' ') name += std::to_string(lane.index);
    return name;
}

std::uint64_t thread_of(LaneId lane) noexcept { return 1 + graph::index_of(lane); }

std::string in_quotes(std::string_view text) {
    std::string result;
    append_json(result, text);
    return result;
}

}  // namespace

TraceWriter::TraceWriter(const FilePath& path, const char* what_for, Machine machine, std::int64_t begin_ns,
                         bool device_times)
    : machine_(std::move(machine)),
      file_(path, what_for),
      begin_ns_(begin_ns),
      device_times_(device_times),
      lanes_(machine_.lanes.size()) {
    file_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
    name_process(program_process, "program", 0);
    name_thread(program_process, scheduler_thread, "scheduler");
    for (const Memory m : machine_.memories.memories())
        name_process(process_of_memory(m), machine_.memories[m], m.index() + 1);
    for (std::size_t i = 0; i < machine_.lanes.size(); ++i) {
        const auto lane = static_cast<LaneId>(i);
        name_thread(process_of(lane), thread_of(lane), row_name(machine_.lanes[i]));
        lanes_[i].last_end_ns = begin_ns_;
    }
    file_.complete();
}

// ----------------------------------------------------------------------------------------------------- parts of events

TextFile& TraceWriter::begin_event() {
    file_ << (first_ ? "\n" : ",\n");
    first_ = false;
    return file_;
}

TextFile& TraceWriter::time(std::int64_t time_ns) { return file_.microseconds(time_ns - begin_ns_); }

std::uint64_t TraceWriter::process_of(LaneId lane) const {
    return process_of_memory(Memory::of_device(machine_.lanes[graph::index_of(lane)].device));
}

void TraceWriter::name_process(std::uint64_t process, std::string_view name, std::uint64_t rank) {
    begin_event() << R"({"ph":"M","pid":)" << process << R"(,"tid":0,"name":"process_name","args":{"name":)";
    file_.quoted(name) << "}}";
    begin_event() << R"({"ph":"M","pid":)" << process << R"(,"tid":0,"name":"process_sort_index","args":{"sort_index":)"
                  << rank << "}}";
}

void TraceWriter::name_thread(std::uint64_t process, std::uint64_t thread, std::string_view name) {
    begin_event() << R"({"ph":"M","pid":)" << process << R"(,"tid":)" << thread
                  << R"(,"name":"thread_name","args":{"name":)";
    file_.quoted(name) << "}}";
}

void TraceWriter::need_thread(std::uint64_t process, std::uint32_t thread, const char* name) {
    const std::uint64_t key = std::uint64_t{thread} * 16 + process;
    if (!named_threads_.insert(key).second) return;
    name_thread(process, first_thread + thread, driver::format("{} {}", name, thread));
}

void TraceWriter::slice(std::uint64_t process, std::uint64_t thread, std::string_view name, const char* category,
                        std::int64_t begin_ns, std::int64_t end_ns, std::string_view arguments) {
    begin_event() << R"({"ph":"X","pid":)" << process << R"(,"tid":)" << thread << R"(,"name":)";
    file_.quoted(name) << R"(,"cat":")" << category << R"(","ts":)";
    time(begin_ns) << R"(,"dur":)";
    file_.microseconds(end_ns - begin_ns) << R"(,"args":{)" << arguments << "}}";
}

void TraceWriter::mark(std::uint64_t process, std::string_view name, const char* category, std::int64_t time_ns,
                       std::string_view arguments) {
    begin_event() << R"({"ph":"i","s":"p","cat":")" << category << R"(","pid":)" << process << R"(,"tid":0,"name":)";
    file_.quoted(name) << R"(,"ts":)";
    time(time_ns) << R"(,"args":{)" << arguments << "}}";
}

TraceWriter::Named TraceWriter::named(Number task) const {
    const auto at = tasks_.find(task);
    return at != tasks_.end() ? at->second : Named{driver::format("task {}", task), {}};
}

std::string TraceWriter::chunk_name(Number array, std::uint32_t chunk) const {
    const auto at = arrays_.find(array);
    return driver::format("{}[{}]", at != arrays_.end() ? at->second : driver::format("array {}", array), chunk);
}

std::string TraceWriter::task_arguments(Number task, const Named& named) const {
    std::string text = driver::format("\"task\":{}", task);
    if (!named.chunk.empty()) text += ",\"chunk\":" + in_quotes(named.chunk);
    return text;
}

std::string TraceWriter::after_text(const Fence* fences, std::size_t num_fences) const {
    if (num_fences == 0) return {};
    std::string text = ",\"after\":\"";
    for (std::size_t i = 0; i < num_fences; ++i) {
        const LaneInfo& lane = machine_.lanes[graph::index_of(fences[i].lane)];
        if (i > 0) text += ", ";
        text += driver::format("GPU {} {}:{}", lane.device, row_name(lane), fences[i].position);
    }
    return text + '"';
}

// -------------------------------------------------------------------------------------------------------------- events

void TraceWriter::bound(const Array& array, std::int64_t) noexcept {
    try {
        arrays_[array.number] = array.name;
    } catch (const std::bad_alloc&) {
        // It is called by its number.
    }
}

void TraceWriter::named(Number array, const std::string& name, std::int64_t) noexcept {
    try {
        arrays_[array] = name;
    } catch (const std::bad_alloc&) {
        // It is called as before.
    }
}

void TraceWriter::submitted(const Task& task, std::int64_t) noexcept {
    if (task.kind <= TaskKind::barrier) return;
    try {
        Named& n = tasks_[task.number];
        n.name = task.name.empty() ? "task" : task.name;
        if (task.num_chunks > 1) n.chunk = driver::format("{} of {}", task.chunk_index, task.num_chunks);
    } catch (const std::bad_alloc&) {
        // It is called by its number.
    }
}

void TraceWriter::note(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
                       std::uint32_t thread) noexcept {
    try {
        write_event(event, fences, num_fences, time_ns, thread);
        file_.complete();
    } catch (const std::bad_alloc&) {
        file_.drop_incomplete();
        ++num_dropped_;
    }
}

void TraceWriter::write_event(const Event& e, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
                              std::uint32_t thread) {
    switch (e.what) {
    case What::copy: copy(e, fences, num_fences, time_ns); break;
    case What::move: move(e, fences, num_fences, time_ns); break;
    case What::launch: launch(e, fences, num_fences, time_ns); break;
    case What::returned: returned(e, time_ns); break;
    case What::evict:
        mark(process_of_memory(e.from), chunk_name(e.array, e.chunk), "evict", time_ns,
             driver::format("\"bytes\":{},\"saved\":{}", e.bytes, e.flag ? "true" : "false"));
        break;
    case What::completed: completed(e, time_ns); break;
    case What::settled: settled(e, time_ns); break;
    case What::array_freed: arrays_.erase(e.array); break;
    case What::wait_begins:
    case What::wait_ends: wait_for_memory(e, time_ns); break;
    case What::memory:
        begin_event() << R"({"ph":"C","pid":)" << process_of_memory(e.from) << R"(,"tid":0,"name":"memory","ts":)";
        time(time_ns) << R"(,"args":{"in use":)" << std::uint64_t{e.bytes} << R"(,"held":)" << e.other << R"(,"limit":)"
                      << std::uint64_t{machine_.limits_bytes[e.from]} << "}}";
        break;
    case What::submit:
        need_thread(program_process, thread, "submits");
        slice(program_process, first_thread + thread, named(e.task).name, "submit", e.begin_ns, e.end_ns,
              driver::format("\"task\":{},\"tasks\":{}", e.task, e.other));
        break;
    case What::turn: slice(program_process, scheduler_thread, "turn", "turn", e.begin_ns, e.end_ns, {}); break;
    case What::fed:
        if (Pending* const p = find(e)) p->fed_ns = time_ns;
        break;
    case What::ran:
        if (Pending* const p = find(e)) p->ran_begin_ns = e.begin_ns, p->ran_end_ns = e.end_ns;
        break;
    case What::function: function(e, thread); break;
    case What::ready:
    case What::dropped:
    case What::start: break;
    }
}

void TraceWriter::copy(const Event& e, const Fence* fences, std::size_t num_fences, std::int64_t time_ns) {
    std::string arguments = "\"array\":";
    const auto array = arrays_.find(e.array);
    arguments += in_quotes(array != arrays_.end() ? array->second : driver::format("array {}", e.array));
    arguments += driver::format(",\"array_chunk\":{},\"bytes\":{}", e.chunk, e.bytes);
    arguments +=
        driver::format(",\"from\":\"{}\",\"to\":\"{}\"", detail::text_of(e.from.id()), detail::text_of(e.to.id()));
    if (e.task != 0) arguments += driver::format(",\"task\":{}", e.task);
    arguments += driver::format(",\"position\":{}", e.position);
    arguments += after_text(fences, num_fences);
    lanes_[graph::index_of(e.lane)].pending.push_back({e.position,
                                                       chunk_name(e.array, e.chunk),
                                                       std::move(arguments),
                                                       "copy",
                                                       {fences, fences + num_fences},
                                                       time_ns});
}

/// Named by the task that it is made for.
void TraceWriter::move(const Event& e, const Fence* fences, std::size_t num_fences, std::int64_t time_ns) {
    const Named n = named(e.task);
    std::string arguments = driver::format("\"transfer\":{},\"bytes\":{},\"from\":\"{}\",\"to\":\"{}\",\"position\":{}",
                                           e.task % graph::first_helper, e.bytes, detail::text_of(e.from.id()),
                                           detail::text_of(e.to.id()), e.position);
    arguments += after_text(fences, num_fences);
    lanes_[graph::index_of(e.lane)].pending.push_back(
        {e.position, "for " + n.name, std::move(arguments), "copy", {fences, fences + num_fences}, time_ns});
}

void TraceWriter::launch(const Event& e, const Fence* fences, std::size_t num_fences, std::int64_t time_ns) {
    const Named n = named(e.task);
    std::string arguments = driver::format("{},\"position\":{}", task_arguments(e.task, n), e.position);
    arguments += after_text(fences, num_fences);
    lanes_[graph::index_of(e.lane)].pending.push_back(
        {e.position, n.name, std::move(arguments), "kernel", {fences, fences + num_fences}, time_ns});
}

/// Begins when the function did: what it put on the lane cannot be told apart.
void TraceWriter::returned(const Event& e, std::int64_t time_ns) {
    const Named n = named(e.task);
    const auto begun = functions_.find(e.task);
    Pending p{e.position, n.name, driver::format("{},\"position\":{}", task_arguments(e.task, n), e.position),
              "function", {},     time_ns};
    if (begun != functions_.end()) p.fed_ns = begun->second.begin_ns;
    lanes_[graph::index_of(e.lane)].pending.push_back(std::move(p));
    if (begun != functions_.end()) functions_.erase(begun);
}

void TraceWriter::function(const Event& e, std::uint32_t thread) {
    if (e.from.is_device()) {
        functions_[e.task] = {e.lane, e.begin_ns};
        return;
    }
    need_thread(host_process, thread, "thread");
    const Named n = named(e.task);
    slice(host_process, first_thread + thread, n.name, "host task", e.begin_ns, e.end_ns, task_arguments(e.task, n));
}

TraceWriter::Pending* TraceWriter::find(const Event& e) {
    auto& pending = lanes_[graph::index_of(e.lane)].pending;
    const auto at = std::lower_bound(pending.begin(), pending.end(), e.position,
                                     [](const Pending& p, Position position) { return p.position < position; });
    return at != pending.end() && at->position == e.position ? &*at : nullptr;
}

/// When it can have begun at the earliest: it was on the stream, and what it comes after was seen to be done.
std::int64_t TraceWriter::begin_of(const Lane& lane, const Pending& pending) const {
    std::int64_t begin = std::max(lane.last_end_ns, pending.fed_ns);
    for (const Fence& f : pending.after) {
        const auto& ends = lanes_[graph::index_of(f.lane)].ends_ns;
        const auto at = std::lower_bound(ends.begin(), ends.end(), f.position,
                                         [](const auto& end, Position position) { return end.first < position; });
        if (at != ends.end()) begin = std::max(begin, at->second);
    }
    return begin;
}

void TraceWriter::note_end(Lane& lane, Position position, std::int64_t time_ns) {
    lane.last_end_ns = time_ns;
    lane.ends_ns.emplace_back(position, time_ns);
    if (lane.ends_ns.size() > most_ends) lane.ends_ns.pop_front();
}

// A lane's work is in order, and seen to be done for several positions at once. Where the device's own times are not
// asked for, the time since the first of them can have begun is divided evenly.
void TraceWriter::completed(const Event& e, std::int64_t time_ns) {
    Lane& lane = lanes_[graph::index_of(e.lane)];
    std::size_t count = 0;
    while (count < lane.pending.size() && lane.pending[count].position <= e.position) ++count;
    for (; count > 0; --count) {
        const Pending& p = lane.pending.front();
        const bool timed = p.ran_end_ns != 0;
        std::int64_t begin = timed ? p.ran_begin_ns : std::min(begin_of(lane, p), time_ns);
        begin = std::max(lane.last_end_ns, begin);
        std::int64_t end = timed ? p.ran_end_ns : begin + (time_ns - begin) / static_cast<std::int64_t>(count);
        end = std::max(begin, end);
        slice(process_of(e.lane), thread_of(e.lane), p.name, p.category, begin, end,
              timed ? p.arguments + ",\"timed\":true" : p.arguments);
        note_end(lane, p.position, end);
        lane.pending.pop_front();
    }
}

void TraceWriter::wait_for_memory(const Event& e, std::int64_t time_ns) {
    const bool begins = e.what == What::wait_begins;
    const std::string name = named(e.task).name;  // before anything is written, as it needs memory
    if (begins)
        waiting_[e.task] = e.from;
    else if (waiting_.erase(e.task) == 0)
        return;  // it began before the trace
    begin_event() << R"({"ph":")" << (begins ? 'b' : 'e') << R"(","cat":"wait for memory","id":)" << e.task
                  << R"(,"pid":)" << process_of_memory(e.from) << R"(,"tid":0,"name":)";
    file_.quoted(name) << R"(,"ts":)";
    time(time_ns) << R"(,"args":{"task":)" << e.task << R"(,"bytes":)" << std::uint64_t{e.bytes} << "}}";
}

void TraceWriter::settled(const Event& e, std::int64_t time_ns) {
    if (!e.flag) {
        const Named n = named(e.task);
        std::string arguments = task_arguments(e.task, n);
        if (e.other != e.task) arguments += driver::format(",\"cancelled_by\":{}", e.other);
        mark(process_of_memory(e.from), n.name, "fail", time_ns, arguments);
    }
    tasks_.erase(e.task);
    functions_.erase(e.task);
}

void TraceWriter::finish(std::uint64_t lost) noexcept {
    try {
        const std::int64_t now = clock_ns();
        for (const auto& [task, memory] : std::unordered_map<Number, Memory>(waiting_))
            wait_for_memory({.what = What::wait_ends, .from = memory, .task = task}, now);
        // What has not been seen to be done ends with the trace, and so do functions that run.
        while (!functions_.empty()) {
            const auto [task, f] = *functions_.begin();
            const auto& pending = lanes_[graph::index_of(f.lane)].pending;
            const Position behind_all = pending.empty() ? 1 : pending.back().position + 1;
            returned({.what = What::returned, .lane = f.lane, .position = behind_all, .task = task}, now);
        }
        for (std::size_t i = 0; i < lanes_.size(); ++i)
            completed({.what = What::completed, .lane = static_cast<LaneId>(i), .position = ~Position{0}}, now);
        file_.complete();
        file_ << "\n],\n\"otherData\":{\"kmm_version\":\"" << std::uint64_t{KMM_VERSION_MAJOR} << '.'
              << std::uint64_t{KMM_VERSION_MINOR} << '.' << std::uint64_t{KMM_VERSION_PATCH} << R"(","runtime":")"
              << machine_.runtime << R"(","driver":)";
        file_.quoted(machine_.driver) << R"(,"device_times":)" << (device_times_ ? R"("device")" : R"("host")")
                                      << R"(,"dropped_events":")" << lost + num_dropped_ << "\"}}\n";
        file_.complete();
    } catch (const std::bad_alloc&) {
        file_.drop_incomplete();  // without its end the file says by itself that it is not complete
    }
}

}  // namespace kmm::trace
