#include "trace_summary.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <vector>

#include "rmm/status.hpp"

namespace kmm::tools {
namespace {

[[gnu::format(printf, 2, 3)]] void print(std::string& out, const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    out += line;
}

std::string time_text(double us) {
    char text[64];
    const char* unit = us < 1e3 ? "us" : us < 1e6 ? "ms" : "s";
    std::snprintf(text, sizeof(text), "%.3f %s", us < 1e3 ? us : us < 1e6 ? us / 1e3 : us / 1e6, unit);
    return text;
}

std::string bytes_text(double bytes) {
    return kmm::driver::byte_size_text(static_cast<std::size_t>(std::clamp(bytes, 0.0, 0x1p63)));
}

std::string of(std::string_view text) { return std::string(text); }

/// How many there were of something, and what they sum up to.
struct Sum {
    std::size_t count = 0;
    double total_us = 0;
    double longest_us = 0;
    double bytes = 0;
};

void add_head(const Trace& trace, std::string& out) {
    const std::string dropped = of(trace.said("dropped_events", "0"));
    print(out, "%llu events in %s, written by kmm %s, driver %s; times of device work are seen by the %s\n",
          static_cast<unsigned long long>(trace.num_events), time_text(trace.duration_us()).c_str(),
          of(trace.said("kmm_version", "?")).c_str(), of(trace.said("driver", "?")).c_str(),
          of(trace.said("device_times", "?")).c_str());
    if (trace.is_cut_off)
        print(out,
              "INCOMPLETE: the file ends before the trace does: whoever wrote it has been ended, or the disk was full; "
              "%llu halves of waits are left out\n",
              static_cast<unsigned long long>(trace.num_unpaired));
    if (dropped != "0")
        print(out, "INCOMPLETE: %s events were dropped by the writer; %llu halves of waits are left out\n",
              dropped.c_str(), static_cast<unsigned long long>(trace.num_unpaired));
}

void add_categories(const Trace& trace, std::string& out) {
    std::map<std::string_view, Sum> sums;
    for (const Slice& slice : trace.slices) {
        Sum& sum = sums[trace.text(slice.category)];
        ++sum.count;
        sum.total_us += slice.duration_us;
        sum.longest_us = std::max(sum.longest_us, slice.duration_us);
    }
    if (!sums.empty()) print(out, "\n%-26s %9s %14s %14s %14s\n", "what was done", "count", "total", "mean", "longest");
    for (const auto& [category, sum] : sums)
        print(out, "  %-24s %9zu %14s %14s %14s\n", of(category).c_str(), sum.count, time_text(sum.total_us).c_str(),
              time_text(sum.total_us / static_cast<double>(sum.count)).c_str(), time_text(sum.longest_us).c_str());
}

void add_lanes(const Trace& trace, std::string& out) {
    std::vector<Sum> sums(trace.lanes.size());
    for (const Slice& slice : trace.slices) {
        if (slice.depth > 0) continue;
        ++sums[slice.lane].count;
        sums[slice.lane].total_us += slice.duration_us;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const Lane& lane = trace.lanes[i];
        if (i == 0) print(out, "\n%-26s %9s %14s %8s\n", "lanes", "count", "busy", "share");
        if (i == 0 || trace.lanes[i - 1].process != lane.process)
            print(out, "  %s\n", of(trace.text(trace.processes[lane.process].name)).c_str());
        const double share = trace.duration_us() > 0 ? 100 * sums[i].total_us / trace.duration_us() : 0;
        print(out, "    %-22s %9zu %14s %7.1f%%\n", of(trace.text(lane.name)).c_str(), sums[i].count,
              time_text(sums[i].total_us).c_str(), share);
    }
}

void add_copies(const Trace& trace, std::string& out) {
    constexpr std::array names{"up", "down", "peer", "inside a memory"};
    std::array<Sum, names.size()> sums;
    for (const Slice& slice : trace.slices) {
        if (trace.text(slice.category) != "copy") continue;
        const Argument* from = trace.find(slice.arguments, "from");
        const Argument* to = trace.find(slice.arguments, "to");
        Sum& sum = sums[static_cast<std::size_t>(way_of(trace.text(from->text), trace.text(to->text)))];
        ++sum.count;
        sum.total_us += slice.duration_us;
        sum.bytes += trace.number(slice.arguments, "bytes");
    }
    bool any = false;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        if (sums[i].count == 0) continue;
        if (!any) print(out, "\n%-26s %9s %14s %14s\n", "copies", "count", "bytes", "while copying");
        any = true;
        const double rate = sums[i].total_us > 0 ? sums[i].bytes / (sums[i].total_us * 1e-6) : 0;
        print(out, "  %-24s %9zu %14s %12s/s\n", names[i], sums[i].count, bytes_text(sums[i].bytes).c_str(),
              bytes_text(rate).c_str());
    }
}

/// The highest value of each key of each counter.
void add_memory(const Trace& trace, std::string& out) {
    std::map<std::pair<std::uint32_t, TextId>, std::map<TextId, double>> highest;
    for (const Sample& sample : trace.samples)
        for (std::uint32_t i = sample.arguments.begin; i < sample.arguments.begin + sample.arguments.count; ++i) {
            const Argument& value = trace.arguments[i];
            const double number =
                value.kind == Argument::Kind::integer ? static_cast<double>(value.integer) : value.number;
            double& most = highest[{sample.process, sample.name}].try_emplace(value.key, number).first->second;
            most = std::max(most, number);
        }
    if (!highest.empty()) print(out, "\nhighest values\n");
    for (const auto& [counter, values] : highest) {
        const bool is_memory = trace.text(counter.second) == "memory";
        print(out, "  %-24s %s:", of(trace.text(trace.processes[counter.first].name)).c_str(),
              of(trace.text(counter.second)).c_str());
        for (const auto& [key, number] : values) {
            const std::string text = is_memory ? bytes_text(number) : std::to_string(number);
            print(out, "  %s %s", of(trace.text(key)).c_str(), text.c_str());
        }
        out += '\n';
    }
}

void add_marks(const Trace& trace, std::string& out) {
    Sum evicted;
    Sum saved;
    std::map<std::string_view, std::vector<const Mark*>> others;
    for (const Mark& mark : trace.marks) {
        if (trace.text(mark.category) != "evict") {
            others[trace.text(mark.category)].push_back(&mark);
            continue;
        }
        const Argument* was_saved = trace.find(mark.arguments, "saved");
        const bool is_saved =
            was_saved != nullptr && was_saved->kind == Argument::Kind::word && trace.text(was_saved->text) == "true";
        for (Sum* sum : {&evicted, is_saved ? &saved : nullptr})
            if (sum != nullptr) ++sum->count, sum->bytes += trace.number(mark.arguments, "bytes");
    }
    print(out, "\nevictions: %zu, %s (saved: %zu, %s)\n", evicted.count, bytes_text(evicted.bytes).c_str(), saved.count,
          bytes_text(saved.bytes).c_str());
    for (const auto& [category, marks] : others) {
        print(out, "%s: %zu, the first at %s: %s", of(category).c_str(), marks.size(),
              time_text(marks.front()->time_us).c_str(), of(trace.text(marks.front()->name)).c_str());
        const Argument* error = trace.find(marks.front()->arguments, "error");
        if (error != nullptr && error->kind == Argument::Kind::text)
            print(out, ": %s", of(trace.text(error->text)).c_str());
        out += '\n';
    }
}

void add_waits(const Trace& trace, std::string& out) {
    if (trace.waits.empty()) {
        out += "waits: none\n";
        return;
    }
    std::map<std::string_view, Sum> sums;
    std::map<std::string_view, const Wait*> longest;
    for (const Wait& wait : trace.waits) {
        const double length_us = wait.end_us - wait.begin_us;
        Sum& sum = sums[trace.text(wait.category)];
        if (sum.count++ == 0 || length_us > sum.longest_us) {
            sum.longest_us = length_us;
            longest[trace.text(wait.category)] = &wait;
        }
        sum.total_us += length_us;
    }
    for (const auto& [category, sum] : sums) {
        const Wait& wait = *longest[category];
        print(out, "%s: %zu, %s in all, the longest %s (\"%s\", id %lld, at %s)\n", of(category).c_str(), sum.count,
              time_text(sum.total_us).c_str(), time_text(sum.longest_us).c_str(), of(trace.text(wait.name)).c_str(),
              static_cast<long long>(wait.id), time_text(wait.begin_us).c_str());
    }
}

}  // namespace

std::string summary_of(const Trace& trace) {
    std::string out;
    add_head(trace, out);
    add_categories(trace, out);
    add_lanes(trace, out);
    add_copies(trace, out);
    add_memory(trace, out);
    add_marks(trace, out);
    add_waits(trace, out);
    return out;
}

}  // namespace kmm::tools
