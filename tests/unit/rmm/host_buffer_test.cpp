// host_buffer and host_allocator: page-locked by default, over any resource of host memory, safe with streams.
#include "rmm/host_buffer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/host_allocator.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/system_memory_resource.hpp"

namespace {

using kmm::driver::MemoryKind;
using rmm::host_buffer;
using namespace rmm::mr;

MemoryKind kind_of(void const* ptr) {
    kmm::driver::PointerInfo info;
    EXPECT_TRUE(kmm::driver::process_default().pointer_info(ptr, &info).ok());
    return info.kind;
}

static_assert(!std::is_copy_constructible_v<host_buffer> && !std::is_copy_assignable_v<host_buffer>);
static_assert(std::is_nothrow_move_constructible_v<host_buffer> && std::is_nothrow_move_assignable_v<host_buffer>);

TEST(HostBuffer, is_page_locked_unless_a_resource_is_given) {
    host_buffer pinned{1000};
    EXPECT_EQ(pinned.size(), 1000u);
    EXPECT_EQ(pinned.ssize(), 1000);
    EXPECT_EQ(pinned.capacity(), 1000u);
    EXPECT_EQ(pinned.stream(), rmm::cuda_stream_default);
    EXPECT_EQ(kind_of(pinned.data()), MemoryKind::pinned);
    new_delete_resource plain;
    host_buffer on_heap{1000, rmm::cuda_stream_default, plain};
    EXPECT_EQ(kind_of(on_heap.data()), MemoryKind::pageable);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(on_heap.data()) % 64, 0u);
    EXPECT_EQ(on_heap.memory_resource(), rmm::host_resource_ref{plain});
}

TEST(HostBuffer, of_no_size_asks_nobody) {
    host_buffer empty;
    host_buffer zero{0};
    EXPECT_TRUE(empty.is_empty());
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_EQ(zero.data(), nullptr);
    EXPECT_EQ((host_buffer{nullptr, 0}.data()), nullptr);
}

TEST(HostBuffer, copies_from_the_host_and_from_a_device) {
    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    const std::size_t bytes = numbers.size() * sizeof(int);
    rmm::cuda_stream stream;
    host_buffer up{numbers.data(), bytes, stream};
    rmm::device_buffer on_device{up.data(), bytes, stream};
    host_buffer down{on_device.data(), bytes, stream};
    host_buffer copy{down, stream};
    stream.synchronize();
    EXPECT_EQ(std::memcmp(copy.data(), numbers.data(), bytes), 0);
    EXPECT_NE(copy.data(), down.data());
    EXPECT_EQ(copy.stream(), stream.view());
}

TEST(HostBuffer, refuses_a_null_source) { EXPECT_THROW((host_buffer{nullptr, 1}), rmm::logic_error); }

TEST(HostBuffer, moves_take_everything) {
    rmm::cuda_stream stream;
    new_delete_resource plain;
    host_buffer source{100, stream, plain};
    void* const data = source.data();
    host_buffer target{std::move(source)};
    EXPECT_EQ(target.data(), data);
    EXPECT_EQ(target.stream(), stream.view());
    EXPECT_EQ(target.memory_resource(), rmm::host_resource_ref{plain});
    EXPECT_EQ(source.data(), nullptr);
    EXPECT_EQ(source.size(), 0u);
    EXPECT_EQ(source.capacity(), 0u);
    EXPECT_EQ(source.stream(), rmm::cuda_stream_default);
    host_buffer other{50};
    other = std::move(target);
    EXPECT_EQ(other.data(), data);
    auto& self = other;
    other = std::move(self);
    EXPECT_EQ(other.data(), data);
}

TEST(HostBuffer, resizes_like_a_device_buffer) {
    host_buffer buffer{100};
    std::memset(buffer.data(), 7, 100);
    void* const before = buffer.data();
    buffer.resize(50);
    EXPECT_EQ(buffer.size(), 50u);
    EXPECT_EQ(buffer.capacity(), 100u);
    EXPECT_EQ(buffer.data(), before);
    buffer.shrink_to_fit();
    EXPECT_EQ(buffer.capacity(), 50u);
    buffer.reserve(20);
    EXPECT_EQ(buffer.capacity(), 50u);
    rmm::cuda_stream stream;
    buffer.reserve(300, stream);
    EXPECT_EQ(buffer.size(), 50u);
    EXPECT_EQ(buffer.capacity(), 300u);
    EXPECT_EQ(buffer.stream(), stream.view());
    buffer.resize(400, stream);
    EXPECT_EQ(buffer.size(), 400u);
    const auto* bytes = static_cast<unsigned char const*>(buffer.data());
    for (int i = 0; i < 50; ++i) EXPECT_EQ(bytes[i], 7);
    buffer.resize(0, stream);
    buffer.shrink_to_fit(stream);
    EXPECT_EQ(buffer.data(), nullptr);
    buffer.resize(10);
    EXPECT_NE(buffer.data(), nullptr);
}

TEST(HostBuffer, a_failed_growth_changes_nothing) {
    pinned_host_memory_resource pinned;
    limiting_resource_adaptor<pinned_host_memory_resource> limited{&pinned, 1024};
    // An adaptor promises device memory only; what it gives here is known to be the host's.
    const auto ref = rmm::host_resource_ref::from_raw(rmm::device_async_resource_ref{limited}.raw());
    host_buffer buffer{512, rmm::cuda_stream_default, ref};
    std::memset(buffer.data(), 3, 512);
    void* const before = buffer.data();
    rmm::cuda_stream stream;
    EXPECT_THROW(buffer.resize(2048, stream), rmm::out_of_memory);
    EXPECT_EQ(buffer.data(), before);
    EXPECT_EQ(buffer.size(), 512u);
    EXPECT_EQ(buffer.stream(), rmm::cuda_stream_default);
    EXPECT_EQ(static_cast<char*>(buffer.data())[511], 3);
}

void set_done(void* done) { static_cast<std::atomic<bool>*>(done)->store(true); }

/// Queues work on the stream that takes a moment, the last of which sets `done`.
void keep_busy(rmm::cuda_stream_view stream, void* memory, std::size_t bytes, std::atomic<bool>& done) {
    auto& driver = kmm::driver::process_default();
    const unsigned char pattern = 9;
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(driver.fill(memory, &pattern, 1, bytes, {stream.value()}).ok());
    ASSERT_TRUE(driver.host_callback({stream.value()}, &set_done, &done).ok());
}

TEST(HostBuffer, memory_that_a_pool_hands_out_is_the_hosts_when_the_constructor_returns) {
    pinned_host_memory_resource pinned;
    pool_memory_resource<pinned_host_memory_resource> pool{&pinned, 1 << 20, 1 << 20};
    rmm::cuda_stream stream;
    std::atomic<bool> done{false};
    {
        host_buffer first{1 << 20, stream, pool};
        keep_busy(stream, first.data(), first.size(), done);
    }  // freed in stream order: nobody waits here
    host_buffer second{1 << 20, stream, pool};
    EXPECT_TRUE(done);
    std::memset(second.data(), 1, second.size());
    EXPECT_EQ(static_cast<char*>(second.data())[1000], 1);
}

TEST(HostBuffer, plain_memory_is_freed_after_the_work_of_its_stream) {
    new_delete_resource plain;
    system_memory_resource system;
    for (rmm::host_resource_ref mr : {rmm::host_resource_ref{plain}, rmm::host_resource_ref{system}}) {
        rmm::cuda_stream stream;
        std::atomic<bool> done{false};
        {
            host_buffer buffer{1 << 20, stream, mr};
            keep_busy(stream, buffer.data(), buffer.size(), done);
        }
        EXPECT_TRUE(done);
    }
}

TEST(HostBuffer, growing_waits_for_the_stream_and_keeps_what_it_wrote) {
    rmm::cuda_stream stream;
    host_buffer buffer{1 << 20, stream};
    std::atomic<bool> done{false};
    keep_busy(stream, buffer.data(), buffer.size(), done);
    buffer.resize(2 << 20, stream);
    EXPECT_TRUE(done);
    EXPECT_EQ(static_cast<char*>(buffer.data())[(1 << 20) - 1], 9);
}

// ---- host_allocator

TEST(HostAllocator, gives_vectors_page_locked_memory) {
    std::vector<float, host_allocator<float>> numbers(1000, 1.5f);
    EXPECT_EQ(kind_of(numbers.data()), MemoryKind::pinned);
    for (int i = 0; i < 10'000; ++i) numbers.push_back(float(i));
    EXPECT_EQ(numbers[999], 1.5f);
    EXPECT_EQ(numbers.back(), 9999.f);
    auto copy = numbers;
    EXPECT_EQ(copy, numbers);
    const auto moved = std::move(copy);
    EXPECT_EQ(moved, numbers);
}

TEST(HostAllocator, works_over_every_resource_of_host_memory) {
    new_delete_resource plain;
    pinned_memory_resource pinned;
    pinned_host_memory_resource pinned_host;
    pool_memory_resource<pinned_host_memory_resource> pool{&pinned_host, 1 << 20};
    for (rmm::host_resource_ref mr : {rmm::host_resource_ref{plain}, rmm::host_resource_ref{pinned},
                                      rmm::host_resource_ref{pinned_host}, rmm::host_resource_ref{pool}}) {
        std::vector<int, host_allocator<int>> numbers{{1, 2, 3}, mr};
        numbers.resize(1000, 4);
        EXPECT_EQ(numbers[2], 3);
        EXPECT_EQ(numbers[999], 4);
        EXPECT_EQ(numbers.get_allocator().get_upstream_resource(), mr);
    }
    host_allocator<int> from_pointer{&plain};
    EXPECT_EQ(from_pointer, host_allocator<int>{rmm::host_resource_ref{plain}});
}

TEST(HostAllocator, serves_containers_of_nodes_and_strings) {
    pinned_host_memory_resource pinned;
    rmm::host_resource_ref ref{pinned};
    std::list<int, host_allocator<int>> list{{1, 2, 3}, ref};
    EXPECT_EQ(list.back(), 3);
    std::map<int, int, std::less<>, host_allocator<std::pair<int const, int>>> map{ref};
    map[5] = 6;
    EXPECT_EQ(map.at(5), 6);
    std::basic_string<char, std::char_traits<char>, host_allocator<char>> text{
        "longer than what a string keeps inside itself", ref};
    EXPECT_EQ(text.back(), 'f');
}

TEST(HostAllocator, is_equal_where_its_resource_is_and_travels_with_moves) {
    new_delete_resource a;
    new_delete_resource b;
    EXPECT_TRUE(host_allocator<int>{&a} == host_allocator<double>{&a});
    EXPECT_TRUE(host_allocator<int>{&a} != host_allocator<int>{&b});
    EXPECT_TRUE(host_allocator<int>{} == host_allocator<int>{});
    std::vector<int, host_allocator<int>> from_a(100, 1, &a);
    std::vector<int, host_allocator<int>> from_b(10, 2, &b);
    int* const data = from_a.data();
    from_b = std::move(from_a);
    EXPECT_EQ(from_b.data(), data);
    EXPECT_EQ(from_b.get_allocator(), host_allocator<int>{&a});
}

struct alignas(128) wide {
    char bytes[128];
};

TEST(HostAllocator, honours_the_alignment_of_its_elements) {
    new_delete_resource plain;
    for (rmm::host_resource_ref mr : {rmm::host_resource_ref{plain}, rmm::detail::default_host_resource()}) {
        std::vector<wide, host_allocator<wide>> values(3, mr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % 128, 0u);
    }
}

TEST(HostAllocator, refuses_counts_whose_bytes_cannot_be_counted) {
    host_allocator<double> allocator;
    EXPECT_THROW((void)allocator.allocate((std::size_t{1} << 61) + 1), std::bad_alloc);
}

}  // namespace
