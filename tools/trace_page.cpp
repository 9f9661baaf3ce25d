#include "trace_page.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "trace_page_assets.hpp"

namespace kmm::tools {
namespace {

using nlohmann::ordered_json;

/// JavaScript has no larger whole numbers that are exact: they go as floating point.
constexpr std::int64_t largest_exact = std::int64_t{1} << 53;

/// JSON inside of a script element ends at the first "</script" and takes no entities: without "<" nothing can end it.
std::string script_json(const ordered_json& json) {
    std::string text;
    for (const char c : json.dump()) {
        if (c == '<')
            text += "\\u003c";
        else
            text += c;
    }
    return text;
}

std::string html_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

void write_base64(const std::vector<unsigned char>& bytes, std::ostream& out) {
    constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const unsigned group = bytes[i] << 16U | (left > 1 ? bytes[i + 1] << 8U : 0U) | (left > 2 ? bytes[i + 2] : 0U);
        text += digits[group >> 18U];
        text += digits[group >> 12U & 63U];
        text += left > 1 ? digits[group >> 6U & 63U] : '=';
        text += left > 2 ? digits[group & 63U] : '=';
        if (text.size() > 1 << 16) {
            out << text;
            text.clear();
        }
    }
    out << text;
}

/// Fills the rows and, on the way, the head's lists and the texts.
class Encoder {
  public:
    explicit Encoder(const Trace& trace) : trace_(trace), begin_ns_(std::llround(trace.begin_us * 1e3)) {}

    void encode(const std::string& title) {
        head_["version"] = 1;
        head_["title"] = title;
        head_["begin_ns"] = begin_ns_;
        head_["end_ns"] = ns(trace_.end_us);
        head_["about"] = ordered_json::object();
        for (const auto& [key, value] : trace_.about) head_["about"][key] = value;
        head_["num_events"] = trace_.num_events;
        head_["num_unpaired"] = trace_.num_unpaired;
        head_["is_cut_off"] = trace_.is_cut_off;
        head_["processes"] = ordered_json::array();
        for (const Process& process : trace_.processes)
            head_["processes"].push_back({{"pid", process.pid}, {"name", trace_.text(process.name)}});
        head_["lanes"] = ordered_json::array();
        for (const Lane& lane : trace_.lanes)
            head_["lanes"].push_back({{"process", lane.process}, {"tid", lane.tid}, {"name", trace_.text(lane.name)}});
        add_slices();
        add_samples();
        add_waits();
        add_marks();
        head_["shapes"] = std::move(shapes_);
    }

    const ordered_json& head() const { return head_; }
    const std::vector<unsigned char>& rows() const { return rows_; }

    /// Those that the rows name, by their number there.
    ordered_json texts() const {
        ordered_json list = ordered_json::array();
        for (const TextId id : used_texts_) list.push_back(trace_.text(id));
        return list;
    }

  private:
    std::int64_t ns(double us) const { return std::llround(us * 1e3); }

    void add(std::uint64_t value) {
        for (; value >= 128; value >>= 7) rows_.push_back(static_cast<unsigned char>(value | 128));
        rows_.push_back(static_cast<unsigned char>(value));
    }

    void add_signed(std::int64_t value) {
        add(static_cast<std::uint64_t>(value) << 1U ^ static_cast<std::uint64_t>(value >> 63));
    }

    /// Texts get numbers in the order in which they are met: names, which come again and again, get the short ones.
    void add_text(TextId id) {
        if (text_numbers_.empty()) text_numbers_.resize(trace_.texts.size(), 0);
        if (text_numbers_[id] == 0) {
            used_texts_.push_back(id);
            text_numbers_[id] = static_cast<std::uint32_t>(used_texts_.size());
        }
        add(text_numbers_[id] - 1);
    }

    void add_time(double us, std::int64_t& before_ns) {
        const std::int64_t time_ns = ns(us) - begin_ns_;
        add(static_cast<std::uint64_t>(time_ns - before_ns));
        before_ns = time_ns;
    }

    void add_span(double begin_us, double end_us, std::int64_t& before_ns) {
        add_time(begin_us, before_ns);
        add(static_cast<std::uint64_t>(ns(end_us) - begin_ns_ - before_ns));
    }

    char kind_of(const Argument& argument) const {
        switch (argument.kind) {
        case Argument::Kind::integer:
            return argument.integer <= largest_exact && argument.integer >= -largest_exact ? 'i' : 'd';
        case Argument::Kind::number: return 'd';
        case Argument::Kind::text: return 't';
        case Argument::Kind::word: return 'w';
        }
        return 'w';
    }

    void add_arguments(Arguments of) {
        std::vector<std::pair<TextId, char>> shape;
        for (std::uint32_t i = of.begin; i < of.begin + of.count; ++i)
            shape.emplace_back(trace_.arguments[i].key, kind_of(trace_.arguments[i]));
        const auto [place, fresh] = shape_numbers_.try_emplace(std::move(shape), shapes_.size());
        if (fresh) {
            ordered_json keys = ordered_json::array();
            for (const auto& [key, kind] : place->first)
                keys.push_back(ordered_json::array({trace_.text(key), std::string(1, kind)}));
            shapes_.push_back(std::move(keys));
        }
        add(place->second);
        for (std::uint32_t i = of.begin; i < of.begin + of.count; ++i) add_value(trace_.arguments[i]);
    }

    void add_value(const Argument& argument) {
        switch (kind_of(argument)) {
        case 'i': add_signed(argument.integer); break;
        case 'd':
            add_double(argument.kind == Argument::Kind::integer ? static_cast<double>(argument.integer)
                                                                : argument.number);
            break;
        default: add_text(argument.text); break;
        }
    }

    void add_double(double value) {
        const auto bits = std::bit_cast<std::uint64_t>(value);
        for (int shift = 0; shift < 64; shift += 8) rows_.push_back(static_cast<unsigned char>(bits >> shift));
    }

    void add_slices();
    void add_samples();
    void add_waits();
    void add_marks();

    const Trace& trace_;
    std::int64_t begin_ns_;
    ordered_json head_ = ordered_json::object();
    ordered_json shapes_ = ordered_json::array();
    std::map<std::vector<std::pair<TextId, char>>, std::size_t> shape_numbers_;
    std::vector<std::uint32_t> text_numbers_;
    std::vector<TextId> used_texts_;
    std::vector<unsigned char> rows_;
};

void Encoder::add_slices() {
    head_["tracks"] = ordered_json::array();
    const auto& slices = trace_.slices;
    for (std::size_t begin = 0, end = 0; begin < slices.size(); begin = end) {
        std::uint16_t deepest = 0;
        for (; end < slices.size() && slices[end].lane == slices[begin].lane; ++end)
            deepest = std::max(deepest, slices[end].depth);
        for (std::uint16_t depth = 0; depth <= deepest; ++depth) {
            std::size_t count = 0;
            std::int64_t before_ns = 0;
            for (std::size_t i = begin; i < end; ++i) {
                const Slice& slice = slices[i];
                if (slice.depth != depth) continue;
                ++count;
                add_span(slice.begin_us, slice.end_us(), before_ns);
                add_text(slice.name);
                add_text(slice.category);
                add_arguments(slice.arguments);
            }
            head_["tracks"].push_back({{"lane", slices[begin].lane}, {"depth", depth}, {"count", count}});
        }
    }
}

void Encoder::add_samples() {
    head_["series"] = ordered_json::array();
    const auto& samples = trace_.samples;
    for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
        const Sample& first = samples[begin];
        std::int64_t before_ns = 0;
        for (; end < samples.size() && samples[end].process == first.process && samples[end].name == first.name;
             ++end) {
            add_time(samples[end].time_us, before_ns);
            add_arguments(samples[end].arguments);
        }
        head_["series"].push_back(
            {{"process", first.process}, {"name", trace_.text(first.name)}, {"count", end - begin}});
    }
}

void Encoder::add_waits() {
    head_["waits"] = trace_.waits.size();
    std::int64_t before_ns = 0;
    for (const Wait& wait : trace_.waits) {
        add_span(wait.begin_us, wait.end_us, before_ns);
        add(wait.process);
        add_text(wait.name);
        add_text(wait.category);
        add_signed(wait.id);
        add_arguments(wait.arguments);
    }
}

void Encoder::add_marks() {
    head_["marks"] = trace_.marks.size();
    std::int64_t before_ns = 0;
    for (const Mark& mark : trace_.marks) {
        add_time(mark.time_us, before_ns);
        add(mark.process);
        add_text(mark.name);
        add_text(mark.category);
        add_arguments(mark.arguments);
    }
}

}  // namespace

void write_page(const Trace& trace, const std::string& title, std::ostream& out) {
    Encoder encoder(trace);
    encoder.encode(title);
    out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" << html_text(title)
        << " - KMM trace</title>\n<style>\n"
        << page_style << "</style>\n</head>\n<body>\n"
        << page_body << "<script type=\"application/json\" id=\"kmm-head\">" << script_json(encoder.head())
        << "</script>\n<script type=\"application/json\" id=\"kmm-texts\">" << script_json(encoder.texts())
        << "</script>\n<script type=\"text/plain\" id=\"kmm-rows\">";
    write_base64(encoder.rows(), out);
    out << "</script>\n<script>\n" << page_script << "</script>\n</body>\n</html>\n";
}

}  // namespace kmm::tools
