// More of the suite: the largest and the most requests, on every kind of stream, from one thread and from several.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "resource_suite.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/resource_ref.hpp"
#include "support/sizes.hpp"

namespace rmm_test {
namespace {

constexpr int num_threads = 4;

using ref = rmm::device_async_resource_ref;

/// The three ways to ask: without a stream, on the default stream, on a stream of one's own.
class way {
  public:
    enum kind { sync, default_stream, own_stream };
    explicit way(kind k, rmm::cuda_stream_view own)
        : kind_{k}, stream_{k == own_stream ? own : rmm::cuda_stream_view{}} {}
    void* allocate(ref mr, std::size_t bytes) const {
        return kind_ == sync ? mr.allocate(bytes) : mr.allocate_async(bytes, stream_);
    }
    void deallocate(ref mr, void* ptr, std::size_t bytes) const {
        if (kind_ == sync)
            mr.deallocate(ptr, bytes);
        else
            mr.deallocate_async(ptr, bytes, stream_);
    }
    rmm::cuda_stream_view stream() const { return stream_; }

  private:
    kind kind_;
    rmm::cuda_stream_view stream_;
};

bool is_aligned(void* ptr) { return ptr != nullptr && reinterpret_cast<std::uintptr_t>(ptr) % 256 == 0; }

/// Blocks that are all in use at once, each with a pattern of its own; how many were wrong.
std::size_t hold_many(ref mr, const way& how, int num_blocks, std::size_t largest_bytes, unsigned seed) {
    struct block {
        void* ptr;
        std::size_t bytes;
        std::uint32_t pattern;
    };
    std::mt19937 random(seed);
    std::vector<block> blocks;
    std::size_t num_wrong = 0;
    for (int i = 0; i < num_blocks; ++i) {
        const std::size_t bytes = 1 + random() % largest_bytes;
        const block b{how.allocate(mr, bytes), bytes, static_cast<std::uint32_t>(random())};
        if (!is_aligned(b.ptr)) ++num_wrong;
        // The first word tells of blocks that lie over one another as well as all of them would.
        fill(b.ptr, b.pattern, bytes < 4 ? 0 : 4, how.stream());
        blocks.push_back(b);
    }
    for (const block& b : blocks) {
        num_wrong += count_different(b.ptr, b.pattern, b.bytes < 4 ? 0 : 4, how.stream());
        how.deallocate(mr, b.ptr, b.bytes);
    }
    return num_wrong;
}

TEST_P(ResourceConformance, gives_a_large_block_or_says_that_memory_is_out) {
    // With RMM_DEBUG pools write every byte.
    const std::size_t bytes = std::getenv("RMM_DEBUG") == nullptr ? GetParam().one_block_of_bytes : 64 * MiB;
    const rmm::cuda_stream own;
    for (const auto kind : {way::sync, way::default_stream, way::own_stream}) {
        const way how{kind, own};
        try {
            void* const ptr = how.allocate(resource(), bytes);
            EXPECT_TRUE(is_aligned(ptr));
            how.deallocate(resource(), ptr, bytes);
        } catch (const rmm::out_of_memory& e) {
            EXPECT_GE(e.shortage().requested_bytes, bytes);
        }
        EXPECT_TRUE(driver().take_last_error().ok());
        void* const ptr = how.allocate(resource(), 4);
        EXPECT_TRUE(is_aligned(ptr));
        how.deallocate(resource(), ptr, 4);
        // What pools of the driver hold until their frees are done would be missing to whoever comes next.
        ASSERT_TRUE(driver().synchronize_device(0).ok());
    }
}

TEST_P(ResourceConformance, a_pebibyte_is_refused_in_every_way_of_asking) {
    const rmm::cuda_stream own;
    for (const auto kind : {way::sync, way::default_stream, way::own_stream}) {
        void* ptr = nullptr;
        try {
            ptr = way(kind, own).allocate(resource(), PiB);
            ADD_FAILURE() << "1 PiB was given";
        } catch (const rmm::out_of_memory& e) {
            EXPECT_NE(std::string(e.what()).find("out_of_memory"), std::string::npos);
        }
        EXPECT_EQ(ptr, nullptr);
        EXPECT_TRUE(driver().take_last_error().ok());
    }
}

TEST_P(ResourceConformance, sizes_that_rounding_up_would_carry_past_the_largest_number_are_refused) {
    const rmm::cuda_stream own;
    constexpr std::size_t largest = ~std::size_t{0};
    for (const std::size_t bytes : {largest, largest - 254, largest - 255, largest - 2 * MiB + 2, largest / 2 + 1}) {
        for (const auto kind : {way::sync, way::default_stream, way::own_stream}) {
            EXPECT_THROW((void)way(kind, own).allocate(resource(), bytes), rmm::bad_alloc) << bytes;
            EXPECT_TRUE(driver().take_last_error().ok());
        }
    }
    void* const ptr = resource().allocate(4);
    EXPECT_TRUE(is_aligned(ptr));
    resource().deallocate(ptr, 4);
}

TEST_P(ResourceConformance, a_hundred_blocks_are_in_use_at_once) {
    const rmm::cuda_stream own;
    for (const auto kind : {way::sync, way::default_stream, way::own_stream})
        EXPECT_EQ(hold_many(resource(), way(kind, own), repeat(100, 20), GetParam().hundred_blocks_of_bytes, 1), 0u);
}

TEST_P(ResourceConformance, threads_hold_blocks_of_one_resource) {
    const rmm::cuda_stream shared;
    for (const auto kind : {way::sync, way::default_stream, way::own_stream}) {
        std::atomic<std::size_t> num_wrong{0};
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < num_threads; ++i) {
            threads.emplace_back([&, i] {
                num_wrong += hold_many(resource(), way(kind, shared), repeat(100, 20) / num_threads,
                                       GetParam().hundred_blocks_of_bytes, 10 + i);
            });
        }
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(num_wrong, 0u);
    }
}

TEST_P(ResourceConformance, threads_are_refused_what_is_too_much_and_go_on) {
    const rmm::cuda_stream shared;
    std::atomic<int> num_refusals{0};
    std::atomic<std::size_t> num_wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < num_threads; ++i) {
        threads.emplace_back([&] {
            for (const auto kind : {way::sync, way::default_stream, way::own_stream}) {
                const way how(kind, shared);
                how.deallocate(resource(), how.allocate(resource(), 0), 0);
                try {
                    (void)how.allocate(resource(), PiB);
                } catch (const rmm::out_of_memory&) {
                    ++num_refusals;
                }
                for (const std::size_t bytes : {std::size_t{4}, std::size_t{1024}, MiB}) {
                    void* const ptr = how.allocate(resource(), bytes);
                    if (!is_aligned(ptr)) ++num_wrong;
                    how.deallocate(resource(), ptr, bytes);
                }
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_refusals, 3 * num_threads);
    EXPECT_EQ(num_wrong, 0u);
}

TEST_P(ResourceConformance, threads_use_what_one_of_them_made_current) {
    rmm::mr::cuda_memory_resource cuda;
    const ref before = rmm::mr::set_current_device_resource_ref(cuda);
    std::thread([&] { EXPECT_EQ(rmm::mr::set_current_device_resource_ref(resource()), ref{cuda}); }).join();
    std::atomic<int> num_right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < num_threads; ++i) {
        threads.emplace_back([&] {
            ref current = rmm::mr::get_current_device_resource_ref();
            void* const ptr = current.allocate(MiB);
            if (current == ref{resource()} && rmm::mr::get_current_device_resource() == &resource() && is_aligned(ptr))
                ++num_right;
            current.deallocate(ptr, MiB);
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_right, num_threads);
    EXPECT_EQ(rmm::mr::reset_current_device_resource_ref(), ref{resource()});
    EXPECT_EQ(rmm::mr::get_current_device_resource_ref(), ref{rmm::mr::detail::initial_resource()});
    rmm::mr::set_current_device_resource_ref(before);
}

/// Blocks go from the thread that allocates them on one stream to a thread that frees them on the same or another
/// stream.
void hand_over(rmm::mr::device_memory_resource& mr, rmm::cuda_stream_view produce, rmm::cuda_stream_view consume) {
    struct block {
        void* ptr;
        std::size_t bytes;
        std::uint32_t pattern;
        kmm::driver::EventHandle written;
        // Its end is used.
        std::size_t used_bytes() const { return std::min<std::size_t>(bytes, 1024); }
        void* used() const { return static_cast<char*>(ptr) + (bytes - used_bytes()); }
    };
    const int num_blocks = repeat(100, 12);
    std::mutex mutex;
    std::condition_variable added;
    std::vector<block> queue;
    std::size_t num_wrong = 0;
    std::thread consumer([&] {
        for (int i = 0; i < num_blocks; ++i) {
            std::unique_lock lock(mutex);
            added.wait(lock, [&] { return !queue.empty(); });
            const block b = queue.back();
            queue.pop_back();
            lock.unlock();
            if (!driver().wait_event(handle(consume), b.written).ok()) ++num_wrong;
            num_wrong += count_different(b.used(), b.pattern, b.used_bytes(), consume);
            mr.deallocate(b.ptr, b.bytes, consume);
            if (!driver().destroy_event(b.written).ok()) ++num_wrong;
        }
    });
    std::mt19937 random(1);
    for (int i = 0; i < num_blocks; ++i) {
        const std::size_t bytes = 4 * (1 + random() % (MiB / 4));
        block b{mr.allocate(bytes, produce), bytes, static_cast<std::uint32_t>(i), {}};
        fill(b.used(), b.pattern, b.used_bytes(), produce);
        EXPECT_TRUE(driver().create_event(0, false, false, &b.written).ok());
        EXPECT_TRUE(driver().record_event(b.written, handle(produce)).ok());
        std::lock_guard lock(mutex);
        queue.push_back(b);
        added.notify_one();
    }
    consumer.join();
    EXPECT_EQ(num_wrong, 0u);
}

TEST_P(ResourceConformance, a_thread_frees_what_another_allocated_on_the_same_or_another_stream) {
    const rmm::cuda_stream a;
    const rmm::cuda_stream b;
    hand_over(resource(), rmm::cuda_stream_view{}, rmm::cuda_stream_view{});
    hand_over(resource(), rmm::cuda_stream_per_thread, rmm::cuda_stream_per_thread);
    hand_over(resource(), a, a);
    hand_over(resource(), a, b);
}

}  // namespace
}  // namespace rmm_test
