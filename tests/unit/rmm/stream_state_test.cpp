// What a pool asks the driver about a stream.
#include "rmm/pool/stream_state.hpp"

#include <gtest/gtest.h>

#include "scripted_driver.hpp"

namespace {

using namespace rmm;

TEST(StreamState, tells_streams_of_another_device_but_not_default_streams_which_are_of_any) {
    kmm::driver::testing::ScriptedDriver driver({.num_devices = 2});
    kmm::driver::StreamHandle made;
    ASSERT_TRUE(driver.create_stream(1, true, 0, &made).ok());
    const cuda_stream_view stream{static_cast<cudaStream_t>(made.native)};
    EXPECT_TRUE(mr::detail::is_of_other_device(driver, 0, stream));
    EXPECT_FALSE(mr::detail::is_of_other_device(driver, 1, stream));
    EXPECT_FALSE(mr::detail::is_of_other_device(driver, 1, cuda_stream_legacy));
    EXPECT_EQ(mr::detail::normalized(cuda_stream_view{}), cuda_stream_legacy.value());
    EXPECT_EQ(mr::detail::capture_of(driver, stream), 0u);
}

}  // namespace
