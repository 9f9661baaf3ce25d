// <rmm/cuda_stream_view.hpp>, <rmm/cuda_stream.hpp>, <rmm/cuda_stream_pool.hpp>.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <thread>
#include <type_traits>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/error.hpp"
#include "rmm/stream_registry.hpp"
#include "stream_tools.hpp"

namespace {

static_assert(sizeof(rmm::cuda_stream_view) == 8);
static_assert(std::is_trivially_copyable_v<rmm::cuda_stream_view>);
static_assert(!std::is_constructible_v<rmm::cuda_stream_view, int>);
static_assert(!std::is_constructible_v<rmm::cuda_stream_view, std::nullptr_t>);
static_assert(std::is_convertible_v<cudaStream_t, rmm::cuda_stream_view>);
static_assert(!std::is_copy_constructible_v<rmm::cuda_stream> &&
              std::is_nothrow_move_constructible_v<rmm::cuda_stream>);
static_assert(!std::is_move_constructible_v<rmm::cuda_stream_pool>);
static_assert(rmm::cuda_stream_default == rmm::cuda_stream_view{});

TEST(StreamView, handles_decide_equality) {
    rmm::cuda_stream a;
    rmm::cuda_stream b;
    EXPECT_EQ(a.view(), a.view());
    EXPECT_TRUE(a == a.view());
    EXPECT_TRUE(a != b);
    EXPECT_NE(a.view(), rmm::cuda_stream_default);
    EXPECT_NE(rmm::cuda_stream_default, rmm::cuda_stream_legacy);
    EXPECT_NE(static_cast<cudaStream_t>(a), nullptr);
    EXPECT_EQ(rmm::device_buffer{}.stream(), rmm::cuda_stream_default);
}

TEST(StreamView, knows_the_default_streams) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    constexpr bool zero_is_per_thread = true;
#else
    constexpr bool zero_is_per_thread = false;
#endif
    EXPECT_EQ(rmm::cuda_stream_default.is_default(), !zero_is_per_thread);
    EXPECT_EQ(rmm::cuda_stream_default.is_per_thread_default(), zero_is_per_thread);
    EXPECT_TRUE(rmm::cuda_stream_legacy.is_default());
    EXPECT_FALSE(rmm::cuda_stream_per_thread.is_default());
    EXPECT_TRUE(rmm::cuda_stream_per_thread.is_per_thread_default());
    rmm::cuda_stream own;
    EXPECT_FALSE(own.view().is_default());
    EXPECT_FALSE(own.view().is_per_thread_default());
}

TEST(StreamView, prints_as_its_handle) {
    rmm::cuda_stream stream;
    std::ostringstream view;
    std::ostringstream raw;
    view << stream.view();
    raw << stream.value();
    EXPECT_EQ(view.str(), raw.str());
}

TEST(StreamView, a_shared_view_synchronizes) {
    auto view = std::make_shared<rmm::cuda_stream_view>(rmm::cuda_stream_per_thread);
    EXPECT_NO_THROW(view->synchronize());
    EXPECT_NO_THROW(view->synchronize_no_throw());
}

TEST(StreamView, synchronizing_what_is_no_stream_throws) {
    const rmm::cuda_stream_view bogus{reinterpret_cast<cudaStream_t>(0x12345670)};
    EXPECT_THROW(bogus.synchronize(), rmm::cuda_error);
    EXPECT_TRUE(kmm::driver::process_default().take_last_error().ok());
}

TEST(Stream, moving_invalidates_the_source) {
    rmm::cuda_stream a;
    const rmm::cuda_stream_view view = a;
    rmm::cuda_stream b = std::move(a);
    EXPECT_FALSE(a.is_valid());
    EXPECT_TRUE(b.is_valid());
    EXPECT_EQ(b.view(), view);
    rmm::cuda_stream c;
    c = std::move(b);
    EXPECT_EQ(c.view(), view);
    EXPECT_FALSE(b.is_valid());
    c.synchronize();
    c.synchronize_no_throw();
}

/// What its flag says: whether work of the stream waits for work of the legacy default stream.
void expect_waits_for_default_stream(rmm::cuda_stream_view stream, bool waits) {
    static constexpr auto note = [](void* seen) { static_cast<std::atomic<bool>*>(seen)->store(true); };
    std::atomic<bool> seen{false};
    std::atomic<bool> others_go_on{false};
    const rmm_test::foreign_stream other;  // waits for nothing
    rmm_test::gate g;
    g.close(rmm::cuda_stream_legacy);
    EXPECT_TRUE(rmm_test::driver().host_callback({stream.value()}, note, &seen).ok());
    EXPECT_TRUE(rmm_test::driver().host_callback({other.view().value()}, note, &others_go_on).ok());
    other.view().synchronize();
    EXPECT_TRUE(others_go_on);
    // Where it should not wait, it is given all the time that a busy machine may need.
    const auto deadline =
        std::chrono::steady_clock::now() + (waits ? std::chrono::seconds{0} : std::chrono::seconds{60});
    do {
        for (int i = 0; i < 1000 && !seen; ++i) std::this_thread::yield();
    } while (!seen && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(!seen, waits);
    g.open();
    stream.synchronize();
    EXPECT_TRUE(seen);
}

TEST(Stream, its_flag_says_whether_it_waits_for_the_default_stream) {
    const rmm::cuda_stream by_default;
    const rmm::cuda_stream ordered{rmm::cuda_stream::flags::sync_default};
    const rmm::cuda_stream free_running{rmm::cuda_stream::flags::non_blocking};
    expect_waits_for_default_stream(by_default, true);
    expect_waits_for_default_stream(ordered, true);
    expect_waits_for_default_stream(free_running, false);
}

TEST(StreamDeathTest, a_wait_that_cannot_be_made_is_told_and_ends_a_debug_build) {
    const rmm::cuda_stream_view bogus{reinterpret_cast<cudaStream_t>(0x12345670)};
#ifdef NDEBUG
    testing::internal::CaptureStderr();
    bogus.synchronize_no_throw();
    EXPECT_NE(testing::internal::GetCapturedStderr().find("wait for a stream"), std::string::npos);
    EXPECT_TRUE(rmm_test::driver().take_last_error().ok());
#else
    EXPECT_DEATH(bogus.synchronize_no_throw(), "wait for a stream");
#endif
}

TEST(StreamPool, refuses_to_be_empty) { EXPECT_THROW(rmm::cuda_stream_pool{0}, rmm::logic_error); }

TEST(StreamPool, hands_out_its_streams_in_turn) {
    rmm::cuda_stream_pool pool{3};
    EXPECT_EQ(pool.get_pool_size(), 3u);
    EXPECT_EQ(pool.get_stream(), pool.get_stream(0));
    EXPECT_EQ(pool.get_stream(), pool.get_stream(1));
    EXPECT_EQ(pool.get_stream(), pool.get_stream(5));
    EXPECT_EQ(pool.get_stream(), pool.get_stream(0));
    EXPECT_NE(pool.get_stream(0), pool.get_stream(1));
    EXPECT_FALSE(pool.get_stream().is_default());
    EXPECT_FALSE(pool.get_stream().is_per_thread_default());
    EXPECT_EQ(rmm::cuda_stream_pool{}.get_pool_size(), rmm::cuda_stream_pool::default_size);
}

TEST(StreamPool, an_index_beyond_its_size_begins_again) {
    const rmm::cuda_stream_pool pool;
    static_assert(rmm::cuda_stream_pool::default_size >= 1);
    EXPECT_EQ(pool.get_stream(0), pool.get_stream(pool.get_pool_size()));
    EXPECT_NE(pool.get_stream(0), pool.get_stream(1));
}

TEST(StreamPool, gives_all_its_streams_its_flag) {
    const rmm::cuda_stream_pool by_default;
    for (std::size_t i = 0; i < by_default.get_pool_size(); ++i)
        expect_waits_for_default_stream(by_default.get_stream(i), true);
    const rmm::cuda_stream_pool free_running{2, rmm::cuda_stream::flags::non_blocking};
    for (std::size_t i = 0; i < 2; ++i) expect_waits_for_default_stream(free_running.get_stream(i), false);
}

TEST(StreamPool, its_streams_do_work) {
    rmm::cuda_stream_pool pool{2};
    const rmm::cuda_stream_view a = pool.get_stream();
    const rmm::cuda_stream_view b = pool.get_stream();
    rmm::device_uvector<unsigned char> source(100, a);
    const unsigned char value = 0xcc;
    ASSERT_TRUE(kmm::driver::process_default().fill(source.data(), &value, 1, 100, {a.value()}).ok());
    a.synchronize();
    const rmm::device_uvector<unsigned char> copy(source, b);
    EXPECT_EQ(copy.front_element(b), 0xcc);
}

TEST(StreamRegistry, tells_who_a_stream_is) {
    using rmm::detail::identify;
    using rmm::detail::stream_kind;
    auto& driver = kmm::driver::process_default();
    EXPECT_EQ(identify(driver, rmm::cuda_stream_default).kind, stream_kind::legacy);
    EXPECT_EQ(identify(driver, rmm::cuda_stream_default).number, identify(driver, rmm::cuda_stream_legacy).number);

    const auto own_thread = identify(driver, rmm::cuda_stream_per_thread);
    EXPECT_EQ(own_thread.kind, stream_kind::per_thread);
    EXPECT_EQ(own_thread.number, identify(driver, rmm::cuda_stream_per_thread).number);
    std::uint64_t other_thread = own_thread.number;
    std::thread([&] { other_thread = identify(driver, rmm::cuda_stream_per_thread).number; }).join();
    EXPECT_NE(other_thread, own_thread.number);

    rmm::cuda_stream owned;
    EXPECT_EQ(identify(driver, owned).kind, stream_kind::owned);
    EXPECT_EQ(identify(driver, owned).number, identify(driver, owned).number);

    kmm::driver::StreamHandle foreign;
    ASSERT_TRUE(driver.create_stream(0, false, 0, &foreign).ok());
    const rmm::cuda_stream_view view{static_cast<cudaStream_t>(foreign.native)};
    EXPECT_EQ(identify(driver, view).kind, stream_kind::foreign);
    EXPECT_EQ(identify(driver, view).number, identify(driver, view).number);
    ASSERT_TRUE(driver.destroy_stream(foreign).ok());
}

TEST(StreamRegistry, a_destroyed_stream_is_not_mistaken_for_its_successor) {
    auto& driver = kmm::driver::process_default();
    std::uint64_t previous = 0;
    for (int i = 0; i < 20; ++i) {
        rmm::cuda_stream stream;
        const std::uint64_t number = rmm::detail::identify(driver, stream).number;
        EXPECT_NE(number, previous);
        previous = number;
    }
}

TEST(StreamRegistry, the_end_of_an_observed_stream_can_be_waited_for) {
    auto& driver = kmm::driver::process_default();
    kmm::driver::EventHandle spare;
    ASSERT_TRUE(driver.create_event(0, false, false, &spare).ok());
    rmm::detail::owned_stream* record = nullptr;
    {
        rmm::cuda_stream stream;
        record = rmm::detail::identify(driver, stream).owned;
        record->retain();
        record->observe();
        kmm::driver::EventHandle point;
        ASSERT_TRUE(record->fence(spare, &point).ok());
        EXPECT_EQ(point, spare);
    }
    kmm::driver::EventHandle point;
    ASSERT_TRUE(record->fence(spare, &point).ok());
    EXPECT_NE(point, spare);
    ASSERT_NE(point.native, nullptr);
    EXPECT_TRUE(driver.synchronize_event(point).ok());
    record->release();
    EXPECT_TRUE(driver.destroy_event(spare).ok());
}

}  // namespace
