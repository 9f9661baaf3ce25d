// The spellings of <rmm/mr/device_memory_resource.hpp>, callback_memory_resource, and what old programs override.
#include <gtest/gtest.h>

#include <iostream>
#include <type_traits>
#include <vector>

#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/device/callback_memory_resource.hpp"
#include "rmm/mr/device/cuda_memory_resource.hpp"
#include "rmm/mr/device/managed_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

namespace {

using rmm_test::recording_resource;

/// What resources of the program are told of stream 0, whatever the unit means by it.
const rmm::cuda_stream_view stream_zero;

static_assert(std::is_abstract_v<rmm::mr::device_memory_resource>);
static_assert(std::is_final_v<rmm::mr::cuda_memory_resource> &&
              std::is_copy_constructible_v<rmm::mr::cuda_memory_resource>);
static_assert(!std::is_copy_constructible_v<rmm::mr::callback_memory_resource>);
static_assert(std::is_move_assignable_v<rmm::mr::callback_memory_resource>);

TEST(DeviceMemoryResource, every_spelling_passes_the_exact_count_and_the_stream) {
    recording_resource mr;
    rmm::cuda_stream stream;
    mr.deallocate(mr.allocate(3), 3);
    mr.deallocate(mr.allocate(3, 64), 3, 64);
    mr.deallocate_sync(mr.allocate_sync(3, 32), 3, 32);
    mr.deallocate(mr.allocate(3, stream), 3, stream);
    mr.deallocate_async(mr.allocate_async(3, 64, stream), 3, 64, stream);
    mr.deallocate_async(mr.allocate_async(3, stream), 3, stream);
    mr.deallocate(stream, mr.allocate(stream, 3, 64), 3, 64);
    ASSERT_EQ(mr.allocations.size(), 7u);
    ASSERT_EQ(mr.frees.size(), 7u);
    for (std::size_t i = 0; i < 7; ++i) {
        const rmm::cuda_stream_view expected = i < 3 ? stream_zero : stream.view();
        EXPECT_EQ(mr.allocations[i].bytes, 3u) << i;
        EXPECT_EQ(mr.frees[i].bytes, 3u) << i;
        EXPECT_EQ(mr.allocations[i].stream, expected) << i;
        EXPECT_EQ(mr.frees[i].stream, expected) << i;
    }
}

TEST(DeviceMemoryResource, alignment_zero_means_the_default) {
    recording_resource mr;
    void* const ptr = mr.allocate(100, 0);
    EXPECT_EQ(mr.allocations[0].bytes, 100u);
    EXPECT_EQ(mr.allocations[0].stream, stream_zero);
    mr.deallocate(ptr, 100, 0);
}

TEST(DeviceMemoryResource, alignments_are_never_ignored) {
    recording_resource mr;
    rmm::cuda_stream stream;
    EXPECT_THROW(mr.allocate(100, 48), rmm::logic_error);
    EXPECT_THROW(mr.allocate(100, 512), rmm::bad_alloc);
    EXPECT_THROW(mr.allocate_async(100, 512, stream), rmm::bad_alloc);
    EXPECT_THROW(mr.allocate_sync(100, 512), rmm::logic_error);
    EXPECT_THROW(mr.allocate_sync(100, 0), rmm::logic_error);
    EXPECT_THROW(mr.allocate(stream, 100, 48), rmm::logic_error);
    EXPECT_TRUE(mr.allocations.empty());
    try {
        mr.allocate(stream, 100, 512);
        FAIL();
    } catch (const rmm::logic_error& e) {
        EXPECT_NE(std::string(e.what()).find("Alignment must be less than or equal to 256 and a power of two"),
                  std::string::npos);
    }
}

class noexcept_resource final : public rmm::mr::device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return this; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override {}
};

class resource_of_2023 final : public rmm::mr::device_memory_resource {
  public:
    bool supports_streams() const noexcept override { return true; }
    bool supports_get_mem_info() const noexcept override { return true; }

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return this; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    std::pair<std::size_t, std::size_t> do_get_mem_info(rmm::cuda_stream_view) const override { return {1, 2}; }
};

TEST(DeviceMemoryResource, overrides_of_every_era_compile) {
    noexcept_resource newer;
    EXPECT_EQ(newer.allocate(1), &newer);
    newer.deallocate(&newer, 1);
    EXPECT_FALSE(newer.supports_streams());
    EXPECT_FALSE(newer.supports_get_mem_info());
    EXPECT_EQ(newer.get_mem_info({}), (std::pair<std::size_t, std::size_t>{0, 0}));
    resource_of_2023 older;
    EXPECT_TRUE(older.supports_streams());
    EXPECT_EQ(older.get_mem_info({}), (std::pair<std::size_t, std::size_t>{1, 2}));
}

TEST(DeviceMemoryResource, resources_of_different_types_are_not_equal) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::managed_memory_resource managed;
    EXPECT_FALSE(cuda.is_equal(managed));
    EXPECT_FALSE(managed.is_equal(cuda));
    recording_resource a;
    recording_resource b;
    EXPECT_NE(a, b);
}

TEST(DeviceMemoryResource, a_failed_allocation_says_how_much_and_why) {
    rmm::mr::cuda_memory_resource cuda;
    try {
        (void)cuda.allocate(std::size_t{1} << 50);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        const std::string text = e.what();
        EXPECT_EQ(text.find("std::bad_alloc: out_of_memory: "), 0u) << text;
        EXPECT_NE(text.find("(failed to allocate 1125899906842624 bytes) at: "), std::string::npos) << text;
        EXPECT_NE(text.find("1.00 PiB (1125899906842624 bytes)"), std::string::npos) << text;
        EXPECT_NE(text.find("total 256.00 MiB"), std::string::npos) << text;
        EXPECT_EQ(e.shortage().device, 0);
        EXPECT_EQ(e.shortage().device_total_bytes, std::size_t{256} << 20);
    }
}

TEST(CallbackMemoryResource, forwards_every_request_with_its_argument) {
    recording_resource upstream;
    int allocate_argument = 0;
    int deallocate_argument = 0;
    rmm::mr::callback_memory_resource mr(
        [&](std::size_t bytes, rmm::cuda_stream_view stream, void* argument) {
            ++*static_cast<int*>(argument);
            return upstream.allocate(bytes, stream);
        },
        [&](void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, void* argument) {
            ++*static_cast<int*>(argument);
            upstream.deallocate(ptr, bytes, stream);
        },
        &allocate_argument, &deallocate_argument);
    void* const ptr = mr.allocate(std::size_t{10} << 20);
    mr.deallocate(ptr, std::size_t{10} << 20);
    EXPECT_EQ(allocate_argument, 1);
    EXPECT_EQ(deallocate_argument, 1);
    ASSERT_EQ(upstream.allocations.size(), 1u);
    EXPECT_EQ(upstream.allocations[0].bytes, std::size_t{10} << 20);
    EXPECT_EQ(upstream.allocations[0].stream, stream_zero);
    EXPECT_EQ(upstream.in_use, 0u);
    EXPECT_TRUE(mr.is_equal(mr));
    EXPECT_FALSE(mr.is_equal(upstream));
}

TEST(CallbackMemoryResource, callbacks_may_print_what_they_are_asked_for) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::device_async_resource_ref upstream{cuda};
    rmm::mr::callback_memory_resource mr(
        [](std::size_t bytes, rmm::cuda_stream_view stream, void* argument) {
            std::cout << "Allocating " << bytes << " bytes\n";
            return static_cast<rmm::device_async_resource_ref*>(argument)->allocate_async(bytes, stream);
        },
        [](void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, void* argument) {
            std::cout << "Deallocating " << bytes << " bytes\n";
            static_cast<rmm::device_async_resource_ref*>(argument)->deallocate_async(ptr, bytes, stream);
        },
        &upstream, &upstream);
    testing::internal::CaptureStdout();
    mr.deallocate(mr.allocate(1000), 1000);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "Allocating 1000 bytes\nDeallocating 1000 bytes\n");
}

TEST(CallbackMemoryResource, lets_exceptions_of_the_callback_pass) {
    rmm::mr::callback_memory_resource mr([](std::size_t, rmm::cuda_stream_view, void*) -> void* { throw 5; },
                                         [](void*, std::size_t, rmm::cuda_stream_view, void*) {});
    EXPECT_THROW((void)mr.allocate(1), int);
}

}  // namespace
