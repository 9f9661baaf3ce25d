// How an array is cut into chunks, without its rank: which chunk holds a region.
//
// Owns: the geometry of one distribution. Pure, immutable after construction, any thread.
#pragma once

#include <string>
#include <vector>

#include "kmm/graph/box.hpp"

namespace kmm::plan {

using detail::Box;
using detail::ChunkGeometry;
using detail::max_rank;

class Layout {
  public:
    Layout() = default;
    /// Takes chunks as they are: they must cover the array exactly; see `find_gap` and `find_overlap`. Chunks that form
    /// a regular grid are renumbered row-major (last axis fastest).
    Layout(std::size_t rank, const Box& array, std::vector<ChunkGeometry> chunks);

    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    /// The chunk that contains all of `region`, or `none` if it crosses chunks. O(1) for regular grids and for regions
    /// that are chunks; O(chunks) else.
    std::size_t find(const Box& region) const noexcept;
    /// A region of the array that no chunk holds; false if the chunks cover it, which for disjoint chunks is known from
    /// their sizes. Else O(chunks x regions that are open at a time) along the axis that is cut finest.
    static bool find_gap(const Box& array, const std::vector<ChunkGeometry>& chunks, Box* gap);
    /// Two chunks that share elements; false if there are none. Sorts, then O(chunks x chunks that are open at a time)
    /// along the axis that is cut finest: of a grid of columns one, of a square grid the root of their number.
    static bool find_overlap(const std::vector<ChunkGeometry>& chunks, std::size_t* first, std::size_t* second);

    /// Whether the chunks are the cells of a regular grid.
    bool is_grid() const noexcept { return regular_; }
    std::size_t rank() const noexcept { return rank_; }
    const Box& array() const noexcept { return array_; }
    const std::vector<ChunkGeometry>& chunks() const noexcept { return chunks_; }
    /// For messages: "chunks of {100, 20}" where they form a regular grid, else "7 chunks".
    std::string chunks_text() const;

  private:
    bool detect_grid();

    std::size_t rank_ = 0;
    Box array_;
    std::vector<ChunkGeometry> chunks_;
    bool regular_ = false;
    std::int64_t chunk_size_[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
    std::int64_t grid_[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
};

}  // namespace kmm::plan
