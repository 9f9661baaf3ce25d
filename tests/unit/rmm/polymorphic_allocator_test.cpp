// polymorphic_allocator and stream_allocator_adaptor.
#include "rmm/mr/polymorphic_allocator.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"

namespace {

using namespace rmm::mr;

TEST(PolymorphicAllocator, uses_the_current_resource_by_default) {
    polymorphic_allocator<int> allocator;
    EXPECT_EQ(allocator.get_upstream_resource(),
              rmm::device_async_resource_ref{rmm::mr::get_current_device_resource()});
    EXPECT_EQ(allocator.resource(), allocator.get_upstream_resource());
}

TEST(PolymorphicAllocator, takes_a_resource_by_pointer_or_reference) {
    cuda_memory_resource mr;
    EXPECT_EQ(polymorphic_allocator<int>{&mr}.get_upstream_resource(), rmm::device_async_resource_ref{mr});
    EXPECT_EQ(polymorphic_allocator<int>{mr}.get_upstream_resource(), rmm::device_async_resource_ref{mr});
}

rmm::device_async_resource_ref resource_of(polymorphic_allocator<int> const& allocator) {
    return allocator.get_upstream_resource();
}

TEST(PolymorphicAllocator, a_reference_converts_to_it) {
    cuda_memory_resource mr;
    rmm::device_async_resource_ref ref{mr};
    EXPECT_EQ(resource_of(ref), ref);
}

TEST(PolymorphicAllocator, is_equal_where_its_resource_is) {
    cuda_memory_resource cuda_a;
    cuda_memory_resource cuda_b;
    managed_memory_resource managed;
    const polymorphic_allocator<int> a{&cuda_a};
    const polymorphic_allocator<int> b{&cuda_b};
    const polymorphic_allocator<int> m{&managed};
    EXPECT_EQ(a, a);
    EXPECT_EQ(a, b);
    EXPECT_FALSE(a == m);
    EXPECT_TRUE(a != m);
}

TEST(PolymorphicAllocator, copies_and_rebinds) {
    cuda_memory_resource mr;
    const polymorphic_allocator<int> ints{&mr};
    const polymorphic_allocator<int> copy{ints};
    const polymorphic_allocator<double> doubles{ints};
    EXPECT_EQ(ints, copy);
    EXPECT_TRUE(ints == doubles);
    EXPECT_EQ(doubles.get_upstream_resource(), ints.get_upstream_resource());
    static_assert(std::is_same_v<std::allocator_traits<polymorphic_allocator<int>>::rebind_alloc<double>,
                                 polymorphic_allocator<double>>);
}

TEST(PolymorphicAllocator, allocates_elements_on_the_stream) {
    rmm_test::recording_resource mr;
    polymorphic_allocator<int> allocator{&mr};
    rmm::cuda_stream stream;
    int* const ptr = allocator.allocate(1000, stream);
    EXPECT_NE(ptr, nullptr);
    allocator.deallocate(ptr, 1000, stream);
    EXPECT_EQ(mr.allocations[0].bytes, 1000 * sizeof(int));
    EXPECT_EQ(mr.allocations[0].stream, stream.view());
    EXPECT_EQ(mr.frees[0].bytes, 1000 * sizeof(int));
    polymorphic_allocator<char> bytes{&mr};
    bytes.deallocate(bytes.allocate(3, stream), 3, stream);
    EXPECT_EQ(mr.allocations[1].bytes, 3u);
}

TEST(PolymorphicAllocator, refuses_counts_whose_bytes_cannot_be_counted) {
    polymorphic_allocator<double> allocator;
    EXPECT_THROW((void)allocator.allocate((std::size_t{1} << 61) + 1, rmm::cuda_stream_view{}), rmm::bad_alloc);
}

TEST(StreamAllocatorAdaptor, remembers_allocator_and_stream) {
    cuda_memory_resource mr;
    rmm::cuda_stream stream;
    const polymorphic_allocator<int> allocator{&mr};
    auto adapted = make_stream_allocator_adaptor(allocator, stream);
    static_assert(std::is_same_v<decltype(adapted), stream_allocator_adaptor<polymorphic_allocator<int>>>);
    static_assert(!std::is_default_constructible_v<decltype(adapted)>);
    EXPECT_EQ(adapted.underlying_allocator(), allocator);
    EXPECT_EQ(adapted.stream(), stream.view());
    const stream_allocator_adaptor deduced{allocator, stream};
    EXPECT_EQ(adapted, deduced);
}

TEST(StreamAllocatorAdaptor, is_equal_where_the_allocators_are) {
    cuda_memory_resource cuda_a;
    cuda_memory_resource cuda_b;
    managed_memory_resource managed;
    rmm::cuda_stream stream;
    rmm::cuda_stream other_stream;
    auto a = make_stream_allocator_adaptor(polymorphic_allocator<int>{&cuda_a}, stream);
    auto b = make_stream_allocator_adaptor(polymorphic_allocator<int>{&cuda_b}, other_stream);
    auto m = make_stream_allocator_adaptor(polymorphic_allocator<int>{&managed}, stream);
    EXPECT_TRUE(a == a);
    EXPECT_TRUE(a == b);
    EXPECT_TRUE(a != m);
}

TEST(StreamAllocatorAdaptor, copies_and_rebinds) {
    cuda_memory_resource mr;
    rmm::cuda_stream stream;
    auto ints = make_stream_allocator_adaptor(polymorphic_allocator<int>{&mr}, stream);
    auto copy = ints;
    stream_allocator_adaptor<polymorphic_allocator<double>> doubles{ints};
    EXPECT_TRUE(ints == copy);
    EXPECT_TRUE(ints == doubles);
    EXPECT_EQ(doubles.stream(), stream.view());
    using rebound = std::allocator_traits<decltype(ints)>::rebind_alloc<double>;
    static_assert(std::is_same_v<rebound, stream_allocator_adaptor<polymorphic_allocator<double>>>);
    static_assert(std::is_constructible_v<rebound, decltype(ints)>);
}

TEST(StreamAllocatorAdaptor, allocates_on_its_stream) {
    rmm_test::recording_resource mr;
    rmm::cuda_stream stream;
    auto adapted = make_stream_allocator_adaptor(polymorphic_allocator<int>{&mr}, stream);
    int* const ptr = adapted.allocate(1000);
    EXPECT_NE(ptr, nullptr);
    adapted.deallocate(ptr, 1000);
    EXPECT_EQ(mr.allocations[0].stream, stream.view());
    EXPECT_EQ(mr.frees[0].stream, stream.view());
}

}  // namespace
