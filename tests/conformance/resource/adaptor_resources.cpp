// Adaptors in the suite: each over the simplest upstream, and stacks of them.
#include "resource_suite.hpp"

#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "support/sizes.hpp"

namespace rmm_test {
namespace {

using kmm::driver::MemoryKind;
using namespace rmm::mr;

template<typename Adaptor, typename... Args>
resource_ptr over_cuda(Args... args) {
    return over<Adaptor>(std::make_shared<cuda_memory_resource>(), args...);
}

// Adaptors of one type over any two cuda_memory_resources are equal, as these are.
INSTANTIATE_TEST_SUITE_P(limiting, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<limiting_resource_adaptor<cuda_memory_resource>>(4 * GiB); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(aligned_as_256, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<aligned_resource_adaptor<cuda_memory_resource>>(); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(aligned_to_4096, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<aligned_resource_adaptor<cuda_memory_resource>>(4096); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(thread_safe, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<thread_safe_resource_adaptor<cuda_memory_resource>>(); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(failure_callback, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over_cuda<failure_callback_resource_adaptor<cuda_memory_resource>>(
                                         [](std::size_t, void*) { return false; }, nullptr);
                                 },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(prefetch_of_managed, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over<prefetch_resource_adaptor<managed_memory_resource>>(
                                         std::make_shared<managed_memory_resource>());
                                 },
                             .kind = MemoryKind::managed,
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(
    owning_wrapper_of_a_pool, ResourceConformance,
    testing::Values(conforming{
        .make = [] { return make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 0); },
        .supports_streams = true}));

/// thread_safe over limiting over aligned over a pool, the whole of it owned.
resource_ptr stack_over_a_pool() {
    auto pool = make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 0);
    auto aligned = make_owning_wrapper<aligned_resource_adaptor>(pool, 1024, 4096);
    auto limited = make_owning_wrapper<limiting_resource_adaptor>(aligned, 4 * GiB);
    return make_owning_wrapper<thread_safe_resource_adaptor>(limited);
}
INSTANTIATE_TEST_SUITE_P(stack_over_a_pool, ResourceConformance,
                         testing::Values(conforming{.make = stack_over_a_pool, .supports_streams = true}));

/// A pool over adaptors, which it cannot see through.
resource_ptr pool_over_adaptors() {
    auto limited = make_owning_wrapper<limiting_resource_adaptor>(std::make_shared<cuda_memory_resource>(), 4 * GiB);
    auto prefetching = make_owning_wrapper<prefetch_resource_adaptor>(limited);
    return make_owning_wrapper<pool_memory_resource>(prefetching, 0);
}
INSTANTIATE_TEST_SUITE_P(pool_over_adaptors, ResourceConformance,
                         testing::Values(conforming{.make = pool_over_adaptors, .supports_streams = true}));

}  // namespace
}  // namespace rmm_test
