// Pools over various upstreams, in the suite: growing from nothing, of a fixed size, over memory that is ordered on a
// stream, and over memory that is not.
#include "resource_suite.hpp"

#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/sizes.hpp"

namespace rmm_test {
namespace {

using kmm::driver::MemoryKind;
using namespace rmm::mr;

INSTANTIATE_TEST_SUITE_P(pool_over_cuda, ResourceConformance,
                         testing::Values(conforming{.make =
                                                        [] {
                                                            return over<pool_memory_resource<cuda_memory_resource>>(
                                                                std::make_shared<cuda_memory_resource>(), 0);
                                                        },
                                                    .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(fixed_pool_over_cuda, ResourceConformance,
                         testing::Values(conforming{.make =
                                                        [] {
                                                            return over<pool_memory_resource<cuda_memory_resource>>(
                                                                std::make_shared<cuda_memory_resource>(), 64 * MiB,
                                                                64 * MiB);
                                                        },
                                                    .supports_streams = true,
                                                    .hundred_blocks_of_bytes = MiB / 2}));

INSTANTIATE_TEST_SUITE_P(pool_over_managed, ResourceConformance,
                         testing::Values(conforming{.make =
                                                        [] {
                                                            return over<pool_memory_resource<managed_memory_resource>>(
                                                                std::make_shared<managed_memory_resource>(), 8 * MiB);
                                                        },
                                                    .kind = MemoryKind::managed,
                                                    .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(pool_over_pinned, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over<pool_memory_resource<pinned_host_memory_resource>>(
                                         std::make_shared<pinned_host_memory_resource>(), 8 * MiB);
                                 },
                             .kind = MemoryKind::pinned,
                             .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(pool_over_cuda_async, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over<pool_memory_resource<cuda_async_memory_resource>>(
                                         std::make_shared<cuda_async_memory_resource>(MiB), 0);
                                 },
                             .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(pinned_pool, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<pinned_pool_memory_resource>(256 * MiB); },
                             .kind = MemoryKind::pinned,
                             .supports_streams = true}));

resource_ptr pool_over_pool() {
    auto inner = over<pool_memory_resource<cuda_memory_resource>>(std::make_shared<cuda_memory_resource>(), 0);
    return over<pool_memory_resource<device_memory_resource>>(inner, 0);
}
INSTANTIATE_TEST_SUITE_P(pool_over_pool, ResourceConformance,
                         testing::Values(conforming{.make = pool_over_pool, .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(large_pool_over_cuda, ResourceConformance,
                         testing::Values(conforming{.make =
                                                        [] {
                                                            return over<pool_memory_resource<cuda_memory_resource>>(
                                                                std::make_shared<cuda_memory_resource>(), 128 * MiB);
                                                        },
                                                    .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(arena_over_cuda, ResourceConformance,
                         testing::Values(conforming{.make =
                                                        [] {
                                                            return over<arena_memory_resource<cuda_memory_resource>>(
                                                                std::make_shared<cuda_memory_resource>(), 128 * MiB);
                                                        },
                                                    .supports_streams = true,
                                                    .hundred_blocks_of_bytes = MiB}));

resource_ptr binning_over_pool() {
    auto pool = over<pool_memory_resource<cuda_memory_resource>>(std::make_shared<cuda_memory_resource>(), 0);
    return over<binning_memory_resource<device_memory_resource>>(pool, std::int8_t{10}, std::int8_t{16});
}
INSTANTIATE_TEST_SUITE_P(binning_over_pool, ResourceConformance,
                         testing::Values(conforming{.make = binning_over_pool, .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(fixed_size_over_cuda, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over<fixed_size_memory_resource<cuda_memory_resource>>(
                                         std::make_shared<cuda_memory_resource>(), 6 * MiB, 4);
                                 },
                             .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(vmm, ResourceConformance,
                         testing::Values(conforming{.make = [] { return std::make_shared<vmm_memory_resource>(); },
                                                    .supports_streams = true}));

}  // namespace
}  // namespace rmm_test
