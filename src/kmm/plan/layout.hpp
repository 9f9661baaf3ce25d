// How an array is cut into chunks, without its rank: which chunk holds a region.
//
// Owns: the geometry of one distribution. Pure, immutable after construction, any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kmm/graph/box.hpp"
#include "kmm/graph/box_index.hpp"

namespace kmm::plan {

using detail::Box;
using detail::ChunkGeometry;
using detail::max_rank;

class Layout {
  public:
    Layout() = default;
    /// Takes chunks as they are, each with elements: they must cover the array exactly; see `find_gap` and
    /// `find_overlap`. Chunks that form a regular grid are renumbered row-major (last axis fastest). O(chunks) for
    /// grids, O(chunks x log(chunks)) else.
    Layout(std::size_t rank, const Box& array, std::vector<ChunkGeometry> chunks);

    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    /// The chunk that contains all of `region`, or `none` if it crosses chunks. O(1) for regular grids, else as
    /// `graph::BoxIndex`: O(log(chunks)) where few chunks lie across a cut.
    std::size_t find(const Box& region) const noexcept { return regular_ ? find_cell(region) : index_.find(region); }
    /// Adds the numbers of the chunks that have elements in `region`, ascending; none for an empty region, which may
    /// reach beyond the array. Takes the time of what it finds, and O(log(chunks)) where `find` does.
    void find_all(const Box& region, std::vector<std::size_t>& found) const;

    /// A region of the array that no chunk holds; false if the chunks cover it. The chunks must be disjoint, so that
    /// O(chunks) tells; naming a gap takes O(chunks x log(chunks)) where few of them lie across a cut.
    static bool find_gap(const Box& array, const std::vector<ChunkGeometry>& chunks, Box* gap);
    /// Two chunks that share elements, the lower position first; false if there are none. O(chunks) for regular grids,
    /// else as `graph::BoxIndex::find_overlap`.
    static bool find_overlap(const std::vector<ChunkGeometry>& chunks, std::size_t* first, std::size_t* second);
    /// The same of the chunks of this layout, with their numbers.
    bool find_overlap(std::size_t* first, std::size_t* second) const {
        return !regular_ && index_.find_overlap(first, second);
    }

    /// Whether the chunks are the cells of a regular grid, and thus cover the array exactly.
    bool is_grid() const noexcept { return regular_; }
    /// Whether they are the cells of a grid that is cut along the slowest axis alone, in its order.
    bool is_stack() const noexcept;
    std::size_t rank() const noexcept { return rank_; }
    const Box& array() const noexcept { return array_; }
    const std::vector<ChunkGeometry>& chunks() const noexcept { return chunks_; }
    /// What finds the chunks, if they are no grid; of no boxes else.
    graph::BoxIndex&& index() && noexcept { return std::move(index_); }
    /// For messages: "chunks of {100, 20}" where they form a regular grid, else "7 chunks".
    std::string chunks_text() const;

  private:
    /// The size of a cell, and how many there are along each axis.
    struct Grid {
        std::int64_t chunk_size[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
        std::int64_t counts[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
    };
    /// Whether the chunks are the cells of a grid; `cell_of` is then that of each, row-major.
    static bool detect_grid(const Box& array, const std::vector<ChunkGeometry>& chunks, Grid& grid,
                            std::vector<std::uint32_t>& cell_of);
    std::size_t find_cell(const Box& region) const noexcept;
    void find_cells(const Box& region, std::vector<std::size_t>& found) const;

    std::size_t rank_ = 0;
    Box array_;
    std::vector<ChunkGeometry> chunks_;
    bool regular_ = false;
    Grid grid_;
    graph::BoxIndex index_;  ///< if not regular
};

}  // namespace kmm::plan
