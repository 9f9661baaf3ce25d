// <rmm/mr/host/*.hpp> and <rmm/mr/pinned_host_memory_resource.hpp>.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "driver/registry.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

template class rmm::mr::pool_memory_resource<rmm::mr::pinned_memory_resource>;
template class rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource>;

namespace {

using namespace rmm::mr;

template<typename T>
class HostResource : public testing::Test {
  protected:
    T mr;
};
using host_resources = testing::Types<new_delete_resource, pinned_memory_resource>;
TYPED_TEST_SUITE(HostResource, host_resources);

bool is_aligned(void* ptr, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(ptr) % alignment == 0; }

TYPED_TEST(HostResource, memory_can_be_written_on_the_host) {
    for (std::size_t bytes : {1u, 4u, 1024u, 1u << 20}) {
        void* const ptr = this->mr.allocate(bytes);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(is_aligned(ptr, 16));
        std::memset(ptr, 1, bytes);
        this->mr.deallocate(ptr, bytes);
    }
}

TYPED_TEST(HostResource, a_gibibyte_is_the_hosts) {
    constexpr std::size_t bytes = std::size_t{1} << 30;
    void* const ptr = this->mr.allocate(bytes);
    ASSERT_NE(ptr, nullptr);
    EXPECT_TRUE(is_aligned(ptr, 16));
    kmm::driver::PointerInfo info;
    ASSERT_TRUE(kmm::driver::process_default().pointer_info(ptr, &info).ok());
    EXPECT_NE(info.kind, kmm::driver::MemoryKind::device);
    EXPECT_NE(info.kind, kmm::driver::MemoryKind::managed);
    this->mr.deallocate(ptr, bytes);
}

TYPED_TEST(HostResource, zero_bytes_and_null_are_harmless) {
    this->mr.deallocate(this->mr.allocate(0), 0);
    this->mr.deallocate(nullptr, 100);
}

TYPED_TEST(HostResource, alignments_are_honoured) {
    std::size_t num_wrong = 0;
    for (std::size_t alignment = 16; alignment <= 4096; alignment *= 2) {
        std::vector<void*> blocks;  // all in use, so that they lie in different places
        for (int round = 0; round < 100; ++round) {
            void* const ptr = this->mr.allocate(100, alignment);
            num_wrong += !is_aligned(ptr, alignment);
            std::memset(ptr, 1, 100);
            blocks.push_back(ptr);
        }
        for (void* ptr : blocks) this->mr.deallocate(ptr, 100, alignment);
    }
    EXPECT_EQ(num_wrong, 0u);
}

TYPED_TEST(HostResource, an_alignment_that_is_no_power_of_two_falls_back) {
    void* const ptr = this->mr.allocate(100, 17);
    EXPECT_TRUE(is_aligned(ptr, 16));
    this->mr.deallocate(ptr, 100, 17);
}

TYPED_TEST(HostResource, is_equal_to_itself_only) {
    TypeParam other;
    EXPECT_TRUE(this->mr.is_equal(this->mr));
    EXPECT_TRUE(this->mr == this->mr);
    EXPECT_TRUE(this->mr != other);
}

TYPED_TEST(HostResource, too_much_throws_bad_alloc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (std::is_same_v<TypeParam, new_delete_resource>) GTEST_SKIP() << "the sanitizer's operator new ends the process";
#endif
    EXPECT_THROW((void)this->mr.allocate(std::size_t{1} << 50), std::bad_alloc);
    this->mr.deallocate(this->mr.allocate(64), 64);
}

TYPED_TEST(HostResource, blocks_in_random_order) {
    std::mt19937 random(1);
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (int i = 0; i < 100; ++i) {
        const std::size_t bytes = 1 + random() % (std::size_t{10} << 20);
        blocks.emplace_back(this->mr.allocate(bytes), bytes);
        EXPECT_TRUE(is_aligned(blocks.back().first, 16));
        std::memset(blocks.back().first, 1, 1);
        if (random() % 4 == 0) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            this->mr.deallocate(blocks.back().first, blocks.back().second);
            blocks.pop_back();
        }
    }
    for (auto [ptr, bytes] : blocks) this->mr.deallocate(ptr, bytes);
}

bool is_pinned(void* ptr) {
    kmm::driver::PointerInfo info;
    return kmm::driver::process_default().pointer_info(ptr, &info).ok() && info.kind == kmm::driver::MemoryKind::pinned;
}

TEST(PinnedMemoryResource, memory_is_page_locked_on_every_path) {
    pinned_memory_resource mr;
    void* ptr = mr.allocate(128);
    EXPECT_TRUE(is_pinned(ptr));
    mr.deallocate(ptr, 128);
    ptr = mr.allocate_async(128, 64, rmm::cuda_stream_view{});
    EXPECT_TRUE(is_pinned(ptr));
    mr.deallocate_async(ptr, 128, 64, rmm::cuda_stream_view{});
    ptr = mr.allocate(rmm::cuda_stream_view{}, 128);
    EXPECT_TRUE(is_pinned(ptr));
    mr.deallocate(rmm::cuda_stream_view{}, ptr, 128);
}

TEST(PinnedHostMemoryResource, works_without_an_object_and_through_the_base) {
    void* ptr = pinned_host_memory_resource::allocate(100);
    EXPECT_TRUE(is_pinned(ptr));
    EXPECT_TRUE(is_aligned(ptr, 256));
    pinned_host_memory_resource::deallocate(ptr, 100);
    EXPECT_EQ(pinned_host_memory_resource::allocate(0), nullptr);
    pinned_host_memory_resource::deallocate(nullptr, 0);
    ptr = pinned_host_memory_resource::allocate_async(100, 64, rmm::cuda_stream_view{});
    pinned_host_memory_resource::deallocate_async(ptr, 100, 64, rmm::cuda_stream_view{});

    pinned_host_memory_resource object;
    EXPECT_TRUE(object == pinned_host_memory_resource{});
    device_memory_resource* base = &object;
    ptr = base->allocate(100, rmm::cuda_stream_view{});
    EXPECT_TRUE(is_pinned(ptr));
    base->deallocate(ptr, 100, rmm::cuda_stream_view{});
    EXPECT_THROW((void)pinned_host_memory_resource::allocate(100, 48), rmm::logic_error);
}

template<typename Pinned>
void pool_of_pinned_memory_serves_host_and_device() {
    Pinned upstream;
    pool_memory_resource<Pinned> pool{upstream, 4096, 4096};
    rmm::host_device_async_resource_ref ref{pool};
    void* const ptr = ref.allocate_async(100, rmm::cuda_stream_view{});
    EXPECT_TRUE(is_pinned(ptr));
    std::memset(ptr, 1, 100);
    ref.deallocate_async(ptr, 100, rmm::cuda_stream_view{});
    EXPECT_THROW((pool_memory_resource<Pinned>{upstream, 1031, 4096}), rmm::logic_error);
    EXPECT_THROW((pool_memory_resource<Pinned>{upstream, 1024, 256}), rmm::logic_error);
}

TEST(PinnedPool, refuses_bad_arguments) {
    using pinned_pool = pool_memory_resource<pinned_host_memory_resource>;
    pinned_host_memory_resource upstream;
    EXPECT_THROW((pinned_pool{static_cast<pinned_host_memory_resource*>(nullptr), 1024}), rmm::logic_error);
    EXPECT_THROW((pinned_pool{&upstream, 1024, 256}), rmm::logic_error);
    EXPECT_THROW((pinned_pool{upstream, 1024, 256}), rmm::logic_error);
    EXPECT_THROW((pinned_pool{&upstream, 1000031}), rmm::logic_error);
    EXPECT_THROW((pinned_pool{upstream, 1000192, 1000200}), rmm::logic_error);
}

TEST(PinnedPool, can_be_of_one_size_and_is_exhausted_at_its_maximum) {
    pinned_host_memory_resource upstream;
    pool_memory_resource<pinned_host_memory_resource> fixed{upstream, 1000192, 1000192};
    fixed.deallocate(fixed.allocate(1000), 1000);
    pool_memory_resource<pinned_host_memory_resource> small{upstream, 0, 1024};
    void* const all = small.allocate(1024);
    EXPECT_NE(all, nullptr);
    EXPECT_THROW((void)small.allocate(1024), rmm::out_of_memory);
    small.deallocate(all, 1024);
}

TEST(PinnedPool, serves_host_and_device) {
    pool_of_pinned_memory_serves_host_and_device<pinned_memory_resource>();
    pool_of_pinned_memory_serves_host_and_device<pinned_host_memory_resource>();
}

}  // namespace
