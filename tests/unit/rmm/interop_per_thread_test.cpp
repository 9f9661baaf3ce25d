// The drop-in in a unit that defines CUDA_API_PER_THREAD_DEFAULT_STREAM: references of libcu++ that were made there
// from ours.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM

#include <gtest/gtest.h>

#include <cuda/memory_resource>
#include <thread>
#include <vector>

#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/thrust_allocator_adaptor.hpp"
#include "rmm/resource_ref.hpp"
#include "stream_tools.hpp"
#include "support/sizes.hpp"

namespace {

using device_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
using rmm_test::gate;
using rmm_test::is_idle;

/// A resource of the program that writes down the streams that it sees.
class listening_resource final : public rmm::mr::device_memory_resource {
  public:
    explicit listening_resource(rmm::mr::device_memory_resource* upstream) : upstream_{upstream} {}
    std::vector<rmm::cuda_stream_view> streams;

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        streams.push_back(stream);
        return upstream_->allocate(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        streams.push_back(stream);
        upstream_->deallocate(ptr, bytes, stream);
    }
    rmm::mr::device_memory_resource* upstream_;
};

TEST(InteropPerThread, references_of_libcu_mean_the_threads_own_stream_and_pass_the_handle_on) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    listening_resource listening{&pool};
    rmm::device_async_resource_ref ours{listening};
    device_ref theirs = ours;
    for (const bool ordered : {true, false}) {
        const auto allocate = [&] {
            return ordered ? theirs.allocate_async(MiB, 256, cuda::stream_ref{cudaStream_t{}})
                           : theirs.allocate(MiB, 256);
        };
        const auto deallocate = [&](void* ptr) {
            if (ordered)
                theirs.deallocate_async(ptr, MiB, 256, cuda::stream_ref{cudaStream_t{}});
            else
                theirs.deallocate(ptr, MiB, 256);
        };
        gate g;
        void* const ptr = allocate();
        g.close(rmm::cuda_stream_per_thread);
        deallocate(ptr);
        std::thread([&] {
            EXPECT_EQ(allocate(), ptr);
            EXPECT_FALSE(is_idle(rmm::cuda_stream_per_thread));
            g.open();
            rmm::cuda_stream_default.synchronize();
            deallocate(ptr);
        }).join();
    }
    EXPECT_EQ(listening.streams, std::vector<rmm::cuda_stream_view>(8));
}

TEST(InteropPerThread, allocators_of_thrust_pass_the_handle_that_they_were_given) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    listening_resource listening{&pool};
    rmm::mr::thrust_allocator<char> allocator{rmm::cuda_stream_default, listening};
    gate g;
    const auto ptr = allocator.allocate(MiB);
    g.close(rmm::cuda_stream_per_thread);
    allocator.deallocate(ptr, MiB);
    std::thread([&] {
        EXPECT_EQ(allocator.allocate(MiB), ptr);
        EXPECT_FALSE(is_idle(rmm::cuda_stream_per_thread));
        g.open();
        rmm::cuda_stream_default.synchronize();
        allocator.deallocate(ptr, MiB);
    }).join();
    EXPECT_EQ(listening.streams, std::vector<rmm::cuda_stream_view>(4));
}

}  // namespace
