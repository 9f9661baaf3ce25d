// The C++ calls of the README of hipMM (the API of RMM 23.12) that need neither a kernel nor Thrust:
// rmm_kernel_calls.cu has those.
#include <cstdint>
#include <memory>
#include <vector>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>

#include "expect.hpp"

/// A program's own resource, written as 23.12 wanted it.
class counting_resource final : public rmm::mr::device_memory_resource {
  public:
    int num_live = 0;
    bool supports_streams() const noexcept override { return false; }
    bool supports_get_mem_info() const noexcept override { return false; }

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        void* const p = upstream_.allocate(bytes, stream);
        ++num_live;
        return p;
    }
    void do_deallocate(void* p, std::size_t bytes, rmm::cuda_stream_view stream) override {
        upstream_.deallocate(p, bytes, stream);
        --num_live;
    }
    std::pair<std::size_t, std::size_t> do_get_mem_info(rmm::cuda_stream_view) const override { return {0, 0}; }
    rmm::mr::cuda_memory_resource upstream_;
};

void resources_allocate_on_streams() {
    rmm::mr::managed_memory_resource managed;
    rmm::cuda_stream_pool streams{3};
    EXPECT_THAT(streams.get_stream(0) == streams.get_stream(3));
    rmm::cuda_stream_view s = streams.get_stream();
    void* const p = managed.allocate(100, s);
    managed.deallocate(p, 100, s);
    rmm::mr::thread_safe_resource_adaptor<rmm::mr::managed_memory_resource> locked{&managed};
    locked.deallocate(locked.allocate(100, s), 100, s);
}

void a_pool_becomes_the_current_resource() {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda};
    EXPECT_THAT(pool.pool_size() > 0);
    rmm::mr::set_current_device_resource(&pool);
    rmm::mr::device_memory_resource* current = rmm::mr::get_current_device_resource();
    EXPECT_THAT(current == &pool);
    rmm::mr::set_current_device_resource(nullptr);
    EXPECT_THAT(rmm::mr::get_current_device_resource()->is_equal(cuda));
}

void every_device_has_a_pool() {
    using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;
    rmm::mr::cuda_memory_resource cuda;
    std::vector<std::unique_ptr<pool>> pools;
    for (int i = 0; i < rmm::get_num_cuda_devices(); ++i) {
        rmm::cuda_set_device_raii device{rmm::cuda_device_id{i}};
        pools.push_back(std::make_unique<pool>(&cuda, 1 << 20));
        rmm::mr::set_per_device_resource(rmm::cuda_device_id{i}, pools.back().get());
    }
    {
        // Each goes back to its device, whichever is current then.
        rmm::device_buffer a{16, rmm::cuda_stream_default};
        rmm::cuda_set_device_raii last{rmm::cuda_device_id{rmm::get_num_cuda_devices() - 1}};
        rmm::device_buffer b{16, rmm::cuda_stream_default};
        EXPECT_THAT(b.memory_resource() == rmm::device_async_resource_ref{*pools.back()});
        a = rmm::device_buffer{};
    }
    for (int i = 0; i < rmm::get_num_cuda_devices(); ++i)
        rmm::mr::set_per_device_resource(rmm::cuda_device_id{i}, nullptr);
}

void a_standard_allocator_on_a_stream() {
    rmm::cuda_stream stream;
    rmm::mr::polymorphic_allocator<int> allocator;
    auto adapted = rmm::mr::make_stream_allocator_adaptor(allocator, stream);
    auto p = adapted.allocate(100);
    EXPECT_THAT(p != nullptr);
    adapted.deallocate(p, 100);
}

void containers() {
    rmm::cuda_stream owner;
    rmm::cuda_stream_view s{owner};
    counting_resource counting;
    rmm::mr::device_memory_resource* mr = &counting;
    {
        rmm::device_buffer b{100, s};
        void* p = b.data();
        EXPECT_THAT(p != nullptr);
        rmm::device_buffer b2{100, s, mr};
        rmm::device_uvector<int32_t> v(100, s);
        rmm::device_uvector<int32_t> v2{100, s, mr};
        EXPECT_THAT(v.size() == v2.size() && counting.num_live == 2);
        rmm::device_scalar<int32_t> a{s};
        a.set_value(42, s);
        int32_t value = a.value(s);
        EXPECT_THAT(value == 42);
    }
    EXPECT_THAT(counting.num_live == 0);
}

void host_memory() {
    rmm::mr::new_delete_resource plain;
    rmm::mr::pinned_memory_resource pinned;
    for (rmm::mr::host_memory_resource* mr :
         {static_cast<rmm::mr::host_memory_resource*>(&plain), static_cast<rmm::mr::host_memory_resource*>(&pinned)}) {
        void* p = mr->allocate(1000, 64);
        EXPECT_THAT(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
        mr->deallocate(p, 1000, 64);
    }
}

int main() {
    resources_allocate_on_streams();
    a_pool_becomes_the_current_resource();
    every_device_has_a_pool();
    a_standard_allocator_on_a_stream();
    containers();
    host_memory();
}
