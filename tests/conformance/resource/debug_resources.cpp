// debug_resource_adaptor in the suite: any finding in a program without defects fails the test that was running.
#include "resource_suite.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/debug_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "support/sizes.hpp"

namespace rmm_test {
namespace {

using kmm::driver::MemoryKind;
using namespace rmm::mr;

debug_options failing(std::size_t quarantine_bytes, bool synchronous = false) {
    debug_options options;
    options.quarantine_bytes = quarantine_bytes;
    options.synchronous = synchronous;
    options.report = [](debug_finding const& f, void*) { ADD_FAILURE() << f.text; };
    return options;
}

template<typename Upstream>
resource_ptr debugging(std::size_t quarantine_bytes, bool synchronous = false) {
    return over<debug_resource_adaptor<Upstream>>(std::make_shared<Upstream>(), failing(quarantine_bytes, synchronous));
}

INSTANTIATE_TEST_SUITE_P(debug_of_cuda, ResourceConformance,
                         testing::Values(conforming{.make = [] { return debugging<cuda_memory_resource>(8 * MiB); },
                                                    .supports_get_mem_info = true,
                                                    .hundred_blocks_of_bytes = MiB / 4}));

INSTANTIATE_TEST_SUITE_P(debug_of_cuda_synchronous, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return debugging<cuda_memory_resource>(8 * MiB, true); },
                             .supports_get_mem_info = true,
                             .hundred_blocks_of_bytes = MiB / 4}));

INSTANTIATE_TEST_SUITE_P(debug_of_managed, ResourceConformance,
                         testing::Values(conforming{.make = [] { return debugging<managed_memory_resource>(MiB); },
                                                    .kind = MemoryKind::managed,
                                                    .supports_get_mem_info = true,
                                                    .hundred_blocks_of_bytes = MiB / 4,
                                                    .one_block_of_bytes = 64 * MiB}));

INSTANTIATE_TEST_SUITE_P(debug_of_pinned, ResourceConformance,
                         testing::Values(conforming{.make = [] { return debugging<pinned_host_memory_resource>(MiB); },
                                                    .kind = MemoryKind::pinned,
                                                    .hundred_blocks_of_bytes = MiB / 4,
                                                    .one_block_of_bytes = 64 * MiB}));

INSTANTIATE_TEST_SUITE_P(debug_of_cuda_async, ResourceConformance,
                         testing::Values(conforming{.make = [] { return debugging<cuda_async_memory_resource>(0); },
                                                    .supports_streams = true,
                                                    .hundred_blocks_of_bytes = MiB / 4}));

resource_ptr debugging_a_pool() {
    auto pool = make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 0);
    return make_owning_wrapper<debug_resource_adaptor>(pool, failing(8 * MiB));
}
INSTANTIATE_TEST_SUITE_P(debug_of_a_pool, ResourceConformance,
                         testing::Values(conforming{
                             .make = debugging_a_pool, .supports_streams = true, .hundred_blocks_of_bytes = MiB / 4}));

resource_ptr pool_over_debugging() {
    auto debug =
        make_owning_wrapper<debug_resource_adaptor>(std::make_shared<cuda_memory_resource>(), failing(8 * MiB));
    return make_owning_wrapper<pool_memory_resource>(debug, 0);
}
INSTANTIATE_TEST_SUITE_P(pool_over_debug, ResourceConformance,
                         testing::Values(conforming{.make = pool_over_debugging,
                                                    .supports_streams = true,
                                                    .hundred_blocks_of_bytes = MiB / 4}));

}  // namespace
}  // namespace rmm_test
