// Distributions of all ranks: checking covers, numbering chunks, finding them. Immutable; any thread.
#include "kmm/core/distribution.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/error.hpp"
#include "kmm/plan/layout.hpp"
#include "kmm/utils/integer_fun.hpp"

namespace kmm {

/// The layout is what arrays share that have this distribution.
template<std::size_t N>
struct Distribution<N>::Data {
    Dim<N> array_size = Dim<N>::zero();
    Dim<N> chunk_size = Dim<N>::zero();
    std::shared_ptr<const plan::Layout> layout;
};

namespace {

using Index = default_index_type;

template<std::size_t N>
Bounds<N> box_of(const ArrayChunk<N>& chunk) {
    return Bounds<N>::from_offset_size(chunk.offset, chunk.size);
}

template<std::size_t N>
void check_array_size(const Dim<N>& size) {
    for (std::size_t i = 0; i < N; i++) {
        if (size[i] < 0) {
            throw InvalidArgument(driver::format(
                "distribution of an array of negative size {}: use sizes of at least 0", detail::text_of(size)));
        }
    }
    Index elements = 1;
    for (std::size_t i = 0; i < N && !size.is_empty(); i++) {
        if (detail::mul_overflows(elements, Index(size[i]), elements)) {
            throw InvalidArgument(driver::format(
                "distribution of an array of size {}: it has more elements than 63 bits can count; use smaller sizes",
                detail::text_of(size)));
        }
    }
}

// Number of chunks along each axis; all zero if the array is empty.
template<std::size_t N>
Dim<N> grid_counts(const Dim<N>& array_size, const Dim<N>& chunk_size) {
    if (array_size.is_empty()) return Dim<N>::zero();
    Dim<N> counts;
    for (std::size_t i = 0; i < N; i++) {
        if (chunk_size[i] < 1) {
            throw InvalidArgument(
                driver::format("distribution with chunks of size {}: use chunks of at least 1 along every axis",
                               detail::text_of(chunk_size)));
        }
        counts[i] = div_ceil(array_size[i], chunk_size[i]);
    }
    return counts;
}

// Chunks that are the same box become one; their home is the host if they disagree.
template<std::size_t N>
std::vector<ArrayChunk<N>> merge_duplicates(const std::vector<ArrayChunk<N>>& chunks) {
    std::vector<ArrayChunk<N>> result;
    std::unordered_map<Bounds<N>, std::size_t> known;
    for (const ArrayChunk<N>& chunk : chunks) {
        const auto [at, is_new] = known.emplace(box_of(chunk), result.size());
        if (is_new) {
            result.push_back(chunk);
        } else if (result[at->second].owner_id != chunk.owner_id) {
            result[at->second].owner_id = MemoryId::host();
        }
    }
    return result;
}

template<std::size_t N>
std::string chunk_text(std::size_t number, const Bounds<N>& box) {
    return driver::format("chunk {} {}", number, detail::text_of(box));
}

template<std::size_t N>
Bounds<N> bounds_of(const detail::Box& box) {
    Bounds<N> bounds;
    for (std::size_t i = 0; i < N; i++) bounds[i] = Range<Index>(box.begin[i], box.end[i]);
    return bounds;
}

template<std::size_t N>
std::vector<detail::ChunkGeometry> geometry_of(const std::vector<ArrayChunk<N>>& chunks) {
    std::vector<detail::ChunkGeometry> result;
    result.reserve(chunks.size());
    for (const ArrayChunk<N>& chunk : chunks) result.push_back({chunk.owner_id, detail::to_box(box_of(chunk))});
    return result;
}

template<std::size_t N>
void check_inside(const Dim<N>& array_size, const std::vector<ArrayChunk<N>>& chunks) {
    const Bounds<N> whole(array_size);
    for (std::size_t i = 0; i < chunks.size(); i++) {
        if (!whole.contains(box_of(chunks[i]))) {
            throw InvalidArgument(driver::format("distribution: {} is not inside the array of size {}",
                                                 chunk_text(i, box_of(chunks[i])), detail::text_of(array_size)));
        }
    }
}

// Of chunks inside the array that form no grid, so that the layout has their order.
template<std::size_t N>
void check_cover(const plan::Layout& layout) {
    const auto box = [&](std::size_t i) { return bounds_of<N>(layout.box(i)); };
    std::size_t i = 0;
    std::size_t j = 0;
    if (layout.find_overlap(&i, &j)) {
        throw InvalidArgument(driver::format("distribution: {} and {} overlap at {}: chunks must be disjoint",
                                             chunk_text(i, box(i)), chunk_text(j, box(j)),
                                             detail::text_of(box(i).intersection(box(j)))));
    }
    detail::Box gap;
    if (layout.find_gap(&gap)) {
        throw InvalidArgument(driver::format(
            "distribution of an array of size {}: no chunk contains the region {}: chunks must cover the array",
            detail::text_of(bounds_of<N>(layout.array()).size()), detail::text_of(bounds_of<N>(gap))));
    }
}

// Those of the resources of `info`, in their order; the host if there is none.
std::vector<MemoryId> memories_of(const SystemInfo& info) {
    std::vector<MemoryId> memories;
    for (const ResourceId resource : info.resources()) memories.push_back(resource.as_memory());
    if (memories.empty()) memories.push_back(MemoryId::host());
    return memories;
}

}  // namespace

/// Regular.
template<std::size_t N>
Distribution<N> Distribution<N>::grid(const Dim<N>& array_size, const Dim<N>& chunk_size, plan::ChunkHomes homes) {
    const detail::Box array = detail::to_box(Bounds<N>(array_size));
    if (array_size.is_empty())
        return of_layout(std::make_shared<plan::Layout>(N, array, std::vector<detail::ChunkGeometry>()));
    std::int64_t size[detail::max_rank];
    for (std::size_t i = 0; i < N; i++) size[i] = std::min(array_size[i], chunk_size[i]);
    return of_layout(std::make_shared<plan::Layout>(N, array, size, std::move(homes)));
}

template<std::size_t N>
Distribution<N> Distribution<N>::of_layout(std::shared_ptr<const plan::Layout> layout) {
    auto data = std::make_shared<Data>();
    data->array_size = bounds_of<N>(layout->array()).size();
    // Chunks that cover an array have one at its origin.
    detail::Box origin;
    const std::size_t first = layout->num_chunks() == 0 ? plan::Layout::none : layout->find(origin);
    if (first != plan::Layout::none) data->chunk_size = bounds_of<N>(layout->box(first)).size();
    data->layout = std::move(layout);
    return Distribution(std::move(data));
}

template<std::size_t N>
std::shared_ptr<const plan::Layout> Distribution<N>::layout() const noexcept {
    return data_->layout;
}

template<std::size_t N>
Distribution<N>::Distribution(std::shared_ptr<const Data> data) noexcept : data_(std::move(data)) {}

template<std::size_t N>
Distribution<N>::Distribution() : Distribution(single(Dim<N>::zero())) {}

template<std::size_t N>
Distribution<N>::Distribution(const Dim<N>& array_size, const Dim<N>& chunk_size,
                              const std::vector<MemoryId>& memories) {
    check_array_size(array_size);
    const Index count = grid_counts(array_size, chunk_size).volume();
    if (count != static_cast<Index>(memories.size())) {
        throw InvalidArgument(driver::format("distribution of an array of size {} in chunks of size {} has {} chunks, "
                                             "but {} memories are given: give one for each chunk",
                                             detail::text_of(array_size), detail::text_of(chunk_size), count,
                                             memories.size()));
    }
    *this = grid(array_size, chunk_size, plan::ChunkHomes::of_list(memories));
}

template<std::size_t N>
Distribution<N> Distribution<N>::from_chunks(const Dim<N>& array_size, std::vector<ArrayChunk<N>> chunks,
                                             bool allow_duplicates) {
    check_array_size(array_size);
    for (std::size_t i = 0; i < chunks.size(); i++) {
        for (std::size_t axis = 0; axis < N; axis++) {
            if (chunks[i].size[axis] < 0) {
                throw InvalidArgument(driver::format("distribution: chunk {} has the negative size {}", i,
                                                     detail::text_of(chunks[i].size)));
            }
            Index end = 0;
            if (detail::add_overflows(Index(chunks[i].offset[axis]), Index(chunks[i].size[axis]), end)) {
                throw InvalidArgument(
                    driver::format("distribution: chunk {} with offset {} and size {} ends beyond 64 bits", i,
                                   detail::text_of(chunks[i].offset), detail::text_of(chunks[i].size)));
            }
        }
    }
    chunks.erase(std::remove_if(chunks.begin(), chunks.end(), [](const ArrayChunk<N>& c) { return c.size.is_empty(); }),
                 chunks.end());
    if (allow_duplicates) chunks = merge_duplicates(chunks);
    auto layout = std::make_shared<plan::Layout>(N, detail::to_box(Bounds<N>(array_size)), geometry_of(chunks));
    if (!layout->is_grid()) {
        check_inside(array_size, chunks);
        check_cover<N>(*layout);
    }
    return of_layout(std::move(layout));
}

template<std::size_t N>
Distribution<N> Distribution<N>::cyclic(const Dim<N>& array_size, const Dim<N>& chunk_size, std::size_t run,
                                        const SystemInfo& info) {
    check_array_size(array_size);
    if (run < 1) throw InvalidArgument("distribution: a run of 0 chunks: use at least 1");
    // More chunks than this never fit memory.
    constexpr Index most = 1'000'000'000;
    const Index chunks = grid_counts(array_size, chunk_size).volume();
    if (chunks > most) {
        throw InvalidArgument(driver::format("distribution of an array of size {} in chunks of size {} has {} chunks: "
                                             "use larger ones, so that there are at most {}",
                                             detail::text_of(array_size), detail::text_of(chunk_size), chunks, most));
    }
    return grid(array_size, chunk_size, plan::ChunkHomes::dealt(memories_of(info), run));
}

template<std::size_t N>
Distribution<N> Distribution<N>::tiles(const Dim<N>& array_size, const Dim<N>& chunk_size, const SystemInfo& info) {
    return cyclic(array_size, chunk_size, 1, info);
}

template<std::size_t N>
Distribution<N> Distribution<N>::single(const Dim<N>& array_size, MemoryId memory) {
    check_array_size(array_size);
    return grid(array_size, array_size, plan::ChunkHomes::dealt({memory}));
}

template<std::size_t N>
Distribution<N> Distribution<N>::blocks(const Dim<N>& array_size, const SystemInfo& info, std::size_t axis) {
    check_array_size(array_size);
    if constexpr (N == 0) {
        (void)axis;
        return single(array_size, memories_of(info).front());
    } else {
        if (axis >= N) {
            throw InvalidArgument(driver::format(
                "distribution in blocks along axis {}: the array has {} axes, numbered from 0", axis, N));
        }
        if (array_size.is_empty()) return single(array_size);
        const std::vector<MemoryId> memories = memories_of(info);
        const Index count = std::min(array_size[axis], static_cast<Index>(memories.size()));
        std::vector<ArrayChunk<N>> chunks;
        Point<N> offset;
        for (Index i = 0; i < count; i++) {
            Dim<N> size = array_size;
            size[axis] = array_size[axis] / count + (i < array_size[axis] % count ? 1 : 0);
            chunks.push_back({memories[static_cast<std::size_t>(i)], offset, size});
            offset[axis] += size[axis];
        }
        return from_chunks(array_size, std::move(chunks));
    }
}

template<std::size_t N>
ArrayChunk<N> Distribution<N>::chunk(std::size_t index) const {
    if (index >= num_chunks()) {
        throw InvalidArgument(driver::format("distribution: there is no chunk {}: it has {} chunks, numbered from 0",
                                             index, num_chunks()));
    }
    const Bounds<N> box = bounds_of<N>(data_->layout->box(index));
    return {data_->layout->home(index), box.begin(), box.size()};
}

template<std::size_t N>
std::size_t Distribution<N>::num_chunks() const noexcept {
    return data_->layout->num_chunks();
}

template<std::size_t N>
const Dim<N>& Distribution<N>::array_size() const noexcept {
    return data_->array_size;
}

template<std::size_t N>
const Dim<N>& Distribution<N>::chunk_size() const noexcept {
    return data_->chunk_size;
}

template<std::size_t N>
bool Distribution<N>::is_regular() const noexcept {
    return data_->layout->is_grid() || num_chunks() == 0;
}

template<std::size_t N>
std::vector<std::size_t> Distribution<N>::chunks_in(const Bounds<N>& region) const {
    std::vector<std::size_t> result;
    const Bounds<N> inside = region.intersection(Bounds<N>(data_->array_size));
    if (inside.is_empty()) return result;
    data_->layout->find_all(detail::to_box(inside), result);
    return result;
}

template<std::size_t N>
std::size_t Distribution<N>::region_to_chunk_index(const Bounds<N>& region) const {
    if (num_chunks() > 0) {
        // An empty region lies in the chunk around its begin.
        Bounds<N> probe = region;
        for (std::size_t i = 0; i < N && region.is_empty(); i++) {
            const Index begin = std::clamp<Index>(region[i].begin, 0, data_->array_size[i] - 1);
            probe[i] = Range<Index>(begin, begin + 1);
        }
        const std::vector<std::size_t> hits = chunks_in(probe);
        if (hits.size() == 1 && box_of(chunk(hits[0])).contains(region)) return hits[0];
    }
    throw InvalidArgument(driver::format("distribution: no single chunk contains the region {} of the array of size {}",
                                         detail::text_of(region), detail::text_of(data_->array_size)));
}

template class Distribution<0>;
template class Distribution<1>;
template class Distribution<2>;
template class Distribution<3>;
template class Distribution<4>;
template class Distribution<5>;
template class Distribution<6>;
template class Distribution<7>;
template class Distribution<8>;

}  // namespace kmm
