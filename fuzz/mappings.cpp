// A fuzz target: mapping expressions, domains and distributions, each compared with what it says of every single index
// or element.
//
// A mapping: the region of a chunk is the hull of the intervals of its indices, clipped to the array. A domain: each
// index is in one chunk, whose owner is as documented. A distribution: each element is in one chunk, and is found
// there; what does not cover an array exactly is refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "elements.hpp"
#include "expressions.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/error.hpp"
#include "kmm/plan/chunk_homes.hpp"
#include "kmm/plan/domain_rule.hpp"
#include "kmm/plan/layout.hpp"

namespace {

using namespace kmm;
using kmm_fuzz::Box;
using kmm_fuzz::Elements;
using kmm_fuzz::Expression;
using kmm_fuzz::Input;
using kmm_fuzz::is_inside;
using kmm_fuzz::require;
using kmm_fuzz::Space;
using plan::Layout;

SystemInfo system_with(std::size_t num_devices) {
    SystemDescription system;
    for (std::size_t i = 0; i < num_devices; ++i) {
        DeviceDescription device;
        device.device_id = DeviceId(i);
        device.device_ordinal = static_cast<int>(i);
        device.num_compute_streams = 8;
        system.devices.push_back(DeviceInfo(device));
    }
    return SystemInfo(system);
}

template<std::size_t N> Dim<N> dim_of(const std::vector<std::int64_t>& extents) {
    Dim<N> dim;
    for (std::size_t k = 0; k < N; ++k) dim[k] = extents[k];
    return dim;
}
template<std::size_t N> ArrayChunk<N> chunk_of(const Box& box, MemoryId home) {
    return {home, detail::to_bounds<N>(box).begin(), detail::to_bounds<N>(box).size()};
}

// ------------------------------------------------------------------------------------------------------------ mappings

DomainChunk random_chunk(Input& in) {
    DomainChunk chunk;
    for (std::size_t k = 0; k < DOMAIN_DIMS; ++k) {
        chunk.offset[k] = in.between(-30, 30);
        chunk.size[k] = in.one_in(16) ? 0 : in.one_in(3) ? 1 : in.between(1, 30);
    }
    return chunk;
}

/// `region` must be that of the expression, clipped to [0, size) if there is a size.
void check_region(const Expression& e, const DomainChunk& chunk, const Range<>& region,
                  std::optional<std::int64_t> size) {
    require(region.begin <= region.end, "a region ends before it begins");
    if (e.is_all) {
        const std::int64_t end = size.value_or(std::numeric_limits<std::int64_t>::max());
        require(region == Range<>(0, end), "the whole axis");
        return;
    }
    const kmm_fuzz::Region expected = e.region(chunk);
    if (!expected.is_known) return;
    if (!size) {
        require(region.is_empty() == !expected.any, "a region is empty, or is not, against its indices");
        require(!expected.any || region == Range<>(expected.begin, expected.end), "a region is not the hull");
        return;
    }
    for (std::int64_t i = 0; expected.any && i < *size; ++i)
        require(region.contains(i) == (expected.begin <= i && i < expected.end), "a region is clipped wrongly");
    if (!expected.any) require(region.is_empty(), "an empty region has elements of the array");
    require(0 <= region.begin && region.end <= *size, "a region is not clipped");
    if (!expected.any) return;
    const std::int64_t border = std::clamp<std::int64_t>(expected.begin, 0, *size);
    require(region.begin == border, "an empty region does not lie at the nearest border");
}

void check_bounds(const Expression* e, std::size_t rank, const DomainChunk& chunk, const Box& region,
                  const std::vector<std::int64_t>* sizes) {
    for (std::size_t k = 0; k < rank; ++k)
        check_region(e[k], chunk, Range<>(region.begin[k], region.end[k]),
                     sizes != nullptr ? std::optional<std::int64_t>((*sizes)[k]) : std::nullopt);
}

/// A mapping of the program's.
template<std::size_t N> struct Functor {
    Bounds<N> region;
    Bounds<N> operator()(DomainChunk, Bounds<N>) const { return region; }
};

template<std::size_t N, typename M>
void check_access(const M& mapping, const Expression* e, const DomainChunk& chunk,
                  const std::vector<std::int64_t>& sizes) {
    const Bounds<N> array(dim_of<N>(sizes));
    const Bounds<N> region = detail::evaluate_access<N>(mapping, chunk, array);
    check_bounds(e, N, chunk, detail::to_box(region), &sizes);
    Bounds<N> raw;
    for (std::size_t k = 0; k < N; ++k) {
        raw[k] = e[k].map.apply(chunk);
        require(region[k].is_empty() || raw[k].contains(region[k]), "clipping adds elements");
        if (!e[k].is_all) check_region(e[k], chunk, raw[k], std::nullopt);
    }
    require(detail::evaluate_access<N>(Functor<N>{raw}, chunk, array) == region, "a functor is clipped otherwise");
}

void check_mapping(Input& in) {
    std::vector<Expression> e;
    std::vector<std::int64_t> sizes;
    for (std::size_t k = 0; k < 3; ++k) {
        e.push_back(kmm_fuzz::random_expression(in));
        sizes.push_back(in.between(0, 60));
    }
    for (int chunks = 0; chunks < 3; ++chunks) {
        const DomainChunk chunk = random_chunk(in);
        check_access<1>(e[0].map, &e[0], chunk, sizes);
        check_access<3>(bounds(e[0].map, e[1].map, e[2].map), e.data(), chunk, sizes);
        check_bounds(&e[1], 2, chunk, detail::to_box(detail::evaluate_plain(bounds(e[1].map, e[2].map), chunk)),
                     nullptr);
        check_bounds(&e[1], 1, chunk, detail::to_box(detail::evaluate_private(e[1].map, chunk)), nullptr);
        const Expression axes[] = {kmm_fuzz::axis(0), kmm_fuzz::axis(1), kmm_fuzz::axis(2), kmm_fuzz::axis(3)};
        sizes.push_back(in.between(0, 3));
        check_access<4>(one_to_one, axes, chunk, sizes);
        check_access<2>(one_to_one, axes, chunk, sizes);
        sizes.pop_back();
        check_bounds(axes, 3, chunk, detail::to_box(detail::evaluate_plain(one_to_one, chunk)), nullptr);
        require(detail::evaluate_access<3>(all, chunk, Bounds<3>(dim_of<3>(sizes))) == Bounds<3>(dim_of<3>(sizes)),
                "the whole array");
        const std::int64_t lengths[] = {in.between(1, 9), in.between(1, 9)};
        for (std::size_t k = 0; k < 2; ++k) {
            const Range<> region = detail::evaluate_plain(tile(lengths[0], lengths[1]), chunk)[k];
            for (std::int64_t i = -300; i < 300; ++i) {
                const kmm_fuzz::Wide index = kmm_fuzz::floor_quotient(i, lengths[k]);
                require(region.contains(i) == (chunk.offset[k] <= index && index < chunk.offset[k] + chunk.size[k]),
                        "a tile has an element of another index");
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- domains

void check_domain(Input& in) {
    const std::size_t num_devices = in.number(6);
    const bool on_host = num_devices == 0 || in.one_in(3);
    const SystemInfo info = system_with(num_devices);
    const ExecutionSpace space = on_host ? ExecutionSpace::Host : ExecutionSpace::Device;
    std::vector<std::int64_t> size = kmm_fuzz::random_extents(in, DOMAIN_DIMS, 200), tile;
    if (in.one_in(3)) size[2] = 1;
    if (in.one_in(3)) size[1] = 1;
    if (in.one_in(16)) size[in.number(3)] = 0;
    for (const std::int64_t n : size) tile.push_back(in.one_in(3) ? in.between(1, n + 3) : in.between(1, n / 2 + 1));
    const std::size_t run = 1 + in.number(5), kind = in.number(4);
    const DomainDim size_of(size[0], size[1], size[2]), tile_of(tile[0], tile[1], tile[2]);
    const Domain domain = kind == 0   ? IntoDomain<TileDomain>::call(TileDomain(size_of, tile_of), info, space)
                          : kind == 1 ? IntoDomain<CyclicDomain>::call(CyclicDomain(size_of, tile_of, run), info, space)
                          : kind == 2 ? IntoDomain<BlockDomain>::call(BlockDomain(size_of).tiles(tile_of), info, space)
                                      : IntoDomain<BlockDomain>::call(BlockDomain(size_of), info, space);
    const Space indices(DOMAIN_DIMS, size.data());
    const std::size_t resources = std::max<std::size_t>(num_devices, 1), count = domain.chunks.size();
    const auto owner = [&](std::size_t i) {
        return num_devices == 0 ? ResourceId::host()
               : on_host        ? ResourceId::host(DeviceId(i))
                                : ResourceId(DeviceId(i));
    };

    // The rule behind it has the same chunks.
    const std::int64_t s[] = {size[0], size[1], size[2]}, t[] = {tile[0], tile[1], tile[2]};
    const plan::DomainRule rule = kind < 2    ? plan::DomainRule::cyclic(s, t, kind == 0 ? 1 : run, resources)
                                  : kind == 2 ? plan::DomainRule::blocks(s, t, resources)
                                              : plan::DomainRule::slabs(s, resources);
    require(rule.num_chunks() == count, "a rule has more or fewer chunks than its domain");

    Elements covered;
    std::vector<std::int64_t> lengths;
    std::size_t long_axis = 0;
    for (std::size_t k = 0; k < DOMAIN_DIMS; ++k)
        if (size[k] > 1) long_axis = k;
    std::vector<std::vector<std::size_t>> chunks_of(resources);
    std::int64_t last[DOMAIN_DIMS] = {};
    for (std::size_t i = 0; i < count; ++i) {
        const DomainChunk& c = domain.chunks[i];
        const Box box = detail::to_box(DomainBounds(c.offset, c.size));
        const Elements elements = indices.in(box);
        require(elements.any() && static_cast<std::int64_t>(elements.count()) == c.size.volume(),
                "a chunk of a domain has other indices than the domain");
        require((elements & covered).none(), "an index is in two chunks");
        covered |= elements;
        const std::int64_t place[] = {c.offset[2], c.offset[1], c.offset[0]};  // x is the fastest
        require(i == 0 || std::lexicographical_compare(last, last + 3, place, place + 3), "the order of chunks");
        std::copy(place, place + 3, last);
        lengths.push_back(c.size[long_axis]);
        const std::size_t of = kind == 0   ? i % resources
                               : kind == 1 ? i / run % resources
                               : kind == 2 ? i * resources / count
                                           : i;
        require(c.owner_id == owner(of), "a chunk has the wrong owner");
        for (std::size_t k = 0; kind < 3 && k < DOMAIN_DIMS; ++k)
            require(c.offset[k] % tile[k] == 0 && c.size[k] == std::min(tile[k], size[k] - c.offset[k]),
                    "a chunk is not its tile");
        chunks_of[of].push_back(i);

        std::int64_t at[plan::domain_rank];
        rule.place_of(i, at);
        require(rule.chunk_at(at) == i && rule.owner(i) == of, "a rule finds another chunk at the place of one");
        for (std::size_t k = 0; k < DOMAIN_DIMS; ++k)
            require(rule.chunk(i).axes[k] == plan::Interval{box.begin[k], box.end[k]} &&
                        rule.tile(k, at[k]) == rule.chunk(i).axes[k],
                    "a rule has another chunk");
    }
    require(covered == indices.all(), "an index is in no chunk");
    if (kind == 3 && count > 0) {
        require(std::is_sorted(lengths.rbegin(), lengths.rend()) && lengths.front() - lengths.back() <= 1,
                "blocks are not of one length, or the smaller ones come first");
        require(count == std::min(resources, static_cast<std::size_t>(size[long_axis])), "the number of blocks");
    }
    for (std::size_t first = 0; count > 0 && first < resources; ++first)
        for (std::size_t end = first + 1; end <= resources; ++end) {
            if (kind == 3 && end > count) break;
            std::vector<std::size_t> expected;
            for (std::size_t o = first; o < end; ++o)
                expected.insert(expected.end(), chunks_of[o].begin(), chunks_of[o].end());
            std::sort(expected.begin(), expected.end());
            require(rule.num_chunks_of(first, end) == expected.size(), "chunks of owners are counted wrongly");
            for (std::size_t n = 0; n < expected.size(); ++n)
                require(rule.chunk_of(first, end, n) == expected[n], "the n-th chunk of owners");
        }
}

// ------------------------------------------------------------------------------------------------------- distributions

/// What a layout says of its chunks, and of regions of any kind.
void check_layout(Input& in, const Layout& layout, const Space& space, const std::vector<Elements>& chunks) {
    const std::size_t rank = space.rank();
    require(layout.num_chunks() == chunks.size() && layout.rank() == rank, "a layout has other chunks");
    std::size_t overlap[2];
    Box gap;
    require(!layout.find_overlap(&overlap[0], &overlap[1]) && !layout.find_gap(&gap), "chunks do not cover the array");
    bool is_stack = layout.is_grid();
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        require(layout.num_elements(c) == chunks[c].count(), "elements of a chunk are counted wrongly");
        std::int64_t strides[detail::max_rank];
        layout.set_strides(c, strides);
        const Box box = layout.box(c);
        std::int64_t place = 0;
        for (std::size_t e = 0; e < space.size(); ++e) {
            if (!chunks[c][e]) continue;
            std::int64_t offset = 0;
            for (std::size_t k = 0; k < rank; ++k) offset += strides[k] * (space.elements()[e].at[k] - box.begin[k]);
            require(offset == place++, "an element is not where the strides say");
        }
        for (std::size_t k = 1; k < rank; ++k) is_stack = is_stack && box.end[k] - box.begin[k] == space.array().end[k];
    }
    require(layout.is_stack() == is_stack, "a layout is a stack, or is not");
    for (int regions = 0; regions < 6 && space.size() > 0; ++regions) {
        Box region =
            kmm_fuzz::random_part(in, in.one_in(2) ? layout.box(in.number(chunks.size())) : space.array(), rank);
        const bool is_beyond = rank > 0 && in.one_in(4);
        for (std::size_t k = 0; is_beyond && k < rank; ++k)
            region.begin[k] -= in.between(0, 2), region.end[k] += in.between(-1, 2);
        const Elements elements = space.in(region);
        std::vector<std::size_t> met{77}, expected{77};
        layout.find_all(region, met);
        plan::Place place;
        for (std::size_t c = 0; c < chunks.size(); ++c) {
            if ((elements & chunks[c]).any()) expected.push_back(c);
            if (!is_inside(elements, chunks[c]) || elements.none()) continue;
            const std::size_t first = kmm_fuzz::first_of(elements);
            std::size_t offset = 0;
            for (std::size_t e = 0; e < first; ++e) offset += chunks[c][e];
            place = {c, offset, chunks[c].count(), elements == chunks[c]};
        }
        require(met == expected, "the chunks of a region");
        if (is_beyond) continue;  // `locate` is asked about regions of the array
        const plan::Place found = layout.locate(region);
        require(found.chunk == place.chunk && layout.find(region) == place.chunk, "the chunk of a region");
        if (place.chunk != Layout::none)
            require(found.offset == place.offset && found.chunk_elements == place.chunk_elements &&
                        found.is_whole == place.is_whole,
                    "the place of a region in its chunk");
    }
}

/// `boxes`, `homes`: what the distribution is to have, in this order.
template<std::size_t N>
void check_distribution(Input& in, const Distribution<N>& d, const Space& space, const std::vector<Box>& boxes,
                        const std::vector<MemoryId>& homes) {
    require(d.num_chunks() == boxes.size(), "a distribution has more or fewer chunks");
    std::vector<Elements> chunks;
    Elements covered, at_origin;
    at_origin[0] = space.size() > 0;
    for (std::size_t c = 0; c < boxes.size(); ++c) {
        const ArrayChunk<N> chunk = d.chunk(c);
        chunks.push_back(space.in(detail::to_box(Bounds<N>::from_offset_size(chunk.offset, chunk.size))));
        require((covered & chunks[c]).none(), "an element is in two chunks");
        covered |= chunks[c];
        require(chunks[c] == space.in(boxes[c]), "a chunk is not what it should be");
        require(chunk.owner_id == homes[c], "a chunk is at home in the wrong memory");
        if (chunks[c][0]) require(d.chunk_size() == chunk.size, "the size of the chunk at the origin");
    }
    require(covered == space.all(), "an element is in no chunk");
    for (std::size_t e = 0; e < space.size(); ++e) {
        Box box;
        for (std::size_t k = 0; k < N; ++k)
            box.begin[k] = space.elements()[e].at[k], box.end[k] = space.elements()[e].at[k] + 1;
        require(chunks[d.region_to_chunk_index(detail::to_bounds<N>(box))][e], "an element is found in another chunk");
    }
    for (int regions = 0; regions < 4 && space.size() > 0; ++regions) {
        const Box box = kmm_fuzz::random_part(in, in.one_in(3) ? space.array() : boxes[in.number(boxes.size())], N);
        std::vector<std::size_t> expected;
        for (std::size_t c = 0; c < chunks.size(); ++c)
            if ((chunks[c] & space.in(box)).any()) expected.push_back(c);
        require(d.chunks_in(detail::to_bounds<N>(box)) == expected, "the chunks in a region");
        try {
            require(d.region_to_chunk_index(detail::to_bounds<N>(box)) == expected.front() && expected.size() == 1,
                    "a region is found in a chunk that does not hold it");
        } catch (const InvalidArgument&) {
            require(expected.size() != 1, "the chunk that holds a region is not found");
        }
    }
    check_layout(in, *detail::DistributionLayout::of(d), space, chunks);
    const MemoryId some = homes.empty() ? MemoryId::host() : homes[in.number(homes.size())];
    const auto found = std::find(homes.begin(), homes.end(), some);
    require(detail::DistributionLayout::of(d)->find_home([&](MemoryId m) { return m == some; }) ==
                (found == homes.end() ? Layout::none : static_cast<std::size_t>(found - homes.begin())),
            "the first chunk with a home");
}

MemoryId random_home(Input& in) {
    const std::size_t i = in.number(5);
    return i == 0 ? MemoryId::host() : MemoryId(DeviceId(i - 1));
}

/// Homes of so many chunks: at random, or dealt round, or in runs, for which a rule is kept.
std::vector<MemoryId> random_homes(Input& in, std::size_t count) {
    std::vector<MemoryId> some, homes;
    for (std::size_t n = 1 + in.number(5); n > 0; --n) some.push_back(random_home(in));
    const std::size_t kind = count > kmm_fuzz::most_elements ? 1 + in.number(2) : in.number(3);
    const std::size_t run = 1 + in.number(in.one_in(2) ? 40 : 3);
    for (std::size_t i = 0; i < count; ++i) {
        homes.push_back(kind == 0   ? random_home(in)
                        : kind == 1 ? some[i / run % some.size()]
                                    : some[std::min(i / run, some.size() - 1)]);
    }
    if (count > 0 && in.one_in(3)) homes[in.number(count)] = random_home(in);
    return homes;
}

/// Of more chunks than a distribution has here.
void check_homes(Input& in) {
    const bool is_dealt = in.one_in(3);
    std::vector<MemoryId> list = random_homes(in, in.number(12000)), some{MemoryId::host()};
    if (is_dealt) {
        for (std::size_t n = in.number(4), i = 0; i < n; ++i) some.push_back(MemoryId(DeviceId(i)));
        const std::size_t run = 1 + in.number(40);
        for (std::size_t i = 0; i < list.size(); ++i) list[i] = some[i / run % some.size()];
    }
    const auto homes = plan::ChunkHomes::of_list(list);
    for (std::size_t i = 0; i < list.size(); ++i) require(homes.of(i) == list[i], "a rule gives a chunk another home");
    const std::vector<MemoryId>& known = homes.memories();
    for (std::size_t i = 0; i < list.size(); ++i)
        if (i == 0 || list[i] != list[i - 1])
            require(std::find(known.begin(), known.end(), list[i]) != known.end(), "a home is not listed");
    constexpr std::size_t short_list = 64;  // of which no rule is kept
    if (is_dealt && list.size() > short_list)
        require(known.size() <= some.size(), "homes are dealt round, and no rule is kept");
}

/// Whether the boxes are the cells of a grid; then they are in its order afterwards.
bool become_grid(const Space& space, std::vector<Box>& boxes, std::vector<MemoryId>& homes) {
    const auto origin = std::find_if(boxes.begin(), boxes.end(), [&](const Box& b) {
        const Elements elements = space.in(b);
        return elements.test(0);
    });
    if (origin == boxes.end()) return false;
    const std::vector<Box> cells = kmm_fuzz::grid_cells(space.array(), space.rank(), origin->end);
    if (cells.size() != boxes.size()) return false;
    std::vector<MemoryId> in_order;
    for (const Box& cell : cells) {
        const auto at = std::find_if(boxes.begin(), boxes.end(), [&](const Box& b) {
            return std::equal(b.begin, b.begin + detail::max_rank, cell.begin) &&
                   std::equal(b.end, b.end + detail::max_rank, cell.end);
        });
        if (at == boxes.end()) return false;
        in_order.push_back(homes[static_cast<std::size_t>(at - boxes.begin())]);
    }
    boxes = cells;
    homes = in_order;
    return true;
}

/// Chunks of any kind, as a program lists them: accepted if they cover the array, and share nothing.
template<std::size_t N> void check_listed(Input& in, const Space& space, const Dim<N>& size, bool is_large) {
    std::vector<Box> boxes =
        kmm_fuzz::random_cuts(in, space.array(), N, is_large ? 60 + in.number(120) : 1 + in.number(16));
    if (in.one_in(4)) {
        std::vector<std::int64_t> cell(N);
        for (std::size_t k = 0; k < N; ++k) cell[k] = in.between(1, size[k]);
        boxes = kmm_fuzz::grid_cells(space.array(), N, cell.data());
        in.shuffle(boxes);
    }
    const bool merges = in.one_in(4);
    for (std::size_t damage = in.one_in(2) ? 1 + in.number(2) : 0; damage > 0 && N > 0; --damage) {
        const std::size_t i = in.number(boxes.size()), k = in.number(N);
        switch (in.number(6)) {
        case 0: boxes.push_back(boxes[i]); break;
        case 1: boxes[i].end[k] += in.between(0, 1); break;
        case 2: boxes[i].begin[k] += in.between(-1, 1); break;
        case 3: boxes.push_back(kmm_fuzz::random_part(in, space.array(), N)); break;
        case 4:
            if (boxes.size() > 1) boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        default: boxes[i].begin[k]--, boxes[i].end[k]--;
        }
    }
    std::vector<MemoryId> homes = random_homes(in, boxes.size());
    std::vector<ArrayChunk<N>> chunks;
    for (std::size_t i = 0; i < boxes.size(); ++i) chunks.push_back(chunk_of<N>(boxes[i], homes[i]));

    // Those without elements count for nothing, and on request equal ones are one.
    std::vector<Box> kept;
    std::vector<MemoryId> kept_homes;
    Elements covered;
    bool is_cover = true;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        if (chunks[i].size.is_empty()) continue;
        const auto same = std::find_if(kept.begin(), kept.end(), [&](const Box& b) {
            return detail::to_bounds<N>(b) == detail::to_bounds<N>(boxes[i]);
        });
        if (merges && same != kept.end()) {
            MemoryId& home = kept_homes[static_cast<std::size_t>(same - kept.begin())];
            if (home != homes[i]) home = MemoryId::host();
            continue;
        }
        const Elements elements = space.in(boxes[i]);
        is_cover = is_cover && static_cast<std::int64_t>(elements.count()) == chunks[i].size.volume() &&
                   (elements & covered).none();
        covered |= elements;
        kept.push_back(boxes[i]);
        kept_homes.push_back(homes[i]);
    }
    is_cover = is_cover && covered == space.all();

    std::vector<detail::ChunkGeometry> geometry;
    for (const Box& b : kept) geometry.push_back({MemoryId::host(), b});
    std::size_t first = 0, second = 0;
    std::optional<std::pair<std::size_t, std::size_t>> overlap;
    for (std::size_t i = 0; i < kept.size() && !overlap; ++i)
        for (std::size_t j = i + 1; j < kept.size() && !overlap; ++j)
            if (detail::to_bounds<N>(kept[i]).overlaps(detail::to_bounds<N>(kept[j]))) overlap = {i, j};
    require(Layout::find_overlap(geometry, &first, &second) == overlap.has_value(), "chunks overlap, or do not");
    if (overlap)
        require(first < second && detail::to_bounds<N>(kept[first]).overlaps(detail::to_bounds<N>(kept[second])),
                "chunks are said to overlap that do not");
    Box gap;
    if (!overlap &&
        std::all_of(kept.begin(), kept.end(), [&](const Box& b) { return boxes::contains(space.array(), b); })) {
        require(Layout::find_gap(space.array(), geometry, &gap) == (covered != space.all()), "a gap, or none");
        const Elements missing = space.in(gap);
        if (covered != space.all())
            require(missing.any() && (missing & covered).none() && boxes::contains(space.array(), gap),
                    "a gap that a chunk holds");
    }

    try {
        const auto d = Distribution<N>::from_chunks(size, chunks, merges);
        require(is_cover, "a distribution is made of chunks that do not cover its array exactly");
        const bool is_grid = become_grid(space, kept, kept_homes);
        require(d.is_regular() == is_grid, "a distribution is regular, or is not");
        check_distribution<N>(in, d, space, kept, kept_homes);
    } catch (const InvalidArgument&) {
        require(!is_cover, "chunks are refused that cover their array exactly");
    }
}

template<std::size_t N> void check_distributions(Input& in) {
    const bool is_large = in.one_in(3);
    const std::vector<std::int64_t> extents = kmm_fuzz::random_extents(in, N, is_large ? 400 : 60);
    const Space space(N, extents.data());
    const Dim<N> size = dim_of<N>(extents);
    std::vector<std::int64_t> cell;
    for (const std::int64_t n : extents) cell.push_back(in.one_in(4) ? n + in.between(0, 2) : in.between(1, n));
    const std::vector<Box> cells = kmm_fuzz::grid_cells(space.array(), N, cell.data());
    const std::size_t num_devices = in.number(5), resources = std::max<std::size_t>(num_devices, 1);
    const SystemInfo info = system_with(num_devices);
    const auto memory = [&](std::size_t i) { return num_devices == 0 ? MemoryId::host() : MemoryId(DeviceId(i)); };
    std::vector<MemoryId> homes;
    switch (in.number(6)) {
    case 0:
        homes = random_homes(in, cells.size());
        return check_distribution<N>(in, Distribution<N>(size, dim_of<N>(cell), homes), space, cells, homes);
    case 1: {
        const std::size_t run = 1 + in.number(4);
        for (std::size_t i = 0; i < cells.size(); ++i) homes.push_back(memory(i / run % resources));
        if (run > 1 || in.one_in(2))
            return check_distribution<N>(in, Distribution<N>::cyclic(size, dim_of<N>(cell), run, info), space, cells,
                                         homes);
        return check_distribution<N>(in, Distribution<N>::tiles(size, dim_of<N>(cell), info), space, cells, homes);
    }
    case 2: {
        if constexpr (N > 0) {
            const std::size_t axis = in.number(N);
            const auto count = std::min(static_cast<std::size_t>(size[axis]), resources);
            std::vector<Box> blocks(count, space.array());
            std::int64_t begin = 0;
            for (std::size_t i = 0; i < count; ++i) {
                homes.push_back(memory(i));
                blocks[i].begin[axis] = begin;
                // As many as are left for each that is left, rounded up.
                begin += (size[axis] - begin + static_cast<std::int64_t>(count - i) - 1) /
                         static_cast<std::int64_t>(count - i);
                blocks[i].end[axis] = begin;
            }
            return check_distribution<N>(in, Distribution<N>::blocks(size, info, axis), space, blocks, homes);
        }
        return;
    }
    case 3: {
        // The chunks of a domain, by a mapping: domain axis k along array axis N - 1 - k.
        if constexpr (N == 2) {
            const Domain domain = IntoDomain<TileDomain>::call(
                TileDomain(DomainDim(size[1], size[0]), DomainDim(cell[1], cell[0])), info, ExecutionSpace::Host);
            for (std::size_t i = 0; i < cells.size(); ++i) homes.push_back(MemoryId::host());
            const auto d = map_domain_to_distribution<2>(size, domain, bounds(Axis(1), Axis(0)));
            return check_distribution<2>(in, d, space, cells, homes);
        }
        return;
    }
    default: return check_listed<N>(in, space, size, is_large);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input in(data, size);
    for (int rounds = 0; rounds < 16 && !in.is_over(); ++rounds) {
        switch (in.number(8)) {
        case 0: check_domain(in); break;
        case 1: check_distributions<1>(in); break;
        case 2: check_distributions<2>(in); break;
        case 3: in.one_in(4) ? check_distributions<0>(in) : check_distributions<3>(in); break;
        case 4: in.one_in(6) ? check_homes(in) : kmm_fuzz::check_overflow(in); break;
        default: check_mapping(in);
        }
    }
    return 0;
}
