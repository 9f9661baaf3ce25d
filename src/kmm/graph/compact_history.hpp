// The history of a chunk as an array keeps it: small as long as the chunk is used as a whole.
//
// Owns: CompactHistory. Must not know: where the bytes are, threads. Used under the runtime's order lock. Most chunks
// are written whole and read by few tasks in between: who these are has room in the record. Once a chunk is written in
// parts, or has more readers, a ChunkHistory knows what there is to know, until the chunk is whole again.
#pragma once

#include <array>
#include <cstdint>

#include "kmm/graph/history.hpp"
#include "kmm/graph/lazy.hpp"
#include "kmm/graph/paged_records.hpp"
#include "kmm/graph/part_readers.hpp"

namespace kmm::graph {

/// As ChunkHistory, with the same edges. `box()` gives the chunk's own box; it is called where one is made.
class CompactHistory {
  public:
    /// Of a chunk of an array of this rank.
    explicit CompactHistory(std::size_t rank) noexcept : rank_(static_cast<std::uint8_t>(rank)) {}

    /// Whether the chunk was written as a whole last.
    bool is_whole() const noexcept { return is_whole_; }
    /// Whether anything of the chunk was ever written.
    bool any_content() const noexcept { return is_whole_ || (detail_ && detail_->any_content()); }
    /// Whether every element of `region` was written; if not, `*missing` is a region that was not.
    bool covers(const Box& region, Box* missing) const {
        if (is_whole_) [[likely]]
            return true;
        if (detail_) return detail_->covers(region, missing);
        *missing = region;
        return false;
    }

    /// A task reads `region`, which must be covered, and is the chunk where it `is_whole`.
    template<typename BoxOf, typename Edges>
    void read(const Box& region, bool is_whole, BoxOf&& box, TaskNumber task, Edges& predecessors, Past& past) {
        if (is_whole_ &&
            (is_whole ? read_whole(task, predecessors, past) : read_part(region, task, predecessors, past))) [[likely]]
            return;
        detail(box).read(region, task, predecessors, past);
    }
    /// A task writes `region`, which is the chunk where it `is_whole`.
    template<typename BoxOf, typename Edges>
    void write(const Box& region, bool is_whole, BoxOf&& box, TaskNumber task, bool keeps_content, Edges& predecessors,
               const Past& past) {
        if (is_whole && write_whole(task, keeps_content, predecessors, past)) [[likely]]
            return;
        // By half of what needs it, so that it is not made anew for each write.
        const bool is_over = is_whole && detail_ && detail_->is_used_by_few(most_readers, most_part_readers / 2);
        detail(box).write(region, task, keeps_content, predecessors, past);
        if (is_over) become_whole(task);
    }
    /// The tasks whose results `region` consists of, as data dependencies.
    void writers(const Box& region, Predecessors& predecessors, const Past& past) const;
    /// Appends every task that uses the chunk: writers as data dependencies, readers for their order only.
    void users(Predecessors& tasks, const Past& past) const;

    /// Whether a ChunkHistory is kept for it; for tests.
    bool has_detail() const noexcept { return bool(detail_); }

  private:
    static constexpr std::size_t most_readers = 4;  // what 64 bytes leave room for
    // More of them need a ChunkHistory, which makes fewer of them.
    static constexpr std::size_t most_part_readers = ChunkHistory::max_part_readers;

    template<typename BoxOf> ChunkHistory& detail(BoxOf&& box) {
        if (!detail_) make_detail(box());
        return *detail_;
    }
    // False: it is in parts, or now needs them.
    template<typename Edges> bool read_whole(TaskNumber task, Edges& predecessors, Past& past);
    template<typename Edges>
    bool read_part(const Box& region, TaskNumber task, Edges& predecessors, const Past& past);
    template<typename Edges>
    bool write_whole(TaskNumber task, bool keeps_content, Edges& predecessors, const Past& past);
    template<typename Edges>
    void come_after_part_readers(TaskNumber task, Edges& predecessors, const Past& past) const;
    void make_detail(const Box& box);
    void become_whole(TaskNumber writer) noexcept;

    Lazy<ChunkHistory> detail_;       ///< none: the chunk was written as a whole last, or never
    Lazy<PartReaders> part_readers_;  ///< since then
    TaskNumber writer_ = 0;
    std::array<TaskNumber, most_readers> readers_;  ///< since then
    std::uint8_t num_readers_ = 0;
    std::uint8_t rank_;
    bool is_whole_ = false;  ///< `writer_` wrote all of it
};
static_assert(sizeof(CompactHistory) == 64);

/// Of the chunks of one array, by their numbers. One that was never touched has none: nothing of it was written.
using ChunkHistories = PagedRecords<CompactHistory>;

}  // namespace kmm::graph
