// How the library's domains become chunks with owners. Pure; runs on the submitting thread.
#include "kmm/core/domain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/error.hpp"
#include "kmm/plan/domain_rule.hpp"
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
                "the handle has no device to give chunks of the domain to: use a Host launcher");
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

// A task each: more than this never fit memory, and the product of the counts would overflow.
constexpr Index most_tiles = 1'000'000'000;

void check_tiles(const DomainDim& size, const DomainDim& tile) {
    Index total = 1;
    for (std::size_t i = 0; i < DOMAIN_DIMS; i++) {
        if (tile[i] < 1) {
            throw InvalidArgument(
                driver::format("domain of size {} with tiles of size {}: use tiles of at least 1 along every axis",
                               text_of(size), text_of(tile)));
        }
        const Index count = div_ceil(size[i], tile[i]);
        if (count > most_tiles / total) {
            throw InvalidArgument(driver::format("domain of size {} with tiles of size {} has more than {} tiles: use "
                                                 "larger tiles",
                                                 text_of(size), text_of(tile), most_tiles));
        }
        total *= count;
    }
}

struct Extents {
    explicit Extents(const DomainDim& size) { std::copy(size.begin(), size.end(), values); }
    Index values[plan::domain_rank];
};

Domain list_chunks(const plan::DomainRule& rule, const Owners& owners) {
    Domain result;
    result.chunks.reserve(rule.num_chunks());
    for (Index z = 0; z < rule.num_tiles(2); z++) {
        for (Index y = 0; y < rule.num_tiles(1); y++) {
            for (Index x = 0; x < rule.num_tiles(0); x++) {
                const plan::Interval tile[DOMAIN_DIMS] = {rule.tile(0, x), rule.tile(1, y), rule.tile(2, z)};
                result.chunks.push_back({owners[rule.owner(result.chunks.size())],
                                         DomainPoint(tile[0].begin, tile[1].begin, tile[2].begin),
                                         DomainDim(tile[0].size(), tile[1].size(), tile[2].size())});
            }
        }
    }
    return result;
}

}  // namespace

Domain tile_domain(const TileDomain& that, const SystemInfo& info, ExecutionSpace space) {
    return cyclic_domain(CyclicDomain(that.size, that.tile), info, space);
}

Domain cyclic_domain(const CyclicDomain& that, const SystemInfo& info, ExecutionSpace space) {
    check_size(that.size);
    if (that.size.is_empty()) return {};
    if (that.run < 1) throw InvalidArgument("CyclicDomain: a run of 0 tiles: use at least 1");
    check_tiles(that.size, that.tile);
    const Owners owners(info, space);
    const Extents size(that.size), tile(that.tile);
    return list_chunks(plan::DomainRule::cyclic(size.values, tile.values, that.run, owners.count()), owners);
}

Domain block_domain(const BlockDomain& that, const SystemInfo& info, ExecutionSpace space) {
    check_size(that.size);
    if (that.size.is_empty()) return {};
    if (that.has_tiles) check_tiles(that.size, that.tile);
    const Owners owners(info, space);
    const Extents size(that.size), tile(that.tile);
    return list_chunks(that.has_tiles ? plan::DomainRule::blocks(size.values, tile.values, owners.count())
                                      : plan::DomainRule::slabs(size.values, owners.count()),
                       owners);
}

Domain explicit_domain(Domain that, const SystemInfo& info, ExecutionSpace space) {
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
        if (chunk.owner_id.is_device()) check_has_device(info, chunk.owner_id.as_device());
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
