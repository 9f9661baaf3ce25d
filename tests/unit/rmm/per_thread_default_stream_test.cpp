// The headers in a unit that defines CUDA_API_PER_THREAD_DEFAULT_STREAM: stream 0 is the thread's own there, also in
// compiled code, which was built without it; the program's own resources and callbacks see the handle that was passed;
// and other units of the program are not affected.
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#endif

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "forwarding_library.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/host_buffer.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/callback_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/debug_resource_adaptor.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/polymorphic_allocator.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/reclaimer.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/resource_ref.hpp"
#include "rmm/rmm.h"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using rmm_test::gate;
using rmm_test::is_idle;
using rmm_test::recording_resource;
using any = mr::device_memory_resource;

/// Every request that reached the resource came with the handle that the caller passed.
void expect_handle_zero(const recording_resource& mr, std::size_t num_requests) {
    ASSERT_EQ(mr.allocations.size(), num_requests);
    ASSERT_EQ(mr.frees.size(), num_requests);
    for (const auto& r : mr.allocations) EXPECT_EQ(r.stream, cuda_stream_view{});
    for (const auto& r : mr.frees) EXPECT_EQ(r.stream, cuda_stream_view{});
}

/// An adaptor as a program writes one: it forwards what it is given.
template<typename Upstream>
class own_adaptor final : public mr::device_memory_resource {
  public:
    explicit own_adaptor(Upstream* upstream) : upstream_{upstream} {}

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        return upstream_->allocate_async(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        upstream_->deallocate_async(ptr, bytes, stream);
    }
    Upstream* upstream_;
};

/// A resource of the program without a base class.
struct plain_resource {
    void* allocate(std::size_t, std::size_t) {
        ++num_synchronous;
        return this;
    }
    void deallocate(void*, std::size_t, std::size_t) { ++num_synchronous; }
    void* allocate_async(std::size_t, std::size_t, cuda_stream_view stream) {
        streams.push_back(stream);
        return this;
    }
    void deallocate_async(void*, std::size_t, std::size_t, cuda_stream_view stream) { streams.push_back(stream); }
    bool operator==(const plain_resource& other) const { return this == &other; }
    bool operator!=(const plain_resource& other) const { return this != &other; }
    friend void get_property(const plain_resource&, rmm::detail::device_accessible) {}

    std::vector<cuda_stream_view> streams;
    int num_synchronous = 0;
};

TEST(PerThreadDefaultStream, stream_zero_is_the_threads_own) {
    EXPECT_TRUE(cuda_stream_default.is_per_thread_default());
    EXPECT_FALSE(cuda_stream_default.is_default());
    EXPECT_TRUE(cuda_stream_legacy.is_default());
    EXPECT_NO_THROW(cuda_stream_default.synchronize());
}

TEST(PerThreadDefaultStream, resources_of_the_program_are_given_the_handle_that_was_passed) {
    recording_resource mr;
    mr.deallocate(mr.allocate(10), 10);
    mr.deallocate(mr.allocate(10, 64), 10, 64);
    mr.deallocate_sync(mr.allocate_sync(10), 10);
    mr.deallocate(mr.allocate(10, cuda_stream_default), 10, cuda_stream_default);
    mr.deallocate_async(mr.allocate_async(10, cuda_stream_default), 10, cuda_stream_default);
    mr.deallocate(cuda_stream_default, mr.allocate(cuda_stream_default, 10), 10);
    device_async_resource_ref ref{mr};
    ref.deallocate(ref.allocate(10), 10);
    ref.deallocate_async(ref.allocate_async(10, cuda_stream_default), 10, cuda_stream_default);
    expect_handle_zero(mr, 8);
    mr.deallocate(mr.allocate(10, cuda_stream_per_thread), 10, cuda_stream_legacy);
    EXPECT_EQ(mr.allocations.back().stream, cuda_stream_per_thread);
    EXPECT_EQ(mr.frees.back().stream, cuda_stream_legacy);

    plain_resource plain;
    device_async_resource_ref to_plain{plain};
    to_plain.deallocate_async(to_plain.allocate_async(10, cuda_stream_default), 10, cuda_stream_default);
    EXPECT_EQ(plain.streams, (std::vector<cuda_stream_view>{cuda_stream_default, cuda_stream_default}));
}

TEST(PerThreadDefaultStream, containers_and_allocators_pass_the_handle_that_they_were_given) {
    recording_resource mr;
    {
        device_buffer buffer{10, cuda_stream_default, mr};
        buffer.resize(20, cuda_stream_default);
        device_buffer copy{buffer, cuda_stream_default, mr};
        device_uvector<int> vector{10, cuda_stream_default, mr};
        device_scalar<int> scalar{cuda_stream_default, mr};
        mr::polymorphic_allocator<int> allocator{mr};
        allocator.deallocate(allocator.allocate(10, cuda_stream_default), 10, cuda_stream_default);
        mr::stream_allocator_adaptor<mr::polymorphic_allocator<int>> on_stream{allocator, cuda_stream_default};
        on_stream.deallocate(on_stream.allocate(10), 10);
    }
    expect_handle_zero(mr, 7);
}

TEST(PerThreadDefaultStream, containers_still_say_the_stream_that_they_were_given) {
    device_buffer buffer{10, cuda_stream_default};
    EXPECT_EQ(buffer.stream(), cuda_stream_default);
    buffer.set_stream(cuda_stream_legacy);
    EXPECT_EQ(buffer.stream(), cuda_stream_legacy);
}

/// One request through a resource of this library that stands on one of the program's.
template<typename Make>
void expect_forwarded(const char* what, Make make) {
    SCOPED_TRACE(what);
    recording_resource mr;
    {
        auto above = make(mr);
        above->deallocate(above->allocate(1000), 1000);
        device_async_resource_ref ref{*above};
        ref.deallocate_async(ref.allocate_async(3000, cuda_stream_default), 3000, cuda_stream_default);
    }
    expect_handle_zero(mr, 2);
}

TEST(PerThreadDefaultStream, adaptors_forward_the_handle_that_was_passed) {
    expect_forwarded("statistics",
                     [](auto& mr) { return std::make_unique<mr::statistics_resource_adaptor<any>>(&mr); });
    expect_forwarded("tracking", [](auto& mr) { return std::make_unique<mr::tracking_resource_adaptor<any>>(&mr); });
    expect_forwarded("limiting",
                     [](auto& mr) { return std::make_unique<mr::limiting_resource_adaptor<any>>(&mr, MiB); });
    expect_forwarded("aligned", [](auto& mr) { return std::make_unique<mr::aligned_resource_adaptor<any>>(&mr, 512); });
    expect_forwarded("thread_safe",
                     [](auto& mr) { return std::make_unique<mr::thread_safe_resource_adaptor<any>>(&mr); });
    expect_forwarded("prefetch", [](auto& mr) { return std::make_unique<mr::prefetch_resource_adaptor<any>>(&mr); });
    expect_forwarded("debug", [](auto& mr) {
        mr::debug_options no_quarantine;
        no_quarantine.quarantine_bytes = 0;
        return std::make_unique<mr::debug_resource_adaptor<any>>(&mr, no_quarantine);
    });
    expect_forwarded("binning", [](auto& mr) { return std::make_unique<mr::binning_memory_resource<any>>(&mr); });
    expect_forwarded("failure_callback", [](auto& mr) {
        return std::make_unique<mr::failure_callback_resource_adaptor<any>>(
            &mr, [](std::size_t, void*) { return false; }, nullptr);
    });
    expect_forwarded("own adaptor over statistics", [](auto& mr) {
        auto below = std::make_shared<mr::statistics_resource_adaptor<any>>(&mr);
        return mr::make_owning_wrapper<own_adaptor>(below);
    });
}

TEST(PerThreadDefaultStream, the_resource_of_the_device_is_given_the_handle_that_was_passed) {
    plain_resource mr;
    mr::set_current_device_resource_ref(device_async_resource_ref{mr});
    any* const through_pointer = mr::get_current_device_resource();
    through_pointer->deallocate(through_pointer->allocate(10), 10);
    mr::reset_current_device_resource_ref();
    EXPECT_EQ(mr.streams, (std::vector<cuda_stream_view>{cuda_stream_default, cuda_stream_default}));
}

TEST(PerThreadDefaultStream, the_upstream_of_a_pool_is_given_the_handle_that_was_passed) {
    recording_resource mr;
    {
        mr::pool_memory_resource<any> pool{&mr, 0};
        pool.deallocate(pool.allocate(10 * MiB), 10 * MiB);
        ASSERT_EQ(mr.allocations.size(), 1u);
        EXPECT_EQ(mr.allocations[0].stream, cuda_stream_view{});
        pool.deallocate(pool.allocate(20 * MiB, cuda_stream_per_thread), 20 * MiB, cuda_stream_per_thread);
        ASSERT_EQ(mr.allocations.size(), 2u);
        EXPECT_EQ(mr.allocations[1].stream, cuda_stream_per_thread);
    }
}

TEST(PerThreadDefaultStream, the_upstream_of_a_pool_is_given_it_too_when_blocks_are_exchanged) {
    recording_resource mr;
    mr.limit = 10 * MiB;
    {
        mr::pool_memory_resource<any> pool{&mr, 0};
        void* const first = pool.allocate(4 * MiB);
        void* const second = pool.allocate(4 * MiB);
        pool.deallocate(first, 4 * MiB);
        pool.deallocate(second, 4 * MiB);
        pool.deallocate(pool.allocate(8 * MiB), 8 * MiB);
        ASSERT_GE(mr.frees.size(), 1u) << "nothing was exchanged";
        for (const auto& r : mr.frees) EXPECT_EQ(r.stream, cuda_stream_view{});
        for (const auto& r : mr.allocations) EXPECT_EQ(r.stream, cuda_stream_view{});
    }
}

TEST(PerThreadDefaultStream, callbacks_of_the_program_are_given_the_handle_that_was_passed) {
    std::vector<cuda_stream_view> seen;
    mr::cuda_memory_resource cuda;
    mr::callback_memory_resource callbacks{[&](std::size_t bytes, cuda_stream_view stream, void*) {
                                               seen.push_back(stream);
                                               return cuda.allocate(bytes, stream);
                                           },
                                           [&](void* ptr, std::size_t bytes, cuda_stream_view stream, void*) {
                                               seen.push_back(stream);
                                               cuda.deallocate(ptr, bytes, stream);
                                           }};
    mr::statistics_resource_adaptor<mr::callback_memory_resource> counted{&callbacks};
    { device_buffer buffer{10, cuda_stream_default, counted}; }
    EXPECT_EQ(seen, (std::vector<cuda_stream_view>{cuda_stream_default, cuda_stream_default}));
}

TEST(PerThreadDefaultStream, functions_of_c_are_given_the_stream_that_is_meant) {
    std::vector<cudaStream_t> seen;
    rmm_resource* callbacks = nullptr;
    ASSERT_EQ(rmm_open_callbacks(
                  [](void* user, std::size_t, cudaStream_t stream, void** out) -> int {
                      static_cast<std::vector<cudaStream_t>*>(user)->push_back(stream);
                      *out = user;
                      return RMM_OK;
                  },
                  [](void* user, void*, std::size_t, cudaStream_t stream) {
                      static_cast<std::vector<cudaStream_t>*>(user)->push_back(stream);
                  },
                  nullptr, &seen, &callbacks),
              RMM_OK);
    ASSERT_EQ(rmm_set_device_resource(0, callbacks), RMM_OK);
    rmm_release(callbacks);
    any* const resource = mr::get_current_device_resource();
    resource->deallocate(resource->allocate(10), 10);
    resource->deallocate(resource->allocate(10, cuda_stream_legacy), 10, cuda_stream_legacy);
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    const cudaStream_t own = cuda_stream_per_thread.value();
    const cudaStream_t legacy = cuda_stream_legacy.value();
    EXPECT_EQ(seen, (std::vector<cudaStream_t>{own, own, legacy, legacy}));
}

/// Gives nothing back, and remembers whom it was asked for.
struct asked_in_vain final : mr::reclaimer {
    std::size_t reclaim(std::size_t, cuda_stream_view stream) noexcept override {
        last = stream;
        return 0;
    }
    cuda_stream_view last{cuda_stream_legacy};
};

TEST(PerThreadDefaultStream, reclaimers_of_the_program_are_given_the_handle_that_was_passed) {
    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    mr::limiting_resource_adaptor<mr::cuda_memory_resource> limited{&cuda, MiB};
    mr::cuda_async_memory_resource async{0};
    // A request for more than the device has in all asks nobody.
    const std::size_t most = available_device_memory().first / 4 * 3;
    for (auto [resource, bytes] :
         {std::pair<any*, std::size_t>{&pool, MiB}, {&limited, MiB}, {&async, most}, {&cuda, most}}) {
        void* const all = resource->allocate(bytes);
        asked_in_vain who;
        mr::reclaimer_registration registration{cuda_device_id{0}, 0, who};
        EXPECT_THROW((void)resource->allocate(bytes), rmm::out_of_memory);
        EXPECT_EQ(who.last, cuda_stream_default);
        resource->deallocate(all, bytes);
    }
}

TEST(PerThreadDefaultStream, resources_of_this_library_are_told_which_stream_is_meant) {
    std::ostringstream log;
    recording_resource mr;
    mr::logging_resource_adaptor<any> logging{&mr, log};
    own_adaptor<any> adaptor{&logging};
    adaptor.deallocate(adaptor.allocate(1000), 1000);
    logging.flush();
    EXPECT_NE(log.str().find(",1000,0x2\n"), std::string::npos) << log.str();
    expect_handle_zero(mr, 1);

    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    own_adaptor<any> over_pool{&pool};
    try {
        (void)over_pool.allocate(2 * MiB);
        FAIL();
    } catch (const rmm::out_of_memory& e) {
        EXPECT_NE(std::string(e.what()).find("on stream 0x2"), std::string::npos) << e.what();
    }
}

/// A block of `resource` that this thread's default stream still uses when it is freed, as another thread gets it.
void expect_a_fence_between_threads(const char* what, any& resource, std::size_t bytes) {
    SCOPED_TRACE(what);
    gate g;
    void* const ptr = resource.allocate(bytes);
    g.close(cuda_stream_per_thread);
    resource.deallocate(ptr, bytes);
    void* again = nullptr;
    std::thread([&] {
        EXPECT_TRUE(is_idle(cuda_stream_per_thread));
        again = resource.allocate(bytes);
        // The same block: then this thread's stream comes after the other's. Another one: nothing to wait for.
        EXPECT_EQ(is_idle(cuda_stream_per_thread), again != ptr);
        g.open();
        cuda_stream_default.synchronize();
        resource.deallocate(again, bytes);
    }).join();
    cuda_stream_default.synchronize();
}

TEST(PerThreadDefaultStream, no_block_changes_thread_without_a_fence_through_an_adaptor_of_the_program) {
    mr::cuda_memory_resource cuda;
    // As large as the block: whoever gets memory gets this.
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    own_adaptor<any> over_pool{&pool};
    expect_a_fence_between_threads("pool", over_pool, MiB);

    mr::statistics_resource_adaptor<any> counted{&over_pool};
    own_adaptor<any> again{&counted};
    expect_a_fence_between_threads("own over statistics over own over pool", again, MiB);

    const auto in_between = rmm_test::forwarding_adaptor_of_a_library(pool);
    expect_a_fence_between_threads("the adaptor of a library that was built without", *in_between, MiB);

    mr::fixed_size_memory_resource<mr::cuda_memory_resource> fixed{&cuda, 1024, 1};
    own_adaptor<any> over_fixed{&fixed};
    expect_a_fence_between_threads("fixed_size", over_fixed, 1024);

    mr::cuda_async_memory_resource async{MiB, MiB};
    own_adaptor<any> over_async{&async};
    expect_a_fence_between_threads("cuda_async", over_async, MiB);

    mr::vmm_memory_resource vmm{2 * MiB};
    own_adaptor<any> over_vmm{&vmm};
    expect_a_fence_between_threads("vmm", over_vmm, 2 * MiB);
}

TEST(PerThreadDefaultStream, no_block_of_a_buffer_changes_thread_without_a_fence_through_an_adaptor_of_the_program) {
    mr::cuda_memory_resource cuda;
    mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    own_adaptor<any> adaptor{&pool};
    gate g;
    void* ptr = nullptr;
    {
        device_buffer buffer{MiB, cuda_stream_default, adaptor};
        ptr = buffer.data();
        g.close(cuda_stream_per_thread);
        rmm_test::destroy_in_a_library(std::move(buffer));
    }
    std::thread([&] {
        device_buffer buffer{MiB, cuda_stream_default, adaptor};
        EXPECT_EQ(buffer.data(), ptr);
        EXPECT_FALSE(is_idle(cuda_stream_per_thread));
        g.open();
        cuda_stream_default.synchronize();
    }).join();
    cuda_stream_default.synchronize();
}

/// Page-locked memory of the program, in stream order.
struct plain_host_resource {
    void* allocate(std::size_t bytes, std::size_t) { return ::operator new(bytes); }
    void deallocate(void* ptr, std::size_t, std::size_t) { ::operator delete(ptr); }
    void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        streams.push_back(stream);
        return allocate(bytes, alignment);
    }
    void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        streams.push_back(stream);
        deallocate(ptr, bytes, alignment);
    }
    bool operator==(const plain_host_resource& other) const { return this == &other; }
    bool operator!=(const plain_host_resource& other) const { return this != &other; }
    friend void get_property(const plain_host_resource&, rmm::detail::host_accessible) {}
    std::vector<cuda_stream_view> streams;
};

TEST(PerThreadDefaultStream, host_buffers_pass_the_handle_that_they_were_given) {
    plain_host_resource mr;
    {
        host_buffer buffer{10, cuda_stream_default, host_resource_ref{mr}};
        buffer.resize(100, cuda_stream_default);
    }
    EXPECT_EQ(mr.streams, std::vector<cuda_stream_view>(4, cuda_stream_default));
}

}  // namespace
