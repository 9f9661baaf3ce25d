// What a resource does when the host has no memory left: a free needs none, whatever came before, and nothing is lost.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "resource_suite.hpp"

#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "support/sizes.hpp"

namespace {

/// Every allocation of this thread fails.
thread_local bool host_is_full = false;
/// Of all threads, so that work of a driver can end when a call has been refused memory.
std::atomic<int> num_refused{0};

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (host_is_full) {
        ++num_refused;
        num_refused.notify_all();
        return nullptr;
    }
    if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    if (void* p = allocate(bytes, alignment)) return p;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate_or_throw(bytes, std::size_t(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate_or_throw(bytes, std::size_t(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace rmm_test {
namespace {

class full_host {
  public:
    full_host() { host_is_full = true; }
    ~full_host() { host_is_full = false; }
    full_host(const full_host&) = delete;
    full_host& operator=(const full_host&) = delete;
};

struct host_block {
    void* ptr;
    std::size_t bytes;
    rmm::cuda_stream_view stream;
};

TEST_P(ResourceConformance, a_free_needs_no_memory_of_the_host) {
    // Lost blocks would be missed: in all the rounds the device's memory is used several times over.
    const std::size_t largest = std::min(GetParam().hundred_blocks_of_bytes, 2 * MiB);
    const int num_rounds = repeat(24, 4);
    rmm::cuda_stream first, second;
    const rmm::cuda_stream_view streams[] = {rmm::cuda_stream_default, first, second};
    // What a driver makes with the first call.
    for (const auto stream : streams) stream.synchronize();
    std::mt19937 random(7);
    testing::internal::CaptureStderr();
    std::vector<host_block> blocks;
    for (int round = 0; round < num_rounds; ++round) {
        // A stream that the resource has not seen when it gets a block.
        rmm::cuda_stream unseen;
        blocks.clear();
        for (int i = 0; i < 100; ++i) {
            const std::size_t bytes = i % 3 == 0 ? largest - random() % (largest / 4) : 1 + random() % (8 * KiB);
            const auto stream = streams[random() % 3];
            blocks.push_back({resource().allocate(bytes, stream), bytes, stream});
        }
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const host_block& b = blocks[i];
            // On their own stream, on another one, and on one that comes only now.
            rmm::cuda_stream_view on = b.stream;
            if (i % 4 == 1) on = streams[random() % 3];
            if (i % 16 == 3) on = unseen;
            if (i % 16 == 7) {
                // The default stream of a thread that no resource has heard of.
                b.stream.synchronize();
                std::thread([&] {
                    rmm::cuda_stream_per_thread.synchronize();  // again what a driver makes with the first call
                    const full_host full;
                    resource().deallocate(b.ptr, b.bytes, rmm::cuda_stream_per_thread);
                }).join();
                continue;
            }
            if (on.value() != b.stream.value()) b.stream.synchronize();
            const full_host full;
            resource().deallocate(b.ptr, b.bytes, on);
        }
    }
    for (const auto stream : streams) stream.synchronize();
    const std::string reports = testing::internal::GetCapturedStderr();
    EXPECT_EQ(reports.find("lost"), std::string::npos) << reports;
    EXPECT_EQ(reports.find("out of memory"), std::string::npos) << reports;
}

TEST(FullHost, what_a_capture_has_taken_comes_back_in_parts_without_memory_of_the_host) {
    if (driver().kind() != kmm::driver::Kind::host)
        GTEST_SKIP() << "another driver needs memory of the host to capture";
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, 64 * MiB, 64 * MiB};
    kmm::driver::StreamHandle raw;
    ASSERT_TRUE(driver().create_stream(0, true, 0, &raw).ok());
    const rmm::cuda_stream_view captured{static_cast<cudaStream_t>(raw.native)};
    // One that does not wait for others, as the default stream would.
    kmm::driver::StreamHandle raw_other;
    ASSERT_TRUE(driver().create_stream(0, true, 0, &raw_other).ok());
    const rmm::cuda_stream_view other{static_cast<cudaStream_t>(raw_other.native)};
    constexpr std::size_t bytes = 100 * KiB;
    constexpr std::size_t num_blocks = 120;
    std::vector<void*> blocks;
    testing::internal::CaptureStderr();
    ASSERT_TRUE(driver().begin_capture(raw, kmm::driver::CaptureMode::relaxed).ok());
    for (std::size_t i = 0; i < num_blocks; ++i) blocks.push_back(pool.allocate(bytes, captured));
    for (std::size_t i = 0; i < num_blocks; ++i) {
        const full_host full;
        if (i % 3 == 0) pool.deallocate(blocks[i], bytes, captured);
        if (i % 3 == 1) pool.deallocate(blocks[i], bytes, other);
    }
    kmm::driver::GraphHandle graph;
    ASSERT_TRUE(driver().end_capture(raw, &graph).ok());
    ASSERT_TRUE(driver().destroy_graph(graph).ok());
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    for (std::size_t i = 2; i < num_blocks; i += 3) {
        const full_host full;
        pool.deallocate(blocks[i], bytes, other);
    }
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    const auto after = pool.statistics();
    const std::string reports = testing::internal::GetCapturedStderr();
    // With RMM_DEBUG a free that has no memory to be looked at says so; the block comes back all the same.
    EXPECT_EQ(reports.find("lost"), std::string::npos) << reports;
    EXPECT_EQ(reports.find("out of memory"), std::string::npos) << reports;
    EXPECT_EQ(after.in_use_bytes, 0u);
    EXPECT_EQ(after.captured_bytes, 0u);
    EXPECT_EQ(after.largest_free_bytes, 64 * MiB) << "a part of it was lost";
    ASSERT_TRUE(driver().destroy_stream(raw).ok());
    ASSERT_TRUE(driver().destroy_stream(raw_other).ok());
}

/// A host driver of its own, whose streams have queued nothing yet.
class FullHostDriver : public testing::Test {
  protected:
    kmm::driver::Driver& host() { return *host_; }
    kmm::driver::StreamHandle blocking_stream() {
        kmm::driver::StreamHandle stream;
        EXPECT_TRUE(host().create_stream(0, false, 0, &stream).ok());
        return stream;
    }
    void* allocate(kmm::driver::StreamHandle stream) {
        kmm::driver::PoolHandle pool;
        EXPECT_TRUE(host().default_pool(0, &pool).ok());
        void* ptr = nullptr;
        EXPECT_TRUE(host().allocate_async(pool, MiB, stream, &ptr).ok());
        return ptr;
    }
    /// Keeps the stream busy until a call of `free_on` is refused memory or has returned.
    void keep_busy(kmm::driver::StreamHandle stream) {
        before_ = num_refused;
        const auto wait = [](void* before) { num_refused.wait(*static_cast<int*>(before)); };
        ASSERT_TRUE(host().host_callback(stream, wait, &before_).ok());
    }
    kmm::driver::Status free_on(kmm::driver::StreamHandle stream, void* ptr) {
        kmm::driver::Status status;
        {
            const full_host full;
            status = host().free_async(ptr, stream);
        }
        ++num_refused;
        num_refused.notify_all();
        return status;
    }
    void expect_that_all_memory_came_back() {
        ASSERT_TRUE(host().synchronize_device(0).ok());
        std::size_t free_bytes = 0, total_bytes = 0;
        ASSERT_TRUE(host().memory_info(0, &free_bytes, &total_bytes).ok());
        EXPECT_EQ(free_bytes, total_bytes);
    }

  private:
    std::shared_ptr<kmm::driver::Driver> host_ = kmm::driver::make_host_driver({1, 64 * MiB, 2});
    int before_ = 0;
};

TEST_F(FullHostDriver, frees_on_a_stream_that_must_wait_for_the_default_stream) {
    const auto stream = blocking_stream();
    void* ptr = allocate(stream);
    keep_busy(kmm::driver::legacy_stream());
    EXPECT_TRUE(free_on(stream, ptr).ok());
    expect_that_all_memory_came_back();
}

TEST_F(FullHostDriver, frees_on_the_default_stream_that_must_wait_for_many) {
    void* ptr = allocate(kmm::driver::legacy_stream());
    const auto first = blocking_stream();
    keep_busy(first);
    kmm::driver::EventHandle event;
    ASSERT_TRUE(host().create_event(0, false, false, &event).ok());
    ASSERT_TRUE(host().record_event(event, first).ok());
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(host().wait_event(blocking_stream(), event).ok());
    EXPECT_TRUE(free_on(kmm::driver::legacy_stream(), ptr).ok());
    expect_that_all_memory_came_back();
}

TEST_F(FullHostDriver, frees_on_the_own_stream_of_a_thread_that_it_has_not_seen) {
    void* ptr = allocate(kmm::driver::legacy_stream());
    keep_busy(kmm::driver::legacy_stream());
    kmm::driver::Status status{kmm::driver::Code::not_ready};
    std::thread([&] { status = free_on(kmm::driver::per_thread_stream(), ptr); }).join();
    EXPECT_TRUE(status.ok());
    expect_that_all_memory_came_back();
}

}  // namespace
}  // namespace rmm_test
