// Small traces for the tests, put together from events. One thread.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "trace_reader.hpp"

/// The names of GPU 0 (process 3) and its lanes 1 and 2.
inline const std::vector<std::string> names = {
    R"({"ph":"M","pid":3,"tid":0,"name":"process_name","args":{"name":"GPU 0: H200"}})",
    R"({"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"compute 0"}})",
    R"({"ph":"M","pid":3,"tid":2,"name":"thread_name","args":{"name":"up"}})",
};

inline std::string slice(const std::string& name, double begin_us, double duration_us, int tid = 1) {
    std::ostringstream out;
    out << R"({"ph":"X","pid":3,"tid":)" << tid << R"(,"name":")" << name << R"(","cat":"kernel","ts":)" << begin_us
        << R"(,"dur":)" << duration_us << R"(,"args":{"task":17}})";
    return out.str();
}

inline std::string half_of_wait(const std::string& phase, double time_us, int id = 17,
                                const std::string& name = "axpy") {
    std::ostringstream out;
    out << R"({"cat":"wait for memory","pid":3,"tid":0,"name":")" << name << R"(","ph":")" << phase << R"(","ts":)"
        << time_us << R"(,"id":)" << id << R"(,"args":{"task":17,"bytes":4096}})";
    return out.str();
}

inline std::string mark(const std::string& category, double time_us, const std::string& arguments) {
    std::ostringstream out;
    out << R"({"ph":"i","s":"p","pid":3,"tid":0,"name":"x[3]","cat":")" << category << R"(","ts":)" << time_us
        << R"(,"args":{)" << arguments << "}}";
    return out.str();
}

inline std::string file_of(const std::vector<std::string>& events, const std::string& dropped = "0") {
    std::string text = R"({"displayTimeUnit":"ms","otherData":{"driver":"host","dropped_events":")" + dropped +
                       R"("},"traceEvents":[)";
    for (const std::string& event : events) text += (text.ends_with('[') ? "\n" : ",\n") + event;
    return text + "\n]}\n";
}

/// The names first, so that the first of `events` is event 4.
inline std::string file_with(const std::vector<std::string>& events, const std::string& dropped = "0") {
    std::vector<std::string> all = names;
    all.insert(all.end(), events.begin(), events.end());
    return file_of(all, dropped);
}

inline kmm::tools::Trace read_text(const std::string& text) {
    std::istringstream in(text);
    return kmm::tools::read_trace(in, "t.json");
}
