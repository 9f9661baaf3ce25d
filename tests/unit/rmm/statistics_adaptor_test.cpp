// <rmm/mr/statistics_resource_adaptor.hpp>.
#include "rmm/mr/device/statistics_resource_adaptor.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "fake_resource.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "support/sizes.hpp"

template class rmm::mr::statistics_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using rmm::mr::cuda_memory_resource;
using rmm_test::at;
using rmm_test::fake_resource;
using statistics = rmm::mr::statistics_resource_adaptor<fake_resource>;
using counter = statistics::counter;

static_assert(!std::is_move_constructible_v<statistics> && !std::is_copy_constructible_v<statistics>);
static_assert(std::is_final_v<statistics> && !std::is_default_constructible_v<statistics>);

void expect_counter(const counter& c, std::int64_t value, std::int64_t peak, std::int64_t total) {
    EXPECT_EQ(c.value, value);
    EXPECT_EQ(c.peak, peak);
    EXPECT_EQ(c.total, total);
}
template<typename Adaptor>
void expect_counts(const Adaptor& mr, std::array<std::int64_t, 3> bytes, std::array<std::int64_t, 3> blocks) {
    expect_counter(mr.get_bytes_counter(), bytes[0], bytes[1], bytes[2]);
    expect_counter(mr.get_allocations_counter(), blocks[0], blocks[1], blocks[2]);
}

TEST(StatisticsCounter, counts_and_merges_as_specified) {
    counter c;
    (c += 5) += 3;
    expect_counter(c, 8, 8, 8);
    (c -= 6) -= 4;
    expect_counter(c, -2, 8, 8);
    c += 1;
    expect_counter(c, -1, 8, 9);
    counter block;
    block += 20;
    block -= 15;
    c.add_counters_from_tracked_sub_block(block);
    expect_counter(c, 4, 19, 29);
    c.add_counters_from_tracked_sub_block({-10, 3, 40});
    expect_counter(c, -6, 19, 69);
}

TEST(StatisticsAdaptor, starts_at_nothing) {
    fake_resource upstream;
    statistics mr{&upstream};
    expect_counts(mr, {0, 0, 0}, {0, 0, 0});
    EXPECT_THROW(statistics{nullptr}, rmm::logic_error);
}

TEST(StatisticsAdaptor, counts_what_was_asked_for) {
    fake_resource upstream;
    auto mr = rmm::mr::make_statistics_adaptor(&upstream);
    void* const three = mr.allocate(3);
    void* const nothing = mr.allocate(0);
    expect_counts(mr, {3, 3, 3}, {2, 2, 2});
    rmm::mr::cuda_memory_resource cuda;
    mr.deallocate(three, 3);
    mr.deallocate(nothing, 0);
    expect_counts(mr, {0, 3, 3}, {0, 2, 2});
}

TEST(StatisticsAdaptor, counts_the_same_whichever_way_memory_was_asked_for) {
    cuda_memory_resource cuda;
    rmm::mr::statistics_resource_adaptor inner{&cuda};
    rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> outer{&inner};
    void* const ptr = outer.allocate(3);
    const rmm::device_buffer buffer(3, rmm::cuda_stream_view{}, &outer);
    EXPECT_EQ(outer.get_bytes_counter().value, 6);
    EXPECT_EQ(inner.get_bytes_counter().value, 6);
    outer.deallocate(ptr, 3);
    EXPECT_EQ(inner.get_allocations_counter().value, 1);
}

TEST(StatisticsAdaptor, a_null_of_zero_bytes_is_a_block_and_another_null_is_not) {
    cuda_memory_resource cuda;
    rmm::mr::statistics_resource_adaptor mr{&cuda};
    void* const ptr = mr.allocate(0);
    EXPECT_EQ(ptr, nullptr);
    expect_counts(mr, {0, 0, 0}, {1, 1, 1});
    mr.deallocate(ptr, 0);
    mr.deallocate(nullptr, 100);
    expect_counts(mr, {0, 0, 0}, {0, 1, 1});
}

TEST(StatisticsAdaptor, nothing_remains_when_all_is_freed) {
    fake_resource upstream;
    statistics mr{&upstream};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(mr.allocate(10 * MiB));
    for (void* ptr : blocks) mr.deallocate(ptr, 10 * MiB);
    EXPECT_EQ(mr.get_bytes_counter().value, 0);
    EXPECT_EQ(mr.get_allocations_counter().value, 0);
}

TEST(StatisticsAdaptor, remembers_peaks_and_totals) {
    fake_resource upstream;
    statistics mr{&upstream};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
        blocks.push_back(mr.allocate(10 * MiB));
    }
    for (int i = 0; i < 5; ++i) {
        mr.deallocate(blocks.back(), 10 * MiB);
        blocks.pop_back();
    }
    expect_counts(mr, {50 * MiB, 100 * MiB, 100 * MiB}, {5, 10, 10});
    for (int i = 0; i < 10; ++i) blocks.push_back(mr.allocate(10 * MiB));
    for (void* ptr : blocks) mr.deallocate(ptr, 10 * MiB);
    expect_counts(mr, {0, 150 * MiB, 200 * MiB}, {0, 15, 20});
}

TEST(StatisticsAdaptor, two_levels_count_each_for_itself) {
    cuda_memory_resource cuda;
    rmm::mr::statistics_resource_adaptor first{&cuda};
    const auto original = rmm::mr::set_current_device_resource_ref(first);
    {
        std::vector<rmm::device_buffer> buffers;
        for (int i = 0; i < 10; ++i) buffers.emplace_back(MiB, rmm::cuda_stream_default);
        rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> second{
            rmm::mr::get_current_device_resource()};
        rmm::mr::set_current_device_resource_ref(second);
        for (int i = 0; i < 5; ++i) buffers.emplace_back(MiB, rmm::cuda_stream_default);
        expect_counts(first, {15 * MiB, 15 * MiB, 15 * MiB}, {15, 15, 15});
        expect_counts(second, {5 * MiB, 5 * MiB, 5 * MiB}, {5, 5, 5});
        buffers.clear();
        expect_counts(first, {0, 15 * MiB, 15 * MiB}, {0, 15, 15});
        expect_counts(second, {0, 5 * MiB, 5 * MiB}, {0, 5, 5});
        rmm::mr::set_current_device_resource_ref(original);
    }
}

TEST(StatisticsAdaptor, memory_freed_through_another_makes_values_negative) {
    fake_resource upstream;
    statistics outer{&upstream};
    rmm::mr::statistics_resource_adaptor<statistics> inner{&outer};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(outer.allocate(10 * MiB));
    for (int i = 0; i < 5; ++i) blocks.push_back(inner.allocate(10 * MiB));
    for (void* ptr : blocks) inner.deallocate(ptr, 10 * MiB);
    expect_counts(outer, {0, 150 * MiB, 150 * MiB}, {0, 15, 15});
    expect_counts(inner, {-100 * static_cast<std::int64_t>(MiB), 50 * MiB, 50 * MiB}, {-10, 5, 5});
}

TEST(StatisticsAdaptor, sections_nest) {
    fake_resource upstream;
    statistics mr{&upstream};
    void* const outermost = mr.allocate(10 * MiB);
    auto [bytes, blocks] = mr.push_counters();
    expect_counter(bytes, 10 * MiB, 10 * MiB, 10 * MiB);
    expect_counter(blocks, 1, 1, 1);
    expect_counts(mr, {0, 0, 0}, {0, 0, 0});
    void* const first = mr.allocate(10 * MiB);
    (void)mr.push_counters();
    mr.deallocate(mr.allocate(10 * MiB), 10 * MiB);
    std::tie(bytes, blocks) = mr.pop_counters();
    expect_counter(bytes, 0, 10 * MiB, 10 * MiB);
    expect_counter(blocks, 0, 1, 1);
    mr.deallocate(outermost, 10 * MiB);
    std::tie(bytes, blocks) = mr.pop_counters();
    expect_counter(bytes, 0, 20 * MiB, 20 * MiB);
    expect_counter(blocks, 0, 2, 2);
    expect_counts(mr, {10 * MiB, 30 * MiB, 30 * MiB}, {1, 3, 3});
    try {
        (void)mr.pop_counters();
        FAIL() << "the last section was ended";
    } catch (const std::out_of_range& e) {
        EXPECT_STREQ(e.what(), "cannot pop the last counter pair");
    }
    mr.deallocate(first, 10 * MiB);
    EXPECT_EQ(mr.get_bytes_counter().value, 0);
}

TEST(StatisticsAdaptor, a_failed_request_changes_nothing) {
    fake_resource upstream;
    upstream.before_allocate = [] { throw rmm::bad_alloc("no"); };
    statistics mr{&upstream};
    EXPECT_THROW((void)mr.allocate(5), rmm::bad_alloc);
    expect_counts(mr, {0, 0, 0}, {0, 0, 0});
}

TEST(StatisticsAdaptor, a_free_is_counted_before_upstream_has_the_memory) {
    fake_resource upstream;
    statistics mr{&upstream};
    upstream.before_free = [&] { EXPECT_EQ(mr.get_bytes_counter().value, 0); };
    mr.deallocate(mr.allocate(5), 5);
    EXPECT_EQ(upstream.frees.size(), 1u);
}

TEST(StatisticsAdaptor, threads_lose_no_count_and_no_peak_is_above_what_can_have_been) {
    cuda_memory_resource cuda;
    rmm::mr::statistics_resource_adaptor mr{&cuda};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&mr] {
            for (int i = 0; i < 500; ++i) mr.deallocate(mr.allocate(7), 7);
        });
    for (std::thread& t : threads) t.join();
    const counter bytes = mr.get_bytes_counter();
    EXPECT_EQ(bytes.value, 0);
    EXPECT_EQ(bytes.total, 4 * 500 * 7);
    EXPECT_LE(bytes.peak, 4 * 7);
    EXPECT_EQ(mr.get_allocations_counter().total, 2000);
}

}  // namespace
