// rmm::prefetch and its adaptor on the host driver, where all memory is near: what is accepted, ignored and refused.
#include "rmm/prefetch.hpp"

#include <gtest/gtest.h>

#include <array>

#include "fake_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"

namespace {

using namespace rmm::mr;

const rmm::cuda_device_id host{-1};

TEST(Prefetch, takes_managed_memory_to_any_device_and_to_the_host) {
    managed_memory_resource managed;
    rmm::cuda_stream stream;
    rmm::device_buffer buffer{4096, stream, managed};
    rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), stream);
    rmm::prefetch(buffer.data(), 100, rmm::cuda_device_id{1}, stream);
    rmm::prefetch(buffer.data(), buffer.size(), host, stream);
    rmm::prefetch(buffer.data(), 0, rmm::get_current_cuda_device(), stream);
    stream.synchronize();
}

TEST(Prefetch, ignores_memory_that_is_not_managed_and_leaves_no_error) {
    cuda_memory_resource cuda;
    rmm::cuda_stream stream;
    rmm::device_buffer buffer{4096, stream, cuda};
    std::array<int, 16> on_host{};
    EXPECT_NO_THROW(rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), stream));
    EXPECT_NO_THROW(rmm::prefetch(on_host.data(), sizeof(on_host), rmm::get_current_cuda_device(), stream));
    EXPECT_NO_THROW(rmm::prefetch(nullptr, 100, rmm::get_current_cuda_device(), stream));
    EXPECT_NO_THROW(stream.synchronize());
}

TEST(Prefetch, refuses_a_device_that_does_not_exist) {
    managed_memory_resource managed;
    rmm::cuda_stream stream;
    rmm::device_buffer buffer{4096, stream, managed};
    EXPECT_THROW(rmm::prefetch(buffer.data(), 100, rmm::cuda_device_id{99}, stream), rmm::cuda_error);
    EXPECT_THROW(rmm::prefetch(buffer.data(), 100, rmm::cuda_device_id{-2}, stream), rmm::cuda_error);
}

TEST(Prefetch, takes_containers_and_pairs_of_addresses) {
    managed_memory_resource managed;
    rmm::cuda_stream stream;
    rmm::device_uvector<int> vector(100, stream, managed);
    const auto device = rmm::get_current_cuda_device();
    rmm::prefetch<int>(vector, device, stream);
    rmm::prefetch<int>({vector.begin(), vector.begin() + vector.size() / 2}, device, stream);
    rmm::prefetch<int>({vector.data(), std::size_t{10}}, device, stream);
    rmm::device_scalar<int> scalar(stream, managed);
    rmm::prefetch<int>({scalar.data(), scalar.size()}, device, stream);
    stream.synchronize();
}

TEST(PrefetchAdaptor, gives_memory_of_managed_and_other_upstreams) {
    managed_memory_resource managed;
    cuda_memory_resource cuda;
    prefetch_resource_adaptor over_managed{&managed};
    prefetch_resource_adaptor over_cuda{&cuda};
    rmm::cuda_stream stream;
    for (rmm::device_async_resource_ref mr :
         {rmm::device_async_resource_ref{over_managed}, rmm::device_async_resource_ref{over_cuda}}) {
        rmm::device_buffer buffer{1 << 20, stream, mr};
        EXPECT_NE(buffer.data(), nullptr);
        rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), stream);
    }
}

TEST(PrefetchAdaptor, can_be_moved) {
    managed_memory_resource managed;
    prefetch_resource_adaptor a{&managed};
    void* const ptr = a.allocate(100);
    prefetch_resource_adaptor b{std::move(a)};
    b.deallocate(ptr, 100);
    EXPECT_EQ(b.get_upstream(), &managed);
}

}  // namespace
