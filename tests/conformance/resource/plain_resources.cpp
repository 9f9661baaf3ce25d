// The resources that hand every request to the driver, in the suite.
#include "resource_suite.hpp"

#include "rmm/cuda_device.hpp"
#include "rmm/detail/runtime_capabilities.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/system_memory_resource.hpp"

namespace rmm_test {
namespace {

using kmm::driver::MemoryKind;

INSTANTIATE_TEST_SUITE_P(cuda, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::cuda_memory_resource>(); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(managed, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::managed_memory_resource>(); },
                             .kind = MemoryKind::managed,
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(pinned_host, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::pinned_host_memory_resource>(); },
                             .kind = MemoryKind::pinned,
                             .equal_by_type = true}));

INSTANTIATE_TEST_SUITE_P(
    cuda_async, ResourceConformance,
    testing::Values(conforming{
        .make = [] { return std::make_shared<rmm::mr::cuda_async_memory_resource>(std::size_t{1} << 20); },
        .supports_streams = true}));

resource_ptr view_of_default_pool() {
    kmm::driver::PoolHandle pool;
    EXPECT_TRUE(driver().default_pool(0, &pool).ok());
    return std::make_shared<rmm::mr::cuda_async_view_memory_resource>(static_cast<cudaMemPool_t>(pool.native));
}
INSTANTIATE_TEST_SUITE_P(cuda_async_view, ResourceConformance,
                         testing::Values(conforming{
                             .make = view_of_default_pool, .equal_by_type = true, .supports_streams = true}));

INSTANTIATE_TEST_SUITE_P(cuda_async_managed, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::cuda_async_managed_memory_resource>(); },
                             .kind = MemoryKind::managed,
                             .equal_by_type = true,
                             .supports_streams = true,
                             .available = &rmm::detail::runtime_async_managed_alloc::is_supported}));

bool has_system_memory() { return rmm::mr::detail::is_system_memory_supported(rmm::get_current_cuda_device()); }

INSTANTIATE_TEST_SUITE_P(system, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::system_memory_resource>(); },
                             .kind = MemoryKind::pageable,
                             .equal_by_type = true,
                             .null_for_zero_bytes = false,
                             .available = has_system_memory}));

INSTANTIATE_TEST_SUITE_P(sam_headroom, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return std::make_shared<rmm::mr::sam_headroom_memory_resource>(1 << 20); },
                             .kind = MemoryKind::pageable,
                             .equal_by_type = true,
                             .null_for_zero_bytes = false,
                             .available = has_system_memory}));

}  // namespace
}  // namespace rmm_test
