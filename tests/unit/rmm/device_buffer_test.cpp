// <rmm/device_buffer.hpp>.
#include <gtest/gtest.h>

#include <numeric>
#include <type_traits>
#include <vector>

#include "driver/registry.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/managed_memory_resource.hpp"

namespace {

using namespace rmm;
using rmm_test::recording_resource;

static_assert(!std::is_copy_constructible_v<device_buffer> && !std::is_copy_assignable_v<device_buffer>);
static_assert(std::is_nothrow_move_constructible_v<device_buffer> && std::is_nothrow_move_assignable_v<device_buffer>);

std::vector<unsigned char> numbers(std::size_t size) {
    std::vector<unsigned char> v(size);
    std::iota(v.begin(), v.end(), static_cast<unsigned char>(1));
    return v;
}

std::vector<unsigned char> contents(const device_buffer& buffer, std::size_t size, cuda_stream_view stream) {
    std::vector<unsigned char> v(size);
    EXPECT_TRUE(kmm::driver::process_default().copy(v.data(), buffer.data(), size, {stream.value()}).ok());
    stream.synchronize();
    return v;
}

TEST(DeviceBuffer, is_empty_by_default_and_for_size_zero) {
    recording_resource mr;
    device_buffer empty;
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_TRUE(empty.is_empty());
    EXPECT_EQ(empty.memory_resource(), mr::get_current_device_resource_ref());
    {
        device_buffer zero{0, cuda_stream_default, mr};
        EXPECT_TRUE(zero.is_empty());
        EXPECT_EQ(zero.data(), nullptr);
        EXPECT_EQ(zero.capacity(), 0u);
        device_buffer copy{nullptr, 0, cuda_stream_default, mr};
        EXPECT_EQ(copy.data(), nullptr);
    }
    EXPECT_TRUE(mr.allocations.empty());
    EXPECT_TRUE(mr.frees.empty());
}

TEST(DeviceBuffer, knows_its_size_stream_and_resource) {
    cuda_stream stream;
    mr::managed_memory_resource managed;
    device_buffer buffer{100, stream, managed};
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), 100u);
    EXPECT_EQ(buffer.ssize(), 100);
    EXPECT_EQ(buffer.capacity(), 100u);
    EXPECT_EQ(buffer.stream(), stream.view());
    EXPECT_EQ(buffer.memory_resource(), device_async_resource_ref{managed});
    buffer.set_stream(cuda_stream_default);
    EXPECT_EQ(buffer.stream(), cuda_stream_default);
}

TEST(DeviceBuffer, spellings_of_older_programs_compile) {
    cuda_stream stream;
    cudaStream_t const raw = stream.value();
    recording_resource mr;
    mr::device_memory_resource* pointer = &mr;
    const device_buffer a{100, raw};
    const device_buffer b{100, raw, pointer};
    EXPECT_EQ(b.memory_resource(), device_async_resource_ref{mr});
    EXPECT_EQ(a.stream(), stream.view());
}

TEST(DeviceBuffer, the_exact_size_reaches_the_resource) {
    recording_resource mr;
    { device_buffer buffer{3, cuda_stream_default, mr}; }
    ASSERT_EQ(mr.allocations.size(), 1u);
    EXPECT_EQ(mr.allocations[0].bytes, 3u);
    EXPECT_EQ(mr.frees[0].bytes, 3u);
}

TEST(DeviceBuffer, copies_from_host_and_device_memory) {
    cuda_stream stream;
    const auto source = numbers(1000);
    device_buffer from_host{source.data(), source.size(), stream};
    EXPECT_EQ(contents(from_host, 1000, stream), source);
    device_buffer from_device{from_host.data(), 1000, stream};
    EXPECT_NE(from_device.data(), from_host.data());
    EXPECT_EQ(contents(from_device, 1000, stream), source);
    device_buffer copy{from_host, stream};
    EXPECT_EQ(contents(copy, 1000, stream), source);
    EXPECT_EQ(copy.memory_resource(), mr::get_current_device_resource_ref());
}

TEST(DeviceBuffer, a_null_source_is_refused_before_anything_is_allocated) {
    recording_resource mr;
    EXPECT_THROW((device_buffer{nullptr, 1, cuda_stream_default, mr}), rmm::logic_error);
    EXPECT_TRUE(mr.allocations.empty());
}

TEST(DeviceBuffer, a_copy_that_fails_leaks_nothing) {
    recording_resource mr;
    const auto source = numbers(16);
    const cuda_stream_view bogus{reinterpret_cast<cudaStream_t>(0x12345670)};
    EXPECT_THROW((device_buffer{source.data(), 16, bogus, mr}), rmm::cuda_error);
    EXPECT_EQ(mr.allocations.size(), 1u);
    EXPECT_EQ(mr.frees.size(), 1u);
    EXPECT_EQ(mr.in_use, 0u);
}

TEST(DeviceBuffer, a_copy_of_a_shrunken_buffer_has_the_size_as_capacity) {
    cuda_stream stream;
    const auto source = numbers(100);
    device_buffer buffer{source.data(), 100, stream};
    buffer.resize(40, stream);
    device_buffer copy{buffer, stream};
    EXPECT_EQ(copy.size(), 40u);
    EXPECT_EQ(copy.capacity(), 40u);
    EXPECT_EQ(contents(copy, 40, stream), std::vector<unsigned char>(source.begin(), source.begin() + 40));
}

TEST(DeviceBuffer, moving_takes_everything_and_leaves_an_empty_buffer) {
    cuda_stream stream;
    recording_resource mr;
    device_buffer a{100, stream, mr};
    void* const ptr = a.data();
    device_buffer b = std::move(a);
    EXPECT_EQ(b.data(), ptr);
    EXPECT_EQ(b.size(), 100u);
    EXPECT_EQ(b.stream(), stream.view());
    EXPECT_EQ(b.memory_resource(), device_async_resource_ref{mr});
    EXPECT_EQ(a.data(), nullptr);
    EXPECT_EQ(a.size(), 0u);
    EXPECT_EQ(a.capacity(), 0u);
    EXPECT_EQ(a.stream(), cuda_stream_default);
}

TEST(DeviceBuffer, move_assignment_frees_the_old_block_on_its_own_stream) {
    cuda_stream old_stream;
    cuda_stream new_stream;
    recording_resource old_mr;
    recording_resource new_mr;
    device_buffer target{50, old_stream, old_mr};
    device_buffer source{100, new_stream, new_mr};
    void* const ptr = source.data();
    target = std::move(source);
    ASSERT_EQ(old_mr.frees.size(), 1u);
    EXPECT_EQ(old_mr.frees[0].stream, old_stream.view());
    EXPECT_EQ(target.data(), ptr);
    EXPECT_EQ(target.stream(), new_stream.view());
    device_buffer& same = target;
    target = std::move(same);
    EXPECT_EQ(target.data(), ptr);
    EXPECT_EQ(target.size(), 100u);
}

TEST(DeviceBuffer, resizing_below_the_capacity_moves_nothing) {
    cuda_stream stream;
    const auto source = numbers(100);
    device_buffer buffer{source.data(), 100, stream};
    void* const ptr = buffer.data();
    buffer.resize(60, stream);
    EXPECT_EQ(buffer.data(), ptr);
    EXPECT_EQ(buffer.size(), 60u);
    EXPECT_EQ(buffer.capacity(), 100u);
    buffer.shrink_to_fit(stream);
    EXPECT_EQ(buffer.capacity(), 60u);
    EXPECT_EQ(contents(buffer, 60, stream), std::vector<unsigned char>(source.begin(), source.begin() + 60));
    buffer.resize(0, stream);
    buffer.shrink_to_fit(stream);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.capacity(), 0u);
}

TEST(DeviceBuffer, resizing_above_the_capacity_keeps_the_contents) {
    cuda_stream stream;
    const auto source = numbers(100);
    device_buffer buffer{source.data(), 100, stream};
    buffer.resize(200, stream);
    EXPECT_EQ(buffer.size(), 200u);
    EXPECT_EQ(buffer.capacity(), 200u);
    EXPECT_EQ(contents(buffer, 100, stream), source);
    device_buffer empty{0, stream};
    empty.resize(10, stream);
    EXPECT_EQ(empty.size(), 10u);
}

TEST(DeviceBuffer, reserving_only_grows_and_keeps_the_size) {
    cuda_stream stream;
    const auto source = numbers(100);
    device_buffer buffer{source.data(), 100, stream};
    void* const ptr = buffer.data();
    buffer.reserve(50, stream);
    EXPECT_EQ(buffer.data(), ptr);
    EXPECT_EQ(buffer.capacity(), 100u);
    buffer.reserve(300, stream);
    EXPECT_EQ(buffer.size(), 100u);
    EXPECT_EQ(buffer.capacity(), 300u);
    EXPECT_EQ(contents(buffer, 100, stream), source);
}

TEST(DeviceBuffer, a_resize_that_fails_changes_nothing) {
    cuda_stream first;
    cuda_stream second;
    recording_resource mr;
    const auto source = numbers(100);
    device_buffer buffer{source.data(), 100, first, mr};
    void* const ptr = buffer.data();
    mr.limit = 150;
    EXPECT_THROW(buffer.resize(200, second), rmm::bad_alloc);
    EXPECT_THROW(buffer.reserve(200, second), rmm::bad_alloc);
    EXPECT_EQ(buffer.data(), ptr);
    EXPECT_EQ(buffer.size(), 100u);
    EXPECT_EQ(buffer.stream(), first.view());
    EXPECT_EQ(contents(buffer, 100, first), source);
    buffer.resize(30, first);
    mr.limit = 100;
    EXPECT_THROW(buffer.shrink_to_fit(second), rmm::bad_alloc);
    EXPECT_EQ(buffer.capacity(), 100u);
    EXPECT_EQ(buffer.stream(), first.view());
}

TEST(DeviceBuffer, every_call_with_a_stream_remembers_it_for_the_free) {
    cuda_stream streams[4];
    recording_resource mr;
    {
        device_buffer buffer{100, streams[0], mr};
        buffer.reserve(10, streams[1]);
        EXPECT_EQ(buffer.stream(), streams[1].view());
        buffer.resize(90, streams[2]);
        EXPECT_EQ(buffer.stream(), streams[2].view());
        buffer.resize(100, streams[2]);
        buffer.shrink_to_fit(streams[3]);
        EXPECT_EQ(buffer.stream(), streams[3].view());
    }
    EXPECT_EQ(mr.frees.back().stream, streams[3].view());
}

TEST(DeviceBuffer, works_on_the_device_on_which_it_was_made) {
    recording_resource mr;
    {
        device_buffer kept{10, cuda_stream_default, mr};
        device_buffer resized{10, cuda_stream_default, mr};
        device_buffer assigned;
        cuda_set_device_raii on_one{cuda_device_id{1}};
        resized.resize(1024, cuda_stream_default);
        resized.resize(64, cuda_stream_default);
        resized.shrink_to_fit(cuda_stream_default);
        assigned = std::move(kept);
        device_buffer destroyed_here = std::move(assigned);
        EXPECT_EQ(get_current_cuda_device().value(), 1);
        device_buffer gone = std::move(resized);
    }
    for (const auto& r : mr.allocations) EXPECT_EQ(r.device, 0);
    for (const auto& r : mr.frees) EXPECT_EQ(r.device, 0);
    EXPECT_EQ(mr.in_use, 0u);
}

}  // namespace
