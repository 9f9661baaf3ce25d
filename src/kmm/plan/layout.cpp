#include "kmm/plan/layout.hpp"

#include <algorithm>
#include <numeric>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"

namespace kmm::plan {

namespace {

/// The axis on which the chunks are cut finest: swept along it, few of them are open at a time.
std::size_t finest_axis(const std::vector<ChunkGeometry>& chunks) {
    std::size_t axis = 0, most = 0;
    for (std::size_t k = 0; k < max_rank; ++k) {
        std::vector<std::int64_t> begins;
        begins.reserve(chunks.size());
        for (const ChunkGeometry& c : chunks) begins.push_back(c.box.begin[k]);
        std::sort(begins.begin(), begins.end());
        const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
        if (distinct > most) most = distinct, axis = k;
    }
    return axis;
}

/// Positions of the chunks, by where they begin on the axis, then by position.
std::vector<std::size_t> order_along(std::size_t axis, const std::vector<ChunkGeometry>& chunks) {
    std::vector<std::size_t> order(chunks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return chunks[a].box.begin[axis] < chunks[b].box.begin[axis];
    });
    return order;
}

}  // namespace

Layout::Layout(std::size_t rank, const Box& array, std::vector<ChunkGeometry> chunks)
    : rank_(rank), array_(array), chunks_(std::move(chunks)) {
    regular_ = detect_grid();
}

// Regular: every chunk begins at a multiple of the size of the chunk at offset zero and is cut short only at the
// border.
bool Layout::detect_grid() {
    if (chunks_.empty()) return false;
    const ChunkGeometry* origin = nullptr;
    for (const ChunkGeometry& c : chunks_)
        if (std::all_of(c.box.begin, c.box.begin + max_rank, [](std::int64_t b) { return b == 0; })) origin = &c;
    if (origin == nullptr) return false;
    std::size_t cells = 1;
    for (std::size_t k = 0; k < max_rank; ++k) {
        chunk_size_[k] = origin->box.end[k];
        if (chunk_size_[k] < 1) return false;
        if (array_.end[k] < 1) return false;
        grid_[k] = (array_.end[k] - 1) / chunk_size_[k] + 1;
        if (static_cast<std::size_t>(grid_[k]) > chunks_.size() / cells) return false;
        cells *= static_cast<std::size_t>(grid_[k]);
    }
    if (cells != chunks_.size()) return false;
    std::vector<ChunkGeometry> sorted(chunks_.size());
    std::vector<bool> seen(chunks_.size(), false);
    for (const ChunkGeometry& c : chunks_) {
        std::size_t index = 0;
        for (std::size_t k = 0; k < max_rank; ++k) {
            if (c.box.begin[k] < 0 || c.box.begin[k] % chunk_size_[k] != 0) return false;
            if (c.box.end[k] - c.box.begin[k] != std::min(chunk_size_[k], array_.end[k] - c.box.begin[k])) return false;
            index =
                index * static_cast<std::size_t>(grid_[k]) + static_cast<std::size_t>(c.box.begin[k] / chunk_size_[k]);
        }
        if (seen[index]) return false;
        seen[index] = true;
        sorted[index] = c;
    }
    chunks_ = std::move(sorted);
    return true;
}

std::size_t Layout::find(const Box& region) const noexcept {
    if (regular_) {
        std::size_t index = 0;
        // Divisions are most of the cost of a lookup: axes that are not cut, and those beyond the rank, need none.
        for (std::size_t k = 0; k < rank_; ++k) {
            if (region.begin[k] < 0 || region.end[k] > array_.end[k]) return none;
            if (grid_[k] == 1) continue;
            const std::int64_t cell = region.begin[k] / chunk_size_[k];
            if (region.end[k] - cell * chunk_size_[k] > chunk_size_[k]) return none;
            index = index * static_cast<std::size_t>(grid_[k]) + static_cast<std::size_t>(cell);
        }
        return index;
    }
    for (std::size_t i = 0; i < chunks_.size(); ++i)
        if (graph::contains(chunks_[i].box, region)) return i;
    return none;
}

std::string Layout::chunks_text() const {
    if (!regular_) return driver::count_text(chunks_.size(), "chunk");
    return driver::format("chunks of {}", detail::list_text(chunk_size_, rank_));
}

bool Layout::find_gap(const Box& array, const std::vector<ChunkGeometry>& chunks, Box* gap) {
    std::int64_t covered = 0;
    for (const ChunkGeometry& c : chunks) covered += graph::volume(graph::intersection(c.box, array));
    if (covered >= graph::volume(array)) return false;  // exact for disjoint chunks, which is checked apart
    // What no chunk so far covers; in order along an axis the chunks leave few such boxes.
    std::vector<Box> open{array};
    for (const std::size_t i : order_along(finest_axis(chunks), chunks)) {
        std::vector<Box> next;
        for (const Box& b : open) {
            if (graph::overlaps(b, chunks[i].box))
                graph::subtract(b, chunks[i].box, [&](const Box& piece) { next.push_back(piece); });
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
    const std::size_t axis = finest_axis(chunks);
    std::vector<std::size_t> open;
    for (const std::size_t i : order_along(axis, chunks)) {
        std::size_t kept = 0;
        for (const std::size_t j : open) {
            if (chunks[j].box.end[axis] <= chunks[i].box.begin[axis]) continue;
            open[kept++] = j;
            if (graph::overlaps(chunks[i].box, chunks[j].box)) {
                *first = std::min(i, j);
                *second = std::max(i, j);
                return true;
            }
        }
        open.resize(kept);
        open.push_back(i);
    }
    return false;
}

}  // namespace kmm::plan
