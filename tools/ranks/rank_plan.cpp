#include "ranks/rank_plan.hpp"

#include <algorithm>
#include <tuple>

#include "driver/format.hpp"

namespace kmm::ranks {

namespace {

const char* name_of(AccessKind kind) noexcept {
    switch (kind) {
    case AccessKind::read: return "reads";
    case AccessKind::write: return "writes";
    case AccessKind::overwrite: return "overwrites";
    }
    return "";
}

const char* name_of(RankEdge::Kind kind) noexcept {
    switch (kind) {
    case RankEdge::Kind::data: return "data";
    case RankEdge::Kind::order: return "order";
    case RankEdge::Kind::snapshot: return "snapshot";
    }
    return "";
}

int compare(const Box& a, const Box& b) noexcept {
    for (std::size_t k = 0; k < detail::max_rank; ++k) {
        if (a.begin[k] != b.begin[k]) return a.begin[k] < b.begin[k] ? -1 : 1;
        if (a.end[k] != b.end[k]) return a.end[k] < b.end[k] ? -1 : 1;
    }
    return 0;
}

}  // namespace

bool operator==(const RankSource& a, const RankSource& b) noexcept {
    return a.writer == b.writer && a.rank == b.rank && boxes::equal(a.box, b.box);
}
bool operator==(const RankAccess& a, const RankAccess& b) noexcept {
    return a.array == b.array && a.kind == b.kind && boxes::equal(a.region, b.region) &&
           a.is_snapshot == b.is_snapshot && a.sources == b.sources;
}
bool operator==(const RankTask& a, const RankTask& b) noexcept {
    return a.number == b.number && a.chunk == b.chunk && a.rank == b.rank && a.owner == b.owner &&
           a.indices == b.indices && a.accesses == b.accesses && a.edges == b.edges;
}
bool operator==(const RankTransfer& a, const RankTransfer& b) noexcept {
    return a.array == b.array && a.writer == b.writer && a.from == b.from && a.to == b.to && boxes::equal(a.box, b.box);
}
bool operator<(const RankTransfer& a, const RankTransfer& b) noexcept {
    if (std::tie(a.array, a.writer) != std::tie(b.array, b.writer))
        return std::tie(a.array, a.writer) < std::tie(b.array, b.writer);
    if (const int order = compare(a.box, b.box); order != 0) return order < 0;
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
}
bool operator==(const RankPlan& a, const RankPlan& b) noexcept {
    return a.first == b.first && a.count == b.count && a.tasks == b.tasks && a.transfers == b.transfers;
}

RankPlan RankPlan::slice(RankNumber rank) const {
    RankPlan part;
    part.first = first;
    part.count = count;
    std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(part.tasks),
                 [&](const RankTask& t) { return t.rank == rank; });
    std::copy_if(transfers.begin(), transfers.end(), std::back_inserter(part.transfers),
                 [&](const RankTransfer& t) { return t.from == rank || t.to == rank; });
    return part;
}

std::string RankPlan::to_text(const std::vector<std::string>& arrays,
                              const std::vector<std::size_t>& array_ranks) const {
    std::string text;
    const auto region = [&](std::uint32_t array, const Box& box) {
        return arrays[array] + " " + boxes::to_text(box, array_ranks[array]);
    };
    for (const RankTask& t : tasks) {
        text += driver::format("task {} on rank {}, device {}:", t.number, t.rank, t.owner);
        for (const Interval& along : t.indices.axes) text += driver::format(" [{}, {})", along.begin, along.end);
        text += "\n";
        for (const RankAccess& a : t.accesses) {
            text += driver::format("  {} {}{}", name_of(a.kind), region(a.array, a.region),
                                   a.is_snapshot ? ", as it was before" : "");
            for (const RankSource& s : a.sources)
                text += driver::format("{}{} of task {}{}", &s == a.sources.data() ? ": " : ", ",
                                       boxes::to_text(s.box, array_ranks[a.array]), s.writer,
                                       s.rank == t.rank ? "" : driver::format(" from rank {}", s.rank));
            text += "\n";
        }
        for (const RankEdge& e : t.edges)
            text += driver::format("  after task {}{} ({})\n", e.before,
                                   e.rank == t.rank ? "" : driver::format(" of rank {}", e.rank), name_of(e.kind));
    }
    for (const RankTransfer& t : transfers)
        text +=
            driver::format("rank {} sends {} of task {} to rank {}\n", t.from, region(t.array, t.box), t.writer, t.to);
    return text;
}

std::string RankPlan::to_dot(const std::vector<std::string>& arrays,
                             const std::vector<std::size_t>& array_ranks) const {
    std::string text;
    for (const RankTask& t : tasks) {
        std::string label = driver::format("{} on rank {}", t.number, t.rank);
        for (const RankAccess& a : t.accesses)
            label += driver::format("\\n{} {} {}", name_of(a.kind), arrays[a.array],
                                    boxes::to_text(a.region, array_ranks[a.array]));
        text += driver::format("  t{} [label=\"{}\", colorscheme=set312, style=filled, fillcolor={}];\n", t.number,
                               label, t.rank % 12 + 1);
        for (const RankEdge& e : t.edges)
            text += driver::format("  t{} -> t{}{};\n", e.before, t.number,
                                   e.kind == RankEdge::Kind::data ? "" : " [style=dashed]");
    }
    return text;
}

}  // namespace kmm::ranks
