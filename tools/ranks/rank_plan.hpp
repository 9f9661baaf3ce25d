// The plan of one submit as one of several ranks sees it, as a plain value: its tasks, what they come after, and which
// content goes from rank to rank.
//
// Owns: RankPlan, its text, and its slices. Must not know: how it was made (rank_planner.hpp), where bytes are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kmm/boxes/box.hpp"
#include "kmm/graph/task_number.hpp"
#include "kmm/plan/domain_rule.hpp"

namespace kmm::ranks {

using detail::AccessKind;
using detail::Box;
using graph::TaskNumber;
using plan::DomainBox;
using plan::DomainRule;
using plan::Interval;

using RankNumber = std::uint32_t;
/// Every rank: what a planner of all plans for.
inline constexpr RankNumber every_rank = ~RankNumber{0};

/// What a task comes after.
struct RankEdge {
    enum class Kind : std::uint8_t {
        data,      ///< it needs content that the other has written
        order,     ///< it replaces what the other reads or has written
        snapshot,  ///< it writes what the other, a task of its submit, reads: once what was there before is kept
    };
    TaskNumber before = 0;
    RankNumber rank = 0;  ///< of that task
    Kind kind = Kind::data;
    friend bool operator==(const RankEdge&, const RankEdge&) = default;
};

/// A part of a region, and the task that wrote it last.
struct RankSource {
    Box box;
    TaskNumber writer = 0;
    RankNumber rank = 0;
};

/// A region that a task uses.
struct RankAccess {
    std::uint32_t array = 0;
    AccessKind kind = AccessKind::read;
    Box region;
    bool is_snapshot = false;         ///< some task of the submit writes elements of what this reads
    std::vector<RankSource> sources;  ///< of the content that it needs
};

struct RankTask {
    TaskNumber number = 0;
    std::size_t chunk = 0;  ///< of the domain
    RankNumber rank = 0;
    std::uint32_t owner = 0;  ///< which of the rank's
    DomainBox indices;
    std::vector<RankAccess> accesses;  ///< those that are not empty
    std::vector<RankEdge> edges;       ///< by number; one for each task before and kind
};

/// Content that one rank wrote last and a task of another one needs. Both plan it, without a word between them.
struct RankTransfer {
    std::uint32_t array = 0;
    Box box;
    TaskNumber writer = 0;
    RankNumber from = 0;
    RankNumber to = 0;
};

struct RankPlan {
    TaskNumber first = 0;   ///< number of the first chunk's task
    std::size_t count = 0;  ///< numbers that the submit takes: one for each chunk, one for itself if these are several
    std::vector<RankTask> tasks;          ///< in the order of their numbers
    std::vector<RankTransfer> transfers;  ///< each once; in the order of array, writer, box, ranks

    /// What a rank needs of a plan of all.
    RankPlan slice(RankNumber rank) const;
    /// For people; the names of arrays by their numbers.
    std::string to_text(const std::vector<std::string>& arrays, const std::vector<std::size_t>& array_ranks) const;
    /// As nodes and edges of a graph in the DOT language, without the graph around them.
    std::string to_dot(const std::vector<std::string>& arrays, const std::vector<std::size_t>& array_ranks) const;
};

bool operator==(const RankSource&, const RankSource&) noexcept;
bool operator==(const RankAccess&, const RankAccess&) noexcept;
bool operator==(const RankTask&, const RankTask&) noexcept;
bool operator==(const RankTransfer&, const RankTransfer&) noexcept;
bool operator<(const RankTransfer&, const RankTransfer&) noexcept;
bool operator==(const RankPlan&, const RankPlan&) noexcept;

}  // namespace kmm::ranks
