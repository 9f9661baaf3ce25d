// Which of our classes model which concepts of libcu++, as measured on RMM 25.10: a table checked at compile time.
#include <gtest/gtest.h>

#include <cuda/memory_resource>

#include <type_traits>

#include "rmm/detail/cuda_memory_resource.hpp"
#include "rmm/mr/device/callback_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_memory_resource.hpp"
#include "rmm/mr/device/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/managed_memory_resource.hpp"
#include "rmm/mr/device/per_device_resource.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

namespace {

using namespace rmm::mr;

template<typename T, bool Resource, bool Async, bool Device, bool Host>
constexpr bool is_row =
    cuda::mr::resource<T> == Resource && cuda::mr::async_resource<T> == Async &&
    cuda::has_property<T, cuda::mr::device_accessible> == Device &&
    cuda::has_property<T, cuda::mr::host_accessible> == Host && rmm::detail::polyfill::resource<T> == Resource &&
    rmm::detail::polyfill::async_resource<T> == Async;

static_assert(is_row<device_memory_resource, true, true, true, false>);
static_assert(is_row<cuda_memory_resource, true, true, true, false>);
static_assert(is_row<managed_memory_resource, true, true, true, false>);
static_assert(is_row<cuda_async_view_memory_resource, true, true, true, false>);
static_assert(is_row<cuda_async_memory_resource, true, true, true, false>);
static_assert(is_row<callback_memory_resource, true, true, true, false>);
static_assert(is_row<pinned_host_memory_resource, true, true, true, true>);
static_assert(is_row<pinned_memory_resource, true, true, true, true>);
static_assert(is_row<new_delete_resource, true, false, false, true>);
static_assert(is_row<host_memory_resource, true, false, false, true>);
static_assert(is_row<pool_memory_resource<cuda_memory_resource>, true, true, true, false>);
static_assert(is_row<pool_memory_resource<pinned_host_memory_resource>, true, true, true, true>);
static_assert(is_row<pool_memory_resource<pinned_memory_resource>, true, true, true, true>);
static_assert(is_row<rmm::device_async_resource_ref, true, true, true, false>);
static_assert(is_row<rmm::device_resource_ref, true, false, true, false>);
static_assert(is_row<rmm::host_device_async_resource_ref, true, true, true, true>);

static_assert(cuda::mr::async_resource_with<cuda_memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<rmm::device_async_resource_ref, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<new_delete_resource, cuda::mr::host_accessible>);
static_assert(rmm::detail::polyfill::async_resource_with<pool_memory_resource<cuda_memory_resource>,
                                                         cuda::mr::device_accessible>);

template<typename T> constexpr bool converts = std::is_convertible_v<T&, rmm::device_async_resource_ref>;
static_assert(converts<cuda_memory_resource> && converts<pool_memory_resource<cuda_memory_resource>> &&
              converts<pinned_host_memory_resource> && converts<device_memory_resource>);

/// A program's mock: derives, and says again what the base says.
class mock final : public device_memory_resource {
  public:
    bool operator==(const mock&) const noexcept { return true; }
    bool operator!=(const mock&) const noexcept { return false; }
    friend void get_property(const mock&, cuda::mr::device_accessible) noexcept {}

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};
static_assert(cuda::mr::async_resource_with<mock, cuda::mr::device_accessible>);

/// An upstream with static members: no property, a plain one, or one with a value.
struct fake {
    static void* allocate(std::size_t, std::size_t) { return nullptr; }
    static void deallocate(void*, std::size_t, std::size_t) {}
    static void* allocate_async(std::size_t, std::size_t, cuda::stream_ref) { return nullptr; }
    static void deallocate_async(void*, std::size_t, std::size_t, cuda::stream_ref) {}
    bool operator==(const fake&) const { return true; }
    bool operator!=(const fake&) const { return false; }
};
struct device_fake : fake {
    friend void get_property(const device_fake&, cuda::mr::device_accessible) {}
};
struct number {
    using value_type = int;
};
struct numbered_fake : device_fake {
    friend int get_property(const numbered_fake&, number) { return 5; }
};
static_assert(cuda::mr::resource<pool_memory_resource<fake>>);
static_assert(!cuda::has_property<pool_memory_resource<fake>, cuda::mr::device_accessible>);
static_assert(cuda::has_property<pool_memory_resource<device_fake>, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<pool_memory_resource<device_fake>, cuda::mr::host_accessible>);
static_assert(cuda::has_property_with<pool_memory_resource<numbered_fake>, number, int>);

TEST(InteropConcepts, a_value_of_the_upstream_is_forwarded) {
    numbered_fake upstream;
    const pool_memory_resource<numbered_fake> pool{upstream, 0};
    EXPECT_EQ(get_property(pool, number{}), 5);
}

}  // namespace
