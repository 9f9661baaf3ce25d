// Who wrote and who read which region of one chunk last.
//
// Owns: the regions of one chunk that were ever written, cut into disjoint segments. Must not know: where the bytes
// are, threads. Used under the runtime's order lock. A chunk that is only used whole has one segment, and each use
// costs O(1).
#pragma once

#include <vector>

#include "kmm/graph/box.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

/// Makes a join of some tasks, so that a write after very many reads waits for one number. Given by the owner of the
/// order.
class JoinMaker {
  public:
    /// 0: there is no memory for one; then the tasks are waited for one by one.
    virtual TaskNumber join(const TaskNumbers& tasks) = 0;

  protected:
    ~JoinMaker() = default;
};

class ChunkHistory {
  public:
    /// Of a chunk of an array of this rank: axes beyond it are not looked at.
    explicit ChunkHistory(std::size_t rank = max_rank) noexcept : rank_(rank) {}
    /// Whether anything of the chunk was ever written.
    bool any_content() const noexcept { return !segments_.empty(); }
    /// Whether something outside `region` was ever written.
    bool content_outside(const Box& region) const noexcept;
    /// Whether every element of `region` was written; if not, `*missing` is a region that was not.
    bool covers(const Box& region, Box* missing) const;

    /// A task reads `region` (which must be covered): it comes after the writers.
    void read(const Box& region, TaskNumber task, Predecessors& predecessors, JoinMaker& joins);
    /// A task writes `region`: it comes after writers and readers; `keeps_content` makes the former a data dependency.
    void write(const Box& region, TaskNumber task, bool keeps_content, Predecessors& predecessors);
    /// The tasks whose results `region` consists of, as data dependencies.
    void writers(const Box& region, Predecessors& predecessors) const;
    /// Appends every task that uses the chunk: writers as data dependencies, readers for their order only. Some may be
    /// there several times: see `make_unique`.
    void users(Predecessors& tasks) const;

  private:
    struct Segment {
        Box box;
        TaskNumber writer = 0;
        TaskNumbers readers;
    };
    std::size_t rank_;
    Vector<Segment> segments_;
    Vector<Segment> scratch_;
    // More readers than this are replaced by one join of them: a later write then has few predecessors.
    static constexpr std::size_t max_readers = 8;
};

/// Adds a predecessor once; a data dependency outranks an order-only one. O(predecessors).
void add_predecessor(Predecessors& predecessors, TaskNumber number, bool data);
/// Leaves each once, in the order of their numbers. O(n log n).
void make_unique(Predecessors& predecessors);

}  // namespace kmm::graph
