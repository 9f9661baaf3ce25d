// system_memory_resource, sam_headroom_memory_resource and cuda_async_managed_memory_resource, beyond the conformance
// suite.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "driver/registry.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/headroom.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/resource_ref.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm::mr;

static_assert(std::is_convertible_v<system_memory_resource&, rmm::host_device_async_resource_ref>);
static_assert(!std::is_convertible_v<sam_headroom_memory_resource&, rmm::host_resource_ref>);

TEST(SystemMemory, is_supported_where_the_device_says_so) {
    EXPECT_TRUE(detail::is_system_memory_supported(rmm::get_current_cuda_device()));
    EXPECT_TRUE(detail::is_system_memory_supported(rmm::cuda_device_id{1}));
    EXPECT_THROW((void)detail::is_system_memory_supported(rmm::cuda_device_id{99}), rmm::cuda_error);
}

TEST(SystemMemory, is_refused_exactly_where_it_is_not_supported) {
    if (detail::is_system_memory_supported(rmm::get_current_cuda_device()))
        EXPECT_NO_THROW(system_memory_resource{});
    else
        EXPECT_THROW(system_memory_resource{}, rmm::logic_error);
}

TEST(SystemMemory, touching_it_on_the_host_uses_no_device_memory) {
    system_memory_resource mr;
    const std::size_t before = rmm::available_device_memory().first;
    void* const ptr = mr.allocate(MiB);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 256, 0u);
    std::memset(ptr, 1, MiB);
    EXPECT_EQ(rmm::available_device_memory().first, before);
    mr.deallocate(ptr, MiB);
}

TEST(SystemMemory, zero_bytes_have_an_address_of_their_own) {
    system_memory_resource mr;
    void* const a = mr.allocate(0);
    void* const b = mr.allocate(0);
    EXPECT_NE(a, nullptr);
    EXPECT_NE(a, b);
    mr.deallocate(a, 0);
    mr.deallocate(b, 0);
    mr.deallocate(nullptr, 100);
}

void finish_late(void* done) { static_cast<std::atomic<bool>*>(done)->store(true); }

TEST(SystemMemory, deallocate_waits_for_the_stream) {
    system_memory_resource mr;
    rmm::cuda_stream stream;
    void* const ptr = mr.allocate(MiB, stream);
    std::atomic<bool> done{false};
    auto& driver = kmm::driver::process_default();
    const unsigned char pattern = 7;
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(driver.fill(ptr, &pattern, 1, MiB, {stream.value()}).ok());
    ASSERT_TRUE(driver.host_callback({stream.value()}, &finish_late, &done).ok());
    mr.deallocate(ptr, MiB, stream);
    EXPECT_TRUE(done);
}

TEST(SystemMemory, exhaustion_says_so) {
    system_memory_resource mr;
    try {
        (void)mr.allocate(std::size_t{1} << 50);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        EXPECT_NE(std::string(e.what()).find("system_memory_resource failed to allocate 1125899906842624 bytes"),
                  std::string::npos)
            << e.what();
    }
}

TEST(SamHeadroom, gives_memory_that_the_host_can_use_even_without_any_room) {
    sam_headroom_memory_resource mr{rmm::available_device_memory().first + (std::size_t{1} << 30)};
    void* const ptr = mr.allocate(MiB);
    std::memset(ptr, 1, MiB);
    mr.deallocate(ptr, MiB);
}

TEST(SamHeadroom, exhaustion_names_it) {
    sam_headroom_memory_resource mr{0};
    try {
        (void)mr.allocate(std::size_t{1} << 50);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        EXPECT_NE(std::string(e.what()).find("sam_headroom_memory_resource failed to allocate 1125899906842624 bytes"),
                  std::string::npos)
            << e.what();
    }
}

TEST(SamHeadroom, is_equal_with_the_same_headroom_only) {
    sam_headroom_memory_resource a{MiB};
    sam_headroom_memory_resource b{MiB};
    sam_headroom_memory_resource c{2 * MiB};
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    EXPECT_FALSE(a.is_equal(system_memory_resource{}));
}

/// Counts how often the free memory is asked for.
struct device {
    std::size_t free_bytes;
    int num_questions = 0;
    std::size_t operator()() {
        ++num_questions;
        return free_bytes;
    }
};

TEST(Headroom, the_first_bytes_go_to_the_device_as_far_as_there_is_room) {
    detail::headroom h{10 * MiB};
    device d{30 * MiB};
    const auto ask = [&](std::size_t bytes) { return h.bytes_on_device(bytes, [&] { return d(); }); };
    EXPECT_EQ(ask(8 * MiB), 8 * MiB);
    EXPECT_EQ(ask(100 * MiB), 20 * MiB);
    d.free_bytes = 10 * MiB + 1000;
    EXPECT_EQ(ask(8 * MiB), 768u);  // a multiple of 256
    d.free_bytes = 10 * MiB;
    EXPECT_EQ(ask(8 * MiB), 0u);
    d.free_bytes = 0;
    EXPECT_EQ(ask(8 * MiB), 0u);
    EXPECT_EQ(d.num_questions, 5);
}

TEST(Headroom, small_blocks_do_not_ask_each_time_and_share_the_room) {
    detail::headroom h{0};
    device d{1000 * 256};
    const auto ask = [&](std::size_t bytes) { return h.bytes_on_device(bytes, [&] { return d(); }); };
    for (int i = 0; i < detail::headroom::small_blocks_per_answer; ++i) EXPECT_EQ(ask(256), 256u);
    EXPECT_EQ(d.num_questions, 1);
    EXPECT_EQ(ask(256), 256u);
    EXPECT_EQ(d.num_questions, 2);
    EXPECT_EQ(ask(998 * 256), 998u * 256);
    EXPECT_EQ(ask(1024), 256u);  // what is left of the room that was told
    EXPECT_EQ(ask(1024), 0u);
    EXPECT_EQ(d.num_questions, 2);
}

TEST(Headroom, requests_that_ask_at_once_do_not_share_out_the_same_room_twice) {
    detail::headroom h{0};
    std::size_t other = 0;
    const std::size_t first = h.bytes_on_device(16 * MiB, [&] {
        other = h.bytes_on_device(16 * MiB, [] { return 20 * MiB; });
        return 20 * MiB;  // before the other one took its part
    });
    EXPECT_EQ(other, 16 * MiB);
    EXPECT_EQ(first, 4 * MiB);
}

TEST(Headroom, what_the_question_throws_passes_through_and_the_next_one_is_asked_again) {
    detail::headroom h{0};
    EXPECT_THROW(h.bytes_on_device(256, []() -> std::size_t { throw std::runtime_error("lost"); }), std::runtime_error);
    EXPECT_EQ(h.bytes_on_device(256, [] { return std::size_t{512}; }), 256u);
}

TEST(Headroom, the_question_is_asked_without_the_lock) {
    detail::headroom h{0};
    (void)h.bytes_on_device(256, [&h] {
        std::thread([&h] {
            const std::unique_lock free(h.mutex, std::try_to_lock);
            EXPECT_TRUE(free.owns_lock());
        }).join();
        return std::size_t{512};
    });
}

TEST(CudaAsyncManaged, uses_the_pool_of_the_current_device_and_does_not_own_it) {
    cudaMemPool_t pool = nullptr;
    {
        cuda_async_managed_memory_resource first;
        cuda_async_managed_memory_resource second;
        pool = first.pool_handle();
        EXPECT_NE(pool, nullptr);
        EXPECT_EQ(second.pool_handle(), pool);
        EXPECT_EQ(first, second);
        rmm::cuda_set_device_raii other{rmm::cuda_device_id{1}};
        cuda_async_managed_memory_resource on_other;
        EXPECT_NE(on_other.pool_handle(), pool);
        EXPECT_NE(on_other, first);
        EXPECT_FALSE(first.is_equal(cuda_memory_resource{}));
    }
    cuda_async_managed_memory_resource again;
    EXPECT_EQ(again.pool_handle(), pool);
    rmm::cuda_stream stream;
    void* const ptr = again.allocate(1000, stream);
    stream.synchronize();
    std::memset(ptr, 1, 1000);
    again.deallocate(ptr, 1000, stream);
    EXPECT_EQ(again.allocate(0), nullptr);
}

}  // namespace
