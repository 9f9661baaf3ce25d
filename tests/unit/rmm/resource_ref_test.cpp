// <rmm/resource_ref.hpp> in light units: what converts, what is equal, what is forwarded.
#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

namespace {

using namespace rmm;
using rmm_test::recording_resource;

/// Models the concepts without a base class; states its property with the tag of light units.
class foreign_resource {
  public:
    void* allocate(std::size_t bytes, std::size_t) {
        last_bytes = bytes;
        ++num_synchronous;
        return this;
    }
    void deallocate(void*, std::size_t bytes, std::size_t) {
        last_bytes = bytes;
        ++num_synchronous;
    }
    void* allocate_async(std::size_t bytes, std::size_t, cuda_stream_view stream) {
        last_bytes = bytes;
        last_stream = stream;
        ++num_ordered;
        return this;
    }
    void deallocate_async(void*, std::size_t bytes, std::size_t, cuda_stream_view stream) {
        last_bytes = bytes;
        last_stream = stream;
        ++num_ordered;
    }
    bool operator==(const foreign_resource& other) const { return group == other.group; }
    bool operator!=(const foreign_resource& other) const { return group != other.group; }
    friend void get_property(const foreign_resource&, rmm::detail::device_accessible) {}
    friend void get_property(const foreign_resource&, rmm::detail::host_accessible) {}

    int group = 0;
    int num_synchronous = 0;
    int num_ordered = 0;
    std::size_t last_bytes = 0;
    cuda_stream_view last_stream;
};

struct no_property_resource {
    void* allocate(std::size_t, std::size_t) { return this; }
    void deallocate(void*, std::size_t, std::size_t) {}
    bool operator==(const no_property_resource&) const { return true; }
};

static_assert(sizeof(device_async_resource_ref) == 16);
static_assert(!std::is_default_constructible_v<device_async_resource_ref>);
static_assert(!std::is_constructible_v<device_async_resource_ref, std::nullptr_t>);
static_assert(std::is_trivially_copy_constructible_v<device_async_resource_ref>);

template<typename T> constexpr bool converts = std::is_convertible_v<T, device_async_resource_ref>;
static_assert(converts<mr::cuda_memory_resource&> && converts<mr::cuda_memory_resource*>);
static_assert(converts<mr::device_memory_resource&> && converts<mr::device_memory_resource*>);
static_assert(converts<foreign_resource&> && converts<foreign_resource*>);
static_assert(converts<mr::pinned_host_memory_resource&> && converts<mr::pinned_memory_resource&>);
static_assert(!converts<const mr::cuda_memory_resource&> && !converts<mr::cuda_memory_resource>);
static_assert(!converts<std::shared_ptr<mr::cuda_memory_resource>&>);
static_assert(!converts<no_property_resource&> && !converts<mr::new_delete_resource&> && !converts<int&>);
static_assert(std::is_assignable_v<device_async_resource_ref&, mr::cuda_memory_resource&>);

// More promises convert to fewer, never the other way.
static_assert(std::is_convertible_v<device_async_resource_ref, device_resource_ref>);
static_assert(!std::is_convertible_v<device_resource_ref, device_async_resource_ref>);
static_assert(std::is_convertible_v<host_device_async_resource_ref, device_async_resource_ref>);
static_assert(std::is_convertible_v<host_device_async_resource_ref, host_resource_ref>);
static_assert(!std::is_convertible_v<device_async_resource_ref, host_device_async_resource_ref>);

static_assert(std::is_convertible_v<mr::new_delete_resource&, host_resource_ref>);
static_assert(!std::is_convertible_v<mr::new_delete_resource&, host_async_resource_ref>);
static_assert(std::is_convertible_v<mr::pinned_host_memory_resource&, host_device_async_resource_ref>);
static_assert(std::is_convertible_v<mr::pinned_memory_resource&, host_device_async_resource_ref>);
static_assert(!std::is_convertible_v<mr::cuda_memory_resource&, host_resource_ref>);

TEST(ResourceRef, forwards_the_exact_count_on_every_path) {
    recording_resource mr;
    device_async_resource_ref ref{mr};
    cuda_stream stream;
    ref.deallocate(ref.allocate(3), 3);
    ref.deallocate(ref.allocate(3, 256), 3, 256);
    ref.deallocate_sync(ref.allocate_sync(3), 3);
    ref.deallocate_async(ref.allocate_async(3, stream), 3, stream);
    ref.deallocate_async(ref.allocate_async(3, 64, stream), 3, 64, stream);
    ref.deallocate(stream, ref.allocate(stream, 3), 3);
    ref.deallocate(stream, ref.allocate(stream, 3, 256), 3, 256);
    device_resource_ref sync = ref;
    sync.deallocate(sync.allocate(3), 3);
    ASSERT_EQ(mr.allocations.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(mr.allocations[i].bytes, 3u) << i;
        EXPECT_EQ(mr.frees[i].bytes, 3u) << i;
        EXPECT_EQ(mr.allocations[i].stream == stream.view(), i >= 3 && i < 7) << i;
    }
}

TEST(ResourceRef, serves_types_without_a_base_class) {
    foreign_resource mr;
    device_async_resource_ref ref{&mr};
    cuda_stream stream;
    EXPECT_EQ(ref.allocate_async(7, stream), &mr);
    EXPECT_EQ(mr.last_bytes, 7u);
    EXPECT_EQ(mr.last_stream, stream.view());
    ref.deallocate_async(&mr, 9, stream);
    EXPECT_EQ(mr.last_bytes, 9u);
    device_resource_ref sync{mr};
    EXPECT_EQ(sync.allocate(11), &mr);
    EXPECT_EQ(mr.last_bytes, 11u);
}

/// Every spelling without a stream, once.
template<class Ref> void allocate_and_free_without_a_stream(Ref ref) {
    ref.deallocate(ref.allocate(8), 8);
    ref.deallocate(ref.allocate(8, 16), 8, 16);
    ref.deallocate_sync(ref.allocate_sync(8), 8);
    ref.deallocate_sync(ref.allocate_sync(8, 16), 8, 16);
}

TEST(ResourceRef, calls_without_a_stream_are_the_resources_own_also_where_it_has_others) {
    foreign_resource mr;
    allocate_and_free_without_a_stream(device_async_resource_ref{mr});
    allocate_and_free_without_a_stream(device_resource_ref{mr});
    allocate_and_free_without_a_stream(device_resource_ref{device_async_resource_ref{mr}});
    allocate_and_free_without_a_stream(host_device_async_resource_ref{mr});
    allocate_and_free_without_a_stream(host_device_resource_ref{mr});
    allocate_and_free_without_a_stream(host_resource_ref{mr});
    EXPECT_EQ(mr.num_synchronous, 6 * 8);
    EXPECT_EQ(mr.num_ordered, 0);
}

/// Has the synchronous calls in both spellings.
struct two_spellings {
    void* allocate(std::size_t, std::size_t) {
        ++num_plain;
        return this;
    }
    void deallocate(void*, std::size_t, std::size_t) { ++num_plain; }
    void* allocate_sync(std::size_t, std::size_t) {
        ++num_other;
        return this;
    }
    void deallocate_sync(void*, std::size_t, std::size_t) { ++num_other; }
    bool operator==(const two_spellings& other) const { return this == &other; }
    bool operator!=(const two_spellings& other) const { return this != &other; }
    friend void get_property(const two_spellings&, rmm::detail::device_accessible) {}
    int num_plain = 0;
    int num_other = 0;
};

TEST(ResourceRef, allocate_is_preferred_to_the_newer_spelling) {
    two_spellings mr;
    allocate_and_free_without_a_stream(device_resource_ref{mr});
    EXPECT_EQ(mr.num_plain, 8);
    EXPECT_EQ(mr.num_other, 0);
}

TEST(ResourceRef, references_to_one_object_are_equal_however_they_were_made) {
    mr::cuda_memory_resource object;
    mr::device_memory_resource* base = &object;
    EXPECT_EQ(device_async_resource_ref{object}, device_async_resource_ref{base});
    EXPECT_EQ(device_async_resource_ref{object}, device_async_resource_ref{*base});
    EXPECT_EQ(device_async_resource_ref{object}, device_async_resource_ref{&object});
}

TEST(ResourceRef, equality_follows_the_resources) {
    mr::cuda_memory_resource cuda_a;
    mr::cuda_memory_resource cuda_b;
    mr::managed_memory_resource managed;
    EXPECT_EQ(device_async_resource_ref{cuda_a}, device_async_resource_ref{cuda_b});
    EXPECT_NE(device_async_resource_ref{cuda_a}, device_async_resource_ref{managed});
    foreign_resource a;
    foreign_resource b;
    EXPECT_EQ(device_async_resource_ref{a}, device_async_resource_ref{b});
    b.group = 1;
    EXPECT_NE(device_async_resource_ref{a}, device_async_resource_ref{b});
    EXPECT_NE(device_async_resource_ref{a}, device_async_resource_ref{cuda_a});
}

TEST(ResourceRef, can_be_assigned_another_resource) {
    recording_resource a;
    recording_resource b;
    device_async_resource_ref ref{a};
    ref = b;
    ref.deallocate(ref.allocate(5), 5);
    EXPECT_TRUE(a.allocations.empty());
    EXPECT_EQ(b.allocations.size(), 1u);
}

TEST(ResourceRef, bad_alignments_are_refused) {
    recording_resource mr;
    device_async_resource_ref ref{mr};
    EXPECT_THROW((void)ref.allocate(8, 3), rmm::logic_error);
    EXPECT_THROW((void)ref.allocate(8, 1024), rmm::bad_alloc);
}

TEST(ResourceRef, the_checked_conversion_refuses_null) {
    mr::cuda_memory_resource* none = nullptr;
    try {
        (void)to_device_async_resource_ref_checked(none);
        FAIL();
    } catch (const rmm::logic_error& e) {
        EXPECT_NE(std::string(e.what()).find("Unexpected null resource pointer."), std::string::npos);
    }
    mr::cuda_memory_resource object;
    EXPECT_EQ(to_device_async_resource_ref_checked(&object), device_async_resource_ref{object});
}

}  // namespace
