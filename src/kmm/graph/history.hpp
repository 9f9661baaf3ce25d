// Who wrote and who read which region of one chunk last.
//
// Owns: the regions of one chunk that were ever written, cut into disjoint segments. Must not know: where the bytes
// are, threads. Used under the runtime's order lock. A chunk that is only used whole has one segment, and each use
// costs O(1). In a chunk that is used in n parts each use of one costs O(log n), where parts are not much longer than
// their neighbours. A writer depends on exactly the tasks that used an element of its region, except where there are
// very many readers. Segments whose uses are all forgotten are merged when they are read together.
#pragma once

#include <algorithm>

#include "kmm/graph/box_tree.hpp"
#include "kmm/graph/lazy.hpp"
#include "kmm/graph/number_lists.hpp"
#include "kmm/graph/part_readers.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

/// What histories ask of the owner of the order.
class Past {
  public:
    /// A join of these tasks: one dependency in place of many. `data`: its successors read what the tasks write. 0: no
    /// memory for a join; then each task is a dependency of its own.
    virtual TaskNumber join(const TaskNumbers& tasks, bool data) = 0;
    /// The task has settled and did not fail: nothing needs to come after it any more.
    bool is_forgotten(TaskNumber number) const noexcept {
        return number <= forgotten_up_to_ || (is_helper(number) && number <= forgotten_helpers_up_to_);
    }

  protected:
    ~Past() = default;
    void forget_up_to(TaskNumber number, TaskNumber helper) noexcept {
        forgotten_up_to_ = number;
        forgotten_helpers_up_to_ = helper;
    }

  private:
    TaskNumber forgotten_up_to_ = 0;
    TaskNumber forgotten_helpers_up_to_ = first_helper;
};

class ChunkHistory {
  public:
    // Of more readers of parts than this, the older ones count as readers of each segment that they have read in. A
    // brick of a stencil in three dimensions has 26 neighbours.
    static constexpr std::size_t max_part_readers = 32;

    /// Of a chunk of an array of this rank: axes beyond it are not looked at.
    explicit ChunkHistory(std::size_t rank = boxes::max_rank) noexcept : rank_(rank) {}
    /// Whether anything of the chunk was ever written.
    bool any_content() const noexcept { return !segments_.empty() || many_; }
    /// Whether every element of `region` was written; if not, `*missing` is a region that was not.
    bool covers(const Box& region, Box* missing) const;

    // `Edges`: the predecessors in a task's record (TaskEdges), or any other list (Predecessors). The caller removes
    // duplicates (`drop_duplicates`).
    /// A task reads `region` (which must be covered): it comes after the writers.
    template<typename Edges> void read(const Box& region, TaskNumber task, Edges& predecessors, Past& past);
    /// A task writes `region`: it comes after writers and readers; `keeps_content` makes the former a data dependency.
    template<typename Edges>
    void write(const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors, const Past& past);
    /// The tasks whose results `region` consists of, as data dependencies.
    void writers(const Box& region, Predecessors& predecessors, const Past& past) const;
    /// Appends every task that uses the chunk: writers as data dependencies, readers for their order only. With
    /// duplicates: see `make_unique`.
    void users(Predecessors& tasks, const Past& past) const;

    std::size_t num_segments() const noexcept { return segments_.size() + (many_ ? many_->tree.size() : 0); }
    /// Whether there is one segment, and since its write at most `readers` tasks read all, and `part_readers` a part.
    bool is_used_by_few(std::size_t readers, std::size_t part_readers) const noexcept {
        return segments_.size() == 1 && segments_.front().value.readers.size() <= readers &&
               (!part_readers_ || part_readers_->size() <= part_readers);
    }
    /// Boxes compared since there are many segments, for tests.
    std::uint64_t num_looked_at() const noexcept { return many_ ? many_->tree.num_looked_at() : 0; }

  private:
    /// The uses of a segment, while there are few segments.
    struct Uses {
        TaskNumber writer = 0;
        TaskNumbers readers;
    };
    /// The uses of a segment in the tree. Trivially destructible, so that dropping the tree visits no segment.
    struct UsesInTree {
        TaskNumber writer = 0;
        NumberLists::List readers;
    };
    struct Segment {
        Box box;
        Uses value;
    };
    using Tree = BoxTree<UsesInTree>;
    /// A region of very many segments whose readers depend on one join of the writers.
    struct SharedRead {
        Box region;
        TaskNumber writers = 0;  ///< the join; 0: part of the region was written since
        TaskNumbers readers;     ///< not forgotten, without the first, which the segments have
    };
    /// The tree of a chunk with many segments, and what tells in O(1) that all their uses are forgotten.
    struct Many {
        explicit Many(std::size_t rank) noexcept : tree(rank) {}
        /// Everything in `bounds` was written.
        bool is_whole() const noexcept { return written_volume == boxes::volume(bounds); }

        Tree tree;
        NumberLists readers;
        Vector<SharedRead> shared;        ///< few, oldest first
        Box bounds;                       ///< of all segments
        std::int64_t written_volume = 0;  ///< elements in segments
        TaskNumber latest = 0;            ///< highest task that used a segment
        TaskNumber latest_helper = 0;     ///< likewise of helpers
    };

    // `f` takes a `Segment` or a `Tree::Entry`, of which it finds the readers as follows.
    template<typename F> void each_that_meets(const Box& region, F&& f);
    template<typename F> void each_that_meets(const Box& region, F&& f) const {
        const_cast<ChunkHistory&>(*this).each_that_meets(region, [&f](const auto& s) { f(s); });
    }
    template<typename F> void each(F&& f) const;
    bool is_all_written(const Box& region, std::size_t* met) const;
    template<typename F> void each_reader(const Uses& uses, F&& f) const {
        for (const TaskNumber reader : uses.readers) f(reader);
    }
    template<typename F> void each_reader(const UsesInTree& uses, F&& f) const { many_->readers.each(uses.readers, f); }
    static bool was_read_last_by(const Uses& uses, TaskNumber task) noexcept {
        return !uses.readers.empty() && uses.readers.back() == task;
    }
    static bool was_read_last_by(const UsesInTree& uses, TaskNumber task) noexcept {
        return uses.readers.size != 0 && uses.readers.latest == task;
    }
    static std::size_t num_readers(const Uses& uses) noexcept { return uses.readers.size(); }
    static std::size_t num_readers(const UsesInTree& uses) noexcept { return uses.readers.size; }
    void push_reader(Uses& uses, TaskNumber task) { uses.readers.push_back(task); }
    void push_reader(UsesInTree& uses, TaskNumber task) { many_->readers.push(uses.readers, task); }
    void clear_readers(Uses& uses) noexcept { uses.readers.clear(); }
    void clear_readers(UsesInTree& uses) noexcept { many_->readers.clear(uses.readers); }
    template<typename U> void add_reader(U& uses, TaskNumber task, TaskNumber reads_now, Past& past);
    template<typename U> void make_fewer_readers(U& uses, TaskNumber reads_now, Past& past);
    void add_part_reader(const Box& region, TaskNumber task, Past& past);
    void make_fewer_part_readers(TaskNumber reads_now, Past& past);
    template<typename U, typename F>
    void each_before(const U& uses, TaskNumber task, bool keeps_content, F&& add) const;
    template<typename U, typename Edges>
    void replace(U& uses, const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors,
                 const Past& past);
    template<typename Edges>
    Uses* write_among(const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors, const Past& past);
    template<typename Edges>
    bool read_as_others(const Box& region, TaskNumber task, Edges& predecessors, Past& past);
    template<typename Edges>
    void share_read(const Box& region, TaskNumber task, std::size_t num_before, Edges& predecessors, Past& past);
    void make_fewer_shared_readers(SharedRead& shared, Past& past);
    template<typename Edges>
    void come_after_shared_readers(const Box& region, TaskNumber task, Edges& predecessors, const Past& past);
    template<typename Edges>
    void come_after_part_readers(const Box& region, TaskNumber task, Edges& predecessors, const Past& past);

    void insert(const Box& box, const Uses& uses);
    template<typename U> void insert_in_tree(const Box& box, const U& uses);
    template<typename F> void take_of_few(const Box& region, F&& f);
    void drop_all_in(const Box& region);
    template<typename F> void cut_out(const Box& region, F&& meets);
    void note_use(TaskNumber task) noexcept {  // there is a tree
        TaskNumber& latest = is_helper(task) ? many_->latest_helper : many_->latest;
        latest = std::max(latest, task);
    }
    /// Called before `task` uses `region`: merges all segments into one if their uses are forgotten and they fill a box
    /// inside the region. O(1), but for freeing memory.
    void look_at_many(const Box& region, TaskNumber task, const Past& past);

    // More readers than this are replaced by one join of them: a later write then has few predecessors.
    static constexpr std::size_t max_readers = 8;
    // Most shared regions of a chunk. Beyond it the oldest is dropped, and its readers count as readers of parts.
    static constexpr std::size_t max_shared = 4;
    // Up to here comparing with each segment costs less than a tree.
    static constexpr std::size_t few_segments = 16;

    std::size_t rank_;
    Vector<Segment> segments_;  ///< up to `few_segments`
    Lazy<Many> many_;           ///< beyond; then `segments_` is empty
    /// Readers of parts of segments: a write of another part does not depend on them.
    Lazy<PartReaders> part_readers_;
};

/// Up to this length `add_predecessor` compares with the entries before.
inline constexpr std::size_t few_predecessors = 32;

/// Adds a predecessor; a data dependency outranks an order-only one. Compares with the others only while there are few,
/// so that n calls cost O(n): after the last one the caller removes duplicates (`drop_duplicates`).
template<typename Edges> void add_predecessor(Edges& predecessors, TaskNumber number, bool data) {
    if (predecessors.size() < few_predecessors) [[likely]] {
        for (Predecessor& p : predecessors) {
            if (p.number != number) continue;
            p.data = p.data || data;
            return;
        }
    }
    predecessors.emplace_back(number, data);
}
/// Before `count` calls of `add_predecessor`: the list grows at once, if it must, to what they and one use more need.
inline void make_room_for_more(TaskEdges& predecessors, std::size_t count) {
    if (predecessors.size() + count > predecessors.capacity()) predecessors.reserve_more(count + edges_of_use);
}
inline void make_room_for_more(Predecessors&, std::size_t) {}
/// Sorts by number and drops duplicates. O(n log n).
template<typename Edges> void make_unique(Edges& predecessors) {
    std::sort(predecessors.begin(), predecessors.end(), [](const Predecessor& a, const Predecessor& b) {
        return a.number != b.number ? a.number < b.number : a.data > b.data;
    });
    const auto same = [](const Predecessor& a, const Predecessor& b) { return a.number == b.number; };
    const auto end = std::unique(predecessors.begin(), predecessors.end(), same);
    predecessors.resize(static_cast<std::size_t>(end - predecessors.begin()));
}
/// After the last `add_predecessor`. O(1) where there are few.
template<typename Edges> void drop_duplicates(Edges& predecessors) {
    if (predecessors.size() > few_predecessors) [[unlikely]]
        make_unique(predecessors);
}

}  // namespace kmm::graph
