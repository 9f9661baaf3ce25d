#include "trace_builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <tuple>

#include "driver/name_text.hpp"

namespace kmm::tools {
namespace {

/// Times are written in microseconds with three digits. The end of a slice and the beginning of the next, where they
/// were equal, differ by three roundings of half a nanosecond at most, and by what is lost in a double.
constexpr double tolerance_us = 0.0016;

/// Sums of a few such times are nanoseconds that 64 bits hold; times since 1970 are smaller until 2033.
constexpr double largest_time_us = 2e15;

std::string in_double_quotes(std::string_view text) { return "\"" + driver::name_text(text) + "\""; }

std::string us_text(double us) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.3f us", us);
    return text;
}

bool is_number(const Argument* argument) {
    return argument != nullptr &&
           (argument->kind == Argument::Kind::integer || argument->kind == Argument::Kind::number);
}

bool is_text(const Argument* argument) { return argument != nullptr && argument->kind == Argument::Kind::text; }

/// Where each index goes when [0, size) is sorted by `less`.
template<class Less>
std::vector<std::uint32_t> places(std::size_t size, const Less& less) {
    std::vector<std::uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), less);
    std::vector<std::uint32_t> place(size);
    for (std::uint32_t i = 0; i < size; ++i) place[order[i]] = i;
    return place;
}

template<class T>
void put(std::vector<T>& values, const std::vector<std::uint32_t>& place) {
    std::vector<T> moved(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) moved[place[i]] = values[i];
    values = std::move(moved);
}

}  // namespace

TraceBuilder::TraceBuilder(std::string file) : file_(driver::name_text(file)) {}

void TraceBuilder::refuse(const std::string& what) const { throw TraceError(file_ + ": " + what); }

void TraceBuilder::refuse(std::uint64_t event, TextId name, const std::string& what) const {
    refuse("event " + std::to_string(event) + " (" + in_double_quotes(trace_.text(name)) + "): " + what);
}

void TraceBuilder::refuse(const RawEvent& event, const std::string& what) const {
    if (event.name) refuse(trace_.num_events, *event.name, what);
    refuse("event " + std::to_string(trace_.num_events) + ": " + what);
}

template<class T>
T TraceBuilder::need(const RawEvent& event, const std::optional<T>& field, const char* key) const {
    if (!field) refuse(event, "has no " + in_double_quotes(key));
    return *field;
}

void TraceBuilder::argument(const Argument& argument, RawEvent& event) {
    auto& all = trace_.arguments;
    if (event.arguments.count == 0) event.arguments.begin = static_cast<std::uint32_t>(all.size());
    if (all.size() >= std::numeric_limits<std::uint32_t>::max())
        refuse(event, "the file has more than 4294967295 arguments, which is more than this program can read");
    if (event.arguments.count == std::numeric_limits<std::uint16_t>::max())
        refuse(event, "has more than 65535 arguments");
    all.push_back(argument);
    ++event.arguments.count;
}

double TraceBuilder::time_of(const RawEvent& event, const std::optional<double>& time_us, const char* key) const {
    const double us = need(event, time_us, key);
    if (!(std::abs(us) <= largest_time_us)) {
        char text[100];
        std::snprintf(text, sizeof(text), "\"%s\" is %g us: no time is longer than 63 years", key, us);
        refuse(event, text);
    }
    return us;
}

std::uint32_t TraceBuilder::process_of(const RawEvent& event) {
    const std::int64_t pid = need(event, event.pid, "pid");
    Naming& naming = process_names_[pid];
    if (naming.first_event == 0) naming.first_event = trace_.num_events;
    const auto [place, fresh] = process_indices_.try_emplace(pid, static_cast<std::uint32_t>(trace_.processes.size()));
    if (fresh) trace_.processes.push_back({.pid = pid});
    return place->second;
}

/// What belongs to a process alone has the thread 0, which needs no name.
void TraceBuilder::use_thread(const RawEvent& event) {
    const std::int64_t tid = need(event, event.tid, "tid");
    Naming& naming = lane_names_[{*event.pid, tid}];
    if (tid != 0 && naming.first_event == 0) naming.first_event = trace_.num_events;
}

void TraceBuilder::add(const RawEvent& event) {
    if (++trace_.num_events > std::numeric_limits<std::uint32_t>::max())
        refuse("more than 4294967295 events, which is more than this program can read");
    const std::string phase = need(event, event.phase, "ph");
    need(event, event.name, "name");
    if (phase == "M") return add_name(event);
    if (phase == "X") return add_slice(event);
    if (phase == "C") return add_sample(event);
    if (phase == "b" || phase == "e") return add_half(event, phase == "b");
    if (phase == "i") return add_mark(event);
    refuse(event, "its phase \"ph\" is " + in_double_quotes(phase) + ": known are M, X, C, b, e and i");
}

void TraceBuilder::add_name(const RawEvent& event) {
    const std::string_view what = trace_.text(*event.name);
    const bool of_thread = what.starts_with("thread_");
    const std::int64_t pid = need(event, event.pid, "pid");
    const std::int64_t tid = of_thread ? need(event, event.tid, "tid") : 0;
    Naming& naming = of_thread ? lane_names_[{pid, tid}] : process_names_[pid];
    if (what == "process_name" || what == "thread_name") {
        const Argument* name = trace_.find(event.arguments, "name");
        if (!is_text(name)) refuse(event, "its \"args\" have no text \"name\"");
        if (naming.name && *naming.name != name->text)
            refuse(event, "gives the name " + in_double_quotes(trace_.text(name->text)) + " to " +
                              (of_thread ? "thread " + std::to_string(tid) + " of " : "") + "process " +
                              std::to_string(pid) + ", which has the name " +
                              in_double_quotes(trace_.text(*naming.name)));
        naming.name = name->text;
    } else if (what == "process_sort_index" || what == "thread_sort_index") {
        const Argument* index = trace_.find(event.arguments, "sort_index");
        if (index == nullptr || index->kind != Argument::Kind::integer)
            refuse(event, "its \"args\" have no whole number \"sort_index\"");
        naming.sort_index = index->integer;
    }
    // Other metadata is allowed, and says nothing to us.
}

void TraceBuilder::add_slice(const RawEvent& event) {
    Slice slice;
    slice.begin_us = time_of(event, event.time_us, "ts");
    slice.duration_us = time_of(event, event.duration_us, "dur");
    if (slice.duration_us < 0)
        refuse(event, "\"dur\" is " + us_text(slice.duration_us) + ": it would end before it begins");
    slice.name = *event.name;
    slice.category = need(event, event.category, "cat");
    slice.event = static_cast<std::uint32_t>(trace_.num_events);
    slice.arguments = event.arguments;
    if (trace_.text(slice.category) == "copy") check_copy(event);
    const std::uint32_t process = process_of(event);
    const std::int64_t tid = need(event, event.tid, "tid");
    Naming& naming = lane_names_[{*event.pid, tid}];
    if (naming.first_event == 0) naming.first_event = trace_.num_events;
    const auto [place, fresh] =
        lane_indices_.try_emplace(LaneKey{*event.pid, tid}, static_cast<std::uint32_t>(trace_.lanes.size()));
    if (fresh) trace_.lanes.push_back({.process = process, .tid = tid});
    slice.lane = place->second;
    trace_.slices.push_back(slice);
}

void TraceBuilder::check_copy(const RawEvent& event) const {
    if (!is_number(trace_.find(event.arguments, "bytes")))
        refuse(event, "a copy whose \"args\" have no number \"bytes\"");
    for (const char* key : {"from", "to"})
        if (!is_text(trace_.find(event.arguments, key)))
            refuse(event, "a copy whose \"args\" have no text " + in_double_quotes(key) + ", the name of a memory");
}

void TraceBuilder::add_sample(const RawEvent& event) {
    Sample sample;
    sample.time_us = time_of(event, event.time_us, "ts");
    sample.process = process_of(event);
    sample.name = *event.name;
    sample.event = static_cast<std::uint32_t>(trace_.num_events);
    sample.arguments = event.arguments;
    if (event.arguments.count == 0) refuse(event, "a counter without values in \"args\"");
    for (std::uint32_t i = event.arguments.begin; i < event.arguments.begin + event.arguments.count; ++i)
        if (!is_number(&trace_.arguments[i]))
            refuse(event,
                   "the counter's value " + in_double_quotes(trace_.text(trace_.arguments[i].key)) + " is no number");
    trace_.samples.push_back(sample);
}

void TraceBuilder::add_half(const RawEvent& event, bool begins) {
    const Half half{time_of(event, event.time_us, "ts"), static_cast<std::uint32_t>(trace_.num_events), *event.name,
                    event.arguments};
    const TextId category = need(event, event.category, "cat");
    const std::int64_t id = need(event, event.id, "id");
    process_of(event);
    use_thread(event);
    Halves& halves = halves_[{{category, id}, *event.pid}];
    (begins ? halves.begins : halves.ends).push_back(half);
}

void TraceBuilder::add_mark(const RawEvent& event) {
    Mark mark;
    mark.time_us = time_of(event, event.time_us, "ts");
    mark.category = need(event, event.category, "cat");
    mark.process = process_of(event);
    mark.name = *event.name;
    mark.event = static_cast<std::uint32_t>(trace_.num_events);
    mark.arguments = event.arguments;
    use_thread(event);
    const std::string scope = need(event, event.scope, "s");
    if (scope != "g" && scope != "p" && scope != "t")
        refuse(event, "its scope \"s\" is " + in_double_quotes(scope) + ": known are g, p and t");
    if (trace_.text(mark.category) == "evict" && !is_number(trace_.find(event.arguments, "bytes")))
        refuse(event, "an eviction whose \"args\" have no number \"bytes\"");
    trace_.marks.push_back(mark);
}

Trace TraceBuilder::finish() {
    check_names();
    place_processes();
    check_lanes();
    pair_waits();
    std::sort(trace_.samples.begin(), trace_.samples.end(), [](const Sample& a, const Sample& b) {
        return std::tie(a.process, a.name, a.time_us, a.event) < std::tie(b.process, b.name, b.time_us, b.event);
    });
    std::sort(trace_.marks.begin(), trace_.marks.end(),
              [](const Mark& a, const Mark& b) { return std::tie(a.time_us, a.event) < std::tie(b.time_us, b.event); });
    measure();
    return std::move(trace_);
}

void TraceBuilder::check_names() const {
    if (trace_.is_cut_off) return;
    for (const auto& [pid, naming] : process_names_)
        if (!naming.name && naming.first_event != 0)
            refuse("event " + std::to_string(naming.first_event) + ": process " + std::to_string(pid) +
                   " has no name: there is no event \"process_name\" with this \"pid\"");
    for (const auto& [key, naming] : lane_names_)
        if (!naming.name && naming.first_event != 0)
            refuse("event " + std::to_string(naming.first_event) + ": thread " + std::to_string(key.second) +
                   " of process " + std::to_string(key.first) +
                   " has no name: there is no event \"thread_name\" with this \"pid\" and \"tid\"");
}

/// Processes and lanes have been numbered as they came; those that have a name and no event come now. Then all are
/// sorted.
void TraceBuilder::place_processes() {
    auto& processes = trace_.processes;
    auto& lanes = trace_.lanes;
    for (const auto& [pid, naming] : process_names_)
        if (process_indices_.try_emplace(pid, static_cast<std::uint32_t>(processes.size())).second)
            processes.push_back({.pid = pid});
    for (const auto& [key, naming] : lane_names_)
        if (naming.name && key.second != 0 && process_indices_.contains(key.first) &&
            lane_indices_.try_emplace(key, static_cast<std::uint32_t>(lanes.size())).second)
            lanes.push_back({.process = process_indices_[key.first], .tid = key.second});
    for (Process& process : processes) {
        const Naming& naming = process_names_[process.pid];
        process.name = naming.name ? *naming.name : text("process " + std::to_string(process.pid));
        process.sort_index = naming.sort_index.value_or(process.pid);
    }
    for (const auto& [key, index] : lane_indices_) {
        const Naming& naming = lane_names_[key];
        lanes[index].name = naming.name ? *naming.name : text("thread " + std::to_string(key.second));
    }

    const auto process_place = places(processes.size(), [&](std::uint32_t a, std::uint32_t b) {
        return std::tie(processes[a].sort_index, processes[a].pid) <
               std::tie(processes[b].sort_index, processes[b].pid);
    });
    put(processes, process_place);
    for (Lane& lane : lanes) lane.process = process_place[lane.process];
    for (Sample& sample : trace_.samples) sample.process = process_place[sample.process];
    for (Mark& mark : trace_.marks) mark.process = process_place[mark.process];
    for (auto& [pid, index] : process_indices_) index = process_place[index];

    const auto index_of = [&](const Lane& lane) {
        const Naming& naming = lane_names_[{processes[lane.process].pid, lane.tid}];
        return std::tuple(lane.process, naming.sort_index.value_or(lane.tid), lane.tid);
    };
    const auto lane_place =
        places(lanes.size(), [&](std::uint32_t a, std::uint32_t b) { return index_of(lanes[a]) < index_of(lanes[b]); });
    put(lanes, lane_place);
    for (Slice& slice : trace_.slices) slice.lane = lane_place[slice.lane];
}

void TraceBuilder::check_lanes() {
    auto& slices = trace_.slices;
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
        return std::tuple(a.lane, a.begin_us, -a.duration_us, a.event) <
               std::tuple(b.lane, b.begin_us, -b.duration_us, b.event);
    });
    for (std::size_t begin = 0, end = 0; begin < slices.size(); begin = end) {
        while (end < slices.size() && slices[end].lane == slices[begin].lane) ++end;
        check_lane(begin, end);
    }
}

/// A stack of the slices that are open. Rounding may have put the beginning of an inner slice before that of the outer
/// one, so that the outer one comes second.
void TraceBuilder::check_lane(std::size_t begin, std::size_t end) {
    auto& slices = trace_.slices;
    std::vector<std::size_t> open;
    for (std::size_t i = begin; i < end; ++i) {
        Slice& slice = slices[i];
        while (!open.empty() && slices[open.back()].end_us() <= slice.begin_us + tolerance_us) open.pop_back();
        std::size_t depth = open.size();
        while (depth > 0 && slices[open[depth - 1]].begin_us >= slice.begin_us - tolerance_us &&
               slices[open[depth - 1]].end_us() + tolerance_us < slice.end_us())
            ++slices[open[--depth]].depth;
        if (depth > 0 && slices[open[depth - 1]].end_us() + tolerance_us < slice.end_us()) {
            const Slice& other = slices[open[depth - 1]];
            const Lane& lane = trace_.lanes[slice.lane];
            refuse(slice.event, slice.name,
                   "overlaps event " + std::to_string(other.event) + " (" + in_double_quotes(trace_.text(other.name)) +
                       ") in part, on lane " + in_double_quotes(trace_.text(lane.name)) + " of " +
                       in_double_quotes(trace_.text(trace_.processes[lane.process].name)) + ": " +
                       us_text(slice.begin_us) + " to " + us_text(slice.end_us()) + " and " + us_text(other.begin_us) +
                       " to " + us_text(other.end_us()) + "; slices of a lane nest or follow each other");
        }
        if (depth >= std::numeric_limits<std::uint16_t>::max())
            refuse(slice.event, slice.name, "is inside of more than 65535 slices");
        slice.depth = static_cast<std::uint16_t>(depth);
        open.insert(open.begin() + static_cast<std::ptrdiff_t>(depth), i);
    }
}

void TraceBuilder::pair_waits() {
    const bool forgive = trace_.is_cut_off || trace_.said("dropped_events", "0") != "0";
    for (auto& [key, halves] : halves_) pair(key, halves, forgive);
    std::sort(trace_.waits.begin(), trace_.waits.end(), [](const Wait& a, const Wait& b) {
        return std::tie(a.begin_us, a.event) < std::tie(b.begin_us, b.event);
    });
}

/// The n-th beginning goes with the n-th end, because one wait of an id begins after the one before has ended. Where
/// events are missing (`forgive`), what fits nothing is left out.
void TraceBuilder::pair(const WaitKey& key, Halves& halves, bool forgive) {
    const auto by_time = [](const Half& a, const Half& b) {
        return std::tie(a.time_us, a.event) < std::tie(b.time_us, b.event);
    };
    std::sort(halves.begins.begin(), halves.begins.end(), by_time);
    std::sort(halves.ends.begin(), halves.ends.end(), by_time);
    auto begin = halves.begins.begin();
    auto end = halves.ends.begin();
    const std::string which =
        in_double_quotes(trace_.text(key.first.first)) + " of id " + std::to_string(key.first.second);
    while (begin != halves.begins.end() || end != halves.ends.end()) {
        const bool stray_end =
            end != halves.ends.end() && (begin == halves.begins.end() || end->time_us + tolerance_us < begin->time_us);
        const bool stray_begin =
            !stray_end && (end == halves.ends.end() ||
                           (begin + 1 != halves.begins.end() && (begin + 1)->time_us + tolerance_us < end->time_us));
        if (stray_end || stray_begin) {
            const Half& stray = stray_end ? *end++ : *begin++;
            const bool again = stray_begin && begin != halves.begins.end();
            if (!forgive)
                refuse(stray.event, stray.name,
                       stray_end
                           ? "ends " + which + ", which has not begun"
                           : "begins " + which + ", which does not end" +
                                 (again ? " before event " + std::to_string(begin->event) + " begins it again" : ""));
            ++trace_.num_unpaired;
            continue;
        }
        if (begin->name != end->name)
            refuse(end->event, end->name,
                   "ends " + which + ", which event " + std::to_string(begin->event) + " began under the name " +
                       in_double_quotes(trace_.text(begin->name)));
        trace_.waits.push_back({begin->time_us, std::max(begin->time_us, end->time_us), process_indices_[key.second],
                                begin->name, key.first.first, key.first.second, begin->event, begin->arguments});
        ++begin;
        ++end;
    }
}

void TraceBuilder::measure() {
    double first = std::numeric_limits<double>::infinity();
    double last = -first;
    const auto see = [&](double begin_us, double end_us) {
        first = std::min(first, begin_us);
        last = std::max(last, end_us);
    };
    for (const Slice& slice : trace_.slices) see(slice.begin_us, slice.end_us());
    for (const Sample& sample : trace_.samples) see(sample.time_us, sample.time_us);
    for (const Wait& wait : trace_.waits) see(wait.begin_us, wait.end_us);
    for (const Mark& mark : trace_.marks) see(mark.time_us, mark.time_us);
    if (last < first) return;
    trace_.begin_us = first;
    trace_.end_us = last;
}

}  // namespace kmm::tools
