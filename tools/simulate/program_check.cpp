#include "simulate/program_check.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "driver/format.hpp"
#include "driver/name_text.hpp"
#include "kmm/boxes/box.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/across.hpp"
#include "kmm/plan/layout.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm::simulate {

namespace {

using detail::Box;
using graph::LaneRole;

class Check {
  public:
    Check(const Program& program, const std::string& name) : program_(program), name_(driver::name_text(name)) {}

    void all() {
        check_lanes();
        for (const trace::Array& a : program_.arrays) {
            if (!arrays_.emplace(a.number, &a).second) fail(driver::format("there are two arrays {}", a.number));
            if (const std::string fault = fault_of(a); !fault.empty())
                fail(driver::format("array {}: {}", a.number, fault));
        }
        trace::Number next = 1, next_helper = graph::first_helper + 1;
        for (const trace::Task& t : program_.tasks) {
            trace::Number& number = graph::is_helper(t.number) ? next_helper : next;
            if (t.number != number++)
                fail(driver::format("task {} is missing, or is there twice", text_of(number - 1)));
            if (const std::string fault = fault_of(t); !fault.empty())
                fail(driver::format("task {}: {}", text_of(t.number), fault));
        }
    }

  private:
    [[noreturn]] void fail(const std::string& text) const {
        throw InvalidArgument(driver::format("{}: {}: is it a record of kmm, and complete?", name_, text));
    }

    /// As records have it.
    static std::string text_of(trace::Number task) {
        return graph::is_helper(task) ? driver::format("h{}", task - graph::first_helper) : driver::format("{}", task);
    }

    /// The simulator's schedule numbers lanes as every runtime does.
    void check_lanes() const {
        const std::vector<graph::LaneInfo>& lanes = program_.machine.lanes;
        const auto count = [&](LaneRole role) {
            return static_cast<std::uint32_t>(std::count_if(
                lanes.begin(), lanes.end(), [&](const graph::LaneInfo& l) { return l.device == 0 && l.role == role; }));
        };
        const std::uint32_t compute = count(LaneRole::compute), launchers = count(LaneRole::launcher);
        std::vector<graph::LaneInfo> expected;
        for (std::uint32_t d = 0; d < program_.machine.limits_bytes.num_devices(); ++d) {
            for (std::uint32_t i = 0; i < compute; ++i) expected.push_back({d, LaneRole::compute, i});
            for (const LaneRole role : {LaneRole::up, LaneRole::down, LaneRole::peer}) expected.push_back({d, role, 0});
            for (std::uint32_t i = 0; i < launchers; ++i) expected.push_back({d, LaneRole::launcher, i});
        }
        const auto is_same = [](const graph::LaneInfo& a, const graph::LaneInfo& b) {
            return a.device == b.device && a.role == b.role && a.index == b.index;
        };
        if ((!expected.empty() && (compute == 0 || launchers == 0)) ||
            !std::equal(lanes.begin(), lanes.end(), expected.begin(), expected.end(), is_same))
            fail("the lanes of its second line are not those of its devices");
    }

    static bool is_ordered(const Box& box, std::uint32_t rank) {
        for (std::uint32_t k = 0; k < rank; ++k)
            if (box.begin[k] > box.end[k]) return false;
        return true;
    }

    /// Empty: nothing is wrong with it.
    static std::string fault_of(const trace::Array& a) {
        if (!is_ordered(a.box, a.rank)) return "its box ends before it begins";
        if (a.element_bytes == 0 || a.element_bytes > std::numeric_limits<std::uint32_t>::max())
            return driver::format("its elements have {} bytes", a.element_bytes);
        std::int64_t bytes = static_cast<std::int64_t>(a.element_bytes);
        try {
            for (std::uint32_t k = 0; k < a.rank; ++k)
                bytes = checked_mul(bytes, checked_sub(a.box.end[k], a.box.begin[k]));
        } catch (const std::overflow_error&) {
            if (!boxes::is_empty(a.box, a.rank)) return "it has 2^63 bytes or more";
        }
        std::vector<detail::ChunkGeometry> chunks;
        for (const Box& box : a.chunks) {
            if (!is_ordered(box, a.rank) || boxes::is_empty(box, a.rank)) return "a chunk has no elements";
            chunks.emplace_back().box = box;
        }
        if (a.num_pieces != 0 && chunks.size() != 1) return "a temporary has one chunk";
        std::size_t first = 0, second = 0;
        Box gap;
        if (plan::Layout::find_overlap(chunks, &first, &second))
            return driver::format("chunks {} and {} have elements in common", first, second);
        if (plan::Layout::find_gap(a.box, chunks, &gap)) return "its chunks do not cover it";
        return {};
    }

    std::string fault_of(const trace::Task& t) const {
        const bool on_device = t.kind == trace::TaskKind::kernel || t.kind == trace::TaskKind::function;
        if (on_device && t.memory.is_host()) return "it runs on a device, and its memory is the host's";
        if (t.kind == trace::TaskKind::host && !t.memory.is_host()) return "it runs on the host in a device's memory";
        if (t.kind <= trace::TaskKind::barrier && !t.uses.empty()) return "it does nothing, and uses an array";
        for (const trace::Predecessor& p : t.predecessors)
            if (p.task == t.number) return "it comes after itself";
        for (const trace::Use& u : t.uses) {
            if (u.empty) continue;
            const trace::Array& a = *arrays_.at(u.array);
            const Box& chunk = a.chunks[u.chunk];
            if (u.rank != a.rank || !is_ordered(u.region, u.rank) || !is_inside(u.region, chunk, u.rank))
                return driver::format("its region of array {} is not in the chunk", u.array);
        }
        if (t.kind == trace::TaskKind::transfer && !is_transfer(t)) return "it is no transfer";
        return fault_of_gathers(t);
    }

    static bool is_inside(const Box& region, const Box& chunk, std::uint32_t rank) {
        for (std::uint32_t k = 0; k < rank; ++k)
            if (region.begin[k] < chunk.begin[k] || region.end[k] > chunk.end[k]) return false;
        return true;
    }

    /// From the chunks of one array to one of another of the same rank, or from there; each chunk is named once.
    bool is_transfer(const trace::Task& t) const {
        if (t.uses.size() < 2) return false;
        const trace::Use& to = t.uses.front();
        std::set<std::pair<trace::Number, std::uint32_t>> named{{to.array, to.chunk}};
        return !to.is_piece && !to.gathers &&
               std::all_of(t.uses.begin() + 1, t.uses.end(), [&](const trace::Use& from) {
                   return !to.empty && !from.empty && !from.is_piece && !from.gathers && from.rank == to.rank &&
                          named.emplace(from.array, from.chunk).second &&
                          arrays_.at(from.array)->element_bytes == arrays_.at(to.array)->element_bytes &&
                          boxes::overlaps(from.region, to.region, to.rank);
               });
    }

    /// Behind the uses that a program names stand the pieces of each gathered region.
    std::string fault_of_gathers(const trace::Task& t) const {
        auto piece = std::find_if(t.uses.begin(), t.uses.end(), [](const trace::Use& u) { return u.is_piece; });
        for (const trace::Use& u : t.uses) {
            if (!u.gathers || !u.first_of_chunk) continue;
            const trace::Array& temporary = *arrays_.at(u.array);
            if (temporary.num_pieces == 0) return driver::format("array {} is no temporary", u.array);
            if (temporary.num_pieces > graph::Across::most_parts)
                return driver::format("array {} is gathered from {} pieces: a task does that with {} at most", u.array,
                                      temporary.num_pieces, graph::Across::most_parts);
            for (std::uint32_t k = 0; k < temporary.num_pieces; ++k, ++piece) {
                if (piece == t.uses.end() || !piece->is_piece || piece->empty || piece->rank != u.rank ||
                    !is_inside(piece->region, temporary.chunks[0], u.rank) ||
                    arrays_.at(piece->array)->element_bytes != temporary.element_bytes)
                    return driver::format("pieces of array {} are missing", u.array);
            }
        }
        return {};
    }

    const Program& program_;
    const std::string name_;
    std::map<trace::Number, const trace::Array*> arrays_;
};

}  // namespace

void check(const Program& program, const std::string& name) { Check(program, name).all(); }

}  // namespace kmm::simulate
