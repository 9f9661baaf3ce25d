#include "trace_reader.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "driver/name_text.hpp"
#include "trace_builder.hpp"

namespace kmm::tools {
namespace {

/// A JSON value that is neither a list nor an object.
struct Scalar {
    Argument::Kind kind = Argument::Kind::word;
    std::int64_t integer = 0;
    double number = 0;  ///< also of an integer
    std::string_view text;
};

/// Takes the parts of the JSON as the parser meets them. The functions without a trailing underscore that return bool
/// are those that nlohmann::json::sax_parse calls.
class TraceFile {
  public:
    TraceFile(std::string name, std::istream& in) : builder_(std::move(name)), in_(in) {}

    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    bool null() { return take({Argument::Kind::word, 0, 0, "null"}); }
    bool boolean(bool value) { return take({Argument::Kind::word, 0, 0, value ? "true" : "false"}); }
    bool number_integer(std::int64_t value) {
        return take({Argument::Kind::integer, value, static_cast<double>(value), {}});
    }
    bool number_unsigned(std::uint64_t value) {
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            return number_float(static_cast<double>(value), {});
        return number_integer(static_cast<std::int64_t>(value));
    }
    bool number_float(double value, const string_t&) { return take({Argument::Kind::number, 0, value, {}}); }
    bool string(const string_t& value) { return take({Argument::Kind::text, 0, 0, value}); }
    bool binary(const binary_t&) { return false; }  // JSON has none

    bool start_object(std::size_t);
    bool end_object();
    bool start_array(std::size_t);
    bool end_array();
    bool key(const string_t& name);
    bool parse_error(std::size_t byte, const std::string& token, const nlohmann::json::exception& error);

    Trace finish() {
        if (!has_events_) builder_.refuse("is no trace: it has no list \"traceEvents\"");
        return builder_.finish();
    }

  private:
    enum class Place { outside, file, about, events, event, arguments, skipped };

    bool take(const Scalar& value);
    void take_field(const Scalar& value);
    template<class T>
    void set(std::optional<T>& field, T value);
    void skip() {
        before_skipped_ = std::exchange(place_, Place::skipped);
        depth_ = 1;
    }
    [[noreturn]] void refuse_event(const std::string& what) const;
    std::string key_in_quotes() const { return "\"" + driver::name_text(key_) + "\""; }
    std::string number_of_event() const { return std::to_string(builder_.num_events() + 1); }

    TraceBuilder builder_;
    std::istream& in_;
    Place place_ = Place::outside;
    Place before_skipped_ = Place::outside;
    std::size_t depth_ = 0;  ///< in what is skipped
    std::string key_;
    RawEvent event_;
    bool has_arguments_ = false;
    bool has_events_ = false;
};

void TraceFile::refuse_event(const std::string& what) const {
    builder_.refuse("event " + number_of_event() + ": " + what);
}

bool TraceFile::start_object(std::size_t) {
    switch (place_) {
    case Place::outside: place_ = Place::file; return true;
    case Place::events:
        event_ = {};
        has_arguments_ = false;
        place_ = Place::event;
        return true;
    case Place::file:
        if (key_ == "traceEvents") builder_.refuse("is no trace: its \"traceEvents\" is no list");
        if (key_ == "otherData")
            place_ = Place::about;
        else
            skip();
        return true;
    case Place::event:
        if (key_ == "args") {
            if (std::exchange(has_arguments_, true)) refuse_event("has \"args\" twice");
            place_ = Place::arguments;
        } else {
            take_field({});
            skip();
        }
        return true;
    case Place::arguments: refuse_event(key_in_quotes() + " of its \"args\" is an object; numbers and texts are known");
    case Place::about: skip(); return true;
    case Place::skipped: ++depth_; return true;
    }
    return false;
}

bool TraceFile::end_object() {
    switch (place_) {
    case Place::arguments: place_ = Place::event; break;
    case Place::event:
        builder_.add(event_);
        place_ = Place::events;
        break;
    case Place::about: place_ = Place::file; break;
    case Place::skipped:
        if (--depth_ == 0) place_ = before_skipped_;
        break;
    default: place_ = Place::outside; break;
    }
    return true;
}

bool TraceFile::start_array(std::size_t) {
    switch (place_) {
    case Place::outside:
        builder_.refuse("is a list and not an object with a list \"traceEvents\": a runtime does not write that");
    case Place::events: refuse_event("is a list and not an object");
    case Place::arguments: refuse_event(key_in_quotes() + " of its \"args\" is a list; numbers and texts are known");
    case Place::file:
        if (key_ == "traceEvents") {
            if (std::exchange(has_events_, true)) builder_.refuse("has \"traceEvents\" twice");
            place_ = Place::events;
            return true;
        }
        break;
    case Place::event: take_field({}); break;
    case Place::about: break;
    case Place::skipped: ++depth_; return true;
    }
    skip();
    return true;
}

bool TraceFile::end_array() {
    if (place_ == Place::events)
        place_ = Place::file;
    else
        end_object();
    return true;
}

bool TraceFile::key(const string_t& name) {
    if (place_ != Place::skipped) key_ = name;
    return true;
}

bool TraceFile::take(const Scalar& value) {
    switch (place_) {
    case Place::outside: builder_.refuse("is no trace: it is not an object with a list \"traceEvents\"");
    case Place::file:
        if (key_ == "traceEvents") builder_.refuse("is no trace: its \"traceEvents\" is no list");
        return true;
    case Place::about:
        builder_.about(key_, value.kind == Argument::Kind::integer  ? std::to_string(value.integer)
                             : value.kind == Argument::Kind::number ? std::to_string(value.number)
                                                                    : std::string(value.text));
        return true;
    case Place::events: refuse_event("is not an object");
    case Place::event: take_field(value); return true;
    case Place::arguments: {
        Argument argument;
        argument.key = builder_.text(key_);
        argument.kind = value.kind;
        if (value.kind == Argument::Kind::integer)
            argument.integer = value.integer;
        else if (value.kind == Argument::Kind::number)
            argument.number = value.number;
        else
            argument.text = builder_.text(value.text);
        builder_.argument(argument, event_);
        return true;
    }
    case Place::skipped: return true;
    }
    return false;
}

template<class T>
void TraceFile::set(std::optional<T>& field, T value) {
    if (field) refuse_event("has " + key_in_quotes() + " twice");
    field = std::move(value);
}

/// A list or an object comes as a word, which no field is.
void TraceFile::take_field(const Scalar& value) {
    const bool is_text = value.kind == Argument::Kind::text;
    const bool is_integer = value.kind == Argument::Kind::integer;
    const auto must = [&](bool right, const char* what) {
        if (!right) refuse_event(key_in_quotes() + " is not " + what);
    };
    if (key_ == "ts" || key_ == "dur") {
        must(is_integer || value.kind == Argument::Kind::number, "a number");
        set(key_ == "ts" ? event_.time_us : event_.duration_us, value.number);
    } else if (key_ == "pid" || key_ == "tid" || key_ == "id") {
        must(is_integer, "a whole number");
        set(key_ == "pid" ? event_.pid : key_ == "tid" ? event_.tid : event_.id, value.integer);
    } else if (key_ == "name" || key_ == "cat") {
        must(is_text, "a text");
        set(key_ == "name" ? event_.name : event_.category, builder_.text(value.text));
    } else if (key_ == "ph" || key_ == "s") {
        must(is_text, "a text");
        set(key_ == "ph" ? event_.phase : event_.scope, std::string(value.text));
    } else if (key_ == "args") {
        refuse_event("\"args\" is not an object");
    }
}

/// A file that ends too early is a trace as far as it goes, once it has events. Else: the parser's text without its
/// number in brackets, and where in the trace it was.
bool TraceFile::parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) {
    if (in_.eof() && has_events_) {
        builder_.cut_off();
        return false;
    }
    std::string text = error.what();
    if (const auto bracket = text.find("] "); bracket != std::string::npos) text = text.substr(bracket + 2);
    const bool inside = place_ == Place::events || place_ == Place::event || place_ == Place::arguments;
    std::string what = inside ? "event " + number_of_event() + ": " : "";
    if (in_.eof())
        what += byte <= 1
                    ? "is empty"
                    : "the file ends before the trace does: whoever wrote it has been ended, or the disk was full";
    else
        what += "is not JSON";
    builder_.refuse(what + " (" + driver::name_text(text) + ")");
}

}  // namespace

Trace read_trace(std::istream& in, const std::string& name) {
    TraceFile file(name, in);
    try {
        nlohmann::json::sax_parse(in, &file);
    } catch (const std::ios_base::failure& error) {
        throw TraceError(driver::name_text(name) + ": cannot be read: " + error.code().message());
    }
    return file.finish();
}

Trace read_trace(const std::string& path) {
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (!in) throw TraceError(driver::name_text(path) + ": cannot be opened: " + std::strerror(errno));
    return read_trace(in, path);
}

}  // namespace kmm::tools
