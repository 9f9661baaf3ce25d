// A trace of a runtime as plain values: what `kmm trace` checks, sums up and draws.
//
// Owns: the types, and the table of texts. Must not know: JSON, HTML, the runtime. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kmm::tools {

/// A file that is no trace, or that cannot be read. The text names the file, the event and what is wrong.
class TraceError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

using TextId = std::uint32_t;

/// Texts that are kept once each: an event has numbers in their place, because names repeat and a file may have
/// millions of events. A text stays valid until the next `add`.
class Texts {
  public:
    /// The number of `text`: that of an equal one, or the next. Constant time, as a hash table does.
    TextId add(std::string_view text);

    std::string_view operator[](TextId id) const;
    std::size_t size() const { return ends_.size(); }

  private:
    void grow();

    std::string bytes_;
    std::vector<std::uint64_t> ends_;
    /// Open addressing: 0, or a number plus one. The size is a power of two, at least twice the number of texts.
    std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(64);
};

/// One key of an event's "args".
struct Argument {
    enum class Kind : std::uint8_t { integer, number, text, word };  ///< a word: true, false or null

    TextId key = 0;
    Kind kind = Kind::word;
    union {
        std::int64_t integer = 0;
        double number;
        TextId text;  ///< of a word, too
    };
};

/// A piece of Trace::arguments.
struct Arguments {
    std::uint32_t begin = 0;
    std::uint16_t count = 0;
};

/// The program, the host's memory and pool, or a device.
struct Process {
    std::int64_t pid = 0;
    std::int64_t sort_index = 0;
    TextId name = 0;
};

/// What does one thing after another: a stream of a device, a thread.
struct Lane {
    std::uint32_t process = 0;  ///< an index, as everywhere below
    std::int64_t tid = 0;
    TextId name = 0;
};

/// Something that a lane did. Times are in microseconds since the trace's beginning.
struct Slice {
    double begin_us = 0;
    double duration_us = 0;
    std::uint32_t lane = 0;
    TextId name = 0;
    TextId category = 0;
    std::uint32_t event = 0;  ///< the position in the file, from 1
    Arguments arguments;
    std::uint16_t depth = 0;  ///< how many slices of its lane it is inside of

    double end_us() const { return begin_us + duration_us; }
};

/// The values of a counter from this time on.
struct Sample {
    double time_us = 0;
    std::uint32_t process = 0;
    TextId name = 0;
    std::uint32_t event = 0;
    Arguments arguments;  ///< integers and numbers
};

/// A task that waited, beside all lanes.
struct Wait {
    double begin_us = 0;
    double end_us = 0;
    std::uint32_t process = 0;
    TextId name = 0;
    TextId category = 0;
    std::int64_t id = 0;
    std::uint32_t event = 0;  ///< the beginning
    Arguments arguments;      ///< those of the beginning
};

/// Something that took no time: an eviction, a failure.
struct Mark {
    double time_us = 0;
    std::uint32_t process = 0;
    TextId name = 0;
    TextId category = 0;
    std::uint32_t event = 0;
    Arguments arguments;
};

struct Trace {
    Texts texts;
    std::vector<Argument> arguments;
    std::vector<std::pair<std::string, std::string>> about;  ///< "otherData"
    std::vector<Process> processes;                          ///< by sort index, then pid
    std::vector<Lane> lanes;                                 ///< by process, then tid
    std::vector<Slice> slices;                               ///< by lane, then begin; an outer one before those inside
    std::vector<Sample> samples;                             ///< by process, name, time, position in the file
    std::vector<Wait> waits;                                 ///< by begin, position in the file
    std::vector<Mark> marks;                                 ///< by time, position in the file
    std::uint64_t num_events = 0;                            ///< in the file, with those that give names
    bool is_cut_off = false;  ///< the file ends before the trace does: events are missing, and perhaps names
    /// Beginnings without ends and ends without beginnings: they are left out, where the writer says that it dropped
    /// events, or the file is cut off.
    std::uint64_t num_unpaired = 0;
    double begin_us = 0;  ///< the first time of any event, 0 without events
    double end_us = 0;

    double duration_us() const { return end_us - begin_us; }
    std::string_view text(TextId id) const { return texts[id]; }
    /// The argument `key`, or nullptr.
    const Argument* find(Arguments arguments, std::string_view key) const;
    /// The argument `key` as a number, or 0 if there is none.
    double number(Arguments arguments, std::string_view key) const;
    /// "otherData"'s `key`, or `otherwise`.
    std::string_view said(std::string_view key, std::string_view otherwise) const;
};

/// Which way a copy's bytes went, from the names of its memories: "host", "GPU 0".
enum class Way : std::uint8_t { up, down, peer, inside };
Way way_of(std::string_view from, std::string_view to);

}  // namespace kmm::tools
