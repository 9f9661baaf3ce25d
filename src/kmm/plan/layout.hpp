// How an array is cut into chunks, without its rank: which chunk holds a region, where each chunk is and who has it.
//
// Owns: the geometry of one distribution: a formula where the chunks are a regular grid, else a list of them. Pure,
// immutable after construction, any thread: distributions and arrays share one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kmm/boxes/box.hpp"
#include "kmm/boxes/box_index.hpp"
#include "kmm/plan/chunk_homes.hpp"

namespace kmm::plan {

using detail::Box;
using detail::ChunkGeometry;
using detail::max_rank;

/// A region in the chunk that contains all of it.
struct Place {
    std::size_t chunk = static_cast<std::size_t>(-1);  ///< `Layout::none`: it lies in no single chunk
    std::size_t offset = 0;                            ///< of its first element from the chunk's, in elements
    std::size_t chunk_elements = 0;                    ///< of the whole chunk
    bool is_whole = true;                              ///< it is the chunk
};

class Layout {
  public:
    Layout() = default;
    /// Takes chunks as they are, each with elements: they must cover the array exactly; see `find_gap` and
    /// `find_overlap`. Chunks that form a regular grid are renumbered row-major (last axis fastest), and no list of
    /// them is kept. O(chunks) for grids, O(chunks x log(chunks)) else.
    Layout(std::size_t rank, const Box& array, std::vector<ChunkGeometry> chunks);
    /// A regular grid over an array with elements, which begins at 0: chunks of a size of at least 1 and at most the
    /// array's, for each of `rank` axes; the last ones are cut short. O(1).
    Layout(std::size_t rank, const Box& array, const std::int64_t* chunk_size, ChunkHomes homes);

    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    /// The chunk that contains all of `region`, or `none` if it crosses chunks. O(1) for regular grids, else as
    /// `boxes::BoxIndex`: O(log(chunks)) where few chunks lie across a cut.
    std::size_t find(const Box& region) const noexcept { return locate(region).chunk; }
    /// As `find`, with the region's place in the chunk.
    Place locate(const Box& region) const noexcept {
        if (!regular_) return locate_in_list(region);
        return rank_ == 1 ? locate_in_line(region) : locate_in_cell(region);
    }
    /// Adds the numbers of the chunks that have elements in `region`, ascending; none for an empty region, which may
    /// reach beyond the array. Takes the time of what it finds, and O(log(chunks)) where `find` does.
    void find_all(const Box& region, std::vector<std::size_t>& found) const;

    /// A region of the array that no chunk holds; false if the chunks cover it. The chunks must be disjoint, so that
    /// O(chunks) tells; naming a gap takes O(chunks x log(chunks)) where few of them lie across a cut.
    static bool find_gap(const Box& array, const std::vector<ChunkGeometry>& chunks, Box* gap);
    /// Two chunks that share elements, the lower position first; false if there are none. O(chunks) for regular grids,
    /// else as `boxes::BoxIndex::find_overlap`.
    static bool find_overlap(const std::vector<ChunkGeometry>& chunks, std::size_t* first, std::size_t* second);
    /// As above, for the chunks of this layout. A grid has neither overlaps nor gaps.
    bool find_overlap(std::size_t* first, std::size_t* second) const {
        return !regular_ && index_.find_overlap(first, second);
    }
    bool find_gap(Box* gap) const { return !regular_ && find_gap(array_, chunks_, gap); }

    /// Whether the chunks are the cells of a regular grid, and thus cover the array exactly.
    bool is_grid() const noexcept { return regular_; }
    /// Whether they are the cells of a grid that is cut along the slowest axis alone, in its order.
    bool is_stack() const noexcept;
    std::size_t rank() const noexcept { return rank_; }
    const Box& array() const noexcept { return array_; }
    std::size_t num_chunks() const noexcept { return num_chunks_; }
    // Of one chunk. O(1), but for what `ChunkHomes::of` says.
    Box box(std::size_t chunk) const noexcept;
    std::size_t num_elements(std::size_t chunk) const noexcept;
    /// Of its elements in memory, packed row-major, for the axes of the array; in elements.
    void set_strides(std::size_t chunk, std::int64_t* strides) const noexcept {
        if (rank_ > 1) return set_strides_of_axes(chunk, strides);
        if (rank_ == 1) strides[0] = 1;
    }
    /// Whether the chunks that the region meets are neighbours along the slowest axis, and hold little more than it
    /// between its first row and its last: what leaves out more is better off with a copy of just the region.
    bool may_be_read_in_place(const Box& region) const noexcept;
    MemoryId home(std::size_t chunk) const noexcept { return regular_ ? homes_.of(chunk) : chunks_[chunk].home; }
    /// The lowest number of a chunk whose home `is_meant`, `none` if there is none. O(1) where homes follow a rule and
    /// there is none; else O(chunks).
    template<typename F> std::size_t find_home(F&& is_meant) const;
    /// All of them. O(chunks).
    std::vector<ChunkGeometry> list() const;
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
    Place locate_in_line(const Box& region) const noexcept {
        const std::int64_t begin = region.begin[0], end = region.end[0];
        if (begin < 0 || end > array_.end[0]) return {};
        const std::int64_t size = grid_.chunk_size[0];
        // Divisions are most of the cost of a lookup: one chunk needs none.
        const std::int64_t cell = num_chunks_ == 1 ? 0 : begin / size, first = cell * size;
        if (end - first > size) return {};
        const std::int64_t extent = std::min(size, array_.end[0] - first);
        return {static_cast<std::size_t>(cell), static_cast<std::size_t>(begin - first),
                static_cast<std::size_t>(extent), end - begin == extent};
    }
    Place locate_in_cell(const Box& region) const noexcept;
    Place locate_in_list(const Box& region) const noexcept;
    void set_strides_of_axes(std::size_t chunk, std::int64_t* strides) const noexcept;
    void find_cells(const Box& region, std::vector<std::size_t>& found) const;
    template<typename F> void each_axis(std::size_t chunk, F&& f) const noexcept;

    std::size_t rank_ = 0;
    std::size_t num_chunks_ = 0;
    Box array_;
    bool regular_ = false;
    // If regular:
    Grid grid_;
    ChunkHomes homes_;
    // Else:
    std::vector<ChunkGeometry> chunks_;
    boxes::BoxIndex index_;
};

template<typename F> std::size_t Layout::find_home(F&& is_meant) const {
    const std::vector<MemoryId>& memories = homes_.memories();
    if (regular_ && std::none_of(memories.begin(), memories.end(), is_meant)) return none;
    for (std::size_t i = 0; i < num_chunks_; ++i)
        if (is_meant(home(i))) return i;
    return none;
}

}  // namespace kmm::plan
