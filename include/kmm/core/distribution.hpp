// Which piece of an array lives in which memory. An immutable value, cheap to copy; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "kmm/api/mapper.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm {

class SystemInfo;

namespace plan {
class ChunkHomes;
class Layout;
}  // namespace plan
namespace detail {
struct DistributionLayout;
}  // namespace detail

/// One piece of an array, and its home.
template<std::size_t N>
struct ArrayChunk {
    MemoryId owner_id = MemoryId::host();
    Point<N> offset;
    Dim<N> size;
};

template<std::size_t N>
bool operator==(const ArrayChunk<N>& a, const ArrayChunk<N>& b) {
    return a.owner_id == b.owner_id && a.offset == b.offset && a.size == b.size;
}
template<std::size_t N>
bool operator!=(const ArrayChunk<N>& a, const ArrayChunk<N>& b) {
    return !(a == b);
}

/// Disjoint chunks that cover an array. All errors are InvalidArgument and name the offending region or number. Regular
/// distributions answer in constant time, others in a time that grows with the logarithm of the number of chunks, as
/// long as few of them lie across one line; `chunks_in` takes the time of what it returns besides. Regular
/// distributions are formulas, that take the same memory for any number of chunks: 2 bytes a chunk more only where a
/// list of memories is given that follows no rule. Others are a list, as their arrays are.
template<std::size_t N>
class Distribution {
    static_assert(N <= 8, "arrays have at most 8 axes");

  public:
    /// Of an empty array; of rank 0: one chunk at the host.
    Distribution();
    /// A regular grid from offset zero, the last chunks cut short, numbered row-major (last axis fastest), with one
    /// memory for each chunk.
    Distribution(const Dim<N>& array_size, const Dim<N>& chunk_size, const std::vector<MemoryId>& memories);

    /// Any disjoint exact cover, in any order. A regular cover is renumbered row-major, others keep the order of the
    /// list; chunks without elements are left out. `allow_duplicates`: identical chunks count once, at the host if
    /// their memories differ.
    static Distribution from_chunks(const Dim<N>& array_size, std::vector<ArrayChunk<N>> chunks,
                                    bool allow_duplicates = false);
    /// A regular grid dealt round robin to the devices of `info` (the host if there is none).
    static Distribution tiles(const Dim<N>& array_size, const Dim<N>& chunk_size, const SystemInfo& info);
    /// One block for each device, at most as many as the axis is long, lengths differing by at most 1, larger first.
    /// Rank 0 has one chunk.
    static Distribution blocks(const Dim<N>& array_size, const SystemInfo& info, std::size_t axis = 0);
    /// A regular grid of which chunk i goes to device (i / run) mod D.
    static Distribution cyclic(const Dim<N>& array_size, const Dim<N>& chunk_size, std::size_t run,
                               const SystemInfo& info);
    static Distribution single(const Dim<N>& array_size, MemoryId memory = MemoryId::host());

    ArrayChunk<N> chunk(std::size_t index) const;
    std::size_t num_chunks() const noexcept;
    const Dim<N>& array_size() const noexcept;
    /// Size of the chunk at offset zero; zero if there is none.
    const Dim<N>& chunk_size() const noexcept;
    /// Whether the chunks form a grid of equal boxes, the last ones cut short.
    bool is_regular() const noexcept;
    /// Numbers of the chunks that have elements in `region`, ascending.
    std::vector<std::size_t> chunks_in(const Bounds<N>& region) const;
    /// The one chunk that contains `region`.
    std::size_t region_to_chunk_index(const Bounds<N>& region) const;

  private:
    struct Data;
    explicit Distribution(std::shared_ptr<const Data> data) noexcept;
    static Distribution grid(const Dim<N>& array_size, const Dim<N>& chunk_size, plan::ChunkHomes homes);
    friend struct detail::DistributionLayout;
    static Distribution of_layout(std::shared_ptr<const plan::Layout> layout);
    std::shared_ptr<const plan::Layout> layout() const noexcept;

    std::shared_ptr<const Data> data_;
};

extern template class Distribution<0>;
extern template class Distribution<1>;
extern template class Distribution<2>;
extern template class Distribution<3>;
extern template class Distribution<4>;
extern template class Distribution<5>;
extern template class Distribution<6>;
extern template class Distribution<7>;
extern template class Distribution<8>;

namespace detail {

/// What a distribution and the arrays that have it share. O(1).
struct DistributionLayout {
    template<std::size_t N>
    static std::shared_ptr<const plan::Layout> of(const Distribution<N>& distribution) noexcept {
        return distribution.layout();
    }
    /// A layout of an array of N axes.
    template<std::size_t N>
    static Distribution<N> distribution(std::shared_ptr<const plan::Layout> layout) {
        return Distribution<N>::of_layout(static_cast<std::shared_ptr<const plan::Layout>&&>(layout));
    }
};

}  // namespace detail

/// The distribution whose chunks are the regions that `mapper` gives for the chunks of `domain`, clipped to the array,
/// each at the memory of its owner. They must cover the array exactly.
template<std::size_t N, typename M>
Distribution<N> map_domain_to_distribution(const Dim<N>& array_size, const Domain& domain, const M& mapper,
                                           bool allow_duplicates = false) {
    std::vector<ArrayChunk<N>> chunks;
    chunks.reserve(domain.chunks.size());
    for (const DomainChunk& chunk : domain.chunks) {
        const Bounds<N> region = detail::evaluate_access<N>(mapper, chunk, Bounds<N>(array_size));
        chunks.push_back({chunk.owner_id.as_memory(), region.begin(), region.size()});
    }
    return Distribution<N>::from_chunks(array_size, static_cast<std::vector<ArrayChunk<N>>&&>(chunks),
                                        allow_duplicates);
}

}  // namespace kmm
