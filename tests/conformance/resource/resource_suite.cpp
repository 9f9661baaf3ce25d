// The tests of resource_suite.hpp. Each starts with a new resource on device 0 of the process's driver.
#include "resource_suite.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "rmm/cuda_device.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/resource_ref.hpp"
#include "support/sizes.hpp"

namespace rmm_test {

void fill(void* ptr, std::uint32_t value, std::size_t bytes, rmm::cuda_stream_view stream) {
    ASSERT_TRUE(driver().fill(ptr, &value, sizeof(value), bytes / sizeof(value), handle(stream)).ok());
}

void copy(void* to, const void* from, std::size_t bytes, rmm::cuda_stream_view stream) {
    kmm::driver::PointerInfo source;
    ASSERT_TRUE(driver().pointer_info(from, &source).ok());
    // A driver may read pageable memory when the copy is queued, ahead of what the stream still writes there.
    if (source.kind == kmm::driver::MemoryKind::pageable) stream.synchronize();
    ASSERT_TRUE(driver().copy(to, from, bytes, handle(stream)).ok());
}

std::size_t count_different(const void* ptr, std::uint32_t value, std::size_t bytes, rmm::cuda_stream_view stream) {
    const std::size_t count = bytes / sizeof(value);
    if (count == 0) return 0;
    const auto words = std::make_unique_for_overwrite<std::uint32_t[]>(count);
    copy(words.get(), ptr, count * sizeof(value), stream);
    stream.synchronize();
    // All at once: of a loop sanitizers look at every word.
    if (words[0] == value && std::memcmp(&words[0], &words[1], (count - 1) * sizeof(value)) == 0) return 0;
    return static_cast<std::size_t>(
        std::count_if(&words[0], &words[count], [&](std::uint32_t w) { return w != value; }));
}

pinned_words::pinned_words(std::size_t count) {
    void* ptr = nullptr;
    if (driver().allocate_pinned(count * sizeof(std::uint32_t), &ptr).ok()) words_ = static_cast<std::uint32_t*>(ptr);
}

pinned_words::~pinned_words() { EXPECT_TRUE(driver().free_pinned(words_).ok()); }

namespace {

struct block {
    void* ptr;
    std::size_t bytes;
    std::uint32_t pattern;
};

/// Allocates and frees at random on one stream, writes into every block its own pattern, and checks it before the free.
std::size_t churn(rmm::mr::device_memory_resource& mr, rmm::cuda_stream_view stream, unsigned seed, int num_steps,
                  std::size_t max_bytes) {
    std::mt19937 random(seed);
    std::vector<block> blocks;
    std::size_t num_wrong = 0;
    const auto drop = [&](std::size_t i) {
        num_wrong += count_different(blocks[i].ptr, blocks[i].pattern, blocks[i].bytes, stream);
        mr.deallocate(blocks[i].ptr, blocks[i].bytes, stream);
        blocks[i] = blocks.back();
        blocks.pop_back();
    };
    for (int step = 0; step < num_steps; ++step) {
        if (blocks.empty() || random() % 100 < 53) {
            const std::size_t bytes = 4 + random() % max_bytes;
            void* const ptr = mr.allocate(bytes, stream);
            num_wrong += reinterpret_cast<std::uintptr_t>(ptr) % 256;
            blocks.push_back({ptr, bytes, static_cast<std::uint32_t>(random())});
            fill(ptr, blocks.back().pattern, bytes, stream);
        } else {
            drop(random() % blocks.size());
        }
    }
    while (!blocks.empty()) drop(blocks.size() - 1);
    return num_wrong;
}

TEST_P(ResourceConformance, gives_aligned_memory_of_every_size) {
    for (std::size_t bytes :
         {std::size_t{1}, std::size_t{4}, std::size_t{255}, std::size_t{256}, std::size_t{257}, KiB, MiB, 5 * MiB}) {
        void* const ptr = resource().allocate(bytes);
        ASSERT_NE(ptr, nullptr) << bytes;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 256, 0u) << bytes;
        const std::size_t words = bytes / 4 * 4;
        if (words > 0) {
            fill(ptr, 0xabcd1234u, words, rmm::cuda_stream_default);
            EXPECT_EQ(count_different(ptr, 0xabcd1234u, words, rmm::cuda_stream_default), 0u);
        }
        resource().deallocate(ptr, bytes);
    }
}

TEST_P(ResourceConformance, gives_null_for_zero_bytes_or_an_address_and_takes_null_back) {
    void* const ptr = resource().allocate(0);
    EXPECT_EQ(ptr == nullptr, GetParam().null_for_zero_bytes);
    resource().deallocate(ptr, 0);
    resource().deallocate(nullptr, 100);
    rmm::cuda_stream stream;
    void* const on_stream = resource().allocate(0, stream);
    EXPECT_EQ(on_stream == nullptr, GetParam().null_for_zero_bytes);
    resource().deallocate(on_stream, 0, stream);
    resource().deallocate(nullptr, 0, stream);
}

TEST_P(ResourceConformance, memory_is_of_its_kind_on_the_device_of_the_resource) {
    void* const ptr = resource().allocate(KiB);
    kmm::driver::PointerInfo info;
    ASSERT_TRUE(driver().pointer_info(ptr, &info).ok());
    EXPECT_EQ(info.kind, GetParam().kind);
    if (info.kind == kmm::driver::MemoryKind::device) {
        EXPECT_EQ(info.device, 0);
    }
    resource().deallocate(ptr, KiB);
}

TEST_P(ResourceConformance, every_spelling_allocates_and_frees) {
    auto& mr = resource();
    rmm::cuda_stream stream;
    mr.deallocate(mr.allocate(100), 100);
    mr.deallocate(mr.allocate(100, 64), 100, 64);
    mr.deallocate(mr.allocate(100, 0), 100, 0);
    mr.deallocate(mr.allocate(100, stream), 100, stream);
    mr.deallocate_async(mr.allocate_async(100, stream), 100, stream);
    mr.deallocate_async(mr.allocate_async(100, 256, stream), 100, 256, stream);
    mr.deallocate_sync(mr.allocate_sync(100), 100);
    mr.deallocate_sync(mr.allocate_sync(100, 128), 100, 128);
    mr.deallocate(stream, mr.allocate(stream, 100), 100);
    mr.deallocate(stream, mr.allocate(stream, 100, 8), 100, 8);
    rmm::device_async_resource_ref ref{mr};
    ref.deallocate(ref.allocate(100), 100);
    ref.deallocate_async(ref.allocate_async(100, stream), 100, stream);
    void* const ptr = ref.allocate(stream, 100, 256);
    EXPECT_NE(ptr, nullptr);
    ref.deallocate(stream, ptr, 100, 256);
}

TEST_P(ResourceConformance, live_blocks_do_not_overlap) {
    EXPECT_EQ(churn(resource(), rmm::cuda_stream_default, 1, repeat(200, 30), 256 * KiB), 0u);
    rmm::cuda_stream stream;
    EXPECT_EQ(churn(resource(), stream, 2, repeat(200, 30), 256 * KiB), 0u);
}

TEST_P(ResourceConformance, memory_freed_on_one_stream_is_used_on_another_only_after_it) {
    constexpr std::size_t bytes = MiB;
    const auto num_rounds = static_cast<std::uint32_t>(repeat(40, 8));
    rmm::cuda_stream a;
    rmm::cuda_stream b{rmm::cuda_stream::flags::non_blocking};
    pinned_words results(2 * num_rounds);
    for (std::uint32_t round = 0; round < num_rounds; ++round) {
        rmm::cuda_stream_view first = round % 2 ? b.view() : a.view();
        rmm::cuda_stream_view second = round % 2 ? a.view() : b.view();
        void* const old = resource().allocate(bytes, first);
        fill(old, round, bytes, first);
        copy(results.data() + 2 * round, static_cast<char*>(old) + bytes - 4, 4, first);
        resource().deallocate(old, bytes, first);
        void* const next = resource().allocate(bytes, second);
        fill(next, ~round, bytes, second);
        copy(results.data() + 2 * round + 1, next, 4, second);
        resource().deallocate(next, bytes, second);
    }
    a.synchronize();
    b.synchronize();
    for (std::uint32_t round = 0; round < num_rounds; ++round) {
        EXPECT_EQ(results[2 * round], round);
        EXPECT_EQ(results[2 * round + 1], ~round);
    }
}

TEST_P(ResourceConformance, a_stream_may_be_destroyed_right_after_memory_was_freed_on_it) {
    constexpr std::size_t bytes = 256 * KiB;
    const auto num_rounds = static_cast<std::uint32_t>(repeat(30, 12));
    pinned_words results(num_rounds);
    for (std::uint32_t round = 0; round < num_rounds; ++round) {
        const auto use = [&](rmm::cuda_stream_view stream) {
            void* const ptr = resource().allocate(bytes, stream);
            fill(ptr, round, bytes, stream);
            copy(results.data() + round, static_cast<char*>(ptr) + bytes - 4, 4, stream);
            resource().deallocate(ptr, bytes, stream);
        };
        if (round % 2 == 0) {
            rmm::cuda_stream ours;
            use(ours);
        } else {
            kmm::driver::StreamHandle foreign;
            ASSERT_TRUE(driver().create_stream(0, round % 4 == 1, 0, &foreign).ok());
            use(rmm::cuda_stream_view{static_cast<cudaStream_t>(foreign.native)});
            ASSERT_TRUE(driver().destroy_stream(foreign).ok());
        }
    }
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    for (std::uint32_t round = 0; round < num_rounds; ++round) EXPECT_EQ(results[round], round);
}

TEST_P(ResourceConformance, threads_with_streams_of_their_own_do_not_disturb_each_other) {
    std::atomic<std::size_t> num_wrong{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            rmm::cuda_stream stream;
            num_wrong += churn(resource(), stream, 10 + i, repeat(100, 30), 64 * KiB);
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_wrong, 0u);
}

TEST_P(ResourceConformance, threads_share_one_stream_or_use_their_default_streams) {
    std::atomic<std::size_t> num_wrong{0};
    rmm::cuda_stream shared;
    kmm::driver::StreamHandle foreign;
    ASSERT_TRUE(driver().create_stream(0, true, 0, &foreign).ok());
    const rmm::cuda_stream_view foreign_view{static_cast<cudaStream_t>(foreign.native)};
    for (rmm::cuda_stream_view stream :
         {shared.view(), rmm::cuda_stream_view{}, foreign_view, rmm::cuda_stream_view{rmm::cuda_stream_per_thread}}) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 4; ++i)
            threads.emplace_back([&, i] { num_wrong += churn(resource(), stream, 20 + i, repeat(40, 15), 64 * KiB); });
        for (std::thread& t : threads) t.join();
    }
    EXPECT_EQ(num_wrong, 0u);
    EXPECT_TRUE(driver().destroy_stream(foreign).ok());
}

TEST_P(ResourceConformance, one_thread_allocates_and_another_frees) {
    const int num_blocks = repeat(100, 25);
    rmm::cuda_stream produce;
    rmm::cuda_stream consume;
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
            num_wrong += count_different(b.ptr, b.pattern, b.bytes, consume);
            resource().deallocate(b.ptr, b.bytes, consume);
        }
    });
    kmm::driver::EventHandle event;
    ASSERT_TRUE(driver().create_event(0, false, false, &event).ok());
    for (int i = 0; i < num_blocks; ++i) {
        const std::size_t bytes = 4 * static_cast<std::size_t>(1 + (i * 7919) % 25000);
        const block b{resource().allocate(bytes, produce), bytes, static_cast<std::uint32_t>(i)};
        fill(b.ptr, b.pattern, b.bytes, produce);
        ASSERT_TRUE(driver().record_event(event, handle(produce)).ok());
        ASSERT_TRUE(driver().wait_event(handle(consume), event).ok());
        std::lock_guard lock(mutex);
        queue.push_back(b);
        added.notify_one();
    }
    consumer.join();
    EXPECT_EQ(num_wrong, 0u);
    EXPECT_TRUE(driver().destroy_event(event).ok());
}

TEST_P(ResourceConformance, a_request_that_cannot_be_met_throws_and_leaves_the_resource_usable) {
    rmm::cuda_stream stream;
    void* ptr = nullptr;
    try {
        ptr = resource().allocate(PiB, stream);
        FAIL() << "1 PiB was given";
    } catch (const rmm::out_of_memory& e) {
        EXPECT_NE(std::string(e.what()).find("out_of_memory"), std::string::npos);
        EXPECT_GE(e.shortage().requested_bytes, PiB);  // an adaptor may ask its upstream for more
        if (e.shortage().device >= 0) {
            EXPECT_GT(e.shortage().device_total_bytes, 0u) << e.what();
        }
    }
    EXPECT_EQ(ptr, nullptr);
    EXPECT_TRUE(driver().take_last_error().ok());
    EXPECT_EQ(churn(resource(), stream, 3, repeat(20, 10), MiB), 0u);
}

TEST_P(ResourceConformance, equality_says_who_may_free) {
    const resource_ptr second = GetParam().make();
    EXPECT_TRUE(resource().is_equal(resource()));
    EXPECT_TRUE(resource() == resource());
    EXPECT_EQ(resource().is_equal(*second), GetParam().equal_by_type);
    EXPECT_EQ(resource() != *second, !GetParam().equal_by_type);
    EXPECT_EQ(rmm::device_async_resource_ref{resource()} == rmm::device_async_resource_ref{*second},
              GetParam().equal_by_type);
}

TEST_P(ResourceConformance, answers_what_older_programs_ask) {
    EXPECT_EQ(resource().supports_streams(), GetParam().supports_streams);
    EXPECT_EQ(resource().supports_get_mem_info(), GetParam().supports_get_mem_info);
    const auto [free_bytes, total_bytes] = resource().get_mem_info(rmm::cuda_stream_view{});
    EXPECT_LE(free_bytes, total_bytes);
    EXPECT_EQ(total_bytes > 0, GetParam().supports_get_mem_info);
}

TEST_P(ResourceConformance, serves_as_the_current_resource) {
    rmm::device_async_resource_ref const ref{resource()};
    rmm::device_async_resource_ref const previous = rmm::mr::set_current_device_resource_ref(ref);
    EXPECT_EQ(rmm::mr::get_current_device_resource_ref(), ref);
    EXPECT_EQ(rmm::mr::get_current_device_resource(), &resource());
    rmm::device_async_resource_ref current = rmm::mr::get_current_device_resource_ref();
    void* const ptr = current.allocate_async(KiB, rmm::cuda_stream_default);
    EXPECT_NE(ptr, nullptr);
    current.deallocate_async(ptr, KiB, rmm::cuda_stream_default);
    EXPECT_EQ(rmm::mr::set_current_device_resource_ref(previous), ref);
    EXPECT_EQ(rmm::mr::get_current_device_resource_ref(), previous);
}

}  // namespace
}  // namespace rmm_test
