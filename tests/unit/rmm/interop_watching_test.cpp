// Loggers and the adaptors that watch as the drop-in (target rmm::rmm): the concepts of libcu++ that they model.
#include <gtest/gtest.h>

#include <cuda/memory_resource>

#include <sstream>
#include <type_traits>

#include "rmm/detail/cuda_memory_resource.hpp"
#include "rmm/logger.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/logging_resource_adaptor.hpp"
#include "rmm/mr/device/statistics_resource_adaptor.hpp"
#include "rmm/mr/device/tracking_resource_adaptor.hpp"
#include "rmm/mr/is_resource_adaptor.hpp"

namespace {

using namespace rmm::mr;

template<typename T, bool Moves>
constexpr bool is_row =
    rmm::detail::polyfill::resource<T> && rmm::detail::polyfill::async_resource<T> &&
    rmm::detail::polyfill::async_resource_with<T, cuda::mr::device_accessible> &&
    !cuda::has_property<T, cuda::mr::host_accessible> && is_resource_adaptor<T> && !std::is_copy_constructible_v<T> &&
    !std::is_copy_assignable_v<T> && std::is_move_constructible_v<T> == Moves &&
    std::is_move_assignable_v<T> == Moves && std::is_final_v<T> && !std::is_default_constructible_v<T> &&
    std::is_convertible_v<T&, rmm::device_async_resource_ref>;

static_assert(is_row<logging_resource_adaptor<cuda_memory_resource>, true>);
static_assert(is_row<statistics_resource_adaptor<cuda_memory_resource>, false>);
static_assert(is_row<tracking_resource_adaptor<cuda_memory_resource>, false>);

TEST(InteropWatchingAdaptors, stand_behind_references_of_libcupp) {
    cuda_memory_resource cuda;
    std::ostringstream text;
    logging_resource_adaptor logging{&cuda, text};
    statistics_resource_adaptor statistics{&logging};
    tracking_resource_adaptor tracking{&statistics};
    rmm::device_async_resource_ref ours{tracking};
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> theirs = ours;
    void* const ptr = theirs.allocate(100, 64);
    EXPECT_EQ(tracking.get_allocated_bytes(), 100u);
    EXPECT_EQ(statistics.get_bytes_counter().value, 100);
    theirs.deallocate(ptr, 100, 64);
    EXPECT_EQ(statistics.get_bytes_counter().value, 0);
    EXPECT_NE(text.str().find(",100,"), std::string::npos);
    RMM_LOG_DEBUG("not compiled in: %d", 1);
}

}  // namespace
