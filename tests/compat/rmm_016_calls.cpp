// The C++ calls of the README of RMM 0.16 that need neither a kernel nor Thrust: streams are plain handles, resources
// plain pointers. rmm_kernel_calls.cu has the others.
#include <cstdint>
#include <memory>
#include <vector>

#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>

#include "expect.hpp"

void the_default_resource_becomes_a_pool() {
    rmm::mr::device_memory_resource* mr = rmm::mr::get_current_device_resource();
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{mr};
    EXPECT_THAT(pool.pool_size() > 0);
    rmm::mr::device_memory_resource* previous = rmm::mr::set_current_device_resource(&pool);
    EXPECT_THAT(previous == mr);
    EXPECT_THAT(rmm::mr::get_current_device_resource() == &pool);
    EXPECT_THAT(rmm::mr::get_default_resource() == &pool);
    EXPECT_THAT(rmm::mr::set_default_resource(nullptr) == &pool);
    EXPECT_THAT(rmm::mr::get_current_device_resource() == mr);
}

void devices_have_resources_of_their_own() {
    using pool = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;
    std::vector<std::unique_ptr<pool>> pools;
    const int num_devices = rmm::get_num_cuda_devices();
    for (int i = 0; i < num_devices; ++i) {
        rmm::cuda_set_device_raii device{rmm::cuda_device_id{i}};
        pools.push_back(std::make_unique<pool>(rmm::mr::get_current_device_resource(), 1 << 20));
        rmm::mr::set_per_device_resource(rmm::cuda_device_id{i}, pools.back().get());
        EXPECT_THAT(rmm::mr::get_per_device_resource(rmm::cuda_device_id{i}) == pools.back().get());
    }
    for (int i = 0; i < num_devices; ++i) rmm::mr::set_per_device_resource(rmm::cuda_device_id{i}, nullptr);
}

void memory_in_the_order_of_a_plain_stream(cudaStream_t s) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::managed_memory_resource managed;
    for (rmm::mr::device_memory_resource* mr : {static_cast<rmm::mr::device_memory_resource*>(&cuda),
                                                static_cast<rmm::mr::device_memory_resource*>(&managed)}) {
        void* p = mr->allocate(100, s);
        EXPECT_THAT(p != nullptr);
        mr->deallocate(p, 100, s);
        // A null stream, as programs of that time wrote it.
        p = mr->allocate(100, 0);
        mr->deallocate(p, 100, 0);
    }
    auto limited = rmm::mr::make_limiting_adaptor(&cuda, 1 << 20);
    rmm::mr::device_memory_resource* mr = &limited;
    {
        rmm::device_buffer b{100, s};
        void* p = b.data();
        EXPECT_THAT(p != nullptr);
        rmm::device_buffer b2{100, s, mr};
        rmm::device_uvector<int32_t> v(100, s);
        rmm::device_uvector<int32_t> v2{100, s, mr};
        EXPECT_THAT(v2.data() != nullptr && limited.get_allocated_bytes() == 768);
        rmm::device_scalar<int32_t> a{s};
        a.set_value(42, s);
        int32_t value = a.value(s);
        EXPECT_THAT(value == 42);
    }
    EXPECT_THAT(limited.get_allocated_bytes() == 0);
}

void host_memory() {
    rmm::mr::new_delete_resource plain;
    rmm::mr::pinned_memory_resource pinned;
    plain.deallocate(plain.allocate(100, 32), 100, 32);
    pinned.deallocate(pinned.allocate(100), 100);
}

int main() {
    the_default_resource_becomes_a_pool();
    devices_have_resources_of_their_own();
    rmm::cuda_stream owner;
    memory_in_the_order_of_a_plain_stream(owner.value());
    host_memory();
}
