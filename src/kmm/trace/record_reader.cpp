#include "kmm/trace/record_reader.hpp"

#include <algorithm>
#include <charconv>
#include <istream>
#include <string_view>
#include <unordered_map>

#include "driver/format.hpp"
#include "driver/name_text.hpp"
#include "kmm/error.hpp"
#include "kmm/trace/record_file.hpp"

namespace kmm::trace {

namespace {

/// What of a line has not been read yet.
class Line {
  public:
    Line(const std::string& file, std::size_t number, std::string_view text)
        : file_(file), number_(number), text_(text), rest_(text) {}

    bool ends() const noexcept { return rest_.empty(); }
    [[noreturn]] void fail(const std::string& expected) const {
        throw InvalidArgument(
            driver::format("{}, line {}: expected {} at \"{}\" in \"{}\": is it a record of kmm, and complete?", file_,
                           number_, expected, rest_.substr(0, 40), text_.substr(0, 120)));
    }
    bool skip(std::string_view text) noexcept {
        if (rest_.substr(0, text.size()) != text) return false;
        rest_.remove_prefix(text.size());
        return true;
    }
    void expect(std::string_view text) {
        if (!skip(text)) fail(driver::format("\"{}\"", text));
    }
    /// Up to a blank.
    std::string_view word() {
        const std::string_view found = rest_.substr(0, rest_.find(' '));
        if (found.empty()) fail("a word");
        rest_.remove_prefix(found.size());
        return found;
    }
    /// The end is read too.
    std::string_view up_to(char end) {
        const std::size_t length = rest_.find(end);
        if (length == rest_.npos) fail(driver::format("\"{}\"", end));
        const std::string_view found = rest_.substr(0, length);
        rest_.remove_prefix(length + 1);
        return found;
    }
    template<typename N>
    N number() {
        N value = 0;
        const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (code != std::errc()) fail("a number");
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        return value;
    }
    std::string quoted() {
        expect("\"");
        std::string text;
        while (!skip("\"")) {
            if (rest_.empty()) fail("the end of a name");
            if (skip("\\u00")) {
                unsigned byte = 0;
                const std::string_view digits = rest_.substr(0, 2);
                const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
                if (code != std::errc() || end != digits.data() + 2) fail("two digits of a character");
                rest_.remove_prefix(2);
                if (byte >= 0x80) text += static_cast<char>(0xc0 | byte >> 6);
                text += static_cast<char>(byte >= 0x80 ? 0x80 | (byte & 0x3f) : byte);
                continue;
            }
            if (rest_[0] == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
            text += rest_[0];
            rest_.remove_prefix(1);
        }
        return text;
    }

  private:
    const std::string& file_;
    std::size_t number_;
    std::string_view text_;
    std::string_view rest_;
};

class Reader {
  public:
    Reader(const std::string& name, Consumer& consumer) : name_(driver::name_text(name)), consumer_(consumer) {}

    const Machine& head(std::istream& in);
    void body(std::istream& in, bool* complete);

  private:
    /// False at the end; a line without one belongs to a writer that was killed, and is left out.
    bool next(std::istream& in) {
        if (!std::getline(in, text_) || in.eof()) return false;
        ++number_;
        return true;
    }
    void event(Line& line, What what);
    void lane_work(Line& line, Event& event, std::vector<Fence>& fences);
    void array(Line& line);
    void task(Line& line, TaskKind kind);
    void use(Line& line, Task& task, detail::AccessKind kind);
    detail::Box box(Line& line, std::uint32_t* rank);
    Fence place(Line& line);
    Memory memory(Line& line);
    static Number task_number(Line& line);
    void check_chunk(const Line& line, Number array, std::uint32_t chunk) const;
    void chunk(Line& line, Event& event);
    std::vector<Fence> after(Line& line);

    const std::string name_;  ///< for errors
    Consumer& consumer_;
    std::string text_;
    std::size_t number_ = 0;
    Machine machine_;
    std::unordered_map<std::string, LaneId> lanes_;
    std::unordered_map<Number, std::size_t> num_chunks_;  ///< by array
};

// ------------------------------------------------------------------------------------------------------ parts of lines

detail::Box Reader::box(Line& line, std::uint32_t* rank) {
    detail::Box b;
    *rank = 0;
    if (line.skip(".")) return b;
    do {
        if (*rank == detail::max_rank) line.fail(driver::format("no more than {} axes", detail::max_rank));
        b.begin[*rank] = line.number<std::int64_t>();
        line.expect(":");
        b.end[*rank] = line.number<std::int64_t>();
        ++*rank;
    } while (line.skip(","));
    return b;
}

Fence Reader::place(Line& line) {
    const std::string name(line.up_to(':'));
    const auto at = lanes_.find(name);
    if (at == lanes_.end())
        line.fail(driver::format("a lane of the second line of the file, and not \"{}\",", driver::name_text(name)));
    return {at->second, line.number<Position>()};
}

Memory Reader::memory(Line& line) {
    if (line.skip("host")) return Memory::host();
    line.expect("g");
    const auto device = line.number<std::uint64_t>();
    if (device >= machine_.limits_bytes.num_devices()) line.fail("a device of the second line of the file");
    return Memory::of_device(static_cast<std::uint32_t>(device));
}

void Reader::check_chunk(const Line& line, Number array, std::uint32_t chunk) const {
    const auto at = num_chunks_.find(array);
    if (at == num_chunks_.end()) line.fail(driver::format("an array of a line before, and not {},", array));
    if (chunk >= at->second) line.fail(driver::format("a chunk of array {} below {}", array, at->second));
}

void Reader::chunk(Line& line, Event& event) {
    event.array = line.number<Number>();
    line.expect("[");
    event.chunk = line.number<std::uint32_t>();
    check_chunk(line, event.array, event.chunk);
    line.expect("] ");
}

std::vector<Fence> Reader::after(Line& line) {
    std::vector<Fence> fences;
    if (line.ends()) return fences;
    line.expect(" after=");
    do fences.push_back(place(line));
    while (line.skip(","));
    return fences;
}

// --------------------------------------------------------------------------------------------------------------- lines

void Reader::array(Line& line) {
    Array a;
    a.number = line.number<Number>();
    a.name = driver::format("array {}", a.number);
    line.expect(" element=");
    a.element_bytes = line.number<std::size_t>();
    line.expect(" box=");
    a.box = box(line, &a.rank);
    line.expect(" chunks=");
    std::uint32_t rank = 0;
    while (!line.ends()) {
        if (line.skip(" temporary=")) {
            a.num_pieces = line.number<std::uint32_t>();
            break;
        }
        if (!a.chunks.empty()) line.expect(";");
        a.chunks.push_back(box(line, &rank));
        if (rank != a.rank) line.fail(driver::format("a box of rank {}", a.rank));
    }
    num_chunks_[a.number] = a.chunks.size();
    consumer_.bound(a, 0);
}

void Reader::use(Line& line, Task& task, detail::AccessKind kind) {
    Use& u = task.uses.emplace_back();
    u.kind = kind;
    u.array = line.number<Number>();
    line.expect("[");
    u.empty = line.skip("]");
    if (u.empty) return;
    u.chunk = line.number<std::uint32_t>();
    check_chunk(line, u.array, u.chunk);
    line.expect("]@");
    u.region = box(line, &u.rank);
    u.first_of_chunk = line.skip("=");
    if (!u.first_of_chunk) return;
    u.needs_content = line.skip("c");
    u.writes_chunk = line.skip("w");
    u.replaces_chunk = line.skip("x");
    u.anywhere = line.skip("a");
    u.gathers = line.skip("g");
    u.is_piece = line.skip("p");
}

Number Reader::task_number(Line& line) {
    const Number first = line.skip("h") ? graph::first_helper : 0;
    const auto number = line.number<Number>();
    if (number >= graph::first_helper) line.fail("a number of a task");
    return first + number;
}

void Reader::task(Line& line, TaskKind kind) {
    Task t;
    t.kind = kind;
    t.number = task_number(line);
    if (kind > TaskKind::barrier) {
        line.expect(" on=");
        t.memory = memory(line);
        line.expect(" name=");
        t.name = line.quoted();
        line.expect(" chunk=");
        t.chunk_index = line.number<std::uint32_t>();
        line.expect("/");
        t.num_chunks = line.number<std::uint32_t>();
        line.expect(" space=");
        if (!line.skip(".")) {
            do {
                t.offset.push_back(line.number<std::int64_t>());
                line.expect("+");
                t.size.push_back(line.number<std::int64_t>());
            } while (line.skip(","));
        }
    }
    const auto three = [&](std::uint32_t* values) {
        for (int k = 0; k < 3; ++k) {
            if (k > 0) line.expect(",");
            values[k] = line.number<std::uint32_t>();
        }
    };
    while (!line.ends()) {
        if (line.skip(" grid="))
            three(t.grid);
        else if (line.skip(" block="))
            three(t.block);
        else if (line.skip(" shared="))
            t.shared_bytes = line.number<std::uint32_t>();
        else if (line.skip(" r"))
            use(line, t, detail::AccessKind::read);
        else if (line.skip(" w"))
            use(line, t, detail::AccessKind::write);
        else if (line.skip(" o"))
            use(line, t, detail::AccessKind::overwrite);
        else if (line.skip(" after=")) {
            do {
                const Number number = task_number(line);
                t.predecessors.push_back({number, !line.skip("-")});
            } while (line.skip(","));
        } else
            line.fail("a part of a task");
    }
    consumer_.submitted(t, 0);
}

/// What stands on a lane.
void Reader::lane_work(Line& line, Event& e, std::vector<Fence>& fences) {
    const auto way = [&] {
        e.from = memory(line);
        line.expect(">");
        e.to = memory(line);
        line.expect(" bytes=");
        e.bytes = line.number<std::size_t>();
    };
    const Fence at = place(line);
    e.lane = at.lane;
    e.position = at.position;
    line.expect(" ");
    switch (e.what) {
    case What::copy:
        chunk(line, e);
        way();
        if (line.skip(" for=")) e.task = task_number(line);
        break;
    case What::move:
        e.task = task_number(line);
        line.expect(" ");
        way();
        break;
    case What::ran:
        line.expect("ns=");
        e.end_ns = line.number<std::int64_t>();
        return;
    default: e.task = line.number<Number>(); break;  // launch, returned
    }
    fences = after(line);
}

void Reader::event(Line& line, What what) {
    Event e{.what = what};
    std::vector<Fence> fences;
    switch (what) {
    case What::copy:
    case What::move:
    case What::launch:
    case What::returned:
    case What::ran: lane_work(line, e, fences); break;
    case What::start:
        e.task = task_number(line);
        fences = after(line);
        break;
    case What::evict:
        chunk(line, e);
        e.from = memory(line);
        e.flag = line.skip(" saved");
        if (!e.flag) line.expect(" dropped");
        break;
    case What::settled:
        e.task = task_number(line);
        e.flag = line.ends();
        if (line.skip(" failed")) e.other = e.task;
        if (line.skip(" cancelled=")) e.other = line.number<Number>();
        break;
    case What::wait_begins:
        e.task = task_number(line);
        line.expect(" bytes=");
        e.bytes = line.number<std::size_t>();
        break;
    default: e.array = line.number<Number>(); break;
    }
    if (!line.ends()) line.fail("the end of the line");
    consumer_.note(e, fences.data(), fences.size(), 0, 0);
}

const Machine& Reader::head(std::istream& in) {
    if (!next(in) || text_ != "kmm-record 1")
        throw InvalidArgument(driver::format("{} is no record: its first line is not \"kmm-record 1\" but \"{}\"",
                                             name_, text_.substr(0, 40)));
    if (!next(in)) throw InvalidArgument(name_ + " ends behind its first line");
    Line line(name_, number_, text_);
    line.expect("runtime driver=");
    machine_.driver = line.word();
    line.expect(" limits=");
    std::vector<std::size_t> limits_bytes;
    do limits_bytes.push_back(line.number<std::size_t>());
    while (line.skip(","));
    machine_.limits_bytes = std::move(limits_bytes);
    line.expect(" lanes=");
    const std::string names(line.word());
    for (std::size_t begin = 0; begin < names.size();) {
        const std::size_t end = std::min(names.find(',', begin), names.size());
        const std::string name = names.substr(begin, end - begin);
        begin = end + 1;
        Line lane(name_, number_, name);
        LaneInfo info;
        lane.expect("g");
        info.device = lane.number<std::uint32_t>();
        lane.expect(".");
        if (lane.skip("up"))
            info.role = LaneRole::up;
        else if (lane.skip("down"))
            info.role = LaneRole::down;
        else if (lane.skip("peer"))
            info.role = LaneRole::peer;
        else {
            info.role = lane.skip("c") ? LaneRole::compute : LaneRole::launcher;
            if (info.role == LaneRole::launcher) lane.expect("f");
            info.index = lane.number<std::uint32_t>();
        }
        if (!lane.ends() || info.device >= machine_.limits_bytes.num_devices())
            line.fail("lanes of the devices that there are");
        if (!lanes_.emplace(name, static_cast<LaneId>(machine_.lanes.size())).second) line.fail("each lane once");
        machine_.lanes.push_back(info);
    }
    if (!line.ends()) line.fail("the end of the line");
    return machine_;
}

void Reader::body(std::istream& in, bool* complete) {
    static constexpr std::pair<std::string_view, TaskKind> kinds[] = {
        {"join ", TaskKind::join},         {"barrier ", TaskKind::barrier}, {"host ", TaskKind::host},
        {"function ", TaskKind::function}, {"kernel ", TaskKind::kernel},   {"transfer ", TaskKind::transfer}};
    static constexpr std::pair<std::string_view, What> events[] = {{"copy ", What::copy},
                                                                   {"move ", What::move},
                                                                   {"launch ", What::launch},
                                                                   {"start ", What::start},
                                                                   {"returned ", What::returned},
                                                                   {"evict ", What::evict},
                                                                   {"settled ", What::settled},
                                                                   {"waits ", What::wait_begins},
                                                                   {"free ", What::array_freed},
                                                                   {"drop ", What::dropped},
                                                                   {"ran ", What::ran}};
    *complete = false;
    bool has_ended = false;
    while (next(in)) {
        Line line(name_, number_, text_);
        if (has_ended) line.fail("nothing behind the last line");
        if (line.skip("end lost=")) {
            *complete = line.number<std::uint64_t>() == 0;
            if (!line.ends()) line.fail("the end of the line");
            has_ended = true;
            continue;
        }
        if (line.skip("array ")) {
            array(line);
            continue;
        }
        if (line.skip("name ")) {
            const auto number = line.number<Number>();
            line.expect(" ");
            const std::string name = line.quoted();
            if (!line.ends()) line.fail("the end of the line");
            consumer_.named(number, name, 0);
            continue;
        }
        const auto kind =
            std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return line.skip(k.first); });
        if (kind != std::end(kinds)) {
            task(line, kind->second);
            continue;
        }
        const auto what =
            std::find_if(std::begin(events), std::end(events), [&](const auto& w) { return line.skip(w.first); });
        if (what == std::end(events)) line.fail("a kind of line");
        event(line, what->second);
    }
}

}  // namespace

Machine read_record(std::istream& in, const std::string& name, Consumer& consumer, bool* complete) {
    Reader reader(name, consumer);
    const Machine& machine = reader.head(in);
    reader.body(in, complete);
    return machine;
}

}  // namespace kmm::trace
