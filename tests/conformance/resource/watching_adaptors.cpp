// The adaptors that watch, in the suite.
#include "resource_suite.hpp"

#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"

namespace rmm_test {
namespace {

using namespace rmm::mr;

template<typename Adaptor, typename... Args>
resource_ptr over_cuda(Args... args) {
    return over<Adaptor>(std::make_shared<cuda_memory_resource>(), args...);
}

INSTANTIATE_TEST_SUITE_P(logging, ResourceConformance,
                         testing::Values(conforming{
                             .make =
                                 [] {
                                     return over_cuda<logging_resource_adaptor<cuda_memory_resource>>(
                                         std::initializer_list<rapids_logger::sink_ptr>{
                                             std::make_shared<rapids_logger::null_sink_mt>()});
                                 },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(statistics, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<statistics_resource_adaptor<cuda_memory_resource>>(); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

INSTANTIATE_TEST_SUITE_P(tracking, ResourceConformance,
                         testing::Values(conforming{
                             .make = [] { return over_cuda<tracking_resource_adaptor<cuda_memory_resource>>(true); },
                             .equal_by_type = true,
                             .supports_get_mem_info = true}));

resource_ptr all_over_pool() {
    using pool = pool_memory_resource<cuda_memory_resource>;
    auto counted = over<statistics_resource_adaptor<device_memory_resource>>(
        over<pool>(std::make_shared<cuda_memory_resource>(), 0));
    auto tracked = over<tracking_resource_adaptor<device_memory_resource>>(counted, false);
    return over<logging_resource_adaptor<device_memory_resource>>(tracked, std::string("/dev/null"));
}
INSTANTIATE_TEST_SUITE_P(logging_over_tracking_over_statistics_over_pool, ResourceConformance,
                         testing::Values(conforming{.make = all_over_pool, .supports_streams = true}));

}  // namespace
}  // namespace rmm_test
