// What every benchmark program shares: arguments, timing, samples, and one JSON line for each figure.
//
// Owns: the output format. Must not know: any driver or library of ours.
//
// A line is {"name", "value", "unit", "better", "low", "high", "samples", "raw", "must", "meets", "note"}: `value` is
// the median of the samples (low and high their extremes), `raw` the same work without us, measured in the same run
// (null: there is none), `must` the value to reach, in the same unit (null: informative), `meets` whether it does.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kmm::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Seconds of each repetition of one measurement.
using Samples = std::vector<double>;

inline double median(Samples samples) {
    if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::sort(samples.begin(), samples.end());
    const std::size_t middle = samples.size() / 2;
    return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

/// Runs `work` once to warm up, then `repetitions` times; seconds of each.
template<typename Work>
Samples time_each(int repetitions, Work work) {
    work();
    Samples samples;
    for (int i = 0; i < repetitions; ++i) {
        const auto begin = Clock::now();
        work();
        samples.push_back(seconds_since(begin));
    }
    return samples;
}

/// Seconds of one call: `calls` of them are timed together, `repetitions` times.
template<typename Call>
Samples time_calls(int repetitions, int calls, Call call) {
    Samples samples = time_each(repetitions, [&] {
        for (int i = 0; i < calls; ++i) call();
    });
    for (double& sample : samples) sample /= calls;
    return samples;
}

/// `work(thread)` on n threads at once; the wall time from the first start to the last end.
template<typename Work>
double time_threads(int num_threads, Work work) {
    std::vector<std::thread> threads;
    const auto begin = Clock::now();
    for (int thread = 0; thread < num_threads; ++thread) threads.emplace_back([&work, thread] { work(thread); });
    for (std::thread& thread : threads) thread.join();
    return seconds_since(begin);
}

enum class Better { lower, higher };

/// What samples in seconds become: a time in another unit, or a rate (`amount` a second).
struct Unit {
    const char* name;
    Better better;
    double amount;

    double of(double seconds) const { return better == Better::lower ? seconds * amount : amount / seconds; }
};

inline Unit nanoseconds() { return {"ns", Better::lower, 1e9}; }
inline Unit microseconds() { return {"us", Better::lower, 1e6}; }
inline Unit seconds() { return {"s", Better::lower, 1}; }
/// Decimal gigabytes.
inline Unit gigabytes_per_second(double bytes) { return {"GB/s", Better::higher, bytes / 1e9}; }

/// What is known beside the samples themselves.
struct Beside {
    std::optional<Samples> raw = std::nullopt;  ///< in seconds, of the same amount of work
    std::optional<double> must = std::nullopt;  ///< in the unit of the figure
    std::string note;
};

/// Arguments of a program and where its lines go. Every program takes:
///   --benchmark_out=FILE       the lines, as one JSON array (standard output has them too, one a line)
///   --benchmark_filter=TEXT    only figures whose name contains TEXT, or one of several texts with '|' between
///   --quick                    small sizes and few repetitions: to see that the program works
class Report {
  public:
    Report(int argc, char** argv) {
        for (int i = 1; i < argc; ++i) parse(argv[i]);
        if (out_path_.empty()) return;
        out_ = std::fopen(out_path_.c_str(), "w");
        if (out_ == nullptr) stop("cannot write '" + out_path_ + "': name a file in a folder that exists");
        std::fputs("[", out_);
    }
    ~Report() {
        if (out_ == nullptr) return;
        std::fputs("\n]\n", out_);
        std::fclose(out_);
    }
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;

    bool quick() const { return quick_; }
    /// Whether the figure was asked for: ask before measuring.
    bool wants(const std::string& name) const {
        for (std::size_t begin = 0; begin <= filter_.size();) {
            const std::size_t end = std::min(filter_.find('|', begin), filter_.size());
            if (name.find(filter_.substr(begin, end - begin)) != std::string::npos) return true;
            begin = end + 1;
        }
        return false;
    }
    int repetitions(int usual) const { return quick_ ? 2 : usual; }
    template<typename Number>
    Number size(Number usual, Number small) const {
        return quick_ ? small : usual;
    }

    void add(const std::string& name, const Samples& samples, const Unit& unit, const Beside& beside = {}) {
        if (!wants(name)) return;
        const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
        const double value = unit.of(median(samples));
        std::string line =
            "{\"name\":" + quoted(name) + ",\"value\":" + number(value) + ",\"unit\":" + quoted(unit.name);
        line += std::string(",\"better\":") + (unit.better == Better::lower ? "\"lower\"" : "\"higher\"");
        if (!samples.empty()) {
            const double a = unit.of(*least);
            const double b = unit.of(*most);
            line += ",\"low\":" + number(std::min(a, b)) + ",\"high\":" + number(std::max(a, b));
        }
        line += ",\"samples\":" + std::to_string(samples.size());
        line += ",\"raw\":" + (beside.raw ? number(unit.of(median(*beside.raw))) : "null");
        line += ",\"must\":" + (beside.must ? number(*beside.must) : "null");
        if (beside.must) {
            const bool meets = unit.better == Better::lower ? value <= *beside.must : value >= *beside.must;
            line += std::string(",\"meets\":") + (meets ? "true" : "false");
        }
        if (!beside.note.empty()) line += ",\"note\":" + quoted(beside.note);
        write(line + "}");
    }

    /// A figure that cannot be had here, with the reason.
    void skip(const std::string& name, const std::string& reason) {
        if (wants(name)) write("{\"name\":" + quoted(name) + ",\"value\":null,\"note\":" + quoted(reason) + "}");
    }

    [[noreturn]] static void stop(const std::string& message) {
        std::fprintf(stderr, "%s\n", message.c_str());
        std::exit(2);
    }

  private:
    void parse(const char* argument) {
        const auto value_of = [&](const char* option) -> const char* {
            const std::size_t length = std::strlen(option);
            return std::strncmp(argument, option, length) == 0 ? argument + length : nullptr;
        };
        if (const char* path = value_of("--benchmark_out=")) {
            out_path_ = path;
        } else if (const char* text = value_of("--benchmark_filter=")) {
            filter_ = text;
        } else if (const char* format = value_of("--benchmark_out_format=")) {
            if (std::strcmp(format, "json") != 0)
                stop(std::string("--benchmark_out_format is '") + format + "': only json is written");
        } else if (std::strcmp(argument, "--quick") == 0) {
            quick_ = true;
        } else {
            stop(std::string("unknown argument '") + argument +
                 "': use --benchmark_out=FILE, --benchmark_filter=TEXT, --quick");
        }
    }

    void write(const std::string& line) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        if (out_ == nullptr) return;
        std::fprintf(out_, "%s\n%s", first_ ? "" : ",", line.c_str());
        std::fflush(out_);
        first_ = false;
    }

    static std::string number(double value) {
        if (!(value == value) || value > 1e300 || value < -1e300) return "null";
        char text[40];
        std::snprintf(text, sizeof text, "%.5g", value);
        return text;
    }

    static std::string quoted(const std::string& text) {
        std::string result = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') result += '\\';
            if (static_cast<unsigned char>(c) >= ' ')
                result += c;
            else
                result += ' ';
        }
        return result + '"';
    }

    std::string out_path_;
    std::string filter_;
    std::FILE* out_ = nullptr;
    bool first_ = true;
    bool quick_ = false;
};

}  // namespace kmm::bench
