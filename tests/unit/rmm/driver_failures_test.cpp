// rmm over a driver that refuses: what is thrown, and that nothing is left behind or done in vain.
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "recording_resource.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"
#include "rmm/detail/runtime_capabilities.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/prefetch.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"
#include "support/sizes.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::testing::ScriptedDriver;
using rmm::detail::driver_scope;
using rmm_test::recording_resource;

TEST(FailingDriver, a_stream_that_cannot_be_made_leaves_nothing) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    driver.fail_call("create_stream", 1, Code::unknown);
    EXPECT_THROW(rmm::cuda_stream{}, rmm::cuda_error);
    EXPECT_TRUE(driver.take_last_error().ok());
    EXPECT_NO_THROW(rmm::cuda_stream{}.synchronize());
    // The streams of a pool that could not be filled are gone as well.
    driver.clear_log();
    driver.fail_call("create_stream", 3, Code::unknown);
    EXPECT_THROW(rmm::cuda_stream_pool{4}, rmm::cuda_error);
    EXPECT_EQ(driver.count("create_stream"), 3u);
    EXPECT_EQ(driver.count("destroy_stream"), 2u);
}

TEST(FailingDriver, a_question_that_it_refuses_is_answered_with_no_and_leaves_no_error) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    driver.fail_call("attribute", 1, Code::invalid_argument);
    EXPECT_FALSE(rmm::detail::concurrent_managed_access::is_supported());
    EXPECT_TRUE(driver.take_last_error().ok());
    EXPECT_TRUE(rmm::detail::concurrent_managed_access::is_supported()) << "the next answer is the driver's again";
    driver.fail_call("attribute", 1, Code::invalid_argument);
    EXPECT_FALSE(rmm::detail::export_handle_type::is_supported(1));
    EXPECT_TRUE(driver.take_last_error().ok());
    driver.fail_call("attribute", 1, Code::unknown);
    EXPECT_THROW((void)rmm::detail::export_handle_type::is_supported(1), rmm::cuda_error);
}

TEST(FailingDriver, prefetching_memory_that_it_refuses_leaves_no_error) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    const rmm::device_buffer buffer{100, rmm::cuda_stream_view{}};
    driver.fail_call("prefetch", 1, Code::invalid_argument);
    EXPECT_NO_THROW(rmm::prefetch(buffer.data(), 100, rmm::get_current_cuda_device(), rmm::cuda_stream_view{}));
    EXPECT_EQ(driver.num_failures(), 1u);
    EXPECT_TRUE(driver.take_last_error().ok());
    driver.fail_call("prefetch", 1, Code::unknown);
    EXPECT_THROW(rmm::prefetch(buffer.data(), 100, rmm::get_current_cuda_device(), rmm::cuda_stream_view{}),
                 rmm::cuda_error);
}

/// Bytes of large blocks of the host's allocator; 0 where it does not tell, and under sanitizers, which tell of leaks.
std::size_t mapped_by_malloc() {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    return mallinfo2().hblkhd;
#else
    return 0;
#endif
}

TEST(FailingDriver, system_memory_that_cannot_be_advised_is_freed) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    constexpr std::size_t bytes = 32 * MiB;  // the host's allocator maps it by itself, and counts it
    for (const std::uint64_t refused : {1u, 2u}) {
        rmm::mr::sam_headroom_memory_resource mr{48 * MiB};  // a part goes to the device, the rest to the host
        const auto mapped_before = mapped_by_malloc();
        driver.fail_call("prefer_location", refused, Code::unknown);
        EXPECT_THROW((void)mr.allocate(bytes), rmm::bad_alloc);
        EXPECT_EQ(mapped_by_malloc(), mapped_before);
        void* const ptr = mr.allocate(bytes);
        EXPECT_NE(ptr, nullptr);
        mr.deallocate(ptr, bytes);
    }
    EXPECT_EQ(driver.num_failures(), 2u);
}

TEST(FailingDriver, system_memory_is_freed_behind_the_work_of_its_stream) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    const rmm::cuda_stream stream;
    rmm::mr::sam_headroom_memory_resource mr{0};
    void* const ptr = mr.allocate(4096, stream);
    driver.clear_log();
    mr.deallocate(ptr, 4096, stream);
    EXPECT_EQ(driver.count("synchronize_stream"), 1u);
    EXPECT_EQ(driver.log().back().stream.native, stream.value());
}

TEST(FailingDriver, a_buffer_copies_nothing_where_there_is_nothing_to_copy) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    recording_resource mr;
    {
        const rmm::device_buffer empty{nullptr, 0, rmm::cuda_stream_view{}, mr};
        rmm::device_buffer grown{empty, rmm::cuda_stream_view{}, mr};
        grown.reserve(100, rmm::cuda_stream_view{});
        grown.resize(200, rmm::cuda_stream_view{});
        grown.resize(0, rmm::cuda_stream_view{});
        grown.shrink_to_fit(rmm::cuda_stream_view{});
    }
    EXPECT_EQ(driver.count("copy"), 0u);
    EXPECT_EQ(mr.asked(), (std::vector<std::size_t>{100, 200}));
    EXPECT_EQ(mr.in_use, 0u);
}

TEST(FailingDriver, a_copy_of_a_buffer_that_fails_leaks_nothing) {
    ScriptedDriver driver;
    const driver_scope on(driver);
    recording_resource mr;
    rmm::device_buffer source{100, rmm::cuda_stream_view{}, mr};
    driver.fail_call("copy", 1, Code::unknown);
    EXPECT_THROW((rmm::device_buffer{source, rmm::cuda_stream_view{}, mr}), rmm::cuda_error);
    EXPECT_EQ(mr.in_use, 100u);
    void* const ptr = source.data();
    driver.fail_call("copy", 1, Code::unknown);
    EXPECT_THROW(source.resize(200, rmm::cuda_stream_view{}), rmm::cuda_error);
    EXPECT_EQ(source.data(), ptr);
    EXPECT_EQ(source.size(), 100u);
    EXPECT_EQ(mr.in_use, 100u);
}

}  // namespace
