#include "kmm/plan/layout.hpp"

#include <algorithm>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"

namespace kmm::plan {

namespace {

// Up to this number chunks are compared pairwise: making an index takes longer.
constexpr std::size_t few = 16;

/// Axes that follow are [0, 1) in every chunk.
std::size_t rank_of(const std::vector<ChunkGeometry>& chunks) {
    std::size_t rank = 0;
    for (const ChunkGeometry& c : chunks)
        for (std::size_t k = rank; k < max_rank; ++k)
            if (c.box.begin[k] != 0 || c.box.end[k] != 1) rank = k + 1;
    return rank;
}

boxes::BoxIndex index_of(std::size_t rank, const std::vector<ChunkGeometry>& chunks) {
    return {rank, chunks.size(), [&](std::size_t i) -> const Box& { return chunks[i].box; }};
}

/// From the origin to the furthest ends.
Box hull_from_zero(const std::vector<ChunkGeometry>& chunks) {
    Box hull = chunks.front().box;
    for (std::size_t k = 0; k < max_rank; ++k) {
        hull.begin[k] = 0;
        for (const ChunkGeometry& c : chunks) hull.end[k] = std::max(hull.end[k], c.box.end[k]);
    }
    return hull;
}

using Positions = std::vector<std::size_t>;

std::int64_t covered_elements(const Box& box, const std::vector<ChunkGeometry>& chunks, const Positions& some) {
    std::int64_t covered = 0;
    for (const std::size_t i : some) covered += boxes::volume(boxes::intersection(chunks[i].box, box));
    return covered;
}

/// Shrinks `open`, which the chunks at `inside` do not cover, to an uncovered side of a cut, and `inside` to the chunks
/// there. Cuts where a chunk begins, so that the larger side has the fewest chunks. False: no chunk begins inside.
bool narrow(const std::vector<ChunkGeometry>& chunks, Box& open, Positions& inside) {
    std::size_t axis = 0, fewest = static_cast<std::size_t>(-1);
    std::int64_t cut = 0;
    std::vector<std::int64_t> begins;
    for (std::size_t k = 0; k < max_rank; ++k) {
        begins.clear();
        for (const std::size_t i : inside)
            if (chunks[i].box.begin[k] > open.begin[k]) begins.push_back(chunks[i].box.begin[k]);
        if (begins.empty()) continue;
        const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
        std::nth_element(begins.begin(), middle, begins.end());
        std::size_t below = 0, above = 0;
        for (const std::size_t i : inside) {
            below += chunks[i].box.begin[k] < *middle;
            above += chunks[i].box.end[k] > *middle;
        }
        if (std::max(below, above) >= fewest) continue;
        fewest = std::max(below, above), axis = k, cut = *middle;
    }
    if (fewest == static_cast<std::size_t>(-1)) return false;
    Box low = open, high = open;
    low.end[axis] = high.begin[axis] = cut;
    open = covered_elements(low, chunks, inside) < boxes::volume(low) ? low : high;
    inside.erase(std::remove_if(inside.begin(), inside.end(),
                                [&](std::size_t i) { return !boxes::overlaps(chunks[i].box, open); }),
                 inside.end());
    return true;
}

}  // namespace

Layout::Layout(std::size_t rank, const Box& array, std::vector<ChunkGeometry> chunks)
    : rank_(rank), num_chunks_(chunks.size()), array_(array) {
    std::vector<std::uint32_t> cell_of;
    regular_ = detect_grid(array, chunks, grid_, cell_of);
    if (!regular_) {
        chunks_ = std::move(chunks);
        index_ = index_of(rank, chunks_);
        return;
    }
    std::vector<MemoryId> homes(chunks.size(), MemoryId::host());
    for (std::size_t i = 0; i < chunks.size(); ++i) homes[cell_of[i]] = chunks[i].home;
    homes_ = ChunkHomes::of_list(std::move(homes));
}

Layout::Layout(std::size_t rank, const Box& array, const std::int64_t* chunk_size, ChunkHomes homes)
    : rank_(rank), num_chunks_(1), array_(array), regular_(true), homes_(std::move(homes)) {
    for (std::size_t k = 0; k < rank; ++k) {
        grid_.chunk_size[k] = chunk_size[k];
        grid_.counts[k] = (array.end[k] - 1) / chunk_size[k] + 1;
        num_chunks_ *= static_cast<std::size_t>(grid_.counts[k]);
    }
}

// Regular: every chunk begins at a multiple of the size of the chunk at offset zero and is cut short only at the
// border.
bool Layout::detect_grid(const Box& array, const std::vector<ChunkGeometry>& chunks, Grid& grid,
                         std::vector<std::uint32_t>& cell_of) {
    const auto origin = std::find_if(chunks.begin(), chunks.end(), [](const ChunkGeometry& c) {
        return std::all_of(c.box.begin, c.box.begin + max_rank, [](std::int64_t b) { return b == 0; });
    });
    if (origin == chunks.end()) return false;
    std::size_t cells = 1;
    for (std::size_t k = 0; k < max_rank; ++k) {
        const std::int64_t size = grid.chunk_size[k] = origin->box.end[k];
        if (size < 1 || array.end[k] < 1) return false;
        grid.counts[k] = (array.end[k] - 1) / size + 1;
        if (static_cast<std::size_t>(grid.counts[k]) > chunks.size() / cells) return false;
        cells *= static_cast<std::size_t>(grid.counts[k]);
    }
    if (cells != chunks.size()) return false;
    cell_of.reserve(cells);
    std::vector<bool> seen(cells, false);
    for (const ChunkGeometry& c : chunks) {
        std::size_t index = 0;
        for (std::size_t k = 0; k < max_rank; ++k) {
            const std::int64_t begin = c.box.begin[k], size = grid.chunk_size[k];
            // Divisions are most of the cost: an axis that is not cut has one place to begin.
            const std::int64_t cell = grid.counts[k] == 1 ? 0 : begin / size;
            if (begin < 0 || begin != cell * size) return false;
            if (c.box.end[k] - begin != std::min(size, array.end[k] - begin)) return false;
            index = index * static_cast<std::size_t>(grid.counts[k]) + static_cast<std::size_t>(cell);
        }
        if (seen[index]) return false;
        seen[index] = true;
        cell_of.push_back(static_cast<std::uint32_t>(index));
    }
    return true;
}

Place Layout::locate_in_cell(const Box& region) const noexcept {
    Place place;
    std::size_t index = 0;
    std::int64_t offset = 0, elements = 1;
    for (std::size_t k = 0; k < rank_; ++k) {
        const std::int64_t begin = region.begin[k], end = region.end[k];
        if (begin < 0 || end > array_.end[k]) return {};
        // Divisions are most of the cost of a lookup: axes that are not cut need none.
        std::int64_t first = 0, extent = grid_.chunk_size[k];
        if (grid_.counts[k] != 1) {
            const std::int64_t cell = begin / extent;
            first = cell * extent;
            if (end - first > extent) return {};
            extent = std::min(extent, array_.end[k] - first);
            index = index * static_cast<std::size_t>(grid_.counts[k]) + static_cast<std::size_t>(cell);
        }
        offset = offset * extent + (begin - first);
        elements *= extent;
        place.is_whole = place.is_whole && end - begin == extent;
    }
    place.chunk = index;
    place.offset = static_cast<std::size_t>(offset);
    place.chunk_elements = static_cast<std::size_t>(elements);
    return place;
}

Place Layout::locate_in_list(const Box& region) const noexcept {
    Place place;
    place.chunk = index_.find(region);
    if (place.chunk == none) return place;
    const Box& box = chunks_[place.chunk].box;
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < rank_; ++k) {
        const std::int64_t extent = box.end[k] - box.begin[k];
        offset = offset * extent + (region.begin[k] - box.begin[k]);
        place.is_whole = place.is_whole && region.end[k] - region.begin[k] == extent;
    }
    place.offset = static_cast<std::size_t>(offset);
    place.chunk_elements = static_cast<std::size_t>(boxes::volume(box));
    return place;
}

/// Calls `f(axis, begin, extent)` for each axis of the array, the last one first.
template<typename F> void Layout::each_axis(std::size_t chunk, F&& f) const noexcept {
    if (!regular_) {
        const Box& box = chunks_[chunk].box;
        for (std::size_t k = rank_; k-- > 0;) f(k, box.begin[k], box.end[k] - box.begin[k]);
        return;
    }
    for (std::size_t k = rank_; k-- > 0;) {
        const std::int64_t size = grid_.chunk_size[k];
        if (grid_.counts[k] == 1) {
            f(k, std::int64_t{0}, size);
            continue;
        }
        std::size_t cell = chunk;
        if (k > 0) {  // on the first axis the remainder is the cell itself
            const auto count = static_cast<std::size_t>(grid_.counts[k]);
            cell = chunk % count;
            chunk /= count;
        }
        const std::int64_t begin = static_cast<std::int64_t>(cell) * size;
        f(k, begin, std::min(size, array_.end[k] - begin));
    }
}

Box Layout::box(std::size_t chunk) const noexcept {
    Box box;
    each_axis(chunk, [&](std::size_t k, std::int64_t begin, std::int64_t extent) {
        box.begin[k] = begin;
        box.end[k] = begin + extent;
    });
    return box;
}

std::size_t Layout::num_elements(std::size_t chunk) const noexcept {
    std::int64_t elements = 1;
    each_axis(chunk, [&](std::size_t, std::int64_t, std::int64_t extent) { elements *= extent; });
    return static_cast<std::size_t>(elements);
}

void Layout::set_strides_of_axes(std::size_t chunk, std::int64_t* strides) const noexcept {
    std::int64_t step = 1;
    each_axis(chunk, [&](std::size_t k, std::int64_t, std::int64_t extent) {
        strides[k] = step;
        step *= extent;
    });
}

bool Layout::may_be_read_in_place(const Box& region) const noexcept {
    // A stencil leaves out the border of its array.
    constexpr std::int64_t largest_part_left_out = 16;
    if (!is_stack()) return false;
    Box rows = region;
    for (std::size_t k = 1; k < rank_; ++k) rows.begin[k] = array_.begin[k], rows.end[k] = array_.end[k];
    const std::int64_t of_region = boxes::volume(region, rank_);
    return boxes::volume(rows, rank_) - of_region <= of_region / largest_part_left_out;
}

std::vector<ChunkGeometry> Layout::list() const {
    std::vector<ChunkGeometry> chunks;
    chunks.reserve(num_chunks_);
    for (std::size_t i = 0; i < num_chunks_; ++i) chunks.push_back({home(i), box(i)});
    return chunks;
}

void Layout::find_cells(const Box& region, std::vector<std::size_t>& found) const {
    std::size_t first[max_rank], last[max_rank], cell[max_rank];
    for (std::size_t k = 0; k < rank_; ++k) {
        const std::int64_t begin = std::max<std::int64_t>(region.begin[k], 0);
        const std::int64_t end = std::min(region.end[k], array_.end[k]);
        if (begin >= end) return;
        first[k] = cell[k] = static_cast<std::size_t>(begin / grid_.chunk_size[k]);
        last[k] = static_cast<std::size_t>((end - 1) / grid_.chunk_size[k]);
    }
    for (std::size_t axis = rank_ + 1; axis > 0;) {
        std::size_t index = 0;
        for (std::size_t k = 0; k < rank_; ++k) index = index * static_cast<std::size_t>(grid_.counts[k]) + cell[k];
        found.push_back(index);
        for (axis = rank_; axis > 0; --axis) {
            if (++cell[axis - 1] <= last[axis - 1]) break;
            cell[axis - 1] = first[axis - 1];
        }
    }
}

void Layout::find_all(const Box& region, std::vector<std::size_t>& found) const {
    if (regular_) return find_cells(region, found);
    const auto before = static_cast<std::ptrdiff_t>(found.size());
    // Of a large part of the chunks, going through all of them in order costs less than bringing them in order.
    const std::size_t most = found.size() + chunks_.size() / 16 + few;
    index_.each_that_meets(region, [&](std::size_t chunk) {
        found.push_back(chunk);
        return found.size() < most;
    });
    if (found.size() < most) {
        std::sort(found.begin() + before, found.end());
        return;
    }
    found.resize(static_cast<std::size_t>(before));
    for (std::size_t i = 0; i < chunks_.size(); ++i)
        if (boxes::overlaps(chunks_[i].box, region, rank_)) found.push_back(i);
}

bool Layout::is_stack() const noexcept {
    if (!regular_) return false;
    return std::all_of(grid_.counts + 1, grid_.counts + std::size(grid_.counts),
                       [](std::int64_t count) { return count == 1; });
}

std::string Layout::chunks_text() const {
    if (!regular_) return driver::count_text(chunks_.size(), "chunk");
    return driver::format("chunks of {}", detail::list_text(grid_.chunk_size, rank_));
}

bool Layout::find_gap(const Box& array, const std::vector<ChunkGeometry>& chunks, Box* gap) {
    Positions inside(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) inside[i] = i;
    if (covered_elements(array, chunks, inside) >= boxes::volume(array)) return false;
    Box part = array;
    constexpr std::size_t most = 4 * few;
    while (inside.size() > most && narrow(chunks, part, inside)) {}
    // What none of these few covers.
    std::vector<Box> open{part};
    for (const std::size_t i : inside) {
        std::vector<Box> next;
        for (const Box& b : open) {
            if (boxes::overlaps(b, chunks[i].box))
                boxes::subtract(b, chunks[i].box, [&](const Box& piece) { next.push_back(piece); });
            else
                next.push_back(b);
        }
        open = std::move(next);
    }
    if (open.empty()) return false;
    *gap = open.front();
    return true;
}

bool Layout::find_overlap(const std::vector<ChunkGeometry>& chunks, std::size_t* first, std::size_t* second) {
    if (chunks.size() > few) {
        Grid grid;
        std::vector<std::uint32_t> cell_of;
        if (detect_grid(hull_from_zero(chunks), chunks, grid, cell_of)) return false;
        return index_of(rank_of(chunks), chunks).find_overlap(first, second);
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        for (std::size_t j = i + 1; j < chunks.size(); ++j) {
            if (!boxes::overlaps(chunks[i].box, chunks[j].box)) continue;
            *first = i;
            *second = j;
            return true;
        }
    }
    return false;
}

}  // namespace kmm::plan
