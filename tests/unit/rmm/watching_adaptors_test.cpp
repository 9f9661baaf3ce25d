// What logging, statistics and tracking promise as all adaptors do.
#include <gtest/gtest.h>

#include <sstream>

#include "fake_resource.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/is_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"

namespace {

using namespace rmm::mr;
using rmm_test::fake_resource;

template<typename Adaptor>
struct maker {
    template<typename From>
    static Adaptor make(From upstream) {
        return Adaptor{upstream};
    }
};
std::ostringstream log_text;
template<typename Upstream>
struct maker<logging_resource_adaptor<Upstream>> {
    template<typename From>
    static logging_resource_adaptor<Upstream> make(From upstream) {
        return {upstream, log_text};
    }
};

template<typename Adaptor>
class WatchingAdaptors : public testing::Test {};
using adaptor_types =
    testing::Types<logging_resource_adaptor<fake_resource>, statistics_resource_adaptor<fake_resource>,
                   tracking_resource_adaptor<fake_resource>>;
TYPED_TEST_SUITE(WatchingAdaptors, adaptor_types);

TYPED_TEST(WatchingAdaptors, refuse_a_null_upstream) {
    EXPECT_THROW((void)maker<TypeParam>::make(static_cast<fake_resource*>(nullptr)), rmm::logic_error);
    const rmm::device_async_resource_ref null = static_cast<fake_resource*>(nullptr);
    EXPECT_THROW((void)maker<TypeParam>::make(null), rmm::logic_error);
}

TYPED_TEST(WatchingAdaptors, are_equal_over_one_upstream_whichever_way_they_were_made) {
    fake_resource upstream;
    fake_resource other;
    const TypeParam a = maker<TypeParam>::make(&upstream);
    const TypeParam b = maker<TypeParam>::make(rmm::device_async_resource_ref{upstream});
    const TypeParam c = maker<TypeParam>::make(&other);
    EXPECT_TRUE(a == a && a == b && b == a && a != c);
    aligned_resource_adaptor<device_memory_resource> aligned{&upstream};
    EXPECT_FALSE(a.is_equal(aligned));
    EXPECT_FALSE(a.is_equal(upstream));
}

TYPED_TEST(WatchingAdaptors, tell_their_upstream) {
    static_assert(is_resource_adaptor<TypeParam>);
    fake_resource upstream;
    const TypeParam a = maker<TypeParam>::make(&upstream);
    const TypeParam b = maker<TypeParam>::make(rmm::device_async_resource_ref{upstream});
    EXPECT_EQ(a.get_upstream_resource(), rmm::device_async_resource_ref{upstream});
    EXPECT_EQ(a.get_upstream(), &upstream);
    EXPECT_EQ(b.get_upstream(), nullptr);
    EXPECT_TRUE(a.supports_streams() && a.supports_get_mem_info());
    EXPECT_EQ(a.get_mem_info(rmm::cuda_stream_view{}), (std::pair<std::size_t, std::size_t>{3, 7}));
}

TYPED_TEST(WatchingAdaptors, forward_bytes_and_stream_as_they_are) {
    fake_resource upstream;
    TypeParam mr = maker<TypeParam>::make(&upstream);
    const rmm::cuda_stream_view stream{reinterpret_cast<cudaStream_t>(0x1234)};
    void* const ptr = mr.allocate(3, stream);
    mr.deallocate(ptr, 3, rmm::cuda_stream_per_thread);
    ASSERT_EQ(upstream.allocations.size(), 1u);
    ASSERT_EQ(upstream.frees.size(), 1u);
    EXPECT_EQ(upstream.allocations[0].bytes, 3u);
    EXPECT_EQ(upstream.allocations[0].stream, stream);
    EXPECT_EQ(upstream.frees[0].ptr, ptr);
    EXPECT_EQ(upstream.frees[0].bytes, 3u);
    EXPECT_EQ(upstream.frees[0].stream, rmm::cuda_stream_view{rmm::cuda_stream_per_thread});
}

}  // namespace
