// The index space of one submit, cut into the chunks that become its tasks. Plain values; `IntoDomain` runs on the
// submitting thread.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "kmm/core/identifiers.hpp"
#include "kmm/detail/panic.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm {

class SystemInfo;

/// Domains have the axes x, y, z.
inline constexpr std::size_t DOMAIN_DIMS = 3;

namespace detail {

template<typename... Us>
using enable_domain_values_t = std::enable_if_t<(sizeof...(Us) > 0) && sizeof...(Us) <= DOMAIN_DIMS &&
                                                (is_element_v<default_index_type, Us> && ...)>;

}  // namespace detail

/// A position in a domain: 0 to 3 numbers or a Point of rank 0..3; missing axes are 0.
struct DomainPoint : Point<DOMAIN_DIMS> {
    constexpr DomainPoint() = default;
    template<typename... Us, typename = detail::enable_domain_values_t<Us...>>
    KMM_HOST_DEVICE constexpr DomainPoint(const Us&... values) : DomainPoint(Point<sizeof...(Us)>(values...)) {}
    template<std::size_t N, typename T, typename = std::enable_if_t<N <= DOMAIN_DIMS>>
    KMM_HOST_DEVICE constexpr DomainPoint(const Point<N, T>& that)
        : Point<DOMAIN_DIMS>(Point<DOMAIN_DIMS>::from(that)) {}
};

/// The size of a domain: 0 to 3 numbers or a Dim of rank 0..3; missing axes are 1.
struct DomainDim : Dim<DOMAIN_DIMS> {
    constexpr DomainDim() = default;
    template<typename... Us, typename = detail::enable_domain_values_t<Us...>>
    KMM_HOST_DEVICE constexpr DomainDim(const Us&... values) : DomainDim(Dim<sizeof...(Us)>(values...)) {}
    template<std::size_t N, typename T, typename = std::enable_if_t<N <= DOMAIN_DIMS>>
    KMM_HOST_DEVICE constexpr DomainDim(const Dim<N, T>& that) : Dim<DOMAIN_DIMS>(Dim<DOMAIN_DIMS>::from(that)) {}
};

/// A box of a domain: 0 to 3 ranges (or numbers n for [0, n)), or Bounds of rank 0..3; missing axes are [0, 1).
struct DomainBounds : Bounds<DOMAIN_DIMS> {
    KMM_HOST_DEVICE constexpr DomainBounds() : Bounds<DOMAIN_DIMS>(Bounds<DOMAIN_DIMS>::one()) {}
    template<typename... Rs, typename = std::enable_if_t<(sizeof...(Rs) > 0) && sizeof...(Rs) <= DOMAIN_DIMS &&
                                                         (std::is_convertible<Rs, Range<>>::value && ...)>>
    KMM_HOST_DEVICE constexpr DomainBounds(const Rs&... ranges) : DomainBounds(Bounds<sizeof...(Rs)>(ranges...)) {}
    template<std::size_t N, typename T, typename = std::enable_if_t<N <= DOMAIN_DIMS>>
    KMM_HOST_DEVICE constexpr DomainBounds(const Bounds<N, T>& that)
        : Bounds<DOMAIN_DIMS>(Bounds<DOMAIN_DIMS>::from(that)) {}
    /// [0, size) on every axis.
    template<std::size_t N, typename T, typename = std::enable_if_t<N <= DOMAIN_DIMS>>
    KMM_HOST_DEVICE constexpr DomainBounds(const Dim<N, T>& size) : DomainBounds(Bounds<N, T>(size)) {}
    KMM_HOST_DEVICE constexpr DomainBounds(const DomainPoint& offset, const DomainDim& size)
        : Bounds<DOMAIN_DIMS>(Bounds<DOMAIN_DIMS>::from_offset_size(offset, size)) {}
};

/// One task of a submit: the indices [offset, offset + size), and who runs them.
struct DomainChunk {
    ResourceId owner_id;
    DomainPoint offset;
    DomainDim size;
};

/// Chunks in the order of their numbers. They may overlap and need not cover anything.
struct Domain {
    std::vector<DomainChunk> chunks;
};

/// A grid of tiles from offset 0, x fastest, the last of each axis cut short; tile i goes to resource i mod R.
struct TileDomain {
    DomainDim size;
    DomainDim tile;
    TileDomain(DomainDim size_, DomainDim tile_) : size(size_), tile(tile_) {}
    /// The chunks of a submit to `space`: see IntoDomain.
    Domain operator()(const SystemInfo& info, ExecutionSpace space) const;
};

/// One block for each resource along the last axis that is larger than 1, lengths differing by at most 1, larger first.
/// With `tiles(t)`: the grid of TileDomain, of which tile i of n goes to resource floor(i * R / n).
struct BlockDomain {
    DomainDim size;
    DomainDim tile;
    bool has_tiles = false;
    explicit BlockDomain(DomainDim size_) : size(size_) {}
    BlockDomain tiles(DomainDim tile_) const {
        BlockDomain result = *this;
        result.tile = tile_;
        result.has_tiles = true;
        return result;
    }
};

/// The grid of TileDomain, of which tile i goes to resource (i / run) mod R.
struct CyclicDomain {
    DomainDim size;
    DomainDim tile;
    std::size_t run;
    CyclicDomain(DomainDim size_, DomainDim tile_, std::size_t run_ = 1) : size(size_), tile(tile_), run(run_) {}
};

/// The grid of TileDomain, of which each tile goes to the device that wrote most of its region last. See `follow`.
template<typename Access>
struct LocalityDomain {
    DomainDim size;
    DomainDim tile;
    Access access;
};

/// One chunk for each chunk of an array. See `chunks_of`.
template<typename A>
struct ChunkDomain {
    A array;
    std::vector<std::size_t> axes;
};

/// Tiles that go where the data `access` (such as `A[_x]`) is. Submitting it throws NotAvailable in this version.
template<typename Access>
LocalityDomain<Access> follow(DomainDim size, DomainDim tile, Access access) {
    return {size, tile, access};
}

/// One chunk for each chunk of `array`; array axis k lies on domain axis `axes[k]`. Submitting it throws NotAvailable
/// in this version.
template<typename A, typename... Axes>
ChunkDomain<A> chunks_of(const A& array, Axes... axes) {
    return {array, {axes.get()...}};
}

/// How something becomes the domain of a submit. Specialise it for own kinds that do not convert to Domain: `call` runs
/// on the submitting thread, and what it throws leaves `parallel_submit` unchanged. The library's kinds throw
/// InvalidArgument (negative size, tile below 1) and InvalidResourceException (no resource to give a chunk to).
template<typename P, typename = void>
struct IntoDomain;

namespace detail {

Domain tile_domain(const TileDomain& that, const SystemInfo& info, ExecutionSpace space);
Domain block_domain(const BlockDomain& that, const SystemInfo& info, ExecutionSpace space);
Domain cyclic_domain(const CyclicDomain& that, const SystemInfo& info, ExecutionSpace space);
Domain explicit_domain(Domain that, const SystemInfo& info, ExecutionSpace space);

}  // namespace detail

template<>
struct IntoDomain<TileDomain> {
    static Domain call(const TileDomain& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::tile_domain(that, info, space);
    }
};
inline Domain TileDomain::operator()(const SystemInfo& info, ExecutionSpace space) const {
    return IntoDomain<TileDomain>::call(*this, info, space);
}
template<>
struct IntoDomain<BlockDomain> {
    static Domain call(const BlockDomain& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::block_domain(that, info, space);
    }
};
template<>
struct IntoDomain<CyclicDomain> {
    static Domain call(const CyclicDomain& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::cyclic_domain(that, info, space);
    }
};
template<>
struct IntoDomain<DomainDim> {
    static Domain call(const DomainDim& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::block_domain(BlockDomain(that), info, space);
    }
};
template<std::size_t N, typename T>
struct IntoDomain<Dim<N, T>> {
    static Domain call(const Dim<N, T>& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::block_domain(BlockDomain(DomainDim(that)), info, space);
    }
};
template<>
struct IntoDomain<Domain> {
    static Domain call(Domain that, const SystemInfo& info, ExecutionSpace space) {
        return detail::explicit_domain(static_cast<Domain&&>(that), info, space);
    }
};
template<>
struct IntoDomain<std::vector<DomainChunk>> {
    static Domain call(std::vector<DomainChunk> that, const SystemInfo& info, ExecutionSpace space) {
        return detail::explicit_domain(Domain{static_cast<std::vector<DomainChunk>&&>(that)}, info, space);
    }
};
/// A type of the program that converts to Domain.
template<typename P>
struct IntoDomain<P, std::enable_if_t<std::is_class<P>::value && std::is_convertible<const P&, Domain>::value>> {
    static Domain call(const P& that, const SystemInfo& info, ExecutionSpace space) {
        return detail::explicit_domain(that, info, space);
    }
};
template<typename Access>
struct IntoDomain<LocalityDomain<Access>> {
    static Domain call(const LocalityDomain<Access>&, const SystemInfo&, ExecutionSpace) {
        detail::throw_not_available("kmm::follow is not offered by this version of kmm; use TileDomain or BlockDomain");
    }
};
template<typename A>
struct IntoDomain<ChunkDomain<A>> {
    static Domain call(const ChunkDomain<A>&, const SystemInfo&, ExecutionSpace) {
        detail::throw_not_available(
            "kmm::chunks_of is not offered by this version of kmm; use TileDomain with the array's chunk size");
    }
};

}  // namespace kmm
