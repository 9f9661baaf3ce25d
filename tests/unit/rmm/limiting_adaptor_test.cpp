// limiting_resource_adaptor: what counts, what is refused, and that threads do not fail because of one another.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fake_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm::mr;
using rmm_test::fake_resource;

TEST(LimitingAdaptor, refuses_more_than_the_limit_and_says_both_numbers) {
    cuda_memory_resource cuda;
    limiting_resource_adaptor<cuda_memory_resource> adaptor{&cuda, MiB};
    try {
        adaptor.allocate(MiB + 1);
        FAIL() << "did not throw";
    } catch (const rmm::out_of_memory& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("out_of_memory: Exceeded memory limit (failed to allocate 1.000001 MiB)"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("1048576 bytes"), std::string::npos) << text;
        EXPECT_EQ(e.shortage().requested_bytes, MiB + 1);
        EXPECT_EQ(e.shortage().pool_maximum_bytes, MiB);
    }
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
    EXPECT_EQ(adaptor.get_allocation_limit(), MiB);
}

TEST(LimitingAdaptor, counts_sizes_rounded_up_to_its_alignment) {
    fake_resource upstream;
    limiting_resource_adaptor<fake_resource> adaptor{&upstream, MiB};
    void* const ptr = adaptor.allocate(100);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 256u);
    EXPECT_EQ(upstream.allocations[0].bytes, 100u);
    adaptor.deallocate(ptr, 100);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
    limiting_resource_adaptor<fake_resource> fine{&upstream, MiB, 1};
    (void)fine.allocate(100);
    EXPECT_EQ(fine.get_allocated_bytes(), 100u);
    EXPECT_THROW((limiting_resource_adaptor<fake_resource>{&upstream, MiB, 24}), rmm::logic_error);
}

TEST(LimitingAdaptor, the_smaller_of_two_nested_limits_counts) {
    cuda_memory_resource cuda;
    limiting_resource_adaptor<cuda_memory_resource> inner{&cuda, 2 * MiB};
    limiting_resource_adaptor<limiting_resource_adaptor<cuda_memory_resource>> outer{&inner, 5 * MiB};
    EXPECT_THROW(outer.allocate(4 * MiB), rmm::out_of_memory);
    EXPECT_EQ(outer.get_allocated_bytes(), 0u);
    EXPECT_EQ(inner.get_allocated_bytes(), 0u);
}

TEST(LimitingAdaptor, may_be_filled_exactly_after_a_free) {
    cuda_memory_resource cuda;
    auto adaptor = make_limiting_adaptor(&cuda, 10 * MiB);
    const auto remaining = [&] { return adaptor.get_allocation_limit() - adaptor.get_allocated_bytes(); };
    void* const a = adaptor.allocate(4 * MiB);
    EXPECT_EQ(remaining(), 6 * MiB);
    void* const b = adaptor.allocate(4 * MiB);
    EXPECT_EQ(remaining(), 2 * MiB);
    EXPECT_THROW(adaptor.allocate(3 * MiB), rmm::out_of_memory);
    EXPECT_EQ(remaining(), 2 * MiB);
    adaptor.deallocate(a, 4 * MiB);
    EXPECT_EQ(remaining(), 6 * MiB);
    void* const c = adaptor.allocate(6 * MiB);
    EXPECT_EQ(remaining(), 0u);
    adaptor.deallocate(b, 4 * MiB);
    adaptor.deallocate(c, 6 * MiB);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
}

TEST(LimitingAdaptor, a_refusal_of_upstream_is_not_counted) {
    fake_resource upstream;
    upstream.before_allocate = [] { throw rmm::bad_alloc("no"); };
    limiting_resource_adaptor<fake_resource> adaptor{&upstream, MiB};
    EXPECT_THROW(adaptor.allocate(1000), rmm::bad_alloc);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
}

TEST(LimitingAdaptor, a_size_that_cannot_be_rounded_up_is_above_every_limit) {
    fake_resource upstream;
    limiting_resource_adaptor<fake_resource> adaptor{&upstream, ~std::size_t{0}};
    EXPECT_THROW(adaptor.allocate(~std::size_t{0}), rmm::out_of_memory);
    EXPECT_TRUE(upstream.allocations.empty());
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
}

TEST(LimitingAdaptor, the_count_does_not_go_below_nothing) {
    fake_resource upstream;
    limiting_resource_adaptor<fake_resource> adaptor{&upstream, MiB};
    adaptor.deallocate(rmm_test::at(4096), 1000);
    adaptor.deallocate(nullptr, 1000);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
    EXPECT_EQ(upstream.frees.size(), 2u);
}

/// Refused requests of other threads must not take the room of those that fit.
TEST(LimitingAdaptor, no_thread_fails_because_another_asks_for_too_much) {
    cuda_memory_resource cuda;
    limiting_resource_adaptor<cuda_memory_resource> adaptor{&cuda, 4 * 1024};
    std::atomic<bool> done{false};
    std::atomic<int> num_failures{0};
    std::thread greedy([&] {
        while (!done) {
            try {
                adaptor.deallocate(adaptor.allocate(5 * 1024), 5 * 1024);
            } catch (const rmm::out_of_memory&) {
                continue;
            }
            ++num_failures;
        }
    });
    std::vector<std::thread> modest;
    for (int t = 0; t < 4; ++t)
        modest.emplace_back([&] {
            for (int i = 0; i < 2000; ++i) try {
                    adaptor.deallocate(adaptor.allocate(1024), 1024);
                } catch (const rmm::out_of_memory&) {
                    ++num_failures;
                }
        });
    for (auto& thread : modest) thread.join();
    done = true;
    greedy.join();
    EXPECT_EQ(num_failures, 0);
    EXPECT_EQ(adaptor.get_allocated_bytes(), 0u);
}

}  // namespace
