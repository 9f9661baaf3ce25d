// The page of a trace: it holds all that the trace does, and no text of the trace can break out of it.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "synthetic_trace.hpp"
#include "trace_page.hpp"
#include "trace_texts.hpp"

namespace {

using namespace kmm::tools;
using nlohmann::json;

std::string page_of(const Trace& trace, const std::string& title = "t.json") {
    std::ostringstream out;
    write_page(trace, title, out);
    return out.str();
}

/// What a browser takes for the content of a script: all up to the first "</script".
std::string script(const std::string& page, const std::string& id) {
    const auto open = page.find("id=\"" + id + "\"");
    const auto begin = page.find('>', open) + 1;
    return page.substr(begin, page.find("</script", begin) - begin);
}

std::vector<unsigned char> from_base64(std::string_view text) {
    std::vector<unsigned char> bytes;
    std::array<int, 256> values{};
    values.fill(-1);
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (std::size_t i = 0; i < digits.size(); ++i) values[static_cast<unsigned char>(digits[i])] = static_cast<int>(i);
    unsigned bits = 0;
    int count = 0;
    for (const char c : text) {
        const int value = values[static_cast<unsigned char>(c)];
        if (value < 0) break;
        bits = bits << 6 | static_cast<unsigned>(value);
        if ((count += 6) < 8) continue;
        count -= 8;
        bytes.push_back(static_cast<unsigned char>(bits >> count));
    }
    return bytes;
}

/// Reads the page's blocks again, by the description in trace_page.hpp, into lines of text.
class PageReader {
  public:
    explicit PageReader(const std::string& page)
        : head(json::parse(script(page, "kmm-head"))),
          texts_(json::parse(script(page, "kmm-texts"))),
          rows_(from_base64(script(page, "kmm-rows"))) {}

    std::vector<std::string> read() {
        std::vector<std::string> lines;
        for (const json& track : head["tracks"]) {
            std::int64_t time_ns = head["begin_ns"];
            const std::string where = "lane " + track["lane"].dump() + " depth " + track["depth"].dump() + ": ";
            for (std::size_t i = 0; i < track["count"]; ++i) {
                std::string line = where + span(time_ns);
                line += " " + text();
                line += " " + text();
                lines.push_back(line + arguments());
            }
        }
        for (const json& series : head["series"]) {
            std::int64_t time_ns = head["begin_ns"];
            for (std::size_t i = 0; i < series["count"]; ++i) {
                const std::string line =
                    "counter " + series["process"].dump() + " " + series["name"].get<std::string>();
                time_ns += static_cast<std::int64_t>(number());
                lines.push_back(line + " " + std::to_string(time_ns) + arguments());
            }
        }
        std::int64_t time_ns = head["begin_ns"];
        for (std::size_t i = 0; i < head["waits"]; ++i) {
            std::string line = "wait " + span(time_ns);
            line += " " + std::to_string(number());
            line += " " + text();
            line += " " + text();
            line += " " + std::to_string(signed_number());
            lines.push_back(line + arguments());
        }
        time_ns = head["begin_ns"];
        for (std::size_t i = 0; i < head["marks"]; ++i) {
            time_ns += static_cast<std::int64_t>(number());
            std::string line = "mark " + std::to_string(time_ns);
            line += " " + std::to_string(number());
            line += " " + text();
            line += " " + text();
            lines.push_back(line + arguments());
        }
        EXPECT_EQ(at_, rows_.size()) << "the rows have more than the head says";
        return lines;
    }

    json head;

  private:
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const unsigned char byte = rows_.at(at_++);
            value |= std::uint64_t{byte & 127U} << shift;
            if (byte < 128) return value;
        }
    }
    std::int64_t signed_number() {
        const std::uint64_t value = number();
        return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
    }
    std::string text() { return texts_.at(number()); }
    std::string span(std::int64_t& time_ns) {
        time_ns += static_cast<std::int64_t>(number());
        const std::uint64_t length_ns = number();
        return std::to_string(time_ns) + "+" + std::to_string(length_ns);
    }
    std::string arguments() {
        std::string out;
        const json shape = head["shapes"].at(number());
        for (const json& key : shape) {
            out += " " + key[0].get<std::string>() + "=";
            const std::string kind = key[1];
            if (kind == "i")
                out += std::to_string(signed_number());
            else if (kind == "d")
                out += std::to_string(double_number());
            else
                out += text();
        }
        return out;
    }
    double double_number() {
        std::uint64_t bits = 0;
        for (int shift = 0; shift < 64; shift += 8) bits |= std::uint64_t{rows_.at(at_++)} << shift;
        return std::bit_cast<double>(bits);
    }

    json texts_;
    std::vector<unsigned char> rows_;
    std::size_t at_ = 0;
};

/// The same lines from the trace itself.
class TraceLines {
  public:
    explicit TraceLines(const Trace& trace) : trace_(trace) {}

    std::vector<std::string> write() const {
        std::vector<std::string> lines;
        for (std::size_t lane = 0; lane < trace_.lanes.size(); ++lane)
            for (int depth = 0; depth < 4; ++depth)
                for (const Slice& slice : trace_.slices)
                    if (slice.lane == lane && slice.depth == depth)
                        lines.push_back("lane " + std::to_string(lane) + " depth " + std::to_string(depth) + ": " +
                                        span(slice.begin_us, slice.end_us()) + text(slice.name) + text(slice.category) +
                                        arguments(slice.arguments));
        for (const Sample& sample : trace_.samples)
            lines.push_back("counter " + std::to_string(sample.process) + text(sample.name) + " " + ns(sample.time_us) +
                            arguments(sample.arguments));
        for (const Wait& wait : trace_.waits)
            lines.push_back("wait " + span(wait.begin_us, wait.end_us) + " " + std::to_string(wait.process) +
                            text(wait.name) + text(wait.category) + " " + std::to_string(wait.id) +
                            arguments(wait.arguments));
        for (const Mark& mark : trace_.marks)
            lines.push_back("mark " + ns(mark.time_us) + " " + std::to_string(mark.process) + text(mark.name) +
                            text(mark.category) + arguments(mark.arguments));
        return lines;
    }

  private:
    static std::string ns(double us) { return std::to_string(std::llround(us * 1e3)); }
    static std::string span(double begin_us, double end_us) {
        return ns(begin_us) + "+" + std::to_string(std::llround(end_us * 1e3) - std::llround(begin_us * 1e3));
    }
    std::string text(TextId id) const { return " " + std::string(trace_.text(id)); }
    std::string arguments(Arguments of) const {
        std::string out;
        for (std::uint32_t i = of.begin; i < of.begin + of.count; ++i) {
            const Argument& argument = trace_.arguments[i];
            out += text(argument.key) + "=";
            if (argument.kind == Argument::Kind::integer)
                out += std::to_string(argument.integer);
            else if (argument.kind == Argument::Kind::number)
                out += std::to_string(argument.number);
            else
                out += trace_.text(argument.text);
        }
        return out;
    }

    const Trace& trace_;
};

TEST(TracePage, holds_every_event_with_all_that_it_says) {
    const Trace trace = read_text(synthetic_trace(300, 2));
    PageReader reader(page_of(trace));
    const std::vector<std::string> lines = reader.read();
    EXPECT_EQ(lines, TraceLines(trace).write());
    EXPECT_GT(lines.size(), 2000u);
    EXPECT_EQ(reader.head["processes"].size(), 4u);
    EXPECT_EQ(reader.head["processes"][2]["name"], "GPU 0: NVIDIA H200");
    EXPECT_EQ(reader.head["lanes"].size(), trace.lanes.size());
    EXPECT_EQ(reader.head["about"]["driver"], "cuda");
    EXPECT_EQ(reader.head["begin_ns"], std::llround(trace.begin_us * 1e3));
    EXPECT_EQ(reader.head["end_ns"], std::llround(trace.end_us * 1e3));
}

TEST(TracePage, holds_every_kind_of_argument) {
    const Trace trace =
        read_text(file_with({mark("note", -2.5,
                                  R"("a":-1,"b":9007199254740991,"c":0.5,"d":true,"e":null,"f":"","g":-64,)"
                                  R"("h":1e300,"i":127,"j":128)")}));
    PageReader reader(page_of(trace));
    EXPECT_EQ(reader.read(), TraceLines(trace).write());
    EXPECT_EQ(reader.head["begin_ns"], -2500);
}

TEST(TracePage, no_text_of_the_trace_ends_a_script) {
    const std::string evil = "</script><script>alert(1)</script><!--";
    const Trace trace = read_text(file_with({slice(evil, 1, 1), mark(evil, 2, "\"" + evil + "\":\"" + evil + "\"")}));
    const std::string page = page_of(trace, evil);
    EXPECT_EQ(page.find(evil), std::string::npos);
    std::size_t ends = 0;
    for (std::size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1)) ++ends;
    EXPECT_EQ(ends, 4u) << "three blocks of data and the program";
    PageReader reader(page);
    EXPECT_EQ(reader.read(), TraceLines(trace).write());
    EXPECT_EQ(reader.head["title"], evil);
}

TEST(TracePage, needs_no_network) {
    const std::string page = page_of(read_text(synthetic_trace(20, 1)));
    for (const char* word : {"http:", "https:", "//cdn", " src=", "@import", "url(", "fetch(", "XMLHttpRequest"})
        EXPECT_EQ(page.find(word), std::string::npos) << word;
    EXPECT_EQ(page.find("<!DOCTYPE html>"), 0u);
}

TEST(TracePage, an_empty_trace_has_a_page) {
    PageReader reader(page_of(read_text(file_of({}))));
    EXPECT_TRUE(reader.read().empty());
}

}  // namespace
