// The headers in a unit that defines CUDA_API_PER_THREAD_DEFAULT_STREAM: stream 0 is the thread's own there, also in
// compiled code, which was built without it; and other units of the program are not affected.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM

#include <gtest/gtest.h>

#include "recording_resource.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/resource_ref.hpp"

namespace {

using namespace rmm;

TEST(PerThreadDefaultStream, stream_zero_is_the_threads_own) {
    EXPECT_TRUE(cuda_stream_default.is_per_thread_default());
    EXPECT_FALSE(cuda_stream_default.is_default());
    EXPECT_TRUE(cuda_stream_legacy.is_default());
    EXPECT_NO_THROW(cuda_stream_default.synchronize());
}

TEST(PerThreadDefaultStream, resources_are_given_the_stream_that_is_meant) {
    rmm_test::recording_resource mr;
    mr.deallocate(mr.allocate(10), 10);
    mr.deallocate(mr.allocate(10, cuda_stream_default), 10, cuda_stream_default);
    device_async_resource_ref ref{mr};
    ref.deallocate(ref.allocate(10), 10);
    ref.deallocate_async(ref.allocate_async(10, cuda_stream_default), 10, cuda_stream_default);
    { device_buffer buffer{10, cuda_stream_default, mr}; }
    ASSERT_EQ(mr.allocations.size(), 5u);
    for (const auto& r : mr.allocations) EXPECT_EQ(r.stream, cuda_stream_per_thread);
    for (const auto& r : mr.frees) EXPECT_EQ(r.stream, cuda_stream_per_thread);
}

TEST(PerThreadDefaultStream, containers_still_say_the_stream_that_they_were_given) {
    device_buffer buffer{10, cuda_stream_default};
    EXPECT_EQ(buffer.stream(), cuda_stream_default);
    buffer.set_stream(cuda_stream_legacy);
    EXPECT_EQ(buffer.stream(), cuda_stream_legacy);
}

}  // namespace
