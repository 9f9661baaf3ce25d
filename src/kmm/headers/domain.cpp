// How the library's domains become chunks with owners. Pure; runs on the submitting thread.
#include "kmm/core/domain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/integer_fun.hpp"

namespace kmm::detail {

namespace {

using Index = default_index_type;

// The resources that chunks are dealt to, seen from where the launcher runs.
class Owners {
  public:
    Owners(const SystemInfo& info, ExecutionSpace space) : info_(info), on_host_(space == ExecutionSpace::Host) {
        if (!on_host_ && info.resources().empty()) {
            throw InvalidResourceException(
                "the handle has no device to give chunks of the domain to: use a Host launcher, or "
                "a handle whose constrain_to names devices");
        }
    }
    std::size_t count() const { return std::max<std::size_t>(info_.resources().size(), 1); }
    ResourceId operator[](std::size_t i) const {
        if (info_.resources().empty()) return ResourceId::host();
        const ResourceId& device = info_.resources()[i];
        return on_host_ ? ResourceId::host(device.as_device()) : device;
    }

  private:
    const SystemInfo& info_;
    bool on_host_;
};

void check_size(const DomainDim& size) {
    for (std::size_t i = 0; i < DOMAIN_DIMS; i++) {
        if (size[i] < 0) {
            throw InvalidArgument(driver::format("domain of negative size {}: use sizes of at least 0", text_of(size)));
        }
    }
}

class TileGrid {
  public:
    TileGrid(const DomainDim& size, const DomainDim& tile) : size_(size), tile_(tile) {
        for (std::size_t i = 0; i < DOMAIN_DIMS; i++) {
            if (tile[i] < 1) {
                throw InvalidArgument(
                    driver::format("domain of size {} with tiles of size {}: use tiles of at least 1 along every axis",
                                   text_of(size), text_of(tile)));
            }
            counts_[i] = div_ceil(size[i], tile[i]);
        }
        // A task each: more than this never fit memory, and the product below would overflow.
        constexpr Index most = 1'000'000'000;
        Index total = 1;
        for (std::size_t i = 0; i < DOMAIN_DIMS; i++) {
            if (counts_[i] > most / total) {
                throw InvalidArgument(driver::format(
                    "domain of size {} with tiles of size {} has more than 1000000000 tiles: use larger tiles",
                    text_of(size), text_of(tile)));
            }
            total *= counts_[i];
        }
        count_ = static_cast<std::size_t>(total);
    }
    std::size_t count() const { return count_; }

    /// x fastest.
    template<typename OwnerOf>
    Domain chunks(OwnerOf owner_of) const {
        Domain result;
        result.chunks.reserve(count_);
        for (Index z = 0; z < counts_[2]; z++) {
            for (Index y = 0; y < counts_[1]; y++) {
                for (Index x = 0; x < counts_[0]; x++) {
                    const DomainPoint offset(x * tile_[0], y * tile_[1], z * tile_[2]);
                    DomainDim size;
                    for (std::size_t i = 0; i < DOMAIN_DIMS; i++) size[i] = std::min(tile_[i], size_[i] - offset[i]);
                    result.chunks.push_back({owner_of(result.chunks.size()), offset, size});
                }
            }
        }
        return result;
    }

  private:
    DomainDim size_;
    DomainDim tile_;
    DomainDim counts_;
    std::size_t count_ = 0;
};

}  // namespace

Domain tile_domain(const TileDomain& that, const SystemInfo& info, ExecutionSpace space) {
    check_size(that.size);
    if (that.size.is_empty()) return {};
    const TileGrid grid(that.size, that.tile);
    const Owners owners(info, space);
    return grid.chunks([&](std::size_t i) { return owners[i % owners.count()]; });
}

Domain cyclic_domain(const CyclicDomain& that, const SystemInfo& info, ExecutionSpace space) {
    check_size(that.size);
    if (that.size.is_empty()) return {};
    if (that.run < 1) throw InvalidArgument("CyclicDomain: a run of 0 tiles: use at least 1");
    const TileGrid grid(that.size, that.tile);
    const Owners owners(info, space);
    return grid.chunks([&](std::size_t i) { return owners[i / that.run % owners.count()]; });
}

Domain block_domain(const BlockDomain& that, const SystemInfo& info, ExecutionSpace space) {
    check_size(that.size);
    if (that.size.is_empty()) return {};
    if (that.has_tiles) {
        const TileGrid grid(that.size, that.tile);
        const Owners owners(info, space);
        return grid.chunks([&](std::size_t i) { return owners[i * owners.count() / grid.count()]; });
    }
    const Owners owners(info, space);
    std::size_t axis = DOMAIN_DIMS - 1;
    while (axis > 0 && that.size[axis] <= 1) axis--;
    const Index length = that.size[axis];
    const Index blocks = std::min(length, static_cast<Index>(owners.count()));
    Domain result;
    DomainPoint offset;
    for (Index i = 0; i < blocks; i++) {
        DomainDim size = that.size;
        size[axis] = length / blocks + (i < length % blocks ? 1 : 0);
        result.chunks.push_back({owners[static_cast<std::size_t>(i)], offset, size});
        offset[axis] += size[axis];
    }
    return result;
}

Domain explicit_domain(Domain that, ExecutionSpace space) {
    for (std::size_t i = 0; i < that.chunks.size(); i++) {
        DomainChunk& chunk = that.chunks[i];
        for (std::size_t axis = 0; axis < DOMAIN_DIMS; axis++) {
            Index end = 0;
            if (chunk.size[axis] < 0 || add_overflows(Index(chunk.offset[axis]), Index(chunk.size[axis]), end)) {
                throw InvalidArgument(
                    driver::format("domain chunk {} with {}: use sizes of at least 0 and ends that fit 64 bits", i,
                                   text_of_chunk(chunk.offset, chunk.size)));
            }
        }
        if (space == ExecutionSpace::Host) {
            chunk.owner_id = ResourceId::host(chunk.owner_id.device_affinity());
        } else if (chunk.owner_id.is_host()) {
            throw InvalidResourceException(driver::format("domain chunk {} is owned by the host, and the launcher runs "
                                                          "on devices: use a device as the owner, or a Host launcher",
                                                          i));
        }
    }
    // Empty chunks stay: they keep the numbers of the others. The runtime gives them no work.
    return that;
}

}  // namespace kmm::detail
