// A resource of the program that throws in do_deallocate: the process lives, nobody keeps a freed address, counts are
// right. Whoever calls deallocate himself hears of it; containers, pools and what undoes an allocation report it.
#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/host_buffer.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/debug_resource_adaptor.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/polymorphic_allocator.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm::mr;
using base = device_memory_resource;

struct without_text final : std::exception {
    const char* what() const noexcept override { return nullptr; }
};

enum class thrown : unsigned char { runtime_error, an_int, without_text };

/// Frees, and throws then.
template<typename Below>
class throws_on_free final : public base {
  public:
    explicit throws_on_free(thrown what) : what_(what) {}
    long num_live = 0;
    template<typename Property>
        requires(rmm::detail::is_host_accessible_tag<Property>::value &&
                 std::is_same_v<Below, pinned_host_memory_resource>)
    friend void get_property(const throws_on_free&, Property) noexcept {}

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        void* const ptr = below_.allocate(bytes, stream);
        ++num_live;
        return ptr;
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        static_cast<base&>(below_).deallocate(ptr, bytes, stream);
        --num_live;
        switch (what_) {
        case thrown::runtime_error: throw std::runtime_error("on purpose");
        case thrown::an_int: throw 42;
        case thrown::without_text: throw without_text();
        }
    }
    Below below_;
    thrown what_;
};
using throwing = throws_on_free<cuda_memory_resource>;
using throwing_host = throws_on_free<pinned_host_memory_resource>;

class ThrowingFree : public testing::TestWithParam<thrown> {
  protected:
    ThrowingFree() { testing::internal::CaptureStderr(); }
    ~ThrowingFree() override {
        EXPECT_EQ(upstream.num_live, 0);
        const std::string said = testing::internal::GetCapturedStderr();
        std::size_t num_reports = 0;
        const std::array<std::string, 3> ends{"threw in deallocate: on purpose\n",
                                              "threw in deallocate what is no std::exception\n",
                                              "threw in deallocate: (no text)\n"};
        const std::string& end = ends[static_cast<std::size_t>(GetParam())];
        for (std::size_t at = 0; (at = said.find(end, at)) != std::string::npos; at += end.size()) ++num_reports;
        EXPECT_EQ(num_reports, num_expected_reports) << said;
    }
    template<typename F>
    static bool throws(F&& f) {
        try {
            f();
        } catch (...) {
            return true;
        }
        return false;
    }
    /// Frees a block and hears of it.
    static void expect_thrown(base& mr) {
        void* const ptr = mr.allocate(1000);
        EXPECT_TRUE(throws([&] { mr.deallocate(ptr, 1000); }));
    }

    throwing upstream{GetParam()};
    std::size_t num_expected_reports = 0;
    rmm::cuda_stream_view stream;
};

INSTANTIATE_TEST_SUITE_P(all, ThrowingFree,
                         testing::Values(thrown::runtime_error, thrown::an_int, thrown::without_text));

TEST_P(ThrowingFree, a_buffer_that_moves_to_other_memory_has_that_memory) {
    rmm::device_buffer buffer(10, stream, upstream);
    buffer.reserve(1000, stream);
    EXPECT_EQ(buffer.capacity(), 1000u);
    buffer.resize(2000, stream);
    EXPECT_EQ(buffer.size(), 2000u);
    buffer.resize(20, stream);
    void* const before = buffer.data();
    buffer.shrink_to_fit(stream);
    EXPECT_EQ(buffer.capacity(), 20u);
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_NE(buffer.data(), before);
    EXPECT_EQ(upstream.num_live, 1);
    buffer.resize(0, stream);
    buffer.shrink_to_fit(stream);
    EXPECT_EQ(buffer.data(), nullptr);
    num_expected_reports = 4;
}

TEST_P(ThrowingFree, containers_end_and_are_moved) {
    {
        rmm::device_buffer buffer(10, stream, upstream);
        buffer = rmm::device_buffer(20, stream, upstream);
        EXPECT_EQ(buffer.size(), 20u);
        rmm::device_uvector<int> vector(3, stream, upstream);
        vector.resize(5, stream);
        EXPECT_EQ(vector.size(), 5u);
        vector = rmm::device_uvector<int>(0, stream, upstream);
        rmm::device_scalar<int> scalar(7, stream, upstream);
        scalar = rmm::device_scalar<int>(8, stream, upstream);
        EXPECT_EQ(scalar.value(stream), 8);
    }
    num_expected_reports = 6;
}

TEST_P(ThrowingFree, a_copy_that_fails_is_the_error_that_arrives) {
    const std::vector<char> source(16);
    const rmm::cuda_stream_view bogus{reinterpret_cast<cudaStream_t>(0x12345670)};
    EXPECT_THROW((rmm::device_buffer{source.data(), 16, bogus, upstream}), rmm::cuda_error);
    rmm::device_buffer buffer(16, stream, upstream);
    void* const before = buffer.data();
    EXPECT_THROW(buffer.resize(1000, bogus), rmm::cuda_error);
    EXPECT_EQ(buffer.data(), before);
    num_expected_reports = 3;
}

TEST_P(ThrowingFree, allocators_of_containers_report_it) {
    stream_allocator_adaptor allocator{polymorphic_allocator<int>{&upstream}, stream};
    allocator.deallocate(allocator.allocate(5), 5);
    num_expected_reports = 1;
}

TEST_P(ThrowingFree, host_buffers_go_on) {
    throwing_host pinned(GetParam());
    {
        rmm::host_buffer buffer(10, stream, pinned);
        buffer.resize(1000, stream);
        EXPECT_EQ(buffer.capacity(), 1000u);
    }
    EXPECT_EQ(pinned.num_live, 0);
    num_expected_reports = 2;
}

TEST_P(ThrowingFree, forms_that_are_noexcept_report) {
    upstream.deallocate_sync(upstream.allocate_sync(100), 100);
    upstream.deallocate(stream, upstream.allocate(stream, 100), 100);
    num_expected_reports = 2;
}

TEST_P(ThrowingFree, reaches_the_caller_through_every_adaptor_and_the_counts_are_right) {
    statistics_resource_adaptor<base> statistics{&upstream};
    expect_thrown(statistics);
    EXPECT_EQ(statistics.get_bytes_counter().value, 0);
    EXPECT_EQ(statistics.get_allocations_counter().value, 0);
    tracking_resource_adaptor<base> tracking{&upstream};
    expect_thrown(tracking);
    EXPECT_EQ(tracking.get_allocated_bytes(), 0u);
    EXPECT_TRUE(tracking.get_outstanding_allocations().empty());
    limiting_resource_adaptor<base> limiting{&upstream, 1024};
    expect_thrown(limiting);
    EXPECT_EQ(limiting.get_allocated_bytes(), 0u);
    expect_thrown(limiting);  // the room is there again
    aligned_resource_adaptor<base> aligned{&upstream, 4096};
    for (int i = 0; i < 10; ++i) expect_thrown(aligned);
    thread_safe_resource_adaptor<base> thread_safe{&upstream};
    expect_thrown(thread_safe);
    expect_thrown(thread_safe);  // the lock is free
    prefetch_resource_adaptor<base> prefetch{&upstream};
    expect_thrown(prefetch);
    failure_callback_resource_adaptor<base> failure{&upstream, [](std::size_t, void*) { return false; }, nullptr};
    expect_thrown(failure);
    std::ostringstream log;
    {
        logging_resource_adaptor<base> logging{&upstream, log};
        expect_thrown(logging);
    }
    EXPECT_NE(log.str().find(",free,"), std::string::npos);
}

TEST_P(ThrowingFree, debug_adaptors_report_it) {
    debug_options options;
    options.quarantine_blocks = 0;
    {
        debug_resource_adaptor<base> debug{&upstream, options};
        debug.deallocate(debug.allocate(1000), 1000);
        EXPECT_EQ(debug.counts().total(), 0u);
    }
    num_expected_reports = 1;
}

TEST_P(ThrowingFree, pools_end_and_go_on) {
    {
        pool_memory_resource<base> pool{&upstream, MiB};
        pool.deallocate(pool.allocate(100), 100);
        EXPECT_EQ(pool.trim(), MiB);
        pool.deallocate(pool.allocate(100), 100);
    }
    { arena_memory_resource<base> arena{&upstream, 4 * MiB}; }
    { fixed_size_memory_resource<base> fixed{&upstream, 4096, 4}; }
    num_expected_reports = 4;
}

TEST_P(ThrowingFree, binning_reports_it_of_bins_and_of_upstream) {
    cuda_memory_resource cuda;
    {
        binning_memory_resource<base> binning{&upstream, 10, 11};
        binning.deallocate(binning.allocate(100000), 100000);
        num_expected_reports = 1;
        EXPECT_EQ(upstream.num_live, 2);  // of two bins
        num_expected_reports += 2;
    }
    binning_memory_resource<base> with_bin{&cuda};
    with_bin.add_bin(1024, &upstream);
    with_bin.deallocate(with_bin.allocate(1000), 1000);
    ++num_expected_reports;
}

TEST(ThrowingReport, of_the_debug_adaptor_is_said_and_the_program_goes_on) {
    cuda_memory_resource cuda;
    debug_options options;
    options.report = [](const debug_finding&, void*) { throw 42; };
    debug_resource_adaptor<cuda_memory_resource> debug{&cuda, options};
    void* const ptr = debug.allocate(1000);
    testing::internal::CaptureStderr();
    debug.deallocate(ptr, 10);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("rmm: debug_options::report threw for: "), std::string::npos);
    EXPECT_EQ(debug.counts().wrong_size, 1u);
}

}  // namespace
