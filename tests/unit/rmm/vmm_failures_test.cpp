// Owns: a pool of virtual memory whose driver fails at any call: no byte is in two hands or in none.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "rmm/cuda_stream.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::Code;
using kmm::driver::testing::ScriptedDriver;
using rmm::mr::detail::pool_engine;
using rmm::mr::detail::refusal;
using rmm::mr::detail::virtual_source;

/// One word in each MiB and at the end, which would fail where nothing is mapped.
void write(void* ptr, std::size_t bytes, int value) {
    auto* const words = static_cast<char*>(ptr);
    for (std::size_t at = 0; at < bytes; at += MiB) reinterpret_cast<int&>(words[at]) = value;
    reinterpret_cast<int&>(words[bytes - 4]) = value;
}
bool reads(const void* ptr, std::size_t bytes, int value) {
    const auto* const words = static_cast<const char*>(ptr);
    for (std::size_t at = 0; at < bytes; at += MiB)
        if (reinterpret_cast<const int&>(words[at]) != value) return false;
    return reinterpret_cast<const int&>(words[bytes - 4]) == value;
}

TEST(VmmFailures, calls_of_the_driver_that_fail_lose_no_memory_however_scarce_it_is) {
    ScriptedDriver scripted({.num_devices = 1, .memory_bytes = 128 * MiB});
    scripted.exempt({"current_device", "set_current_device", "memory_info"});
    std::size_t num_cuts = 0, num_failures = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
        std::mt19937 random(seed);
        auto source = std::make_unique<virtual_source>(
            scripted, 0,
            mr::detail::virtual_source_options{.maximum_bytes = 96 * MiB, .largest_piece_bytes = 32 * MiB});
        const virtual_source& memory = *source;
        mr::detail::pool_options options;
        options.maximum_bytes = 96 * MiB;
        pool_engine pool(std::move(source), options);
        struct block {
            std::size_t bytes;
            int value;
        };
        std::map<void*, block> live;
        int last_value = 0;
        for (int step = 0; step < 400; ++step) {
            const auto failures_before = scripted.num_failures();
            if (random() % 3 == 0)
                scripted.fail_at(1 + random() % 12, random() % 2 ? Code::unknown : Code::out_of_memory);
            const auto released = memory.counts().release_calls;
            if (random() % 5 < 3) {
                const std::size_t bytes = 256 * (1 + random() % (std::size_t{1} << (8 + random() % 9)));
                refusal why;
                if (void* const ptr = pool.try_allocate(bytes, cuda_stream_view{}, &why)) {
                    ASSERT_TRUE(live.emplace(ptr, block{bytes, ++last_value}).second);
                    write(ptr, bytes, last_value);
                }
            } else if (!live.empty()) {
                const auto at = std::next(live.begin(), static_cast<int>(random() % live.size()));
                ASSERT_TRUE(reads(at->first, at->second.bytes, at->second.value)) << seed << ' ' << step;
                const cuda_stream_view stream;
                pool.free(at->first, at->second.bytes, {&stream, 1});
                live.erase(at);
            }
            num_cuts += memory.counts().release_calls - released;
            num_failures += scripted.num_failures() - failures_before;
            scripted.clear_failures();
            ASSERT_EQ(pool.held_bytes(), memory.held_bytes());
        }
        for (const auto& [ptr, b] : live) {
            ASSERT_TRUE(reads(ptr, b.bytes, b.value)) << seed;
            pool.free(ptr, b.bytes, {});
        }
        EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
        pool.trim(0);
        EXPECT_EQ(pool.held_bytes(), 0u) << "every piece was known to be free";
    }
    EXPECT_GT(num_cuts, 40u) << "pieces were cut or melted";
    EXPECT_GT(num_failures, 40u);
}

TEST(VmmFailures, a_full_device_is_not_asked_again_for_every_request_of_a_stream_that_got_no_span) {
    ScriptedDriver scripted({.num_devices = 1, .memory_bytes = 64 * MiB});
    const rmm::detail::driver_scope on(scripted);
    pool_engine pool(std::make_unique<virtual_source>(scripted, 0, mr::detail::virtual_source_options{}), {});
    const cuda_stream a{cuda_stream::flags::non_blocking};
    const cuda_stream b{cuda_stream::flags::non_blocking};
    refusal why;
    const auto allocate = [&](std::size_t bytes, const cuda_stream& on_stream) {
        void* const ptr = pool.try_allocate(bytes, on_stream, &why);
        EXPECT_NE(ptr, nullptr);
        return ptr;
    };
    const auto release = [&](void* ptr, std::size_t bytes, const cuda_stream& on_stream) {
        const cuda_stream_view view = on_stream;
        pool.free(ptr, bytes, {&view, 1});
    };
    std::vector<void*> blocks;
    while (void* const ptr = pool.try_allocate(4 * MiB, a, &why)) blocks.push_back(ptr);
    ASSERT_GT(blocks.size(), 8u);
    scripted.set_automatic(false);  // what was freed is not ready
    for (std::size_t i = 0; i < blocks.size(); i += 2) release(blocks[i], 4 * MiB, a);
    std::vector<void*> small;
    scripted.clear_log();
    for (int i = 0; i < 200; ++i) small.push_back(allocate(1024, b));
    EXPECT_LE(scripted.count("create_physical"), 8u);
    scripted.set_automatic(true);
    for (void* const ptr : small) release(ptr, 1024, b);
    for (std::size_t i = 1; i < blocks.size(); i += 2) release(blocks[i], 4 * MiB, a);
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
}

}  // namespace
