// From single events, in any order, to a trace whose parts fit each other.
//
// Owns: the rules of the trace-event format as a runtime writes it: which fields an event of each phase has, that lanes
// and processes have names, that slices of a lane nest or follow each other, that waits end. Must not know: JSON. One
// thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace.hpp"

namespace kmm::tools {

/// An event as the file has it; what it did not have is empty.
struct RawEvent {
    std::optional<std::string> phase;
    std::optional<TextId> name;
    std::optional<TextId> category;
    std::optional<std::string> scope;
    std::optional<double> time_us;
    std::optional<double> duration_us;
    std::optional<std::int64_t> pid;
    std::optional<std::int64_t> tid;
    std::optional<std::int64_t> id;
    Arguments arguments;
};

/// Add each event, then take the trace. Every error is a TraceError.
class TraceBuilder {
  public:
    explicit TraceBuilder(std::string file);

    TextId text(std::string_view text) { return trace_.texts.add(text); }
    void about(std::string key, std::string value) { trace_.about.emplace_back(std::move(key), std::move(value)); }

    /// The arguments of the next event, before the event itself.
    void argument(const Argument& argument, RawEvent& event);

    /// Checks the event alone. Constant time.
    void add(const RawEvent& event);

    /// The file ends before the trace does: what would have come is not missed.
    void cut_off() { trace_.is_cut_off = true; }

    /// Checks what holds between events and sorts: O(n log n). Nothing may be added afterwards.
    Trace finish();

    /// Throws an error about the event that is being read (or, before the first and after the last, about the file).
    [[noreturn]] void refuse(const RawEvent& event, const std::string& what) const;
    [[noreturn]] void refuse(const std::string& what) const;

    std::uint64_t num_events() const { return trace_.num_events; }

  private:
    /// What is known of a process or a lane before all events are read.
    struct Naming {
        std::optional<TextId> name;
        std::optional<std::int64_t> sort_index;
        std::uint64_t first_event = 0;  ///< the first one that needs the name, or 0
    };

    /// One half of a wait.
    struct Half {
        double time_us;
        std::uint32_t event;
        TextId name;
        Arguments arguments;
    };

    struct Halves {
        std::vector<Half> begins;
        std::vector<Half> ends;
    };

    using LaneKey = std::pair<std::int64_t, std::int64_t>;                     ///< pid, tid
    using WaitKey = std::pair<std::pair<TextId, std::int64_t>, std::int64_t>;  ///< category, id, pid

    [[noreturn]] void refuse(std::uint64_t event, TextId name, const std::string& what) const;
    template<class T>
    T need(const RawEvent& event, const std::optional<T>& field, const char* key) const;
    double time_of(const RawEvent& event, const std::optional<double>& time_us, const char* key) const;
    std::uint32_t process_of(const RawEvent& event);
    void use_thread(const RawEvent& event);

    void add_name(const RawEvent& event);
    void add_slice(const RawEvent& event);
    void add_sample(const RawEvent& event);
    void add_half(const RawEvent& event, bool begins);
    void add_mark(const RawEvent& event);
    void check_copy(const RawEvent& event) const;

    void check_names() const;
    void place_processes();
    void check_lanes();
    void check_lane(std::size_t begin, std::size_t end);
    void pair_waits();
    void pair(const WaitKey& key, Halves& halves, bool forgive);
    void measure();

    std::string file_;
    Trace trace_;
    std::map<std::int64_t, Naming> process_names_;
    std::map<LaneKey, Naming> lane_names_;
    std::map<std::int64_t, std::uint32_t> process_indices_;
    std::map<LaneKey, std::uint32_t> lane_indices_;
    std::map<WaitKey, Halves> halves_;
};

}  // namespace kmm::tools
