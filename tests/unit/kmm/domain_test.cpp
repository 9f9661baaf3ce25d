// Domains: which chunks they have, in which order, and who owns them.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kmm/api/mapper.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/error.hpp"

namespace {

using kmm::DeviceId;
using kmm::Domain;
using kmm::DomainChunk;
using kmm::DomainDim;
using kmm::DomainPoint;
using kmm::ExecutionSpace;
using kmm::ResourceId;
using kmm::SystemInfo;

SystemInfo system_with(std::size_t num_devices) {
    kmm::SystemDescription system;
    for (std::size_t i = 0; i < num_devices; i++) {
        kmm::DeviceDescription device;
        device.device_id = DeviceId(i);
        device.device_ordinal = static_cast<int>(10 + i);
        device.num_compute_streams = 8;
        system.devices.push_back(kmm::DeviceInfo(device));
    }
    return SystemInfo(system);
}

template<typename P>
std::vector<DomainChunk> chunks_of(const P& domain, const SystemInfo& info,
                                   ExecutionSpace space = ExecutionSpace::Device) {
    return kmm::IntoDomain<P>::call(domain, info, space).chunks;
}

TEST(Row039, tiles_cover_a_grid_with_x_fastest_and_short_last_tiles) {
    const SystemInfo info = system_with(3);
    const auto chunks = chunks_of(kmm::TileDomain({10, 5, 2}, {4, 3, 1}), info);
    ASSERT_EQ(chunks.size(), 3u * 2u * 2u);
    std::size_t i = 0;
    for (long z : {0, 1}) {
        for (long y : {0, 3}) {
            for (long x : {0, 4, 8}) {
                EXPECT_EQ(chunks[i].offset, DomainPoint(x, y, z));
                EXPECT_EQ(chunks[i].size, DomainDim(x == 8 ? 2 : 4, y == 3 ? 2 : 3, 1));
                EXPECT_EQ(chunks[i].owner_id, ResourceId(DeviceId(i % 3)));
                i++;
            }
        }
    }
}

TEST(Row039, one_and_two_dimensional_domains_leave_the_other_axes_at_one) {
    const auto line = chunks_of(kmm::TileDomain(10, 4), system_with(1));
    ASSERT_EQ(line.size(), 3u);
    EXPECT_EQ(line[2].offset, DomainPoint(8, 0, 0));
    EXPECT_EQ(line[2].size, DomainDim(2, 1, 1));
    const auto plane = chunks_of(kmm::TileDomain({4, 4}, {2, 3}), system_with(1));
    ASSERT_EQ(plane.size(), 4u);
    EXPECT_EQ(plane[3].offset, DomainPoint(2, 3));
    EXPECT_EQ(plane[3].size, DomainDim(2, 1));
}

TEST(Row039, domains_without_indices_have_no_chunks) {
    const SystemInfo info = system_with(2);
    EXPECT_TRUE(chunks_of(kmm::TileDomain(0, 4), info).empty());
    EXPECT_TRUE(chunks_of(kmm::TileDomain({4, 0}, {1, 1}), info).empty());
    EXPECT_TRUE(chunks_of(kmm::TileDomain(0, 0), info).empty());
    EXPECT_TRUE(chunks_of(kmm::BlockDomain(0), info).empty());
    EXPECT_TRUE(chunks_of(kmm::CyclicDomain(0, 0), info).empty());
}

TEST(Row039, tiles_below_one_and_negative_sizes_are_refused) {
    const SystemInfo info = system_with(2);
    EXPECT_THROW(chunks_of(kmm::TileDomain(5, 0), info), kmm::InvalidArgument);
    EXPECT_THROW(chunks_of(kmm::TileDomain({5, 5}, {5, -1}), info), kmm::InvalidArgument);
    EXPECT_THROW(chunks_of(kmm::TileDomain(-5, 1), info), kmm::InvalidArgument);
    EXPECT_THROW(chunks_of(kmm::BlockDomain(-5), info), kmm::InvalidArgument);
    EXPECT_THROW(chunks_of(kmm::CyclicDomain(5, 1, 0), info), kmm::InvalidArgument);
    EXPECT_THROW(chunks_of(kmm::TileDomain(std::numeric_limits<long>::max(), 1), info), kmm::InvalidArgument);
}

TEST(Row039, without_devices_device_launchers_are_refused_and_host_launchers_are_not) {
    const SystemInfo none = system_with(0);
    EXPECT_THROW(chunks_of(kmm::TileDomain(5, 1), none), kmm::InvalidResourceException);
    EXPECT_THROW(chunks_of(kmm::BlockDomain(5), none), kmm::InvalidResourceException);
    const auto chunks = chunks_of(kmm::TileDomain(5, 1), none, ExecutionSpace::Host);
    ASSERT_EQ(chunks.size(), 5u);
    EXPECT_TRUE(chunks[4].owner_id.is_host());
}

TEST(Row039, host_launchers_get_the_hosts_near_the_devices) {
    const auto chunks = chunks_of(kmm::TileDomain(4, 1), system_with(2), ExecutionSpace::Host);
    for (std::size_t i = 0; i < 4; i++) {
        EXPECT_TRUE(chunks[i].owner_id.is_host());
        EXPECT_EQ(chunks[i].owner_id.device_affinity(), DeviceId(i % 2));
    }
}

TEST(Row039, domains_are_dealt_to_the_handles_resources_in_their_order) {
    const SystemInfo all = system_with(4);
    const ResourceId second(DeviceId(3), {1});
    const SystemInfo some = all.constrain_to({ResourceId(DeviceId(2)), ResourceId::host(), second});
    const auto chunks = chunks_of(kmm::TileDomain(3, 1), some);
    EXPECT_EQ(chunks[0].owner_id, ResourceId(DeviceId(2)));
    EXPECT_EQ(chunks[1].owner_id, second);
    EXPECT_EQ(chunks[2].owner_id, ResourceId(DeviceId(2)));
}

TEST(Row040, blocks_differ_by_at_most_one_and_the_larger_come_first) {
    for (std::size_t resources = 1; resources <= 8; resources++) {
        for (long length : {1, 2, 3, 7, 8, 9, 100}) {
            const auto chunks = chunks_of(kmm::BlockDomain({3, length}), system_with(resources));
            // Along the last axis that is larger than 1: x if the other one has one index.
            const std::size_t axis = length > 1 ? 1 : 0;
            const long total = length > 1 ? length : 3;
            const long count = std::min<long>(total, static_cast<long>(resources));
            ASSERT_EQ(chunks.size(), static_cast<std::size_t>(count));
            long offset = 0;
            for (long i = 0; i < count; i++) {
                const DomainChunk& chunk = chunks[static_cast<std::size_t>(i)];
                EXPECT_EQ(chunk.offset[axis], offset);
                EXPECT_EQ(chunk.size[axis], total / count + (i < total % count ? 1 : 0));
                EXPECT_EQ(chunk.size[1 - axis], axis == 1 ? 3 : length);
                EXPECT_EQ(chunk.owner_id, ResourceId(DeviceId(i)));
                offset += chunk.size[axis];
            }
            EXPECT_EQ(offset, total);
        }
    }
}

TEST(Row040, tiles_of_blocks_stay_together_on_one_resource) {
    for (std::size_t resources = 1; resources <= 8; resources++) {
        const auto chunks = chunks_of(kmm::BlockDomain({10, 7}).tiles({3, 2}), system_with(resources));
        ASSERT_EQ(chunks.size(), 16u);
        for (std::size_t i = 0; i < 16; i++) EXPECT_EQ(chunks[i].owner_id, ResourceId(DeviceId(i * resources / 16)));
        EXPECT_EQ(chunks[5].offset, DomainPoint(3, 2));
    }
}

TEST(Row040, cyclic_domains_deal_runs_of_tiles) {
    for (std::size_t resources = 1; resources <= 8; resources++) {
        for (std::size_t run : {1u, 2u, 5u}) {
            const auto chunks = chunks_of(kmm::CyclicDomain(100, 7, run), system_with(resources));
            ASSERT_EQ(chunks.size(), 15u);
            for (std::size_t i = 0; i < 15; i++)
                EXPECT_EQ(chunks[i].owner_id, ResourceId(DeviceId(i / run % resources)));
        }
    }
}

TEST(Row040, a_size_alone_is_a_block_domain) {
    const SystemInfo info = system_with(3);
    const auto blocks = chunks_of(kmm::BlockDomain({4, 10}), info);
    for (const auto& chunks : {chunks_of(DomainDim(4, 10), info), chunks_of(kmm::Dim<2>(4, 10), info)}) {
        ASSERT_EQ(chunks.size(), blocks.size());
        for (std::size_t i = 0; i < blocks.size(); i++) {
            EXPECT_EQ(chunks[i].offset, blocks[i].offset);
            EXPECT_EQ(chunks[i].size, blocks[i].size);
            EXPECT_EQ(chunks[i].owner_id, blocks[i].owner_id);
        }
    }
}

TEST(Domains, explicit_chunks_keep_their_order_offsets_and_overlaps) {
    const std::vector<DomainChunk> given{{ResourceId(DeviceId(1)), {-5}, {10}},
                                         {ResourceId(DeviceId(0)), {0, 2}, {3, 3}}};
    const auto chunks = chunks_of(Domain{given}, system_with(2));
    ASSERT_EQ(chunks.size(), 2u);
    EXPECT_EQ(chunks[0].offset, DomainPoint(-5));
    EXPECT_EQ(chunks[1].owner_id, ResourceId(DeviceId(0)));
    const auto on_host = chunks_of(given, system_with(2), ExecutionSpace::Host);
    EXPECT_TRUE(on_host[0].owner_id.is_host());
    EXPECT_EQ(on_host[0].owner_id.device_affinity(), DeviceId(1));
}

TEST(Domains, device_launchers_refuse_chunks_of_the_host) {
    const Domain domain{{{ResourceId::host(), {0}, {10}}}};
    EXPECT_THROW(chunks_of(domain, system_with(1)), kmm::InvalidResourceException);
    EXPECT_EQ(chunks_of(domain, system_with(1), ExecutionSpace::Host).size(), 1u);
    EXPECT_THROW(chunks_of(Domain{{{ResourceId(DeviceId(0)), {0}, {-1}}}}, system_with(1)), kmm::InvalidArgument);
}

TEST(Domains, positions_and_sizes_take_up_to_three_numbers_or_shorter_points) {
    EXPECT_EQ(DomainPoint(), kmm::Point<3>(0, 0, 0));
    EXPECT_EQ(DomainDim(), kmm::Dim<3>(1, 1, 1));
    EXPECT_EQ(DomainDim(5, 6), kmm::Dim<3>(5, 6, 1));
    EXPECT_EQ(DomainDim(kmm::Dim<2>(5, 6)), kmm::Dim<3>(5, 6, 1));
    EXPECT_EQ(DomainPoint(kmm::Point<1, int>(7)), kmm::Point<3>(7, 0, 0));
    EXPECT_EQ(DomainDim(kmm::Dim<0>()), kmm::Dim<3>(1, 1, 1));
    EXPECT_EQ(kmm::DomainBounds(), kmm::Bounds<3>::one());
    EXPECT_EQ(kmm::DomainBounds(5, kmm::Range<>(2, 4)),
              kmm::Bounds<3>(kmm::Range<>(0, 5), kmm::Range<>(2, 4), kmm::Range<>(0, 1)));
    static_assert(std::is_convertible_v<long, DomainDim>);
    static_assert(!std::is_convertible_v<double, DomainDim>);
    static_assert(!std::is_convertible_v<kmm::Dim<4>, DomainDim>);
}

TEST(Domains, kinds_of_a_later_version_say_so) {
    const SystemInfo info = system_with(1);
    const int array = 0;
    EXPECT_THROW(chunks_of(kmm::follow(10, 5, array), info), kmm::NotAvailable);
    EXPECT_THROW(chunks_of(kmm::chunks_of(array, kmm::Axis(1)), info), kmm::NotAvailable);
}

TEST(SystemInformation, devices_are_found_by_id_and_by_number_and_strangers_refused) {
    const SystemInfo info = system_with(2);
    EXPECT_EQ(info.num_devices(), 2u);
    EXPECT_EQ(info.device(DeviceId(1)).device_ordinal(), 11);
    EXPECT_EQ(info.device_by_ordinal(10).device_id(), DeviceId(0));
    EXPECT_THROW(info.device(DeviceId(2)), kmm::InvalidArgument);
    EXPECT_THROW(info.device_by_ordinal(0), kmm::InvalidArgument);
    EXPECT_THROW(info.device(DeviceId(0)).attribute(1), kmm::InvalidArgument);
    const std::vector<kmm::MemoryId> memories{kmm::MemoryId::host(), DeviceId(0), DeviceId(1)};
    EXPECT_EQ(info.memories(), memories);
    EXPECT_TRUE(info.is_memory_accessible(kmm::MemoryId::host(), DeviceId(1)));
    EXPECT_TRUE(info.is_memory_accessible(DeviceId(1), ResourceId(DeviceId(1))));
    EXPECT_FALSE(info.is_memory_accessible(DeviceId(1), ResourceId(DeviceId(0))));
    EXPECT_FALSE(info.is_memory_accessible(DeviceId(1), ResourceId::host()));
    EXPECT_EQ(SystemInfo::affinity_processor(DeviceId(1)), ResourceId(DeviceId(1)));
    EXPECT_TRUE(SystemInfo::affinity_processor(kmm::MemoryId::host(DeviceId(1))).is_host());
    EXPECT_FALSE(info.can_access_peer(DeviceId(0), DeviceId(1)));
    EXPECT_TRUE(info.host_allowed());
    EXPECT_EQ(info.constrain_to({ResourceId::host()}).resources().size(), 0u);
}

TEST(Row114, what_a_handle_may_use_is_named_in_order_and_narrowed_step_by_step) {
    using kmm::DeviceStreamSet;
    const SystemInfo all = system_with(3);
    EXPECT_TRUE(all.is_whole());
    const SystemInfo two = all.constrain_to({ResourceId(DeviceId(2), {1, 2, 9}), ResourceId(DeviceId(0))});
    EXPECT_FALSE(two.is_whole());
    EXPECT_EQ(two.num_devices(), 3u) << "they are there";
    ASSERT_EQ(two.resources().size(), 2u);
    EXPECT_EQ(two.resources()[0], ResourceId(DeviceId(2), {1, 2}));
    const SystemInfo one = two.constrain_to({ResourceId(DeviceId(2))});
    EXPECT_EQ(one.resources(), std::vector{ResourceId(DeviceId(2), {1, 2})}) << "its streams, as the handle has them";
    EXPECT_EQ(kmm::detail::allowed_resource(one, ResourceId(DeviceId(2), {2, 5})), ResourceId(DeviceId(2), {2}));
    EXPECT_EQ(kmm::detail::allowed_resource(all, ResourceId(DeviceId(1), DeviceStreamSet::range(0, 8))),
              ResourceId(DeviceId(1)))
        << "all that there are";
}

TEST(Row114, what_a_handle_has_not_is_refused_with_what_it_has) {
    const SystemInfo all = system_with(3);
    const SystemInfo some = all.constrain_to({ResourceId(DeviceId(0), {1, 2}), ResourceId(DeviceId(1))});
    const auto text_of = [](const auto& call) {
        try {
            call();
        } catch (const kmm::InvalidResourceException& e) {
            return std::string(e.what());
        }
        return std::string("nothing was thrown");
    };
    EXPECT_THROW(all.constrain_to({}), kmm::InvalidArgument);
    EXPECT_NE(text_of([&] { some.constrain_to({ResourceId(DeviceId(2))}); }).find("GPU 0 {1, 2}, GPU 1"),
              std::string::npos);
    EXPECT_NE(text_of([&] { all.constrain_to({ResourceId(DeviceId(3))}); }).find("3 devices"), std::string::npos);
    EXPECT_NE(text_of([&] { all.constrain_to({ResourceId(DeviceId(0), {8})}); }).find("{8}"), std::string::npos);
    EXPECT_NE(text_of([&] { some.constrain_to({ResourceId(DeviceId(0), {2, 3})}); }).find("{1, 2}"), std::string::npos);
    EXPECT_NE(text_of([&] {
                  kmm::detail::allowed_resource(all.constrain_to({ResourceId::host()}), ResourceId(DeviceId(0)));
              }).find("the host"),
              std::string::npos);
}

}  // namespace
