#include "kmm/plan/domain_rule.hpp"

#include <algorithm>

namespace kmm::plan {

namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

void DomainRule::make_tiles(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank]) noexcept {
    num_chunks_ = 1;
    for (std::size_t k = 0; k < domain_rank; ++k) {
        size_[k] = size[k];
        tile_[k] = tile[k];
        counts_[k] = size[k] / tile[k] + (size[k] % tile[k] != 0 ? 1 : 0);
        num_chunks_ *= static_cast<std::size_t>(counts_[k]);
    }
}

DomainRule DomainRule::cyclic(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank],
                              std::size_t run, std::size_t num_owners) noexcept {
    DomainRule r;
    r.make_tiles(size, tile);
    r.run_ = run;
    r.num_owners_ = num_owners;
    return r;
}

DomainRule DomainRule::blocks(const std::int64_t (&size)[domain_rank], const std::int64_t (&tile)[domain_rank],
                              std::size_t num_owners) noexcept {
    DomainRule r;
    r.make_tiles(size, tile);
    r.num_owners_ = num_owners;
    r.deal_ = Deal::blocks;
    return r;
}

DomainRule DomainRule::slabs(const std::int64_t (&size)[domain_rank], std::size_t num_owners) noexcept {
    std::size_t axis = domain_rank - 1;
    while (axis > 0 && size[axis] <= 1) --axis;
    const std::int64_t blocks = std::min(size[axis], static_cast<std::int64_t>(num_owners));
    DomainRule r;
    r.num_owners_ = num_owners;
    r.num_chunks_ = 1;
    for (std::size_t k = 0; k < domain_rank; ++k) {
        r.size_[k] = size[k];
        r.tile_[k] = std::max<std::int64_t>(k == axis && blocks > 0 ? size[k] / blocks : size[k], 1);
        r.counts_[k] = k == axis ? blocks : std::min<std::int64_t>(size[k], 1);
        r.num_chunks_ *= static_cast<std::size_t>(r.counts_[k]);
    }
    r.long_axis_ = axis;
    r.num_longer_ = blocks > 0 ? size[axis] % blocks : 0;
    return r;
}

Interval DomainRule::tile(std::size_t axis, std::int64_t place) const noexcept {
    const std::int64_t begin = place * tile_[axis];
    if (axis != long_axis_ || num_longer_ == 0) return {begin, begin + std::min(tile_[axis], size_[axis] - begin)};
    const std::int64_t from = begin + std::min(place, num_longer_);
    return {from, from + tile_[axis] + (place < num_longer_ ? 1 : 0)};
}

void DomainRule::place_of(std::size_t chunk, std::int64_t (&place)[domain_rank]) const noexcept {
    for (std::size_t k = 0; k < domain_rank; ++k) {
        const auto count = static_cast<std::size_t>(counts_[k]);
        place[k] = static_cast<std::int64_t>(chunk % count);
        chunk /= count;
    }
}

std::size_t DomainRule::chunk_at(const std::int64_t (&place)[domain_rank]) const noexcept {
    std::size_t chunk = 0;
    for (std::size_t k = domain_rank; k-- > 0;)
        chunk = chunk * static_cast<std::size_t>(counts_[k]) + static_cast<std::size_t>(place[k]);
    return chunk;
}

DomainBox DomainRule::chunk(std::size_t number) const noexcept {
    std::int64_t place[domain_rank];
    place_of(number, place);
    DomainBox box;
    for (std::size_t k = 0; k < domain_rank; ++k) box.axes[k] = tile(k, place[k]);
    return box;
}

std::size_t DomainRule::owner(std::size_t chunk) const noexcept {
    if (deal_ == Deal::blocks) return static_cast<std::size_t>(Wide{chunk} * num_owners_ / num_chunks_);
    return chunk / run_ % num_owners_;
}

// floor(i * owners / n) >= owner, that is i * owners >= owner * n.
std::size_t DomainRule::first_of(std::size_t owner) const noexcept {
    return static_cast<std::size_t>((Wide{owner} * num_chunks_ + num_owners_ - 1) / num_owners_);
}

std::size_t DomainRule::num_chunks_of(std::size_t first, std::size_t end) const noexcept {
    if (deal_ == Deal::blocks) return first_of(end) - first_of(first);
    const std::size_t period = run_ * num_owners_;
    const std::size_t rest = num_chunks_ % period;
    const auto in_rest = [&](std::size_t owner) { return std::min(rest, owner * run_); };
    return num_chunks_ / period * ((end - first) * run_) + in_rest(end) - in_rest(first);
}

std::size_t DomainRule::chunk_of(std::size_t first, std::size_t end, std::size_t n) const noexcept {
    if (deal_ == Deal::blocks) return first_of(first) + n;
    const std::size_t in_period = (end - first) * run_;
    return n / in_period * (run_ * num_owners_) + first * run_ + n % in_period;
}

}  // namespace kmm::plan
