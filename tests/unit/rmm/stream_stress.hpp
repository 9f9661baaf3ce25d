// A resource under threads and streams that come and go: every word of a block in use holds the block's own number,
// filled and checked in the order of the streams that own the block.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "rmm/mr/device_memory_resource.hpp"
#include "stream_tools.hpp"

namespace rmm_test {

/// How many words held another block's number. Frees everything.
inline int count_wrong_words(rmm::mr::device_memory_resource& resource, int num_threads, int num_steps,
                             std::size_t largest_units = 2048, int streams_each = 3) {
    struct owned {
        std::uint32_t* ptr;
        std::size_t bytes;
        std::uint32_t value;
    };
    std::atomic<std::uint32_t> next_value{1};
    std::atomic<int> num_wrong{0};
    std::mutex passed_on_mutex;
    struct passed {
        owned block;
        kmm::driver::EventHandle ready;
    };
    std::vector<passed> passed_on;
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            std::vector<std::unique_ptr<foreign_stream>> streams;
            for (int i = 0; i < streams_each; ++i) streams.push_back(std::make_unique<foreign_stream>());
            struct held {
                owned block;
                std::size_t stream;
            };
            std::vector<held> blocks;
            std::uint32_t* first_words = nullptr;
            ASSERT_TRUE(driver().allocate_pinned(4, reinterpret_cast<void**>(&first_words)).ok());
            const auto check_and_free = [&](const held& h) {
                const kmm::driver::StreamHandle s{streams[h.stream]->view().value()};
                const std::size_t word = random() % (h.block.bytes / 4);
                ASSERT_TRUE(driver().copy(first_words, h.block.ptr + word, 4, s).ok());
                ASSERT_TRUE(driver().synchronize_stream(s).ok());
                if (*first_words != h.block.value) ++num_wrong;
                resource.deallocate(h.block.ptr, h.block.bytes, streams[h.stream]->view());
            };
            for (int step = 0; step < num_steps; ++step) {
                const auto what = random() % 100;
                if (what < 55 && blocks.size() < 40) {
                    held h;
                    h.stream = random() % streams.size();
                    h.block.bytes = 256 * (1 + random() % (1 + (largest_units >> random() % 11)));
                    h.block.value = next_value++;
                    const kmm::driver::StreamHandle s{streams[h.stream]->view().value()};
                    try {
                        h.block.ptr =
                            static_cast<std::uint32_t*>(resource.allocate(h.block.bytes, streams[h.stream]->view()));
                    } catch (const rmm::out_of_memory&) {
                        continue;
                    }
                    ASSERT_TRUE(driver().fill(h.block.ptr, &h.block.value, 4, h.block.bytes / 4, s).ok());
                    blocks.push_back(h);
                } else if (what < 90 && !blocks.empty()) {
                    std::swap(blocks[random() % blocks.size()], blocks.back());
                    const held h = blocks.back();
                    blocks.pop_back();
                    check_and_free(h);
                } else if (what < 93 && !blocks.empty()) {
                    // To another thread, ordered by an event.
                    const held h = blocks.back();
                    blocks.pop_back();
                    passed p{h.block, {}};
                    ASSERT_TRUE(driver().create_event(0, false, false, &p.ready).ok());
                    ASSERT_TRUE(driver().record_event(p.ready, {streams[h.stream]->view().value()}).ok());
                    std::lock_guard lock(passed_on_mutex);
                    passed_on.push_back(p);
                } else if (what < 96) {
                    passed p;
                    {
                        std::lock_guard lock(passed_on_mutex);
                        if (passed_on.empty()) continue;
                        p = passed_on.back();
                        passed_on.pop_back();
                    }
                    const std::size_t stream = random() % streams.size();
                    ASSERT_TRUE(driver().wait_event({streams[stream]->view().value()}, p.ready).ok());
                    ASSERT_TRUE(driver().destroy_event(p.ready).ok());
                    blocks.push_back({p.block, stream});
                } else if (what < 98) {
                    // A stream goes, with work queued behind it; what it held is freed on it first.
                    const std::size_t gone = random() % streams.size();
                    for (std::size_t i = 0; i < blocks.size();) {
                        if (blocks[i].stream != gone) {
                            ++i;
                            continue;
                        }
                        resource.deallocate(blocks[i].block.ptr, blocks[i].block.bytes, streams[gone]->view());
                        blocks[i] = blocks.back();
                        blocks.pop_back();
                    }
                    streams[gone]->destroy();
                    streams[gone] = std::make_unique<foreign_stream>();
                }
            }
            for (const held& h : blocks) check_and_free(h);
            ASSERT_TRUE(driver().free_pinned(first_words).ok());
        });
    }
    for (std::thread& t : threads) t.join();
    for (const passed& p : passed_on) {
        EXPECT_TRUE(driver().synchronize_event(p.ready).ok());
        EXPECT_TRUE(driver().destroy_event(p.ready).ok());
        resource.deallocate(p.block.ptr, p.block.bytes, rmm::cuda_stream_view{});
    }
    return num_wrong;
}

}  // namespace rmm_test
