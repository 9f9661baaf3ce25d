// <rmm/mr/pool_memory_resource.hpp>: arguments, growth, messages, giving memory back. One thread; streams are in
// pool_streams_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "recording_resource.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/device/pool_memory_resource.hpp"
#include "rmm/pool/engine.hpp"

template class rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm;
using rmm_test::recording_resource;
template<typename U> using pool = mr::pool_memory_resource<U>;

struct fake_without_properties {
    static void* allocate(std::size_t, std::size_t) { return nullptr; }
    static void deallocate(void*, std::size_t, std::size_t) {}
    static void* allocate_async(std::size_t, std::size_t, cuda_stream_view) { return nullptr; }
    static void deallocate_async(void*, std::size_t, std::size_t, cuda_stream_view) {}
    bool operator==(const fake_without_properties&) const { return true; }
    bool operator!=(const fake_without_properties&) const { return false; }
};
struct number_property {
    using value_type = int;
};
struct fake_with_number : fake_without_properties {
    friend int get_property(const fake_with_number&, number_property) { return 5; }
};
static_assert(rmm::detail::is_async_resource<pool<fake_without_properties>>::value);
static_assert(!rmm::detail::is_device_accessible_resource<pool<fake_without_properties>>::value);
static_assert(rmm::detail::is_device_accessible_resource<pool<mr::cuda_memory_resource>>::value);
static_assert(!rmm::detail::is_host_accessible_resource<pool<mr::cuda_memory_resource>>::value);
static_assert(rmm::detail::has_property<pool<fake_with_number>, number_property>::value);
static_assert(!std::is_copy_constructible_v<pool<mr::cuda_memory_resource>>);
static_assert(!std::is_move_constructible_v<pool<mr::cuda_memory_resource>>);
static_assert(std::is_final_v<pool<mr::cuda_memory_resource>>);

std::vector<std::size_t> sizes_asked(const recording_resource& upstream) {
    std::vector<std::size_t> sizes;
    for (const auto& r : upstream.allocations) sizes.push_back(r.bytes);
    return sizes;
}
using sizes = std::vector<std::size_t>;

TEST(Pool, refuses_bad_arguments) {
    mr::cuda_memory_resource cuda;
    using cuda_pool = pool<mr::cuda_memory_resource>;
    EXPECT_THROW((cuda_pool{nullptr, 0}), rmm::logic_error);
    EXPECT_THROW((cuda_pool{&cuda, 1024, 256}), rmm::logic_error);
    EXPECT_THROW((cuda_pool{&cuda, 1000031}), rmm::logic_error);
    EXPECT_THROW((cuda_pool{&cuda, 1000192, 1000200}), rmm::logic_error);
    try {
        cuda_pool refused{&cuda, 1000031};
        FAIL();
    } catch (const rmm::logic_error& e) {
        EXPECT_NE(std::string(e.what()).find("1000031"), std::string::npos);
        EXPECT_NE(std::string(e.what()).find("multiple of 256"), std::string::npos);
    }
}

TEST(Pool, can_be_made_in_every_spelling) {
    mr::cuda_memory_resource cuda;
    mr::device_memory_resource* base = &cuda;
    device_async_resource_ref ref{cuda};
    pool<mr::cuda_memory_resource> from_pointer{&cuda, 1024};
    pool<mr::cuda_memory_resource> from_object{cuda, 1024, 2048};
    pool<mr::cuda_memory_resource> from_ref{ref, 1024};
    pool<mr::cuda_memory_resource> from_base{base, 1024};
    pool<mr::device_memory_resource> of_base{&cuda, 1024};
    pool<mr::cuda_memory_resource> without_sizes{&cuda};
    mr::pool_memory_resource deduced{&cuda, 0};
    pool<mr::cuda_memory_resource> of_2020{&cuda, pool<mr::cuda_memory_resource>::default_initial_size,
                                           pool<mr::cuda_memory_resource>::default_maximum_size};
    EXPECT_EQ(from_pointer.get_upstream(), &cuda);
    EXPECT_EQ(&from_pointer.upstream_resource(), &cuda);
    EXPECT_EQ(from_ref.get_upstream(), nullptr);
    EXPECT_EQ(from_base.get_upstream(), nullptr);
    for (device_async_resource_ref upstream :
         {from_pointer.get_upstream_resource(), from_object.get_upstream_resource(), from_base.get_upstream_resource(),
          of_base.get_upstream_resource()})
        EXPECT_EQ(upstream, ref);
    EXPECT_GT(without_sizes.pool_size(), 0u);
    EXPECT_EQ(deduced.pool_size(), 0u);
}

TEST(Pool, takes_its_initial_size_in_one_block) {
    recording_resource upstream;
    {
        pool<recording_resource> p{upstream, 1000192, 1000192};
        EXPECT_EQ(sizes_asked(upstream), (sizes{1000192}));
        EXPECT_EQ(p.pool_size(), 1000192u);
        p.deallocate(p.allocate(1000), 1000);
    }
    EXPECT_EQ(upstream.in_use, 0u);
    upstream.limit = 100;
    upstream.allocations.clear();
    EXPECT_THROW((pool<recording_resource>{upstream, 1024}), rmm::out_of_memory);
    EXPECT_EQ(sizes_asked(upstream), (sizes{1024}));
}

TEST(Pool, ninety_percent_of_the_free_memory_and_two_halves_of_a_pool_fit) {
    mr::cuda_memory_resource cuda;
    { pool<mr::cuda_memory_resource> p{cuda, percent_of_free_device_memory(90)}; }
    const std::size_t half = align_down(percent_of_free_device_memory(50), 512);
    pool<mr::cuda_memory_resource> p{cuda, half, half};
    void* const a = p.allocate(half / 2);
    void* const b = p.allocate(half / 2);
    EXPECT_NE(a, b);
    p.deallocate(a, half / 2);
    p.deallocate(b, half / 2);
    p.deallocate(p.allocate(half), half);
}

TEST(Pool, grows_by_as_much_again_and_backs_off_to_the_request) {
    recording_resource upstream;
    upstream.limit = 6000;
    pool<recording_resource> p{upstream, 0};
    (void)p.allocate(1000);
    EXPECT_EQ(p.pool_size(), 1024u);
    (void)p.allocate(4000);
    EXPECT_EQ(p.pool_size(), 5120u);
    (void)p.allocate(500);
    EXPECT_EQ(p.pool_size(), 5632u);
    EXPECT_THROW((void)p.allocate(2000), rmm::out_of_memory);
    EXPECT_EQ(sizes_asked(upstream), (sizes{1024, 4096, 5120, 2560, 1280, 512, 5632, 2816, 2048}));
}

/// Addresses that nobody uses.
class address_resource final : public mr::device_memory_resource {
  public:
    sizes asked;

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
        asked.push_back(bytes);
        return reinterpret_cast<void*>(next_ += std::uintptr_t{1} << 40);
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}

    std::uintptr_t next_ = 0;
};

TEST(Pool, from_four_gigabytes_on_grows_by_a_part_of_what_it_holds) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "AddressSanitizer wants memory behind the addresses";
#endif
    constexpr std::size_t GiB = std::size_t{1} << 30;
    address_resource upstream;
    {
        pool<address_resource> p{upstream, 0};
        (void)p.allocate(3 * GiB);
        (void)p.allocate(2 * GiB);  // doubles
        (void)p.allocate(GiB);
        EXPECT_EQ(p.pool_size(), 6 * GiB);
        (void)p.allocate(GiB / 16);  // 6 GiB / 32
        (void)p.allocate(GiB);       // what is asked for is more
    }
    EXPECT_EQ(upstream.asked, (sizes{3 * GiB, 3 * GiB, 6 * GiB / 32, GiB}));
}

TEST(Pool, grows_by_half_of_the_room_under_a_maximum) {
    recording_resource upstream;
    upstream.limit = 6000;
    pool<recording_resource> p{upstream, 0, 8192};
    (void)p.allocate(1000);
    EXPECT_EQ(p.pool_size(), 4096u);
    EXPECT_THROW((void)p.allocate(4000), rmm::out_of_memory);
    (void)p.allocate(500);
    (void)p.allocate(2000);
    EXPECT_EQ(p.pool_size(), 4096u);
    EXPECT_EQ(sizes_asked(upstream), (sizes{4096, 4096}));
}

TEST(Pool, reaches_its_maximum_exactly) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 0, 65536};
    for (int i = 0; i < 256; ++i) (void)p.allocate(256);
    EXPECT_EQ(sizes_asked(upstream), (sizes{32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 256}));
    EXPECT_EQ(p.pool_size(), 65536u);
    EXPECT_THROW((void)p.allocate(256), rmm::out_of_memory);

    pool<recording_resource> small{upstream, 0, 1024};
    void* const ptr = small.allocate(1024);
    EXPECT_THROW((void)small.allocate(1024), rmm::out_of_memory);
    small.deallocate(ptr, 1024);
    small.deallocate(small.allocate(1024), 1024);
}

TEST(Pool, blocks_never_cross_from_one_upstream_block_into_another) {
    // An upstream that cuts its blocks one after the other, so that they touch.
    struct touching final : mr::device_memory_resource {
        mr::cuda_memory_resource cuda;
        char* memory = static_cast<char*>(cuda.allocate(1 << 20));
        std::size_t used = 0;
        ~touching() override { cuda.deallocate(memory, 1 << 20); }
        void* do_allocate(std::size_t bytes, cuda_stream_view) override {
            void* const ptr = memory + used;
            used += bytes;
            return ptr;
        }
        void do_deallocate(void*, std::size_t, cuda_stream_view) override {}
    } upstream;
    pool<touching> p{upstream, 1024, 4096};
    void* const a = p.allocate(1024);
    void* const b = p.allocate(1024);
    EXPECT_EQ(static_cast<char*>(b), static_cast<char*>(a) + 1024);
    p.deallocate(a, 1024);
    p.deallocate(b, 1024);
    const mr::pool_statistics s = p.statistics();
    EXPECT_EQ(s.num_upstream_blocks, 2u);
    EXPECT_LT(s.largest_free_bytes, s.held_bytes);
    void* const c = p.allocate(s.largest_free_bytes);
    p.deallocate(c, s.largest_free_bytes);
}

TEST(Pool, says_who_was_asked_for_what_when_it_is_exhausted) {
    mr::cuda_memory_resource cuda;
    pool<mr::cuda_memory_resource> p{cuda, 4096, 4096};
    p.set_name("join");
    cuda_stream stream;
    void* const a = p.allocate(1024, stream);
    void* const b = p.allocate(1000, stream);
    void* const c = p.allocate(1024, stream);
    p.deallocate(b, 1000, stream);
    try {
        (void)p.allocate(1536, stream);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        const std::string text = e.what();
        EXPECT_EQ(
            text.find("std::bad_alloc: out_of_memory: Maximum pool size exceeded (failed to allocate 1.500000 KiB): "
                      "Not enough room to grow, current/max/try size = 4.000000 KiB, 4.000000 KiB, 1.500000 KiB"),
            0u)
            << text;
        EXPECT_NE(text.find("pool \"join\" was asked for 1.50 KiB (1536 bytes)"), std::string::npos) << text;
        EXPECT_NE(text.find("in use 2.00 KiB (2048 bytes) in 2 blocks, free 2.00 KiB (2048 bytes)"), std::string::npos)
            << text;
        EXPECT_NE(text.find("largest free piece 1.00 KiB (1024 bytes)"), std::string::npos) << text;
        EXPECT_NE(text.find("enough is free but in pieces"), std::string::npos) << text;
        EXPECT_EQ(e.shortage().requested_bytes, 1536u);
        EXPECT_EQ(e.shortage().pool_bytes, 4096u);
        EXPECT_EQ(e.shortage().pool_in_use_bytes, 2048u);
        EXPECT_EQ(e.shortage().pool_free_bytes, 2048u);
        EXPECT_EQ(e.shortage().pool_largest_free_bytes, 1024u);
        EXPECT_EQ(e.shortage().pool_maximum_bytes, 4096u);
    }
    p.deallocate(a, 1024, stream);
    p.deallocate(c, 1024, stream);
    p.deallocate(p.allocate(4096, stream), 4096, stream);
}

TEST(Pool, a_request_that_no_address_space_holds_is_refused) {
    mr::cuda_memory_resource cuda;
    pool<mr::cuda_memory_resource> p{cuda, 1024};
    try {
        (void)p.allocate(static_cast<std::size_t>(-100));
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        EXPECT_NE(std::string(e.what()).find("Maximum allocation size exceeded (failed to allocate "),
                  std::string::npos);
    }
}

TEST(Pool, wrong_frees_are_reported_and_harmless) {
    mr::cuda_memory_resource cuda;
    pool<mr::cuda_memory_resource> p{cuda, 4096, 4096};
    void* const a = p.allocate(512);
    testing::internal::CaptureStderr();
    p.deallocate(a, 100);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("the block has 512"), std::string::npos);
    testing::internal::CaptureStderr();
    p.deallocate(a, 512);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("freed twice"), std::string::npos);
    int on_the_stack = 0;
    testing::internal::CaptureStderr();
    p.deallocate(&on_the_stack, 4);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("not a block in use"), std::string::npos);
    EXPECT_EQ(p.statistics().free_bytes, 4096u);
    p.deallocate(p.allocate(4096), 4096);
}

TEST(Pool, freed_neighbours_merge) {
    mr::cuda_memory_resource cuda;
    pool<mr::cuda_memory_resource> p{cuda, 8192, 8192};
    std::vector<void*> blocks;
    for (int i = 0; i < 32; ++i) blocks.push_back(p.allocate(256));
    for (int i = 0; i < 32; i += 2) p.deallocate(blocks[static_cast<std::size_t>(i)], 256);
    EXPECT_THROW((void)p.allocate(512), rmm::out_of_memory);
    for (int i = 1; i < 32; i += 2) p.deallocate(blocks[static_cast<std::size_t>(i)], 256);
    EXPECT_EQ(p.statistics().largest_free_bytes, 8192u);
    p.deallocate(p.allocate(8192), 8192);
}

TEST(Pool, an_upstream_that_throws_leaves_it_usable) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 1024};
    upstream.limit = 1024;
    for (int i = 0; i < 10; ++i) EXPECT_THROW((void)p.allocate(2048), rmm::out_of_memory);
    p.deallocate(p.allocate(1024), 1024);
    upstream.limit = 4096;
    p.deallocate(p.allocate(2048), 2048);
}

TEST(Pool, an_upstream_may_call_back_into_the_pool) {
    struct releasing final : mr::device_memory_resource {
        mr::cuda_memory_resource cuda;
        std::function<void()> on_allocate = [] {};
        void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
            on_allocate();
            return cuda.allocate(bytes, stream);
        }
        void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
            cuda.deallocate(ptr, bytes, stream);
        }
    } upstream;
    pool<releasing> p{upstream, 1024};
    void* const held = p.allocate(1024);
    bool called = false;
    upstream.on_allocate = [&] {
        if (std::exchange(called, true)) return;
        p.deallocate(held, 1024);
        p.deallocate(p.allocate(4096), 4096);
    };
    void* const ptr = p.allocate(2048);
    EXPECT_NE(ptr, nullptr);
    p.deallocate(ptr, 2048);
}

TEST(Pool, trim_gives_whole_upstream_blocks_back) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 0};
    cuda_stream stream;
    void* const a = p.allocate(1024, stream);
    void* const b = p.allocate(4096, stream);
    EXPECT_EQ(p.pool_size(), 5120u);
    EXPECT_EQ(p.trim(), 0u);
    p.deallocate(b, 4096, stream);
    EXPECT_EQ(p.trim(), 4096u);
    EXPECT_EQ(p.pool_size(), 1024u);
    EXPECT_EQ(upstream.in_use, 1024u);
    p.deallocate(a, 1024, stream);
    EXPECT_EQ(p.trim(1024), 0u);
    EXPECT_EQ(p.trim(), 1024u);
    EXPECT_EQ(upstream.in_use, 0u);
    p.deallocate(p.allocate(256, stream), 256, stream);
}

TEST(Pool, exchanges_free_blocks_of_upstream_for_one_that_a_request_fits_into) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 0, 8 * 4096};
    cuda_stream stream, other;
    void* const kept = p.allocate(4096, stream);  // with half of the room: 4 units
    void* const a = p.allocate(3 * 4096, stream);
    void* const b = p.allocate(2 * 4096, stream);
    void* const c = p.allocate(2 * 4096, stream);
    EXPECT_EQ(p.pool_size(), 8u * 4096);
    EXPECT_EQ(sizes_asked(upstream), (sizes{4 * 4096, 2 * 4096, 2 * 4096}));
    p.deallocate(a, 3 * 4096, stream);
    p.deallocate(b, 2 * 4096, stream);
    p.deallocate(c, 2 * 4096, other);
    // Seven units are free, three of them beside a block in use.
    void* const large = p.allocate(4 * 4096, stream);
    EXPECT_EQ(sizes_asked(upstream), (sizes{4 * 4096, 2 * 4096, 2 * 4096, 4 * 4096}));
    EXPECT_EQ(upstream.frees.size(), 2u);
    for (const auto& freed : upstream.frees) EXPECT_EQ(freed.stream.value(), stream.value());
    EXPECT_EQ(p.pool_size(), 8u * 4096);
    EXPECT_EQ(upstream.in_use, 8u * 4096);
    EXPECT_THROW((void)p.allocate(4 * 4096, stream), rmm::out_of_memory)
        << "only three units are free, in a block in use";
    EXPECT_EQ(upstream.frees.size(), 2u);
    p.deallocate(p.allocate(3 * 4096, stream), 3 * 4096, stream);
    p.deallocate(large, 4 * 4096, stream);
    p.deallocate(kept, 4096, stream);
    void* const all = p.allocate(8 * 4096, other);
    EXPECT_EQ(upstream.in_use, 8u * 4096);
    p.deallocate(all, 8 * 4096, other);
}

TEST(Pool, gives_back_no_more_than_a_request_needs) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 0, 15 * 4096};
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (std::size_t units : {8, 4, 2, 1}) blocks.emplace_back(p.allocate(units * 4096), units * 4096);
    EXPECT_EQ(sizes_asked(upstream), (sizes{8 * 4096, 4 * 4096, 2 * 4096, 4096}));
    p.deallocate(blocks[1].first, 4 * 4096);
    p.deallocate(blocks[2].first, 2 * 4096);
    p.deallocate(blocks[3].first, 4096);
    void* const ptr = p.allocate(5 * 4096);
    EXPECT_EQ(p.pool_size(), 15u * 4096);
    ASSERT_EQ(upstream.frees.size(), 2u);
    EXPECT_EQ(upstream.frees[0].bytes + upstream.frees[1].bytes, 5u * 4096) << "the block of two units stays";
    p.deallocate(ptr, 5 * 4096);
    p.deallocate(blocks[0].first, 8 * 4096);
}

TEST(Pool, is_as_usable_as_before_when_upstream_refuses_the_exchange) {
    recording_resource upstream;
    pool<recording_resource> p{upstream, 0, 6 * 4096};
    cuda_stream stream;
    void* const a = p.allocate(3 * 4096, stream);
    void* const b = p.allocate(3 * 4096, stream);
    p.deallocate(a, 3 * 4096, stream);
    p.deallocate(b, 3 * 4096, stream);
    upstream.largest = 3 * 4096;  // as a device whose memory is in pieces
    EXPECT_THROW((void)p.allocate(5 * 4096, stream), rmm::out_of_memory);
    EXPECT_EQ(p.pool_size(), 6u * 4096);
    EXPECT_EQ(upstream.in_use, 6u * 4096);
    void* const again_a = p.allocate(3 * 4096, stream);
    void* const again_b = p.allocate(3 * 4096, stream);
    EXPECT_EQ(upstream.in_use, 6u * 4096) << "without growing";
    p.deallocate(again_a, 3 * 4096, stream);
    p.deallocate(again_b, 3 * 4096, stream);
}

/// Frees, and then throws, as no resource may.
class throwing_in_frees final : public mr::device_memory_resource {
  public:
    recording_resource below;
    bool throws = false;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return below.allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        below.deallocate(ptr, bytes, stream);
        if (throws) throw std::runtime_error("thrown by a free");
    }
};

TEST(Pool, goes_on_where_upstream_throws_in_a_free) {
    throwing_in_frees upstream;
    pool<throwing_in_frees> p{upstream, 0, 6 * 4096};
    void* const a = p.allocate(3 * 4096);
    void* const b = p.allocate(3 * 4096);
    p.deallocate(a, 3 * 4096);
    p.deallocate(b, 3 * 4096);
    upstream.throws = true;
    testing::internal::CaptureStderr();
    upstream.below.largest = 3 * 4096;
    EXPECT_THROW((void)p.allocate(5 * 4096), rmm::out_of_memory);
    EXPECT_EQ(p.pool_size(), 6u * 4096) << "what was given back is taken again";
    upstream.below.largest = 6 * 4096;
    void* const all = p.allocate(6 * 4096);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("thrown by a free"), std::string::npos);
    upstream.throws = false;
    EXPECT_EQ(upstream.below.in_use, 6u * 4096);
    p.deallocate(all, 6 * 4096);
}

TEST(Pool, without_a_maximum_exchanges_blocks_when_upstream_has_no_more) {
    recording_resource upstream;
    upstream.limit = 6 * 4096;
    pool<recording_resource> p{upstream, 0};
    void* const a = p.allocate(3 * 4096);
    void* const b = p.allocate(3 * 4096);
    p.deallocate(a, 3 * 4096);
    p.deallocate(b, 3 * 4096);
    void* const all = p.allocate(6 * 4096);
    EXPECT_EQ(upstream.in_use, 6u * 4096);
    EXPECT_THROW((void)p.allocate(4096), rmm::out_of_memory);
    p.deallocate(all, 6 * 4096);
}

TEST(Pool, counts_what_it_holds) {
    mr::cuda_memory_resource cuda;
    pool<mr::cuda_memory_resource> p{cuda, 4096};
    void* const a = p.allocate(100);
    mr::pool_statistics s = p.statistics();
    EXPECT_EQ(s.held_bytes, 4096u);
    EXPECT_EQ(s.in_use_bytes, 256u);
    EXPECT_EQ(s.free_bytes, 3840u);
    EXPECT_EQ(s.num_blocks, 1u);
    EXPECT_EQ(s.maximum_bytes, 0u);
    p.deallocate(a, 100);
    EXPECT_EQ(p.statistics().in_use_bytes, 0u);
}

TEST(Pool, pools_over_pools_and_pools_of_several_devices_work) {
    mr::cuda_memory_resource cuda;
    using inner_pool = pool<mr::cuda_memory_resource>;
    inner_pool inner{cuda, 0};
    pool<inner_pool> middle{inner, 0};
    pool<pool<inner_pool>> outer{middle, 0};
    outer.deallocate(outer.allocate(1024), 1024);

    std::vector<std::unique_ptr<inner_pool>> pools;
    for (int device = 0; device < 2; ++device) {
        cuda_set_device_raii on{cuda_device_id{device}};
        pools.push_back(std::make_unique<inner_pool>(cuda, 1024, 1024));
        mr::set_per_device_resource(cuda_device_id{device}, pools.back().get());
    }
    {
        device_buffer on_zero{16, cuda_stream_per_thread};
        cuda_set_device_raii on{cuda_device_id{1}};
        device_buffer on_one{16, cuda_stream_per_thread};
        EXPECT_EQ(on_one.memory_resource(), device_async_resource_ref{*pools[1]});
    }
    for (int device = 0; device < 2; ++device) mr::reset_per_device_resource_ref(cuda_device_id{device});
}

TEST(PoolEngine, a_refusal_is_a_value_inside) {
    mr::cuda_memory_resource cuda;
    mr::detail::pool_engine engine{cuda, {.initial_bytes = 1024, .maximum_bytes = 1024, .ordered_upstream = false}};
    mr::detail::refusal why;
    void* const ptr = engine.try_allocate(1024, cuda_stream_view{}, &why);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(engine.try_allocate(1, cuda_stream_view{}, &why), nullptr);
    EXPECT_EQ(why.why, mr::detail::refusal::cause::exhausted);
    EXPECT_NE(why.reason.find("Not enough room"), std::string::npos);
    engine.free(ptr, 1024, {});
}

}  // namespace
