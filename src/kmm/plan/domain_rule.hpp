// A domain as a formula: where each chunk is and whose it is, and which chunks an owner has, without a list of them.
//
// Owns: the geometry of TileDomain, BlockDomain and CyclicDomain. Must not know: arrays, resources. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kmm::plan {

inline constexpr std::size_t domain_rank = 3;

/// A half-open interval.
struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    bool is_empty() const noexcept { return begin >= end; }
    std::int64_t size() const noexcept { return end - begin; }
    bool overlaps(const Interval& that) const noexcept { return begin < that.end && that.begin < end; }
    friend bool operator==(const Interval&, const Interval&) = default;
};

/// Indices of a domain, or positions of tiles in their grid.
struct DomainBox {
    Interval axes[domain_rank];
    friend bool operator==(const DomainBox&, const DomainBox&) = default;
};

/// Tiles from index 0 on, the first axis fastest, the last of each axis cut short, dealt to owners 0, 1, ..
class DomainRule {
  public:
    /// No chunks.
    DomainRule() noexcept = default;
    /// Tile i belongs to owner (i / run) mod `num_owners`. Sizes of at least 0, all else of at least 1.
    static DomainRule cyclic(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank],
                             std::size_t run, std::size_t num_owners) noexcept;
    /// Tile i of n belongs to owner floor(i * num_owners / n).
    static DomainRule blocks(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank],
                             std::size_t num_owners) noexcept;
    /// One block for each owner along the last axis that is longer than 1. Lengths differ by 1 at most, larger first;
    /// of a shorter axis the last owners get none.
    static DomainRule slabs(const std::int64_t (&size)[domain_rank], std::size_t num_owners) noexcept;

    std::size_t num_owners() const noexcept { return num_owners_; }
    std::size_t num_chunks() const noexcept { return num_chunks_; }
    /// Tiles along an axis.
    std::int64_t num_tiles(std::size_t axis) const noexcept { return counts_[axis]; }
    /// The indices of the tile at this place along an axis.
    Interval tile(std::size_t axis, std::int64_t place) const noexcept;
    /// The place of a chunk in the grid of tiles, and the number of the chunk at a place.
    void place_of(std::size_t chunk, std::int64_t (&place)[domain_rank]) const noexcept;
    std::size_t chunk_at(const std::int64_t (&place)[domain_rank]) const noexcept;
    DomainBox chunk(std::size_t number) const noexcept;
    std::size_t owner(std::size_t chunk) const noexcept;

    /// Chunks of the owners from `first` up to `end`, in the order of their numbers: how many, and the n-th. O(1).
    std::size_t num_chunks_of(std::size_t first, std::size_t end) const noexcept;
    std::size_t chunk_of(std::size_t first, std::size_t end, std::size_t n) const noexcept;

    friend bool operator==(const DomainRule&, const DomainRule&) = default;

  private:
    enum class Deal : std::uint8_t { cyclic, blocks };

    void make_tiles(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank]) noexcept;
    /// Of blocks: the first chunk of an owner.
    std::size_t first_of(std::size_t owner) const noexcept;

    std::int64_t size_[domain_rank] = {};
    std::int64_t tile_[domain_rank] = {1, 1, 1};
    std::int64_t counts_[domain_rank] = {};
    /// Of slabs: along `long_axis_`, `num_longer_` tiles are longer by 1 than `tile_`.
    std::size_t long_axis_ = 0;
    std::int64_t num_longer_ = 0;
    std::size_t num_chunks_ = 0;
    std::size_t num_owners_ = 1;
    std::size_t run_ = 1;
    Deal deal_ = Deal::cyclic;
};

}  // namespace kmm::plan
